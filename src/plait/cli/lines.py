"""Runs as lines of JSON: each delta and each event as it comes, for programs."""

from __future__ import annotations

import sys
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from plait.cli.documents import print_jsonl
from plait.cli.progress import Progress
from plait.event import Event
from plait.outline.documents import Document, event_document

if TYPE_CHECKING:
    from plait.model.base import Delta


class LineProgress(Progress):
    """Counts as `Progress` does, and prints a line of JSON for each delta and each event."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self._printing = Lock()  # branches of a run report from threads of their own

    def __call__(self, item: Event | Delta) -> None:
        super().__call__(item)
        with self._printing:
            print_line(_item_document(item))


def print_line(document: Document) -> None:
    """Print a document in a line, which a reader gets at once."""
    print_jsonl([document])
    sys.stdout.flush()


def _item_document(item: Event | Delta) -> Document:
    if isinstance(item, Event):
        return {"type": "event", **event_document(item)}
    return {"type": "delta", "kind": type(item).__name__, **msgspec.to_builtins(item)}
