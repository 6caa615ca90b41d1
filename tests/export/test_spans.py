"""The spans of a session, as plain values."""

from __future__ import annotations

import msgspec
import pytest

from plait import Agent, PlaitError, ScriptedModel, Session, ToolCall, Workflow
from plait.export.calls import spans_of
from plait.export.spans import CallSpan
from plait.ids import LogId
from plait.runs.whatif import whatif
from plait.session.ledger import costs
from plait.session.ports import store_at
from tests.cli.shell import Shell, shell
from tests.export.contest import SECRET, TREE, look, session, stumble

__all__ = ["session", "shell"]


def tree_text(spans: tuple[CallSpan, ...], parent: str | None = None, depth: int = 0) -> str:
    """Return the names of spans, each below the one that it is inside of."""
    lines = ""
    for span in spans:
        if span.parent == parent:
            operation, _, subject = span.name.partition(" ")
            lines += f"{'  ' * depth}{operation} {subject.rpartition(':')[2]}\n"
            lines += tree_text(spans, span.id, depth + 1)
    return lines


def sum_of(spans: tuple[CallSpan, ...], name: str) -> int:
    return sum(int(str(span.attributes.get(name, 0))) for span in spans)


def test_the_tree_of_spans_is_the_tree_of_calls(session: Session) -> None:
    found = spans_of(session)
    assert tree_text(found.spans) == TREE
    assert found.open_count == 0
    assert len({span.trace for span in found.spans}) == 1
    by_id = {span.id: span for span in found.spans}
    for span in found.spans:
        if span.parent is not None:
            parent = by_id[span.parent]
            assert parent.start <= span.start <= span.end <= parent.end, span.name


def test_tokens_and_calls_are_those_of_the_ledger(session: Session) -> None:
    spans, total = spans_of(session).spans, costs(store_at(session.store), session=session).total
    assert sum_of(spans, "gen_ai.usage.input_tokens") == total.usage.input_tokens > 0
    assert sum_of(spans, "gen_ai.usage.output_tokens") == total.usage.output_tokens > 0
    assert [span.operation for span in spans].count("chat") == total.model_calls == 7
    assert [span.operation for span in spans].count("execute_tool") == total.tool_calls == 5


def test_the_same_session_gives_the_same_spans(session: Session) -> None:
    first = spans_of(session)
    assert spans_of(Session.open(session.id, store=session.store)) == first
    assert len({span.id for span in first.spans}) == len(first.spans)


def test_a_span_never_changes_once_it_is_there(session: Session) -> None:
    whole = {span.id: span for span in spans_of(session).spans}
    counts = list[int]()
    for seq in range(1, session.seq + 1):
        before = spans_of(session.at(seq))
        # a branch of a run counts as far as it is written
        assert all(whole[span.id] == span for span in before.spans), seq
        counts.append(len(before.spans))
    assert counts == sorted(counts) and counts[0] == 0


def test_forks_merges_and_whatifs_are_links(session: Session) -> None:
    spans = spans_of(session).spans
    links = {
        (span.name.rpartition(":")[2], link.connection): link.span
        for span in spans
        for link in span.links
    }
    by_id = {span.id: span.name for span in spans}
    assert {key: by_id[to] for key, to in links.items()} == {
        ("Contest", "merge"): "invoke_agent lead",
        ("invoke_agent lead", "fork"): "retrieval memory",
        ("invoke_agent other", "fork"): "retrieval memory",
        ("invoke_agent helper", "fork"): "execute_tool helper",
    }


def test_every_span_names_its_session_and_its_event(session: Session) -> None:
    store = store_at(session.store)
    for span in spans_of(session).spans:
        told = span.attributes
        assert told["gen_ai.conversation.id"] == told["session.id"] == session.id
        assert told["gen_ai.operation.name"] == span.operation
        log, seq = LogId(str(told["plait.session"])), int(str(told["plait.seq"]))
        (event,) = store.read(log, seq, seq)
        assert event.id == told["plait.event"] and event.time == span.start


def test_there_is_content_only_if_it_is_wished(session: Session) -> None:
    assert SECRET not in repr(spans_of(session))
    with_content = spans_of(session, content=True).spans
    assert SECRET in repr(with_content)
    (stumble,) = [span for span in with_content if span.name == "execute_tool stumble"]
    assert stumble.error == "ValueError" and SECRET in stumble.message
    assert [span.id for span in with_content] == [span.id for span in spans_of(session).spans]


class Alone(Workflow):
    """One agent that looks once."""

    def __init__(self) -> None:
        script = ScriptedModel([ToolCall("look"), "done"])
        self.agent = Agent("Work.", model=script, tools=[look])

    def forward(self, session: Session) -> Session:
        return self.agent(session)


def test_a_whatif_is_a_trace_of_its_own_that_links_its_source(shell: Shell) -> None:
    session = Alone()(Session("go", store=shell.address))
    (asked, _) = [event for event in session.events if event.kind == "ModelReplied"]
    other = whatif(session, Alone(), replace={asked: "nothing to look at"})
    spans = spans_of(other).spans
    (run,) = [span for span in spans if span.links]
    assert run.operation == "invoke_workflow" and run.attributes["session.id"] == other.id
    ((connection, trace, source),) = [msgspec.structs.astuple(link) for link in run.links]
    at_first = {span.id: span for span in spans_of(session).spans}
    assert connection == "whatif" and at_first[source].operation == "chat"
    assert trace == at_first[source].trace != run.trace
    total = costs(store_at(other.store), session=other).total.usage
    assert sum_of(spans, "gen_ai.usage.output_tokens") == total.output_tokens


def test_an_agent_that_is_the_run_is_one_span(shell: Shell) -> None:
    agent = Agent("Work.", name="solo", model=ScriptedModel(["done"]))
    spans = spans_of(agent(Session("go", store=shell.address))).spans
    assert tree_text(spans) == "invoke_agent solo\n  chat scripted\n"


def test_a_run_that_fails_fails_as_a_span(shell: Shell) -> None:
    class Broken(Workflow):
        def forward(self, session: Session) -> Session:
            return session.use(stumble)

    session = Session("go", store=shell.address)
    with pytest.raises(PlaitError):
        Broken()(session)
    run, tool = spans_of(session.reload()).spans
    assert (tool.error, tool.message) == ("ValueError", "")
    assert run.error and run.attributes["error.type"] == run.error
