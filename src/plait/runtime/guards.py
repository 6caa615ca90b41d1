"""Guards: small checks of the input and of the answer of an agent, on record.

A guard is a function `(session, text)`, or a workflow, which is called in a branch. It passes the
text (None or True), corrects it (`Correct`), or rejects it (`Reject`). Each is a call of its own,
with the purpose `validate`; a rejection is a verdict on the session besides.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, cast

import msgspec

from plait.errors import GuardFailed, GuardRefused, InvalidValue
from plait.event import kinds as k
from plait.ids import Digest
from plait.inside import ends_run
from plait.runtime.answer_text import AnswerText
from plait.runtime.appends import append_events
from plait.runtime.delegation import CallableWorkflow
from plait.runtime.effects import Tell
from plait.runtime.failures import text_of_error
from plait.runtime.invoke import Invocation, invoke
from plait.runtime.names import principal_of
from plait.runtime.registry import run_of
from plait.session import Session
from plait.session.about import last_message
from plait.session.ports import Act, Draft
from plait.session.refusals import GUARD, withheld_messages
from plait.session.typed import to_type

_UNSAFE = re.compile(r"[^a-zA-Z0-9_.-]+")


class Correct(NamedTuple):
    """The verdict of a guard that puts another text in the place of the one it was shown."""

    text: str


class Reject(NamedTuple):
    """The verdict of a guard that does not let a text pass."""

    reason: str


class GuardVerdict(msgspec.Struct, frozen=True):
    """The answer of an agent that is a guard."""

    passes: bool
    reason: str = ""  # if it does not pass


Verdict = Correct | Reject | None
GuardFunction = Callable[[Session, str], "Verdict | bool"]
Guard = GuardFunction | CallableWorkflow


class Judged(NamedTuple):
    """A text after the guards: the session, and the first verdict that was not a pass."""

    session: Session
    guard: str = ""
    verdict: Verdict = None


def check_guards(name: str, guards: Any) -> tuple[Guard, ...]:
    """Return the guards of an agent; raise if one of them is none."""
    given = tuple(guards)
    for guard in given:
        if not callable(guard):
            why = f"a {type(guard).__name__} is not a guard"
            raise InvalidValue(name, why, "pass functions of (session, text), agents or workflows")
        if not is_workflow(guard) and _parameters(guard) not in (None, 2):
            why = f"{guard_name(cast('Guard', guard))} does not take the session and the text"
            raise InvalidValue(name, why, "write it as def guard(session, text)")
    return given


def is_workflow(guard: object) -> bool:
    return callable(getattr(guard, "invocation", None))


def _parameters(guard: Callable[..., Any]) -> int | None:
    """Return how many arguments a guard takes by place. None: it cannot be told."""
    try:
        found = inspect.signature(guard).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_POSITIONAL for each in found):
        return None
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [each for each in found if each.kind in places]
    return (
        2 if len([each for each in needed if each.default is each.empty]) <= 2 <= len(needed) else 0
    )


def guard_name(guard: Guard) -> str:
    """Return the name of a guard in call paths."""
    own: object = getattr(guard, "name", None) or getattr(guard, "__name__", None)
    name = own if isinstance(own, str) else type(guard).__name__.lower()
    return _UNSAFE.sub("-", name).strip("-") or "guard"


def judge(guards: tuple[Guard, ...], session: Session, text: str, what: str) -> Judged:
    """Ask the guards one after another, up to the first that rejects the text.

    A corrected text is what the next one is shown. `what`: "input" or "answer".
    """
    refusable = _input_of(session) if what == "input" else ()
    corrected = Judged(session)
    for guard in guards:
        session, verdict = _ask_guard(guard, session, text, what, refusable)
        if isinstance(verdict, Reject):
            return Judged(session, guard_name(guard), verdict)
        if verdict is not None:
            text = verdict.text
            corrected = Judged(session, guard_name(guard), verdict)
    return corrected._replace(session=session)


def _input_of(session: Session) -> tuple[Digest, ...]:
    last = last_message(session)
    return () if last is None else (last.id,)


def _ask_guard(
    guard: Guard, session: Session, text: str, what: str, refusable: tuple[Digest, ...]
) -> tuple[Session, Verdict]:
    """Call a guard, as a call of its own. `refusable` is the message that no model is to see if the
    guard rejects it.
    """
    name, found = guard_name(guard), list[Verdict]()

    def act(node: object, at: Session) -> Session:
        verdict, evidence = _verdict_of(guard, name, at, text, refusable)
        found.append(verdict)
        if not isinstance(verdict, Reject):
            return at
        detail = {"of": what, "reason": verdict.reason}
        body = k.ValidationRecorded(f"{GUARD}{name}", False, evidence, detail, by=(name,))
        return _record_rejection(at, body, (*evidence, *refusable))

    where = f"{getattr(guard, '__module__', type(guard).__module__)}".partition("@")[0]
    kind = getattr(guard, "__qualname__", type(guard).__qualname__)
    call = Invocation(
        session=session,
        node=guard,
        forward=act,
        name=name,
        workflow=f"{where}:{kind}",
        purpose="validate",
        is_silent=True,
    )
    session = invoke(call)
    return session, found[-1]


def _verdict_of(
    guard: Guard, name: str, session: Session, text: str, refusable: tuple[Digest, ...]
) -> tuple[Verdict, tuple[Digest, ...]]:
    """Return the verdict of a guard, and the evidence for it."""
    try:
        if is_workflow(guard):
            workflow = cast("CallableWorkflow", guard)
            branch = session.fork(name)
            # its agents would see a marker in the place of the message
            if not withheld_messages(session).isdisjoint(refusable):
                branch = branch.say(text)
            ended = invoke(workflow.invocation(branch, name=name))
            return _verdict_in(ended.result), (ended.head,)
        said: Any = cast("GuardFunction", guard)(session, text)
        if inspect.iscoroutine(said):
            said.close()
            raise TypeError("it is a coroutine function; write it as def")
        return _checked_verdict(said), ()
    except BaseException as error:
        if ends_run(error):
            raise
        why = f"{type(error).__name__}: {text_of_error(error)}"
        raise GuardFailed(name, why, session, *refusable) from error


def _verdict_in(result: object) -> Verdict:
    """Return the verdict that a workflow came to: True or False, or an object with `passes`."""
    if isinstance(result, bool):
        return None if result else Reject("it does not pass")
    if not isinstance(result, Mapping):
        raise TypeError(f"its result is {result!r:.80}, and neither a bool nor a GuardVerdict")
    given = cast("Mapping[str, Any]", result)
    fields = {name: given[name] for name in ("passes", "reason") if name in given}
    verdict: GuardVerdict = to_type(fields, GuardVerdict)
    return None if verdict.passes else Reject(verdict.reason or "it does not pass")


def _checked_verdict(said: object) -> Verdict:
    if said is None or said is True:
        return None
    if said is False:
        return Reject("it does not pass")
    if isinstance(said, Correct) and isinstance(said.text, str) and said.text:  # pyright: ignore[reportUnnecessaryIsInstance]
        return said
    if isinstance(said, Reject) and isinstance(said.reason, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return said
    raise TypeError(
        f"it returned {said!r:.80}, and not None, True, Correct(text) or Reject(reason)"
    )


def _record_rejection(
    session: Session, body: k.ValidationRecorded, causes: tuple[Digest, ...]
) -> Session:
    run = run_of(session)
    assert run is not None
    frame = run.stack.frames(session.id)[-1]
    act = Act(f"service:{principal_of(frame.path)}", "program", call=frame.call, causes=causes)
    return append_events(session, [Draft(body, act)])[0]


# ── in a call ────────────────────────────────────────────────────────────────────────────────

REJECTED = "That answer was rejected: {why}. Answer again, without that."


class Rejection(NamedTuple):
    """The guard that rejected an answer, its reason, and the answer."""

    guard: str
    reason: str
    answer: Digest

    def note(self, session: Session) -> Tell:
        """Tell the agent why it is asked again."""
        return Tell(session, REJECTED.format(why=self.reason), refused=(self.answer,))


def pass_input(guards: tuple[Guard, ...], session: Session, path: str) -> Session:
    """Return the session with its last message as the guards let it pass; raise if they do not."""
    if not guards:
        return session
    given = _input_of(session)
    session, guard, verdict = judge(guards, session, session.text, "input")
    if isinstance(verdict, Reject):
        raise GuardRefused(path, guard, "input", verdict.reason, session, *given)
    if verdict is None:
        if withheld_messages(session).isdisjoint(given):
            return session
        return _show_message(session, f"service:{principal_of(path)}")
    return _replace_message(
        session, verdict.text, f"service:{principal_of(f'{path}/{guard}')}", "user"
    )


def pass_answer(
    guards: tuple[Guard, ...], session: Session, actor: str, told: AnswerText
) -> tuple[Session, Rejection | None]:
    """Return the session with the answer as the guards let it pass, and the rejection if they do
    not. `told` is the way of the text to the listeners.
    """
    last = last_message(session)
    assert last is not None, "guards judge an answer that is there"
    session, guard, verdict = judge(guards, session, last.text, "answer")
    if isinstance(verdict, Reject):
        told.refuse(f"{guard} rejects the answer: {verdict.reason}")
        return session, Rejection(guard, verdict.reason, last.id)
    if verdict is None:
        told.let_pass()
        return session, None
    if any(isinstance(part, k.Data) for part in last.parts):
        why = "it corrects an answer that is data; reject it, with the reason"
        raise GuardFailed(guard, why, session)
    session = _replace_message(session, verdict.text, actor, "assistant")
    told.correct(verdict.text, f"{guard} corrects the answer")
    return session, None


def _show_message(session: Session, actor: str) -> Session:
    """Say the last message again, in its place: it was withheld until the guards passed it."""
    last = last_message(session)
    assert last is not None, "a message is withheld that is there"
    return _replace_last(session, last.parts, actor, "user")


def _replace_message(
    session: Session, text: str, actor: str, role: Literal["user", "assistant"]
) -> Session:
    """Put a text in the place of the last message: agents see it instead."""
    return _replace_last(session, (k.Text(text),), actor, role)


def _replace_last(
    session: Session, parts: k.Parts, actor: str, role: Literal["user", "assistant"]
) -> Session:
    last = last_message(session)
    assert last is not None, "a guard corrects a message that is there"
    event = last.event
    body = k.MessageSaid(role, parts, instead_of=k.Place(event.log, event.seq, event.id))
    return append_events(session, [Draft(body, Act(actor, "program", causes=(event.id,)))])[0]
