"""The tests of runs and the simulation can have a worker as the one who resumes."""

from __future__ import annotations

from plait import Session
from plait.runs.resume import resume
from plait.testing.simulation import Simulation
from tests.cluster.flows import Sleeps, Wire
from tests.support import claims_of, parked_session, resumed_by_workers
from tests.support.resuming import WORKER


def test_a_history_of_deaths_has_claims_on_record() -> None:
    simulation = Simulation(7, crash_at=(6, 9))
    with resumed_by_workers():
        session = simulation.run(Wire())
    assert simulation.crashes == 2 and session.text == "wired"
    assert {claim.worker for claim in claims_of(session)} == {WORKER}
    assert "taken over" in [claim.chosen for claim in claims_of(session)]
    simulation.close()


def test_a_resume_that_a_test_asks_for_is_a_claim() -> None:
    session = parked_session(lambda: Wire()(Session("Go.")))
    (ask,) = session.inbox.waiting
    session.inbox.approve(ask, actor="human:ann")
    with resumed_by_workers():
        assert resume(session, Wire()).text == "wired"
    assert [claim.worker for claim in claims_of(session)] == [WORKER]


def test_without_it_no_worker_is_named() -> None:
    session = Sleeps()(Session("Go."), seconds=0.01)
    assert not claims_of(session)
