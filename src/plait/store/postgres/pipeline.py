"""Statements that are sent together: the client waits once, for the answers to all of them.

The driver's own form of this keeps a cursor for each statement, which takes longer than most of the
statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import psycopg
from psycopg import generators, pq, waiting

from plait.store.postgres.connections import LOOK_S, ServerConnection

_TOGETHER_MAX = 100  # statements that are sent before an answer is read


class SqlStatement(NamedTuple):
    """A statement, with its values in binary form."""

    sql: bytes
    values: Sequence[bytes | None] = ()
    name: bytes = b""  # by which a connection prepares it once; empty: it is not prepared


def ask_together(db: ServerConnection, statements: Sequence[SqlStatement]) -> list[pq.abc.PGresult]:
    """Run statements one after another, and return their results. If one fails, those after it are
    not run, and its error is raised.
    """
    if db.facts.is_pooled or len(statements) == 1:
        return [_ask(db, statement) for statement in statements]
    results = list[pq.abc.PGresult]()
    for first in range(0, len(statements), _TOGETHER_MAX):
        results += _ask_some(db, statements[first : first + _TOGETHER_MAX])
    return results


def _ask(db: ServerConnection, statement: SqlStatement) -> pq.abc.PGresult:
    if statement.name:
        return db.run_prepared(statement.name, statement.sql, statement.values)
    formats = [1] * len(statement.values)
    db.pgconn.send_query_params(statement.sql, statement.values, None, formats, 1)
    return db.result()


def _ask_some(db: ServerConnection, statements: Sequence[SqlStatement]) -> list[pq.abc.PGresult]:
    pgconn = db.pgconn
    # An error in between leaves the connection in this mode: it is not idle, and not used again.
    pgconn.enter_pipeline_mode()
    prepares = list[bytes]()  # of each result: the name that it prepares; b"": it is an answer
    for statement in statements:
        formats = [1] * len(statement.values)
        if not statement.name:
            pgconn.send_query_params(statement.sql, statement.values, None, formats, 1)
        else:
            if statement.name not in db.prepared and statement.name not in prepares:
                pgconn.send_prepare(statement.name, statement.sql)
                prepares.append(statement.name)
            pgconn.send_query_prepared(statement.name, statement.values, formats, 1)
        prepares.append(b"")
    pgconn.pipeline_sync()
    waiting.wait(generators.send(pgconn), db.socket, LOOK_S)
    found = list[pq.abc.PGresult]()
    while (result := _next_result(db)).status != pq.ExecStatus.PIPELINE_SYNC:
        found.append(result)
    pgconn.exit_pipeline_mode()
    # A statement that was prepared stays so, also if a later one fails and all is rolled back.
    for result, name in zip(found, prepares, strict=False):
        if name and result.status == pq.ExecStatus.COMMAND_OK:
            db.prepared.add(name)
    for result in found:
        db.check_result(result)
    return [result for result, name in zip(found, prepares, strict=True) if not name]


def _next_result(db: ServerConnection) -> pq.abc.PGresult:
    results = waiting.wait(generators.fetch_many(db.pgconn), db.socket, LOOK_S)
    if not results:
        raise psycopg.OperationalError("the server said nothing more")
    return results[-1]
