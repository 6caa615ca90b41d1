"""Searching: a regular expression over the files of the workspace.

Files are read here, through the sandbox's own access to them, and matched in a child process: an
expression can take for ever, and only a process can be ended in the middle of one. The child has no
environment, gets text by its stdin, and opens nothing.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from types import TracebackType
from typing import IO

import msgspec

from plait.errors import InvalidValue, NotAFile, WorkspaceError
from plait.sandbox import Sandbox
from plait.tool import Result, tool
from plait.tools.files import walk_folder
from plait.tools.paths import path_in
from plait.tools.text import SHOWN_MAX, count_text
from plait.workspace import PIECE

_FILE_MAX = 8 * PIECE  # bytes: a longer file is named, not searched
_TIME_S = 20.0
_SHOWN_LINE = 400  # characters of a line that are shown
_DEPTH = 64

# One request per line of JSON: the text of a file and how many matches are wanted; one answer per
# line: numbers and lines.
_CHILD = """
import json, re, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
def answer(value):
    sys.stdout.write(json.dumps(value) + "\\n")
    sys.stdout.flush()
first = json.loads(sys.stdin.buffer.readline())
try:
    pattern = re.compile(first["pattern"], re.IGNORECASE if first["ignore_case"] else 0)
except (re.error, OverflowError, RecursionError, MemoryError) as error:
    answer({"error": str(error) or type(error).__name__})
    sys.exit()
answer({})
around, width = first["context"], first["width"]
for request in sys.stdin.buffer:
    asked = json.loads(request)
    lines = asked["text"].split("\\n")
    if lines and not lines[-1]:
        lines.pop()
    found, more = [], False
    for number, line in enumerate(lines):
        if pattern.search(line[:-1] if line.endswith("\\r") else line):
            if len(found) == asked["limit"]:
                more = True
                break
            found.append(number)
    shown = sorted({n for at in found \
for n in range(max(at - around, 0), min(at + around + 1, len(lines)))})
    answer({"found": [n + 1 for n in found], \
"lines": [[n + 1, lines[n][:width], len(lines[n])] for n in shown], "more": more})
"""


class _FileMatches(msgspec.Struct, frozen=True):
    """The child's answer on one file, or on the expression."""

    error: str = ""
    found: tuple[int, ...] = ()  # lines that match
    # those and the ones around them: number, text, and how long it is
    lines: tuple[tuple[int, str, int], ...] = ()
    more: bool = False


@tool(effect="pure", timeout_s=120)
def search_files(
    pattern: str,
    sandbox: Sandbox,
    path: str = "",
    glob: str = "",
    ignore_case: bool = False,
    limit: int = 100,
    context: int = 0,
) -> Result:
    """Search the files of the workspace for a regular expression, line by line. You get path:line: text for each line that matches.

    Left out: binary files, files above 8 MB, what links lead to, and folders such as .git and node_modules unless path leads there. It
    ends after 20 s with what it has. To find files by name use list_files.

    Args:
        pattern: a regular expression of Python, as in `def (total|sum)_`
        path: a folder or a file to search, relative to the workspace; leave it out to search everything
        glob: only files like this: *.py by name, or src/**/*.py by path
        ignore_case: whether capital and small letters are the same
        limit: how many matches to show at most
        context: how many lines to show around each
    """  # noqa: E501
    if not pattern or limit < 1 or context < 0:
        raise InvalidValue(
            "search_files",
            "there is nothing to look for, or nothing to show",
            "pass a pattern, limit >= 1 and context >= 0",
        )
    name = path_in(sandbox, path)
    deadline = time.monotonic() + _TIME_S
    with _Matcher(deadline, pattern, ignore_case, min(context, 20)) as matcher:
        report = _SearchReport(min(limit, 1_000), context > 0)
        for where, size in _files_below(sandbox, name):
            if report.ended or time.monotonic() > deadline:
                break
            if glob and not matches_glob(where, glob):
                continue
            if size > _FILE_MAX:
                report.skipped.append(where)
            elif (text := _read_text(sandbox, where)) is not None:
                report.files += 1
                report.add(where, matcher.search(where, text, report.left))
        return report.result(name, late=time.monotonic() > deadline)


class _SearchReport:
    """The matches found so far, as lines to show."""

    def __init__(self, limit: int, grouped: bool) -> None:
        self.left, self.files, self.matches = limit, 0, 0
        self.lines: list[str] = []
        self.skipped: list[str] = []
        self.ended = False
        self._room, self._grouped = SHOWN_MAX, grouped

    def add(self, where: str, answer: _FileMatches) -> None:
        previous, hits = 0, set(answer.found)
        for number, text, length in answer.lines:
            if self._grouped and self.lines and number != previous + 1:
                self.lines.append("--")
            previous = number
            rest = f" [… {length - len(text):,} more characters]" if length > len(text) else ""
            shown = f"{where}:{number}{':' if number in hits else '-'} {text}{rest}"
            self._room -= len(shown) + 1
            if self._room < 0:
                self.ended = True
                return
            self.lines.append(shown)
            self.matches += number in hits
        self.left -= len(answer.found)
        self.ended = answer.more or self.left <= 0

    def result(self, name: str, *, late: bool) -> Result:
        matches, files = (
            count_text(self.matches, "match", "matches"),
            count_text(self.files, "file"),
        )
        notes = [f"{matches} in {files} searched"]
        if late:
            notes.append(f"ended after {_TIME_S:g} s: name a folder or a glob")
        elif self.ended:
            notes.append(
                "there may be more: search for something narrower, or raise limit (up to 1,000)"
            )
        if self.skipped:
            notes.append(f"too long to search: {', '.join(self.skipped[:10])}")
        all_ = not (late or self.ended)
        delta = {
            "path": name,
            "files": self.files,
            "matches": self.matches,
            "all": all_,
            "skipped": list(self.skipped[:100]),
        }
        return Result(["\n".join([*self.lines, f"[{'; '.join(notes)}]"])], delta=delta)


def _files_below(sandbox: Sandbox, name: str) -> Iterator[tuple[str, int]]:
    """Yield the files below a path with their sizes, or the file at the path itself."""
    if name and (entry := sandbox.files.entry(name)).kind != "folder":
        if entry.kind != "file":
            raise NotAFile(name, f"a {entry.kind}")
        yield name, entry.size
        return
    for where, entry in walk_folder(sandbox, name, _DEPTH):
        if entry.kind == "file":
            yield where, entry.size


def _read_text(sandbox: Sandbox, where: str) -> str | None:
    """Return the text of a file; None: it is none, or is gone.

    Odd bytes are replaced, so that a file that is almost text is searched, too.
    """
    try:
        content = sandbox.files.read(where, size=_FILE_MAX)
    except WorkspaceError:
        return None
    return None if b"\0" in content[:PIECE] else content.decode("utf-8", "replace")


class _Matcher:
    """A child that matches, until a deadline."""

    def __init__(self, deadline: float, pattern: str, ignore_case: bool, context: int) -> None:
        self._pattern, self._deadline = pattern, deadline
        self._asked = {
            "pattern": pattern,
            "ignore_case": ignore_case,
            "context": context,
            "width": _SHOWN_LINE,
        }

    def __enter__(self) -> _Matcher:
        command = [sys.executable, "-I", "-S", "-c", _CHILD]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
        )
        self._timer = threading.Timer(max(self._deadline - time.monotonic(), 0.0), self._child.kill)
        self._timer.daemon = True
        self._timer.start()
        try:
            if error := self._exchange(self._asked, "").error:
                raise InvalidValue(
                    "pattern",
                    f"{self._pattern[:100]!r} is no regular expression: {error}",
                    "correct it",
                )
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        self._child.kill()
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                _close_stream(stream)
        self._child.wait()

    def search(self, where: str, text: str, limit: int) -> _FileMatches:
        return self._exchange({"text": text, "limit": limit}, where)

    def _exchange(self, request: object, where: str) -> _FileMatches:
        assert self._child.stdin is not None and self._child.stdout is not None
        answer = b""
        try:
            self._child.stdin.write(msgspec.json.encode(request) + b"\n")
            self._child.stdin.flush()
            answer = self._child.stdout.readline()
        except OSError:
            pass  # it was ended
        if not answer.endswith(b"\n"):
            why = (
                f"it took more than {_TIME_S:g} s"
                if time.monotonic() >= self._deadline
                else "it took too much memory"
            )
            told = f"{why} in {where}" if where else why
            raise InvalidValue(
                "pattern",
                f"{self._pattern[:100]!r}: {told}",
                "write one without repetitions inside repetitions, or a glob",
            )
        return msgspec.json.decode(answer, type=_FileMatches)


def _close_stream(stream: IO[bytes]) -> None:
    try:
        stream.close()
    except OSError:
        pass  # the rest of the output has no reader any more


# ── globs ────────────────────────────────────────────────────────────────────────────────────


def matches_glob(path: str, glob: str) -> bool:
    """Return True if the glob fits a path: its name, or, if the glob has a slash, the whole path,
    with ** for any number of folders.
    """
    if "/" not in glob:
        return fnmatchcase(path.rpartition("/")[2], glob)
    parts, wanted = path.split("/"), [each for each in glob.split("/") if each]

    @cache
    def fits(at: int, of: int) -> bool:
        if of == len(wanted):
            return at == len(parts)
        if wanted[of] == "**":
            return fits(at, of + 1) or (at < len(parts) and fits(at + 1, of))
        return at < len(parts) and fnmatchcase(parts[at], wanted[of]) and fits(at + 1, of + 1)

    return fits(0, 0)
