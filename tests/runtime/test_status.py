"""The status of sessions and runs: what the events, the rows and the run lock say, in one word."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from plait import Session, Workflow, open_store, resume
from plait.errors import InvalidValue, NoEndedRun, PlaitError, WrongStatus
from plait.memory.evidence import sort_of
from plait.session import InboxRows, SessionRows
from plait.session.audit import verify
from plait.session.life import STATUSES
from plait.session.status import StatusReader, interrupted_runs
from plait.store import Row, Store
from tests.support import assert_replays, child_environment, parked_session, wait_until

SEEN: list[str] = []


@pytest.fixture(params=["memory", "sqlite"], autouse=True)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    SEEN.clear()
    name = f"memory:{tmp_path.name}" if request.param == "memory" else str(tmp_path / "own")
    store = open_store(name)
    yield store
    _check_lists(store)
    store.close()


def _check_lists(store: Store) -> None:
    """Each session is listed under its status, and under no other; rows are as they are refolded;
    earlier values say nothing about the present.
    """
    sessions = Session.list(store=store, limit=1000)
    listed = {status: Session.list(store=store, status=status) for status in STATUSES}
    for status, found in listed.items():
        assert found == [each for each in sessions if each.status == status], status
    before = {row["log"]: StatusReader(store).of_session(row) for row in _rows(store)}
    assert before == {each.id: each.status for each in sessions}
    for projection in (SessionRows.name, InboxRows.name):
        store.rebuild(projection)
    assert before == {row["log"]: StatusReader(store).of_session(row) for row in _rows(store)}
    assert list(verify(store, state=True)) == []
    for session in sessions:
        own = store.log(session.id).place + 1
        earlier = {session.at(seq).status for seq in range(own, session.seq)}
        assert "interrupted" not in earlier


def _rows(store: Store) -> list[Row]:
    return store.rows("session", "session", limit=1000)


class Ends(Workflow):
    """Looks at the status, then ends as the first message says."""

    def forward(self, session: Session) -> Session:
        SEEN.append(session.status)
        how, session = session.messages[0].text, session.note("begun")
        branch = session.fork("side")
        SEEN.append(branch.status)
        if how == "fail":
            raise ValueError("wrong host")
        if how == "stop":
            raise KeyboardInterrupt
        if how == "pause":
            Session.open(session.id, store=session.store).pause()
            return session.sleep(0)
        if how == "wait":
            return session.wait_for("go")
        if how == "wait aside":
            branch.wait_for("go")
        return session.note("done")


def begun(how: str, store: Store) -> Session:
    """The session in which a run ended in this way."""
    session = Session(how, store=store)
    assert session.status == "open"
    try:
        Ends()(session)
    except (PlaitError, ValueError, KeyboardInterrupt):
        pass
    return session.reload()


def test_a_run_is_finished_failed_or_interrupted(place: Store) -> None:
    for how, status in (("", "finished"), ("fail", "failed"), ("stop", "interrupted")):
        session = begun(how or "end", place)
        branch = Session.list(store=place, parent=session)[0]
        assert (session.status, session.runs[-1].status, branch.status) == (status,) * 3
        assert status in repr(session)
        start = session.runs[-1].first
        assert session.at(start).status == "running" and session.at(start - 1).status == "open"
    assert SEEN == ["running"] * 6
    assert [row["status"] for row in interrupted_runs(place)] == ["open"]


def test_the_status_reads_the_same_when_a_run_is_replayed(place: Store) -> None:
    session = begun("end", place)
    seen = [*SEEN]
    assert_replays(session, Ends())
    assert [*seen, *seen] == SEEN


@pytest.mark.parametrize("how", ["wait", "wait aside"])
def test_a_run_that_waits_is_waiting_in_all_its_sessions(place: Store, how: str) -> None:
    session = parked_session(lambda: Ends()(Session(how, store=place))).reload()
    root = Session.list(store=place)[-1]
    branch = Session.list(store=place, parent=root)[0]
    assert (root.status, branch.status, root.runs[-1].status) == ("waiting",) * 3
    assert list(interrupted_runs(place)) == []
    (branch if how == "wait aside" else session).inbox.signal("go")
    done = resume(root.reload(), Ends())
    assert (done.status, branch.reload().status) == ("finished", "finished")


def test_feedback_is_a_verdict_on_the_run_that_ended_last(place: Store) -> None:
    session = Session("end", store=place, user="ann")
    with pytest.raises(NoEndedRun, match="run a workflow on it first"):
        session.checks.feedback(True)
    done = Ends()(session)
    for actor in ("agent:coder", "service:ci"):
        with pytest.raises(InvalidValue, match="given by a person"):
            done.checks.feedback(True, actor=actor)
    with pytest.raises(InvalidValue, match="neither True nor False"):
        done.checks.feedback(cast("bool", "good"))
    assert done.reload() == done
    judged = done.checks.feedback(False, "wrong host")
    verdict, event = judged.checks.verdicts[-1], judged.events[-1]
    assert (verdict.name, verdict.passed, verdict.detail) == ("feedback", False, "wrong host")
    assert verdict.evidence == event.header.causes == (done.head,)
    assert event.actor == "human:ann" and done.events[-1].kind == "RunFinished"
    assert sort_of(place, event) == "failure"
    # a branch is judged by the run on its path, also when the session itself is closed
    closed = judged.close()
    with pytest.raises(WrongStatus, match="fork"):
        closed.checks.feedback(True)
    praised = closed.fork("again").checks.feedback(True)
    assert praised.checks.verdicts[-1].evidence == (done.head,)
    assert sort_of(place, praised.events[-1]) == "verdict"


def test_feedback_waits_for_a_run_that_goes_on_and_is_not_given_in_it(place: Store) -> None:
    class Judges(Workflow):
        def forward(self, session: Session) -> Session:
            with pytest.raises(InvalidValue, match="code of a run"):
                session.checks.feedback(True, actor="human:ann")
            other = Session.open(session.id, store=session.store)
            other.checks.feedback(True, "so far", actor="human:ann")
            return session.sleep(0)

    done = Judges()(Ends()(Session("end", store=place)))
    (verdict,) = done.checks.verdicts
    first = done.runs[0].last
    assert verdict.evidence == (done.events[(first or 0) - 1].id,) and verdict.detail == "so far"


def test_a_resumed_run_that_waits_is_not_failed(place: Store) -> None:
    class Later(Workflow):
        tries = 0

        def forward(self, session: Session) -> Session:
            session = session.note("begun")
            if Later.tries == 0:
                raise ValueError("not yet")
            return session.wait_for("go")

    session, later = Session("go", store=place), Later()
    with pytest.raises(ValueError, match="not yet"):
        later(session)
    assert session.reload().status == session.reload().runs[-1].status == "failed"
    Later.tries = 1
    parked_session(lambda: resume(session, later))
    session = session.reload()
    assert session.status == "waiting"
    assert [(run.status, run.why, run.last) for run in session.runs] == [("waiting", "", None)]
    session.inbox.cancel("never mind")
    assert session.reload().status == session.reload().runs[-1].status == "cancelled"


def test_a_pause_and_a_second_run(place: Store) -> None:
    session = parked_session(lambda: Ends()(Session("pause", store=place))).reload()
    branch = Session.list(store=place, parent=session)[0]
    assert session.reload().status == branch.status == "paused"
    assert list(interrupted_runs(place)) == []
    session.reload().inbox.cancel("enough")
    assert session.reload().status == branch.status == "cancelled"

    class Again(Workflow):
        def forward(self, session: Session) -> Session:
            return session.note("again")

    assert Again()(branch).status == "finished" and session.reload().status == "cancelled"
    assert branch.reload().close().status == "closed"


HOLDS = """
import sys
from plait import Session, Workflow
class Holds(Workflow):
    def forward(self, session):
        session = session.fork("side").note("begun")
        print("ready", flush=True)
        sys.stdin.read()
        return session
Holds()(Session.open(sys.argv[2], store=sys.argv[1]))
"""


def test_another_process_runs_it_until_it_is_killed(place: Store) -> None:
    if place.folder is None:
        return
    session = Session("go", store=place)
    command = [sys.executable, "-c", HOLDS, place.address, session.id]
    with subprocess.Popen(
        command, stdin=-1, stdout=subprocess.PIPE, env=child_environment()
    ) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == b"ready\n"
            branch = Session.list(store=place, parent=session)[0]
            assert session.reload().status == branch.status == "running"
            assert Session.list(store=place, status="running") == [branch, session.reload()]
        finally:
            holder.send_signal(signal.SIGKILL)
    assert wait_until(lambda: branch.status == "interrupted")
    assert session.reload().status == session.reload().runs[-1].status == "interrupted"
