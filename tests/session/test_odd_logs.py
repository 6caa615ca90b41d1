"""Logs that no session wrote: well-formed events that make no sense.

They give typed errors, and nothing hangs.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import pytest

from plait import Session, Store
from plait.errors import PlaitError
from plait.event import Body, seal_all
from plait.event.kinds import (
    FactRetracted,
    Merged,
    MessageSaid,
    PendingSettled,
    Place,
    Rewound,
    SessionOpened,
    SessionResumed,
    Text,
    ToolReturned,
)
from plait.ids import Digest, LogId
from plait.runtime.live import Live
from plait.session import verify
from plait.session.graph import family

D = Digest("d" * 64)


def raw(store: Store, *bodies: Body, log: LogId | None = None) -> Session:
    """A log begun through the store itself."""
    log = log or Live().fresh()
    store.begin(log, seal_all(bodies, log=log, seq=1, parents=(), source=Live(), actor="human:x"))
    return Session.open(log, store=store)


def ask_everything(session: Session) -> None:
    for name in (
        "facts",
        "messages",
        "lineage.path",
        "budget.usage",
        "status",
        "lineage.statuses",
        "lineage.sessions",
        "pending",
        "budget.left",
        "checks.verdicts",
        "text",
    ):
        attrgetter(name)(session)
    for ask in (
        session.lineage.graph,
        session.diff,
        lambda: session.why(session.seq),
        lambda: session.lineage.influence(1),
    ):
        str(ask())


OWN = LogId("00000000-0000-7000-8000-000000000001")


@pytest.mark.parametrize(
    "body",
    [
        Rewound(2),
        Rewound(0),
        Rewound(-5),
        Rewound(10**9),
        Merged((Place(OWN, 2, D),)),
        Merged((Place(OWN, 99, D),)),
        Merged((Place(LogId("00000000-0000-7000-8000-00000000dead"), 1, D),)),
        Merged((), base=Place(OWN, 2, D)),
        SessionOpened(continues=Place(OWN, 2, D), detached=True),
        SessionOpened(
            continues=Place(LogId("00000000-0000-7000-8000-00000000dead"), 1, D), detached=True
        ),
    ],
    ids=repr,
)
def test_a_log_that_contradicts_itself_is_a_typed_error(store: Store, body: Body) -> None:
    session = raw(store, SessionOpened(), body, log=OWN)
    with pytest.raises(PlaitError):
        ask_everything(session)
    repr(session)
    assert list(verify(store, state=True))


def test_a_log_that_is_only_odd_is_read_as_it_stands(store: Store) -> None:
    session = raw(
        store,
        SessionOpened(title="t"),
        FactRetracted("x"),
        PendingSettled("y"),
        SessionResumed(),
        ToolReturned(()),
        Merged(()),
    )
    ask_everything(session)
    assert session.facts == {} and session.pending == {} and list(verify(store, state=True)) == []


def test_a_merge_of_nothing_and_a_family_without_a_row(store: Store) -> None:
    log = Live().fresh()
    store.begin(
        log,
        seal_all(
            [MessageSaid("user", (Text("x"),))],
            log=log,
            seq=1,
            parents=(),
            source=Live(),
            actor="human:x",
        ),
    )
    assert family(store, log) == [log] and list(verify(store, state=True)) == []


@pytest.mark.parametrize("text", ["\x1b]0;x\x07", "\x00", "a\nb", "\u202e", "x" * 300])
def test_odd_texts_everywhere_come_back_exactly(store: Store, text: Any) -> None:
    session = Session(text, title=text, user=text, project=text, tags={text: text}, store=store)
    session = (
        session.note(text)
        .todo(text)
        .scratch("k", text)
        .lineage.link("s", "r", note=text)
        .pause(reason=text)
    )
    again = Session.open(session.id, store=store)
    assert (
        again.title == text
        and again.tags == {text: text}
        and again.user == text
        and again.scratchpad["k"] == text
    )
    assert again.lineage.statuses[-1].reason == text and list(again.facts.findings.values()) == [
        text
    ]
    assert Session.list(tag={text: text}, store=store) == [again]
    assert repr(again) and str(again.why(2)) and str(again.diff())
    assert list(verify(store, state=True)) == []
