"""Provenance of memories in sessions: why one was present, why one was not, and which were used.

All of it is read from the record. A search that is made to explain an absence leaves no event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from plait.errors import AmbiguousMemory, UnknownMemory, UnknownRows
from plait.event import Event
from plait.event.kinds import (
    Ground,
    MemoryCommitted,
    MemoryProposed,
    MemoryRecalled,
    MemorySupported,
    MemoryUsed,
    Purpose,
    RecallFailed,
    Scope,
    Trust,
)
from plait.ids import Digest, LogId, short
from plait.memory.evidence import Sort, is_visible, memories_shown, piece_of
from plait.memory.falling import Book, effects_of
from plait.memory.items import ID_MIN, SHORT, Named, digits_of, find_row
from plait.memory.readers import RECALLED, USED, citing_replies
from plait.memory.recall import Finder, Question, Ranking, check_question, search, time_of
from plait.memory.rows import DECISION_KINDS, ITEM, READ, SUPPORT, decode_decisions, decode_grounds
from plait.memory.scopes import Overseer, Viewer, owners_of, viewer_of
from plait.memory.standing import VERDICT, MemoryDecision, change_text, reason_out_of_time
from plait.memory.words import query_words
from plait.session.event_text import event_text
from plait.session.house import Houses
from plait.session.listing import session_row
from plait.session.state import Known
from plait.session.value import SessionValue, core_of
from plait.store import Row, Store

_ALL = 2**31
_TEXT_MAX = 100
_PROPOSED = MemoryProposed.__name__
_QUERIES = frozenset({RECALLED, RecallFailed.__name__})
_ABOUT_ONE = DECISION_KINDS | {MemorySupported.__name__}  # their first cause is the memory


class Citing(msgspec.Struct, frozen=True):
    """A recall that returned a memory, as it is on record."""

    log: LogId
    seq: int
    rank: int  # from 1
    of: int  # memories that were ranked
    score: float
    parts: dict[str, float]
    query: str
    actor: str
    workflow: str
    purpose: Purpose | None
    as_of: int  # the commit that was read
    shown: bool  # in a prompt

    def __str__(self) -> str:
        asker = f"{self.workflow}, {self.actor}" if self.workflow else self.actor
        parts = ", ".join(f"{name} {value:.3g}" for name, value in self.parts.items())
        purpose = f" to {self.purpose}" if self.purpose else ""
        return (
            f"rank {self.rank} of {self.of} for {self.query!r:.60}, score {self.score:.3g}"
            f" ({parts}), asked by {asker}{purpose} as of commit {self.as_of}"
            f"  [{short(self.log)}@{self.seq}]"
        )


class Support(msgspec.Struct, frozen=True):
    """One piece of evidence for a memory."""

    event: Digest
    log: LogId
    seq: int
    sort: Sort
    trust: Trust
    says: str
    is_live: bool  # False: it rests on a memory that was taken back

    def __str__(self) -> str:
        dead = "" if self.is_live else ", rests on a memory that was taken back"
        says = " ".join(self.says.split())[:_TEXT_MAX]
        return f"{self.sort} ({self.trust}{dead}): {says}  [{short(self.log)}@{self.seq}]"


class Presence(msgspec.Struct, frozen=True):
    """The recalls, the decision and the evidence by which a memory was in a session."""

    memory: Digest
    text: str
    recalls: tuple[Citing, ...]
    decision: MemoryDecision | None  # that made it active; None: none did
    evidence: tuple[Support, ...]
    replies: tuple[tuple[LogId, int], ...]  # that cite it
    taken_back: str = ""  # what has happened to it since; "": it holds

    def __str__(self) -> str:
        lines = [f"[m:{self.memory[:SHORT]}] {' '.join(self.text.split())[:_TEXT_MAX]}"]
        lines += [f"  recalled: {each}" for each in self.recalls] or ["  never recalled here"]
        lines += [f"  cited by the reply at {short(log)}@{seq}" for log, seq in self.replies]
        if self.decision is not None:
            lines.append(f"  active by {_decider(self.decision)}")
        lines += [f"  evidence: {each}" for each in self.evidence]
        lines += [f"  since then: {self.taken_back}"] if self.taken_back else []
        return "\n".join(lines)


AbsenceReason = Literal[
    "present",
    "proposed",
    "quarantined",
    "superseded",
    "retracted",
    "rejected",
    "expired",
    "not valid then",
    "no common word",
    "common words only",
    "not in the index",
    "below k",
]


class Absence(msgspec.Struct, frozen=True):
    """The one reason why a memory is not among the hits of a query."""

    memory: Digest
    query: str
    k: int
    reason: AbsenceReason
    detail: str
    rank: int | None = None  # from 1; None: it was not ranked
    score: float | None = None
    last: float | None = None  # the score of the k-th
    query_words: tuple[str, ...] = ()
    memory_words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"[m:{self.memory[:SHORT]}] {self.reason}: {self.detail}"


class Use(msgspec.Struct, frozen=True):
    """A memory that a recall on a session's path returned."""

    memory: Digest
    text: str
    log: LogId
    seq: int  # of the recall
    rank: int
    score: float
    query: str
    cited: tuple[tuple[LogId, int], ...] = ()  # the replies that cite it
    ablations: tuple[MemoryUsed, ...] = ()  # runs without it, and what differed
    taken_back: str = ""  # what has happened to it since; "": it holds

    def __str__(self) -> str:
        facts = [f"rank {self.rank} at {short(self.log)}@{self.seq}"]
        facts += ["cited"] if self.cited else []
        for each in self.ablations:
            found = [f"{name} {count}" for name, count in each.differs.items() if count]
            facts.append(f"without it, {each.runs} runs: {', '.join(found) or 'no difference'}")
        facts += [self.taken_back.upper()] if self.taken_back else []
        text = " ".join(self.text.split())[:_TEXT_MAX]
        return f"[m:{self.memory[:SHORT]}] {text}  ({'; '.join(facts)})"


class VisibleEvents:
    """The events that a session may be shown as the provenance of a memory."""

    def __init__(self, session: SessionValue, viewer: Viewer) -> None:
        self._core, self._viewer = core_of(session), viewer
        self._known = Known(self._core.state.story.path)
        self._houses = Houses(viewer.store)
        self._logs: dict[LogId, bool] = {}  # is any event visible that is not on the path

    def has(self, event: Event) -> bool:
        """True if the session may see an event; a memory, and each word about it, only if it may
        see that memory; a query only if its own user asked.
        """
        if event.kind == _PROPOSED:
            return self._has_memory(event.id)
        if event.kind in _QUERIES and not self._is_of_user(event):
            return False
        if event.kind not in _ABOUT_ONE:
            return self._is_visible(event)
        # persons decide in the house log, for all who see the memory
        is_near = event.log in self._houses or self._is_visible(event)
        return is_near and all([self._has_memory(cause) for cause in event.header.causes[:1]])

    def _has_memory(self, id: Digest) -> bool:
        rows = self._viewer.store.rows("memory", ITEM, {"id": id}, limit=1)
        return any(self._viewer.may_see(row) for row in rows)

    def _is_of_user(self, event: Event) -> bool:
        row = session_row(self._viewer.store, event.log)
        return self._known.has(event.log, event.seq) or row.get("user") == self._core.opening.user

    def _is_visible(self, event: Event) -> bool:
        if self._known.has(event.log, event.seq):
            return True
        if event.log not in self._logs:
            self._logs[event.log] = is_visible(self._core, event)
        return self._logs[event.log]


# ── present ──────────────────────────────────────────────────────────────────────────────────


def reason_present(session: SessionValue, memory: Named, viewer: Viewer) -> Presence:
    """Tell by which recalls, by which decision and on which evidence a memory was in a session."""
    store = core_of(session).store
    row = _row_in(session, memory, viewer)
    id = Digest(str(row["id"]))
    known = Known(core_of(session).state.story.path)
    effects = [each for each in effects_of(store, id) if known.has(each.log, each.seq)]
    recalls = [_citing(each, id) for each in effects if each.kind == RECALLED]
    return Presence(
        id,
        str(row["text"]),
        tuple(recalls),
        _activation(viewer, row),
        tuple(_evidence(store, row, VisibleEvents(session, viewer))),
        _replies(store, effects),
        change_text(viewer.standing(row)),
    )


def _row_in(session: SessionValue, memory: Named, viewer: Viewer) -> Row:
    """Return the row of a memory that the session may see, or that a recall on its path returned:
    the session has it on record then, whoever asked.
    """
    store = viewer.store
    try:
        return find_row(store, memory, viewer)
    except UnknownMemory:
        name = digits_of(memory)
        is_long = len(name) >= ID_MIN
        found = {each for each, _, _ in _recalled(session) if is_long and each.startswith(name)}
        if len(found) > 1:
            raise AmbiguousMemory(name, sorted(found)) from None
        for id in found:
            for row in store.rows("memory", ITEM, {"id": id}, limit=1):
                return row
        raise


def _citing(event: Event, memory: Digest) -> Citing:
    body = event.body
    assert isinstance(body, MemoryRecalled)
    rank = [hit.memory for hit in body.hits].index(memory)
    hit = body.hits[rank]
    return Citing(
        event.log,
        event.seq,
        rank + 1,
        len(body.hits) + len(body.candidates),
        hit.score,
        hit.parts,
        body.query,
        event.actor,
        body.workflow,
        body.purpose,
        body.as_of,
        bool(body.shown),
    )


def _activation(viewer: Viewer, row: Row) -> MemoryDecision | None:
    """Return the decision that made a memory active, also if it is not any more."""
    standing = viewer.standing(row)
    if standing.state == "active":
        return standing.by
    decisions = decode_decisions(str(row["decisions"]))
    made = [each for each in decisions if each.kind in (MemoryCommitted.__name__, VERDICT)]
    return made[-1] if made else None


def _decider(decision: MemoryDecision) -> str:
    place = f"[{short(decision.log)}@{decision.seq}]"
    if decision.rule:
        return f"rule {decision.rule!r}, {decision.actor}  {place}"
    return f"{decision.actor}  {place}"


def _evidence(store: Store, row: Row, visible: VisibleEvents) -> Iterator[Support]:
    id, book = Digest(str(row["id"])), Book(store)
    grounds = decode_grounds(str(row["grounds"]))
    if not grounds:  # a document, attached in the same append, or nothing but a person's word
        grounds = [Ground(cause) for cause in store.event(id).header.causes]
    if row["supports"]:
        for support in store.rows("memory", SUPPORT, {"memory": id}, limit=_ALL):
            grounds += decode_grounds(str(support["grounds"]))
    for ground in dict.fromkeys(grounds):
        if not visible.has(found := store.event(ground.event)):
            continue
        piece = piece_of(store, found)
        is_live = not any(book.is_dead(base) for base in ground.memories)
        event = piece.event
        place = event.log, event.seq
        yield Support(event.id, *place, piece.sort, piece.trust, event_text(event), is_live)


def _replies(store: Store, effects: Sequence[Event]) -> tuple[tuple[LogId, int], ...]:
    found: dict[tuple[LogId, int], None] = {}
    for event in effects:
        body = event.body if event.kind == USED else None
        if isinstance(body, MemoryUsed) and body.by == "citation":
            found.update({(each.log, each.seq): None for each in citing_replies(store, event)})
    return tuple(found)


# ── absent ───────────────────────────────────────────────────────────────────────────────────


def reason_absent(
    session: SessionValue,
    query: str,
    memory: Named,
    names: dict[Scope, str],
    finder: Finder,
    k: int,
) -> Absence:
    """Tell the one reason why a memory is not among the first k hits of a query, as things are now.

    One that the session may not see is answered as one that does not exist: UnknownMemory.
    """
    check_question(Question(query, k))
    viewer = viewer_of(session, names)
    store = viewer.store
    row = find_row(store, memory, viewer)
    id = Digest(str(row["id"]))

    def absence(reason: AbsenceReason, detail: str, **more: object) -> Absence:
        fields = {"memory": id, "query": query, "k": k, "reason": reason, "detail": detail}
        return msgspec.convert({**fields, **more}, Absence)

    standing = viewer.standing(row)
    if standing.state != "active":
        by = _decider(standing.by) if standing.by is not None else ""
        details = {
            "proposed": "a branch or a run that has not finished proposed it",
            "quarantined": f"held back by {by}",
            "superseded": change_text(viewer.standing(row)),
        }
        return absence(standing.state, details.get(standing.state, f"by {by}"))
    now = time_of(session)
    if (why := reason_out_of_time(row, now, now)) is not None:
        return absence("expired" if why == "expired" else "not valid then", why)
    asked, own = tuple(query_words(query)), tuple(dict.fromkeys(str(row["words"]).split()))
    words = {"query_words": asked, "memory_words": own}
    found, place = _rank_in(store, query, viewer, finder, now, k, id)
    if place is not None:
        score, last = found.ranked[place].score, found.ranked[min(place, k - 1)].score
        ranked = {"rank": place + 1, "score": score, "last": last, **words}
        if place < k:
            return absence("present", f"it is hit {place + 1} of {k}", **ranked)
        detail = f"rank {place + 1} with {score:.4g}; hit {k} has {last:.4g}"
        return absence("below k", detail, **ranked)
    common = [word for word in asked if word in own]
    if finder.name:
        return absence("not in the index", f"{finder.name} did not return it", **words)
    if common:
        detail = f"it has only {', '.join(common)} in common, which too many memories have"
        return absence("common words only", detail, **words)
    detail = (
        f"the query has {', '.join(asked) or 'none'}; the memory has {', '.join(own) or 'none'}"
    )
    return absence("no common word", detail, **words)


def _rank_in(
    store: Store, query: str, viewer: Viewer, finder: Finder, now: int, k: int, memory: Digest
) -> tuple[Ranking, int | None]:
    """Search as a recall does, then deeper and deeper, until a memory is ranked or all are."""
    wanted = k
    while True:
        found = search(store, query, viewer, finder, now, None, wanted)
        ids = [str(each.row["id"]) for each in found.ranked]
        if memory in ids:
            return found, ids.index(memory)
        if len(ids) < wanted:
            return found, None
        wanted = max(len(ids), wanted) * 4


# ── used ─────────────────────────────────────────────────────────────────────────────────────


def uses_of(session: SessionValue) -> list[Use]:
    """Return the memories that recalls on a session's path returned, in their order, each with the
    replies that cite it, the runs that were made without it, and what has happened to it since.
    """
    store = core_of(session).store
    viewer = viewer_of(session, owners_of(session))
    known = Known(core_of(session).state.story.path)
    about: dict[Digest, tuple[str, tuple[tuple[LogId, int], ...], tuple[MemoryUsed, ...], str]] = {}
    uses: list[Use] = []
    for memory, event, rank in _recalled(session):
        body = event.body
        assert isinstance(body, MemoryRecalled)
        if memory not in about:
            row = next(iter(store.rows("memory", ITEM, {"id": memory}, limit=1)), None)
            effects = effects_of(store, memory)
            here = [each for each in effects if known.has(each.log, each.seq)]
            change = change_text(viewer.standing(row)) if row is not None else ""
            text = str(row["text"]) if row is not None else ""
            about[memory] = text, _replies(store, here), _ablations(session, effects), change
        text, replies, ablations, change = about[memory]
        score = body.hits[rank].score
        place = event.log, event.seq, rank + 1, score
        uses.append(Use(memory, text, *place, body.query, replies, ablations, change))
    return uses


class Lapse(NamedTuple):
    """A memory that was recalled before an event, and why it does not hold any more."""

    memory: Digest
    text: str
    change: str


def lapses_behind(store: Store, event: Event) -> list[Lapse]:
    """Return the memories that were recalled on the path of an event before it, and that were taken
    back or superseded since.
    """
    try:
        recalled = memories_shown(store, event)
        ids = frozenset(recalled)
        rows = store.rows("memory", ITEM, {"id": ids}, limit=_ALL) if ids else ()
    except UnknownRows:  # a store that was opened without memories
        return []
    viewer = Overseer(store)
    changes = {row["id"]: (str(row["text"]), change_text(viewer.standing(row))) for row in rows}
    return [Lapse(each, *changes[each]) for each in recalled if changes.get(each, ("", ""))[1]]


def _ablations(session: SessionValue, effects: Sequence[Event]) -> tuple[MemoryUsed, ...]:
    """Return the results of runs without a memory: on the path, or of branches of this session."""
    found: list[MemoryUsed] = []
    logs = {span.log for span in core_of(session).state.story.path}
    for event in effects:
        body = event.body if event.kind == USED else None
        if isinstance(body, MemoryUsed) and body.by == "ablation" and event.log in logs:
            found.append(body)
    return tuple(found)


def _recalled(session: SessionValue) -> Iterator[tuple[Digest, Event, int]]:
    """Yield the hits of all recalls on a session's path: the memory, the recall and the place."""
    core = core_of(session)
    for span in core.state.story.path:
        for row in core.store.rows("memory", READ, {"log": span.log}, order="seq", limit=_ALL):
            seq = int(str(row["seq"]))
            if span.first <= seq <= span.last:
                event = next(core.store.read(span.log, seq, seq))
                body = event.body
                assert isinstance(body, MemoryRecalled)
                for place, hit in enumerate(body.hits):
                    yield hit.memory, event, place
