"""The stand-in for a virtual machine of a loopback server: a folder with files that stay, and
processes that really run on them.

Commands run under bubblewrap with a root of their own: /home, /workspace and /tmp are the
machine's, the programs are those of the host. They see the host's processes, since a later command
has to find those of an earlier one; each carries the machine's mark, so that pausing and ending the
machine reach all of them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_FOLDERS = ("home/user", "root", "tmp", "workspace")


class Machine:
    def __init__(self, name: str, source: Path | None = None) -> None:
        self.name, self.paused = name, False
        self.marks: dict[str, str] = {}
        self.template = ""
        self.timeout_s: object = None
        self.network: object = None
        self.root = Path(tempfile.mkdtemp(prefix="plait-machine-"))
        if source is not None:
            shutil.rmtree(self.root)
            shutil.copytree(source, self.root, symlinks=True)
        for folder in _FOLDERS:
            (self.root / folder).mkdir(parents=True, exist_ok=True)

    def path(self, path: str) -> Path:
        """Return the path of a machine's file on the host."""
        found = Path(path)
        if not found.is_absolute() or ".." in found.parts:
            raise FileNotFoundError(path)
        return self.root / found.relative_to("/")

    def start(
        self, command: Sequence[str], env: Mapping[str, str], cwd: str
    ) -> subprocess.Popen[bytes]:
        binds = [
            word
            for folder in ("home", "root", "tmp", "workspace")
            for word in ("--bind", str(self.root / folder), f"/{folder}")
        ]
        system = [word for folder in ("bin", "sbin", "lib", "lib64") for word in _system(folder)]
        return subprocess.Popen(
            [
                "bwrap",
                "--ro-bind",
                "/usr",
                "/usr",
                *system,
                "--ro-bind",
                "/etc",
                "/etc",
                "--dev-bind",
                "/dev",
                "/dev",
            ]
            + ["--bind", "/proc", "/proc", *binds, "--chdir", cwd or "/home/user", "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": "/home/user",
                "LOOPBACK": self.name,
                **env,
            },
        )

    def pause(self) -> None:
        self.paused = True
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.paused = False
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        self._signal(signal.SIGKILL)
        shutil.rmtree(self.root, ignore_errors=True)

    def _signal(self, number: int) -> None:
        mark = f"LOOPBACK={self.name}".encode()
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    if mark in (folder / "environ").read_bytes().split(b"\0"):
                        os.kill(int(folder.name), number)
                except OSError:  # it ended, or is not ours to look at
                    continue


def _system(folder: str) -> list[str]:
    """A folder of programs, as the host has it: itself, or a link into /usr."""
    place = Path("/", folder)
    if place.is_symlink():
        return ["--symlink", os.readlink(place), f"/{folder}"]
    return ["--ro-bind", f"/{folder}", f"/{folder}"] if place.is_dir() else []
