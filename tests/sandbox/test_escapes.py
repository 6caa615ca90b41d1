"""Attacks on a sandbox, on every rung that isolates: what a command must not see, reach, change, or
leave behind.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plait.errors import OutsideWorkspace, SandboxFailed
from tests.sandbox.rooms import SMALL, groups, needs, on_isolated, on_namespaced, processes, room
from tests.support import dose, report, seed, wait_until

CANARY = "canary-7b1f"

LOOK = """
import json, os, sys
found = {}
for path in json.loads(sys.argv[1]):
    try:
        with open(path, "rb") as file:
            found[path] = file.read(2000).decode("latin-1")
    except OSError as error:
        found[path] = type(error).__name__
print(json.dumps(found))
"""


@on_isolated
def test_what_must_not_be_read(tmp_path: Path, rung: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_CANARY", CANARY)
    secret = tmp_path / "secret"
    secret.write_text(CANARY)
    with room(tmp_path, rung) as here:
        (here.folder / ".plait" / "canary").write_text(CANARY)
        (here.folder / "later").write_text(CANARY)  # the folder itself is not what is worked on
        home = Path.home() / ".profile"
        links = {
            "shadow": "/etc/shadow",
            "file": str(secret),
            "store": str(here.folder / ".plait/canary"),
            "up": "../../../../canary",
        }
        for name, target in links.items():
            here.sh(f"ln -s {target} {name}")
        stores = [str(path) for path in (here.folder / ".plait").iterdir() if path.is_file()]
        paths = [
            *(
                "/etc/shadow",
                "/etc/gshadow",
                "/etc/ssh/ssh_host_rsa_key",
                "/etc/machine-id",
                str(secret),
                str(home),
                "/proc/1/environ",
            ),
            *(
                f"/proc/{os.getpid()}/{name}"
                for name in (
                    "environ",
                    "cmdline",
                    "maps",
                    "mem",
                    "root/etc/shadow",
                    f"cwd/{secret}",
                )
            ),
            *(str(here.folder / name) for name in (".plait/canary", ".plait/plait.db", "later")),
            *stores,
            *links,
            *(
                "../state",
                "../index",
                "../../../canary",
                ".plait/canary",
                "/workspace/.plait/canary",
                "/proc/self/root" + str(secret),
            ),
            *(
                "/dev/mem",
                "/dev/kmem",
                "/dev/vda",
                "/dev/sda",
                "/proc/kcore",
                "/proc/sysrq-trigger",
                "/sys/kernel/notes",
                "/run/docker.sock",
            ),
        ]
        found = json.loads(
            here.box.exec(["python3", "-S", "-c", LOOK, json.dumps(paths)]).output.view()
        )
        allowed = {
            "FileNotFoundError",
            "PermissionError",
            "NotADirectoryError",
            "IsADirectoryError",
            "OSError",
        }
        seen = {
            path: text
            for path, text in found.items()
            if text not in allowed and path != "/proc/1/environ"
        }
        assert not seen
        assert CANARY not in str(found)
        assert CANARY not in here.said("env; cat /proc/*/environ 2>/dev/null")


@on_namespaced
def test_the_host_has_no_processes_there(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung) as here:
        pids = {int(name) for name in here.said("ls /proc").split() if name.isdecimal()}
        assert max(pids) < 20 and len(pids) <= 4
        assert here.said("hostname") == "sandbox"
        bound = [
            prefix for prefix in (sys.prefix, sys.base_prefix) if not prefix.startswith("/usr")
        ]  # the interpreter's own place is there
        seen = here.said("find /root /home -mindepth 1 -maxdepth 1 2>/dev/null").split()
        assert [path for path in seen if not any(prefix.startswith(path) for prefix in bound)] == []


@on_isolated
def test_what_must_not_be_written(tmp_path: Path, rung: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text("as it was")
    with room(tmp_path, rung) as here:
        tries = [
            *(
                "/usr/planted",
                "/usr/bin/planted",
                "/etc/planted",
                "/etc/passwd",
                "/planted",
                "/root/planted",
                str(Path.home() / "planted"),
            ),
            *(str(here.folder / ".plait/planted"), "../planted"),
            *(
                "/proc/sys/kernel/core_pattern",
                "/proc/sys/kernel/hostname",
                "/proc/sysrq-trigger",
                "/dev/planted",
                "/var/tmp/planted",
            ),
            *(
                "/proc/sys/vm/drop_caches",
                "/proc/irq/default_smp_affinity",
                "/proc/sys/kernel/modprobe",
                "/proc/sys/fs/file-max",
            ),
        ]
        # Opened, not written: should a sandbox fail here, the machine must not pay for it.
        assert (
            here.said("\n".join(f"(: >>{path}) 2>/dev/null && echo {path}" for path in tries)) == ""
        )
        here.sh(
            f"ln -s {outside} link; ln -s {tmp_path} folder; echo x >link; echo x >folder/planted;"
            " mkdir -p ../../planted"
        )
        # Below /tmp the way to the workspace's second place lies in the sandbox's own scratch: such
        # a write goes there.
        here.sh(f"echo x >{outside}; echo x >{tmp_path}/planted")
        kept = here.folder / "a.txt"
        # the workspace is seen there, too, or nothing is
        here.sh(f"echo x >{kept}; rm -rf {outside} {here.folder}/*")
        assert kept.read_text() == "hello\n"
    assert outside.read_text() == "as it was"
    assert not [
        path for path in tmp_path.rglob("planted") if "scratch" not in path.parts
    ] and not list(here.folder.parent.glob("planted"))
    assert not os.path.exists("/usr/planted") and not os.path.exists("/planted")


# ── the network ──────────────────────────────────────────────────────────────────────────────


@contextmanager
def listening() -> Generator[tuple[int, int, list[str]]]:
    """TCP, UDP and an abstract socket of this test, and who came."""
    came: list[str] = []
    tcp, udp = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
    abstract = socket.socket(socket.AF_UNIX)
    tcp.bind(("127.0.0.1", 0))
    udp.bind(("127.0.0.1", 0))
    abstract.bind(f"\0plait-{os.getpid()}")
    tcp.listen()
    abstract.listen()
    with tcp, udp, abstract:
        for each in (tcp, udp, abstract):
            each.setblocking(False)
        yield tcp.getsockname()[1], udp.getsockname()[1], came
        for name, each in (("tcp", tcp), ("abstract", abstract)):
            try:
                each.accept()[0].close()
                came.append(name)
            except BlockingIOError:
                pass
        try:
            udp.recv(10)
            came.append("udp")
        except BlockingIOError:
            pass


CALL = """
import socket, sys
tcp, udp, abstract = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
def attempt(name, family, kind, where):
    try:
        s = socket.socket(family, kind)
        s.settimeout(2)
        s.connect(where)
        s.send(b"hello")
        print("reached", name)
    except OSError as error:
        print("refused", name, error)
attempt("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", tcp))
attempt("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", udp))
attempt("abstract", socket.AF_UNIX, socket.SOCK_STREAM, "\\0" + abstract)
attempt("metadata", socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80))
attempt("netlink", 16, socket.SOCK_RAW, (0, 0))
attempt("vsock", 40, socket.SOCK_STREAM, (2, 1024))
attempt("packet", 17, socket.SOCK_RAW, ("lo", 0))
"""


@on_isolated
def test_the_network_is_off(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung) as here, listening() as (tcp, udp, came):
        said = here.box.exec(
            ["python3", "-S", "-c", CALL, str(tcp), str(udp), f"plait-{os.getpid()}"]
        ).output.view()
        reached = {line.split()[1] for line in said.splitlines() if line.startswith("reached")}
        # In a namespace of its own there is a loopback, and a datagram to nobody counts as sent.
        assert reached <= ({"udp", "netlink"} if rung != "landlock" else set())
        assert len(said.splitlines()) == 7, said
    assert came == []


@on_isolated
def test_the_network_is_on_when_asked_for(tmp_path: Path, rung: str) -> None:
    """So that the test above can fail."""
    with room(tmp_path, rung, network="on") as here, listening() as (tcp, udp, came):
        said = here.box.exec(
            [
                "python3",
                "-S",
                "-c",
                CALL.replace("169.254.169.254", "127.0.0.1"),
                str(tcp),
                str(udp),
                "none",
            ]
        ).output.view()
        assert "reached tcp" in said and "reached udp" in said
        assert here.box.placement.network == "on"
    assert came == ["tcp", "udp"]


# ── privileges ───────────────────────────────────────────────────────────────────────────────


@on_namespaced
def test_no_capabilities(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung) as here:
        status = dict(
            line.split(":\t", 1)
            for line in here.said("cat /proc/self/status").splitlines()
            if ":\t" in line
        )
        assert {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert status["Uid"].split()[0] == "1000"


CALLS = """
import ctypes, os, sys, fcntl, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    ctypes.set_errno(0)
    done = getattr(libc, name)(*arguments)
    print(name, "done" if done >= 0 else errno.errorcode[ctypes.get_errno()])
print("privs", libc.prctl(39, 0, 0, 0, 0))
call("unshare", 0x10000000)
call("unshare", 0x00020000)
call("mount", b"none", b"/tmp", b"tmpfs", 0, None)
call("umount2", b"/proc", 2)
call("chroot", b"/tmp")
call("setns", 0, 0)
call("setuid", 0 if os.getuid() else 1)
call("ptrace", 16, int(sys.argv[1]), 0, 0)
call("ptrace", 16, 1 if os.getppid() == 0 else os.getppid(), 0, 0) if sys.argv[2] == "landlock" else None
for number in (425, 248, 321, 298, 323, 304, 175, 246):
    ctypes.set_errno(0)
    done = libc.syscall(number, 0, 0, 0, 0, 0)
    print("syscall", number, "done" if done >= 0 else errno.errorcode[ctypes.get_errno()])
try:
    fcntl.ioctl(0, 0x5412, b"x")
    print("TIOCSTI done")
except OSError as error:
    print("TIOCSTI", errno.errorcode[error.errno])
try:
    os.kill(int(sys.argv[1]), 0)
    print("kill done")
except OSError as error:
    print("kill", errno.errorcode[error.errno])
"""  # noqa: E501


@on_isolated
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="names system calls by number")
def test_calls_that_are_refused(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung) as here:
        said = (
            here.box.exec(["python3", "-S", "-c", CALLS, str(os.getpid()), rung])
            .output.view()
            .splitlines()
        )
        assert said[0] == "privs 1"
        assert len(said) >= 18 and not [line for line in said if line.endswith("done")], said
        assert {line.split()[-1] for line in said if line.startswith("syscall")} == {"EPERM"}
        assert "TIOCSTI EPERM" in said and "unshare EPERM" in said


@on_isolated
def test_nested_namespaces_and_setuid_programs(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung) as here:
        assert here.sh("unshare --user --map-root-user true").exit_code != 0
        assert here.sh("bwrap --ro-bind / / true").exit_code != 0
        here.sh("cp /usr/bin/id ./id; chmod u+s ./id")
        uid = here.said("id -u")
        assert here.said("./id -u") == uid
        assert here.sh("su -c true nobody </dev/null || sudo -n true").exit_code != 0


# ── what is left behind ──────────────────────────────────────────────────────────────────────

DAEMON = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
for _ in range(2):
    if os.fork():
        os._exit(0)
    os.setsid()
time.sleep(600)
"""


@on_isolated
def test_nothing_is_left_behind(tmp_path: Path, rung: str) -> None:
    mark = f"left-{os.getpid()}-{rung}"
    with room(tmp_path, rung) as here:
        ran = here.box.exec(
            [
                "sh",
                "-c",
                'python3 -S -c "$0" $1; nohup sleep 600.$1 >/dev/null 2>&1 & echo started',
                DAEMON,
                mark,
            ]
        )
        assert (ran.exit_code, ran.killed, ran.output.view()) == (0, "", "started\n")
        assert processes(mark) == []
    assert groups() == []


PARENT = """
import sys
from pathlib import Path
from plait.runtime.live import Live
from plait.sandbox import Wanted, backend
from plait.store import SqliteStore
from plait.workspace.folder_snapshot import snapshot_folder
folder, rung, mark = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
store = SqliteStore(folder / "store", source=Live())
(folder / "files").mkdir()
box = backend("local").create(Wanted(store, "one", snapshot_folder(store, folder / "files").tree, isolation=rung))
command = f"setsid sh -c 'sleep 600; : in-{mark}' & echo up; sleep 600; : in-{mark}"
box.exec(["sh", "-c", command], on_output=lambda _: print("up", flush=True))
"""  # noqa: E501


@on_isolated
def test_when_plait_is_killed_everything_ends(tmp_path: Path, rung: str) -> None:
    needs(rung, tmp_path)
    mark = f"{os.getpid()}-{rung}"
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), rung, mark], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == b"up\n"
        assert len(processes(f"in-{mark}")) >= 2
        parent.kill()
    wait_until(lambda: not processes(f"in-{mark}"))


@on_isolated
def test_killing_everything_kills_only_oneself(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung) as here:
        ran = here.box.exec(["python3", "-S", "-c", "import os; os.kill(-1, 9)"])
        assert ran.exit_code in (0, 1, 137)  # 1: there was nobody else
        assert here.said("echo alive") == "alive"


@on_isolated
def test_deleting_the_workspace_itself(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung) as here:
        before = here.box.snapshot().tree
        here.box.begin()
        here.sh(f"rm -rf {here.box.workdir} * .[a-z]*")
        assert here.box.snapshot().changed == ("a.txt",)
        here.box.restore(before)
        assert here.said("cat a.txt") == "hello"


@on_isolated
def test_pipes_devices_and_sockets_hang_nobody(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung, limits=SMALL) as here:
        here.box.begin()
        here.sh("mkfifo pipe; ln -s pipe also; ln -s /dev/zero zero; ln -s loop loop")
        assert "pipe" in here.box.snapshot().skipped
        assert here.said("cat a.txt") == "hello"


@on_isolated
def test_words_cannot_become_options(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung) as here:
        for words in (
            {"env": {"A": "x\0--bind\0/\0/host"}},
            {"env": {"A\0--bind\0/\0/host": "x"}},
            {"cwd": "a\0--bind\0/\0/host"},
        ):
            with pytest.raises(SandboxFailed, match="NUL"):
                here.sh("ls /host", **words)
        with pytest.raises(SandboxFailed, match="NUL"):
            here.box.exec(["ls\0--bind"])
        assert here.box.exec(["--bind", "/", "/host"]).exit_code == 127
        assert here.said("echo $A", env={"A": "--bind / /host"}) == "--bind / /host"


# ── paths by the thousand ────────────────────────────────────────────────────────────────────

TRY = """
import json, os, sys
for number, line in enumerate(sys.stdin):
    link, path = json.loads(line)
    try:
        if link is not None:
            try:
                os.unlink("hop")
            except FileNotFoundError:
                pass
            os.symlink(link, "hop")
        with open(path, "rb") as file:
            print("read", number, file.read(100))
    except (OSError, ValueError):
        pass
    try:
        with open(path + "-planted", "ab") as file:
            file.write(b"x")
    except (OSError, ValueError):
        pass
"""


@on_isolated
def test_generated_escapes(tmp_path: Path, rung: str) -> None:
    """Climbing, links, /proc and doubled slashes in all mixtures: the canary is never read, and
    nothing appears beside it.
    """
    number, count = seed(), dose("ESCAPES", 700, 35_000)
    chance = random.Random(number)
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "canary").write_text(CANARY)
    climbs = [
        "..",
        ".",
        "",
        "hop",
        "/proc/self/root",
        "/proc/self/cwd",
        "/proc/1/root",
        "/proc/self/fd/0",
        "/dev/fd",
        "/tmp",
        "/workspace",
    ]
    ends = [str(beside), str(beside)[1:], os.path.relpath(beside, "/"), "beside", "repo/../beside"]

    def path() -> str:
        parts = [chance.choice(climbs) for _ in range(chance.randrange(6))] + [
            ".."
        ] * chance.randrange(12)
        return "/".join([*parts, chance.choice(ends), "canary"])

    lines = [
        json.dumps([chance.choice([None, path(), os.path.dirname(path()), "/" + path()]), path()])
        for _ in range(count)
    ]
    with room(tmp_path, rung) as here:
        ran = here.box.exec(["python3", "-S", "-c", TRY], stdin="\n".join(lines).encode())
        assert ran.exit_code == 0 and ran.killed == ""
        assert CANARY not in ran.output.view()
    assert [each.name for each in beside.iterdir()] == ["canary"]
    report(f"escapes on {rung}", f"{count:,} generated, 0 got out", number)


def test_the_escapes_work_without_a_sandbox(tmp_path: Path) -> None:
    """So that the test above can fail."""
    (tmp_path / "canary").write_text(CANARY)
    with room(tmp_path, "host") as here:
        line = json.dumps([str(tmp_path), "hop/canary"])
        assert (
            CANARY in here.box.exec(["python3", "-S", "-c", TRY], stdin=line.encode()).output.view()
        )
        wait_until(lambda: (tmp_path / "canary-planted").exists())


# ── in place ─────────────────────────────────────────────────────────────────────────────────


@on_namespaced
def test_stores_in_the_folder_are_out_of_reach_in_place(tmp_path: Path, rung: str) -> None:
    files = {"sub/.plait/plait.db": CANARY, "a.txt": "x", ".git/config": "settings"}
    with room(tmp_path, rung, files, in_place=True, heavy=(".git",)) as here:
        (here.folder / ".plait" / "canary").write_text(CANARY)
        assert (
            here.said(
                "cat sub/.plait/* .plait/*; ls -A sub/.plait .plait; mv sub other; cat"
                " other/.plait/*"
            ).count(CANARY)
            == 0
        )
        assert CANARY not in here.said("cat other/.plait/*")  # it was found anew
        for path in (".plait/canary", "other/.plait/plait.db", ".git/hooks/pre-commit"):
            with pytest.raises(OutsideWorkspace):
                here.box.files.write(path, b"planted")
        assert ".plait" not in [
            entry.name for entry in [*here.box.files.list(), *here.box.files.list("other")]
        ]
        assert here.box.files.read(".git/config") == b"settings"
    assert (tmp_path / "repo/.plait/canary").read_text() == CANARY


OTHERS = """
import ctypes, errno, os, resource, sys
libc, other = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
def attempt(name, act):
    try:
        act()
        print(name, "done")
    except OSError as error:
        print(name, errno.errorcode[error.errno])
def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")
attempt("prlimit", lambda: resource.prlimit(other, resource.RLIMIT_NICE))
attempt("launcher", lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NICE))
attempt("affinity", lambda: os.sched_setaffinity(other, os.sched_getaffinity(0)))
attempt("scheduler", lambda: os.sched_setscheduler(other, os.SCHED_OTHER, os.sched_param(0)))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, other, 0))
attempt("ioprio", lambda: call(251, 1, other, 0))
attempt("xattr", lambda: os.setxattr("a.txt", "user.planted", b"x"))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.sched_setaffinity(0, os.sched_getaffinity(0))
print("own done")
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="names system calls by number")
def test_other_processes_are_not_changed(tmp_path: Path) -> None:
    """Nothing here would do harm if it passed: limits are only asked for, and set
    to what they are.
    """
    with room(tmp_path, "landlock") as here:
        said = (
            here.box.exec(["python3", "-S", "-c", OTHERS, str(os.getpid())])
            .output.view()
            .splitlines()
        )
        assert said[-1] == "own done" and len(said) == 8
        assert {line.split()[1] for line in said[:-1]} == {"EPERM"}, said


# ── where the files came from ────────────────────────────────────────────────────────────────


@on_namespaced
def test_what_was_installed_from_the_folder_is_found_in_the_copy(tmp_path: Path, rung: str) -> None:
    """As `pip install -e .` leaves it: a file in the environment names the folder."""
    packages = ".venv/lib/python3/site-packages"
    files = {"src/mine.py": "VALUE = 1\n", f"{packages}/mine.pth": f"{tmp_path}/repo/src\n"}
    with room(tmp_path, rung, files, heavy=(".venv",)) as here:
        here.sh("echo VALUE = 2 >src/mine.py")
        program = (
            f"import site; site.addsitedir('/workspace/{packages}'); import mine; print(mine.VALUE,"
            " mine.__file__)"
        )
        assert here.python(program) == f"2 {here.folder}/src/mine.py"
        assert here.said(f"echo new >{here.folder}/new; cat new; ls -A {here.folder}").split() == [
            "new",
            ".venv",
            "new",
            "src",
        ]
        assert here.sh(f": >{here.folder}/{packages}/planted").exit_code != 0
        assert (here.folder / "src/mine.py").read_text() == "VALUE = 1\n" and not (
            here.folder / "new"
        ).exists()
        detail = here.box.placement.detail
        assert isinstance(detail, dict) and detail["also at"] == str(here.folder)


@on_namespaced
def test_while_a_process_stays_nothing_is_mounted_where_it_could_put_a_link(
    tmp_path: Path, rung: str
) -> None:
    with room(tmp_path, rung, {"sub/.venv/x": "x", "a.txt": "a"}, heavy=("sub/.venv",)) as here:
        assert here.said("cat sub/.venv/x") == "x"
        stays = here.box.start("stays", ["sleep", "600"])
        assert stays.is_alive
        assert here.sh("cat sub/.venv/x").exit_code != 0
        detail = here.box.placement.detail
        assert (
            isinstance(detail, dict)
            and detail["left out"] == ["sub/.venv"]
            and "also at" not in detail
        )
        stays.end()
        assert here.said("cat sub/.venv/x") == "x"
