"""One spelling for each folder, and nothing else is taken for a tree."""

from __future__ import annotations

import pytest

from plait.errors import InvalidValue, StoreCorrupt
from plait.ids import Digest
from plait.workspace import TreeEntry
from plait.workspace.tree import (
    EMPTY,
    TAG,
    TreeReader,
    decode,
    digest_of,
    encode,
    parts_of,
    shown_path,
)

ONE, TWO = Digest("1" * 64), Digest("2" * 64)
ENTRIES = [
    TreeEntry("-rf", "file", 0o644, 3, (ONE,)),
    TreeEntry("a b\n", "file", 0o755, 2 << 20, (ONE, TWO)),
    TreeEntry("empty", "file", 0o000, 0, ()),
    TreeEntry("hidden", "withheld", 0o600, 9, (TWO,)),
    TreeEntry("link", "link", 0o777, 0, (), "../no\nwhere\udcff"),
    TreeEntry("src", "folder", 0o555, 0, (ONE,)),
    TreeEntry("\udcff", "file", 0o644, 3, (ONE,)),
    TreeEntry("日本", "file", 0o644, 3, (ONE,)),
]


def test_there_and_back_in_the_order_of_bytes() -> None:
    raw = encode(reversed(ENTRIES))
    assert raw == encode(ENTRIES)
    assert decode(raw) == [*ENTRIES[:6], ENTRIES[7], ENTRIES[6]]  # 0xff comes after 0xe6
    assert decode(TAG) == []
    assert digest_of(encode([])) == EMPTY


def test_bits_beyond_permissions_are_dropped() -> None:
    assert decode(encode([TreeEntry("s", "file", 0o4755)]))[0].mode == 0o755


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b"])
def test_what_cannot_be_a_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue):
        encode([TreeEntry(name, "file")])


def test_no_name_twice() -> None:
    with pytest.raises(InvalidValue):
        encode([TreeEntry("a", "file"), TreeEntry("a", "folder", blobs=(ONE,))])


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"hello",
        TAG[:-1],
        TAG + b"f644 3 - a",
        TAG + b"f644 3 - ..\0",
        TAG + b"f644 3 - a/b\0",
        TAG + b"f644 3 - b\0f644 3 - a\0",
        TAG + b"f644 3 - a\0f644 3 - a\0",
        TAG + b"f4755 3 - a\0",
        TAG + b"f644 03 - a\0",
        TAG + b"f0644 3 - a\0",
        TAG + b"f644 3 xyz a\0",
        TAG + b"d755 0 - a\0",
        TAG + b"w600 0 - a\0",
        TAG + b"l777 0 - a\0",
        TAG + b"l777 0 - a\0\0",
        TAG + b"f644 3 - \0",
        TAG + b"\0",
        TAG + b"x644 3 - a\0",
    ],
)
def test_whatever_is_spelled_otherwise_is_refused(raw: bytes) -> None:
    with pytest.raises(StoreCorrupt):
        decode(raw)


class _Blobs(dict[Digest, bytes]):
    def get_blob(self, digest: Digest) -> bytes:
        return self[digest]

    def add(self, content: bytes) -> Digest:
        self[digest_of(content)] = content
        return digest_of(content)


def test_reading_finds_and_walks() -> None:
    blobs = _Blobs()
    inner = blobs.add(
        encode([TreeEntry("f", "file", size=2, blobs=(blobs.add(b"x"), blobs.add(b"y")))])
    )
    root = blobs.add(
        encode(
            [
                TreeEntry("d", "folder", 0o755, 0, (inner,)),
                TreeEntry("l", "link", 0o777, target="d"),
            ]
        )
    )
    reader = TreeReader(blobs)
    assert [path for path, _ in reader.walk(root)] == ["d", "d/f", "l"]
    found = reader.find(root, "./d//f")
    assert found is not None
    assert reader.content(found) == b"xy"
    assert reader.find(root, "l/f") is None  # links are not followed
    assert reader.find(root, "d/../d") is None
    assert reader.find(root, "") == TreeEntry("", "folder", 0o755, 0, (root,))
    assert list(TreeReader(blobs).walk(EMPTY)) == []  # needs no blob


def test_a_reader_keeps_a_bounded_number_of_folders() -> None:
    blobs = _Blobs()
    trees = [blobs.add(encode([TreeEntry(str(n), "file")])) for n in range(5)]
    reader = TreeReader(blobs, keep=2)
    for tree in trees:
        reader.entries(tree)
    blobs.clear()
    assert reader.entries(trees[4])
    with pytest.raises(KeyError):
        reader.entries(trees[0])


def test_paths_as_people_read_them() -> None:
    assert shown_path("a/\udcff日") == "a/\\xff日"
    assert parts_of("/./a//b/") == ["a", "b"]
