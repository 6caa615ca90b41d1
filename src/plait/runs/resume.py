"""Resume a session: go on with its run, and answer the messages that no client attends to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plait.errors import NothingToResume
from plait.ids import inbox_of
from plait.runs.take_up import aresume_run, resume_run
from plait.runs.turn_drivers import aanswer_queue, answer_queue
from plait.runtime.attendants import Watch
from plait.runtime.drivers.on_loop import run_in_thread
from plait.runtime.end import outside
from plait.runtime.listeners import OnEvent
from plait.runtime.policy import Approver
from plait.runtime.settings import Answerer
from plait.session import Session
from plait.session.pauses import is_paused
from plait.session.ports import store_at
from plait.session.status import has_left_turns
from plait.session.value import core_of
from plait.store import Store
from plait.workflow import Workflow


def resume(
    session: Session | str,
    workflow: Workflow | None = None,
    /,
    *args: Any,
    store: str | Path | Store | None = None,
    on_event: OnEvent | None = None,
    approver: Approver | None = None,
    answerer: Answerer | None = None,
    accept: str | None = None,
    **kwargs: Any,
) -> Session:
    """Go on with the run of a session that did not come to its end: after a crash, a failure, a
    pause, or a wait for a person. Then answer the messages of `session.turn` whose clients are
    gone, in their order.

    The program and the arguments of its `forward` are found in the log, unless they are passed.
    Recorded effects are not repeated. `accept` is the reason to go on with a changed program: live
    from the first step in which it differs from the record.
    """
    if not isinstance(session, Session):
        session = Session.open(session, store=store)
    watch = Watch(on_event, approver, answerer)
    try:
        after = resume_run(session, workflow, args, kwargs, watch, None, accept=accept)
    except NothingToResume:
        if not _takes_up_queue(session):
            raise
        after = session
    if not _has_inbox(session, after):
        return after
    # a branch may have messages of its own, and no run
    is_left = session.id != after.id and _has_left_turns(session)
    return answer_queue(session if is_left else after, workflow, watch)


async def aresume_session(
    session: Session,
    workflow: Workflow | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    watch: Watch,
    accept: str | None,
) -> Session:
    """Resume as `resume` does, on this event loop."""
    try:
        after = await aresume_run(session, workflow, args, kwargs, watch, accept)
    except NothingToResume:
        if not await run_in_thread(lambda: _takes_up_queue(session)):
            raise
        after = session
    if not await run_in_thread(lambda: _has_inbox(session, after)):
        return after
    is_left = session.id != after.id and await run_in_thread(lambda: _has_left_turns(session))
    return await aanswer_queue(session if is_left else after, workflow, watch)


def _takes_up_queue(session: Session) -> bool:
    """True if messages wait that no client attends to. A pause that holds them is lifted."""
    now = outside(session).reload()
    if is_paused(core_of(now)) and now.inbox.queued:
        now.unpause(reason="resumed")
    return _has_left_turns(session)


def _has_inbox(*sessions: Session) -> bool:
    """True if anything was ever posted to one of these sessions of one store."""
    inboxes = [inbox_of(session.id) for session in sessions]
    return bool(store_at(sessions[0].store).heads(inboxes))


def _has_left_turns(session: Session) -> bool:
    return has_left_turns(store_at(session.store), session.id)
