"""Vectors: memories near to a question in meaning, beside those that share words with it.

An `Embedder` turns texts into vectors of one size, in a space of its own. The default one adds up
the static vectors of a text's tokens: no model runs, and the weights come with a wheel. The vector
of a memory depends on its text alone, so that it can be kept. The vector of a question weighs each
word by its rarity among the memories, which the search has found out.

Vectors are a cache. A file for each embedder stands beside the store, and can be deleted: vectors
that are missing are made again. No package of others is imported before an object is constructed.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from plait.errors import InvalidValue, MissingExtra
from plait.ids import digest, parse_digest
from plait.memory.ranking import RankedRow, Row
from plait.memory.words import words_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

FOLDER = "vectors"
VECTOR_SHARE = 0.4  # of the score; the words have the rest
NEAREST_MAX = 20  # rows that are taken for their vectors alone
# A row that shares no word with the question has to be this near to it. In English talk nine of ten
# sentences that have nothing to do with a question are farther away.
SIMILARITY_MIN = 0.4
OTHER_WEIGHT = 1.0  # of a word that the search has no weight for: a function word

_BATCH = 1000
_ID_SIZE = 32
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_WORD = re.compile(r"[^\W_]+")


class Embedder(Protocol):
    """Gives texts their vectors. Two embedders with one id give the same vectors."""

    @property
    def id(self) -> str: ...
    @property
    def size(self) -> int: ...
    def embed(self, texts: Sequence[str]) -> Floats:
        """Return a row for each text, of length 1, or of zeros if the text says nothing."""
        ...

    def embed_question(self, text: str, weights: Mapping[str, float]) -> Floats:
        """Return the vector of a question. The weights of its words may help, or be ignored."""
        ...


class StaticEmbedder:
    """Adds up the static vectors that the `wordllama` wheel brings (256 numbers, English)."""

    size = 256

    def __init__(self) -> None:
        try:
            # The loader of that package looks for its files elsewhere, so it is not imported.
            found = find_spec("wordllama")
            if found is None or found.origin is None:
                raise ImportError("wordllama is not installed")
            import numpy
            from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtra("the static embedder", "memory", str(error)) from error
        home = Path(found.origin).parent
        name = f"l2_supercat_{self.size}"
        self._numpy: Any = numpy
        weights: dict[str, Any] = load_file(home / "weights" / f"{name}.safetensors")
        self._weights = weights["embedding.weight"]
        self._tokenizer: Any = Tokenizer.from_file(
            str(home / "tokenizers" / "l2_supercat_tokenizer_config.json")
        )
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.id = f"wordllama-{metadata.version('wordllama')}-{name}"

    def embed(self, texts: Sequence[str]) -> Floats:
        vectors = self._numpy.zeros((len(texts), self.size), self._numpy.float32)
        for number, text in enumerate(texts):
            vectors[number] = self._sum(text)
        return self._scaled(vectors)

    def embed_question(self, text: str, weights: Mapping[str, float]) -> Floats:
        vector = self._numpy.zeros(self.size, self._numpy.float32)
        for word in _WORD.findall(text):
            stems = words_of(word)
            weight = max((weights.get(stem, OTHER_WEIGHT) for stem in stems), default=OTHER_WEIGHT)
            vector += weight * self._sum(word)
        return self._scaled(vector)

    def _sum(self, text: str) -> Floats:
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return self._weights[tokens].sum(0, dtype=self._numpy.float32)

    def _scaled(self, vectors: Floats) -> Floats:
        lengths = self._numpy.linalg.norm(vectors, axis=-1, keepdims=True)
        return vectors / self._numpy.where(lengths == 0, 1, lengths)


class VectorCache:
    """The vectors of memories by one embedder: in a file, or in memory alone without a folder.

    The file is a header and records of one size: a memory's id, its vector in half precision, and
    a check sum. Processes append under a lock. The first record that is not whole ends the file for
    a reader, and the next writer cuts it off. A file that cannot be written stays as it is: then
    the vectors are kept in memory.
    """

    def __init__(self, embedder: Embedder, folder: Path | None = None) -> None:
        if not _FILE_NAME.match(embedder.id):
            raise InvalidValue(
                "embedder",
                f"its id {embedder.id!r} cannot name a file",
                "give it an id of at most 100 letters, digits, dots, dashes and underscores",
            )
        try:
            import numpy
        except ImportError as error:
            raise MissingExtra("a cache of vectors", "memory", str(error)) from error
        self.embedder = embedder
        self._numpy: Any = numpy
        self._path = folder / FOLDER / f"{embedder.id}.vectors" if folder is not None else None
        self._record: Any = numpy.dtype(
            [("id", f"V{_ID_SIZE}"), ("vector", "<f2", (embedder.size,)), ("check", "<u4")]
        )
        self._guard = Lock()
        self._forget_all()

    def fill(self, ids: Iterable[str], text_of: Callable[[str], str]) -> int:
        """Make the vectors that are missing, and return their number."""
        with self._guard:
            self._refresh()
            missing = [each for each in dict.fromkeys(ids) if each not in self._places]
            for start in range(0, len(missing), _BATCH):
                batch = missing[start : start + _BATCH]
                self._add(batch, self.embedder.embed([text_of(each) for each in batch]))
            return len(missing)

    def similarities(self, vector: Floats, ids: Sequence[str]) -> list[float]:
        """Return how near each memory is to a vector: 1 is the same direction, 0 is unknown."""
        with self._guard:
            places = [self._places.get(each, -1) for each in ids]
            near = self._vectors[places] @ vector
        return [round(float(each), 6) for each in near]

    def forget(self, ids: Collection[str]) -> None:
        """Take the vectors of these memories out of the file. Others stay."""
        gone = frozenset(ids)
        with self._guard:
            if self._path is None:
                kept = [each for each in self._places if each not in gone]
                vectors = self._vectors[[self._places[each] for each in kept]]
                self._forget_all()
                self._keep(kept, vectors)
            else:
                self._rewrite(gone)

    def clear(self) -> None:
        """Drop all vectors, the file too."""
        with self._guard:
            if self._path is not None:
                with suppress(FileNotFoundError), _locked(self._path):
                    self._path.unlink()
            self._forget_all()

    def _forget_all(self) -> None:
        self._places: dict[str, int] = {}
        # The last row stays zero: it is the vector of a memory that has none.
        self._vectors: Any = self._numpy.zeros((1, self.embedder.size), self._numpy.float32)
        self._inode, self._end = 0, 0

    def _keep(self, ids: Sequence[str], vectors: Any) -> None:
        """Take vectors into memory. Room for twice as many is made, so that it is made rarely."""
        count = len(self._places)
        if count + len(ids) >= len(self._vectors):
            room = (2 * (count + len(ids)) + 1, self.embedder.size)
            grown = self._numpy.zeros(room, self._numpy.float32)
            grown[:count] = self._vectors[:count]
            self._vectors = grown
        self._vectors[count : count + len(ids)] = vectors
        self._places.update((each, count + number) for number, each in enumerate(ids))

    def _add(self, ids: Sequence[str], vectors: Floats) -> None:
        if self._path is None:
            return self._keep(ids, vectors)
        records = self._numpy.zeros(len(ids), self._record)
        records["id"] = [bytes.fromhex(parse_digest(each)) for each in ids]
        records["vector"] = vectors
        records["check"] = self._check_sums(records)
        try:
            with _locked(self._path):
                self._append(records)
        except OSError:  # read-only, or full: a cache is not worth a failure
            self._keep(ids, records["vector"])

    def _append(self, records: Any) -> None:
        assert self._path is not None
        self._refresh()  # another process may have made the same vectors
        fresh = records[[name not in self._places for name in _names(records)]].tobytes()
        with self._path.open("r+b" if self._end else "wb") as file:
            file.truncate(self._end)
            file.seek(self._end)
            file.write(fresh if self._end else self._header() + fresh)
        self._refresh()

    def _rewrite(self, gone: Collection[str]) -> None:
        assert self._path is not None
        with suppress(FileNotFoundError), _locked(self._path):
            self._forget_all()
            _, records = self._read()
            kept = records[[name not in gone for name in _names(records)]]
            fresh = self._path.with_suffix(".new")
            fresh.write_bytes(self._header() + kept.tobytes())
            fresh.replace(self._path)
        self._forget_all()
        self._refresh()

    def _refresh(self) -> None:
        """Take in the records that this or another process has added."""
        if self._path is None:
            return
        try:
            status = self._path.stat()
        except OSError:
            # A file that was read is gone. Vectors that were never in a file stay.
            return self._forget_all() if self._end else None
        if status.st_ino != self._inode or status.st_size < self._end:
            self._forget_all()
        if status.st_size == self._end:
            return
        self._end, records = self._read()
        self._inode = status.st_ino
        fresh = {name: number for number, name in enumerate(_names(records))}
        names = [name for name in fresh if name not in self._places]
        self._keep(names, records["vector"][[fresh[name] for name in names]])

    def _read(self) -> tuple[int, Any]:
        """Return the place after the last whole record, and the records not read before."""
        assert self._path is not None
        none = self._numpy.zeros(0, self._record)
        with self._path.open("rb") as file:
            begin = self._end
            if begin == 0:
                if file.read(_ID_SIZE) != self._header():
                    return 0, none  # another layout: it is written anew
                begin = _ID_SIZE
            file.seek(begin)
            content = file.read()
        whole = len(content) // self._record.itemsize
        if whole == 0:
            return begin, none
        records = self._numpy.frombuffer(content, self._record, count=whole)
        broken = self._numpy.flatnonzero(records["check"] != self._check_sums(records))
        good = int(broken[0]) if len(broken) else whole
        return begin + good * self._record.itemsize, records[:good]

    def _header(self) -> bytes:
        layout = f"{self.embedder.id} {self.embedder.size}"
        return bytes.fromhex(digest(b"plait/vectors/2\n", layout.encode()))

    def _check_sums(self, records: Any) -> Any:
        """Add up each record, and one more: a record of zeros is no record."""
        plain = self._numpy.frombuffer(records.tobytes(), "<u2").reshape(len(records), -1)
        return 1 + plain[:, :-2].sum(1, dtype=self._numpy.uint32)


def _names(records: Any) -> list[str]:
    names: str = records["id"].tobytes().hex()
    return [names[place : place + 2 * _ID_SIZE] for place in range(0, len(names), 2 * _ID_SIZE)]


@contextmanager
def _locked(path: Path) -> Generator[None]:
    path.parent.mkdir(exist_ok=True)
    handle = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class VectorRanker:
    """Ranks by words and vectors, with one embedder and the vectors that it has made.

    `folder` is the store's; None keeps the vectors in memory.
    """

    def __init__(
        self, embedder: Embedder, folder: Path | None = None, *, share: float = VECTOR_SHARE
    ) -> None:
        self.cache, self._share = VectorCache(embedder, folder), share

    def rank(
        self,
        ranked: Sequence[RankedRow],
        question: str,
        weights: Mapping[str, float],
        text_of: Callable[[Row], str],
        others: Iterable[Row] = (),
    ) -> tuple[RankedRow, ...]:
        """Rank again the rows ranked by words, and the nearest of the others.

        `weights` are those of the search. A text is asked for only if its vector is missing; it
        should begin with the name of its speaker.
        """
        rows = {row["id"]: row for row in (*others, *(each.row for each in ranked))}
        self.cache.fill(rows, lambda name: text_of(rows[name]))
        vector = self.cache.embedder.embed_question(question, weights)
        near = dict(zip(rows, self.cache.similarities(vector, list(rows)), strict=True))
        return rank_with_vectors(ranked, near, rows, share=self._share)


def rank_with_vectors(
    ranked: Sequence[RankedRow],
    near: Mapping[str, float],
    rows: Mapping[str, Row],
    *,
    share: float = VECTOR_SHARE,
) -> tuple[RankedRow, ...]:
    """Rank again, by words and vectors: the rows ranked, and the nearest that words did not find.

    `near` has the similarity of each memory by id, `rows` the rows that may be added. The score by
    words is divided by the best one, that by vectors is spread from 0 to 1; the part "vector" has
    `share` of the sum.
    """
    known = {each.row["id"]: each for each in ranked}
    others = sorted(
        (name for name in rows if near.get(name, 0.0) >= SIMILARITY_MIN and name not in known),
        key=lambda name: (-near[name], rows[name]["number"]),
    )
    for name in others[:NEAREST_MAX]:
        known[name] = RankedRow(rows[name], 0.0, {"own": 0.0, "window": 0.0})
    top = max((each.score for each in ranked), default=0.0) or 1.0
    low = min((near.get(name, 0.0) for name in known), default=0.0)
    low = min(low, SIMILARITY_MIN / 2)  # a row that is near has a score, also if it is the only one
    width = max((near.get(name, 0.0) for name in known), default=0.0) - low or 1.0
    mixed: list[RankedRow] = []
    for name, each in known.items():
        parts = {part: (1 - share) * score / top for part, score in each.parts.items()}
        parts["vector"] = share * (near.get(name, 0.0) - low) / width
        mixed.append(RankedRow(each.row, sum(parts.values()), parts))
    mixed.sort(key=lambda each: (-each.score, each.row["number"]))
    return tuple(mixed)
