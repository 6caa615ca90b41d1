"""The house log: many writers, one chain, and no code of a run among them."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait import Session, Workflow, open_store
from plait.errors import InvalidValue, MayNotApprove, UnknownLog
from plait.event.kinds import PrincipalChanged, Signalled
from plait.ids import derive_id, house_of
from plait.session.audit import verify
from plait.session.house import append_to_house, house_events
from plait.session.inbox import inbox_events, post
from plait.session.ports import Act, Draft, Post, writer_of
from plait.store import Store
from tests.support import ForkedProgram, child_environment, module_command

COUNT = 200


def change(name: str, *causes: int) -> Draft:
    return Draft(PrincipalChanged(name, "added"), Act("human:ana", "human", causes=causes))


def names(store: Store) -> list[str]:
    return [
        event.body.principal
        for event in house_events(store)
        if isinstance(event.body, PrincipalChanged)
    ]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path / "store")
    yield store
    store.close()


def test_acts_stand_in_the_house_log_and_in_no_list(store: Store) -> None:
    session = Session("hello", store=store)
    [event] = append_to_house(store.address, [change("a")])
    assert (event.log, event.seq) == (house_of(store.id), 2)
    assert [each.kind for each in house_events(store)] == ["HouseOpened", "PrincipalChanged"]
    assert [each.seq for each in house_events(store, reverse=True)] == [2, 1]
    assert [each.seq for each in house_events(store, kinds={"PrincipalChanged"})] == [2]
    assert [log.id for _, log in store.logs()] == [session.id]
    assert list(verify(store, state=True)) == []


def test_a_writer_that_comes_second_checks_anew(store: Store) -> None:
    seen: list[list[str]] = []

    def rival(_: object) -> None:
        seen.append(names(store))
        if len(seen) < 3:
            append_to_house(store.address, [change(f"rival {len(seen)}")])

    append_to_house(store.address, [change("mine"), change("mine too")], check=rival)
    assert seen == [[], ["rival 1"], ["rival 1", "rival 2"]]
    assert names(store) == ["rival 1", "rival 2", "mine", "mine too"]

    def refuse(_: object) -> None:
        raise InvalidValue("plan", "the ground has moved")

    with pytest.raises(InvalidValue):
        append_to_house(store.address, [change("never")], check=refuse)
    assert len(names(store)) == 4


def test_an_act_rests_on_events_of_other_logs(store: Store) -> None:
    other, seen = Session("other", store=store), list[int]()

    def rival(_: object) -> None:
        nonlocal other
        seen.append(other.seq)
        if len(seen) < 3:  # between the check and the commit
            other = other.say("of no concern") if len(seen) == 2 else other.fact("k", 1)

    kinds = frozenset({"FactRecorded"})
    append_to_house(store.address, [change("mine")], check=rival, kinds=kinds)
    assert seen == [2, 3], "checked anew after the fact, and not after the message"
    assert names(store) == ["mine"]


def test_an_act_and_its_notices_are_one(store: Store) -> None:
    one, two = Session("one", store=store), Session("two", store=store)
    tries: list[int] = []

    def rival(events: object) -> None:
        tries.append(len(inbox_events(store, two.id)))
        if len(tries) == 1:  # one of the three logs moves on
            post(store.address, two.id, [Draft(Signalled("rival"), Act("human:b"))])

    notice = Draft(Signalled("fallen"), Act("human:ana", causes=(0,)))
    act, *notices = append_to_house(
        store.address,
        [change("rollback")],
        notices={one.id: [notice], two.id: [notice]},
        check=rival,
    )
    assert tries == [0, 1], "all of it was tried again"
    assert names(store) == ["rollback"]
    assert [event.header.causes for event in notices] == [(act.id,)] * 2
    assert [len(inbox_events(store, each.id)) for each in (one, two)] == [1, 2]
    numbers = [store.number_of(event.id) for event in (act, *notices)]
    assert numbers == list(range(store.number - 2, store.number + 1))
    unknown = derive_id("nowhere", 1)
    with pytest.raises(UnknownLog):
        append_to_house(store.address, [change("x")], notices={unknown: [notice]})
    with pytest.raises(InvalidValue):
        writer_of(None).post_all(store.address, [Post(None, [change("x")])] * 2)
    assert names(store) == ["rollback"] and list(verify(store)) == []


def test_code_of_a_run_does_not_act_for_the_house(store: Store) -> None:
    refusals: list[str] = []

    class Tries(Workflow):
        def forward(self, session: Session) -> Session:
            for writer in (writer_of(session.run), writer_of(None)):
                for attempt in (
                    lambda writer=writer: writer.post_to_house(store.address, [change("x")]),
                    lambda writer=writer: writer.post_all(
                        store.address, [Post(session.id, [change("x")])]
                    ),
                ):
                    with pytest.raises(MayNotApprove) as refusal:
                        attempt()
                    refusals.append(str(refusal.value))
            return session

    Tries()(Session("go", store=store))
    assert len(refusals) == 4 and all("human:ana" in each for each in refusals)
    assert names(store) == []


# ── processes ────────────────────────────────────────────────────────────────────────────────


def start_writer(store: Store, name: str) -> subprocess.Popen[str]:
    return ForkedProgram(
        module_command("tests.session.house_writer", store.address, name, str(COUNT)),
        env=child_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_processes_append_at_once(store: Store) -> None:
    writers = [start_writer(store, name) for name in "ab"]
    for writer in writers:
        writer.communicate(timeout=120)
        assert writer.returncode == 0
    events = list(house_events(store))
    assert [event.seq for event in events] == list(range(1, 2 * COUNT + 2))
    assert Counter(names(store)) == Counter(f"{name}-{n}" for name in "ab" for n in range(COUNT))
    assert list(verify(store, state=True)) == []


def test_a_process_that_is_killed_leaves_whole_acts(store: Store) -> None:
    for round, acknowledged in enumerate((1, 30, 70)):
        before = len(names(store))
        writer = start_writer(store, f"r{round}")
        assert writer.stdout is not None
        for _ in range(acknowledged):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        more = writer.communicate()[0].split()
        there = len(names(store)) - before
        assert acknowledged + len(more) <= there <= acknowledged + len(more) + 1
        assert list(verify(store, state=True)) == []
    append_to_house(store.address, [change("after")])
    assert names(store)[-1] == "after"
