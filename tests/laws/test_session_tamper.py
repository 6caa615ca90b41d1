"""Tamper: whatever is changed behind our back, by raw SQL or raw bytes, `verify` finds it and says
where.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from plait import Session, Store, open_store
from plait.event.kinds import ModelReplied, Text, Usage
from plait.session import SessionRows, verify
from plait.session.graph_rows import GraphRows
from plait.session.ports import Act, Draft, writer_of
from plait.session.session import session_at
from plait.session.value import position_of
from plait.store import SqliteStore
from plait.testing import Seeded
from tests.support import RawSql, count


def history(store: Store) -> dict[str, Session]:
    """A family with everything in it: forks, a rewind, a merge, a choice, a close, tags, causes and
    a snapshot.
    """
    root = Session(
        "Why?", title="cart bug", user="u-17", project="shop", tags={"team": "web"}, store=store
    )
    root = root.fact("db", "postgres 15", because=root)
    a, b = (
        root.fork("strict").decide("verdict", "reject"),
        root.fork("lenient").decide("verdict", "clamp", because=root),
    )
    spent = Draft(
        ModelReplied((Text("hm"),), Usage(input_tokens=7), "end"), Act("agent:m", "model")
    )
    b = session_at(writer_of(None).append(position_of(b), [spent]))
    m = a.say("later").rewind(a.seq).merge(b, resolve={"verdict": "reject"})
    long = Session(title="long", store=store)
    for i in range(520):
        long = long.scratch("i", i) if i % 2 else long.fact(f"k{i % 9}", i)
    return {"root": root, "m": m.close(), "b": b.pause(), "long": long}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tamper") / ".plait"
    store = open_store(folder)
    history(store)
    assert list(verify(store, state=True)) == []
    store.close()
    return folder


def faults_after(
    original: Path, folder: Path, *edits: tuple[str, tuple[Any, ...]], state: bool = False
) -> list[str]:
    """Return the faults that verify finds in a copy of the store, edited by a database browser."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
    sql = RawSql(folder / "store.db")
    for statement, values in edits:
        sql(statement, values)
    sql.close()
    store = SqliteStore(folder, source=Seeded(), projections=(SessionRows(), GraphRows()))
    count("tamper, session edits", store)
    try:
        return [str(fault) for fault in verify(store, state=state)]
    finally:
        store.close()


COLUMNS = [
    "number",
    "title",
    "status",
    "user",
    "project",
    "tags",
    "label",
    "parent",
    "place",
    "opened",
    "life",
    "log",
]


@given(row=st.integers(0, 3), column=st.sampled_from(COLUMNS), junk=st.integers(1000, 9999))
def test_an_edited_session_row_is_named(
    original: Path, tmp_path_factory: pytest.TempPathFactory, row: int, column: str, junk: int
) -> None:
    value: Any = junk if column in ("number", "place", "opened") else f"x{junk}"
    edit = (
        (
            f"UPDATE p_session__session SET [{column}] = ? WHERE number = (SELECT number FROM"
            " p_session__session LIMIT 1 OFFSET ?)"
        ),
        (value, row),
    )
    found = faults_after(original, tmp_path_factory.getbasetemp() / "edited", edit)
    assert found and (column in found[0] or column == "log"), found


@pytest.mark.parametrize(
    ("edit", "state", "says"),
    [
        ("DELETE FROM p_session__session WHERE label = 'strict'", False, "session row is missing"),
        ("INSERT INTO p_session__session SELECT log || 'x', 99999, title, status, user, project, tags, label, parent, place, opened, run, "
         "life FROM p_session__session LIMIT 1", False, "no event made"),
        ("DELETE FROM p_session__tag", False, "tag row is missing"),
        ("UPDATE p_session__tag SET value = 'mobile'", False, "tag row says value is 'mobile', its events say 'web'"),
        ("UPDATE p_session__session SET status = 'open' WHERE status = 'closed'", False, "says status is 'open', its events say 'closed'"),
        ("DELETE FROM p_graph__cause", True, "cause row is missing"),
        ("UPDATE p_graph__merge SET place = place + 1", True, "merge row says place"),
        ("UPDATE log SET tip = tip - 1 WHERE key = 1", False, "the log's row ends at"),
        ("UPDATE event SET body = x'00' WHERE number = 2", False, "@2:"),
        ("UPDATE event SET salt = zeroblob(16) WHERE number = 3", False, "@3: the body of event 3"),
        ("UPDATE event SET kind = (SELECT code FROM kind WHERE name = 'Rewound') WHERE number = 3", False, "@3: it is filed as Rewound"),
        ("DELETE FROM event WHERE number = 2", False, "@2: event 2 is missing"),
        ("UPDATE event SET log = 2 WHERE number = 3", False, "@3:"),
    ],
)  # fmt: skip
def test_an_edit_is_found_and_named(
    original: Path, tmp_path: Path, edit: str, state: bool, says: str
) -> None:
    found = faults_after(original, tmp_path / "edited", (edit, ()), state=state)
    assert found and says in "\n".join(found), found


def test_a_forged_snapshot_is_found_by_folding_again(original: Path, tmp_path: Path) -> None:
    sql = RawSql(original / "store.db")
    ((key, data),) = sql("SELECT key, data FROM snapshot ORDER BY seq DESC LIMIT 1")
    sql.close()
    kept = msgspec.json.decode(zstandard.decompress(data))
    kept["state"]["story"]["facts"]["k0"]["json"] = '"forged"'
    forged = zstandard.compress(msgspec.json.encode(kept))
    edit = ("UPDATE snapshot SET data = ? WHERE key = ?", (forged, key))
    assert any(
        "the snapshot kept there" in each
        for each in faults_after(original, tmp_path / "edited", edit, state=True)
    )
    moved = ("UPDATE snapshot SET seq = seq - 1", ())
    assert any(
        "the snapshot kept there" in each
        for each in faults_after(original, tmp_path / "edited", moved, state=True)
    )
    damaged = ("UPDATE snapshot SET data = x'0102'", ())
    # never used, but edited
    assert any(
        "cannot be read" in each for each in faults_after(original, tmp_path / "edited", damaged)
    )
    assert (
        faults_after(original, tmp_path / "edited", ("DELETE FROM snapshot", ()), state=True) == []
    )


def test_every_answer_survives_the_loss_of_all_caches(original: Path, tmp_path: Path) -> None:
    shutil.copytree(original, tmp_path / "store")
    store = open_store(tmp_path / "store")
    before = [
        (repr(session), dict(session.facts), [each.text for each in session.messages])
        for session in Session.list(store=store)
    ]
    store.drop_snapshots()
    store.rebuild("session")
    store.rebuild("graph")
    assert [
        (repr(each), dict(each.facts), [said.text for said in each.messages])
        for each in Session.list(store=store)
    ] == before
    store.close()


def test_a_state_that_a_closed_session_carries_is_compared(tmp_path: Path) -> None:
    """A forged digest in a well-formed chain: only folding again can tell."""
    from plait.event.kinds import SessionClosed, StateDigest
    from plait.ids import Digest
    from plait.session.state import FOLD

    store = open_store(tmp_path / ".plait")
    session = Session("x", store=store)
    body = SessionClosed(state=StateDigest(FOLD, Digest("0" * 64)))
    writer_of(None).append(position_of(session), [Draft(body, Act("human:x"))])
    assert list(verify(store)) == []
    (fault,) = verify(store, state=True)
    assert fault.log == session.id and fault.seq == 2 and "event 3 carries" in fault.what
    store.close()


@given(data=st.data())
def test_raw_bytes_edited_in_memory_are_named(data: st.DataObject) -> None:
    opened = open_store("memory:tamper-raw")
    root = Session("Why?", title="t", tags={"a": "b"}, store=opened).fact("k", 1)
    root.fork("a").say("x").merge(root.fork("b").fact("k", 2)).rewind(2)
    logs: dict[str, Any] = vars(opened)["_logs"]
    # as they were begun, the house first: ids differ from run to run
    log = data.draw(st.sampled_from(list(logs)))
    events: list[Any] = logs[log].events
    at = data.draw(st.integers(0, len(events) - 1))
    event = events[at]
    what = data.draw(st.sampled_from(["raw", "salt", "content"]))
    mine: dict[str, bytes] = {"raw": event.raw, "salt": event.salt, "content": event.content}
    where = data.draw(st.integers(0, len(mine[what]) - 1))
    flipped = bytearray(mine[what])
    flipped[where] ^= 1 << data.draw(st.integers(0, 7))
    events[at] = type(event)(**{**mine, what: bytes(flipped)})
    count("tamper, bytes flipped", opened)
    try:
        found = [(fault.log, fault.seq) for fault in verify(opened)]
        # Nothing but the chain tells of a header that was edited and is still one: then the event
        # after it does not follow.
        assert (log, event.seq) in found or (what == "raw" and (log, event.seq + 1) in found)
    finally:
        opened.close()
