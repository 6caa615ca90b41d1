"""The doctor finds what is wrong, says what to do, and leaves everything as it was."""

from __future__ import annotations

import io
import json
import os
import pty
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from plait.cli import main
from plait.cli.machine_checks import Requirement
from plait.store import SqliteStore
from plait.store.sqlite.database import PAGE_SIZE, PRAGMAS
from plait.store.sqlite.inspect import inspect
from plait.store.sqlite.schema import MIGRATIONS
from plait.testing import Seeded
from plait.testing.writing import begin, message
from tests.support import ForkedProgram

MODULE = "plait.cli.store_checks"
ESCAPE = "\x1b"
# whatever the store is like
MACHINE = ["python", "plait", "dependencies", "extras", "isolation", "backends"]
ALWAYS = ["pragmas", "sqlite", *MACHINE, "keys", "local model", "viewer", "terminal"]


def doctor(folder: Path | str, *arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(
        main, ["doctor", "--store", str(folder), *arguments], env=environ, catch_exceptions=False
    )


def report(folder: Path | str) -> dict[str, Any]:
    """The JSON report, with the checks by name."""
    result = doctor(folder, "--json")
    found = json.loads(result.stdout)
    found["checks"] = {check["name"]: check for check in found["checks"]}
    assert result.exit_code == (0 if found["ok"] else 1)
    return found


def make(folder: Path) -> Path:
    """A store with one log of two events and one blob; the path of its file."""
    store = SqliteStore(folder, source=Seeded())
    begin(store, message("hello"))
    store.put_blob(b"content")
    store.close()
    return folder / "store.db"


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement).fetchall()


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the shared memory, in which SQLite keeps the marks of its readers."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.is_file() and not path.name.endswith("-shm")
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".plait"


# ── the store ────────────────────────────────────────────────────────────────────────────────


def test_no_store_is_fine_and_none_is_made(folder: Path):
    found = report(folder)
    assert found["ok"]
    assert "none yet; it is made on first use" in found["checks"]["store"]["detail"]
    assert list(found["checks"]) == ["store", "filesystem", *ALWAYS]
    assert not folder.exists() and not list(folder.parent.iterdir())


def test_healthy_store(folder: Path):
    make(folder)
    before = contents(folder)
    found = report(folder)
    assert found["ok"] and {check["status"] for check in found["checks"].values()} <= {"ok", "warn"}
    assert list(found["checks"]) == ["store", "schema", "integrity", "filesystem", *ALWAYS]
    store = found["store"]
    assert (store["exists"], store["logs"], store["events"], store["blobs"]) == (True, 1, 2, 1)
    assert store["bytes"] == (folder / "store.db").stat().st_size
    assert store["schema"] == store["schema_known"] == len(MIGRATIONS)
    assert store["pragmas"]["journal_mode"] == "wal"
    assert contents(folder) == before and sorted(os.listdir(folder)) == [".gitignore", "store.db"]


def test_a_key_is_told_and_not_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(folder)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert "none is set" in report(folder)["checks"]["keys"]["detail"]
    monkeypatch.setenv("GEMINI_API_KEY", "do-not-show-me")
    found = report(folder)
    assert "GEMINI_API_KEY" in found["checks"]["keys"]["detail"]
    assert "do-not-show-me" not in str(found)


def test_open_store_is_read_through_its_log(folder: Path):
    store = SqliteStore(folder, source=Seeded())
    begin(store, message("not checkpointed yet"))
    before = contents(folder)
    assert before["store.db-wal"]
    assert report(folder)["store"]["events"] == 2
    assert contents(folder) == before
    store.close()


def test_store_of_a_killed_process_keeps_its_log(folder: Path):
    code = "import os, sys, plait; plait.open_store(sys.argv[1]).put_blob(b'x'); os._exit(9)"
    subprocess.run([sys.executable, "-c", code, folder], check=False)
    before = contents(folder)
    assert before["store.db-wal"]
    found = report(folder)
    assert found["ok"] and found["store"]["blobs"] == 1
    assert contents(folder) == before


def test_store_that_is_opened_while_being_read_is_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    make(folder)
    opened: list[SqliteStore] = []

    def open_meanwhile(path: str | None, **options: Any) -> dict[str, Any]:
        found = inspect(path, **options)
        if path and not opened:
            opened.append(SqliteStore(folder, source=Seeded()))
            begin(opened[0], message("meanwhile"))
        return found

    monkeypatch.setattr(f"{MODULE}.inspect", open_meanwhile)
    assert report(folder)["store"]["logs"] == 2
    opened[0].close()


def test_file_that_changes_into_a_store_is_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    path = make(folder)
    good = path.read_bytes()
    path.write_bytes(b"half written" * 1000)

    def finish_meanwhile(at: str | None, **options: Any) -> dict[str, Any]:
        try:
            return inspect(at, **options)
        finally:
            if at:
                path.write_bytes(good)

    monkeypatch.setattr(f"{MODULE}.inspect", finish_meanwhile)
    assert report(folder)["store"]["events"] == 2


def test_empty_file_becomes_a_store_later(folder: Path):
    folder.mkdir()
    (folder / "store.db").touch()
    (folder / "store.db-wal").touch()
    found = report(folder)
    assert found["ok"] and "made on first use" in found["checks"]["store"]["detail"]
    assert contents(folder) == {"store.db": b"", "store.db-wal": b""}


def test_memory_store():
    found = report("memory:mine")
    assert found["ok"] and found["store"]["address"] == "memory:mine"
    assert list(found["checks"]) == ["store", *ALWAYS]


def test_older_schema_is_not_migrated(folder: Path, monkeypatch: pytest.MonkeyPatch):
    make(folder)
    before = contents(folder)
    monkeypatch.setattr(f"{MODULE}.MIGRATIONS", (*MIGRATIONS, MIGRATIONS[0]))
    found = report(folder)
    assert found["ok"] and "on next use" in found["checks"]["schema"]["detail"]
    assert contents(folder) == before


def test_newer_schema_says_to_upgrade(folder: Path):
    execute(make(folder), "PRAGMA user_version = 999")
    before = contents(folder)
    found = report(folder)
    check = found["checks"]["schema"]
    assert (
        check["status"] == "fail"
        and "has schema 999" in check["detail"]
        and "pip install -U plait" in check["next"]
    )
    assert (found["store"]["schema"], found["store"]["schema_known"]) == (999, len(MIGRATIONS))
    assert contents(folder) == before


def test_text_file_is_not_a_store(folder: Path):
    folder.mkdir()
    (folder / "store.db").write_text("Dear diary,\n" * 1000)
    before = contents(folder)
    check = report(folder)["checks"]["store"]
    assert (
        check["status"] == "fail"
        and "is not a Plait store" in check["detail"]
        and "choose another folder" in check["next"]
    )
    assert contents(folder) == before


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_another_programs_database_stays_as_it_is(folder: Path, mode: str):
    folder.mkdir()
    execute(
        folder / "store.db",
        f"PRAGMA journal_mode = {mode}",
        "CREATE TABLE mine (x)",
        "INSERT INTO mine VALUES (1)",
    )
    before = contents(folder)
    check = report(folder)["checks"]["store"]
    assert check["status"] == "fail" and "another program" in check["detail"]
    assert contents(folder) == before and os.listdir(folder) == ["store.db"]


def _link(path: Path) -> None:
    path.symlink_to(make(path.parent.parent / "elsewhere"))


def _dangling(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (_link, "symbolic link"),
        (_dangling, "symbolic link"),
        (Path.mkdir, "not a regular file"),
        (os.mkfifo, "not a regular file"),
    ],
)
def test_other_than_a_file(folder: Path, place: Callable[[Path], None], why: str):
    folder.mkdir()
    place(folder / "store.db")
    check = report(folder)["checks"]["store"]
    assert check["status"] == "fail" and why in check["detail"]


def test_corrupt_pages(folder: Path):
    path = make(folder)
    content = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as db:
        (root,) = db.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'event_place'"
        ).fetchone()
    content[PAGE_SIZE * (root - 1) : PAGE_SIZE * root] = b"\xa5" * PAGE_SIZE
    path.write_bytes(content)
    check = report(folder)["checks"]["integrity"]
    assert check["status"] == "fail" and "\n" not in check["detail"] and "backup" in check["next"]
    assert path.read_bytes() == content


def test_corrupt_schema(folder: Path):
    path = make(folder)
    content = bytearray(path.read_bytes())
    content[100:PAGE_SIZE] = b"\xa5" * (PAGE_SIZE - 100)
    path.write_bytes(content)
    check = report(folder)["checks"]["store"]
    assert (
        check["status"] == "fail" and "malformed" in check["detail"] and "backup" in check["next"]
    )
    assert path.read_bytes() == content


def test_what_only_quick_check_finds(folder: Path):
    path = make(folder)
    execute(
        path,
        "PRAGMA writable_schema = 1",
        "UPDATE sqlite_schema SET sql = replace(sql, 'tip     INTEGER', 'tip     TEXT')",
    )
    check = report(folder)["checks"]["integrity"]
    assert check["status"] == "fail" and "log.tip" in check["detail"] and "backup" in check["next"]


@pytest.mark.parametrize("gone", [True, False])
def test_log_without_its_file_is_not_thrown_away(folder: Path, gone: bool):
    path = make(folder)
    (folder / "store.db-wal").write_bytes(b"the only copy")
    path.unlink() if gone else path.write_bytes(b"")
    check = report(folder)["checks"]["store"]
    assert check["status"] == "fail" and "write-ahead log" in check["detail"]
    assert (folder / "store.db-wal").read_bytes() == b"the only copy"


@contextmanager
def held(path: Path, *statements: str) -> Generator[None]:
    """Another process that has run these statements and stays."""
    code = """if True:
        import sqlite3, sys
        db = sqlite3.connect(sys.argv[1], isolation_level=None)
        for statement in sys.argv[2:]:
            db.execute(statement).fetchall()
        print(flush=True)
        sys.stdin.read()"""
    command = [sys.executable, "-c", code, str(path), *statements]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        process.stdout.readline()
        yield
        process.stdin.close()


@pytest.mark.parametrize(
    "statements", [("BEGIN IMMEDIATE",), ("PRAGMA locking_mode = EXCLUSIVE", "BEGIN IMMEDIATE")]
)
def test_locked_store(folder: Path, statements: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(f"{MODULE}.BUSY_S", 0.2)
    with held(make(folder), *statements):
        check = report(folder)["checks"]["store"]
    assert check["status"] == "fail" and "locked by another process for 0.2 s" in check["detail"]
    assert report(folder)["ok"]


def test_folder_that_is_a_file(tmp_path: Path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        check = report(folder)["checks"]["store"]
        assert check["status"] == "fail" and "there is a file of that name" in check["detail"]


def test_paths_the_system_or_sqlite_refuse(tmp_path: Path):
    assert "too long" in report(tmp_path / ("x" * 300))["checks"]["store"]["detail"]
    refused = CliRunner().invoke(main, ["doctor", "--store", str(tmp_path / os.fsdecode(b"\xff"))])
    assert refused.exit_code == 2 and "not UTF-8" in refused.output


# ── what it rests on ─────────────────────────────────────────────────────────────────────────


def test_pragmas_kept_in_the_file(folder: Path):
    path = make(folder)
    execute(path, "PRAGMA journal_mode = DELETE")
    found = report(folder)
    assert found["ok"] and found["checks"]["pragmas"]["status"] == "warn"
    assert "journal_mode is delete where wal is needed" in found["checks"]["pragmas"]["detail"]
    execute(path, "PRAGMA page_size = 8192", "VACUUM", "PRAGMA journal_mode = WAL")
    assert "page_size is 8192 where 4096 is needed" in report(folder)["checks"]["pragmas"]["detail"]


def test_pragmas_that_do_not_take(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(f"{MODULE}.PRAGMAS", PRAGMAS | {"synchronous": 3})
    check = report(folder)["checks"]["pragmas"]
    assert check["status"] == "fail" and "synchronous is 2 where 3 is needed" in check["detail"]


def test_old_sqlite(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(f"{MODULE}.SQLITE_MIN", (99, 0))
    check = report(folder)["checks"]["sqlite"]
    assert check["status"] == "fail" and "apsw" in check["next"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder(tmp_path: Path):
    tmp_path.chmod(0o555)
    try:
        check = report(tmp_path / "new" / "one")["checks"]["filesystem"]
    finally:
        tmp_path.chmod(0o755)
    assert check["status"] == "fail" and f"{tmp_path} is not writable" in check["detail"]


def test_file_that_may_not_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch):
    path, may = make(folder), os.access

    def access(at: str, mode: int) -> bool:
        return at != str(path) and may(at, mode)

    monkeypatch.setattr(os, "access", access)
    found = report(folder)
    assert (
        found["checks"]["filesystem"]["status"] == "fail"
        and not found["store"]["filesystem"]["writable"]
    )
    assert found["checks"]["store"]["status"] == "ok"


def set_free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    def usage(path: str) -> SimpleNamespace:
        return SimpleNamespace(free=size)

    monkeypatch.setattr(shutil, "disk_usage", usage)


@pytest.mark.parametrize(("free", "status"), [(0, "fail"), (5_000_000, "warn"), (5 * 10**12, "ok")])
def test_free_space(folder: Path, free: int, status: str, monkeypatch: pytest.MonkeyPatch):
    mounts = folder.parent / "mounts"
    mounts.write_text("27 1 254:0 / / rw - ext4 /dev/vda rw\n")
    monkeypatch.setattr(f"{MODULE}.MOUNTS", mounts)
    set_free(monkeypatch, free)
    assert report(folder)["checks"]["filesystem"]["status"] == status


def test_disk_that_does_not_answer(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def stale(path: str) -> None:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(shutil, "disk_usage", stale)
    check = report(folder)["checks"]["filesystem"]
    assert check["status"] == "fail" and "Stale file handle" in check["detail"]


@pytest.mark.parametrize(
    ("type", "status"),
    [("nfs4", "warn"), ("fuse.sshfs", "warn"), ("9p", "warn"), ("tmpfs", "warn"), ("xfs", "ok")],
)
def test_longest_and_latest_mount_counts(
    tmp_path: Path, type: str, status: str, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "two words" / "store"
    folder.mkdir(parents=True)
    point = str(folder.parent).replace(" ", r"\040")
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        f"28 27 0:50 / {point} rw - cifs //old/share rw\n"
        f"29 27 0:51 / {point} rw - {type} server:/share rw\n"
        f"30 27 0:52 / {point}/sto rw - smb3 //other/share rw\n"
        "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
    )
    monkeypatch.setattr(f"{MODULE}.MOUNTS", mounts)
    found = report(folder)
    assert found["store"]["filesystem"]["type"] == type and found["store"]["filesystem"][
        "mount"
    ] == str(folder.parent)
    assert found["ok"] and found["checks"]["filesystem"]["status"] == status


def test_mounts_that_the_system_does_not_tell(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(f"{MODULE}.MOUNTS", folder / "none")
    found = report(folder)
    assert found["ok"] and found["store"]["filesystem"]["type"] == "unknown"


def test_other_pythons_are_warned_about(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("platform.python_implementation", lambda: "PyPy")
    found = report(folder)
    assert found["ok"] and found["checks"]["python"]["status"] == "warn"


# ── the installation ─────────────────────────────────────────────────────────────────────────


def installed(
    monkeypatch: pytest.MonkeyPatch,
    requires: list[str] | None,
    extras: list[str] | None,
    **versions: str,
) -> None:
    """Make this Plait a distribution that needs these, among packages of these versions."""

    class Fields:
        def get_all(self, name: str) -> list[str] | None:
            return extras

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    def distribution(name: str) -> SimpleNamespace:
        return SimpleNamespace(requires=requires, metadata=Fields(), version="1.2")

    monkeypatch.setattr(metadata, "distribution", distribution)
    monkeypatch.setattr(metadata, "version", version)


def test_versions_are_those_installed(folder: Path):
    found = report(folder)
    assert found["plait"] == found["checks"]["plait"]["detail"] == metadata.version("plait")
    assert f"click {metadata.version('click')}" in found["checks"]["dependencies"]["detail"]
    assert (
        "pytest" not in found["checks"]["dependencies"]["detail"]
        and "dev" not in found["checks"]["extras"]["detail"]
    )


def test_nothing_needed(folder: Path, monkeypatch: pytest.MonkeyPatch):
    installed(monkeypatch, None, None)
    assert report(folder)["checks"]["extras"] == {
        "name": "extras",
        "status": "ok",
        "detail": "this Plait has none",
        "next": None,
    }


def test_dependencies_missing_or_old(folder: Path, monkeypatch: pytest.MonkeyPatch):
    needs = [
        "old>=1.10",
        "gone",
        "gone-too>=2",
        "same>=1.0",
        "fine",
        'elsewhere>=1; sys_platform == "win32"',
    ]
    installed(monkeypatch, needs, ["dev"], old="1.9.9", same="1", fine="7")
    check = report(folder)["checks"]["dependencies"]
    assert check["status"] == "fail" and check["next"]
    assert check["detail"] == "old 1.9.9, 1.10 needed, gone missing, gone-too missing, 2 needed"


def test_extras(folder: Path, monkeypatch: pytest.MonkeyPatch):
    needs = [
        'a>=1; extra == "one"',
        "b ; extra == 'two'",
        'c>=3; (python_version >= "3.11") and extra == "three"',
        'd; extra == "dev"',
    ]
    installed(monkeypatch, needs, ["one", "two", "three", "dev"], a="1.0.1", c="2.9")
    found = report(folder)
    check = found["checks"]["extras"]
    assert found["ok"] and check["status"] == "warn" and "plait[three]" in check["next"]
    assert check["detail"] == "one: installed; two: not installed; three: c 2.9, 3 needed"


def test_plait_that_is_not_installed(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    monkeypatch.setattr(metadata, "version", missing)
    found = report(folder)
    assert (
        not found["ok"]
        and found["plait"] == "unknown"
        and found["checks"]["plait"]["status"] == "fail"
    )


def test_requirement_lines():
    assert Requirement.parse("apsw>=3.51.3") == ("apsw", "3.51.3", None, False)
    assert Requirement.parse("coverage[toml]>=7.6; extra == 'dev'") == (
        "coverage",
        "7.6",
        "dev",
        False,
    )
    assert Requirement.parse('uvloop<2,>=0.19 ; sys_platform != "win32" and extra == "x"') == (
        "uvloop",
        "0.19",
        "x",
        True,
    )


# ── telling it ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("address", ["memory:", "there", "nowhere"])
def test_json_has_one_shape(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "there")
    found = json.loads(doctor(address, "--json").stdout)
    assert list(found) == ["plait", "ok", "checks", "store"]
    for check in found["checks"]:
        assert list(check) == ["name", "status", "detail", "next"]
        assert check["status"] in ("ok", "warn", "fail") and (check["next"] is None) == (
            check["status"] == "ok"
        )
    keys = {
        "address",
        "path",
        "exists",
        "schema",
        "schema_known",
        "logs",
        "events",
        "blobs",
        "bytes",
        "pragmas",
        "filesystem",
        "server",
    }
    assert found["store"].keys() == keys


@pytest.mark.parametrize("address", ["", "sqlite:", "postgres://x?y", "a\0b"])
def test_bad_address_is_a_usage_error(address: str):
    result = doctor(address, "--json")
    assert (
        (result.exit_code, result.stdout) == (2, "")
        and "no store at" in result.stderr
        and "--store" in result.stderr
    )


def test_address_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLAIT_STORE", str(tmp_path / "mine"))
    assert str(tmp_path / "mine") in CliRunner().invoke(main, ["doctor"]).stdout
    monkeypatch.setenv("PLAIT_STORE", "ftp:mine")
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 2 and "PLAIT_STORE" in result.stderr


def test_removed_current_folder_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PLAIT_STORE", raising=False)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 2 and "current folder" in result.stderr


def test_plain_text_is_aligned(folder: Path):
    execute(make(folder), "PRAGMA user_version = 999")
    result = doctor(folder)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert {line[:6] for line in lines[:-1]} <= {"ok    ", "warn  ", "fail  ", "      "}
    assert lines[1].startswith("fail  schema        ") and lines[2].startswith(" " * 20 + "next: ")
    assert lines[-1].startswith("1 of ")


def test_sizes_for_people(folder: Path, monkeypatch: pytest.MonkeyPatch):
    set_free(monkeypatch, 5_400_000_000_000)
    assert "5.4 TB free" in doctor(folder).stdout
    set_free(monkeypatch, 999)
    result = doctor(folder)
    assert "999 bytes free" in result.stdout and result.stdout.endswith("Ready, 1 warning.\n")


HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202eevil\r\nok\x9b31m"


@pytest.mark.parametrize("exists", [True, False])
def test_hostile_path_reaches_no_terminal(tmp_path: Path, exists: bool):
    folder = tmp_path / HOSTILE
    if exists:
        make(folder)
    result = doctor(folder)
    assert result.exit_code == 0 and "evil" in result.stdout
    assert all(char.isprintable() or char == "\n" for char in result.stdout)
    assert (
        len(result.stdout.splitlines())
        == len(doctor(tmp_path / "good").stdout.splitlines()) + 2 * exists
    )
    raw = doctor(folder, "--json").stdout
    assert raw.isascii() and ESCAPE not in raw
    assert json.loads(raw)["store"]["path"] == str(folder / "store.db")


def plait(*arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        "from plait.cli import main; main(prog_name='plait')",
        *map(str, arguments),
    ]
    return subprocess.run(
        command, capture_output=True, text=True, env=os.environ | environ, timeout=60
    )


def test_in_a_process_of_its_own(folder: Path):
    fresh = plait("doctor", "--store", folder, FORCE_COLOR="1")
    assert (fresh.returncode, fresh.stderr) == (0, "") and ESCAPE not in fresh.stdout
    execute(make(folder), "PRAGMA user_version = 999")
    assert plait("doctor", "--store", folder).returncode == 1
    assert plait("doctor", "--stroe", folder).returncode == 2
    assert plait("--version").stdout == f"plait {metadata.version('plait')}\n"


def test_narrow_encoding(tmp_path: Path):
    result = plait("doctor", "--store", tmp_path / "žluť", PYTHONIOENCODING="latin-1")
    assert result.returncode == 0 and r"\u017elu\u0165" in result.stdout


def on_terminal(*arguments: str | Path, **environ: str) -> str:
    """Return the bytes that a terminal of 80 columns is sent."""
    ours, theirs = pty.openpty()
    asked = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "FORCE_COLOR", "COLORTERM")
    }
    settings = asked | {"TERM": "xterm-256color", "COLUMNS": "80"} | environ
    command = [
        sys.executable,
        "-c",
        "from plait.cli import main; main(prog_name='plait')",
        *map(str, arguments),
    ]
    process = ForkedProgram(command, stdin=theirs, stdout=theirs, env=settings)
    os.close(theirs)
    sent = b""
    with closing(os.fdopen(ours, "rb", 0)) as terminal:
        try:
            while part := terminal.read(4096):
                sent += part
        except OSError:  # how Linux says that nobody is on the other side any more
            pass
    process.wait()
    return sent.decode()


def test_on_a_terminal(folder: Path):
    execute(make(folder / HOSTILE), "PRAGMA user_version = 999")
    coloured = on_terminal("doctor", "--store", folder / HOSTILE)
    assert ESCAPE in coloured and "owned" in coloured
    assert not any(part in coloured for part in ("\x1b[2J", "\x1b]0", "\x07", "\u202e", "\x9b"))
    plain = on_terminal("doctor", "--store", folder / HOSTILE, NO_COLOR="1")
    assert ESCAPE not in plain and "next: " in plain and "1 of " in plain
    assert max(map(len, plain.splitlines())) <= 80


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_table_without_a_process(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    (folder / "store.db").mkdir(parents=True)
    assert main(["doctor", "--store", str(folder)], standalone_mode=False) == 1
    assert (
        "not a regular file" in " ".join(terminal.getvalue().split())
        and "next: " in terminal.getvalue()
    )


def test_help_is_light():
    code = (
        "import sys; from plait.cli import main; main(['--help'], standalone_mode=False);"
        " print(sorted(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "doctor" in result.stdout and "'click'" in result.stdout
    assert not any(
        f"'{name}'" in result.stdout
        for name in ("rich", "asyncio", "pydantic", "packaging", "openai", "anthropic")
    )
