"""The next action of a tool call: a table over effect class, events so far, changed policies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, get_args

import pytest

from plait import tool
from plait.calls.actions import (
    Action,
    AskApprover,
    AskPerson,
    Compensate,
    Fail,
    ProbeCall,
    RequestAgain,
    Review,
    RunTool,
    Settled,
    Stopped,
    TakeEarlier,
    UseEdited,
    WaitForPerson,
)
from plait.calls.tool_call import SERVICE, EarlierCall, ToolCallState
from plait.event import Body, Event, seal
from plait.event import kinds as k
from plait.event.effect_classes import EFFECTS, OUTWARD
from plait.event.kinds import EffectClass, Failure
from plait.ids import Digest, LogId, Micros
from plait.journal.standing import Standing
from plait.tool import Tool

LOG = LogId("01a1e807-061c-752d-992f-b2e79d9250b4")
BINDING = Digest("b" * 64)
CLASSES: tuple[EffectClass, ...] = get_args(EffectClass)


def event(seq: int, body: Body, *, actor: str = SERVICE, origin: str = "program") -> Event:
    return seal(
        body,
        log=LOG,
        seq=seq,
        parents=(Digest("a" * 64),),
        time=Micros(seq),
        salt=b"0" * 16,
        actor=actor,
        origin=origin,
        run="r",
        call="c1",
    )


def act(n: int) -> int:
    """Act."""
    return n


def tool_of(effect: EffectClass) -> Tool[..., Any]:
    probe = (lambda: None) if effect == "probeable" else None
    compensate = (lambda: None) if effect == "compensatable" else None
    return tool(effect=effect, probe=probe, compensate=compensate)(act)


@dataclass
class Facts:
    """A `Context` of plain values."""

    recorded: int = 0  # the seq up to which events come from the recording
    inherited: int = 0  # or from the run that this one was branched off
    is_in_run: bool = True
    can_wait: bool = True
    has_approver: bool = False
    has_answerer: bool = False
    is_live: bool = True
    reopened: bool = False
    tried: bool = False
    held: bool = False
    open: bool = True
    bound: bool = True
    changed: str = ""
    alike: bool = True
    unfit: str = ""
    before: EarlierCall | None = None
    time: int = field(default=0)

    def now(self) -> Micros:
        return Micros(self.time)

    def standing_of(self, event: Event) -> Standing:
        if event.seq <= self.inherited:
            return Standing.INHERITED
        return Standing.RECORDED if event.seq <= self.recorded else Standing.LIVE

    def is_reopened(self, outcome: Event, *, was_stopped: bool) -> bool:
        return self.reopened

    def was_tried(self, call: ToolCallState) -> bool:
        return self.tried

    def was_held(self, grant: Event) -> bool:
        return self.held

    def is_open(self, ask: Event) -> bool:
        return self.open

    def is_bound(self, call: ToolCallState) -> bool:
        return self.bound

    def change(self, call: ToolCallState) -> str:
        return self.changed

    def is_judged_alike(self, call: ToolCallState) -> bool:
        return self.alike

    def earlier(self, call: ToolCallState) -> EarlierCall | None:
        return self.before

    def misfit(self, call: ToolCallState) -> str:
        return self.unfit


# ── the events so far, by name ───────────────────────────────────────────────────────────────


def asked(expires: int | None = None) -> Body:
    return k.ApprovalRequested(BINDING, {"tool": "act"}, Micros(expires) if expires else None, 1)


HISTORIES: dict[str, list[Body]] = {
    "requested": [],
    "returned": [k.ToolReturned(())],
    "failed": [k.ToolFailed(Failure("ValueError", "no"))],
    "refused": [k.ToolFailed(Failure("Refused", "not allowed"))],
    "in doubt": [k.ToolUnknown(Digest("a" * 64), "lost")],
    "found not to have happened": [
        k.ToolUnknown(Digest("a" * 64), "lost"),
        k.ToolResolved(Digest("a" * 64), "did_not_happen"),
    ],
    "found to have happened": [
        k.ToolUnknown(Digest("a" * 64), "lost"),
        k.ToolResolved(Digest("a" * 64), "happened"),
    ],
}
CONSENT: dict[str, list[Body]] = {
    "requested": [],
    "asked": [asked()],
    "granted": [asked(), k.ApprovalGranted(BINDING)],
    "granted with other arguments": [asked(), k.ApprovalGranted(BINDING, {"n": 2})],
    "denied": [asked(), k.ApprovalDenied(BINDING, "no")],
    "expired": [asked(expires=5)],
}


def call_of(
    effect: EffectClass,
    bodies: list[Body],
    *,
    needs_consent: bool = False,
    carries: k.Carried | None = None,
) -> ToolCallState:
    decision = "ask" if needs_consent else "allow"
    request = k.ToolRequested("act", {"n": 1}, effect, "v", decision=decision, carries=carries)
    call = ToolCallState(0, tool_of(effect), "c1", event(10, request, origin="model"), {"n": 1})
    call.feed(event(11 + at, body) for at, body in enumerate(bodies))
    return call


BY_CLASS: dict[str, type] = {
    "repeat": RunTool,
    "probe": ProbeCall,
    "compensate": Compensate,
    "review": Review,
}


# ── the table ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("effect", CLASSES)
@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("history", HISTORIES)
def test_live(effect: EffectClass, alike: bool, history: str) -> None:
    """Nothing is in doubt about a call of this process, whatever its class and the policies."""
    wanted: dict[str, type] = {
        "requested": RunTool,
        "returned": Settled,
        "failed": Settled,
        "refused": Settled,
        "in doubt": WaitForPerson,
        "found not to have happened": RequestAgain,
        "found to have happened": Settled,
    }
    action = call_of(effect, HISTORIES[history]).next_action(Facts(alike=alike))
    assert type(action) is wanted[history]


@pytest.mark.parametrize("effect", CLASSES)
@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("history", HISTORIES)
def test_resumed(effect: EffectClass, alike: bool, history: str) -> None:
    """A request of a process that is gone may have been carried out: its class says what is due."""
    lost = EFFECTS[effect].when_lost
    by_class = RequestAgain if lost == "repeat" and not alike else BY_CLASS[lost]
    wanted: dict[str, type] = {
        "requested": by_class,
        "returned": Settled,
        "failed": Settled,
        "refused": Settled,
        "in doubt": WaitForPerson,
        "found not to have happened": RequestAgain,
        "found to have happened": Settled,
    }
    facts = Facts(recorded=100, alike=alike)
    assert type(call_of(effect, HISTORIES[history]).next_action(facts)) is wanted[history]


@pytest.mark.parametrize("effect", CLASSES)
def test_branched_off(effect: EffectClass) -> None:
    """An open call of the run that this one was branched off is requested under a new key."""
    action = call_of(effect, []).next_action(Facts(inherited=100))
    assert action == RequestAgain(is_new=True)


@pytest.mark.parametrize("effect", CLASSES)
def test_a_failure_that_ended_the_run(effect: EffectClass) -> None:
    """It is tried again where that is safe; else the class says how to find out."""
    lost = EFFECTS[effect].when_lost
    facts = Facts(recorded=100, reopened=True)
    action = call_of(effect, HISTORIES["failed"]).next_action(facts)
    assert type(action) is (RequestAgain if lost == "repeat" else BY_CLASS[lost])
    assert isinstance(call_of(effect, HISTORIES["refused"]).next_action(facts), RequestAgain)


@pytest.mark.parametrize("effect", CLASSES)
def test_rewound_after_it_was_tried(effect: EffectClass) -> None:
    """A call that went further in a past that was rewound may have happened, even if undone."""
    lost = EFFECTS[effect].when_lost
    action = call_of(effect, []).next_action(Facts(recorded=100, tried=True))
    assert type(action) is BY_CLASS[lost]


@pytest.mark.parametrize("tried", [True, False])
def test_rewound_between_two_attempts(tried: bool) -> None:
    """A failure with attempts left is final, unless another attempt followed and was rewound."""
    request = event(10, k.ToolRequested("act", {"n": 1}, "idempotent", "v"), origin="model")
    found = ToolCallState(0, tool(effect="idempotent", attempts=2)(act), "c1", request)
    found.feed([event(11, HISTORIES["failed"][0])])
    action = found.next_action(Facts(recorded=100, tried=tried))
    assert type(action) is (RequestAgain if tried else Settled)


@pytest.mark.parametrize("effect", CLASSES)
@pytest.mark.parametrize("recorded", [0, 100])
def test_asked_for_again_by_a_changed_program(effect: EffectClass, recorded: int) -> None:
    """It takes the outcome of the call before; one that may have happened is settled by class."""
    carries = k.Carried(Digest("b" * 64), Digest("c" * 64))
    before, grant = event(5, k.ToolReturned(())), event(6, k.ApprovalGranted(BINDING))
    call = call_of(effect, [], carries=carries)
    assert call.key == carries.key
    done = Facts(recorded=recorded, before=EarlierCall(before, None, False))
    assert call.next_action(done) == TakeEarlier(before)
    begun = Facts(recorded=recorded, before=EarlierCall(None, None, True))
    assert type(call.next_action(begun)) is BY_CLASS[EFFECTS[effect].when_lost]
    # a later attempt is one of its own
    request = k.ToolRequested("act", {"n": 1}, effect, "v", attempt=2)
    call.feed([event(12, k.ToolFailed(Failure("ValueError", "no"))), event(13, request)])
    assert isinstance(call.next_action(Facts(before=done.before)), RunTool)
    assert call.key == carries.key
    waits = call_of(effect, [asked()], needs_consent=True, carries=carries)
    granted = Facts(before=EarlierCall(None, grant, False))
    assert waits.next_action(granted) == TakeEarlier(grant)


@pytest.mark.parametrize("effect", CLASSES)
@pytest.mark.parametrize("changed", ["", "it is judged by another policy"])
@pytest.mark.parametrize("recorded", [0, 100])
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("history", CONSENT)
def test_consent(
    effect: EffectClass, changed: str, recorded: int, held: bool, history: str
) -> None:
    call = call_of(effect, CONSENT[history], needs_consent=True)
    facts = Facts(recorded=recorded, changed=changed, alike=not changed, held=held, time=6)
    action = call.next_action(facts)
    lost = EFFECTS[effect].when_lost
    if history == "requested":
        wanted: type = AskPerson
    elif history.startswith("granted") and recorded and not held:
        # the consent is on record, and no process since was held, so the tool may have run
        wanted = RequestAgain if lost == "repeat" and changed else BY_CLASS[lost]
        if wanted is RunTool and history != "granted":
            wanted = UseEdited
    elif changed:
        wanted = RequestAgain
    else:
        wanted = {
            "asked": WaitForPerson,
            "granted": RunTool,
            "granted with other arguments": UseEdited,
            "denied": Fail,
            "expired": Fail,
        }[history]
    assert type(action) is wanted, (action, history)


@pytest.mark.parametrize("effect", CLASSES)
def test_an_ask_that_was_settled_otherwise_is_asked_again(effect: EffectClass) -> None:
    call = call_of(effect, CONSENT["asked"], needs_consent=True)
    assert isinstance(call.next_action(Facts(recorded=100, open=False)), AskPerson)


def test_an_approver_is_asked_for_an_open_ask() -> None:
    call = call_of("pure", CONSENT["asked"], needs_consent=True)
    assert call.next_action(Facts(has_approver=True)) == AskApprover()
    assert call.next_action(Facts(has_approver=True, bound=False)) == AskPerson()


@pytest.mark.parametrize(("in_run", "can_wait"), [(False, False), (True, False)])
def test_where_nobody_can_be_waited_for_the_call_is_refused(in_run: bool, can_wait: bool) -> None:
    call = call_of("pure", [], needs_consent=True)
    action = call.next_action(Facts(is_in_run=in_run, can_wait=can_wait))
    assert isinstance(action, Fail) and action.failure.kind == "Refused"


def test_a_call_that_was_stopped_stops_the_branch() -> None:
    stopped: list[Body] = [k.ToolFailed(Failure("Stopped", "not run"))]
    assert call_of("pure", stopped).next_action(Facts()) == Stopped()


def test_an_undone_call_keeps_its_consent_if_nothing_has_changed() -> None:
    undone = [*CONSENT["granted"], *HISTORIES["found not to have happened"]]
    call = call_of("at_most_once", undone, needs_consent=True)
    assert call.next_action(Facts(recorded=100)) == RequestAgain(keeps_consent=True)
    action: Action = call.next_action(Facts(recorded=100, alike=False))
    assert action == RequestAgain()


def test_a_result_of_the_wrong_type_is_reviewed_again() -> None:
    call = call_of("at_most_once", HISTORIES["found to have happened"])
    assert call.next_action(Facts(unfit="it is a text")) == Review("it is a text")


def test_the_outward_classes_are_those_of_the_table() -> None:
    assert OUTWARD == ("idempotent", "probeable", "compensatable", "at_most_once")
