"""The event that wrote each line of a file: its versions along a story, and the lines of each.

Every event that left a tree is a version of the file, after the one before it in its log; a merge
comes after one version of each of its branches, and so does the outcome of an agent as a tool whose
files were taken. A line belongs to the first version that has it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from posixpath import normpath

import msgspec

from plait.errors import NoSuchFile, NotAFile, NotPlaced, OutsideWorkspace
from plait.event import Event
from plait.event.kinds import ForkedFrom, Merged, ToolFailed, ToolRequested, ToolReturned
from plait.ids import Digest, LogId, Micros, short
from plait.session.events import path_events
from plait.session.files import TREE_KINDS, tree_left_by
from plait.session.fold import state_at
from plait.session.ports import notebook_html
from plait.session.state import State
from plait.store import Store
from plait.workspace.base import CHANGED_MAX, TreeEntry
from plait.workspace.blame import FileVersion, attribute
from plait.workspace.tree import TreeReader, shown_path

_KINDS = TREE_KINDS | {ToolRequested.__name__}


class Line(msgspec.Struct, frozen=True):
    """One line of a file and the event that wrote it."""

    number: int
    text: str
    event: Digest
    log: LogId
    seq: int
    kind: str
    actor: str
    time: Micros
    tool: str = ""  # "": not written by a tool, but by a placement or a merge
    branch: str = ""  # the merged branch it came with; "": the session's own path

    def __str__(self) -> str:
        return (
            f"{short(self.log)}@{self.seq:<5} {self.tool or self.kind:<16.16} {self.actor:<20.20}"
            f" {self.number:>5}  {self.text}"
        )


class Blame(msgspec.Struct, frozen=True):
    """A file, line by line, with the event behind each."""

    path: str
    lines: tuple[Line, ...]

    def __len__(self) -> int:
        return len(self.lines)

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def __getitem__(self, number: int) -> Line:
        """Return a line by its number, from 1 on, as editors count."""
        if not 1 <= number <= len(self.lines):
            raise IndexError(f"{self.path} has {len(self.lines)} lines, so no line {number}")
        return self.lines[number - 1]

    def _repr_html_(self) -> str | None:
        return notebook_html(self)

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines))


class _RecordedTree(msgspec.Struct):
    """A tree that an event left, and the branch its event came with."""

    event: Event
    tree: Digest
    tool: str
    branch: str
    taken: Event | None = None  # the last event of a branch whose files the event took over


def path_in_tree(path: str) -> str:
    """Return the path as events name it: `./x` and `a/../x` are x.

    A path that is absolute or leads out of the tree is refused.
    """
    plain = normpath(path) if path else ""
    if plain.startswith("/"):
        raise OutsideWorkspace(path, "it is absolute")
    if plain == ".." or plain.startswith("../"):
        raise OutsideWorkspace(path)
    return plain


def blame(store: Store, state: State, name: str, path: str) -> Blame:
    if state.story.tree is None:
        raise NotPlaced(name)
    path = path_in_tree(path)
    reader = TreeReader(store)
    last = reader.find(state.story.tree.digest, path)
    if last is None:
        raise NoSuchFile(path)
    if last.kind != "file":
        raise NotAFile(path, f"a {last.kind}")
    history = _History(store, reader, path, _recorded_trees(store, state, path, set()))
    lines = [
        _blame_line(number, tag, text.removesuffix(b"\n").decode("utf-8", "replace"))
        for number, (tag, text) in enumerate(
            attribute(history.versions_at(state.log, state.place)), 1
        )
    ]
    return Blame(shown_path(path), tuple(lines))


def _blame_line(number: int, written: _RecordedTree, text: str) -> Line:
    event = written.event
    return Line(
        number,
        text,
        event.id,
        event.log,
        event.seq,
        event.kind,
        event.actor,
        event.header.time,
        written.tool,
        written.branch,
    )


def _recorded_trees(
    store: Store, state: State, path: str, seen: set[Digest], branch: str = ""
) -> Iterator[_RecordedTree]:
    """Yield every tree on the path, and on those of branches whose files were taken, that may have
    another version of this file; each once.
    """
    tools: dict[str | None, str] = {}
    readable = shown_path(path)
    for span, event in path_events(store, state.story.path, _KINDS):
        body, tree, taken = event.body, tree_left_by(event), None
        if isinstance(body, ToolRequested):
            tools[event.header.call] = body.tool
        elif isinstance(body, (ToolReturned, ToolFailed)) and body.trees is not None:
            changed = body.trees.changed
            if readable not in changed and len(changed) < CHANGED_MAX:
                tree = None
        if tree is None or event.id in seen:
            continue
        seen.add(event.id)
        if isinstance(body, ToolReturned) and (taken := taken_branch(store, event)) is not None:
            there = state_at(store, taken.log, taken.seq)
            yield from _recorded_trees(store, there, path, seen, there.label or branch)
        tool = tools.get(event.header.call, "")
        yield _RecordedTree(event, tree, tool, span.branch or branch, taken)


def taken_branch(store: Store, outcome: Event) -> Event | None:
    """Return the last event of the branch in which a workflow carried out a call, by the outcome of
    the call. None: no workflow did.
    """
    for cause in outcome.header.causes:
        last = store.event(cause)
        if last.log == outcome.log:
            continue
        first = store.log(last.log).place + 1
        forked = next(store.read(last.log, first, first))
        asked = [store.event(each).header.call for each in forked.header.causes]
        if isinstance(forked.body, ForkedFrom) and outcome.header.call in asked:
            return last
    return None


class _History:
    """The versions of one file, each after those it was made from."""

    def __init__(
        self, store: Store, reader: TreeReader, path: str, written: Iterable[_RecordedTree]
    ) -> None:
        self._store, self._reader, self._path = store, reader, path
        self._trees: dict[LogId, list[_RecordedTree]] = defaultdict(list)
        for each in written:
            self._trees[each.event.log].append(each)
        for trees in self._trees.values():
            trees.sort(key=lambda each: each.event.seq)
        self._forks: dict[LogId, tuple[LogId, int] | None] = {}
        self._versions: list[FileVersion] = []
        self._entries: list[TreeEntry | None] = []
        self._known: dict[Digest, int] = {}  # the version that an event left

    def versions_at(self, log: LogId, seq: int) -> list[FileVersion]:
        """Return the versions up to a place; that of the place comes last.

        On a path a merge stands before the spans it brought, so this goes back from the end.
        """
        last = self._tree_at(log, seq)
        open = [last] if last is not None else []
        while open:
            above = [
                each for each in self._trees_before(open[-1]) if each.event.id not in self._known
            ]
            if above:
                open += above
            else:
                self._add_version(open.pop())
        return self._versions[: self._known[last.event.id] + 1] if last is not None else []

    def _add_version(self, written: _RecordedTree) -> None:
        if written.event.id in self._known:
            return
        entry = self._reader.find(written.tree, self._path)
        entry = entry if entry is not None and entry.kind == "file" else None
        above = list(
            dict.fromkeys(self._known[each.event.id] for each in self._trees_before(written))
        )
        same = next((at for at in above if _is_same_content(self._entries[at], entry)), None)
        if same is None:
            same = len(self._versions)
            self._versions.append(
                FileVersion(self._reader.content(entry) if entry else None, tuple(above), written)
            )
            self._entries.append(entry)
        self._known[written.event.id] = same

    def _trees_before(self, written: _RecordedTree) -> Iterator[_RecordedTree]:
        event, taken = written.event, written.taken
        places = [(event.log, event.seq - 1)]
        if isinstance(event.body, Merged):
            places += [(branch.log, branch.seq) for branch in event.body.branches]
        if taken is not None:
            places.append((taken.log, taken.seq))
        for place in places:
            if (found := self._tree_at(*place)) is not None:
                yield found

    def _tree_at(self, log: LogId, seq: int) -> _RecordedTree | None:
        """Return the tree at a place: the last one in its log up to there, else that of its
        parent.
        """
        while True:
            trees = self._trees.get(log, [])
            last = bisect_right(trees, seq, key=lambda each: each.event.seq)
            if last:
                return trees[last - 1]
            fork = self._fork_point(log)
            if fork is None:
                return None
            log, seq = fork[0], min(seq, fork[1])

    def _fork_point(self, log: LogId) -> tuple[LogId, int] | None:
        if log not in self._forks:
            own = self._store.log(log)
            first = (
                next(self._store.read(log, own.place + 1, own.place + 1)).body
                if own.parent
                else None
            )
            self._forks[log] = (
                (first.parent, first.place) if isinstance(first, ForkedFrom) else None
            )
        return self._forks[log]


def _is_same_content(one: TreeEntry | None, other: TreeEntry | None) -> bool:
    return (one.blobs if one else None) == (other.blobs if other else None)
