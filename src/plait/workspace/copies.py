"""Copies: the files of one tree on this disk, to be changed. A copy is a cache, and the store is
the truth.

A copy is either plain, a folder with all files, or layered: a lower folder that holds a base,
shared by all copies and never changed, and an upper one that holds the difference to it. Before
anything changes a mark is left that the copy is in doubt; it is removed when a snapshot has
recorded the files. A copy that is in doubt when it is opened, was made before the machine was
started, or does not look as it should, is thrown away and built again from the store.

After a snapshot the copy holds its tree and nothing else. Names that the rules leave out (caches,
bytecode, a `.venv` that a command made), pipes and sockets, files that were withheld, and the
scratch folder are removed: a command must not find there leftovers of another one that no record
speaks of.

    <cache>/bases/<tree>/files        a lower folder
    <cache>/copies/<name>/…           files, or upper and work; scratch; state, index, and the mark
    <cache>/folders/<hash>/…          the index of a folder that is not ours
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from plait import secrets
from plait.errors import (
    NotSupported,
    StoreCorrupt,
    UnknownBlob,
)
from plait.ids import Digest
from plait.store import Store
from plait.workspace import disk
from plait.workspace.base import CHANGED_MAX, TreeEntry, TreeSnapshot
from plait.workspace.bases import base_of
from plait.workspace.checkout import TreeSwitch, checkout
from plait.workspace.copy_state import (
    CopyState,
    absent_entries,
    absent_files,
    boot_id,
    copy_home,
    folder_home,
    read_index,
    read_state,
    stored_index,
    write_whole,
)
from plait.workspace.files import LocalFiles
from plait.workspace.index import Index, pack_index, unpack_index
from plait.workspace.locks import Lock
from plait.workspace.rules import USUAL, Rules
from plait.workspace.scan import Scan, ScanResult
from plait.workspace.sink import Sink
from plait.workspace.tree import EMPTY, TreeReader, differing_paths, shown_path

# files: an index that is behind is still true, and so many files are read again at the next opening
_UNSAVED_MAX = 256


class Plain(NamedTuple):
    """All files in one folder."""

    folder: Path


class Layered(NamedTuple):
    """The folders that an overlay is mounted from."""

    lower: Path
    upper: Path
    work: Path


# ── one copy ─────────────────────────────────────────────────────────────────────────────────


class _UnstoredBlobs:
    """Reads blobs of the store, and those of a snapshot that may not be in it yet."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.blobs: dict[Digest, bytes] = {}

    def get_blob(self, digest: Digest) -> bytes:
        found = self.blobs.get(digest)
        return self._store.get_blob(digest) if found is None else found


class Copy:
    """The files of one tree, here, for one process at a time.

    Its methods are called by one thread at a time.
    """

    ours = True  # the files were made by us, and their modes may be changed for a moment

    def __init__(
        self,
        store: Store,
        home: Path,
        layers: Plain | Layered,
        state: CopyState,
        index: Index,
        rules: Rules,
        lock: Lock,
    ) -> None:
        self.layers, self.scratch, self.name = layers, home / "scratch", home.name
        upper, lower = (
            (layers.folder, None) if isinstance(layers, Plain) else (layers.upper, layers.lower)
        )
        self.files = LocalFiles(upper, lower, ours=self.ours)
        self._store, self._home, self._rules, self._lock = store, home, rules, lock
        self._state, self._index, self._unsaved = state, index, 0
        self.has_odd = True  # pipes, sockets or devices; assumed until a snapshot finds none
        self._absent = absent_entries(state.absent)
        self._pending = _UnstoredBlobs(store)
        self._reader = TreeReader(self._pending)

    @property
    def tree(self) -> Digest:
        """The tree that the copy holds when it is clean."""
        return self._state.tree

    @property
    def base(self) -> Digest | None:
        """The tree of the lower folder. None: the copy is plain."""
        return self._state.base

    @property
    def generation(self) -> int:
        """The number of times the copy was built anew."""
        return self._state.generation

    @property
    def in_doubt(self) -> bool:
        return (self._home / "doubt").exists()

    def begin(self) -> None:
        """Mark the copy as in doubt, before something changes its files."""
        os.close(os.open(self._home / "doubt", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._open_up()

    def _open_up(self) -> None:
        """Reset the modes of the root and the scratch folder. No tree records them, so a command's
        change must not outlast the command.
        """
        for folder in (self._root, self.scratch):
            with suppress(FileNotFoundError):
                folder.chmod(0o755)

    def snapshot(self, mounted: str | None = None, points: Collection[str] = ()) -> TreeSnapshot:
        """Return a snapshot of the files; the copy is clean afterwards.

        The time grows with the number of changes, or of files if the copy is plain. `mounted`: the
        place where a process that stays has the two layers mounted as one; None: nowhere. `points`:
        paths at which folders of the user are mounted for commands; an empty folder stays there.
        """
        self.begin()
        sink = Sink(self._store)
        found = self._scan(sink)
        kept = {
            digest: self._pending.blobs[digest]
            for digest in self._store.missing_blobs(self._pending.blobs)
        }
        # blobs of a snapshot that was not recorded yet are needed still
        self._pending.blobs = {**kept, **sink.waiting}
        changed, more = self._changed_paths(found.tree)
        self._index, self._unsaved = found.seen, self._unsaved + found.read
        self.has_odd = bool(found.skipped)
        self._absent = {
            path: entry
            for path, entry in self._absent.items()
            if self._reader.find(found.tree, path) == entry
        }
        dropped = self._drop_unrecorded(found, mounted, points)
        self._mark_clean(found.tree)
        withheld = {*found.withheld, *map(shown_path, self._absent)}
        return TreeSnapshot(
            found.tree,
            dict(self._pending.blobs),
            changed,
            more,
            tuple(sorted(withheld)),
            found.skipped,
            dropped,
        )

    def _drop_unrecorded(
        self, found: ScanResult, mounted: str | None, points: Collection[str]
    ) -> tuple[str, ...]:
        """Remove all files that the tree does not hold, and return their paths, withheld ones
        aside.
        """
        self._empty_scratch()
        withheld = _withheld_in(found.seen) if found.withheld else {}
        if not found.left_out and not withheld:
            return ()
        # Removed below a mount, a file would still be seen by processes that looked it up before:
        # it is removed through the mount.
        with disk.closing_handle(_open_mounted(mounted) or disk.open_root(self._root)) as root:
            dropped = [
                path
                for path in found.left_out
                if self._drop(root, path, layered=mounted is None, is_point=path in points)
            ]
            for path, entry in withheld.items():
                self._drop(root, path, layered=mounted is None)
                # as in every other copy of the tree, where a withheld file is absent
                self._absent[path] = entry
        return tuple(sorted(secrets.hide_text(shown_path(path)) for path in dropped))

    def _drop(self, root: int, path: str, *, layered: bool, is_point: bool = False) -> bool:
        """Remove the entry at a path, also as the lower layer shows it. Return True if there was
        one.
        """
        was_there = disk.clear_path(root, path, keep_empty=is_point)
        below = self._reader.find(self.base, path) if layered and self.base is not None else None
        if below is not None and below.kind != "withheld":
            disk.hide_path(root, path)
        return was_there

    def switch(self, tree: Digest) -> None:
        """Make the files those of another tree. Takes as long as there are paths that differ."""
        self.begin()
        self._empty_scratch()
        changes = list(differing_paths(self._reader, self.tree, tree))
        with disk.closing_handle(disk.open_root(self._root)) as root:
            if self.has_odd:
                self._clear_skipped(root)
            TreeSwitch(self._reader).switch(root, self.tree, tree, self.base)
        for change in changes:
            self._absent.pop(change.path, None)
            if change.after is not None and change.after.kind == "withheld":
                self._absent[change.path] = change.after
        self._mark_clean(tree)

    def _clear_skipped(self, root: int) -> None:
        """Remove pipes, sockets and devices: they are in no tree, so no switch would."""
        layered = isinstance(self.layers, Layered)
        with disk.writable(root):
            disk.clear_odd(root, keep_whiteouts=layered)
        self.has_odd = False

    def discard(self) -> None:
        """Remove the copy from this disk, and release it."""
        self.begin()
        disk.remove_folder(self._home)
        self.close()

    def close(self) -> None:
        """Release the copy; its files stay on disk."""
        if self._unsaved and self._home.is_dir():
            self.save_index()
        self._lock.release()

    @property
    def _root(self) -> Path:
        return self.layers.folder if isinstance(self.layers, Plain) else self.layers.upper

    def _scan(self, sink: Sink, threads: int = 0) -> ScanResult:
        layered = isinstance(self.layers, Layered)
        known = self._rules, self._index
        scan = Scan(
            sink,
            *known,
            reader=self._reader,
            layered=layered,
            absent=self._absent,
            threads=threads,
            ours=self.ours,
        )
        with disk.closing_handle(disk.open_root(self._root)) as root:
            return scan.scan_folder(root, self.base)

    def _changed_paths(self, tree: Digest) -> tuple[tuple[str, ...], int]:
        paths = sorted(
            shown_path(change.path) for change in differing_paths(self._reader, self.tree, tree)
        )
        return tuple(paths[:CHANGED_MAX]), max(len(paths) - CHANGED_MAX, 0)

    def save_index(self) -> None:
        write_whole(self._home / "index", pack_index(self._index, self._rules))
        self._unsaved = 0

    def _mark_clean(self, tree: Digest) -> None:
        if self._unsaved > _UNSAVED_MAX:
            self.save_index()
        self._state = msgspec.structs.replace(
            self._state, tree=tree, boot=boot_id(), absent=absent_files(self._absent)
        )
        write_whole(self._home / "state", msgspec.json.encode(self._state))
        (self._home / "doubt").unlink(missing_ok=True)

    def make_scratch(self, name: str) -> str:
        """Make an empty scratch folder for a process that stays, apart from that of commands, and
        return its path.
        """
        place = _scratch_of(name)
        with disk.closing_handle(disk.open_root(self._home)) as home:
            disk.empty_folder(home, place)
        return str(self._home / place)

    def remove_scratch(self, name: str) -> None:
        disk.remove_folder(self._home / _scratch_of(name))

    def _empty_scratch(self) -> None:
        with disk.closing_handle(disk.open_root(self._home)) as home:
            disk.empty_folder(home, self.scratch.name)

    def __repr__(self) -> str:
        return f"<Copy {self.name} of {self.tree[:12]}>"


def _scratch_of(name: str) -> str:
    return f"scratch-{sha256(os.fsencode(name)).hexdigest()[:8]}"


class InPlace(Copy):
    """A folder of the user as a copy. It is scanned, and never switched to another tree."""

    ours = False

    def _open_up(self) -> None:
        """Leave the folder's mode to its owner."""

    def _drop_unrecorded(
        self, found: ScanResult, mounted: str | None, points: Collection[str]
    ) -> tuple[str, ...]:
        """Empty the scratch folder only: files that the rules leave out are the owner's."""
        self._empty_scratch()
        return ()

    def switch(self, tree: Digest) -> None:
        raise NotSupported(
            "a folder in place",
            "be made another tree",
            "place a copy: session.to('local', folder) without in_place",
        )

    def discard(self) -> None:
        """Remove all records of the folder; the folder itself stays."""
        disk.remove_folder(self._home)
        self.close()


# ── opening ──────────────────────────────────────────────────────────────────────────────────


def open_copy(
    store: Store,
    cache: Path,
    name: str,
    tree: Digest,
    *,
    layered: bool,
    rules: Rules = USUAL,
    base: Digest | None = None,
) -> Copy:
    """Open the copy of this name, switched to this tree; build it if it cannot be trusted.

    `base`: the tree of the lower folder if the copy is built anew; None: the tree itself.
    """
    home = copy_home(cache, name)
    lock = Lock(home.with_name(f"{home.name}.lock"), name)
    try:
        found = _reopen_copy(store, cache, home, tree, layered, rules, lock)
        return found or _build_copy(
            store, cache, home, tree, base or tree if layered else None, rules, lock
        )
    except BaseException:
        lock.release()
        raise


def _reopen_copy(
    store: Store, cache: Path, home: Path, tree: Digest, layered: bool, rules: Rules, lock: Lock
) -> Copy | None:
    """Open the copy as it stands, if it can be trusted.

    None: it is not there, in doubt, from another boot, or damaged.
    """
    state = read_state(home)
    if (
        state is None
        or state.boot != boot_id()
        or (home / "doubt").exists()
        or (state.base is not None) != layered
    ):
        return None
    try:
        if state.base is None:
            layers: Plain | Layered = Plain(home / "files")
        else:
            layers = Layered(
                base_of(store, cache, state.base).folder, home / "upper", home / "work"
            )
        # Blobs that the last process found and did not record are not in the store: then all files
        # are read anew.
        index = stored_index(store, unpack_index((home / "index").read_bytes(), rules))
        copy = Copy(store, home, layers, state, index, rules, lock)
        if not all(folder.is_dir() for folder in (*layers, copy.scratch)):
            return None
        if tree != copy.tree:
            copy.switch(tree)
        return copy
    # a damaged copy is built again
    except (OSError, UnknownBlob, StoreCorrupt, msgspec.MsgspecError):
        return None


def _build_copy(
    store: Store,
    cache: Path,
    home: Path,
    tree: Digest,
    base: Digest | None,
    rules: Rules,
    lock: Lock,
) -> Copy:
    state = read_state(home)
    generation = state.generation + 1 if state else 1 if home.exists() else 0
    disk.remove_folder(home)
    for name in ("scratch", *(("upper", "work") if base else ("files",))):
        (home / name).mkdir(parents=True)
    (home / "doubt").touch()
    if base:
        lower = base_of(store, cache, base)
        layers: Plain | Layered = Layered(lower.folder, home / "upper", home / "work")
        state, index = CopyState(base, base, boot_id(), generation, lower.absent), Index()
    else:
        placed = checkout(store, tree, home / "files")
        layers, index = Plain(home / "files"), placed.seen
        state = CopyState(tree, None, boot_id(), generation, absent_files(placed.absent))
    copy = Copy(store, home, layers, state, index, rules, lock)
    copy.has_odd = False  # no command ran in it yet
    copy.save_index()
    copy.switch(tree)  # leaves it clean
    return copy


def open_in_place(store: Store, cache: Path, folder: Path, rules: Rules = USUAL) -> InPlace:
    """Open the folder itself as a copy. It is scanned now, and its files are in the store when this
    returns.
    """
    home = folder_home(cache, folder)
    lock = Lock(home.with_name(f"{home.name}.lock"), str(folder))
    try:
        (home / "scratch").mkdir(parents=True, exist_ok=True)
        state = CopyState(EMPTY, None, boot_id(), 0)
        copy = InPlace(
            store,
            home,
            Plain(Path(os.path.realpath(folder))),
            state,
            stored_index(store, read_index(home, rules)),
            rules,
            lock,
        )
        store.put_blobs(copy.snapshot().blobs)
        return copy
    except BaseException:
        lock.release()
        raise


def _open_mounted(path: str | None) -> int | None:
    """Open the mounted folder. None: nothing is mounted, or the process that mounted it has just
    ended.
    """
    with suppress(FileNotFoundError, ProcessLookupError):
        return disk.open_root(path) if path is not None else None
    return None


def _withheld_in(index: Index) -> dict[str, TreeEntry]:
    return {
        f"{folder}/{name}" if folder else name: each.entry
        for folder, (_, seen, *_) in index.items()
        for name, each in seen.items()
        if each.entry.kind == "withheld"
    }
