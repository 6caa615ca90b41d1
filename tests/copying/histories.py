"""Sessions of all sorts in a store, and the comparison of two stores that have the same ones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from plait import (
    Agent,
    Memory,
    Parallel,
    ScriptedModel,
    Session,
    Store,
    ToolCall,
    Workflow,
    ask_human,
    tool,
)
from plait.errors import PlaitError
from plait.event.kinds import Scope
from plait.ids import Digest, LogId, inbox_of
from plait.session import verify
from plait.session.state import state_digest
from plait.session.value import state_of
from plait.store import visible_events
from tests.support import parked_session

SCOPES: tuple[Scope, ...] = ("session", "project")


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Stops(Workflow):
    """Forks, and is stopped in the middle."""

    def forward(self, session: Session) -> Session:
        session = session.note("begun")
        session.fork("side").note("aside")
        raise KeyboardInterrupt


def asker() -> Agent:
    """An agent that asks a person, and then answers."""
    model = ScriptedModel([ToolCall("ask_human", question="Really?"), "done"])
    return Agent("Ask.", model=model, tools=[ask_human], name="asker")


def worker() -> Agent:
    model = ScriptedModel([ToolCall("add", a=1, b=2), "three"])
    return Agent("Add.", model=model, tools=[add], name="worker")


def waiting_session(store: Store) -> Session:
    """A session whose run waits for a person."""
    return parked_session(lambda: asker()(Session("wait", store=store, title="waiting")))


def interrupted_session(store: Store) -> Session:
    """A session whose run is open, and held by no process."""
    session = Session("go", store=store, title="interrupted")
    with pytest.raises(KeyboardInterrupt):
        Stops()(session)
    return session.reload()


def write_history(store: Store, folder: Path, seed: int, steps: int = 25) -> None:
    """Write sessions with forks, merges, rewinds, inboxes, runs, files and memories."""
    chance, memory = random.Random(seed), Memory(store=store)
    files = folder / f"files-{seed}"
    files.mkdir(parents=True)
    (files / "a.txt").write_text(f"a {seed}\n" * 50)
    (files / "sub").mkdir()
    (files / "sub" / "b.bin").write_bytes(chance.randbytes(20_000))
    first = Session("begin", store=store, user="u-1", project="shop", title="first")
    open_now = [first, first.to("local", files)]
    for n in range(steps):
        at = chance.randrange(len(open_now))
        session = open_now[at].reload()
        act = chance.choice("say fork merge rewind run parallel send remember decide next".split())
        try:
            if act == "say":
                session = session.say(f"word {n} " * chance.choice([1, 400]))
            elif act == "fork":
                open_now.append(session.fork(f"f{n}").fact("n", n))
            elif act == "merge":
                other = chance.choice(open_now).reload()
                session = session.merge(other) if other.id != session.id else session
            elif act == "rewind":
                session = session.rewind(chance.randint(1, session.seq))
            elif act == "run":
                session = worker()(session)
            elif act == "parallel":
                session = Parallel(a=worker(), b=worker())(session)
            elif act == "send":
                session.inbox.send(f"news {n}")
            elif act == "remember":
                scope: Scope = chance.choice(SCOPES)
                text = f"The host is h{chance.randint(1, 3)}."
                session = memory.remember(session, text, scope=scope, key="host", evidence=session)
            elif act == "decide":
                items = memory.items(session=session)
                if items:
                    memory.forget(chance.choice(items).id, actor="human:ana")
            else:
                open_now.append(session.successor(title=f"next {n}"))
        except PlaitError:
            continue
        open_now[at] = session


def sessions_of(store: Store) -> list[LogId]:
    rows = store.rows("session", "session", limit=10_000)
    return [LogId(str(row["log"])) for row in rows]


def assert_same(source: Store, target: Store) -> None:
    """Assert that every session of a store is in another one, the same in every respect."""
    assert list(verify(target, state=True)) == []
    assert list(verify(source, state=True)) == []
    for log in sessions_of(source):
        info, other = source.log(log), target.log(log)
        ours = Session.open(log, store=source)
        theirs = Session.open(f"{log}@{info.tip}", store=target)
        assert theirs.head == ours.head
        assert [event.id for event in source.read(log)] == [
            event.id for event in target.read(log, 1, info.tip)
        ]
        assert ours.messages == theirs.messages
        assert state_digest(state_of(ours)) == state_digest(state_of(theirs))
        if ours.files.tree is not None:
            paths = ours.files.paths()
            assert paths == theirs.files.paths()
            assert [ours.files.read(each) for each in paths] == [
                theirs.files.read(each) for each in paths
            ]
        # a session that moved has one event more there, and those of a run that went on
        is_moved = source.event(info.head).kind == "SessionMoved"
        assert other.tip > info.tip if is_moved else other.tip == info.tip
        inbox = inbox_of(log)
        assert (
            source.heads([inbox]).get(inbox, info).head
            == target.heads([inbox]).get(inbox, info).head
        )


def commit_order(store: Store, events: set[Digest]) -> list[Digest]:
    """Some events in the order of their commits. Rows follow from it, as `verify` has checked."""
    return [event.id for _, event in visible_events(store) if event.id in events]
