"""The session's row: what a listing shows, folded from events."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.event.kinds import (
    SessionArchived,
    SessionClosed,
    SessionOpened,
    SessionPaused,
    SessionResumed,
)
from plait.session import SessionRows
from plait.store import MemoryStore, SqliteStore, Store
from plait.testing import Seeded
from plait.testing.writing import extend, fork, message, new_log, seal_events


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore(source=Seeded(), projections=(SessionRows(),))
    return SqliteStore(tmp_path, source=Seeded(), projections=(SessionRows(),))


def test_rows_follow_the_session(store: Store) -> None:
    log = new_log()
    store.begin(
        log,
        seal_events([SessionOpened("cart bug", "u-17", "shop", {"team": "web", "tier": "1"})], log),
    )
    (row,) = store.rows("session", "session", {"log": log})
    assert (row["title"], row["user"], row["project"], row["status"], row["parent"]) == (
        "cart bug",
        "u-17",
        "shop",
        "open",
        None,
    )
    for body, status in (
        (SessionPaused(), "paused"),
        (SessionResumed(), "open"),
        (SessionClosed(), "closed"),
        (SessionArchived(), "archived"),
    ):
        extend(store, log, message("x"), body)
        assert [row["status"] for row in store.rows("session", "session", {"log": log})] == [status]
    assert [
        row["log"]
        for row in store.rows("session", "tag", {"tag": "team", "value": "web"}, order="number")
    ] == [log]


def test_a_branch_is_listed_under_its_parent(store: Store) -> None:
    log = new_log()
    store.begin(log, seal_events([SessionOpened("cart bug", "u-17", "shop")], log))
    branch = fork(store, log, 1, "lenient")
    (row,) = store.rows("session", "session", {"parent": log}, order="number")
    assert (row["log"], row["label"], row["title"], row["user"]) == (
        branch,
        "lenient",
        "cart bug",
        "u-17",
    )


def test_listing_scans_an_index(tmp_path: Path) -> None:
    """A page costs the same however many sessions there are: SQLite says that it searches, and does
    not sort.
    """
    from tests.support import RawSql

    store = SqliteStore(tmp_path, source=Seeded(), projections=(SessionRows(),))
    raw = RawSql(tmp_path / "store.db")
    table = "p_session__session"
    for where in ("status = 'open'", "user = 'u'", "project = 'p'", "parent = 'x'"):
        plan = str(
            raw(
                f"EXPLAIN QUERY PLAN SELECT * FROM {table} WHERE {where} AND number < 9 ORDER BY"
                " number DESC LIMIT 100"
            )
        )
        assert "SEARCH" in plan and "TEMP B-TREE" not in plan, plan
    plan = str(
        raw(
            "EXPLAIN QUERY PLAN SELECT key FROM log l WHERE substr(l.id, 11) = x'00' AND l.id ="
            " x'00'"
        )
    )
    assert "USING INDEX log_tail" in plan
    plan = str(
        raw(
            "EXPLAIN QUERY PLAN SELECT seq FROM event INDEXED BY event_place WHERE log = 1 AND seq"
            " BETWEEN 1 AND 9 ORDER BY seq"
        )
    )
    assert "COVERING INDEX event_place" in plan
    raw.close()
    store.close()
