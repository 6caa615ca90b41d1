"""OpenViking's own server keeps the contract of memory, and fails aloud when it is killed.

The server runs in a network namespace that has a loopback and nothing else, with a stub for its
models (openviking_host.py). Where no namespace can be made, it runs on the loopback of the machine,
and the report says so.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from plait import Memory
from plait.errors import IndexFailed
from plait.memory.index import Index
from plait.memory.openviking import OpenVikingIndex
from plait.testing import MemoryContract
from plait.testing.memory.case import new_session, recall, remember
from tests.guests.hosting import programs
from tests.support import report
from tests.support.processes import child_environment, module_command

ISOLATIONS = (("unshare", "--net"), ("unshare", "--map-root-user", "--net"), ())


class OpenViking:
    """A server that runs, and the way to it."""

    def __init__(self, program: Path, folder: Path, prefix: Sequence[str]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        descriptor = self.listener.fileno()
        host = module_command(
            "tests.guests.openviking_host", str(program), str(folder), str(descriptor)
        )
        self._host = subprocess.Popen(
            [*prefix, *host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[descriptor],
            env=child_environment(),
        )

    def tell(self, command: str) -> str:
        """Give the host a command, and return its answer."""
        assert self._host.stdin is not None and self._host.stdout is not None
        self._host.stdin.write(f"{command}\n")
        self._host.stdin.flush()
        return self._host.stdout.readline().strip()

    def close(self) -> None:
        assert self._host.stdin is not None and self._host.stdout is not None
        self._host.stdin.close()
        self._host.wait()
        self._host.stdout.close()
        self.listener.close()


@contextmanager
def running_server(folder: Path) -> Generator[OpenViking]:
    if not os.environ.get("PLAIT_OPENVIKING"):
        pytest.skip("its environment has 313 packages: PLAIT_OPENVIKING=1, or make scoreboard")
    prefix = next(each for each in ISOLATIONS if _is_possible(each))
    server = OpenViking(programs("openviking") / "openviking-server", folder, prefix)
    try:
        assert server.tell("start") == "ready"
        report(
            "openviking", f"isolated by {' '.join(prefix) or 'nothing: no namespace can be made'}"
        )
        yield server
    finally:
        server.close()


def _is_possible(prefix: Sequence[str]) -> bool:
    if not prefix or shutil.which(prefix[0]) is None:
        return not prefix
    return subprocess.run([*prefix, "true"], capture_output=True).returncode == 0


class Contract(MemoryContract):
    """The contract on one server, each test in a space of its own."""

    def __init__(self, server: OpenViking) -> None:
        self._server = server

    def end_in_search(self, index: Index) -> None:
        assert self._server.tell("arm") == "armed"


@pytest.mark.slow
def test_openviking_keeps_the_contract_of_memory(tmp_path: Path) -> None:
    names = sorted(name for name in dir(Contract) if name.startswith("test_"))
    last = "test_an_index_that_fails_leaves_the_memory_and_a_failed_recall"
    names.remove(last)
    with running_server(tmp_path) as server:
        contract = Contract(server)
        for name in [*names, last]:
            index = OpenVikingIndex(server.url, space=name)
            getattr(contract, name)(index)
        _check_a_restart(server)
        _check_an_embedder_that_fails(server)
    report("openviking", f"{len(names) + 1} tests of the contract passed")


def _check_a_restart(server: OpenViking) -> None:
    """A server that was killed in mid-recall is asked again once it is back."""
    memory = Memory(index=OpenVikingIndex(server.url, space="killed"))
    session = new_session()
    assert server.tell("start") == "ready"
    session = remember(memory, session, "The staging database is read-only.")
    assert recall(memory, session, "staging database") == ["The staging database is read-only."]
    server.tell("arm")
    assert recall(memory, session, "staging database") == []
    assert server.tell("start") == "ready"
    assert recall(memory, session, "staging database") == ["The staging database is read-only."]


def _check_an_embedder_that_fails(server: OpenViking) -> None:
    """A text that the server could not embed makes searches fail, until it is put again."""
    index = OpenVikingIndex(server.url, space="refused")
    index.put("a" * 64, "fish UNEMBEDDABLE", "user:ann")
    for _ in range(2):
        with pytest.raises(IndexFailed, match="1 texts are not embedded: aaaaaaaa"):
            index.search("fish", ["user:ann"], 5)
    index.put("a" * 64, "fish", "user:ann")
    assert [id for id, _ in index.search("fish", ["user:ann"], 5)] == ["a" * 64]
