"""Recalling: a search, recorded with all that it found and all that it left out.

In a run a recall is a step. It is compared by query, scopes and k; hits are measured. Taken up
again, the recorded hits are returned and no search is made, so a broken index cannot make a replay
diverge.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from plait.errors import InvalidValue, MemoryFault
from plait.event.kinds import (
    Failure,
    MemoryRecalled,
    Omission,
    Purpose,
    RecallFailed,
    Scope,
    Score,
)
from plait.event.strict import check_text
from plait.ids import Digest, Micros, house_of
from plait.journal.writer import direct_writer
from plait.memory.arguments import check_count, check_time
from plait.memory.items import Hit, hit_of_row, hits_of
from plait.memory.ranking import Part, RankedRow, rank_rows
from plait.memory.rows import ITEM, decode_ids
from plait.memory.scopes import SCOPES, Viewer, path_of, viewer_of
from plait.memory.shown import fitting_hits
from plait.memory.standing import is_stale, reason_out_of_time
from plait.memory.words import query_words
from plait.session.acting import acting_in
from plait.session.appending import append_drafts, refuse_if_busy
from plait.session.arguments import value_text
from plait.session.moves import check_may
from plait.session.ports import Draft, writer_of
from plait.session.state import Known
from plait.session.value import S, SessionValue, core_of, position_of
from plait.store import Found, FoundRow, Row, Store

K_MAX = 1000
QUERY_MAX = 8000  # characters
SEEDS = 15  # rows by their own words, whose neighbours are ranked with them
SEEDS_FOR_PARTS = 200  # further parts of a score must have a say on rows that words find alike
NEAR = 2  # neighbours on each side
_OMISSIONS_MAX = 64  # on record; a flood of quarantined texts must not fill the log
_FAILURE_MAX = 2000  # characters
WITHHELD = "withheld in a what-if"
_MOMENT = "pass an earlier value of this session, or a commit number"
_OPEN = "recall in the workflow, with the value that its forward has, or in a fork"


class Question(msgspec.Struct, frozen=True):
    """A recall, as it is asked."""

    query: str
    k: int = 5
    scopes: tuple[Scope, ...] | None = None  # None: all that the session has
    purpose: Purpose | None = None
    workflow: str = ""
    valid_at: Micros | None = None  # None: now
    shown: bool = False  # with the block for a prompt
    tokens_max: int = 1000


class Ranking(NamedTuple):
    """Memories by rank, and those left out, each with the reason."""

    ranked: Sequence[RankedRow]
    left_out: Sequence[Omission]
    unknown: int = 0


class Finder(Protocol):
    """Finds the candidates of a recall: in the store, or in an index elsewhere."""

    @property
    def name(self) -> str:
        """The name on record; "" for the store's own index."""
        ...

    @property
    def seeds(self) -> int:
        """The rows that it needs to rank well."""
        ...

    @property
    def unknown(self) -> int:
        """The ids that the last `find` was given and no record has."""
        ...

    def find(self, store: Store, query: str, viewer: Viewer, limit: int) -> Found: ...

    def rank(self, found: Found, query: str) -> Sequence[RankedRow]: ...


def seeds_for(weights: Mapping[str, float] | None) -> int:
    """Return the rows that a ranking with such further parts needs."""
    return SEEDS_FOR_PARTS if weights else SEEDS


class StoreFinder:
    """Finds by words, in the store's own index.

    `parts` and `weights` add to the score by further measures, such as recency.
    """

    name = ""
    unknown = 0

    def __init__(
        self, parts: Mapping[str, Part] | None = None, weights: Mapping[str, float] | None = None
    ) -> None:
        self._parts, self._weights = parts, weights
        self.seeds = seeds_for(weights)

    def find(self, store: Store, query: str, viewer: Viewer, limit: int) -> Found:
        words = query_words(query)
        regions = viewer.regions
        if not words or regions == []:
            return Found((), {}, 0, 1.0)
        return store.search(
            "memory",
            ITEM,
            words,
            within=regions,
            upto=viewer.number,
            near=("source", NEAR),
            limit=limit,
        )

    def rank(self, found: Found, query: str) -> Sequence[RankedRow]:
        return rank_rows(found, query_words(query), parts=self._parts, weights=self._weights)


def recall(
    session: S,
    question: Question,
    names: dict[Scope, str],
    finder: Finder,
    *,
    at: SessionValue | None = None,
    number: int | None = None,
    actor: str | None = None,
) -> tuple[S, list[Hit]]:
    """Search, record the search and return the hits as recorded.

    `at` and `number`: as it was believed at a value of the session, or at a commit.
    """
    check_question(question)
    check_may(core_of(session), "recall")
    refuse_if_busy(session, "recall", _OPEN)
    scopes = scopes_of(question, names)
    if (followed := _follow_recording(session, question, scopes, finder, actor)) is not None:
        return followed
    body, hits = search_and_rank(session, question, names, finder, at=at, number=number)
    return append_drafts(session, [recall_draft(session, body, actor)]), hits


def scopes_of(question: Question, names: Collection[Scope]) -> tuple[Scope, ...]:
    """Return the scopes that a recall reads: those it names, else all that the session has."""
    return question.scopes or tuple([scope for scope in SCOPES if scope in names])


def has_recorded(session: SessionValue) -> bool:
    """True if a recall is recorded right after this value: it is taken, and no search is made."""
    step = writer_of(session.run).recorded(position_of(session))
    return step is not None and step.kind in _RECALLS


def search_and_rank(
    session: SessionValue,
    question: Question,
    names: dict[Scope, str],
    finder: Finder,
    *,
    at: SessionValue | None = None,
    number: int | None = None,
) -> tuple[MemoryRecalled | RecallFailed, list[Hit]]:
    """Search; return the event to record, also that the search failed, and the hits.

    It writes nothing, so that a driver may wait for it in a thread.
    """
    store, scopes = core_of(session).store, scopes_of(question, names)
    read = number if number is not None else store.number
    viewer = viewer_of(session, names, scopes, at=at, number=number)
    now = time_of(session, at, number)
    withheld = writer_of(session.run).withheld(position_of(session))
    try:
        return _searched(store, question, scopes, finder, viewer, now, read, withheld)
    except Exception as error:  # another index is code of others
        return _failure(question, finder, error), []


def recall_draft(
    session: SessionValue, body: MemoryRecalled | RecallFailed, actor: str | None = None
) -> Draft:
    """Return a recall as it is appended."""
    return Draft(body, acting_in(session, actor)._replace(causes=_causes_of(body)))


def _searched(
    store: Store,
    question: Question,
    scopes: tuple[Scope, ...],
    finder: Finder,
    viewer: Viewer,
    now: Micros,
    read: int,
    withheld: Collection[Digest],
) -> tuple[MemoryRecalled, list[Hit]]:
    """Search; return the event to record and the hits, which are equal to those read back."""
    found = search(
        store, question.query, viewer, finder, now, question.valid_at, question.k, withheld
    )
    ranked = found.ranked[: max(question.k, SEEDS)]
    scores = [_score_of(each, viewer, now) for each in ranked]
    hits = [
        hit_of_row(store, dict(each.row), score)
        for each, score in zip(ranked[: question.k], scores[: question.k], strict=True)
    ]
    left_out, shown = list(found.left_out[:_OMISSIONS_MAX]), ()
    if question.shown:
        shown, hits, over = fitting_hits(hits, now, question.tokens_max)
        left_out += [Omission(memory, "over the prompt's budget") for memory in over]
    kept = {hit.id for hit in hits}
    return MemoryRecalled(
        question.query,
        scopes,
        question.k,
        question.workflow,
        question.purpose,
        read,
        question.valid_at,
        tuple([score for score in scores if score.memory in kept]),
        tuple([score for score in scores if score.memory not in kept]),
        tuple(left_out),
        shown,
        finder.name,
        found.unknown,
    ), hits


def search(
    store: Store,
    query: str,
    viewer: Viewer,
    finder: Finder,
    now: Micros,
    valid_at: Micros | None = None,
    k: int = 5,
    withheld: Collection[Digest] = (),
) -> Ranking:
    """Rank the memories that a reader may see, that are active, and that hold at the time.

    Rows that are found and not active make room for others: the search goes deeper until there are
    enough, or no more.
    """
    wanted = max(finder.seeds, k)
    limit = wanted
    filtering = _RecallFilter(viewer, now, valid_at if valid_at is not None else now, withheld)
    while True:
        found = finder.find(store, query, viewer, limit)
        kept = [each for each in found.rows if filtering.keeps(each.row, is_found=True)]
        scored = [each for each in kept if each.score > 0]
        if len(scored) >= wanted or len(found.rows) < limit:
            break
        limit *= 4
    # rows without a score were found by their meaning alone; they are few
    chosen = scored[:wanted] + [each for each in kept if each.score <= 0]
    cleaned = [filtering.without_hidden_neighbours(each) for each in chosen]
    ranked = finder.rank(found._replace(rows=tuple(cleaned)), query)
    return Ranking(ranked, filtering.left_out, finder.unknown)


class _RecallFilter:
    """Keeps the rows that a recall may return, and notes why it leaves others out."""

    def __init__(
        self, viewer: Viewer, now: Micros, valid_at: Micros, withheld: Collection[Digest]
    ) -> None:
        self._viewer, self._now, self._valid_at = viewer, now, valid_at
        self._withheld = withheld
        self.left_out: list[Omission] = []
        self._kept: dict[Digest, bool] = {}

    def keeps(self, row: Row, *, is_found: bool) -> bool:
        """True if a row may be returned. One that was found and is not is noted."""
        id = Digest(str(row["id"]))
        if id in self._kept:
            return self._kept[id]
        why: str | None = None
        is_visible = self._viewer.may_see(row)
        if is_visible and not (self._viewer.is_plainly_active(row) and not self._withheld):
            standing = self._viewer.standing(row)
            why = reason_out_of_time(row, self._now, self._valid_at)
            why = standing.state if standing.state != "active" else why
            why = WITHHELD if id in self._withheld else why
            if why is not None and is_found:
                self.left_out.append(Omission(id, why))
        self._kept[id] = is_visible and why is None
        return self._kept[id]

    def without_hidden_neighbours(self, found: FoundRow) -> FoundRow:
        """Return a row with those neighbours that may be returned themselves: words of others must
        not move its rank.
        """
        before = tuple([row for row in found.before if self.keeps(row, is_found=False)])
        after = tuple([row for row in found.after if self.keeps(row, is_found=False)])
        return found._replace(before=before, after=after)


def _score_of(ranked: RankedRow, viewer: Viewer, now: Micros) -> Score:
    row = ranked.row
    marks: list[str] = []
    if is_stale(dict(row), now):
        marks.append("stale")
    if row["weakened"]:
        marks.append("less evidence")
    if row["supersedes"] != "[]" and is_disputed(viewer, dict(row)):
        marks.append("disputed")
    parts = {name: _rounded(value) for name, value in ranked.parts.items() if value}
    return Score(Digest(row["id"]), _rounded(ranked.score), parts, tuple(marks))


def _rounded(score: float) -> float:
    """Return a score with six digits that count: enough to tell hits apart, and short on record."""
    return float(f"{score:.6g}")


def is_disputed(viewer: Viewer, row: Row) -> bool:
    """True if another active memory replaces the same one, and neither replaces the other: two
    branches that did not know each other were merged.
    """
    mine = Digest(str(row["id"]))
    for base in decode_ids(str(row["supersedes"])):
        for before in viewer.store.rows("memory", ITEM, {"id": base}, limit=1):
            for other in viewer.standing(before).superseded_by:
                if other == mine:
                    continue
                for rival in viewer.store.rows("memory", ITEM, {"id": other}, limit=1):
                    if viewer.may_see(rival) and viewer.standing(rival).state == "active":
                        return True
    return False


# ── the record ───────────────────────────────────────────────────────────────────────────────


def _follow_recording(
    session: S,
    question: Question,
    scopes: tuple[Scope, ...],
    finder: Finder,
    actor: str | None,
) -> tuple[S, list[Hit]] | None:
    """Take the recorded recall: no search is made. None: nothing is recorded."""
    step = writer_of(session.run).recorded(position_of(session))
    if step is None or step.kind not in _RECALLS:
        return None
    body = step.body
    if isinstance(body, MemoryRecalled):
        body = msgspec.structs.replace(
            body,
            query=question.query,
            scopes=scopes,
            k=question.k,
            workflow=question.workflow,
            purpose=question.purpose,
            index=finder.name,
        )
    elif isinstance(body, RecallFailed):
        body = msgspec.structs.replace(body, query=question.query, index=finder.name)
    act = acting_in(session, actor)._replace(causes=step.header.causes)
    after = append_drafts(session, [Draft(body, act)])
    return after, _hits_after(after)


_RECALLS = frozenset({MemoryRecalled.__name__, RecallFailed.__name__})


def _hits_after(session: SessionValue) -> list[Hit]:
    """Return the hits of the recall that was just recorded, from its bytes."""
    store = core_of(session).store
    event = store.event(session.head)
    return hits_of(store, event) if event.kind == MemoryRecalled.__name__ else []


def _failure(question: Question, finder: Finder, error: Exception) -> RecallFailed:
    text = str(error)[:_FAILURE_MAX].encode("utf-8", "replace").decode()
    failure = Failure(type(error).__name__, text, retryable=isinstance(error, MemoryFault))
    return RecallFailed(question.query, failure, finder.name)


def _causes_of(body: MemoryRecalled | RecallFailed) -> tuple[Digest, ...]:
    if isinstance(body, RecallFailed):
        return ()
    return tuple([hit.memory for hit in body.hits])


def moment_of(
    reader: SessionValue | Store, as_of: SessionValue | int | None
) -> tuple[SessionValue | None, int | None]:
    """Return the value and the commit number at which a reader looks back.

    A value shows all that is on its path, so it must be of the lineage of the session.
    """
    if as_of is None:
        return None, None
    store = core_of(reader).store if isinstance(reader, SessionValue) else reader
    if isinstance(as_of, SessionValue):
        if not isinstance(reader, SessionValue) or not _has_value(reader, as_of):
            raise InvalidValue("as_of", "it is no value of this session", _MOMENT)
        return as_of, store.number_of(as_of.head)
    if type(as_of) is not int or not 0 <= as_of <= store.number:
        raise InvalidValue("as_of", f"{value_text(as_of)} is no moment of this store", _MOMENT)
    return None, as_of


def _has_value(session: SessionValue, value: SessionValue) -> bool:
    """True if a value is of the same lineage, or on the session's path."""
    if value.store != session.store:
        return False
    mine, path = path_of(core_of(session)), core_of(value).state.story.path
    return mine[0].log == path[0].log or Known(mine).has(value.id, value.seq)


def time_of(
    reader: SessionValue | Store, at: SessionValue | None = None, number: int | None = None
) -> Micros:
    """Return the time of a recall: now, or that of the event or the commit at which it looks
    back.
    """
    if at is not None:
        return core_of(at).store.event(at.head).header.time
    store = core_of(reader).store if isinstance(reader, SessionValue) else reader
    if number is not None:
        for found, event in store.feed(max(number - 1, 0), limit=1):
            if found == number:
                return event.header.time
        for found, event in store.feed(reverse=True):  # no event has this very number
            if found <= number:
                return event.header.time
    if isinstance(reader, SessionValue):
        here = position_of(reader)
        return direct_writer().source(here.store).now(here.id, here.seq + 1)
    return now_in(store)


def now_in(store: Store) -> Micros:
    """Return the time for a reader who is no session."""
    return direct_writer().source(store.address).now(house_of(store.id), 0)


def check_question(question: Question) -> None:
    """Raise for a recall that cannot be made."""
    query = question.query
    if not isinstance(query, str) or not query.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue("query", "nothing is asked", "pass a text")
    check_text(query, "query")
    if len(query) > QUERY_MAX:
        raise InvalidValue(
            "query", f"it has {len(query):,} characters", f"pass at most {QUERY_MAX:,}"
        )
    check_count("k", question.k)
    check_count("tokens_max", question.tokens_max)
    check_time("valid_at", question.valid_at)
    if question.k > K_MAX:
        raise InvalidValue("k", f"{question.k:,} are too many", f"pass at most {K_MAX:,}")
