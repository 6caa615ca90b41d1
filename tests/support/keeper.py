"""Keeps a program running until the process that owns it ends.

This file is run by its path and imports nothing of the project. It starts the program as another
user if asked to, goes to the background, and waits. When the owner ends, in whatever way, the
keeper stops the program and removes its folder. When the keeper is killed, the kernel stops the
program.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_STOP_S = 10
_POLL_S = 0.1


def _end_with_parent() -> None:
    """Ask the kernel to stop this process when the thread that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def has_ended(process: int) -> bool:
    """True if there is no such process; a killed one that nobody waited for counts as ended."""
    with suppress(OSError):
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        return state in "ZX"
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _wait_for_end(owner: int, program: subprocess.Popen[bytes]) -> None:
    """Return when the owner or the program has ended."""
    watched: list[int] = []
    if hasattr(os, "pidfd_open"):
        with suppress(OSError):
            watched = [os.pidfd_open(owner), os.pidfd_open(program.pid)]
    while program.poll() is None and not has_ended(owner):
        if watched:
            select.select(watched, [], [])
        else:
            time.sleep(_POLL_S)


def _stop(program: subprocess.Popen[bytes]) -> None:
    """Stop the program; kill it if it takes too long."""
    program.send_signal(signal.SIGQUIT)
    try:
        program.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


def _keep(job: dict[str, Any]) -> None:
    """Start the program of a job, and watch over it."""
    owner, folder, identity = int(job["owner"]), Path(job["folder"]), job["identity"]
    with open(job["log"], "ab") as log:
        program = subprocess.Popen(
            job["command"],
            cwd=folder,
            env=job["environment"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_end_with_parent,
            user=identity.get("user"),
            group=identity.get("group"),
            extra_groups=identity.get("extra_groups"),
        )
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _wait_for_end(owner, program)
    if program.poll() is None:
        _stop(program)
    if has_ended(owner):
        shutil.rmtree(folder, ignore_errors=True)
        remove_if_unused(Path(job["run_folder"]))


def remove_if_unused(run_folder: Path) -> None:
    """Remove the folder of the whole run if no other keeper has a folder in there."""
    with suppress(OSError):
        used = [each for each in run_folder.iterdir() if each.is_dir()]
        if all(each.name == "programs" for each in used):
            shutil.rmtree(run_folder)


if __name__ == "__main__":
    if os.fork() == 0:
        os.setsid()
        _keep(json.loads(sys.argv[1]))
