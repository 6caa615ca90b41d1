"""The first line of an ask: who wants to do what."""

from __future__ import annotations

import json
from urllib.parse import unquote

from plait.event import Event, Json
from plait.event.kinds import ModelReplied, ToolRequested
from plait.ids import short
from plait.session import Waiting
from plait.session.content import text_of
from plait.session.safe_text import visible
from plait.store import Store

ARGUMENTS_MAX = 100  # characters of the arguments in a first line


def ask_headline(store: Store, ask: Waiting) -> str:
    """Return who wants to do what, in one line in which nothing is hidden."""
    who = _who(ask.actor)
    if ask.kind == "approval":
        return visible(f"{who} wants to {_wish_text(store, ask)}")
    if ask.kind == "question":
        return visible(f"{who} asks: {ask.question}")
    if ask.kind == "unknown":
        who = _who(store.event(ask.request).actor) if ask.request is not None else who
        return visible(
            f"{who} called {ask.tool} {arguments_text(ask.arguments)}: it may have happened"
        )
    if ask.kind == "verdict":
        judge = f" by {ask.by}" if ask.by else ""
        return visible(f"{who} needs a verdict{judge}: {ask.name} of {short(ask.of or ask.log)}")
    return visible(f"{who} waits" + (f" for the signal {ask.name}" if ask.name else ""))


def words_before(store: Store, ask: Waiting) -> str:
    """Return what the agent said with its request; "" if it said nothing."""
    if not ask.call or not ask.actor.startswith("agent:"):
        return ""
    first = store.log(ask.log).place + 1
    replies = store.read(ask.log, first, ask.seq, kinds={ModelReplied.__name__}, reverse=True)
    event = next((event for event in replies if event.actor == ask.actor), None)
    body = event.body if event is not None else None
    return text_of(body.parts).strip() if isinstance(body, ModelReplied) else ""


def request_of(store: Store, ask: Waiting) -> Event | None:
    """Return the tool call that an approval is about; None if it is about something else."""
    if not ask.call:
        return None
    before = store.read(
        ask.log, store.log(ask.log).place + 1, ask.seq, kinds={ToolRequested.__name__}, reverse=True
    )
    return next((event for event in before if event.header.call == ask.call), None)


def _who(actor: str) -> str:
    """Return the name of the one that asks: of an agent, the last part of its path."""
    kind, _, path = actor.partition(":")
    return unquote(path.rpartition("/")[2]) if kind == "agent" and path else actor


def _wish_text(store: Store, ask: Waiting) -> str:
    shown = ask.shown if isinstance(ask.shown, dict) else {}
    published = shown.get("publishes")
    if isinstance(published, dict):
        count = published.get("paths", 0)
        return f"publish {count} path{'' if count == 1 else 's'} to {published.get('folder')}"
    request = request_of(store, ask)
    body = request.body if request is not None else None
    if isinstance(body, ToolRequested):
        return f"run {body.tool} {arguments_text(body.arguments)}"
    return f"do {shown.get('tool') or 'something'}"


def arguments_text(arguments: Json) -> str:
    """Return the arguments as NAME=JSON, cut: the line with all of them is below."""
    if not isinstance(arguments, dict):
        return "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
    text = ", ".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items()
    )
    return text if len(text) <= ARGUMENTS_MAX else f"{text[: ARGUMENTS_MAX - 1]}…"
