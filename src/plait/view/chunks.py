"""Named pieces of JSON, each compressed by itself, as elements of a page that are no scripts.

Digests do not compress, and the same one stands in many pieces. So a text that is a digest is
replaced by its number in a table, which the file has once: `"~2f"`. Other texts that begin with a
tilde get a second one.
"""

from __future__ import annotations

import gzip
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from itertools import islice

import msgspec

MEDIA_TYPE = "application/x-plait"
TABLE = 4096  # digests in a piece of the table
_encode = msgspec.json.Encoder().encode
_DIGEST = re.compile(rb'"([0-9a-f]{64})"')
_TILDE = re.compile(rb'(?<!\\)"~')  # at the beginning of a text: within it, a quote is escaped
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Chunks:
    """The pieces of one file, and the bytes that each subject takes."""

    def __init__(self) -> None:
        self._elements: list[str] = []
        self._digests: dict[bytes, int] = {}
        self.sizes: Counter[str] = Counter()

    def add(self, name: str, value: object) -> None:
        """Add a piece. Its subject is the first part of its name: `steps/0/3` are steps."""
        text = _DIGEST.sub(self._number, _TILDE.sub(rb'"~~', _encode(value)))
        self._add(name, gzip.compress(text, 9, mtime=0))

    def elements(self) -> Iterator[str]:
        """Yield all pieces as elements, after the table of their digests."""
        digests = iter(self._digests)
        number = 0
        while part := b"".join(islice(digests, TABLE)):
            self._add(f"digests/{number}", bytes.fromhex(part.decode()))
            number += 1
        return iter(self._elements)

    def _add(self, name: str, content: bytes) -> None:
        packed = b64encode(content).decode()
        self._elements.append(f'<script type="{MEDIA_TYPE}" data-name="{name}">{packed}</script>')
        self.sizes[name.partition("/")[0]] += len(packed)

    def _number(self, found: re.Match[bytes]) -> bytes:
        number = self._digests.setdefault(found[1], len(self._digests))
        return f'"~{_base36(number)}"'.encode()


def _base36(number: int) -> str:
    digits = _DIGITS[number % 36]
    while number := number // 36:
        digits = _DIGITS[number % 36] + digits
    return digits
