"""Where a store is looked for when none is named, and where not: as git does with repositories of
other users.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plait import Session, open_store
from plait.errors import UntrustedStore
from plait.store import canonical_address, locate
from tests.cli.shell import Shell, process, shell

__all__ = ["shell"]

OTHER = 65534


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def _made(folder: Path) -> Path:
    (folder / ".plait").mkdir(parents=True)
    return folder


def test_it_is_looked_for_up_to_the_home_folder(home: Path, tmp_path: Path) -> None:
    deep, environ = home / "a" / "b", {"HOME": str(home)}
    deep.mkdir(parents=True)
    _made(tmp_path)
    assert locate(deep, environ) == canonical_address(str(deep / ".plait"))
    assert locate(home, environ) == canonical_address(str(home / ".plait"))
    _made(home)
    assert locate(deep, environ) == canonical_address(str(home / ".plait"))
    (tmp_path / "link").symlink_to(home)
    assert locate(deep, {"HOME": str(tmp_path / "link")}) == canonical_address(str(home / ".plait"))


@pytest.mark.parametrize("sign", [".git", ".hg", ".jj", ".svn"])
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_it_is_looked_for_up_to_the_root_of_a_repository(home: Path, sign: str, kind: str) -> None:
    root, environ = home / "repo", {"HOME": str(home)}
    deep = root / "a" / "b"
    deep.mkdir(parents=True)
    _made(home)
    assert locate(deep, environ) == canonical_address(str(home / ".plait"))
    (root / sign).mkdir() if kind == "folder" else (root / sign).write_text("gitdir: x\n")
    assert locate(deep, environ) == canonical_address(str(deep / ".plait"))
    _made(root)
    assert locate(deep, environ) == canonical_address(str(root / ".plait"))


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757, 0o702])
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_folder_that_everybody_may_write_has_none(tmp_path: Path, mode: int, depth: int) -> None:
    shared = _made(tmp_path / "shared")
    shared.chmod(mode)
    start = shared.joinpath(*"abc"[:depth])
    start.mkdir(parents=True, exist_ok=True)
    with pytest.raises(UntrustedStore, match=r"everybody may write to .*PLAIT_STORE=") as raised:
        locate(start, {})
    assert raised.value.path == str(shared / ".plait")
    assert locate(start, {"PLAIT_STORE": str(shared / ".plait")}) == canonical_address(
        str(shared / ".plait")
    )
    if not depth:
        return
    _made(start)
    if mode & 0o1000:  # one's own folder in it has a store of its own
        assert locate(start, {}) == canonical_address(str(start / ".plait"))
    else:  # everybody may rename it there, and put another one in its place
        with pytest.raises(UntrustedStore, match=f"everybody may write to {shared}"):
            locate(start, {})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("owned", ["shared", "shared/.plait"])
@pytest.mark.parametrize("below_home", [False, True])
def test_a_folder_of_another_user_has_none(tmp_path: Path, owned: str, below_home: bool) -> None:
    shared = _made(tmp_path / "shared")
    os.chown(tmp_path / owned, OTHER, OTHER)
    start = shared / "mine"
    start.mkdir()
    with pytest.raises(UntrustedStore, match=r"another user \(uid 65534\) owns"):
        locate(start, {"HOME": str(tmp_path)} if below_home else {})
    assert locate(start, {"SUDO_UID": str(OTHER)}) == canonical_address(str(shared / ".plait"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_link_of_another_user_is_not_followed(tmp_path: Path, home: Path) -> None:
    real = _made(tmp_path / "real")
    (home / ".plait").symlink_to(real / ".plait")
    assert locate(home, {"HOME": str(home)}) == canonical_address(str(real / ".plait"))
    (real / ".plait").chmod(0o777)
    with pytest.raises(UntrustedStore, match="everybody"):
        locate(home, {"HOME": str(home)})
    (real / ".plait").chmod(0o700)
    os.chown(home / ".plait", OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(UntrustedStore, match="65534"):
        locate(home, {"HOME": str(home)})


def _store_of(folder: Path) -> Path:
    place = _made(folder) / ".plait"
    place.chmod(0o755)
    for name in ("store.db", "store.db-wal", "store.db-shm", "runs.lock"):
        (place / name).write_bytes(b"")
    (place / "work").mkdir()
    return place


def _refused(start: Path, why: str, home: Path) -> None:
    with pytest.raises(UntrustedStore, match=rf"{why}.*PLAIT_STORE="):
        locate(start, {"HOME": str(home)})


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_link_into_a_folder_that_everybody_may_write_is_not_followed(
    home: Path, tmp_path: Path, mode: int
) -> None:
    shared = tmp_path / "shared"
    _store_of(shared)
    (home / ".plait").symlink_to("../shared/.plait")
    assert locate(home, {"HOME": str(home)}) == canonical_address(str(shared / ".plait"))
    shared.chmod(mode)
    _refused(home, f"everybody may write to {shared}", home)


def test_a_folder_on_the_way_of_a_link_that_everybody_may_write_is_seen(
    home: Path, tmp_path: Path
) -> None:
    """The link, and the folder that it ends in, are one's own; who writes to the folder between has
    it lead elsewhere.
    """
    between, real = tmp_path / "between", tmp_path / "real"
    between.mkdir()
    _store_of(real / "deep")
    (between / "link").symlink_to(real)
    (home / ".plait").symlink_to(between / "link" / "deep" / ".plait")
    assert locate(home, {"HOME": str(home)}) == canonical_address(str(real / "deep" / ".plait"))
    between.chmod(0o777)
    _refused(home, f"everybody may write to {between}", home)
    between.chmod(0o1777)  # there everybody keeps what is their own
    assert locate(home, {"HOME": str(home)}) == canonical_address(str(real / "deep" / ".plait"))
    real.chmod(0o777)
    _refused(home, f"everybody may write to {real}", home)


def test_a_link_that_leads_nowhere_yet_is_looked_at_as_well(home: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (home / ".plait").symlink_to(shared / "new")
    assert locate(home, {"HOME": str(home)}) == canonical_address(str(shared / "new"))
    shared.chmod(0o777)
    _refused(home, f"everybody may write to {shared}", home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_link_into_a_folder_of_another_user_is_not_followed(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    _store_of(other)
    (home / ".plait").symlink_to(other / ".plait")
    os.chown(other, OTHER, OTHER)
    _refused(home, rf"another user \(uid 65534\) owns {other}", home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_link_of_another_user_on_the_way_is_not_followed(home: Path, tmp_path: Path) -> None:
    between, real = tmp_path / "between", tmp_path / "real"
    between.mkdir()
    between.chmod(0o1777)
    _store_of(real)
    (between / "link").symlink_to(real / ".plait")
    (home / ".plait").symlink_to(between / "link")
    os.chown(between / "link", OTHER, OTHER, follow_symlinks=False)
    _refused(home, rf"another user \(uid 65534\) owns {between / 'link'}", home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", ["store.db", "store.db-wal", "store.db-shm", "runs.lock", "work"])
def test_a_file_of_another_user_in_ones_own_store_is_not_read(home: Path, name: str) -> None:
    place = _store_of(home)
    assert locate(home, {"HOME": str(home)}) == canonical_address(str(place))
    os.chown(place / name, OTHER, OTHER)
    _refused(home, rf"another user \(uid 65534\) owns {place / name}", home)
    assert locate(home, {"PLAIT_STORE": str(place)}) == canonical_address(str(place))


@pytest.mark.parametrize("name", ["store.db", "store.db-wal", "work"])
def test_a_file_that_everybody_may_write_is_not_read_where_everybody_gets_to_it(
    home: Path, name: str
) -> None:
    place = _store_of(home)
    (place / name).chmod(0o777)
    _refused(home, f"everybody may write to {place / name}", home)
    place.chmod(0o700)
    assert locate(home, {"HOME": str(home)}) == canonical_address(str(place))


def test_outside_of_both_it_ends_at_the_first_folder_that_is_not_the_users_alone(
    tmp_path: Path,
) -> None:
    above = _made(tmp_path / "above")
    start = above / "shared" / "mine" / "deep"
    start.mkdir(parents=True)
    assert locate(start, {}) == canonical_address(str(above / ".plait"))
    (above / "shared").chmod(0o1777)
    assert locate(start, {}) == canonical_address(str(start / ".plait"))
    assert locate(start, {"HOME": str(tmp_path)}) == canonical_address(str(above / ".plait"))


def test_none_is_made_where_it_would_not_be_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    monkeypatch.chdir(tmp_path / "shared")
    monkeypatch.delenv("PLAIT_STORE", raising=False)
    for make in (lambda: Session("x"), open_store):
        with pytest.raises(UntrustedStore):
            make()
    assert not (tmp_path / "shared" / ".plait").exists()
    open_store(tmp_path / "shared" / "named").close()  # what is named is used


def test_the_shell_says_why_and_what_to_do(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.new("x")
    tmp_path.chmod(0o1777)
    (tmp_path / "below").mkdir()
    for folder in (tmp_path, tmp_path / "below"):
        monkeypatch.chdir(folder)
        for command in (["ls"], ["new", "y"], ["doctor"]):
            said = shell.error(2, *command)
            assert (
                f"everybody may write to {tmp_path}" in said
                and f"PLAIT_STORE={shell.folder}" in said
            )
    assert len(shell.jsonl("ls", "--store", str(shell.folder))) == 1
    monkeypatch.chdir(tmp_path)
    assert "everybody" in shell.error(2, "init") and "everybody" in shell.error(2, "init", ".")
    monkeypatch.setenv("PLAIT_STORE", str(shell.folder))
    assert process("ls").returncode == 0
