"""Laws of outlines: folded in any pieces they are the same; lanes lead to parents; a track is the
state; rows are those of a fold from the beginning, whatever became of the cache.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plait import Session, open_store
from plait.ids import LogId
from plait.outline.cache import RecordCache
from plait.outline.comparing import comparison_shape
from plait.outline.family import family_shape
from plait.outline.lanes import margins
from plait.outline.outlines import Outlines
from plait.outline.records import LogRecord, pack_record, unpack_record
from plait.outline.shapes import FamilyShape, SessionSummary
from plait.outline.step_fold import StepFold
from plait.outline.steps import step_page
from plait.outline.summaries import Summaries
from plait.outline.track import last_message_seq, state_after, state_shape, track_shape
from plait.session.graph import family
from plait.session.value import core_of
from plait.store import Store
from tests.outline.families import ACTS, FamilyAct, family_of, fresh_memory_store, grow, logs_of
from tests.outline.sessions import ViewStore
from tests.support import count

pytestmark = pytest.mark.long  # `make quick` leaves these out


# ── steps ────────────────────────────────────────────────────────────────────────────────────


def folded(store: Store, log: LogId, cuts: list[int]) -> LogRecord:
    """A record that is folded in pieces, and kept as bytes between them."""
    info = store.log(log)
    events = list(store.read(log, info.place + 1, info.tip))
    record = LogRecord(log, info.place, info.place)
    places = sorted({cut % (len(events) + 1) for cut in cuts})
    for first, last in zip([0, *places], [*places, len(events)], strict=True):
        fold = StepFold(record)
        before = [_row(record, index) for index in range(record.step_count)]
        fold.take_all(events[first:last])
        after = [_row(record, index) for index in range(record.step_count)]
        changed = {at for at, row in enumerate(after) if at >= len(before) or before[at] != row}
        assert changed <= fold.changed  # whoever follows is told of every change
        kept = unpack_record(pack_record(record))
        assert kept is not None and kept == record
        record = kept
    return record


def _row(record: LogRecord, index: int) -> tuple[int, ...]:
    columns = record.firsts, record.lasts, record.types, record.states, record.marks
    return tuple([column[index] for column in columns])


@given(st.lists(st.integers(0, 400), max_size=6))
def test_steps_do_not_depend_on_the_pieces_they_are_folded_in(
    view: ViewStore, cuts: list[int]
) -> None:
    for log in view.sessions.values():
        assert folded(view.store, log, cuts) == folded(view.store, log, [])
    count("steps are the same in any pieces", view.store)


@given(ACTS, st.lists(st.integers(0, 60), max_size=5))
def test_steps_of_families_at_random(acts: list[FamilyAct], cuts: list[int]) -> None:
    store = fresh_memory_store()
    for log in logs_of(family_of(acts, store)):
        record = folded(store, log, cuts)
        assert record == folded(store, log, [])
        assert record == Outlines(store).record(log)
        held = [seq for index in range(record.step_count) for seq in record.events_of(index)]
        assert len(held) == len(set(held)) and set(held) <= set(
            range(record.place + 1, record.tip + 1)
        )
        for step in step_page(Outlines(store), log, 0, 500).steps:
            assert step.events[0] == step.first and step.events[-1] == step.seq
    count("every event belongs to one step", store)


# ── lanes ────────────────────────────────────────────────────────────────────────────────────


@given(ACTS)
def test_lanes_lead_to_the_parents(acts: list[FamilyAct]) -> None:
    store = fresh_memory_store()
    sessions = family_of(acts, store)
    shape = family_shape(Outlines(store), sessions[-1].id)
    assert {branch.log for branch in shape.branches} == set(family(store, sessions[0].id))
    assert shape.branches[0].log == shape.root and shape.branches[0].color == 0
    check_stretches(store, shape)
    check_lanes(shape)
    check_margin(shape)
    count("lanes lead to parents", store)


def check_stretches(store: Store, shape: FamilyShape) -> None:
    """Every event of a log stands in one stretch, and every stretch comes after its parents."""
    for index, branch in enumerate(shape.branches):
        own = [each for each in shape.stretches if each.branch == index]
        pieces = [(each.first, each.last) for each in own]
        assert pieces[0][0] == branch.place + 1 and pieces[-1][1] == branch.tip
        assert all(one[1] + 1 == two[0] for one, two in zip(pieces, pieces[1:], strict=False))
        assert sum(each.step_count for each in own) == branch.step_count
        assert all(each.step_count for each in own)
    for at, stretch in enumerate(shape.stretches):
        assert all(parent < at for parent in stretch.parents)
        branch = shape.branches[stretch.branch]
        first = next(store.read(branch.log, stretch.first, stretch.first))
        # the line leads to the stretch that holds the event before it
        before = first.header.parents[:1]
        if before:
            (parent,) = [store.event(id) for id in before]
            held = shape.stretches[stretch.parents[0]]
            assert shape.branches[held.branch].log == parent.log
            assert held.first <= parent.seq <= held.last
        else:
            assert stretch.parents == ()


def check_lanes(shape: FamilyShape) -> None:
    """No two logs have a line in one lane beside the same stretch, and the root's is the left."""
    lines = dict[tuple[int, int], int]()
    ends = dict[int, int]()
    for at, stretch in enumerate(shape.stretches):
        ends[stretch.branch] = at
        for parent in stretch.parents[1:]:
            ends[shape.stretches[parent].branch] = at
    for index, _ in enumerate(shape.branches):
        own = [at for at, each in enumerate(shape.stretches) if each.branch == index]
        (lane,) = {shape.stretches[at].lane for at in own}
        assert (lane == 0) == (index == 0)
        parents = shape.stretches[own[0]].parents
        begin = parents[0] + 1 if parents else 0
        for at in range(begin, ends[index] + 1):
            assert lines.setdefault((at, lane), index) == index


def check_margin(shape: FamilyShape) -> None:
    """Follow the lines of the drawn margin from step to step: each leads to its parents' lanes."""
    rows = [line for line in margins(shape) if line.step is not None]
    expected = [
        (at, step)
        for at, each in enumerate(shape.stretches)
        for step in range(each.first_step, each.first_step + each.step_count)
    ]
    assert [(row.stretch, row.step) for row in rows] == expected
    lines = list(margins(shape))
    for above, below in zip(lines, lines[1:], strict=False):
        for lane in range(shape.lane_count):
            up, down = _cell(above.margin, lane), _cell(below.margin, lane)
            if up in "│├┤┼╮╭┬╷" and above.stretch == below.stretch:
                # a line that leaves downward arrives
                assert down in "│├┤┼╯╰┴╵{", (above, below)
            if down in "├┤┼╯╰┴╵" and down != " ":
                # and one that arrives came from above
                assert up in "│├┤┼╮╭┬╷{", (above, below)
    assert all(line.margin.isascii() for line in margins(shape, plain=True))


def _cell(margin: str, lane: int) -> str:
    cells = margin.replace("{}", "{")
    return cells[2 * lane] if 2 * lane < len(cells) else " "


# ── track ────────────────────────────────────────────────────────────────────────────────────


@given(ACTS, st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), min_size=3, max_size=6))
@example([("say", 0, 0), ("verdict", 0, 0), ("rewind", 0, 0)], [(0, 34)])
@example([("say", 0, 0), ("rewind", 0, 1), ("say", 0, 0), ("rewind", 0, 3)], [(0, 5)])
def test_a_track_is_the_state_at_each_place(
    acts: list[FamilyAct], places: list[tuple[int, int]]
) -> None:
    store = fresh_memory_store()
    sessions = family_of(acts, store)
    for at, number in places:
        session = sessions[at % len(sessions)]
        first = max(store.log(session.id).place, 1)
        seq = first + number % (session.seq - first + 1)
        check_track(store, session.id, seq)
    count("a track is the state", store)


def check_track(store: Store, log: LogId, seq: int) -> None:
    session = Session.open(f"{log}@{seq}", store=store)
    state = core_of(session).state
    expected = state_shape(store, state, last_message_seq(store, state))
    assert expected.verdicts == shown_at(session)
    whole = track_shape(store, log, seq)
    assert state_after(whole, seq) == expected
    # who knows a piece up to a place is told the rest of it, and knows the same then
    rest = track_shape(store, log, seq, after=seq)
    known = tuple([change for change in whole.changes if change.seq <= seq])
    assert (rest.start.seq, rest.last) == (max(seq, whole.start.seq), whole.last)
    assert known + rest.changes == whole.changes


def test_the_verdict_of_a_merged_branch_stands_on_the_page_as_in_the_shell() -> None:
    store = fresh_memory_store()
    session = Session("Mend it.", store=store).checks.record("tests", False)
    branch = session.fork("clamp").checks.record("tests", True).checks.record("style", False)
    merged = session.say("Meanwhile.").merge(branch)
    later = merged.checks.record("tests", False)
    for value, tests in ((session, False), (merged, True), (later, False)):
        track = track_shape(store, later.id, value.seq)
        assert state_after(track, value.seq).verdicts == shown_at(value)
        assert shown_at(value)["tests"] is tests
    compared = comparison_shape(Outlines(store), session, merged)
    assert {key: sides.right for key, sides in compared.verdicts.items()} == shown_at(merged)
    fork = merged.fork("later")
    assert track_shape(store, fork.id, fork.seq).start.verdicts == shown_at(merged)


def shown_at(session: Session) -> dict[str, bool]:
    return {each.name: each.passed for each in session.checks.verdicts}


def test_tracks_of_real_runs(view: ViewStore) -> None:
    for name, log in view.sessions.items():
        for seq in range(1, min(view.store.log(log).tip, 40) + 1):
            check_track(view.store, log, seq)
        assert track_shape(view.store, log, 1).start.seq == 1, name


# ── rows for people ──────────────────────────────────────────────────────────────────────────


def all_rows(summaries: Summaries) -> list[SessionSummary]:
    found = list[SessionSummary]()
    before = None
    while True:
        page = summaries.page(limit=3, before=before)
        found += page.sessions
        if page.next is None:
            return found
        before = page.next


@given(ACTS, st.lists(st.integers(0, 5), max_size=30))
def test_rows_are_those_of_a_fold_from_the_beginning(
    acts: list[FamilyAct], looks: list[int]
) -> None:
    store = fresh_memory_store()
    outlines = Outlines(store)
    summaries, sessions = Summaries(outlines), [Session("Go.", store=store)]
    for number, (act, at, more) in enumerate(acts):
        grow(sessions, act, at, more)
        look = looks[number] if number < len(looks) else 0
        if look == 1:
            all_rows(summaries)
        elif look == 2:  # another process looks
            all_rows(Summaries(Outlines(store)))
    rows = all_rows(summaries)
    assert rows == all_rows(Summaries(Outlines(store, RecordCache(None))))
    assert {row.log for row in rows} == set(logs_of(sessions))
    assert [row.updated for row in rows] == sorted([row.updated for row in rows], reverse=True)
    count("rows are those of a fold from the beginning", store)


@pytest.mark.parametrize("harm", ["delete", "tear", "foreign", "swap"])
def test_a_cache_that_is_harmed_is_made_anew(
    long_store: tuple[Store, LogId], tmp_path: Path, harm: str
) -> None:
    store, root = long_store
    expected = family_shape(Outlines(store), root), all_rows(Summaries(Outlines(store)))
    files = sorted((tmp_path / "long" / "work").rglob("outline-*/*"))
    assert len(files) == 8  # seven logs, and the activity
    contents = [file.read_bytes() for file in files]
    for at, file in enumerate(files):
        match harm:
            case "delete":
                file.unlink()
            case "tear":
                file.write_bytes(contents[at][: len(contents[at]) * 2 // 3])
            case "foreign":
                file.write_bytes(b"nothing of ours\n" * 100)
            case _:
                file.write_bytes(contents[at - 1])
    store.close()
    store = open_store(tmp_path / "long")
    assert (family_shape(Outlines(store), root), all_rows(Summaries(Outlines(store)))) == expected
