"""The page in Chromium: nothing is loaded, nothing runs, axe finds nothing, and it is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import Browser, Page, expect

from plait.dossier.page import dossier_page
from tests.dossier.documents import dossier_of
from tests.outline.programs import hostile_texts
from tests.outline.sessions import ViewStore
from tests.viewer.browsers import WAIT_MS
from tests.viewer.conftest import browser as browser
from tests.viewer.test_access import AXE, violations_of
from tests.viewer.test_hostile import WATCH

NAMES = ("repair", "unknown", "remembered", "hostile", "killed", "large")
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def written(made: ViewStore, name: str, folder: Path) -> str:
    path = folder / f"{name}.html"
    path.write_text(dossier_page(dossier_of(made, name), has_run=False))
    return path.as_uri()


def open_all(page: Page) -> None:
    """Open everything that is folded."""
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")


@pytest.mark.ci
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_and_nothing_sticks_out(
    browser: Browser, made: ViewStore, tmp_path: Path, width: int
) -> None:
    if not AXE.is_file():
        pytest.skip("the packages of the page are not installed: make viewer")
    found = dict[str, Any]()
    context = browser.new_context(viewport={"width": width, "height": 844}, bypass_csp=True)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    for name in NAMES:
        page.goto(written(made, name, tmp_path))
        open_all(page)
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)
            if violations := violations_of(page):
                found[f"{name}, {theme}"] = violations
        root = "document.documentElement"
        assert page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth"), name
    context.close()
    assert found == {}


@pytest.mark.ci
def test_hostile_texts_do_nothing(browser: Browser, made: ViewStore, tmp_path: Path) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 844})
    context.set_default_timeout(WAIT_MS)
    told, asked = list[str](), list[str]()
    page = context.new_page()
    page.add_init_script(WATCH)
    page.on("dialog", lambda dialog: told.append(dialog.message))
    page.on("console", lambda message: told.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    address = written(made, "hostile", tmp_path)
    page.goto(address)
    open_all(page)
    assert page.evaluate("window.ran") == [] and told == []
    assert asked == [address]
    plain = next(each for each in hostile_texts() if each.startswith("<img"))
    expect(page.locator("main")).to_contain_text(plain)
    context.close()


@pytest.mark.ci
def test_a_link_opens_its_step_and_a_print_opens_all(
    browser: Browser, made: ViewStore, tmp_path: Path
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 844})
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.goto(written(made, "repair", tmp_path))
    result = page.locator("#s1-34 pre").first
    expect(result).to_be_hidden()
    page.get_by_role("link", name="reject@34").first.click()
    expect(page.locator("#s1-34")).to_be_in_viewport()
    page.emulate_media(media="print")
    expect(result).to_be_visible()
    assert len(page.pdf(prefer_css_page_size=True)) > 20_000
    context.close()
