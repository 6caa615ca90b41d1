"""Scanning: from files on disk to a tree, hashing only files that may have changed.

An index remembers, per folder, the tree that was found there and for each file size, times, inode
and mode. A file whose numbers are the same is taken for unchanged, unless it was written so shortly
before the scan that a second write could have left the same times: those are hashed again, as git
does with racy entries.

The upper folder of an overlay is scanned in the same way, over the tree of the lower one: names
that it does not mention are as they were below.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from typing import NamedTuple

from plait import secrets
from plait.errors import WorkspaceError
from plait.ids import Digest
from plait.workspace import disk
from plait.workspace.base import PIECE, TreeEntry
from plait.workspace.index import RACY_NS, Index, SeenEntry, SeenFolder, Stamp, stamp_of
from plait.workspace.masks import CARRIER_MAX, is_carrier, without_secrets
from plait.workspace.rules import Rules, compile_rules
from plait.workspace.sink import Sink
from plait.workspace.tree import EMPTY, TreeReader, digest_of, encode, shown_path

THREADS = 4
_CHUNK = 64  # files that one thread takes at a time
_QUEUED = 64  # chunks that wait: each holds a handle
_TRIES = 5
# bytes of the piece before that are looked at with a piece: a secret may lie across
_OVERLAP = 1 << 16


class ScanResult(NamedTuple):
    """The tree that a scan found, and the new index."""

    tree: Digest
    seen: Index
    withheld: tuple[str, ...]  # those that are on this disk
    skipped: tuple[str, ...]
    read: int  # number of files that were read
    # paths on this disk that are in no tree: by the rules, by a secret, or as pipes and the like
    left_out: tuple[str, ...] = ()


class _Item(NamedTuple):
    """A file or a link to be read."""

    name: str
    is_link: bool


class _OpenFolder:
    """A folder in the middle of a scan."""

    def __init__(self, path: str, base: Digest | None, old: SeenFolder | None) -> None:
        self.path, self.base, self.old = path, base, old
        self.seen: dict[str, SeenEntry] = {}
        self.hidden: set[str] = set()  # by whiteouts
        self.folders: list[tuple[str, int, _OpenFolder]] = []
        self.work: list[Future[list[tuple[str, SeenEntry | None]]]] = []

    def tree_before(self) -> Digest | None:
        """Return the folder's tree of the last scan, if nothing in it changed."""
        old = self.old
        same = (
            old is not None
            and old.base == self.base
            and old.hidden == frozenset(self.hidden)
            and _is_same(self.seen, old.seen)
        )
        return old.tree if old is not None and same else None


class Scan:
    """One scan of a folder, or of an upper folder over a base."""

    def __init__(
        self,
        sink: Sink,
        rules: Rules,
        index: Index,
        *,
        reader: TreeReader,
        layered: bool = False,
        absent: Mapping[str, TreeEntry] | None = None,
        threads: int = 0,
        ours: bool = True,
    ) -> None:
        """`reader`: of the base; it learns every new folder. `absent`: withheld files that never
        were on this disk, by path.

        `ours`: the files are a copy of ours. In a folder of the user no mode is changed, and locked
        files are withheld.
        """
        self._sink, self._index, self._reader = sink, index, reader
        self._rules = compile_rules(rules)
        self._armed = secrets.is_armed()
        self._layered, self._ours = layered, ours
        self._absent = _by_folder(absent or {})
        self._pool = ThreadPoolExecutor(threads, "plait-scan") if threads else None
        self._queued = threading.Semaphore(_QUEUED)
        self._fresh: Index = {}
        self._withheld: list[str] = []
        self._skipped: list[str] = []
        self._left_out: list[str] = []
        self._read_count = 0
        # Files are stamped by this very clock: it is not time that goes on record.
        self._settled_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - RACY_NS

    def scan_folder(self, root: int, base: Digest | None = None) -> ScanResult:
        try:
            tree = self._finish_folder(self._walk_folder(root, "", base, 0))
        finally:
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)
        withheld, skipped = tuple(sorted(self._withheld)), tuple(sorted(self._skipped))
        return ScanResult(
            tree, self._fresh, withheld, skipped, self._read_count, tuple(self._left_out)
        )

    # ── down: entries ────────────────────────────────────────────────────────────────────────

    def _walk_folder(
        self, folder: int, path: str, base: Digest | None, depth: int, *, at_once: bool = False
    ) -> _OpenFolder:
        """Walk a folder and those below. `at_once`: it is open to us for the moment only, so no
        thread can come back to it.
        """
        disk.check_depth(depth, path)
        here = _OpenFolder(path, base, self._index.get(path))
        below, items = self._list_folder(folder, here)
        self._read_or_queue(folder, here, items, at_once)
        kept = {entry.name: entry for entry in self._base_entries(base) if entry.kind == "folder"}
        for name in below:
            self._descend(folder, here, name, kept.get(name), depth)
        return here

    def _list_folder(self, folder: int, here: _OpenFolder) -> tuple[list[str], list[_Item]]:
        """Return the folders to enter, and the files to read; unchanged entries are taken over."""
        known: Mapping[str, SeenEntry] = here.old.seen if here.old else {}
        below: list[str] = []
        items: list[_Item] = []
        leaves_out, path = self._rules.leaves_out, here.path
        with os.scandir(folder) as listing:
            for item in listing:
                name = item.name
                try:
                    found = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if (
                    not self._ours
                    and disk.is_locked(found.st_mode)
                    and not leaves_out(path, name, stat.S_ISDIR(found.st_mode))
                ):
                    self._withheld.append(self._shown_path(_join(path, name)))
                    continue
                before = known.get(name)
                if (
                    self._armed
                    and before is not None
                    and (_holds_secret(name) or _holds_secret(before.entry.target))
                ):
                    before = None  # remembered from before the value became a secret
                if before is not None and before.stamp == (
                    found.st_size,
                    found.st_mtime_ns,
                    found.st_ctime_ns,
                    found.st_ino,
                    found.st_mode,
                ):
                    here.seen[name] = before
                    continue
                mode = found.st_mode
                if leaves_out(path, name, stat.S_ISDIR(mode)) or self._name_holds_secret(
                    folder, here, name, mode
                ):
                    self._leave_out(here, name)
                    continue
                if stat.S_ISDIR(mode):
                    below.append(name)
                elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                    items.append(_Item(name, stat.S_ISLNK(mode)))
                elif self._layered and disk.is_whiteout(found):
                    here.hidden.add(name)
                else:
                    self._skipped.append(shown_path(_join(path, name)))
                    self._leave_out(here, name)
        return below, items

    def _leave_out(self, here: _OpenFolder, name: str) -> None:
        """Note an entry that is in no tree. It replaced the lower layer's entry of its name, which
        is in none either.
        """
        self._left_out.append(_join(here.path, name))
        if any(entry.name == name for entry in self._base_entries(here.base)):
            here.hidden.add(name)

    def _name_holds_secret(self, folder: int, here: _OpenFolder, name: str, mode: int) -> bool:
        """Return True if the name, or the target of a link, holds a secret: a tree would
        reveal it.
        """
        if not self._armed or not (
            _holds_secret(name) or (stat.S_ISLNK(mode) and _holds_secret(_target(folder, name)))
        ):
            return False
        if not (self._layered and stat.S_ISCHR(mode)):  # a whiteout still hides the entry below
            self._withheld.append(self._shown_path(_join(here.path, name)))
            return True
        return False

    def _descend(
        self, folder: int, here: _OpenFolder, name: str, lower: TreeEntry | None, depth: int
    ) -> None:
        path = _join(here.path, name)
        try:
            with disk.entered_folder(folder, name, ours=self._ours) as (handle, mode):
                base = lower.blobs[0] if lower is not None and not disk.is_opaque(handle) else None
                here.folders.append(
                    (
                        name,
                        mode & 0o777,
                        self._walk_folder(
                            handle, path, base, depth + 1, at_once=mode & 0o500 != 0o500
                        ),
                    )
                )
        except FileNotFoundError:
            return
        except PermissionError:  # another user's
            self._note_refused(path)

    def _note_refused(self, path: str) -> None:
        """Note a path that we may not read: in a folder of the user it is withheld, like locked
        ones.
        """
        (self._skipped if self._ours else self._withheld).append(self._shown_path(path))

    def _shown_path(self, path: str) -> str:
        return secrets.hide_text(shown_path(path)) if self._armed else shown_path(path)

    def _read_or_queue(
        self, folder: int, here: _OpenFolder, items: list[_Item], at_once: bool
    ) -> None:
        """Read the files now, or hand them to the threads."""
        self._read_count += len(items)
        if self._pool is None or at_once:
            self._add_seen(here, self._read_all(folder, here.path, items))
            return
        for start in range(0, len(items), _CHUNK):
            self._queued.acquire()
            future = self._pool.submit(
                self._read_all, os.dup(folder), here.path, items[start : start + _CHUNK], close=True
            )
            future.add_done_callback(lambda _: self._queued.release())
            here.work.append(future)

    def _read_all(
        self, folder: int, path: str, items: list[_Item], *, close: bool = False
    ) -> list[tuple[str, SeenEntry | None]]:
        try:
            return [(item.name, self._read_item(folder, path, item)) for item in items]
        finally:
            if close:
                os.close(folder)

    def _add_seen(self, here: _OpenFolder, read: list[tuple[str, SeenEntry | None]]) -> None:
        here.seen.update((name, seen) for name, seen in read if seen is not None)

    # ── files ────────────────────────────────────────────────────────────────────────────────

    def _read_item(self, folder: int, path: str, item: _Item) -> SeenEntry | None:
        """Read one file or link, again if it changes meanwhile. None: it is gone."""
        try:
            return (
                self._read_link(folder, item.name)
                if item.is_link
                else self._read_file(folder, path, item.name)
            )
        except FileNotFoundError:
            return None
        except PermissionError:
            self._note_refused(_join(path, item.name))
            return None

    def _read_link(self, folder: int, name: str) -> SeenEntry | None:
        found = os.lstat(name, dir_fd=folder)
        if not stat.S_ISLNK(found.st_mode):
            raise _changing_error(name)
        return SeenEntry(
            self._stamp(found),
            TreeEntry(name, "link", 0o777, target=os.readlink(name, dir_fd=folder)),
        )

    def _read_file(self, folder: int, path: str, name: str) -> SeenEntry | None:
        for _ in range(_TRIES):
            with disk.closing_handle(disk.open_file(folder, name, ours=self._ours)) as handle:
                before = os.fstat(handle)
                if not stat.S_ISREG(before.st_mode):
                    raise _changing_error(_join(path, name))
                entry = self._read_content(handle, path, name, before)
                after = os.fstat(handle)
            if stamp_of(before) == stamp_of(after) and entry.size == after.st_size:
                return SeenEntry(self._stamp(after), entry)
        raise _changing_error(_join(path, name))

    def _read_content(self, handle: int, path: str, name: str, found: os.stat_result) -> TreeEntry:
        mode = stat.S_IMODE(found.st_mode) & 0o777
        # credentials in it are no secrets that are known
        if path and is_carrier(whole := _join(path, name)):
            if found.st_size > CARRIER_MAX:  # withheld without a look
                return TreeEntry(name, "withheld", mode, found.st_size, (_hidden_digest(handle),))
            content = b"".join(_pieces(handle, found.st_size))
            if (hidden := without_secrets(whole, content)) != content:
                return TreeEntry(name, "withheld", mode, found.st_size, (digest_of(hidden),))
        if secrets.is_armed() and _content_holds_secret(handle):
            return TreeEntry(name, "withheld", mode, found.st_size, (_hidden_digest(handle),))
        blobs: list[Digest] = []
        size = 0
        for piece in _pieces(handle, found.st_size):
            blobs.append(self._sink.add(piece))
            size += len(piece)
        return TreeEntry(name, "file", mode, size, tuple(blobs))

    def _stamp(self, found: os.stat_result) -> Stamp | None:
        return stamp_of(found) if found.st_ctime_ns < self._settled_ns else None

    # ── up: trees ────────────────────────────────────────────────────────────────────────────

    def _finish_folder(self, here: _OpenFolder) -> Digest:
        for work in here.work:
            self._add_seen(here, work.result())
        for name, mode, inside in here.folders:
            here.seen[name] = SeenEntry(
                None, TreeEntry(name, "folder", mode, 0, (self._finish_folder(inside),))
            )
        tree = self._build_tree(here)
        known = None if here.path in self._absent else tree
        self._fresh[here.path] = SeenFolder(known, here.seen, here.base, frozenset(here.hidden))
        return tree

    def _build_tree(self, here: _OpenFolder) -> Digest:
        self._withheld += [
            shown_path(_join(here.path, seen.entry.name))
            for seen in here.seen.values()
            if seen.entry.kind == "withheld"
        ]
        before = None if here.path in self._absent else here.tree_before()
        if before is not None:
            return before
        entries = {
            entry.name: entry
            for entry in self._base_entries(here.base)
            if entry.name not in here.hidden and entry.kind != "withheld"
        }
        entries.update(self._absent.get(here.path, {}))
        if self._armed:
            entries = {
                name: entry
                for name, entry in entries.items()
                if not _holds_secret(name) and not _holds_secret(entry.target)
            }
        entries.update((name, seen.entry) for name, seen in here.seen.items())
        raw = encode(entries.values())
        if not entries or digest_of(raw) == here.base:
            return here.base if entries and here.base else EMPTY
        tree = self._sink.add(raw)
        self._reader.remember_folder(
            tree, tuple(entries[name] for name in sorted(entries, key=os.fsencode))
        )
        return tree

    def _base_entries(self, base: Digest | None) -> tuple[TreeEntry, ...]:
        return () if base is None else self._reader.entries(base)


def _holds_secret(text: str) -> bool:
    return secrets.hide_text(text) != text


def _target(folder: int, name: str) -> str:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:  # gone, or no link any more: reading it will notice
        return ""


def _is_same(seen: Mapping[str, SeenEntry], old: Mapping[str, SeenEntry]) -> bool:
    return len(seen) == len(old) and all(
        name in old and (before is old[name] or before.entry == old[name].entry)
        for name, before in seen.items()
    )


def _by_folder(absent: Mapping[str, TreeEntry]) -> dict[str, dict[str, TreeEntry]]:
    found: dict[str, dict[str, TreeEntry]] = {}
    for path, entry in absent.items():
        found.setdefault(path.rpartition("/")[0], {})[entry.name] = entry
    return found


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _changing_error(path: str) -> WorkspaceError:
    return WorkspaceError(
        f"{shown_path(path)!r} changes faster than it can be read. Stop what writes to it, or keep"
        " it out with .plaitignore."
    )


# ── content ──────────────────────────────────────────────────────────────────────────────────


def _pieces(handle: int, size: int) -> Iterator[bytes]:
    """Yield the file from its beginning, piece by piece. One byte more is asked for, so that a file
    that grew is noticed.
    """
    offset = 0
    while offset <= size:
        piece = _read_at(handle, offset, PIECE if offset + PIECE <= size else size - offset + 1)
        if not piece:
            return
        yield piece
        offset += len(piece)
        if offset == size and len(piece) < PIECE:  # asked for one byte more, and it was not there
            return


def _read_at(handle: int, offset: int, wanted: int) -> bytes:
    piece = os.pread(handle, wanted, offset)
    while (
        piece
        and len(piece) < wanted
        and (more := os.pread(handle, wanted - len(piece), offset + len(piece)))
    ):
        piece += more
    return piece


def _content_holds_secret(handle: int) -> bool:
    return any(secrets.hide_bytes(window) != window for window in _windows(handle))


def _hidden_digest(handle: int) -> Digest:
    """Return a digest that identifies the content without revealing the secret in it."""
    found = sha256()
    for window in _windows(handle):
        found.update(secrets.hide_bytes(window))
    return Digest(found.hexdigest())


def _windows(handle: int) -> Iterator[bytes]:
    """Yield the file in pieces, each with the end of the one before."""
    offset = 0
    while window := _read_at(handle, max(offset - _OVERLAP, 0), PIECE + _OVERLAP):
        yield window
        offset = max(offset - _OVERLAP, 0) + len(window)
        if len(window) < PIECE + _OVERLAP:
            return
