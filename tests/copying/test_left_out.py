"""Sessions that cannot be copied: they are left out with all that rests on them, and others go."""

from __future__ import annotations

import pytest

from plait import Memory, Session, Store
from plait.copying import copy_sessions
from plait.errors import LogsDiffer
from plait.event.kinds import Text, TurnPosted
from plait.ids import inbox_of
from plait.session import verify
from plait.session.inbox import post
from plait.session.ports import Act, Draft
from tests.copying.histories import sessions_of, waiting_session


def test_others_are_copied(source: Store, target: Store) -> None:
    """What cannot be copied is left out, with all that rests on it."""
    memory = Memory(store=source)
    bad = Session("bad", store=source, user="u-1", project="shop")
    early = bad.fork("early")
    copy_sessions(source, target)
    Session.open(bad.id, store=target).say("there")
    bad = bad.say("here")
    bad.inbox.send("news")
    late, free, held = bad.fork("late"), Session("free", store=source), waiting_session(source)
    merged = early.fork("m").say("m").merge(late.say("l"))
    judged = Session("judged", store=source, user="u-1", project="shop")
    judged = memory.remember(judged, "The host is a.", scope="session", evidence=judged)
    bad = memory.remember(bad, "The port is b.", scope="session", evidence=bad)
    for each in (judged, bad):
        memory.forget(memory.items(session=each)[0].id, actor="human:ana")
    lock = source.lock(str(source.rows("inbox", "run", limit=1)[0]["run"]), held.short)
    tried = copy_sessions(source, target, is_trial=True)
    found = copy_sessions(source, target)
    left = {each.log: each.error for each in found.left_out}
    differ = {log: "LogsDiffer" for log in (bad.id, late.id, merged.id, judged.id)}
    assert left == {**differ, held.id: "RunHeld"}
    assert {each.log for each in tried.left_out} == {*left} - {held.id}
    assert str(bad.id) in next(each.why for each in found.left_out if each.log == late.id)
    assert {free.id, early.id} <= {*sessions_of(target)}
    assert not target.heads([late.id, merged.id, judged.id, held.id, inbox_of(bad.id)])
    assert list(verify(target, state=True)) == []
    lock.release()
    again = copy_sessions(source, target)
    assert again.moved == (held.id,) and {each.log for each in again.left_out} == {*differ}
    with pytest.raises(LogsDiffer):
        copy_sessions(source, target, [late.id])
    assert list(verify(target, state=True)) == []


def test_a_session_that_went_on_there_does_not_move(source: Store, target: Store) -> None:
    session, other = Session("queue", store=source), Session("other", store=source)
    copy_sessions(source, target)
    Session.open(session.id, store=target).say("there")
    body = TurnPosted((Text("hello"),), log=session.id, client="gone")
    post(source.address, session.id, [Draft(body, Act("human:ana", "human"))])
    other.say("more")
    found = copy_sessions(source, target)
    assert [(each.log, each.error) for each in found.left_out] == [(session.id, "LogsDiffer")]
    assert (found.events, found.moved, session.reload().status) == (1, (), "interrupted")
