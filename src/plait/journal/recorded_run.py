"""A run as its log tells of it, and its recording.

The recording is read up to where a session stands. That of a run which a what-if branched off
begins with the steps of its source, followed by those that the branch repeats with other words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from plait.errors import NothingToResume
from plait.event import Event
from plait.event import kinds as k
from plait.ids import LogId
from plait.journal.abandoned import branches_of
from plait.journal.cursor import Cursor, noted_in, reopen, steps_of
from plait.journal.journal import Journal
from plait.journal.recording import Recording
from plait.session import Session
from plait.session.ports import Position, store_at
from plait.session.session import session_at
from plait.session.value import counted_logs, position_of
from plait.store import Log, Store
from plait.store.epochs import EPOCH_KINDS

_STARTS = frozenset({k.RunStarted.__name__, k.RunBranched.__name__})
_ENDS = frozenset({k.RunFinished.__name__, k.RunFailed.__name__, k.RunCancelled.__name__})


class RecordedRun(NamedTuple):
    """A run: its first event, and how it stands."""

    started: Event
    last: Event  # the last one about the run itself
    resumes: int  # how often it was resumed
    epoch: int  # of its log when this was read: a resume is refused under another

    @property
    def id(self) -> str:
        return self.started.header.run or self.started.id

    @property
    def workflow(self) -> str:
        body = self.started.body
        assert isinstance(body, (k.RunStarted, k.RunBranched))
        return body.workflow

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of the program when it started: the file it was loaded from, versions."""
        body = self.started.body
        recorded: Any = body.environment if isinstance(body, k.RunStarted) else None
        return recorded or {}

    @property
    def source(self) -> k.Place | None:
        """The event of another run that a what-if branched this one off. None: it started anew."""
        body = self.started.body
        return body.source if isinstance(body, k.RunBranched) else None

    @property
    def overrides(self) -> Mapping[str, Any]:
        """The changes of a what-if, as recorded."""
        body = self.started.body
        recorded: Any = body.overrides if isinstance(body, k.RunBranched) else None
        return recorded or {}

    @property
    def is_finished(self) -> bool:
        return self.last.kind == k.RunFinished.__name__

    @property
    def is_over(self) -> bool:
        """True if it finished, failed or was cancelled."""
        return self.last.kind in _ENDS


# ── finding a run ────────────────────────────────────────────────────────────────────────────


def last_run(at: Session | Position) -> RecordedRun | None:
    """Return the run that was started last in this log, not in its ancestors."""
    store = store_at(at.store)
    first = store.lineage(at.id)[-1].first
    run: RecordedRun | None = None
    epoch = 0
    for epoch, event in enumerate(store.read(at.id, first, at.seq, kinds=EPOCH_KINDS), 1):
        if event.kind in _STARTS:
            run = RecordedRun(event, event, 0, epoch)
        elif run is not None and event.header.run == run.id:
            resumes = run.resumes + (event.kind == k.RunResumed.__name__)
            run = RecordedRun(run.started, event, resumes, epoch)
    return run._replace(epoch=epoch) if run is not None else None


def root_session(session: Session) -> Session:
    """Return the session where the run of a branch began; the session itself if it is no branch."""
    store = store_at(session.store)
    place = store.lineage(session.id)[-1].first
    run = next(store.read(session.id, place, place)).header.run
    if run is None or last_run(session) is not None:
        return session
    at = store.log(session.id)
    while at.parent is not None:
        at = store.log(at.parent)
        for event in store.read(at.id, at.place + 1, at.tip, kinds=_STARTS):
            if event.header.run == run.partition("/")[0]:
                return session_at(Position(session.store, at.id, at.tip, at.head))
    return session


def run_around(store: Store, event: Event) -> tuple[RecordedRun, Position] | None:
    """Return the run that was going on at an event, and the position of the run's last event.

    For an event of a branch, it is the run that the branch belongs to. None: no run was going on.
    """
    log = store.log(event.log)
    found = _run_up_to(store, log.id, event.seq)
    if found is not None:
        return None if found[0].is_over and event.seq > found[0].last.seq else found
    id = next(store.read(log.id, log.place + 1, log.place + 1)).header.run
    while id is not None and found is None and log.parent is not None:
        log = store.log(log.parent)
        found = _run_up_to(store, log.id, log.tip, id.partition("/")[0])
    return found


def _run_up_to(
    store: Store, log: LogId, seq: int, id: str | None = None
) -> tuple[RecordedRun, Position] | None:
    """Return the last run that was started in a log up to a seq, or the run with this id, and its
    last event; the last before the next run, if it did not end.
    """
    own = store.log(log)
    starts = list(store.read(log, own.place + 1, own.tip, kinds=_STARTS))
    before = [event for event in starts if event.seq <= seq and id in (None, event.header.run)]
    if not before:
        return None
    later = [event.seq for event in starts if event.seq > before[-1].seq]
    last = next(store.read(log, later[0] - 1, later[0] - 1)) if later else None
    end = (last.seq, last.id) if last is not None else (own.tip, own.head)
    run = last_run(Position(store.address, log, *end))
    assert run is not None
    end = (run.last.seq, run.last.id) if run.is_over else end
    return run, Position(store.address, log, *end)


def first_run(store: Store, run: RecordedRun) -> RecordedRun:
    """Return the run in which the program was first called: the source of all what-ifs above."""
    while run.source is not None and (above := _run_at(store, run.source)) is not None:
        run = above
    return run


def start_of(session: Session, run: RecordedRun) -> Session:
    """Return the value at which the program of a run started.

    For a run that was branched off, that value is in the lineage of the branch.
    """
    event = first_run(store_at(session.store), run).started
    return session_at(Position(session.store, session.id, event.seq, event.id, run.id))


def unmerged_branches(session: Session, run: str) -> Iterator[LogId]:
    """Yield the branches of a run that are not merged yet, and theirs."""
    branches = list(branches_of(store_at(session.store), session.id, run))
    for log in unmerged_heads(session, branches):
        yield log.id


def unmerged_heads(session: Session, branches: Sequence[LogId]) -> Iterator[Log]:
    """Yield those of these branches that have events which a session does not cover, as they
    stand now.
    """
    if not branches:
        return
    covers = counted_logs(session)
    for log in store_at(session.store).heads(branches).values():
        if covers.get(log.id, 0) < log.tip:
            yield log


def _run_at(store: Store, place: k.Place) -> RecordedRun | None:
    return last_run(_position_of(store, place))


def _position_of(store: Store, place: k.Place) -> Position:
    return Position(store.address, place.log, place.seq, place.head)


# ── its recording ────────────────────────────────────────────────────────────────────────────


def follow_recording(
    journal: Journal,
    session: Session,
    run: RecordedRun,
    start: Session,
    *,
    is_replay: bool = False,
    cuts: Mapping[LogId, int] | None = None,
) -> None:
    """Let a journal follow the recording of a run from its start to where the session stands.

    In a replay nothing is written beyond it. With `cuts` it is a replay up to the last step, as if
    the run had been resumed and each of these logs ended at the seq that is given for it.
    """
    recording = _recording_of(session, run, start, is_replay, cuts)
    journal.follow(recording, position_of(start))


def _recording_of(
    session: Session,
    run: RecordedRun,
    start: Session,
    is_replay: bool,
    cuts: Mapping[LogId, int] | None,
) -> Recording:
    is_tried = cuts is not None
    if cuts and session.id in cuts:
        session = session.at(cuts[session.id])
    store, source = store_at(session.store), run.source
    before, ends = list[Event](), dict[LogId, int]()
    merged: Mapping[LogId, int] | None = None
    if source is not None:
        before, ends = _source_steps(store, source)
        merged = counted_logs(session_at(_position_of(store, source)))
    check_start_stands(session, run)
    events = list(store.read(session.id, run.started.seq + 1, session.seq))
    steps, loose, restated = steps_of(run.id, events), len(before), 0
    if is_tried:
        reopen(steps)
    if source is not None and run.overrides.get("replaced"):
        steps, count = _without_words_of_others(store, run, source, steps)
        restated = run.started.seq + count
        loose += sum(step.seq <= restated for step in steps)
    is_failed = isinstance(run.last.body, k.RunFailed)
    recording = Recording(
        run.id,
        session.id,
        strict=is_replay or is_tried,
        open=is_tried or not (is_replay and run.is_over),
        finished=is_replay and run.is_finished,
        merged=merged,
        before=tuple(dict.fromkeys(step.header.run or "" for step in before)),
        restated=restated,
        # a replay tries nothing again
        reopened=frozenset(run.last.header.causes if is_failed and not is_replay else ()),
        cuts=cuts,
    )
    cursor = Cursor(
        session.id,
        [*before, *steps],
        position_of(start),
        Position(session.store, session.id, session.seq, session.head, run.id),
        loose=loose,
        noted=noted_in(run.id, events),
    )
    recording.keep(cursor, (session.id, session.seq), *ends.items())
    return recording


def check_start_stands(session: Session, run: RecordedRun) -> None:
    """Raise if another writer rewound the session to before the run began."""
    first, store = run.started.seq + 1, store_at(session.store)
    for event in store.read(session.id, first, session.seq, kinds={k.Rewound.__name__}):
        body = event.body
        if isinstance(body, k.Rewound) and event.header.run != run.id and body.to < run.started.seq:
            why = f"it was rewound to before run {run.id[:13]} began"
            step = "end that run: session.inbox.cancel(), or go on in a fork"
            raise NothingToResume(session.short, why, step)


def _source_steps(store: Store, source: k.Place) -> tuple[list[Event], dict[LogId, int]]:
    """Return the steps of the run that another one was branched off, up to there, and the seq at
    which each log of them ended.
    """
    run = _run_at(store, source)
    if run is None:
        return [], {}
    before, ends = list[Event](), dict[LogId, int]()
    if run.source is not None:
        before, ends = _source_steps(store, run.source)
    events = list(store.read(source.log, run.started.seq + 1, source.seq))
    # the end of the source is not the branch's
    steps = [step for step in steps_of(run.id, events) if step.kind not in EPOCH_KINDS]
    return [*before, *steps], {**ends, source.log: source.seq}


def _without_words_of_others(
    store: Store, run: RecordedRun, source: k.Place, steps: list[Event]
) -> tuple[list[Event], int]:
    """Return the steps without what other writers than the source run had written in the past that
    a branch repeats, and how many events the branch repeats.
    """
    last: int = run.overrides["at"]
    repeated = [
        event
        for event in store.read(source.log, source.seq + 1, last)
        if event.kind not in EPOCH_KINDS
    ]
    above = last_run(Position(store.address, source.log, last, repeated[-1].id))
    of_others = {
        seq
        for seq, event in enumerate(repeated, run.started.seq + 1)
        if above is None or event.header.run != above.id
    }
    return [step for step in steps if step.seq not in of_others], len(repeated)
