"""Named pieces of JSON, each compressed by itself, as elements of a page that are no scripts."""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator

import msgspec

MEDIA_TYPE = "application/x-plait"
_encode = msgspec.json.Encoder().encode


class Chunks:
    """The pieces of one file, and the bytes that each subject takes."""

    def __init__(self) -> None:
        self._elements: list[str] = []
        self.sizes: Counter[str] = Counter()

    def add(self, name: str, value: object) -> None:
        """Add a piece. Its subject is the first part of its name: `steps/0/3` are steps."""
        packed = b64encode(gzip.compress(_encode(value), 9, mtime=0)).decode()
        self._elements.append(f'<script type="{MEDIA_TYPE}" data-name="{name}">{packed}</script>')
        self.sizes[name.partition("/")[0]] += len(packed)

    def elements(self) -> Iterator[str]:
        return iter(self._elements)
