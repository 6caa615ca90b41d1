"""Answers about the present moment: runs that a server started, and events of its feed."""

from __future__ import annotations

from typing import Literal

from plait.ids import LogId, Micros
from plait.outline.shapes import SeqRef, Shape
from plait.server.shapes import ErrorShape

RunVerb = Literal["resume", "whatif", "run"]
RunState = Literal["running", "ended"]


class RunShape(Shape, frozen=True):
    """A run that this server started: a process of its own."""

    id: str
    verb: RunVerb
    session: LogId
    branch: LogId | None  # of a what-if: its branch, once it is there
    command: str  # as it would be typed
    state: RunState
    pid: int
    began: Micros
    ended: Micros | None
    exit_code: int | None  # None: it has not ended, or nobody saw its end
    status: str  # of its end: finished, waiting, failed, cancelled, interrupted; "": not known
    error: ErrorShape | None
    text: str  # its last words, or the end of its error output


class RunList(Shape, frozen=True):
    runs: tuple[RunShape, ...]  # those that run, then those that ended last
    locked: tuple[SeqRef, ...]  # sessions whose runs another process has


# ── the feed ─────────────────────────────────────────────────────────────────────────────────


class NewsRow(Shape, frozen=True, array_like=True):
    """One event of the store, in short."""

    number: int
    log: LogId
    seq: int
    kind: str
    session: LogId | None  # whose log or inbox it stands in; None: the store's own log


class NewsShape(Shape, frozen=True):
    """Events `news` of the feed: settled events in the order of their numbers."""

    rows: tuple[NewsRow, ...]


class ResetShape(Shape, frozen=True):
    """Events `reset` of the feed: the store ends before what the listener has heard, as after a
    restore from a backup. Everything is to be read again, and the feed goes on from this number.
    """

    number: int


class DeltaShape(Shape, frozen=True):
    """Events `delta` of the feed: text that a model writes in a run of this server. It is not on
    record; the settled reply is.
    """

    run: str
    log: LogId | None
    path: str  # of the agent
    type: Literal["text", "thought", "tool", "arguments", "output", "restart", "wait"]
    text: str


class WaitingShape(Shape, frozen=True):
    """Events `waiting` of the feed: how many asks wait for people."""

    count: int
    number: int
