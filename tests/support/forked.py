"""Python programs that are forked from a server instead of started.

A new interpreter needs longer for its imports than most programs of tests run. The server has
imported them, and has no thread and no open store. Each program is a process of its own, with its
own streams, environment, signals and end. A test that is about the start of an interpreter (its
imports, its hash seed, its environment at the start) uses `subprocess`.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import plait
from tests.support.processes import ROOT, child_environment, module_command
from tests.support.redirect import install_redirection

_REQUEST_MAX = 1 << 20  # bytes
_IMPORTED = ("plait.runtime.host", "plait.testing", "rich.console", "rich.table")


class ForkedProgram(subprocess.Popen[Any]):
    """`subprocess.Popen` for `[sys.executable, "-c" or "-m" or FILE, …]`: the server forks it.

    Two steps of Popen are replaced. Should another Python have other steps, the command is started
    as it stands, which only takes longer.
    """

    def _execute_child(self, args: list[str], *how: Any) -> None:
        cwd, env = how[4:6]
        read_in, write_in, read_out, write_out, read_err, write_err = how[9:15]
        new_session = how[20]
        assert args[0] == sys.executable, args
        streams = [
            number if stream == -1 else stream
            for number, stream in enumerate((read_in, write_out, write_err))
        ]
        self._end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environ = dict(os.environ if env is None else env)
        request = [args[1:], str(cwd or os.getcwd()), environ, new_session]
        with theirs:
            server = _server(os.getpid())
            socket.send_fds(server, [json.dumps(request).encode()], [*streams, theirs.fileno()])
        self.pid = int(self._end.recv(32))
        self._child_created = True
        self._close_pipe_fds(read_in, write_in, read_out, write_out, read_err, write_err)  # pyright: ignore

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._has_ended(0):
            self._wait(None)
        return self.returncode

    def _has_ended(self, timeout: float | None) -> bool:
        # not select.select, which knows the first 1,024 files of a process only
        ends = select.poll()
        ends.register(self._end, select.POLLIN)
        return bool(ends.poll(None if timeout is None else timeout * 1000))

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            if not self._has_ended(timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._end.recv(32))
            self._end.close()
        return self.returncode


def run_forked(
    command: list[str],
    *,
    input: str | None = None,
    stdout: IO[Any] | int = subprocess.PIPE,
    stderr: IO[Any] | int = subprocess.PIPE,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = 60,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, as `subprocess.run` does."""
    stdin = None if input is None else subprocess.PIPE
    with ForkedProgram(
        command, stdin=stdin, stdout=stdout, stderr=stderr, text=True, env=env, cwd=cwd
    ) as program:
        try:
            out, err = program.communicate(input, timeout)
        except BaseException:
            program.kill()
            raise
    return subprocess.CompletedProcess(command, program.returncode, out, err)


def run_module(
    module: str, *arguments: str, timeout: float | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a module of the tests as a program, to its end."""
    command, env = module_command(module, *arguments), child_environment(**environment)
    return run_forked(command, timeout=timeout, env=env)


def import_in_server(*modules: str) -> None:
    """Have the server import what the programs of a test need besides Plait, so that they need not.

    One that is missing is left out.
    """
    _server(os.getpid()).send(json.dumps({"import": modules}).encode())


@cache
def _server(process: int) -> socket.socket:
    """Return the line to the server of this process, which ends when the line does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"from {__name__} import serve_programs; serve_programs()",
                str(theirs.fileno()),
            ],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
        ).returncode = 0  # nobody waits for it
    return ours


# ── the server ───────────────────────────────────────────────────────────────────────────────


def _serve(line: socket.socket) -> list[Any] | None:
    """Fork a process for each request. Return the request in that process, and None in the server
    when the line ends.
    """
    ends: dict[int, socket.socket] = {}
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, _wake_up)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([line, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _report_ends(ends)
        if line not in ready:
            continue
        data, handles, _, _ = socket.recv_fds(line, _REQUEST_MAX, 4)
        if not data:
            return None
        if not handles:
            _import_all(json.loads(data)["import"])
            continue
        *streams, end = handles
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            for each in (line, woken, wake, *ends.values()):
                each.close()
            for handle in handles:
                os.close(handle)
            return json.loads(data)
        for stream in streams:
            os.close(stream)
        ends[pid] = socket.socket(fileno=end)
        ends[pid].send(str(pid).encode())


def _import_all(modules: Sequence[str]) -> None:
    """Import modules, for all programs from now on."""
    for name in modules:
        with suppress(ImportError):
            import_module(name)
    gc.collect()
    gc.freeze()  # a child that collects garbage copies every page


def _wake_up(*_: object) -> None:
    """Do nothing: the handle that the signal writes to wakes the server."""


def _report_ends(ends: dict[int, socket.socket]) -> None:
    """Tell the tests that wait of programs that have ended."""
    while ends:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with ends.pop(pid) as end, suppress(OSError):  # the test may be over
            end.send(str(os.waitstatus_to_exitcode(status)).encode())


def _run_program(
    command: list[str], folder: str, environ: dict[str, str], new_session: bool
) -> None:
    """Run a program in this process as if it had been started so."""
    if new_session:
        os.setsid()
    old, new = (each.get("PYTHONPATH", "").split(os.pathsep) for each in (os.environ, environ))
    first = {"-c": "", "-m": folder}.get(command[0], os.path.dirname(command[0]))
    sys.path[:] = [first, *filter(None, new), *[each for each in sys.path[1:] if each not in old]]
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    encoding, _, errors = environ.get("PYTHONIOENCODING", "utf-8").partition(":")
    sys.stdin = open(0, encoding=encoding, errors=errors or "strict", closefd=False)
    sys.stdout = open(1, "w", encoding=encoding, errors=errors or "strict", closefd=False)
    sys.stderr = open(
        2, "w", buffering=1, encoding=encoding, errors="backslashreplace", closefd=False
    )
    install_redirection()
    sys.argv = [command[0], *command[2:]] if command[0] in ("-c", "-m") else command
    code = 0
    try:
        if command[0] == "-m":
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        elif command[0] == "-c":
            module = sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(command[1], "<string>", "exec", dont_inherit=True), vars(module))
        else:
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    _end_quickly(code)


def _end_quickly(code: int) -> None:
    """End this process as an interpreter does, but leave its memory to the system: to take all
    modules apart takes longer than most programs.
    """
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # the interpreter has its own way with that
    for module, step in ((threading, "_shutdown"), (atexit, "_run_exitfuncs")):
        getattr(module, step)()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve_programs() -> None:
    """Serve the line whose handle is the first argument; in a forked process, run the program."""
    for name in plait.__all__:
        getattr(plait, name)
    commands = (ROOT / "src" / "plait" / "cli").glob("[a-z]*.py")
    _import_all([*_IMPORTED, *[f"plait.cli.{path.stem}" for path in commands]])
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        _run_program(*request)
