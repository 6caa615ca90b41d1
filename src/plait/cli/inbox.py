"""What waits for people, and what they answer.

What is shown is what is bound: tool, version and arguments come from the events themselves, in
full, as JSON in which everything that a terminal would obey or hide stands as an escape. A long
value is folded only with its size and digest said. Whatever is answered goes to the session's
inbox, so that a run that holds it is not disturbed.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
import msgspec

from plait.cli.common import Given, listing, store_of, text_of, value_of, writing
from plait.cli.documents import Document, event_document, print_json, print_jsonl
from plait.cli.render import ACCENT, BAD, DIM, STRONG, Cell, Out, counted
from plait.cli.terminal import visible, when
from plait.errors import InvalidValue
from plait.event import Event, Json, parse
from plait.event.kinds import ToolRequested
from plait.ids import short
from plait.session import Session, Waiting
from plait.session.asks import ask_of, is_late
from plait.session.inbox import all_waiting, failed_verdict, find_ask, root_of, with_request
from plait.session.ports import store_at
from plait.session.saying import saying
from plait.session.typed import misfit, takes_bytes
from plait.session.views import WaitKind
from plait.store import Store

FOLD_AT = 2000  # characters of one value; what is longer is folded, unless all of it is asked for
FOLDED = 600  # characters that are shown of it
PATCH_LINES = 60  # of a patch, likewise
PATCH = "patch"
_BOUND = ("tool", "version", "arguments")

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
def inbox(given: Given, session: str | None, everything: bool, full: bool) -> None:
    """Show what waits for people: approvals, questions, verdicts, effects of unknown outcome.

    Without S, in all sessions; with S, in that one and the branches of its run. With S and --all,
    its inbox as it stands.
    """
    if session is not None and everything:
        _print_log(given, given.open(session))
        return
    store = store_at(given.store)
    asks = [_as_asked(store, ask) for ask in all_waiting(store, answered=everything)]
    if session is not None:
        wanted = given.open(session).id
        asks = [ask for ask in asks if wanted in (ask.log, root_of(store, ask.run, ask.log))]
    asks = [ask for ask in asks if everything or ask.kind != "timer"]
    if given.form == "text":
        _print_asks(store, asks, full)
    elif given.form == "jsonl":
        print_jsonl(waiting_document(store, ask) for ask in asks)
    else:
        print_json({"waiting": [waiting_document(store, ask) for ask in asks]})


def _as_asked(store: Store, ask: Waiting) -> Waiting:
    """The ask as its event has it: rows are for finding, and people decide on what is on record."""
    found = ask_of(store.event(ask.event))
    assert found is not None
    return with_request(store, found)


def _print_log(given: Given, session: Session) -> None:
    events = session.inbox.events
    if given.form == "json":
        print_json({"session": session.id, "events": [event_document(event) for event in events]})
    elif given.form == "jsonl":
        print_jsonl(map(event_document, events))
    else:
        out = Out()
        for event in events:
            out.brief(
                Cell(f"{event.seq:>4}", ACCENT),
                f"  {out.time(event.time)}  {event.actor}  ",
                saying(event),
            )


def _print_asks(store: Store, asks: list[Waiting], full: bool) -> None:
    out = Out()
    for at, ask in enumerate(asks):
        if at:
            out.line()
        print_ask(out, store, ask, full)
    if not asks:
        out.hint("nothing waits for anybody")


def print_ask(out: Out, store: Store, ask: Waiting, full: bool, hints: bool = True) -> None:
    """One ask for people: everything that is bound, and what to type."""
    behalf = f" on behalf of {visible(ask.behalf)}" if ask.behalf else ""
    who = f"{visible(ask.actor)}{behalf}, {out.time(ask.since)}"
    out.line(
        Cell(f"{ask.kind} {ask.event[:12]}", STRONG),
        Cell(f"  in {ask.session}@{ask.seq}  asked by {who}", DIM),
    )
    _print_about(out, store, ask, full)
    for hint in hints_of(ask) if hints else ():
        out.hint(f"  {hint}")


def _print_about(out: Out, store: Store, ask: Waiting, full: bool) -> None:
    for name, value, style in _about(store, ask, out.now):
        if value in ("", "[]", "null", '""') and name not in ("arguments",):
            continue
        if name == PATCH:
            _print_patch(
                out, value, len(value) if full else max(_run_lines(ask.shown), PATCH_LINES)
            )
            continue
        text = value if full or len(value) <= FOLD_AT else _folded(value)
        out.line(Cell(f"  {name:<10}  ", DIM), Cell(text, style))


def _run_lines(shown: Json) -> int:
    """How many lines of the patch, from its beginning, are of files that the user's own tools run:
    none of them is left out.
    """
    trees = shown.get("publishes") if isinstance(shown, dict) else None
    count = trees.get("run lines") if isinstance(trees, dict) else None
    return count if isinstance(count, int) else 0


def _print_patch(out: Out, patch: str, most: int) -> None:
    """Line by line, each with an escape for what a terminal would obey or not show."""
    lines = patch.removesuffix("\n").split("\n")
    shown = lines[:most]
    for at, line in enumerate(shown):
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else DIM
        out.line(
            Cell(f"  {PATCH if not at else '':<10}  ", DIM),
            Cell(visible(line.expandtabs(8)), style),
        )
    if len(lines) > len(shown):
        out.line(
            Cell(
                f"  {'':<10}  … {counted(len(lines) - len(shown), 'line')} more; --full shows them",
                DIM,
            )
        )


def _folded(text: str) -> str:
    size, name = counted(len(text.encode()), "byte"), sha256(text.encode()).hexdigest()
    return f"{text[:FOLDED]} … folded: {size} in all, SHA-256 {name}; --full shows them"


def _about(store: Store, ask: Waiting, now: int) -> Iterator[tuple[str, str, str]]:
    """What there is to know: a name, a text in which nothing is hidden, and how it is styled."""
    if ask.kind == "approval":
        yield from _approval(request_of(store, ask), ask.shown)
        yield "binding", ask.binding or "", DIM
        if ask.expires is not None:
            late = is_late(ask, now)
            yield (
                "expires",
                f"{when(ask.expires)} UTC{' (it has)' if late else ''}",
                BAD if late else "",
            )
    elif ask.kind == "question":
        yield "question", visible(ask.question), ""
        if ask.choices:
            yield "choices", _json(list(ask.choices)), ""
    elif ask.kind == "unknown":
        yield "tool", visible(ask.tool), STRONG
        yield "arguments", _json(ask.arguments), ""
        yield "why", visible(ask.why or "its outcome is not known: it may have happened"), ""
        if ask.returns is not None:
            yield "returns", _json(ask.returns), ""
    elif ask.kind == "verdict":
        yield "verdict", visible(ask.name), STRONG
        yield "of", short(ask.of or ask.log), ""
        yield "by", visible(ask.by), ""
        verdict = failed_verdict(store, ask)
        if verdict is not None:
            yield "failed", visible(f"by {verdict.actor}: {saying(verdict)}"), BAD
        yield "why", visible(ask.why), ""
    else:
        yield (
            "until",
            f"{when(ask.until)} UTC" if ask.until is not None else "as long as it takes",
            "",
        )
        if ask.name:
            yield "signal", visible(ask.name), ""


def _approval(request: Event | None, shown: Json) -> Iterator[tuple[str, str, str]]:
    """The request first, then whatever else was to be shown; where the two
    disagree, that is said.
    """
    body = request.body if request is not None else None
    told: dict[str, Json] = (
        dict(shown) if isinstance(shown, dict) else {} if shown is None else {"shown": shown}
    )
    known: dict[str, Json] = {}
    if isinstance(body, ToolRequested):
        known = {
            "tool": body.tool,
            "version": body.version,
            "arguments": body.arguments,
            "effect": body.effect,
            "reason": body.reason,
        }
        known = {name: value for name, value in known.items() if value != ""}
    for name, value in known.items():
        yield (
            name,
            visible(value) if isinstance(value, str) else _json(value),
            STRONG if name == "tool" else "",
        )
    for name in sorted(told, key=lambda name: _LAST.index(name) if name in _LAST else -1):
        value = told[name]
        if name in known and value == known[name]:
            continue
        if name in known and name in _BOUND:
            yield "CAUTION", f"the ask shows another {name} than the request: {_json(value)}", BAD
        elif name in _PUBLISHING and isinstance(value, (dict, list)):
            yield from _publishing(name, value)
        else:
            text = (
                value
                if name == PATCH and isinstance(value, str)
                else visible(value)
                if isinstance(value, str)
                else _json(value)
            )
            yield visible(name), text, ""


# what an ask to publish shows besides
_PUBLISHING = {"publishes": "", "changes": "", "executable": BAD, "unpublished": DIM}


def _publishing(name: str, value: dict[str, Json] | list[Json]) -> Iterator[tuple[str, str, str]]:
    """What would be written where, what of it the user's own tools run, and what stays away: a line
    each.
    """
    if name == "publishes" and isinstance(value, dict):
        yield (
            name,
            visible(f"{counted(int(str(value.get('paths', 0))), 'path')} to {value.get('folder')}"),
            "",
        )
        return
    texts = (
        [f"{path}: {why}" for path, why in value.items()]
        if isinstance(value, dict)
        else [str(each) for each in value]
    )
    for text in texts:
        yield _CALLED.get(name, name), visible(text), _PUBLISHING[name]


# A person reads down to where the answer is typed: what counts most stands there.
_LAST = ("publishes", "changes", "unpublished", PATCH, "patch is cut", "cannot tell", "executable")
_CALLED = {"executable": "CAUTION", "unpublished": "kept back"}


def request_of(store: Store, ask: Waiting) -> Event | None:
    """The tool call that an approval is about; None: it is about something else."""
    if not ask.call:
        return None
    before = store.read(
        ask.log, store.log(ask.log).place + 1, ask.seq, kinds={ToolRequested.__name__}, reverse=True
    )
    return next((event for event in before if event.header.call == ask.call), None)


def _json(value: Json) -> str:
    """As JSON that says exactly this, with an escape for whatever a terminal would obey or not
    show.
    """
    return visible(json.dumps(value, ensure_ascii=False))


def hints_of(ask: Waiting) -> list[str]:
    """What to type."""
    id = ask.event[:8]
    if ask.kind == "approval":
        return [f"plait approve {id}", f'plait deny {id} --reason "…"']
    if ask.kind == "question":
        return [f"plait answer {id} …"]
    if ask.kind == "verdict":
        who = ["--as", ask.by] if ":" in ask.by else []
        return [
            shlex.join(["plait", "validate", short(ask.of or ask.log), ask.name, "passed", *who])
        ]
    value = "" if ask.returns is None else " [--value JSON]"
    return (
        [f"plait resolve {id} happened|did-not-happen|compensated{value}"]
        if ask.kind == "unknown"
        else []
    )


def waiting_document(store: Store, ask: Waiting) -> Document:
    request = request_of(store, ask) if ask.kind == "approval" else None
    body = request.body if request is not None else None
    asked: Document = {
        "tool": ask.tool or None,
        "version": None,
        "arguments": ask.arguments,
        "request": ask.request,
    }
    if request is not None and isinstance(body, ToolRequested):
        asked = {
            "tool": body.tool,
            "version": body.version,
            "arguments": body.arguments,
            "request": request.id,
        }
    return {
        **{
            name: value
            for name, value in msgspec.to_builtins(ask).items()
            if name not in ("log", "event")
        },
        "id": ask.event,
        "session": ask.log,
        "short": ask.session,
        "resume": short(root_of(store, ask.run, ask.log)),
        **asked,
        **_failed(store, ask),
    }


def _failed(store: Store, ask: Waiting) -> Document:
    """The verdict that it failed, if a gate waits for a verdict and was given that one."""
    event = failed_verdict(store, ask) if ask.kind == "verdict" else None
    return {} if event is None else {"failed": event_document(event)}


# ── answering ────────────────────────────────────────────────────────────────────────────────


def _find(given: Given, id: str, kind: WaitKind) -> tuple[Session, Waiting]:
    """The ask whose id begins so, anywhere in the store, and the session it stands in."""
    store = store_at(given.store)
    found = find_ask(all_waiting(store, answered=True), id, kinds=(kind,))
    return Session.open(found.log, store=given.store), _as_asked(store, found)


def _answered(given: Given, session: Session, ask: Waiting, done: str) -> None:
    """Print what was answered, and what comes next."""
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
    _print_about(out, store, ask, full=False)
    out.hint(f"  plait resume {root}")


@click.command()
@click.argument("id", metavar="ID")
@click.option(
    "--edit", metavar="JSON|@FILE", help="Allow it with these arguments instead, all of them."
)
@click.option("--note", default="", help="Why, for the record.")
@writing
def approve(given: Given, id: str, edit: str | None, note: str) -> None:
    """Allow what an agent asks for, exactly as `plait inbox` shows it.

    ID is the start of the ask's id.
    """
    session, ask = _find(given, id, "approval")
    session.inbox.approve(
        ask, edited=_edited(edit) if edit is not None else None, note=note, actor=given.who
    )
    _answered(given, session, ask, "approved" if edit is None else "approved with other arguments")


def _edited(text: str) -> Json:
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
def deny(given: Given, id: str, reason: str) -> None:
    """Refuse what an agent asks for. ID is the start of the ask's id."""
    session, ask = _find(given, id, "approval")
    session.inbox.deny(ask, reason, actor=given.who)
    _answered(given, session, ask, "denied")


@click.command()
@click.argument("id", metavar="ID")
@click.argument("value")
@writing
def answer(given: Given, id: str, value: str) -> None:
    """Answer a question. VALUE is JSON if it is that, else a text; - reads standard input."""
    session, ask = _find(given, id, "question")
    text = text_of(value)
    session.inbox.answer(ask, text if text in ask.choices else value_of(text), actor=given.who)
    _answered(given, session, ask, "answered")


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
def resolve(given: Given, id: str, verdict: Any, value: str | None, note: str) -> None:
    """Say what became of an effect whose outcome is not known.

    ID is the start of the ask's id, or of its request's.
    """
    session, ask = _find(given, id, "unknown")
    result: Any = _result_of(value, ask) if value is not None else None
    session.inbox.resolve(ask, verdict.replace("-", "_"), result, note, actor=given.who)
    _answered(given, session, ask, "resolved")


def _result_of(text: str, ask: Waiting) -> Json:
    """The value that was typed: JSON if it is that; a text, if the tool returns texts and it is no
    JSON text.
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


def print_posted(given: Given, session: Session, *hints: str) -> None:
    """Print what was put into a session's inbox."""
    posted = session.inbox.events[-1]
    if given.form == "json":
        print_json({"session": session.id, "event": event_document(posted)})
        return
    out = Out()
    out.brief(Cell(session.short, ACCENT), "  in the inbox: ", saying(posted))
    out.hint(*(f"  {hint}" for hint in hints))


@click.command()
@click.argument("session", metavar="S")
@click.option("--reason", default="", help="Why.")
@writing
def cancel(given: Given, session: str, reason: str) -> None:
    """Ask the open run of a session to end. It hears that before its next effect."""
    value = given.open(session).inbox.cancel(reason, actor=given.who)
    print_posted(given, value, f"plait resume {value.short}   if no process holds it")


@click.command()
@click.argument("session", metavar="S")
@click.argument("text")
@writing
def send(given: Given, session: str, text: str) -> None:
    """Say something to a session, whoever holds it.

    It is heard before the next effect. As TEXT, - reads standard input.
    """
    said = text_of(text)
    if not said:
        raise InvalidValue("text", "nothing is said", "pass a text")
    print_posted(given, given.open(session).inbox.send(said, actor=given.who))


@click.command()
@click.argument("session", metavar="S")
@click.argument("name")
@click.argument("value", metavar="[JSON]", required=False)
@writing
def signal(given: Given, session: str, name: str, value: str | None) -> None:
    """Say that something has happened which a session may wait for.

    The value is JSON, or a text.
    """
    done = given.open(session).inbox.signal(
        name, value_of(value) if value is not None else None, actor=given.who
    )
    print_posted(given, done)
