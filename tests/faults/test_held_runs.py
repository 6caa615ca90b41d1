"""One process holds a run: others are refused, and told who has it; one that lost it cannot write,
and what it brings late is kept.
"""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from plait.errors import RunHeld
from plait.event import kinds as k
from plait.journal.stops import Parked
from plait.runs.replay import replay
from plait.runs.resume import resume
from tests.faults import held_story
from tests.faults.held_story import Held
from tests.faults.holder import Holder, playing


class First(Holder):
    """The process that begins, and is busy in its tool."""

    @property
    def effects(self) -> list[str]:
        return (self.folder / "effects").read_text().split()


def _first(folder: Path, tool: str) -> AbstractContextManager[First]:
    return playing(held_story, lambda: First(held_story, folder, tool), folder)


def test_a_held_run_is_refused_and_free_once_its_holder_is_killed(tmp_path: Path) -> None:
    with _first(tmp_path, "once") as first:
        for _ in range(2):
            with pytest.raises(RunHeld, match=f"process {first.process.pid}"):
                resume(first.session, Held("once"))
        before = first.session.reload()
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        assert first.session.reload() == before, "whoever was refused wrote nothing"
        with pytest.raises(Parked, match="nobody knows whether once happened"):
            resume(first.session, Held("once"))
        waiting = first.session.reload().inbox.waiting
        assert [ask.tool for ask in waiting] == ["once"]
        first.session.inbox.resolve(waiting[0], "happened", "done, I looked", actor="human:boss")
        ended = resume(first.session, Held("once"))
        assert ended.text == "all is well" and len(first.effects) == 1
        assert replay(ended, Held("once")).head == ended.head


def test_who_lost_a_run_cannot_write_and_its_late_outcome_settles_the_call(tmp_path: Path) -> None:
    with _first(tmp_path, "once") as first:
        first.loses_its_lock()
        with pytest.raises(Parked):
            resume(first.session, Held("once"))
        parked = first.session.reload()
        assert first.goes_on() == "RunLost"
        assert first.session.reload() == parked, "nothing was written by whoever lost it"
        (late,) = parked.inbox.events
        assert isinstance(late.body, k.ToolReturned)
        ended = resume(first.session, Held("once"))
        assert ended.text == "all is well" and len(first.effects) == 1
        (call,) = ended.effects
        assert call.outcome is not None and "done by the first" in str(call.outcome.body)
        assert replay(ended, Held("once")).head == ended.head


def test_a_late_outcome_does_not_settle_a_call_a_second_time(tmp_path: Path) -> None:
    with _first(tmp_path, "often") as first:
        first.loses_its_lock()
        said: list[str] = []
        held_story.meanwhile.append(lambda: said.append(first.goes_on()))
        ended = resume(first.session, Held("often"))
        assert said == ["RunLost"] and ended.text == "all is well"
        assert len(set(first.effects)) == 1 and len(first.effects) == 2, (
            "run again, with the same key"
        )
        (late,) = ended.inbox.events
        assert isinstance(late.body, k.ToolReturned)
        (call,) = ended.effects
        assert call.outcome is not None and "done by" in str(call.outcome.body)
        assert replay(ended, Held("often")).head == ended.head


def test_a_run_taken_over_while_nothing_is_under_way_is_lost_at_the_next_write(
    tmp_path: Path,
) -> None:
    with _first(tmp_path, "once") as first:
        first.loses_its_lock()
        with pytest.raises(Parked):
            resume(first.session, Held("once"))
        first.session.inbox.resolve(
            first.session.reload().inbox.waiting[0], "did_not_happen", actor="human:boss"
        )
        held_story.meanwhile.append(lambda: None)
        ended = resume(first.session, Held("once"))
        assert ended.text == "all is well"
        assert first.goes_on() == "RunLost"
        assert ended.reload() == ended and [event.kind for event in ended.inbox.events] == [
            "ToolResolved",
            "ToolReturned",
        ]
