"""Doors that are no files: sockets by path and by name, and memory and queues found by a key."""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import socket
import tempfile
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from plait import Session
from plait.errors import ToolFailed
from plait.policy import Policy, Refuse
from plait.sandbox import bubblewrap, rungs
from plait.tools import shell
from plait.workflow import Workflow
from tests.sandbox.rooms import ISOLATED, needs, on_isolated, room

both = pytest.mark.parametrize("network", ["off", "on"])

KNOCK = """
import ctypes, errno, os, socket, sys
path, name = sys.argv[1:3]
def attempt(what, act):
    try:
        act()
        print(what, "done", flush=True)
    except OSError as error:
        print(what, errno.errorcode[error.errno], flush=True)
def call(kind, where):
    caller = socket.socket(socket.AF_UNIX, kind)
    caller.settimeout(5)
    caller.connect(where)
    caller.send(b"x")
def pair(kind, where, connect):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    if connect:
        one.connect(where)
    one.sendto(b"x", where) if not connect else one.send(b"x")
attempt("stream", lambda: call(socket.SOCK_STREAM, path + "/stream"))
attempt("datagram", lambda: call(socket.SOCK_DGRAM, path + "/datagram"))
attempt("abstract", lambda: call(socket.SOCK_STREAM, "\\0" + name))
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK):
    attempt("pair", lambda: pair(kind, path + "/datagram", False))
    attempt("pair", lambda: pair(kind, path + "/datagram", True))
attempt("pair", lambda: pair(socket.SOCK_STREAM, path + "/stream", True))
attempt("pair", lambda: pair(socket.SOCK_SEQPACKET, path + "/stream", True))
one, other = socket.socketpair()
one.send(b"own")
print("own", other.recv(3).decode())
"""


class Doors(NamedTuple):
    """Sockets of this machine: a folder that holds two, and an abstract one."""

    folder: str
    name: str
    sockets: Mapping[str, socket.socket]

    def knocked(self) -> set[str]:
        """Those that were reached."""
        ready = select.select([*self.sockets.values()], [], [], 0)[0]
        return {name for name, each in self.sockets.items() if each in ready}


@contextmanager
def listening() -> Generator[Doors]:
    folder, name = tempfile.mkdtemp(), f"plait-{os.getpid()}"
    kinds = {
        "stream": socket.SOCK_STREAM,
        "abstract": socket.SOCK_STREAM,
        "datagram": socket.SOCK_DGRAM,
    }
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        made = {
            what: stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            for what, kind in kinds.items()
        }
        for what, each in made.items():
            each.bind(f"\0{name}" if what == "abstract" else f"{folder}/{what}")
            if what != "datagram":
                each.listen(50)
        os.chmod(folder, 0o777)
        yield Doors(folder, name, made)


@on_isolated
@both
def test_no_socket_of_the_host_is_reached(tmp_path: Path, rung: str, network: str) -> None:
    with room(tmp_path, rung, network=network) as here, listening() as doors:
        ran = here.box.exec(["python3", "-S", "-c", KNOCK, doors.folder, doors.name])
        lines = ran.output.view().splitlines()
        assert lines[-1] == "own own" and len(lines) == 12, ran.output.view()
        assert not [line for line in lines if line.endswith("done")]
        assert doors.knocked() == set()


def test_sockets_are_reached_without_a_sandbox(tmp_path: Path) -> None:
    """So that the test above can fail."""
    with room(tmp_path, "host") as here, listening() as doors:
        said = here.box.exec(["python3", "-S", "-c", KNOCK, doors.folder, doors.name]).output.view()
        assert said.count("done") == 9
        assert doors.knocked() == {"stream", "abstract", "datagram"}


IPC = """
import ctypes, errno, os, sys
libc, key, create = ctypes.CDLL(None, use_errno=True), int(sys.argv[1]), int(sys.argv[2])
queue = ctypes.CDLL("librt.so.1", use_errno=True)
def attempt(what, act):
    ctypes.set_errno(0)
    print(what, "done" if act() >= 0 else errno.errorcode[ctypes.get_errno()])
attempt("shmget", lambda: libc.shmget(key, 4096, create))
attempt("semget", lambda: libc.semget(key, 1, create))
attempt("msgget", lambda: libc.msgget(key, create))
attempt("mq_open", lambda: queue.mq_open(b"/plait-%d" % key, os.O_RDWR | (os.O_CREAT if create else 0), 0o600, None))
for number in range(64):
    if libc.shmctl(number, 2, bytes(256)) >= 0 or libc.semctl(number, 0, 2, bytes(256)) >= 0 or libc.msgctl(number, 2, bytes(256)) >= 0:
        print("found", number)
"""  # noqa: E501


@on_isolated
@both
def test_memory_and_queues_of_the_host_are_not_found(
    tmp_path: Path, rung: str, network: str
) -> None:
    """Nor does one command leave any for the next."""
    libc, key = ctypes.CDLL(None, use_errno=True), os.getpid() | 0x4000_0000
    segment = libc.shmget(key, 4096, 0o1666)
    messages = libc.msgget(key, 0o1666)
    assert segment >= 0 and messages >= 0
    try:
        with room(tmp_path, rung, network=network) as here:
            said = here.box.exec(["python3", "-S", "-c", IPC, str(key), "0"]).output.view()
            assert "done" not in said and "found" not in said and said.count("\n") == 4
            here.box.exec(["python3", "-S", "-c", IPC, str(key + 1), str(0o1666)])
            left = here.box.exec(["python3", "-S", "-c", IPC, str(key + 1), "0"]).output.view()
            assert "done" not in left and left.count("\n") == 4
    finally:
        libc.shmctl(segment, 0, None)
        libc.msgctl(messages, 0, None)


# ── what is left open is said, and a policy can refuse it ────────────────────────────────────


def test_what_a_rung_leaves_open_is_recorded_before_the_first_call(tmp_path: Path) -> None:
    for rung in (*ISOLATED, "host"):
        needs(rung, tmp_path)
        placed = Session("x", store=tmp_path / rung).to("local", isolation=rung, network="on")
        used = placed.use(shell, command="true")
        for session in (placed, used):
            assert session.files.placement is not None
            left = cast("Mapping[str, Any]", session.files.placement.detail)["open"]
            assert ("everything" if rung == "host" else "network") in left
            assert ("modes and times of files" in left) == (rung == "landlock")


def _scopes_nothing(program: str) -> bool:
    return False


def test_where_landlock_is_missing_abstract_sockets_are_said_to_be_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bubblewrap, "scopes_sockets", _scopes_nothing)
    assert "abstract sockets" in rungs.left_open("overlay", "on")
    assert "abstract sockets" not in rungs.left_open("overlay", "off")


def test_a_policy_refuses_what_is_left_open(tmp_path: Path) -> None:
    class Work(Workflow):
        policy = Policy(
            Refuse(
                "shell", when=lambda call: "network" in call.session.files.placement.detail["open"]
            )
        )

        def forward(self, session: Session) -> Session:
            return session.use(shell, command="true")

    needs("overlay", tmp_path)
    fresh = Session("x", store=tmp_path / "store")
    assert Work()(fresh.fork().to("local")).result is not None
    with pytest.raises(ToolFailed, match="Refused"):
        Work()(fresh.fork().to("local", network="on"))
