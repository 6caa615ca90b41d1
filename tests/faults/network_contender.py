"""A process that wants a run again and again, and writes as its holder.

    python -m tests.faults.network_contender ADDRESS NAME LOG

`took EPOCH` says that it has the run, `? ID` what it is about to write, `!` that this is
acknowledged, `x ERROR` what refused it. Each event that it writes as a holder tells name and epoch.
It ends when its input does.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence

from plait import Store
from plait.errors import PlaitError, RunHeld
from plait.event import Body, seal_all
from plait.event.kinds import RunResumed, ScratchSet
from plait.ids import Digest, LogId
from plait.runtime.live import Live
from plait.store import Fence
from plait.store.postgres.store import PostgresStore
from tests.faults.postgres_client import tell

TURNS = 12  # events of a holder before it lets go of the run


class Contender:
    def __init__(self, store: Store, name: str, log: LogId) -> None:
        self._store, self._name, self._log = store, name, log
        self._source = Live()

    def hold_once(self) -> None:
        """Take the run, write as its holder, and let go of it."""
        held = self._store.lock("run", self._log)
        try:
            now = self._store.log(self._log)
            body = RunResumed(self._name)
            head, seq = self._write([body], now.head, now.tip, Fence(self._log, now.epoch))
            epoch = now.epoch + 1
            tell(f"took {epoch}")
            for _ in range(TURNS):
                body = ScratchSet(self._name, epoch)
                head, seq = self._write([body], head, seq, Fence(self._log, epoch))
                time.sleep(0.01)
        finally:
            held.release()

    def _write(
        self, bodies: Sequence[Body], head: Digest, seq: int, fence: Fence
    ) -> tuple[Digest, int]:
        events = seal_all(
            bodies,
            log=self._log,
            seq=seq + 1,
            parents=(head,),
            source=self._source,
            actor="service:test",
        )
        tell(f"? {events[-1].id}")
        self._store.append(self._log, events, after=head, fences=[fence])
        tell("!")
        return events[-1].id, events[-1].seq


def main() -> None:
    address, name, log = sys.argv[1:]
    contender = Contender(PostgresStore(address, source=Live()), name, LogId(log))
    is_over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
    tell("ready")
    while not is_over.is_set():
        try:
            contender.hold_once()
        except RunHeld:
            time.sleep(0.02)
        except PlaitError as error:
            tell(f"x {type(error).__name__}")


if __name__ == "__main__":
    main()
