"""Provenance at its joints: verdicts, evidence, what agents write, files, places, prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plait import Agent, ScriptedModel, Session, ToolCall, Workflow, open_store, tool
from plait.errors import InvalidValue, OutsideWorkspace, PlaitError, UnknownKey
from plait.event.kinds import FactRecorded, ToolRequested
from plait.session.graph import Graph
from plait.tools import decide, note, settle, todo, write_file

STORE = "memory:provenance"


@tool(effect="pure")
def check() -> str:
    """Run the tests."""
    return "3 passed"


@tool(effect="pure")
def remember(what: str, session: Session) -> str:
    """Remember something."""
    session.fact("what", what).attach("figure", "1").checks.record("looks", True)
    return "ok"


def agent(*script: Any, tools: Any = (), name: str = "ana") -> Agent:
    return Agent("Work.", model=ScriptedModel(list(script)), tools=list(tools), name=name)


def ids(trace: Any) -> set[str]:
    return {step.id for step in trace}


def linked(graph: Graph, source: str, target: str) -> str | None:
    found = [edge.type for edge in graph.edges if (edge.source, edge.target) == (source, target)]
    return found[0] if found else None


# ── verdicts and evidence ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["event", "effect", "session", "place", "name", "attachment"])
def test_a_verdict_leads_to_its_evidence_and_back(how: str) -> None:
    session = Session("Go.", store=STORE).use(check)
    ran = session.effects[-1]
    assert ran.outcome is not None
    shown = session.attach("report", "3 passed", because=ran)
    at = shown.events[-1].id if how in ("name", "attachment") else ran.outcome.id
    evidence: dict[str, Any] = {
        "event": ran.outcome,
        "effect": ran,
        "session": session,
        "place": ran.outcome.seq,
        "name": "report",
        "attachment": shown.evidence[-1],
    }
    judged = shown.say("and now?").checks.record("tests", True, evidence=evidence[how])
    verdict = judged.events[-1]
    assert verdict.header.causes == (at,) and judged.checks.verdicts[-1].evidence == (at,)
    assert {at, ran.outcome.id, ran.request.id} <= ids(judged.why("tests"))
    assert verdict.id in ids(judged.lineage.influence(ran.outcome)) & ids(
        judged.lineage.influence(ran)
    )
    assert verdict.id in ids(judged.lineage.influence(ran.request))
    assert linked(judged.lineage.graph(), verdict.id, at) == "causes"


def test_evidence_and_other_causes_stand_together() -> None:
    session = Session("Go.", store=STORE).use(check)
    judged = session.checks.record("tests", True, evidence=session, because=2)
    assert judged.events[-1].header.causes == (session.head, session.events[1].id)


def test_attached_evidence_is_found_by_its_name() -> None:
    session = Session("Go.", store=STORE).use(check)
    shown = session.attach("report", "3 passed", because=session)
    assert session.head in ids(shown.why("report"))
    assert shown.head in ids(shown.lineage.influence(session.head))
    assert linked(shown.lineage.graph(), shown.head, session.head) == "causes"


def test_the_last_verdict_of_a_name_is_meant() -> None:
    session = Session("Go.", store=STORE).checks.record("tests", False).use(check)
    judged = session.checks.record("tests", True, evidence=session)
    assert session.head in ids(judged.why("tests"))


# ── what an agent writes ─────────────────────────────────────────────────────────────────────


WRITES = {
    "note": ToolCall("note", text="It is flaky."),
    "decide": ToolCall("decide", key="db", value="sqlite"),
    "todo": ToolCall("todo", what="Write it."),
    "settle": ToolCall("settle", key="old"),
    "remember": ToolCall("remember", what="x"),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_an_agent_writes_is_its_own(name: str) -> None:
    begun = Session("Go.", store=STORE).todo("old", key="old")
    worker = agent(WRITES[name], "Done.", tools=[note, decide, todo, settle, remember])
    session = worker(begun)
    request = session.events.where(ToolRequested)[-1]
    (reply,) = request.header.causes
    mine = session.events.where(run=f"{request.header.run}/{request.header.call}")
    assert len(mine) == (3 if name == "remember" else 1)
    for event in mine:
        header = event.header
        assert (header.actor, header.origin) == ("agent:ana", "model")
        assert header.call == request.header.call and header.causes == (reply,)


def test_what_a_program_writes_through_a_tool_leads_to_its_call() -> None:
    class Flow(Workflow):
        def forward(self, session: Session) -> Session:
            return session.use(note, text="It is flaky.").reload()

    session = Flow()(Session("Go.", store=STORE))
    request, fact = session.events.where((ToolRequested, FactRecorded))
    assert fact.header.actor == request.header.actor == "service:flow"
    assert fact.header.origin == "program" and fact.header.causes == (request.id,)


def test_a_tool_in_a_tool_leads_to_the_reply() -> None:
    @tool(effect="pure")
    def outer(session: Session) -> str:
        """Note through another tool."""
        return session.use(note, text="deep").result

    session = agent(ToolCall("outer"), "Done.", tools=[outer])(Session("Go.", store=STORE))
    (finding,) = session.facts.findings
    kinds = {step.kind for step in session.why(finding)}
    assert {"ToolRequested", "ModelReplied", "ModelAsked", "MessageSaid"} <= kinds


def test_a_decision_and_a_call_have_reasons() -> None:
    script = [
        ToolCall("decide", key="db", value="sqlite", reason="it is one file"),
        ToolCall("check", reason="to be sure"),
        "Done.",
    ]
    session = agent(*script, tools=[decide, check])(Session("Go.", store=STORE))
    body = session.events.where(FactRecorded)[-1].body
    assert isinstance(body, FactRecorded) and body.reason == "it is one file"
    assert 'decided db = "sqlite": it is one file' in str(session.why("db"))
    call = session.effects[-1]
    assert call.failure is None and call.arguments == {}
    assert isinstance(asked := call.request.body, ToolRequested) and asked.reason == "to be sure"
    by_program = session.use(check, reason="once more").decide("x", 1, reason="it fits")
    assert {step.reason for step in by_program.why(by_program.effects[-1])} >= {"once more"}
    assert by_program.why("x").steps[0].reason == "it fits"
    assert by_program.successor("on").why("x").steps[0].reason == "it fits"


def test_a_tool_with_a_parameter_called_reason_gets_it() -> None:
    @tool(effect="pure")
    def refund(reason: str) -> str:
        """Refund."""
        return reason

    assert Session("Go.", store=STORE).use(refund, reason="late").result == "late"


def test_a_reason_is_a_text() -> None:
    with pytest.raises(InvalidValue, match="reason"):
        Session("Go.", store=STORE).decide("x", 1, reason=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ── context and decision ─────────────────────────────────────────────────────────────────────


def test_context_is_told_apart_from_decision() -> None:
    session = agent(ToolCall("check"), "Done.", tools=[check])(Session("Go.", store=STORE))
    steps = {step.kind: step for step in session.why("Done.")}
    assert steps["MessageSaid"].how == "having seen" and steps["MessageSaid"].relation == "context"
    assert steps["ToolReturned"].relation == "context"
    assert steps["ToolRequested"].relation == "decision"
    assert steps["ModelAsked"].relation == "decision"
    assert session.why("Done.").steps[0].relation == "subject"
    plain = session.say("And?").fact("k", 1)
    assert [(step.how, step.relation) for step in plain.why("k")][1] == ("after", "order")
    assert "having seen: user: Go." in str(session.why("Done."))
    ahead = {step.kind: step.relation for step in session.lineage.influence(2)}
    assert ahead["ModelAsked"] == "context" and ahead["ModelReplied"] == "decision"


def test_the_prompt_is_shown_on_demand() -> None:
    session = agent(ToolCall("check"), "Done.", tools=[check])(Session("Go.", store=STORE))
    assert all(step.prompt is None for step in session.why("Done."))
    trace = session.why("Done.", prompt=True)
    prompts: list[Any] = [step.prompt for step in trace if step.kind == "ModelAsked"]
    assert len(prompts) == 2 and all(prompt["as_sent"] for prompt in prompts)
    assert prompts[0]["instruction"] == "Work." and prompts[0]["tools"][0]["name"] == "check"
    assert [turn["type"] for turn in prompts[0]["turns"]] == ["said", "answered", "returned"]
    assert "returned: check: 3 passed" in str(trace) and "Work." in str(trace)


# ── files and places ─────────────────────────────────────────────────────────────────────────


@pytest.fixture
def placed(tmp_path: Path) -> Session:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "cart.py").write_text("one\ntwo\n")
    store = open_store(tmp_path / ".plait")
    session = Session("Fix it.", store=store).to("local", tmp_path / "work", isolation="host")
    write = ToolCall("write_file", path="cart.py", content="one\ntwo and a half\nthree\n")
    return agent(write, "Fixed.", tools=[write_file])(session)


def test_a_file_line_leads_to_the_reply_behind_it(placed: Session) -> None:
    trace = placed.why("cart.py:2")
    wrote, *rest = trace
    assert trace.about == "cart.py:2  two and a half" and wrote.kind == "ToolReturned"
    assert wrote.files == ("cart.py",) and wrote.placement.startswith("local, ")
    assert {"ToolRequested", "ModelReplied", "ModelAsked"} <= {step.kind for step in rest}
    assert [step.kind for step in rest if step.how == "ran in"] == ["PlacementChanged"]
    assert f"in {wrote.placement}" in str(trace)
    assert placed.why("cart.py:1").steps[0].kind == "PlacementChanged"
    assert placed.why(placed.files.blame("cart.py")[2]).steps[0].id == wrote.id
    assert placed.lineage.influence("cart.py:2").steps[0].id == wrote.id


def test_a_line_that_is_not_there_is_refused(placed: Session) -> None:
    with pytest.raises(InvalidValue, match="cart.py has 3 lines"):
        placed.why("cart.py:9")
    for name in ("no.py:1", ":1", "cart.py:", "cart.py:x"):
        with pytest.raises(UnknownKey):
            placed.why(name)
    with pytest.raises(UnknownKey):
        Session("Go.", store=STORE).why("cart.py:1")


def test_a_fact_of_that_name_comes_first(placed: Session) -> None:
    assert placed.fact("cart.py:2", 1).why("cart.py:2").steps[0].kind == "FactRecorded"


def test_place_and_files_of_an_effect_are_in_the_graph(placed: Session) -> None:
    graph = placed.lineage.graph()
    nodes = {node.id: node for node in graph.nodes}
    effect = placed.effects[-1]
    edges = [edge for edge in graph.edges if edge.source == effect.request.id]
    (where,) = [nodes[edge.target] for edge in edges if edge.type == "ran-in"]
    (file,) = [nodes[edge.target] for edge in edges if edge.type == "wrote"]
    assert where.type == "placement" and where.name.startswith("placed in local")
    assert (file.type, file.name) == ("file", "cart.py")
    assert effect.outcome is not None and nodes[effect.outcome.id].type == "result"
    assert linked(graph, effect.outcome.id, effect.request.id) == "settles"
    (run,) = [node for node in graph.nodes if node.type == "run"]
    assert linked(graph, effect.request.id, run.id) == "of-run"
    assert all(edge.source in nodes and edge.target in nodes for edge in graph.edges)


def test_a_branch_runs_where_its_parent_was_placed(placed: Session) -> None:
    branch = placed.fork("b").use(write_file, path="b.txt", content="b")
    graph = branch.lineage.graph()
    request = branch.effects[-1].request.id
    (where,) = [
        edge.target for edge in graph.edges if edge.source == request and edge.type == "ran-in"
    ]
    node = next(node for node in graph.nodes if node.id == where)
    assert node.type == "placement" and node.session in (placed.id, branch.id)


def test_a_cause_in_another_session_is_named_for_what_it_is() -> None:
    session = Session("Go.", store=STORE).use(check)
    judged = session.checks.record("tests", True, evidence=session)
    other = Session("Judge.", store=STORE).checks.record("tests", True, evidence=judged)
    types = {node.type for node in other.lineage.graph().nodes}
    assert types == {"session", "validation"}


@pytest.mark.parametrize(
    "name", ["./cart.py:2", "sub/../cart.py:2", ".//cart.py:2", "./././cart.py:2"]
)
def test_another_spelling_of_a_path_has_the_same_author(placed: Session, name: str) -> None:
    trace = placed.why(name)
    assert trace.about == "cart.py:2  two and a half"
    assert trace.steps[0].id == placed.why("cart.py:2").steps[0].id
    assert (
        placed.files.blame(name.removesuffix(":2"))[2].event
        == placed.files.blame("cart.py")[2].event
    )


@pytest.mark.parametrize("name", ["/cart.py:2", "//cart.py:2", "../cart.py:2", "a/../../cart.py:2"])
def test_a_path_that_leaves_the_tree_is_refused(placed: Session, name: str) -> None:
    with pytest.raises(OutsideWorkspace, match="relative to the workspace"):
        placed.why(name)
    with pytest.raises(OutsideWorkspace):
        placed.files.blame(name.removesuffix(":2"))


def test_a_file_without_a_line_and_one_that_is_not_there_say_the_step(placed: Session) -> None:
    for name in ("cart.py", "./cart.py", "cart.py:"):
        with pytest.raises(
            PlaitError, match="a file needs path:line" if name != "cart.py:" else "check the name"
        ):
            placed.why(name)
    with pytest.raises(UnknownKey, match="no file 'no.py'. There are 'cart.py'"):
        placed.why("no.py:1")


# ── what a verdict may rest on ───────────────────────────────────────────────────────────────


class Checks(Workflow):
    def forward(self, session: Session) -> Session:
        return session.use(check)


@tool(effect="pure")
def report() -> dict[str, int]:
    """Report figures."""
    return {"passed": 3}


@tool(effect="pure")
def names() -> list[str]:
    """Name the tests."""
    return ["one", "two"]


def evidence_of(session: Session) -> str:
    (event,) = [event for event in session.events if event.kind == "ValidationRecorded"]
    (cause,) = event.header.causes
    return session.events[[each.id for each in session.events].index(cause)].kind


def test_a_verdict_rests_on_a_run() -> None:
    session = Checks()(Session("Go.", store=STORE))
    judged = session.checks.record("tests", True, evidence=session.runs[-1])
    assert evidence_of(judged) == "RunFinished"
    assert (
        evidence_of(session.fork("a").checks.record("tests", True, evidence=[session.runs[-1]]))
        == "RunFinished"
    )
    assert "RunFinished" in {step.kind for step in judged.why("tests")}
    assert session.why(session.runs[-1]).steps[0].kind == "RunFinished"
    with pytest.raises(InvalidValue, match="evidence: run"):
        Session("Other.", store=STORE).checks.record("tests", True, evidence=session.runs[-1])


@pytest.mark.parametrize("tool", [check, report, names])
def test_a_verdict_rests_on_the_last_result(tool: Any) -> None:
    session = Session("Go.", store=STORE).use(tool)
    for value in (session.result, f"{session.short}@{session.seq}", f"{session.id}@{session.seq}"):
        assert evidence_of(session.checks.record("tests", True, evidence=value)) == "ToolReturned"
        session = session.at(session.seq).fork()
    assert session.why(session.result).steps[0].kind == "ToolReturned"
    assert session.lineage.influence(session.result).steps[0].kind == "ToolReturned"


def test_a_verdict_rests_on_the_last_text() -> None:
    session = agent("All is well.")(Session("Go.", store=STORE))
    assert (
        evidence_of(session.checks.record("tests", True, evidence=session.text)) == "ModelReplied"
    )


@pytest.mark.parametrize(
    "value", ["nothing of that name", "zzzz@4", {"a": 1}, 2.5, None, True, ["x"]]
)
def test_evidence_that_stands_for_nothing_is_named_as_such(value: Any) -> None:
    session = Session("Go.", store=STORE).use(check)
    with pytest.raises(InvalidValue, match=r"^evidence: .* stands for no event.*SHORT@4"):
        session.checks.record("tests", True, evidence=value)
    with pytest.raises(InvalidValue, match="^because: "):
        session.fact("k", 1, because=value)
