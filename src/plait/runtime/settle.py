"""Using tools: every call is brought to its end, live, resumed and replayed by the same lines.

`settle_calls` takes the recorded events of the calls, asks each call what is due
(`ToolCallState.next_action`) and performs it, until every call is settled or waits for a person. A
run that waits holds no process: it is parked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from plait.calls.actions import (
    Action,
    AskApprover,
    AskPerson,
    Fail,
    RequestAgain,
    RunTool,
    Settled,
    Stopped,
    UseEdited,
    WaitForPerson,
)
from plait.calls.tool_call import SERVICE, EarlierCall, ToolCallState
from plait.errors import BudgetExceeded, InvalidValue, ToolFailed
from plait.event import Event, Json
from plait.event import kinds as k
from plait.event.kinds import Failure
from plait.ids import Digest, Micros
from plait.journal.standing import Standing
from plait.journal.stops import Cancelled, Parked
from plait.runtime import policy
from plait.runtime.appends import append_at_tip, append_events
from plait.runtime.carrying import carry_request, earlier_call
from plait.runtime.consent import (
    User,
    consent_binding,
    consent_change,
    refusal_drafts,
    tool_request,
)
from plait.runtime.delegation import WorkflowTool
from plait.runtime.effects import UseTools
from plait.runtime.executing import check_running, policies_here
from plait.runtime.names import call_id
from plait.runtime.override import overridden_tools
from plait.runtime.perform import perform
from plait.runtime.registry import run_of
from plait.runtime.run import Run
from plait.runtime.run_tools import follow_branches, run_calls
from plait.runtime.safe_points import safe_point, take_deliveries
from plait.runtime.unwritten import Unwritten
from plait.runtime.waits import Wait
from plait.secrets import is_whole
from plait.session import Session
from plait.session.content import unpack, value_of
from plait.session.inbox import asks_in
from plait.session.origins import ORDINARY
from plait.session.ports import Act, Draft, store_at, writer_of
from plait.session.typed import takes_bytes, to_json
from plait.session.value import position_of
from plait.tool import Tool, WrongArguments


def use_tools(
    effect: UseTools,
) -> Generator[Wait, Any, tuple[Session, Unwritten | None, dict[str, Event]]]:
    """Run the calls that a model asked for, whose requests are on record; return also the outcomes
    that are written, by call.
    """
    run = run_of(effect.session)
    tools = overridden_tools(run, effect.session, effect.path, effect.tools)
    calls: dict[int, ToolCallState] = {}
    for number, action in enumerate(effect.calls):
        tool, request = tools.get(action.tool), effect.requests.get(action.call)
        if tool is None or request is None:
            continue
        spoken = effect.spoken.get(action.call)
        own = tool.arguments(spoken) if action.call in effect.spoken else None
        is_recalled = run is not None and run.journal.standing_of(request) is not Standing.LIVE
        calls[number] = ToolCallState(
            number, tool, action.call, request, own, is_recalled=is_recalled
        )
    user = User(effect.actor, effect.path)
    session, unwritten = yield from settle_calls(
        effect.session, calls, user, spare=not effect.is_written
    )
    outcomes = {call.id: call.outcome for call in calls.values() if call.outcome is not None}
    return session, unwritten, outcomes


def use_tool(
    session: Session, tool: Tool[..., Any], given: Mapping[str, Any], user: User, reason: str = ""
) -> Generator[Wait, Any, Session]:
    """Run a call that the program itself asks for."""
    arguments, plain = _program_arguments(tool, given)
    run = run_of(session)  # before the check: a run that ends meanwhile is still the call's own
    check_running(session)
    session = safe_point(session)
    if run is None and isinstance(tool, WorkflowTool):
        raise InvalidValue(tool.name, "a workflow is a tool in runs only", "call it: it(session)")
    if run is None or run.journal.is_live(session):
        _check_no_stand_ins(tool, plain)
    name, log = run.journal.source_of(session) if run is not None else (None, session.id)
    id = call_id(name, log, session.seq + 1, "use")
    known = writer_of(session.run).acting(session.store, position_of(session))
    origin = known.origin if known.origin and known.origin not in ORDINARY else "program"
    act = Act(user.actor, origin, call=id, causes=known.causes)
    body, refusal = tool_request(session, tool, plain, user, reason, because=act)
    body = carry_request(run, session, tool, body) if refusal is None else body
    drafts = [Draft(body, act), *refusal_drafts(session, refusal, act, of_request=True)]
    session, (request, *rest) = append_events(session, drafts)
    call = ToolCallState(0, tool, request.header.call or id, request, arguments)
    call.feed(rest)
    try:
        session, _ = yield from settle_calls(session, {0: call}, user)
    except GeneratorExit:  # interrupted: a run can be resumed, a call outside of any could not
        if run is None:
            why = "it was interrupted while it ran; it may have happened"
            failed = k.ToolFailed(Failure("Interrupted", why))
            append_at_tip(session, [Draft(failed, Act(user.actor, "program", call=id))])
        raise
    _raise_failure(tool, call, session)
    return session


def _raise_failure(tool: Tool[..., Any], call: ToolCallState, session: Session) -> None:
    if call.outcome is None or call.outcome.kind == k.ToolReturned.__name__:
        return
    outcome = call.outcome.body
    if isinstance(outcome, k.ToolFailed) and (limit := call.refusal) is not None:
        raise BudgetExceeded(limit.limit, limit.asked, limit.left, session, limit.why)
    if isinstance(outcome, k.ToolFailed):
        raise ToolFailed(tool.name, outcome.failure.kind, outcome.failure.message, session)
    if isinstance(outcome, k.ToolResolved) and outcome.verdict != "happened":
        why = f"{outcome.verdict.replace('_', ' ')}{': ' + outcome.note if outcome.note else ''}"
        raise ToolFailed(tool.name, "Resolved", why, session)


def _program_arguments(
    tool: Tool[..., Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], Json]:
    """Return the arguments to call with, and those to record; raise before anything is written."""
    try:
        plain = to_json(dict(given))
        return tool.arguments(plain), plain
    except WrongArguments as error:
        raise InvalidValue(tool.name, str(error), "pass what its signature asks for") from error
    except (TypeError, ValueError) as error:
        raise InvalidValue(tool.name, str(error), "pass plain data") from error


def _check_no_stand_ins(tool: Tool[..., Any], arguments: Json) -> None:
    """Refuse an argument that stands on record for a secret: the tool would take it for one."""
    for name, value in arguments.items() if isinstance(arguments, dict) else ():
        if isinstance(value, str) and is_whole(value):
            why = f"{name!r} is {value}, which stands on record for a secret and is not the secret"
            raise InvalidValue(tool.name, why, "pass the value itself: Secret(name).value")


# ── settling ─────────────────────────────────────────────────────────────────────────────────

# All asks are on record before an approver is asked, and all answers before anything follows.
_ORDER: Mapping[type, int] = {AskPerson: 1, AskApprover: 2, Fail: 3, UseEdited: 3}
# How often an action is performed for one call before its run is parked: an approver whose edits
# never fit, or a tool that changes whenever it is looked at, must not be asked about for ever.
_MOST: Mapping[type, int] = {AskApprover: 1, AskPerson: 2, RequestAgain: 2}


def settle_calls(
    session: Session, calls: Mapping[int, ToolCallState], user: User, *, spare: bool = False
) -> Generator[Wait, Any, tuple[Session, Unwritten | None]]:
    """Bring calls to their end: from the recording, by running them, by asking people.

    Parks if a person has to decide first. With `spare` the last outcome is handed back unwritten,
    for the caller to write with its next append.
    """
    run = run_of(session)
    if run is not None and run.journal.standing(session) is not Standing.LIVE:
        session = _feed_recorded(run, session, calls)
        if run.entered_calls:
            entered = [call for call in calls.values() if call.id in run.entered_calls]
            follow_branches(session, entered)
    actions = _next_actions(run, session, calls.values())
    if not actions:
        return session, None
    if run is not None:
        if run.journal.is_trial:
            follow_branches(session, [calls[number] for number in actions])
        run.journal.check_may_act(session)
        if _may_have_answer(run, calls.values()):
            session, events = take_deliveries(session)  # an answer may have come
            _feed(calls, events)
            actions = _next_actions(run, session, calls.values())
    performed: defaultdict[tuple[int, type], int] = defaultdict(int)
    while True:
        while due := [n for n, each in actions.items() if _is_due(each, performed[n, type(each)])]:
            first = min(_ORDER.get(type(actions[number]), 0) for number in due)
            for number in due:
                if _ORDER.get(type(actions[number]), 0) == first:
                    performed[number, type(actions[number])] += 1
                    session = yield from perform(actions[number], calls[number], session, user)
            actions = _next_actions(run, session, calls.values())
        ready = {n: calls[n] for n, action in actions.items() if isinstance(action, RunTool)}
        spare = spare and len(ready) == len(actions)
        session, unwritten = yield from run_calls(session, ready, user, spare=spare)
        waiting = [calls[n] for n in actions if n not in ready]
        if not waiting:
            return session, unwritten
        events: list[Event] = []
        if ready:  # an answer may have come while the tools ran
            session, events = take_deliveries(session)
        if not _feed(calls, events):
            raise Parked(session, "; ".join(map(_wait_text, waiting)))
        actions = _next_actions(run, session, waiting)


def _is_due(action: Action, times: int) -> bool:
    return not isinstance(action, (RunTool, WaitForPerson)) and times < _MOST.get(type(action), 99)


def _next_actions(
    run: Run | None, session: Session, calls: Sequence[ToolCallState] | Any
) -> dict[int, Action]:
    """Return the actions of the calls that are not settled."""
    context = CallContext(run, session)
    found: dict[int, Action] = {}
    for call in calls:
        action = call.next_action(context)
        if isinstance(action, Stopped):
            raise Cancelled("it was stopped before it ran")
        if not isinstance(action, Settled):
            found[call.number] = action
    return found


def _feed_recorded(run: Run, session: Session, calls: Mapping[int, ToolCallState]) -> Session:
    """Feed the calls with all that is recorded of them."""
    by_id = {call.id: call for call in calls.values()}
    while True:
        step = run.journal.call_event(session, by_id)
        if step is not None:
            session, event = step
            by_id[event.header.call or ""].feed([event])
        elif all(call.outcome is not None for call in by_id.values()):
            return session
        else:
            delivery = run.journal.recorded_delivery(session)
            if delivery is None or delivery[0] == session:
                return session
            session = delivery[0]
            _feed(calls, delivery[1])


def _feed(calls: Mapping[int, ToolCallState], events: Sequence[Event]) -> bool:
    """Feed the calls with those of these events that are theirs; return True if there were any."""
    by_id = {call.id: call for call in calls.values()}
    mine = [event for event in events if event.header.call in by_id]
    for event in mine:
        by_id[event.header.call or ""].feed([event])
    return bool(mine)


def _may_have_answer(run: Run, calls: Any) -> bool:
    """True if an answer to one of these calls may stand in the inbox."""
    unsettled = [call for call in calls if call.outcome is None]
    if not unsettled:
        return False
    if run.journal.standing_of(unsettled[0].since) is not Standing.LIVE:
        return True
    return any(call.waits or call.tool.asks for call in unsettled)


def _wait_text(call: ToolCallState) -> str:
    ask = call.unknown or call.ask
    name = ask.id[:12] if ask is not None else call.id
    if call.tool.asks:
        return f"a question waits for an answer: plait answer {name} …"
    if call.unknown is not None:
        choices = "happened|did-not-happen|compensated"
        return f"nobody knows whether {call.tool.name} happened: plait resolve {name} {choices}"
    return f"{call.tool.name} needs consent: plait approve {name}"


# ── the context of a call ────────────────────────────────────────────────────────────────────

_TRIES = frozenset({k.ApprovalGranted.__name__, k.ToolRequested.__name__})
_HOLDS = frozenset(
    kind.__name__
    for kind in (
        k.Delivered,
        k.SessionPaused,
        k.SessionResumed,
        k.VerdictAwaited,
        k.VerdictHeard,
        k.RunResumed,
    )
)


class CallContext:
    """The facts about calls that the run and its session tell (`plait.calls.Context`)."""

    def __init__(self, run: Run | None, session: Session) -> None:
        self._run, self._session = run, session
        settings = run.settings if run is not None else None
        self.is_in_run = run is not None
        self.has_approver = settings is not None and settings.approver is not None
        self.has_answerer = settings is not None and settings.answerer is not None
        self.can_wait = run is not None and (session.run == run.id or self.has_approver)

    @property
    def is_live(self) -> bool:
        run = self._run
        return run is None or run.journal.standing(self._session) is Standing.LIVE

    def now(self) -> Micros:
        assert self._run is not None
        return self._run.journal.now(self._session)

    def standing_of(self, event: Event) -> Standing:
        return self._run.journal.standing_of(event) if self._run is not None else Standing.LIVE

    def is_reopened(self, outcome: Event, *, was_stopped: bool) -> bool:
        run = self._run
        if run is None or not self.is_live:
            return False
        return run.journal.is_reopened(self._session.id, outcome, was_stopped=was_stopped)

    def was_tried(self, call: ToolCallState) -> bool:
        if self.standing_of(call.last) is Standing.LIVE or not self.is_live:
            return False
        # up to the tip: a value that was just replayed stands before the rewind
        id, store = self._session.id, store_at(self._session.store)
        later = store.read(id, call.last.seq + 1, store.log(id).tip, kinds=_TRIES)
        return any(event.header.call == call.id for event in later)

    def was_held(self, grant: Event) -> bool:
        """Read the processes since the consent: each has to end in a pause or at an open gate.

        A pause is heeded as it is delivered, unless it is lifted in the same delivery, and before
        the run goes past a gate it records that it has heard the verdict. Only a workflow that
        validates acts while a gate is open.
        """
        run, session = self._run, self._session
        frames = run.stack.frames(session.id) if run is not None else ()
        if run is None or any(frame.purpose == "validate" for frame in frames):
            return False
        store, delivery, is_paused = store_at(session.store), range(0), False
        awaited, is_held = set[Digest](), False
        for event in store.read(session.id, 1, session.seq, kinds=_HOLDS):
            if event.header.run != run.id:
                continue
            body = event.body
            if isinstance(body, k.Delivered):
                delivery = range(event.seq, event.seq + body.copies + 1)
            elif isinstance(body, k.SessionPaused):
                is_paused = is_paused or event.seq > grant.seq or grant.seq in delivery
            elif isinstance(body, k.SessionResumed):
                is_paused = False
            elif isinstance(body, k.VerdictAwaited):
                awaited.add(event.id)
            elif isinstance(body, k.VerdictHeard):
                awaited.discard(body.awaited)
            elif event.seq > grant.seq:  # a process took the run
                if not is_paused and not awaited:
                    return False
                is_paused, is_held = False, True
        return is_held

    def is_open(self, ask: Event) -> bool:
        store = store_at(self._session.store)
        own = store.log(self._session.id)
        asks = asks_in(store, own.id, own.place + 1, own.tip)
        return any(each.event == ask.id for each in asks)

    def is_bound(self, call: ToolCallState) -> bool:
        ask = call.approval_ask
        if self._run is None or ask is None:
            return False
        times = max(1, call.times_asked)
        bound = consent_binding(self._run, self._session, call, call.request, times)
        return ask.binding == bound

    def change(self, call: ToolCallState) -> str:
        return consent_change(self._run, self._session, call) if self._run is not None else ""

    def is_judged_alike(self, call: ToolCallState) -> bool:
        if self._run is None:
            return True
        return policy.digest_of(policies_here(self._run, self._session)) == call.policy

    def earlier(self, call: ToolCallState) -> EarlierCall | None:
        run = self._run
        return earlier_call(run, self._session, call) if run is not None else None

    def misfit(self, call: ToolCallState) -> str:
        outcome = call.outcome
        if outcome is None or self.standing_of(outcome) is not Standing.LIVE or not self.is_in_run:
            return ""
        body, schema = outcome.body, call.tool.result_schema
        if schema is None or not isinstance(body, k.ToolResolved) or outcome.actor == SERVICE:
            return ""
        get_blob = store_at(self._session.store).get_blob
        value = value_of(unpack(body.parts, get_blob))
        if not isinstance(value, (k.File, k.Image)):
            why = call.tool.result_misfit(value)
        elif takes_bytes(schema):  # as bytes are recorded
            why = call.tool.result_misfit(to_json(get_blob(value.blob)))
        else:
            why = "it is a file"
        return f"what {outcome.actor} says it returned does not fit: {why}" if why else ""
