"""A family of logs that is as long as wanted, for benchmarks and for counts of work.

Its events are those of agents at work: replies, calls of tools with outputs and changed files,
facts, verdicts, branches and merges. They are written through the store in large batches, and no
program ran for them.
"""

from __future__ import annotations

from typing import Any

from plait import Store
from plait.event import Body, Event, seal
from plait.event import kinds as k
from plait.ids import Digest, LogId, derive_id, digest
from plait.session.fold import SNAPSHOT_EVERY, keep_snapshot, state_at
from plait.session.state import State
from plait.testing.seeded import Seeded
from plait.workspace.base import TreeEntry
from plait.workspace.tree import digest_of, encode

TREES = 40  # so many files, and as many trees: each edit changes one file
_RUN = "run-1"
_PLACEMENT = k.Placement("local", rung="overlay", network="off")
_OUTPUTS = (
    "Ran 12 tests in 0.4 s\n\nOK\n",
    "def total(prices, coupon=0):\n    return sum(prices) - coupon\n" * 4,
    "src/cart.py\nsrc/shop.py\nsrc/stock.py\n" * 6,
)


class LongFamily:
    """Writes one run, its branches and their merges."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._trees = _put_trees(store)
        self._calls = 0  # over all logs
        self._in_branches = 0  # events

    def write(self, events: int, branches: int) -> LogId:
        share = events // (2 * max(branches, 1))
        root = LogWriter(self._store, derive_id("plait/long", "root"))
        opened = k.SessionOpened(title="a long repair", user="u-17", durability="async")
        root.add(opened, actor="human:u-17", run=None)
        said = k.MessageSaid("user", (k.Text("Repair everything."),))
        root.add(said, actor="human:u-17", origin="human", run=None)
        root.add(k.PlacementChanged(_PLACEMENT, self._trees[0]), run=None)
        root.add(k.RunStarted("shop.flows:Repair"))
        root.add(k.CallStarted("shop.flows:Repair", "repair"), call="repair")
        for number in range(branches):
            self._work(root, "repair/planner", share)
            branch = self._branch(root, number, share)
            if number % 2:
                root.merge(branch)
        self._work(root, "repair/planner", events - root.written - self._in_branches - 2)
        root.add(k.CallFinished(), call="repair")
        root.add(k.RunFinished())
        root.flush()
        return root.log

    def _branch(self, parent: LogWriter, number: int, size: int) -> LogWriter:
        branch = parent.fork(derive_id("plait/long", number), f"branch-{number}")
        self._work(branch, f"repair/branch-{number}/coder", size - 2)
        branch.add(k.ValidationRecorded("tests", passed=bool(number % 2)))
        branch.flush()
        self._in_branches += branch.written
        return branch

    def _work(self, writer: LogWriter, path: str, size: int) -> None:
        """Write so many events of an agent that reads, edits and tests."""
        actor, end = f"agent:{path}", writer.seq + size
        while writer.seq < end - 5:
            self._calls += 1
            self._use_tool(writer, path, self._calls)
            if self._calls % 40 == 0:
                fact = k.FactRecorded(f"fact-{self._calls % 50}", self._calls, "fact")
                writer.add(fact, actor=actor)
            elif self._calls % 90 == 0:
                writer.add(k.ValidationRecorded("tests", self._calls % 180 == 0), actor=actor)
        while writer.seq < end:
            writer.add(k.MessageSaid("assistant", (k.Text("Next."),)), actor=actor)

    def _use_tool(self, writer: LogWriter, path: str, number: int) -> None:
        actor, call = f"agent:{path}", f"c{number}"
        tool, arguments = _call(number, (writer.tree + 1) % TREES)
        asked = k.ModelAsked("small-1", digest(b"prompt", str(number).encode()))
        writer.add(asked, actor=actor, call=f"m{number}")
        words = (k.Text(f"Step {number}: look at the next file."),) if number % 7 == 0 else ()
        reply = k.ModelReplied(
            words,
            k.Usage(900 + number % 700, 20 + number % 90, 600),
            "calls",
            (k.Action(call, tool, arguments),),
            "small-1",
            k.Price(1_500_000 + number % 997, "test prices 1"),
            latency_us=800_000 + number % 1000,
        )
        writer.add(reply, actor=actor, call=f"m{number}", origin="model")
        request = k.ToolRequested(tool, arguments, "workspace", version="1", path=path)
        writer.add(request, actor=actor, call=call)
        outcome = k.ToolReturned(
            (k.Text(_OUTPUTS[number % 3]),),
            exit_code=int(number % 11 == 0) if tool == "shell" else None,
            trees=self._step_tree(writer, tool),
            placement=_PLACEMENT,
            duration_us=1_000 + number % 5_000,
        )
        writer.add(outcome, actor=actor, call=call, origin="tool")

    def _step_tree(self, writer: LogWriter, tool: str) -> k.Trees:
        before = self._trees[writer.tree]
        if tool != "edit_file":
            return k.Trees(before, before)
        writer.tree = (writer.tree + 1) % TREES
        changed = [writer.tree] if writer.tree else range(1, TREES)
        return k.Trees(before, self._trees[writer.tree], tuple(map(_file_name, changed)))


class LogWriter:
    """Writes the events of one log, from one snapshot to the next."""

    def __init__(self, store: Store, log: LogId, parent: LogWriter | None = None) -> None:
        self.store, self.log = store, log
        self._source = Seeded(21)
        self._parent = parent
        self._head: Digest | None = parent.head if parent else None
        self.seq = parent.seq if parent else 0
        self.tree = parent.tree if parent else 0
        self.written = 0
        self._waiting = list[Event]()
        self._state = parent.state if parent else None

    @property
    def state(self) -> State | None:
        return self._state

    @property
    def head(self) -> Digest:
        assert self._head is not None
        return self._head

    def add(
        self,
        body: Body,
        *,
        actor: str = "service:repair",
        origin: str = "program",
        run: str | None = _RUN,
        call: str | None = None,
        more_parents: tuple[Digest, ...] = (),
    ) -> None:
        self.seq += 1
        event = seal(
            body,
            log=self.log,
            seq=self.seq,
            parents=(*((self._head,) if self._head else ()), *more_parents),
            time=self._source.now(self.log, self.seq),
            salt=self._source.salt(self.log, self.seq),
            actor=actor,
            origin=origin,
            run=run,
            call=call,
        )
        self._head = event.id
        self._waiting.append(event)
        if self.seq % SNAPSHOT_EVERY == 0:
            self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return
        if self.written:
            self.store.append(self.log, self._waiting, after=self._waiting[0].header.parents[0])
        else:
            parent = self._parent.log if self._parent else None
            self.store.begin(self.log, self._waiting, parent=parent)
        self.written += len(self._waiting)
        self._waiting = []
        # as a session does that is written to step by step
        self._state = state_at(self.store, self.log, self.seq, near=self._state)
        keep_snapshot(self.store, self._state, self.head)

    def fork(self, log: LogId, label: str) -> LogWriter:
        self.flush()
        branch = LogWriter(self.store, log, self)
        branch.add(k.ForkedFrom(self.log, self.seq, label))
        return branch

    def merge(self, branch: LogWriter) -> None:
        place = k.Place(branch.log, branch.seq, branch.head)
        body = k.Merged((place,), covers={branch.log: branch.seq})
        self.add(body, more_parents=(branch.head,))
        self.flush()


def _call(number: int, file: int) -> tuple[str, dict[str, Any]]:
    if number % 3 == 0:
        return "shell", {"command": f"python3 -B -m unittest -q tests.test_{number % 50}"}
    if number % 3 == 1:
        return "read_file", {"path": _file_name(number % TREES)}
    return "edit_file", {"path": _file_name(file), "old": "version = 0", "new": "version = 1"}


def _file_name(number: int) -> str:
    return f"file_{number:02}.py"


def _put_trees(store: Store) -> list[Digest]:
    """Put trees of which each has one more changed file than the one before."""
    contents = [
        [f"# file {number}\nversion = {version}\n".encode() for version in range(2)]
        for number in range(TREES)
    ]
    store.put_blobs({digest_of(each): each for pair in contents for each in pair})
    trees = list[bytes]()
    for changed in range(TREES):
        files = [contents[number][number <= changed and number > 0] for number in range(TREES)]
        entries = [
            TreeEntry(_file_name(number), "file", 0o644, len(content), (digest_of(content),))
            for number, content in enumerate(files)
        ]
        trees.append(encode(entries))
    store.put_blobs({digest_of(tree): tree for tree in trees})
    return [digest_of(tree) for tree in trees]
