"""The amount of work that looking takes, in events read and in calls; and that writing takes none
more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plait import Session
from plait.event import Event
from plait.ids import LogId
from plait.outline.documents import VERDICTS, show_document, state_document
from plait.outline.family import family_shape
from plait.outline.outlines import Outlines
from plait.outline.records import LogRecord
from plait.outline.step_fold import StepFold
from plait.outline.steps import outline_shape, step_page
from plait.outline.summaries import Summaries
from plait.session.ports import store_at
from plait.store import Store
from tests.outline.families import fresh_memory_store
from tests.support import count_calls, word_count

pytestmark = pytest.mark.long  # `make quick` leaves these out


class Counted:
    """Counts the events that are read from a store."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events = 0
        for name in ("read", "feed"):
            monkeypatch.setattr(store, name, self._counting(getattr(store, name)))

    def _counting(self, read: Any) -> Any:
        def counted(*arguments: Any, **more: Any) -> Iterator[Any]:
            for each in read(*arguments, **more):
                self.events += 1
                yield each

        return counted

    def of(self, act: Any) -> int:
        before = self.events
        act()
        return self.events - before


def test_only_new_events_are_read(
    long_store: tuple[Store, LogId], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, root = long_store
    counted = Counted(store, monkeypatch)
    outlines = Outlines(store)
    assert counted.of(lambda: family_shape(outlines, root)) > 2000
    assert counted.of(lambda: family_shape(outlines, root)) == 0
    session = Session.open("branch-1", store=store).say("One more.").say("And one.")
    assert counted.of(lambda: outlines.record(session.id)) == 3  # its last known event, and two
    # another process finds the records on disk, and reads the same events once more, and the first
    # one of a stretch that is new: the branch goes on after it was merged
    fresh = Outlines(store)
    assert counted.of(lambda: family_shape(fresh, root)) == 4
    summaries = Summaries(outlines)
    summaries.page(limit=100)
    shown = counted.of(lambda: summaries.page(limit=100))
    session.say("Again.")
    assert counted.of(lambda: summaries.page(limit=100)) <= shown + 4


def test_a_page_of_steps_costs_the_same_at_any_place(long_store: tuple[Store, LogId]) -> None:
    store, root = long_store
    outlines = Outlines(store)
    total = outlines.record(root).step_count
    early = count_calls(lambda: step_page(outlines, root, 10, 50))
    late = count_calls(lambda: step_page(outlines, root, total - 60, 50))
    assert late < early * 1.3


def fold_first(events: list[Event], count: int) -> None:
    first = events[0]
    StepFold(LogRecord(first.log, 0, 0)).take_all(events[:count])


def test_folding_is_linear(long_store: tuple[Store, LogId]) -> None:
    store, root = long_store
    events = list(store.read(root, 1, 800))
    fold_first(events, 800)  # headers are decoded once
    small, large = (count_calls(lambda n=n: fold_first(events, n)) for n in (400, 800))
    assert large / small < 2.2


def test_a_body_is_not_decoded_for_a_bracket(long_store: tuple[Store, LogId]) -> None:
    """The texts of asks, and of all brackets, are never looked at."""
    store, root = long_store
    event = next(store.read(root, 1, 100, kinds={"ModelAsked"}))
    record = LogRecord(root, event.seq - 1, event.seq - 1)
    undecoded = Event(event.raw, event.salt, _never, kind=event.kind)
    StepFold(record).take(undecoded)
    assert list(record.owners) == [-1] and record.spent.model_calls == 1


def _never() -> bytes:
    raise AssertionError("its body was read")


def test_writing_costs_what_it_did() -> None:
    """Looking at a session leaves nothing behind that a later append has to keep up."""
    store = fresh_memory_store()
    session = Session("Go.", store=store).say("once")
    projections = [each.name for each in store.attached()]
    plain = count_calls(lambda: session.fork("plain").say("more"))
    summaries = Summaries(Outlines(store))
    summaries.page()
    family_shape(Outlines(store), session.id)
    looked_at = count_calls(lambda: session.fork("looked").say("more"))
    assert [each.name for each in store.attached()] == projections
    assert looked_at <= plain * 1.02


def test_threads_share_outlines_while_a_session_grows(tmp_path: Path) -> None:
    session = Session("Go.", store=tmp_path / "store")
    outlines, wrong, done = (
        Outlines(store_at(session.store)),
        list[BaseException](),
        threading.Event(),
    )

    def look() -> None:
        try:
            while not done.is_set():
                page = step_page(outlines, session.id, 0, 500)
                shape = outline_shape(outlines, session.id)
                assert len(shape.seqs) == shape.total == len(shape.types)
                assert [step.index for step in page.steps] == list(range(len(page.steps)))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    grown = session
    for number in range(60):
        grown = grown.say(f"words {number}").use(word_count, text="to be")
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert outlines.record(session.id) == Outlines(store_at(session.store)).record(session.id)


def test_a_state_has_the_newest_verdicts_and_reads_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = fresh_memory_store()
    session = Session("Go.", store=store)
    for number in range(VERDICTS * 4):
        session = session.checks.record(f"check {number % 3}", number % 2 == 0, detail=number)
    shown = show_document(session, 0)["validation"]
    assert [each["detail"] for each in shown] == list(range(VERDICTS * 4))
    assert state_document(session)["validation"] == shown[-VERDICTS:]
    kinds = frozenset(("ValidationRecorded",))
    read = list[int]()
    real = store.read

    def noted(*arguments: Any, **more: Any) -> Iterator[Event]:
        for event in real(*arguments, **more):
            if more.get("kinds") == kinds:
                read.append(event.seq)
            yield event

    monkeypatch.setattr(store, "read", noted)
    state_document(session)
    assert len(read) == VERDICTS
