"""For all tests: hypothesis profiles, no network, and a report of what laws and faults were tried
on.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from plait.store.process import STORES
from tests.by_worker import ALSO_BY_WORKER, NOT_BY_WORKER
from tests.left_to_ci import LEFT_TO_CI
from tests.on_postgres import ALSO_ON_POSTGRES, NOT_ON_POSTGRES
from tests.support import (
    EXAMPLES,
    FINDINGS,
    RAN,
    PostgresServer,
    bucket_environment,
    bucket_server,
    fresh_store,
    install_redirection,
    name_test_run,
    new_bucket,
    on_postgres,
    pgbouncer_port,
    postgres_server,
    resumed_by_workers,
)

if TYPE_CHECKING:
    from tests.outline.sessions import ViewStore

# Tests and the modules of others are a large heap that lives as long as the process. It is not
# searched for garbage while it grows, nor later: each test would pay for it, most of all those that
# collect garbage themselves, and a forked child that copies the pages.
gc.disable()

_slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("default", max_examples=15, deadline=None, suppress_health_check=_slow)
settings.register_profile(
    "ci",
    parent=settings.get_profile("default"),
    max_examples=100,
    derandomize=True,
    print_blob=True,
)
settings.register_profile("torture", parent=settings.get_profile("default"), max_examples=300)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("LONG") else "default")
)

_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def _refuse_network(event: str, arguments: tuple[object, ...]) -> None:
    """Tests talk to this machine only."""
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]  # pyright: ignore[reportUnknownVariableType]
        if host not in _LOOPBACK:
            raise RuntimeError(f"a test tried to reach {host!r}")
    if event == "socket.getaddrinfo" and arguments[0] not in (*_LOOPBACK, None, ""):
        raise RuntimeError(f"a test tried to look up {arguments[0]!r}")


sys.addaudithook(_refuse_network)
# The workers of this run share its database servers, which end with the process that is named here.
name_test_run()
# A shell starts background jobs with SIGINT ignored, and programs that tests interrupt inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Child processes that a test starts go on as it does.
install_redirection()

MEMORY = Path("/dev/shm")
ON_DISK = {"faults", "guests", "mcp", "sandbox", "tools", "workspace"}
"""Rooms whose tests are about disks, mounts or programs of others: their folders are where
pytest puts them.
"""


@pytest.fixture
def tmp_path(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A folder of the test's own, in memory if the test is not about disks: an fsync costs nothing
    there.
    """
    room = request.path.relative_to(Path(__file__).parent).parts[0]
    if room in ON_DISK or not os.access(MEMORY, os.W_OK):
        yield tmp_path_factory.mktemp(re.sub(r"\W", "_", request.node.name)[:30])
        return
    with tempfile.TemporaryDirectory(
        prefix="plait-test-", dir=MEMORY, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder).resolve()


@pytest.fixture
def shared_postgres() -> PostgresServer:
    """The server that all tests of the run share."""
    return postgres_server()


@pytest.fixture
def postgres_address() -> Iterator[str]:
    """The address of a PostgreSQL store that does not exist yet."""
    with fresh_store(postgres_server()) as address:
        yield address


@pytest.fixture
def pgbouncer_address() -> Iterator[str]:
    """The same, behind a pooler that lends connections per transaction."""
    server = postgres_server()
    with fresh_store(server, port=pgbouncer_port(server)) as address:
        yield address


@pytest.fixture
def bucket_address(postgres_address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a PostgreSQL store that does not exist yet, with an empty bucket."""
    endpoint = bucket_server()
    for name, value in bucket_environment(endpoint).items():
        monkeypatch.setenv(name, value)
    return f"{postgres_address}&blobs=s3://{new_bucket(endpoint)}/team/a"


@pytest.fixture(autouse=True)
def backend(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the test open stores as it says, or on PostgreSQL whatever it says."""
    if getattr(request, "param", "") != "postgres":
        yield
        return
    with on_postgres():
        yield


@pytest.fixture(autouse=True)
def resumer(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let runs be resumed as the test says, or by a worker whatever it says."""
    if getattr(request, "param", "") != "worker":
        yield
        return
    with resumed_by_workers():
        yield


@pytest.fixture(autouse=True)
def closed_stores(backend: None) -> Iterator[None]:
    """Close what a test left open: a store has half a dozen handles, and a worker runs thousands of
    tests.
    """
    before = set(STORES.by_address)
    yield
    for address in set(STORES.by_address) - before:
        STORES.by_address.pop(address).close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ViewStore:
    """Make sessions of every sort, for the tests of a module that shows them."""
    from tests.outline.sessions import make_view_store  # heavy: most tests do without

    return make_view_store(tmp_path_factory.mktemp("view"))


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Forget what the tools of the test before did."""
    RAN.clear()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have tests run on PostgreSQL too, or, with PLAIT_TEST_STORE=postgres, instead. The same with
    runs that a worker resumes, and PLAIT_TEST_RESUME=worker.
    """
    file = str(metafunc.definition.path.relative_to(Path(__file__).parent))
    name = f"{file}::{metafunc.definition.name}"
    _add_resumer(metafunc, {file, name})
    _add_backend(metafunc, file, name)


def _add_resumer(metafunc: pytest.Metafunc, names: set[str]) -> None:
    plain, worker = pytest.param("", id=pytest.HIDDEN_PARAM), pytest.param("worker", id="worker")
    if names & NOT_BY_WORKER.keys():
        return
    if os.environ.get("PLAIT_TEST_RESUME") == "worker":
        metafunc.parametrize("resumer", [worker], indirect=True)
    elif names & ALSO_BY_WORKER:
        metafunc.parametrize("resumer", [plain, worker], indirect=True)


def _add_backend(metafunc: pytest.Metafunc, file: str, name: str) -> None:
    postgres = pytest.param("postgres", id="postgres")
    if {file, name} & NOT_ON_POSTGRES.keys():
        return
    if os.environ.get("PLAIT_TEST_STORE") == "postgres":
        metafunc.parametrize("backend", [postgres], indirect=True)
    elif file in ALSO_ON_POSTGRES:
        plain = pytest.param("", id=pytest.HIDDEN_PARAM)
        metafunc.parametrize("backend", [plain, postgres], indirect=True)


def _is_left_out(item: pytest.Item) -> bool:
    """True for the second run of a test on PostgreSQL, and in a run on PostgreSQL for all that is
    not on it.
    """
    called = getattr(item, "callspec", None)
    if called is None or called.params.get("backend") != "postgres":
        return os.environ.get("PLAIT_TEST_STORE") == "postgres"
    return "memory" in called.id.split("-")  # a store on disk is tried with as well


def _is_left_to_ci(item: pytest.Item) -> bool:
    """True for a test that is marked `ci`, or named in `left_to_ci.py`."""
    file, _, name = item.nodeid.removeprefix("tests/").partition("::")
    named = LEFT_TO_CI.get(file, ())
    return name.partition("[")[0] in named or item.get_closest_marker("ci") is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to CI what `make test` has no time for: LONG=1, or a torture run, takes it, and so does
    naming one file alone.
    """
    takes_all = (
        any(os.environ.get(name) for name in ("LONG", "COVER", "TORTURE"))
        or len({item.path for item in items}) == 1
    )
    left = [
        item for item in items if _is_left_out(item) or (not takes_all and _is_left_to_ci(item))
    ]
    if left:
        config.hook.pytest_deselected(items=left)
        gone = set(left)
        items[:] = [item for item in items if item not in gone]


def pytest_collection_finish() -> None:
    """Leave all that collection made out of garbage collection, which begins again."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the counts of a worker to the process that prints them."""
    output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["examples"], output["findings"] = dict(EXAMPLES), FINDINGS


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    EXAMPLES.update(output.get("examples", {}))
    FINDINGS.extend(output.get("findings", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for law, examples in sorted(EXAMPLES.items()):
        terminalreporter.write_line(f"law: {law}: {examples:,} examples")
    for finding in sorted(FINDINGS):
        terminalreporter.write_line(f"fault: {finding}")
