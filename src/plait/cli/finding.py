"""The search in the store: `find`, for events by their text, and for tool calls by index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any

import click

from plait.cli.calls import print_calls
from plait.cli.common import Options, filters, listing
from plait.cli.documents import print_json, print_jsonl
from plait.cli.history import Filter
from plait.cli.render import ACCENT, DIM, Cell, Column, Out
from plait.event import Event
from plait.event.kinds import FactRecorded, MessageSaid, ModelReplied
from plait.ids import LogId, inbox_of, short
from plait.outline.documents import Document, event_document
from plait.session import Session
from plait.session.arguments import is_named
from plait.session.content import text_of, unpack
from plait.session.effect_rows import (
    OUTCOMES,
    CallFilter,
    Outcome,
    calling_actor,
    checked_path,
)
from plait.session.event_text import event_text
from plait.session.listing import session_row
from plait.session.ports import store_at
from plait.session.run_branches import branches_of_runs, logs_with_branches
from plait.store import Store

_ALL = 2**31
FOUND = 50  # on a terminal, unless a number is given


@click.command()
@click.argument("text", default="")
@click.option(
    "--session",
    metavar="S",
    help="Only in this session, as seen from there, and in its runs' branches.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"At most so many; else {FOUND} on a terminal or of calls, and all elsewhere.",
)
@click.option("--tool", metavar="NAME", help="Only calls of this tool.")
@click.option("--path", metavar="PATH", help="Only calls that changed this file, or this folder.")
@click.option("--outcome", type=click.Choice(OUTCOMES), help="Only calls with this outcome.")
@filters
@listing
def find(
    given: Options,
    text: str,
    session: str | None,
    limit: int | None,
    tool: str | None,
    path: str | None,
    outcome: Outcome | None,
    **which: Any,
) -> None:
    """Search what was said and recorded, in the whole store.

    The newest come first; capitals do not matter. With --tool, --path or --outcome, tool calls are
    searched instead, by index: one line for each, with the paths that it changed. --actor may be
    the end of a path: coder is agent:lead/coder. `S inbox K` is an event in the inbox of S, which
    `plait inbox S --all` shows.
    """
    store = store_at(given.store)
    value = given.open(session) if session is not None else None
    if tool is not None or path is not None or outcome is not None:
        if text or which["kinds"]:
            raise click.UsageError(
                "--tool, --path and --outcome search tool calls: leave out TEXT and --kind, or"
                " them."
            )
        last = next(_read_backwards(store, None, None), None)
        times = Filter.of((), None, which["since"], which["until"], last.time if last else 0)
        wanted = CallFilter(
            tool,
            checked_path(path) if path is not None else None,
            outcome,
            calling_actor(store, which["by"]) if which["by"] is not None else None,
            logs_with_branches(value) if value is not None else None,
            times.first,
            times.last,
        )
        return print_calls(given, store, wanted, limit)
    last = next(_read_backwards(store, value, None), None)
    wanted = Filter.of(
        which["kinds"], which["by"], which["since"], which["until"], last.header.time if last else 0
    )
    actors = set[str]()

    def read_noting_actors() -> Iterator[Event]:
        for event in _read_backwards(store, value, wanted.kinds):
            actors.add(event.header.actor)
            yield event

    hits = (
        event
        for event in read_noting_actors()
        if wanted(event) and _contains(store, event, text.casefold())
    )
    found = islice(hits, FOUND if limit is None and given.form == "text" and Out().tty else limit)
    owners = _InboxOwners(store)
    documents = (_event_document(owners, event) for event in found)
    if given.form == "jsonl":
        print_jsonl(documents)
    elif given.form == "json":
        print_json({"text": text, "events": list(documents)})
    else:
        _print_found(store, owners, found, text)
        if wanted.actor is not None and not any(is_named(each, wanted.actor) for each in actors):
            Out().hint(f"{wanted.actor!r} wrote none of them: {', '.join(sorted(actors))} did.")


def _read_backwards(
    store: Store, session: Session | None, kinds: set[str] | None
) -> Iterator[Event]:
    """Yield the events of a session and of the branches of its runs, or of the store; the newest
    first.
    """
    if session is None:
        return (event for _, event in store.feed(kinds=kinds, reverse=True))
    own = store.read(session.id, 1, session.seq, kinds=kinds, reverse=True)
    branches = [
        store.read(log, store.log(log).place + 1, kinds=kinds, reverse=True)
        for log in branches_of_runs(session)
    ]
    return merge(own, *branches, key=lambda event: event.time, reverse=True)


def _contains(store: Store, event: Event, text: str) -> bool:
    return (
        not text
        or text in event_text(event).casefold()
        or text in _full_text(store, event).casefold()
    )


def _full_text(store: Store, event: Event) -> str:
    """Return the text that `event_text` shortens or quotes: long messages, and texts of facts."""
    if event.kind in (MessageSaid.__name__, ModelReplied.__name__):
        body = event.body
        assert isinstance(body, (MessageSaid, ModelReplied))
        return text_of(unpack(body.parts, store.get_blob)) if body.refs() else ""
    if event.kind == FactRecorded.__name__:
        body = event.body
        assert isinstance(body, FactRecorded)
        return body.value if isinstance(body.value, str) else ""
    return ""


class _InboxOwners:
    """The sessions that inboxes belong to: the id of an inbox follows from that of its session."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[LogId, LogId | None] = {}
        self._is_complete = False  # True: it has every inbox

    def owner_of(self, log: LogId) -> LogId | None:
        """Return the session that a log is the inbox of. None: it is no inbox."""
        if log not in self._known and session_row(self._store, log):
            self._known[log] = None
        if log not in self._known and not self._is_complete:
            self._is_complete = True
            rows = self._store.rows("session", "session", limit=_ALL)
            logs = [LogId(str(row["log"])) for row in rows]
            self._known |= {inbox_of(each): each for each in logs}
        return self._known.get(log)


def _event_document(owners: _InboxOwners, event: Event) -> Document:
    """Return an event as JSON; `inbox` is the log of one that stands in the inbox of `session`."""
    owner = owners.owner_of(event.log)
    if owner is None:
        return {**event_document(event), "inbox": None}
    return {**event_document(event), "session": owner, "inbox": event.log}


def _print_found(store: Store, owners: _InboxOwners, events: Iterable[Event], text: str) -> None:
    out, names = Out(), dict[LogId, str]()

    def row(event: Event) -> list[Cell]:
        owner = owners.owner_of(event.log)
        log = owner or event.log
        name = names.setdefault(log, str(session_row(store, log).get("label") or ""))
        place = f"{short(log)}@{event.seq}" if owner is None else f"{short(log)} inbox {event.seq}"
        header = event.header
        return [
            Cell(place, ACCENT),
            Cell(name),
            Cell(out.time(header.time), DIM),
            Cell(header.actor, DIM),
            Cell(_excerpt_around(out, event_text(event), text)),
        ]

    if not out.table([Column(), *[Column(aside=True)] * 3, Column(flex=True)], map(row, events)):
        out.hint("Nothing was found.")


def _excerpt_around(out: Out, says: str, text: str) -> str:
    """Return the saying from shortly before the found text, if a terminal would cut that off."""
    at = says.casefold().find(text.casefold()) if text else 0
    return f"…{says[at - 20 :]}" if out.tty and at + len(text) > max(out.width - 50, 30) else says
