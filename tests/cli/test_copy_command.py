"""`plait copy` in the shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait import Session, open_store
from plait.runtime.live import Live
from plait.store import canonical_address
from plait.store.postgres.address import parse_address
from plait.store.postgres.migrate import migrate
from tests.cli.shell import Shell
from tests.copying.histories import waiting_session


@pytest.fixture
def plait(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "from")


def test_copy_counts_and_repeats(plait: Shell, tmp_path: Path) -> None:
    store, to = open_store(plait.folder), str(tmp_path / "to")
    session = Session("hello", store=store).say("more")
    tried = plait.json("copy", str(plait.folder), to, "--dry-run")
    assert (tried["dry_run"], tried["events"], tried["sessions"]) == (True, session.seq, 1)
    assert not Path(to).exists()
    done = plait.json("copy", str(plait.folder), to)
    assert (done["events"], done["target"]) == (session.seq, canonical_address(to))
    text = plait("copy", str(plait.folder), to)
    assert "copied 0 events" in text and "there already" in text
    assert session.short in plait("ls", "--store", to)


def test_a_moved_session_says_where_it_went(plait: Shell, tmp_path: Path) -> None:
    session, to = waiting_session(open_store(plait.folder)), str(tmp_path / "to")
    here, there = ("--store", str(plait.folder)), canonical_address(to)
    assert f"{session.short} moved to {there}" in plait("copy", str(plait.folder), to)
    assert "moved" in plait("ls", *here)
    assert plait.json("ls", "--status", "moved", *here)["sessions"][0]["id"] == session.id
    assert f"moved to {there}" in plait("show", session.short, *here)
    assert there in plait.error(1, "resume", session.short, *here)
    assert there in plait.error(1, "say", session.short, "x", *here)
    assert "waiting" in plait("ls", "--store", to)


def test_sessions_that_are_left_out_are_named(plait: Shell, tmp_path: Path) -> None:
    store, to = open_store(plait.folder), str(tmp_path / "to")
    held = waiting_session(store)
    Session("free", store=store)
    lock = store.lock(str(store.rows("inbox", "run", limit=1)[0]["run"]), held.short)
    found = plait.run("copy", str(plait.folder), to)
    assert (found.exit_code, "of 1 session" in found.stdout) == (75, True)
    assert f"{held.short} was left out: run " in found.stderr
    told = plait.json("copy", str(plait.folder), to, code=75)
    assert [(each["log"], each["error"]) for each in told["left_out"]] == [(held.id, "RunHeld")]
    both = Session("both", store=store)
    plait("copy", str(plait.folder), to, both.short)
    both.say("here")
    Session.open(both.id, store=open_store(to)).say("there")
    plait("copy", str(plait.folder), to, code=1)
    plait.error(75, "copy", str(plait.folder), to, held.short)
    lock.release()
    plait("copy", str(plait.folder), to, held.short)


def test_bad_input(plait: Shell, tmp_path: Path) -> None:
    open_store(plait.folder)
    missing = tmp_path / "none"
    assert "there is no store" in plait.error(3, "copy", str(missing), str(tmp_path / "to"))
    assert not missing.exists() and not (tmp_path / "to").exists()
    plait.error(2, "copy", str(plait.folder), str(plait.folder))
    plait.error(3, "copy", str(plait.folder), str(tmp_path / "to"), "nothing")
    plait.error(2, "copy", str(plait.folder), str(tmp_path / "no" / "such"))
    plait.error(2, "copy", str(plait.folder), "gopher://x")


def test_copy_to_postgres_and_back(plait: Shell, tmp_path: Path, postgres_address: str) -> None:
    session = waiting_session(open_store(plait.folder))
    assert "migrate" in plait.error(3, "copy", str(plait.folder), postgres_address)
    migrate(parse_address(postgres_address), source=Live())
    tried = plait.json("copy", str(plait.folder), postgres_address, "--dry-run")
    assert (tried["moved"], tried["dry_run"]) == ([session.id], True)
    assert "moved to postgresql:" in plait("copy", str(plait.folder), postgres_address)
    assert "waiting" in plait("ls", "--store", postgres_address)
    plait("verify", "--state", "--store", postgres_address)
    back = str(tmp_path / "back")
    plait("copy", postgres_address, back, session.short)
    assert "waiting" in plait("ls", "--store", back)
    assert "moved" in plait("ls", "--store", postgres_address)
