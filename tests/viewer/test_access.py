"""Every screen passes axe, in both themes, on a desk and on a telephone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import Browser, Page

from plait import Session
from tests.outline.sessions import ViewStore
from tests.server.clients import LiveServer
from tests.viewer.browsers import opened_viewer

AXE = Path(__file__).parents[2] / "viewer/node_modules/axe-core/axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
LOOK = """(rules) => axe.run(document, {runOnly: rules}).then((found) =>
  found.violations.map((each) => [each.id, each.nodes.map((node) => node.html.slice(0, 200))]))"""


def violations(page: Page) -> Any:
    """Return what axe finds on a page, by rule."""
    page.evaluate(AXE.read_text())
    return page.evaluate(LOOK, RULES)


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_screen_passes_axe(
    browser: Browser,
    server: LiveServer,
    made: ViewStore,
    width: int,
    theme: Literal["light", "dark"],
) -> None:
    if not AXE.is_file():
        pytest.skip("axe is not installed: npm ci in viewer")
    repair = made.session("repair")
    one, two = Session.list(parent=repair, store=made.store)[:2]
    screens = {
        "/": ".session-row",
        "/?q=cart": ".hit-row",
        "/inbox": ".ask-row",
        f"/inbox/{made.session('gate').short}": ".ask-row",
        f"/compare/{one.short}..{two.short}": ".aligned-row",
        f"/whatif/{repair.short}@8": ".whatif-ahead dl",
        "/cost": ".flame-box",
        f"/cost/{repair.short}": ".burn",
        f"/memory/{made.session('remembered').short}": ".recalled",
        f"/verify/{repair.short}": ".verdict",
        "/no-such-page": ".state",
    }
    found: dict[str, Any] = {}
    with opened_viewer(browser, server, width=width, theme=theme) as viewer:
        for address, shown in screens.items():
            page = viewer.open(address)
            page.locator(shown).first.wait_for()
            found[address] = violations(page)
        page = viewer.open(f"/s/{repair.short}")
        page.locator("main.workbench").wait_for()
        page.keyboard.press("Control+k")
        page.get_by_role("dialog").wait_for()
        found["palette"] = violations(page)
    assert {address: each for address, each in found.items() if each} == {}
