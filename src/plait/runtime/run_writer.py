"""The writer port of a run: how sessions that belong to it append."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from plait.event import Event
from plait.event.kinds import MemoryProposed, MemorySupported, Merged, Place, ValidationRecorded
from plait.ids import Digest, LogId
from plait.journal.writer import check_decisions, house_refusal
from plait.runtime.run import Run
from plait.session.ports import Act, Condition, Draft, Position, Post
from plait.store import Store

# after one of these a run may have memories to decide about when it ends
PROPOSING = frozenset({MemoryProposed, MemorySupported, ValidationRecorded, Merged})


class RunWriter:
    """A session's `Writer` while its run goes on in this process."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._direct = run.journal.writer

    def store(self, address: str, /) -> Store:
        return self._direct.store(address)

    def address(self) -> str:
        return self._direct.address()

    def principal(self, log: LogId | None = None) -> str:
        return self._run.stack.principal(log) or self._direct.principal()

    def acting(self, store: str, position: Position | None = None) -> Act:
        return self._run.act_of(store, position)

    def judges(self, log: LogId, store: str) -> tuple[str, ...]:
        return self._run.stack.judges(log, self.principal(log))

    def path_of(self, log: LogId, workflow: object) -> str | None:
        return self._run.stack.path_of(log, workflow)

    def has_in_hand(self, position: Position) -> bool:
        return self._run.stack.has_in_hand(position)

    def has_calls(self, log: LogId) -> bool:
        return self._run.stack.has_calls(log)

    def is_current(self, position: Position) -> bool:
        return self._run.journal.is_current(position)

    def latest(self, position: Position) -> Position:
        return self._run.journal.latest(position)

    def begin(
        self,
        address: str,
        drafts: Sequence[Draft],
        *,
        fork: Place | None = None,
        blobs: Mapping[Digest, bytes] | None = None,
        run: str | None = None,
    ) -> Position:
        this, scope = self._run, run or self._run.id
        check_decisions(address, this.root, drafts)
        if fork is not None and scope == this.id:
            this.stops.check_raised(fork.log)
        at, events = this.journal.begin(address, drafts, fork=fork, blobs=blobs, scope=scope)
        if fork is not None:
            this.stack.add_branch(at.id, fork.log, scope)
            this.budgets.add_branch(events[0], address, fork.log)
        return at

    def recorded(self, position: Position, ahead: int = 0) -> Event | None:
        return self._run.journal.step_after(position, ahead)

    def withheld(self, position: Position) -> frozenset[Digest]:
        return self._run.settings.without

    def append(
        self,
        position: Position,
        drafts: Sequence[Draft],
        *,
        merges: tuple[Digest, ...] = (),
        blobs: Mapping[Digest, bytes] | None = None,
        condition: Condition | None = None,
    ) -> Position:
        check_decisions(position.store, position.id, drafts)
        if position.run == self._run.id:
            self._run.stops.check_raised(position.id)
        if not self._run.has_proposals:
            self._run.has_proposals = any(type(draft.body) in PROPOSING for draft in drafts)
        return self._run.journal.append(position, drafts, merges=merges, blobs=blobs)[0]

    def post(
        self,
        address: str,
        log: LogId,
        drafts: Sequence[Draft],
        *,
        blobs: Mapping[Digest, bytes] | None = None,
        check: Callable[[Sequence[Event]], object] | None = None,
        run: str | None = None,
    ) -> list[Event]:
        journal = self._run.journal
        return journal.post(address, log, drafts, blobs=blobs, check=check, run=run)

    def post_to_house(
        self,
        address: str,
        drafts: Sequence[Draft],
        *,
        blobs: Mapping[Digest, bytes] | None = None,
        check: Callable[[Sequence[Event]], object] | None = None,
    ) -> list[Event]:
        return self.post_all(address, [Post(None, drafts)], blobs=blobs, check=check)

    def post_all(
        self,
        address: str,
        posts: Sequence[Post],
        *,
        blobs: Mapping[Digest, bytes] | None = None,
        check: Callable[[Sequence[Event]], object] | None = None,
        kinds: frozenset[str] = frozenset(),
    ) -> list[Event]:
        raise house_refusal(self.store(address), posts, "code of a run does not act for the house")
