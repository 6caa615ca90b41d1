"""The parameters and the bodies of requests: one struct per route that has some.

A field without a default is required. Parameters of a path and of a query stand in one struct; the
route's path says which is which.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from plait.event import Json
from plait.server.live_shapes import RunVerb

Count = Annotated[int, msgspec.Meta(ge=1, le=500)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=200)]
Seq = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Text = Annotated[str, msgspec.Meta(max_length=1_000_000)]
Line = Annotated[str, msgspec.Meta(max_length=2_000)]


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base class of parameters and bodies. Those without a field have none."""


# ── reads ────────────────────────────────────────────────────────────────────────────────────


class SessionsParams(Params, frozen=True):
    q: Line = ""  # a filter: words, and `status:waiting user:u-17 cost:>1 tag:team=web is:root`
    before: Line = ""  # `next` of the page before
    limit: Limit = 50


class SearchParams(Params, frozen=True):
    q: Line
    limit: Limit = 50


class InboxParams(Params, frozen=True):
    session: Line = ""  # "": of all sessions
    all: bool = False  # also timers, and asks that are answered


class SessionParams(Params, frozen=True):
    session: Line  # an id, the start of it, a label or `@`; `S@k` is its value at event k


class LogParams(Params, frozen=True):
    log: Line


class OutlineParams(Params, frozen=True, rename={"first": "from"}):
    log: Line
    first: Seq = 0  # index of the first step that is wanted


class OutlinesParams(Params, frozen=True):
    logs: Annotated[str, msgspec.Meta(max_length=20_000)]  # ids, with commas


class StepsParams(Params, frozen=True):
    log: Line
    first: Seq = 0
    count: Count = 100


class StepParams(Params, frozen=True):
    log: Line
    seq: Seq


class TrackParams(Params, frozen=True):
    log: Line
    seq: Seq
    after: Seq = 0  # the piece is known up to here: only what comes then is wanted


class EventsParams(Params, frozen=True):
    log: Line
    first: Seq = 1
    count: Count = 100


class FolderParams(Params, frozen=True):
    tree: Line
    folder: Line = ""  # "": the top


class FileParams(Params, frozen=True):
    tree: Line
    path: Line
    first: Annotated[int, msgspec.Meta(ge=1, le=2**53)] = 1  # line
    count: Annotated[int, msgspec.Meta(ge=1, le=5_000)] = 1_000


class DiffParams(Params, frozen=True):
    left: Line  # `none` is the empty tree
    right: Line
    path: Line = ""  # "": all paths


class BlameParams(Params, frozen=True):
    session: Line
    path: Line


class AboutParams(Params, frozen=True):
    session: Line
    # a seq, a line of a file (cart.py:6), a key, a text that was said; "": the place itself
    about: Line = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100


class CompareParams(Params, frozen=True):
    left: Line
    right: Line


class CostsParams(Params, frozen=True):
    session: Line = ""  # "": all sessions
    by: Line = ""  # user, project, tag:NAME, agent, model, session, run, day; with commas
    since: Line = ""
    until: Line = ""


class BlobParams(Params, frozen=True):
    digest: Line
    name: Line = ""  # of the file, if it is saved


class RunParams(Params, frozen=True):
    run: Line


class FeedParams(Params, frozen=True):
    after: Seq | None = None  # a commit number; None: from now on


# ── acts ─────────────────────────────────────────────────────────────────────────────────────


class HelloBody(Params, frozen=True):
    """Hands over the token of a start, and is given a cookie for it."""

    token: Line


class SayBody(Params, frozen=True):
    """Says something: `send` through the inbox, `say` in the log if no run is open."""

    text: Text


class SignalBody(Params, frozen=True):
    name: Line
    value: Json = None


class ApproveBody(Params, frozen=True):
    ask: Line
    edited: Json = None  # all arguments, if they are other ones
    note: Text = ""


class DenyBody(Params, frozen=True):
    ask: Line
    reason: Text = ""


class AnswerBody(Params, frozen=True):
    ask: Line
    value: Json


class ResolveBody(Params, frozen=True):
    ask: Line
    verdict: Literal["happened", "did_not_happen", "compensated"]
    value: Json = None
    note: Text = ""


class ReasonBody(Params, frozen=True):
    """Of `pause`, `unpause`, `cancel` and `close`."""

    reason: Text = ""


class ForkBody(Params, frozen=True):
    label: Line | None = None


class RewindBody(Params, frozen=True):
    """Goes back to the place of the session that is named in the path."""

    reason: Text = ""


class SideChoice(Params, frozen=True):
    """A choice between the sides of a conflict."""

    side: Line | None = None  # the name of a side, as the conflict has it
    value: Json = None  # of a fact: another value; of a file: its text
    drop: bool = False  # it is gone


class MergeBody(Params, frozen=True):
    others: Annotated[tuple[Line, ...], msgspec.Meta(min_length=1, max_length=64)]
    choices: dict[str, SideChoice] = {}  # by key or path, as the conflict names them
    base: Line = ""


class NoteBody(Params, frozen=True):
    text: Text
    key: Line | None = None


class ValidateBody(Params, frozen=True):
    name: Line
    passed: bool
    detail: Json = None


class NewRun(Params, frozen=True):
    """Starts a process that resumes a session, runs it again with something changed, or runs a
    program in it.
    """

    verb: RunVerb
    session: Line  # of a what-if with `@k`, from where it is live
    program: Line = ""  # FILE.py:NAME or module:NAME; "": as the last run of the session says
    accept: Text = ""  # of a resume: why a changed program may go on; "": it may not
    model: Line | None = None
    instruction: Text | None = None
    replace: dict[str, Json] = {}  # by seq: other words for a message, a reply, a result, a fact
    # by agent: the names of the tools that it keeps
    tools: dict[str, tuple[Line, ...]] = {}
    effects: Literal["ask", "live"] = "ask"
    label: Line | None = None


class StopRun(Params, frozen=True):
    """Interrupts the process of a run, as Ctrl-C does."""
