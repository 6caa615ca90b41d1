"""The workbench: one cursor, and all that it shows is what the session says at that place."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import Locator, Page, expect

from plait import Session
from plait.outline.family import family_shape
from plait.outline.outlines import Outlines
from tests.outline.sessions import ViewStore
from tests.viewer.browsers import Viewer, steps_of

SPOKEN_EDIT = re.compile("edit_file.*changed files")
TABS = {"p": "Prompt", "w": "Why", "i": "Influence", "r": "Raw", "b": "Files"}


def step_named(page: Page, words: str, nth: int = 0) -> Locator:
    return steps_of(page).filter(has_text=words).nth(nth)


def strip_of(page: Page) -> Locator:
    return page.get_by_role("slider", name="Place in the session")


def branch_named(made: ViewStore, name: str) -> Session:
    """Return a branch of the session `repair` at its tip."""
    graph = made.session("repair").lineage.graph()
    logs = [node.session for node in graph.nodes if node.type == "session"]
    found = [Session.open(log, store=made.store) for log in logs]
    return next(session for session in found if session.lineage.label == name)


# ── the cursor ───────────────────────────────────────────────────────────────────────────────


def test_a_click_on_a_step_moves_everything(viewer: Viewer, made: ViewStore) -> None:
    page = viewer.open(f"/s/{made.sessions['repair']}")
    expect(steps_of(page).first).to_be_visible()
    step_named(page, "edit_file", 1).click()
    expect(page).to_have_url(re.compile(r"/s/[0-9a-f]+@\d+$"))
    expect(step_named(page, "edit_file", 1)).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("tabpanel")).to_contain_text("max(0, sum(prices) - coupon)")
    expect(strip_of(page)).to_have_attribute("aria-valuetext", SPOKEN_EDIT)
    state = page.get_by_role("complementary", name="State at this place")
    expect(state).to_contain_text("clamp")


def test_the_state_is_that_of_the_session_at_the_place(viewer: Viewer, made: ViewStore) -> None:
    session = made.session("repair")
    page = viewer.open(f"/s/{session.id}@{session.seq}")
    state = page.get_by_role("complementary", name="State at this place")
    for key in session.facts:
        expect(state).to_contain_text(key)
        expect(state).to_contain_text(str(session.facts[key]))
    replies = session.budget.used.model_calls
    expect(state).to_contain_text(f"{replies} replies")
    early = viewer.open(f"/s/{session.id}@2").get_by_role("complementary")
    expect(early).to_contain_text("nowhere")
    expect(early).to_contain_text("no files")


def test_back_and_forward_go_through_where_the_cursor_was(viewer: Viewer, made: ViewStore) -> None:
    page = viewer.open(f"/s/{made.sessions['repair']}")
    step_named(page, "read_file").click()
    expect(step_named(page, "read_file")).to_have_attribute("aria-selected", "true")
    step_named(page, "merged").click()
    expect(step_named(page, "merged")).to_have_attribute("aria-selected", "true")
    page.go_back()
    expect(step_named(page, "read_file")).to_have_attribute("aria-selected", "true")
    page.go_forward()
    expect(step_named(page, "merged")).to_have_attribute("aria-selected", "true")


def test_the_strip_is_a_slider_for_keys(viewer: Viewer, made: ViewStore) -> None:
    page = viewer.open(f"/s/{made.sessions['repair']}")
    family = family_shape(Outlines(made.store), made.sessions["repair"])
    strip = strip_of(page)
    expect(strip).to_be_visible()
    total = sum(stretch.step_count for stretch in family.stretches)
    expect(strip).to_have_attribute("aria-valuemax", str(total))
    strip.focus()
    page.keyboard.press("Home")
    expect(strip).to_have_attribute("aria-valuenow", "1")
    page.keyboard.press("ArrowRight")
    expect(strip).to_have_attribute("aria-valuenow", "2")
    page.keyboard.press("Shift+ArrowRight")
    expect(strip).to_have_attribute("aria-valuetext", re.compile("changed files"))
    page.keyboard.press("End")
    expect(strip).to_have_attribute("aria-valuetext", re.compile("run finished"))


def test_the_strip_is_dragged(viewer: Viewer, made: ViewStore) -> None:
    page = viewer.open(f"/s/{made.sessions['repair']}")
    strip = strip_of(page)
    expect(strip).to_have_attribute("aria-valuetext", re.compile("run finished"))
    box = strip.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 4, box["y"] + 16)
    page.mouse.down()
    page.mouse.move(box["x"] + 3, box["y"] + 16, steps=8)
    page.mouse.up()
    expect(strip).to_have_attribute("aria-valuenow", "1")
    expect(page).to_have_url(re.compile(r"@2$"))


# ── files and causes ─────────────────────────────────────────────────────────────────────────


def test_a_line_tells_the_call_that_wrote_it(viewer: Viewer, made: ViewStore) -> None:
    clamp = branch_named(made, "clamp")
    line = clamp.files.blame("cart.py")[6]
    page = viewer.open(f"/s/{clamp.id}@{clamp.seq}/files/cart.py")
    page.get_by_text("return max(0, sum(prices) - coupon)").first.click()
    expect(page).to_have_url(re.compile(r"/files/cart\.py#L6$"))
    story = page.get_by_role("region", name="Why line 6 is there")
    expect(story.get_by_role("link", name=f"Go to {line.tool}")).to_contain_text(f"@{line.seq}")
    expect(story).to_contain_text("Checkout goes negative")
    story.get_by_role("link", name=f"Go to {line.tool}").click()
    expect(page).to_have_url(re.compile(rf"@{line.seq}$"))


def test_files_are_those_of_the_place(viewer: Viewer, made: ViewStore) -> None:
    session = made.session("repair")
    page = viewer.open(f"/s/{session.id}@{session.seq}/files")
    tree = page.get_by_role("navigation", name="Files at this place")
    for path in ("cart.py", "test_cart.py"):
        assert session.files.read(path)
        expect(tree.get_by_role("link", name=path, exact=True)).to_be_visible()
    expect(tree.get_by_role("link", name="ISSUE.md")).to_have_count(0)
    page.get_by_role("button", name="Since the beginning").click()
    expect(page.get_by_role("table", name="Changes of ISSUE.md")).to_be_visible()


def test_a_file_of_any_length_and_a_picture_are_shown(viewer: Viewer, made: ViewStore) -> None:
    large = made.sessions["large"]
    page = viewer.open(f"/s/{large}/files/data/huge.txt#L150000")
    expect(page.get_by_text("line 149999", exact=True)).to_be_visible()
    assert page.locator("*").count() < 700
    page = viewer.open(f"/s/{large}/files/dot.png")
    expect(page.get_by_role("img", name="the image dot.png")).to_be_visible()


def test_the_prompt_is_the_one_that_was_sent(viewer: Viewer, made: ViewStore) -> None:
    clamp = branch_named(made, "clamp")
    page = viewer.open(f"/s/{clamp.id}@{clamp.seq}/prompt")
    panel = page.get_by_role("tabpanel")
    expect(panel).to_contain_text("exactly as sent")
    expect(panel).to_contain_text("Saw")


def test_a_raw_event_is_the_event(viewer: Viewer, made: ViewStore) -> None:
    session = made.session("repair")
    event = session.events[-1]
    page = viewer.open(f"/s/{session.id}@{event.seq}/raw")
    panel = page.get_by_role("tabpanel")
    expect(panel).to_contain_text(event.id)
    expect(panel).to_contain_text(event.kind)


# ── keys and hostile texts ───────────────────────────────────────────────────────────────────


def test_keys_open_the_tabs(viewer: Viewer, made: ViewStore) -> None:
    page = viewer.open(f"/s/{made.sessions['repair']}@29")
    expect(step_named(page, "rm -f")).to_have_attribute("aria-selected", "true")
    for key, name in TABS.items():
        page.keyboard.press(key)
        expect(page.get_by_role("tab", name=name, exact=True)).to_have_attribute(
            "aria-selected", "true"
        )
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("next changed file")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_texts_of_others_are_texts(viewer: Viewer, made: ViewStore) -> None:
    page = viewer.open(f"/s/{made.sessions['hostile']}@2")
    for _ in range(3):
        page.keyboard.press("End")
        page.keyboard.press("Home")
    expect(steps_of(page).first).to_be_visible()
    for tab in ("prompt", "why", "raw", "files", "state"):
        viewer.open(f"/s/{made.sessions['hostile']}@2/{tab}")
        expect(page.get_by_role("listbox")).to_be_visible()
    for name in ("script", "iframe", "object", "style", "base", "video"):
        assert page.locator(f"body {name}").count() == 0


def test_an_unknown_place_says_so(viewer: Viewer, made: ViewStore) -> None:
    page = viewer.open("/s/nobody-knows-it")
    expect(page.get_by_role("alert")).to_be_visible()
    page = viewer.open(f"/s/{made.sessions['repair']}@99999")
    expect(page.get_by_role("alert")).to_contain_text(re.compile("99,?999"))


def test_new_events_come_by_themselves(viewer: Viewer, made: ViewStore) -> None:
    session = made.session("fresh")
    page = viewer.open(f"/s/{session.id}")
    expect(steps_of(page).first).to_be_visible()
    session.say("It is here by itself.")
    expect(step_named(page, "It is here by itself.")).to_have_attribute("aria-selected", "true")


def test_the_workbench_is_usable_on_a_telephone(telephone: Viewer, made: ViewStore) -> None:
    page = telephone.open(f"/s/{made.sessions['repair']}")
    step_named(page, "edit_file", 1).click()
    expect(page.get_by_role("tabpanel")).to_contain_text("max(0, sum(prices)")
    page.get_by_role("button", name="State", exact=True).click()
    expect(page.get_by_role("complementary")).to_contain_text("for nothing")
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert json.loads(str(wide)) <= 390
