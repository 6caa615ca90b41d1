"""Finding a store: addresses, the nearest folder, one store per process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plait import Session, open_store
from plait.errors import BadAddress, StoreClosed, StoreCorrupt
from plait.store import canonical_address, locate
from plait.testing.writing import begin, message, texts


def test_one_spelling_per_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    real = f"sqlite:{os.path.realpath(tmp_path)}/real"
    for address in ("real", "./real", "real/", "sqlite:real", str(tmp_path / "link"), "x/../real"):
        assert canonical_address(address) == real
    assert canonical_address("memory:") == "memory:"
    assert canonical_address("memory:a b") == "memory:a b"


@pytest.mark.parametrize(
    "address", ["", "\0", "sqlite:", "mysql://localhost/db", "redis:x", os.fsdecode(b"\xff")]
)
def test_bad_addresses(address: str) -> None:
    with pytest.raises(BadAddress, match="Use a folder"):
        canonical_address(address)


def test_the_nearest_folder_is_used(tmp_path: Path) -> None:
    deep, home = tmp_path / "a" / "b" / "c", {"HOME": str(tmp_path)}
    deep.mkdir(parents=True)
    assert locate(deep, home) == canonical_address(str(deep / ".plait"))
    (tmp_path / "a" / ".plait").mkdir()
    assert locate(deep, home) == canonical_address(str(tmp_path / "a" / ".plait"))
    assert locate(deep, {"PLAIT_STORE": "memory:x"}) == "memory:x"
    assert locate(deep, {**home, "PLAIT_STORE": ""}) == canonical_address(
        str(tmp_path / "a" / ".plait")
    )


def test_the_default_is_made_on_first_use_and_stays_out_of_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PLAIT_STORE", raising=False)
    store = open_store()
    assert (tmp_path / ".plait" / ".gitignore").read_text() == "*\n"
    store.close()


def test_somebody_elses_folder_gets_no_gitignore(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    open_store(tmp_path).close()
    assert not (tmp_path / ".gitignore").exists()


def test_a_store_is_opened_once_and_again_after_closing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert open_store(str(tmp_path)) is store
    log = begin(store, message("kept"))
    store.close()
    with pytest.raises(StoreClosed, match="open_store"):
        store.log(log)
    again = open_store(tmp_path)
    assert again is not store
    assert texts(again, log) == ["kept"]
    again.close()


def test_memory_stores_by_name() -> None:
    one, two = open_store("memory:one"), open_store("memory:two")
    log = begin(one, message("here"))
    assert open_store("memory:one") is one
    assert two.number == 0
    assert [row["log"] for row in one.rows("session", "session")] == [log]
    one.close()
    assert open_store("memory:one").number == 0
    two.close()


@pytest.mark.parametrize("size", [1, 100, 511])
def test_a_file_that_is_cut_off_is_refused_and_left_alone(tmp_path: Path, size: int) -> None:
    store = open_store(tmp_path / "store")
    Session("go", store=store)
    store.close()
    file = tmp_path / "store" / "store.db"
    for more in ("-wal", "-shm"):
        file.with_name(file.name + more).unlink(missing_ok=True)
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(StoreCorrupt, match="cut off"):
        open_store(tmp_path / "store")
    assert file.stat().st_size == size
