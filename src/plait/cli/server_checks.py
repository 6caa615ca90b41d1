"""Checks of a store that a PostgreSQL server keeps, and of that server."""

from __future__ import annotations

from typing import Any

from plait import migrate_store
from plait.cli.report import Check
from plait.cli.store_report import count_check, failed_check
from plait.errors import NotMigrated, PlaitError, SchemaTooNew, StoreError, StoreFailed
from plait.errors.store_servers import migrate_command
from plait.runtime.live import Live
from plait.store import inspect_at

CLOCK_FAR_S = 5.0  # apart; beyond, a warning
CONNECTIONS_HIGH = 0.9  # of those that the server allows; above, a warning

# These errors send people to the doctor, so the doctor names a further step.
NEXT: dict[type[StoreError], str] = {StoreFailed: "Look into the log of the server."}


def check_server_store(store: dict[str, Any]) -> list[Check]:
    """Return the checks of the store at a canonical address, and fill in the facts about it."""
    try:
        found = inspect_at(store["address"], source=Live())
    except PlaitError as error:
        return [failed_check("store", error, NEXT)]
    store |= {key: each for key, each in found.items() if key not in ("rights", "faults")}
    store["exists"] = found["schema"] > 0
    server = found["server"]
    return [
        *_store_checks(store, found),
        _server_check(server),
        _lock_check(server),
        _transaction_check(server["long_transactions"]),
        _connection_check(server),
        _clock_check(server),
    ]


def _store_checks(store: dict[str, Any], found: dict[str, Any]) -> list[Check]:
    address, version, known = store["address"], found["schema"], found["schema_known"]
    rights = found.get("rights")
    if rights is not None and not rights["read"]:
        return [_rights_check(rights, found["server"])]
    if version < known:
        return [failed_check("schema", NotMigrated(address, version, known), NEXT)]
    if version > known:
        return [failed_check("schema", SchemaTooNew(address, version, known), NEXT)]
    return [
        count_check(store),
        _schema_check(address, version),
        _table_check(found["faults"]),
        _rights_check(found["rights"], found["server"]),
    ]


def _schema_check(address: str, version: int) -> Check:
    due = migrate_store(address, dry_run=True)
    if due is not None and due.statements:
        detail = f"{version}, but rows of this Plait have no tables yet"
        return Check("schema", "fail", detail, f"Run `{migrate_command(address)}`.")
    return Check("schema", "ok", f"{version}, the latest this Plait knows")


def _table_check(faults: list[str]) -> Check:
    if faults:
        step = "Undo the change, or restore the database from a backup."
        return Check("tables", "fail", "; ".join(faults), step)
    return Check("tables", "ok", "as they were made (`plait verify` reads what is in them)")


def _rights_check(rights: dict[str, bool], server: dict[str, Any]) -> Check:
    user = server["user"]
    if not rights["read"]:
        step = f"Run `plait migrate ADDRESS --grant {user}` as the user that owns the tables."
        return Check("rights", "fail", f"{user} may not read the tables", step)
    if not rights["write"]:
        return Check("rights", "ok", f"{user} may look, and not write")
    more = ", and make tables, which running agents does not need" if rights["create"] else ""
    return Check("rights", "ok", f"{user} may run agents{more}")


def _server_check(server: dict[str, Any]) -> Check:
    waits = f", waits for {server['synchronous_standby_names']}"
    detail = (
        f"PostgreSQL {server['version']}, synchronous_commit={server['synchronous_commit']}"
        f"{waits if server['synchronous_standby_names'] else ''},"
        f" {'encrypted with TLS' if server['encrypted'] else 'not encrypted'}"
    )
    if server["standby"]:
        step = "Name the primary in the address to write."
        return Check("server", "warn", f"{detail}; it is a standby, and takes no writes", step)
    if server["read_only"]:
        step = "Set default_transaction_read_only to off for this user to write."
        return Check("server", "warn", f"{detail}; this user's transactions only read", step)
    return Check("server", "ok", detail)


def _lock_check(server: dict[str, Any]) -> Check:
    if server["pooled"]:
        return Check(
            "locks",
            "warn",
            "a pooler lends connections per transaction: leases alone tell whether a run is taken,"
            " so the run of a killed process is free only when its lease has ended",
            "Nothing has to be done; to have it free at once, name the server itself.",
        )
    return Check("locks", "ok", "a lease and a lock of the connection: a kill frees a run at once")


def _transaction_check(long: list[dict[str, Any]]) -> Check:
    if not long:
        return Check("transactions", "ok", "none is open for long")
    process = long[0]["process"]
    return Check(
        "transactions",
        "warn",
        f"open for long: {'; '.join(map(_transaction_text, long))}. Appends go on, but feeds stop"
        " at the events before them",
        "End it if nobody needs it: "
        + ("ROLLBACK PREPARED" if process is None else f"SELECT pg_terminate_backend({process})"),
    )


def _transaction_text(found: dict[str, Any]) -> str:
    process, age = found["process"], found["age_s"]
    about = [found["user"], found["program"], found["state"]]
    since = "its age needs the role pg_read_all_stats" if age is None else f"for {age:.0f} s"
    name = "one without a process" if process is None else f"process {process}"
    return f"{name} ({', '.join(each for each in about if each)}), {since}"


def _connection_check(server: dict[str, Any]) -> Check:
    used, most = server["connections"], server["connections_max"]
    detail = f"{used} of {most} are in use"
    if used >= CONNECTIONS_HIGH * most:
        step = "Raise max_connections, lower PLAIT_STORE_CONNECTIONS, or use a pooler."
        return Check("connections", "warn", detail, step)
    return Check("connections", "ok", detail)


def _clock_check(server: dict[str, Any]) -> Check:
    ahead = server["clock_ahead_s"]
    if abs(ahead) <= CLOCK_FAR_S:
        return Check("clock", "ok", "this machine and the server agree")
    way = "ahead of" if ahead > 0 else "behind"
    return Check(
        "clock",
        "warn",
        f"the server is {abs(ahead):.0f} s {way} this machine. Nothing depends on it but the times"
        " in events, which are those of the machine that wrote them",
        "Set the clocks by NTP.",
    )
