"""The asks that wait for people, and the commands that answer them.

An answer goes to the inbox of the session, so that a run that holds the session is not disturbed.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import click

from plait.cli.ask_lines import arguments_text, request_of
from plait.cli.asks import print_ask, print_fields, recorded_ask, waiting_document
from plait.cli.common import Options, command_line, listing, store_of, text_of, value_of, writing
from plait.cli.documents import print_json, print_jsonl
from plait.cli.memory_reading import viewer_in
from plait.cli.render import ACCENT, Cell, Out
from plait.errors import InvalidValue, PlaitError, UnknownAsk, WrongAskKind
from plait.event import Event, Json, parse
from plait.event.kinds import ApprovalDenied, ApprovalGranted, ToolRequested, ToolResolved
from plait.ids import short
from plait.outline.documents import event_document
from plait.outline.standing import due_now
from plait.session import Session, Waiting
from plait.session.asks import ask_of
from plait.session.event_text import event_text
from plait.session.inbox import all_waiting, find_ask, root_of
from plait.session.ports import store_at
from plait.session.safe_text import visible
from plait.session.typed import misfit, takes_bytes
from plait.session.value import open_run_of
from plait.session.views import WaitKind
from plait.store import Store

# ── looking ──────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("session", metavar="[S]", required=False)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="With S: all that others wrote to it. Else timers and what is answered, too.",
)
@click.option("--full", is_flag=True, help="Fold nothing, however long it is.")
@listing
def inbox(given: Options, session: str | None, everything: bool, full: bool) -> None:
    """Show what waits for people.

    Approvals, questions, verdicts, and effects of unknown outcome. Without S, in all sessions; with
    S, in that one and the branches of its run. With S and --all, its inbox as it stands.
    """
    if session is not None and everything:
        _print_log(given, given.open(session))
        return
    store = store_at(given.store)
    asks = [recorded_ask(store, ask) for ask in all_waiting(store, answered=everything)]
    if session is not None:
        wanted = given.open(session).id
        asks = [ask for ask in asks if wanted in (ask.log, root_of(store, ask.run, ask.log))]
    asks = [ask for ask in asks if everything or ask.kind != "timer"]
    if given.form == "text":
        _print_asks(store, asks, full)
        _print_due(store, session)
    elif given.form == "jsonl":
        print_jsonl(waiting_document(store, ask) for ask in asks)
    else:
        print_json({"waiting": [waiting_document(store, ask) for ask in asks]})


def _print_log(given: Options, session: Session) -> None:
    events = session.inbox.events
    if given.form == "json":
        print_json({"session": session.id, "events": [event_document(event) for event in events]})
    elif given.form == "jsonl":
        print_jsonl(map(event_document, events))
    else:
        out, store = Out(), store_of(session)
        for event in events:
            call = _call_text(store, event)
            out.print_brief(
                Cell(f"{event.seq:>4}", ACCENT),
                f"  {out.time(event.time)}  {event.actor}  ",
                f"{call}: {event_text(event)}" if call else event_text(event),
            )


def _call_text(store: Store, event: Event) -> str:
    """Return the call that an answer is about; "" if it is about none."""
    if not isinstance(event.body, (ApprovalGranted, ApprovalDenied, ToolResolved)):
        return ""
    for cause in event.header.causes:
        with suppress(PlaitError):  # erased, or not here
            ask = ask_of(store.event(cause))
            request = request_of(store, ask) if ask is not None else None
            if request is not None and isinstance(request.body, ToolRequested):
                return visible(f"{request.body.tool} {arguments_text(request.body.arguments)}")
    return ""


def _print_asks(store: Store, asks: list[Waiting], full: bool) -> None:
    out = Out()
    for at, ask in enumerate(asks):
        if at:
            out.line()
        print_ask(out, store, ask, full)
    if not asks:
        out.hint("nothing waits for anybody")


def _print_due(store: Store, session: str | None) -> None:
    """Say what has its answer: it waits for nobody, and stands still until it is resumed."""
    count = len(set(due_now(store)))
    if session is None and count:
        what = (
            "one session has its answer" if count == 1 else f"{count} sessions have their answers"
        )
        Out().hint(f"{what}; go on with: plait resume --due")


# ── answering ────────────────────────────────────────────────────────────────────────────────


def _find_ask(given: Options, id: str, kind: WaitKind) -> tuple[Session, Waiting]:
    """Return the ask with this beginning of an id, anywhere in the store, and its session."""
    store = store_at(given.store)
    try:
        found = find_ask(all_waiting(store, answered=True), id, kinds=(kind,))
    except WrongAskKind:
        raise
    except UnknownAsk as error:
        if step := _step_for_other_id(given, id):
            raise UnknownAsk(error.session, error.ask, error.why, step) from None
        raise
    return Session.open(found.log, store=given.store), recorded_ask(store, found)


def _step_for_other_id(given: Options, id: str) -> str:
    """Return the next step for the id of a session or a memory; "" if it is none of these."""
    from plait.memory.items import find_row  # heavy: only after a mistake

    with suppress(PlaitError):
        session = given.open(id)
        return f"that is a session; its asks: plait inbox {session.short}"
    with suppress(PlaitError):
        viewer = viewer_in(given, None)
        name = str(find_row(viewer.store, id, viewer)["id"])[:8]
        return (
            f"that is a memory: plait memory approve {name}, plait memory reject {name}, or"
            f" plait memory show {name}"
        )
    return ""


def _print_answer(given: Options, session: Session, ask: Waiting, done: str) -> None:
    """Print the answer, and the next command."""
    store = store_of(session)
    posted = next(
        event for event in reversed(session.inbox.events) if ask.event in event.header.causes
    )
    root = short(root_of(store, ask.run, ask.log))
    if given.form == "json":
        print_json(
            {
                "session": session.id,
                "ask": ask.event,
                "event": event_document(posted),
                "resume": root,
            }
        )
        return
    out = Out()
    out.line(
        Cell(f"{done} {ask.event[:12]}", ACCENT),
        f"  in {session.short}@{ask.seq}, by {visible(posted.actor)}",
    )
    print_fields(out, store, ask, full=False)
    out.hint(f"  plait resume {root}")


@click.command()
@click.argument("id", metavar="ID")
@click.option(
    "--edit", metavar="JSON|@FILE", help="Allow it with these arguments instead, all of them."
)
@click.option("--note", default="", help="Why, for the record.")
@writing
def approve(given: Options, id: str, edit: str | None, note: str) -> None:
    """Allow what an agent asks for, exactly as `plait inbox` shows it.

    ID is the start of the ask's id.
    """
    session, ask = _find_ask(given, id, "approval")
    session.inbox.approve(
        ask,
        edited=_parse_arguments(edit) if edit is not None else None,
        note=note,
        actor=given.actor_name,
    )
    _print_answer(
        given, session, ask, "approved" if edit is None else "approved with other arguments"
    )


def _parse_arguments(text: str) -> Json:
    try:
        data = (
            Path(text[1:]).read_bytes()
            if text.startswith("@")
            else text.encode("utf-8", "surrogatepass")
        )
    except OSError as error:
        raise InvalidValue(
            "--edit",
            f"{text[1:]} cannot be read: {error.strerror}",
            "name a file of JSON after the @",
        ) from error
    value = parse(data)
    if not isinstance(value, dict):
        raise InvalidValue(
            "--edit",
            "it is not a JSON object",
            'pass all arguments by name, as in \'{"path": "a.txt"}\'',
        )
    return value


@click.command()
@click.argument("id", metavar="ID")
@click.option("--reason", default="", help="Why; whoever asked is told.")
@writing
def deny(given: Options, id: str, reason: str) -> None:
    """Refuse what an agent asks for. ID is the start of the ask's id."""
    session, ask = _find_ask(given, id, "approval")
    session.inbox.deny(ask, reason, actor=given.actor_name)
    _print_answer(given, session, ask, "denied")


@click.command()
@click.argument("id", metavar="ID")
@click.argument("value")
@writing
def answer(given: Options, id: str, value: str) -> None:
    """Answer a question. VALUE is JSON if it is that, else a text; - reads standard input."""
    session, ask = _find_ask(given, id, "question")
    text = text_of(value)
    session.inbox.answer(
        ask, text if text in ask.choices else value_of(text), actor=given.actor_name
    )
    _print_answer(given, session, ask, "answered")


@click.command()
@click.argument("id", metavar="ID")
@click.argument("verdict", type=click.Choice(["happened", "did-not-happen", "compensated"]))
@click.option(
    "--value",
    metavar="JSON|TEXT",
    help="What it returned, of the type that its tool returns; bytes as base64.",
)
@click.option("--note", default="", help="How you know.")
@writing
def resolve(given: Options, id: str, verdict: Any, value: str | None, note: str) -> None:
    """Say what became of an effect whose outcome is not known.

    ID is the start of the ask's id, or of its request's.
    """
    session, ask = _find_ask(given, id, "unknown")
    result: Any = _result_of(value, ask) if value is not None else None
    if value is None and str(verdict) == "happened" and misfit(None, ask.returns) is not None:
        example = _example_of(ask.returns)
        word = shlex.quote(example if isinstance(example, str) else json.dumps(example))
        step = f"say what it returned, such as: plait resolve {id} happened --value {word}"
        raise InvalidValue("--value", f"{ask.tool or 'the tool'} returns a value", step)
    session.inbox.resolve(ask, verdict.replace("-", "_"), result, note, actor=given.actor_name)
    _print_answer(given, session, ask, "resolved")


def _example_of(schema: Any, definitions: Any = None) -> Json:
    """Return a JSON value that a JSON schema describes, to show to a person; None: any will do."""
    if not isinstance(schema, Mapping):
        return None
    rules = cast("Mapping[str, Any]", schema)
    known: Any = definitions if definitions is not None else rules.get("$defs", {})
    if isinstance(ref := rules.get("$ref"), str):
        return _example_of(known.get(ref.rpartition("/")[2]), known)
    for rule in ("anyOf", "oneOf", "allOf"):
        if rules.get(rule):
            return _example_of(rules[rule][0], known)
    if rules.get("enum"):
        return rules["enum"][0]
    if takes_bytes(rules):
        return "aGVsbG8="
    fields: Mapping[str, Any] = rules.get("properties", {})
    examples: dict[str, Json] = {
        "string": "what it said",
        "integer": 3,
        "number": 3.5,
        "boolean": True,
        "array": [_example_of(rules["items"], known)] if rules.get("items") else [],
        "object": {
            name: _example_of(fields.get(name), known) for name in rules.get("required", ())
        },
    }
    return examples.get(str(rules.get("type")))


def _result_of(text: str, ask: Waiting) -> Json:
    """Return the text itself if only the text fits the type of the tool, else the JSON value it
    spells.
    """
    value = value_of(text)
    if takes_bytes(ask.returns) and (value is None or isinstance(value, bool)):
        return value  # null, true and false are base64, too, and not meant as such
    return (
        text
        if misfit(value, ask.returns) is not None and misfit(text, ask.returns) is None
        else value
    )


# ── saying ───────────────────────────────────────────────────────────────────────────────────


def print_posted(given: Options, session: Session, *hints: str) -> None:
    """Print the last event of a session's inbox."""
    posted = session.inbox.events[-1]
    if given.form == "json":
        then = {"next": hints[0]} if hints else {}
        print_json({"session": session.id, "event": event_document(posted), **then})
        return
    out = Out()
    out.print_brief(Cell(session.short, ACCENT), "  in the inbox: ", event_text(posted))
    out.hint(*(f"  {hint}" for hint in hints))


@click.command()
@click.argument("session", metavar="S")
@click.option("--reason", default="", help="Why.")
@writing
def cancel(given: Options, session: str, reason: str) -> None:
    """Ask the open run of a session to end. It hears that before its next effect."""
    value = given.open(session).inbox.cancel(reason, actor=given.actor_name)
    print_posted(given, value, f"plait resume {value.short}   if no process holds it")


@click.command()
@click.argument("session", metavar="S")
@click.argument("text")
@writing
def send(given: Options, session: str, text: str) -> None:
    """Say something to a session. The run that is open, or the next one, hears it.

    It is not a turn, which has an answer of its own: see `plait chat`. As TEXT, - reads standard
    input.
    """
    said = text_of(text)
    if not said:
        raise InvalidValue("text", "nothing is said", "pass a text")
    value = given.open(session).inbox.send(said, actor=given.actor_name)
    print_posted(given, value, _hearing_text(given, value.reload()))


def _hearing_text(given: Options, session: Session) -> str:
    """Return when a message in the inbox of a session is heard, and the command to type for it."""
    resume = command_line(given, "resume", session.short)
    if open_run_of(session) is None:
        chat = command_line(given, "chat", session.short)
        status = session.status
        if status == "interrupted":  # messages of turns stand in the queue
            return f"no run is open: {resume} answers the queue, and hears it first"
        if status == "paused":
            return f"the session is paused: the next run hears it, after {resume}"
        failed = f"{resume} takes the failed run up and hears it, or " if status == "failed" else ""
        return f"no run is open: {failed}the next run or turn hears it first: {chat}"
    match session.status:
        case "running":
            return "the run that is open hears it before its next effect, or else the next run"
        case "waiting":
            asks = command_line(given, "inbox", session.short)
            return f"the run waits, and hears it when it goes on: {asks}, then {resume}"
        case "paused":
            return f"the session is paused; the run hears it after {resume}"
        case _:
            return f"no process has the run, which hears it after {resume}"


@click.command()
@click.argument("session", metavar="S")
@click.argument("name")
@click.argument("value", metavar="[JSON]", required=False)
@writing
def signal(given: Options, session: str, name: str, value: str | None) -> None:
    """Tell a session that something has happened.

    A run may wait for it.

    The value is JSON, or a text.
    """
    done = given.open(session).inbox.signal(
        name, value_of(value) if value is not None else None, actor=given.actor_name
    )
    print_posted(given, done)
