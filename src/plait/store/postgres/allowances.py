"""Allowances in a PostgreSQL store: rows of one small table, each draw one statement.

The statement waits for others that draw from the same row, and computes with what they left. Its
commit is not waited for.
"""

from __future__ import annotations

from plait.store.allowances import CLOSED_S_MAX
from plait.store.arguments import check_closing, check_draw, check_name
from plait.store.moment import Allowance, Drawn
from plait.store.postgres.core import PostgresCore
from plait.store.postgres.notices import LAZY

# $1 name, $2 amount, $3 per_s, $4 size, $5 most, $6 reserves
_DRAW = f"""
{LAZY}, wish AS (
    SELECT $1::text AS name, $2::float8 AS amount, $3::float8 AS per_s, $4::float8 AS size,
        $5::float8 AS most, $6::bool AS reserves FROM lazy),
first AS (
    SELECT CASE WHEN amount <= 0 THEN amount ELSE greatest(amount, least(most, size)) END AS drawn
    FROM wish)
INSERT INTO {{s}}.allowance AS a (name, level, at, closed_until, drawn, wait_s)
SELECT name, least(size, size - drawn), clock_timestamp(), 'epoch'::timestamptz, drawn, 0
FROM wish, first
ON CONFLICT (name) DO UPDATE SET (level, at, closed_until, drawn, wait_s) = (
    SELECT least(size, stock - taken), now, closed, taken, due_s
    FROM wish,
    LATERAL (SELECT clock_timestamp() AS now) clock,
    LATERAL (SELECT
        least(a.closed_until, now + make_interval(secs => {CLOSED_S_MAX})) AS closed) closing,
    LATERAL (SELECT
        greatest(extract(epoch FROM now - greatest(a.at, closed))::float8, 0) AS passed_s,
        greatest(extract(epoch FROM closed - now)::float8, 0) AS closed_s) times,
    LATERAL (SELECT least(size, a.level + per_s * passed_s) AS stock) levels,
    LATERAL (SELECT closed_s + CASE WHEN amount <= 0 THEN 0
        ELSE greatest(least(amount, size) - stock, 0) / per_s END AS due_s) waits,
    LATERAL (SELECT CASE WHEN amount <= 0 OR (due_s > 0 AND reserves) THEN amount
        WHEN due_s > 0 THEN 0
        ELSE greatest(amount, least(most, stock)) END AS taken) draws)
RETURNING drawn, wait_s"""
_CLOSE = f"""
{LAZY}
INSERT INTO {{s}}.allowance AS a (name, level, at, closed_until, drawn, wait_s)
SELECT $1::text, 'Infinity', clock_timestamp(),
    clock_timestamp() + make_interval(secs => least($2::float8, {CLOSED_S_MAX})), 0, 0 FROM lazy
ON CONFLICT (name) DO UPDATE SET closed_until = greatest(a.closed_until, excluded.closed_until)"""
_FOUND = f"""
SELECT name, level, greatest(extract(epoch FROM clock_timestamp() - at), 0)::float8,
    least(greatest(extract(epoch FROM closed_until - clock_timestamp()), 0), {CLOSED_S_MAX})::float8
FROM {{s}}.allowance ORDER BY name"""
_DROP = f"""
{LAZY}
DELETE FROM {{s}}.allowance USING lazy WHERE name = $1::text"""


class PostgresAllowances(PostgresCore):
    """Amounts that refill with time."""

    def draw(
        self,
        allowance: str,
        amount: float,
        *,
        per_s: float,
        size: float,
        most: float = 0.0,
        reserves: bool = False,
    ) -> Drawn:
        check_draw(allowance, amount, per_s, size, most)
        wish = (allowance, float(amount), float(per_s), float(size), float(most), bool(reserves))
        row = self._run(lambda db: db.row(self._sql(_DRAW), *wish))
        assert row is not None
        return Drawn(row[0], row[1])

    def close_allowance(self, allowance: str, seconds: float) -> None:
        check_closing(allowance, seconds)
        self._run(lambda db: db.run(self._sql(_CLOSE), allowance, float(seconds)))

    def allowances(self) -> dict[str, Allowance]:
        rows = self._run(lambda db: db.rows(self._sql(_FOUND)))
        return {name: Allowance(level, age_s, closed_s) for name, level, age_s, closed_s in rows}

    def drop_allowance(self, allowance: str) -> None:
        check_name("allowance", allowance)
        self._run(lambda db: db.run(self._sql(_DROP), allowance))
