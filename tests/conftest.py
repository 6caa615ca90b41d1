"""For all tests: hypothesis profiles, no network, and a report of what laws and faults were tried
on.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from plait.store.process import STORES
from tests.support import EXAMPLES, FINDINGS, RAN

_slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("default", max_examples=20, deadline=None, suppress_health_check=_slow)
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
# A shell starts background jobs with SIGINT ignored, and programs that tests interrupt inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.fixture(autouse=True)
def closed_stores() -> Iterator[None]:
    """Close what a test left open: a store has half a dozen handles, and a worker runs thousands of
    tests.
    """
    before = set(STORES.by_address)
    yield
    for address in set(STORES.by_address) - before:
        STORES.by_address.pop(address).close()


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Forget what the tools of the test before did."""
    RAN.clear()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to CI what `make test` has no time for: LONG=1, or a torture run, takes it, and so does
    naming one file alone.
    """
    if (
        any(os.environ.get(name) for name in ("LONG", "COVER", "TORTURE"))
        or len({item.path for item in items}) == 1
    ):
        return
    left = [item for item in items if item.get_closest_marker("ci")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("ci")]


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
