"""Finds the events behind a name, a value or a text: the subject of `why` and `because`."""

from __future__ import annotations

from itertools import islice
from typing import Any

from plait.errors import (
    InvalidValue,
    NoSuchFile,
    NotAFile,
    OutsideWorkspace,
    PlaitError,
    UnknownKey,
)
from plait.event import Event
from plait.event.kinds import (
    Data,
    EvidenceAttached,
    Merged,
    MessageSaid,
    ModelReplied,
    QuestionAnswered,
    Signalled,
    TimerFired,
    ToolResolved,
    ToolReturned,
)
from plait.ids import Digest, is_digest, short
from plait.session import revision
from plait.session.blame import Line, blame, path_in_tree
from plait.session.content import unpack, value_of
from plait.session.core import Core
from plait.session.events import Events, path_events
from plait.session.fold import state_at
from plait.session.value import SessionValue, core_of
from plait.session.views import (
    Attachment,
    Effect,
    Link,
    Message,
    RunView,
    Validation,
    message_of,
)
from plait.workspace.tree import TreeReader, shown_path

MESSAGE_KINDS = frozenset({MessageSaid.__name__, ModelReplied.__name__})
_RESULT_KINDS = frozenset(
    kind.__name__
    for kind in (ToolReturned, ToolResolved, ModelReplied, QuestionAnswered, Signalled, TimerFired)
)


def events_about(
    session: SessionValue, about: Any, where: str = "about"
) -> tuple[list[Event], str]:
    """The events that `about` stands for, and a text that names it; `where` is the argument."""
    core = core_of(session)
    store = core.store
    if isinstance(about, Event):
        return [about], f"event {about.seq} of {short(about.log)}"
    if isinstance(about, Message):
        return [store.event(about.id)], f"message {about.seq} of {short(about.log)}"
    if isinstance(about, Effect):
        text = f"{about.tool}, event {about.request.seq} of {short(about.request.log)}"
        return [about.outcome or about.request], text
    if isinstance(about, SessionValue):
        return [store.event(about.head)], f"event {about.seq} of {about.short}"
    if isinstance(about, (Attachment, Validation, Link, Line)):
        event = next(store.read(about.log, about.seq, about.seq))
        return [event], f"event {about.seq} of {short(about.log)}"
    if isinstance(about, RunView):
        return [_end_of_run(core, about, where)], f"run {about.workflow}, {about.status}"
    if isinstance(about, int) and not isinstance(about, bool):
        seq = revision.place_in(session.id, about, session.seq)
        return [Events(core.position)[seq - 1]], f"event {seq} of {session.short}"
    found = named_events(session, about) if isinstance(about, str) else None
    if found is not None:
        return found
    if (
        not (isinstance(about, str) and is_digest(about))
        and (event := event_of_value(session, about)) is not None
    ):
        what = "the text" if event.kind in MESSAGE_KINDS else "the result"
        return [event], f"{what} {about!r:.80}"
    if not isinstance(about, str):
        step = "pass an event, a run, a place, a key, a text or the last result"
        raise InvalidValue(where, f"a {type(about).__name__} cannot be traced", step)
    return _events_of_text(core, about)


def _events_of_text(core: Core, about: str) -> tuple[list[Event], str]:
    """The events behind a line of a file, an event id, or a text that was said."""
    store = core.store
    if (found := _line_event(core, about)) is not None:
        return found
    if is_digest(about):
        return [store.event(Digest(about))], f"event {about[:12]}"
    for span, event in path_events(store, core.state.story.path, MESSAGE_KINDS, reverse=True):
        message = message_of(event, span, store.get_blob)
        if about and message is not None and about in message.text:
            return [event], f"the text {about!r}"
    raise _unknown_error(core, about)


def named_events(session: SessionValue, about: str) -> tuple[list[Event], str] | None:
    """The events behind a fact, pending work, a verdict or evidence of this name."""
    core = core_of(session)
    store, story = core.store, core.state.story
    if (fact := story.facts.get(about)) is not None:
        text = (
            f"{about} = {fact.json}" if fact.json is not None else f"{about}, which was retracted"
        )
        return _fact_events(core, about), text
    if (work := story.pending.get(about)) is not None:
        return [store.event(work.at.id)], f"pending: {work.what}"
    if (verdict := story.verdicts.get(about)) is not None:
        return [store.event(verdict.at.id)], f"verdict: {about}"
    for _, event in path_events(store, story.path, {EvidenceAttached.__name__}, reverse=True):
        body = event.body
        if isinstance(body, EvidenceAttached) and body.name == about:
            return [event], f"evidence: {about}"
    return None


def last_result(session: SessionValue) -> tuple[Event | None, Any]:
    """The event that brought the last result, and that result."""
    core = core_of(session)
    store = core.store
    for _, event in path_events(store, core.state.story.path, _RESULT_KINDS, reverse=True):
        body = event.body
        if isinstance(body, QuestionAnswered):
            return event, body.answer
        if isinstance(body, TimerFired):
            if body.by == "time":
                return event, None
            continue  # the signal it fired by stands before it
        if isinstance(body, Signalled):
            return event, body.value
        assert isinstance(body, (ToolReturned, ToolResolved, ModelReplied))
        if not isinstance(body, ModelReplied) or (
            not body.aside and any(isinstance(part, Data) for part in body.parts)
        ):
            return event, value_of(unpack(body.parts, store.get_blob))
    return None, None


def last_message(session: SessionValue) -> Message | None:
    """The last message of its transcript. None: nothing was said."""
    core = core_of(session)
    store = core.store
    for span, event in path_events(store, core.state.story.path, MESSAGE_KINDS, reverse=True):
        if (message := message_of(event, span, store.get_blob)) is not None:
            return message
    return None


def event_of_value(session: SessionValue, value: Any) -> Event | None:
    """The event behind a value that is the last result, or the last text.

    None: it is neither.
    """
    if type(value) not in (str, bool, float, list, dict) or value in ("", [], {}):
        return None
    event, result = last_result(session)
    if type(result) is type(value) and result == value:
        return event
    if not isinstance(value, str):
        return None
    message = last_message(session)
    return message.event if message is not None and message.text == value else None


def _end_of_run(core: Core, run: RunView, where: str) -> Event:
    """The event that ended a run of this session; of one that is open, the event that began it."""
    seq = run.last or run.first
    event = Events(core.position)[seq - 1] if 1 <= seq <= core.position.seq else None
    if event is None or run.id not in (event.header.run, event.id):
        raise InvalidValue(
            where,
            f"run {run.id} is not one of session {core.short}",
            "pass an event of it, or its session",
        )
    return event


def _unknown_error(core: Core, about: str) -> PlaitError:
    """The error for a text that names nothing here: where it looks like a file, it says how files
    are named.
    """
    story = core.state.story
    what = "fact, pending work, verdict, evidence, result, file line or message"
    unknown = UnknownKey(core.short, what, about, tuple(story.facts))
    path, _, number = about.rpartition(":")
    is_line = bool(path) and number.isdecimal()
    path = path if is_line else about
    if story.tree is None or not path or (not is_line and ("\n" in path or path.isspace())):
        return unknown
    reader, tree = TreeReader(core.store), story.tree.digest
    try:
        plain = path_in_tree(path)
    except OutsideWorkspace as error:
        return error if is_line else unknown
    found = reader.find(tree, plain)
    if found is not None and found.kind == "file":
        return InvalidValue(
            "about",
            f"a file needs path:line, and {about!r} has no line",
            f"name one, as in {plain}:1",
        )
    if found is not None:
        return NotAFile(path, f"a {found.kind}")
    if not is_line:
        return unknown
    files = [path for path, entry in islice(reader.walk(tree), 200) if entry.kind == "file"]
    return UnknownKey(core.short, "file", path, tuple(shown_path(path) for path in files[:11]))


def _line_event(core: Core, about: str) -> tuple[list[Event], str] | None:
    """The event that wrote a line, as in cart.py:6. None: there is no such file."""
    path, _, number = about.rpartition(":")
    if not path or not number.isdecimal() or core.state.story.tree is None:
        return None
    try:
        found = blame(core.store, core.state, core.short, path)
    except (NoSuchFile, NotAFile, OutsideWorkspace):
        return None  # it may be a text that was said
    if not 1 <= int(number) <= len(found):
        why = f"{path} has {len(found)} lines here"
        raise InvalidValue("about", f"{why}, so no line {number}", "name one that it has")
    line = found[int(number)]
    return [core.store.event(line.event)], f"{found.path}:{number}  {line.text.strip()}"


def _fact_events(core: Core, key: str) -> list[Event]:
    """The event that gave a fact its value; if that was a choice at a merge, also the events it
    chose between.
    """
    store = core.store
    event = store.event(core.state.story.facts[key].at.id)
    body, found = event.body, [event]
    if isinstance(body, Merged):
        for state in (
            state_at(store, event.log, event.seq - 1),
            *(state_at(store, place.log, place.seq) for place in body.branches),
        ):
            if (fact := state.story.facts.get(key)) is not None:
                found.append(store.event(fact.at.id))
    return list(dict.fromkeys(found))  # the choice first, then the values it was between
