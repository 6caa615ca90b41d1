"""Replies: recording one with the calls that it asks for, and reading it back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from plait import secrets
from plait.errors import InvalidInput
from plait.event import Event, Json
from plait.event import kinds as k
from plait.event.kinds import Action, Failure
from plait.event.strict import parse
from plait.event.vocabulary import VOCABULARY
from plait.ids import Digest
from plait.journal.standing import Standing
from plait.model.base import Fault, Reply, ToolCall
from plait.runtime.appends import append_at_tip
from plait.runtime.carrying import carry_request
from plait.runtime.citations import citation_drafts, recall_citations
from plait.runtime.consent import User, refusal_drafts, tool_request
from plait.runtime.effects import Answer, AskModel
from plait.runtime.names import call_id
from plait.runtime.prompt.parts import blob_reader
from plait.runtime.registry import run_of
from plait.runtime.run import Run
from plait.session import Session
from plait.session.content import pack, text_of, unpack
from plait.session.ports import Act, Draft, store_at
from plait.tool import Tool, WrongArguments, reason_of

# the one property, and the title, of a schema that is an object for providers' sake
WRAPPED, WRAPPER = "answer", "an answer in an object"
_SILENT = {
    "length": (
        "the reply came to its length limit before it said anything; raise tokens_max, or let it"
        " think less"
    ),
    "refusal": "the model declined, without a word",
}


def record_reply(
    effect: AskModel, session: Session, reply: Reply, latency_us: int, call: str, asked: Digest
) -> tuple[Session, Event, Answer]:
    """Record a reply and the requests of its calls, in one transaction; raise a `Fault` if it is
    empty.
    """
    said = _join_texts(reply.parts)
    if not reply.calls and not any(not isinstance(part, k.Reasoning) for part in said):
        # Asked again, a model that thought up to its limit, or declined, would do the same at the
        # same price.
        why = _SILENT.get(reply.stop)
        raise Fault(
            "EmptyReply",
            why or "the reply says nothing and asks for nothing",
            retryable=why is None,
            usage=reply.usage,
            price=reply.price,
        )
    if effect.prompt.setup.output is not None and not reply.calls:
        said = _as_data(said, effect.prompt.setup.output)
    parts, blobs = pack(said, "reply")
    seq, run = session.seq + 1, session.run if run_of(session) is not None else None
    asks = reply.calls if effect.choice != "none" else ()
    calls = tuple(
        [
            _action(each, call_id(run, session.id, seq, index), effect.tools)
            for index, each in enumerate(asks)
        ]
    )
    live = run_of(session)
    stop = reply.stop if calls or reply.stop != "calls" else "end"
    body = k.ModelReplied(
        parts,
        reply.usage,
        stop,
        calls,
        reply.model or effect.model.name,
        reply.price,
        latency_us,
        effect.aside,
        live.stack.judging_call(session.id) if live is not None and not effect.aside else "",
    )
    act = Act(effect.actor, "model", call=call, causes=(asked,))
    text = text_of(said)
    drafts = [Draft(body, act), *citation_drafts(session, text, act._replace(causes=(0,)))]
    for action in calls:
        drafts.extend(
            _request_drafts(effect, session, action, len(drafts), truncated=reply.stop == "length")
        )
    # It was answered, and paid for, so it is recorded, also when others wrote meanwhile.
    session, events = append_at_tip(session, drafts, blobs)
    written = events[0].body
    assert isinstance(written, k.ModelReplied)
    if secrets.is_armed():  # the program only ever sees what was recorded
        said = unpack(written.parts, store_at(session.store).get_blob)
        text = text_of(said)
    data = next((part for part in said if isinstance(part, k.Data)), None)
    failed = {event.header.call for event in events if event.kind == "ToolFailed"}
    runnable = tuple([each for each in written.calls if each.call not in failed])
    requests = {event.header.call or "": event for event in events if event.kind == "ToolRequested"}
    spoken = {
        mine.call: mine.arguments
        for mine, kept in zip(calls, written.calls, strict=True)
        if mine.arguments != kept.arguments
    }
    answer = Answer(
        events[0].id, text, data, written.calls, runnable, written.stop, requests, spoken
    )
    return session, events[0], answer


def _join_texts(parts: k.Parts) -> k.Parts:
    """Return the parts without empty texts, and with texts that follow each other as one: a
    provider may cut in the middle of a sentence.
    """
    found: list[Any] = []
    for part in parts:
        if isinstance(part, k.Text) and not part.blob:
            if found and isinstance(found[-1], k.Text):
                found[-1] = k.Text(found[-1].text + part.text)
            elif part.text:
                found.append(part)
        else:
            found.append(part)
    return tuple(found)


def _as_data(parts: k.Parts, schema: Any) -> k.Parts:
    """Return a reply that is to be data as data; if it is no JSON, as it came.

    A value that stands in an object only for the provider's sake is taken out of it.
    """
    text = "".join(part.text for part in parts if isinstance(part, k.Text)).strip()
    for candidate in (
        text,
        text.removeprefix("```json").removeprefix("```").removesuffix("```").strip(),
    ):
        try:
            value = parse(candidate.encode())
        except (InvalidInput, UnicodeEncodeError):
            continue
        if (
            isinstance(value, Mapping)
            and schema.get("title") == WRAPPER
            and set(value) == {WRAPPED}
        ):
            value = value[WRAPPED]
        return (*(part for part in parts if not isinstance(part, k.Text)), k.Data(value))
    return parts


def _action(call: ToolCall, id: str, tools: Mapping[str, Tool[..., Any]]) -> Action:
    arguments: Json = (
        _parse_object(call.arguments) if isinstance(call.arguments, str) else call.arguments
    )
    stated = ""
    if call.tool in tools:
        arguments, stated = reason_of(tools[call.tool], arguments)
    if isinstance(arguments, Mapping):
        try:
            VOCABULARY.encode(k.ScratchSet("arguments", dict(arguments)))
        except InvalidInput:
            # not JSON: shown to the model as what it wrote
            arguments = repr(arguments)
    return Action(
        id,
        call.tool[:200],
        dict(arguments) if isinstance(arguments, Mapping) else arguments,
        call.reason or stated,
        call.ref,
    )


def _parse_object(text: str) -> Mapping[str, Json] | str:
    """Return the JSON object that a text is; if it is none, the text as it came."""
    try:
        value = parse(text.encode())
    except (InvalidInput, UnicodeEncodeError):
        return text
    return value if isinstance(value, Mapping) else text


def _request_drafts(
    effect: AskModel, session: Session, action: Action, at: int, *, truncated: bool
) -> list[Draft]:
    """Return the request of one call; if it cannot be run, also its failure."""
    tool = effect.tools.get(action.tool)
    act = Act(effect.actor, "model", call=action.call, causes=(0,))
    why = _misfit_of_call(effect.tools, tool, action, truncated)
    if tool is None or why is not None:
        known = (tool.effect, tool.noted_version) if tool else ("pure", "")
        body = k.ToolRequested(
            action.tool,
            action.arguments,
            *known,
            action.reason,
            path=effect.path,
            source=tool.origin if tool else "",
        )
    else:
        body, why = tool_request(
            session, tool, action.arguments, User(effect.actor, effect.path), action.reason
        )
        body = carry_request(run_of(session), session, tool, body) if why is None else body
    return [Draft(body, act), *refusal_drafts(session, why, act._replace(causes=(at,)))]


def _is_refusal(event: Event, request: Event) -> bool:
    """True if an event says that a call was not run at all, as it is written with the request."""
    if event.kind == k.BudgetRefused.__name__:
        return True
    return (
        event.kind == k.ToolFailed.__name__
        and event.header.causes == (request.id,)
        and event.header.origin == "program"
    )


def _misfit_of_call(
    tools: Mapping[str, Tool[..., Any]],
    tool: Tool[..., Any] | None,
    action: Action,
    truncated: bool,
) -> Failure | None:
    """Return why a call cannot be run as the model asks for it; None if it can."""
    if tool is None:
        return Failure(
            "UnknownTool",
            f"there is no tool {action.tool!r}; there are: {', '.join(tools) or 'none'}",
        )
    if truncated:
        return Failure(
            "Truncated",
            "the reply was cut at its length limit, so this call was not run; ask for less at once",
        )
    try:
        tool.arguments(action.arguments)
    except WrongArguments as error:
        return Failure(
            "WrongArguments", f"{error}. It was not run; correct the arguments and call it again"
        )
    return None


# ── replies on record ────────────────────────────────────────────────────────────────────────


def recall_reply(
    run: Run, effect: AskModel, session: Session, reply: Event
) -> tuple[Session, Answer]:
    """Return a reply that is on record, with the requests that were recorded with it."""
    body = reply.body
    assert isinstance(body, k.ModelReplied)
    said = unpack(body.parts, blob_reader(session))
    text = text_of(said)
    session = recall_citations(run, session, reply, text)
    requests: dict[str, Event] = {}
    unrunnable: set[str] = set()
    for action in body.calls:
        session, requests[action.call], is_refused = _recall_request(
            run, effect, session, action, reply, truncated=body.stop == "length"
        )
        if is_refused:
            unrunnable.add(action.call)
    data = next((part for part in said if isinstance(part, k.Data)), None)
    runnable = tuple([each for each in body.calls if each.call not in unrunnable])
    return session, Answer(reply.id, text, data, body.calls, runnable, body.stop, requests)


def _recall_request(
    run: Run, effect: AskModel, session: Session, action: Action, reply: Event, *, truncated: bool
) -> tuple[Session, Event, bool]:
    """Return the request of a call, and True if it was refused.

    A request that a rewind or a what-if cut off after the reply is written again.
    """
    step = run.journal.call_event(session, (action.call,))
    if step is None:
        first, *rest = _request_drafts(effect, session, action, 0, truncated=truncated)
        session, events = append_at_tip(
            session, [first._replace(act=first.act._replace(causes=(reply.id,))), *rest]
        )
        return session, events[0], len(events) > 1
    session, request = step
    is_refused = False
    while (ahead := run.journal.peek_call(session, (action.call,))) is not None and _is_refusal(
        ahead, request
    ):
        is_refused = True
        session, _ = run.journal.call_event(session, (action.call,)) or (session, ahead)
    why = _misfit_of_call(effect.tools, effect.tools.get(action.tool), action, truncated)
    if is_refused or why is None or run.journal.standing(session) is not Standing.LIVE:
        return session, request, is_refused
    act = Act(effect.actor, "program", call=action.call, causes=(request.id,))
    return append_at_tip(session, [Draft(k.ToolFailed(why), act)])[0], request, True


def misfit_of_reply(reply: Reply) -> str | None:
    """Return why a reply cannot be taken; None if it can.

    Models of the program's own may answer with anything.
    """
    parts: Any = reply.parts
    calls: Any = reply.calls
    if not isinstance(parts, tuple) or not all(
        isinstance(part, (k.Text, k.Reasoning, k.Image, k.File, k.Data))
        for part in cast("Any", parts)
    ):
        return "its parts are not a tuple of parts"
    if not isinstance(calls, tuple) or not all(
        isinstance(call, ToolCall) for call in cast("Any", calls)
    ):
        return "its calls are not a tuple of ToolCalls"
    if not all(
        isinstance(text, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        for call in reply.calls
        for text in (call.tool, call.reason, call.ref)
    ):
        return "the name of a tool is not a text"
    counts = [getattr(reply.usage, name, None) for name in k.Usage.__struct_fields__]
    if not all(isinstance(count, int) and 0 <= count < 2**53 for count in counts):
        return "its usage is not a number of tokens"
    texts: list[Any] = [reply.stop, reply.model]
    return (
        None if all(isinstance(text, str) for text in texts) else "its stop or model is not a text"
    )
