"""Memories as values: one as it is on record, and one as a recall returned it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from plait.errors import AmbiguousMemory, PlaitError, UnknownMemory
from plait.event import Event
from plait.event.kinds import MemoryKind, MemoryProposed, MemoryRecalled, Scope, Score, Trust
from plait.ids import Digest, LogId, Micros, is_digest
from plait.memory.rows import ITEM
from plait.memory.scopes import Viewer
from plait.memory.standing import MemoryStanding
from plait.session.content import text_of
from plait.session.ports import store_at
from plait.store import Row, Scalar, Store

ID_MIN = 4  # digits of an id that name a memory, if no other one begins so
SHORT = 8  # digits that people and prompts see


class MemoryItem(msgspec.Struct, frozen=True):
    """A memory as it is proposed, and its standing for a reader."""

    id: Digest
    store: str  # the address of its store
    log: LogId
    seq: int
    scope: Scope
    owner: str
    kind: MemoryKind
    trust: Trust
    text: str
    time: Micros
    actor: str
    key: str = ""
    speaker: str = ""
    source: str = ""
    importance: int | None = None
    valid_from: Micros | None = None
    valid_until: Micros | None = None
    expires: Micros | None = None
    review_by: Micros | None = None
    standing: MemoryStanding = MemoryStanding()
    supports: int = 0  # how often it was said again from elsewhere
    weakened: int = 0  # rollbacks that took evidence of it away

    @property
    def short(self) -> str:
        """The first digits of its id, as they are typed."""
        return self.id[:SHORT]

    @property
    def state(self) -> str:
        return self.standing.state

    def __str__(self) -> str:
        return f"[m:{self.short}] {self.text}  ({self.kind}, {self.scope}, {self.trust})"


class Hit(msgspec.Struct, frozen=True):
    """A memory as a recall returned it: as recorded, so that a replay returns the same."""

    id: Digest
    store: str
    log: LogId
    seq: int
    scope: Scope
    owner: str
    kind: MemoryKind
    trust: Trust
    text: str
    time: Micros
    score: float
    parts: dict[str, float] = {}
    marks: tuple[str, ...] = ()  # stale, disputed, less evidence
    speaker: str = ""
    key: str = ""
    source: str = ""

    @property
    def short(self) -> str:
        return self.id[:SHORT]

    def __str__(self) -> str:
        marks = f", {', '.join(self.marks)}" if self.marks else ""
        return f"[m:{self.short}] {self.text}  ({self.kind}, {self.scope}, {self.trust}{marks})"


def item_of(store: Store, row: Row, viewer: Viewer) -> MemoryItem:
    """Return the memory of a row, as this reader sees it."""
    owner = str(row["owner"]).partition(":")[2]
    shown = {name: row[name] for name in _AS_THEY_ARE}
    known = {**shown, "store": store.address, "owner": owner}
    known |= {name: row[name] or "" for name in ("key", "source")}
    return msgspec.convert({**known, "standing": viewer.standing(row)}, MemoryItem, strict=False)


_AS_THEY_ARE = (
    "id log seq scope kind trust text time actor speaker importance valid_from valid_until"
    " expires review_by supports weakened"
).split()


def hits_of(store: Store, event: Event) -> list[Hit]:
    """Return the hits of a recall, from its event and those of the memories alone."""
    body = event.body
    assert isinstance(body, MemoryRecalled)
    return [hit_of(store, score) for score in body.hits]


def hit_of(store: Store, score: Score) -> Hit:
    event = store.event(score.memory)
    header = event.header
    try:
        body = event.body
        assert isinstance(body, MemoryProposed)
    except PlaitError as error:  # erased since
        raise UnknownMemory(score.memory[:SHORT]) from error
    return Hit(
        event.id,
        store.address,
        header.log,
        header.seq,
        body.scope,
        body.owner,
        body.kind,
        body.trust,  # pyright: ignore[reportArgumentType]
        text_of(body.parts),
        header.time,
        score.score,
        score.parts,
        score.marks,
        body.speaker,
        body.key,
        body.source,
    )


def hit_of_row(store: Store, row: Row, score: Score) -> Hit:
    """Return a hit from the row of its memory: equal to the one that `hit_of` reads back."""
    return Hit(
        score.memory,
        store.address,
        LogId(str(row["log"])),
        int(str(row["seq"])),
        row["scope"],  # pyright: ignore[reportArgumentType]
        str(row["owner"]).partition(":")[2],
        row["kind"],  # pyright: ignore[reportArgumentType]
        row["trust"],  # pyright: ignore[reportArgumentType]
        str(row["text"]),
        int(str(row["time"])),
        score.score,
        score.parts,
        score.marks,
        str(row["speaker"]),
        str(row["key"] or ""),
        str(row["source"] or ""),
    )


# ── finding one ──────────────────────────────────────────────────────────────────────────────


Named = MemoryItem | Hit | Event | str
"""A memory, or the beginning of its id, with or without `m:` before it."""


def find_row(store: Store, named: Named, viewer: Viewer) -> Row:
    """Return the row of a memory that the reader may see.

    One that it may not see is answered exactly as one that does not exist.
    """
    name = name_of(named)
    digits = digits_of(named)
    if is_digest(digits):
        rows = store.rows("memory", ITEM, {"id": digits}, limit=1)
    elif len(digits) >= ID_MIN and all(digit in "0123456789abcdef" for digit in digits):
        rows = _rows_from(store, digits)
    else:
        raise UnknownMemory(name)
    visible = [row for row in rows if viewer.may_see(row)]
    if not visible:
        raise UnknownMemory(name)
    if len(visible) > 1:
        raise AmbiguousMemory(name, [str(row["id"]) for row in visible])
    return visible[0]


def _rows_from(store: Store, digits: str) -> list[Row]:
    """Return the rows whose ids begin with these digits."""
    # the last id before all of those: rows are paged by the value of the order column
    before = f"{int(digits, 16) - 1:0{len(digits)}x}" if int(digits, 16) else ""
    start = f"{before}{'f' * 64}" if before else ""
    found: list[Row] = []
    while True:
        page = store.rows("memory", ITEM, order="id", before=start or "", limit=64)
        for row in page:
            if not str(row["id"]).startswith(digits):
                return found
            found.append(row)
        if len(page) < 64:
            return found
        start = str(page[-1]["id"])


def latest_rows(store: Store, page: int) -> Iterator[Row]:
    """Yield the rows of all memories, latest first, so many read at once."""
    before: Scalar = None
    while True:
        rows = store.rows(
            "memory", ITEM, order="number", descending=True, before=before, limit=page
        )
        yield from rows
        if len(rows) < page:
            return
        before = rows[-1]["number"]


def digits_of(named: Named) -> str:
    """Return the digits of the id that a name has, without the mark around them."""
    return name_of(named).removeprefix("[").removesuffix("]").removeprefix("m:").lower()


def name_of(named: Named) -> str:
    """Return the id of a memory, or the text that names it."""
    if isinstance(named, (MemoryItem, Hit, Event)):
        return named.id
    if not isinstance(named, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UnknownMemory(repr(named)[:40])
    return named


def store_of(named: Named, store: Store | None) -> Store | None:
    """Return the store of a memory that knows it; else the one given."""
    if isinstance(named, (MemoryItem, Hit)):
        return store_at(named.store)
    return store
