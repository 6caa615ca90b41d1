"""What several tests share."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from plait.ids import Digest
from plait.store import Store
from plait.workspace.base import Entry
from plait.workspace.tree import encode
from tests.raw import plain_body, plain_header


def tree(store: Store, **files: str) -> Digest:
    """A tree of these files, in the store; a dot in a name is spelled with two underscores."""
    entries: list[Entry] = []
    for name, text in files.items():
        content = text.encode()
        blobs = (store.put_blob(content),) if content else ()
        entries.append(Entry(name.replace("__", "."), "file", 0o644, len(content), blobs))
    return store.put_blob(encode(entries))


EXAMPLES: Counter[str] = Counter()
"""How many examples each law was tried on; printed at the end of the run."""


def count(law: str, store: object) -> None:
    EXAMPLES[f"{law} on {type(store).__name__}"] += 1


FINDINGS: list[str] = []
"""What each part of the faults was tried on and what came of it, with its seed; printed at the end of the run."""


def dose(name: str, short: int, long: int, ci: int | None = None) -> int:
    """How much of something: what the environment asks for by name, else `long` in `make torture`, `ci` in CI, `short` elsewhere."""
    asked = os.environ.get(name)
    assert not asked or asked.isdecimal(), f"{name}={asked} is not a number"
    if asked:
        return int(asked)
    if os.environ.get("TORTURE"):
        return long
    return ci if ci is not None and os.environ.get("LONG") else short


def seed() -> int:
    """Where chance begins: SEED reproduces a run."""
    asked = os.environ.get("SEED")
    assert not asked or asked.isdecimal(), f"SEED={asked} is not a number"
    return int(asked) if asked else random.randrange(10**6)


def report(part: str, counts: str, seed: int | None = None) -> None:
    """A line of the table at the end: `report("kill at random", "1,000 kills, 0 lost", seed)`."""
    FINDINGS.append(f"{part}: {counts}" + (f" (SEED={seed})" if seed is not None else ""))


def needs_strace() -> str:
    """The path of strace, or a skip; where it is required (in CI), its absence is a failure."""
    found = shutil.which("strace")
    if found is None:
        assert not os.environ.get("PLAIT_REQUIRE_STRACE"), "strace is required here but not installed"
        pytest.skip("strace is not installed")
    works = subprocess.run([found, "-o", os.devnull, "true"], capture_output=True)
    if works.returncode:
        assert not os.environ.get("PLAIT_REQUIRE_STRACE"), f"strace does not work here: {works.stderr.decode()}"
        pytest.skip("strace may not trace here")
    return found


def count_calls(act: Callable[[], object]) -> int:
    """Count the function calls, in Python and in C, that an act takes: the same on a busy machine as on a quiet one."""
    calls = 0

    def count_call(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        act()
    finally:
        sys.setprofile(before)
    return calls


def growth(act: Callable[[int], object], small: int, times: int = 2) -> float:
    """How many times the calls of `act(small)` it takes for `act(small * times)`, beside `times`: 1.0 is linear."""
    return count_calls(lambda: act(small * times)) / count_calls(lambda: act(small)) / times


ROOT = Path(__file__).parents[1]


def child_environment(**more: str) -> dict[str, str]:
    """The environment of a child process that imports `tests`, and whatever else this process can import."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]), **more}


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of the tests as a program: start it in a `child_environment`."""
    return [sys.executable, "-m", module, *arguments]


def run_module(module: str, *arguments: str, timeout: float | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a module of the tests as a program, to its end."""
    command, env = module_command(module, *arguments), child_environment(**environment)
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env)


def python(code: str, *arguments: str | Path, prefix: tuple[str, ...] = (), check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a piece of Python in a process of its own."""
    command = [*prefix, sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=90, env=child_environment())


class RawSql:
    """The database file without us in between: what an attacker, or a person with a database browser, has."""

    def __init__(self, path: Path) -> None:
        self._db: Any = apsw.Connection(str(path))
        # What whoever reads our code can do, too.
        self._db.create_scalar_function("plain", plain_header)
        self._db.create_scalar_function("plain_body", plain_body)

    def __call__(self, sql: str, values: Any = ()) -> list[Any]:
        return self._db.execute(sql, values).fetchall()

    def close(self) -> None:
        self._db.close()
