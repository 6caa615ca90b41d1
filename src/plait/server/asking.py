"""Answers about asks: everything that a person decides by."""

from __future__ import annotations

import json

from plait.errors import PlaitError
from plait.event import Event, Json
from plait.event.kinds import ToolRequested, ValidationRecorded
from plait.ids import LogId, Micros, short
from plait.memory.provenance import lapses_behind
from plait.runtime.live import Live
from plait.server.desk import ServerDesk
from plait.server.params import InboxParams
from plait.server.reading import event_shape
from plait.server.shapes import AskShape, InboxPage, LapsedMemory
from plait.session import Session, Waiting
from plait.session.asks import ask_of, ends_wait, is_late
from plait.session.inbox import (
    all_waiting,
    failed_verdict,
    inbox_events,
    root_of,
    with_request,
)
from plait.store import Store
from plait.workspace.lines import LineMatcher, split

_OF_PROGRAM = ("approval", "question", "unknown")
_CONTEXT = 3  # lines around a change


def read_inbox(desk: ServerDesk, params: InboxParams) -> InboxPage:
    """Return the asks that wait for people, in all sessions or in one and its run's branches."""
    store, number = desk.store, desk.store.number
    wanted = desk.open(params.session).id if params.session else None
    asks = [
        recorded_ask(store, ask)
        for ask in all_waiting(store, answered=params.all)
        if params.all or ask.kind != "timer"
    ]
    if wanted is not None:
        asks = [ask for ask in asks if wanted in (ask.log, root_of(store, ask.run, ask.log))]
    return InboxPage(tuple([ask_shape(desk, ask) for ask in asks]), number)


def recorded_ask(store: Store, ask: Waiting) -> Waiting:
    """Return the ask as its event has it: rows only help to find asks, and people decide on the
    record.
    """
    found = ask_of(store.event(ask.event))
    assert found is not None
    return with_request(store, found)


def ask_shape(desk: ServerDesk, ask: Waiting) -> AskShape:
    """Return an ask with what it would do, what it has read, and how long it may be answered."""
    store = desk.store
    request = request_of(store, ask)
    body = request.body if request is not None else None
    asked = body if isinstance(body, ToolRequested) else None
    lapses = lapses_behind(store, store.event(ask.event)) if ask.kind in _OF_PROGRAM else []
    failed = failed_verdict(store, ask) if ask.kind == "verdict" else None
    answer = _answer_to(store, ask)
    return AskShape(
        id=ask.event,
        kind=ask.kind,
        session=ask.log,
        short=ask.session,
        name=_name_of(desk, ask.log),
        seq=ask.seq,
        since=ask.since,
        actor=ask.actor,
        behalf=ask.behalf,
        run=ask.run,
        call=ask.call,
        resume=short(root_of(store, ask.run, ask.log)),
        tool=asked.tool if asked is not None else ask.tool or None,
        version=asked.version if asked is not None else None,
        arguments=asked.arguments if asked is not None else ask.arguments,
        request=request.id if request is not None else ask.request,
        request_seq=request.seq if request is not None else None,
        effect=asked.effect if asked is not None else "",
        reason=asked.reason if asked is not None else "",
        binding=ask.binding,
        shown=ask.shown,
        patch=_patch_of(desk, ask, asked),
        expires=ask.expires,
        is_late=is_late(ask, _now()),
        question=ask.question,
        choices=ask.choices,
        why=ask.why,
        until=ask.until,
        signal=ask.name,
        by=ask.by,
        of=ask.of,
        returns=ask.returns,
        origins=_origins(desk, ask),
        lapsed_memories=tuple([LapsedMemory(*lapse) for lapse in lapses]),
        failed=event_shape(failed) if failed is not None else None,
        answered=event_shape(answer) if answer is not None else None,
    )


def _answer_to(store: Store, ask: Waiting) -> Event | None:
    """Return the answer to an ask that stands in an inbox; of a verdict also in the log."""
    about = ask.of or ask.log
    given = inbox_events(store, about, ask.heard if ask.kind == "verdict" else 0)
    if ask.kind == "verdict":
        first = ask.seq + 1 if about == ask.log else 1
        given += store.read(about, first, kinds={ValidationRecorded.__name__})
    return next((event for event in given if ends_wait(ask, event)), None)


def request_of(store: Store, ask: Waiting) -> Event | None:
    """Return the tool call that an ask is about; None if it is about something else."""
    if ask.kind == "unknown" and ask.request is not None:
        return store.event(ask.request)
    if ask.kind != "approval" or not ask.call:
        return None
    first = store.log(ask.log).place + 1
    before = store.read(ask.log, first, ask.seq, kinds={ToolRequested.__name__}, reverse=True)
    return next((event for event in before if event.header.call == ask.call), None)


def _patch_of(desk: ServerDesk, ask: Waiting, asked: ToolRequested | None) -> str:
    """Return the change of files that a call would make: as the ask shows it, or for the tools that
    write a file, worked out on the files of the session as they are.
    """
    shown = ask.shown
    if isinstance(shown, dict) and isinstance(shown.get("patch"), str):
        return str(shown["patch"])
    if ask.kind != "approval" or asked is None or not isinstance(asked.arguments, dict):
        return ""
    given = asked.arguments
    path = given.get("path")
    if not isinstance(path, str):
        return ""
    try:
        before = _text_at(desk, ask, path)
        after = _text_after(asked.tool, given, before)
    except PlaitError:  # the tool will say what is wrong
        return ""
    return "" if after is None or after == before else _patch_text(path, before, after)


def _text_at(desk: ServerDesk, ask: Waiting, path: str) -> str:
    session = Session.open(f"{ask.log}@{ask.seq}", store=desk.store)
    if session.files.tree is None or path not in session.files.paths():
        return ""
    return session.files.text(path)


def _text_after(tool: str, given: dict[str, Json], before: str) -> str | None:
    """Return the text of a file after a tool that writes it. None: the tool is none of these."""
    if tool == "write_file" and isinstance(given.get("content"), str):
        return str(given["content"])
    old, new = given.get("old"), given.get("new")
    if tool == "edit_file" and isinstance(old, str) and isinstance(new, str):
        return before.replace(old, new) if before.count(old) == 1 else None
    return None


def _patch_text(path: str, before: str, after: str) -> str:
    one, two = split(before.encode()), split(after.encode())
    name = json.dumps(path, ensure_ascii=False)[1:-1]
    lines = [f"--- a/{name}", f"+++ b/{name}"]
    for group in LineMatcher(None, one, two).get_grouped_opcodes(_CONTEXT):
        old, new = group[0][1], group[0][3]
        lines.append(f"@@ -{old + 1},{group[-1][2] - old} +{new + 1},{group[-1][4] - new} @@")
        for tag, first, last, begin, end in group:
            kept = " " if tag == "equal" else "-"
            lines += [f"{kept}{line.decode().removesuffix(chr(10))}" for line in one[first:last]]
            if tag != "equal":
                lines += [f"+{line.decode().removesuffix(chr(10))}" for line in two[begin:end]]
    return "\n".join(lines) + "\n"


def _origins(desk: ServerDesk, ask: Waiting) -> tuple[str, ...]:
    """Return the origins of the content that the session had before the ask."""
    session = Session.open(f"{ask.log}@{ask.seq}", store=desk.store)
    return tuple(sorted(session.lineage.origins))


def _name_of(desk: ServerDesk, log: LogId) -> str:
    return desk.summaries.summary(log).name


def _now() -> Micros:
    return Live().now(LogId(""), 0)
