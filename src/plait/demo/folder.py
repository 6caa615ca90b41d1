"""The folder of the demo: a small repository with an issue and tests, and the program."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from plait.demo import program
from plait.errors import IsolationMissing
from plait.sandbox import rungs

NAME = "plait-demo"
QUESTION = "Checkout goes negative with a large coupon: see ISSUE.md"
NOTE = "In this shop a coupon never pays out money."
BROKEN_LINE = 6  # of cart.py
_FILES = {
    "ISSUE.md": "A coupon larger than the cart gives a negative total: total([3, 4], 10) is -3.\n",
    "cart.py": (
        '"""The cart of a shop."""\n\n\n'
        "def total(prices, coupon=0):\n"
        '    """The amount to pay."""\n'
        f"{program.OLD}\n"
    ),
    "test_cart.py": (
        "import unittest\n\nfrom cart import total\n\n\n"
        "class TotalTest(unittest.TestCase):\n"
        "    def test_sum(self):\n        self.assertEqual(total([3, 4]), 7)\n\n"
        "    def test_coupon(self):\n        self.assertEqual(total([3, 4], 2), 5)\n\n"
        "    def test_large_coupon(self):\n        self.assertEqual(total([3, 4], 10), 0)\n\n\n"
        'if __name__ == "__main__":\n    unittest.main()\n'
    ),
}
_MARK = (program.__doc__ or "").partition("\n")[0]  # the first line of a demo's program
_STORES = (".plait", "tampered")
_ISOLATION = re.compile(r'^ISOLATION = "\w*"$', re.M)  # the line of the program that differs
NAMED_MAX = 5  # files that a refusal names
_FULL = (errno.ENOSPC, errno.EDQUOT)


class DemoRefused(Exception):
    """The demo cannot begin, or cannot go on: a sentence with the next step, and an exit code."""

    def __init__(self, what: str, code: int = 1) -> None:
        super().__init__(what)
        self.code = code


class Isolation(NamedTuple):
    """The isolation that tools of the demo get on this machine."""

    rung: str
    missing: str = ""  # why there is no better one; "": it is one of those taken by default
    fix: str = ""


class DemoFolder(NamedTuple):
    """The folder that the demo makes, and leaves."""

    path: Path

    @property
    def store(self) -> Path:
        return self.path / ".plait"

    @property
    def outside(self) -> Path:
        """The file in which each call of a model or a tool is noted that really ran."""
        return self.path / program.OUTSIDE.name

    @property
    def tracker(self) -> Path:
        """The file that stands for an issue tracker."""
        return self.path / program.TRACKER.name

    @property
    def tampered(self) -> Path:
        """The folder of the copy in which a verdict is changed."""
        return self.path / "tampered"


def demo_folder(where: Path) -> DemoFolder:
    return DemoFolder(where / NAME)


def is_demo(folder: DemoFolder) -> bool:
    """True if a folder was made by the demo, so that `--again` may remove it."""
    if folder.path.is_symlink():
        return False
    try:
        if not any(folder.path.iterdir()):  # interrupted before the first file
            return True
        return _MARK in (folder.path / "demo.py").read_text(encoding="utf-8")[:200]
    except (OSError, UnicodeError):
        return False


def files_of_others(folder: DemoFolder) -> list[str]:
    """Return the files in the folder that are not as a demo makes them: somebody's own work."""
    made = {folder.path / program.SHOP.name / name: text for name, text in _FILES.items()}
    made[folder.path / "demo.py"] = Path(program.__file__).read_text(encoding="utf-8")
    found = list[str]()
    for where, folders, names in os.walk(folder.path):
        here = Path(where)
        if here == folder.path:
            folders[:] = [name for name in folders if name not in _STORES]
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for path in [here / name for name in sorted(names)]:
            is_grown = path in (folder.outside, folder.tracker)
            if not is_grown and (path not in made or not _is_as_made(path, made[path])):
                found.append(str(path.relative_to(folder.path)))
    return found


def _is_as_made(path: Path, text: str) -> bool:
    try:
        there = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return False
    return _ISOLATION.sub("", there) == _ISOLATION.sub("", text)


def remove_folder(folder: DemoFolder) -> None:
    """Remove the folder of an earlier demo; any other folder is refused."""
    if not os.path.lexists(folder.path):
        return
    if not is_demo(folder):
        raise DemoRefused(
            f"{NAME}/ was not made by `plait demo`, so it is not removed. Go to another folder, or"
            " give it another name.",
            2,
        )
    if others := files_of_others(folder):
        more = f" and {len(others) - NAMED_MAX} more" if len(others) > NAMED_MAX else ""
        raise DemoRefused(
            f"{NAME}/ has files that no demo made, or that were changed since:"
            f" {', '.join(others[:NAMED_MAX])}{more}. Nothing was removed.\n"
            f"Keep all of it under another name (mv {NAME} my-shop), or move these files out of it,"
            " then try again.",
            2,
        )
    try:
        shutil.rmtree(folder.path)
    except OSError as error:
        raise DemoRefused(
            f"{NAME}/ cannot be removed: {error.strerror}. Remove it by hand."
        ) from error


def make_folder(folder: DemoFolder, isolation: Isolation) -> None:
    """Make the folder with the repository and the program."""
    rung = "" if not isolation.missing else isolation.rung
    source = Path(program.__file__).read_text(encoding="utf-8")
    source = source.replace('ISOLATION = ""', f'ISOLATION = "{rung}"')
    try:
        folder.path.mkdir()
        (folder.path / "demo.py").write_text(source, encoding="utf-8")
        (folder.path / program.SHOP.name).mkdir()
        for name, text in _FILES.items():
            (folder.path / program.SHOP.name / name).write_text(text, encoding="utf-8")
    except OSError as error:
        shutil.rmtree(folder.path, ignore_errors=True)
        full = error.errno in _FULL
        step = "Free some space" if full else "Go to a folder in which you may write"
        raise DemoRefused(
            f"{NAME}/ cannot be made here: {error.strerror}. {step}, and try again.",
            75 if full else 1,
        ) from error


def find_isolation(where: Path) -> Isolation:
    """Return the best isolation of this machine, also one that is never taken silently."""
    try:
        rung, _ = rungs.choose("", str(where))
        return Isolation(rung)
    except IsolationMissing:
        missing = rungs.find(rungs.DEFAULT[-1], str(where))
    for rung in rungs.RUNGS[len(rungs.DEFAULT) : -1]:
        if rungs.find(rung, str(where)).offered:
            return Isolation(rung, missing.why, missing.fix)
    return Isolation(rungs.RUNGS[-1], missing.why, missing.fix)
