"""`bisect` finds the step that broke a test, in few runs, and writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from plait import Agent, Parallel, ScriptedModel, Session, ToolCall, Workflow, bisect, open_store
from plait.errors import BisectAborted, EndsAgree, InvalidValue, NotPlaced
from plait.event.kinds import Placement, PlacementChanged, Text, ToolRequested, ToolReturned, Trees
from plait.ids import Digest
from plait.runs.bisect import StepTest
from plait.session.ports import Act, Draft, writer_of
from plait.session.session import session_at
from plait.session.value import position_of
from plait.store import Store
from plait.tools import shell, write_file
from plait.workspace.copy_state import cache_folder
from tests.support import filled_folder, parked_session, tree

IS_SMALL = ["sh", "-c", 'test "$(cat number.txt)" -lt 100']


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store")


def planted_session(store: Store, numbers: Sequence[int], **detail: Any) -> Session:
    """A session whose files changed at each of these steps, without a sandbox."""
    trees = [
        tree(store, number__txt=f"{number}\n", step__txt=str(at))
        for at, number in enumerate(numbers)
    ]
    session = Session("Count.", store=store)
    placed = PlacementChanged(Placement("local", network="off", detail=detail), trees[0])
    session = appended(session, placed)
    for before, after in zip(trees, trees[1:], strict=False):
        session = changed_session(session, before, after)
    return session


def changed_session(session: Session, before: Digest, after: Digest) -> Session:
    asked = ToolRequested("count", {"from": session.seq}, "workspace")
    return appended(session, asked, ToolReturned((Text("done"),), trees=Trees(before, after, ())))


def appended(session: Session, *bodies: Any) -> Session:
    act = Act("agent:counter", "model", call=f"call-{session.seq}" if len(bodies) > 1 else None)
    drafts = [Draft(body, act) for body in bodies]
    return session_at(writer_of(None).append(position_of(session), drafts))


def seq_of(step: int) -> int:
    """The seq after so many changes of a planted session."""
    return 3 + 2 * step


def last_commit(store: Store) -> int:
    return next(number for number, _ in store.feed(reverse=True))


# ── how many runs ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("planted", [1, 2, 73, 128, 199, 200])
def test_a_step_among_200_takes_9_runs_at_most(store: Store, tmp_path: Path, planted: int) -> None:
    counted = tmp_path / "runs"
    session = planted_session(
        store, [at + 100 * (at >= planted) for at in range(201)], isolation="host"
    )
    before = last_commit(store)
    test = f"echo x >> {counted}; test $(cat number.txt) -eq $(cat step.txt)"
    found = bisect(session, command=["sh", "-c", test])
    before_it = seq_of(planted - 1)
    assert (found.first_bad, found.last_good) == (session.at(before_it + 2), session.at(before_it))
    assert found.effect is not None and found.effect.arguments == {"from": before_it}
    assert len(counted.read_text().split()) == found.runs <= 9
    assert last_commit(store) == before and session.reload() == session
    assert not [*(cache_folder(store) / "copies").glob("*/")]  # the copies are thrown away


def test_a_predicate_is_asked_of_any_state() -> None:
    session = Session("Begin.", store="memory:bisect")
    for at in range(120):
        session = session.fact("count", at) if at % 3 else session.say(f"word {at}")
    for wanted in range(2, session.seq + 1):
        asked: list[int] = []

        def is_before(value: Session, wanted: int = wanted, asked: list[int] = asked) -> bool:
            asked.append(value.seq)
            return value.seq < wanted

        found = bisect(session, is_before)
        assert (found.first_bad.seq, found.last_good.seq) == (wanted, wanted - 1)
        assert len(asked) == len(set(asked)) == found.runs <= 8
    spoke = bisect(session, lambda value: all(each.text != "word 60" for each in value.messages))
    assert (spoke.event.seq, spoke.diff.messages.right[0].text) == (63, "word 60")
    counted = bisect(session, lambda value: "count" not in value.facts)
    assert counted.diff.facts["count"].right == 1


def test_equal_trees_are_tested_once_and_steps_without_change_are_none(store: Store) -> None:
    session = planted_session(store, [1])
    one, two, three = (tree(store, number__txt=text) for text in ("1\n", "2\n", "300\n"))
    before = session.files.tree
    assert before is not None
    for after in [one, two, one, two, one, two, three, two, three]:
        session = changed_session(session, before, after).say("no file changes here")
        before = after
    tested: list[StepTest] = []
    found = bisect(session, command=IS_SMALL, on_test=tested.append)
    trees = [test.session.files.tree for test in tested]
    assert len(trees) == len(set(trees)) <= 4 and tuple(tested) == found.tests
    assert found.first_bad.files.tree == three
    with pytest.raises(EndsAgree, match="nothing was changed"):
        bisect(session, command=IS_SMALL, good=found.first_bad.seq)  # three, two, three


# ── the contract of the exit code ────────────────────────────────────────────────────────────


def test_steps_that_cannot_be_tested_are_left_out_or_named(store: Store) -> None:
    session = planted_session(store, [*range(40), *range(100, 110)])

    def exits(where: str) -> list[str]:
        return [
            "sh",
            "-c",
            f'n=$(cat number.txt); if {where}; then exit 125; fi; test "$n" -lt 100',
        ]

    found = bisect(session, command=exits("test $((n % 5)) -eq 3"))
    assert found.first_bad.files.text("number.txt") == "100\n" and not found.suspects
    found = bisect(session, command=exits("test $n -ge 20 -a $n -lt 102"))
    assert found.last_good.files.text("number.txt") == "19\n"
    assert found.first_bad.files.text("number.txt") == "102\n"
    assert [step.files.text("number.txt") for step in found.suspects] == [
        *(f"{number}\n" for number in range(20, 40)),
        "100\n",
        "101\n",
    ]
    with pytest.raises(BisectAborted, match="name another end: bad=K"):
        bisect(session, command=["sh", "-c", "exit 125"])
    with pytest.raises(BisectAborted, match="name another: good=K"):
        bisect(session, command=exits("test $n -lt 100"))


@pytest.mark.parametrize(
    ("command", "why"), [("kill -9 $$", "137, by signal 9"), ("exit 200", "200")]
)
def test_an_exit_code_above_127_ends_the_search(store: Store, command: str, why: str) -> None:
    session = planted_session(store, [1, 2, 300])
    with pytest.raises(BisectAborted, match=why) as stopped:
        bisect(session, command=["sh", "-c", f"echo some words; {command}"])
    assert stopped.value.output == "some words\n" and stopped.value.seq == session.seq


def test_a_command_that_does_not_end_is_bad(store: Store) -> None:
    session = planted_session(store, [1, 2, 300, 301])
    endless = ["sh", "-c", 'test "$(cat number.txt)" -lt 100 || sleep 600']
    found = bisect(session, command=endless, timeout_s=2)
    assert found.first_bad == session.at(seq_of(2))
    assert {test.killed for test in found.tests if test.outcome == "bad"} == {"time"}


def test_ends_that_agree_are_refused(store: Store) -> None:
    session = planted_session(store, [1, 2, 300, 301, 302])
    before = last_commit(store)
    with pytest.raises(EndsAgree, match="is good") as agreed:
        bisect(session, command=IS_SMALL, bad=seq_of(1))
    assert (agreed.value.good, agreed.value.bad) == (seq_of(0), seq_of(1))
    with pytest.raises(EndsAgree, match="is bad already"):
        bisect(session, command=IS_SMALL, good=seq_of(2))
    missing: list[StepTest] = []
    with pytest.raises(EndsAgree, match="is bad already"):
        bisect(session, command=["sh", "-c", "no-such-program"], on_test=missing.append)
    assert [test.exit_code for test in missing] == [127, 127]  # it is not looked for any further
    with pytest.raises(EndsAgree):
        bisect(session, lambda value: True)
    assert last_commit(store) == before


def test_bad_input_is_refused(store: Store) -> None:
    session = planted_session(store, [1, 300])
    not_a_function: Any = 3
    for wrong in (
        lambda: bisect(session),
        lambda: bisect(session, lambda value: True, command=IS_SMALL),
        lambda: bisect(session, not_a_function),
        lambda: bisect(session, lambda value: value.text),  # pyright: ignore[reportArgumentType,reportReturnType]
        lambda: bisect(session, command="pytest -q"),
        lambda: bisect(session, command=[]),
        lambda: bisect(session, command=IS_SMALL, timeout_s=-1),
        lambda: bisect(session, command=IS_SMALL, good=1),  # it has no files yet
    ):
        with pytest.raises(InvalidValue):
            wrong()
    with pytest.raises(NotPlaced):
        bisect(Session("No files.", store=store), command=IS_SMALL)
    rewound = planted_session(store, [1, 2, 300]).rewind(seq_of(1))
    with pytest.raises(InvalidValue, match="event 7 was rewound"):
        bisect(rewound.say("on"), lambda value: value.seq < 8, good=seq_of(2))


# ── the story ────────────────────────────────────────────────────────────────────────────────


def test_rewound_steps_are_no_candidates_and_forks_reach_back(store: Store) -> None:
    session = planted_session(store, [1, 2, 300, 301]).rewind(seq_of(1))
    now = session.files.tree
    assert now is not None
    for text in ("3\n", "4\n", "500\n", "5000\n"):
        after = tree(store, number__txt=text)
        session, now = changed_session(session, now, after), after
    branch = session.fork("later")
    found = bisect(branch, command=IS_SMALL)
    assert found.first_bad.files.text("number.txt") == "500\n"
    assert found.last_good.files.text("number.txt") == "4\n"
    assert found.first_bad.id == branch.id and not found.merge
    # the value before the rewind has the other story
    assert bisect(session.at(seq_of(3)), command=IS_SMALL).first_bad.seq == seq_of(2)
    assert bisect(session, command=IS_SMALL, bad=seq_of(3)).first_bad.seq == seq_of(2)


def test_a_bad_branch_is_entered_and_a_bad_merge_is_named(store: Store) -> None:
    trunk = planted_session(store, [1, 2])
    base = trunk.files.tree
    assert base is not None

    def wrote(session: Session, **files: str) -> Session:
        now = session.files.tree
        assert now is not None
        return changed_session(session, now, tree(store, number__txt="2\n", step__txt="1", **files))

    fine = wrote(wrote(trunk.fork("fine"), a="1"), a="2")
    broken = wrote(wrote(wrote(trunk.fork("broken"), b="1"), b="bug"), b="bug again")
    merged = trunk.merge(fine, broken).say("and on")
    found = bisect(merged, command=["sh", "-c", "test ! -e b || ! grep -q bug b"])
    assert (found.branch, found.merge) == ("broken", merged.at(trunk.seq + 1))
    assert found.first_bad == broken.at(-2) and found.last_good == broken.at(-4)
    assert found.diff.files.patch().endswith("\\ No newline at end of file\n")
    # each is good by itself, together they are not
    found = bisect(merged, command=["sh", "-c", "test ! -e a -o ! -e b"])
    assert found.event.kind == "Merged" and found.merge is None and found.branch == ""


def test_a_predicate_follows_facts_into_a_branch(store: Store) -> None:
    trunk = Session("Begin.", store=store).fact("fine", 1)
    inner = trunk.fork("inner").fact("a", 1).fact("bug", True).fact("b", 2)
    outer = trunk.fork("outer").say("I merge.").merge(inner)
    merged = trunk.merge(trunk.fork("other").fact("c", 3), outer).say("and on")
    found = bisect(merged, lambda value: "bug" not in value.facts)
    assert (found.first_bad, found.last_good) == (inner.at(-1), inner.at(-2))
    assert found.branch == "inner" and found.merge == outer


def test_a_branch_of_a_parallel_run_is_entered(tmp_path: Path) -> None:
    folder = filled_folder(tmp_path / "shop", {"a": "0", "b": "0"})

    def writer(path: str, *texts: str) -> Agent:
        script = [*(ToolCall("write_file", path=path, content=text) for text in texts), "Done."]
        return Agent("Write.", model=ScriptedModel(script), tools=[write_file])

    flow = Parallel(left=writer("a", "1", "2", "3"), right=writer("b", "1", "bad", "worse", "4"))
    session = flow(Session("Write.", store=tmp_path / "store").to("local", folder))
    session = session.use(write_file, path="b", content="bad")
    found = bisect(session, command=["sh", "-c", "! grep -q 'bad' b"])
    assert found.first_bad == session and found.merge is None
    found = bisect(session, command=["sh", "-c", "! grep -q '[4b]' b"])
    assert found.branch == "right" and found.effect is not None
    assert (found.effect.arguments, found.effect.path) == (
        {"path": "b", "content": "bad"},
        "parallel/right",
    )
    assert (folder / "b").read_text() == "0"


class Stops(Workflow):
    def forward(self, session: Session) -> Session:
        for text in ("1", "2", "300", "4000"):
            session = session.use(write_file, path="number.txt", content=text)
        if "wait" in session.text:
            session = session.ask("Go on?")
        raise RuntimeError("broken")


@pytest.mark.parametrize("how", ["wait", "fail"])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_run_that_waits_or_failed_can_be_bisected(
    tmp_path: Path, how: str, in_place: bool
) -> None:
    folder = filled_folder(tmp_path / "shop", {"number.txt": "0"})
    session = Session(how, store=tmp_path / "store").to("local", folder, in_place=in_place)
    if how == "wait":
        session = parked_session(lambda: Stops()(session))
    else:
        with pytest.raises(RuntimeError):
            Stops()(session)
        session = session.reload()
    before = (folder / "number.txt").read_text()
    found = bisect(
        session, command=["sh", "-c", f"{IS_SMALL[2]} || {{ echo x > number.txt; exit 1; }}"]
    )
    assert found.effect is not None and found.effect.arguments == {
        "path": "number.txt",
        "content": "300",
    }
    assert (folder / "number.txt").read_text() == before == ("4000" if in_place else "0")
    assert session.reload() == session
    # the sandbox of the session itself is as it was
    if how == "fail":
        assert session.fork().use(shell, command="cat number.txt").result == "4000"


# ── agents as tools ──────────────────────────────────────────────────────────────────────────


def write_number(number: int) -> ToolCall:
    return ToolCall("write_file", path="number.txt", content=f"{number}\n")


def counting_team(takes: Any) -> Agent:
    """A lead that has another lead count, which has a counter count; the counter breaks it."""
    counter = Agent(
        "Count.",
        model=ScriptedModel([write_number(3), write_number(100), write_number(101), "Done."]),
        tools=[write_file],
        name="counter",
    )
    script = [write_number(2), ToolCall("counter", request="go"), "Done."]
    tools = [write_file, counter.as_tool(takes=takes)]
    middle = Agent("Ask.", model=ScriptedModel(script), tools=tools, name="middle")
    lead = ScriptedModel(
        [write_number(1), ToolCall("middle", request="go"), write_number(102), "Done."]
    )
    return Agent("Lead.", model=lead, tools=[write_file, middle.as_tool(takes=takes)], name="lead")


@pytest.mark.parametrize("takes", ["files", "all"])
def test_the_branch_of_an_agent_as_a_tool_is_looked_into(
    store: Store, tmp_path: Path, takes: str
) -> None:
    files = filled_folder(tmp_path / "files", {"number.txt": "0\n"})
    session = counting_team(takes)(Session("Count.", store=store).to("local", files))
    before = last_commit(store)
    found = bisect(session, command=IS_SMALL)
    assert found.effect is not None
    assert found.effect.arguments == {"path": "number.txt", "content": "100\n"}
    assert found.event.actor == "agent:lead/middle/counter" and found.branch == "counter"
    assert [at.lineage.label for at in found.via] == [None, "middle"]
    assert found.via[0].id == session.id and found.merge == found.via[-1]
    assert found.last_good.id == found.first_bad.id
    by_itself = bisect(found.first_bad.reload(), command=IS_SMALL)
    assert by_itself.first_bad == found.first_bad and by_itself.via == ()
    assert last_commit(store) == before


def test_a_predicate_finds_the_request_of_an_agent_and_the_fact_in_its_branch(
    store: Store,
) -> None:
    class Note(Workflow):
        """Note."""

        def forward(self, session: Session) -> Session:
            return session.say("Well.").fact("noted", True).say("Done.")

    script = ScriptedModel([ToolCall("note", request="go"), "Done."])
    tool = Note().as_tool(name="note", takes="facts")
    session = Agent("Lead.", model=script, tools=[tool], name="lead")(Session("Go.", store=store))
    noted = bisect(session, lambda value: "noted" not in value.facts)
    assert noted.branch == "note" and noted.event.kind == "FactRecorded"
    assert noted.via[0].id == session.id and noted.event.log != session.id
    asked = bisect(session, lambda value: value.budget.used.tool_calls < 1)
    assert asked.event.kind == "ToolRequested" and asked.via == ()
