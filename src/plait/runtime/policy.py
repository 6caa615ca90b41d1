"""Who may do what, and what needs a human.

A `Policy` is a list of rules. All conditions of a rule must hold, alternatives within one suffice;
of the rules that match, the strictest wins: refuse, then ask, then allow. A policy with a grant
(`Allow`) is closed: what none of its grants matches is refused, also if a rule says to ask for it.
Policies of a caller and a callee are put together the same way, so that nobody can do through a
child what it may not do itself.

    Policy(
        Ask("wire", "deploy*"),                                # tools by name, with *, ? and [] as in a shell
        Ask(effect="at_most_once", origin=("web", "mcp:*")),   # once text of such an origin is in the context of who asks
        Ask(when=lambda call: call.arguments["amount"] > 1000, name="large amounts", expires_s=3600),
        Refuse("rm_*", reason="use trash"),
        Allow("read_*", effect="pure"),
    )

What a human decides on is bound by digest (`binding`) to this one request: any change to it has to
be asked anew.
"""  # noqa: E501

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal, TypeAlias, cast, get_args

import msgspec

from plait.errors import InvalidValue
from plait.event import Event, Json
from plait.event.kinds import EffectClass
from plait.event.strict import check_text, difference, explain
from plait.fingerprint import Fingerprint, fingerprint
from plait.ids import Digest, LogId, Micros, digest
from plait.inside import ends_run
from plait.runtime.failures import text_of_error

APPROVAL_TAG = b"plait/approval/1"
POLICY_TAG = b"plait/policy/1"

Verdict = Literal["allow", "ask", "refuse"]
_STRICTEST_FIRST: tuple[Verdict, ...] = ("refuse", "ask", "allow")
_EFFECTS = get_args(EffectClass)
_ENCODE = msgspec.json.Encoder(order="deterministic").encode


class Call(msgspec.Struct, frozen=True):
    """A tool call as a policy sees it, before anything has happened."""

    tool: str
    # JSON: an object, or a text if what the model wrote is none; open, so that a condition can just
    # look into it
    arguments: Any
    effect: EffectClass = "at_most_once"
    version: str = ""
    source: str = ""  # where the tool comes from, if not from the program itself: mcp:git
    reason: str = ""  # why, in the words of who asks
    path: str = ""  # of the call that asks: review/critics/style
    actor: str = ""
    behalf: str | None = None
    origins: frozenset[str] = frozenset()  # of the events in the context of who asks
    session: Any = None  # the value it is asked on, to read


class Decision(msgspec.Struct, frozen=True):
    """What the rules say of a call, and which of them."""

    verdict: Verdict
    reason: str = ""
    rule: str = ""  # "": no rule speaks of it
    # how long an approval may be waited for; None: as long as it takes
    expires_s: float | None = None


When: TypeAlias = Callable[[Call], object]


# ── rules ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, init=False, repr=False)
class Rule:
    """Conditions and a verdict. Without conditions it holds for everything."""

    verdict: ClassVar[Verdict]
    tools: tuple[str, ...]
    effect: tuple[EffectClass, ...]
    origin: tuple[str, ...]
    when: When | None
    name: str
    reason: str
    expires_s: float | None

    def __init__(
        self,
        *tools: str,
        effect: EffectClass | Sequence[EffectClass] = (),
        origin: str | Sequence[str] = (),
        when: When | None = None,
        name: str = "",
        reason: str = "",
    ) -> None:
        kind = type(self).__name__
        fields: dict[str, object] = {
            "tools": _words(tools, kind, "a tool's name"),
            "effect": _effects(effect, kind),
            "origin": _words(origin, f"{kind} origin", "an origin"),
            "when": _function(when, kind),
            "name": _text(name, f"{kind} name"),
            "reason": _text(reason, f"{kind} reason"),
            "expires_s": None,
        }
        for field, value in fields.items():
            object.__setattr__(self, field, value)

    @property
    def title(self) -> str:
        """What people call it: its name, else its conditions."""
        return self.name or ", ".join(self._conditions()) or "everything"

    def decide(self, call: Call) -> Decision | None:
        """None: it does not speak of this call."""
        if not self._applies(call):
            return None
        if self.when is None:
            return self._decision(self.reason)
        try:
            return self._decision(self.reason) if _holds(self.when, call) else None
        except BaseException as error:  # whatever it is, nobody knows whether the condition holds
            if ends_run(error):
                raise
            return self._in_doubt(
                f"{self.title}: the condition raised {type(error).__name__}: {text_of_error(error)}"
            )

    def _applies(self, call: Call) -> bool:
        return (
            (not self.tools or _any_matches([call.tool], self.tools))
            and (not self.effect or call.effect in self.effect)
            and (not self.origin or _any_matches(call.origins, self.origin))
        )

    def _decision(self, reason: str) -> Decision:
        return Decision(self.verdict, reason or self.title, self.title, self.expires_s)

    def _in_doubt(self, why: str) -> Decision | None:
        return self._decision(why)

    def _conditions(self) -> Iterable[str]:
        if self.tools:
            yield f"tool {' or '.join(self.tools)}"
        if self.effect:
            yield f"effect {' or '.join(self.effect)}"
        if self.origin:
            yield f"with {' or '.join(self.origin)} in the context"
        if self.when is not None:
            yield f"when {_called(self.when)}"

    def fingerprint_parts(self) -> tuple[object, ...]:
        """All that it says; alternatives have no order."""
        words = (sorted(self.tools), sorted(self.effect), sorted(self.origin))
        return (self.verdict, *words, self.when, self.name, self.reason, self.expires_s)

    def __repr__(self) -> str:
        shown = [repr(tool) for tool in self.tools]
        shown += [
            f"{field}={value!r}"
            for field, value in (("effect", self.effect), ("origin", self.origin))
            if value
        ]
        shown += [f"when={_called(self.when)}"] if self.when is not None else []
        everything = [] if shown else ["everything"]
        shown += [
            f"{field}={value!r}"
            for field in ("name", "reason", "expires_s")
            if (value := getattr(self, field))
        ]
        return f"{type(self).__name__}({', '.join(everything + shown)})"


class Allow(Rule):
    """A grant. A policy with one refuses whatever none of them matches."""

    verdict: ClassVar[Verdict] = "allow"

    def _in_doubt(self, why: str) -> Decision | None:
        return None  # a grant whose condition cannot be told is not given


class Ask(Rule):
    """A human decides. Without conditions: on everything."""

    verdict: ClassVar[Verdict] = "ask"

    def __init__(
        self,
        *tools: str,
        effect: EffectClass | Sequence[EffectClass] = (),
        origin: str | Sequence[str] = (),
        when: When | None = None,
        name: str = "",
        reason: str = "",
        expires_s: float | None = None,  # None: waits as long as it takes
    ) -> None:
        super().__init__(*tools, effect=effect, origin=origin, when=when, name=name, reason=reason)
        object.__setattr__(self, "expires_s", _seconds(expires_s))


class Refuse(Rule):
    """Not allowed; the reason is what the model is told. Without conditions: nothing is."""

    verdict: ClassVar[Verdict] = "refuse"


def _any_matches(names: Iterable[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _holds(when: When, call: Call) -> bool:
    """Asked with a copy of the arguments: a condition that edits them edits nothing that is bound
    or run.
    """
    found = when(msgspec.structs.replace(call, arguments=plain(call.arguments, "arguments")))
    if inspect.iscoroutine(found):
        found.close()
        raise TypeError("it returns a coroutine, and a condition cannot wait")
    return bool(found)


# ── policies ─────────────────────────────────────────────────────────────────────────────────


class Policy:
    """Rules that hold together. Without rules, everything is allowed."""

    __slots__ = ("_fixed", "_rules")

    def __init__(self, *rules: Rule) -> None:
        for rule in rules:
            if not isinstance(rule, (Allow, Ask, Refuse)):
                raise InvalidValue(
                    "Policy",
                    f"a {type(rule).__name__} is not a rule",
                    "pass Allow(…), Ask(…) and Refuse(…)",
                )
        self._rules = rules
        self._fixed = None if any(rule.when is not None for rule in rules) else self._read()

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self._rules

    @property
    def digest(self) -> Digest:
        """The digest of what its rules would do now: the same in every process that has the same
        source.

        It covers the functions of its conditions with all they call and read, as
        `plait.fingerprint` says.
        """
        return self.fingerprint.digest

    @property
    def fingerprint(self) -> Fingerprint:
        """Its digest, and in `unknown` what that does not cover."""
        return self._fixed or self._read()

    def fingerprint_parts(self) -> tuple[object, ...]:
        return self._rules

    def _read(self) -> Fingerprint:
        found = fingerprint(*self._rules, state=True)
        return found._replace(digest=digest(POLICY_TAG, found.digest.encode()))

    def decide(self, call: Call) -> Decision:
        """What the strictest of its rules says of a call."""
        if self._fixed is not None:
            return self._decided(call)
        before = self._read()
        decision = self._decided(call)
        if self._read().digest != before.digest:
            # The next decision would void the consent that this one asks for, and so on without
            # end.
            moving = "a condition changes what it relies on while it decides"
            self._fixed = before._replace(unknown=(*before.unknown, moving))
        return decision

    def _decided(self, call: Call) -> Decision:
        found = [decision for rule in self._rules if (decision := rule.decide(call)) is not None]
        grants = any(isinstance(rule, Allow) for rule in self._rules)
        if grants and not any(decision.verdict == "allow" for decision in found):
            found.append(
                Decision("refuse", f"{call.tool} is not among what is granted here", "no grant")
            )
        return _strictest(found)

    def __repr__(self) -> str:
        return f"Policy({', '.join(map(repr, self._rules))})"


def decide(policies: Sequence[Policy], call: Call) -> Decision:
    """The strictest of all: with the caller's policy and its own, nobody is wider than who called
    it.
    """
    return _strictest([policy.decide(call) for policy in policies])


def digest_of(policies: Sequence[Policy]) -> Digest | None:
    """Which policies decide together, each counted once. None: there is none."""
    digests = list(dict.fromkeys(policy.digest for policy in policies))
    return digest(POLICY_TAG, _ENCODE(digests)) if digests else None


def unknown_of(policies: Sequence[Policy]) -> tuple[str, ...]:
    """What the digest of these policies does not cover."""
    return tuple(dict.fromkeys(why for policy in policies for why in policy.fingerprint.unknown))


def _strictest(decisions: Sequence[Decision]) -> Decision:
    """All that say the strictest thing, as one: each is named, and the shortest wait counts."""
    if not decisions:
        return Decision("allow")
    same = next(
        found
        for verdict in _STRICTEST_FIRST
        if (found := [each for each in decisions if each.verdict == verdict])
    )
    return Decision(
        same[0].verdict,
        "; ".join(dict.fromkeys(decision.reason for decision in same if decision.reason)),
        "; ".join(dict.fromkeys(decision.rule for decision in same if decision.rule)),
        min(
            (decision.expires_s for decision in same if decision.expires_s is not None),
            default=None,
        ),
    )


def _called(function: object) -> str:
    return getattr(function, "__name__", None) or type(function).__name__


# ── what is asked of a human ─────────────────────────────────────────────────────────────────


def binding(
    session: LogId,
    seq: int,
    tool: str,
    version: str,
    arguments: Json,
    policy: Digest | None,
    asked: int,
    process: str = "",  # the one in which the consent counts; "": in every one
) -> Digest:
    """What an approval is for: this request, with exactly these arguments, under this policy, asked
    for the n-th time.
    """
    bound = [session, seq, tool, version, plain(arguments, "arguments"), policy, asked]
    bound += [process] if process else []
    plain(bound, "binding")
    return digest(APPROVAL_TAG, _ENCODE(bound))


def shown(call: Call, decision: Decision) -> Json:
    """What a human is shown of a call: what is bound, and why they are asked.

    Exactly as it is; whoever prints it cleans it.
    """
    return {
        "tool": call.tool,
        "version": call.version,
        "arguments": plain(call.arguments, "arguments"),
        "effect": call.effect,
        "source": call.source,
        "path": call.path,
        "actor": call.actor,
        "behalf": call.behalf,
        "reason": call.reason,
        "origins": sorted(call.origins),
        "rule": decision.rule,
        "why": decision.reason,
    }


class Approval(msgspec.Struct, frozen=True):
    """What an approver decides on."""

    session: Any  # the value as it waits, to read
    request: Event
    shown: Json
    binding: Digest
    expires: Micros | None = None  # None: never


class Granted(msgspec.Struct, frozen=True):
    edited: Json = None  # None: as asked; otherwise the arguments to run with instead
    note: str = ""


class Denied(msgspec.Struct, frozen=True):
    reason: str = ""  # the model is told


Approver: TypeAlias = Callable[[Approval], Granted | Denied | bool | str]


def settle_answer(answer: object) -> Granted | Denied:
    """What an approver meant: True and False, or a text, which denies and says why.

    No answer is not a grant.
    """
    if isinstance(answer, bool):
        return Granted() if answer else Denied()
    if isinstance(answer, str):
        return Denied(_text(answer, "answer"))
    if isinstance(answer, Denied):
        return Denied(_text(answer.reason, "reason"))
    if isinstance(answer, Granted):
        return Granted(_edited(answer.edited), _text(answer.note, "note"))
    why = f"a {type(answer).__name__} neither grants nor denies"
    raise InvalidValue(
        "answer", why, "return True, False, a text with the reason, Granted(…) or Denied(…)"
    )


def _edited(arguments: Json) -> Json:
    if arguments is not None and not isinstance(arguments, Mapping):
        raise InvalidValue(
            "edited",
            f"a {type(arguments).__name__} is not a set of arguments",
            "pass an object, name by name",
        )
    return plain(arguments, "edited")


# ── what may enter ───────────────────────────────────────────────────────────────────────────


def plain(value: Json, where: str) -> Json:
    """A copy, as JSON carries it; what JSON would change or drop is refused: it could be shown as
    one thing and run as another.
    """
    try:
        back: Json = msgspec.json.decode(_ENCODE(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise explain(value, where) from error
    if back != value:
        raise difference(value, back, where)
    return back


def _words(given: str | Sequence[str], where: str, what: str) -> tuple[str, ...]:
    words = (
        (given,)
        if isinstance(given, str)
        else tuple(given)
        if isinstance(given, Iterable)  # pyright: ignore[reportUnnecessaryIsInstance]
        else (given,)
    )
    for word in words:
        if not isinstance(word, str) or not word:  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
            raise InvalidValue(
                where, f"{word!r} is not {what}", "pass a text, with * for any characters"
            )
        check_text(word, where)
    return words


def _effects(given: EffectClass | Sequence[EffectClass], kind: str) -> tuple[EffectClass, ...]:
    effects = _words(given, f"{kind} effect", "an effect class")
    for effect in effects:
        if effect not in _EFFECTS:
            raise InvalidValue(
                f"{kind} effect",
                f"{effect!r} is not an effect class",
                f"use one of {', '.join(_EFFECTS)}",
            )
    return cast("tuple[EffectClass, ...]", effects)


def _function(when: object, kind: str) -> object:
    if when is None:
        return None
    if not callable(when):
        raise InvalidValue(
            f"{kind} when",
            f"a {type(when).__name__} is not a function",
            "pass a function of the call",
        )
    if inspect.iscoroutinefunction(when):
        raise InvalidValue(
            f"{kind} when",
            f"{_called(when)} is async, and a decision does not wait",
            "pass a plain function of the call",
        )
    return when


def _text(text: object, where: str) -> str:
    if not isinstance(text, str):
        raise InvalidValue(where, f"a {type(text).__name__} is not a text", "pass a text")
    check_text(text, where)
    return text


def _seconds(given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given < math.inf:
        raise InvalidValue(
            "Ask expires_s",
            f"{given!r} is not a time to wait",
            "pass seconds above 0, or None to wait as long as it takes",
        )
    return float(given)
