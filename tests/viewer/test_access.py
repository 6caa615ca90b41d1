"""Every screen is open to everybody: axe finds nothing, in both themes and widths."""

from __future__ import annotations

from typing import Any, Literal

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import Browser, Page, expect

from tests.outline.sessions import ViewStore
from tests.server.clients import LiveServer
from tests.support import ROOT
from tests.viewer.browsers import WAIT_MS, opened_viewer
from tests.viewer.tour import all_screens, show

expect.set_options(timeout=WAIT_MS)
AXE = ROOT / "viewer" / "node_modules" / "axe-core" / "axe.min.js"
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
RUN = """async () => {
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const found = await axe.run(document, { runOnly: tags, resultTypes: ["violations"] });
  return found.violations.map((each) => [
    each.id,
    each.nodes.map((node) => [node.target.join(" "), node.html, node.failureSummary]),
  ]);
}"""


def violations_of(page: Page) -> list[Any]:
    """Return what axe finds. Its source is evaluated by the debugger: the policy stays as it is."""
    page.evaluate(AXE.read_text())
    return page.evaluate(RUN)


@pytest.mark.ci
@pytest.mark.parametrize("width", [1440, 390])
def test_axe_finds_nothing(
    browser: Browser, server: LiveServer, made: ViewStore, width: int
) -> None:
    if not AXE.is_file():
        pytest.skip("the packages of the page are not installed: make viewer")
    found = dict[str, Any]()
    with opened_viewer(browser, server, width=width) as viewer:
        for screen in all_screens(made):
            page = show(viewer, screen)
            for theme in THEMES:
                page.emulate_media(color_scheme=theme, reduced_motion="reduce")
                if violations := violations_of(page):
                    found[f"{screen.name}, {theme}"] = violations
    assert found == {}
