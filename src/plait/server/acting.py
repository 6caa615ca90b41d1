"""Acts of people on sessions, through `Session` alone, in the name of the person who is served.

Each act answers with the place after it. While a run is open it stands in the inbox: the place
stays the same, and `posted` is the event there. If another act came first, nothing is written, and
the error says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from plait.errors import InvalidValue, MergeConflict, StaleHead, UnknownAsk
from plait.event import Event, Json
from plait.event.kinds import Rewound, ToolRequested
from plait.ids import LogId, short
from plait.server.asking import recorded_ask
from plait.server.desk import ServerDesk
from plait.server.params import (
    AnswerBody,
    ApproveBody,
    DenyBody,
    ForkBody,
    MergeBody,
    NoteBody,
    ReasonBody,
    ResolveBody,
    RewindBody,
    SayBody,
    SessionParams,
    SideChoice,
    SignalBody,
    ValidateBody,
)
from plait.server.reading import event_shape
from plait.server.shapes import ActShape, NotUndoneRow
from plait.session import ABSENT, Session, Waiting, revision
from plait.session.event_text import event_text
from plait.session.gates import is_judge
from plait.session.inbox import all_waiting, find_ask, root_of
from plait.session.merge import WORKSPACE
from plait.session.value import open_run_of
from plait.session.views import WaitKind

_TRIES = 20  # of an act on a session as it is now, if others are first again and again
_CHOICES = 8  # rounds: each tells the content of further sides


# ── saying ───────────────────────────────────────────────────────────────────────────────────


def send_message(desk: ServerDesk, params: SessionParams, body: SayBody) -> ActShape:
    """Say something to a session: the run that is open, or the next one, hears it."""
    return _act(desk, params, lambda at: at.inbox.send(_text(body.text), actor=desk.actor))


def say_message(desk: ServerDesk, params: SessionParams, body: SayBody) -> ActShape:
    """Add a message to a session, as a user."""
    return _act(desk, params, lambda at: at.say(_text(body.text), actor=desk.actor), last=True)


def send_signal(desk: ServerDesk, params: SessionParams, body: SignalBody) -> ActShape:
    """Report something that a run may wait for."""
    return _act(desk, params, lambda at: at.inbox.signal(body.name, body.value, actor=desk.actor))


def add_note(desk: ServerDesk, params: SessionParams, body: NoteBody) -> ActShape:
    """Record a finding."""
    note = _text(body.text)
    return _act(desk, params, lambda at: at.note(note, key=body.key, actor=desk.actor), last=True)


def _text(text: str) -> str:
    if not text.strip():
        raise InvalidValue("text", "nothing is said", "pass a text")
    return text


# ── answering ────────────────────────────────────────────────────────────────────────────────


def approve_ask(desk: ServerDesk, params: SessionParams, body: ApproveBody) -> ActShape:
    """Allow what an agent asks for, as it is shown, or with other arguments."""
    if body.edited is not None and not isinstance(body.edited, dict):
        raise InvalidValue("edited", "it is not a JSON object", "pass all arguments by name")
    return _reply(
        desk,
        params,
        body.ask,
        "approval",
        lambda at, ask: at.inbox.approve(ask, edited=body.edited, note=body.note, actor=desk.actor),
    )


def deny_ask(desk: ServerDesk, params: SessionParams, body: DenyBody) -> ActShape:
    """Refuse what an agent asks for."""
    return _reply(
        desk,
        params,
        body.ask,
        "approval",
        lambda at, ask: at.inbox.deny(ask, body.reason, actor=desk.actor),
    )


def answer_ask(desk: ServerDesk, params: SessionParams, body: AnswerBody) -> ActShape:
    """Answer a question."""
    return _reply(
        desk,
        params,
        body.ask,
        "question",
        lambda at, ask: at.inbox.answer(ask, body.value, actor=desk.actor),
    )


def resolve_ask(desk: ServerDesk, params: SessionParams, body: ResolveBody) -> ActShape:
    """Say what became of an effect whose outcome is not known."""
    return _reply(
        desk,
        params,
        body.ask,
        "unknown",
        lambda at, ask: at.inbox.resolve(
            ask, body.verdict, body.value, body.note, actor=desk.actor
        ),
    )


def _reply(
    desk: ServerDesk,
    params: SessionParams,
    name: str,
    kind: WaitKind,
    do: Callable[[Session, Waiting], Session],
) -> ActShape:
    """Answer an ask of a session, or of a branch of its run."""
    root = desk.open(params.session)
    asks = [
        ask
        for ask in all_waiting(desk.store, answered=True)
        if root.id in (ask.log, root_of(desk.store, ask.run, ask.log))
    ]
    try:
        found = find_ask(asks, name, kinds=(kind,), session=root.short)
    except UnknownAsk:
        do_as_named = _named(do)
        return _shape(desk, root, do_as_named(root, name), resume="")  # it says why it is unknown
    session = Session.open(found.log, store=desk.store)
    after = do(session, recorded_ask(desk.store, found))
    resume = short(root_of(desk.store, found.run, found.log))
    return _shape(desk, session, after, resume=resume, about=found.event)


def _named(do: Callable[[Session, Waiting], Session]) -> Callable[[Session, Any], Session]:
    return do


# ── life ─────────────────────────────────────────────────────────────────────────────────────


def pause_session(desk: ServerDesk, params: SessionParams, body: ReasonBody) -> ActShape:
    """Let a session rest."""
    return _act(desk, params, lambda at: at.pause(reason=body.reason, actor=desk.actor), last=True)


def unpause_session(desk: ServerDesk, params: SessionParams, body: ReasonBody) -> ActShape:
    """Take a paused session up again."""
    return _act(
        desk, params, lambda at: at.unpause(reason=body.reason, actor=desk.actor), last=True
    )


def cancel_run(desk: ServerDesk, params: SessionParams, body: ReasonBody) -> ActShape:
    """Ask the open run of a session to end before its next effect."""
    return _act(desk, params, lambda at: at.inbox.cancel(body.reason, actor=desk.actor))


def close_session(desk: ServerDesk, params: SessionParams, body: ReasonBody) -> ActShape:
    """End a session."""
    return _act(desk, params, lambda at: at.close(reason=body.reason, actor=desk.actor), last=True)


def add_verdict(desk: ServerDesk, params: SessionParams, body: ValidateBody) -> ActShape:
    """Record a verdict on a session as it is now, and tell whether a gate waits on."""
    done = _act(
        desk,
        params,
        lambda at: at.checks.record(body.name, body.passed, detail=body.detail, actor=desk.actor),
        last=True,
    )
    why = _gate_waits(desk, done.log, body)
    return msgspec.structs.replace(done, still_waits=why, resume="" if why else done.resume)


def _gate_waits(desk: ServerDesk, log: LogId, body: ValidateBody) -> str:
    """Return why a gate still waits after this verdict; "": none does."""
    for ask in all_waiting(desk.store):
        if ask.kind != "verdict" or ask.name != body.name or (ask.of or ask.log) != log:
            continue
        if not is_judge(ask.by, desk.actor, ()):
            return f"It is on record, and does not satisfy the gate: that needs {ask.by}."
        if not body.passed:
            return "It is on record, and the gate waits on for a verdict that passes."
    return ""


# ── branches ─────────────────────────────────────────────────────────────────────────────────


def fork_session(desk: ServerDesk, params: SessionParams, body: ForkBody) -> ActShape:
    """Branch off from a session at a place."""
    source = desk.open(params.session)
    return _shape(desk, source, source.fork(body.label, actor=desk.actor))


def rewind_session(desk: ServerDesk, params: SessionParams, body: RewindBody) -> ActShape:
    """Go on from the story at an earlier place."""
    to = desk.open(params.session)
    now = to.reload()
    after = now.rewind(to.seq, reason=body.reason, actor=desk.actor)
    return _shape(desk, now, after, not_undone=_effects_left(desk, after))


def _effects_left(desk: ServerDesk, session: Session) -> tuple[NotUndoneRow, ...]:
    """Return the effects beyond the files that a rewind leaves as they are."""
    body = session.events[-1].body
    if not isinstance(body, Rewound):
        return ()
    rows = list[NotUndoneRow]()
    for id in body.not_undone:
        event = desk.store.event(id)
        asked = _request_of(desk, event)
        rows.append(
            NotUndoneRow(
                event.log,
                event.seq,
                event.id,
                asked.tool if asked is not None else None,
                asked.arguments if asked is not None else None,
                event_text(event),
            )
        )
    return tuple(rows)


def _request_of(desk: ServerDesk, outcome: Event) -> ToolRequested | None:
    kinds = {ToolRequested.__name__}
    for event in desk.store.read(outcome.log, 1, outcome.seq, kinds=kinds, reverse=True):
        if event.header.call == outcome.header.call and isinstance(event.body, ToolRequested):
            return event.body
    return None


def merge_sessions(desk: ServerDesk, params: SessionParams, body: MergeBody) -> ActShape:
    """Take the results of other branches in. Where they disagree, choices are needed."""
    return _with_retries(params.session, lambda: _merge_once(desk, params, body))


def _merge_once(desk: ServerDesk, params: SessionParams, body: MergeBody) -> ActShape:
    into = _open_last(desk, params.session)
    others = [desk.open(other) for other in body.others]
    base = desk.open(body.base) if body.base else None
    chosen = {key: _content(each) for key, each in body.choices.items() if each.side is None}
    for _ in range(_CHOICES):
        try:
            after = into.merge(*others, resolve=chosen or None, base=base, actor=desk.actor)
            return _shape(desk, into, after)
        except MergeConflict as error:
            more = _sides_chosen(error, body.choices)
            if not more.keys() - chosen.keys():
                raise
            chosen |= more
    raise InvalidValue("choices", "they lead to ever new conflicts", "merge fewer branches")


def _content(choice: SideChoice) -> Any:
    return ABSENT if choice.drop else choice.value


def _sides_chosen(error: MergeConflict, choices: Mapping[str, SideChoice]) -> dict[str, Json]:
    """Return the content of the sides that were chosen, as the conflict has it."""
    found: dict[str, Json] = {}
    for key, sides in error.conflicts.items():
        choice = choices.get(key) or choices.get(key.removeprefix(f"{WORKSPACE}/"))
        if choice is None or choice.side is None:
            continue
        if choice.side not in sides:
            names = ", ".join(sides)
            raise InvalidValue(
                "choices", f"{choice.side!r} is no side of {key!r}", f"choose one of {names}"
            )
        found[key] = sides[choice.side]
    return found


# ── all acts ─────────────────────────────────────────────────────────────────────────────────


def _act(
    desk: ServerDesk, params: SessionParams, do: Callable[[Session], Session], *, last: bool = False
) -> ActShape:
    """Do something with a session. `last`: it has to be named as it is now, as it appends."""

    def act_once() -> ActShape:
        session = _open_last(desk, params.session) if last else desk.open(params.session)
        return _shape(desk, session, do(session))

    return _with_retries(params.session, act_once)


def _with_retries(name: str, act_once: Callable[[], ActShape]) -> ActShape:
    """Act on a session as it is now. If another was first, act on what it left, unless a place was
    named: then that place is meant.
    """
    tries = _TRIES if revision.parse(name).place is None else 1
    for _ in range(tries - 1):
        with suppress(StaleHead):
            return act_once()
    return act_once()


def _open_last(desk: ServerDesk, name: str) -> Session:
    """Open a session to append to. A place that others wrote after is refused."""
    session = desk.open(name)
    now = session.reload()
    if now != session:
        raise StaleHead(session.id, session.head, now.head, seq=now.seq)
    return session


def _shape(
    desk: ServerDesk,
    before: Session,
    after: Session,
    *,
    resume: str = "",
    about: str = "",
    not_undone: tuple[NotUndoneRow, ...] = (),
) -> ActShape:
    now = after.reload() if after.id == before.id else after
    is_new = after != before
    posted = None if is_new else _posted(after, about)
    run = open_run_of(now)
    waits = run is not None and not desk.store.is_locked(run)
    return ActShape(
        now.id,
        now.seq,
        now.head,
        now.short,
        now.status,
        is_new or posted is not None,
        event_shape(posted) if posted is not None else None,
        resume or (now.short if waits and posted is not None else ""),
        not_undone,
    )


def _posted(session: Session, about: str) -> Event | None:
    """Return the last event of an inbox; of an answer, the one that answers the ask."""
    events = session.inbox.events
    return next(
        (event for event in reversed(events) if not about or about in event.header.causes), None
    )
