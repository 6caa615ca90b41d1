"""Questions to the finished run: why a line is as it is, and what another answer had led to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from plait.demo.figures import DemoFigures
from plait.demo.pacing import DEMO
from plait.event import Event
from plait.event import kinds as k
from plait.journal.stops import Parked
from plait.session import Session
from plait.session.content import text_of
from plait.session.trace import Step

OTHER_PLAN = "Let it stop at zero."
LABEL = "zero"  # of the branch of the what-if
RULE = "by the rule of the demo, in a branch, in a copy of the files"


class Alternative(NamedTuple):
    """Another outcome of the same run, beside the recorded one."""

    session: Session
    plan: Event  # the reply that was replaced
    model_calls: int
    seconds: float
    rows: list[tuple[str, str, str]]  # what, as it was, what if


def answer_why(session: Session, place: str) -> Iterator[tuple[str, str]]:
    """Yield four lines: the line, the call that wrote it, what its model had seen, who asked."""
    path, _, number = place.rpartition(":")
    trace = list(session.why(place))
    line = session.files.text(path).splitlines()[int(number) - 1].strip()
    call = next(step for step in trace if step.kind == k.ToolRequested.__name__)
    yield place, line
    yield "written by", f"{_tool_name(call)} of {call.actor.partition(':')[2]}, {_at(trace[0])}"
    yield "having seen", _seen(session, trace)
    said = [step for step in trace if step.kind == k.MessageSaid.__name__]
    asked = next(step for step in said if step.log == session.id)
    words = asked.says.removeprefix("user: ")
    yield "asked by", f"{asked.actor}, @{asked.seq}: {words}"


def place_of_line(session: Session, place: str) -> str:
    """Return the place of the event that wrote a line."""
    return _at(next(iter(session.why(place))))


def _seen(session: Session, trace: list[Step]) -> str:
    """Return what stood in the prompt of the call: the kinds that tell most, by name."""
    seen = [step for step in trace if step.relation == "context"]
    names = list[str]()
    for step in seen:
        place = f"@{step.seq}" if step.log == session.id else _at(step)
        if step.kind == k.MemoryRecalled.__name__:
            names.append(f"the note, {place}")
        elif step.kind == k.ToolReturned.__name__ and "coupon larger" in step.says:
            names.append(f"ISSUE.md, {place}")
        elif step.kind == k.ValidationRecorded.__name__:
            names.append(f"{step.says}, {place}")
    return "; ".join(names) or f"{len(seen)} events"


def _tool_name(step: Step) -> str:
    return step.says.partition(" ")[0]


def _at(step: Step) -> str:
    return f"{step.branch}@{step.seq}"


# ── what if ──────────────────────────────────────────────────────────────────────────────────


def first_words_of_plan(session: Session) -> Event | None:
    """Return the first reply with words; None: there is none."""
    for event in session.events:
        if isinstance(body := event.body, k.ModelReplied) and text_of(body.parts).strip():
            return event
    return None


def try_alternative(session: Session, plan: Event, figures: DemoFigures) -> Alternative:
    """Run the same program from its plan on, with another plan, in a branch."""
    from plait.runs.whatif import whatif

    began = time.perf_counter()
    try:
        other = whatif(session, replace={plan: OTHER_PLAN}, label=LABEL)
    except Parked as parked:
        other = _go_on(parked)
    seconds = time.perf_counter() - began
    calls = sum(1 for event in other.events if event.kind == k.ModelReplied.__name__)
    verdict, other_verdict = _first_verdict(session), _first_verdict(other)
    same = session.files.text("cart.py") == other.files.text("cart.py")
    body = plan.body
    assert isinstance(body, k.ModelReplied)
    branches = f"{len(figures.branches)}, {len(figures.merged)} of them merged"
    forks = sum(1 for event in other.events if event.kind == k.Merged.__name__)
    rows = [
        (f"reply @{plan.seq}", text_of(body.parts).strip(), OTHER_PLAN),
        ("first tests", verdict, other_verdict),
        ("branches", branches, str(forks)),
        ("model calls", str(figures.model_calls), str(calls)),
        ("cart.py", "mended", "the same file" if same else "another file"),
    ]
    told = f"what if: {calls} model calls instead of {figures.model_calls}"
    session.reload().note(told, actor=DEMO)
    return Alternative(other, plan, calls, seconds, rows)


def _go_on(parked: Parked) -> Session:
    """Go on to the end. No person is asked, so the consent is in the name of the demo."""
    from plait.runs.resume import resume

    while True:
        session = parked.session.reload()
        asks = [ask for ask in session.inbox.waiting if ask.kind == "approval"]
        if not asks:
            raise parked
        for ask in asks:
            session.inbox.approve(ask, note=RULE, actor=DEMO)
        try:
            return resume(session)
        except Parked as again:
            parked = again


def _first_verdict(session: Session) -> str:
    verdicts = session.checks.verdicts
    return "none" if not verdicts else "passed" if verdicts[0].passed else "failed"
