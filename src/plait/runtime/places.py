"""The sandboxes that this process has in hand, by session.

A session only records where it is placed and what its files were; the live handle is kept here,
found by the session's id. A tool that takes a sandbox is lent one for the time of its call: before
it begins, the files are those of the session's tree, whatever was left there by a call that nobody
heard of; after it, they are recorded again. A handle that cannot be trusted any more (a call was
left behind in it) is given up, and the next call gets another from the recorded tree.
"""

from __future__ import annotations

import atexit
import codecs
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Lock, RLock
from typing import Any, NamedTuple, cast

import msgspec

from plait.errors import (
    InvalidValue,
    NotPlaced,
    NotSupported,
    PlaitError,
    SandboxBusy,
    SandboxFailed,
    SandboxGone,
)
from plait.event import Json
from plait.event.kinds import Bypassed, Placement, PlacementChanged, Trees
from plait.event.kinds import File as FilePart
from plait.ids import Digest, LogId, digest
from plait.sandbox import Backend, Limits, OnOutput, Output, Ran, Sandbox, Wanted, backend
from plait.sandbox.resident import Hosts, Resident
from plait.secrets import HiddenPieces
from plait.session import Session
from plait.session.ports import store_at
from plait.store import Store
from plait.workspace import EMPTY, EMPTY_BYTES, HEAVY, Entry, Files, Snapshot

WAIT_S = 600.0  # for another call on the same session
KEPT = 64  # handles; the one that was not used for longest is let go first

# ── what a placement says ────────────────────────────────────────────────────────────────────


def detail_of(placement: Placement | None) -> Mapping[str, Any]:
    found = placement.detail if placement is not None else None
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


def wanted_of(store: Store, key: str, tree: Digest, placement: Placement) -> Wanted:
    detail = detail_of(placement)
    return Wanted(
        store=store,
        key=key,
        tree=tree,
        isolation=detail.get("isolation", ""),
        network="on" if placement.network == "on" else "off",
        limits=msgspec.convert(detail.get("limits", {}), Limits),
        env=environment(detail.get("env", {})),
        base=detail.get("base"),
        folder=detail.get("folder"),
        heavy=tuple(detail.get("heavy", ())),
        heavy_names=tuple(detail.get("heavy_names", HEAVY)),
        ignore=tuple(detail.get("ignore", ())),
        in_place=bool(detail.get("in_place")),
        clean=bool(detail.get("clean")),
        image=placement.image,
        options=detail.get("options", {}),
    )


def environment(given: Any) -> dict[str, str]:
    """Variables by value, or, in a list, by name: then the value is this process's, and is not on
    record.
    """
    if isinstance(given, Mapping):
        return {str(name): str(value) for name, value in cast("Mapping[str, Any]", given).items()}
    return {name: os.environ[name] for name in cast("Sequence[str]", given) if name in os.environ}


def _key_of(log: LogId, placement: Placement) -> str:
    """What a sandbox of this session is called by: in a clean place it is another one, in place it
    is the folder's.
    """
    detail = detail_of(placement)
    if detail.get("in_place"):
        return f"in-place-{digest(b'plait/folder/1', str(detail.get('folder')).encode('utf-8', 'surrogateescape'))[:16]}"  # noqa: E501
    clean = detail.get("clean")
    return f"{log}-{clean}" if clean else log


# ── one call ─────────────────────────────────────────────────────────────────────────────────


class Worked(NamedTuple):
    """What is recorded of a sandbox after a call in it."""

    trees: Trees | None = None
    placement: Placement | None = None
    blobs: Mapping[Digest, bytes] = {}
    before: Sequence[PlacementChanged | Bypassed] = ()  # what is recorded with it, ahead of it
    since: Digest | None = None  # the session's tree when the call began


class Site:
    """Where the tool calls of one batch run, one after another: each begins with the files that the
    one before it left.
    """

    def __init__(self, session: Session, listener: Callable[[str], object] | None = None) -> None:
        # who is told what commands write, as they write it
        self._session, self._listener = session, listener
        self._now: tuple[Placement, Digest] | None = None  # None: as the session says
        self._visit: Visit | None = None

    def enter(self) -> Visit:
        placement, tree = self.now
        self._visit = Visit(self, _hands.take(self._session, placement, tree), self._listener)
        return self._visit

    def left(self, placement: Placement, tree: Digest) -> None:
        self._now, self._visit = (placement, tree), None

    def abandon(self) -> None:
        """The call was left behind: what it may still do happens to files that are nobody's."""
        if self._visit is not None:
            self._visit.abandon()

    @property
    def now(self) -> tuple[Placement, Digest]:
        if self._now is None:
            placement = self._session.files.placement
            if placement is None:
                raise NotPlaced(self._session.short)
            self._now = placement, self._session.files.tree or EMPTY
        return self._now


class Visit:
    """One call in a sandbox."""

    def __init__(self, site: Site, hand: Hand, hear: Callable[[str], object] | None) -> None:
        self._site, self._hand = site, hand
        self.sandbox = Lent(hand.sandbox, hear)

    def leave(self) -> Worked:
        """What the call did to the files. Whoever still has the sandbox cannot use it any more."""
        self.sandbox.revoke()
        hand = self._hand
        try:
            if not hand.trusted:
                return Worked()  # nobody waits for it any more
            if self.sandbox.broken:
                hand.give_up()
                return Worked()
            if self.sandbox.running:
                step = "wait for it before the tool returns"
                raise SandboxFailed(
                    hand.sandbox.placement.backend,
                    "be given back",
                    "a command still runs in it",
                    step,
                )
            return self._told(hand, hand.record(self.sandbox.touched))
        except Exception:
            hand.give_up()
            raise
        finally:
            hand.give_back()

    def _told(self, hand: Hand, found: Snapshot) -> Worked:
        placed, since = self._site.now
        after = _described(hand.sandbox.placement, placed, hand.key)
        news: list[PlacementChanged | Bypassed] = []
        if after != placed:
            news.append(PlacementChanged(after, hand.before, hand.replaced))
        if hand.strayed is not None:
            news.append(hand.strayed)
        trees, blobs = Trees(hand.before, found.tree, found.changed), {**hand.blobs, **found.blobs}
        hand.settled()
        self._site.left(after, found.tree)
        return Worked(
            trees, msgspec.structs.replace(after, detail=_more(found)), blobs, news, since
        )

    def abandon(self) -> None:
        self.sandbox.revoke()
        self._hand.give_up()


def _more(found: Snapshot) -> Json:
    """What is to be said of a tree besides: what is not in it."""
    said: dict[str, Json] = {}
    for name, paths in (
        ("withheld", found.withheld),
        ("skipped", found.skipped),
        ("dropped", found.dropped),
    ):
        if paths:
            said[name] = list(paths[:100])
    if found.more:
        said["more"] = found.more
    return said or None


def _described(now: Placement, before: Placement, key: str) -> Placement:
    """The placement as it is, with what was asked for when it was placed, and whose it is."""
    told = {**detail_of(before), **detail_of(now), "key": key}
    return msgspec.structs.replace(now, detail=told)


class Lent:
    """A sandbox for the time of one call: notices whether files may have changed."""

    def __init__(self, sandbox: Sandbox, hear: Callable[[str], object] | None = None) -> None:
        self._sandbox: Sandbox | None = sandbox
        self._hear = hear
        self._begun = False
        self.broken = False  # whether it turned out to be gone
        self.running = 0  # commands
        self._files = _LentFiles(self)

    def revoke(self) -> None:
        self._sandbox = None

    @property
    def touched(self) -> bool:
        return self._begun

    def now(self) -> Sandbox:
        if self._sandbox is None:
            raise SandboxFailed(
                "plait",
                "be used",
                "the call it was lent for is over",
                "use the sandbox only while the tool runs",
            )
        return self._sandbox

    def touch(self) -> Sandbox:
        sandbox = self.now()
        if not self._begun:
            with self.noticing():
                sandbox.begin()
            self._begun = True
        return sandbox

    @contextmanager
    def noticing(self) -> Generator[None]:
        """A sandbox that is gone, or whose files are, is not lent again: the next call gets another
        from the recorded tree.
        """
        try:
            yield
        except (OSError, SandboxGone) as error:
            self.broken = True
            if isinstance(error, SandboxGone) or self._sandbox is None:
                raise
            raise SandboxGone(
                self._sandbox.placement.backend, self._sandbox.placement.sandbox
            ) from error

    @property
    def placement(self) -> Placement:
        return self.now().placement

    @property
    def workdir(self) -> str:
        return self.now().workdir

    @property
    def files(self) -> Files:
        return self._files

    def exec(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        on_output: OnOutput | None = None,
    ) -> Ran:
        if isinstance(command, (str, bytes)):
            raise InvalidValue(
                "command", "it is one text, not a list of words", "pass ['sh', '-c', 'ls -R']"
            )
        heard = (
            _Heard(self._hear, on_output)
            if self._hear is not None or on_output is not None
            else None
        )
        self.running += 1
        try:
            with self.noticing():
                ran = self.touch().exec(
                    command, stdin=stdin, cwd=cwd, env=env, limits=limits, on_output=heard
                )
            if heard is not None:
                heard.end()
            return ran
        finally:
            self.running -= 1

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Resident:
        sandbox = self.touch()
        if not isinstance(sandbox, Hosts):
            raise NotSupported(
                sandbox.placement.backend,
                "keep a process between calls",
                "place the session with .to('local', …)",
            )
        return sandbox.start(name, command, cwd=cwd, env=env)

    def resident(self, name: str) -> Resident | None:
        sandbox = self.now()
        found = sandbox.resident(name) if isinstance(sandbox, Hosts) else None
        if found is not None:
            self.touch()  # a process that is talked to may change files
        return found

    def keep(self, output: Output, name: str, media_type: str = "text/plain") -> FilePart:
        return self.now().keep(output, name, media_type)

    def begin(self) -> None:
        self.touch()

    def snapshot(self) -> Snapshot:
        return self.now().snapshot()

    def restore(self, tree: Digest) -> None:
        self.touch().restore(tree)

    def fork(self, wanted: Wanted) -> Sandbox:
        return self.now().fork(wanted)

    def pause(self) -> None:
        self.now().pause()

    def resume(self) -> None:
        self.now().resume()

    def renew(self, seconds: float) -> None:
        self.now().renew(seconds)

    def destroy(self) -> None:
        raise SandboxFailed(
            "plait", "be destroyed", "a tool has it on loan only", "end it with `plait sandbox rm`"
        )

    def close(self) -> None:
        """Whoever lent it lets go of it."""


class _Heard:
    """Tells listeners what a command writes, as it comes and without secrets, also where one lies
    across two pieces.

    The listener of a run gets text, and the caller of `exec` bytes; pieces of a character wait for
    the rest.
    """

    def __init__(self, hear: Callable[[str], object] | None, on_output: OnOutput | None) -> None:
        self._hear, self._on_output = hear, on_output
        # bytes that are no text come back as they are
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._pieces = HiddenPieces()

    def __call__(self, piece: bytes) -> None:
        self._show(self._pieces.feed(self._decoder.decode(piece)))

    def end(self) -> None:
        """Tell what was held back: nothing more will come."""
        self._show(self._pieces.feed(self._decoder.decode(b"", final=True)) + self._pieces.end())

    def _show(self, text: str) -> None:
        if not text:
            return
        data = text.encode("utf-8", "surrogateescape")
        if self._hear is not None:
            self._hear(data.decode("utf-8", "replace"))
        if self._on_output is not None:
            self._on_output(data)


class _LentFiles:
    def __init__(self, lent: Lent) -> None:
        self._lent = lent

    def entry(self, path: str) -> Entry:
        with self._lent.noticing():
            return self._lent.now().files.entry(path)

    def read(self, path: str, *, offset: int = 0, size: int | None = None) -> bytes:
        with self._lent.noticing():
            return self._lent.now().files.read(path, offset=offset, size=size)

    def list(self, path: str = "") -> Sequence[Entry]:
        with self._lent.noticing():
            return self._lent.now().files.list(path)

    def write(self, path: str, content: bytes, *, mode: int | None = None) -> None:
        with self._lent.noticing():
            self._lent.touch().files.write(path, content, mode=mode)

    def remove(self, path: str) -> None:
        with self._lent.noticing():
            self._lent.touch().files.remove(path)

    def make_folder(self, path: str) -> None:
        with self._lent.noticing():
            self._lent.touch().files.make_folder(path)

    def link(self, path: str, target: str) -> None:
        with self._lent.noticing():
            self._lent.touch().files.link(path, target)

    def chmod(self, path: str, mode: int) -> None:
        with self._lent.noticing():
            self._lent.touch().files.chmod(path, mode)


# ── the handles ──────────────────────────────────────────────────────────────────────────────


class Hand:
    """A live sandbox and what is known of its files."""

    def __init__(
        self,
        key: str,
        sandbox: Sandbox,
        tree: Digest | None,
        in_place: bool,
        replaced: str = "",
        *,
        passing: bool = False,
    ) -> None:
        self.key, self.sandbox, self.in_place, self.replaced = key, sandbox, in_place, replaced
        self._passing = passing and not in_place  # whether it ends with this process
        self.tree = tree  # None: nobody knows
        self._place: int | None = None  # of the session when a call last began here; None: none did
        self.trusted = True
        self._lock = Lock()
        self.before = tree or EMPTY
        self.blobs: Mapping[Digest, bytes] = {EMPTY: EMPTY_BYTES} if tree == EMPTY else {}
        self.strayed: Bypassed | None = None  # what somebody else changed in place

    def take(self) -> None:
        """Wait until no other call has it. A tool that has it already would wait for itself."""
        if self in _mine.get() or not self._lock.acquire(timeout=WAIT_S):
            why = (
                "the tool that asks for it has it already"
                if self in _mine.get()
                else f"another call has had it for {WAIT_S:g} s"
            )
            raise SandboxFailed(
                self.sandbox.placement.backend,
                "be lent twice",
                why,
                "use the sandbox that the tool was given",
            )
        _mine.set(_mine.get() | {self})

    def give_back(self) -> None:
        _mine.set(_mine.get() - {self})
        self._lock.release()

    def record(self, touched: bool) -> Snapshot:
        if not touched:
            return Snapshot(self.before, {})
        found = self.sandbox.snapshot()
        self.tree = found.tree
        return found

    def follow(self, session: Session) -> None:
        """After a rewind the files are put in place anew, also if the tree is the same: what a
        process that stays did is undone, too.
        """
        if self._place is not None:
            since = store_at(session.store).read(
                session.id, self._place + 1, session.seq, kinds=("Rewound",)
            )
            self.tree = None if next(since, None) is not None else self.tree
        self._place = session.seq

    def ready(self, tree: Digest) -> None:
        """Make the files those of this tree; in place nothing is undone, and what
        differs is told.
        """
        self.before = tree
        if not self.in_place:
            if self.tree != tree:
                self.sandbox.begin()
                self.sandbox.restore(tree)
                self.tree = tree
            return
        found = self.sandbox.snapshot()
        self.tree = found.tree
        if found.tree != tree:
            told: dict[str, Json] = {
                "before": tree,
                "after": found.tree,
                "changed": list(found.changed[:100]),
            }
            self.before, self.blobs = found.tree, {**self.blobs, **found.blobs}
            self.strayed = Bypassed("workspace", told)

    def settled(self) -> None:
        self.replaced, self.strayed, self.blobs = "", None, {}

    def give_up(self) -> None:
        self.trusted = False

    def let_go(self) -> None:
        with suppress(PlaitError, OSError):
            self.sandbox.destroy() if self._passing else self.sandbox.close()


class Hands:
    def __init__(self) -> None:
        self._held: dict[tuple[str, str], Hand] = {}
        self._lock = RLock()
        self._apart = 0

    def take(self, session: Session, placement: Placement, tree: Digest) -> Hand:
        """The sandbox of a session, with the files of this tree, locked for one call."""
        while True:
            hand = self._find(session, placement, tree)
            hand.take()
            try:
                if hand.trusted:
                    hand.follow(session)
                    hand.ready(tree)
                    return hand
            except BaseException:
                hand.give_up()
                hand.give_back()
                raise
            hand.give_back()

    def _find(self, session: Session, placement: Placement, tree: Digest) -> Hand:
        key = _key_of(session.id, placement)
        name = session.store, f"{placement.backend}/{key}"
        with self._lock:
            hand = self._held.pop(name, None)
            if hand is None or not hand.trusted:
                hand = self._open(session, placement, key, tree, after=hand)
            self._held[name] = hand  # the last one used is the last one
            for other in list(self._held)[:-KEPT]:
                self._held.pop(other).let_go()
            return hand

    def _open(
        self, session: Session, placement: Placement, key: str, tree: Digest, *, after: Hand | None
    ) -> Hand:
        """The recorded sandbox if it is this session's and still there, else another.

        `after` is one that is not trusted any more.
        """
        store, chosen = store_at(session.store), backend(placement.backend)
        wanted = wanted_of(store, key, tree, placement)
        mine = placement.sandbox and detail_of(placement).get("key") == key and after is None
        replaced = placement.sandbox if after is not None else ""
        try:
            if mine:
                return Hand(key, chosen.attach(placement, wanted), None, wanted.in_place)
        except SandboxGone:
            replaced = placement.sandbox
        except SandboxBusy:
            return self._aside(chosen, wanted, key, replaced)
        if after is None:
            with suppress(SandboxBusy):
                return Hand(key, chosen.create(wanted), tree, wanted.in_place, replaced)
        return self._aside(chosen, wanted, key, replaced)

    def _aside(self, chosen: Backend, wanted: Wanted, key: str, replaced: str) -> Hand:
        """Another process works there, or a call was left behind in it: this one gets files of its
        own, for as long as it lives.
        """
        self._apart += 1
        apart = msgspec.structs.replace(wanted, key=f"{key}.{os.getpid()}.{self._apart}")
        return Hand(key, chosen.create(apart), wanted.tree, wanted.in_place, replaced, passing=True)

    def make(self, session: Session, placement: Placement, tree: Digest) -> Placement:
        """Make a sandbox at once, for a session that is about to be placed there; returns the
        placement as it then is.
        """
        key = _key_of(session.id, placement)
        wanted = wanted_of(store_at(session.store), key, tree, placement)
        hand = Hand(key, backend(placement.backend).create(wanted), tree, wanted.in_place)
        with self._lock:
            before = self._held.pop((session.store, f"{placement.backend}/{key}"), None)
            self._held[session.store, f"{placement.backend}/{key}"] = hand
        if before is not None:
            before.let_go()
        return _described(hand.sandbox.placement, placement, key)

    def drop(self, store: str | None = None) -> None:
        """Let go of all handles, or those of a store; the sandboxes stay."""
        with self._lock:
            for name in [name for name in self._held if store in (None, name[0])]:
                self._held.pop(name).let_go()


# those that this very call has on loan
_mine: ContextVar[frozenset[Hand]] = ContextVar("plait_sandboxes", default=frozenset())


_hands = Hands()


def drop_hands() -> None:
    """Let go of every sandbox; the next call takes it up again, as another process would."""
    _hands.drop()


def make_now(session: Session, placement: Placement, tree: Digest) -> Placement:
    return _hands.make(session, placement, tree)


# those of this process: a forked child has none of its parent's
atexit.register(lambda: _hands.drop())


def _forget() -> None:
    """In a forked child: the sandboxes are the parent's."""
    global _hands
    _hands = Hands()


os.register_at_fork(after_in_child=_forget)
