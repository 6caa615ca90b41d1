"""Tests that resume runs, with a worker as the one who resumes them.

While this is in force, whatever takes up a run first claims it as a worker does: it takes the run
lock, and its claim is on record with the resume. The test, and the simulation that it may use, know
nothing of it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from plait.cluster.driving import claim_of
from plait.errors import PlaitError
from plait.journal.recorded_run import last_run, root_session
from plait.runs import take_up
from plait.runs.take_up import ClaimedRun, TakenRun
from plait.runtime.end import outside
from plait.session import Session
from plait.session.ports import store_at
from plait.workflow import Workflow

WORKER = "w.tests"
_take_run = take_up.take_run


def _claim_run(session: Session) -> ClaimedRun | None:
    """Claim the run of a session as `drive` does. None: there is none that can be claimed."""
    try:
        at = root_session(outside(session).reload())
        recorded = last_run(at)
        if recorded is None or recorded.is_finished:
            return None
        lock = store_at(at.store).lock(recorded.id, at.short)
    except PlaitError:  # the resume itself says why it cannot be
        return None
    return ClaimedRun(recorded.id, lock, claim_of(recorded, WORKER))


def _take_claimed(
    session: Session,
    workflow: Workflow | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *given: Any,
    claimed: ClaimedRun | None = None,
    **how: Any,
) -> TakenRun | Session:
    """`take_run`, of a run that is claimed first."""
    claimed = claimed or _claim_run(session)
    return _take_run(session, workflow, args, kwargs, *given, claimed=claimed, **how)


@contextmanager
def resumed_by_workers() -> Generator[None]:
    """Let a worker be the one who resumes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(take_up, "take_run", _take_claimed)
        yield
