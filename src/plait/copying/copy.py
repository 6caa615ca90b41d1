"""Copy sessions to another store, and move those whose work is not done.

A session without an open run is copied: both stores have it, and each copy can go on by itself. A
run has one home. So a session with an open run, or with messages that wait for one, is moved: the
run is taken, the session ends here with `SessionMoved`, and goes on there after `SessionArrived`.

The order of the steps makes a kill at any moment harmless. The other store knows which logs are on
the way before it gets their first event, and no run begins in them until all is there. A session
ends here after everything else of it is there. Whoever repeats the copy goes on where it ended.

A program of the other store may append to its copy of a session in the moment in which the session
ends here. Then the end can never follow, and it is taken back: both stores have the session, and
the copies differ.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from time import sleep

import msgspec

from plait.copying.plan import PAGE, CopyPlan, heads_of, id_at, plan_copy
from plait.copying.transfer import BlobTransfer, CopyCounts, CopyReader, EventTransfer, Report
from plait.errors import InvalidValue, LogsDiffer, PlaitError, RunHeld, StoreUnsettled
from plait.event import Event
from plait.event.kinds import CopyBegun, CopyFinished, SessionArrived, SessionMoved
from plait.ids import LogId, house_of, inbox_of, short
from plait.journal.abandoned import branches_of
from plait.journal.writer import direct_writer
from plait.session.copy_rows import arriving_logs
from plait.session.moves import new_address
from plait.session.ports import Act, Draft, Post
from plait.session.run_rows import INBOX, find_run_row
from plait.session.turn_rows import TurnRows, all_queued_turns
from plait.store import Row, Store
from plait.workspace.gc import TREE_KINDS

_WAIT_S = 0.05  # between two looks at commits that are not settled yet
_SETTLE_S = 60.0  # for transactions that are open


class SessionLeftOut(msgspec.Struct, frozen=True):
    """A session that was not copied, and the reason."""

    log: LogId
    error: str  # the name of its type
    why: str


class CopyResult(msgspec.Struct, frozen=True):
    """The outcome of a copy. In a trial, it says what would be copied."""

    source: str  # the address, without a password
    target: str
    sessions: int  # of all that were to be copied
    logs: int  # with inboxes and house logs
    events: int  # that were copied
    blobs: int
    bytes: int  # of events and blobs, before compression
    events_there: int  # that the target had already
    moved: tuple[LogId, ...] = ()  # sessions that go on in the target alone
    left_out: tuple[SessionLeftOut, ...] = ()  # sessions that could not be copied


def copy_sessions(
    source: Store,
    target: Store | None,
    sessions: Collection[LogId] | None = None,
    *,
    move: bool = False,
    is_trial: bool = False,
    actor: str | None = None,
    report: Report = lambda _: None,
) -> CopyResult:
    """Copy sessions, and all that they rest on, to another store; None: all sessions.

    `move` ends every session here, and not only those with an open run. `is_trial` writes nothing;
    then `target` None is a store that does not exist yet. `report` hears of the progress.

    A session that cannot be copied is left out, with those that rest on it: a process has its run,
    it differs from the one in the target, it is damaged, or not whole in the source itself. Raises
    its error if no other session is left.
    """
    if target is not None and target.id == source.id:
        raise InvalidValue("target", "it is the same store", "name another store")
    if target is None or is_trial:
        return _try_copy(source, target, sessions, move, report)
    with ExitStack() as locks:
        copy = _CopyUnderWay(source, target, actor or direct_writer().principal(), report)
        return copy.run(sessions, locks, move=move)


def _try_copy(
    source: Store,
    target: Store | None,
    sessions: Collection[LogId] | None,
    move: bool,
    report: Report,
) -> CopyResult:
    upto = _settled_number(source)
    plan, counts = plan_copy(source, target, sessions), CopyCounts()
    _check_some_left(source, plan, sessions)
    reader = _reader_of(source, plan)
    events = (event for event in reader.events(0, upto) if event.seq > plan.there[event.log])
    BlobTransfer(source, target, counts, report, is_trial=True).bring(events)
    counts.events = plan.events
    work = [log for log, _ in _open_work(source, plan)]
    moved = _sessions_in(source, plan.logs) if move else work
    return _result(source, target, plan, counts, moved, plan.events_there)


class _CopyUnderWay:
    """One copy under way."""

    def __init__(self, source: Store, target: Store, actor: str, report: Report) -> None:
        self._source, self._target = source, target
        self._actor, self._report = actor, report
        self._counts = CopyCounts()
        self._moved: list[LogId] = []
        self._locked = set[str]()
        # of sessions that have to move and cannot, and of those that the target has gone on with
        self._faults = dict[LogId, PlaitError]()

    def run(
        self, sessions: Collection[LogId] | None, locks: ExitStack, *, move: bool
    ) -> CopyResult:
        """Copy until nothing is left that has to move, and no run is cut in the middle."""
        after, known, there = 0, frozenset[LogId](), None
        while True:
            upto = _settled_number(self._source)  # a log with events up to it is in the plan
            plan = plan_copy(self._source, self._target, sessions, self._faults)
            self._take_back(plan)
            _check_some_left(self._source, plan, sessions)
            work, held = self._take(plan, locks)
            groups = self._to_move(plan, work, move)
            if faults := held or self._ahead(plan, groups):
                self._faults.update(faults)
                continue
            there = plan.events_there if there is None else there
            self._begin(plan, groups)
            try:
                tips = self._bring(plan, after if known >= plan.logs.keys() else 0, upto)
                self._compare(plan, tips)
                self._end_logs(groups)
            except LogsDiffer as error:  # a program of the target was first
                self._faults[LogId(error.log)] = error
                continue
            after, known = upto, frozenset(plan.logs)
            if not groups and not self._cut_runs(plan, work):
                break
        self._bring_trees(plan, upto)
        self._arrive(plan)
        self._finish(plan)
        return _result(self._source, self._target, plan, self._counts, self._moved, there)

    def _take(
        self, plan: CopyPlan, locks: ExitStack
    ) -> tuple[list[tuple[LogId, str]], dict[LogId, PlaitError]]:
        """Take the runs that are open. Returns them, and the sessions whose runs a process has."""
        work = _open_work(self._source, plan)
        held: dict[LogId, PlaitError] = {}
        for log, name in work:
            if name not in self._locked:
                try:
                    lock = self._source.lock(name, short(log))
                except RunHeld as error:
                    held[log] = error
                    continue
                locks.callback(lock.release)
                self._locked.add(name)
        return work, held

    def _cut_runs(self, plan: CopyPlan, work: Sequence[tuple[LogId, str]]) -> bool:
        """True if work is open in the target that was open at the last commit that was brought
        over, and is done in the source since: its end has to come, too.
        """
        new = frozenset(plan.new)
        return any(
            (log in new or inbox_of(log) in new) and _is_done(self._source, name)
            for log, name in set(_open_work(self._target, plan)).difference(work)
        )

    def _begin(self, plan: CopyPlan, groups: Sequence[Sequence[LogId]]) -> None:
        """Let the target know which logs are on the way: those with news, and those that move."""
        arriving = arriving_logs(self._target)
        logs = dict.fromkeys([*plan.new, *[log for group in groups for log in group]])
        new = [log for log in logs if log not in arriving]
        if new:
            self._tell(CopyBegun, new)

    def _finish(self, plan: CopyPlan) -> None:
        done = sorted(arriving_logs(self._target).keys() & plan.logs.keys())
        if done:
            self._tell(CopyFinished, done)

    def _tell(self, kind: type[CopyBegun | CopyFinished], logs: Sequence[LogId]) -> None:
        source, target = self._source, self._target
        body = kind(source.id, source.address, target.id, tuple(logs))
        draft = Draft(body, Act(self._actor, "human"))
        direct_writer().post_all(target.address, [Post(None, [draft])])

    def _bring(self, plan: CopyPlan, after: int, upto: int) -> dict[LogId, int]:
        """Bring over all events between two commits, their blobs first; return the last seq of each
        log that the target has now.
        """
        reader = _reader_of(self._source, plan)
        events = EventTransfer(self._source, self._target, plan, self._counts, self._report)
        house = house_of(self._source.id)  # its first event has no place among the commits
        first = list(self._source.read(house, 1, 1)) if house in plan.logs else []
        blobs = BlobTransfer(self._source, self._target, self._counts, self._report)
        blobs.bring(events.unwritten(reader.events(after, upto)))
        events.write([*first])
        events.write(reader.events(after, upto))
        self._target.flush()
        return events.tips

    def _bring_trees(self, plan: CopyPlan, upto: int) -> None:
        """Look once more for blobs that trees lead to: until their events were there, a sweep could
        take them.
        """
        if arriving_logs(self._target).keys() & plan.logs.keys():
            blobs = BlobTransfer(self._source, self._target, self._counts, self._report)
            blobs.bring(_reader_of(self._source, plan).events(0, upto, TREE_KINDS))

    def _compare(self, plan: CopyPlan, tips: Mapping[LogId, int]) -> None:
        """Compare the last event of each log that was copied with the one in the target."""
        logs = list(plan.logs)
        for first in range(0, len(logs), PAGE):
            page = logs[first : first + PAGE]
            heads = self._target.heads(page)
            for log in page:
                ours = next(self._source.read(log, tips[log], tips[log]), None)
                if ours is None:  # the target is ahead, as the plan has found
                    continue
                theirs = heads.get(log)
                if theirs is None or id_at(self._target, theirs, ours.seq) != ours.id:
                    raise LogsDiffer(log, ours.seq, self._source.address, self._target.address)

    # ── sessions that move ───────────────────────────────────────────────────────────────────

    def _to_move(
        self, plan: CopyPlan, work: Sequence[tuple[LogId, str]], move: bool
    ) -> list[list[LogId]]:
        """Return the logs that have to end in the source, those of one run together."""
        groups = [[log, *branches_of(self._source, log, run)] for log, run in work]
        if move:
            known = {log for group in groups for log in group}
            sessions = _sessions_in(self._source, plan.logs)
            groups += [[log] for log in sessions if log not in known]
        away = self._away([group[0] for group in groups])
        return [group for group in groups if group[0] not in away]

    def _away(self, logs: Sequence[LogId]) -> set[LogId]:
        """Return those of these sessions that went to another store."""
        source = self._source
        return {log for log, info in heads_of(source, logs) if new_address(source, info)}

    def _end_logs(self, groups: Sequence[Sequence[LogId]]) -> None:
        """End these logs in the source. Afterwards nothing is written to them, nor to their
        inboxes. Raises LogsDiffer if one went on in the target: then its end could not follow.
        """
        draft = Draft(
            SessionMoved(self._target.id, self._target.address), Act(self._actor, "human")
        )
        for group in groups:
            away = self._away(group)
            logs = [log for log in dict.fromkeys(group) if log not in away]
            if logs:
                self._check_not_ahead(logs)
                writer = direct_writer()
                writer.append_to_ends(self._source, [(log, [draft]) for log in logs])

    def _take_back(self, plan: CopyPlan) -> None:
        """Let sessions go on here whose end can never arrive, since their copies in the target went
        on by themselves; and let those go on there.

        Logs only grow: two that differ at one seq differ for good. So nobody can bring the end over
        afterwards.
        """
        faults = plan.left.items()
        differ = [log for log, fault in faults if isinstance(fault, LogsDiffer)]
        differ = [log for log in differ if self._differs(log)]
        if not differ:
            return
        source, target = self._source, self._target
        if ended := [log for log in self._away(differ) if _is_sent_to(target, source, log)]:
            self._let_go_on(source, ended, SessionArrived(target.id, target.address))
        # a turn that waits there waits here, too, and is answered here
        queued = {str(row["log"]) for row in all_queued_turns(target)}
        logs = [each for log in differ if log not in queued for each in (log, inbox_of(log))]
        arriving = arriving_logs(target)
        if free := [log for log in logs if log in arriving]:
            self._tell(CopyFinished, free)

    def _differs(self, log: LogId) -> bool:
        """True if the two stores have different events at one seq of a log."""
        ours, theirs = self._source.log(log), self._target.heads([log]).get(log)
        if theirs is None:
            return False
        last = min(ours.tip, theirs.tip)
        return id_at(self._source, ours, last) != id_at(self._target, theirs, last)

    def _ahead(self, plan: CopyPlan, groups: Sequence[Sequence[LogId]]) -> dict[LogId, PlaitError]:
        """Return the sessions that have to move, and went on in the target by themselves."""
        logs = [log for group in groups for log in group if log in plan.logs]
        tips = {log: plan.logs[log].tip for log in logs}
        addresses = self._source.address, self._target.address
        return {
            log: LogsDiffer(log, tip + 1, *addresses)
            for log, tip in tips.items()
            if plan.there[log] > tip
        }

    def _check_not_ahead(self, logs: Sequence[LogId]) -> None:
        ours, theirs = self._source.heads(logs), self._target.heads(logs)
        for log, info in ours.items():
            if log in theirs and theirs[log].tip > info.tip:
                at = info.tip + 1
                raise LogsDiffer(log, at, self._source.address, self._target.address)

    def _arrive(self, plan: CopyPlan) -> None:
        """Let the sessions that moved here go on."""
        source, target = self._source, self._target
        away = list(self._away(_sessions_in(source, plan.logs)))
        body = SessionArrived(source.id, source.address)
        for first in range(0, len(away), PAGE):
            page = away[first : first + PAGE]
            ours, theirs = source.heads(page), target.heads(page)
            at_end = [log for log in page if ours[log].head == theirs[log].head]
            logs = [log for log in at_end if _is_sent_to(target, source, log)]
            if logs:
                self._let_go_on(target, logs, body)
            self._moved += [log for log in logs if plan.logs[log].parent is None]

    def _let_go_on(self, store: Store, logs: Sequence[LogId], body: SessionArrived) -> None:
        """Append this to logs that end with a move, unless another copy was first."""

        def check(events: Sequence[Event]) -> None:
            for event in events:
                if new_address(store, store.log(event.log)) is None:
                    raise _ArrivedAlready

        draft = Draft(body, Act(self._actor, "human"))
        with suppress(_ArrivedAlready):
            direct_writer().append_to_ends(store, [(log, [draft]) for log in logs], check=check)


class _ArrivedAlready(Exception):
    pass


def _is_sent_to(target: Store, source: Store, log: LogId) -> bool:
    event = source.event(source.log(log).head)
    body = event.body
    return isinstance(body, SessionMoved) and body.store == target.id


def _reader_of(source: Store, plan: CopyPlan) -> CopyReader:
    return CopyReader(source, plan.logs, None if plan.is_whole else plan.logs)


def _open_work(store: Store, plan: CopyPlan) -> list[tuple[LogId, str]]:
    """Return the sessions of a plan whose work is not done, each with the run that is open, or with
    the client of a message that waits for one.
    """
    found = [(LogId(str(row["log"])), str(row["run"])) for row in _open_runs(store)]
    turns = [row for row in all_queued_turns(store) if row["log"]]
    found += [(LogId(str(row["log"])), str(row["client"])) for row in turns]
    return [
        (log, name)
        for log, name in dict.fromkeys(found)
        if log in plan.logs and new_address(store, store.log(log)) is None
    ]


def _is_done(store: Store, name: str) -> bool:
    """True if a store knows this run, or this client of a message, and it has nothing to do."""
    row = find_run_row(store, name)
    if row is not None:
        return row["status"] != "open"
    turns = store.rows(TurnRows.name, "turn", {"client": name}, limit=1)
    return bool(turns) and turns[0]["queued"] is None


def _open_runs(store: Store) -> Iterator[Row]:
    before = None
    while page := store.rows(
        INBOX, "run", {"status": "open"}, order="number", before=before, limit=PAGE
    ):
        yield from page
        before = page[-1]["number"]


def _settled_number(store: Store) -> int:
    """Return the number of a commit that is settled, as is all that can be seen now. Raises
    StoreUnsettled if a transaction that began before stays open for too long.
    """
    newest = next(iter(store.feed(limit=1, reverse=True)), (0, None))[0]
    waited = 0.0
    while (number := store.number) < newest:
        if waited >= _SETTLE_S:
            raise StoreUnsettled(store.address, waited)
        sleep(_WAIT_S)
        waited += _WAIT_S
    return number


def _check_some_left(store: Store, plan: CopyPlan, sessions: Collection[LogId] | None) -> None:
    """Raise the fault of a session if there is no other one to copy."""
    if plan.left and not _sessions_in(
        store, plan.logs if sessions is None else sessions, plan.left
    ):
        raise next(iter(plan.left.values()))


def _sessions_in(
    store: Store, logs: Iterable[LogId], but: Container[LogId] = frozenset()
) -> list[LogId]:
    """Return those of these logs that are sessions: neither inboxes nor house logs."""
    ids = [log for log in logs if log not in but]
    found: list[LogId] = []
    for first in range(0, len(ids), PAGE):
        wanted = frozenset(ids[first : first + PAGE])
        rows = store.rows("session", "session", {"log": wanted}, limit=PAGE)
        found += [LogId(str(row["log"])) for row in rows]
    return found


def _result(
    source: Store,
    target: Store | None,
    plan: CopyPlan,
    counts: CopyCounts,
    moved: Collection[LogId],
    there: int,
) -> CopyResult:
    return CopyResult(
        source.address,
        target.address if target is not None else "",
        len(_sessions_in(source, plan.logs)),
        len(plan.logs),
        counts.events,
        counts.blobs,
        counts.bytes,
        there,
        tuple(dict.fromkeys(moved)),
        tuple([_left_out(log, plan.left[log]) for log in _sessions_in(source, plan.left)]),
    )


def _left_out(log: LogId, fault: PlaitError) -> SessionLeftOut:
    return SessionLeftOut(log, type(fault).__name__, fault.record_text)
