"""A client of a PostgreSQL store that says before each act what it is about to write, and after it
that it was acknowledged. It is made to be killed.

    python -m tests.faults.postgres_client ADDRESS NAME SEED ACTS SHARED

`ACTS` is a number, or 0 for no end; `SHARED` is a log that all clients write to. It prints a line
when it is ready, and begins when a line comes. `? IDS` says what an act writes, `!` that it is
acknowledged, `x ERROR` what refused it.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Sequence
from itertools import count

from plait import Store, open_store
from plait.errors import StaleHead, StoreError
from plait.event import Body, Event, seal_all
from plait.event.kinds import File, ForkedFrom, MessageSaid, ScratchSet, SessionOpened, Text
from plait.ids import Digest, LogId
from plait.runtime.live import Live
from plait.store import Fence, LogAppend
from plait.store.blobs import digest_of
from plait.testing.projections import Tally


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


class Client:
    """Writes to logs of its own and to one that is shared, and reads rows, by chance."""

    def __init__(self, store: Store, name: str, seed: str, shared: LogId) -> None:
        self.store, self.name, self._shared = store, name, shared
        self._chance, self._source = random.Random(seed), Live()
        self._heads: dict[LogId, tuple[Digest, int]] = {}
        self._numbers = count(1)
        self._refused_max = 0

    def run(self, acts: int) -> None:
        self._begin()
        verbs: Sequence[Callable[[], None]] = (
            self._begin,
            self._say,
            self._say,
            self._say_in_shared,
            self._set_several,
            self._set_several,
            self._attach,
            self._fork,
            self._act,
            self._read_rows,
        )
        for number in count(1):
            verb = self._chance.choice(verbs) if not acts else verbs[number % len(verbs)]
            try:
                verb()
            except StoreError as error:
                if isinstance(error, StaleHead):
                    raise
                tell(f"x {type(error).__name__}")
            if number == acts:
                return

    # ── acts ──

    def _begin(self) -> None:
        log = self._source.fresh()
        events = self._seal([SessionOpened(), self._text()], log, 1, ())
        self._tell_and(events, lambda: self.store.begin(log, events))

    def _say(self) -> None:
        log = self._some()
        self._append(log, [self._text()])

    def _set_several(self) -> None:
        log = self._some()
        self._append(log, [self._setting() for _ in range(self._chance.randrange(1, 5))])

    def _attach(self) -> None:
        content = f"{self.name} {next(self._numbers)} ".encode() * 200
        part = File("notes", "text/plain", digest_of(content))
        body = MessageSaid("user", (Text(self._word()), part))
        self._append(self._some(), [body], blobs={part.blob: content})

    def _fork(self) -> None:
        parent, log = self._some(), self._source.fresh()
        head, tip = self._heads[parent]
        bodies = [ForkedFrom(parent, tip, "twig"), self._setting()]
        events = self._seal(bodies, log, tip + 1, (head,))
        self._tell_and(events, lambda: self.store.begin(log, events, parent=parent))

    def _act(self) -> None:
        """Write to two logs, one of which begins, in one act."""
        old, new = self._some(), self._source.fresh()
        head, tip = self._heads[old]
        first = self._seal([self._setting(), self._text()], old, tip + 1, (head,))
        second = self._seal([SessionOpened(), self._setting()], new, 1, ())
        parts = [LogAppend(old, first, head), LogAppend(new, second, None)]
        self._tell_and([*first, *second], lambda: self.store.append_all(parts))

    def _say_in_shared(self) -> None:
        """Append where others append, too: tried until it stands."""
        while True:
            now = self.store.log(self._shared)
            events = self._seal([self._setting()], self._shared, now.tip + 1, (now.head,))
            try:
                self._tell_and(
                    events,
                    lambda now=now, events=events: self.store.append(
                        self._shared, events, after=now.head
                    ),
                    is_shared=True,
                )
                return
            except StaleHead:
                tell("x StaleHead")

    def _read_rows(self) -> None:
        """Fold what is new, and find the own writes in it."""
        self.store.rows("session", "session", limit=3)
        log = self._some()
        rows = self.store.rows("tally", "count", {"log": log, "key": self.name}, limit=2)
        events = self.store.read(log, kinds={"ScratchSet"})
        times = sum(event.log == log for event in events)
        assert sum(int(str(row["times"])) for row in rows) == times, f"{rows} for {times} events"

    # ── how ──

    def _some(self) -> LogId:
        return self._chance.choice(list(self._heads))

    def _word(self) -> str:
        return f"{self.name}/{next(self._numbers)}"

    def _text(self) -> Body:
        return MessageSaid("user", (Text(self._word()),))

    def _setting(self) -> Body:
        return ScratchSet(self.name, self._word())

    def _seal(
        self, bodies: Sequence[Body], log: LogId, seq: int, parents: tuple[Digest, ...]
    ) -> list[Event]:
        return seal_all(
            bodies, log=log, seq=seq, parents=parents, source=self._source, actor="service:test"
        )

    def _append(
        self, log: LogId, bodies: Sequence[Body], blobs: dict[Digest, bytes] | None = None
    ) -> None:
        head, tip = self._heads[log]
        events = self._seal(bodies, log, tip + 1, (head,))
        fences = [Fence(self._some(), 0)] if self._chance.random() < 0.3 else []
        self._tell_and(
            events,
            lambda: self.store.append(log, events, after=head, blobs=blobs, fences=fences),
        )

    def _tell_and(
        self, events: Sequence[Event], act: Callable[[], object], *, is_shared: bool = False
    ) -> None:
        tell(f"? {' '.join(event.id for event in events)}")
        act()
        tell("!")
        if not is_shared:
            for event in events:
                self._heads[event.log] = event.id, event.seq


def main() -> None:
    address, name, seed, acts, shared = sys.argv[1:]
    client = Client(open_store(address, projections=[Tally()]), name, seed, LogId(shared))
    tell("ready")
    sys.stdin.readline()
    client.run(int(acts))
    tell("done")


if __name__ == "__main__":
    main()
