"""By keys alone, from the list of sessions to every answer: and each is what the session says."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import Locator, Page, expect

from plait.session.inbox import all_waiting
from tests.outline.sessions import ViewStore
from tests.viewer.browsers import Viewer, steps_of
from tests.viewer.tour import branches_by_name, edit_of

STEPS_MAX = 40


def chosen(page: Page) -> Locator:
    return page.get_by_role("option", selected=True)


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(STEPS_MAX):
        if wanted.evaluate("each => each === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError("Tab does not reach it")


def open_repair(viewer: Viewer) -> Page:
    page = viewer.open("/")
    expect(page.get_by_role("link", name="negative total")).to_be_visible()
    press(page, "/")
    page.keyboard.type("negative")
    rows = page.get_by_role("region", name="Sessions").get_by_role("listitem")
    expect(rows).to_have_count(3)  # the session and its two branches
    expect(rows.first).to_contain_text("negative total")
    press(page, "ArrowDown", "Enter")
    expect(chosen(page)).to_contain_text("run finished")
    return page


def go_to_step(page: Page, nth: int) -> None:
    """Press j until the step with this number, from 0, is the chosen one."""
    press(page, "Home")
    strip = page.get_by_role("slider", name="Place in the session")
    for number in range(1, nth + 1):
        expect(strip).to_have_attribute("aria-valuenow", str(number))
        press(page, "j")
    expect(strip).to_have_attribute("aria-valuenow", str(nth + 1))


def steps_with(page: Page, words: str) -> list[int]:
    texts = steps_of(page).all_inner_texts()
    return [number for number, text in enumerate(texts) if words in text]


@pytest.mark.ci
def test_which_call_wrote_a_line_and_what_the_model_had_seen(
    viewer: Viewer, made: ViewStore
) -> None:
    clamp = branches_by_name(made.session("repair"))["clamp"]
    seq = edit_of(clamp)
    page = open_repair(viewer)
    press(page, "b")
    code = page.get_by_role("group", name=re.compile("with the call that wrote each line"))
    if not code.is_visible():
        tab_to(page, page.get_by_role("link", name="cart.py", exact=True))
        press(page, "Enter")
    expect(code).to_be_visible()
    tab_to(page, code)
    for number in range(1, 7):
        press(page, "ArrowDown")
        expect(page).to_have_url(re.compile(f"cart.py#L{number}$"))
    story = page.get_by_role("region", name="Why line 6 is there")
    link = story.get_by_role("link", name="Go to edit_file")
    expect(link).to_contain_text(f"clamp@{seq}")
    tab_to(page, link)
    press(page, "Enter")
    expect(page).to_have_url(re.compile(rf"{clamp.id[-12:]}@{seq}$|{clamp.short}@{seq}$"))
    expect(chosen(page)).to_contain_text("edit_file")
    # what it had seen
    asked = next(event for event in reversed(clamp.at(seq).events) if event.kind == "ModelAsked")
    press(page, "p")
    panel = page.get_by_role("tabpanel", name="Prompt")
    expect(panel).to_contain_text("exactly as sent")
    expect(panel.get_by_role("link", name=f"@{asked.seq}").first).to_be_visible()
    expect(panel).to_contain_text(clamp.messages[0].text)
    expect(panel).to_contain_text("return sum(prices) - coupon")
    press(page, "w")
    expect(page.get_by_role("tabpanel", name="Why")).to_contain_text("having seen")


@pytest.mark.ci
def test_which_branch_was_rejected_and_what_each_cost(viewer: Viewer, made: ViewStore) -> None:
    branches = branches_by_name(made.session("repair"))
    passed = {
        name: next(verdict.passed for verdict in branch.checks.verdicts if verdict.name == "tests")
        for name, branch in branches.items()
    }
    assert passed == {"reject": False, "clamp": True}
    page = open_repair(viewer)
    go_to_step(page, steps_with(page, "tests\nfailed")[0])
    state = page.get_by_role("complementary", name="State at this place")
    expect(state).to_contain_text("reject")
    expect(state).to_contain_text(f"{branches['reject'].budget.used.model_calls} replies")
    press(page, "c")
    table = page.get_by_role("table", name="Steps side by side")
    expect(table).to_be_visible()
    expect(page).to_have_url(re.compile(branches["reject"].short))
    press(page, "Escape")
    expect(steps_of(page).first).to_be_visible()
    press(page, "g", "c")
    expect(page.get_by_role("heading", name="Cost", exact=True)).to_be_visible()


@pytest.mark.ci
def test_steps_events_filters_dialogs_and_places(viewer: Viewer, made: ViewStore) -> None:
    page = open_repair(viewer)
    edit = steps_with(page, "edit_file")[1]
    go_to_step(page, edit)
    press(page, "k")
    expect(chosen(page)).to_contain_text("read_file")
    press(page, "j")
    expect(chosen(page)).to_contain_text("edit_file")
    press(page, "Enter")
    expect(page.get_by_role("tabpanel", name="Step")).to_be_focused()
    expect(page.get_by_role("tabpanel", name="Step")).to_contain_text("max(0, sum(prices)")
    press(page, "Escape")
    expect(page.get_by_role("listbox")).to_be_focused()
    press(page, "r")
    expect(page).to_have_url(re.compile(r"@\d+/raw$"))
    seq = int(re.findall(r"@(\d+)/raw$", page.url)[0])
    press(page, "[")
    expect(page).to_have_url(re.compile(rf"@{seq - 1}/raw$"))
    press(page, "]", "]")
    expect(page).to_have_url(re.compile(rf"@{seq + 1}/raw$"))
    count = steps_of(page).count()
    press(page, "/")
    expect(page.get_by_label("Words of steps")).to_be_focused()
    page.keyboard.type("edit_file")
    expect(steps_of(page)).to_have_count(2)
    press(page, "Enter")
    expect(page.get_by_role("listbox")).to_be_focused()
    press(page, "/", "Escape")
    expect(steps_of(page)).to_have_count(count)
    press(page, "c")
    expect(page.get_by_role("table", name="Steps side by side")).to_be_visible()
    press(page, "Escape", "f")  # at once: the key belongs to the workbench
    expect(page).to_have_url(re.compile("/whatif/"))
    page.go_back()
    expect(steps_of(page).first).to_be_visible()
    press(page, "?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    press(page, "Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    press(page, "f")
    expect(page).to_have_url(re.compile("/whatif/"))
    expect(page.get_by_role("complementary", name="What will happen")).to_be_visible()
    press(page, "g", "i")
    inbox = page.get_by_role("region", name="What waits").get_by_role("listitem")
    asks = [ask for ask in all_waiting(made.store) if ask.kind != "timer"]
    expect(inbox).to_have_count(len(asks))
    for ask in asks:
        expect(page.get_by_role("region", name="What waits")).to_contain_text(
            ask.tool or ask.question or ask.name
        )
    press(page, "g", "h")
    expect(page.get_by_role("region", name="Sessions")).to_be_visible()
