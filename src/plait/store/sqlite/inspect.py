"""A look at a SQLite file that changes nothing, for `plait doctor`."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any
from urllib.parse import quote

import apsw

from plait.store.sqlite.database import BUSY_S, PRAGMAS, Database, cannot_open, check_schema


def inspect(
    path: str | None, *, known: int, still: bool = False, busy_s: float = BUSY_S
) -> dict[str, Any]:
    """Return facts about a file, for `plait doctor`, without a byte written to it.

    None: about SQLite itself. `still` says that no process has the file open. It is then read as
    immutable: no lock, and nothing made beside it.
    """
    if path is None:
        memory = Database("file::memory:", apsw.SQLITE_OPEN_READWRITE, busy_s)
        return {"sqlite": apsw.sqlite_lib_version(), "pragmas": _pragmas(memory)}
    if os.path.islink(path) or not os.path.isfile(path):
        raise cannot_open(path, "it is not there")
    uri = f"file://{quote(os.fsencode(path))}"
    db = Database(uri + "?immutable=1" * still, apsw.SQLITE_OPEN_READONLY, busy_s)
    db.path = path
    try:
        found = _look(db, known)
        if not still:
            _try_lock(uri, busy_s)
        return found
    except (apsw.Error, UnicodeDecodeError) as error:
        raise db.translate(error) from error
    finally:
        db.close()


def _look(db: Database, known: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "sqlite": apsw.sqlite_lib_version(),
        "pragmas": _pragmas(db),
        "schema": check_schema(db, known),
    }
    found |= {"quick_check": db.get("PRAGMA quick_check(1)"), "logs": 0, "events": 0, "blobs": 0}
    if found["schema"]:
        found["pragmas"] |= {
            "journal_mode": db.journal_mode(),
            "page_size": db.get("PRAGMA page_size"),
        }
        # Without the house log and its first event, which come with every store.
        counted = ("log", "key != 0"), ("event", "number != 0"), ("blob", "true")
        found |= {
            f"{table}s": db.get(f"SELECT count(*) FROM {table} WHERE {which}")
            for table, which in counted
        }
    return found


def _pragmas(db: Database) -> dict[str, Any]:
    for name, wanted in PRAGMAS.items():
        db.execute(f"PRAGMA {name} = {wanted}")
    return {name: db.get(f"PRAGMA {name}") for name in PRAGMAS}


def _try_lock(uri: str, busy_s: float) -> None:
    """Take the write lock and give it back, or raise.

    The log is not checkpointed on close: that would write to the file.
    """
    with closing(Database(uri, apsw.SQLITE_OPEN_READWRITE, busy_s)) as db:
        db.keep_log()
        db.begin()
        db.rollback()
