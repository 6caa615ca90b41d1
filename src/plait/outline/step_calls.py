"""Folding the asks of models and the calls of tools into steps."""

from __future__ import annotations

from plait.event import Event
from plait.event import kinds as k
from plait.outline.light import (
    LightReply,
    light_failure,
    light_reply,
    light_request,
    light_return,
    light_tool_failure,
)
from plait.outline.records import BRACKET, TYPE_CODES
from plait.outline.step_rows import (
    DENIED,
    DONE,
    FAIL,
    FAILED,
    FAILURE,
    FILES,
    MEMORY,
    OPEN,
    REPLY,
    ROUTE,
    TOOL,
    UNKNOWN,
    StepRows,
)

SELECTION = "selection"  # the key of the talk of a selector with its model
_PROPOSAL = "proposal"


# ── models ───────────────────────────────────────────────────────────────────────────────


def take_ask(rows: StepRows, event: Event) -> None:
    rows.record.spent.model_calls += 1
    rows.record.last_spending = rows.record.tip
    rows.record.owners.append(BRACKET)


def _count(rows: StepRows, light: LightReply) -> None:
    if light.usage is not None:
        price = light.price
        rows.record.spent.add_usage(light.usage, price.cost_usd_nano if price else None)
        rows.record.last_spending = rows.record.tip


def take_reply(rows: StepRows, event: Event) -> None:
    light = light_reply(event)
    _count(rows, light)
    if light.aside:
        take_aside(rows, event)
        return
    record, has_words = rows.record, light.has_words
    index = record.open.pop(_model_key(event), None)
    type, state = (TOOL, OPEN) if light.calls and not has_words else (REPLY, DONE)
    if index is None:
        index = rows.add(event, type, state)
    else:  # earlier attempts failed
        record.types[index] = type
        record.marks[index] &= ~FAIL
        rows.join(index, state)
    if type == TOOL:
        record.open[light.calls[0].call] = index
    elif has_words:
        record.last_words = record.tip


def take_model_failure(rows: StepRows, event: Event) -> None:
    _count(rows, light_failure(event))
    key = _model_key(event)
    index = rows.record.open.get(key)
    if index is None:
        rows.record.open[key] = rows.add(event, FAILURE, FAILED, FAIL)
    else:
        rows.join(index)


# ── tools ────────────────────────────────────────────────────────────────────────────────


def take_request(rows: StepRows, event: Event) -> None:
    record = rows.record
    if light_request(event).decision != "refuse":  # a bill leaves those out
        record.spent.tool_calls += 1
        record.last_spending = record.tip
    index = rows.open_step(event)
    if index is None:
        record.open[event.header.call or ""] = rows.add(event, TOOL, OPEN)
    else:
        record.marks[index] &= ~FAIL
        rows.join(index, OPEN)


def join_call(rows: StepRows, event: Event, state: int | None, marks: int = 0) -> None:
    """Add the event to the step of its call; without one, it is a tool's step of its own."""
    index = rows.open_step(event)
    if index is None:
        rows.add(event, TOOL, DONE if state is None else state, marks)
    else:
        rows.join(index, state, marks)


def take_return(rows: StepRows, event: Event) -> None:
    light = light_return(event)
    is_bad = light.exit_code not in (None, 0)
    marks = (FILES if light.changes_files else 0) | (FAIL if is_bad else 0)
    call = event.header.call or ""
    index = rows.record.open.pop(call, None)
    if index is None:
        rows.add(event, TOOL, FAILED if is_bad else DONE, marks)
    else:
        rows.join(index, FAILED if is_bad else DONE, marks)


def take_tool_failure(rows: StepRows, event: Event) -> None:
    # it stays open: the same call may be tried again
    marks = FILES if light_tool_failure(event).changes_files else 0
    index = rows.open_step(event)
    is_denied = index is not None and rows.record.states[index] == DENIED
    join_call(rows, event, None if is_denied else FAILED, marks | (0 if is_denied else FAIL))


def take_unknown(rows: StepRows, event: Event) -> None:
    join_call(rows, event, UNKNOWN)


def take_resolution(rows: StepRows, event: Event) -> None:
    body = event.body
    assert isinstance(body, k.ToolResolved)
    states = {"happened": DONE, "did_not_happen": OPEN, "compensated": FAILED}
    join_call(rows, event, states[body.verdict])


def take_placement(rows: StepRows, event: Event) -> None:
    index = rows.open_step(event)
    if index is None:
        rows.add(event, TYPE_CODES["placement"])
    else:
        rows.join(index)


def take_within(rows: StepRows, event: Event) -> None:
    """Take an event that belongs to the tool that wrote it, if one did."""
    is_bypass = event.kind == k.Bypassed.__name__
    type = TYPE_CODES["bypass" if is_bypass else "memory"]
    marks = 0 if is_bypass else MEMORY
    index = rows.open_step(event)
    if index is None:
        rows.add(event, type, marks=marks)
    else:
        rows.join(index, None, marks)


def take_proposal(rows: StepRows, event: Event) -> None:
    take_within(rows, event)
    rows.record.open[_PROPOSAL] = rows.record.owners[-1]


def take_decision(rows: StepRows, event: Event) -> None:
    """Take a decision about a memory: it belongs to the proposal that it stands behind."""
    proposal = rows.record.open.get(_PROPOSAL)
    if proposal is not None and rows.record.lasts[proposal] == rows.record.tip - 1:
        rows.join(proposal)
    else:
        take_within(rows, event)


def take_aside(rows: StepRows, event: Event) -> None:
    """Take the talk of a selector with its model: the route that it chose follows."""
    open = rows.record.open
    if SELECTION in open:
        rows.join(open[SELECTION])
    else:
        open[SELECTION] = rows.add(event, ROUTE, OPEN)


def _model_key(event: Event) -> str:
    return f"ask {event.header.call or ''}"
