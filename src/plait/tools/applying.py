"""`apply_patch`: a patch put to files, all of it or nothing.

Every hunk of every file is fitted before the first byte is written. Each part of a patch speaks of
the files as they were before it, so that two files can change names; a file that is named twice is
changed twice, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from plait.errors import EditRefused
from plait.event import Json
from plait.sandbox import Sandbox
from plait.tool import Result, tool
from plait.tools.files import add_evidence, file_path
from plait.tools.hunks import apply_hunks
from plait.tools.patch import FilePatch, parse_patch
from plait.tools.paths import entry_or_none
from plait.tools.text import changed_lines, count_text, text_or_none, unified_diff
from plait.workspace import PIECE

_FILE_MAX = 16 * PIECE
_NOTHING = "nothing of the patch was applied"


class _FileText(NamedTuple):
    """The text and mode of a file, before or after the patch."""

    text: str
    mode: int


@tool(effect="workspace", timeout_s=120)
def apply_patch(patch: str, sandbox: Sandbox) -> Result:
    """Apply a patch to files of the workspace: all of it, or nothing if any hunk does not fit; then you are told which, and what is there.

    Write a unified diff as git does (`--- a/path`, `+++ b/path`, `@@ -10,3 +10,4 @@`; several files; new, deleted and renamed ones), or:

    *** Begin Patch
    *** Update File: src/cart.py
    @@ def total(cart):
     a line that stays
    -a line that goes
    +a line that comes
    *** End Patch

    with `*** Add File: path` (each line begins with +), `*** Delete File: path` and, below an update, `*** Move to: path`. Lines that stay
    or go must stand in the file exactly; show three around each change. Line numbers may be off, or left out (`@@` alone).

    Args:
        patch: the whole patch
    """  # noqa: E501
    parts = parse_patch(patch)
    plan = _PatchPlan(sandbox, parts)
    for part in parts:
        plan.add(part)
    plan.write()
    return plan.result()


class _PatchPlan:
    """The files as they will be after the patch."""

    def __init__(self, sandbox: Sandbox, parts: Sequence[FilePatch]) -> None:
        self._sandbox = sandbox
        self._leaving = {
            self._path_of(part.path) for part in parts if part.operation in ("rename", "delete")
        }
        self._edited: set[str] = (
            set()
        )  # paths that an earlier part changed, and later parts go on from
        self._before: dict[str, _FileText | None] = {}  # as they are; None: not there
        self._after: dict[str, _FileText | None] = {}  # as they are to be; None: gone
        self._report_lines: list[str] = []
        self._renamed: list[Json] = []

    def add(self, part: FilePatch) -> None:
        path, target = self._path_of(part.path), self._path_of(part.target)
        if part.operation == "create":
            self._check_free(target)
            return self._set_file(
                target,
                _FileText(apply_hunks(target, "", part.hunks), part.mode or 0o644),
                "created",
            )
        found = self._file_at(path)
        if part.operation == "delete":
            self._check_all_goes(path, found, part)
            return self._set_file(path, None, "deleted")
        file = _FileText(
            apply_hunks(path, found.text, part.hunks),
            found.mode if part.mode is None else part.mode,
        )
        if target == path:
            return self._set_file(path, file, "changed")
        self._check_free(target)
        if part.operation == "rename":
            # unless another file has taken its name in this very patch
            self._after.setdefault(path, None)
        self._renamed.append({"from": path, "to": target, "copied": part.operation == "copy"})
        return self._set_file(
            target, file, f"{'renamed' if part.operation == 'rename' else 'copied'} from {path},"
        )

    def _path_of(self, path: str) -> str:
        return file_path(self._sandbox, path)

    def _file_at(self, path: str) -> _FileText:
        """Return the file that a part changes: as an earlier part left it, or as it is on disk."""
        there = self._after[path] if path in self._edited else self._file_before(path)
        if there is None:
            raise EditRefused(
                path, "there is no such file", f"Look what there is with list_files; {_NOTHING}"
            )
        return there

    def _file_before(self, path: str) -> _FileText | None:
        if path not in self._before:
            self._before[path] = _read_file(self._sandbox, path)
        return self._before[path]

    def _check_free(self, path: str) -> None:
        there = self._file_before(path) if path not in self._leaving else None
        taken = self._after.get(path, there)
        if taken is not None:
            raise EditRefused(
                path,
                "there is a file of that name already",
                f"Change it instead, or delete it first; {_NOTHING}",
            )

    def _check_all_goes(self, path: str, found: _FileText, part: FilePatch) -> None:
        if part.hunks and apply_hunks(path, found.text, part.hunks):
            raise EditRefused(
                path,
                "it is to be deleted, and has more lines than the patch removes",
                f"Read it again; {_NOTHING}",
            )

    def _set_file(self, path: str, file: _FileText | None, said: str) -> None:
        self._file_before(path)
        self._after[path] = file
        if not said.startswith("renamed"):
            self._edited.add(path)
        self._report_lines.append(f"{said} {path}")

    def write(self) -> None:
        """Write all files; if one cannot be written, put those written before it back."""
        self._check_folders()
        done: list[str] = []
        try:
            # removals first: they make room for new files
            for path in sorted(self._after, key=lambda path: self._after[path] is not None):
                done.append(path)
                self._put_file(path, self._after[path])
        except BaseException:
            for path in reversed(done):
                self._put_file(path, self._before[path])
            raise

    def _check_folders(self) -> None:
        """Raise EditRefused if a name would be a file and a folder at once."""
        kept = {path for path, file in self._after.items() if file is not None}
        for path in kept:
            parts = path.split("/")[:-1]
            for end in range(1, len(parts) + 1):
                above = "/".join(parts[:end])
                if above in kept or (above not in self._after and _is_file(self._sandbox, above)):
                    raise EditRefused(
                        path, f"{above!r} is a file, not a folder", f"Use another path; {_NOTHING}"
                    )

    def _put_file(self, path: str, file: _FileText | None) -> None:
        files = self._sandbox.files
        if file is not None:
            files.write(path, file.text.encode("utf-8", "surrogateescape"), mode=file.mode)
        elif entry_or_none(self._sandbox, path) is not None:
            files.remove(path)

    def result(self) -> Result:
        diffs = [(path, *self._sides(path)) for path in sorted(self._after)]
        diff = "".join(unified_diff(path, before, after) for path, before, after in diffs)
        counts = [changed_lines(before or "", after or "") for _, before, after in diffs]
        delta: dict[str, Json] = {
            "changed": sorted(self._after),
            "renamed": self._renamed,
            "modes": self._modes(),
        }
        parts: list[Any] = add_evidence(delta, "patch", diff)
        sums = (
            f"{count_text(sum(added for added, _ in counts), 'line')} added,"
            f" {sum(removed for _, removed in counts):,} removed"
        )
        return Result(["\n".join([*self._report_lines, f"[{sums}]"]), *parts], delta=delta)

    def _sides(self, path: str) -> tuple[str | None, str | None]:
        before, after = self._before[path], self._after[path]
        return before and before.text, after and after.text

    def _modes(self) -> Json:
        both = [(path, self._before[path], file) for path, file in sorted(self._after.items())]
        return {
            path: f"{file.mode:o}"
            for path, before, file in both
            if file and file.mode != (before.mode if before else 0o644)
        }


def _is_file(sandbox: Sandbox, path: str) -> bool:
    entry = entry_or_none(sandbox, path)
    return entry is not None and entry.kind == "file"


def _read_file(sandbox: Sandbox, path: str) -> _FileText | None:
    entry = entry_or_none(sandbox, path)
    if entry is None:
        return None
    if entry.kind != "file":
        raise EditRefused(
            path,
            f"it is a {entry.kind}, and only plain files can be patched",
            f"Use the shell; {_NOTHING}",
        )
    if entry.size > _FILE_MAX:
        raise EditRefused(
            path,
            f"it has {entry.size:,} bytes, the limit is {_FILE_MAX:,}",
            f"Use the shell; {_NOTHING}",
        )
    text = text_or_none(sandbox.files.read(path))
    if text is None:
        raise EditRefused(
            path, "it is no UTF-8 text", f"Change it with a program, through the shell; {_NOTHING}"
        )
    return _FileText(text, entry.mode)
