"""Consent is for what will run: tools and policies by what they are made of, in every process
alike.
"""

from __future__ import annotations

import importlib
import itertools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plait.tools
from plait import Agent, ScriptedModel, Session, ToolCall, Workflow, resume, tool
from plait.errors import BadTool
from plait.fingerprint import NODES_MAX, fingerprint
from plait.journal.stops import Parked
from plait.policy import Ask, Policy
from plait.tool import Tool
from tests.support import child_environment, parked_session

pytestmark = pytest.mark.long  # `make quick` leaves these out

BOSS = "human:boss"

SOURCE = """
import functools, enum, re
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from plait import tool
from plait.policy import Ask, Policy

LIMIT = 1000
NAMES = frozenset({"ann", "bob", "cy", "dee"})

class Bank(enum.Enum):
    ACME = "DE-1"

@dataclass
class Rate:
    value: Decimal
    names: tuple = ()

class Account:
    fee = 3
    def __init__(self, iban): self.iban, self.seen, self.parent = iban, {"x", "y", "z"}, self
    def pay(self, amount: int) -> str:
        return f"{self.iban} {self.charge(amount)}"
    def charge(self, amount): return amount + self.fee

class Doubler:
    def __init__(self, by): self.by = by
    def __call__(self, amount): return amount * self.by

def send(amount): return route(amount) if amount in {1, 2, 3, 4} else "none"
def route(amount): return "sepa" if amount < LIMIT and str(amount) not in NAMES else "swift"

def logged(function, level=1):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        assert level
        return function(*args, **kwargs)
    return inner

def scaled(by):
    def wrap(function):
        @functools.wraps(function)
        def inner(amount: int) -> str:
            return function(amount * by)
        return inner
    return wrap

def make(rate, extra):
    @tool
    def pay(amount: int, to: str = "ACME", *, mode: str = "slow", quick: bool = False) -> str:
        "Pay."
        return f"{amount} {rate} {extra} {to} {mode}"
    return pay

@tool
@logged
@scaled(2)
def wire(amount: int) -> str:
    "Wire."
    return send(amount)

@tool
def small(amount: int) -> str:
    "Small."
    pick = lambda each: each if each in {"p", "q", "r"} else Doubler(4)(amount)
    return str([pick(each) for each in "pq"]) + Bank.ACME.value

helper = functools.partial(send, 5)
@tool
def through(amount: int) -> str:
    "Through a partial."
    return helper() + cached(amount)

@functools.lru_cache(maxsize=32)
def cached(amount): return "cached"

tools = [
    wire, small, through, tool(Account("DE-7").pay),
    make(Rate(Decimal("1.5"), (timedelta(days=1), re.compile("a+"), Path("a") / "b")), {"k": {"b", "a", "c"}}),
    make(Bank.ACME, [Doubler(6), print, str.upper, "x".join, Account("DE-8")]),
]

def big(call): return call.arguments["amount"] > LIMIT or odd(call)
def odd(call): return call.tool in {"a", "b", "c"} or rate.value > 2
rate = Rate(Decimal("1.25"), (Bank.ACME,))

policies = [Policy(Ask("wire", when=big)), Policy(Ask(when=functools.partial(big))), Policy(Ask(when=Account("DE-9").pay))]

if __name__ == "__main__":
    unknown = [*(w for t in tools for w in t.fingerprint.unknown), *(w for p in policies for w in p.fingerprint.unknown)]
    print(*[t.version for t in tools], *[p.digest for p in policies], unknown)
"""  # noqa: E501


def versions(source: str) -> list[str]:
    names: dict[str, Any] = {"__name__": "payments"}
    exec(compile(source, "payments.py", "exec", dont_inherit=True), names)
    return [
        *[each.version for each in names["tools"]],
        *[each.digest for each in names["policies"]],
    ]


def test_the_same_source_has_the_same_versions_in_every_process(tmp_path: Path) -> None:
    outputs = set[str]()
    for seed, folder, before in (
        ("0", "a", ""),
        ("1", "b/c", "\n\n# moved\n"),
        ("77", "a", ""),
        ("4242", "d", "\n" * 300),
    ):
        file = tmp_path / folder / "payments.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(before + SOURCE)
        env = child_environment(PYTHONHASHSEED=seed)
        for command in (
            [str(file)],
            [
                "-c",
                (
                    "import payments as p; exec(p.__loader__.get_code('payments'), {**vars(p),"
                    " '__name__': '__main__'})"
                ),
            ],
        ):
            done = subprocess.run(
                [sys.executable, *command], env=env, cwd=file.parent, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            outputs.add(done.stdout)
    # nothing in it that cannot be read
    assert len(outputs) == 1 and outputs.pop().split()[-1] == "[]"


CHANGES = [
    ("a constant around", "LIMIT = 1000", "LIMIT = 1001"),
    ("a set around", '"dee"', '"eve"'),
    ("a set in the code", "{1, 2, 3, 4}", "{1, 2, 3, 5}"),
    ("a set in a lambda", '"p", "q", "r"', '"p", "q", "s"'),
    ("a decorator's argument", "@scaled(2)", "@scaled(3)"),
    ("a decorator's code", "amount * by)", "amount + by)"),
    ("a decorator's default", "level=1", "level=2"),
    ("a decorator less", "@tool\n@logged\n", "@tool\n"),
    ("a helper", '"swift"', '"sepa2"'),
    ("a helper's helper", "amount < LIMIT", "amount <= LIMIT"),
    ("a default", 'to: str = "ACME"', 'to: str = "MALLORY"'),
    ("a keyword's default", 'mode: str = "slow"', 'mode: str = "fast"'),
    ("a value in a closure", 'Decimal("1.5")', 'Decimal("1.6")'),
    ("a value in a value in a closure", "timedelta(days=1)", "timedelta(days=2)"),
    ("a pattern", 're.compile("a+")', 're.compile("a*")'),
    ("a path", 'Path("a") / "b"', 'Path("a") / "c"'),
    ("a set in a dict in a closure", '{"b", "a", "c"}', '{"b", "a", "d"}'),
    ("an object in a list in a closure", "Doubler(6)", "Doubler(7)"),
    ("a method of C in a closure", '"x".join', '"y".join'),
    ("the object a method is bound to", 'Account("DE-7")', 'Account("DE-6")'),
    ("a constant of its class", "fee = 3", "fee = 4"),
    ("another method of its class", "amount + self.fee", "amount - self.fee"),
    ("a class that is called", "amount * self.by", "amount + self.by"),
    ("a partial", "partial(send, 5)", "partial(send, 6)"),
    ("a function behind a cache", '"cached"', '"stale"'),
    ("a member of an enum", 'ACME = "DE-1"', 'ACME = "DE-2"'),
    ("a condition's helper", '{"a", "b", "c"} or', '{"a", "b", "d"} or'),
    ("an object around a condition", 'Decimal("1.25")', 'Decimal("2.5")'),
    ("a field of an object around a condition", "(Bank.ACME,)", "()"),
    ("the object of a condition", 'Account("DE-9")', 'Account("DE-5")'),
]


@pytest.mark.parametrize(
    ("old", "new"), [each[1:] for each in CHANGES], ids=[each[0] for each in CHANGES]
)
def test_another_tool_has_another_version(old: str, new: str) -> None:
    assert SOURCE.count(old) == 1
    before, after = versions(SOURCE), versions(SOURCE.replace(old, new))
    assert before == versions(SOURCE) and before != after


def test_code_through_a_module_of_the_program_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    helpers, program = tmp_path / "helpers_of_fp.py", tmp_path / "program_of_fp.py"
    program.write_text(
        "import helpers_of_fp\nfrom plait import tool\nfrom plait.policy import Ask, Policy\n"
        "@tool\ndef wire(amount: int) -> str:\n    'Wire.'\n    return helpers_of_fp.send(amount)\n@tool\ndef late(amount: int) ->"  # noqa: E501
        " str:\n    'Wire.'\n    import helpers_of_fp as h\n    return h.send(amount)\npolicy ="
        " Policy(Ask(when=lambda call: helpers_of_fp.send(call)))\n"
    )
    found = list[list[str]]()
    for word in ("sepa", "sepa", "swift"):
        helpers.write_text(
            f"def send(amount): return way(amount)\ndef way(amount): return {word!r}\n"
        )
        for name in ("helpers_of_fp", "program_of_fp"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        sys.dont_write_bytecode, kept = True, sys.dont_write_bytecode
        module = importlib.import_module("program_of_fp")
        sys.dont_write_bytecode = kept
        found.append([module.wire.version, module.late.version, module.policy.digest])
    assert found[0] == found[1] and all(
        one != other for one, other in zip(found[1], found[2], strict=True)
    )


def test_a_tool_that_counts_its_calls_stays_the_same() -> None:
    names: dict[str, Any] = {"__name__": "counting"}
    exec(
        "from plait import tool\nCALLS = []\nCOUNT = 0\nHELD = {}\n@tool\ndef wire(amount: int) ->"
        " str:\n    'Wire.'\n    global COUNT\n    COUNT += 1\n    CALLS.append(amount)\n   "
        " HELD[amount] = 1\n    return str(COUNT)\n",
        names,
    )
    wire = names["wire"]
    before = wire.version
    assert wire(1) != wire(2)
    assert wire.version == before


def unreadable() -> Iterator[tuple[str, Any]]:
    yield "socket", socket.socket()
    yield "generator", (each for each in "ab")
    yield "memoryview", memoryview(b"ab")
    yield "file", open(os.devnull)
    nested: Any = ()
    for _ in range(200):
        nested = [nested]
    yield "depth", nested
    yield "size", [object() for _ in range(NODES_MAX)]

    class Held:
        def __init__(self, value: Any) -> None:
            self.value = value

    yield "in an object", Held(Held({"a": [memoryview(b"a")]}))
    loop = frozenset({held := Held(None)})
    held.value = loop
    yield "a cycle through a set", held


@pytest.mark.parametrize(
    "name",
    [
        "socket",
        "generator",
        "memoryview",
        "file",
        "depth",
        "size",
        "in an object",
        "a cycle through a set",
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_cannot_be_read_is_said(name: str) -> None:
    value = dict(unreadable())[name]

    def look() -> str:
        return str(value)

    assert tool(look).fingerprint.unknown and fingerprint(look) == fingerprint(look)
    assert Policy(Ask(when=lambda call: value)).fingerprint.unknown
    given = tool(version="1")(look)
    assert given.version == "1" and given.fingerprint.unknown == ()
    if hasattr(value, "close"):
        value.close()


def test_a_version_is_a_text() -> None:
    with pytest.raises(BadTool):
        tool(version="")(Bank("ACME").wire)


def test_the_tools_that_come_with_plait_can_be_read() -> None:
    every: list[Any] = [getattr(plait.tools, name) for name in plait.tools.__all__]
    found: list[Any] = [each for each in every if isinstance(each, Tool)]
    assert found and [each.name for each in found if each.fingerprint.unknown] == []


# ── in runs ──────────────────────────────────────────────────────────────────────────────────


class Bank:
    def __init__(self, account: str) -> None:
        self.account, self.paid = account, list[str]()

    def wire(self, amount: int) -> str:
        """Wire."""
        self.paid.append(f"{amount} from {self.account}")
        return "wired"


class Pay(Workflow):
    policy = Policy(Ask("wire"))

    def __init__(self, bank: Bank) -> None:
        self.clerk = Agent(
            "Pay.", model=ScriptedModel([ToolCall("wire", amount=5), "paid"]), tools=[bank.wire]
        )

    def forward(self, session: Session) -> Session:
        return self.clerk(session)


def test_consent_is_asked_for_again_when_the_object_of_a_method_changed() -> None:
    bank = Bank("ACME")
    pay = Pay(bank)
    session = parked_session(lambda: pay(Session("go")))
    session.inbox.approve(session.inbox.waiting[0], actor=BOSS)
    bank.account = "MALLORY"
    session = parked_session(lambda: resume(session, pay))
    assert bank.paid == [] and "wire has changed" in str(session.inbox.waiting[0].shown)
    bank.account = "ACME"
    session = parked_session(
        lambda: resume(session.inbox.approve(session.inbox.waiting[0], actor=BOSS), pay)
    )
    resume(session.inbox.approve(session.inbox.waiting[0], actor=BOSS), pay)
    assert bank.paid == ["5 from ACME"]


def test_what_did_not_happen_is_not_run_as_another_tool() -> None:
    """A person said that a call did not happen: it is run again under the consent that it had,
    unless the tool changed.
    """
    bank, died = Bank("ACME"), list[int]()

    class Dies(Bank):
        def wire(self, amount: int) -> str:
            """Wire."""
            if not died:
                died.append(1)
                raise KeyboardInterrupt
            return super().wire(amount)

    bank = Dies("ACME")
    with pytest.raises(KeyboardInterrupt):
        Pay(bank)(session := Session("go"), approver=lambda _: True)
    session = parked_session(lambda: resume(session, Pay(bank)))
    (doubt,) = session.inbox.waiting
    assert doubt.kind == "unknown"
    session.inbox.resolve(doubt, "did_not_happen", actor=BOSS)
    bank.account = "MALLORY"
    session = parked_session(lambda: resume(session, Pay(bank)))
    assert bank.paid == [] and session.inbox.waiting[0].kind == "approval"


def test_a_condition_with_a_memory_does_not_ask_for_ever() -> None:
    asked = list[int]()

    def third(call: Any) -> bool:
        asked.append(1)
        return True

    bank = Bank("ACME")
    pay = Pay(bank)
    pay.policy = Policy(Ask("wire", when=third))
    session = parked_session(lambda: pay(Session("go")))
    for _ in range(3):
        session.inbox.approve(session.inbox.waiting[0], actor=BOSS)
        try:
            session = resume(session, pay)
            break
        except Parked as stop:
            session = stop.session.reload()
    assert bank.paid == ["5 from ACME"] and pay.policy.fingerprint.unknown


PROGRAM = """
import sys
from plait import Agent, Session, ScriptedModel, ToolCall, Workflow, resume, tool
from plait.policy import Ask, Policy
from plait.journal.stops import Parked

class Bank:
    def __init__(self): self.held = HELD
    def wire(self, amount: int) -> str:
        "Wire."
        print("wired", amount)
        return "ok"

class Pay(Workflow):
    policy = Policy(Ask("wire"))
    def __init__(self):
        self.clerk = Agent("Pay.", model=ScriptedModel([ToolCall("wire", amount=5), "paid"]), tools=[Bank().wire])
    def forward(self, session):
        return self.clerk(session)

def go(run):
    try:
        run()
    except Parked as stop:
        print("parked", stop.session.reload().inbox.waiting[0].shown.get("again", ""))

if sys.argv[1] == "start":
    session = Session("go", title="it")
    go(lambda: Pay()(session))
    if "here" in sys.argv:
        session.reload().inbox.approve(session.reload().inbox.waiting[0], actor="human:boss")
        go(lambda: resume(session, Pay()))
else:
    session = list(Session.list())[0]
    session.inbox.approve(session.inbox.waiting[0], actor="human:boss")
    go(lambda: resume(session, Pay()))
"""  # noqa: E501


@pytest.mark.parametrize("held", ["{'a', 'b', 'c'}", "(each for each in 'abc')"])
def test_consent_for_what_cannot_be_read_does_not_outlive_its_process(
    tmp_path: Path, held: str
) -> None:
    file = tmp_path / "pay.py"
    file.write_text(PROGRAM.replace("HELD", held))

    def run(seed: int, *words: str) -> str:
        env = child_environment(PYTHONHASHSEED=str(seed), PLAIT_STORE=str(tmp_path / "store"))
        done = subprocess.run(
            [sys.executable, str(file), *words],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run(1, "start").split() == ["parked"]
    if held.startswith("{"):
        assert run(2, "go-on").split() == ["wired", "5"]
        return
    assert "another process" in run(2, "go-on") and "another process" in run(3, "go-on")
    assert run(4, "start", "here").split() == ["parked", "wired", "5"]


SIMULATED = """
from dataclasses import dataclass
from typing import Literal
from plait import Agent, Parallel, ScriptedModel, ToolCall, Workflow, tool
from plait.policy import Ask, Policy
from plait.testing import Simulation

NAMES = {"bob", "eve", "ann", "cy"}

@dataclass
class Found:
    names: set[str]
    more: dict[str, frozenset[str]]

@tool(effect="pure")
def look(kinds: set[str] = frozenset({"a", "b", "c"}), mode: Literal["x", "y", "z"] = "x") -> Found:
    "Look."
    return Found({"alpha", "beta", "gamma"} | set(kinds), {"k": frozenset("pqrs")})

@tool
def wire(to: str) -> dict[str, set[str]]:
    "Wire."
    return {"tags": {"q", "r", "s", "t"}, "to": {to}}

class Main(Workflow):
    policy = Policy(Ask("wire", when=lambda call: call.arguments["to"] in NAMES | {"x", "y"}))
    def __init__(self):
        first = [[ToolCall("look", kinds=["q", "w"]), ToolCall("wire", to="bob")], "ok"]
        self.both = Parallel(
            a=Agent("A.", model=ScriptedModel(first), tools=[look, wire]),
            b=Agent("B.", model=ScriptedModel([ToolCall("look"), "fine"]), tools=[look]),
        )
        self.last = Agent("C.", model=ScriptedModel(["done"]))
    def forward(self, session):
        session = self.both(session)
        return self.last(session.use(look, kinds={"k1", "k2", "k3"}))

for rates in ({}, {"model_fault_rate": 0.3}, {"crash_rate": 0.1}):
    print(Simulation(seed=7, **rates).run(Main, "go").head)
"""


def test_a_seed_gives_one_head_whatever_order_sets_have(tmp_path: Path) -> None:
    (tmp_path / "simulated.py").write_text(SIMULATED)
    heads = set[str]()
    for seed in ("0", "1", "2024", "random"):
        env = child_environment(PYTHONHASHSEED=seed)
        done = subprocess.run(
            [sys.executable, "simulated.py"], env=env, cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        heads.add(done.stdout)
    assert len(heads) == 1 and len(heads.pop().split()) == 3


# ── values that another thread changes ───────────────────────────────────────────────────────


class Restless(dict[str, int]):
    """A dict with attributes, so that both change while they are read."""


def test_a_value_that_another_thread_changes_is_read() -> None:
    items, names, restless = dict[str, int](), set[int](), Restless()
    over = threading.Event()

    def change() -> None:
        for number in itertools.cycle(range(50)):
            if over.is_set():
                return
            for table in (items, restless, vars(restless)):
                if table.pop(str(number), None) is None:
                    table[str(number)] = number
            names.symmetric_difference_update({number})

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(300):
            assert len(fingerprint([items, names, restless]).digest) == 64
    finally:
        over.set()
        thread.join()


class _Held:
    """A class of the program whose objects are read by their account."""

    def __init__(self) -> None:
        self.size = 1


def test_reading_a_value_changes_no_later_digest() -> None:
    assert fingerprint(_Held()) == fingerprint(_Held())
