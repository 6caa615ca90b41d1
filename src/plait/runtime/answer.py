"""Answering effects live: what is asked is on record before anything happens, and what came of it
before anything follows.

These are generators, too: they append, and yield what has to be waited for (a model's answer, a
tool, a pause), so that blocking, async and simulated drivers share every line. The program only
ever sees what was recorded: an answer is decoded from the bytes just written.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from plait import secrets
from plait.errors import (
    BudgetExceeded,
    InvalidInput,
    ModelFailed,
    PlaitError,
    StaleHead,
    UnknownEvent,
)
from plait.event import Event, Json
from plait.event import kinds as k
from plait.event.kinds import Action, Failure, Price, Usage
from plait.event.strict import parse
from plait.event.vocabulary import VOCABULARY
from plait.ids import Digest, digest
from plait.journal.standing import Standing
from plait.model.base import (
    Delta,
    Fault,
    Model,
    ReasoningDelta,
    Reply,
    Request,
    Restarted,
    TextDelta,
    ToolCall,
    ToolDelta,
    Turn,
)
from plait.runtime.appends import append_at_tip, append_events
from plait.runtime.budgets import Reservation
from plait.runtime.consent import User, refusal_drafts, tool_request
from plait.runtime.effects import Answer, AskModel, Effect, Record, Retry, Turning, UseTools
from plait.runtime.executing import check_running
from plait.runtime.failures import bounded_text, traceback_of
from plait.runtime.mail import has_mail, safe_point
from plait.runtime.names import call_id
from plait.runtime.override import apply_overrides, setup_blob
from plait.runtime.prompt.parts import blob_reader, failure_text
from plait.runtime.registry import run_of
from plait.runtime.run import Run
from plait.runtime.run_tools import Unwritten
from plait.runtime.settle import use_tools
from plait.runtime.spend import (
    afford,
    afford_again,
    count_lost_ask,
    counted_fault,
    counted_reply,
    settle_ask,
)
from plait.runtime.waits import Answering, CallModel, Pause, Wait
from plait.secrets import HiddenPieces
from plait.session import Session
from plait.session.content import pack, text_of, unpack
from plait.session.ports import Act, Draft, Position, store_at
from plait.session.value import advance, position_of
from plait.tool import Tool, WrongArguments, reason_of

T = TypeVar("T")

PARTIAL_MAX = 100_000  # characters of an answer that broke off
# the one property, and the title, of a schema that is an object for providers' sake
WRAPPED, WRAPPER = "answer", "an answer in an object"
SERVICE = "service:plait"  # who speaks when the runtime itself has something to say
_SILENT = {
    "length": (
        "the reply came to its length limit before it said anything; raise tokens_max, or let it"
        " think less"
    ),
    "refusal": "the model declined, without a word",
}


def play(turn: Turning[T]) -> Generator[Wait, Any, T]:
    """A turn with its effects answered."""
    unwritten: Unwritten | None = None
    try:
        effect = next(turn)
        while True:
            try:
                if unwritten is not None and isinstance(effect, AskModel):
                    last, unwritten = unwritten, None
                    answer = yield from _asked_with(effect, last)
                elif unwritten is not None:
                    last, unwritten = unwritten, None
                    answer = yield from answering(effect._replace(session=_written(last)))
                elif isinstance(effect, UseTools):
                    session, unwritten = yield from _used(effect)
                    answer = session, None
                else:
                    answer = yield from answering(effect)
            except PlaitError as error:
                effect = turn.throw(error)
            else:
                effect = turn.send(answer)
    except StopIteration as done:
        return done.value
    finally:
        turn.close()
        if unwritten is not None:  # interrupted right then
            _written(unwritten)


def answering(effect: Effect) -> Answering:
    check_running(effect.session)
    if isinstance(effect, AskModel):
        return (yield from _ask(effect, None))
    if isinstance(effect, UseTools):
        session, unwritten = yield from _used(effect)
        return (_written(unwritten) if unwritten else session), None
    if isinstance(effect, Record):
        return append_events(effect.session, effect.drafts, effect.blobs)
    body = k.MessageSaid(effect.role, (k.Text(effect.text),), "plait", bool(effect.aside))
    return (
        append_events(
            safe_point(effect.session), [Draft(body, Act(effect.aside or SERVICE, "program"))]
        )[0],
        None,
    )


def _used(effect: UseTools) -> Generator[Wait, Any, tuple[Session, Unwritten | None]]:
    return (yield from use_tools(effect))


def _written(unwritten: Unwritten) -> Session:
    return append_at_tip(unwritten.session, unwritten.drafts)[0]


def _asked_with(effect: AskModel, unwritten: Unwritten) -> Answering:
    """Ask, and write the last outcome in the same transaction; if that cannot be, one after the
    other. Either way it is written.
    """
    run = run_of(effect.session)
    sealed = (
        run.journal.seal(position_of(effect.session), unwritten.drafts) if run is not None else None
    )
    if (
        sealed is None
        or run is None
        or run.stops.is_stopped(effect.session.id)
        or run.budgets.of(effect.session.id)
        or has_mail(effect.session)
    ):
        return (yield from answering(effect._replace(session=_written(unwritten))))
    try:
        return (yield from _ask(effect, Sealed(*sealed)))
    except NotWritten as error:
        effect.prompt.forget()
        # interrupted right after the commit: it must not be written twice
        if _stands(effect.session, sealed[1]):
            raise (error.__cause__ or error) from None
        session = _written(unwritten)
        if not isinstance(error.__cause__, StaleHead):
            raise (error.__cause__ or error) from None
        return (yield from _ask(effect._replace(session=session), None))


def _stands(session: Session, events: list[Event]) -> bool:
    """Whether these events are in the store after all."""
    try:
        store_at(session.store).event(events[-1].id)
    except UnknownEvent:
        return False
    return True


class Sealed(NamedTuple):
    """Events that are as good as written: they go with the next append."""

    after: Position
    events: list[Event]


class NotWritten(Exception):
    """The append that was to take sealed events along failed, for the reason that is its cause."""


# ── models ───────────────────────────────────────────────────────────────────────────────────


class _Asking:
    """One ask, from the first attempt to its settlement."""

    def __init__(self, effect: AskModel, session: Session, changed: list[Draft]) -> None:
        self.effect, self.session, self.changed = effect, session, changed
        self.run = run_of(session)
        self.reservation: Reservation | None = None
        self.reserved: Usage | None = None
        self.refusal: k.BudgetRefused | None = None
        self.chain, self.turns = Digest(""), cast("Sequence[Turn]", ())
        # lost: attempts that ended with the process, and do not count
        self.call, self.attempt, self.lost = "", 1, 0
        self.outcomes: Sequence[str] = ()
        self.telling: _Telling | None = None  # None: nobody listens

    def prepare(self, sealed: Sealed | None) -> None:
        """What is asked with, and that there is enough left for it."""
        prompt, known = (
            self.effect.prompt,
            self.run.journal.tips.events_between if self.run else None,
        )
        prompt.catch_up(self.session, known)
        if sealed is not None:
            prompt.take(sealed.events, blob_reader(self.session))
            self.session = advance(
                self.session, sealed.after, *[event.kind for event in sealed.events]
            )
        else:
            before = self.session
            self.session, self.effect, self.reservation, self.reserved, self.refusal = afford(
                before, self.effect
            )
            if self.session is not before:
                prompt.catch_up(self.session, known)
        self.chain, self.turns = prompt.ask()
        name, log = (
            self.run.journal.source_of(self.session)
            if self.run is not None
            else (None, self.session.id)
        )
        self.call = call_id(name, log, self.session.seq + 1, "ask")
        self.outcomes = prompt.outcomes_here if self.effect.fresh else prompt.outcomes

    def ask(self, held: Sequence[Event]) -> Event:
        """Put it on record, with what was sealed before it."""
        effect, setup = self.effect, self.effect.prompt.setup
        asked = k.ModelAsked(
            effect.model.name, self.chain, {**setup.parameters} or None, self.attempt, self.reserved
        )
        draft = Draft(
            asked, Act(effect.actor, "program", call=self.call, causes=effect.prompt.causes[-8:])
        )
        blobs = setup_blob(self.changed, setup)
        self.session, events = append_events(self.session, [*self.changed, draft], blobs, held=held)
        self.changed = []
        self.call = events[-1].header.call or self.call
        return events[-1]

    def on_record(self) -> Event | None:
        """What is on record of the answer."""
        step = (
            self.run.journal.call_event(self.session, (self.call,))
            if self.run is not None
            else None
        )
        if step is None:
            return None
        self.session = step[0]
        return step[1]

    def is_lost(self, event: Event) -> bool:
        return self.run is not None and self.run.journal.standing_of(event) is not Standing.LIVE

    def request(self) -> CallModel:
        effect, setup, store = self.effect, self.effect.prompt.setup, store_at(self.session.store)
        request = Request(
            setup.instruction,
            setup.tools,
            self.turns,
            self.session,
            store.get_blob,
            setup.parameters,
            setup.output,
            effect.choice,
            self.outcomes,
        )
        self.telling = (
            _Telling(self.run, effect.path) if self.run is not None and self.run.listeners else None
        )
        return CallModel(effect.model, request, self.telling, self.call, self.attempt)

    def replied(
        self, reply: Reply, latency_us: int, event: Event
    ) -> tuple[Session, Answer] | Fault:
        """Record a reply; a fault, if it cannot be taken."""
        reply = counted_reply(self.effect, reply)
        self._settle(reply.usage, reply.price)
        try:
            return _replied(self.effect, self.session, reply, latency_us, self.call, event.id)
        except InvalidInput as error:  # a text that no log can hold: nothing of it was written
            return Fault(
                "MalformedReply", str(error), retryable=True, usage=reply.usage, price=reply.price
            )
        except Fault as error:
            return error

    def failed(self, fault: Fault, latency_us: int, event: Event) -> None:
        """Record that an attempt failed."""
        usage, price = counted_fault(self.effect, fault)
        self._settle(usage or Usage(), price)
        act = Act(self.effect.actor, "model", call=self.call, causes=(event.id,))
        self.session = _faulted(self.session, fault, self.attempt, latency_us, act, usage, price)

    def wait_s(self, fault: Fault, *, recorded: bool) -> float | None:
        """How long until the next attempt; None: there is none."""
        self.lost += fault.kind == PROCESS_ENDED
        wait_s = _wait_s(self.effect.retry, fault, self.attempt - self.lost, self.call)
        return (
            _recorded_wait(self.run, self.session, self.call, wait_s)
            if recorded and self.run is not None
            else wait_s
        )

    def said(self, given: tuple[Session, Answer]) -> tuple[Session, Answer]:
        """The answer; if it was to be the last word, within what the budget keeps back, and says
        nothing, the budget has ended it.
        """
        session, answer = given
        if self.refusal is not None and _says_nothing(answer):
            raise BudgetExceeded(
                self.refusal.limit, self.refusal.asked, self.refusal.left, session, self.refusal.why
            )
        return given

    def was_given_more(self, given: tuple[Session, Answer]) -> bool:
        """Whether a last word that said nothing ended the run, which then went on: with another
        budget, it is asked once more.
        """
        session, answer = given
        if (
            self.refusal is None
            or self.run is None
            or self.run.journal.recording.is_live
            or not _says_nothing(answer)
        ):
            return False
        return not self.run.journal.recording.ends_here(session.id)

    def go_on(self, fault: Fault) -> None:
        """The next attempt."""
        self.attempt += 1
        self.outcomes = [
            *self.outcomes,
            failure_text(bounded_text(fault.kind), bounded_text(fault.message)),
        ]
        _, _, self.reservation, self.reserved, _ = afford_again(self.session, self.effect)

    def _settle(self, usage: Usage | None, price: Price | None) -> None:
        settle_ask(self.session, self.reservation, usage, price)
        self.reservation = None


def _says_nothing(answer: Answer) -> bool:
    return not answer.text and answer.data is None


def _ask(effect: AskModel, sealed: Sealed | None) -> Answering:
    asking = _asking(effect, sealed)
    run, held = asking.run, sealed.events if sealed is not None else []
    while True:
        try:
            event = asking.ask(held)
        except BaseException as error:
            if not held:
                raise
            raise NotWritten from error
        held = []
        settled = asking.on_record()
        if (
            settled is None
            and asking.is_lost(event)
            and run is not None
            and run.journal.standing_of(event) is Standing.INHERITED
        ):
            # Branched off here: what was open there is left behind.
            return (yield from _ask(effect._replace(session=asking.session), None))
        latency_us = 0
        if settled is not None:
            body = settled.body
            if isinstance(body, k.ModelReplied):
                given = _recalled(asking.effect, asking.session, settled, body)
                if asking.was_given_more(given):
                    return (yield from _ask(effect._replace(session=given[0]), None))
                return asking.said(given)
            assert isinstance(body, k.ModelFailed)
            fault = Fault(body.failure.kind, body.failure.message, retryable=body.failure.retryable)
        elif asking.is_lost(event):
            fault = _lost(asking.session, asking.effect.model, event)
        else:
            outcome, latency_us = yield asking.request()
            if asking.telling is not None:
                asking.telling.end()
            if isinstance(outcome, Fault):
                outcome = _hidden_fault(outcome)
            answer = (
                asking.replied(outcome, latency_us, event)
                if isinstance(outcome, Reply)
                else outcome
            )
            if not isinstance(answer, Fault):
                return asking.said(answer)
            fault = answer
        if settled is None:
            asking.failed(fault, latency_us, event)
        wait_s = asking.wait_s(fault, recorded=settled is not None)
        if wait_s is None:
            raise ModelFailed(
                effect.model.name,
                bounded_text(fault.kind),
                bounded_text(fault.message),
                asking.attempt,
                asking.session,
            )
        if run is not None and run.listeners and settled is None:
            run.listeners.tell(
                Restarted(
                    failure_text(bounded_text(fault.kind), bounded_text(fault.message)), effect.path
                )
            )
        if wait_s:
            yield Pause(wait_s, asking.session)
        asking.go_on(fault)


def _asking(effect: AskModel, sealed: Sealed | None) -> _Asking:
    """An ask that is about to be made."""
    try:
        session = safe_point(effect.session) if sealed is None else effect.session
        run, changed = run_of(session), list[Draft]()
        if (
            run is not None
            and run.settings.overrides is not None
            and run.journal.standing(session) is not Standing.INHERITED
        ):
            effect, changed = apply_overrides(effect, session, run)
        asking = _Asking(effect, session, changed)
        asking.prepare(sealed)
    except BaseException as error:
        if sealed is None:
            raise
        raise NotWritten from error
    return asking


PROCESS_ENDED = "ProcessEnded"


def _lost(session: Session, model: Model, asked: Event) -> Fault:
    """A call that was lost with the process that made it: asked again, and what was set aside for
    it counts as spent.
    """
    body = asked.body
    usage = body.reserved if isinstance(body, k.ModelAsked) else None
    price = count_lost_ask(session, model, usage)
    why = "the process ended before the answer was recorded"
    return Fault(PROCESS_ENDED, why, retryable=True, retry_after_s=0.0, usage=usage, price=price)


def _hidden_fault(fault: Fault) -> Fault:
    """Return a fault as it is recorded: the program sees the same, live and replayed."""
    if not secrets.is_armed():
        return fault
    kind, message, partial = [
        secrets.hide_shown_text(bounded_text(text, PARTIAL_MAX))
        for text in (fault.kind, fault.message, fault.partial)
    ]
    hidden = Fault(kind, message, partial=partial, usage=fault.usage, price=fault.price)
    hidden.retryable, hidden.retry_after_s, hidden.__cause__ = (
        fault.retryable,
        fault.retry_after_s,
        fault.__cause__,
    )
    return hidden


def _recorded_wait(run: Run, session: Session, call: str, wait_s: float | None) -> float | None:
    """What followed a failure on record: another attempt, or none.

    Beyond the record it is decided now.
    """
    if run.journal.peek_call(session, (call,)) is not None:
        return 0.0
    if not run.journal.recording.is_live and session.head in run.journal.recording.reopened:
        return 0.0  # it ended the run, which is taken up again to try once more
    return None if run.journal.standing(session) is not Standing.LIVE else wait_s


def _recalled(
    effect: AskModel, session: Session, reply: Event, body: k.ModelReplied
) -> tuple[Session, Answer]:
    """A reply that is on record, with what was recorded of its calls at the same time."""
    run = run_of(session)
    assert run is not None
    requests: dict[str, Event] = {}
    unrunnable: set[str] = set()
    for action in body.calls:
        session, requests[action.call], is_refused = _recalled_request(
            run, effect, session, action, reply, truncated=body.stop == "length"
        )
        unrunnable |= {action.call} if is_refused else set()
    said = unpack(body.parts, blob_reader(session))
    data = next((part for part in said if isinstance(part, k.Data)), None)
    runnable = tuple([each for each in body.calls if each.call not in unrunnable])
    return session, Answer(reply.id, text_of(said), data, body.calls, runnable, body.stop, requests)


def _recalled_request(
    run: Run, effect: AskModel, session: Session, action: Action, reply: Event, *, truncated: bool
) -> tuple[Session, Event, bool]:
    """The request of a call and whether it was refused.

    What a rewind or a what-if cut off after the reply is written again.
    """
    step = run.journal.call_event(session, (action.call,))
    if step is None:
        first, *rest = _request(effect, session, action, 0, truncated=truncated)
        session, events = append_at_tip(
            session, [first._replace(act=first.act._replace(causes=(reply.id,))), *rest]
        )
        return session, events[0], len(events) > 1
    session, request = step
    is_refused = False
    while (ahead := run.journal.peek_call(session, (action.call,))) is not None and _is_refusal(
        ahead, request
    ):
        is_refused = True
        session, _ = run.journal.call_event(session, (action.call,)) or (session, ahead)
    why = _refusal(effect.tools, effect.tools.get(action.tool), action, truncated)
    if is_refused or why is None or run.journal.standing(session) is not Standing.LIVE:
        return session, request, is_refused
    act = Act(effect.actor, "program", call=action.call, causes=(request.id,))
    return append_at_tip(session, [Draft(k.ToolFailed(why), act)])[0], request, True


class _Telling:
    """Tells the listeners of a run what a model says, as it says it, and without secrets.

    A secret can lie across deltas, so of each text that grows (the answer, its reasoning, the
    arguments of each call) the end is held back while it could be the beginning of one.
    """

    def __init__(self, run: Run, path: str) -> None:
        self._run, self._path = run, path
        self._pieces: dict[tuple[type[Delta], int], tuple[HiddenPieces, Delta]] = {}

    def __call__(self, delta: Delta) -> None:
        delta = msgspec.structs.replace(delta, agent=self._path)
        field = _GROWING.get(type(delta))
        text = getattr(delta, field) if field else ""
        if not field or not text or not secrets.is_armed():
            self._run.listeners.tell(delta)
            return
        key = type(delta), getattr(delta, "index", 0)
        pieces = self._pieces[key][0] if key in self._pieces else HiddenPieces()
        self._pieces[key] = pieces, delta
        self._show(delta, field, pieces.feed(text))

    def end(self) -> None:
        """Tell what was held back: nothing more will come."""
        for (kind, _), (pieces, delta) in self._pieces.items():
            self._show(delta, _GROWING[kind], pieces.end())
        self._pieces.clear()

    def _show(self, delta: Delta, field: str, text: str) -> None:
        if text:
            self._run.listeners.tell(msgspec.structs.replace(delta, **{field: text}))


_GROWING: Mapping[type[Delta], str] = {
    TextDelta: "text",
    ReasoningDelta: "thought",
    ToolDelta: "arguments",
}


def _replied(
    effect: AskModel, session: Session, reply: Reply, latency_us: int, call: str, asked: Digest
) -> tuple[Session, Answer]:
    """Record a reply, and with it what it asks for: nobody ever finds one without the other."""
    said = _joined(reply.parts)
    if not reply.calls and not any(not isinstance(part, k.Reasoning) for part in said):
        # Asked again, a model that thought up to its limit, or declined, would do the same at the
        # same price.
        why = _SILENT.get(reply.stop)
        told = why or "the reply says nothing and asks for nothing"
        raise Fault("EmptyReply", told, retryable=why is None, usage=reply.usage, price=reply.price)
    if effect.prompt.setup.output is not None and not reply.calls:
        said = _shaped(said, effect.prompt.setup.output)
    parts, blobs = pack(said, "reply")
    seq, run = session.seq + 1, session.run if run_of(session) is not None else None
    asks = reply.calls if effect.choice != "none" else ()
    calls = tuple(
        [
            _action(each, call_id(run, session.id, seq, index), effect.tools)
            for index, each in enumerate(asks)
        ]
    )
    stop = reply.stop if calls or reply.stop != "calls" else "end"
    body = k.ModelReplied(
        parts,
        reply.usage,
        stop,
        calls,
        reply.model or effect.model.name,
        reply.price,
        latency_us,
        effect.aside,
    )
    drafts = [Draft(body, Act(effect.actor, "model", call=call, causes=(asked,)))]
    for action in calls:
        drafts.extend(
            _request(effect, session, action, len(drafts), truncated=reply.stop == "length")
        )
    # It was answered, and paid for, so it is recorded, also when somebody wrote meanwhile.
    session, events = append_at_tip(session, drafts, blobs)
    written = events[0].body
    assert isinstance(written, k.ModelReplied)
    if secrets.is_armed():  # the program only ever sees what was recorded
        said = unpack(written.parts, store_at(session.store).get_blob)
    data = next((part for part in said if isinstance(part, k.Data)), None)
    failed = {event.header.call for event in events if event.kind == "ToolFailed"}
    runnable = tuple([each for each in written.calls if each.call not in failed])
    requests = {event.header.call or "": event for event in events if event.kind == "ToolRequested"}
    spoken = {
        mine.call: mine.arguments
        for mine, kept in zip(calls, written.calls, strict=True)
        if mine.arguments != kept.arguments
    }
    return session, Answer(
        events[0].id, text_of(said), data, written.calls, runnable, written.stop, requests, spoken
    )


def _joined(parts: k.Parts) -> k.Parts:
    """Without empty texts, and with those that follow each other as one: a provider may cut in the
    middle of a sentence.
    """
    found: list[Any] = []
    for part in parts:
        if isinstance(part, k.Text) and not part.blob:
            if found and isinstance(found[-1], k.Text):
                found[-1] = k.Text(found[-1].text + part.text)
            elif part.text:
                found.append(part)
        else:
            found.append(part)
    return tuple(found)


def _shaped(parts: k.Parts, schema: Any) -> k.Parts:
    """A reply that is to be data, as data; if it is not, as it came.

    What only stands in an object for the provider's sake is taken out.
    """
    text = "".join(part.text for part in parts if isinstance(part, k.Text)).strip()
    for candidate in (
        text,
        text.removeprefix("```json").removeprefix("```").removesuffix("```").strip(),
    ):
        try:
            value = parse(candidate.encode())
        except (InvalidInput, UnicodeEncodeError):
            continue
        if (
            isinstance(value, Mapping)
            and schema.get("title") == WRAPPER
            and set(value) == {WRAPPED}
        ):
            value = value[WRAPPED]
        return (*(part for part in parts if not isinstance(part, k.Text)), k.Data(value))
    return parts


def _action(call: ToolCall, id: str, tools: Mapping[str, Tool[..., Any]]) -> Action:
    arguments: Json = _parsed(call.arguments) if isinstance(call.arguments, str) else call.arguments
    stated = ""
    if call.tool in tools:
        arguments, stated = reason_of(tools[call.tool], arguments)
    if isinstance(arguments, Mapping):
        try:
            VOCABULARY.encode(k.ScratchSet("arguments", dict(arguments)))
        except InvalidInput:
            # not JSON, whatever it is: shown to the model as what it wrote
            arguments = repr(arguments)
    return Action(
        id,
        call.tool[:200],
        dict(arguments) if isinstance(arguments, Mapping) else arguments,
        call.reason or stated,
        call.ref,
    )


def _parsed(text: str) -> Mapping[str, Json] | str:
    """The object a text is; if it is none, the text as it came."""
    try:
        value = parse(text.encode())
    except (InvalidInput, UnicodeEncodeError):
        return text
    return value if isinstance(value, Mapping) else text


def _request(
    effect: AskModel, session: Session, action: Action, at: int, *, truncated: bool
) -> list[Draft]:
    """The request of one call; if it cannot be run, also what the model is told about that."""
    tool = effect.tools.get(action.tool)
    act = Act(effect.actor, "model", call=action.call, causes=(0,))
    why = _refusal(effect.tools, tool, action, truncated)
    if tool is None or why is not None:
        known = (tool.effect, tool.noted_version) if tool else ("pure", "")
        body = k.ToolRequested(
            action.tool,
            action.arguments,
            *known,
            action.reason,
            path=effect.path,
            source=tool.origin if tool else "",
        )
    else:
        body, why = tool_request(
            session, tool, action.arguments, User(effect.actor, effect.path), action.reason
        )
    return [Draft(body, act), *refusal_drafts(session, why, act._replace(causes=(at,)))]


def _is_refusal(event: Event, request: Event) -> bool:
    """Whether an event says that a call was not run at all, as it is written with the request."""
    if event.kind == k.BudgetRefused.__name__:
        return True
    return (
        event.kind == k.ToolFailed.__name__
        and event.header.causes == (request.id,)
        and event.header.origin == "program"
    )


def _refusal(
    tools: Mapping[str, Tool[..., Any]],
    tool: Tool[..., Any] | None,
    action: Action,
    truncated: bool,
) -> Failure | None:
    if tool is None:
        return Failure(
            "UnknownTool",
            f"there is no tool {action.tool!r}; there are: {', '.join(tools) or 'none'}",
        )
    if truncated:
        return Failure(
            "Truncated",
            "the reply was cut at its length limit, so this call was not run; ask for less at once",
        )
    try:
        tool.arguments(action.arguments)
    except WrongArguments as error:
        return Failure(
            "WrongArguments", f"{error}. It was not run; correct the arguments and call it again"
        )
    return None


def _faulted(
    session: Session,
    fault: Fault,
    attempt: int,
    latency_us: int,
    act: Act,
    usage: Usage | None,
    price: Price | None,
) -> Session:
    partial = bounded_text(fault.partial, PARTIAL_MAX)
    failure = Failure(
        bounded_text(fault.kind, 200),
        bounded_text(fault.message),
        _told(fault),
        retryable=bool(fault.retryable),
    )
    body = k.ModelFailed(failure, attempt, usage, partial, price, latency_us)
    return append_at_tip(session, [Draft(body, act)])[0]


def _told(fault: Fault) -> str:
    """Where a fault comes from that is no provider's: a bug in a model of the program's own."""
    return (
        traceback_of(fault.__cause__)
        if fault.__cause__ is not None and fault.kind == type(fault.__cause__).__name__
        else ""
    )


def _wait_s(retry: Retry, fault: Fault, attempt: int, call: str) -> float | None:
    """How long until the next attempt; None: there is none."""
    if not fault.retryable or attempt >= retry.attempts:
        return None
    if fault.retry_after_s is not None:
        return max(0.0, fault.retry_after_s) if fault.retry_after_s <= retry.wait_s_max else None
    # Lots are drawn by the call's name, so that the same history waits the same; two calls still do
    # not knock together.
    share = int(digest(b"plait/wait/1", call.encode(), str(attempt).encode())[:8], 16) / 0xFFFFFFFF
    return min(retry.wait_s_max, retry.wait_s * 2 ** (attempt - 1)) * (0.5 + share / 2)


def misfit(reply: Reply) -> str | None:
    """Why a reply cannot be taken; None: it can.

    Models of the program's own may answer with anything.
    """
    parts: Any = reply.parts
    calls: Any = reply.calls
    if not isinstance(parts, tuple) or not all(
        isinstance(part, (k.Text, k.Reasoning, k.Image, k.File, k.Data))
        for part in cast("Any", parts)
    ):
        return "its parts are not a tuple of parts"
    if not isinstance(calls, tuple) or not all(
        isinstance(call, ToolCall) for call in cast("Any", calls)
    ):
        return "its calls are not a tuple of ToolCalls"
    if not all(
        isinstance(text, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        for call in reply.calls
        for text in (call.tool, call.reason, call.ref)
    ):
        return "the name of a tool is not a text"
    counts = [getattr(reply.usage, name, None) for name in k.Usage.__struct_fields__]
    if not all(isinstance(count, int) and 0 <= count < 2**53 for count in counts):
        return "its usage is not a number of tokens"
    texts: list[Any] = [reply.stop, reply.model]
    return (
        None if all(isinstance(text, str) for text in texts) else "its stop or model is not a text"
    )
