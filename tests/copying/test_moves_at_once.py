"""A session moves to a store in the moment in which a program there appends to its copy: no program
is left with a session that is closed in both stores, and no run has two homes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plait import Session, Store
from plait.copying import copy_sessions, transfer
from plait.errors import LogsDiffer, StillArriving
from plait.event.kinds import SessionMoved, Text, TurnPosted
from plait.session import verify
from plait.session.inbox import post
from plait.session.ports import Act, Draft
from plait.testing.writing import extend, message


class Racer:
    """A program of the target that has looked for copies on the way before there was one. Its
    append is in the hands of the store, and is done when it is told so.
    """

    def __init__(self, target: Store, session: Session) -> None:
        self._target, self._session, self.is_done = target, session, False

    def append(self) -> None:
        if not self.is_done:
            self.is_done = True
            assert self._target.log(self._session.id).head == self._session.head
            extend(self._target, self._session.id, message("there"))


def _after_the_end(source: Store, racer: Racer, patch: pytest.MonkeyPatch) -> None:
    """Right after the session has ended in the source."""
    write: Callable[..., Any] = source.append_all

    def append_all(parts: Any, **more: Any) -> Any:
        found = write(parts, **more)
        if any(isinstance(event.body, SessionMoved) for part in parts for event in part.events):
            racer.append()
        return found

    patch.setattr(source, "append_all", append_all)


def _before_the_end_arrives(source: Store, racer: Racer, patch: pytest.MonkeyPatch) -> None:
    """When the end is about to be written to the target."""
    write: Callable[..., Any] = transfer.EventTransfer._write  # pyright: ignore[reportPrivateUsage]

    def write_parts(self: Any, parts: Any) -> Any:
        if any(isinstance(event.body, SessionMoved) for part in parts for event in part.events):
            racer.append()
        return write(self, parts)

    patch.setattr(transfer.EventTransfer, "_write", write_parts)


MOMENTS = [_after_the_end, _before_the_end_arrives]


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_end_is_taken_back(
    pair: tuple[Store, Store], moment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair
    session, other = Session("both", store=source), Session("other", store=source)
    copy_sessions(source, target)
    racer = Racer(target, session)
    moment(source, racer, monkeypatch)
    found = copy_sessions(source, target, move=True)
    assert racer.is_done and found.moved == (other.id,)
    assert [(each.log, each.error) for each in found.left_out] == [(session.id, "LogsDiffer")]
    here, there = (Session.open(session.id, store=each) for each in (source, target))
    assert (here.status, there.status) == ("open", "open")
    assert [event.kind for event in here.events][-2:] == ["SessionMoved", "SessionArrived"]
    assert here.say("here").text == "here" and there.say("and on").text == "and on"
    assert [log for log, _ in _homes(source, target, other)] == [target.id]
    with pytest.raises(LogsDiffer):
        copy_sessions(source, target, [session.id], move=True)
    assert Session.open(session.id, store=source).status == "open"
    assert list(verify(source, state=True)) == list(verify(target, state=True)) == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_turn_that_waits_stays_in_one_store(
    source: Store, target: Store, moment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session("queue", store=source)
    copy_sessions(source, target)
    body = TurnPosted((Text("hello"),), log=session.id, client="gone")
    post(source.address, session.id, [Draft(body, Act("human:ana", "human"))])
    racer = Racer(target, session)
    moment(source, racer, monkeypatch)
    with pytest.raises(LogsDiffer):
        copy_sessions(source, target)
    assert racer.is_done
    assert Session.open(session.id, store=source).status == "interrupted"
    with pytest.raises(StillArriving):
        Session.open(session.id, store=target).say("more")


def test_a_copy_that_was_killed_in_between_is_repeated(
    source: Store, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session("both", store=source)
    copy_sessions(source, target)
    racer = Racer(target, session)
    with monkeypatch.context() as patch:
        _after_the_end(source, racer, patch)
        patch.setattr("plait.copying.copy._CopyUnderWay._take_back", _die_if(racer))
        with pytest.raises(_Killed):
            copy_sessions(source, target, move=True)
    assert Session.open(session.id, store=source).status == "moved"
    with pytest.raises(LogsDiffer):
        copy_sessions(source, target)
    for store in (source, target):
        assert Session.open(session.id, store=store).say("on").text == "on"


class _Killed(BaseException):
    pass


def _die_if(racer: Racer) -> Callable[..., None]:
    def die(*_: object) -> None:
        if racer.is_done:
            raise _Killed

    return die


def _homes(source: Store, target: Store, session: Session) -> list[tuple[object, str]]:
    """Return the stores in which a session is at home."""
    opened = [(each.id, Session.open(session.id, store=each).status) for each in (source, target)]
    return [(id, status) for id, status in opened if status != "moved"]
