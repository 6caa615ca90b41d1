"""The screens of the page: what they show is what the sessions say, and acts reach them."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import Browser, expect

from plait import Session, open_store
from plait.event.kinds import ApprovalGranted
from plait.session.inbox import all_waiting
from tests.outline import programs
from tests.outline.sessions import ViewStore
from tests.server.clients import LiveServer, live_server
from tests.support import parked_session
from tests.support.processes import wait_until
from tests.viewer.browsers import Viewer, opened_viewer


def branches_of(session: Session) -> list[Session]:
    """Return the sessions that were forked from one."""
    return Session.list(parent=session, store=session.store)


# ── looking ──────────────────────────────────────────────────────────────────────────────────


def test_home_has_what_waits_then_sessions(viewer: Viewer, made: ViewStore) -> None:
    page = viewer.open("/")
    waits = page.get_by_role("region", name="Waits for")
    known = [ask for ask in all_waiting(made.store) if ask.kind != "timer"]
    expect(waits.first.get_by_role("heading")).to_contain_text("Waits for you")
    counts = [re.sub(r"\D", "", text) for text in waits.get_by_role("heading").all_inner_texts()]
    assert sum(int(count) for count in counts) == len(known)
    listed = page.get_by_role("region", name="Sessions")
    expect(listed.get_by_role("link", name="negative total")).to_be_visible()
    hostile = made.session("hostile")
    expect(listed.get_by_text(hostile.title, exact=True)).to_be_visible()


def test_the_filter_is_reached_by_a_key_and_filters(viewer: Viewer, made: ViewStore) -> None:
    page = viewer.open("/")
    expect(page.get_by_role("link", name="negative total")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("status:failed")
    expect(page.get_by_role("link", name="negative total")).to_have_count(0)
    rows = page.get_by_role("region", name="Sessions").get_by_role("listitem")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("Count what is not there.")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("main.workbench")).to_be_visible()
    expect(page).to_have_url(re.compile(made.session("failed").short))


def test_words_are_looked_for_in_what_was_said(viewer: Viewer, made: ViewStore) -> None:
    page = viewer.open("/?q=cart")
    said = page.get_by_role("region", name="Said")
    expect(said.get_by_role("link").first).to_be_visible()
    said.get_by_role("link", name="Fix the cart").click()
    expect(page).to_have_url(re.compile(made.sessions["remembered"]))


def test_home_is_live(viewer: Viewer, made: ViewStore) -> None:
    page = viewer.open("/")
    expect(page.get_by_role("link", name="negative total")).to_be_visible()
    Session("Something new happens.", title="the new one", store=made.store)
    expect(page.get_by_role("link", name="the new one")).to_be_visible()


def test_compare_shows_both_sides(viewer: Viewer, made: ViewStore) -> None:
    branches = {each.lineage.label: each for each in branches_of(made.session("repair"))}
    page = viewer.open(f"/compare/{branches['reject'].short}..{branches['clamp'].short}")
    table = page.get_by_role("table", name="Steps side by side")
    verdicts = table.get_by_role("row").filter(has_text="tests").last
    expect(verdicts.get_by_role("cell").first).to_contain_text("failed")
    expect(verdicts.get_by_role("cell").last).to_contain_text("passed")
    expect(page.get_by_text("return max(0, sum(prices) - coupon)")).to_be_visible()
    page.keyboard.press("s")
    expect(page).to_have_url(re.compile(f"{branches['reject'].short}$"))


def test_costs_are_those_of_the_session(viewer: Viewer, made: ViewStore) -> None:
    session = made.session("repair")
    page = viewer.open(f"/cost/{session.short}")
    page.get_by_role("button", name="Tokens", exact=True).click()
    flame = page.get_by_role("region", name="Calls by what they used")
    boxes = flame.get_by_role("group", name="Calls. Arrows move, Enter zooms.")
    expect(boxes.get_by_role("button").first).to_contain_text("negative total")
    boxes.get_by_role("button", name="reject").first.click()
    expect(flame.get_by_role("navigation", name="Zoomed to")).to_contain_text("reject")
    table = page.get_by_role("region", name="Costs by agent")
    expect(table.get_by_role("row").filter(has_text="repair/clamp/coder")).to_contain_text("380")


def test_unknown_prices_are_said(viewer: Viewer, made: ViewStore) -> None:
    page = viewer.open(f"/cost/{made.session('resumed').short}")
    expect(page.get_by_text("without a price").first).to_be_visible()


def test_memory_and_verify_say_what_is_there(viewer: Viewer, made: ViewStore) -> None:
    page = viewer.open(f"/memory/{made.session('remembered').short}")
    expect(page.get_by_text("The staging database is read-only.")).to_be_visible()
    page = viewer.open(f"/verify/{made.session('repair').short}")
    expect(page.get_by_text("Every event is as it was written.")).to_be_visible()


def test_verify_names_the_first_broken_event(browser: Browser, tmp_path: Path) -> None:
    store = open_store(tmp_path / ".plait")
    session = Session("How are you?", title="ill", store=store).fact("color", "grey").note("so")
    session = session.fact("size", 3)
    store.close()
    with sqlite3.connect(tmp_path / ".plait" / "store.db") as sql:
        body = sql.execute("SELECT body FROM event WHERE seq = 3").fetchone()[0]
        sql.execute("UPDATE event SET body = ? WHERE seq = 3", (body[:-2] + b"??",))
    sql.close()
    with live_server(tmp_path) as server, opened_viewer(browser, server) as viewer:
        page = viewer.open(f"/verify/{session.short}")
        expect(page.get_by_text("This session is damaged.")).to_be_visible()
        page.get_by_role("link", name=f"{session.short}@3").click()
        steps = page.get_by_role("listbox", name="steps")
        expect(steps.get_by_role("option", selected=True)).to_contain_text("broken")
        expect(steps).to_contain_text("size")  # what is whole is shown


def test_the_palette_finds_steps_and_acts(viewer: Viewer, made: ViewStore) -> None:
    page = viewer.open(f"/s/{made.session('repair').short}")
    expect(page.get_by_role("listbox", name="steps")).to_contain_text("edit_file")
    page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog")
    expect(palette.get_by_role("option", name="Send a message")).to_be_visible()
    page.keyboard.type("test_cart.py")
    palette.get_by_role("group", name="Files").get_by_role("option").first.click()
    expect(page).to_have_url(re.compile("/files/test_cart.py$"))


def test_find_goes_through_the_steps(viewer: Viewer, made: ViewStore) -> None:
    page = viewer.open(f"/s/{made.session('repair').short}@8")
    expect(page.get_by_role("listbox", name="steps")).to_contain_text("edit_file")
    page.keyboard.press("Control+f")
    page.keyboard.type("edit_file")
    expect(page.get_by_role("status").filter(has_text="1 of 2")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="2 of 2")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("search")).to_have_count(0)


# ── acting ───────────────────────────────────────────────────────────────────────────────────


def test_a_call_is_corrected_from_a_telephone_and_resumed(
    telephone: Viewer, made: ViewStore
) -> None:
    page = telephone.open("/inbox")
    page.get_by_role("link", name="wire amount=120").click()
    expect(page.get_by_text('"amount": 120')).to_be_visible()
    expect(page.get_by_text("money leaves")).to_be_visible()
    page.get_by_role("button", name="Grant corrected").click()
    page.get_by_label("Arguments that you allow").fill('{"amount": 12, "to"')
    expect(page.get_by_role("button", name="Grant this instead")).to_be_disabled()
    page.get_by_label("Arguments that you allow").fill('{"amount": 12, "to": "ACME"}')
    page.get_by_label("Note").fill("a tenth")
    page.get_by_role("button", name="Grant this instead").click()
    page.get_by_role("button", name="Resume the run").click()
    expect(page.get_by_text("the run finished")).to_be_visible(timeout=120_000)
    session = made.session("approval")
    granted = next(event for event in session.events if event.kind == "ApprovalGranted")
    assert granted.header.actor == "human:ann"
    assert session.runs[-1].status == "finished"


def test_a_call_is_granted_and_denied_by_keys_where_it_waits(
    viewer: Viewer, made: ViewStore
) -> None:
    """The step and the inbox answer alike, and ask once more."""
    paid, left = [parked_session(lambda: programs.Pay()(new_payment(made))) for _ in range(2)]
    page = viewer.open(f"/s/{paid.short}")
    expect(page.get_by_role("button", name="Grant…")).to_be_visible()
    page.keyboard.press("a")
    expect(page.get_by_label("Note (on record)")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Grant…")).to_be_visible()
    assert paid.inbox.waiting
    page.keyboard.press("a")
    expect(page.get_by_label("Note (on record)")).to_be_focused()
    page.keyboard.type("as agreed")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Your word is on record.")).to_be_visible()
    (granted,) = [event.body for event in paid.inbox.events]
    assert isinstance(granted, ApprovalGranted) and granted.note == "as agreed"
    page = viewer.open(f"/inbox/{left.short}")
    expect(page.get_by_role("button", name="Deny…")).to_be_visible()
    page.keyboard.press("d")
    expect(page.get_by_label("Reason")).to_be_focused()
    page.keyboard.type("too dear")
    page.get_by_role("button", name="Deny it").click()
    expect(page.get_by_text("Your word is on record.")).to_be_visible()
    assert [event.kind for event in left.inbox.events] == ["ApprovalDenied"]


def new_payment(made: ViewStore) -> Session:
    return Session("Pay ACME once more.", store=made.store)


def test_the_second_answer_is_told_and_kept(
    viewer: Viewer, browser: Browser, server: LiveServer, made: ViewStore
) -> None:
    session = made.session("question")
    ask = session.inbox.waiting[0]
    page = viewer.open(f"/inbox/{session.short}")
    expect(page.get_by_role("button", name="Hamburg")).to_be_visible()
    page.route("**/api/inbox*", lambda route: route.abort())  # the page does not hear of it
    session.inbox.answer(ask, "Kiel", actor="human:bo")
    page.get_by_role("button", name="Hamburg").click()
    expect(page.get_by_role("alert").filter(has_text="answered already")).to_contain_text("bo")
    page.unroute("**/api/inbox*")
    standing = viewer.open(f"/s/{session.short}").get_by_role("banner").get_by_text("waiting, due")
    expect(standing).to_have_attribute(
        "title", "Its answer is there: it goes on when it is resumed"
    )
    row = viewer.open("/?q=is:due").get_by_role("link", name="Ship it.")
    expect(row.get_by_text("waiting, due")).to_be_visible()


def test_an_outcome_is_resolved_with_how_one_knows(viewer: Viewer, made: ViewStore) -> None:
    session = made.session("unknown")
    page = viewer.open(f"/inbox/{session.short}")
    page.get_by_role("radio", name="It happened The run goes on").check()
    page.get_by_label("What it returned").fill("90 sent to ACME")
    page.get_by_label("How you know").fill("on the statement")
    page.get_by_role("button", name="Record it").click()
    expect(page.get_by_text("The outcome is on record.")).to_be_visible()
    assert session.inbox.waiting == []


def test_a_verdict_lets_a_gate_go(viewer: Viewer, made: ViewStore) -> None:
    session = made.session("gate")
    page = viewer.open(f"/inbox/{session.short}")
    expect(page.get_by_role("heading", name="The gate review waits")).to_be_visible()
    page.get_by_role("button", name="It passes").click()
    expect(page.get_by_text("The verdict is on record.")).to_be_visible()


def test_a_rewind_names_what_it_does_not_undo(viewer: Viewer, made: ViewStore) -> None:
    session = made.session("resolved")
    page = viewer.open(f"/s/{session.short}@5")
    page.get_by_role("button", name="Act").click()
    page.get_by_role("menuitem", name="Rewind to here").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("does not undo")
    expect(dialog).to_contain_text("wire")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert made.session("resolved") == session


def test_a_note_and_a_fork_by_the_palette(viewer: Viewer, made: ViewStore) -> None:
    session = made.session("rewound")
    page = viewer.open(f"/s/{session.short}")
    expect(page.locator("main.workbench")).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("add a note")
    page.keyboard.press("Enter")
    page.get_by_role("textbox", name="Note").fill("looked at by ann")
    page.get_by_role("button", name="Add the note").click()
    wait_until(lambda: made.session("rewound").seq > session.seq)
    assert "looked at by ann" in str(made.session("rewound").events[-1].body)
    page.keyboard.press("Control+k")
    page.keyboard.type("fork here")
    page.keyboard.press("Enter")
    page.get_by_role("textbox", name="Name of the branch").fill("another-way")
    page.get_by_role("button", name="Fork", exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    found = {each.lineage.label for each in branches_of(made.session("rewound"))}
    assert "another-way" in found


def test_conflicts_of_a_merge_are_chosen(viewer: Viewer, made: ViewStore) -> None:
    trunk = Session("Which colour?", title="colours", store=made.store).fact("color", "grey")
    warm = trunk.fork("warm").fact("color", "red")
    cold = trunk.fork("cold").fact("color", "blue")
    page = viewer.open(f"/compare/{warm.short}..{cold.short}")
    page.get_by_role("button", name="Merge…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Merge", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("disagree")
    expect(dialog).to_contain_text("grey")
    dialog.get_by_role("radio", name="cold blue").check()
    dialog.get_by_role("button", name="Merge with these choices").click()
    expect(dialog).to_have_count(0)
    assert warm.reload().facts["color"] == "blue"
    assert cold.reload() == cold


def test_a_what_if_runs_and_is_compared(viewer: Viewer, made: ViewStore) -> None:
    session = made.session("repair")
    known = {each.id for each in branches_of(session)}
    page = viewer.open(f"/whatif/{session.short}@8")
    ahead = page.get_by_role("complementary", name="What will happen")
    expect(ahead).to_contain_text("model calls")
    expect(page.get_by_role("button", name="Run it in a branch")).to_be_disabled()
    page.get_by_label("The tool's result").fill("A coupon may be too large.")
    page.get_by_label("Name of the branch").fill("other-issue")
    page.get_by_role("button", name="Run it in a branch").click()
    expect(page.get_by_role("table", name="Steps side by side")).to_be_visible(timeout=120_000)
    made_now = [each for each in branches_of(made.session("repair")) if each.id not in known]
    assert [each.lineage.label for each in made_now] == ["other-issue"]
    assert made.session("repair") == session


def test_a_tool_is_taken_from_an_agent(viewer: Viewer, made: ViewStore) -> None:
    session = programs.Count()(Session("How many rows?", store=made.store))
    (reply, *_) = [event for event in session.events if event.kind == "ModelReplied"]
    page = viewer.open(f"/whatif/{session.short}@{reply.seq - 1}")
    expect(page.get_by_text("Other tools are code")).to_be_visible()
    page.get_by_role("checkbox", name="count_rows").uncheck()
    page.get_by_role("button", name="Run it in a branch").click()
    expect(page.get_by_role("table", name="Steps side by side")).to_be_visible(timeout=120_000)
    (branch,) = branches_of(session)
    wait_until(lambda: branch.reload().status == "finished", within_s=120)
    assert session.effects[0].result is not None
    assert {call.result for call in branch.reload().effects} == {None}  # it is refused


def test_another_first_message_is_run_in_a_branch(viewer: Viewer, made: ViewStore) -> None:
    session = made.session("answered")
    page = viewer.open(f"/whatif/{session.short}@2")
    page.get_by_label("The message").fill("Ship nothing at all.")
    expect(page.get_by_text("only if its own policies say so")).to_be_visible()
    page.get_by_role("button", name="Fork before it, and say it anew").click()
    expect(page.get_by_role("table", name="Steps side by side")).to_be_visible(timeout=120_000)
    (branch,) = branches_of(session)
    assert [each.text for each in branch.messages] == ["Ship nothing at all."]
    wait_until(lambda: bool(branch.reload().inbox.waiting), within_s=120)


def test_long_branches_are_compared_in_a_window(viewer: Viewer, made: ViewStore) -> None:
    base = Session("How many facts?", store=made.store)
    branch = base.fork("long")
    for number in range(400):
        branch = branch.fact(f"fact-{number}", number)
    page = viewer.open(f"/compare/{base.short}..{branch.short}")
    table = page.get_by_role("table", name="Steps side by side")
    expect(table.get_by_text("fact-0", exact=True)).to_be_visible()
    assert int(table.get_attribute("aria-rowcount") or 0) >= 400
    assert table.get_by_role("row").count() < 60
    table.focus()
    page.keyboard.press("End")
    expect(table.get_by_text("fact-399", exact=True)).to_be_visible()
    assert table.get_by_role("row").count() < 60


def test_a_wrong_program_leaves_one_branch(viewer: Viewer, made: ViewStore) -> None:
    session = programs.Count()(Session("How many rows?", store=made.store))

    def run_with(program: str) -> None:
        page.get_by_label("The message").fill("How many carts?")
        page.get_by_label("Program").fill(program)
        page.get_by_role("button", name="Fork before it, and say it anew").click()
        expect(page.get_by_role("table", name="Steps side by side")).to_be_visible()

    page = viewer.open(f"/whatif/{session.short}@2")
    run_with("nowhere.py:Nothing")
    expect(page.get_by_text("the run failed").first).to_be_visible(timeout=120_000)
    page.go_back()
    run_with("tests.outline.programs:Count")
    (branch,) = branches_of(session)
    wait_until(lambda: branch.reload().status == "finished", within_s=120)
    assert branch.reload().messages[0].text == "How many carts?"


def test_a_server_that_only_reads_offers_no_acts(
    browser: Browser, made: ViewStore, tmp_path: Path
) -> None:
    with (
        live_server(tmp_path, "--read-only", "--store", str(made.folder / ".plait")) as server,
        opened_viewer(browser, server) as viewer,
    ):
        page = viewer.open(f"/inbox/{made.session('queued').short}")
        expect(page.get_by_text("This server only reads")).to_be_visible()
        expect(page.get_by_role("button", name="Hamburg")).to_have_count(0)
