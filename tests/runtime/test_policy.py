"""Policies: the strictest rule wins, a child is never wider than its caller, and an approval fits
one request only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait import Session, tool
from plait.errors import InvalidInput, InvalidValue
from plait.event import Json
from plait.event.kinds import EffectClass
from plait.ids import Digest, LogId
from plait.policy import Allow, Ask, Policy, Refuse
from plait.runtime.policy import (
    Approval,
    Call,
    Decision,
    Denied,
    Granted,
    Rule,
    binding,
    decide,
    digest_of,
    settle_answer,
    shown_call,
)

CALL = Call("wire", {"amount": 10, "to": ["a"]})


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules are values: they need none, and the one test that has a session keeps it in memory."""
    monkeypatch.setenv("PLAIT_STORE", "memory:policies")


def verdict(
    policy: Policy,
    tool: str = "wire",
    effect: EffectClass = "at_most_once",
    origins: tuple[str, ...] = (),
    **arguments: Json,
) -> str:
    return policy.decide(Call(tool, arguments, effect, origins=frozenset(origins))).verdict


# ── what rules say ───────────────────────────────────────────────────────────────────────────


def test_without_a_rule_that_speaks_of_it_a_call_is_allowed() -> None:
    assert Policy().decide(CALL) == Decision("allow")
    assert Policy(Ask("deploy*"), Refuse("rm_*")).decide(CALL) == Decision("allow")
    assert decide([], CALL) == Decision("allow")


def test_tools_are_named_with_patterns_any_of_which_suffices() -> None:
    policy = Policy(Ask("wire", "deploy*", "v[12]"))
    assert [verdict(policy, name) for name in ("wire", "deploy", "deploy_all", "v2")] == ["ask"] * 4
    assert [verdict(policy, name) for name in ("wires", "Wire", "redeploy", "v3", "")] == [
        "allow"
    ] * 5


def test_all_conditions_of_a_rule_must_hold() -> None:
    policy = Policy(
        Ask(
            "wire",
            effect=("at_most_once", "probeable"),
            origin=("web", "mcp:*"),
            when=lambda call: call.arguments["amount"] > 5,
        )
    )
    assert (
        verdict(policy, origins=("web",), amount=6)
        == verdict(policy, origins=("human", "mcp:git"), effect="probeable", amount=6)
        == "ask"
    )
    assert verdict(policy, "pay", origins=("web",), amount=6) == "allow"
    assert verdict(policy, effect="pure", origins=("web",), amount=6) == "allow"
    assert (
        verdict(policy, origins=("human", "mcp"), amount=6) == verdict(policy, amount=6) == "allow"
    )
    assert verdict(policy, origins=("web",), amount=5) == "allow"


def test_a_rule_without_conditions_holds_for_everything_and_says_so() -> None:
    assert verdict(Policy(Ask()), "anything", "pure") == "ask"
    assert verdict(Policy(Refuse(reason="closed")), "anything", "pure") == "refuse"
    assert (
        repr(Policy(Ask(expires_s=5), Refuse(reason="closed")))
        == "Policy(Ask(everything, expires_s=5.0), Refuse(everything, reason='closed'))"
    )
    assert (
        repr(Ask("a", effect="pure", when=bool, name="n"))
        == "Ask('a', effect=('pure',), when=bool, name='n')"
    )


def test_the_strictest_rule_wins_wherever_it_stands() -> None:
    rules = [Allow(), Ask("wire"), Refuse("wire")]
    for first in range(3):
        turned = rules[first:] + rules[:first]
        assert verdict(Policy(*turned)) == "refuse"
        assert verdict(Policy(*(rule for rule in turned if not isinstance(rule, Refuse)))) == "ask"


def test_with_a_grant_what_no_grant_matches_is_refused() -> None:
    policy = Policy(Allow("read_*", effect="pure"), Allow("wire"), Ask("wire", "pay"))
    assert verdict(policy, "read_file", "pure") == "allow"
    assert verdict(policy, "wire") == "ask"
    assert (
        verdict(policy, "read_file", "at_most_once")
        == verdict(policy, "write")
        == verdict(policy, "pay")
        == "refuse"
    )
    refused = policy.decide(Call("pay", {}))
    assert (refused.rule, refused.reason) == ("no grant", "pay is not among what is granted here")


def test_a_decision_names_every_rule_that_led_to_it_and_the_shortest_wait() -> None:
    policy = Policy(
        Ask("wire", expires_s=60),
        Ask(name="all", reason="we are careful", expires_s=30),
        Ask("wire"),
        Allow(),
    )
    assert policy.decide(CALL) == Decision(
        "ask", "tool wire; we are careful", "tool wire; all", 30.0
    )
    assert Policy(Ask()).decide(CALL).expires_s is None
    assert Policy(Ask(expires_s=60), Refuse("wire", reason="no")).decide(CALL) == Decision(
        "refuse", "no", "tool wire"
    )


# ── functions of the call ────────────────────────────────────────────────────────────────────


def test_a_condition_that_raises_is_not_an_open_door() -> None:
    def broken(call: Call) -> bool:
        raise KeyError("amount")

    for rule, expected in (
        (Ask(when=broken, name="large"), "ask"),
        (Refuse(when=broken, name="large"), "refuse"),
    ):
        decision = Policy(rule).decide(CALL)
        assert decision == Decision(
            expected,  # pyright: ignore[reportArgumentType]
            "large: the condition raised KeyError: 'amount'",
            "large",
        )
    assert verdict(Policy(Allow(when=broken))) == "refuse"  # a grant is not given
    assert verdict(Policy(Allow(when=broken), Allow("wire"))) == "allow"


def test_a_text_in_place_of_arguments_is_asked_about() -> None:
    assert (
        Policy(Ask(when=lambda call: call.arguments["amount"] > 5))
        .decide(Call("wire", "{amount: 1"))
        .verdict
        == "ask"
    )


def test_what_cannot_be_told_is_still_a_decision_that_a_log_can_hold() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def mute(call: Call) -> bool:
        raise Mute

    def half(call: Call) -> bool:
        raise ValueError("half a character: \ud800" + "x" * 100_000)

    assert "Mute: (it cannot be told in words)" in Policy(Ask(when=mute)).decide(CALL).reason
    reason = Policy(Refuse(when=half)).decide(CALL).reason
    assert len(reason.encode()) < 10_000


def test_a_condition_is_true_if_it_is_truthy() -> None:
    assert [
        verdict(Policy(Ask(when=lambda call, found=found: found))) for found in (1, "yes", [0])
    ] == ["ask"] * 3  # type: ignore[misc]
    assert [
        verdict(Policy(Ask(when=lambda call, found=found: found))) for found in (0, "", None)
    ] == ["allow"] * 3  # type: ignore[misc]


def test_a_condition_that_would_have_to_wait_is_refused() -> None:
    async def later(call: Call) -> bool:
        return True

    with pytest.raises(InvalidValue, match="async"):
        Ask(when=later)
    hidden: Callable[[Call], object] = lambda call: later(call)  # noqa: E731
    assert verdict(Policy(Allow(when=hidden))) == "refuse"
    assert "coroutine" in Policy(Ask(when=hidden)).decide(CALL).reason


def test_a_condition_cannot_edit_what_it_looks_at() -> None:
    def greedy(call: Call) -> bool:
        call.arguments["amount"] = 0
        call.arguments["to"].append("thief")
        return True

    seen: list[Json] = []
    call = Call("wire", {"amount": 10, "to": ["a"]})
    assert (
        Policy(Ask(when=greedy), Ask(when=lambda call: seen.append(call.arguments)))
        .decide(call)
        .verdict
        == "ask"
    )
    assert call.arguments == seen[0] == {"amount": 10, "to": ["a"]}
    with pytest.raises(AttributeError):
        call.tool = "other"  # type: ignore[misc]


# ── bad rules ────────────────────────────────────────────────────────────────────────────────

LOOSE_ASK: Any = Ask  # for callers without types
LOOSE_POLICY: Any = Policy


@pytest.mark.parametrize(
    "made",
    [
        lambda: LOOSE_ASK(effect="dangerous"),
        lambda: LOOSE_ASK(effect=("pure", "dangerous")),
        lambda: LOOSE_ASK(effect=7),
        lambda: LOOSE_ASK(7),
        lambda: LOOSE_ASK(""),
        lambda: LOOSE_ASK("half \ud800"),
        lambda: LOOSE_ASK(["wire"]),
        lambda: LOOSE_ASK(origin=[7]),
        lambda: LOOSE_ASK(when="call.amount > 5"),
        lambda: LOOSE_ASK(name=7),
        lambda: LOOSE_ASK(reason=None),
        lambda: LOOSE_ASK(expires_s=0),
        lambda: LOOSE_ASK(expires_s=-1),
        lambda: LOOSE_ASK(expires_s=float("nan")),
        lambda: LOOSE_ASK(expires_s=float("inf")),
        lambda: LOOSE_ASK(expires_s=True),
        lambda: LOOSE_ASK(expires_s="60"),
        lambda: LOOSE_POLICY("wire"),
        lambda: LOOSE_POLICY(Ask),
        lambda: LOOSE_POLICY([Ask()]),
    ],
)
def test_a_bad_rule_is_refused_when_it_is_made(made: Callable[[], object]) -> None:
    with pytest.raises(InvalidValue, match=r"; (pass|use|remove) "):
        made()


def test_a_rule_does_not_change() -> None:
    rule = Ask("wire")
    with pytest.raises(AttributeError):
        rule.tools = ("pay",)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Policy(rule).rules = ()  # type: ignore[misc]


# ── laws ─────────────────────────────────────────────────────────────────────────────────────

NAMES = ["read_a", "read_b", "write", "wire"]
ORIGINS = ["human", "web", "mcp:git", "mcp:web"]
ORDER = ["allow", "ask", "refuse"]
patterns = st.lists(st.sampled_from([*NAMES, "read_*", "w*", "*"]), max_size=2)
effects = st.sampled_from(get_args(EffectClass))
origins = st.lists(st.sampled_from([*ORIGINS, "mcp:*"]), max_size=2)
conditions = st.tuples(
    patterns, st.lists(effects, max_size=2), origins, st.sampled_from([None, True, False, "raise"])
)
rules = st.lists(st.tuples(st.sampled_from([Allow, Ask, Refuse]), conditions), max_size=5)
calls = st.builds(
    Call,
    st.sampled_from(NAMES),
    st.just({}),
    effects,
    origins=st.frozensets(st.sampled_from(ORIGINS)),
)


def made(kind: type[Rule], spec: Any) -> Rule:
    tools, effect, origin, answer = spec

    def when(call: Call) -> bool:
        if answer == "raise":
            raise ValueError
        return answer

    return kind(*tools, effect=effect, origin=origin, when=None if answer is None else when)


def expected(specs: Any, call: Call) -> str:
    """The same worked out the slow way."""
    verdicts: set[str] = set()
    for kind, (tools, effect, origin, answer) in specs:
        holds = not tools or any(fnmatchcase(call.tool, pattern) for pattern in tools)
        holds = holds and (not effect or call.effect in effect)
        holds = holds and (
            not origin
            or any(fnmatchcase(each, pattern) for each in call.origins for pattern in origin)
        )
        holds = holds and (answer in (None, True) or (answer == "raise" and kind is not Allow))
        if holds:
            verdicts.add(kind.__name__.lower())
    closed = any(kind is Allow for kind, _ in specs) and "allow" not in verdicts
    return "refuse" if closed or "refuse" in verdicts else "ask" if "ask" in verdicts else "allow"


@given(rules, calls)
def test_a_policy_decides_as_worked_out_rule_by_rule(specs: Any, call: Call) -> None:
    assert Policy(*(made(*spec) for spec in specs)).decide(call).verdict == expected(specs, call)


@given(st.lists(rules, min_size=1, max_size=4), calls)
def test_nobody_is_wider_than_who_called_it(chain: Any, call: Call) -> None:
    policies = [Policy(*(made(*spec) for spec in specs)) for specs in chain]
    verdicts = [decide(policies[:depth], call).verdict for depth in range(len(policies) + 1)]
    assert verdicts == sorted(verdicts, key=ORDER.index)
    assert verdicts[-1] == max(
        (policy.decide(call).verdict for policy in policies), key=ORDER.index
    )


# ── digests of policies ──────────────────────────────────────────────────────────────────────

SOURCE = """
import functools
from plait.policy import Allow, Ask, Policy, Refuse
from plait.runtime.policy import Call, digest_of

TRUSTED = {"alice", "bob", "carol", "dave"}
LIMIT = 1000

def strange(name):
    return name not in TRUSTED

def large(call, factor=2):
    return call.arguments["amount"] * factor > LIMIT or strange(call.arguments["to"]) or call.tool in {"wire", "pay", "send", "give"}

class Bound:
    def __init__(self, most): self.most, self.names = most, {"x", "y", "z"}
    def __call__(self, call): return call.arguments["amount"] > self.most
    def over(self, call): return self(call)

def within(most):
    names = frozenset({"p", "q", "r"})
    return lambda call: [each for each in call.arguments["to"] if each in names and (lambda: most)()]

policy = Policy(
    Ask("wire", "deploy*"), Ask(effect=("at_most_once", "probeable"), origin=("web", "mcp:*")), Refuse("rm_*", reason="use trash"), Allow(),
    Ask(when=large), Ask(when=functools.partial(large, factor=3)),
    Ask(when=Bound(5)), Ask(when=Bound(5).over), Ask(when=within(7)), Ask(when=bool),
    Ask(when=lambda call: call.arguments["amount"] > 1000 and call.tool in {"a", "b", "c"}, name="large amounts", expires_s=3600),
)
for _ in range(300):  # code that has run often is rewritten in place
    policy.decide(Call("wire", {"amount": 1, "to": "alice"}))
again = Policy(*policy.rules)
assert again.digest == policy.digest
print(policy.digest, digest_of([policy, again]))
"""  # noqa: E501


def run(code: str, seed: str, folder: Path) -> str:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": seed,
        "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)]),
    }
    arguments = [sys.executable, code] if code.endswith(".py") else [sys.executable, "-c", code]
    return subprocess.run(
        arguments, env=environment, cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def test_a_digest_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Whatever order sets have, run or imported, from the source or from what Python kept of it."""
    (tmp_path / "rules.py").write_text(SOURCE)
    outputs = [
        run("rules.py", "1", tmp_path),
        run("rules.py", "2", tmp_path),
        run("import rules", "3", tmp_path),
        run("import rules", "4", tmp_path),
    ]
    assert len(outputs[0].split()) == 2
    assert outputs == [outputs[0]] * 4


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"dave"', '"mallory"'),
        ("LIMIT = 1000", "LIMIT = 10000"),
        ("name not in", "name in"),
        ("factor=2", "factor=4"),
        ("factor=3", "factor=5"),
        ('"give"', '"take"'),
        ("Bound(5).over", "Bound(6).over"),
        ("> self.most", ">= self.most"),
        ("within(7)", "within(8)"),
        ('"r"}', '"s"}'),
        ('"c"}', '"d"}'),
    ],
)
def test_a_digest_is_another_when_what_a_function_relies_on_is_another(old: str, new: str) -> None:
    def policy_of(source: str) -> Policy:
        names: dict[str, Any] = {"__name__": "rules"}
        exec(source.partition("for _ in")[0], names)
        return names["policy"]

    assert SOURCE.count(old) == 1
    assert (
        policy_of(SOURCE).digest
        == policy_of(SOURCE).digest
        != policy_of(SOURCE.replace(old, new)).digest
    )


def test_a_digest_is_another_when_a_rule_is_another() -> None:
    policies = [
        Policy(),
        Policy(Ask()),
        Policy(Ask(), Ask()),
        Policy(Refuse()),
        Policy(Allow()),
        Policy(Ask("a")),
        Policy(Ask("b")),
        Policy(Ask("a", "b")),
        Policy(Ask("a"), Ask("b")),
        Policy(Ask(effect="pure")),
        Policy(Ask(effect="workspace")),
        Policy(Ask(origin="web")),
        Policy(Ask(name="web")),
        Policy(Ask(reason="web")),
        Policy(Ask(expires_s=1)),
        Policy(Ask(expires_s=2)),
        Policy(Ask(when=lambda call: call.arguments["amount"] > 1000)),
        Policy(Ask(when=lambda call: call.arguments["amount"] > 1001)),
        Policy(Ask(when=lambda call: call.arguments["amount"] > 1000.0)),
        Policy(Ask(when=lambda call: call.arguments["amount"] >= 1000)),
        Policy(Ask(when=lambda call: call.arguments["amounts"] > 1000)),
        Policy(Ask(when=lambda call: call.source)),
        Policy(Ask(when=lambda call: call.path)),
        Policy(Ask(when=bool)),
        Policy(Ask(when=repr)),
    ]
    assert len({policy.digest for policy in policies}) == len(policies)
    # alternatives have no order
    assert Policy(Ask("a", "b")).digest == Policy(Ask("b", "a")).digest


def test_a_function_that_holds_itself_or_nothing_yet_can_be_told() -> None:
    around: list[Any] = []
    around.append(around)

    def loops(call: Call) -> bool:
        return bool(around) or (later and loops(call))

    policy = Policy(Ask(when=loops))
    before = policy.digest
    assert before == Policy(Ask(when=loops)).digest
    later = True
    assert policy.digest == Policy(Ask(when=loops)).digest != before
    assert verdict(policy) == "ask"


def test_policies_that_decide_together_have_a_digest() -> None:
    one, other = Policy(Ask("a")), Policy(Ask("b"))
    assert digest_of([]) is None
    assert (
        digest_of([one, one, other])
        == digest_of([one, Policy(Ask("a")), other])
        == digest_of([one, other])
    )
    assert len({digest_of([one]), digest_of([other]), digest_of([one, other]), one.digest}) == 4


# ── bindings ─────────────────────────────────────────────────────────────────────────────────

LOG = LogId("01890a5d-ac96-774b-bcce-b302099a8057")
ARGUMENTS: dict[str, Json] = {
    "amount": 1,
    "to": "alice",
    "urgent": True,
    "note": None,
    "rate": 0.5,
    "lines": [{"item": "paper", "count": 2}, {"item": "café", "count": 3}],
}
BOUND: dict[str, Any] = {
    "session": LOG,
    "seq": 17,
    "tool": "wire",
    "version": "a1b2c3",
    "arguments": ARGUMENTS,
    "policy": Digest("ab" * 32),
    "asked": 1,
}
ODD_NUMBERS: list[Json] = [0, 1, -1, 2, 1.0, 1.5, -0.0, 0.0, True, False, None]
ODD_TEXTS = [
    "",
    "1",
    "1.0",
    "true",
    "null",
    " wire",
    "wire ",
    "Wire",
    "wіre",
    "ｗire",
    "wire\u200b",
    "wire\x00",
    "аlice",
    "alice\u200b",
    "cafe\u0301",
]
ODD: list[Json] = [*ODD_NUMBERS, *ODD_TEXTS, [], {}, [1], ["alice"]]


def bound_to(arguments: Any) -> Digest:
    changed: dict[str, Any] = {**BOUND, "arguments": arguments}
    return binding(**changed)


def mutations() -> Iterator[dict[str, Any]]:
    """The bound fields, each time with one of them changed."""
    for field in ("tool", "version"):
        yield from ({**BOUND, field: text} for text in ODD_TEXTS)
    for field in ("seq", "asked"):
        yield from ({**BOUND, field: BOUND[field] + more} for more in (-1, 1, 10, 2**64))
        yield from ({**BOUND, field: kind(BOUND[field])} for kind in (float, str))
    yield {**BOUND, "asked": True}
    yield from ({**BOUND, "session": LOG[:-1] + end} for end in "01234568f")
    yield from (
        {**BOUND, "policy": policy}
        for policy in (None, "", Digest("ab" * 31 + "aa"), Digest("AB" * 32))
    )
    yield {**BOUND, "tool": "wirea", "version": "1b2c3"}  # the same letters, cut elsewhere
    yield from ({**BOUND, "arguments": arguments} for arguments in edits(ARGUMENTS))


def edits(value: Json) -> Iterator[Json]:
    """A JSON value, each time with one thing in it changed, at any depth."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from ({**value, key: other} for other in edits(item))
            yield {name: each for name, each in value.items() if name != key}
            yield {(f"{name}\u200b" if name == key else name): each for name, each in value.items()}
        yield {**value, "extra": None}
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from ([*value[:at], other, *value[at + 1 :]] for other in edits(item))
            yield [*value[:at], *value[at + 1 :]]
        yield [*value, None]
        yield value[::-1]
    else:
        yield "cafe\u0301"
    yield from (odd for odd in ODD if spelled(odd) != spelled(value))


def spelled(value: Json) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def test_a_binding_fits_nothing_that_differs_in_a_bound_field() -> None:
    granted = binding(**BOUND)
    tried = list(mutations())
    accepted = [changed for changed in tried if binding(**changed) == granted]
    assert len(tried) >= 400
    assert accepted == []
    assert len({binding(**changed) for changed in tried}) == len(
        {spelled(list(changed.values())) for changed in tried}
    )
    assert {
        field
        for changed in tried
        for field in BOUND
        if spelled(changed[field]) != spelled(BOUND[field])
    } == set(BOUND)


def test_a_binding_does_not_depend_on_the_order_of_keys() -> None:
    turned: Json = {key: ARGUMENTS[key] for key in reversed(ARGUMENTS)}
    assert list(turned) != list(ARGUMENTS)
    assert bound_to(turned) == binding(**BOUND)
    # approvals that wait must stay valid
    assert binding(**BOUND) == "c68d55305ef4273f794b0b778b3204bbb06368ad2f693cf815eaa62a7c90da62"


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
documents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(documents, documents)
def test_two_bindings_are_the_same_only_for_the_same_arguments(one: Json, other: Json) -> None:
    same = bound_to(one) == bound_to(other)
    assert same == (spelled(one) == spelled(other))


@given(documents)
def test_any_edit_of_the_arguments_needs_another_binding(value: Json) -> None:
    granted = bound_to(value)
    assert all(
        bound_to(changed) != granted
        for changed in edits(value)
        if spelled(changed) != spelled(value)
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"a": float("nan")},
        {"a": float("inf")},
        {1: "a"},
        {"a": (1,)},
        {"a": b"x"},
        {"a": "\ud800"},
        {"a": object()},
    ],
)
def test_what_json_would_change_is_not_bound(arguments: Any) -> None:
    """Not a number is null to a JSON encoder, and the key 1 is "1": two calls would have one
    binding.
    """
    with pytest.raises(InvalidInput):
        bound_to(arguments)
    with pytest.raises(InvalidInput):
        shown_call(Call("wire", arguments), Decision("ask"))


# ── people ───────────────────────────────────────────────────────────────────────────────────


def test_a_human_is_shown_what_is_bound() -> None:
    call = Call(
        "wire",
        ARGUMENTS,
        "at_most_once",
        "a1b2c3",
        "mcp:bank",
        "rent is due",
        "plan/pay",
        "agent:pay",
        "human:u-1",
        frozenset({"web", "human"}),
    )
    seen: Any = shown_call(
        call, Policy(Ask("wire", name="transfers", reason="money leaves")).decide(call)
    )
    assert seen == {
        "tool": "wire",
        "version": "a1b2c3",
        "arguments": ARGUMENTS,
        "effect": "at_most_once",
        "source": "mcp:bank",
        "path": "plan/pay",
        "actor": "agent:pay",
        "behalf": "human:u-1",
        "reason": "rent is due",
        "origins": ["human", "web"],
        "rule": "transfers",
        "why": "money leaves",
    }
    assert binding(
        LOG, 17, seen["tool"], seen["version"], seen["arguments"], BOUND["policy"], 1
    ) == binding(**BOUND)
    seen["arguments"]["lines"].clear()
    assert len(ARGUMENTS["lines"]) == 2  # type: ignore[arg-type]
    assert msgspec.json.decode(msgspec.json.encode(seen)) == seen


def test_an_approver_answers_in_several_ways() -> None:
    assert settle_answer(True) == Granted()
    assert settle_answer(False) == Denied()
    assert settle_answer("too much") == Denied("too much")
    assert settle_answer("") == Denied()
    assert settle_answer(Denied("no")) == Denied("no")
    assert settle_answer(Granted(note="fine")) == Granted(note="fine")
    edited: dict[str, Json] = {"amount": 5, "to": ["a"]}
    answer = settle_answer(Granted(edited=edited))
    assert answer == Granted({"amount": 5, "to": ["a"]})
    edited["amount"] = 7
    assert answer == Granted({"amount": 5, "to": ["a"]})


@pytest.mark.parametrize(
    "answer",
    [
        None,
        1,
        0,
        [],
        {"granted": True},
        object(),
        Granted,
        Granted(edited="x"),
        Granted(edited=[1]),
        Granted(edited={"a": float("nan")}),
    ],
)
def test_what_is_no_answer_grants_nothing(answer: object) -> None:
    with pytest.raises(InvalidValue, match=r"; (pass|return) "):
        settle_answer(answer)


def test_an_approval_is_a_value() -> None:
    @tool(effect="pure")
    def look() -> str:
        return "seen"

    session = Session("a task")
    request = session.events[-1]
    approval = Approval(
        session,
        request,
        shown_call(Call(look.name, {}, look.effect, look.version), Decision("ask")),
        binding(**BOUND),
    )
    assert approval.expires is None and approval.session.head == request.id
    with pytest.raises(AttributeError):
        approval.shown = {}  # type: ignore[misc]
