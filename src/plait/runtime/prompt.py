"""The conversation as one agent sees it, grown event by event.

A prompt is a chain: a setup (instruction, tools, view, parameters), then turns in the order of the path. What was rendered once is
never rendered otherwise: a turn depends on its own events alone, so the bytes before it stay the same as the session grows and in
every fork, and providers' prompt caches hit. The digest of a prompt is that of the prompt before it and the turns since.

An agent sees its own replies as its own, with their reasoning verbatim; everybody else's words are data, with the name of who said
them. Results are bounded here and whole in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from plait import secrets
from plait.errors import InvalidValue
from plait.event import Event, Json
from plait.event import kinds as k
from plait.event.kinds import Parts
from plait.ids import Digest, LogId, digest
from plait.model.base import Answered, Call, Result, Returned, Said, Spec, Turn
from plait.session import Session
from plait.session.content import unpack
from plait.session.ports import store_at
from plait.session.state import Stretch
from plait.session.views import speaker

PROMPT_TAG = b"plait/prompt/1"
SHOWN_MAX = 16_000  # characters of one result that a model is shown; all of it is in the log
ASIDE_MAX = 2_000  # of somebody else's
GO_ON = "Go on."  # said where a model would otherwise have to answer itself

_encode = msgspec.json.Encoder(order="deterministic").encode
_KINDS = frozenset(
    kind.__name__
    for kind in (
        k.MessageSaid,
        k.ModelReplied,
        k.ModelFailed,
        k.ToolRequested,
        k.ToolReturned,
        k.ToolFailed,
        k.ToolUnknown,
        k.ToolResolved,
        k.FactRecorded,
        k.FactRetracted,
        k.PendingAdded,
        k.PendingSettled,
        k.ValidationRecorded,
        k.ContextCompacted,
        k.Rewound,
        k.Merged,
        k.BodyRedacted,
    )
)
_ANEW = frozenset({k.Rewound.__name__, k.Merged.__name__, k.BodyRedacted.__name__})  # after one of these the past is another
_KNOWLEDGE = frozenset(
    kind.__name__ for kind in (k.FactRecorded, k.FactRetracted, k.PendingAdded, k.PendingSettled, k.ValidationRecorded, k.ContextCompacted)
)


class View(msgspec.Struct, frozen=True, omit_defaults=True):
    """How much of the session an agent sees. `View.whole()` unless told otherwise."""

    what: Literal["whole", "last", "branch", "calls", "facts", "compacted"] = "whole"
    turns: int = 0
    names: tuple[str, ...] = ()

    @classmethod
    def whole(cls) -> View:
        """The whole path."""
        return cls()

    @classmethod
    def last(cls, turns: int) -> View:
        """The last so many turns; a call and its results are kept together."""
        if turns < 1:
            raise InvalidValue("turns", f"{turns} turns show nothing", "pass a number from 1")
        return cls("last", turns)

    @classmethod
    def branch(cls) -> View:
        """Only what happened in this branch, since it was forked."""
        return cls("branch")

    @classmethod
    def calls(cls, *names: str) -> View:
        """What these agents and workflows said, by name or path, and what people said."""
        return cls("calls", names=names)

    @classmethod
    def facts(cls) -> View:
        """Facts, decisions, findings, open work, verdicts and summaries, and the last message."""
        return cls("facts")

    @classmethod
    def compacted(cls) -> View:
        """From the last compaction on, with its summary."""
        return cls("compacted")

    @classmethod
    def of(cls, given: View | str | int | None) -> View:
        """A view, its name, or a number of turns."""
        if given is None:
            return cls()
        if isinstance(given, View):
            return given
        if isinstance(given, int):
            return cls.last(given)
        if given in ("whole", "branch", "facts", "compacted"):
            return cls(given)
        step = "use View.whole(), last(n), branch(), calls(…), facts() or compacted()"
        raise InvalidValue("view", f"{given!r} is not a view", step)


class Setup(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an agent asks with, besides the story. Recorded once per call, so that a prompt can be shown exactly as it was."""

    instruction: str
    tools: tuple[Spec, ...]
    parameters: dict[str, Json] = {}
    output: Json = None
    view: View = View()

    def encode(self) -> bytes:
        data = _encode(self)
        return _encode(secrets.hide(msgspec.json.decode(data))) if secrets.armed() and secrets.spotted(data) else data


KEPT_MAX = 32
_kept: dict[tuple[str, ...], Prompt] = {}  # a cache: whoever finds nothing reads the path. No lock: each step is one act of the interpreter


class Prompt:
    """The turns of one agent in one session, caught up with it before each ask."""

    def __init__(self, setup: Setup, actor: str, run: str | None, root: Digest | None = None) -> None:
        self.setup, self._actor, self._run = setup, actor, run
        self._root = root or digest(PROMPT_TAG, setup.encode())
        self._key: tuple[str, ...] | None = None
        self._clear(None)

    @classmethod
    def of(cls, setup: Setup, actor: str, run: str | None, session: Session) -> Prompt:
        """The prompt of this agent in this session: as it was when it last asked, or a new one. `put_back` it when done."""
        root = digest(PROMPT_TAG, setup.encode())
        key = (session.store, session.id, actor, root)
        kept = _kept.pop(key, None)
        if kept is None or kept._place > session.place:
            kept = cls(setup, actor, run, root)
        elif kept._run != run:
            kept._run, kept.outcomes = run, []
        kept._key = key
        return kept

    def put_back(self) -> None:
        """Whoever asks next in this session begins where this one ended."""
        if self._key is not None:
            _kept[self._key] = self
            for oldest in list(_kept)[:-KEPT_MAX] if len(_kept) > KEPT_MAX else ():
                _kept.pop(oldest, None)

    def _clear(self, session: Session | None) -> None:
        self._log: LogId | None = session.id if session else None
        self._place = 0
        self._turns: list[Turn] = []
        self._messages: list[int] = []  # which of them are somebody's words
        self._frozen = 0  # turns that a model has been shown
        self._digest = self._root
        self._slots: dict[str, tuple[int, int]] = {}  # an own call: the turn of its result and which one
        self._calls: dict[str, tuple[str, Json, int]] = {}  # a call of somebody else: its tool, its arguments, how much of it is shown
        self.outcomes: list[str] = []  # replies and failures of its own in this run
        self.causes: tuple[Digest, ...] = ()  # what the next ask answers

    def catch_up(self, session: Session, known: Callable[[LogId, int, int], list[Event] | None] | None = None) -> None:
        """Take in what the session has that the prompt has not. `known` are events somebody still has at hand."""
        store = store_at(session.store)
        get_blob = store.get_blob
        if session.id == self._log and session.place >= self._place:
            news = known(session.id, self._place + 1, session.place) if known is not None and self._place else None
            if news is None:
                news = list(store.read(session.id, self._place + 1, session.place, kinds=_KINDS))
            if not any(event.kind in _ANEW for event in news):
                for event in news:
                    self._take(event, None, get_blob)
                self._place = session.place
                return
        self._clear(session)
        own = session.id if self.setup.view.what == "branch" else None
        for stretch, event in session.walk(_KINDS):
            if own is None or event.log == own:
                self._take(event, stretch, get_blob)
        self._place = session.place

    def take(self, events: Sequence[Event], get_blob: Callable[[Digest], bytes]) -> None:
        """Take in what comes right after, and is about to be written."""
        for event in events:
            if event.kind in _KINDS:
                self._take(event, None, get_blob)
            self._place = event.seq

    def forget(self) -> None:
        """Begin anew: what was taken in turned out to be otherwise."""
        self._clear(None)

    def ask(self) -> tuple[Digest, Sequence[Turn]]:
        """The digest and the turns to ask with; from now on those turns are as they are."""
        shown = self._shown(self._turns)
        if self.setup.view.what in ("last", "facts"):
            shown = _last(shown, self.setup.view.turns) if self.setup.view.what == "last" else self._knowing(shown)
            found = self._root
            for turn in shown:
                found = _link(found, turn)
        else:
            for turn in self._turns[self._frozen :]:
                self._digest = _link(self._digest, turn)
            found = self._digest
            if len(shown) > len(self._turns):
                found = _link(found, shown[-1])
        self._frozen = len(self._turns)
        return found, shown

    def _knowing(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """Without what people said before the last time they said something."""
        gone = set(self._messages[:-1])
        return [turn for index, turn in enumerate(turns) if index not in gone]

    def _shown(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        if not turns or isinstance(turns[-1], Answered):
            return [*turns, _said(GO_ON)]
        return tuple(turns)

    # ── events to turns ──────────────────────────────────────────────────────────────────────

    def _take(self, event: Event, stretch: Stretch | None, get_blob: Callable[[Digest], bytes]) -> None:
        branch = stretch.branch if stretch else None
        kind, own = event.kind, event.actor == self._actor
        if own and kind in ("ModelReplied", "ModelFailed") and event.header.run == self._run:
            body = event.body
            self.outcomes.append("" if not isinstance(body, k.ModelFailed) else told_failure(body.failure.kind, body.failure.message))
        if kind not in _HANDLERS or not self._wanted(event, own):
            return
        before = len(self._turns)
        _HANDLERS[kind](self, event, event.body, own, branch, get_blob)
        if kind == "MessageSaid" and len(self._turns) > before:
            self._messages.append(len(self._turns) - 1)

    def _wanted(self, event: Event, own: bool) -> bool:
        view = self.setup.view
        if view.what == "facts":
            return own or event.kind in _KNOWLEDGE or event.kind == "MessageSaid"
        if view.what == "calls":
            who = event.actor.partition(":")
            outcome = event.header.call is not None and (event.header.call in self._calls or event.header.call in self._slots)
            return own or outcome or who[0] == "human" or any(name in (who[2], *who[2].split("/")) for name in view.names)
        return True

    def said(self, event: Event, body: k.MessageSaid, own: bool, branch: str | None, get_blob: Callable[[Digest], bytes]) -> None:
        if body.aside and not own:
            return
        parts = unpack(body.parts, get_blob)
        if own and body.role == "assistant":
            return self._answer(event, Answered(_verbatim(parts)))
        who = body.name or ("" if body.role == "user" else body.role if body.role == "system" else speaker(event.actor))
        self._say(event, _from("/".join(filter(None, (branch, who))), parts))

    def replied(self, event: Event, body: k.ModelReplied, own: bool, branch: str | None, get_blob: Callable[[Digest], bytes]) -> None:
        if body.aside and not own:
            return
        parts = unpack(body.parts, get_blob)
        if own:
            return self._answer(
                event, Answered(_verbatim(parts), tuple([Call(call.call, call.tool, call.arguments) for call in body.calls]))
            )
        name = "/".join(dict.fromkeys(filter(None, (branch, speaker(event.actor)))))
        words = tuple([part for part in parts if not isinstance(part, k.Reasoning)])
        asked = [k.Text(f"(asked for {call.tool} {_json(call.arguments, ASIDE_MAX)})") for call in body.calls]
        if words or asked:
            self._say(event, _from(name, (*words, *asked)))

    def requested(self, event: Event, body: k.ToolRequested, own: bool, branch: str | None, get_blob: Callable[[Digest], bytes]) -> None:
        call = event.header.call
        if call is not None and call not in self._slots:
            # What the program fetched it fetched for the agent to read; what others had of their tools is theirs.
            self._calls[call] = body.tool, body.arguments, ASIDE_MAX if event.actor.startswith("agent:") else SHOWN_MAX

    def settled(self, event: Event, body: Any, own: bool, branch: str | None, get_blob: Callable[[Digest], bytes]) -> None:
        call = event.header.call or ""
        parts, failed = _outcome(body, get_blob)
        slot = self._slots.get(call)
        if slot is not None and slot[0] >= self._frozen:
            self._fill(slot, call, parts, failed)
            self.causes = (*self.causes, event.id)
        elif call in self._calls or slot is not None:
            tool, arguments, limit = self._calls.get(call, ("a tool", None, ASIDE_MAX))
            how = "failed" if failed else "returned"
            self._say(event, _from(branch or "", (k.Text(f"({tool} {_json(arguments, ASIDE_MAX)} {how})"), *bounded(parts, limit))))

    def known(self, event: Event, body: Any, own: bool, branch: str | None, get_blob: Callable[[Digest], bytes]) -> None:
        self._say(event, _from(branch or "", (k.Text(_knowledge(body)),)))

    def compacted(self, event: Event, body: k.ContextCompacted, own: bool, branch: str | None, get_blob: Callable[[Digest], bytes]) -> None:
        parts = (k.Text("(what went before, in short)"), *unpack(body.summary, get_blob))
        if self.setup.view.what == "compacted":
            self._turns, self._messages, self._slots, self._frozen, self._digest = [], [], {}, 0, self._root
        self._say(event, parts)

    # ── turns ────────────────────────────────────────────────────────────────────────────────

    def _say(self, event: Event, parts: Parts) -> None:
        self._turns.append(Said(parts))
        self.causes = (*self.causes, event.id) if not self._turns[-2:-1] or isinstance(self._turns[-2], Said) else (event.id,)

    def _answer(self, event: Event, turn: Answered) -> None:
        if self._turns and isinstance(self._turns[-1], Answered):
            self._turns.append(_said(GO_ON))
        self._turns.append(turn)
        self.causes = ()
        if turn.calls:
            at = len(self._turns)
            # A branch leaves open calls behind; in the log where they were made, what is open may have happened.
            unsettled = _UNKNOWN if event.log == self._log else _LEFT
            self._turns.append(Returned(tuple([Result(call.id, call.tool, unsettled, True) for call in turn.calls])))
            self._slots.update({call.id: (at, index) for index, call in enumerate(turn.calls)})

    def _fill(self, slot: tuple[int, int], call: str, parts: Parts, failed: bool) -> None:
        turn = self._turns[slot[0]]
        assert isinstance(turn, Returned)
        results = list(turn.results)
        results[slot[1]] = Result(call, results[slot[1]].tool, bounded(parts, SHOWN_MAX), failed)
        self._turns[slot[0]] = Returned(tuple(results))


_HANDLERS: dict[str, Callable[..., None]] = {
    kind.__name__: handler
    for kinds, handler in (
        ((k.MessageSaid,), Prompt.said),
        ((k.ModelReplied,), Prompt.replied),
        ((k.ToolRequested,), Prompt.requested),
        ((k.ToolReturned, k.ToolFailed, k.ToolUnknown, k.ToolResolved), Prompt.settled),
        ((k.FactRecorded, k.FactRetracted, k.PendingAdded, k.PendingSettled, k.ValidationRecorded), Prompt.known),
        ((k.ContextCompacted,), Prompt.compacted),
    )
    for kind in kinds
}

_LEFT: Parts = (k.Text("(not run in this branch)"),)
_UNKNOWN: Parts = (k.Text("(its outcome is not known: it may have happened)"),)


def told_failure(kind: str, message: str) -> str:
    return f"{kind}: {message}"


def _said(text: str) -> Said:
    return Said((k.Text(text),))


def _link(before: Digest, turn: Turn) -> Digest:
    return digest(PROMPT_TAG, before.encode(), _encode(turn))


def _last(turns: Sequence[Turn], number: int) -> Sequence[Turn]:
    at = max(0, len(turns) - number)
    while at and isinstance(turns[at], Returned):
        at -= 1
    # A conversation does not begin with an answer: some providers refuse that.
    return [_said("(what went before is not shown)"), *turns[at:]] if at and isinstance(turns[at], Answered) else turns[at:]


def _verbatim(parts: Parts) -> Parts:
    """As it was answered; blob references are for the store, not for the one who is asked."""
    return tuple([k.Text(part.text) if isinstance(part, k.Text) and part.blob else part for part in parts])


def _from(who: str, parts: Parts) -> Parts:
    """Somebody's words, with the name of who said them before the first."""
    parts = _verbatim(parts)
    if not who:
        return parts
    if parts and isinstance(parts[0], k.Text):
        return (k.Text(f"[{who}] {parts[0].text}"), *parts[1:])
    return (k.Text(f"[{who}]"), *parts)


def bounded(parts: Parts, limit: int) -> Parts:
    """Texts and data that fit; what is left out is said, with its size."""
    return tuple([_bounded(part, limit) for part in parts]) or (k.Text("(nothing)"),)


def _bounded(part: Any, limit: int) -> Any:
    if isinstance(part, k.Text):
        return k.Text(cut(part.text, limit)) if part.text else k.Text('""')
    if isinstance(part, k.Data):
        text = _encode(part.value).decode()
        return k.Text(cut(text, limit)) if len(text) > limit else k.Data(part.value)
    return part


def cut(text: str, limit: int) -> str:
    """The beginning and the end of a text that is too long to show."""
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    left_out = f"[… {len(text) - head - tail:,} of {len(text):,} characters are not shown here; all are on record …]"
    return f"{text[:head]}\n{left_out}\n{text[-tail:]}"


def _json(value: Json, limit: int) -> str:
    return cut(_encode(value).decode(), limit)


def _outcome(body: Any, get_blob: Callable[[Digest], bytes]) -> tuple[Parts, bool]:
    if isinstance(body, k.ToolFailed):
        return (k.Text(f"{body.failure.kind}: {body.failure.message}"),), True
    if isinstance(body, k.ToolUnknown):
        return (k.Text(f"its outcome is not known{': ' + body.why if body.why else ''}"),), True
    return unpack(body.parts, get_blob), isinstance(body, k.ToolResolved) and body.verdict != "happened"


def _knowledge(body: Any) -> str:
    if isinstance(body, k.FactRecorded):
        return f"({body.kind} {body.key}: {body.value if isinstance(body.value, str) else _json(body.value, ASIDE_MAX)})"
    if isinstance(body, k.FactRetracted):
        return f"({body.key} no longer holds{': ' + body.reason if body.reason else ''})"
    if isinstance(body, k.PendingAdded):
        return f"({'to do' if body.kind == 'step' else body.kind}: {body.what})"
    if isinstance(body, k.PendingSettled):
        return f"(settled {body.key}{': ' + body.outcome if body.outcome else ''})"
    assert isinstance(body, k.ValidationRecorded)
    detail = f": {_json(body.detail, ASIDE_MAX)}" if body.detail is not None else ""
    return f"(verdict {body.name}: {'passed' if body.passed else 'failed'}{detail})"
