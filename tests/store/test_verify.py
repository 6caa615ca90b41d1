"""Verify finds what no hash shows: headers that are wrong in themselves, in a chain that was made
to fit them.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from plait.event.codec import EVENT_TAG
from plait.ids import Digest
from plait.store import SqliteStore, verify_store
from plait.store.records import short_of
from plait.testing import Seeded
from plait.testing.writing import begin, message
from tests.support import RawSql

Edit = Callable[[bytes], bytes]


def put(name: str, value: str) -> Edit:
    """Replace the value of one field, whatever it was."""

    def edit(header: bytes) -> bytes:
        start = header.index(f'"{name}":'.encode()) + len(name) + 3
        end = min(at for mark in (b',"', b"}") if (at := header.find(mark, start)) > 0)
        return header[:start] + value.encode() + header[end:]

    return edit


def add_parent(value: str) -> Edit:
    return lambda header: header.replace(b'"],"time"', f'","{value}"],"time"'.encode())


def repeat_parent(header: bytes) -> bytes:
    start = header.index(b'"parents":[') + 11
    parent = header[start : header.index(b"]", start)]
    return header[:start] + parent + b"," + header[start:]


MALFORMED: dict[str, Edit] = {
    "a space": lambda header: header.replace(b",", b", ", 1),
    "a trailing space": lambda header: header + b" ",
    "an escape": lambda header: header.replace(b"human:", b"\\u0068uman:"),
    "another order": lambda header: header.replace(
        b'"run":null,"call":null', b'"call":null,"run":null'
    ),
    "an unknown field": lambda header: header[:-1] + b',"more":1}',
    "a field missing": lambda header: header.replace(b'"behalf":null,', b""),
    "a field twice": lambda header: header.replace(
        b'"behalf":null,', b'"behalf":null,"behalf":null,'
    ),
    "a deep field": lambda header: header.replace(
        b'"behalf":null', b'"behalf":' + b"[" * 2000 + b"]" * 2000
    ),
    "a deep unknown field": lambda header: (
        header[:-1] + b',"more":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    ),
    "version": put("version", "2"),
    "kind": put("kind", '"Nope"'),
    "seq is no integer": put("seq", "3.0"),
    "time before 1970": put("time", "-1"),
    "time beyond 64 bits": put("time", str(2**63)),
    "time is no integer": put("time", '"now"'),
    "actor": put("actor", '"nobody"'),
    "behalf": put("behalf", '"nobody"'),
    "origin": put("origin", '"Not A Word"'),
    "run": put("run", '""'),
    "call": put("call", '"\\n"'),
    "causes": put("causes", '["beef"]'),
    "body": put("body", '"beef"'),
    "no parents": put("parents", "[]"),
    "a parent that is no digest": add_parent("beef"),
    "a parent that is not there": add_parent("0" * 64),
    "a parent twice": repeat_parent,
}


def rewrite(path: Path, at: int, edit: Edit) -> bool:
    """Edit one header of the only log beside the house, then all that follows from it.

    Whether the edit changed anything.
    """
    db = RawSql(path)
    changed = False
    old = new = ""
    for seq, header in db(
        "SELECT seq, plain(codec, header) FROM event WHERE number > 0 ORDER BY seq"
    ):
        raw = (
            edit(header)
            if seq == at
            else header.replace(old.encode(), new.encode())
            if old
            else header
        )
        changed |= raw != header
        old, new = (Digest(sha256(EVENT_TAG + each).hexdigest()) for each in (header, raw))
        db(
            "UPDATE event SET header = ?, codec = codec & 7, short = ? WHERE number > 0 AND"
            " seq = ?",
            (raw, short_of(new), seq),
        )
    db("UPDATE log SET head = ? WHERE key > 0", (bytes.fromhex(new),))
    db.close()
    return changed


@pytest.mark.parametrize("at", [1, 3, 5])
@pytest.mark.parametrize("what", sorted(MALFORMED))
def test_a_malformed_header_in_a_chain_that_fits_it(tmp_path: Path, what: str, at: int) -> None:
    store = SqliteStore(tmp_path, source=Seeded())
    log = begin(store, *(message(str(i)) for i in range(4)))
    assert list(verify_store(store)) == []
    if rewrite(tmp_path / "store.db", at, MALFORMED[what]):
        assert [(fault.log, fault.seq) for fault in verify_store(store)] == [(log, at)]
    else:
        assert at == 1, "only the first event has no parent to be edited"
    store.close()


def test_a_chain_rewritten_with_care_is_not_found(tmp_path: Path) -> None:
    """What the tests above rest on: the chain really fits.

    Only a head kept elsewhere shows this.
    """
    store = SqliteStore(tmp_path, source=Seeded())
    log = begin(store, *(message(str(i)) for i in range(4)))
    head = store.log(log).head
    rewrite(tmp_path / "store.db", 3, put("time", "7"))
    assert list(verify_store(store)) == []
    assert store.log(log).head != head
    store.close()
