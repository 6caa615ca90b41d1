"""The output of a command: views, pieces, and secrets in either."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait import secrets
from plait.sandbox.output import Spool, cut_pieces, keep_output, shorten, without_secrets
from plait.store import MemoryStore
from plait.testing import Seeded
from plait.workspace import PIECE

KEY = "sk-canary-0123456789"


@pytest.fixture
def key() -> Iterator[str]:
    secrets.register(KEY, "KEY")
    yield KEY
    secrets.forget("KEY")


def spool(*parts: bytes) -> Spool:
    made = Spool()
    for part in parts:
        made.write(part)
    return made


@given(st.text(), st.integers(0, 30), st.integers(1, 9))
def test_a_view_is_the_beginning_and_the_end(text: str, characters: int, step: int) -> None:
    parts = [text[i : i + step] for i in range(0, len(text), step)]
    seen = shorten(parts, characters)
    if len(text) <= characters:
        assert seen == text
    else:
        half = characters // 2
        last = text[-half:] if half else ""
        assert (
            seen == f"{text[: characters - half]}\n… {len(text) - characters:,} characters left out"
            f" …\n{last}"
        )


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_pieces_are_the_whole(parts: list[bytes], size: int) -> None:
    pieces = list(cut_pieces(parts, size))
    assert b"".join(pieces) == b"".join(parts)
    assert all(len(piece) == size for piece in pieces[:-1])


def test_no_character_is_split_and_odd_bytes_are_replaced() -> None:
    data = "é€😀".encode() * 7_000
    made = spool(*[data[i : i + 7] for i in range(0, len(data), 7)], b"\xff\xfe")
    assert made.view(100).count("�") == 2 and made.view(100).endswith("��")
    assert "characters left out" in made.view(100)


def test_an_output_is_kept_in_pieces() -> None:
    store = MemoryStore(source=Seeded(0))
    data = bytes(range(256)) * (PIECE // 256) * 9 + b"end"
    kept = keep_output(store, spool(data), "out.bin", "application/octet-stream")
    assert b"".join(store.get_blob(blob) for blob in (kept.blob, *kept.rest)) == data
    assert len(kept.rest) == 9 and (kept.name, kept.media_type) == (
        "out.bin",
        "application/octet-stream",
    )
    empty = keep_output(store, spool(), "none")
    assert store.get_blob(empty.blob) == b"" and empty.rest == ()


def test_secrets_are_seen_by_nobody(key: str) -> None:
    """At every place where two pieces can meet."""
    for edge in range((1 << 18) - len(key) - 1, (1 << 18) + 2, 3):
        made = spool(b"x" * edge + key.encode() + b"\n" + b"y" * 100)
        assert key not in made.view() and "[secret KEY]" in made.view(1 << 20)
        assert key.encode() not in b"".join(made.pieces(1 << 17))


@given(st.lists(st.sampled_from([KEY, KEY[:9], KEY[9:], "x", "x" * 70_000])))
def test_secrets_across_parts(words: list[str]) -> None:
    secrets.register(KEY, "KEY")
    try:
        text = "".join(words)
        done = b"".join(without_secrets(word.encode() for word in words))
        assert done == text.replace(KEY, "[secret KEY]").encode()
    finally:
        secrets.forget("KEY")
