"""One of several writers on the same sessions, which writes down all it does. A program of its own,
and a function for threads.

    python rival.py FOLDER NAME APPENDS THREADS SEED SESSION…

It prints a line when it is ready, waits for a byte, so that all begin at once, and prints what it
did.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from itertools import count

from plait import Session, open_store
from plait.errors import StaleHead
from plait.event.kinds import MessageSaid, Text
from plait.session.ports import Act, Draft, writer_of
from plait.session.session import session_at
from plait.session.value import position_of
from tests.faults import history

_now = time.monotonic_ns  # the same clock for all processes of one machine


class Rival:
    def __init__(self, name: str, sessions: list[Session], seed: str) -> None:
        self.name = name
        self.acts: list[history.Act] = []
        self._sessions = sessions
        self._chance = random.Random(seed)

    def write(self, appends: int) -> None:
        """So many appends that stand, each tried until it does."""
        for i in range(appends):
            which = self._chance.randrange(len(self._sessions))
            several = self._chance.choice((1, 1, 1, 2, 4))
            # named in the text: what was refused must stand nowhere, and the next try is another
            for attempt in count():
                if self._try(which, [f"{self.name}/{i}/{attempt}.{n}" for n in range(several)]):
                    break
                self._sessions[which] = self._look(self._sessions[which])
            if self._chance.random() < 0.2:
                other = self._chance.randrange(len(self._sessions))
                self._sessions[other] = self._look(
                    self._sessions[other], self._chance.choice((3, 50))
                )

    def _try(self, which: int, texts: list[str]) -> bool:
        session, began = self._sessions[which], _now()
        place, head, outcome = 0, "", "ok"
        try:
            session = self._sessions[which] = self._append(session, texts)
            place, head = session.seq, session.head
        except StaleHead as stale:
            place, head, outcome = stale.seq, stale.found, "stale"
        except Exception as error:  # also "database is locked", whatever it is called
            outcome = repr(error)
        self.acts.append(
            history.Append(self.name, session.id, began, _now(), tuple(texts), outcome, place, head)
        )
        return outcome != "stale"

    def _append(self, session: Session, texts: list[str]) -> Session:
        if len(texts) == 1:
            return session.say(texts[0])
        drafts = [
            Draft(MessageSaid("user", (Text(text),)), Act(f"service:{self.name.replace('/', '-')}"))
            for text in texts
        ]
        return session_at(writer_of(None).append(position_of(session), drafts))

    def _look(self, session: Session, last: int = 0) -> Session:
        began = _now()
        session = session.reload()
        texts = tuple(text_of(event.body) for event in session.events[-last:]) if last else ()
        self.acts.append(
            history.Look(self.name, session.id, began, _now(), session.seq, session.head, texts)
        )
        return session


def text_of(body: object) -> str:
    """Return the text of an event; empty for other events than messages."""
    return (
        "".join(part.text for part in body.parts if isinstance(part, Text))
        if isinstance(body, MessageSaid)
        else ""
    )


def run(
    name: str, sessions: list[Session], appends: int, threads: int, seed: int
) -> list[history.Act]:
    """So many appends by so many threads."""
    rivals = [Rival(f"{name}/{i}", list(sessions), f"{seed}/{name}/{i}") for i in range(threads)]
    shares = [appends // threads + (i < appends % threads) for i in range(threads)]
    workers = [
        threading.Thread(target=rival.write, args=(share,))
        for rival, share in zip(rivals, shares, strict=True)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [act for rival in rivals for act in rival.acts]


def main() -> None:
    folder, name, appends, threads, seed, *ids = sys.argv[1:]
    store = open_store(folder)
    sessions = [Session.open(id, store=store) for id in ids]
    sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    sys.stdin.read(1)
    acts = run(name, sessions, int(appends), int(threads), int(seed))
    sys.stdout.buffer.write(history.encode(acts))


if __name__ == "__main__":
    main()
