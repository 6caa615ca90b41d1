"""Runs with files that one machine leaves and another takes up, from a PostgreSQL store."""

from __future__ import annotations

import shutil
import socket
import stat
from pathlib import Path

import pytest

from plait import Session, open_store, replay
from plait.errors import UntrustedStore
from plait.event.kinds import PlacementChanged
from plait.runtime.live import Live
from plait.session.event_text import event_text
from plait.store import MemoryStore
from plait.store.postgres.address import parse_address
from plait.store.postgres.migrate import migrate
from plait.testing import Seeded
from plait.workspace.copy_state import cache_folder
from tests.runtime.machine_program import Notes
from tests.support import filled_folder, run_module


@pytest.fixture
def address(postgres_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a store that is made, for a user with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    migrate(parse_address(postgres_address), source=Live())
    return postgres_address


def work_on(host: str, user: str, session: Session, tmp_path: Path) -> int:
    """Run the program as a user of a machine, with a home and a cache of their own."""
    home = tmp_path / f"home of {user} on {host}"
    home.mkdir()
    cache = str(home / "cache")
    done = run_module(
        "tests.runtime.machine_program",
        host,
        user,
        session.store,
        session.id,
        HOME=str(home),
        XDG_CACHE_HOME=cache,
    )
    assert list(Path(cache).glob("plait/*/copies/*")), done.stderr
    return done.returncode


@pytest.mark.long
def test_a_killed_run_goes_on_elsewhere_with_its_files(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = filled_folder(tmp_path / "repo", {"notes": "zero\n", "node_modules/a/b.js": "1\n"})
    with monkeypatch.context() as patched:
        patched.setattr(socket, "gethostname", lambda: "first")
        session = Session("Take notes.", store=address).to("local", repo)
    assert work_on("first", "ann", session, tmp_path) != 0
    shutil.rmtree(repo)  # the other machine does not have it
    assert work_on("second", "bob", session, tmp_path) == 0
    after = session.reload()
    assert after.status == "finished" and after.files.text("notes") == "zero\none\ntwo\n"
    changes = [event for event in after.events if isinstance(event.body, PlacementChanged)]
    *_, here, moved = [event.body for event in changes if isinstance(event.body, PlacementChanged)]
    assert isinstance(here.placement.detail, dict) and isinstance(moved.placement.detail, dict)
    assert here.placement.detail["host"] == "first" and not here.replaced
    assert moved.placement.detail["host"] == "second"
    assert moved.replaced == f"{here.placement.sandbox} on first"
    text = event_text(changes[-1])
    assert f"in the place of {session.short} on first" in text
    if here.placement.rung in ("overlay", "copy"):  # heavy folders are mounted there
        assert moved.placement.detail["left out"] == ["node_modules"]
        assert text.endswith(", without node_modules")
    assert replay(after, Notes()).head == after.head


@pytest.mark.long
def test_another_user_goes_on_with_a_copy_of_their_own(address: str, tmp_path: Path) -> None:
    repo = filled_folder(tmp_path / "repo", {"notes": "zero\n"})
    session = Session("Take notes.", store=address).to("local", repo)
    assert work_on(socket.gethostname(), "ann", session, tmp_path) != 0
    assert work_on(socket.gethostname(), "bob", session, tmp_path) == 0
    after = session.reload()
    assert after.status == "finished" and after.files.text("notes") == "zero\none\ntwo\n"
    last = [event for event in after.events if isinstance(event.body, PlacementChanged)][-1]
    assert event_text(last).endswith(f"sandbox {session.short}, made anew")


def test_a_store_elsewhere_has_a_lasting_folder_for_copies(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(address)
    folder = cache_folder(store)
    assert folder == tmp_path / "cache" / "plait" / store.id
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, folder.parent)] == [0o700] * 2
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # as the convention has it: no such setting
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder(store) == tmp_path / ".cache" / "plait" / store.id
    folder.parent.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(UntrustedStore):
        cache_folder(store)
    assert "plait-" in cache_folder(MemoryStore(source=Seeded())).name


def test_without_a_home_the_folder_is_temporary(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache_folder(open_store(address)).name.startswith("plait-")
