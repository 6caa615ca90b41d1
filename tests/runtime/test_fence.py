"""Who holds a run, seen from inside one process: the other ones are events that stand in the root
when somebody next looks.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plait import Session, Workflow, open_store, tool
from plait.errors import RunHeld, RunLost, StaleEpoch
from plait.event import kinds as k
from plait.journal.stops import Halted, Parked
from plait.runs.resume import resume
from plait.runs.take_up import resume_run
from plait.runtime.appends import append_around_run
from plait.runtime.attendants import NOBODY
from plait.runtime.invoke import invoke
from plait.runtime.registry import is_going_on
from plait.runtime.run import Run
from plait.session.inbox import all_waiting
from plait.session.ports import Act, Draft, store_at
from plait.session.value import open_run_of, position_of
from plait.tool import Happened, Tool


def another_takes(session: Session, times: int = 9) -> None:
    """Write as another process does when it takes the run; its lock is of no interest here."""
    now = session.reload()
    run = next(event.header.run for event in reversed(now.events) if event.kind == "RunStarted")
    there = position_of(Session.open(session.id, store=store_at(session.store)))
    spot = type(there)(there.store, there.id, there.seq, there.head, run)
    append_around_run(
        spot, [Draft(k.RunResumed("elsewhere/7/9", times), Act("human:other", "human"))]
    )


def another_ends(session: Session, body: k.Body) -> None:
    there = Session.open(session.id, store=store_at(session.store))
    run = open_run_of(there)
    spot = type(position_of(there))(there.store, there.id, there.seq, there.head, run)
    append_around_run(spot, [Draft(body, Act("human:other", "human"))])


class Till:
    """Counts what was really done."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.asked: list[str] = []

    def tool(self, effect: Any = "idempotent", **more: Any) -> Tool[..., Any]:
        @tool(effect=effect, **more)
        def pay(idempotency_key: str) -> str:
            self.paid.append(idempotency_key)
            return "paid"

        return pay


class Paying(Workflow):
    """Pays once; `before` is called right before that, whenever `forward` comes there."""

    def __init__(self, pay: Tool[..., Any], before: Any = None) -> None:
        self.pay, self.before = pay, before

    def forward(self, session: Session) -> Session:
        if self.before is not None:
            self.before(session)
        return session.use(self.pay)


def died_after_its_request(session: Session, workflow: Workflow) -> None:
    """A run whose process ends right after the request of its payment is on record."""

    def entered(entry: Any) -> None:
        def die(when: str, drafts: Any) -> None:
            if when == "after" and any(isinstance(draft.body, k.ToolRequested) for draft in drafts):
                raise entry.run.journal.fence.halt(None)

        entry.run.journal.on_write = die

    with pytest.raises(Halted):
        invoke(msgspec.structs.replace(workflow.invocation(session), on_start=entered))


@pytest.mark.parametrize("branch", [False, True])
def test_a_call_on_record_is_not_made_again_by_who_lost_the_run_since(branch: bool) -> None:
    """Nothing has to be written before it: its request stands there."""
    till, session = Till(), Session("go")

    class Branching(Paying):
        def forward(self, session: Session) -> Session:
            if self.before is not None:
                self.before(session)
            return (
                session.merge(session.fork("a").use(self.pay)) if branch else session.use(self.pay)
            )

    died_after_its_request(session, Branching(till.tool()))
    with pytest.raises(RunLost, match="elsewhere/7/9"):
        resume(session, Branching(till.tool(), another_takes))
    assert till.paid == []
    resume(session, Branching(till.tool()))
    assert len(till.paid) == 1


@pytest.mark.parametrize("way", ["probe", "compensate"])
def test_who_lost_a_run_neither_probes_nor_undoes_a_call(way: str) -> None:
    till, session = Till(), Session("go")

    def find_out(idempotency_key: str) -> Happened | None:
        till.asked.append(idempotency_key)
        return None

    pay = till.tool("probeable" if way == "probe" else "compensatable", **{way: find_out})
    died_after_its_request(session, Paying(pay))
    with pytest.raises(RunLost):
        resume(session, Paying(pay, another_takes))
    assert till.paid == till.asked == []
    resume(session, Paying(pay))
    assert len(till.paid) == len(till.asked) == 1


def test_of_two_that_resume_at_the_same_time_one_is_told() -> None:
    till, session = Till(), Session("go")
    died_after_its_request(session, Paying(till.tool()))
    looked = session.reload()
    with pytest.raises(RunHeld, match="elsewhere/7/9"):
        resume_run(
            session, Paying(till.tool()), (), {}, NOBODY, None, lambda run: another_takes(session)
        )
    assert till.paid == [] and [event.kind for event in session.reload().events[looked.seq :]] == [
        "RunResumed"
    ]
    assert resume(session, Paying(till.tool())).result == "paid"


@pytest.mark.parametrize("end", [k.RunFinished(), k.RunCancelled("enough", "human:boss")])
def test_a_run_that_ended_while_it_was_looked_at_is_not_resumed(end: k.Body) -> None:
    till, session = Till(), Session("go")
    died_after_its_request(session, Paying(till.tool()))
    ended = [False]

    def ends(run: Run) -> None:
        assert not ended[0], "it is looked at once more"
        ended[0] = True
        another_ends(session, end)

    try:
        resume_run(session, Paying(till.tool()), (), {}, NOBODY, None, ends)
    except Exception as error:
        assert "human:boss cancelled its run" in str(error)
    assert ended[0] and till.paid == [] and session.reload().events[-1].kind == type(end).__name__


def test_a_process_that_lost_a_run_can_take_it_again_and_values_of_before_write_nothing_until_then() -> (  # noqa: E501
    None
):
    till, session = Till(), Session("go")
    kept: list[Session] = []

    def lose(inside: Session) -> None:
        if not kept:
            kept.extend([inside, inside.fork("a")])
            another_takes(inside)

    with pytest.raises(RunLost, match="elsewhere/7/9"):
        Paying(till.tool(), lose)(session)
    logs = [log for _, log in open_store(session.store).logs()]
    for value in kept:
        assert value.run is not None and not is_going_on(value.run)
        for act in (
            lambda value=value: value.use(till.tool()),
            lambda value=value: value.fork("b"),
            lambda value=value: value.reload().say("still here"),
            lambda value=value: Paying(till.tool())(value),
            lambda value=value: value.successor(),
        ):
            with pytest.raises(RunLost):
                act()
    assert till.paid == [] and [log for _, log in open_store(session.store).logs()] == logs
    assert resume(session, Paying(till.tool())).result == "paid" and len(till.paid) == 1


def test_a_session_can_be_cancelled_by_a_process_that_lost_its_run() -> None:
    till, session = Till(), Session("go")
    with pytest.raises(RunLost):
        Paying(till.tool(), another_takes)(session)
    session.reload().inbox.cancel("enough")
    assert open_run_of(session.reload()) is None and till.paid == []


def test_a_run_that_is_over_at_its_last_write_says_so() -> None:
    class Quiet(Workflow):
        def forward(self, session: Session) -> Session:
            another_takes(session)
            return session

    with pytest.raises(RunLost):
        Quiet()(Session("go"))


def test_code_of_a_lost_run_resumes_nothing() -> None:
    till, other = Till(), Session("other")
    died_after_its_request(other, Paying(till.tool()))

    class Resuming(Workflow):
        def forward(self, session: Session) -> Session:
            another_takes(session)
            resume(other, Paying(till.tool()))
            return session

    before = other.reload()
    with pytest.raises(RunLost):
        Resuming()(Session("go"))
    assert till.paid == [] and other.reload() == before


def test_what_others_say_carries_no_epoch_and_is_taken() -> None:
    till, session = Till(), Session("go")

    def say(inside: Session) -> None:
        there = Session.open(session.id, store=open_store(session.store))
        there.inbox.send("from outside")
        there.fork("another's").say("on a branch of another's")

    ended = Paying(till.tool(), say)(session)
    assert ended.result == "paid" and "from outside" in [message.text for message in ended.messages]


def test_a_run_that_parks_and_is_resumed_again_and_again_keeps_its_fence() -> None:
    session = Session("go", store="memory:asking")

    class Asking(Workflow):
        def forward(self, session: Session) -> Session:
            fork = session.fork("a")
            for number in range(4):
                fork = fork.ask(f"question {number}")
            return session.merge(fork)

    with pytest.raises(Parked):
        Asking()(session)
    for _ in range(3):
        with pytest.raises(Parked):
            answer(session)
            resume(session, Asking())
    answer(session)
    ended = resume(session, Asking())
    log = open_store(session.store).log(session.id)
    assert (
        log.epoch
        == sum(event.kind.startswith("Run") for event in ended.events if event.log == session.id)
        == 6
    )


def answer(session: Session) -> None:
    (ask,) = [each for each in all_waiting(open_store(session.store)) if each.kind == "question"]
    Session.open(ask.log, store=open_store(session.store)).inbox.answer(ask, "yes")


def test_the_error_of_the_store_names_log_and_epochs() -> None:
    error = StaleEpoch("log", 1, 3)
    assert (error.log, error.expected, error.found) == ("log", 1, 3) and "resume it" in str(error)
