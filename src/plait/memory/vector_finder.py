"""Finding by words and by meaning: the store's own index, and vectors of an embedder.

Words find rows as they do without vectors. Rows that share no word with a question are added if
they are near to it, and all are ranked by both measures (vectors.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from threading import Lock

from plait.memory.ranking import Part, RankedRow, rank_rows, with_parts
from plait.memory.recall import StoreFinder, seeds_for
from plait.memory.rows import ITEM
from plait.memory.scopes import Viewer
from plait.memory.vectors import (
    NEAREST_MAX,
    SIMILARITY_MIN,
    Embedder,
    VectorCache,
    rank_with_vectors,
)
from plait.memory.words import query_words
from plait.store import Found, FoundRow, Region, Row, Store, folder_of

_PAGE = 1000
_SEEDS = 20  # rows by their own words: more than without vectors, which tell good ones from bad


class Vectors:
    """The vectors of memories, store by store: made when missing, and kept beside each store."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._stores: dict[str, StoreVectors] = {}
        self._lock = Lock()

    def of(self, store: Store) -> StoreVectors:
        """Return the vectors of a store's memories, up to date."""
        with self._lock:
            if store.id not in self._stores:
                self._stores[store.id] = StoreVectors(self.embedder, store)
            vectors = self._stores[store.id]
            vectors.fill()
            return vectors

    def clear(self, store: Store) -> None:
        """Drop the vectors of a store: they are made again."""
        with self._lock:
            vectors = self._stores.pop(store.id, None) or StoreVectors(self.embedder, store)
            vectors.cache.clear()


class StoreVectors:
    """The vectors of one store's memories, and the ids of each owner, in commit order."""

    def __init__(self, embedder: Embedder, store: Store) -> None:
        self.cache = VectorCache(embedder, folder_of(store.address))
        self._store = store
        self._owned: dict[str, list[tuple[int, str]]] = {}
        self._number = -1  # memories up to this one are taken in: it is settled

    def fill(self) -> None:
        """Take in the memories that are new. Beyond the settled number an older one may yet appear:
        those are looked at again the next time.
        """
        settled, last = self._store.number, self._number
        while True:
            page = self._store.rows("memory", ITEM, order="number", before=last, limit=_PAGE)
            texts = {str(row["id"]): _spoken_text(row) for row in page}
            self.cache.fill(texts, texts.__getitem__)
            for row in page:
                last = int(str(row["number"]))
                owned, item = self._owned.setdefault(str(row["owner"]), []), (last, str(row["id"]))
                place = bisect_left(owned, item)
                if owned[place : place + 1] != [item]:
                    owned.insert(place, item)
            if len(page) < _PAGE:
                self._number = max(self._number, settled)
                return

    def ids_of(self, regions: Sequence[Region] | None, upto: int | None) -> list[str]:
        """Return the ids of the memories in these regions, up to a commit. None: of all."""
        if regions is None:
            regions = [Region(owner) for owner in self._owned]
        found = {
            id: None
            for owner, first, last in regions
            for number, id in self._owned.get(owner, ())
            if first <= number <= last and (upto is None or number <= upto)
        }
        return list(found)


class VectorFinder:
    """Finds the candidates of one recall by words and by vectors: a `Finder`."""

    unknown = 0

    def __init__(
        self,
        vectors: Vectors,
        parts: Mapping[str, Part] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self._vectors, self._words = vectors, StoreFinder()
        self._parts, self._weights, self.seeds = parts, weights, max(seeds_for(weights), _SEEDS)
        self.name = vectors.embedder.id
        self._near: dict[str, float] = {}  # similarities to the question, by id

    def find(self, store: Store, query: str, viewer: Viewer, limit: int) -> Found:
        found = self._words.find(store, query, viewer, limit)
        vectors = self._vectors.of(store)
        ids = vectors.ids_of(viewer.regions, viewer.number)
        question = vectors.cache.embedder.embed_question(query, found.weights)
        near = vectors.cache.similarities(question, ids)
        self._near = dict(zip(ids, near, strict=True))
        known = {str(each.row["id"]) for each in found.rows}
        others = [id for id in ids if self._near[id] >= SIMILARITY_MIN and id not in known]
        others.sort(key=lambda id: -self._near[id])
        rows = [_row_of(store, id) for id in others[:NEAREST_MAX]]
        return found._replace(rows=(*found.rows, *[FoundRow(row, 0.0, (), ()) for row in rows]))

    def rank(self, found: Found, query: str) -> Sequence[RankedRow]:
        by_words = [each for each in found.rows if each.score > 0]
        by_meaning = {str(each.row["id"]): each.row for each in found.rows if each.score == 0}
        ranked = rank_rows(found._replace(rows=tuple(by_words)), query_words(query))
        mixed = rank_with_vectors(ranked, self._near, by_meaning)
        return with_parts(mixed, self._parts, self._weights)


def _spoken_text(row: Row) -> str:
    """Return the text of a memory with the name of its speaker, which a question may ask about."""
    return f"{row['speaker']}: {row['text']}" if row["speaker"] else str(row["text"])


def _row_of(store: Store, id: str) -> Row:
    return store.rows("memory", ITEM, {"id": id}, limit=1)[0]
