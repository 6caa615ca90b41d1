"""Rows about tool calls: found across all sessions by tool, actor, outcome and changed path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, get_args

import msgspec

from plait.errors import InvalidValue
from plait.event import Event
from plait.event.kinds import (
    Body,
    ToolFailed,
    ToolRequested,
    ToolResolved,
    ToolReturned,
    ToolUnknown,
    Trees,
)
from plait.ids import LogId, Micros
from plait.session.arguments import is_named
from plait.session.content import text_of, unpack
from plait.store import Row, Rows, Scalar, Store, Table

Outcome = Literal["open", "returned", "failed", "unknown", "undone"]
"""A call without an outcome yet; one that returned; one that failed, or whose command ended with a
code other than 0; one that may have happened; one that did not happen, or was compensated.
"""

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_USUAL: Outcome = "returned"
_PAGE = 200
_ALL = 2**31
_TOLD = 20  # actors that an error names


def outcome_of(body: Body) -> Outcome:
    """Return the outcome of a call after an event about it with this body."""
    if isinstance(body, ToolFailed) or (isinstance(body, ToolReturned) and body.exit_code):
        return "failed"
    if isinstance(body, ToolUnknown):
        return "unknown"
    if isinstance(body, ToolResolved) and body.verdict != "happened":
        return "undone"
    return "open" if isinstance(body, ToolRequested) else "returned"


class EffectRows:
    """A `Projection`: one row per tool call, and one per path that it changed.

    `number`, `seq` and `time` are those of the first request, `end` is the seq of the outcome.
    `odd` is the outcome, unless the call returned: an index leaves out rows without a value, so
    this one stays small. Each folder of a changed file has a row, too: so a search by folder is a
    search by value. The table `actor` has each principal that made a call, once.
    """

    name = "effect"
    version = 2
    kinds = frozenset(
        kind.__name__
        for kind in (ToolRequested, ToolReturned, ToolFailed, ToolUnknown, ToolResolved)
    )
    tables = (
        Table(
            "call",
            key=("log", "call"),
            columns={
                "number": "integer",
                "log": "text",
                "call": "text",
                "seq": "integer",
                "end": "integer",
                "tool": "text",
                "outcome": "text",
                "odd": "text",
                "actor": "text",
                "time": "integer",
                "run": "text",
            },
            indexes=(("tool", "number"), ("odd", "number"), ("actor", "number")),
        ),
        Table(
            "path",
            key=("path", "number"),
            columns={"path": "text", "number": "integer", "log": "text", "call": "text"},
        ),
        Table("actor", key=("actor",), columns={"actor": "text"}),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        header, body = event.header, event.body
        call = header.call or event.id
        if isinstance(body, ToolRequested):
            before = rows.get("call", header.log, call) if body.attempt > 1 else None
            row: Row = before or {
                "number": number,
                "log": header.log,
                "call": call,
                "seq": header.seq,
                "tool": body.tool,
                "actor": header.actor,
                "time": header.time,
                "run": header.run,
            }
            rows.put("call", {**row, "end": None, "outcome": "open", "odd": "open"})
            if rows.get("actor", row["actor"]) is None:
                rows.put("actor", {"actor": row["actor"]})
            return
        before = rows.get("call", header.log, call)
        if before is None:  # an answer in an inbox: the run copies it to the session
            return
        outcome = outcome_of(body)
        odd = None if outcome == _USUAL else outcome
        rows.put("call", {**before, "end": header.seq, "outcome": outcome, "odd": odd})
        trees = getattr(body, "trees", None)
        if isinstance(trees, Trees):
            for path in _with_folders(trees.changed):
                named = {name: before[name] for name in ("number", "log", "call")}
                rows.put("path", {"path": path, **named})


def _with_folders(paths: Iterable[str]) -> Iterator[str]:
    """Yield paths and the folders above them, each once."""
    seen = set[str]()
    for path in paths:
        while path and path not in seen:
            seen.add(path)
            yield path
            path = path.rpartition("/")[0]


# ── finding ──────────────────────────────────────────────────────────────────────────────────


class CallFilter(NamedTuple):
    """Chooses tool calls. None: any."""

    tool: str | None = None
    path: str | None = None  # a changed file, or a folder with changed files
    outcome: Outcome | None = None
    actor: str | None = None  # a principal, whole: see `calling_actor`
    logs: Mapping[LogId, int] | None = None  # the logs of a session, each with its last seq there
    since: Micros = 0
    until: Micros = 2**63

    def has(self, row: Row) -> bool:
        if self.tool not in (None, row["tool"]) or self.outcome not in (None, row["outcome"]):
            return False
        if self.logs is not None and self.logs.get(LogId(str(row["log"])), 0) < int(
            str(row["seq"])
        ):
            return False
        return (
            self.actor in (None, row["actor"]) and self.since <= int(str(row["time"])) <= self.until
        )


class FoundCall(msgspec.Struct, frozen=True):
    """One tool call of a store."""

    log: LogId
    seq: int  # of its first request
    call: str
    tool: str
    outcome: Outcome
    actor: str
    time: Micros
    run: str | None
    paths: tuple[str, ...]  # the paths that it changed, by its last outcome
    why: str = ""  # the first line of its failure, or the reason of another odd outcome


def find_calls(store: Store, wanted: CallFilter) -> Iterator[FoundCall]:
    """Yield the tool calls of a store that a filter chooses, the newest first."""
    if wanted.path is not None:
        rows = _rows_of(store, _pages(store, "path", {"path": wanted.path}))
    elif wanted.outcome not in (None, _USUAL):
        rows = _pages(store, "call", {"odd": wanted.outcome})
    elif wanted.actor is not None:
        rows = _pages(store, "call", {"actor": wanted.actor})
    elif wanted.tool is not None:
        rows = _pages(store, "call", {"tool": wanted.tool})
    else:
        rows = _rows_of(store, _requests(store))
    for row in rows:
        if wanted.has(row):
            yield _found_call(store, row)


def _rows_of(store: Store, calls: Iterable[Row]) -> Iterator[Row]:
    for each in calls:
        where = {"log": each["log"], "call": each["call"]}
        yield from store.rows(EffectRows.name, "call", where, limit=1)


def _requests(store: Store) -> Iterator[Row]:
    """Yield all calls by their first requests, the newest first."""
    for _, event in store.feed(kinds={ToolRequested.__name__}, reverse=True):
        body = event.body
        if isinstance(body, ToolRequested) and body.attempt == 1:
            yield {"log": event.log, "call": event.header.call or event.id}


def _pages(store: Store, table: str, where: Mapping[str, Scalar]) -> Iterator[Row]:
    after: Scalar = None
    while page := store.rows(
        EffectRows.name, table, where, order="number", descending=True, before=after, limit=_PAGE
    ):
        yield from page
        after = page[-1]["number"]


def _found_call(store: Store, row: Row) -> FoundCall:
    log, end = LogId(str(row["log"])), row["end"]
    body = next(store.read(log, end, end)).body if isinstance(end, int) else None
    trees = getattr(body, "trees", None)
    return FoundCall(
        log,
        int(str(row["seq"])),
        str(row["call"]),
        str(row["tool"]),
        msgspec.convert(row["outcome"], Outcome),
        str(row["actor"]),
        int(str(row["time"])),
        None if row["run"] is None else str(row["run"]),
        trees.changed if isinstance(trees, Trees) else (),
        "" if body is None else _reason_of(body, store),
    )


def _reason_of(body: Body, store: Store) -> str:
    """Return the first line that tells why a call failed, may have happened, or was undone."""
    if isinstance(body, ToolFailed):
        text = body.failure.message or body.failure.kind
    elif isinstance(body, ToolReturned) and body.exit_code:
        said = text_of(unpack(body.parts, store.get_blob)).strip()
        text = f"exit code {body.exit_code}: {said}" if said else f"exit code {body.exit_code}"
    elif isinstance(body, ToolUnknown):
        text = body.why
    else:
        text = body.note if isinstance(body, ToolResolved) else ""
    return text.strip().partition("\n")[0]


def calling_actor(store: Store, name: str) -> str:
    """Return the principal of tool calls that a name means: `coder`, `agent:coder` and `lead/coder`
    may all be `agent:lead/coder`.

    Raises InvalidValue, with the principals that there are, if it means none or several.
    """
    rows = store.rows(EffectRows.name, "actor", limit=_ALL)
    actors = [str(row["actor"]) for row in rows]
    found = [actor for actor in actors if is_named(actor, name)]
    exact = [actor for actor in found if name in (actor, actor.partition(":")[2])]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if found:
        why = f"{name!r} may be {', '.join(found[:_TOLD])}"
        raise InvalidValue("actor", why, "name one of them")
    known = f"name one of {', '.join(actors[:_TOLD])}" if actors else "there are no tool calls"
    more = f" and {len(actors) - _TOLD:,} more" if len(actors) > _TOLD else ""
    raise InvalidValue("actor", f"{name!r} made no tool call", f"{known}{more}")


def checked_path(path: str) -> str:
    """Return the path of a file or folder as the rows have it: relative, without a / at its end."""
    plain = path.removeprefix("./").rstrip("/") if isinstance(path, str) else ""  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
    if not plain or plain.startswith(("/", "../")):
        raise InvalidValue(
            "path",
            f"{path!r} is no path in the session's files",
            "write it as the session has it: src/cart.py, or src/ for a folder",
        )
    return plain


def checked_outcome(outcome: Outcome) -> Outcome:
    """Return the outcome; raises if there is none of that name."""
    if outcome not in OUTCOMES:
        raise InvalidValue(
            "outcome", f"{outcome!r} is not one", f"use one of {', '.join(OUTCOMES)}"
        )
    return outcome
