"""From a tree to files on disk: all of them, or only the ones that differ from those on disk.

Where there is a lower layer, the upper one is made to hold the difference and nothing else: files
that are equal below are removed from it, removed ones are hidden. Withheld files are left out,
because their content is stored nowhere.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from plait.errors import NotApplied
from plait.ids import Digest
from plait.workspace import disk
from plait.workspace.base import TreeEntry
from plait.workspace.index import RACY_NS, Index, SeenEntry, SeenFolder, stamp_of
from plait.workspace.tree import EMPTY, Objects, TreeReader

# beside the one that reads trees: for small files more of them wait for each other, and take twice
# as long
THREADS = 1
_CHUNK = 64  # files that one thread takes at a time
_QUEUED = 64  # chunks that wait: each holds a handle


class Placed(NamedTuple):
    """The files that a checkout left on disk, and those that it could not."""

    seen: Index
    absent: dict[str, TreeEntry]  # withheld, by path


def checkout(objects: Objects, tree: Digest, folder: Path) -> Placed:
    """Write all files of a tree into a folder that is empty or not there yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        root = disk.open_root(folder)
    except OSError as error:
        raise NotApplied(
            str(folder), error.strerror or str(error), "name a folder that can be made"
        ) from error
    with disk.closing_handle(root):
        if os.listdir(root):
            raise NotApplied(
                str(folder),
                "something is in it already",
                "name an empty folder, or one that is not there yet",
            )
        return _Checkout(objects).write_tree(root, tree)


class _Checkout:
    def __init__(self, objects: Objects) -> None:
        self._objects, self._reader = objects, TreeReader(objects, keep=64)
        self._index: Index = {}
        self._absent: dict[str, TreeEntry] = {}
        # folders whose final mode would forbid the rest of the checkout
        self._late: list[tuple[int, int]] = []
        self._work: list[Future[None]] = []
        self._queued = threading.Semaphore(_QUEUED)

    def write_tree(self, root: int, tree: Digest) -> Placed:
        try:
            with ThreadPoolExecutor(THREADS, "plait-checkout") as pool:
                self._pool = pool
                self._fill(root, tree, "", 0)
            for work in self._work:
                work.result()
            for handle, mode in reversed(self._late):
                os.fchmod(handle, mode)
        finally:
            for handle, _ in self._late:
                os.close(handle)
        return Placed(_without_racy_stamps(self._index), self._absent)

    def _fill(self, folder: int, tree: Digest, path: str, depth: int) -> None:
        disk.check_depth(depth, path)
        seen: dict[str, SeenEntry] = {}
        entries = self._reader.entries(tree)
        self._index[path] = SeenFolder(
            None if any(entry.kind == "withheld" for entry in entries) else tree, seen
        )
        files: list[TreeEntry] = []
        for entry in entries:
            here = f"{path}/{entry.name}" if path else entry.name
            if entry.kind == "withheld":
                self._absent[here] = entry
            elif entry.kind == "folder":
                self._folder(folder, entry, here, depth)
                seen[entry.name] = SeenEntry(None, entry)
            else:
                files.append(entry)
        for start in range(0, len(files), _CHUNK):
            self._queued.acquire()
            work = self._pool.submit(
                self._write_all, os.dup(folder), files[start : start + _CHUNK], seen
            )
            work.add_done_callback(lambda _: self._queued.release())
            self._work.append(work)

    def _folder(self, folder: int, entry: TreeEntry, path: str, depth: int) -> None:
        handle = disk.make_folder(folder, entry.name, entry.mode | 0o700)
        if entry.mode & 0o700 != 0o700:
            self._late.append((os.dup(handle), entry.mode))
        with disk.closing_handle(handle):
            self._fill(handle, entry.blobs[0], path, depth + 1)

    def _write_all(self, folder: int, entries: list[TreeEntry], seen: dict[str, SeenEntry]) -> None:
        with disk.closing_handle(folder):
            for entry in entries:
                seen[entry.name] = SeenEntry(
                    stamp_of(put_entry(self._objects, folder, entry)), entry
                )


def _without_racy_stamps(index: Index) -> Index:
    """Drop the stamps of files written a moment ago: a second write in the same tick of the clock
    would leave the same stamp.
    """
    newest = time.clock_gettime_ns(time.CLOCK_REALTIME) - RACY_NS
    for _, seen, *_ in index.values():
        assert isinstance(seen, dict)
        for name, each in seen.items():
            if each.stamp is not None and each.stamp[2] >= newest:
                seen[name] = SeenEntry(None, each.entry)
    return index


def put_entry(objects: Objects, folder: int, entry: TreeEntry) -> os.stat_result:
    """Create a file or a link where nothing is."""
    if entry.kind == "link":
        os.symlink(entry.target, entry.name, dir_fd=folder)
        return os.lstat(entry.name, dir_fd=folder)
    return disk.put_file(folder, entry.name, _pieces(objects, entry), entry.mode)


def _pieces(objects: Objects, entry: TreeEntry) -> Iterator[bytes]:
    return (objects.get_blob(piece) for piece in entry.blobs)


# ── from one tree to another ─────────────────────────────────────────────────────────────────


class TreeSwitch:
    """Turns the files of one tree into those of another, touching only the paths that differ."""

    def __init__(self, reader: TreeReader) -> None:
        self._reader = reader

    def switch(self, root: int, before: Digest, after: Digest, base: Digest | None) -> None:
        """Switch the files below `root`: the folder itself, or with a base the upper folder over
        it.
        """
        self._folder(root, before, after, base, 0)

    def _folder(
        self, folder: int, before: Digest, after: Digest, base: Digest | None, depth: int
    ) -> None:
        if before == after:
            return
        disk.check_depth(depth, "")
        old, new, low = self._entries(before), self._entries(after), self._entries(base or EMPTY)
        with disk.writable(folder):
            for name in old.keys() | new.keys():
                if old.get(name) != new.get(name):
                    self._change(
                        folder,
                        name,
                        old.get(name),
                        _entry_on_disk(new.get(name)),
                        _entry_on_disk(low.get(name)),
                        depth,
                    )

    def _change(
        self,
        folder: int,
        name: str,
        old: TreeEntry | None,
        new: TreeEntry | None,
        low: TreeEntry | None,
        depth: int,
    ) -> None:
        if new is not None and new.kind == "folder":
            self._to_folder(folder, old, new, low, depth)
            return
        disk.clear(folder, name)
        if new == low:
            return
        if new is None:
            disk.put_whiteout(folder, name)
        else:
            put_entry(self._reader.objects, folder, new)

    def _to_folder(
        self, folder: int, old: TreeEntry | None, new: TreeEntry, low: TreeEntry | None, depth: int
    ) -> None:
        base = low.blobs[0] if low is not None and low.kind == "folder" else None
        if new == low:
            disk.clear(folder, new.name)
            return
        found = disk.look(folder, new.name)
        if (
            found is not None
            and stat.S_ISDIR(found.st_mode)
            and old is not None
            and old.kind == "folder"
        ):
            handle = disk.open_folder(folder, new.name)
            base, before = None if base is None or disk.is_opaque(handle) else base, old.blobs[0]
        else:
            disk.clear(folder, new.name)
            handle, before = disk.make_folder(folder, new.name, 0o700), base or EMPTY
        with disk.closing_handle(handle):
            self._folder(handle, before, new.blobs[0], base, depth + 1)
            os.fchmod(handle, new.mode)

    def _entries(self, tree: Digest) -> dict[str, TreeEntry]:
        return {entry.name: entry for entry in self._reader.entries(tree)}


def _entry_on_disk(entry: TreeEntry | None) -> TreeEntry | None:
    """Return the entry as it is put on disk: None for a withheld file."""
    return None if entry is not None and entry.kind == "withheld" else entry
