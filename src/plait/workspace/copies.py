"""Copies: the files of one tree on this disk, to be changed. A copy is a cache, and the store is
the truth.

A copy is either plain, a folder with all files, or layered: a lower folder that holds a base,
shared by all copies and never changed, and an upper one that holds what differs from it. Before
anything changes a mark is left that the copy is in doubt; it is taken away when a snapshot has said
what the files are. A copy that is in doubt when it is opened, was made before the machine was
started, or does not look as it should, is thrown away and built again from the store.

After a snapshot the copy holds its tree and nothing else. Names that the rules leave out (caches,
bytecode, a `.venv` that a command made), pipes and sockets, files that were withheld, and the
scratch folder are removed: a command must not find there what another one left, since no record
speaks of it.

    <cache>/bases/<tree>/files        a lower folder
    <cache>/copies/<name>/…           files, or upper and work; scratch; state, index, and the mark
    <cache>/folders/<hash>/…          what is remembered of folders that are not ours
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import cache as cached
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from plait import secrets
from plait.errors import (
    NotSupported,
    PlaitError,
    SandboxBusy,
    StoreCorrupt,
    UnknownBlob,
    WorkspaceError,
)
from plait.ids import Digest
from plait.store import Store
from plait.workspace import disk
from plait.workspace.base import CHANGED_MAX, Entry, Snapshot
from plait.workspace.checkout import Placed, Turn, checkout
from plait.workspace.files import LocalFiles
from plait.workspace.rules import USUAL, Rules
from plait.workspace.scan import THREADS, Found, Index, Scan, Sink, pack_index, unpack_index
from plait.workspace.tree import EMPTY, TreeReader, differing, shown

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}\Z")
_VERSION = 2  # 1: what no tree may hold stayed on disk
# files; an index that is behind is still true, and whoever opens it reads so many again
_UNSAVED_MAX = 256


class Plain(NamedTuple):
    """All files in one folder."""

    folder: Path


class Layered(NamedTuple):
    """What an overlay is mounted from."""

    lower: Path
    upper: Path
    work: Path


# ── what is remembered of a copy ─────────────────────────────────────────────────────────────


class _Absent(msgspec.Struct, frozen=True):
    path: bytes
    mode: int
    size: int
    blob: Digest


class _State(msgspec.Struct, frozen=True):
    """What a copy holds when it is clean."""

    tree: Digest
    base: Digest | None  # None: it is plain
    boot: str
    generation: int
    absent: tuple[_Absent, ...] = ()
    version: int = _VERSION


def _absent_of(entries: Mapping[str, Entry]) -> tuple[_Absent, ...]:
    return tuple(
        _Absent(os.fsencode(path), entry.mode, entry.size, entry.blobs[0])
        for path, entry in sorted(entries.items())
    )


def _entries_of(absent: tuple[_Absent, ...]) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for each in absent:
        path = os.fsdecode(each.path)
        found[path] = Entry(path.rpartition("/")[2], "withheld", each.mode, each.size, (each.blob,))
    return found


class CopyInfo(msgspec.Struct, frozen=True):
    """One copy that exists, as people are told of it."""

    name: str
    tree: Digest
    base: Digest | None  # None: it is plain
    in_doubt: bool
    in_use: bool
    generation: int


# ── one copy ─────────────────────────────────────────────────────────────────────────────────


class _Pending:
    """The store, and what a snapshot found that may not be in it yet."""

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

    ours = True  # whether the files were made by us, and their modes may be changed for a moment

    def __init__(
        self,
        store: Store,
        home: Path,
        layers: Plain | Layered,
        state: _State,
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
        self.has_odd = True  # until a snapshot says that there is nothing of the kind
        self._absent = _entries_of(state.absent)
        self._pending = _Pending(store)
        self._reader = TreeReader(self._pending)

    @property
    def tree(self) -> Digest:
        """What it holds when it is clean."""
        return self._state.tree

    @property
    def base(self) -> Digest | None:
        """The tree of the lower folder. None: it is plain."""
        return self._state.base

    @property
    def generation(self) -> int:
        """How often it was built anew."""
        return self._state.generation

    @property
    def in_doubt(self) -> bool:
        return (self._home / "doubt").exists()

    def begin(self) -> None:
        """Something is about to change files."""
        os.close(os.open(self._home / "doubt", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._open_up()

    def _open_up(self) -> None:
        """The mode of the root is in no tree: what a command makes of it must not outlast the
        command.
        """
        for folder in (self._root, self.scratch):
            with suppress(FileNotFoundError):
                folder.chmod(0o755)

    def snapshot(self, mounted: str | None = None, points: Collection[str] = ()) -> Snapshot:
        """What the files are now; from then on the copy is clean. Takes as long as there are
        changes, or files if it is plain.

        `mounted`: where the two layers are mounted as one at this moment, by a process that stays;
        None: nowhere. `points`: paths at which folders of the user are mounted for commands; an
        empty folder stays there.
        """
        self.begin()
        sink = Sink(self._store)
        found = self._scan(sink)
        kept = {
            digest: self._pending.blobs[digest]
            for digest in self._store.missing_blobs(self._pending.blobs)
        }
        # those of a snapshot that nobody recorded are needed still
        self._pending.blobs = {**kept, **sink.waiting}
        changed, more = self._changed(found.tree)
        self._index, self._unsaved = found.seen, self._unsaved + found.read
        self.has_odd = bool(found.skipped)
        self._absent = {
            path: entry
            for path, entry in self._absent.items()
            if self._reader.find(found.tree, path) == entry
        }
        dropped = self._drop_unrecorded(found, mounted, points)
        self._settle(found.tree)
        withheld = {*found.withheld, *map(shown, self._absent)}
        return Snapshot(
            found.tree,
            dict(self._pending.blobs),
            changed,
            more,
            tuple(sorted(withheld)),
            found.skipped,
            dropped,
        )

    def _drop_unrecorded(
        self, found: Found, mounted: str | None, points: Collection[str]
    ) -> tuple[str, ...]:
        """Remove all that the tree does not hold, and return the paths of what is in no tree."""
        self._empty_scratch()
        withheld = _withheld_in(found.seen) if found.withheld else {}
        if not found.left_out and not withheld:
            return ()
        # Behind the back of a mount a removed file would still be there for who looked at it
        # before.
        with disk.held(_open_mounted(mounted) or disk.open_root(self._root)) as root:
            dropped = [
                path
                for path in found.left_out
                if self._drop(root, path, layered=mounted is None, is_point=path in points)
            ]
            for path, entry in withheld.items():
                self._drop(root, path, layered=mounted is None)
                # whoever opens the copy next finds what every other copy of the tree has
                self._absent[path] = entry
        return tuple(sorted(secrets.hide_text(shown(path)) for path in dropped))

    def _drop(self, root: int, path: str, *, layered: bool, is_point: bool = False) -> bool:
        """Remove what is at a path, so that the lower layer does not show there either, and return
        whether something was.
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
        changes = list(differing(self._reader, self.tree, tree))
        with disk.held(disk.open_root(self._root)) as root:
            if self.has_odd:
                self._clear_skipped(root)
            Turn(self._reader).run(root, self.tree, tree, self.base)
        for change in changes:
            self._absent.pop(change.path, None)
            if change.after is not None and change.after.kind == "withheld":
                self._absent[change.path] = change.after
        self._settle(tree)

    def _clear_skipped(self, root: int) -> None:
        """Pipes, sockets and devices are in no tree, so no difference of trees
        would remove them.
        """
        layered = isinstance(self.layers, Layered)
        with disk.writable(root):
            disk.clear_odd(root, keep_whiteouts=layered)
        self.has_odd = False

    def discard(self) -> None:
        """Remove it from this disk, and let go of it."""
        self.begin()
        disk.remove_folder(self._home)
        self.close()

    def close(self) -> None:
        """Let go of it; what is on disk stays."""
        if self._unsaved and self._home.is_dir():
            self.save_index()
        self._lock.release()

    @property
    def _root(self) -> Path:
        return self.layers.folder if isinstance(self.layers, Plain) else self.layers.upper

    def _scan(self, sink: Sink, threads: int = 0) -> Found:
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
        with disk.held(disk.open_root(self._root)) as root:
            return scan.run(root, self.base)

    def _changed(self, tree: Digest) -> tuple[tuple[str, ...], int]:
        paths = sorted(shown(change.path) for change in differing(self._reader, self.tree, tree))
        return tuple(paths[:CHANGED_MAX]), max(len(paths) - CHANGED_MAX, 0)

    def save_index(self) -> None:
        _write(self._home / "index", pack_index(self._index, self._rules))
        self._unsaved = 0

    def _settle(self, tree: Digest) -> None:
        if self._unsaved > _UNSAVED_MAX:
            self.save_index()
        self._state = msgspec.structs.replace(
            self._state, tree=tree, boot=_boot(), absent=_absent_of(self._absent)
        )
        _write(self._home / "state", msgspec.json.encode(self._state))
        (self._home / "doubt").unlink(missing_ok=True)

    def make_scratch(self, name: str) -> str:
        """An empty scratch folder for a process that stays.

        Commands do not see it, nor it theirs.
        """
        place = _scratch_of(name)
        with disk.held(disk.open_root(self._home)) as home:
            disk.empty_folder(home, place)
        return str(self._home / place)

    def remove_scratch(self, name: str) -> None:
        disk.remove_folder(self._home / _scratch_of(name))

    def _empty_scratch(self) -> None:
        with disk.held(disk.open_root(self._home)) as home:
            disk.empty_folder(home, self.scratch.name)

    def __repr__(self) -> str:
        return f"<Copy {self.name} of {self.tree[:12]}>"


def _scratch_of(name: str) -> str:
    return f"scratch-{sha256(os.fsencode(name)).hexdigest()[:8]}"


class InPlace(Copy):
    """The folder itself. There is no way back: it is scanned, and never switched."""

    ours = False

    def _open_up(self) -> None:
        """The folder's mode is its owner's."""

    def _drop_unrecorded(
        self, found: Found, mounted: str | None, points: Collection[str]
    ) -> tuple[str, ...]:
        """What the rules leave out is the owner's."""
        self._empty_scratch()
        return ()

    def switch(self, tree: Digest) -> None:
        raise NotSupported(
            "a folder in place",
            "be made another tree",
            "place a copy: session.to('local', folder) without in_place",
        )

    def discard(self) -> None:
        """What is remembered of the folder goes; the folder stays."""
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
    """The copy of this name with the files of this tree: the one that is there, switched if need
    be, or one made anew.

    `base`: the tree whose files lie in the lower folder if it is made anew; None: the tree itself.
    """
    home = _home(cache, name)
    lock = Lock(home.with_name(f"{home.name}.lock"), name)
    try:
        found = _reused(store, cache, home, tree, layered, rules, lock)
        return found or _built(
            store, cache, home, tree, base or tree if layered else None, rules, lock
        )
    except BaseException:
        lock.release()
        raise


def _reused(
    store: Store, cache: Path, home: Path, tree: Digest, layered: bool, rules: Rules, lock: Lock
) -> Copy | None:
    """The copy as it stands, if it can be trusted.

    None: it is not there, in doubt, from another boot, or damaged.
    """
    state = _read_state(home)
    if (
        state is None
        or state.boot != _boot()
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
        # What the last process found and nobody recorded is not in the store: then all of it is
        # read anew.
        index = _present(store, unpack_index((home / "index").read_bytes(), rules))
        copy = Copy(store, home, layers, state, index, rules, lock)
        if not all(folder.is_dir() for folder in (*layers, copy.scratch)):
            return None
        if tree != copy.tree:
            copy.switch(tree)
        return copy
    # whatever is wrong with it, it can be made again
    except (OSError, UnknownBlob, StoreCorrupt, msgspec.MsgspecError):
        return None


def _built(
    store: Store,
    cache: Path,
    home: Path,
    tree: Digest,
    base: Digest | None,
    rules: Rules,
    lock: Lock,
) -> Copy:
    state = _read_state(home)
    generation = state.generation + 1 if state else 1 if home.exists() else 0
    disk.remove_folder(home)
    for name in ("scratch", *(("upper", "work") if base else ("files",))):
        (home / name).mkdir(parents=True)
    (home / "doubt").touch()
    if base:
        lower = base_of(store, cache, base)
        layers: Plain | Layered = Layered(lower.folder, home / "upper", home / "work")
        state, index = _State(base, base, _boot(), generation, lower.absent), Index()
    else:
        placed = checkout(store, tree, home / "files")
        layers, index = Plain(home / "files"), placed.seen
        state = _State(tree, None, _boot(), generation, _absent_of(placed.absent))
    copy = Copy(store, home, layers, state, index, rules, lock)
    copy.has_odd = False  # nobody was there yet
    copy.save_index()
    copy.switch(tree)  # leaves it clean
    return copy


def open_in_place(store: Store, cache: Path, folder: Path, rules: Rules = USUAL) -> InPlace:
    """The folder itself as a copy.

    What it holds is scanned now, and in the store when this returns.
    """
    home = _folder_home(cache, folder)
    lock = Lock(home.with_name(f"{home.name}.lock"), str(folder))
    try:
        (home / "scratch").mkdir(parents=True, exist_ok=True)
        state = _State(EMPTY, None, _boot(), 0)
        copy = InPlace(
            store,
            home,
            Plain(Path(os.path.realpath(folder))),
            state,
            _present(store, _read_index(home, rules)),
            rules,
            lock,
        )
        store.put_blobs(copy.snapshot().blobs)
        return copy
    except BaseException:
        lock.release()
        raise


def list_copies(cache: Path) -> list[CopyInfo]:
    """Those that exist, by name."""
    found: list[CopyInfo] = []
    for home in sorted((cache / "copies").glob("*")):
        state = _read_state(home) if home.is_dir() else None
        if home.is_dir():
            doubt = (home / "doubt").exists() or state is None or state.boot != _boot()
            tree, base, generation = (
                (state.tree, state.base, state.generation) if state else (EMPTY, None, 0)
            )
            found.append(
                CopyInfo(
                    home.name,
                    tree,
                    base,
                    doubt,
                    Lock.is_held(home.with_name(f"{home.name}.lock")),
                    generation,
                )
            )
    return found


# ── the first snapshot of a folder ───────────────────────────────────────────────────────────


def snapshot_folder(
    store: Store, folder: Path, rules: Rules = USUAL, cache: Path | None = None
) -> Snapshot:
    """What is in a folder now, all of it in the store when this returns.

    What is remembered from the last time is not read again.
    """
    home = _folder_home(cache_folder(store) if cache is None else cache, folder)
    home.mkdir(parents=True, exist_ok=True)
    index = _present(store, _read_index(home, rules))
    sink = Sink(store)
    with disk.held(_open_users(folder)) as root:
        found = Scan(sink, rules, index, reader=TreeReader(store), threads=THREADS, ours=False).run(
            root
        )
    sink.flush()
    _write(home / "index", pack_index(found.seen, rules))
    return Snapshot(found.tree, {}, withheld=found.withheld, skipped=found.skipped)


def _open_users(folder: Path) -> int:
    """A handle on a folder of the user, unless its owner locked it."""
    try:
        handle = disk.open_root(folder)
    except PermissionError as error:
        raise WorkspaceError(
            f"{str(folder)!r} may not be read: {error.strerror}. Look at its mode and its owner."
        ) from error
    if disk.is_locked(os.fstat(handle).st_mode):
        os.close(handle)
        raise WorkspaceError(
            f"{str(folder)!r} may not be read: its owner locked it. Look at its mode."
        )
    return handle


def _open_mounted(path: str | None) -> int | None:
    """None: nothing is mounted, or the process that had it mounted has just ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return disk.open_root(path) if path is not None else None
    return None


def _withheld_in(index: Index) -> dict[str, Entry]:
    return {
        f"{folder}/{name}" if folder else name: each.entry
        for folder, (_, seen, *_) in index.items()
        for name, each in seen.items()
        if each.entry.kind == "withheld"
    }


def _present(store: Store, index: Index) -> Index:
    """The index, if the store still has all that it speaks of."""
    blobs = {
        blob
        for _, seen, *_ in index.values()
        for each in seen.values()
        if each.entry.kind == "file"
        for blob in each.entry.blobs
    }
    trees = {tree for tree, *_ in index.values() if tree not in (None, EMPTY)}
    return {} if store.missing_blobs(blobs | trees) else index


# ── bases ────────────────────────────────────────────────────────────────────────────────────


class Base(NamedTuple):
    """A tree checked out once, never to be changed."""

    folder: Path
    absent: tuple[_Absent, ...]


class _Made(msgspec.Struct, frozen=True):
    boot: str
    absent: tuple[_Absent, ...]


def base_of(store: Store, cache: Path, tree: Digest) -> Base:
    """The lower folder of a tree; checked out now if it is not there, or was written before the
    machine was started.
    """
    bases = cache / "bases"
    bases.mkdir(parents=True, exist_ok=True)
    home = bases / tree
    made = _read_made(home)
    if made is None:
        with _only_one(bases / ".lock"):
            made = _read_made(home) or _make_base(store, bases, home, tree)
    return Base(home / "files", made.absent)


def _make_base(store: Store, bases: Path, home: Path, tree: Digest) -> _Made:
    making = bases / f".making-{tree}"
    disk.remove_folder(making)
    disk.remove_folder(home)
    placed: Placed = checkout(store, tree, making / "files")
    made = _Made(_boot(), _absent_of(placed.absent))
    _write(making / "made", msgspec.json.encode(made))
    making.rename(home)
    return made


def _read_made(home: Path) -> _Made | None:
    try:
        made = msgspec.json.decode((home / "made").read_bytes(), type=_Made)
    except (OSError, msgspec.MsgspecError):
        return None
    return made if made.boot == _boot() and (home / "files").is_dir() else None


# ── where things are ─────────────────────────────────────────────────────────────────────────


@cached
def _boot() -> str:
    """Says whether the machine was started since: what was not synced may be lost then."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


_temporary: dict[str, Path] = {}
_temporary_lock = threading.Lock()


def cache_folder(store: Store) -> Path:
    """Where the copies of a store lie: beside it, or for one in memory in a folder that goes with
    the process.
    """
    if store.folder is not None:
        return store.folder / "work"
    address = store.address
    with _temporary_lock:
        if address not in _temporary:
            folder = _temporary[address] = Path(tempfile.mkdtemp(prefix="plait-"))
            atexit.register(_remove_temporary, folder, os.getpid())
        return _temporary[address]


def _remove_temporary(folder: Path, process: int) -> None:
    if os.getpid() == process:  # not in a process that was forked off
        try:
            disk.remove_folder(folder)
        except (OSError, PlaitError):
            shutil.rmtree(folder, ignore_errors=True)


def _home(cache: Path, name: str) -> Path:
    (cache / "copies").mkdir(parents=True, exist_ok=True)
    good = _NAME.match(name) is not None and not name.endswith(".lock")
    return cache / "copies" / (name if good else sha256(os.fsencode(name)).hexdigest())


def _folder_home(cache: Path, folder: Path) -> Path:
    (cache / "folders").mkdir(parents=True, exist_ok=True)
    return cache / "folders" / sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:32]


def _read_state(home: Path) -> _State | None:
    try:
        state = msgspec.json.decode((home / "state").read_bytes(), type=_State)
    except (OSError, msgspec.MsgspecError):
        return None
    return state if state.version == _VERSION else None


def _read_index(home: Path, rules: Rules) -> Index:
    try:
        return unpack_index((home / "index").read_bytes(), rules)
    except (OSError, StoreCorrupt, msgspec.MsgspecError):
        return {}


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all. Not synced: nothing of it outlives the boot."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    temporary.write_bytes(content)
    temporary.replace(path)


# ── locks ────────────────────────────────────────────────────────────────────────────────────


class Lock:
    """One process at a time; it ends with the process."""

    def __init__(self, path: Path, name: str) -> None:
        self._handle: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            raise SandboxBusy("local", name) from error

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @staticmethod
    def is_held(path: Path) -> bool:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        with disk.held(handle):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
            return False


@contextmanager
def _only_one(path: Path) -> Generator[None]:
    with disk.held(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
