"""Readers of memories: the sessions whose recalls returned them, and the replies that cite them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import msgspec

from plait.event import Event
from plait.event.kinds import MemoryRecalled, MemoryUsed, ModelReplied
from plait.ids import Digest, LogId, short
from plait.memory.falling import Book
from plait.session.listing import session_row
from plait.session.run_rows import find_run_row, is_run_over
from plait.store import Store

RECALLED, USED = MemoryRecalled.__name__, MemoryUsed.__name__
RunState = Literal["open", "finished", "outside"]
_ALL = 2**31


class MemoryReader(msgspec.Struct, frozen=True):
    """A session that was given memories, and the state of the run in which it was."""

    log: LogId
    run: str | None  # None: it recalled outside of runs
    state: RunState
    memories: tuple[Digest, ...]
    recalls: tuple[int, ...]  # the seqs of its recalls
    replies: tuple[int, ...] = ()  # the seqs of its replies that cite them
    title: str = ""

    def __str__(self) -> str:
        how = {"open": "in an open run", "finished": "in a run that is over"}
        title = f" {self.title!r:.60}" if self.title else ""
        at = ", ".join(str(seq) for seq in self.recalls[:8])
        cites = f", cited at {', '.join(map(str, self.replies[:8]))}" if self.replies else ""
        told = how.get(self.state, "outside of runs")
        return f"{short(self.log)}{title}, {told}, recalled at {at}{cites}"


def readers_of(book: Book, memories: Sequence[Digest]) -> tuple[MemoryReader, ...]:
    """Return the sessions that were given any of these memories, in the order of their logs."""
    recalls: dict[tuple[LogId, str | None], dict[int, set[Digest]]] = {}
    replies: dict[LogId, set[int]] = {}
    for memory in memories:
        for event in book.effects(memory):
            if event.kind == RECALLED:
                place = event.log, _run_of(event)
                recalls.setdefault(place, {}).setdefault(event.seq, set()).add(memory)
            elif event.kind == USED:
                for reply in citing_replies(book.store, event):
                    replies.setdefault(reply.log, set()).add(reply.seq)
    return tuple(
        [
            _reader(book.store, log, run, recalls[log, run], replies.get(log, ()))
            for log, run in sorted(recalls, key=lambda place: (place[0], place[1] or ""))
        ]
    )


def _reader(
    store: Store,
    log: LogId,
    run: str | None,
    recalls: dict[int, set[Digest]],
    replies: Iterable[int],
) -> MemoryReader:
    row = session_row(store, log)
    if run is None:
        state: RunState = "outside"
    else:
        state = "finished" if is_run_over(store, run) else "open"
    memories = {memory for seen in recalls.values() for memory in seen}
    title = str(row.get("label") or row.get("title") or "")
    places = tuple(sorted(recalls)), tuple(sorted(replies))
    return MemoryReader(log, run, state, tuple(sorted(memories)), *places, title)


def citing_replies(store: Store, used: Event) -> list[Event]:
    """Return the replies that a use of memories names."""
    causes = [store.event(cause) for cause in used.header.causes]
    return [event for event in causes if event.kind == ModelReplied.__name__]


def _run_of(event: Event) -> str | None:
    run = event.header.run
    return None if run is None else run.partition("/")[0]  # a tool writes in the name of its call


# ── open runs ────────────────────────────────────────────────────────────────────────────────


def inboxes_of(book: Book, memories: Collection[Digest]) -> dict[LogId, list[Digest]]:
    """Return the logs whose open runs were given any of these memories, with those.

    A branch that a run made after it had recalled them was given them, too. One that was merged
    has no safe point any more: the log that took it in hears instead.
    """
    found: dict[LogId, dict[Digest, None]] = {}
    for reader in readers_of(book, sorted(memories)):
        for log in _logs_in_runs(book.store, reader.log, min(reader.recalls), reader.run):
            found.setdefault(log, {}).update(dict.fromkeys(reader.memories))
    return {log: list(known) for log, known in found.items()}


def _logs_in_runs(store: Store, log: LogId, seq: int, run: str | None) -> list[LogId]:
    """Return the logs in the hands of open runs that have an event on their path."""
    found: dict[LogId, None] = {}
    queue = deque([(log, seq)])
    seen = {log}
    while queue:
        here, place = queue.popleft()
        is_open = here == log and run is not None and not is_run_over(store, run)
        if not is_open and not _is_in_run(store, here):
            continue
        ahead = [
            _place(row["into"], row["seq"])
            for row in store.rows("graph", "merge", {"log": here}, limit=_ALL)
        ]
        if not ahead:
            found[here] = None
        for child in store.rows("session", "session", {"parent": here}, limit=_ALL):
            if isinstance(child["place"], int) and child["place"] >= place:
                ahead.append(_place(child["log"], place))
        queue += [each for each in ahead if each[0] not in seen]
        seen.update([each[0] for each in ahead])
    return list(found)


def _place(log: object, seq: object) -> tuple[LogId, int]:
    return LogId(str(log)), int(str(seq))


def _is_in_run(store: Store, log: LogId) -> bool:
    """True if an open run has a log in hand."""
    row = find_run_row(store, str(session_row(store, log).get("run") or ""))
    return row is not None and row["status"] == "open"
