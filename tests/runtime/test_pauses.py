"""Pauses: a session that is paused goes no further until a person wants it to, and always can."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, product
from threading import Event as Flag
from threading import Thread

import pytest

from plait import Agent, ScriptedModel, Session, Workflow, open_store, resume, tool
from plait.calls.tool_call import SERVICE
from plait.errors import NoRun, NothingToResume, RunHeld, UnknownAsk, WrongStatus
from plait.event import kinds as k
from plait.journal.stops import Cancelled, Parked
from plait.journal.writer import direct_writer
from plait.policy import Ask, Policy
from plait.runs.turns import TurnClient
from plait.runtime.attendants import NOBODY
from plait.session import verify
from plait.session.inbox import post
from plait.session.ports import Act, Draft
from plait.session.session import session_at
from plait.session.value import open_run_of, position_of
from tests.support import assert_replays, dose, echo_last_words, kinds, parked_session

_names = count(1)


class Desk(Workflow):
    """Looks, and wires money with consent, if the message is "wire"; then answers."""

    policy = Policy(Ask("wire"))

    def __init__(self) -> None:
        self.wired: list[int] = []
        self.on_look: Callable[[], object] = lambda: None
        self.on_wire: Callable[[], object] = lambda: None
        self.agent = Agent("Repeat.", model=ScriptedModel(echo_last_words), name="echo")

        @tool(effect="idempotent")
        def look() -> str:
            """Look."""
            self.on_look()
            return "seen"

        @tool(version="1")
        def wire(amount: int) -> str:
            """Wire."""
            self.wired.append(amount)
            self.on_wire()
            return "wired"

        self._look, self._wire = look, wire

    def forward(self, session: Session) -> Session:
        if session.messages[-1].text == "wire":
            session = session.use(self._look).use(self._wire, amount=5)
        return self.agent(session)


def new_session() -> Session:
    return Session(title="chat", store=open_store(f"memory:pauses-{next(_names)}"))


def parked(desk: Desk) -> Session:
    """A session whose run waits for an approval, without a process."""
    session = new_session()
    with pytest.raises(Parked):
        session.turn("wire", desk)
    return session.reload()


def approve(session: Session) -> None:
    waiting = session.inbox.waiting
    session.inbox.approve(waiting[0] if waiting else "none", actor="human:ann")


# ── every order of acts ──────────────────────────────────────────────────────────────────────

STATES = ("none", "going", "parked", "ended")
ACTS = ("pause", "unpause", "cancel", "turn", "resume", "approve")


class Table:
    """A session, and a model of it: what each act does, and what it says."""

    def __init__(self, state: str) -> None:
        self.state, self.desk, self.session = state, Desk(), new_session()
        self.store = open_store(self.session.store)
        self.paused = self.asked = self.approved = self.cancelled = False
        self.posted: list[str] = []
        self._go = Flag()
        self._thread: Thread | None = None
        if state in ("going", "parked"):
            self.begin()
        if state == "parked":
            self.let_go()
        if state == "ended":
            self.session.turn("first", self.desk)

    def begin(self) -> None:
        """Start a run, and hold it in its first effect."""
        held = Flag()

        def on_look() -> None:
            held.set()
            assert self._go.wait(120)

        self.desk.on_look = on_look

        def work() -> None:
            with pytest.raises((Parked, Cancelled)):
                self.session.turn("wire", self.desk)

        self._thread = Thread(target=work)
        self._thread.start()
        assert held.wait(120)

    def let_go(self) -> None:
        """Let the run go on to where it parks, or ends."""
        if self._thread is None:
            return
        self._go.set()
        self._thread.join()
        self._thread = None
        self.state = "ended" if self.cancelled else "parked"
        self.asked = self.state == "parked" and not self.paused

    @property
    def now(self) -> Session:
        return self.session.reload()

    def act(self, name: str) -> None:
        error = self.expected_error(name)
        deed: Callable[[], object] = getattr(self, name)
        if error is None:
            deed()
        else:
            with pytest.raises(error):
                deed()
        self.note(name, error)
        assert (self.now.status == "paused") == self.paused
        reader = Session.list(status="paused", store=self.session.store)
        assert [each.id for each in reader] == [self.session.id] * self.paused

    def expected_error(self, name: str) -> type[BaseException] | None:
        has_run, waits = self.state in ("going", "parked"), self.state == "parked"
        if name in ("pause", "turn") and self.paused:
            return WrongStatus
        if name == "unpause":
            return None if self.paused else WrongStatus
        if name == "cancel":
            return None if has_run else NoRun
        if name == "approve":
            return None if waits and self.asked and not self.approved else UnknownAsk
        if name == "turn":
            return Parked if waits and self.asked and not self.approved else None
        if name == "resume":
            if self.state == "going":
                return RunHeld
            if waits:
                return None if self.approved else Parked
            is_over = self.state == "none" or self.cancelled
            return NothingToResume if is_over and not self.now.inbox.queued else None
        return None

    def note(self, name: str, error: type[BaseException] | None) -> None:
        """Move the model on."""
        if name == "pause" and error is None:
            self.paused = True
        elif name == "approve" and error is None:
            self.approved = True
        elif name in ("unpause", "cancel") and error is None:
            self.paused = False
            if name == "cancel":
                self.cancelled = True
                self.state = "ended" if self.state == "parked" else self.state
        elif name == "resume" and error in (None, Parked):
            self.paused, self.asked = False, True
        if name in ("turn", "resume") and error is None and self.state != "going":
            self.state = "ended"
            self.cancelled = self.cancelled and name == "resume" and not self.posted

    # ── acts ─────────────────────────────────────────────────────────────────────────────────

    def pause(self) -> None:
        self.now.pause(actor="human:ann")

    def unpause(self) -> None:
        self.now.unpause(actor="human:ann")

    def cancel(self) -> None:
        self.now.inbox.cancel(actor="human:ann")

    def approve(self) -> None:
        approve(self.now)

    def resume(self) -> None:
        resume(self.now, self.desk)

    def turn(self) -> None:
        words = f"m{len(self.posted)}"
        if self.state == "going":  # its client goes away: the message stays
            TurnClient.post(self.session, words, self.desk, "", None, NOBODY).release()
            self.posted.append(words)
            return
        try:
            self.session.turn(words, self.desk)
        except Parked:
            self.posted.append(words)
            raise
        except WrongStatus as refused:
            assert "paused" in str(refused) and "Nothing was written" in str(refused)
            raise
        self.posted.append(words)

    # ── the way on ───────────────────────────────────────────────────────────────────────────

    def lead_on(self, first: str) -> None:
        """Go on to the end from any state, with `resume` or with `unpause` and a turn."""
        self.let_go()
        for _ in range(3):
            if first == "unpause" and self.now.status == "paused":
                self.unpause()
            try:
                if first == "resume":
                    self.resume()
                else:
                    assert self.session.turn("on", self.desk, key="on").text == "ok on"
                break
            except Parked:
                if self.now.inbox.waiting:
                    self.approve()
            except NothingToResume:
                if self.now.status == "paused":
                    self.unpause()
                break
        self.session.turn("last", self.desk)
        now = self.now
        texts = [message.text for message in now.messages]
        assert now.status == "finished" and texts[-1] == "ok last"
        for words in self.posted:
            assert texts.count(words) == texts.count(f"ok {words}") == 1
        assert self.desk.wired in ([], [5]) and now.inbox.queued == []
        assert_replays(now, self.desk)
        assert list(verify(self.store, state=True)) == []


def orders() -> Iterator[tuple[str, ...]]:
    for length in range(1, dose("PAUSE_ACTS", 2, 3, ci=3) + 1):
        yield from product(ACTS, repeat=length)


@pytest.mark.parametrize("first", ["resume", "unpause"])
@pytest.mark.parametrize("state", STATES)
def test_every_order_of_acts_leads_on(state: str, first: str) -> None:
    for order in orders():
        table = Table(state)
        try:
            for name in order:
                table.act(name)
            table.lead_on(first)
        except BaseException as error:
            error.add_note(f"{state}: {' '.join(order)}")
            raise
        finally:
            table.let_go()
            table.store.close()


# ── what each of them means ──────────────────────────────────────────────────────────────────


def test_a_message_does_not_lift_a_pause_and_resume_does() -> None:
    desk = Desk()
    session = parked(desk)
    session.pause(actor="human:ann")
    approve(session)
    with pytest.raises(WrongStatus, match="is paused: it cannot take turns"):
        session.turn("second", desk)
    assert desk.wired == [] and session.reload().status == "paused"
    assert resume(session, desk).text == "ok wire" and desk.wired == [5]
    assert_replays(session.reload(), desk)


def test_messages_behind_a_paused_run_stand_in_the_queue() -> None:
    desk = Desk()
    session = parked(desk)
    with pytest.raises(Parked, match="waits for approval"):
        session.turn("second", desk, key="2")
    session.pause()
    with pytest.raises(Parked, match="paused: the turn stands in the queue"):
        session.turn("second", desk, key="2")
    approve(session)
    assert resume(session, desk).text == "ok second"


def test_a_retry_of_an_answered_turn_gets_theecho_last_words_a_paused_or_closed_session() -> None:
    desk, session = Desk(), new_session()
    session.turn("hi", desk, key="k")
    for after in (session.reload().pause(), session.reload().unpause().close()):
        assert session.turn("hi", desk, key="k").text == "ok hi"
        with pytest.raises(WrongStatus):
            session.turn("more", desk, key="another")
        assert after.inbox.queued == []


def test_a_pause_that_no_run_heard_holds_after_the_run() -> None:
    desk, session = Desk(), new_session()
    other = Session.open(session.id, store=session.store)

    def answer(at: Session) -> str:
        person = Thread(target=other.pause)
        person.start()
        person.join()
        return "ok"

    desk.agent = Agent("Answer.", model=ScriptedModel(answer), name="echo")
    assert session.turn("hi", desk).text == "ok"  # the model was asked already
    assert session.reload().status == "paused"
    with pytest.raises(WrongStatus, match="paused"):
        session.turn("more", desk)
    with pytest.raises(WrongStatus, match="paused"):
        desk(session.reload())
    desk = Desk()
    session.reload().unpause()
    assert session.reload().status == "finished"
    assert session.turn("more", desk).text == "ok more"
    assert kinds(session.reload()).count("SessionPaused") == 1  # both are on record by then
    assert_replays(session.reload(), desk)


def test_a_pause_of_a_run_whose_process_dies_holds() -> None:
    desk, session = Desk(), new_session()

    def die() -> None:
        person = Thread(target=Session.open(session.id, store=session.store).pause)
        person.start()
        person.join()
        raise KeyboardInterrupt

    desk.on_look = die
    with pytest.raises(KeyboardInterrupt):
        session.turn("wire", desk)
    assert session.reload().status == "paused"
    desk.on_look = lambda: None
    with pytest.raises(WrongStatus, match="paused"):
        session.turn("more", desk)
    with pytest.raises(Parked, match="needs consent"):
        resume(session, desk)
    assert session.reload().status == "waiting"


def test_a_pause_that_was_lifted_leaves_no_doubt_aside() -> None:
    """A consent that is delivered with a pause and its end is used at once: if the process dies in
    the call, the outcome is not known.
    """
    desk = Desk()
    session = parked(desk)
    session.pause()
    approve(session)
    session.unpause()

    def die() -> None:
        raise KeyboardInterrupt

    desk.on_wire = die
    with pytest.raises(KeyboardInterrupt):
        resume(session, desk)
    desk.on_wire = lambda: None
    parked_session(lambda: resume(session.reload(), desk))
    assert desk.wired == [5] and "ToolUnknown" in kinds(session.reload())


def test_a_pause_that_was_passed_by_is_over() -> None:
    """Earlier versions left a pause of a parked run out of the log when the run was resumed."""
    session = new_session()
    (word,) = post(session.store, session.id, [Draft(k.SessionPaused(), Act("human:ann"))])
    assert session.status == "paused"
    heard = k.Delivered(word.log, word.seq, 0)
    after = direct_writer().write(position_of(session), [Draft(heard, Act(SERVICE))])[0]
    assert session_at(after).status == "open"
    assert Session.list(status="paused", store=session.store) == []


def test_a_cancel_lifts_the_pause_of_its_run() -> None:
    desk = Desk()
    session = parked(desk)
    session.pause()
    session.inbox.cancel("enough", actor="human:ann")
    assert session.reload().status == "cancelled" and open_run_of(session.reload()) is None
    assert session.turn("more", desk).text == "ok more"
