"""The questions that `plait doctor` asks a server. They read, and open no store."""

from __future__ import annotations

import time
from typing import Any

from plait.ids import LogId, Source
from plait.store.postgres.address import parse_address
from plait.store.postgres.checks import (
    facts,
    hidden_transactions,
    rights_of,
    server_facts,
    table_faults,
)
from plait.store.postgres.connections import ServerConnection, ServerConnections
from plait.store.postgres.schema import SCHEMA_VERSION, quote_name

LASTING_S = 2.0  # between two looks at transactions
WAIT_S = 5.0  # a store's own patience is a minute; a person is waiting here
_NOBODY = LogId("")  # the time is of no log


def _lasting(db: ServerConnection) -> list[dict[str, Any]]:
    """Return transactions of other users that are there at two looks: this user may not see for how
    long they are.
    """
    before = hidden_transactions(db)
    if not before:
        return []
    time.sleep(LASTING_S)
    return [
        {"process": process, "user": user, "program": None, "state": None, "age_s": None}
        for id, (process, user) in hidden_transactions(db).items()
        if id in before
    ]


def inspect_server(address: str, source: Source) -> dict[str, Any]:
    """Return facts about a server and the store there. `schema` is the version of its tables; 0:
    there are none. Counts and faults are there if this Plait knows that version.

    Raises what a program that opens the store would meet: no connection, a server that is too old
    or does not keep what it acknowledges.
    """
    parts = parse_address(address)
    connections = ServerConnections(parts)
    connections.wait_s = min(connections.wait_s, WAIT_S)
    name = quote_name(parts.schema)

    def look(db: ServerConnection) -> dict[str, Any]:
        begun = source.now(_NOBODY, 0)
        server = server_facts(db)
        here_s = (begun + source.now(_NOBODY, 0)) / 2_000_000
        server["long_transactions"] += _lasting(db)
        server["clock_ahead_s"] = server.pop("clock") - here_s
        found: dict[str, Any] = {"server": server, "schema": 0, "schema_known": SCHEMA_VERSION}
        if not db.get("SELECT 1 FROM pg_namespace WHERE nspname = $1", parts.schema):
            return found
        if not db.get("SELECT has_schema_privilege($1, 'USAGE')", parts.schema):
            return found | {"rights": {"create": False, "read": False, "write": False}}
        if db.get("SELECT to_regclass($1)", f"{name}.store") is None:
            return found
        rights = rights_of(db, parts.schema)
        found["rights"] = rights
        if rights["read"]:
            found["schema"] = db.get(f"SELECT migration FROM {name}.store") or 0
        if found["schema"] == SCHEMA_VERSION:
            counts = facts(db, lambda sql: sql.replace("{s}", name), _NOBODY, parts.text)
            found |= {key: counts[key] for key in ("logs", "events", "blobs", "bytes")}
            found["faults"] = list(table_faults(db, parts.schema, ()))
        return found

    try:
        return connections.run(look)
    finally:
        connections.close()
