"""Runs of `plait demo` in processes of their own, and what is left of them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from plait import Session
from plait.demo.folder import NAME
from tests.cli.shell import COMMAND
from tests.support import child_environment, run_forked, wait_until

# a machine without landlock, too: the worker reads the rung in its program
WITHOUT_LANDLOCK = (
    "from plait.sandbox import confine; confine.landlock_version = lambda: 0; "
    "from plait.cli import main; main(prog_name='plait')"
)
TIMES = re.compile(r"\d+\.\d s|\b\d+ (ms|µs)\b")
IDS = re.compile(r"\b[0-9a-f]{8}\b")
PROCESS = re.compile(r"kill -9 \d+")


class DemoRun(NamedTuple):
    """A demo that has ended."""

    folder: Path  # in which it ran
    code: int
    screen: str
    errors: str

    @property
    def path(self) -> Path:
        return self.folder / NAME

    @property
    def session(self) -> Session:
        """The session that the demo is about."""
        return Session.open("@", store=self.path / ".plait")

    @property
    def table(self) -> dict[str, tuple[str, str]]:
        """The claims, each with its figure and its command."""
        lines = self.screen.partition("  claim ")[2].splitlines()[1:]
        rows = [re.split(r"\s{2,}", line.strip()) for line in lines[: lines.index("")]]
        return {claim: (figure, command) for claim, figure, command in rows}

    @property
    def same_screen(self) -> str:
        """The screen without what differs from run to run."""
        return neutral(self.screen)


def neutral(screen: str) -> str:
    """Replace ids, numbers of processes and times."""
    return TIMES.sub("0 s", PROCESS.sub("kill -9 1", IDS.sub("cf5a85b7", screen)))


def run_demo(folder: Path, *options: str, code: str = COMMAND[-1], **environ: str) -> DemoRun:
    """Run the demo to its end, without a terminal."""
    command = [*COMMAND[:-1], code, "demo", *options]
    env = {**child_environment(**environ), "NO_COLOR": "1"}
    env.pop("PLAIT_STORE", None)
    done = run_forked(command, cwd=folder, env=env, input="", timeout=120)
    return DemoRun(folder, done.returncode, done.stdout, done.stderr)


def path_without(program: str, folder: Path) -> str:
    """Return a PATH with the programs of this one, but for one."""
    folder.mkdir()
    for where in reversed(os.environ["PATH"].split(os.pathsep)):
        for found in Path(where).glob("*"):
            link = folder / found.name
            link.unlink(missing_ok=True)
            if found.name != program:
                link.symlink_to(found)
    return str(folder)


def check_nothing_left(folder: Path) -> None:
    """A process that was killed takes its sandbox along, which takes a moment."""
    wait_until(lambda: not leftovers(folder), 20, lambda: leftovers(folder))


def leftovers(folder: Path) -> list[str]:
    """Return the processes, mounts and locks that have to do with a folder."""
    wanted, found = str(folder), list[str]()
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            told = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            where = os.readlink(process / "cwd")
        except OSError:
            continue
        if f"{wanted}/{NAME}".encode() in told or where.startswith(wanted):
            found.append(f"process {process.name}: {told[:200]!r}")
    mounts = Path("/proc/mounts").read_text().splitlines()
    found += [line for line in mounts if wanted in line]
    places = {
        f"{(status := path.stat()).st_dev >> 8:02x}:{status.st_dev & 0xFF:02x}:{status.st_ino}"
        for path in folder.rglob("*")
        if path.is_file()
    }
    locks = Path("/proc/locks").read_text().splitlines()
    return found + [line for line in locks if places & set(line.split())]
