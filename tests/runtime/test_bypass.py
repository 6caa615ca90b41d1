"""Acts around the session are noticed, and no others."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from plait.errors import BypassRefused, InvalidValue
from plait.event.kinds import Bypassed
from plait.runtime import bypass
from plait.runtime.bypass import BypassPolicy, owned, unwatch, watch
from plait.runtime.process import THIS_PROCESS
from tests.support import python


class FakeRun:
    def __init__(self) -> None:
        self.bodies: list[Bypassed] = []

    def note_bypass(self, body: Bypassed) -> None:
        self.bodies.append(body)

    @property
    def seen(self) -> list[tuple[str, str]]:
        return [(body.what, _detail(body)["target"]) for body in self.bodies]


def _detail(body: Bypassed) -> dict[str, Any]:
    assert isinstance(body.detail, dict)
    return body.detail


RUNNING: ContextVar[FakeRun | None] = ContextVar("running", default=None)


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FakeRun]]:
    """Begin a run; with `inside`, what this test does is its code."""
    begun: list[FakeRun] = []
    monkeypatch.setattr(THIS_PROCESS, "find_running", RUNNING.get)
    before = RUNNING.set(None)

    def make(policy: BypassPolicy = "record", *, inside: bool = True) -> FakeRun:
        run = FakeRun()
        watch(run, policy)
        begun.append(run)
        if inside:
            RUNNING.set(run)
        return run

    yield make
    for run in begun:
        unwatch(run)
    RUNNING.reset(before)


def connect(port: int) -> None:
    with socket.socket() as client:
        client.settimeout(5)
        client.connect(("127.0.0.1", port))


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


# ── what is seen ─────────────────────────────────────────────────────────────────────────────


def test_processes_are_seen(begin: Callable[..., FakeRun]) -> None:
    run = begin()
    subprocess.run(["true", "one"], check=True)
    subprocess.run([shutil.which("true") or "true", "spawned"], check=True, close_fds=False)
    os.system("true two")  # pyright: ignore[reportDeprecated]
    pid = os.posix_spawn(shutil.which("true") or "", ["true", "three"], {})
    os.waitpid(pid, 0)
    targets = [target for what, target in run.seen if what == "process"]
    assert [target.rpartition("/")[2] for target in targets] == [
        "true one",
        "true spawned",
        "true two",
        "true three",
    ]
    assert run.bodies[0] == Bypassed(
        "process", {"how": "subprocess.Popen", "target": "true one", "policy": "record"}
    )


def test_connections_are_seen(begin: Callable[..., FakeRun], port: int, tmp_path: Path) -> None:
    run = begin()
    connect(port)
    connect(port)
    assert run.seen == [("socket", f"127.0.0.1:{port}")]
    with socket.socket(socket.AF_UNIX) as unix, pytest.raises(OSError):
        unix.connect(str(tmp_path / "nobody"))
    assert run.seen[1:] == [("socket", str(tmp_path / "nobody"))]


def test_writes_are_seen_and_reads_are_not(begin: Callable[..., FakeRun], tmp_path: Path) -> None:
    (tmp_path / "old").write_text("x")
    run = begin()
    (tmp_path / "old").read_text()
    assert run.seen == []
    (tmp_path / "new").write_text("x")
    (tmp_path / "new").write_bytes(b"y")
    with open(tmp_path / "old", "a"):
        pass
    os.close(os.open(tmp_path / "low", os.O_WRONLY | os.O_CREAT))
    os.rename(tmp_path / "new", tmp_path / "newer")
    os.replace(tmp_path / "newer", tmp_path / "newest")
    (tmp_path / "newest").unlink()
    (tmp_path / "folder").mkdir()
    os.symlink("old", tmp_path / "link")
    names = ["new", "old", "low", "newer", "newest", "folder", "link"]
    assert run.seen == [("file", str(tmp_path / name)) for name in names]


def test_a_removed_tree_is_one_act(begin: Callable[..., FakeRun], tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / "tree" / "deep").mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / "deep" / str(number)).write_text("x")
    run = begin()
    shutil.rmtree(tmp_path / "tree")
    assert run.seen == [("file", str(tmp_path / "tree"))]


def test_what_is_spared(
    begin: Callable[..., FakeRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begin()
    (tmp_path / ".plait").mkdir(exist_ok=True)
    (tmp_path / ".plait" / "lock").write_text("x")
    bypass.spare_folder(str(tmp_path / "elsewhere"))
    with owned():
        (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "store").write_text("x")
    with open(os.devnull, "w") as null, os.fdopen(os.dup(null.fileno()), "w") as same:
        same.write("x")
    (tmp_path / "elsewhere" / "fresh_module.py").write_text("x = 1")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "elsewhere"), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    __import__("fresh_module")
    print("to standard output")
    assert run.seen == []


def test_what_an_effect_owns_is_not_a_bypass(
    begin: Callable[..., FakeRun], tmp_path: Path, port: int
) -> None:
    run = begin()
    with owned("tool"):
        (tmp_path / "made by a tool").write_text("x")
        connect(port)
        # a tool's own thread knows no context
        worker = threading.Thread(target=lambda: connect(port))
        worker.start()
        worker.join()
    assert run.seen == []
    connect(port)
    assert len(run.seen) == 1


def test_plaits_own_work_is_not_a_bypass(begin: Callable[..., FakeRun], tmp_path: Path) -> None:
    run = begin()
    code = compile("def touch(path): open(path, 'w').close()", "plait_stand_in.py", "exec")
    ours: dict[str, Any] = {"__name__": "plait.store.sqlite"}
    theirs: dict[str, Any] = {"__name__": "plaited"}
    exec(code, ours)
    exec(code, theirs)
    ours["touch"](str(tmp_path / "ours"))
    theirs["touch"](str(tmp_path / "theirs"))
    assert run.seen == [("file", str(tmp_path / "theirs"))]


# ── whose code it is ─────────────────────────────────────────────────────────────────────────


def test_outside_of_runs_nobody_looks(begin: Callable[..., FakeRun], tmp_path: Path) -> None:
    run = begin(inside=False)
    (tmp_path / "x").write_text("x")  # this thread was there before the run: it is the host program
    unwatch(run)
    RUNNING.set(run)
    (tmp_path / "y").write_text("x")
    assert run.seen == []


def test_threads_of_the_program_belong_to_the_only_run(
    begin: Callable[..., FakeRun], tmp_path: Path
) -> None:
    run = begin()

    def work(name: str) -> None:
        worker = threading.Thread(target=lambda: (tmp_path / name).write_text("x"))
        worker.start()
        worker.join()

    work("one")
    assert run.seen == [("file", str(tmp_path / "one"))]
    other = begin(inside=False)
    work("two")  # whose?
    assert len(run.seen) == 1 and other.seen == []


def test_a_forked_child_is_another_process(begin: Callable[..., FakeRun], tmp_path: Path) -> None:
    run = begin("refuse")
    script = (
        "import os, sys\nfrom plait.runtime import bypass\n"
        "class Run:\n    def note_bypass(self, body): print('noticed', body.what, flush=True)\n"
        "run = Run(); bypass.bind(lambda: run); bypass.watch(run, 'refuse')\n"
        "if os.fork() == 0:\n    open(sys.argv[1], 'w').close(); os._exit(0)\n"
        "os.wait()\n"
        "try:\n    os.system('true')\nexcept Exception as error: print(type(error).__name__)\n"
    )
    unwatch(run)
    done = python(script, tmp_path / "child", check=False)
    assert (done.stdout, done.stderr) == ("noticed process\nBypassRefused\n", "")
    assert (tmp_path / "child").exists()


# ── what is done about it ────────────────────────────────────────────────────────────────────


def test_refused_acts_do_not_happen(
    begin: Callable[..., FakeRun], tmp_path: Path, port: int
) -> None:
    run = begin("refuse")
    for _ in range(2):  # noted once, refused always
        with pytest.raises(BypassRefused, match="Put it into a tool|put it into a tool") as refused:
            (tmp_path / "x").write_text("x")
        assert (refused.value.what, refused.value.target) == ("file", str(tmp_path / "x"))
        with pytest.raises(BypassRefused):
            connect(port)
        with pytest.raises(BypassRefused):
            subprocess.run(["true"])
    assert not (tmp_path / "x").exists()
    assert [what for what, _ in run.seen] == ["file", "socket", "process"]


def test_warned_of(begin: Callable[..., FakeRun], tmp_path: Path) -> None:
    run = begin("warn")
    with pytest.warns(RuntimeWarning, match="a file that no effect owns: .*/x"):
        (tmp_path / "x").write_text("x")
    assert len(run.seen) == 1 and (tmp_path / "x").exists()


def test_a_warning_that_is_an_error_stops_nothing(
    begin: Callable[..., FakeRun], tmp_path: Path
) -> None:
    begin("warn")
    (tmp_path / "x").write_text("x")  # the test suite makes errors of warnings
    assert (tmp_path / "x").read_text() == "x"


def test_each_is_noted_once_and_not_without_end(
    begin: Callable[..., FakeRun], tmp_path: Path
) -> None:
    run = begin()
    for _ in range(3):
        for number in range(bypass.NOTED_MAX + 20):
            (tmp_path / f"{number}").write_text("x")
    assert len(run.seen) == len(set(run.seen)) == bypass.NOTED_MAX


def test_a_run_that_cannot_take_notes_disturbs_nobody(
    begin: Callable[..., FakeRun], tmp_path: Path
) -> None:
    run = begin()

    def broken(body: Bypassed) -> None:
        raise RuntimeError("no notes today")

    run.note_bypass = broken
    (tmp_path / "x").write_text("x")
    assert (tmp_path / "x").exists()


def test_taking_a_note_does_not_note_itself(begin: Callable[..., FakeRun], tmp_path: Path) -> None:
    run = begin()
    noticed = run.note_bypass

    def writing(body: Bypassed) -> None:
        (tmp_path / "notes").write_text(body.what)
        noticed(body)

    run.note_bypass = writing
    (tmp_path / "x").write_text("x")
    assert run.seen == [("file", str(tmp_path / "x"))]


def test_long_and_odd_targets(begin: Callable[..., FakeRun]) -> None:
    run = begin()
    subprocess.run(["true", "x" * 5000], check=True)
    subprocess.run([b"true", Path("a")], check=True)
    assert [len(target) for _, target in run.seen] == [bypass.TARGET_MAX, len("true a")]
    sys.audit("open", object(), None, "nonsense")
    sys.audit("socket.sendto", None)
    sys.audit("os.rename")


def test_the_policy_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bypass.policy_of(None, {}) == "record"
    assert bypass.policy_of(None, {"PLAIT_BYPASS": "refuse"}) == "refuse"
    assert bypass.policy_of("warn", {"PLAIT_BYPASS": "refuse"}) == "warn"
    with pytest.raises(InvalidValue, match="PLAIT_BYPASS: 'no' is not a policy"):
        bypass.policy_of(None, {"PLAIT_BYPASS": "no"})
    with pytest.raises(InvalidValue, match="bypass: 'no' is not a policy"):
        bypass.policy_of("no", {})


def test_quiet_at_the_end_of_the_program() -> None:
    script = (
        "import atexit\nfrom plait.runtime import bypass\nclass Run:\n"
        "    def note_bypass(self, body): pass\n"
        "    def __del__(self): open('/dev/null', 'w').close()\nrun = Run();"
        " bypass.bind(lambda: run); bypass.watch(run, 'record')\natexit.register(lambda:"
        " open('/dev/null', 'w').close())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
