"""Texts that would run, hide or break out are texts: on every screen, and in a page of one file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast
from urllib.parse import quote

import msgspec
import pytest

pytest.importorskip("playwright")

from playwright.sync_api import Browser, Page, expect

from plait.view.file import write_file
from tests.outline.programs import hostile_texts
from tests.outline.sessions import ViewStore
from tests.viewer.browsers import WAIT_MS, Viewer

TABS = ("", "/files", "/prompt", "/why", "/influence", "/raw", "/state")
SCREENS = ("/", "/inbox", "/cost", "/?q=script", "/?q=alert")
ELEMENTS = (
    "#page :is(script, style, iframe, object, embed, base, video, meta, link, form[action],"
    " a[href^='javascript:'])"
)
# alert and its like are counted in the page itself: a dialog that nobody sees counts as well
WATCH = """
window.ran = [];
for (const name of ["alert", "confirm", "prompt", "open"])
  window[name] = (text) => { window.ran.push(`${name} ${text}`); };
addEventListener("securitypolicyviolation", (event) =>
  window.ran.push(`policy: ${event.violatedDirective} ${event.blockedURI}`));
"""


def look(page: Page, found: list[str]) -> None:
    """Note what ran on a page, and elements that no screen of ours has."""
    expect(page.locator(".loading-line")).to_have_count(0)
    found.extend(page.evaluate("window.ran"))
    found.extend(page.locator(ELEMENTS).evaluate_all("all => all.map(each => each.outerHTML)"))


def texts_of(value: object) -> list[str]:
    """Return every text in a value, at any depth."""
    match value:
        case str():
            return [value]
        case dict():
            return [
                text for each in cast(dict[str, object], value).values() for text in texts_of(each)
            ]
        case list() | tuple():
            return [text for each in cast(list[object], value) for text in texts_of(each)]
        case _:
            return []


def watched(page: Page, found: list[str]) -> None:
    """Note dialogs, errors and complaints of a page, and every request that leaves it."""
    page.add_init_script(WATCH)
    page.on("dialog", lambda dialog: found.append(f"dialog {dialog.message}"))
    page.on("pageerror", lambda error: found.append(f"error {error}"))
    page.on("popup", lambda other: found.append(f"window {other.url}"))
    page.on(
        "console",
        lambda told: found.append(told.text) if told.type in ("error", "warning") else None,
    )


def go_through(page: Page) -> int:
    """Go through all steps by keys, and return how many there are."""
    strip = page.get_by_role("slider", name="Place in the session")
    expect(strip).to_be_visible()
    count = int(strip.get_attribute("aria-valuemax") or "0")
    expect(strip).to_have_attribute("aria-valuetext", re.compile("^step "))  # steps are here
    strip.focus()
    page.keyboard.press("Home")
    for number in range(1, count + 1):
        expect(strip).to_have_attribute("aria-valuenow", str(number))
        page.keyboard.press("ArrowRight")
    return count


@pytest.mark.ci
def test_they_are_inert_on_every_screen(viewer: Viewer, made: ViewStore) -> None:
    session = made.session("hostile")
    found = list[str]()
    watched(viewer.page, found)
    file = quote("<img src=x onerror=alert(1)>.txt")
    places = [f"@{seq}{tab}" for tab in TABS for seq in (5, 60, 200, session.seq)]
    addresses = [
        *SCREENS,
        *(f"/s/{session.short}{place}" for place in places),
        f"/s/{session.short}/files/{file}",
        f"/s/{session.short}/files?against=start",
        f"/compare/{session.short}@5..{session.short}",
        f"/whatif/{session.short}@5",
        f"/cost/{session.short}",
        f"/memory/{session.short}",
        f"/verify/{session.short}",
        f"/s/{quote(hostile_texts()[0], safe='')}",
        f"/{quote(hostile_texts()[1], safe='')}",
    ]
    for address in addresses:
        page = viewer.open(address)
        expect(page.locator("main")).to_be_visible()
        look(page, found)
    assert [each for each in found if "status of 4" not in each] == []


@pytest.mark.ci
def test_each_is_shown_as_it_is_in_the_step_and_the_palette(
    viewer: Viewer, made: ViewStore
) -> None:
    found = list[str]()
    watched(viewer.page, found)
    session = made.session("hostile")
    page = viewer.open(f"/s/{session.short}@2")
    assert go_through(page) >= 200
    look(page, found)
    plain = [text for text in hostile_texts()[:20] if text.isprintable() and text.isascii()]
    assert len(plain) >= 12
    for text in plain:
        seq = next(
            event.seq
            for event in session.events
            if text in texts_of(msgspec.to_builtins(event.body))
        )
        expect(viewer.open(f"/s/{session.short}@{seq}").locator("#panel")).to_contain_text(text)
        look(page, found)
    page.keyboard.press("Control+k")
    page.keyboard.type("<script>")
    expect(page.get_by_role("dialog").get_by_role("option").first).to_be_visible()
    look(page, found)
    assert found == []


@pytest.mark.ci
def test_they_are_inert_in_one_file(browser: Browser, made: ViewStore, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    session = made.session("hostile")
    write_file(session, path, made=0)
    context = browser.new_context(viewport={"width": 1440, "height": 844})
    context.set_default_timeout(WAIT_MS)
    found, asked = list[str](), list[str]()
    page = context.new_page()
    watched(page, found)
    page.on("request", lambda request: asked.append(request.url))
    for tab in TABS:
        page.goto("about:blank")
        page.goto(f"{path.as_uri()}#/s/{session.id}@60{tab}")
        expect(page.get_by_role("listbox").get_by_role("option").first).to_be_visible()
        look(page, found)
    assert go_through(page) >= 200
    look(page, found)
    context.close()
    assert found == []
    told = {url.partition("#")[0] for url in asked if not url.startswith("data:")}
    assert told <= {path.as_uri(), "about:blank"}
