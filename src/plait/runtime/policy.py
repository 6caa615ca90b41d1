"""Policies: the calls that an agent may make, and those that need a human.

A `Policy` is a list of rules. All conditions of a rule must hold, alternatives within one suffice;
of the rules that match, the strictest wins: refuse, then ask, then allow. A policy with a grant
(`Allow`) is closed: a call that none of its grants matches is refused, also if a rule says to ask
for it. Policies of a caller and a callee are put together the same way, so that a caller cannot do
through a child a thing that it may not do itself.

    Policy(
        # tools by name, with *, ? and [] as in a shell
        Ask("wire", "deploy*"),
        # once text of such an origin is in the asker's context
        Ask(effect="at_most_once", origin=("web", "mcp:*")),
        Ask(when=lambda call: call.arguments["amount"] > 1000, name="large", expires_s=3600),
        Refuse("rm_*", reason="use trash"),
        Allow("read_*", effect="pure"),
    )

The decision of a human is bound by digest (`binding`) to this one request: any change to it has to
be asked anew.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from plait.errors import InvalidValue
from plait.event import Event, Json
from plait.event.kinds import EffectClass
from plait.fingerprint import Fingerprint, fingerprint
from plait.ids import Digest, LogId, Micros, digest
from plait.inside import ends_run
from plait.runtime.failures import text_of_error
from plait.runtime.policy_values import (
    condition_of,
    effects_of,
    encode_json,
    function_name,
    plain_json,
    seconds_of,
    text_of,
    words_of,
)

APPROVAL_TAG = b"plait/approval/1"
POLICY_TAG = b"plait/policy/1"

Verdict = Literal["allow", "ask", "refuse"]
_STRICTEST_FIRST: tuple[Verdict, ...] = ("refuse", "ask", "allow")


class Call(msgspec.Struct, frozen=True):
    """A tool call as a policy sees it, before anything has happened."""

    tool: str
    # JSON: an object, or the model's text if that is none; open, so that a condition can just look
    # into it
    arguments: Any
    effect: EffectClass = "at_most_once"
    version: str = ""
    source: str = ""  # where the tool comes from, if not from the program itself: mcp:git
    reason: str = ""  # why, in the asker's words
    path: str = ""  # of the call that asks: review/critics/style
    actor: str = ""
    behalf: str | None = None
    origins: frozenset[str] = frozenset()  # of the events in the asker's context
    session: Any = None  # the value it is asked on, to read


class Decision(msgspec.Struct, frozen=True):
    """The verdict of the rules on a call, and the rules that gave it."""

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
            "tools": words_of(tools, kind, "a tool's name"),
            "effect": effects_of(effect, kind),
            "origin": words_of(origin, f"{kind} origin", "an origin"),
            "when": condition_of(when, kind),
            "name": text_of(name, f"{kind} name"),
            "reason": text_of(reason, f"{kind} reason"),
            "expires_s": None,
        }
        for field, value in fields.items():
            object.__setattr__(self, field, value)

    @property
    def title(self) -> str:
        """The name of the rule, else its conditions."""
        return self.name or ", ".join(self._conditions()) or "everything"

    def decide(self, call: Call) -> Decision | None:
        """Return the decision on a call. None: the rule does not speak of it."""
        if not self._applies(call):
            return None
        if self.when is None:
            return self._decision(self.reason)
        try:
            return self._decision(self.reason) if _holds(self.when, call) else None
        except BaseException as error:  # of any class: it is not known if the condition holds
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
            yield f"when {function_name(self.when)}"

    def fingerprint_parts(self) -> tuple[object, ...]:
        """Return all that the rule says; alternatives have no order."""
        words = (sorted(self.tools), sorted(self.effect), sorted(self.origin))
        return (self.verdict, *words, self.when, self.name, self.reason, self.expires_s)

    def __repr__(self) -> str:
        shown = [repr(tool) for tool in self.tools]
        shown += [
            f"{field}={value!r}"
            for field, value in (("effect", self.effect), ("origin", self.origin))
            if value
        ]
        shown += [f"when={function_name(self.when)}"] if self.when is not None else []
        everything = [] if shown else ["everything"]
        shown += [
            f"{field}={value!r}"
            for field in ("name", "reason", "expires_s")
            if (value := getattr(self, field))
        ]
        return f"{type(self).__name__}({', '.join(everything + shown)})"


class Allow(Rule):
    """A grant. A policy with one refuses every call that none of them matches."""

    verdict: ClassVar[Verdict] = "allow"

    def _in_doubt(self, why: str) -> Decision | None:
        return None  # a grant whose condition raised is not given


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
        object.__setattr__(self, "expires_s", seconds_of(expires_s))


class Refuse(Rule):
    """Not allowed; the model is told the reason. Without conditions: nothing is allowed."""

    verdict: ClassVar[Verdict] = "refuse"


def _any_matches(names: Iterable[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _holds(when: When, call: Call) -> bool:
    """Return True if a condition holds. It gets a copy of the arguments: one that edits them edits
    nothing that is bound or run.
    """
    found = when(msgspec.structs.replace(call, arguments=plain_json(call.arguments, "arguments")))
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
        self._fixed = (
            None if any(rule.when is not None for rule in rules) else self._take_fingerprint()
        )

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self._rules

    @property
    def digest(self) -> Digest:
        """The digest of its rules and their code as they are now: the same in every process that
        has the same source.

        It covers the functions of its conditions with all they call and read, as
        `plait.fingerprint` says.
        """
        return self.fingerprint.digest

    @property
    def fingerprint(self) -> Fingerprint:
        """The digest, and in `unknown` the parts that it does not cover."""
        return self._fixed or self._take_fingerprint()

    def fingerprint_parts(self) -> tuple[object, ...]:
        return self._rules

    def _take_fingerprint(self) -> Fingerprint:
        found = fingerprint(*self._rules, state=True)
        return found._replace(digest=digest(POLICY_TAG, found.digest.encode()))

    def decide(self, call: Call) -> Decision:
        """Return the decision of the strictest rules on a call."""
        if self._fixed is not None:
            return self._apply_rules(call)
        before = self._take_fingerprint()
        decision = self._apply_rules(call)
        if self._take_fingerprint().digest != before.digest:
            # The next decision would void the consent that this one asks for, and so on without
            # end.
            moving = "a condition changes what it relies on while it decides"
            self._fixed = before._replace(unknown=(*before.unknown, moving))
        return decision

    def _apply_rules(self, call: Call) -> Decision:
        found = [decision for rule in self._rules if (decision := rule.decide(call)) is not None]
        grants = any(isinstance(rule, Allow) for rule in self._rules)
        if grants and not any(decision.verdict == "allow" for decision in found):
            found.append(
                Decision("refuse", f"{call.tool} is not among what is granted here", "no grant")
            )
        return _join_strictest(found)

    def __repr__(self) -> str:
        return f"Policy({', '.join(map(repr, self._rules))})"


def decide(policies: Sequence[Policy], call: Call) -> Decision:
    """Return the strictest decision of all: with the caller's policy and its own, a callee may do
    nothing that its caller may not.
    """
    return _join_strictest([policy.decide(call) for policy in policies])


def digest_of(policies: Sequence[Policy]) -> Digest | None:
    """Return one digest for policies that decide together. None: there are none."""
    digests = list(dict.fromkeys(policy.digest for policy in policies))
    return digest(POLICY_TAG, encode_json(digests)) if digests else None


def unknown_of(policies: Sequence[Policy]) -> tuple[str, ...]:
    """Return the parts of these policies that their digest does not cover."""
    return tuple(dict.fromkeys(why for policy in policies for why in policy.fingerprint.unknown))


def _join_strictest(decisions: Sequence[Decision]) -> Decision:
    """Put the decisions with the strictest verdict together: each is named, and the shortest wait
    counts.
    """
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


# ── approvals ────────────────────────────────────────────────────────────────────────────────


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
    """Return the digest that an approval is bound to: this request, with exactly these arguments,
    under this policy, asked for the n-th time.
    """
    bound = [session, seq, tool, version, plain_json(arguments, "arguments"), policy, asked]
    bound += [process] if process else []
    plain_json(bound, "binding")
    return digest(APPROVAL_TAG, encode_json(bound))


def shown_call(call: Call, decision: Decision) -> Json:
    """Return a call as a human is shown it: all that is bound, and why they are asked.

    Nothing is cleaned here: the code that prints it does that.
    """
    return {
        "tool": call.tool,
        "version": call.version,
        "arguments": plain_json(call.arguments, "arguments"),
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
    """The question that an approver decides on."""

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
    """Return the grant or denial that an approver's answer stands for: True, False, or a text,
    which denies and says why.

    No answer is not a grant.
    """
    if isinstance(answer, bool):
        return Granted() if answer else Denied()
    if isinstance(answer, str):
        return Denied(text_of(answer, "answer"))
    if isinstance(answer, Denied):
        return Denied(text_of(answer.reason, "reason"))
    if isinstance(answer, Granted):
        return Granted(_check_edited(answer.edited), text_of(answer.note, "note"))
    why = f"a {type(answer).__name__} neither grants nor denies"
    raise InvalidValue(
        "answer", why, "return True, False, a text with the reason, Granted(…) or Denied(…)"
    )


def _check_edited(arguments: Json) -> Json:
    if arguments is not None and not isinstance(arguments, Mapping):
        raise InvalidValue(
            "edited",
            f"a {type(arguments).__name__} is not a set of arguments",
            "pass an object, name by name",
        )
    return plain_json(arguments, "edited")
