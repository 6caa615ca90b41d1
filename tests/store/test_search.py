"""Search by words: the stores agree, and the index of a SQLite file can be trusted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait import Memory, Session, open_store
from plait.errors import InvalidValue, RowsTooNew, StoreError
from plait.event.kinds import ScratchSet
from plait.session.audit import verify as audit
from plait.store import MemoryStore, Region, Row, Rows, SqliteStore, Store, Table, verify_store
from plait.store.search import PLACE_MAX, PLACE_MIN
from plait.testing import Seeded
from plait.testing.projections import Notes, Tally
from plait.testing.store.searching import find_notes, found_keys, naive_scores
from plait.testing.writing import begin, extend
from tests.support import RawSql, python

INDEX = "p_notes__note__words"

WORDS = st.sampled_from(["a", "b", "c", "dd", "e5", "0"])
TEXTS = st.lists(WORDS, max_size=8).map(" ".join)
CHANGES = st.dictionaries(
    st.sampled_from([f"k{i}" for i in range(12)]),
    st.one_of(
        TEXTS,
        st.none(),
        st.fixed_dictionaries(
            {},
            optional={
                "owner": st.sampled_from(["me", "you", None]),
                "source": st.sampled_from(["s", "t", "", None]),
                "from": TEXTS,
            },
        ),
    ),
    min_size=1,
)


@given(st.lists(CHANGES, min_size=1, max_size=4), st.lists(WORDS, min_size=1), st.data())
def test_both_stores_give_the_textbook_answer(
    tmp_path_factory: pytest.TempPathFactory,
    appends: list[dict[str, Any]],
    asked: list[str],
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("store")
    memory = MemoryStore(source=Seeded(), projections=(Notes(),))
    sqlite = SqliteStore(folder, source=Seeded(), projections=(Notes(),))
    stores: list[Store] = [memory, sqlite]
    for store in stores:
        log = begin(store)
        for changes in appends:
            extend(store, log, *[ScratchSet(key, value) for key, value in changes.items()])
    rows = memory.rows("notes", "note")
    assert rows == sqlite.rows("notes", "note")
    orders = [row["order"] for row in rows]
    places = st.sampled_from([*orders, PLACE_MIN, PLACE_MAX])
    region = st.builds(Region, st.sampled_from(["me", "you", "them"]), places, places)
    options: dict[str, Any] = {
        "within": data.draw(st.none() | st.lists(region, max_size=3)),
        "upto": data.draw(st.none() | st.sampled_from(orders)) if orders else None,
        "near": data.draw(st.none() | st.tuples(st.just("source"), st.integers(0, 3))),
        "limit": data.draw(st.integers(1, 15)),
    }
    ours, theirs = [store.search("notes", "note", asked, **options) for store in stores]
    assert ours == theirs
    seen = [row for row in rows if is_within(row, options["within"], options["upto"])]
    texts = {str(row["key"]): str(row["from"] or "") for row in seen}
    options["limit"] = 100
    every = sqlite.search("notes", "note", asked, **options)
    wanted = naive_scores(texts, asked)
    assert found_keys(every) == [key for key, _ in wanted]
    assert [hit.score for hit in every.rows] == pytest.approx([score for _, score in wanted])
    beside = {str(row["key"]) for hit in every.rows for row in (*hit.before, *hit.after)}
    assert beside <= texts.keys()
    assert memory.check_words() == sqlite.check_words() == []
    sqlite.close()


def is_within(row: Row, within: list[Region] | None, upto: int | None) -> bool:
    place: Any = row["order"]
    if upto is not None and place > upto:
        return False
    return within is None or any(
        row["owner"] == group and first <= place <= last for group, first, last in within
    )


@pytest.fixture
def store(tmp_path: Path) -> Any:
    store = SqliteStore(tmp_path, source=Seeded(), projections=(Notes(),))
    yield store
    store.close()


def index_bytes(folder: Path) -> list[Any]:
    raw = RawSql(folder / "store.db")
    found = raw(f"SELECT * FROM {INDEX}_data ORDER BY id"), raw(f"SELECT * FROM {INDEX}_docsize")
    raw.close()
    return [*found]


def test_a_change_of_another_column_leaves_the_index_alone(
    store: SqliteStore, tmp_path: Path
) -> None:
    log = begin(store, ScratchSet("a", "red fish"), ScratchSet("b", "blue"))
    before = index_bytes(tmp_path)
    extend(store, log, ScratchSet("a", {"source": "t"}), ScratchSet("a", {"source": "s"}))
    assert index_bytes(tmp_path) == before
    assert store.rows("notes", "note", {"key": "a"})[0]["source"] == "s"
    extend(store, log, ScratchSet("a", "red"))
    assert index_bytes(tmp_path) != before


def test_many_words_are_one_search(store: SqliteStore) -> None:
    begin(store, ScratchSet("a", " ".join(f"w{i}" for i in range(3000))), ScratchSet("b", "w7"))
    words = [f"w{i}" for i in range(2000)] + ["or", "and", "not", "near"]
    assert len(store.search("notes", "note", words).rows) == 2


def test_a_search_while_the_rows_are_rebuilt_gives_the_old_answer(tmp_path: Path) -> None:
    class Watched(Notes):
        during: Callable[[], None] | None = None

        def apply(self, rows: Rows, number: int, event: Any) -> None:
            super().apply(rows, number, event)
            if self.during is not None:
                self.during()

    answers: list[list[str]] = []
    projection = Watched()
    store = SqliteStore(tmp_path, source=Seeded(), projections=(projection,))
    other = SqliteStore(tmp_path, source=Seeded(), projections=(Notes(),))
    begin(store, ScratchSet("a", "red"), ScratchSet("b", "red fish"))
    projection.during = lambda: answers.extend(find_notes(each, "red") for each in (store, other))
    store.rebuild("notes")
    assert answers == [["a", "b"]] * 4
    projection.during = None
    assert find_notes(other, "red") == ["a", "b"]
    store.close()
    other.close()


def test_handles_and_processes_see_each_others_words(store: SqliteStore, tmp_path: Path) -> None:
    other = SqliteStore(tmp_path, source=Seeded(), projections=(Notes(),))
    log = begin(store, ScratchSet("a", "red"))
    assert find_notes(other, "red") == ["a"]
    extend(other, log, ScratchSet("a", "blue"))
    assert (find_notes(store, "red"), find_notes(store, "blue")) == ([], ["a"])
    other.close()
    python(
        "import sys; from plait.store import SqliteStore; from plait.testing import Seeded\n"
        "from plait.testing.projections import Notes; from plait.testing.writing import *\n"
        "from plait.event.kinds import ScratchSet\n"
        "store = SqliteStore(sys.argv[1], source=Seeded(), projections=(Notes(),))\n"
        "extend(store, sys.argv[2], ScratchSet('b', 'blue fish'))",
        tmp_path,
        log,
    )
    assert find_notes(store, "blue fish") == ["b", "a"]
    assert store.check_words() == []


def test_words_that_a_stranger_left_out_are_found_again(tmp_path: Path) -> None:
    """A process without the projection appends: its rows are stale until they are asked for."""
    store = SqliteStore(tmp_path, source=Seeded(), projections=(Notes(),))
    log = begin(store, ScratchSet("a", "red"))
    stranger = SqliteStore(tmp_path, source=Seeded(), projections=(Tally(),))
    extend(stranger, log, ScratchSet("b", "red fish"))
    assert store.check_words() == [], "stale rows are folded anew, and not compared"
    assert list(verify_store(stranger)) == [], "the tables of another projection are no fault"
    assert find_notes(store, "red fish") == ["b", "a"]
    stranger.close()
    store.close()


def test_words_of_another_version(tmp_path: Path) -> None:
    class Newer(Notes):
        version = 2
        tables = (Notes.tables[0],)

    store = SqliteStore(tmp_path, source=Seeded(), projections=(Notes(),))
    begin(store, ScratchSet("a", "red"))
    newer = SqliteStore(tmp_path, source=Seeded(), projections=(Newer(),))
    assert find_notes(newer, "red") == ["a"]
    with pytest.raises(RowsTooNew):
        find_notes(store, "red")
    assert list(verify_store(newer)) == []
    newer.close()
    store.close()


def test_an_index_that_is_not_of_its_rows_is_named(tmp_path: Path) -> None:
    store = open_store(tmp_path, projections=[Notes()])
    begin(store, ScratchSet("a", "red"), ScratchSet("b", "blue"))
    assert list(audit(store, state=True)) == []
    raw = RawSql(tmp_path / "store.db")
    raw("UPDATE p_notes__note SET [from] = 'green' WHERE key = 'a'")
    assert [str(fault) for fault in audit(store)] == []
    row, words = audit(store, state=True)
    assert "note row of 'a' says from is 'green'" in str(row) and "notes.note" in str(words)
    store.rebuild("notes")
    assert store.check_words() == [] and find_notes(store, "red") == ["a"]
    raw(f"INSERT INTO {INDEX}(rowid, from__terms) VALUES (9, '_0 planted_0')")
    raw.close()
    assert len(store.check_words()) == 1
    store.rebuild("notes")
    assert list(audit(store, state=True)) == []
    store.close()


@pytest.mark.parametrize(
    "edit",
    [
        f"UPDATE {INDEX}_docsize SET sz = x'05'",
        f"DELETE FROM {INDEX}_docsize",
        f"UPDATE {INDEX}_data SET block = x'0505' WHERE id = 1",
        f"UPDATE {INDEX}_data SET block = x'' WHERE id = 1",
        f"UPDATE {INDEX}_data SET block = x'ffff' WHERE id = 1",
        f"DELETE FROM {INDEX}_data WHERE id > 10",
        f"UPDATE {INDEX}_data SET block = zeroblob(40) WHERE id > 10",
        f"DELETE FROM {INDEX}_idx",
        f"DELETE FROM {INDEX}_config",
        "DELETE FROM p_notes__note",
        "DELETE FROM p_notes__note__groups",
        "UPDATE p_notes__note__groups SET value = 'you' WHERE value = 'me'",
        "UPDATE p_notes__note__groups SET rows = rows + 1",
        "UPDATE p_notes__note SET from__group = 1",
        f"DROP TABLE {INDEX}",
    ],
)
def test_every_edit_of_the_index_is_found_and_mended(tmp_path: Path, edit: str) -> None:
    store = open_store(tmp_path, projections=[Notes()])
    filler = " ".join(f"w{i}" for i in range(2000))  # the index has more pages than one
    notes = ScratchSet("a", "red fish"), ScratchSet("b", "blue"), ScratchSet("c", filler)
    begin(store, *notes, ScratchSet("d", {"from": "red", "owner": "me"}))
    wanted = store.search("notes", "note", ["red", "blue"])
    raw = RawSql(tmp_path / "store.db")
    raw(edit)
    raw.close()
    assert list(audit(store, state=True)) != []
    with suppress(StoreError):  # an answer, or a typed error
        store.search("notes", "note", ["red", "blue"])
    store.rebuild("notes")
    assert store.search("notes", "note", ["red", "blue"]) == wanted
    assert list(audit(store, state=True)) == []
    store.close()


@pytest.mark.parametrize(
    "planted",
    [
        f"CREATE VIRTUAL TABLE p_notes__note__other USING fts5(x, content='{INDEX}')",
        "CREATE VIRTUAL TABLE p_tally__count__words USING fts5([key], content='event',"
        " content_rowid='number', tokenize='unicode61 remove_diacritics 0')",
        f"CREATE TABLE {INDEX}_more (id INTEGER)",
        "CREATE TRIGGER t AFTER INSERT ON p_notes__note BEGIN DELETE FROM event; END",
        f"CREATE INDEX {INDEX}_0 ON {INDEX}_docsize (sz)",
    ],
)
def test_a_table_beside_the_index_is_found(
    store: SqliteStore, tmp_path: Path, planted: str
) -> None:
    SqliteStore(tmp_path, source=Seeded(), projections=(Tally(),)).close()  # unknown to `store`
    raw = RawSql(tmp_path / "store.db")
    raw(planted)
    raw.close()
    faults = [str(fault) for fault in verify_store(store)]
    assert any("not one of ours" in fault for fault in faults), faults


@pytest.mark.parametrize(
    "table",
    [
        Table("note", ("key",), {"key": "text", "w": "text"}, words="w"),
        Table("note", ("key",), {"key": "integer", "w": "integer"}, "key", words="w"),
        Table("note", ("key",), {"key": "integer", "w": "text"}, "key", words="nope"),
        Table("note", ("key",), {"key": "integer", "rank": "text"}, "key", words="rank"),
        Table("note", ("key",), {"key": "integer", "w": "text"}, "key", words="w", group="key"),
    ],
)
def test_a_table_that_cannot_have_words_is_refused(table: Table) -> None:
    class Bad(Notes):
        tables = (table,)

    with pytest.raises(InvalidValue, match="words|order|groups"):
        MemoryStore(source=Seeded(), projections=(Bad(),))


def test_a_check_does_not_take_an_index_that_moved_on_for_damaged(tmp_path: Path) -> None:
    """A connection that has searched keeps the structure of the index, and others write since."""
    store = open_store(tmp_path / ".plait")
    memory = Memory(store=store)
    session = Session("Hi", user="ann", store=store)
    for number in range(60):
        session = memory.remember(session, f"Host {number} is of row {number % 7}.", scope="user")
        assert memory.search("which host?", session=session) and store.check() == []
    assert store.check_words() == []
    store.close()
