"""Statements of run locks: a row for each holder, and one for each run that it has (`locks.py`)."""

from __future__ import annotations

from plait.store.postgres.server_clock import NOW_SQL

# The key of a holder's advisory lock, in this life of the server.
_KEY = """hashtextextended(encode({id}, 'hex') ||
    extract(epoch FROM pg_postmaster_start_time())::text, 0)"""
_HOLDER_KEY = _KEY.replace("{id}", "h.id")
OWN_KEY = f"""
SELECT own.key, pg_try_advisory_lock_shared(own.key) FROM (
    SELECT {_KEY.replace("{id}", "$1::bytea")} AS key) AS own"""
# A holder is there if its lease is not over, and its connection stands.
_IS_THERE = f"""
    h.until > clock_timestamp() AND (h.advisory IS DISTINCT FROM {_HOLDER_KEY} OR EXISTS (
        SELECT 1 FROM pg_locks p WHERE p.locktype = 'advisory' AND p.granted
            AND p.database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND p.classid::int8 = (h.advisory >> 32) & 4294967295
            AND p.objid::int8 = h.advisory & 4294967295 AND p.objsubid = 1))"""
# The holder that has the run must be the one that this statement has seen: another may have taken
# it meanwhile.
TAKE = f"""
WITH gone AS (
    DELETE FROM {{s}}.holder h USING {{s}}.hold old
    WHERE old.run = $1::bytea AND h.id = old.holder AND NOT ({_IS_THERE}) RETURNING h.id
)
INSERT INTO {{s}}.hold AS held (run, holder) VALUES ($1::bytea, $2::bytea)
ON CONFLICT (run) DO UPDATE SET holder = excluded.holder
WHERE held.holder IN (SELECT id FROM gone) OR (
    held.holder = (SELECT old.holder FROM {{s}}.hold old WHERE old.run = $1::bytea)
    AND NOT EXISTS (SELECT 1 FROM {{s}}.holder h WHERE h.id = held.holder))
RETURNING holder"""
# Holders that are there, of some runs: the server's locks are listed once, for all holders.
_THERE = f"""
advisory AS MATERIALIZED (
    SELECT (p.classid::int8 << 32) | p.objid::int8 AS key FROM pg_locks p
    WHERE p.locktype = 'advisory' AND p.granted AND p.objsubid = 1
        AND p.database = (SELECT oid FROM pg_database WHERE datname = current_database())
),
there AS MATERIALIZED (
    SELECT h.id FROM {{s}}.holder h
    WHERE h.id IN (SELECT old.holder FROM {{s}}.hold old WHERE old.run = ANY($1::bytea[]))
        AND h.until > clock_timestamp() AND (h.advisory IS DISTINCT FROM {_HOLDER_KEY}
            OR h.advisory IN (SELECT key FROM advisory))
)"""
# A caller that is about to take a run has a lock of its transaction on it: others at the same
# moment pass on to the next run, and do not wait. The conditions of the INSERT are those of TAKE.
# A run that is asked for and is this holder's own was taken before, and the answer was lost. A run
# whose log has gone on since the caller has looked is passed over.
TAKE_FIRST = f"""
WITH {_THERE},
free AS MATERIALIZED (
    SELECT asked.run, old.holder
    FROM unnest($1::bytea[], $4::bytea[], $5::int8[]) WITH ORDINALITY
            AS asked (run, log, number, n)
        LEFT JOIN {{s}}.hold old ON old.run = asked.run
    WHERE (old.holder IS NULL OR old.holder = $2::bytea
            OR old.holder NOT IN (SELECT id FROM there))
        AND NOT EXISTS (
            SELECT 1 FROM {{s}}.log l JOIN {{s}}.event e ON e.log = l.key AND e.seq = l.tip
            WHERE l.id = asked.log AND e.number > asked.number)
    ORDER BY asked.n
),
first AS MATERIALIZED (
    SELECT run, holder FROM free
    WHERE pg_try_advisory_xact_lock(hashtextextended(encode(run, 'hex') || $3::text, 11)) LIMIT 1
),
gone AS (
    DELETE FROM {{s}}.holder h USING first
    WHERE h.id = first.holder AND h.id <> $2::bytea AND NOT ({_IS_THERE}) RETURNING h.id
),
taken AS (
    INSERT INTO {{s}}.hold AS held (run, holder) SELECT run, $2::bytea FROM first
    ON CONFLICT (run) DO UPDATE SET holder = excluded.holder
    WHERE held.holder IN (SELECT id FROM gone) OR held.holder = $2::bytea OR (
        held.holder = (SELECT holder FROM first)
        AND NOT EXISTS (SELECT 1 FROM {{s}}.holder h WHERE h.id = held.holder))
    RETURNING run
)
SELECT (SELECT run FROM taken) FROM first"""
TAKEN = f"""
WITH {_THERE} SELECT old.run FROM {{s}}.hold old
WHERE old.run = ANY($1::bytea[]) AND old.holder IN (SELECT id FROM there)"""
HOLDER = f"""
SELECT h.name, h.id FROM {{s}}.hold JOIN {{s}}.holder h ON h.id = hold.holder
WHERE hold.run = $1::bytea AND {_IS_THERE}"""
# A holder that has lost a run has lost its row, too: the one that took the run removed it.
RENEW = f"""
UPDATE {{s}}.holder SET until = clock_timestamp() + make_interval(secs => $2) WHERE id = $1::bytea
RETURNING {NOW_SQL}"""
BEAT = """
INSERT INTO {s}.holder AS old (id, name, until, advisory)
VALUES ($1::bytea, $2::text, clock_timestamp() + make_interval(secs => $3), $4::int8)
ON CONFLICT (id) DO UPDATE SET until = excluded.until, advisory = excluded.advisory"""
RELEASE = "DELETE FROM {s}.hold WHERE run = $1::bytea AND holder = $2::bytea"
LEAVE = "DELETE FROM {s}.holder WHERE id = $1::bytea"
RUNS = "SELECT run FROM {s}.hold WHERE holder = $1::bytea"
GONE = f"""
DELETE FROM {{s}}.holder h WHERE h.until < clock_timestamp() - interval '1 hour' AND NOT
({_IS_THERE})"""
