"""`plait log --react`: thought, action, observation, in strict turns, and every action with the
thought that caused it.
"""

from __future__ import annotations

import ast
import json
import operator
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from plait import (
    Agent,
    Correct,
    Parallel,
    Reject,
    ScriptedModel,
    Selector,
    Session,
    ToolCall,
    Workflow,
    open_store,
    tool,
)
from plait.errors import ModelFailed
from plait.event.kinds import (
    Action,
    ModelReplied,
    Reasoning,
    Text,
    ToolRequested,
    ToolResolved,
    ToolReturned,
    ToolUnknown,
    Usage,
)
from plait.ids import Digest
from plait.model.base import Reply
from plait.session.ports import Act, Draft, store_at, writer_of
from plait.session.session import session_at
from plait.session.value import position_of
from plait.testing import Simulation
from tests.cli.shell import Shell, on_a_terminal, shell
from tests.support import report

__all__ = ["shell"]

STEP = {
    "agent",
    "reply",
    "thought",
    "same_thought",
    "action",
    "observation",
    "caused_by",
    "requested",
    "observed",
    "answer",
    "refused",
}
SEEDS = 200

# ── three real tools ─────────────────────────────────────────────────────────────────────────

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.USub: operator.neg,
}


def value_of(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](value_of(node.left), value_of(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](value_of(node.operand))
    raise ValueError(f"{ast.unparse(node)} is not arithmetic")


@tool(effect="pure")
def compute(expression: str) -> float:
    """Work out an arithmetic expression."""
    return value_of(ast.parse(expression, mode="eval").body)


@tool(effect="pure")
def read(path: str) -> str:
    """Read a file."""
    return Path(path).read_text()


@tool(effect="pure")
def search(word: str) -> list[str]:
    """Which lines of which files have a word."""
    return [
        f"{path.name}:{number}: {line}"
        for path in sorted(Path().glob("*.txt"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if word in line
    ]


TOOLS = [compute, read, search]


@pytest.fixture
def folder(shell: Shell, tmp_path: Path) -> Path:
    """Two files for the tools, in the current folder."""
    (tmp_path / "prices.txt").write_text("apples 3\npears 4\n")
    (tmp_path / "orders.txt").write_text("ana: 5 apples\nbob: 2 pears\n")
    return tmp_path


def thinks(thought: str, *calls: ToolCall) -> Reply:
    return Reply((Reasoning(thought),), calls, "calls")


def run(*script: Any, question: str = "How much does Ana owe?", **more: Any) -> Session:
    return Agent(
        "Answer from the files.", name="clerk", model=ScriptedModel(script), tools=TOOLS, **more
    )(Session(question))


# ── what must hold of every telling ──────────────────────────────────────────────────────────

_TURNS = re.compile(r"((TAO)*(T?F)?)*")


def rows(text: str) -> list[tuple[str, str, str]]:
    """Place, what it is, what it says; of a telling with --oneline."""
    return [
        (line[0], line[1], line[2] if len(line) > 2 else "")
        for line in (line.split(maxsplit=2) for line in text.splitlines())
    ]


def turns(text: str) -> str:
    letters = {"thought": "T", "action": "A", "observation": "O", "answer": "F"}
    return "".join(letters[what] for _, what, _ in rows(text))


def check(session: Session, documents: list[Any], text: str) -> Counter[str]:
    """Strict alternation, and each action beside the thought that caused it; returns what came of
    the actions.
    """
    assert all(document.keys() == STEP for document in documents)
    steps = [document for document in documents if document["action"]]
    assert _TURNS.fullmatch(turns(text)), turns(text)
    assert turns(text).count("TAO") == len(steps)
    store, before = store_at(session.store), None
    for step in steps:
        if step["requested"] is None:
            assert step["caused_by"] is None
            continue
        request, reply = (
            store.event(Digest(step["requested"]["event"])),
            store.event(Digest(step["caused_by"]["event"])),
        )
        assert (
            step["reply"]
            == step["caused_by"]
            == {"session": reply.log, "seq": reply.seq, "event": reply.id}
        )
        assert reply.id in request.header.causes
        body, asked = reply.body, request.body
        assert isinstance(body, ModelReplied) and isinstance(asked, ToolRequested)
        action = step["action"]
        assert (action["tool"], action["arguments"], action["call"]) == (
            asked.tool,
            asked.arguments,
            request.header.call,
        )
        assert action["call"] in [each.call for each in body.calls]
        reasons = [part.text for part in body.parts if isinstance(part, Reasoning)]
        assert step["thought"] == ("\n".join(reasons) or "(no words)")
        assert step["same_thought"] == (reply.id == before)
        before = reply.id
        if step["observed"]:
            outcome = store.event(Digest(step["observed"]["event"]))
            assert outcome.header.call == action["call"] and outcome.seq > request.seq > reply.seq
    return Counter(step["observation"]["how"] for step in steps)


def react_steps(shell: Shell, session: Session, *more: str) -> list[Any]:
    """The documents, checked against the text."""
    options = (f"{session.id}@{session.seq}", "--react", "--store", session.store, *more)
    found = shell.jsonl("log", *options)
    document = shell.json("log", *options)
    assert document["steps"] == found and document["session"]["id"] == session.id
    check(session, found, shell("log", *options, "--oneline"))
    return found


# ── the tests ────────────────────────────────────────────────────────────────────────────────


def test_five_rounds_over_three_tools(shell: Shell, folder: Path) -> None:
    session = run(
        thinks("1: who orders what?", ToolCall("search", word="ana")),
        thinks("2: now the prices", ToolCall("read", path="prices.txt")),
        thinks("3: five apples at three", ToolCall("compute", expression="5 * 3")),
        thinks("4: is there a discount?", ToolCall("search", word="discount")),
        thinks("5: no; to be sure", ToolCall("compute", expression="3 + 3 + 3 + 3 + 3")),
        Reply((Reasoning("6: both say 15"), Text("Ana owes 15."))),
    )
    text = shell("log", session.id, "--react")
    assert [line.split("  ", 2)[0].strip() for line in text.splitlines()] == [
        str(place) for at in range(5) for place in (6 + 4 * at, 7 + 4 * at, 8 + 4 * at)
    ] + ["26", "26"]
    says = [line.partition("agent:clerk  ")[2] for line in text.splitlines()]
    assert says == [
        "thought      1: who orders what?",
        'action       search {"word":"ana"}',
        'observation  ["orders.txt:1: ana: 5 apples"]',
        "thought      2: now the prices",
        'action       read {"path":"prices.txt"}',
        "observation  apples 3 ⏎ pears 4",
        "thought      3: five apples at three",
        'action       compute {"expression":"5 * 3"}',
        "observation  15",
        "thought      4: is there a discount?",
        'action       search {"word":"discount"}',
        "observation  []",
        "thought      5: no; to be sure",
        'action       compute {"expression":"3 + 3 + 3 + 3 + 3"}',
        "observation  15",
        "thought      6: both say 15",
        "answer       Ana owes 15.",
    ]
    found = react_steps(shell, session)
    assert [step["thought"][0] for step in found] == list("123456")
    assert [step["caused_by"]["seq"] for step in found[:5]] == [6, 10, 14, 18, 22]
    assert found[1]["observation"] == {
        "how": "returned",
        "text": "apples 3\npears 4\n",
        "parts": [{"type": "text", "text": "apples 3\npears 4\n"}],
    }
    assert (found[5]["answer"], found[5]["action"], found[5]["reply"]["seq"]) == (
        "Ana owes 15.",
        None,
        26,
    )


def test_calls_side_by_side_share_a_thought(shell: Shell, folder: Path) -> None:
    both = thinks(
        "both at once", ToolCall("read", path="prices.txt"), ToolCall("search", word="bob")
    )
    session = run(both, thinks("and then", ToolCall("compute", expression="2*4")), "8")
    found = react_steps(shell, session)
    assert [(step["thought"], step["same_thought"]) for step in found] == [
        ("both at once", False),
        ("both at once", True),
        ("and then", False),
        (None, False),
    ]
    assert [step["action"]["tool"] for step in found[:3]] == ["read", "search", "compute"]
    text = shell("log", "@", "--react", "--oneline")
    assert turns(text) == "TAOTAOTAOF"
    assert [says for _, what, says in rows(text) if what == "thought"] == [
        "both at once",
        "(the same thought)",
        "and then",
    ]
    # The step that told the thought is left out: then the next one tells it.
    assert [
        says
        for _, what, says in rows(shell("log", "@", "--react", "--oneline", "-n", "3"))
        if what == "thought"
    ] == [
        "both at once",
        "and then",
    ]


def test_what_goes_wrong_is_observed(shell: Shell, folder: Path) -> None:
    session = run(
        thinks("not there", ToolCall("read", path="nowhere.txt")),
        thinks("no arithmetic", ToolCall("compute", expression="__import__('os')")),
        thinks("no JSON", ToolCall.of("compute", '{"expression": "1+')),
        thinks("no such argument", ToolCall("read", file="prices.txt")),
        thinks("no such tool", ToolCall("erase", path="prices.txt")),
        ToolCall("compute", expression="1+1"),
        Reply((Text("aloud"),), (ToolCall("compute", expression="2"),), "calls"),
        "done",
    )
    text = shell("log", session.id, "--react", "--oneline")
    assert turns(text) == "TAO" * 7 + "F"
    seen = [says for _, what, says in rows(text) if what == "observation"]
    assert [says.partition(":")[0] for says in seen] == [
        "FileNotFoundError",
        "ValueError",
        "WrongArguments",
        "WrongArguments",
        "UnknownTool",
        "2",
        "2",
    ]
    assert [says for _, what, says in rows(text) if what == "thought"][5:] == [
        "(no words)",
        "aloud",
    ]
    found = shell.jsonl("log", session.id, "--react")
    assert [step["observation"]["how"] for step in found[:-1]] == ["failed"] * 5 + ["returned"] * 2
    assert found[2]["action"]["arguments"] == '{"expression": "1+'  # as it came


def test_causes_are_read_and_not_guessed(shell: Shell) -> None:
    """Two replies, then their requests crosswise: what stands next to a request is not what caused
    it.
    """
    spot = position_of(Session("x"))

    def write(
        body: ModelReplied | ToolRequested | ToolReturned, call: str, *causes: Digest
    ) -> Digest:
        nonlocal spot
        spot = writer_of(None).append(
            spot, [Draft(body, Act("agent:clerk", "model", call=call, causes=causes))]
        )
        return spot.head

    def reply(thought: str, call: str) -> Digest:
        return write(
            ModelReplied(
                (Reasoning(thought),),
                Usage(),
                "calls",
                (Action(call, "compute", {"expression": thought}),),
            ),
            f"ask-{call}",
        )

    first, second = reply("first", "c1"), reply("second", "c2")
    write(ToolRequested("compute", {"expression": "second"}, "pure"), "c2", second)
    write(ToolRequested("compute", {"expression": "first"}, "pure"), "c1", first)
    write(ToolReturned((Text("1"),)), "c1")
    write(ToolReturned((Text("2"),)), "c2")
    found = react_steps(shell, session_at(spot))
    assert [
        (step["thought"], step["action"]["arguments"]["expression"], step["observation"]["text"])
        for step in found
    ] == [
        ("first", "first", "1"),
        ("second", "second", "2"),
    ]
    assert [
        (step["caused_by"]["seq"], step["requested"]["seq"], step["observed"]["seq"])
        for step in found
    ] == [(3, 6, 7), (4, 5, 8)]
    # What a reply is said to have caused is its own, whatever another one asked for.
    write(ToolRequested("compute", {"expression": "late"}, "pure"), "c3", first)
    assert [
        (step["thought"], step["action"]["call"]) for step in shell.jsonl("log", "@", "--react")
    ] == [
        ("first", "c1"),
        ("first", "c3"),
        ("second", "c2"),
    ]


def test_a_tool_that_is_tried_again_is_one_action(shell: Shell) -> None:
    tries: list[int] = []

    @tool(effect="idempotent", attempts=3)
    def flaky() -> str:
        """Work the third time."""
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not yet")
        return "at last"

    model = ScriptedModel([thinks("try", ToolCall("flaky")), "done"])
    session = Agent("Try.", model=model, tools=[flaky])(Session("x"))
    (step, _) = react_steps(shell, session)
    assert step["observation"]["text"] == "at last" and len(tries) == 3
    # Between two attempts nobody knows what will come of it.
    again = next(
        event
        for event in session.events
        if isinstance(event.body, ToolRequested) and event.body.attempt == 2
    )
    (step,) = react_steps(shell, session.at(again.seq))
    assert step["observation"]["how"] == "unknown"


def test_what_is_not_known(shell: Shell, folder: Path) -> None:
    @tool
    def hang() -> None:
        """Never come back."""
        raise KeyboardInterrupt

    session = Session("x")
    with pytest.raises(KeyboardInterrupt):
        Agent("Hang.", model=ScriptedModel([thinks("go", ToolCall("hang"))]), tools=[hang])(session)
    session = session.reload()
    (step,) = react_steps(shell, session)
    assert (step["observation"]["how"], step["observation"]["text"]) == (
        "unknown",
        "(outcome not known)",
    )
    assert step["observed"] is None and step["caused_by"]["seq"] == session.seq - 1
    # At the reply's own place it has not even been requested, and in a branch from the request
    # nobody ran it.
    (step,) = shell.jsonl("log", f"{session.id}@-1", "--react")
    assert (step["observation"]["text"], step["requested"], step["caused_by"]) == (
        "(not run in this branch)",
        None,
        None,
    )
    assert step["thought"] == "go" and step["action"]["tool"] == "hang"
    shell("fork", session.id, "other")
    (step,) = shell.jsonl("log", "other", "--react")
    assert step["observation"] == {
        "how": "not_run",
        "text": "(not run in this branch)",
        "parts": [],
    }
    assert step["requested"]["seq"] == session.seq


def test_somebody_finds_out_what_happened(shell: Shell) -> None:
    @tool
    def hang() -> None:
        """Never come back."""
        raise KeyboardInterrupt

    session = Session("x")
    with pytest.raises(KeyboardInterrupt):
        Agent("Hang.", model=ScriptedModel([thinks("go", ToolCall("hang"))]), tools=[hang])(session)
    session = session.reload()
    request = session.events[-1]

    def settle(body: ToolUnknown | ToolResolved) -> Any:
        nonlocal session
        spot = writer_of(None).append(
            position_of(session), [Draft(body, Act("human:ana", call=request.header.call))]
        )
        session = session_at(spot)
        (step,) = react_steps(shell, session)
        return step["observation"]["how"], step["observation"]["text"]

    assert settle(ToolUnknown(request.id, "the process died")) == (
        "unknown",
        "(outcome not known) the process died",
    )
    assert settle(ToolResolved(request.id, "did_not_happen")) == (
        "did_not_happen",
        "(did not happen)",
    )
    assert settle(ToolResolved(request.id, "happened", note="seen in the bank's books")) == (
        "happened",
        "seen in the bank's books",
    )
    assert settle(ToolResolved(request.id, "happened", (Text("42"),))) == ("happened", "42")


def test_the_path_is_followed(shell: Shell, folder: Path) -> None:
    session = run(
        thinks("one", ToolCall("compute", expression="1")),
        thinks("two", ToolCall("compute", expression="2")),
        "3",
    )
    shell("rewind", session.id, "8")
    assert [step["thought"] for step in react_steps(shell, session.reload())] == ["one"]
    shell("rewind", session.id, "7")
    (step,) = react_steps(shell, session.reload())
    assert (step["observation"]["how"], step["observation"]["text"], step["observed"]) == (
        "rewound",
        "(outcome rewound)",
        None,
    )
    assert [step["thought"] for step in react_steps(shell, session)] == ["one", "two", None]
    assert (
        shell("log", f"{session.id}@8", "--react", "--oneline").splitlines()[-1]
        == f"{session.short}@8  observation  1"
    )
    # A fork goes on with what was there, and a text from before has its place still.
    forked = Session.open(f"{session.id}@12").fork("again")
    assert [step["thought"] for step in react_steps(shell, forked)] == ["one", "two"]
    assert [place for place, *_ in rows(shell("log", "again", "--react", "--oneline"))][:2] == [
        f"{forked.short}@6",
        f"{forked.short}@7",
    ]


class Routed(Workflow):
    """A selector, two agents side by side, and a tool that the program itself uses."""

    def __init__(self) -> None:
        left = Agent(
            "Left.",
            model=ScriptedModel([thinks("left", ToolCall("compute", expression="1")), "left done"]),
            tools=TOOLS,
        )
        right = Agent(
            "Right.",
            model=ScriptedModel(
                [thinks("right", ToolCall("compute", expression="2")), "right done"]
            ),
            tools=TOOLS,
        )
        self.sides = Parallel(left=left, right=right)
        self.choose = Selector(
            {"sides": self.sides}, model=ScriptedModel(['{"reason": "both", "choice": "sides"}'])
        )

    def forward(self, session: Session) -> Session:
        return self.choose(session.use(compute, expression="40 + 2"))()


def test_merged_branches_have_their_names_and_others_stay_out(shell: Shell) -> None:
    session = Routed()(Session("x"))
    found = react_steps(shell, session)
    # no thought of the selector, no act of the program
    assert [step["thought"] for step in found] == ["left", None, "right", None]
    text = shell("log", session.id, "--react", "--oneline")
    assert turns(text) == "TAOFTAOF"
    assert [place.partition("@")[0] for place, *_ in rows(text)] == ["left"] * 4 + ["right"] * 4
    left = found[0]["agent"]
    assert left.endswith("/left")
    for who in (left, left.partition(":")[2]):
        assert [
            step["agent"] for step in shell.jsonl("log", session.id, "--react", "--actor", who)
        ] == [left] * 2
    place, _, seq = rows(text)[1][0].partition("@")
    assert shell.jsonl("log", f"{place}@{seq}", "-n", "1")[0]["kind"] == "ToolRequested"


def test_an_answer_without_words_and_one_of_data(shell: Shell) -> None:
    asking = ScriptedModel(lambda _: Reply((), (ToolCall("compute", expression="1"),), "calls"))
    session = Agent("Loop.", model=asking, tools=TOOLS, steps_max=1)(Session("x"))
    assert [
        says
        for _, what, says in rows(shell("log", session.id, "--react", "--oneline"))
        if what == "answer"
    ] == ["(no words)"]
    session = Agent("Count.", model=ScriptedModel(['{"answer": [1, 2]}']), returns=list[int])(
        Session("x")
    )
    assert [step["answer"] for step in react_steps(shell, session)] == ["[1,2]"]


def test_answers_that_guards_refused_are_named_as_such(shell: Shell) -> None:
    def judge(session: Session, text: str) -> Correct | Reject | None:
        return Reject("too long") if len(text) > 9 else Correct("Ask [name].")

    session = run("A long answer.", "Ask Ann.", after=[judge])
    told = rows(shell("log", session.id, "--react", "--oneline"))
    assert [line[1:] for line in told] == [
        ("refused", "A long answer."),
        ("refused", "Ask Ann."),
        ("answer", "Ask [name]."),
    ]
    steps = json.loads(shell("log", session.id, "--react", "--json"))["steps"]
    answers = [(step["answer"], step["refused"]) for step in steps]
    assert answers == [(None, "A long answer."), ("Ask [name].", "Ask Ann.")]


def test_long_results_are_whole_for_programs(shell: Shell, folder: Path) -> None:
    (folder / "long.txt").write_text("word " * 20_000)
    session = run(thinks("long", ToolCall("read", path="long.txt")), "done")
    (step, _) = react_steps(shell, session)
    assert step["observation"]["text"] == "word " * 20_000
    shown = on_a_terminal("log", session.id, "--react", width=60)
    assert all(cell_len(re.sub(r"\x1b\[[\d;]*m", "", line)) <= 60 for line in shown.splitlines())
    assert "…" in shown and "observation" in shown


HOSTILE = (
    "a\x1b]0;owned\x07b\x1b[2Jc\x9b31md\u202ee\r\nf\x1b]8;;http://evil.example/\x1b\\g\u200b\x00"
)


def test_no_observation_reaches_the_terminal_as_a_command(shell: Shell) -> None:
    @tool(name="fetch")
    def fetch(url: str) -> str:
        """Fetch a page."""
        if url != "page":
            raise RuntimeError(HOSTILE)
        return HOSTILE

    model = ScriptedModel(
        [
            thinks(HOSTILE, ToolCall("fetch", url="page")),
            thinks("x", ToolCall("fetch", url=HOSTILE)),
            HOSTILE,
        ]
    )
    session = Agent("Browse.", model=model, tools=[fetch], name="browser")(Session("x"))
    text = shell("log", session.id, "--react", "--oneline")
    assert turns(text) == "TAOTAOF"  # a line break in a text is no line
    assert all(char == "\n" or unicodedata.category(char) not in ("Cc", "Cf") for char in text)
    assert [says for _, what, says in rows(text) if what in ("observation", "answer")] == [
        "abcde ⏎ fg",
        "RuntimeError: abcde ⏎ fg",
        "abcde ⏎ fg",
    ]
    shown = on_a_terminal("log", session.id, "--react", NO_COLOR="1")
    assert all(char == "\n" or unicodedata.category(char) not in ("Cc", "Cf") for char in shown)
    (first, *_) = react_steps(shell, session)
    # the record keeps it as it came
    assert first["observation"]["text"] == first["thought"] == HOSTILE


def test_on_a_terminal_it_fits_and_ends_at_the_newest(shell: Shell) -> None:
    many = [thinks(f"thought {at}", ToolCall("compute", expression="1+1")) for at in range(60)]
    session = Agent("Count.", model=ScriptedModel([*many, "done"]), tools=TOOLS, steps_max=100)(
        Session("x")
    )
    shown = on_a_terminal("log", session.id, "--react", width=200, NO_COLOR="1").splitlines()
    assert shown[0] == f"… 11 earlier ones: plait log {session.short} --react -n 61"
    assert len(shown) == 1 + 49 * 3 + 1 and shown[-1].split()[-1] == "done"
    assert "agent:agent-" in shown[1] and "agent:agent-" not in on_a_terminal(
        "log", session.id, "--react", width=44, NO_COLOR="1"
    )
    assert len(shell("log", session.id, "--react").splitlines()) == 60 * 3 + 1


def test_nothing_to_tell(shell: Shell) -> None:
    session = shell.new("hello")
    assert shell("log", session, "--react") == ""
    assert shell.json("log", session, "--react")["steps"] == []
    assert (
        on_a_terminal("log", session, "--react", NO_COLOR="1").strip()
        == "No agent has done anything here."
    )
    for more in (["--graph"], ["--kind", "ModelReplied"]):
        assert "leave out --graph" in shell.error(2, "log", session, "--react", *more)
    assert "leave out --graph" in shell.error(2, "log", f"{session}@1..{session}", "--react")


# ── by seed ──────────────────────────────────────────────────────────────────────────────────


def improvised(seed: int) -> tuple[list[Reply], int]:
    """A script of several rounds, and how many calls are in it."""
    chance = random.Random(seed)
    calls = [
        lambda: ToolCall("compute", expression=f"{chance.randrange(99)} * 3"),
        lambda: ToolCall("compute", expression="nonsense"),
        lambda: ToolCall("read", path=chance.choice(["prices.txt", "nowhere.txt"])),
        lambda: ToolCall("search", word=chance.choice(["ana", "bob"])),
        lambda: ToolCall.of("search", '{"word": '),
        lambda: ToolCall("erase"),
    ]
    rounds = [
        thinks(
            f"thought {at} of seed {seed}",
            *(chance.choice(calls)() for _ in range(chance.randrange(1, 4))),
        )
        for at in range(chance.randrange(1, 7))
    ]
    return rounds, sum(len(each.calls) for each in rounds)


def test_alternation_and_causes_hold_whatever_fails(shell: Shell, folder: Path) -> None:
    met: Counter[str] = Counter()

    def telling(simulation: Simulation) -> None:
        rounds, calls = improvised(simulation.seed)

        def next_of(session: Session) -> Reply | str:
            at = len(session.events.where("ModelReplied"))
            return rounds[at] if at < len(rounds) else "the answer"

        agent = Agent("Work.", model=ScriptedModel(next_of), tools=TOOLS, name="worker")
        try:
            session = simulation.run(agent, "Begin.")
        except ModelFailed as error:
            session = error.session
            met["given up"] += 1
        options = ("log", session.id, "--react", "--store", session.store)
        found, text = shell.jsonl(*options), shell(*options, "--oneline")
        met.update(check(session, found, text))
        met["seeds"] += 1
        if session.events[-1].kind == "RunFinished":
            assert turns(text) == "TAO" * calls + "F" and found[-1]["answer"] == "the answer"
        failed = [
            step["observation"]["text"]
            for step in found
            if step["action"] and step["observation"]["how"] == "failed"
        ]
        met["lost by chance"] += sum("as the seed has it" in each for each in failed)
        met["models failed"] += len(session.events.where("ModelFailed"))
        open_store(session.store).close()

    assert (
        Simulation.check(telling, seeds=range(SEEDS), tool_fault_rate=0.3, model_fault_rate=0.2)
        == SEEDS
        == met["seeds"]
    )
    assert (
        met["lost by chance"] > SEEDS / 2
        and met["models failed"] > SEEDS / 2
        and met["returned"] > SEEDS / 2
    )
    report("react by seed", json.dumps(met, sort_keys=True), 0)
