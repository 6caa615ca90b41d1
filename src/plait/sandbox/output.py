"""The output of a command: a file without a name, of any size.

The bytes go to disk as they come and are kept as they are, control sequences and all. They are read
as a view or as pieces, both of bounded size. Neither ever holds a secret that the process knows,
not even one that lies across two pieces: the end of each part is held back until the next is read.
"""

from __future__ import annotations

import codecs
import itertools
import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator

from plait import secrets
from plait.event.kinds import File
from plait.ids import Digest
from plait.ids import digest as digest_of
from plait.sandbox.base import VIEW_MAX, Output
from plait.store import Store
from plait.workspace import PIECE

_READ = 1 << 18
_BATCH = 2  # pieces that go into the store together
_HELD = 1 << 16  # bytes held back: no spelling of a secret is longer


class Spool:
    """An `Output` that grows while the command runs."""

    def __init__(self, folder: str | None = None) -> None:
        """`folder`: a folder with room for it; None: that of temporary files."""
        self._fd, path = tempfile.mkstemp(prefix="plait-output-", dir=folder)
        os.unlink(path)
        self._size = 0
        # by the clock of the files, which is the one to compare files with
        self.begun = os.fstat(self._fd).st_ctime
        weakref.finalize(self, os.close, self._fd)

    @property
    def size(self) -> int:
        """Bytes that were written, secrets among them."""
        return self._size

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            done = os.pwrite(self._fd, rest, self._size)
            self._size, rest = self._size + done, rest[done:]

    def view(self, characters: int = VIEW_MAX) -> str:
        return shorten(self._texts(), characters)

    def pieces(self, size: int = PIECE) -> Iterator[bytes]:
        return cut_pieces(without_secrets(self._chunks()), size)

    def _texts(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for data in without_secrets(self._chunks()):
            yield decoder.decode(data)
        yield decoder.decode(b"", final=True)

    def _chunks(self) -> Iterator[bytes]:
        place = 0
        while data := os.pread(self._fd, _READ, place):
            place += len(data)
            yield data


def shorten(texts: Iterable[str], characters: int) -> str:
    """Return the beginning and the end of a text that comes in parts, and the length of the gap."""
    half = characters // 2
    head, tail, count = "", "", 0
    for text in texts:
        count += len(text)
        room = characters - len(head)
        head, text = head + text[:room], text[room:]
        tail = (tail + text)[-half:] if half else ""
    if count <= characters:
        return head
    last = (head + tail)[-half:] if half else ""
    return f"{head[: characters - half]}\n… {count - characters:,} characters left out …\n{last}"


def without_secrets(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Return the same bytes, with the secrets that the process knows replaced."""
    held = b""
    for part in parts:
        if not secrets.is_armed():
            yield held + part
            held = b""
            continue
        data = secrets.hide_bytes(held + part)
        edge = max(0, len(data) - _HELD)
        held = data[edge:]
        yield data[:edge]
    yield held


def cut_pieces(parts: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Cut the parts into pieces of exactly this size; the last one may be shorter."""
    held = bytearray()
    for part in parts:
        held += part
        while len(held) >= size:
            yield bytes(held[:size])
            del held[:size]
    if held:
        yield bytes(held)


def keep_output(store: Store, output: Output, name: str, media_type: str = "text/plain") -> File:
    """Put an output into the store, a few pieces at a time. An empty output is one empty blob."""
    digests: list[Digest] = []
    for some in _batches(output.pieces(PIECE)):
        named = [(digest_of(piece), piece) for piece in some]
        store.put_blobs(dict(named))
        digests += [digest for digest, _ in named]
    return File(name=name, media_type=media_type, blob=digests[0], rest=tuple(digests[1:]))


def _batches(pieces: Iterator[bytes]) -> Iterator[list[bytes]]:
    yield list(itertools.islice(pieces, _BATCH)) or [b""]
    while some := list(itertools.islice(pieces, _BATCH)):
        yield some
