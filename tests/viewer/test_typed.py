"""What somebody types stays: through news of the session, late answers and answers that fail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import Locator, Page, Route, expect

from plait import (
    Agent,
    Parked,
    ScriptedModel,
    Session,
    Store,
    ToolCall,
    Workflow,
    open_store,
    resume,
)
from plait.policy import Ask, Policy
from tests.outline import programs
from tests.server.clients import LiveServer, live_server
from tests.viewer.browsers import Viewer, steps_of

NEWS_COUNT = 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("typed")


@pytest.fixture(scope="module")
def store(folder: Path) -> Store:
    return open_store(folder / ".plait")


@pytest.fixture(scope="module")
def server(store: Store, folder: Path) -> Iterator[LiveServer]:
    with live_server(folder, PLAIT_ACTOR="human:ann") as server:
        yield server


def said(store: Store, title: str) -> Session:
    return Session("One.", title=title, store=store).say("Two.").say("Three.")


class PayBoth(Workflow):
    """Pays two invoices, each if a person consents."""

    policy = Policy(Ask("wire"))

    def __init__(self) -> None:
        calls = [ToolCall("wire", to="ann", amount=1), ToolCall("wire", to="ben", amount=2)]
        script = [programs.reply(*calls), programs.reply("Both are paid.")]
        self.clerk = Agent("Pay.", model=ScriptedModel(script), tools=[programs.wire])

    def forward(self, session: Session) -> Session:
        return self.clerk(session)


def asking(store: Store) -> Session:
    """Return a session that waits for two approvals."""
    session = Session("Pay them.", title="pays", store=store)
    with pytest.raises(Parked):
        PayBoth()(session)
    return session.reload()


def pay_ann(session: Session) -> Session:
    """Grant the first payment, and let the run go on: it waits for the second one still."""
    first = next(ask for ask in session.inbox.waiting if "ann" in str(ask.arguments))
    session.inbox.approve(first)
    with pytest.raises(Parked):
        resume(session, PayBoth())
    return session.reload()


def choose_act(page: Page, words: str) -> Locator:
    """Choose an act by the palette, and return its dialog."""
    page.keyboard.press("Control+k")
    page.keyboard.type(words)
    page.keyboard.press("Enter")
    return page.locator("dialog.act-dialog")


def append_news(page: Page, session: Session) -> Session:
    """Append notes, and wait until the page has drawn them."""
    before = steps_of(page).count()
    for number in range(NEWS_COUNT):
        session = session.note(f"Meanwhile {number}.")
    expect(steps_of(page)).to_have_count(before + NEWS_COUNT)
    return session


def assert_kept(field: Locator, words: str, element: Locator | None = None) -> None:
    """Assert that a marked field is the same element, with its words, and has the focus."""
    expect(field).to_have_value(words)
    expect(field).to_have_attribute("data-mark", "same")
    expect(element or field).to_be_focused()


def fill_marked(field: Locator, words: str) -> None:
    field.fill(words)
    field.evaluate("element => element.setAttribute('data-mark', 'same')")


@pytest.mark.parametrize(
    ("act", "label"),
    [
        ("add a note", "Note"),
        ("send a message", "Message"),
        ("fork here", "Name of the branch"),
        ("rewind to here", "Why"),
        ("pause", "Why"),
        ("close the session", "Why"),
    ],
)
def test_an_open_dialog_stays_when_news_come(
    viewer: Viewer, store: Store, act: str, label: str
) -> None:
    session = said(store, act)
    page = viewer.open(f"/s/{session.short}")
    expect(steps_of(page)).to_have_count(3)
    field = choose_act(page, act).get_by_label(label)
    fill_marked(field, "half of a sent")
    append_news(page, session)
    assert_kept(field, "half of a sent")
    page.keyboard.type("ence")
    assert_kept(field, "half of a sentence")


def test_an_act_that_is_answered_late_closes_no_other_dialog(viewer: Viewer, store: Store) -> None:
    session = said(store, "late")
    page = viewer.open(f"/s/{session.short}")
    expect(steps_of(page)).to_have_count(3)
    held: list[Route] = []
    page.route("**/acts/note", lambda route: held.append(route))
    choose_act(page, "add a note").get_by_label("Note").fill("Noted.")
    with page.expect_request("**/acts/note"):
        page.get_by_role("button", name="Add the note").click()
    dialog = choose_act(page, "fork here")
    field = dialog.get_by_label("Name of the branch")
    fill_marked(field, "another-way")
    with page.expect_response("**/acts/note") as told:
        held[0].continue_()
    assert told.value.ok
    expect(steps_of(page)).to_have_count(4)
    assert_kept(field, "another-way")
    dialog.get_by_role("button", name="Fork", exact=True).click()
    expect(dialog).to_have_count(0)
    (branch,) = Session.list(parent=session, store=store)
    assert branch.lineage.label == "another-way"


def open_second_ask(viewer: Viewer, session: Session) -> Page:
    """Open a session at its end, which the page follows: its last step waits."""
    page = viewer.open(f"/s/{session.short}")
    second = steps_of(page).filter(has_text="ben")
    expect(second).to_have_attribute("aria-selected", "true")
    return page


def test_an_answer_is_half_written_while_the_run_goes_on(viewer: Viewer, store: Store) -> None:
    """The page follows the end of the session, but not away from a form that is filled in."""
    session = asking(store)
    page = open_second_ask(viewer, session)
    page.get_by_role("button", name="Grant corrected…").click()
    note = page.get_by_label("Note (on record)")
    arguments = page.get_by_label("Arguments that you allow instead")
    expect(arguments).to_be_focused()
    fill_marked(note, "less")
    fill_marked(arguments, '{"to": "ann", ')
    pay_ann(session)
    expect(steps_of(page).filter(has_text="1 sent to ann")).to_have_count(1)
    assert_kept(arguments, '{"to": "ann", ')
    assert_kept(note, "less", arguments)
    page.get_by_role("button", name="Back").click()
    first = steps_of(page).filter(has_text="ann")
    expect(first).to_have_attribute("aria-selected", "true")


def test_a_reason_outlives_answers_that_fail(viewer: Viewer, store: Store) -> None:
    """The ask is asked for again when news come. If that fails, the form does not go."""
    session = asking(store)
    page = open_second_ask(viewer, session)
    page.get_by_role("button", name="Deny…").click()
    field = page.get_by_label("Reason (the agent reads it)")
    fill_marked(field, "Too mu")
    failing = re.compile(r"/api/(inbox|logs/[^/]+/steps/)")
    page.route(failing, lambda route: route.fulfill(status=503, body="{}"))
    with page.expect_response(re.compile("/api/inbox")):
        pay_ann(session)
    expect(steps_of(page).filter(has_text="1 sent to ann")).to_have_count(1)
    assert_kept(field, "Too mu")


def test_another_future_is_half_written_while_the_session_goes_on(
    viewer: Viewer, store: Store
) -> None:
    session = said(store, "what if")
    page = viewer.open(f"/s/{session.short}")
    expect(steps_of(page)).to_have_count(3)
    page.keyboard.press("f")
    field = page.get_by_label("The message")
    expect(field).to_have_value("Three.")
    fill_marked(field, "Four, and th")
    with page.expect_response("**/family"):
        session.note("Meanwhile.")
    assert_kept(field, "Four, and th")
