"""A family of logs as stretches and lanes: the picture that terminal, SVG and page draw.

A log is cut where a branch was forked from it and where it merged one. A piece without a step of
its own belongs to the piece before it. Each log has one lane for its life, from the place it was
forked at to its last step, or to the merge that took it in; the root's is the leftmost. A lane is
used again when the log that had it is over.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from plait.ids import LogId, short
from plait.outline.lanes import LaneSpan, lanes_of
from plait.outline.outlines import Outlines
from plait.outline.records import LogRecord
from plait.outline.shapes import BranchShape, FamilyShape, SeqRef, StretchShape
from plait.outline.spending import SessionSpending, run_branches
from plait.outline.standing import SessionStanding, StandingReader
from plait.session.listing import session_row
from plait.store import Row, Store


class StretchPiece(NamedTuple):
    """A stretch before it has its place in the picture."""

    log: LogId
    first: int
    last: int
    first_step: int
    step_count: int


def family_shape(outlines: Outlines, log: LogId) -> FamilyShape:
    """Return all sessions connected with a log by forks and merges, with their lanes."""
    store = outlines.store
    number = store.number
    members = family_records(outlines, log)
    rows = {member: session_row(store, member) for member in members}
    pieces = _Pieces(outlines, members)
    order = pieces.ordered()
    index_of = {piece: index for index, piece in enumerate(order)}
    lanes = lanes_of(_spans(members, pieces, index_of))
    branch_of = {member: index for index, member in enumerate(members)}
    root = next(iter(members))
    forked = run_branches(store, members, root)
    spent, unmerged = SessionSpending(outlines).of(members[root], forked)
    return FamilyShape(
        root=root,
        title=str(rows[root].get("title") or ""),
        branches=tuple(_branches(store, members, rows)),
        spent=spent.shape(),
        spent_unmerged=unmerged.shape(),
        stretches=tuple(
            [
                StretchShape(
                    branch=branch_of[piece.log],
                    lane=lanes[piece.log],
                    first=piece.first,
                    last=piece.last,
                    first_step=piece.first_step,
                    step_count=piece.step_count,
                    parents=tuple([index_of[parent] for parent in pieces.parents(piece)]),
                )
                for piece in order
            ]
        ),
        lane_count=max(lanes.values(), default=0) + 1,
        number=number,
    )


def family_records(outlines: Outlines, log: LogId) -> dict[LogId, LogRecord]:
    """Return the records of a family's logs: the root of the log first, then the others in the
    order in which they were found.
    """
    store, found = outlines.store, dict[LogId, LogRecord]()
    queue = deque([_root_of(store, log)])
    while queue:
        member = queue.popleft()
        if member in found:
            continue
        record = found[member] = outlines.record(member)
        for row in store.rows("session", "session", {"parent": member}, limit=2**31):
            queue.append(LogId(str(row["log"])))
        for row in store.rows("graph", "merge", {"log": member}, limit=2**31):
            queue.append(_root_of(store, LogId(str(row["into"]))))
        for merge in record.merges:
            queue.extend([_root_of(store, branch) for branch, _ in merge.branches])
    return found


def _root_of(store: Store, log: LogId) -> LogId:
    return store.lineage(log)[0].log


def _branches(
    store: Store, members: Mapping[LogId, LogRecord], rows: Mapping[LogId, Row]
) -> Iterator[BranchShape]:
    reader = StandingReader(store)
    merged = dict[LogId, list[SeqRef]]()
    for record in members.values():
        for merge in record.merges:
            for branch, _ in merge.branches:
                merged.setdefault(branch, []).append(SeqRef(record.log, merge.seq))
    for color, (log, record) in enumerate(members.items()):
        row, info = rows[log], store.log(log)
        parent = SeqRef(info.parent, info.place) if info.parent is not None else None
        title = row.get("title") if parent is None else ""
        standing = reader.of_session(row) if row else SessionStanding(record.life.status)
        yield BranchShape(
            log=log,
            short=short(log),
            name=str(row.get("label") or title or short(log)),
            status=standing.status,
            standing=standing.text,
            is_due=standing.is_due,
            parent=parent,
            place=record.place,
            tip=record.tip,
            color=color,
            step_count=record.step_count,
            merged_into=tuple(merged.get(log, ())),
            spent=record.spent.shape(),
        )


class _Pieces:
    """The logs of a family, cut into pieces."""

    def __init__(self, outlines: Outlines, members: Mapping[LogId, LogRecord]) -> None:
        self._outlines, self._members = outlines, members
        self._forked = {log: outlines.store.log(log) for log in members}
        cuts: dict[LogId, set[int]] = {log: set() for log in members}  # last seqs of pieces
        for log, info in self._forked.items():
            holder = self._holder(log)
            if holder is not None:
                cuts[holder].add(info.place)
            for merge in members[log].merges:
                cuts[log].add(merge.seq - 1)
                for branch, place in merge.branches:
                    cuts[branch].add(place)
        self.of = {log: _cut(members[log], cuts[log]) for log in members}
        self._noted = set[LogId]()  # records with new commit numbers

    def _holder(self, log: LogId) -> LogId | None:
        """Return the log that holds the event a log was forked at."""
        info = self._forked[log]
        if info.parent is None:
            return None
        for span in reversed(self._outlines.store.lineage(info.parent)):
            if span.first <= info.place and span.log in self._members:
                return span.log
        return None

    def at(self, log: LogId, seq: int) -> StretchPiece:
        """Return the piece of a log that holds an event."""
        pieces = self.of[log]
        at = bisect_left([piece.last for piece in pieces], seq)
        return pieces[min(at, len(pieces) - 1)]

    def parents(self, piece: StretchPiece) -> list[StretchPiece]:
        """Return the pieces that the line of a piece comes from: the one before it first, then
        those of the branches that it merged.
        """
        pieces, found = self.of[piece.log], list[StretchPiece]()
        at = pieces.index(piece)
        if at:
            found.append(pieces[at - 1])
        elif (holder := self._holder(piece.log)) is not None:
            found.append(self.at(holder, self._forked[piece.log].place))
        merges = self._members[piece.log].merges
        for merge in merges[bisect_left(merges, piece.first, key=lambda each: each.seq) :]:
            if merge.seq > piece.last:
                break
            found.extend([self.at(branch, place) for branch, place in merge.branches])
        return list(dict.fromkeys([each for each in found if each != piece]))

    def ordered(self) -> list[StretchPiece]:
        """Return the pieces in the order of their first commits, parents always first."""
        pieces = [piece for of_log in self.of.values() for piece in of_log]
        waits, children = dict[StretchPiece, int](), dict[StretchPiece, list[StretchPiece]]()
        for piece in pieces:
            parents = self.parents(piece)
            waits[piece] = len(parents)
            for parent in parents:
                children.setdefault(parent, []).append(piece)
        ready = [(self._number(piece), piece) for piece in pieces if not waits[piece]]
        heapq.heapify(ready)
        order = list[StretchPiece]()
        while ready:
            _, piece = heapq.heappop(ready)
            order.append(piece)
            for child in children.get(piece, ()):
                waits[child] -= 1
                if not waits[child]:
                    heapq.heappush(ready, (self._number(child), child))
        for log in self._noted:
            self._outlines.keep(self._members[log])
        placed = set(order)  # hashes allow no circle; what has one is shown all the same
        return order + [piece for piece in pieces if piece not in placed]

    def _number(self, piece: StretchPiece) -> int:
        """Return the commit number of a piece's first event."""
        record = self._members[piece.log]
        if piece.first not in record.numbers:
            store = self._outlines.store
            event = next(store.read(piece.log, piece.first, piece.first))
            record.numbers[piece.first] = store.number_of(event.id) or 0
            self._noted.add(piece.log)
        return record.numbers[piece.first]


def _cut(record: LogRecord, cuts: set[int]) -> list[StretchPiece]:
    """Cut a log after these seqs. A piece without a step belongs to the one before it."""
    pieces = list[StretchPiece]()
    first, step = record.place + 1, 0
    inner = sorted(cut for cut in cuts if first <= cut < record.tip)
    for last in (*inner, record.tip):
        after = bisect_left(record.firsts, last + 1)
        if after > step or not pieces:
            pieces.append(StretchPiece(record.log, first, last, step, after - step))
        else:
            pieces[-1] = pieces[-1]._replace(last=last)
        first, step = last + 1, after
    return pieces


def _spans(
    members: Mapping[LogId, LogRecord], pieces: _Pieces, index_of: Mapping[StretchPiece, int]
) -> list[LaneSpan]:
    """Return for each log the rows, counted in stretches, in which it has a line."""
    ends = {log: index_of[pieces.of[log][-1]] for log in members}
    for log, record in members.items():
        for merge in record.merges:
            at = index_of[pieces.at(log, merge.seq)]
            for branch, _ in merge.branches:
                ends[branch] = max(ends[branch], at)
    spans = list[LaneSpan]()
    for log in members:
        first = pieces.of[log][0]
        parents = pieces.parents(first)
        begin = index_of[parents[0]] + 1 if parents else 0
        spans.append(LaneSpan(log, begin, index_of[first], ends[log]))
    return spans
