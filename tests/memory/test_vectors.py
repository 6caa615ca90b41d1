"""Vectors: near in meaning, kept in a file that several processes share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plait.errors import InvalidValue
from plait.memory.ranking import RankedRow
from plait.memory.vectors import (
    FOLDER,
    SIMILARITY_MIN,
    StaticEmbedder,
    VectorCache,
    VectorRanker,
    rank_with_vectors,
)
from plait.memory.words import query_words
from tests.support import ForkedProgram, child_environment

if find_spec("wordllama") is None:  # not imported: its loader takes a second
    pytest.skip("needs the extra [memory]", allow_module_level=True)
np = pytest.importorskip("numpy", reason="needs the extra [memory]")

if TYPE_CHECKING:
    from plait.memory.vectors import Floats

TEXTS = {
    sha256(text.encode()).hexdigest(): text
    for text in (
        "Ann: I adopted a puppy from the shelter.",
        "Ben: The invoice was paid on Friday.",
        "Ann: We drove to the ocean and swam.",
    )
}
PUPPY, INVOICE, OCEAN = TEXTS
WRITER = """
import sys
from pathlib import Path
from tests.memory.test_vectors import LetterEmbedder, name_of
from plait.memory.vectors import VectorCache
folder, start = Path(sys.argv[1]), int(sys.argv[2])
names = {name_of(n): str(n) for n in range(start, start + 300)}
for name in names:
    VectorCache(LetterEmbedder(), folder).fill([name], names.__getitem__)
"""


def name_of(number: int) -> str:
    return sha256(str(number).encode()).hexdigest()


class LetterEmbedder:
    """Counts digits: a space of its own, and a count of the texts that it was asked for."""

    size = 10

    def __init__(self, name: str = "digits-1") -> None:
        self.id = name
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> Floats:
        self.texts += texts
        rows = [[text.count(digit) for digit in "0123456789"] for text in texts]
        found = np.array(rows, np.float32).reshape(len(texts), self.size)
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1)

    def embed_question(self, text: str, weights: Mapping[str, float]) -> Floats:
        return self.embed([text])[0]


def file_of(folder: Path) -> Path:
    return next((folder / FOLDER).glob("*.vectors"))


@pytest.fixture(scope="module")
def static() -> StaticEmbedder:
    return StaticEmbedder()


def test_a_question_is_near_to_its_answer_without_a_common_word(static: StaticEmbedder) -> None:
    cache = VectorCache(static)
    cache.fill(TEXTS, TEXTS.__getitem__)
    for question, answer in (
        ("Does anyone own a dog?", PUPPY),
        ("Has the bill been settled with money?", INVOICE),
        ("Who visited the sea?", OCEAN),
    ):
        near = cache.similarities(static.embed_question(question, {}), list(TEXTS))
        assert max(zip(near, TEXTS, strict=True))[1] == answer


def test_a_rare_word_weighs_more(static: StaticEmbedder) -> None:
    cache = VectorCache(static)
    cache.fill(TEXTS, TEXTS.__getitem__)
    question = "puppy invoice"
    for rare, answer in (("puppy", PUPPY), ("invoice", INVOICE)):
        weights = {word: 0.1 for word in query_words(question)} | dict.fromkeys(
            query_words(rare), 9
        )
        near = cache.similarities(static.embed_question(question, weights), list(TEXTS))
        assert max(zip(near, TEXTS, strict=True))[1] == answer


def test_vectors_have_length_one_or_zero(static: StaticEmbedder) -> None:
    lengths = np.linalg.norm(static.embed(["Ann said so", "", "東京"]), axis=1)
    assert [round(float(length), 3) for length in lengths] == [1, 0, 1]


@pytest.mark.parametrize("on_disk", [True, False])
def test_vectors_are_made_once(tmp_path: Path, on_disk: bool) -> None:
    embedder = LetterEmbedder()
    cache = VectorCache(embedder, tmp_path if on_disk else None)
    names = {name_of(number): str(number) for number in range(2500)}
    assert cache.fill(names, names.__getitem__) == 2500
    assert cache.fill(names, names.__getitem__) == 0
    assert VectorCache(embedder, tmp_path).fill(names, names.__getitem__) == (
        0 if on_disk else 2500
    )
    question = embedder.embed_question("77", {})
    asked = [name_of(7), name_of(1), "unknown", name_of(1777)]
    assert cache.similarities(question, asked) == [1, 0, 0, pytest.approx(0.9487, abs=1e-3)]


@pytest.mark.parametrize("on_disk", [True, False])
def test_forgotten_vectors_are_gone(tmp_path: Path, on_disk: bool) -> None:
    embedder = LetterEmbedder()
    cache = VectorCache(embedder, tmp_path if on_disk else None)
    other = VectorCache(embedder, tmp_path)  # another process that has read the file before
    names = {name_of(number): str(number) for number in range(5)}
    cache.fill(names, names.__getitem__)
    other.fill(names, names.__getitem__)
    cache.forget([name_of(2)])
    question = embedder.embed_question("2", {})
    assert cache.similarities(question, [name_of(2)]) == [0]
    assert cache.similarities(embedder.embed_question("4", {}), [name_of(4)]) == [1]
    if on_disk:
        assert bytes.fromhex(name_of(2)) not in file_of(tmp_path).read_bytes()
        assert other.fill(list(names), names.__getitem__) == 1
    cache.clear()
    assert cache.fill(names, names.__getitem__) == 5


def test_two_spaces_are_never_mixed(tmp_path: Path) -> None:
    names = {name_of(number): str(number) for number in range(3)}
    for space in ("digits-1", "digits-2"):
        assert VectorCache(LetterEmbedder(space), tmp_path).fill(names, names.__getitem__) == 3
    assert len(list((tmp_path / FOLDER).glob("*.vectors"))) == 2
    file_of(tmp_path).write_bytes(b"a file of another layout")
    total = sum(
        VectorCache(LetterEmbedder(space), tmp_path).fill(names, names.__getitem__)
        for space in ("digits-1", "digits-2")
    )
    assert total == 3
    with pytest.raises(InvalidValue, match="cannot name a file"):
        VectorCache(LetterEmbedder("../up"), tmp_path)


def test_a_torn_tail_is_cut_off(tmp_path: Path) -> None:
    embedder = LetterEmbedder()
    names = {name_of(number): str(number) for number in range(4)}
    VectorCache(embedder, tmp_path).fill(names, names.__getitem__)
    file = file_of(tmp_path)
    whole = file.read_bytes()
    size = (len(whole) - 32) // 4
    for torn in (whole[:-1], whole[:-size] + bytes(size), whole[: -size // 2], whole + b"\1" * 9):
        file.write_bytes(torn)
        lost = 0 if torn.startswith(whole) else 1
        cache = VectorCache(embedder, tmp_path)
        assert cache.fill(names, names.__getitem__) == lost
        assert cache.similarities(embedder.embed_question("3", {}), [name_of(3)]) == [1]
        assert VectorCache(embedder, tmp_path).fill([*names, name_of(9)], lambda _: "9") == 1
        assert len(file.read_bytes()) == len(whole) + size


def test_a_file_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("not a folder")
    embedder = LetterEmbedder()
    cache = VectorCache(embedder, tmp_path)
    assert cache.fill([name_of(3)], lambda _: "3") == 1
    assert cache.similarities(embedder.embed_question("3", {}), [name_of(3)]) == [1]


def test_processes_share_a_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    starts = ("0", "150", "300")
    writers = [ForkedProgram([*command, start], env=child_environment()) for start in starts]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    embedder = LetterEmbedder()
    cache = VectorCache(embedder, tmp_path)
    names = {name_of(number): str(number) for number in range(600)}
    assert cache.fill(names, names.__getitem__) == 0
    assert len(file_of(tmp_path).read_bytes()) == 32 + 600 * (32 + 2 * 10 + 4)
    near = [
        cache.similarities(embedder.embed([text])[0], [name])[0] for name, text in names.items()
    ]
    assert min(near) > 0.99


def test_words_and_vectors_share_a_score() -> None:
    rows = {name: {"id": name, "number": number} for number, name in enumerate("abcd")}
    ranked = (
        RankedRow(rows["a"], 4.0, {"own": 3.0, "window": 1.0}),
        RankedRow(rows["b"], 2.0, {"own": 0.0, "window": 2.0}),
    )
    near = {"a": 0.1, "b": 0.5, "c": 0.9, "d": SIMILARITY_MIN - 0.01}
    mixed = rank_with_vectors(ranked, near, rows, share=0.4)
    assert [(each.row["id"], round(each.score, 6)) for each in mixed] == [
        ("a", 0.6),
        ("b", 0.5),
        ("c", 0.4),
    ]
    assert mixed[1].parts == pytest.approx({"own": 0.0, "window": 0.3, "vector": 0.2})
    assert [each.row["id"] for each in rank_with_vectors(ranked, near, {}, share=0)] == ["a", "b"]
    assert rank_with_vectors((), {}, {}) == ()


def test_a_row_without_a_common_word_is_found(static: StaticEmbedder) -> None:
    rows = [{"id": name, "number": number} for number, name in enumerate(TEXTS)]
    ranker = VectorRanker(static)
    words = (RankedRow(rows[1], 1.0, {"own": 1.0, "window": 0.0}),)
    question = "Did Ann adopt a dog from a shelter?"
    found = ranker.rank(words, question, {}, lambda row: TEXTS[row["id"]], rows)
    assert [each.row["id"] for each in found] == [INVOICE, PUPPY]
    again = ranker.rank(words, question, {}, lambda row: pytest.fail("made again"), rows)
    assert again == found
    alone = ranker.rank(words, question, {}, lambda row: TEXTS[row["id"]])
    assert [each.row["id"] for each in alone] == [INVOICE]


def test_the_package_loads_no_numpy() -> None:
    code = "import sys, plait, plait.memory.vectors; print('numpy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
