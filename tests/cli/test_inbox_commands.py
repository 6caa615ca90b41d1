"""Open asks are shown exactly as they are bound, and answered from the shell."""

from __future__ import annotations

import hashlib
import json
import shlex
from functools import partial
from pathlib import Path

import pytest

from plait import Memory, Session, open_store
from plait.event import Json
from plait.event.kinds import (
    ApprovalRequested,
    Failure,
    QuestionAsked,
    RunFailed,
    RunStarted,
    TimerSet,
    ToolRequested,
    ToolUnknown,
    VerdictAwaited,
)
from plait.ids import Digest, inbox_of
from plait.session.safe_text import clean, visible
from tests.cli.shell import Shell, on_a_terminal, shell
from tests.support import record

__all__ = ["shell"]

record_for_ana = partial(record, run="run-1", behalf="human:ana")
B = Digest("b" * 64)
HOSTILE = "safe\x1b[2K\r\u202egnp.exe\u200b\u2066 \u00a0\u3164end\x07"


def held(shell: Shell) -> Session:
    """A session that a run holds."""
    return record_for_ana(shell.open(shell.new("Clean up.")), RunStarted("m:W"))


def ask(
    session: Session, arguments: Json, shown: Json = None, expires: int | None = None
) -> Session:
    request = ToolRequested("delete", arguments, "at_most_once", version="v-17", reason="it is old")
    return record_for_ana(session, request, ApprovalRequested(B, shown, expires), call="call-1")


# ── looking ──────────────────────────────────────────────────────────────────────────────────


def test_an_approval_tells_of_a_memory_that_was_taken_back_since(shell: Shell) -> None:
    session = shell.open(shell.new("Clean up."))
    memory = Memory(store=session.store)
    session = memory.remember(session, "The old files are backed up.")
    session, (hit,) = memory.recall(session, "which files are old?")
    session = ask(record_for_ana(session, RunStarted("m:W")), {"path": "a.txt"})
    assert "CAUTION" not in shell("inbox")
    assert shell.json("inbox")["waiting"][0]["lapsed_memories"] == []
    memory.rollback(hit).apply(reason="they are not", actor="human:zoe")
    text = shell("inbox")
    assert "CAUTION" in text and "taken back by human:zoe in a rollback" in text
    assert f"[m:{hit.short}] The old files are backed up." in text
    (lapsed,) = shell.json("inbox")["waiting"][0]["lapsed_memories"]
    assert (lapsed["id"], lapsed["text"]) == (hit.id, hit.text)


def test_an_approval_shows_all_that_is_bound(shell: Shell) -> None:
    session = ask(
        held(shell),
        {"path": "a.txt"},
        {"tool": "delete", "rule": "deletes ask first"},
        2_000_000_000_000_000,
    )
    text = shell("inbox")
    for part in (
        f"approval    {session.inbox.waiting[0].event[:12]}  {session.short}@5",
        "by agent:coder for human:ana",
        "delete",
        "v-17",
        '{"path": "a.txt"}',
        "it is old",
        "deletes ask first",
        B,
        "2033-05-18 03:33:20 UTC",
    ):
        assert part in text
    assert text.startswith('coder wants to run delete path="a.txt"\n  reason      it is old\n')
    assert text == shell("inbox", session.short)
    [document] = shell.json("inbox")["waiting"]
    assert (
        document["id"] == session.inbox.waiting[0].event
        and document["session"] == session.id
        and document["resume"] == session.short
    )
    assert (document["tool"], document["version"], document["arguments"]) == (
        "delete",
        "v-17",
        {"path": "a.txt"},
    )
    assert shell.jsonl("inbox") == [document]
    assert f"plait approve {document['id'][:8]}" in on_a_terminal("inbox")


def test_nothing_hostile_gets_out_raw_and_nothing_is_left_out(shell: Shell) -> None:
    session = ask(held(shell), {HOSTILE: HOSTILE}, {"why": HOSTILE, HOSTILE: [HOSTILE]})
    record_for_ana(session, QuestionAsked(HOSTILE, (HOSTILE, "b")), call="call-2")
    text = shell("inbox")
    assert (
        not [
            char
            for char in HOSTILE
            if char in text and (not char.isprintable() or char in "\u3164")
        ]
        and "[2K" in text
    )
    line = next(line for line in text.splitlines() if line.strip().startswith("arguments"))
    # escapes and all, it is what is bound
    assert json.loads(line.strip().removeprefix("arguments").strip()) == {HOSTILE: HOSTILE}
    assert "\\u202e" in text and "\\u200b" in text and "\\u3164" in text and "\\u00a0" in text


@pytest.mark.parametrize(
    "text",
    [
        HOSTILE,
        "é",
        "日本語",
        "a\u0301" * 3,
        "z" + "\u0301" * 30,
        "\ud800",
        "👩\u200d👩",
        "\U000e0041",
        "\u2800",
        "\ufe0f",
    ],
)
def test_what_is_made_visible_stays_so(text: str) -> None:
    shown = visible(text)
    assert clean(shown) == shown and visible(shown) == shown
    assert json.loads(f'"{shown}"') == text
    assert visible("日本語 é") == "日本語 é"


def test_what_is_long_is_folded_with_its_size_and_digest(shell: Shell) -> None:
    arguments = {"text": "x" * 5000 + "the end"}
    ask(held(shell), arguments)
    whole = json.dumps(arguments)
    folded = shell("inbox")
    assert (
        "the end" not in folded
        and hashlib.sha256(whole.encode()).hexdigest() in folded
        and f"{len(whole):,} bytes" in folded
    )
    assert whole in shell("inbox", "--full")
    assert shell.json("inbox")["waiting"][0]["arguments"] == arguments


def test_an_ask_that_shows_something_else_than_its_request_is_said_to(shell: Shell) -> None:
    ask(held(shell), {"path": "/"}, {"tool": "list", "arguments": {"path": "a.txt"}})
    text = shell("inbox")
    assert (
        text.count("CAUTION") == 2
        and '{"path": "/"}' in text
        and "another tool than the request" in text
    )


def test_what_does_not_wait_for_people_is_shown_only_if_asked_for(shell: Shell) -> None:
    session = record_for_ana(held(shell), TimerSet(1_000_000, "deployed"), call="t")
    assert shell("inbox") == "" and shell.json("inbox") == {"waiting": []}
    assert "1970-01-01 00:00:01 UTC" in shell("inbox", "--all") and "deployed" in shell(
        "inbox", "--all"
    )
    assert "nothing waits" in on_a_terminal("inbox")
    shell("send", session.short, "Hello?")
    (line,) = shell("find", "Hello?").splitlines()
    assert line.startswith(f"{session.short} inbox 1 ")
    (found,) = shell.json("find", "Hello?")["events"]
    assert (found["session"], found["inbox"]) == (session.id, inbox_of(session.id))
    assert shell.json("find", "Clean up.")["events"][0]["inbox"] is None
    assert "human:ana" in shell("inbox", session.short, "--all") and "Hello?" in shell(
        "inbox", session.short, "--all"
    )
    assert [event["kind"] for event in shell.json("inbox", session.short, "--all")["events"]] == [
        "MessageSaid"
    ]
    assert [event["session"] for event in shell.jsonl("inbox", session.short, "--all")] == [
        inbox_of(session.id)
    ]


# ── answering ────────────────────────────────────────────────────────────────────────────────


def test_approving_and_what_comes_next(shell: Shell) -> None:
    session = ask(held(shell), {"path": "a.txt"})
    id = session.inbox.waiting[0].event
    done = shell.json("approve", id[:8], "--note", "fine")
    assert (done["ask"], done["resume"], done["event"]["kind"]) == (
        id,
        session.short,
        "ApprovalGranted",
    )
    assert (
        done["event"]["body"]["binding"] == B
        and done["event"]["body"]["note"] == "fine"
        and done["event"]["causes"] == [id]
    )
    assert shell("inbox") == "" and session.reload() == session
    assert "answered already, by human:ana" in shell.error(1, "approve", id[:8])
    assert "answered already" in shell.error(1, "deny", id[:8])
    assert "nothing is wrong" in shell("verify") and "nothing is wrong" in shell(
        "verify", session.short
    )


def test_a_branch_goes_on_through_the_session_its_run_began_on(shell: Shell) -> None:
    root = held(shell)
    branch = ask(root.fork("b"), {"path": "a.txt"})
    assert shell.json("inbox", root.short)["waiting"][0]["short"] == branch.short
    assert (
        shell.json("deny", branch.inbox.waiting[0].event[:8], "--reason", "no")["resume"]
        == root.short
    )


def test_the_command_that_goes_on_is_named(shell: Shell) -> None:
    session = ask(held(shell), {})
    assert f"plait resume {session.short}" in on_a_terminal(
        "approve", session.inbox.waiting[0].event[:8], PLAIT_ACTOR="human:ana"
    )


def test_approving_with_other_arguments(shell: Shell, tmp_path: Path) -> None:
    session = ask(held(shell), {"path": "/"})
    id = session.inbox.waiting[0].event[:8]
    for wrong in ("[1]", "{", '{"a": NaN}', '{"a": 1, "a": 2}', "@nowhere.json"):
        shell.error(2, "approve", id, "--edit", wrong)
    assert session.inbox.events == []
    (tmp_path / "edit.json").write_text('{"path": "b.txt"}')
    assert shell.json("approve", id, "--edit", "@edit.json")["event"]["body"]["edited"] == {
        "path": "b.txt"
    }


def test_who_may_not_and_what_is_not_there(shell: Shell) -> None:
    session = ask(held(shell), {}, expires=1)
    id = session.inbox.waiting[0].event
    assert "(it has)" in shell("inbox")
    assert "may not answer" in shell.error(1, "approve", id[:8], "--as", "agent:coder")
    assert "has expired" in shell.error(1, "approve", id[:8])
    assert "called that" in shell.error(3, "approve", "feedfeed")
    assert "at least 4 characters" in shell.error(3, "approve", id[:3])
    told = shell.error(3, "answer", id[:8], "yes")
    assert "it is a call that waits for an approval, not a question" in told
    assert f"plait approve {id[:8]}" in told and f"plait deny {id[:8]}" in told
    assert session.inbox.events == []


@pytest.mark.parametrize("command", ["approve", "deny", "answer", "resolve"])
def test_an_ask_of_another_kind_names_its_own_command(shell: Shell, command: str) -> None:
    session = ask(held(shell), {})
    session = record_for_ana(session, QuestionAsked("Which?", ()), call="call-2")
    request = ToolRequested("pay", {"sum": 3}, "at_most_once")
    session = record_for_ana(session, request, call="call-3")
    session = record_for_ana(session, ToolUnknown(session.events[-1].id, "killed"), call="call-3")
    timers = TimerSet(None, "paid order"), VerdictAwaited("quality check", "human:eva")
    session = record_for_ana(session, *timers, call="call-4")
    kinds = {each.kind: each.event[:8] for each in session.inbox.waiting}
    right = {
        "approval": f"plait approve {kinds['approval']}",
        "question": f"plait answer {kinds['question']}",
        "unknown": f"plait resolve {kinds['unknown']} happened|did-not-happen|compensated",
        "timer": f"plait signal {session.short} 'paid order'",
        "verdict": f"plait validate {session.short} 'quality check' passed|failed",
    }
    own = {"answer": "question", "resolve": "unknown"}.get(command, "approval")
    more = {"answer": ["yes"], "resolve": ["happened"]}.get(command, [])
    assert kinds.keys() == right.keys()
    for kind in kinds.keys() - {own}:
        assert right[kind] in shell.error(3, command, kinds[kind], *more)
    assert session.inbox.events == []
    assert f"plait inbox {session.short}" in shell.error(3, command, session.short, *more)


def test_a_memory_that_waits_is_approved_by_another_command(shell: Shell) -> None:
    session = shell.open(shell.new("x"))
    session = Memory(store=shell.address).remember(session, "Ship on Fridays.")
    name = next(each.id[:8] for each in session.events if each.kind == "MemoryProposed")
    assert f"plait memory approve {name}" in shell.error(3, "approve", name)


def test_the_start_of_an_id_must_name_one(shell: Shell) -> None:
    first = ask(held(shell), {})
    second = ask(held(shell), {})
    found = shell.run("approve", B[:8])
    assert found.exit_code == 2 and first.short in found.stderr and second.short in found.stderr


def test_an_effect_in_doubt_is_told_of_the_agent_that_called(shell: Shell) -> None:
    session = record_for_ana(held(shell), ToolRequested("pay", {"sum": 3}, "probeable"), call="c")
    doubt = ToolUnknown(session.events[-1].id, "killed")
    record_for_ana(session, doubt, call="c", actor="service:plait")
    text = shell("inbox")
    assert (
        "coder called pay sum=3: it may have happened" in text
        and "service:plait called" not in text
    )


RETURNS = {
    "string": ({"type": "string"}, "'what it said'"),
    "number": ({"type": "integer"}, "3"),
    "object": (
        {
            "$ref": "#/$defs/R",
            "$defs": {
                "R": {
                    "type": "object",
                    "required": ["a"],
                    "properties": {"a": {"type": "array", "items": {"type": "boolean"}}},
                }
            },
        },
        """'{"a": [true]}'""",
    ),
}


@pytest.mark.parametrize("returns", RETURNS)
def test_what_a_call_returned_is_asked_for_by_the_option(shell: Shell, returns: str) -> None:
    schema, example = RETURNS[returns]
    session = record_for_ana(held(shell), ToolRequested("pay", {}, "probeable"), call="c")
    doubt = ToolUnknown(session.events[-1].id, "killed", schema)
    session = record_for_ana(session, doubt, call="c", actor="service:plait")
    (ask,) = session.inbox.waiting
    id = ask.event[:8]
    told = shell.error(2, "resolve", id, "happened")
    assert "--value: pay returns a value" in told
    assert f"plait resolve {id} happened --value {example}" in told
    assert session.inbox.events == []
    shell("resolve", id, "happened", "--value", *shlex.split(example))  # the example is taken
    assert session.inbox.waiting == []


def test_answering_and_resolving(shell: Shell) -> None:
    session = record_for_ana(held(shell), QuestionAsked("Which?", ("1", "b")), call="call-2")
    session = record_for_ana(
        session, ToolRequested("pay", {"sum": 3}, "at_most_once"), call="call-3"
    )
    session = record_for_ana(session, ToolUnknown(session.events[-1].id, "killed"), call="call-3")
    question, unknown = session.inbox.waiting
    text = shell("inbox")
    assert (
        "Which?" in text
        and '["1", "b"]' in text
        and "pay" in text
        and '{"sum": 3}' in text
        and "killed" in text
    )
    shell.error(2, "answer", question.event[:8], "c")
    # the choice, not the number
    assert shell.json("answer", question.event[:8], "1")["event"]["body"]["answer"] == "1"
    shell.error(2, "resolve", unknown.event[:8], "perhaps")
    body = shell.json("resolve", unknown.event[:8], "did-not-happen", "--note", "the bank says so")[
        "event"
    ]["body"]
    assert (body["verdict"], body["note"], body["request"]) == (
        "did_not_happen",
        "the bank says so",
        unknown.request,
    )
    assert shell("inbox") == ""


# ── saying ───────────────────────────────────────────────────────────────────────────────────


def test_whatever_is_said_while_a_run_is_open_goes_to_the_inbox(shell: Shell) -> None:
    session = held(shell)
    assert "in the inbox" in shell("say", session.short, "Stop at five.")
    shell("send", session.short, "-", input=b"And come home.\n")
    assert shell.json("signal", session.short, "deployed", '{"ok": true}')["event"]["body"][
        "value"
    ] == {"ok": True}
    shell("pause", session.short)
    shell.error(2, "say", session.short, "I am the agent.", "--role", "assistant")
    assert "enough" in shell("cancel", session.short, "--reason", "enough")
    kinds = [event["kind"] for event in shell.json("inbox", session.short, "--all")["events"]]
    said = ["MessageSaid", "MessageSaid", "Signalled"]
    assert kinds == [*said, "SessionPaused", "SessionResumed", "CancelRequested"]
    shell.error(2, "send", session.short, "")
    after = session.reload()  # nobody held the run, so it has ended at once
    assert [run.status for run in after.runs] == ["cancelled"] and after.status == "cancelled"


def test_without_a_run_there_is_nothing_to_cancel(shell: Shell) -> None:
    session = shell.open(shell.new("x"))
    assert "no open run" in shell.error(1, "cancel", session.short)
    assert "in the inbox" not in shell("say", session.short, "Hello.")
    assert session.inbox.events == []


def test_an_inbox_is_verified_and_is_no_session(shell: Shell) -> None:
    session = held(shell)
    shell("send", session.short, "Hello?")
    assert [each["id"] for each in shell.json("ls", "--all")["sessions"]] == [session.id]
    assert shell.json("verify", session.short)["events"] == session.seq + 1
    assert shell.json("verify", "--state")["ok"] and shell.open("@").id == session.id


def test_a_session_that_has_its_answer_is_listed_as_due(shell: Shell) -> None:
    session = ask(held(shell), {"path": "a.txt"})
    assert "waiting" in shell("ls") and "due" not in shell("ls")
    assert [each["due"] for each in shell.json("ls")["sessions"]] == [False]
    assert "resume --due" not in on_a_terminal("inbox")
    shell("approve", session.inbox.waiting[0].event[:8])
    assert "waiting, due" in shell("ls")
    (listed,) = shell.json("ls")["sessions"]
    assert listed["due"] and (listed["status"], listed["standing"]) == ("waiting", "waiting, due")
    hint = "one session has its answer; go on with: plait resume --due"
    assert hint in on_a_terminal("inbox")


def test_a_run_that_no_process_has_is_paused_at_once(shell: Shell) -> None:
    session = held(shell)
    assert shell("pause", session.short).endswith("  paused\n")
    assert shell.json("ls", "--status", "paused")["sessions"][0]["id"] == session.id
    (run,) = shell.json("runs", "--status", "paused")["runs"]
    assert run["session"] == session.id
    assert "nothing is due or interrupted" in shell("resume", "--due", "--interrupted")
    assert shell("unpause", session.short).endswith("  interrupted\n")
    assert shell.json("ls", "--status", "paused")["sessions"] == []


def test_a_paused_session_that_has_its_answer_is_not_taken_up_as_due(shell: Shell) -> None:
    session = ask(held(shell), {"path": "a.txt"})
    shell("pause", session.short)
    shell("approve", session.inbox.waiting[0].event[:8])
    assert "nothing is due" in shell("resume", "--due", "--interrupted")
    assert "paused" in shell("ls") and "due" not in shell("ls")


# ── the words after `send` ───────────────────────────────────────────────────────────────────


def test_a_message_says_who_hears_it(shell: Shell) -> None:
    def told(session: Session) -> str:
        return str(shell.json("send", session.short, "Hello?")["next"])

    idle, left = shell.open(shell.new("x")), held(shell)
    chat = f"the next run or turn hears it first: plait chat {idle.short}"
    assert told(idle) == f"no run is open: {chat}"
    assert told(left) == f"no process has the run, which hears it after plait resume {left.short}"
    lock = open_store(shell.address).lock("run-1", left.short)
    assert told(left).startswith("the run that is open hears it before its next effect")
    lock.release()
    for session in (left, idle):
        shell("pause", session.short)
        assert "paused" in told(session) and f"plait resume {session.short}" in told(session)
    failed = record_for_ana(held(shell), RunFailed(Failure("LookupError", "no stock")))
    assert f"no run is open: plait resume {failed.short} takes the failed run up" in told(failed)
    waits = ask(held(shell), {})
    steps = f"plait inbox {waits.short}, then plait resume {waits.short}"
    assert told(waits) == f"the run waits, and hears it when it goes on: {steps}"
