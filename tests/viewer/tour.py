"""The screens of the page, one by one: where each is, and by what one knows that it is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from playwright.sync_api import Page, expect

from plait import Session
from tests.outline.sessions import ViewStore
from tests.viewer.browsers import Viewer


class Screen(msgspec.Struct, frozen=True):
    """One screen: its address, what is in it when it is whole, and what is done to open it."""

    name: str
    address: str
    shows: str  # a selector
    act: Callable[[Page], Any] | None = None
    opens: str = "dialog[open], [role=menu], [role=search]"  # a selector of what the act opens


def branches_by_name(session: Session) -> dict[str, Session]:
    """Return the branches of a session by their labels."""
    found = Session.list(parent=session, store=session.store)
    return {each.lineage.label or each.short: each for each in found}


def edit_of(branch: Session) -> int:
    """Return the place of the call that wrote line 6 of `cart.py`."""
    seq = branch.files.blame("cart.py")[6].seq
    assert seq is not None
    return seq


def press(*keys: str) -> Callable[[Page], None]:
    """Return an act that presses keys, one after another."""

    def act(page: Page) -> None:
        for key in keys:
            page.keyboard.press(key)

    return act


def all_screens(made: ViewStore) -> list[Screen]:
    """Return every screen of the page, over the sessions of a store."""
    repair = made.session("repair")
    branches = branches_by_name(repair)
    clamp, reject = branches["clamp"], branches["reject"]
    edit = f"/s/{clamp.short}@{edit_of(clamp)}"
    panel = "#panel:not(:empty)"
    workbench = [
        Screen("step", edit, "#panel h2"),
        Screen("files", f"{edit}/files", "nav a"),
        Screen("file", f"/s/{clamp.short}/files/cart.py#L6", "text=max(0, sum(prices)"),
        Screen(
            "changes", f"/s/{repair.short}/files?against=start", "#panel [role=table], #panel table"
        ),
        Screen("prompt", f"{edit}/prompt", "text=exactly as sent"),
        Screen("why", f"{edit}/why", f"{panel} a"),
        Screen("influence", f"{edit}/influence", panel),
        Screen("raw", f"{edit}/raw", "#panel h2"),
        Screen("state", f"{edit}/state", panel),
        Screen("picture", f"/s/{made.session('large').short}/files/dot.png", "#panel img"),
        Screen("nothing", f"/s/{made.session('fresh').short}", "[role=listbox] [role=option]"),
    ]
    asks = [
        Screen(f"inbox-{name}", f"/inbox/{made.session(name).short}", "main h2, main h1")
        for name in ("approval", "question", "unknown", "gate")
    ]
    others = [
        Screen("home", "/", "text=negative total"),
        Screen("search", "/?q=cart", "text=Said"),
        Screen("inbox", "/inbox", "main a"),
        *asks,
        Screen(
            "compare", f"/compare/{reject.short}..{clamp.short}", "main [role=table], main table"
        ),
        Screen("costs", "/cost", "main table, main svg"),
        Screen("cost", f"/cost/{repair.short}", "main [role=table], main table"),
        Screen("memory", f"/memory/{made.session('remembered').short}", "text=read-only"),
        Screen("verify", f"/verify/{repair.short}", "text=as it was written"),
        Screen("what-if", f"/whatif/{repair.short}@8", "main textarea, dialog textarea"),
        Screen("unknown", "/s/nobody-knows-it", "[role=alert]"),
        Screen("lost", "/nowhere/at/all", "main"),
    ]
    step = "[role=listbox] [role=option]"
    dialogs = [
        Screen("palette", edit, step, press("Control+k")),
        Screen("keys", edit, step, press("?")),
        Screen("find", edit, step, press("Control+f", "e", "d")),
        Screen(
            "merge",
            f"/compare/{reject.short}..{clamp.short}",
            "main [role=table], main table",
            press("m"),
        ),
        Screen("acts", edit, step, lambda page: page.get_by_role("button", name="Act").click()),
    ]
    return [*others, *workbench, *dialogs, *_ask_screens(made), *_act_screens(edit)]


def _ask_screens(made: ViewStore) -> list[Screen]:
    """Return the asks, opened, and the forms that answer a call."""

    def open_ask(*buttons: str) -> Callable[[Page], None]:
        def act(page: Page) -> None:
            page.get_by_role("region", name="What waits").get_by_role("listitem").first.click()
            for name in buttons:
                page.get_by_role("button", name=name, exact=False).first.click()

        return act

    def answer_in_step(page: Page) -> None:
        page.locator("[role=option]").last.click()
        page.get_by_role("button", name="Grant…").click()

    pay = f"/inbox/{made.session('approval').short}"
    call = f"/s/{made.session('approval').short}"
    asks = [
        Screen(
            f"ask-{name}", f"/inbox/{made.session(name).short}", "main h1", open_ask(), "article"
        )
        for name in ("approval", "question", "unknown", "gate")
    ]
    return [
        *asks,
        Screen("ask-grant", pay, "main h1", open_ask("Grant…"), "text=Grant it"),
        Screen("ask-correct", pay, "main h1", open_ask("Grant corrected"), "text=Grant this"),
        Screen("ask-deny", pay, "main h1", open_ask("Deny…"), "text=Deny it"),
        Screen("ask-in-step", call, "[role=option]", answer_in_step, "text=Grant it"),
        Screen("ask-over", f"{call}/raw", "[role=option]", press("a")),
    ]


def _act_screens(place: str) -> list[Screen]:
    """Return the dialogs of the menu of acts."""

    def choose(name: str) -> Callable[[Page], None]:
        def act(page: Page) -> None:
            page.get_by_role("button", name="Act").click()
            page.get_by_role("menuitem", name=name).click()

        return act

    names = {
        "fork": "Fork here",
        "rewind": "Rewind to here",
        "note": "Add a note",
        "cancel": "Cancel the run",
    }
    step = "[role=listbox] [role=option]"
    return [
        Screen(f"act-{name}", place, step, choose(words), "dialog[open]")
        for name, words in names.items()
    ]


def show(viewer: Viewer, screen: Screen) -> Page:
    """Open a screen, and wait until it is whole."""
    page = viewer.open(screen.address)
    expect(page.locator(screen.shows).first).to_be_attached()
    expect(page.locator(".loading-line")).to_have_count(0)
    if screen.act is not None:
        screen.act(page)
        opened = page.locator(screen.opens).locator("visible=true")
        expect(opened.first).to_be_visible()
        expect(page.locator(".loading-line")).to_have_count(0)
    return page
