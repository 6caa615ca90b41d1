"""Memories that the sessions of a family were given or wrote, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator

from plait.dossier.reading import FamilyReading
from plait.dossier.shapes import GivenMemory, MemoryOrigin, MemoryRead, MemoryWritten
from plait.errors import PlaitError
from plait.event.kinds import MemoryProposed
from plait.ids import Digest, LogId
from plait.outline.shapes import SeqRef
from plait.server.params import SessionParams
from plait.server.recalling import read_memory
from plait.server.shapes import MemoryPage, MemoryRow


def memory_pages(reading: FamilyReading) -> list[MemoryPage]:
    """Return what each session of the family read and wrote, of its own events."""
    logs = [branch.log for branch in reading.family.branches] if reading.family else []
    wanted = [log for log in logs if _has_memories(reading, log)]
    return [read_memory(reading.desk, SessionParams(session=log)) for log in wanted]


def _has_memories(reading: FamilyReading, log: LogId) -> bool:
    return any(each.step.type == "memory" for each in reading.by_log.get(log, ()))


def memories_read(reading: FamilyReading, pages: list[MemoryPage]) -> Iterator[MemoryRead]:
    """Yield each recall, with the memories that it returned."""
    for page in pages:
        for row in page.recalls:
            if reading.index_at(row.log, row.seq) is None:
                continue
            given = [
                GivenMemory(
                    each.memory,
                    each.text,
                    each.score,
                    each.state,
                    each.used,
                    origin_of(reading, each.memory),
                )
                for each in row.memories
            ]
            at = SeqRef(row.log, row.seq)
            yield MemoryRead(at, row.actor, row.time, row.query, tuple(given))


def memories_written(reading: FamilyReading, pages: list[MemoryPage]) -> Iterator[MemoryWritten]:
    """Yield each memory that was proposed, and each decision about one, in their order."""
    rows = dict[tuple[str, int], MemoryRow]()
    for page in pages:
        rows |= {(row.log, row.seq): row for row in (*page.proposed, *page.decided)}
    for row in sorted(rows.values(), key=lambda each: (each.time, each.seq)):
        yield MemoryWritten(
            SeqRef(row.log, row.seq),
            row.memory,
            row.kind,
            row.actor,
            row.time,
            row.text,
            row.state,
            row.why,
            origin_of(reading, row.memory),
        )


def origin_of(reading: FamilyReading, memory: Digest) -> MemoryOrigin | None:
    """Return where a memory comes from: its session, its writer, and its evidence."""
    try:
        event = reading.store.event(memory)
        body = event.body
    except PlaitError:
        return None
    if not isinstance(body, MemoryProposed):
        return None
    grounds = [ground.event for ground in body.grounds] or list(event.header.causes)
    return MemoryOrigin(
        event.log,
        event.seq,
        event.actor,
        event.time,
        body.scope,
        body.owner,
        body.kind,
        body.trust,
        reading.evidence(tuple(grounds)),
    )
