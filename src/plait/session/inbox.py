"""The inbox: the lane of all other writers.

While a run holds a session, only the run appends to its log: a message, an approval, a wish to
cancel goes to the session's inbox, a log of its own with many writers, hash-linked like any other.
The run delivers at safe points: it reads the events that have arrived since the last time and
appends them to the session's log, after `Delivered`.

The asks that wait are a fold over the session's own log, less those answered in the inbox by now;
across all sessions they are kept as rows.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

import msgspec

from plait.errors import (
    AlreadyAnswered,
    AmbiguousRevision,
    AskExpired,
    InvalidValue,
    MayNotApprove,
    UnknownAsk,
    UnknownLog,
    WrongAskKind,
)
from plait.event import Body, Event
from plait.event.kinds import ToolRequested, ValidationRecorded
from plait.ids import Digest, LogId, Micros, inbox_of, short
from plait.session.ask_rows import InboxRows, waiting_of
from plait.session.asks import (
    ASKS,
    LIFE_OF_ASKS,
    ask_of,
    is_answer,
    is_late,
    open_asks,
    refusal_reason,
)
from plait.session.gates import is_judge
from plait.session.ports import Act, Draft, Position, store_at, writer_of
from plait.session.run_rows import is_run_over
from plait.session.views import Waiting, WaitKind
from plait.store import Row, Store

ASK_MIN = 4  # characters of an ask's id that are enough to name it, if no other one begins so
_ALL = 2**31


# ── the lane ─────────────────────────────────────────────────────────────────────────────────


def post(
    store_address: str,
    log: LogId,
    drafts: Sequence[Draft],
    *,
    blobs: Mapping[Digest, bytes] | None = None,
    check: Callable[[Sequence[Event]], object] | None = None,
    run: str | None = None,
) -> list[Event]:
    """Append to the inbox of a log, beginning it if need be: durable on return, also while others
    write there. See `Writer.post`.
    """
    return writer_of(run).post(store_address, log, drafts, blobs=blobs, check=check, run=run)


def inbox_events(store: Store, log: LogId, after: int = 0) -> list[Event]:
    """Return the events of a log's inbox after this place.

    It is called before every effect: one query, as long as there is nothing new.
    """
    inbox = inbox_of(log)
    try:
        tip = store.log(inbox).tip
    except UnknownLog:
        return []
    return list(store.read(inbox, after + 1, tip)) if tip > after else []


# ── asks that wait ───────────────────────────────────────────────────────────────────────────


def waiting_in(store: Store, log: LogId, first: int, last: int) -> list[Waiting]:
    """Return the asks that a log's own events from first to last leave open, less those answered by
    now.
    """
    found = asks_in(store, log, first, last)
    given = {
        about: inbox_events(store, about)
        for about in dict.fromkeys(ask.of or ask.log for ask in found)
    }
    return [
        with_request(store, ask)
        for ask in found
        if not any(is_answer(ask, event) for event in given[ask.of or ask.log])
    ]


def asks_in(store: Store, log: LogId, first: int, last: int) -> list[Waiting]:
    """Return the asks that a log's own events from first to last leave open, answered by now or
    not.
    """
    found = open_asks(store.read(log, first, last, kinds=LIFE_OF_ASKS)).values()
    return [ask for ask in found if ask.run is None or not is_run_over(store, ask.run)]


def all_waiting(store: Store, *, answered: bool = False) -> list[Waiting]:
    """Return the asks that wait in all sessions, in their order; with `answered`, also those that
    are answered and not delivered yet.
    """
    rows = store.rows(
        InboxRows.name,
        "ask",
        {"over": 0} if answered else {"answered": 0, "over": 0},
        order="number",
        limit=_ALL,
    )
    return [with_request(store, waiting_of(store, row)) for row in rows]


def waiting_in_branches(store: Store, run: str, root: LogId) -> list[Waiting]:
    """Return the asks of the branches of a run, in their order, less those that are answered."""
    wanted = {"run": run, "answered": 0, "over": 0}
    rows = store.rows(InboxRows.name, "ask", wanted, order="number", limit=_ALL)
    return [with_request(store, waiting_of(store, row)) for row in rows if row["log"] != root]


def ask_in_branches(store: Store, run: str, root: LogId, name: str) -> Waiting | None:
    """Return the ask whose id begins like this, in a branch of a run. None: there is none, or there
    are several.
    """
    wanted = {"run": run, "over": 0}
    rows = store.rows(InboxRows.name, "ask", wanted, order="number", limit=_ALL)
    found = [row for row in rows if row["log"] != root and str(row["id"]).startswith(name)]
    return with_request(store, waiting_of(store, found[0])) if len(found) == 1 else None


def due_sessions(store: Store, now: Micros) -> list[LogId]:
    """Return the sessions that could go on if they were resumed: a time is over, an answer is
    there, or they are to be cancelled.

    These are the logs that wait; a branch goes on through the session its run began on: `root_of`.
    """
    return list(_due_rows(store, now))


def due_roots(store: Store, now: Micros) -> list[LogId]:
    """Return the sessions to resume, so that those which could go on do."""
    due = _due_rows(store, now).items()
    return [root_of(store, str(row["run"]) if row["run"] else None, log) for log, row in due]


def _due_rows(store: Store, now: Micros) -> dict[LogId, Row]:
    """Return one ask that is due of each log that has some, in their order."""
    woken = store.rows(InboxRows.name, "ask", {"woken": 1}, order="number", limit=_ALL)
    late = store.rows(
        InboxRows.name, "ask", order="until", descending=True, before=now + 1, limit=_ALL
    )
    found = dict[LogId, Row]()
    for row in (*late[::-1], *woken):
        if not row["over"]:
            found.setdefault(LogId(str(row["log"])), row)
    return found


def root_of(store: Store, run: str | None, log: LogId) -> LogId:
    """Return the session that a run began on; outside of runs, or without a row, the log itself."""
    found = store.rows(InboxRows.name, "run", {"run": run}, limit=1) if run is not None else []
    return LogId(str(found[0]["log"])) if found else log


def with_request(store: Store, ask: Waiting) -> Waiting:
    """Return an approval, or an unknown outcome, with the tool and arguments of its request."""
    if ask.kind == "approval":
        causes = store.event(ask.event).header.causes
    else:
        causes = (ask.request,) if ask.kind == "unknown" and ask.request is not None else ()
    for cause in causes:
        body = store.event(cause).body
        if isinstance(body, ToolRequested):
            return msgspec.structs.replace(ask, tool=body.tool, arguments=body.arguments)
    return ask


def failed_verdict(store: Store, ask: Waiting) -> Event | None:
    """Return the last verdict that a gate was given while a run waited for it, if it is that it
    failed. None: there is none.
    """
    about = ask.of or ask.log
    own = store.read(
        about,
        ask.seq + 1 if about == ask.log else 1,
        kinds={ValidationRecorded.__name__},
        reverse=True,
    )
    given = [*reversed(inbox_events(store, about, ask.heard)), *own]
    for event in given:
        body = event.body
        if (
            isinstance(body, ValidationRecorded)
            and body.name == ask.name
            and is_judge(ask.by, event.actor, body.by)
        ):
            return None if body.passed else event
    return None


# ── answering ────────────────────────────────────────────────────────────────────────────────


def find_ask(
    open_now: Sequence[Waiting],
    name: Waiting | Event | str,
    *,
    kinds: Sequence[WaitKind],
    session: str = "",
) -> Waiting:
    """Return the ask of this name: itself, its event, or the start of the id of its event, binding,
    call or request.
    """
    if isinstance(name, (Waiting, Event)):
        text = name.event if isinstance(name, Waiting) else name.id
        found = [ask for ask in open_now if text in (ask.event, ask.request)]
    elif isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        text = name.strip()
        found = [
            ask
            for ask in open_now
            if any(_is_start(text, id) for id in (ask.event, ask.binding, ask.call, ask.request))
        ]
    else:
        raise InvalidValue(
            "ask",
            f"a {type(name).__name__} names no ask",
            "pass one of session.inbox.waiting, or the start of its id",
        )
    named, found = found, [ask for ask in found if ask.kind in kinds]
    if len(found) > 1:
        raise AmbiguousRevision(
            text, tuple(f"{ask.event[:16]} ({ask.kind} in {ask.session})" for ask in found)
        )
    if named and not found:
        ask = named[0]
        wanted = " or ".join([_KIND_NAMES[kind] for kind in kinds])
        raise WrongAskKind(
            session or ask.session,
            ask.event[:12],
            ask.kind,
            f"it is {_KIND_NAMES[ask.kind]}, not {wanted}",
            _answer_step(ask),
        )
    if not found:
        short = (
            f"; the start of an id has at least {ASK_MIN} characters" if len(text) < ASK_MIN else ""
        )
        raise UnknownAsk(
            session,
            text,
            f"nothing that waits for {' or '.join(map(_kind_text, kinds))} is called that{short}",
        )
    return found[0]


def _is_start(text: str, id: str | None) -> bool:
    return bool(id) and (text == id or (len(text) >= ASK_MIN and (id or "").startswith(text)))


def ask_now(spot: Position, name: Waiting | Event | str, *kinds: WaitKind) -> Waiting:
    """Return the ask of this name in a session as it is now, or raise if it has been answered, or
    is over.
    """
    store, session = store_at(spot.store), short(spot.id)
    log = store.log(spot.id)
    try:
        return find_ask(
            asks_in(store, log.id, log.place + 1, log.tip), name, kinds=kinds, session=session
        )
    except UnknownAsk:
        # of a branch, as `session.inbox.waiting` has it
        if isinstance(name, Waiting) and name.log != log.id:
            return ask_now(Position(spot.store, name.log, 0, log.head), name, *kinds)
        asked = [
            ask
            for event in store.read(log.id, log.place + 1, log.tip, kinds=ASKS)
            if (ask := ask_of(event)) is not None
        ]
        over = find_ask(asked, name, kinds=kinds, session=session)
    refuse_second(store, over)
    raise UnknownAsk(
        session, over.event[:12], "it is not open any more: it was settled, or its run is over"
    )


def _kind_text(kind: WaitKind) -> str:
    return {
        "approval": "an approval",
        "question": "an answer",
        "unknown": "a resolution",
        "timer": "a time",
        "verdict": "a verdict",
    }[kind]


_KIND_NAMES: Mapping[WaitKind, str] = {
    "approval": "a call that waits for an approval",
    "question": "a question",
    "unknown": "a call whose outcome is not known",
    "timer": "a wait for a time or a signal",
    "verdict": "a gate that waits for a verdict",
}


def _answer_step(ask: Waiting) -> str:
    """Return how an ask of its kind is answered, in Python and in a shell."""
    id = ask.event[:8]
    match ask.kind:
        case "approval":
            return (
                f"allow it or refuse it: session.inbox.approve({id!r}) or .deny({id!r}, reason),"
                f" `plait approve {id}` or `plait deny {id}`"
            )
        case "question":
            return f"answer it: session.inbox.answer({id!r}, value), or `plait answer {id} …`"
        case "unknown":
            return (
                "find out what became of it, and write that down:"
                f" session.inbox.resolve({id!r}, verdict), or"
                f" `plait resolve {id} happened|did-not-happen|compensated`"
            )
        case "verdict":
            of, name = short(ask.of or ask.log), ask.name
            return (
                f"give the verdict: session.checks.record({name!r}, True) on session {of}, or"
                f" `plait validate {of} {shlex.quote(name)} passed|failed`"
            )
        case "timer":
            if not ask.name:
                return f"it ends at its time; then `plait resume {ask.session}`"
            name = ask.name
            return (
                f"send the signal: session.inbox.signal({name!r}), or"
                f" `plait signal {ask.session} {shlex.quote(name)}`"
            )


def reply(
    spot: Position,
    ask: Waiting,
    body: Body,
    act: Act,
    *,
    blobs: Mapping[Digest, bytes] | None = None,
) -> Event:
    """Put an answer into the inbox, if its actor may answer and no answer is there yet."""
    store = store_at(spot.store)
    session = short(spot.id)
    if (why := refusal_reason(ask, act.actor)) is not None:
        raise MayNotApprove(session, act.actor, why)

    def check(events: Sequence[Event]) -> None:
        if is_late(ask, events[0].header.time):
            raise AskExpired(session, ask.event, ask.expires or 0)
        refuse_second(store, ask)

    return writer_of(spot.run).post(
        spot.store,
        ask.log,
        [Draft(body, act._replace(causes=(ask.event,)))],
        blobs=blobs,
        check=check,
    )[0]


def refuse_second(store: Store, ask: Waiting) -> None:
    for event in inbox_events(store, ask.log):
        if is_answer(ask, event):
            raise AlreadyAnswered(short(ask.log), ask.event, event.kind, event.actor)
