"""Every claim of a dossier, compared with what the session itself says."""

from __future__ import annotations

import re

import pytest

from plait import Session
from plait.dossier.making import make_dossier
from plait.dossier.page import dossier_page
from plait.dossier.shapes import Dossier
from plait.event.kinds import (
    CallStarted,
    Place,
    RunBranched,
    RunStarted,
    Text,
    ToolRequested,
    ToolResolved,
    ToolReturned,
    ToolUnknown,
)
from plait.ids import LogId
from plait.outline.details import step_details
from plait.outline.documents import spent_document, state_document
from plait.outline.family import family_shape
from plait.outline.outlines import Outlines
from plait.outline.shapes import SeqRef
from plait.session.ledger import costs
from plait.session.ports import store_at
from tests.dossier.documents import NOW, PageElements, dossier_of
from tests.outline.families import fresh_memory_store
from tests.outline.sessions import ViewStore
from tests.support.events import record, record_reply

NAMES = (
    "repair",
    "answered",
    "unknown",
    "resolved",
    "killed",
    "resumed",
    "rewound",
    "remembered",
    "failed",
    "cancelled",
    "debate",
    "hostile",
    "fresh",
)


def branch(dossier: Dossier, name: str) -> LogId:
    assert dossier.family is not None
    return next(each.log for each in dossier.family.branches if each.name == name)


@pytest.mark.parametrize("name", NAMES)
def test_it_has_every_step_of_the_family(made: ViewStore, name: str) -> None:
    dossier, session = dossier_of(made, name), made.session(name)
    outlines = Outlines(store_at(session.store))
    family = family_shape(outlines, session.id)
    assert dossier.family == family
    assert (dossier.missing, dossier.status) == ((), session.status)
    due = {
        (detail.step.log, detail.step.index): detail
        for each in family.branches
        for detail in step_details(outlines, each.log, range(each.step_count))
    }
    found = {(detail.step.log, detail.step.index): detail for detail in dossier.steps}
    assert found.keys() == due.keys()
    for key, lean in found.items():
        whole = due[key]
        for field in ("verb", "subject", "says", "state", "marks", "events", "actor", "time"):
            assert getattr(lean.step, field) == getattr(whole.step, field)
        for field in ("arguments", "approvals", "failure", "effect", "placement_text", "model"):
            assert getattr(lean, field) == getattr(whole, field)
        assert [part.text for part in lean.parts] == [part.text for part in whole.parts]


@pytest.mark.parametrize("name", NAMES)
def test_amounts_and_state_are_those_of_the_session(made: ViewStore, name: str) -> None:
    dossier, session = dossier_of(made, name), made.session(name)
    assert dossier.usage is not None and dossier.session is not None
    found = costs(store_at(session.store), session=session)
    document = spent_document(found.total)
    assert dossier.usage.total.input_tokens == document["input_tokens"]
    assert dossier.usage.total.model_calls == document["model_calls"]
    assert dossier.usage.total.unpriced == document["unpriced"]
    if not found.total.unpriced:
        assert dossier.usage.total.cost_usd == pytest.approx(document["cost_usd"])
    state = state_document(session)
    assert dossier.session.head == dossier.check.head == state["head"] == session.head
    assert {fact.key: fact.value for fact in dossier.facts} == dict(session.facts)
    assert {each.key: each.what for each in dossier.open_work} == {
        key: each.what for key, each in session.pending.items()
    }
    on_path = [(each.log, each.seq, each.name, each.passed) for each in session.checks.verdicts]
    told = [(each.at.log, each.at.seq, each.name, each.passed) for each in dossier.verdicts]
    assert set(on_path) <= set(told)


def test_an_unknown_price_is_no_zero(made: ViewStore) -> None:
    usage = dossier_of(made, "resumed").usage
    assert usage is not None
    assert (usage.total.cost_usd, usage.total.unpriced) == (None, 2)


def test_a_repair_with_two_branches(made: ViewStore) -> None:
    dossier, session = dossier_of(made, "repair"), made.session("repair")
    assert [(each.text, each.actor) for each in dossier.asked] == [
        ("Checkout goes negative: see ISSUE.md", "human:u-17")
    ]
    left = branch(dossier, "reject")
    taken = branch(dossier, "clamp")
    first, consent = dossier.rejected
    assert (first.sort, first.what, first.at.log) == ("branch", "reject", left)
    assert "exit code 1" in first.why and "FAILED" in first.why
    assert (consent.sort, consent.why, consent.by) == ("consent", "keep the tests", "human:ann")
    assert consent.what == "shell rm -f ISSUE.md test_cart.py"
    assert [(each.passed, each.stands, each.at.log) for each in dossier.verdicts] == [
        (False, False, left),
        (True, True, taken),
    ]
    assert "exit code 0" in dossier.verdicts[1].call_says
    patch = dossier.patch
    assert patch is not None and patch.tree == session.files.tree
    assert {each.path: each.status for each in patch.files.files} == {
        "ISSUE.md": "removed",
        "cart.py": "changed",
    }
    assert "+    return max(0, sum(prices) - coupon)" in patch.patch
    assert patch.writers["cart.py"].log == taken
    (ask,) = dossier.consents
    assert [(word.how, word.actor, word.words) for word in ask.words] == [
        ("requested", "agent:repair/tidy", ""),
        ("corrected", "human:ann", "keep the tests"),
    ]
    assert ask.words[1].edited == ask.arguments == {"command": "rm -f ISSUE.md"}
    (decision,) = [fact for fact in dossier.facts if fact.kind == "decision"]
    assert (decision.value, decision.reason) == ("clamp", "its tests pass")
    assert dossier.effects == ()


def test_the_workflow_is_a_tree_of_its_calls(made: ViewStore) -> None:
    dossier, session = dossier_of(made, "repair"), made.session("repair")
    assert dossier.family is not None
    store = store_at(session.store)
    started = [
        event.body
        for each in dossier.family.branches
        for event in store.read(each.log, each.place + 1, each.tip, kinds={"CallStarted"})
    ]
    due = {body.path for body in started if isinstance(body, CallStarted)}
    assert {each.path for each in dossier.workflow} == due
    assert [(each.path, each.depth) for each in dossier.workflow if each.depth == 2] == [
        ("repair/reject/coder", 2),
        ("repair/clamp/coder", 2),
    ]
    assert sum(each.spent.model_calls for each in dossier.workflow) == 12
    (run,) = dossier.runs
    body = next(event.body for event in session.events if event.kind == "RunStarted")
    assert isinstance(body, RunStarted)
    assert (run.workflow, run.environment, run.revision) == (
        body.workflow,
        body.environment,
        body.revision,
    )
    assert {each.tool for each in dossier.tools} == {"read_file", "edit_file", "shell"}
    assert sum(each.calls for each in dossier.tools) == 10


def test_a_killed_run_says_what_was_done_about_it(made: ViewStore) -> None:
    dossier = dossier_of(made, "resumed")
    kill, model = dossier.failures
    assert (kill.sort, model.sort) == ("kill", "model")
    assert "taken up again" in kill.then
    assert model.error == "Overloaded: come back later" and "attempt 2 was answered" in model.then
    (run,) = dossier.runs
    assert [each.is_after_kill for each in run.taken_up] == [True]


def test_effects_that_nobody_takes_back(made: ViewStore) -> None:
    (open_one,) = dossier_of(made, "unknown").effects
    assert (open_one.tool, open_one.state) == ("wire", "may have happened")
    resolved = dossier_of(made, "resolved")
    (known,) = resolved.effects
    assert (known.state, known.arguments) == ("happened", {"to": "ACME", "amount": 90})
    (ask,) = resolved.consents
    assert (ask.sort, ask.answered_by) == ("resolution", "human:ann")
    assert "it is on the statement" in ask.answer
    assert dossier_of(made, "approval").effects == ()  # it waits for consent: nothing was run


def test_an_effect_that_its_probe_found_was_decided_by_no_person() -> None:
    session = Session("Pay ACME.", store=fresh_memory_store())
    session = record(session, RunStarted("m:W"), run="run-1")
    ask = ToolRequested("wire", {"to": "ACME"}, "probeable")
    session = record(session, ask, run="run-1", call="c1", actor="agent:clerk")
    request = session.events[-1].id
    found = (
        ToolUnknown(request, "its process ended"),
        ToolResolved(request, "happened", (Text("sent"),), "by the tool itself"),
    )
    session = record(session, *found, run="run-1", call="c1", actor="service:plait")
    dossier = make_dossier(session, made=NOW)
    (failure,) = dossier.failures
    assert failure.then == "its probe found that it had happened"
    (effect,) = dossier.effects
    assert (effect.state, effect.says) == ("happened", failure.then)
    assert dossier.consents == ()  # nobody was asked


def test_a_what_if_is_no_branch_that_was_left() -> None:
    session = Session("Mend it.", store=fresh_memory_store())
    session = record_reply(record(session, RunStarted("m:W")))
    place = Place(session.id, session.seq, session.head)
    left = record_reply(session.fork("left"))
    apart = record_reply(record(session.fork("zero"), RunBranched(place, "m:W")))
    record_reply(apart.fork("deeper"))
    dossier = make_dossier(session.reload(), made=NOW)
    assert [each.what for each in dossier.rejected] == [left.lineage.label]
    assert dossier.what_ifs == (branch(dossier, "zero"), branch(dossier, "deeper"))
    assert sum(each.spent.model_calls for each in dossier.models) == 4  # all that answered
    page = PageElements(dossier_page(dossier, has_run=False)).text
    assert "2 branches and 2 what-ifs" in page
    assert re.search(r"zero \w+, 3 steps, a what-if", page)
    assert "Calls of what-ifs (zero, deeper) are counted here" in page
    assert "What-ifs are not counted here." in page
    assert make_dossier(apart.reload(), made=NOW).what_ifs == ()  # there it is the session itself


def test_a_verdict_says_which_files_changed_since(made: ViewStore) -> None:
    dossier = dossier_of(made, "repair")
    (stands,) = [each for each in dossier.verdicts if each.stands]
    assert dossier.patch is not None and stands.tree != dossier.patch.tree
    assert stands.changed_since == ("ISSUE.md",)
    assert all(each.changed_since == () for each in dossier.verdicts if each is not stands)
    page = PageElements(dossier_page(dossier, has_run=False)).text
    tree = str(dossier.patch.tree)[:12]
    assert f"which is not the accepted {tree}: ISSUE.md changed since" in page
    assert f"✓ {stands.name} passed before ISSUE.md changed" in page


def test_evidence_says_how_a_call_ended() -> None:
    session = Session("Mend it.", store=fresh_memory_store())
    request = ToolRequested("shell", {"command": "make test"}, "workspace")
    session = record(session, request, call="c1")
    output = "Traceback (most recent call last):\n" + "  File x\n" * 90 + "FAILED (errors=1)\n"
    session = record(session, ToolReturned((Text(output),), exit_code=1), call="c1")
    session = session.checks.record("tests", False, evidence=session.events[-1])
    (verdict,) = make_dossier(session, made=NOW).verdicts
    (shown,) = verdict.evidence
    assert shown.says == "shell make test: exit code 1, FAILED (errors=1)"


def test_an_inbox_is_checked_and_not_in_the_record(made: ViewStore) -> None:
    dossier = dossier_of(made, "answered")
    assert dossier.check.verify is not None
    more = dossier.check.verify.events - dossier.check.record.events
    page = PageElements(dossier_page(dossier, has_run=False)).text
    assert (
        more > 0 and f" {more} of their inboxes and of sessions they rest on) were checked" in page
    )


def test_memories_have_their_origin(made: ViewStore) -> None:
    dossier = dossier_of(made, "remembered")
    (read,) = dossier.memory_read
    (memory,) = read.memories
    assert memory.text == "The staging database is read-only."
    assert memory.used and memory.origin is not None
    origin = Session.open(memory.origin.log, store=made.store)
    event = origin.at(memory.origin.seq).events[-1]
    assert event.id == memory.memory and memory.origin.actor == event.actor
    assert [each.says for each in memory.origin.evidence] == ["user: Note it."]
    written = dossier_of(made, "fresh")
    assert (written.memory_read, written.memory_written) == ((), ())


def test_a_rewind_and_the_branch_that_was_left(made: ViewStore) -> None:
    dossier = dossier_of(made, "rewound")
    left, rewind = dossier.rejected
    assert (left.sort, left.what) == ("branch", "other")
    assert "12 % lost" in left.why
    assert (rewind.sort, rewind.why) == ("rewind", "wrong track")
    gone = [each.step.verb for each in dossier.steps if each.step.is_rewound]
    assert gone == ["found", "to do", "decided"]


def test_a_question_is_told_word_for_word(made: ViewStore) -> None:
    (ask,) = dossier_of(made, "answered").consents
    assert (ask.question, ask.choices, ask.answer) == (
        "Which port?",
        ("Kiel", "Hamburg"),
        '"Kiel"',
    )


def test_a_program_that_failed(made: ViewStore) -> None:
    dossier = dossier_of(made, "failed")
    tool, run = dossier.failures
    assert tool.error == "KeyError: 'nothing'" and tool.then_at is not None
    assert run.error == "ValueError: the warehouse does not answer"
    assert run.then == "nothing: the run stays failed"


def test_an_earlier_place_is_told_as_it_was(made: ViewStore) -> None:
    from plait.dossier.making import make_dossier

    session = made.session("repair").at(16)
    dossier = make_dossier(session, made=0)
    assert dossier.place == SeqRef(session.id, 16)
    assert dossier.check.head == session.head
    assert [notice.kind for notice in dossier.notices if notice.kind == "past"] == ["past"]
    assert {fact.key for fact in dossier.facts} == {"strategy"}
