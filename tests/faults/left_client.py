"""A process of clients that is killed with -9: between the post of its messages and the first run,
or in the first run, while the others wait in the queue. Or one that takes a turn when it is let.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from threading import Thread
from typing import Any

from plait import Session, open_store
from plait.event import Event
from plait.event.kinds import ModelAsked
from plait.runs.turns import TurnClient
from plait.runtime.attendants import NOBODY
from tests.faults.chat_client import Echo
from tests.support import wait_until

WORDS = ("one", "two", "three")


def main() -> None:
    address, id, moment = sys.argv[1:]
    session = Session.open(id, store=open_store(address))
    if moment == "posted":
        clients = [TurnClient.post(session, words, Echo(), "", None, NOBODY) for words in WORDS]
        assert len(clients) == len(WORDS)
        os.kill(os.getpid(), signal.SIGKILL)

    if moment == "held":
        go = Path(address).parent / "go"

        def wait(item: Any) -> None:
            if isinstance(item, Event) and isinstance(item.body, ModelAsked):
                wait_until(go.exists)

        session.turn(WORDS[0], Echo(), key="r-1", on_event=wait)
        return

    def die(item: Any) -> None:
        if isinstance(item, Event) and isinstance(item.body, ModelAsked):
            wait_until(lambda: len(session.inbox.events) == len(WORDS))
            os.kill(os.getpid(), signal.SIGKILL)

    for number, words in enumerate(WORDS, 1):  # in this order
        Thread(target=session.turn, args=(words, Echo()), kwargs={"on_event": die}).start()
        wait_until(lambda number=number: len(session.inbox.events) == number)


if __name__ == "__main__":
    main()
