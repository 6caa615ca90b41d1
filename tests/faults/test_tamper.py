"""Tamper: whatever is changed in the file or its rows is found, or shown to have changed nothing.

`tests/laws/test_session_tamper.py` edits what is kept *about* sessions; here it is the log itself.
What was changed is judged by a comparison that uses none of the product's code (`tests/raw.py`).
What cannot be found without an anchor kept elsewhere (a tail rewritten with all its hashes, commits
that never happened) is a class of its own, and counted as such.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from plait.errors import (
    CommitmentBroken,
    InvalidInput,
    NotAStore,
    PlaitError,
    SchemaTooNew,
    StoreCorrupt,
    StoreFailed,
    UnknownBlob,
)
from plait.ids import LogId
from plait.session import verify
from plait.session.audit import Audit
from plait.session.fold import state_at
from plait.store import SqliteStore, StoreFault
from plait.testing import Seeded
from tests.faults.acts import ALL
from tests.faults.folders import quick_folder
from tests.faults.mutations import (
    ANCHOR_MUTATIONS,
    ROW_MUTATIONS,
    UNCHECKED_MUTATIONS,
    Aim,
    Image,
    Mutation,
    Scene,
    build,
    mutate_file,
    mutate_log,
)
from tests.raw import Meaning, meaning
from tests.support import RawSql, dose, report, seed

# What may be said of a file that is not as it was. Anything else that is raised is a failure.
CORRUPT = (
    CommitmentBroken,
    InvalidInput,
    NotAStore,
    SchemaTooNew,
    StoreCorrupt,
    StoreFailed,
    UnknownBlob,
)


class Original(NamedTuple):
    old: Image
    image: Image
    logged: list[Image]
    scene: Scene
    meaning: Meaning


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as made:
        yield made


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    folder = tmp_path_factory.mktemp("original")
    old, image, logged = build(folder / "store")
    sql, before = RawSql(image.put(folder / "new")), RawSql(old.put(folder / "old"))
    scene, found = Scene(sql, before), meaning(sql)
    sql.close()
    before.close()
    assert judge(image, folder / "new") == []
    return Original(old, image, logged, scene, found)


def judge(
    image: Image | None, folder: Path, unchecked: list[str] | None = None
) -> list[StoreFault] | PlaitError:
    """What the product says of a store: faults, or what it raised instead of opening or reading it.

    None: as it stands in the folder.
    """
    if image is not None:
        image.put(folder)
    try:
        store = SqliteStore(folder, source=Seeded(), projections=ALL)
    except CORRUPT as error:
        return error
    try:
        _look_around(store)
        audit = Audit(store, state=True)
        found = list(audit.faults())
        if unchecked is not None:
            unchecked += map(str, audit.unchecked_parts())
        return found
    except CORRUPT as error:
        return error
    finally:
        store.close()


def _look_around(store: SqliteStore) -> None:
    """Reading a damaged store gives an answer or a typed error, never one of Python's."""
    asks: list[Callable[[], object]] = [
        lambda: list(store.feed()),
        lambda: store.match("0"),
        lambda: store.number,
    ]
    asks += [lambda: store.rows("session", "session"), lambda: store.rows("session", "tag")]
    logs: list[LogId] = []
    with suppress(PlaitError):
        logs = [log.id for _, log in store.logs()]
    for log in logs:
        asks += [
            partial(store.log, log),
            partial(store.heads, [log]),
            partial(store.snapshots, log),
            partial(store.nearest_snapshot, log, 100),
        ]
        asks.append(lambda log=log: [event.body for event in store.read(log)])
        asks.append(lambda log=log: state_at(store, log, store.log(log).tip))
        asks.append(lambda log=log: list(verify(store, [log], state=True)))
    for ask in asks:
        with suppress(PlaitError):
            ask()


def after(path: Path) -> Meaning | str:
    """What a store means now, or why that cannot be said."""
    sql = None
    try:
        sql = RawSql(path)
        whole = sql("PRAGMA integrity_check(1)")
        return meaning(sql) if whole == [("ok",)] else str(whole)
    except (apsw.Error, UnicodeDecodeError) as error:
        return repr(error)
    finally:
        if sql is not None:
            sql.close()


def raw_meaning(sql: RawSql) -> Meaning | str:
    try:
        return meaning(sql)
    except apsw.SQLError as error:  # a table is gone, or has another name
        return repr(error)


def is_same(original: Original, now: Meaning | str) -> bool:
    return isinstance(now, Meaning) and original.meaning.same(now)


# ── rows ─────────────────────────────────────────────────────────────────────────────────────


def named(aim: Aim, found: list[StoreFault] | PlaitError, begins: dict[str, int]) -> bool:
    """The faults name what was aimed at, and no earlier event of the same log, unless its fork
    point was hit as well.
    """
    if isinstance(found, PlaitError):
        return True
    near = {(log, seq + step) for log, seq in aim.events for step in (0, 1)}
    first = {log: min(seq for each, seq in aim.events if each == log) for log, _ in aim.events}
    for fault in found:
        if fault.log in first and begins[fault.log] < fault.seq < first[fault.log]:
            return False
    return any(
        (fault.log, fault.seq) in near or any(word in str(fault) for word in aim.words)
        for fault in found
    )


def outcome_of(
    original: Original,
    folder: Path,
    sql: RawSql,
    chance: random.Random,
    mutation: Mutation,
    which: str,
) -> str:
    """Tamper in one way. Whatever the file means afterwards, verify must have said so."""
    aim = mutation(sql, chance, original.scene)
    now = raw_meaning(sql)
    sql.close()
    found = judge(None, folder)
    if is_same(original, now):
        assert found == [], f"{which}, {aim}: nothing changed, but {found}"
        return "changed nothing"
    if found == []:  # some caches and unused codes are made anew when the store is opened
        healed = after(folder / "store.db")
        assert is_same(original, healed), f"{which}: {aim} was not found: {str(healed)[:300]}"
        return "healed on opening"
    assert named(aim, found, original.scene.begins), (
        f"{which}: {aim} was found, but only as {found}"
    )
    return "refused" if isinstance(found, PlaitError) else "named"


@pytest.mark.parametrize(
    "mutation", dict.fromkeys(ROW_MUTATIONS), ids=lambda mutation: mutation.__name__
)
def test_each_kind_of_edit_is_found_and_named(
    original: Original, folder: Path, mutation: Mutation
) -> None:
    chance, start = random.Random(), seed()
    for i in range(dose("MUTATIONS", short=60, long=3000) // 20):
        chance.seed(f"{mutation.__name__}/{start}/{i}")
        sql = RawSql(original.image.put(folder))
        sql("PRAGMA synchronous = OFF")
        outcome_of(
            original, folder, sql, chance, mutation, f"SEED={start}, {mutation.__name__} {i}"
        )


@pytest.mark.parametrize("mutation", UNCHECKED_MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_what_is_not_checked_is_named(original: Original, folder: Path, mutation: Mutation) -> None:
    sql = RawSql(original.image.put(folder))
    aim, told = mutation(sql, random.Random(1), original.scene), list[str]()
    sql.close()
    assert judge(None, folder, told) == [], f"{aim} is found now: count it among those"
    assert any(word in each for word in aim.words for each in told), (
        f"{aim} is neither found nor named in {told}"
    )


def test_edited_rows_are_found_and_named(original: Original, folder: Path) -> None:
    """MUTATIONS=5000: so many, half of them here."""
    chance, start = random.Random(), seed()
    outcomes: Counter[str] = Counter()
    for i in range(dose("MUTATIONS", short=60, long=3000) // 2):
        chance.seed(f"{start}/{i}")
        sql = RawSql(original.image.put(folder))
        sql("PRAGMA synchronous = OFF")
        outcomes[
            outcome_of(
                original,
                folder,
                sql,
                chance,
                chance.choice(ROW_MUTATIONS),
                f"SEED={start}, mutation {i}",
            )
        ] += 1
    report(
        "tamper, rows",
        ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items())),
        start,
    )


# ── bytes ────────────────────────────────────────────────────────────────────────────────────


def test_edited_files_are_found(original: Original, folder: Path) -> None:
    chance, start = random.Random(), seed()
    outcomes: Counter[str] = Counter()
    for i in range(dose("MUTATIONS", short=60, long=3000) // 3):
        chance.seed(f"{start}/{i}")
        how, image = mutate_file(original.image, original.old, chance)
        told = list[str]()
        found = judge(image, folder / "judged", told)
        if found:
            outcomes["refused" if isinstance(found, PlaitError) else "faults"] += 1
            continue
        now, healed = after(image.put(folder / "compared")), after(folder / "judged" / "store.db")
        if (
            isinstance(now, Meaning)
            and "1 snapshots" in str(told)
            and original.meaning._replace(kept=now.kept).same(now)
        ):
            outcomes["a snapshot that is not used, and named as not checked"] += 1
            continue
        # What is kept about sessions is folded again when the store notices on opening that it has
        # to be.
        assert is_same(original, now) or is_same(original, healed), (
            f"SEED={start}, mutation {i}: {how} was not found: {str(now)[:300]}"
        )
        outcomes["changed nothing" if is_same(original, now) else "healed on opening"] += 1
    report(
        "tamper, bytes",
        ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items())),
        start,
    )


def test_an_edited_write_ahead_log_is_found_or_ends_at_a_commit(
    original: Original, folder: Path
) -> None:
    """SQLite takes a frame that does not add up for the end of its log: the store is then whole, as
    it was before that commit.
    """
    chance, start = random.Random(), seed()
    outcomes: Counter[str] = Counter()
    commits = [after(image.put(folder / "commits")) for image in (original.image, *original.logged)]
    for i in range(dose("MUTATIONS", short=60, long=3000) // 6):
        chance.seed(f"{start}/{i}")
        how, image = mutate_log(original.logged[-1], original.logged[0], chance)
        found = judge(image, folder / "judged")
        if found:
            outcomes["found"] += 1
            continue
        now = after(image.put(folder / "compared"))
        assert now in commits, f"SEED={start}, mutation {i}: {how} was not found: {str(now)[:300]}"
        outcomes["changed nothing" if now == commits[-1] else "found only against an anchor"] += 1
    report(
        "tamper, write-ahead log",
        ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items())),
        start,
    )


# ── what needs an anchor ─────────────────────────────────────────────────────────────────────


def test_a_consistent_lie_is_found_only_against_an_anchor(original: Original, folder: Path) -> None:
    """All hashes made anew, the last commits lost, the order between logs, a whole old copy: the
    store agrees with itself.

    A signed checkpoint kept elsewhere will tell; until there is one, verify says nothing, and this
    test says so.
    """
    chance, start = random.Random(), seed()
    lies = dose("MUTATIONS", short=60, long=3000) // 20
    for i in range(lies):
        chance.seed(f"{start}/{i}")
        sql = RawSql(original.image.put(folder))
        sql("PRAGMA synchronous = OFF")
        aim = chance.choice(ANCHOR_MUTATIONS)(sql, chance, original.scene)
        now = meaning(sql)
        sql.close()
        assert not original.meaning.same(now), f"SEED={start}, mutation {i}: {aim} changed nothing"
        assert judge(None, folder) == [], (
            f"SEED={start}, mutation {i}: {aim} is found now; count it among those"
        )
    assert judge(original.old, folder) == []
    report("tamper, consistent lies", f"{lies + 1:,} found only against an anchor", start)


# ── values that no table allows ──────────────────────────────────────────────────────────────


def test_values_of_another_type_are_typed_errors(original: Original, folder: Path) -> None:
    """A damaged page can give NULL for a number or a text for bytes, whatever the table says.

    Opening, reading and verifying say so.
    """
    tried = 0
    for table in ("log", "event", "blob", "projection", "store", "snapshot", "kind"):
        sql = RawSql(original.image.put(folder))
        columns = [name for _, name, *_ in sql(f"PRAGMA table_info({table})")]
        sql.close()
        for column in columns:
            for odd in (None, "odd", 1.5, b"odd"):
                sql = RawSql(original.image.put(folder))
                if _force(sql, table, column, odd):
                    tried += 1
                    judge(None, folder)
                sql.close()
    assert tried > 50
    report("tamper, values of another type", f"{tried:,} columns, 0 errors that are not ours")


def _force(sql: RawSql, table: str, column: str, odd: object) -> bool:
    """Put a value into all rows of a table that is not so strict for a moment.

    Whether SQLite let us.
    """
    ((strict,),) = sql("SELECT sql FROM sqlite_schema WHERE name = ?", (table,))
    lax = (
        strict.replace(" STRICT", "")
        .replace(", WITHOUT ROWID", " WITHOUT ROWID")
        .replace("NOT NULL", "")
    )
    try:
        sql("PRAGMA writable_schema = 1")
        sql("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (lax, table))
        sql("PRAGMA writable_schema = RESET")
        sql(f"UPDATE {table} SET {column} = ?", (odd,))
        sql("PRAGMA writable_schema = 1")
        sql("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (strict, table))
        sql("PRAGMA writable_schema = RESET")
    except apsw.Error:
        return False  # a key, or unique
    return True
