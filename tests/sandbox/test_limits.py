"""Limits: what goes beyond is ended, whole and in time, and says why."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest

from plait.sandbox import Limits, control_groups, disk_usage
from plait.sandbox.control_groups import open_group, remove_stale
from plait.sandbox.limits import ProcessFamily, descendants, narrow_limits
from plait.tools import shell
from tests.sandbox.rooms import SMALL, groups, on_every, on_isolated, on_namespaced, processes, room
from tests.support import wait_until

EAT = "x = []\nwhile True: x.append(bytearray(b'x' * (8 << 20)))"
BOMB = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"


@on_every
def test_a_hang_ends_in_time(tmp_path: Path, rung: str) -> None:
    mark = f"hang-{os.getpid()}-{rung}"
    with room(tmp_path, rung) as here:
        ran = here.sh(
            f"trap '' TERM INT HUP; echo before; setsid sh -c 'sleep 600; : {mark}' & sleep 600; :"
            f" {mark}",
            limits=Limits(time_s=1),
        )
        assert (ran.killed, ran.exit_code, ran.output.view()) == ("time", 137, "before\n")
        assert processes(mark) == []
    assert groups() == []


@on_every
def test_memory(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung, limits=SMALL) as here:
        ran = here.box.exec(["python3", "-S", "-c", EAT])
        assert (ran.killed, ran.exit_code) == ("memory", 137)
    assert groups() == []


@on_isolated
def test_a_fork_bomb(tmp_path: Path, rung: str) -> None:
    mark = f"# bomb-{os.getpid()}-{rung}"
    with room(tmp_path, rung, limits=SMALL) as here:
        ran = here.box.exec(["python3", "-S", "-c", BOMB + mark])
        assert ran.killed == "processes"
        assert processes(mark) == []
    assert groups() == []


# those with a namespace, and those without
@pytest.mark.parametrize("rung", ["overlay", pytest.param("landlock", marks=pytest.mark.ci)])
def test_much_output_is_kept_whole_and_not_in_memory(tmp_path: Path, rung: str) -> None:
    size = 100_000_000
    with room(tmp_path, rung) as here:
        here.sh("true")
        before = _peak()
        ran = here.sh(f"head -c {size} /dev/zero | tr '\\0' 'é'", limits=Limits(output_mb=1000))
        assert (ran.exit_code, ran.output.size) == (0, size)
        assert "characters left out" in ran.output.view(100)
        assert _peak() - before <= 16 << 20


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@on_every
def test_output_beyond_the_limit(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung, limits=SMALL) as here:
        ran = here.sh("yes")
        assert ran.killed == "output"
        assert 8 << 20 <= ran.output.size <= 9 << 20


@on_every
def test_filling_the_disk(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung, limits=SMALL) as here:
        assert here.sh("exec head -c 40000000 /dev/zero >one").killed == "disk"
        here.sh("rm one")
        many = here.sh(
            "for i in $(seq 1000); do head -c 4000000 /dev/zero >many$i; sleep 0.02; done"
        )
        assert many.killed == "disk"
        here.sh("rm many*")
        assert (
            here.sh(
                "while true; do head -c 4000000 /dev/zero >$HOME/$((i = i + 1)); sleep 0.02; done"
            ).killed
            == "disk"
        )


@on_every
def test_open_files(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung, limits=Limits(open_files=64)) as here:
        assert here.said("ulimit -n; ulimit -Hn; ulimit -c") == "64\n64\n0"


@on_namespaced
def test_memory_of_devices_is_counted(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung, limits=Limits(memory_mb=64, time_s=20)) as here:
        ran = here.sh("head -c 200000000 /dev/zero >/dev/shm/much; echo end")
        assert ran.killed == "memory" or "No space left" in ran.output.view()
        assert here.sh(": >/dev/planted").exit_code != 0


def test_limits_only_become_narrower() -> None:
    wide = Limits(time_s=10, memory_mb=None, output_mb=5)
    both = narrow_limits(wide, Limits(time_s=20, memory_mb=7, output_mb=None))
    assert (both.time_s, both.memory_mb, both.output_mb) == (10, 7, 5)
    assert narrow_limits(wide, None) is wide


@on_every
def test_without_control_groups_somebody_watches(
    tmp_path: Path, rung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_groups, "group_homes", tuple)
    with room(tmp_path, rung, limits=Limits(memory_mb=128, processes=40, time_s=10)) as here:
        assert (
            here.box.exec(
                ["python3", "-S", "-c", EAT + " if len(x) < 60 else __import__('time').sleep(9)"]
            ).killed
            == "memory"
        )
        assert here.sh("for i in $(seq 60); do sleep 9 & done; wait").killed == "processes"
        assert here.sh("true").killed == ""


def test_a_family_is_who_descends_from_one() -> None:
    mine = descendants(os.getpid())
    assert mine[0] == os.getpid() and os.getppid() not in mine
    family = ProcessFamily(Limits(processes=100_000, memory_mb=1_000_000))
    family.join(os.getpid())
    assert family.has(os.getpid()) and family.exceeded_limit() == ""


def test_groups_that_dead_processes_left_are_removed(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        dead = ended.pid
    for name in (f"plait-{dead}-1", f"plait-{os.getpid()}-1", "plait-x", "other"):
        (tmp_path / name).mkdir()
    remove_stale([str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"plait-{os.getpid()}-1", "plait-x", "other"]
    )


def test_a_group_is_removed_when_it_is_closed() -> None:
    group = open_group(Limits())
    if group is None:
        pytest.skip("no control group can be made here")
    assert groups()
    group.close()
    wait_until(lambda: not groups())


def test_a_group_of_version_2(tmp_path: Path) -> None:
    """What is written where, as far as a machine without one can tell."""
    parts = control_groups.version_2_folders(
        str(tmp_path / "group"), Limits(memory_mb=1, processes=5)
    )
    assert dict(parts[0].settings) == {
        "memory.oom.group": "1",
        "memory.max": str(1 << 20),
        "memory.swap.max": "0",
        "pids.max": "8",
    }
    mounts, own = f"cgroup2 {tmp_path} cgroup2 rw 0 0\n", "0::/app.slice/me.scope\n"
    (tmp_path / "app.slice/me.scope").mkdir(parents=True)
    (tmp_path / "app.slice/cgroup.subtree_control").write_text("cpu memory pids\n")
    found = list(control_groups.find_homes(mounts, own))
    assert found == [("cgroup2", (f"{tmp_path}/app.slice",))]


# ── what passed once ─────────────────────────────────────────────────────────────────────────


@on_every
def test_a_quick_command_is_not_too_quick_for_the_disk(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung, limits=Limits(disk_mb=16, time_s=20)) as here:
        ran = here.python("for i in range(5): open(f'quick{i}', 'wb').write(bytes(8 << 20))")
        assert (
            here.box.exec(
                ["sh", "-c", "for i in 1 2 3; do head -c 8000000 /dev/zero >q$i; done"]
            ).killed
            == "disk"
        ), ran
        assert here.sh("rm q*").killed == here.sh("ls").killed == ""
        assert here.python("for i in range(9): open(f'hole{i}', 'wb').truncate(8 << 20)") == ""
        assert here.sh("touch hole*; true").killed == "disk"


def test_no_tree_is_too_deep_to_be_counted(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deeper", dir_fd=here)
        below = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    handle = os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here)
    os.truncate(handle, 1 << 30)
    os.close(handle)
    (tmp_path / "beside").write_bytes(bytes(5000))
    os.close(here)
    assert (1 << 30) + 5000 <= disk_usage.changed_bytes([str(tmp_path)], 0) < (1 << 30) + (64 << 20)
    disk = subprocess.run(["rm", "-rf", str(tmp_path / "deeper")], check=True)
    assert disk.returncode == 0


SHARED = (
    "import mmap, time\nm = mmap.mmap(-1, 300 << 20)\nfor at in range(0, len(m), 4096): m[at] ="
    " 1\ntime.sleep(9)"
)
ORPHANS = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    for _ in range(60):
        if os.fork() == 0:
            time.sleep(9)
    time.sleep(9)
time.sleep(9)
"""


@on_every
def test_neither_shared_memory_nor_orphans_escape_whoever_watches(
    tmp_path: Path, rung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_groups, "group_homes", tuple)
    with room(tmp_path, rung, limits=Limits(memory_mb=128, processes=40, time_s=8)) as here:
        assert here.box.exec(["python3", "-S", "-c", SHARED]).killed == "memory"
        assert here.box.exec(["python3", "-S", "-c", ORPHANS]).killed == "processes"


def test_the_limit_that_struck_is_named(tmp_path: Path) -> None:
    with room(tmp_path, "host", limits=Limits(time_s=0.5)) as here:
        result = shell("sleep 60", here.box, timeout_s=60)
        assert "longer than 0.5 s" in str(result.parts[0])
