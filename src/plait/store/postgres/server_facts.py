"""Facts about the server behind a connection, and the limits on transactions there.

A client that is stopped in the middle of a transaction keeps its locks. Between two statements of a
transaction the server ends such a client by `idle_in_transaction_session_timeout`. That does not
help if the client has sent a statement, and not the end of its message: the statement is executed,
has its locks, and the server waits. `transaction_timeout` ends that, from PostgreSQL 17 on; older
servers have nothing for it.
"""

from __future__ import annotations

from typing import NamedTuple

from plait.store.postgres.server_clock import NOW_SQL

IDLE_S = 30.0  # a client that says nothing for so long inside a transaction: it has locks
STATEMENT_S = 180.0  # a statement that is its own transaction, such as an append
LONG_S = 3600.0  # a transaction of several statements, such as a fold of all rows

# Longer for this transaction; a limit that others have set stays.
LONG_LIMIT = (
    f"CASE WHEN current_setting('transaction_timeout', true) = '{STATEMENT_S / 60:.0f}min'"
    f" THEN set_config('transaction_timeout', '{int(LONG_S * 1000)}', true) END"
)

FACTS = (
    "SELECT current_setting('server_version_num')::int4, current_setting('server_encoding'),"
    " set_config('synchronous_commit', current_setting('synchronous_commit'), false),"
    " current_setting('fsync'), pg_is_in_recovery(), current_setting('transaction_read_only')"
    " = 'on', pg_backend_pid(), (SELECT system_identifier FROM pg_control_system()),"
    f" {NOW_SQL},"
    " CASE WHEN current_setting('server_version_num')::int4 >= 170000"
    " AND current_setting('transaction_timeout', true) = '0' AND pg_backend_pid() = $1::int4"
    f" THEN set_config('transaction_timeout', '{int(STATEMENT_S * 1000)}', false) END"
)


class ServerFacts(NamedTuple):
    """Facts about the server behind a connection."""

    version: int
    encoding: str
    synchronous_commit: str
    fsync: str
    is_standby: bool
    is_read_only: bool  # it is a standby, or a setting of this user allows no writes
    is_pooled: bool  # a pooler lends server sessions per transaction
    identity: int  # of the cluster; a standby has that of its primary, a restored dump has another


def long_limit(facts: ServerFacts) -> str:
    """Return the end of a script that begins a transaction of several statements."""
    if facts.version < 170000 or facts.is_pooled:
        return ""
    return f"; SELECT {LONG_LIMIT}"
