"""Appends to a session's log, or to its inbox while a run holds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from plait.errors import GateUnmet, RunOpen, StaleHead
from plait.event import Body
from plait.ids import Digest
from plait.session.acting import Because, acting_in
from plait.session.event_fold import STATE_KINDS
from plait.session.inbox import post, reply
from plait.session.life import life_after
from plait.session.moves import check_arrived, check_may
from plait.session.pauses import life_now
from plait.session.ports import (
    Condition,
    Draft,
    Position,
    SessionLike,
    host,
    is_bound,
    store_at,
    writer_of,
)
from plait.session.run_rows import run_of_branch
from plait.session.value import (
    S,
    SessionValue,
    core_of,
    keep_snapshot_if_due,
    next_value,
    open_run_of,
    position_of,
    reload,
)
from plait.session.verdicts import unmet_gates
from plait.session.views import Waiting
from plait.session.work_rows import WORK_BELL


def append_to(
    session: S,
    body: Body,
    verb: str,
    *,
    actor: str | None = None,
    origin: str | None = None,
    because: Because = (),
    blobs: dict[Digest, bytes] | None = None,
    merges: tuple[Digest, ...] = (),
    instead: str = "",  # the advice while a run is open; "": it goes to the inbox
    # True: it may be appended all the same while no process holds that run
    unheld: bool = False,
    more: Sequence[Draft] = (),  # written with it
    condition: Condition | None = None,
) -> S:
    """Append one event and return the next value. `verb` names the attempt in an error."""
    core = core_of(session)
    check_may(core, verb)
    draft = Draft(body, acting_in(session, actor, because, origin))
    if (run := run_of_others(session)) is not None and not (
        unheld and not host(verb).is_held(session, run)
    ):
        if instead:
            raise RunOpen(core.short, run, verb, instead)
        return post_to_inbox(session, draft, verb, blobs)
    drafts = [draft, *more]
    return append_drafts(session, drafts, merges=merges, blobs=blobs, condition=condition)


def append_drafts(
    session: S,
    drafts: Sequence[Draft],
    *,
    merges: tuple[Digest, ...] = (),
    blobs: dict[Digest, bytes] | None = None,
    condition: Condition | None = None,
) -> S:
    """Append events in one transaction and return the next value."""
    core = core_of(session)
    here, life = core.position, core.life
    try:
        position = writer_of(here.run).append(
            here, drafts, merges=merges, blobs=blobs, condition=condition
        )
    except StaleHead as error:
        # taken over by a run since: the error says so
        if (run := run_of_others(reload(session))) is not None:
            raise StaleHead(error.log, error.expected, error.found, error.seq, run) from None
        raise
    near = core.near
    is_plain = (
        near is not None
        and near.log == here.id
        and (core.is_plain or near.place == here.seq)
        and position.seq == here.seq + len(drafts)
    )
    for draft in drafts:
        kind = type(draft.body).__name__
        life = life_after(life, kind)
        is_plain = is_plain and kind not in STATE_KINDS
    after = next_value(session, position, life, core.busy, is_plain=is_plain)
    # It is written: an error in a cache must not look as if it were not.
    keep_snapshot_if_due(after, since=here.seq)
    return after


def post_to_inbox(
    session: S, draft: Draft, verb: str, blobs: dict[Digest, bytes] | None = None
) -> S:
    """Write to the session's inbox and return the same value: its own log does not change."""
    return post_all_to_inbox(session, [draft], verb, blobs)


def post_all_to_inbox(
    session: S, drafts: Sequence[Draft], verb: str, blobs: dict[Digest, bytes] | None = None
) -> S:
    """Write several events to the session's inbox, in one transaction."""
    now = core_of(reload(session))
    check_may(now, verb, life_now(now))
    run = session.run if _is_lent(session) else None
    post(session.store, session.id, drafts, blobs=blobs, run=run)
    store_at(session.store).ring(WORK_BELL)
    return session


def reply_to(
    session: S,
    ask: Waiting,
    body: Body,
    actor: str | None,
    blobs: dict[Digest, bytes] | None = None,
) -> S:
    """Answer an ask through the inbox and return the same value."""
    check_may(core_of(reload(session)), "take answers")
    reply(position_of(session), ask, body, acting_in(session, actor), blobs=blobs)
    store_at(session.store).ring(WORK_BELL)
    return session


def run_of_others(session: SessionValue) -> str | None:
    """The run that is open in this session as it is now, if this value is not one of its own.

    None: an append disturbs no run. Raises StillArriving if a copy of it has not ended: a value
    that was read since the copy began does not know how it stands.
    """
    core = core_of(session)
    run = core.position.run
    if _is_lent(session):
        return open_run_of(reload(session)) or run
    if core.busy is False or is_bound(run):
        return None
    check_arrived(core.store, [session.id])
    if not core.is_busy():
        return None
    return open_run_of(reload(session)) or run_of_branch(core.store, core.store.log(session.id))


def _is_lent(session: SessionValue) -> bool:
    """True if this is a value of a run that goes on, used by a thread that is not the run's."""
    position = core_of(session).position
    run = position.run
    return run is not None and is_bound(run) and not writer_of(run).has_in_hand(position)


def refuse_if_busy(session: SessionValue, verb: str, instead: str) -> None:
    if (run := run_of_others(session)) is not None:
        raise RunOpen(session.short, run, verb, instead)


def value_from_host(session: S, back: Position | SessionLike) -> S:
    """The value that a host gave back, or the value at the position that it gave."""
    if isinstance(back, SessionValue):
        return cast("S", back)
    return next_value(session, cast("Position", back))


def wait_for_gates(session: S, gated: tuple[S, ...], verb: str) -> tuple[S, ...]:
    """Return these sessions as they stand once every required verdict is there.

    In a run it waits for them; outside of one it raises GateUnmet.
    """
    unmet = next(
        ((each, name, why) for each in gated for name, why in unmet_gates(each).items()), None
    )
    if unmet is None:
        return gated
    if is_bound(session.run):
        waited = host("wait for a verdict").past_gates(session, gated, verb)
        return tuple([cast("S", each) for each in waited])
    raise GateUnmet(unmet[0].short, unmet[1], unmet[2], verb)
