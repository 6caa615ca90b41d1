"""One ask that waits for a person, as text and as JSON.

The text shows exactly the values that an approval binds: tool, version and arguments come from the
events themselves, in full, as JSON in which every character that a terminal would obey or hide
stands as an escape. A long value is folded only if its size and digest are printed with it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from plait.cli.ask_lines import ask_headline, request_of, words_before
from plait.cli.render import ACCENT, BAD, DIM, STRONG, Cell, Out, count_text
from plait.cli.terminal import when
from plait.event import Event, Json
from plait.event.kinds import ToolRequested
from plait.ids import short
from plait.outline.documents import Document, event_document
from plait.session import Waiting
from plait.session.asks import ask_of, is_late
from plait.session.event_text import event_text
from plait.session.inbox import failed_verdict, root_of, with_request
from plait.session.safe_text import visible
from plait.store import Store

if TYPE_CHECKING:
    from plait.memory.provenance import Lapse

FOLD_AT = 2000  # characters of one value; longer ones are folded, except with --full
FOLDED = 600  # characters that are shown of it
PATCH_LINES = 60  # of a patch, likewise
PATCH = "patch"
_BOUND = ("tool", "version", "arguments")
# below the others: a person may need them, and does not decide by them
_DETAILS = ("tool", "version", "effect", "source", "path", "origins", "binding")
_REASONS = ("said", "reason", "why", "rule")  # above the others


def recorded_ask(store: Store, ask: Waiting) -> Waiting:
    """Return the ask as its event has it: rows only help to find asks, and people decide on the
    record.
    """
    found = ask_of(store.event(ask.event))
    assert found is not None
    return with_request(store, found)


def print_ask(
    out: Out, store: Store, ask: Waiting, full: bool, hints: bool = True, *, brief: bool = False
) -> None:
    """Print one ask for people: who wants to do what and why, every value it binds, and the
    commands that answer it.

    `brief` leaves out the values that say nothing to a person: the digests and the effect class.
    """
    out.line(Cell(ask_headline(store, ask), STRONG))
    print_fields(out, store, ask, full, brief=brief)
    behalf = f" for {visible(ask.behalf)}" if ask.behalf and not brief else ""
    who = f"by {visible(ask.actor)}{behalf}, {out.time(ask.since)}"
    out.line(
        Cell(f"  {ask.kind:<10}  ", DIM),
        Cell(ask.event[:12], ACCENT),
        Cell(f"  {ask.session}@{ask.seq}  {who}", DIM),
    )
    for hint in hints_of(ask) if hints else ():
        out.hint(f"  {hint}")


def _lapses(store: Store, ask: Waiting) -> list[Lapse]:
    """Return the memories behind an ask that do not hold any more."""
    from plait.memory.provenance import lapses_behind

    is_of_program = ask.kind in ("approval", "question", "unknown")
    return lapses_behind(store, store.event(ask.event)) if is_of_program else []


def print_fields(out: Out, store: Store, ask: Waiting, full: bool, *, brief: bool = False) -> None:
    fields = sorted(_ask_fields(store, ask, out.now), key=_field_rank)
    for name, value, style in fields:
        if brief and name in _DETAILS:
            continue
        if value in ("", "[]", "null", '""') and name not in ("arguments",):
            continue
        if name == PATCH:
            _print_patch(
                out,
                value,
                len(value) if full else max(_executable_line_count(ask.shown), PATCH_LINES),
            )
            continue
        text = value if full or len(value) <= FOLD_AT else _fold_text(value)
        out.line(Cell(f"  {name:<10}  ", DIM), Cell(text, DIM if name in _DETAILS else style))


def _field_rank(field: tuple[str, str, str]) -> int:
    """Return the part in which a field stands: the reasons, what is to happen, the details."""
    if field[0] in _DETAILS:
        return 2
    return 0 if field[0] in _REASONS else 1


def _executable_line_count(shown: Json) -> int:
    """Count the lines at the beginning of the patch that belong to files which the user's own tools
    run. They are always shown whole.
    """
    trees = shown.get("publishes") if isinstance(shown, dict) else None
    count = trees.get("run lines") if isinstance(trees, dict) else None
    return count if isinstance(count, int) else 0


def _print_patch(out: Out, patch: str, most: int) -> None:
    """Print a patch line by line, with an escape for each character that a terminal would obey or
    not show.
    """
    lines = patch.removesuffix("\n").split("\n")
    shown = lines[:most]
    for at, line in enumerate(shown):
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else DIM
        out.line(
            Cell(f"  {PATCH if not at else '':<10}  ", DIM),
            Cell(visible(line.expandtabs(8)), style),
        )
    if len(lines) > len(shown):
        more = count_text(len(lines) - len(shown), "line")
        out.line(Cell(f"  {'':<10}  … {more} more; --full shows them", DIM))


def _fold_text(text: str) -> str:
    size, name = count_text(len(text.encode()), "byte"), sha256(text.encode()).hexdigest()
    return f"{text[:FOLDED]} … folded: {size} in all, SHA-256 {name}; --full shows them"


def _ask_fields(store: Store, ask: Waiting, now: int) -> Iterator[tuple[str, str, str]]:
    """Yield the fields of an ask: a name, a text in which nothing is hidden, and its style."""
    for memory, text, change in _lapses(store, ask):
        said = f"[m:{memory[:8]}] {text}"
        yield "CAUTION", visible(f"it was recalled before this, and is {change}: {said}"), BAD
    if ask.kind == "approval":
        yield "said", visible(words_before(store, ask)), ""
        yield from _approval_fields(request_of(store, ask), _shown_below(ask))
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
            yield "choices", _visible_json(list(ask.choices)), ""
    elif ask.kind == "unknown":
        yield "tool", visible(ask.tool), STRONG
        yield "arguments", _visible_json(ask.arguments), ""
        yield "why", visible(ask.why or "its outcome is not known: it may have happened"), ""
        if ask.returns is not None:
            yield "returns", _visible_json(ask.returns), ""
    elif ask.kind == "verdict":
        yield "verdict", visible(ask.name), STRONG
        yield "of", short(ask.of or ask.log), ""
        yield "by", visible(ask.by), ""
        verdict = failed_verdict(store, ask)
        if verdict is not None:
            yield "failed", visible(f"by {verdict.actor}: {event_text(verdict)}"), BAD
        yield "why", visible(ask.why), ""
    else:
        yield (
            "until",
            f"{when(ask.until)} UTC" if ask.until is not None else "as long as it takes",
            "",
        )
        if ask.name:
            yield "signal", visible(ask.name), ""


def _shown_below(ask: Waiting) -> Json:
    """Return the fields of an ask without those that its first line tells."""
    if not isinstance(ask.shown, dict):
        return ask.shown
    above = {("actor", ask.actor), ("behalf", ask.behalf)}
    return {
        name: value
        for name, value in ask.shown.items()
        if name not in ("actor", "behalf") or (name, value) not in above
    }


def _approval_fields(request: Event | None, shown: Json) -> Iterator[tuple[str, str, str]]:
    """Yield the fields of the request, then the others that the ask shows. A field that contradicts
    the request is marked as such.
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
            visible(value) if isinstance(value, str) else _visible_json(value),
            STRONG if name == "tool" else "",
        )
    for name in sorted(told, key=lambda name: _LAST.index(name) if name in _LAST else -1):
        value = told[name]
        if name in known and value == known[name]:
            continue
        if name == "why" and value == told.get("rule"):
            continue
        if name in known and name in _BOUND:
            yield (
                "CAUTION",
                f"the ask shows another {name} than the request: {_visible_json(value)}",
                BAD,
            )
        elif name in _PUBLISHING_STYLES and isinstance(value, (dict, list)):
            yield from _publishing_fields(name, value)
        else:
            text = (
                value
                if name == PATCH and isinstance(value, str)
                else visible(value)
                if isinstance(value, str)
                else _visible_json(value)
            )
            yield visible(name), text, ""


# further fields of an ask to publish, with their styles
_PUBLISHING_STYLES = {"publishes": "", "changes": "", "executable": BAD, "unpublished": DIM}


def _publishing_fields(
    name: str, value: dict[str, Json] | list[Json]
) -> Iterator[tuple[str, str, str]]:
    """Yield a line for each path that would be written, that the user's own tools run, or that is
    kept back.
    """
    if name == "publishes" and isinstance(value, dict):
        yield (
            name,
            visible(
                f"{count_text(int(str(value.get('paths', 0))), 'path')} to {value.get('folder')}"
            ),
            "",
        )
        return
    texts = (
        [f"{path}: {why}" for path, why in value.items()]
        if isinstance(value, dict)
        else [str(each) for each in value]
    )
    for text in texts:
        yield _FIELD_NAMES.get(name, name), visible(text), _PUBLISHING_STYLES[name]


# A person reads down to the line where the answer is typed: the most important fields stand last.
_LAST = ("publishes", "changes", "unpublished", PATCH, "patch is cut", "cannot tell", "executable")
_FIELD_NAMES = {"executable": "CAUTION", "unpublished": "kept back"}


def _visible_json(value: Json) -> str:
    """Return exact JSON, with an escape for each character a terminal would obey or hide."""
    return visible(json.dumps(value, ensure_ascii=False))


def hints_of(ask: Waiting) -> list[str]:
    """Return the commands that answer an ask."""
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
        "lapsed_memories": [
            {"id": memory, "text": text, "change": change}
            for memory, text, change in _lapses(store, ask)
        ],
        **_failed_verdict_document(store, ask),
    }


def _failed_verdict_document(store: Store, ask: Waiting) -> Document:
    """Return the failed verdict, if the ask is for a verdict and one was given that failed."""
    event = failed_verdict(store, ask) if ask.kind == "verdict" else None
    return {} if event is None else {"failed": event_document(event)}
