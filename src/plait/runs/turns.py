"""Turns: messages to a session, each answered by a run of its own, one after another.

A message goes to the session's inbox and stands in a queue there, with those of all threads and
processes (`turn_queue.py`). Its client takes the turn when it is the first in the queue and no run
is open.

A client has a lock for as long as it attends to its turn. The turn of a client that is gone is
taken by the next client, or by a resume, and so is a run that a killed process left. Nothing but
the store is shared between processes; the waits between two looks are short, and shorter for the
first in the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, Self, cast

import msgspec

from plait import secrets
from plait.errors import InvalidValue, KeyTaken, RunHeld, RunOpen, TurnFailed
from plait.event import VOCABULARY, Event
from plait.event import kinds as k
from plait.event.hidden import without_secrets
from plait.ids import Digest, LogId, house_of, inbox_of
from plait.inside import is_started_by
from plait.journal.recorded_run import last_run
from plait.journal.writer import direct_writer
from plait.model.base import Delta
from plait.program import check_arguments, check_workflow
from plait.runs.turn_queue import (
    LOOK_AHEAD,
    QueueClient,
    Step,
    TakeTurn,
    TakeUp,
    WaitFor,
    check_not_over,
)
from plait.runtime.attendants import Watch, note_heard_events
from plait.runtime.end import outside
from plait.runtime.executing import executing
from plait.runtime.invoke import EnteredCall, Invocation, check_call
from plait.runtime.listeners import Listeners, OnEvent
from plait.runtime.names import import_path
from plait.session import Session
from plait.session.acting import acting_in
from plait.session.content import pack
from plait.session.pauses import check_not_paused
from plait.session.ports import Act, Draft, Position, is_bound, store_at
from plait.session.run_rows import find_run_row, run_of_branch
from plait.session.session import session_at
from plait.session.state import Known
from plait.session.turn_rows import queued_turns, run_of_turn, turn_row, turn_with_key
from plait.session.value import (
    core_of,
    delivered_seq,
    open_run_of,
    reload,
    state_of,
    value_at_end,
)
from plait.store import Log, Row, RunLock, Store
from plait.workflow import Workflow, original, target_of

_FIRST_S, _FIRST_MAX_S = 0.002, 0.025  # between two looks of the first in the queue
_NEXT_S, _NEXT_MAX_S = 0.02, 0.5  # of those behind it, for each place
# A session takes no turns after these: a message and a close, or a move, never miss each other.
_ENDS = frozenset({k.SessionClosed.__name__, k.SessionMoved.__name__})


class Posted(NamedTuple):
    """A turn that its client has posted, and what it has read and made ready for that."""

    turn: Event
    heads: Mapping[LogId, Log]  # of the session as it was then, of its inbox and of the house
    call: Invocation  # that answers it, if nothing comes first


class TurnClient(QueueClient):
    """One turn, from its message in the inbox to the end of its run."""

    def __init__(
        self,
        session: Session,
        turn: Digest,
        workflow: Workflow,
        watch: Watch,
        lock: RunLock | None = None,
        posted: Posted | None = None,  # None: it was posted before
    ) -> None:
        super().__init__(session, workflow, watch, turn)
        self.turn = turn
        self._lock, self._posted, self._looks = lock, posted, 0
        self._told: _ToldEvents | None = None  # None: no other process was seen to run the turn

    def look(self) -> Step:
        """Return the step that is due now; raises if the turn cannot go on."""
        # The session is read before the queue: a turn that is taken since then has moved the head,
        # and the append of a second start is refused.
        if self._looks or self._posted is None:  # else the post has read it
            self.session = reload(self.session)
        self._looks += 1
        queue = queued_turns(self.store, self.session.id, LOOK_AHEAD)
        ahead = next((at for at, each in enumerate(queue) if each["id"] == self.turn), None)
        if ahead is None:
            row = turn_row(self.store, self.turn)
            if row["end"] is not None and row["queued"] is None:
                return self._ended_session(int(str(row["end"])))
            if row["start"] is None:
                ahead = LOOK_AHEAD  # beyond the places that are looked at
        step = self.due_step(queue)
        if step is None and ahead is None:
            self._follow_run()
        elif isinstance(step, TakeUp) and self._told is not None:
            self._told.tell(self.session.seq)
        return step or self._wait(ahead)

    def check_not_paused(self) -> None:
        if self._looks > 1 or self._posted is None:  # else the post has looked
            super().check_not_paused()

    def event_of(self, row: Row) -> Event:
        if row["id"] == self.turn and self._posted is not None:
            return self._posted.turn
        return super().event_of(row)

    def call_of(self, step: TakeTurn, on_start: Callable[[EnteredCall], object]) -> Invocation:
        posted = self._posted
        if posted is None or self._looks > 1 or step.turn is not posted.turn:
            return super().call_of(step, on_start)
        return msgspec.structs.replace(
            posted.call, turn=step.turn, heads=posted.heads, on_start=on_start
        )

    def _wait(self, ahead: int | None) -> WaitFor:
        """Wait a little: the longer, the more turns are before this one.

        None: it has a run.
        """
        if not ahead:
            return WaitFor(min(_FIRST_S * 1.5 ** min(self._looks, 10), _FIRST_MAX_S))
        return WaitFor(min(_NEXT_S * (ahead + 1), _NEXT_MAX_S))

    def _ended_session(self, seq: int) -> Session:
        """Return the session after the turn, or raise if it has no answer."""
        here = self.session
        if self._told is not None:
            self._told.tell(seq)
        event = next(self.store.read(here.id, seq, seq))
        body = event.body
        if isinstance(body, k.RunFailed):
            is_last = _is_last_run(here, event.header.run or "")
            why = f"{body.failure.kind}: {body.failure.message}"
            raise TurnFailed(here.short, seq, why, can_resume=is_last)
        if isinstance(body, k.RunCancelled):
            reason = f": {body.reason}" if body.reason else ""
            why = f"{body.by} cancelled it{reason}"
            if not body.by:
                why = "its process let go of it, and the session went on without it"
            raise TurnFailed(here.short, seq, why)
        return session_at(Position(here.store, here.id, seq, event.id))

    def watch_of(self, step: TakeTurn | TakeUp) -> Watch:
        watch = super().watch_of(step)
        if self._told is None or not self.is_own(step):
            return watch
        return watch._replace(on_event=self._told.pass_on)

    def end_step(self, after: Session) -> None:
        if self._told is not None:  # the run may have ended before it was to be taken up
            self._told.tell(after.seq)

    def _follow_run(self) -> None:
        """Tell the listener of the events that another client's run of this turn has written."""
        if self._told is None:
            run = find_run_row(self.store, run_of_turn(self.turn))
            if self.watch.on_event is None or self._posted is not None or run is None:
                return
            watch = note_heard_events(self.watch, self.session)
            assert watch.on_event is not None
            self._told = _ToldEvents(self.session, watch.on_event, int(str(run["seq"])))
        self._told.tell(self.session.seq)

    # ── the lock ─────────────────────────────────────────────────────────────────────────────

    def release(self) -> None:
        super().release()
        if self._lock is not None:
            self._lock.release()

    @classmethod
    def post(
        cls,
        session: Session,
        content: Any,
        workflow: Workflow,
        key: str,
        actor: str | None,
        watch: Watch,
    ) -> Self:
        """Put a message into the queue, and return its client; with a key that is there already,
        that of the turn which has it.
        """
        if isinstance(content, Workflow):
            step = "write the text first: session.turn(TEXT, workflow)"
            raise InvalidValue("content", "that is a workflow", step)
        session, heads = _check_turn(session, workflow, key)
        parts, blobs = _packed(content)
        store = store_at(session.store)
        key = secrets.hide_text(key)  # as it is stored
        if key and (known := _turn_with_key(session, key)) is not None:
            _check_same_words(session, known, key, parts)
            return cls(session, known, workflow, watch)
        _check_allowed(session)
        check_arguments(workflow, (), {})
        call = workflow.invocation(session, watch=watch)
        check_call(call)
        client, lock = _new_lock(store, session)
        try:
            path, target = import_path(type(workflow)), target_of(workflow) or None
            body = k.TurnPosted(parts, client, key, session.id, path, target)
            draft = Draft(body, _act_of_turn(session, actor))
            (turn,) = direct_writer().append_to_ends(
                store,
                [(inbox_of(session.id), [draft])],
                [session.id],
                blobs,
                _check_before_post(session, key),
                kinds=_ENDS,
                logs=[session.id],
                heads=heads,
            )
        except _KeyIsKnown as found:
            lock.release()
            _check_same_words(session, found.turn, key, parts)
            return cls(session, found.turn, workflow, watch)
        except BaseException:
            lock.release()
            raise
        return cls(session, turn.id, workflow, watch, lock, Posted(turn, heads, call))


def _is_last_run(session: Session, run: str) -> bool:
    """True if no other run began in a session since this one."""
    last = last_run(session)
    return last is not None and last.id == run


class _ToldEvents:
    """Tells a listener the events of a log, each once, from a seq on."""

    def __init__(self, session: Session, on_event: OnEvent, first: int) -> None:
        self._session, self._on_event, self._next = session, on_event, first
        self._listeners = Listeners(on_event)

    def pass_on(self, item: Event | Delta) -> object:
        """Tell what the run says itself, now that it goes on in this process."""
        if isinstance(item, Event) and item.log == self._session.id:
            self._next = max(self._next, item.seq + 1)
        return self._on_event(item)

    def tell(self, last: int) -> None:
        """Tell the events up to this one."""
        if last >= self._next:
            events = store_at(self._session.store).read(self._session.id, self._next, last)
            self._next = last + 1
            self._listeners.tell_all(list(events))


def check_turn(session: Session, content: Any, workflow: Workflow) -> None:
    """Raise as the post of a turn would, and write nothing."""
    session, _ = _check_turn(session, workflow, "")
    _check_allowed(session)
    check_not_paused(core_of(session), "take turns")
    VOCABULARY.encode(k.TurnPosted(_packed(content)[0], ""))
    check_arguments(workflow, (), {})
    check_call(workflow.invocation(session))


def _packed(content: Any) -> tuple[k.Parts, dict[Digest, bytes]]:
    every = cast("tuple[Any, ...]", content) if isinstance(content, tuple) else (content,)
    parts, blobs = pack(every, "content")
    if not parts:
        raise InvalidValue("content", "nothing is said", "pass a text")
    return parts, blobs


def _check_turn(
    session: Session, workflow: Workflow, key: str
) -> tuple[Session, Mapping[LogId, Log]]:
    """Return the session as it is now, and the ends of its log, its inbox and the house log that
    were read for it; raises, before anything is written, if there can be no such turn.
    """
    if workflow is None:  # pyright: ignore[reportUnnecessaryComparison]  callers without types exist
        raise InvalidValue("workflow", "there is none", "pass the workflow that is to answer")
    check_workflow(workflow)
    if original(type(workflow)) is Workflow.forward:
        why = f"{type(workflow).__name__} has no forward(self, session)"
        raise InvalidValue("workflow", why, "write one, and return the session that came last")
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise InvalidValue("key", f"a {type(key).__name__} is not a text", 'pass key="request-17"')
    if is_bound(session.run):
        raise InvalidValue(
            "session",
            "it is a value of a run, whose turn this is",
            "call the workflow itself: workflow(session)",
        )
    _check_not_own_run(session)
    store = store_at(session.store)
    heads = store.heads([session.id, inbox_of(session.id), house_of(store.id)])
    log = heads.get(session.id) or store.log(session.id)  # which raises
    session = value_at_end(outside(session), log)
    _check_not_started_by_run(session)
    return session, heads


def _check_allowed(session: Session) -> None:
    """Raise if a session takes no turns: it is over, or a branch of an open run."""
    check_not_over(session)
    if core_of(session).is_busy() and open_run_of(session) is None:
        store = store_at(session.store)
        run = run_of_branch(store, store.log(session.id)) or ""
        raise RunOpen(session.short, run, "take turns", "take them in a fork: session.fork()")


def _check_not_own_run(session: Session) -> None:
    """Raise if this is code of a run of the session: the turn would wait for the end of that run,
    and the run for the turn.
    """
    here = executing()
    fence = here[0].journal.fence if here is not None else None
    while fence is not None:
        if (fence.root, fence.home) == (session.id, session.store):
            why = "this is code of its open run, and the turn would wait for the end of that run"
            raise InvalidValue("session", why, "call the workflow itself: workflow(session)")
        fence = fence.outer


def _check_not_started_by_run(session: Session) -> None:
    """Raise if code of the run that is open in the session started this process: both would wait
    for each other, too.
    """
    run = open_run_of(session)
    if run is not None and is_started_by(run) and store_at(session.store).is_locked(run):
        why = "code of its open run started this process, and the turn would wait for that run"
        raise InvalidValue("session", why, "have that code call the workflow: workflow(session)")


def _act_of_turn(session: Session, actor: str | None) -> Act:
    """Return the act of posting a turn. Code of a run acts on behalf of the run's principal,
    whatever name it gives.
    """
    act, here = acting_in(session, actor), executing()
    return act if here is None else act._replace(behalf=here[0].settings.behalf)


def _turn_with_key(session: Session, key: str) -> Digest | None:
    """Return the turn that has this key. None: there is none, or it was rewound away."""
    turn = turn_with_key(store_at(session.store), session.id, key)
    row = turn_row(store_at(session.store), turn) if turn is not None else None
    if row is None or row["end"] is None or row["queued"] is not None:
        return turn
    story = Known(state_of(reload(session)).story.path)  # the turn may have ended just now
    return turn if story.has(session.id, int(str(row["end"]))) else None


class _KeyIsKnown(Exception):
    def __init__(self, turn: Digest) -> None:
        self.turn = turn


def _check_before_post(session: Session, key: str) -> Callable[[Sequence[Event]], None]:
    """Return a check that raises if the session is closed or paused first, or another client posts
    the same key first. The session was read right before.
    """
    rounds = count()

    def check(events: Sequence[Event]) -> None:
        if key and (known := _turn_with_key(session, key)) is not None:
            raise _KeyIsKnown(known)
        now = session
        if next(rounds):  # another writer was first
            now = reload(session)
            check_not_over(now)
        has_unheard_events = events[0].seq > delivered_seq(now) + 1
        if has_unheard_events or core_of(now).life.paused:
            check_not_paused(core_of(now), "take turns")

    return check


def _check_same_words(session: Session, turn: Digest, key: str, parts: k.Parts) -> None:
    """Raise if the turn that has this key says something else: a retry says the same."""
    body = store_at(session.store).event(turn).body
    assert isinstance(body, k.TurnPosted)
    if body.parts != without_secrets(k.TurnPosted(parts, "")).parts:
        raise KeyTaken(session.short, key, turn)


def _new_lock(store: Store, session: Session) -> tuple[str, RunLock]:
    """Return the name of a lock that no other client has, and the lock."""
    source = direct_writer().source(session.store)
    for number in count():
        client = str(source.fresh("turn", session.id, session.seq, number))
        try:
            return client, store.lock(client, session.short)
        except RunHeld:  # a seeded source gives the same names to all
            continue
    raise AssertionError
