"""One process of clients: threads that take turns on chats, each under a key, until all are taken.

It says on stdout which turns it has the answers of. Killed and started again, it asks for the same
turns by the same keys.
"""

from __future__ import annotations

import json
import sys
from threading import Thread

from plait import Agent, ScriptedModel, Session, Workflow, open_store


class Echo(Workflow):
    """Answers a message with its words."""

    def __init__(self) -> None:
        self.agent = Agent("Repeat.", model=ScriptedModel(_echo_of), name="echo")

    def forward(self, session: Session) -> Session:
        session = session.fact(f"heard-{len(session.messages)}", session.messages[-1].text)
        return self.agent(session)


def _echo_of(session: Session) -> str:
    return f"ok {session.messages[-1].text}"


def words_of(process: int, thread: int, number: int) -> str:
    return f"{process}/{thread}/{number}"


def chat_of(thread: int, number: int, chats: int) -> int:
    return (thread + number) % chats


def main() -> None:
    asked = json.loads(sys.argv[1])
    store = open_store(asked["store"])
    chats = [Session.open(id, store=store) for id in asked["chats"]]
    workflow = Echo()
    wrong: list[str] = []

    def talk(thread: int) -> None:
        for number in range(asked["turns"]):
            words = words_of(asked["process"], thread, number)
            session = chats[chat_of(thread, number, len(chats))]
            after = session.turn(words, workflow, key=words)
            said = [message.text for message in after.messages[-2:]]
            if said != [words, f"ok {words}"]:
                wrong.append(f"{words}: {said}")
            sys.stdout.write(f"{words}\n")
            sys.stdout.flush()

    threads = [Thread(target=talk, args=(thread,)) for thread in range(asked["threads"])]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    sys.exit(f"wrong answers: {wrong}" if wrong else 0)


if __name__ == "__main__":
    main()
