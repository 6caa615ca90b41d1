"""Recalls in prompts: memories are data that one agent is shown, in every view and after a
compaction.
"""

from __future__ import annotations

from plait import Compactor, Session, View
from plait.event import kinds as k
from plait.event.kinds import Failure, MemoryRecalled, MemoryUsed, RecallFailed, Score, Text
from plait.ids import Digest, digest
from plait.model.base import Said
from plait.runtime.prompt.prompt import Prompt
from plait.runtime.prompt.setup import Setup
from plait.runtime.sent import rebuild_prompt
from tests.support import events_of, record, speaker, turn_text

ANN = "agent:ann"
SHOWN = "[memory] Statements.\n[m:1a2b3c4d] (said) Staging is read-only."


def memory_id(name: str) -> Digest:
    return digest(b"test/memory", name.encode())


def recalled(*names: str, shown: str = "") -> MemoryRecalled:
    hits = tuple([Score(memory_id(name), 1.0) for name in names])
    parts = (Text(shown),) if shown else ()
    return MemoryRecalled("staging", ("session",), 5, hits=hits, shown=parts)


def prompt_of(session: Session, actor: str = ANN, view: View | None = None) -> Prompt:
    prompt = Prompt(Setup("x", (), view=view or View()), actor, None)
    prompt.catch_up(session)
    return prompt


def shown(session: Session, actor: str = ANN, view: View | None = None) -> list[str]:
    return [turn_text(turn) for turn in prompt_of(session, actor, view).ask()[1]]


def test_memories_are_shown_as_data_to_the_agent_that_recalled_them() -> None:
    session = record(Session("May I write?"), recalled("a", shown=SHOWN), actor=ANN)
    assert shown(session) == ["May I write?", SHOWN]
    assert all(isinstance(turn, Said) for turn in prompt_of(session).ask()[1])
    assert prompt_of(session).causes[-1] == session.head
    assert shown(session, "agent:bob") == ["May I write?"]
    # the program or a tool has the hits itself
    assert shown(record(session, recalled("b"), actor=ANN)) == shown(session)


def test_a_failed_search_is_said_in_one_line() -> None:
    failed = RecallFailed("staging", Failure("IndexFailed", "no answer"))
    session = record(Session("May I write?"), failed, actor=ANN)
    line = "[memory] memory could not be searched: IndexFailed: no answer"
    assert shown(session) == ["May I write?", line]
    assert shown(session, "agent:bob") == ["May I write?"]
    reply = k.ModelReplied((), k.Usage(), "calls", (k.Action("c1", "recall", {}),))
    asked = record(Session("May I write?"), reply, call="c0", actor=ANN)
    by_tool = record(asked, failed, call="c1", actor=ANN)
    assert shown(by_tool) == shown(asked), "a tool that fails says so itself"


def test_a_recall_goes_with_the_message_that_it_was_made_for() -> None:
    session = record(Session("one").say("two"), recalled("a", shown=SHOWN), actor=ANN)
    assert shown(session, view=View.last(1)) == ["two", SHOWN]
    assert shown(session, view=View.facts()) == ["two", SHOWN]
    assert shown(session, view=View.calls("ann")) == ["one", "two", SHOWN]
    branch = session.fork("b").say("three")
    assert shown(branch, view=View.branch()) == ["three"]


def test_a_recall_leaves_with_the_steps_around_it() -> None:
    session = record(Session("one"), recalled("a", shown=SHOWN), actor=ANN).say("two").say("three")
    compact = Compactor(rule=lambda session, messages: "short", keep=1)
    summary = "(what went before, in short)\nshort"
    assert shown(compact(session.fork("a"))) == [summary, "three"]
    session = record(session, recalled("a", shown=SHOWN), actor=ANN)
    assert shown(compact(session)) == [summary, "three", SHOWN]


def test_the_last_words_of_others_are_what_an_agent_asks_memory_about() -> None:
    session = Session("one").say("two", actor="service:flow")
    session = record(session, k.ModelReplied((Text("mine"),), k.Usage(), "end"), actor=ANN)
    assert prompt_of(session).heard == (Text("two"),)
    assert prompt_of(session, "agent:bob").heard == (Text("mine"),)
    session = record(session, k.MessageSaid("user", (Text("All used."),)), actor="service:plait")
    assert prompt_of(session).heard == (Text("two"),)


# ── citations ────────────────────────────────────────────────────────────────────────────────


def test_a_reply_that_cites_a_recalled_memory_is_a_use_of_it() -> None:
    session = record(Session("go"), recalled("a", "b", "c", shown=SHOWN), actor="agent:ann")
    cited = [memory_id(name)[:8] for name in ("b", "a", "unknown")]
    text = f"No [m:{cited[0]}], [m:{cited[1]}, m:{cited[2]}] [m:12]."
    session = speaker(text, name="ann", purpose="plan")(session)
    (used,) = events_of(session, MemoryUsed)
    (reply,) = events_of(session, k.ModelReplied)
    assert used.body == MemoryUsed("citation", "plan") and used.actor == "agent:ann"
    assert used.header.causes == (reply.id, memory_id("b"), memory_id("a"))
    assert used.seq == reply.seq + 1
    assert rebuild_prompt(session).matches


def test_words_that_cite_nothing_recalled_are_words() -> None:
    name = memory_id("a")[:8]
    assert not events_of(speaker(f"So [m:{name}].")(Session("go")), MemoryUsed)
    session = record(Session("go"), recalled("a"), actor="agent:ann")
    assert not events_of(speaker(f"So m:{name}.")(session.fork("x")), MemoryUsed)
    assert not events_of(speaker("So [m:zzz].")(session), MemoryUsed)
