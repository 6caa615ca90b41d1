"""A process that lost its run writes nothing and starts nothing, wherever it was: two real
processes, one after the other.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from plait import Session, Workflow, open_store
from plait.errors import LeavesRecord
from plait.ids import LogId, inbox_of
from plait.runs.replay import replay
from plait.runs.resume import resume
from plait.session.value import open_run_of
from plait.store import Log
from tests.faults import fenced_story
from tests.faults.fenced_story import STORIES
from tests.faults.holder import Holder, playing
from tests.support import run_module

EFFECTS = ("at_most_once", "idempotent", "pure")
_QUICK = {("at_most_once", "meanwhile"), ("idempotent", "meanwhile")}


def _marks(story: str, effect: str, when: str) -> list[pytest.MarkDecorator]:
    is_quick = (effect, when) in _QUICK or (story, effect) == ("Parks", "at_most_once")
    return [] if is_quick else [pytest.mark.slow]


CASES = [
    pytest.param(story, effect, when, marks=_marks(story, effect, when))
    for story in STORIES
    for effect in EFFECTS
    for when in ("meanwhile", "afterwards")
    if (story, when) != ("Parks", "meanwhile")  # its process has let go of the run by then
]


class Loser(Holder):
    """The process that begins the run, and loses it."""

    def __init__(self, folder: Path, story: str, effect: str, **where: str) -> None:
        super().__init__(fenced_story, folder, story, effect, **where)
        self.story, self.effect = story, effect

    @property
    def workflow(self) -> Workflow:
        return STORIES[self.story](self.effect)

    @property
    def logs(self) -> dict[LogId, Log]:
        """All logs but one: outcomes that came too late stand in the inbox of the session."""
        assert {event.kind for event in self.session.reload().inbox.events} <= {
            "ToolReturned",
            "CancelRequested",
        }
        stores = [open_store(each) for each in (self.store, str(self.folder / "elsewhere"))]
        every = {log.id: log for store in stores for _, log in store.logs(limit=10_000)}
        return {id: log for id, log in every.items() if id != inbox_of(self.session.id)}

    @property
    def payments(self) -> list[tuple[str, str]]:
        """Return the payers, each with its key."""
        file = self.folder / "payments"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(who, key) for who, _, key in (line.rpartition(" ") for line in lines)]


def _loser(folder: Path, story: str, effect: str) -> AbstractContextManager[Loser]:
    return playing(fenced_story, lambda: Loser(folder, story, effect), folder)


def check_lost(loser: Loser, before: list[tuple[str, str]]) -> None:
    """The loser goes on, and nothing comes of it: no log is begun, none is longer,
    nobody is paid.
    """
    logs, payments = loser.logs, loser.payments
    assert loser.goes_on() == ("Parked" if loser.story == "Parks" else "RunLost")
    assert loser.logs == logs, "written by who lost the run"
    assert loser.payments == payments, "paid by who lost the run"
    assert [each for each in payments if each[0] == "the first"] == before


def check_replays(ended: Session, workflow: Workflow, story: str) -> None:
    """A run replays, unless its program works on a session of its own."""
    if story.startswith("Own"):
        with pytest.raises(LeavesRecord):
            replay(ended, workflow)
    else:
        assert replay(ended, workflow).head == ended.head


@pytest.mark.parametrize(("story", "effect", "when"), CASES)
def test_who_lost_a_run_pays_nobody_and_writes_nothing(
    tmp_path: Path, story: str, effect: str, when: str
) -> None:
    """It goes on while the other process stands at the same point, or after that one has come to
    its end.
    """
    with _loser(tmp_path, story, effect) as loser:
        before = loser.payments
        loser.loses_its_lock()
        if when == "meanwhile":
            fenced_story.meanwhile.append(lambda: check_lost(loser, before))
        ended = resume(loser.session, loser.workflow, answerer=lambda question, choices: "yes")
        assert ended.status != "failed" and not ended.inbox.waiting and not fenced_story.meanwhile
        if when == "afterwards":
            check_lost(loser, before)
        assert len(loser.payments) == STORIES[story].payments
        assert not [
            key
            for key, times in Counter(key for _, key in loser.payments).items()
            if times > 1 and key != "first"
        ]
        check_replays(ended, loser.workflow, story)


@pytest.mark.parametrize("story", ["Before", "Nested", "Own"])
def test_the_loser_is_fenced_as_soon_as_the_root_says_so(tmp_path: Path, story: str) -> None:
    """A process that takes a run may be killed before it has written to any branch."""
    with _loser(tmp_path, story, "at_most_once") as loser:
        before = loser.payments
        loser.loses_its_lock()
        taker = run_module(
            "tests.faults.fenced_story",
            "taker",
            story,
            "at_most_once",
            loser.session.id,
            STORY_FOLDER=str(tmp_path),
        )
        assert taker.returncode < 0
        kinds = [event.kind for event in loser.session.reload().events]
        assert kinds[-1] == "RunResumed"
        check_lost(loser, before)
        ended = resume(loser.session, loser.workflow)
        assert len(loser.payments) == STORIES[story].payments
        check_replays(ended, loser.workflow, story)


def test_a_run_that_was_ended_under_its_holder_is_lost_as_well(tmp_path: Path) -> None:
    for story in ("Before", "After"):
        folder = tmp_path / story
        folder.mkdir()
        with _loser(folder, story, "at_most_once") as loser:
            loser.loses_its_lock()
            loser.session.reload().inbox.cancel("enough")
            assert open_run_of(loser.session.reload()) is None
            check_lost(loser, [])
            assert loser.payments == []
