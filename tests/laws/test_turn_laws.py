"""Law: every message that stands in the queue is said once and answered once, in the order of the
queue, whatever happens to the clients and to the processes that run.

Clients post, look and act in any order, and so do keepers of the queue; a client may go away before
its turn, and a process may end, or let go of its run, before any write of a run. A person pauses
the session and lifts the pause: meanwhile no message is posted, and no effect begins. In the end
all are gone: the status tells if anything is left, and a resume takes all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from tempfile import mkdtemp

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from plait import Agent, ScriptedModel, Session, Workflow, open_store, resume, tool
from plait.errors import WrongStatus
from plait.event import kinds as k
from plait.journal.stops import Cancelled, Parked
from plait.runs.take_up import resume_run
from plait.runs.turn_queue import QueueClient, QueueKeeper, TakeTurn, TakeUp
from plait.runs.turns import TurnClient
from plait.runtime.attendants import NOBODY
from plait.runtime.invoke import EnteredCall, invoke
from plait.runtime.run import Run
from plait.session import verify
from plait.session.ports import Draft
from plait.session.value import open_run_of
from tests.support import count as counted
from tests.support import echo_last_words

_names = count(1)


class _Ended(BaseException):
    """The process ended here."""


class _Chat(Workflow):
    def __init__(self) -> None:
        self.effects: list[str] = []
        self.agent = Agent("Repeat.", model=ScriptedModel(echo_last_words), name="echo")

        @tool(effect="idempotent")
        def note(words: str) -> str:
            self.effects.append(words)
            return words

        self._note = note

    def forward(self, session: Session) -> Session:
        words = session.messages[-1].text
        return self.agent(session.use(self._note, words=words))


class Clients(RuleBasedStateMachine):
    """Clients of one chat; each looks for itself, and acts on its last look."""

    def address(self) -> str:
        return f"memory:turns-{next(_names)}"

    def __init__(self) -> None:
        super().__init__()
        self.store = open_store(self.address())
        self.session, self.chat = Session("hello", store=self.store), _Chat()
        self.clients: list[QueueClient] = []
        self.looks: dict[int, object] = {}
        self.posted: list[str] = []
        self.paused = False

    # ── clients ──────────────────────────────────────────────────────────────────────────────

    @rule()
    def post(self) -> None:
        words = f"m{len(self.posted)}"
        if self.paused:
            with pytest.raises(WrongStatus, match="is paused"):
                TurnClient.post(self.session, words, self.chat, "", None, NOBODY)
            return
        self.posted.append(words)
        self.clients.append(TurnClient.post(self.session, words, self.chat, "", None, NOBODY))

    @rule()
    def pause_or_unpause(self) -> None:
        now = self.session.reload()
        now.unpause() if self.paused else now.pause()
        self.paused = not self.paused

    @rule()
    def keep_queue(self) -> None:
        self.clients.append(QueueKeeper(self.session, self.chat, NOBODY))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.clients) - 1))
        try:
            self.looks[at] = self.clients[at].look()
        except Parked as parked:
            assert self.paused and "stands in the queue" in parked.why
            self.looks.pop(at, None)

    @precondition(lambda self: self.looks)
    @rule(data=st.data(), ends=st.integers(-1, 12), stop=st.sampled_from([_Ended, Cancelled]))
    def act(self, data: st.DataObject, ends: int, stop: type[BaseException]) -> None:
        """Do the step that was due at the last look, up to so many writes; -1: to its end. The
        process is then killed, or lets go of the run.
        """
        at = data.draw(st.sampled_from(sorted(self.looks)))
        self._act(self.clients[at], self.looks.pop(at), ends, stop)

    def _act(self, client: QueueClient, step: object, ends: int, stop: type[BaseException]) -> None:
        begun: list[Run] = []

        def cut(entered: EnteredCall | Run) -> None:
            run = entered.run if isinstance(entered, EnteredCall) else entered
            begun.append(run)
            left = count(ends, -1)

            def on_write(moment: str, drafts: Sequence[Draft]) -> None:
                if moment == "before" and next(left) == 0:
                    raise stop

            run.journal.on_write = on_write if ends >= 0 else None

        try:
            if isinstance(step, TakeTurn):
                call = client.call_of(step, lambda entered: None)
                invoke(msgspec.structs.replace(call, on_start=cut))
            elif isinstance(step, TakeUp):
                session, workflow, watch = client.resumption_of(step)
                resume_run(session, workflow, (), {}, watch, None, cut, lifts_pause=False)
        except (_Ended, Cancelled):
            pass
        except Parked:
            assert self.paused
        except BaseException as error:
            has_begun = bool(begun)
            assert isinstance(step, (TakeTurn, TakeUp))
            assert client.is_answered_by(step, error, has_begun=has_begun), repr(error)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def go_away(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.clients) - 1))
        self.clients.pop(at).release()
        self.looks = {each - (each > at): step for each, step in self.looks.items() if each != at}

    # ── what holds ───────────────────────────────────────────────────────────────────────────

    @invariant()
    def each_is_said_once_in_order(self) -> None:
        said = [
            message.text for message in self.session.reload().messages if message.role == "user"
        ]
        assert said == ["hello", *self.posted[: len(said) - 1]]

    @invariant()
    def the_status_tells_of_the_pause(self) -> None:
        assert (self.session.reload().status == "paused") == self.paused

    def teardown(self) -> None:
        if self.paused:
            self.session.reload().unpause()
        for client in self.clients:
            client.release()
        texts = [message.text for message in self.session.reload().messages]
        is_left = open_run_of(self.session.reload()) is not None or texts[1:] != [
            text for each in self.posted for text in (each, f"ok {each}")
        ]
        assert (self.session.reload().status == "interrupted") == is_left
        if is_left:
            resume(self.session, self.chat)
        assert self.session.reload().status != "interrupted"
        now, words = self.session.reload(), self.posted
        pairs = [text for each in words for text in (each, f"ok {each}")]
        assert [message.text for message in now.messages] == ["hello", *pairs]
        kinds = [event.kind for event in self.store.read(self.session.id)]
        assert kinds.count(k.RunStarted.__name__) == len(words)
        assert kinds.count(k.RunFinished.__name__) == len(words)
        assert set(self.chat.effects) == set(words)
        assert list(verify(self.store, state=True)) == []
        counted("turns", self.store)
        self.store.close()


class ClientsOnDisk(Clients):
    def address(self) -> str:
        return str(Path(mkdtemp(prefix="turns-")) / "store")


@pytest.mark.parametrize("machine", [Clients, ClientsOnDisk], ids=["memory", "sqlite"])
def test_turns(machine: type[Clients]) -> None:
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=16))
