"""Finds sessions of a store: by revision, by range, and page by page."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from plait.errors import InvalidValue, NoStore
from plait.ids import LogId
from plait.session import revision
from plait.session.life import STATUSES, Status
from plait.session.listing import list_rows
from plait.session.ports import Position, store_at, writer_of
from plait.session.status import rows_with_status
from plait.session.value import S, SessionValue, value_at, value_at_seq
from plait.store import Store, canonical_address, store_exists
from plait.store.arguments import check_limit

_PAGE = 1000  # rows that are read at once


def open_value(kind: type[S], name: str, store: str | Path | Store | None) -> S:
    """The session of this revision; see `Session.open`."""
    parsed, address = revision.parse(name), existing_address(store)
    there = store_at(address)
    log = there.log(revision.find(there, parsed.name))
    session = value_at(kind, Position(address, log.id, log.tip, log.head))
    return session if parsed.place is None else value_at_seq(session, parsed.place)


def open_range(kind: type[S], name: str, *, store: str | Path | Store | None = None) -> tuple[S, S]:
    """Both ends of `A..B`."""
    left, right = revision.parse_range(name)
    return open_value(kind, left, store), open_value(kind, right, store)


def list_values(
    kind: type[S],
    *,
    status: Status | None,
    tag: Mapping[str, str] | None,
    parent: SessionValue | str | None,
    before: SessionValue | None,
    limit: int,
    store: str | Path | Store | None,
    where: Mapping[str, str | None],
) -> list[S]:
    """A page of sessions as they are now; see `Session.list`. `where` holds columns and values."""
    if status is not None and status not in STATUSES:
        raise InvalidValue("status", f"{status!r} is not one", f"use one of {', '.join(STATUSES)}")
    _check_filters(tag, before)
    address = existing_address(store)
    there = store_at(address)
    above = (
        parent.id
        if isinstance(parent, SessionValue)
        else open_value(kind, parent, store).id
        if parent is not None
        else None
    )
    columns = {
        name: value for name, value in {**where, "parent": above}.items() if value is not None
    }
    after = before.id if before else None
    check_limit(limit)
    rows = (
        rows_with_status(there, status, columns, tag, after)
        if status is not None
        else list_rows(there, columns, tag, after, min(limit, _PAGE))
    )
    found = list(islice(rows, limit))
    heads = there.heads([LogId(str(row["log"])) for row in found])
    return [
        value_at(kind, Position(address, log.id, log.tip, log.head))
        for row in found
        if (log := heads.get(LogId(str(row["log"]))))
    ]


def existing_address(store: str | Path | Store | None) -> str:
    """The address of a store that is there: looking for a session does not make a store."""
    address = address_of(store)
    if not store_exists(address):
        raise NoStore(address)
    return address


def address_of(store: str | Path | Store | None) -> str:
    if store is None:
        return writer_of(None).address()
    if isinstance(store, (str, Path)):
        return canonical_address(str(store))
    return store.address


def _check_filters(tag: object, before: object) -> None:
    if tag is not None and not isinstance(tag, Mapping):
        raise InvalidValue("tag", f"{tag!r} is not a mapping", 'pass {"team": "web"}')
    if before is not None and not isinstance(before, SessionValue):
        raise InvalidValue(
            "before", f"{before!r} is not a session", "pass the last session of the page before"
        )
