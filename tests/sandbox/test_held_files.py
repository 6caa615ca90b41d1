"""Limits on memory and disk that no folder and no resident memory shows: memfds, tmpfs, and files
removed while they are open.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from plait.sandbox import Limits, control_groups
from plait.sandbox.held_files import held_files, memory_device, memory_devices, shared_memory_beside
from plait.sandbox.limits import ProcessFamily
from tests.sandbox.rooms import on_namespaced, room

with_and_without_namespaces = pytest.mark.parametrize("rung", ["overlay", "landlock"])
BOUNDS = Limits(memory_mb=96, disk_mb=128, time_s=20)

START = (
    "import mmap, os, time\nfull = b'x' * (1 << 20)\nmore = bytearray(full * {anonymous})\nkept ="
    " []\n"
)
MEMORY = {
    "one": "f = os.memfd_create('x')\nfor _ in range(100): os.write(f, full)\n",
    "many": "for _ in range(100): kept.append(os.memfd_create('x')); os.write(kept[-1], full)\n",
    "mapped": (
        "f = os.memfd_create('x')\nfor _ in range(100): os.write(f, full)\nkept = mmap.mmap(f,"
        " 4096); os.close(f)\n"
    ),
    "of a child": (
        "f = os.memfd_create('x')\nif os.fork():\n    os.close(f); time.sleep(60)\nfor _ in"
        " range(100): os.write(f, full)\n"
    ),
}
SHM = {
    "linked": "f = open('/dev/shm/x', 'wb')\n",
    "removed": "f = open('/dev/shm/x', 'wb'); os.unlink('/dev/shm/x')\n",
    "closed": (
        "f = open('/dev/shm/x', 'wb'); f.write(full * 60); f.close(); f = open('/dev/null', 'wb')\n"
    ),
}
DISK = {
    "removed": (
        "for n in range(20): f = open(str(n), 'wb'); os.unlink(str(n)); f.write(full * 10);"
        " f.flush(); kept.append(f)\n"
    ),
    "nameless": (
        "for n in range(20): f = os.open('.', os.O_TMPFILE | os.O_RDWR); os.write(f, full * 10);"
        " kept.append(f)\n"
    ),
    "mapped": (
        "for n in range(20):\n    f = open(str(n), 'w+b'); os.unlink(str(n)); f.write(full * 10);"
        " f.flush()\n    kept.append(mmap.mmap(f.fileno(), 10 << 20)); f.close()\n"
    ),
    "in the home": (
        "os.chdir(os.environ['HOME'])\nfor n in range(20): f = open(str(n), 'wb');"
        " os.unlink(str(n)); f.write(full * 10); f.flush(); kept.append(f)\n"
    ),
}


def ended(tmp_path: Path, rung: str, code: str, anonymous: int = 0) -> str:
    with room(tmp_path, rung, limits=BOUNDS) as here:
        ran = here.box.exec(
            ["python3", "-S", "-c", START.format(anonymous=anonymous) + code + "time.sleep(60)"]
        )
        return ran.killed or ran.output.view()


@pytest.fixture
def groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(control_groups, "group_homes", tuple)


@with_and_without_namespaces
@pytest.mark.parametrize("groups", [True, False], ids=["groups", "watched"], indirect=True)
@pytest.mark.parametrize("code", MEMORY.values(), ids=MEMORY)
def test_memory_in_the_shape_of_a_file_is_counted(
    tmp_path: Path, rung: str, groups: None, code: str
) -> None:
    assert ended(tmp_path, rung, code) == "memory"


@pytest.mark.parametrize("rung", ["overlay"])
@pytest.mark.parametrize("groups", [True, False], ids=["groups", "watched"], indirect=True)
@pytest.mark.parametrize("code", SHM.values(), ids=SHM)
def test_a_file_in_memory_counts_with_the_rest(
    tmp_path: Path, rung: str, groups: None, code: str
) -> None:
    """Neither the file nor the process alone is beyond the limit."""
    assert ended(tmp_path, rung, code + "f.write(full * 60); f.flush()\n", anonymous=50) == "memory"


@with_and_without_namespaces
@pytest.mark.parametrize("groups", [True, False], ids=["groups", "watched"], indirect=True)
@pytest.mark.parametrize("code", DISK.values(), ids=DISK)
def test_a_file_that_was_removed_while_open_is_counted(
    tmp_path: Path, rung: str, groups: None, code: str
) -> None:
    assert ended(tmp_path, rung, code) == "disk"


@on_namespaced
def test_shared_memory_by_key_is_refused_where_it_could_not_be_counted(
    tmp_path: Path, rung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_groups, "group_homes", tuple)
    code = "import ctypes; print(ctypes.CDLL(None).shmget(0, 4096, 0o1600))"
    with room(tmp_path, rung) as here:
        assert here.python(code) == "-1"


def test_what_is_within_the_limits_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that is mapped and held as a file at once is counted once, whatever the number of
    processes.
    """
    monkeypatch.setattr(control_groups, "group_homes", tuple)
    code = (
        "f = os.memfd_create('x'); os.truncate(f, 60 << 20); m = mmap.mmap(f, 60 << 20)\nm[:] ="
        " bytes(60 << 20)\n"
    )
    code += (
        "children = [os.fork() for _ in range(2)]\nsum(m[:1 << 20]); time.sleep(0.4); os._exit(0)\n"
    )
    with room(tmp_path, "host", limits=BOUNDS) as here:
        ran = here.box.exec(["python3", "-S", "-c", START.format(anonymous=0) + code])
        assert (ran.killed, ran.exit_code) == ("", 0), ran.output.view()


def test_folders_that_lie_in_memory_count_as_memory(tmp_path: Path) -> None:
    folder = Path("/dev/shm") / f"plait-{os.getpid()}"
    folder.mkdir()
    try:
        assert folder.stat().st_dev in memory_devices()
        (folder / "file").write_bytes(bytes(3 << 20))
        for most, said in ((2, "memory"), (1_000_000, "")):
            family = ProcessFamily(Limits(memory_mb=most), [str(folder), str(tmp_path)])
            family.join(os.getpid())
            assert family.exceeded_limit() == said
    finally:
        (folder / "file").unlink()
        folder.rmdir()


def test_what_a_process_holds_is_found_once(tmp_path: Path) -> None:
    handle = os.memfd_create("x")
    again = os.dup(handle)
    os.write(handle, bytes(1 << 20))
    key = memory_device(), os.fstat(handle).st_ino
    file = (tmp_path / "removed").open("wb")
    (tmp_path / "removed").unlink()
    file.write(bytes(1 << 20))
    file.flush()
    try:
        found = held_files([os.getpid(), os.getpid()], memory_devices())
        assert found[key].size == 1 << 20 and not found[key].linked
        info = os.fstat(file.fileno())
        assert found[info.st_dev, info.st_ino].size >= 1 << 20
        with mmap.mmap(handle, 1 << 20) as mapped:
            assert mapped[0] == 0 and sum(mapped[::4096]) == 0
            beside, without = (
                shared_memory_beside([os.getpid()], known, {key[0]}) for known in ((), {key})
            )
            assert beside - without == 1 << 20
    finally:
        file.close()
        os.close(handle)
        os.close(again)
    assert key not in held_files([os.getpid()], memory_devices())


IN_FLIGHT = """
import array, os, socket
sent, pairs = 0, []
try:
    while sent < 1000:
        pairs.append(socket.socketpair())
        files = [os.open(".", os.O_TMPFILE | os.O_RDWR) for _ in range(8)]
        pairs[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
        sent += len(files)
        for file in files: os.close(file)
except OSError:
    pass
print(sent)
"""  # noqa: E501


@with_and_without_namespaces
def test_files_under_way_in_sockets_are_bounded_by_the_kernel(tmp_path: Path, rung: str) -> None:
    """They are the only ones that no limit counts; the documents say how many there can be."""
    with room(tmp_path, rung, limits=Limits(open_files=64, time_s=20)) as here:
        assert 0 < int(here.python(IN_FLIGHT)) <= 64 + 8
