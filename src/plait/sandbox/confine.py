"""A launcher: gives up its rights, then becomes the command. It needs no namespaces, only Python.

It is run as a program of its own, by path, so it must import nothing of Plait. It starts the
command as a child, waits for the word to go, and stays behind to end all processes that the command
leaves: as the subreaper it inherits every process that was meant to outlive its parent. When its
own parent goes away, the pipe between them closes, and everything ends as well.

Landlock limits the files that can be reached, and keeps signals and sockets inside; the filter of
system calls keeps the command off the network; capabilities are dropped. This rung cannot stop a
command from looking up whether a file exists, or from changing the modes and times of files that
the user owns.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import struct
import sys

VERSION_MIN = 6  # of landlock: the first that keeps signals inside

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 24, 38, 36
_PR_SET_SECCOMP, _PR_CAP_AMBIENT, _PR_SET_SECUREBITS = 22, 47, 28
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = (
    1 << 0,
    1 << 1,
    1 << 2,
    1 << 3,
    1 << 14,
    1 << 15,
)
_ALL_FILES = (1 << 16) - 1
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_TCP = 3  # bind and connect
_ABSTRACT_SOCKETS = 1
_SCOPES = 3  # abstract sockets and signals
_VERSION_FLAG = 1


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    """Return the version of landlock in this kernel; 0 or less: there is none."""
    return _libc().syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))


def _check(done: int, what: str) -> int:
    if done < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return done


def restrict_files(read: list[str], write: list[str], network: bool) -> None:
    """Restrict this process, and its children, to these files."""
    libc = _libc()
    rules = struct.pack("=QQQ", _ALL_FILES, 0 if network else _TCP, _SCOPES)
    ruleset = _check(
        libc.syscall(_CREATE, rules, ctypes.c_size_t(len(rules)), ctypes.c_uint32(0)), "landlock"
    )
    for paths, access in ((read, _READ), (write, _ALL_FILES)):
        for path in paths:
            _allow(libc, ruleset, path, access)
    _check(libc.syscall(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)), "landlock")
    os.close(ruleset)


def restrict_sockets() -> None:
    """Keep this thread, and its children, from the abstract sockets of other processes.

    Files and mounts are not restricted.
    """
    libc = _libc()
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    rules = struct.pack("=QQQ", 0, 0, _ABSTRACT_SOCKETS)
    ruleset = _check(
        libc.syscall(_CREATE, rules, ctypes.c_size_t(len(rules)), ctypes.c_uint32(0)), "landlock"
    )
    _check(libc.syscall(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)), "landlock")
    os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):
        access &= _OF_A_FILE
    rule = struct.pack("=Qi", access, fd)
    _check(
        libc.syscall(_ADD, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0)),
        f"landlock, {path}",
    )
    os.close(fd)


def restrict_calls(program: bytes) -> None:
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    _check(_libc().prctl(_PR_SET_SECCOMP, 2, ctypes.c_char_p(head), 0, 0), "seccomp")


def drop_privileges() -> None:
    """Drop all capabilities, and the ways to get one."""
    libc = _libc()
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    # being root gives nothing; the call is refused to a process without capabilities
    libc.prctl(_PR_SET_SECUREBITS, 0x2F, 0, 0, 0)
    for capability in range(64):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    libc.prctl(_PR_CAP_AMBIENT, 4, 0, 0, 0)
    _check(libc.capset(struct.pack("=Ii", 0x20080522, 0), bytes(24)), "capset")


# ── the program ──────────────────────────────────────────────────────────────────────────────


def main(settings: dict[str, object]) -> int:
    status, go = int(str(settings["status"])), int(str(settings["go"]))
    os.set_inheritable(status, False)
    os.set_inheritable(go, False)
    _libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ready_read, ready_write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ready_write)
        _become_command(settings, ready_read)
    os.close(ready_read)
    os.write(status, json.dumps({"child-pid": child}).encode() + b"\n")
    code = 137
    if os.read(go, 1):
        os.write(ready_write, b"1")
        os.close(ready_write)
        code = _wait(child, go)
    end_all()
    os.write(status, json.dumps({"exit-code": code}).encode() + b"\n")
    return 0


def _become_command(settings: dict[str, object], ready: int) -> None:
    """Wait for the word to go, then become the command. Never returns."""
    command = [str(word) for word in settings["command"]]  # type: ignore[attr-defined]
    try:
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if not os.read(ready, 1):
            os._exit(137)
        for number in (
            signal.SIGTERM,
            signal.SIGINT,
            signal.SIGHUP,
            signal.SIGPIPE,
            signal.SIGXFSZ,
        ):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.chdir(str(settings["cwd"]))
        if settings["isolated"]:
            drop_privileges()
            restrict_files(
                list(settings["read"]),  # pyright: ignore[reportArgumentType, reportUnknownArgumentType]
                list(settings["write"]),  # pyright: ignore[reportArgumentType, reportUnknownArgumentType]
                bool(settings["network"]),
            )
            restrict_calls(bytes.fromhex(str(settings["filter"])))
        os.environ.clear()
        os.environ.update(settings["env"])  # type: ignore[call-overload]
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"plait: execvp {command[0]}: {error.strerror or error}\n".encode())
    finally:
        os._exit(1)


def _wait(child: int, go: int) -> int:
    """Wait until the command ends, or the parent goes away; return the exit code."""
    pidfd = os.pidfd_open(child)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(go, select.POLLIN)
    ready = [fd for fd, _ in poll.poll()]
    if pidfd not in ready:
        return 137
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def end_all() -> None:
    """Stop all that descend from here, so that none can start another, then end them, until the
    kernel says that there is none.
    """
    while True:
        found = _descendants()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            select.select([], [], [], 0.001)
        except ChildProcessError:
            return


def _descendants() -> list[int]:
    found = [os.getpid()]
    for pid in found:
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as file:
                    found += map(int, file.read().split())
        except OSError:
            continue
    return found[1:]


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[1])) as file:
        read = json.load(file)
    sys.exit(main(read))
