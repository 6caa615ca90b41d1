"""Turns of runs on each other's sessions: a circle is refused, and a line is not."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest

from plait import Session, Workflow, open_store
from plait.errors import InvalidValue, TurnCircle

STORE = "memory:circles"


class Passes(Workflow):
    """Takes a turn on the session that the message names, once all others have begun."""

    def __init__(self, begun: Barrier | None = None) -> None:
        self._begun = begun

    def forward(self, session: Session) -> Session:
        name, _, rest = session.messages[-1].text.partition(" ")
        if self._begun is not None:
            self._begun.wait(60)
        if name == "end":
            return session.say("the end", role="assistant")
        other = Session.open(name, store=STORE).turn(rest or "end", Passes())
        return session.say(f"said {other.text}", role="assistant")


def sessions(count: int) -> list[Session]:
    open_store(STORE)
    return [Session(store=STORE) for _ in range(count)]


@pytest.mark.parametrize("count", [2, 3])
def test_of_runs_that_wait_for_each_other_one_is_told_and_the_others_go_on(count: int) -> None:
    chats, begun = sessions(count), Barrier(count)
    ends: list[str | TurnCircle] = []

    def take(session: Session, other: Session) -> None:
        try:
            ends.append(session.turn(other.id, Passes(begun)).text)
        except TurnCircle as error:
            ends.append(error)

    pairs = zip(chats, [*chats[1:], chats[0]], strict=True)
    threads = [Thread(target=take, args=pair, daemon=True) for pair in pairs]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    (error,) = [each for each in ends if isinstance(each, TurnCircle)]
    assert len(ends) == count and ends.count("said the end") == count - 1
    assert len(error.sessions) == count + 1 and error.sessions[0] == error.sessions[-1]
    assert set(error.sessions) == {chat.short for chat in chats}
    posted = sum(len(chat.inbox.events) for chat in chats)
    assert posted == 2 * count - 1, "the turn that closes the circle is not posted"


def test_a_line_of_turns_is_answered_and_one_that_comes_back_is_refused() -> None:
    one, two, three = sessions(3)
    assert one.turn(f"{two.id} {three.id} end", Passes()).text == "said said the end"
    with pytest.raises(InvalidValue, match="code of its open run"):
        one.turn(f"{two.id} {three.id} {one.id} end", Passes())
