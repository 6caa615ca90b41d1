"""Notices in a PostgreSQL store: rows of one small table, whose writes are not waited for."""

from __future__ import annotations

from plait.store.arguments import check_name, check_notice
from plait.store.moment import Notice
from plait.store.postgres.core import PostgresCore

LAZY = "WITH lazy AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))"
_PUT = f"""
{LAZY}
INSERT INTO {{s}}.notice (board, key, data, put_at)
SELECT $1::text, $2::text, $3::bytea, clock_timestamp() FROM lazy
ON CONFLICT (board, key) DO UPDATE SET data = excluded.data, put_at = excluded.put_at"""
_DROP = f"""
{LAZY}
DELETE FROM {{s}}.notice USING lazy WHERE board = $1::text AND key = $2::text"""
_FOUND = """
SELECT key, data, greatest(extract(epoch FROM clock_timestamp() - put_at), 0)::float8
FROM {s}.notice WHERE board = $1::text ORDER BY key"""


class PostgresNotices(PostgresCore):
    """Small facts about the present moment."""

    def put_notice(self, board: str, key: str, data: bytes) -> None:
        check_name("board", board)
        check_name("key", key)
        check_notice(data)
        self._run(lambda db: db.run(self._sql(_PUT), board, key, data))

    def drop_notice(self, board: str, key: str) -> None:
        check_name("board", board)
        check_name("key", key)
        self._run(lambda db: db.run(self._sql(_DROP), board, key))

    def notices(self, board: str) -> dict[str, Notice]:
        check_name("board", board)
        rows = self._run(lambda db: db.rows(self._sql(_FOUND), board))
        return {key: Notice(data, age_s) for key, data, age_s in rows}
