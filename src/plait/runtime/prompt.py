"""The conversation as one agent sees it, grown event by event.

A prompt is a chain: a setup (instruction, tools, view, parameters), then turns in the order of the
path. What was rendered once is never rendered otherwise: a turn depends on its own events alone, so
the bytes before it stay the same as the session grows and in every fork, and providers' prompt
caches hit. The digest of a prompt is that of the prompt before it and the turns since.

An agent sees its own replies as its own, with their reasoning verbatim; everybody else's words are
data, with the name of who said them. Results are bounded here and whole in the log.

Everything here follows from the log: what a model has been shown is what stood before its
`ModelAsked`, so that a prompt built anew at any place is, byte for byte, the one that was sent from
there. A compaction takes turns away and puts a summary in their place; what is known (facts,
decisions, findings, open work, verdicts) never leaves with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

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
from plait.session.value import walk_path
from plait.session.views import speaker

PROMPT_TAG = b"plait/prompt/1"
SHOWN_MAX = 16_000  # characters of one result that a model is shown; all of it is in the log
ASIDE_MAX = 2_000  # of somebody else's
GO_ON = "Go on."  # said where a model would otherwise have to answer itself

_encode = msgspec.json.Encoder(order="deterministic").encode
_KINDS = frozenset(
    kind.__name__
    for kind in (
        k.SessionOpened,
        k.MessageSaid,
        k.ModelAsked,
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
# after one of these the past is another
_ANEW = frozenset({k.Rewound.__name__, k.Merged.__name__, k.BodyRedacted.__name__})
_KNOWLEDGE = frozenset(
    kind.__name__
    for kind in (
        k.FactRecorded,
        k.FactRetracted,
        k.PendingAdded,
        k.PendingSettled,
        k.ValidationRecorded,
        k.ContextCompacted,
    )
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
    """What an agent asks with, besides the story.

    Recorded once per call, so that a prompt can be shown exactly as it was.
    """

    instruction: str
    tools: tuple[Spec, ...]
    parameters: dict[str, Json] = {}
    output: Json = None
    view: View = View()

    def encode(self) -> bytes:
        data = _encode(self)
        return (
            _encode(secrets.hide(msgspec.json.decode(data)))
            if secrets.armed() and secrets.spotted(data)
            else data
        )


class Mark(NamedTuple):
    """Where a turn comes from."""

    # on the session's own path: which numbering of places, and the place; what a merge brought
    # stands at its place
    at: tuple[int, int]
    via: int  # that merge; 0: none
    log: LogId
    seq: int  # of the event that made it
    until: int  # the last place it stands for: its own, unless it is a summary
    kind: str
    # what it is a word on, and which: ("fact", "db"); None: nothing that has to stay
    about: tuple[str, str] | None = None
    ends: bool = False  # whether that is over with it


class LeftOut(NamedTuple):
    """An event that a prompt does not show, and why."""

    log: LogId
    seq: int
    kind: str
    why: str


KEPT_MAX = 32
# a cache: whoever finds nothing reads the path. No lock: each step is one act of the interpreter
_kept: dict[tuple[str, ...], Prompt] = {}


class Prompt:
    """The turns of one agent in one session, caught up with it before each ask."""

    def __init__(
        self,
        setup: Setup,
        actor: str,
        run: str | None,
        encoded: bytes | None = None,
        *,
        explain: bool = False,
    ) -> None:
        encoded = setup.encode() if encoded is None else encoded
        self.setup, self._actor, self._explain = setup, actor, explain
        self._runs: tuple[str | None, ...] = (run,)
        self._root, self._base = digest(PROMPT_TAG, encoded), len(encoded)
        self._key: tuple[str, ...] | None = None
        self._clear(None)

    @classmethod
    def of(
        cls,
        setup: Setup,
        actor: str,
        run: str | None,
        session: Session,
        before: tuple[str, ...] = (),
    ) -> Prompt:
        """The prompt of this agent in this session: as it was when it last asked, or a new one.
        `put_back` it when done.

        `before` are the runs that this one was branched off: what it answered there, it has
        answered.
        """
        encoded = setup.encode()
        key = (session.store, session.id, actor, digest(PROMPT_TAG, encoded))
        kept = _kept.pop(key, None)
        if kept is None or kept._place > session.seq:
            kept = cls(setup, actor, run, encoded)
        kept._runs, kept._key = (*before, run), key
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
        self._marks: list[Mark] = []  # where each of them comes from
        # after each turn: the digest and the size so far, as far as anybody asked
        self._chain: list[tuple[Digest, int]] = []
        self._frozen = 0  # turns that a model has been shown
        # an own call: the turn of its result and which one
        self._slots: dict[str, tuple[int, int]] = {}
        # an own call that a person allowed with other arguments: who, and which
        self._corrected: dict[str, tuple[str, Json]] = {}
        # every call: its tool, its arguments, how much of its outcome is shown
        self._calls: dict[str, tuple[str, Json, int]] = {}
        self._outcomes: dict[str | None, list[str]] = {}
        # a session that was detached has a path in another numbering of places before its own
        self._epoch = 0
        self._said_by = Mark((0, 0), 0, LogId(""), 0, 0, "")  # of the event that is being taken in
        self.left_out: list[LeftOut] = []  # only with `explain`
        self.causes: tuple[Digest, ...] = ()  # what the next ask answers

    @property
    def outcomes(self) -> list[str]:
        """Replies and failures of its own in this run, on the path."""
        return [outcome for run in self._runs for outcome in self._outcomes.get(run, ())]

    @property
    def outcomes_here(self) -> list[str]:
        """Those of this very run, without the ones it was branched off."""
        return [outcome for run in self._runs[-1:] for outcome in self._outcomes.get(run, ())]

    def catch_up(
        self, session: Session, known: Callable[[LogId, int, int], list[Event] | None] | None = None
    ) -> None:
        """Take in what the session has that the prompt has not.

        `known` are events somebody still has at hand.
        """
        get_blob = blobs_of(session)
        if session.id == self._log and session.seq >= self._place:
            news = (
                known(session.id, self._place + 1, session.seq)
                if known is not None and self._place
                else None
            )
            if news is None:
                news = list(
                    store_at(session.store).read(
                        session.id, self._place + 1, session.seq, kinds=_KINDS
                    )
                )
            if _ANEW.isdisjoint([event.kind for event in news]):
                for event in news:
                    self._take(event, None, get_blob)
                self._place = session.seq
                return
        self._clear(session)
        own = session.id if self.setup.view.what == "branch" else None
        for stretch, event in walk_path(session, _KINDS):
            if own is None or event.log == own:
                self._take(event, stretch, get_blob)
            elif event.kind in _HANDLERS:
                self._leave_out(
                    _mark(event, stretch, 0),
                    "it happened before this branch was forked, or in another one",
                )
        self._place = session.seq

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
        """The digest and the turns to ask with.

        They are as they are from the moment the ask is on record.
        """
        turns, marks = self._viewed()
        shown = turns if turns and not isinstance(turns[-1], Answered) else [*turns, _said(GO_ON)]
        found = self._linked()[0] if marks is self._marks else self._root
        for turn in shown if marks is not self._marks else shown[len(turns) :]:
            found = _link(found, _encode(turn))
        return found, tuple(shown)

    @property
    def tokens(self) -> int:
        """About how many tokens it has: a rule of thumb, four bytes each."""
        turns, marks = self._viewed()
        return (
            self._linked()[1]
            if marks is self._marks
            else self._base + sum(len(_encode(turn)) for turn in turns)
        ) // 4

    def tokens_leaving(self, last: int) -> int:
        """How many of these a compaction up to this place would take away."""
        self._linked()
        ends = [self._base, *(size for _, size in self._chain)]
        leaving = _covered(self._epoch, 1, last)
        return (
            sum(
                ends[at + 1] - ends[at]
                for at, mark in enumerate(self._marks)
                if mark.about is None and leaving(mark)
            )
            // 4
        )

    def _linked(self) -> tuple[Digest, int]:
        """The digest and the size of all turns; those that were linked before are not looked at
        again.
        """
        found, size = self._chain[-1] if self._chain else (self._root, self._base)
        for turn in self._turns[len(self._chain) :]:
            data = _encode(turn)
            found, size = _link(found, data), size + len(data)
            self._chain.append((found, size))
        return found, size

    def _viewed(self) -> tuple[list[Turn], list[Mark]]:
        """The turns that the view shows; the very lists of all, if it is not one of those that show
        the end of them only.
        """
        if self.setup.view.what == "last":
            at = _last(self._turns, self.setup.view.turns)
            for mark in self._marks[:at]:
                self._leave_out(mark, f"it is before the last {self.setup.view.turns} turns")
            return _alternating(self._turns[at:], bool(at)), self._marks[at:]
        if self.setup.view.what == "facts":
            last = max(
                (at for at, mark in enumerate(self._marks) if mark.kind == "MessageSaid"),
                default=-1,
            )
            gone = {
                at
                for at, mark in enumerate(self._marks)
                if mark.kind == "MessageSaid" and at != last
            }
            for at in gone:
                self._leave_out(
                    self._marks[at], "the view shows what is known, and the last message"
                )
            kept = [at for at in range(len(self._turns)) if at not in gone]
            return _alternating([self._turns[at] for at in kept], bool(gone)), [
                self._marks[at] for at in kept
            ]
        return self._turns, self._marks

    def _leave_out(self, mark: Mark, why: str) -> None:
        if self._explain:
            told = LeftOut(mark.log, mark.seq, mark.kind, why)
            if told not in self.left_out[-1:]:
                self.left_out.append(told)

    # ── events to turns ──────────────────────────────────────────────────────────────────────

    def _take(
        self, event: Event, stretch: Stretch | None, get_blob: Callable[[Digest], bytes]
    ) -> None:
        branch = stretch.branch if stretch else None
        kind, own, body = event.kind, event.actor == self._actor, event.body
        if kind == "SessionOpened" and not (stretch and stretch.via):
            self._epoch += 1
        # a further attempt shows what the first one showed
        elif own and isinstance(body, k.ModelAsked) and body.attempt == 1:
            self._frozen = len(self._turns)
        elif own and isinstance(body, (k.ModelReplied, k.ModelFailed)):
            failure = body.failure if isinstance(body, k.ModelFailed) else None
            self._outcomes.setdefault(event.header.run, []).append(
                told_failure(failure.kind, failure.message) if failure else ""
            )
        if kind not in _HANDLERS:
            return
        self._said_by = _mark(event, stretch, self._epoch)
        if self._wanted(event, own):
            _HANDLERS[kind](self, event, body, own, branch, get_blob)
        else:
            self._leave_out(
                self._said_by, f"the view shows {_VIEWED.get(self.setup.view.what, 'less')}"
            )

    def _wanted(self, event: Event, own: bool) -> bool:
        view = self.setup.view
        if view.what == "facts":
            return (
                own
                or event.kind in _KNOWLEDGE
                or event.kind == "MessageSaid"
                or event.header.call in self._slots
            )
        if view.what == "calls":
            who = event.actor.partition(":")
            outcome = event.header.call is not None and (
                event.header.call in self._calls or event.header.call in self._slots
            )
            return (
                own
                or outcome
                or who[0] == "human"
                or any(name in (who[2], *who[2].split("/")) for name in view.names)
            )
        return True

    def said(
        self,
        event: Event,
        body: k.MessageSaid,
        own: bool,
        branch: str | None,
        get_blob: Callable[[Digest], bytes],
    ) -> None:
        if body.aside and not own:
            return self._leave_out(self._said_by, "it was said aside")
        parts = unpack(body.parts, get_blob)
        if own and body.role == "assistant":
            return self._answer(event, Answered(_verbatim(parts)))
        who = body.name or (
            ""
            if body.role == "user"
            else body.role
            if body.role == "system"
            else speaker(event.actor)
        )
        self._say(event, _from("/".join(filter(None, (branch, who))), parts))

    def replied(
        self,
        event: Event,
        body: k.ModelReplied,
        own: bool,
        branch: str | None,
        get_blob: Callable[[Digest], bytes],
    ) -> None:
        if body.aside and not own:
            return self._leave_out(self._said_by, "it was said aside")
        parts = unpack(body.parts, get_blob)
        if own:
            return self._answer(
                event,
                Answered(
                    _verbatim(parts),
                    tuple([Call(call.call, call.tool, call.arguments) for call in body.calls]),
                ),
            )
        name = "/".join(dict.fromkeys(filter(None, (branch, speaker(event.actor)))))
        words = tuple([part for part in parts if not isinstance(part, k.Reasoning)])
        asked = [
            k.Text(f"(asked for {call.tool} {_json(call.arguments, ASIDE_MAX)})")
            for call in body.calls
        ]
        if words or asked:
            self._say(event, _from(name, (*words, *asked)))

    def requested(
        self,
        event: Event,
        body: k.ToolRequested,
        own: bool,
        branch: str | None,
        get_blob: Callable[[Digest], bytes],
    ) -> None:
        call = event.header.call
        if call is None:
            return
        before = self._calls.get(call)
        if before is not None:  # made again, perhaps as a person corrected it
            self._calls[call] = body.tool, body.arguments, before[2]
            if body.arguments != before[1]:
                self._corrected[call] = event.actor, body.arguments
            return
        # What the program fetched it fetched for the agent to read; what others had of their tools
        # is theirs.
        others = event.actor.startswith("agent:") and not own
        self._calls[call] = body.tool, body.arguments, ASIDE_MAX if others else SHOWN_MAX

    def settled(
        self,
        event: Event,
        body: Any,
        own: bool,
        branch: str | None,
        get_blob: Callable[[Digest], bytes],
    ) -> None:
        call = event.header.call or ""
        parts, failed = _outcome(body, get_blob)
        slot = self._slots.get(call)
        if (corrected := self._corrected.get(call)) is not None and slot is not None:
            parts = (
                k.Text(
                    CORRECTED.format(who=corrected[0], arguments=_json(corrected[1], ASIDE_MAX))
                ),
                *parts,
            )
        if slot is not None and slot[0] >= self._frozen:
            self._fill(slot, call, parts, failed)
            self.causes = (*self.causes, event.id)
        elif call in self._calls or slot is not None:
            tool, arguments, limit = self._calls.get(call, ("a tool", None, ASIDE_MAX))
            how = "failed" if failed else "returned"
            self._say(
                event,
                _from(
                    branch or "",
                    (
                        k.Text(f"({tool} {_json(arguments, ASIDE_MAX)} {how})"),
                        *bounded(parts, limit),
                    ),
                ),
            )

    def known(
        self,
        event: Event,
        body: Any,
        own: bool,
        branch: str | None,
        get_blob: Callable[[Digest], bytes],
    ) -> None:
        about, ends = _about(body, branch)
        self._said_by = self._said_by._replace(about=about, ends=ends)
        self._say(event, _from(branch or "", (k.Text(_knowledge(body)),)))

    def compacted(
        self,
        event: Event,
        body: k.ContextCompacted,
        own: bool,
        branch: str | None,
        get_blob: Callable[[Digest], bytes],
    ) -> None:
        summary = Said(_from(branch or "", (k.Text(SUMMARY), *unpack(body.summary, get_blob))))
        mark, (first, last) = self._said_by, body.left
        mark = mark._replace(until=last, at=mark.at if mark.via else (self._epoch, last))
        if self.setup.view.what == "compacted" and not mark.via:
            for gone in self._marks:
                self._leave_out(gone, f"it is before the compaction at {event.seq}")
            self._set([(summary, mark)])
        else:
            covered = (
                _covered_there(mark, first, last)
                if mark.via
                else _covered(self._epoch, first, last)
            )
            self._compact(covered, summary, mark, f"it left with the compaction at {event.seq}")
        self.causes = (*self.causes, event.id)

    def _compact(
        self, covered: Callable[[Mark], bool], summary: Said, mark: Mark, why: str
    ) -> None:
        """Put the summary in the place of what it covers, and after it what is known from there."""
        every = list(zip(self._turns, self._marks, strict=True))
        gone = [at for at, (_, each) in enumerate(every) if covered(each)]
        first = gone[0] if gone else len(every) if mark.via else 0
        known = _still_known([every[at] for at in gone])
        staying = {each for _, each in known}
        for at in gone:
            if every[at][1] not in staying:
                self._leave_out(every[at][1], why)
        hidden = set(gone)
        self._set(
            [
                *every[:first],
                (summary, mark),
                *known,
                *(every[at] for at in range(first, len(every)) if at not in hidden),
            ]
        )

    def _set(self, every: Sequence[tuple[Turn, Mark]]) -> None:
        """These turns and no others. Nobody was shown them so: the chain begins anew."""
        self._turns, self._marks = [turn for turn, _ in every], [mark for _, mark in every]
        self._chain, self._frozen = [], 0
        self._slots = {
            result.call: (at, number)
            for at, turn in enumerate(self._turns)
            if isinstance(turn, Returned)
            for number, result in enumerate(turn.results)
        }

    # ── turns ────────────────────────────────────────────────────────────────────────────────

    def _add(self, turn: Turn) -> None:
        self._turns.append(turn)
        self._marks.append(self._said_by)

    def _say(self, event: Event, parts: Parts) -> None:
        self._add(Said(parts))
        self.causes = (
            (*self.causes, event.id)
            if not self._turns[-2:-1] or isinstance(self._turns[-2], Said)
            else (event.id,)
        )

    def _answer(self, event: Event, turn: Answered) -> None:
        # it was told so when it was asked
        if not self._turns or isinstance(self._turns[-1], Answered):
            self._add(_said(GO_ON))
        self._add(turn)
        self.causes = ()
        if turn.calls:
            at = len(self._turns)
            # A branch leaves open calls behind; in the log where they were made, what is open may
            # have happened.
            unsettled = _UNKNOWN if event.log == self._log else _LEFT
            self._add(
                Returned(
                    tuple([Result(call.id, call.tool, unsettled, True) for call in turn.calls])
                )
            )
            self._slots.update({call.id: (at, index) for index, call in enumerate(turn.calls)})

    def _fill(self, slot: tuple[int, int], call: str, parts: Parts, failed: bool) -> None:
        turn = self._turns[slot[0]]
        assert isinstance(turn, Returned)
        results = list(turn.results)
        results[slot[1]] = Result(call, results[slot[1]].tool, bounded(parts, SHOWN_MAX), failed)
        self._turns[slot[0]] = Returned(tuple(results))
        del self._chain[slot[0] :]


_HANDLERS: dict[str, Callable[..., None]] = {
    kind.__name__: handler
    for kinds, handler in (
        ((k.MessageSaid,), Prompt.said),
        ((k.ModelReplied,), Prompt.replied),
        ((k.ToolRequested,), Prompt.requested),
        ((k.ToolReturned, k.ToolFailed, k.ToolUnknown, k.ToolResolved), Prompt.settled),
        (
            (
                k.FactRecorded,
                k.FactRetracted,
                k.PendingAdded,
                k.PendingSettled,
                k.ValidationRecorded,
            ),
            Prompt.known,
        ),
        ((k.ContextCompacted,), Prompt.compacted),
    )
    for kind in kinds
}

SUMMARY = "(what went before, in short)"
CORRECTED = "({who} corrected the arguments; it was called with {arguments})"
_VIEWED = {
    "facts": "what is known, and the last message",
    "calls": "what some agents said, and people",
}
_LEFT: Parts = (k.Text("(not run in this branch)"),)
_UNKNOWN: Parts = (k.Text("(its outcome is not known: it may have happened)"),)


def blobs_of(session: Session) -> Callable[[Digest], bytes]:
    """How to get a blob; the store is only looked for if somebody needs one."""
    return lambda name: store_at(session.store).get_blob(name)


def told_failure(kind: str, message: str) -> str:
    return f"{kind}: {message}"


def _said(text: str) -> Said:
    return Said((k.Text(text),))


def _link(before: Digest, turn: bytes) -> Digest:
    return digest(PROMPT_TAG, before.encode(), turn)


def _last(turns: Sequence[Turn], number: int) -> int:
    """Where the last so many begin."""
    # what it is told to go on with is one of them
    number -= 1 if not turns or isinstance(turns[-1], Answered) else 0
    at = max(0, len(turns) - number)
    while 0 < at < len(turns) and isinstance(turns[at], Returned):
        at -= 1
    return at


def _alternating(turns: Sequence[Turn], cut_off: bool) -> list[Turn]:
    """A conversation does not begin with an answer, and none follows another: some providers refuse
    that.
    """
    found: list[Turn] = []
    for turn in turns:
        if isinstance(turn, Answered) and (not found or isinstance(found[-1], Answered)):
            found.append(
                _said("(what went before is not shown)") if cut_off and not found else _said(GO_ON)
            )
        found.append(turn)
    return found


def _mark(event: Event, stretch: Stretch | None, epoch: int) -> Mark:
    via = stretch.via if stretch else 0
    return Mark((epoch, via or event.seq), via, event.log, event.seq, event.seq, event.kind)


def _covered(epoch: int, first: int, last: int) -> Callable[[Mark], bool]:
    """What a compaction of the session itself covers: its own path, and with a merge the branches
    it brought.
    """
    low = (epoch, first) if first > 1 else (0, 0)
    return lambda mark: low <= mark.at <= (epoch, last)


def _covered_there(there: Mark, first: int, last: int) -> Callable[[Mark], bool]:
    """What a compaction in a merged branch covers: what that branch brought, and
    nothing of ours.
    """
    return lambda mark: (
        mark.via == there.via and mark.log == there.log and first <= mark.until <= last
    )


def _still_known(turns: Sequence[tuple[Turn, Mark]]) -> list[tuple[Turn, Mark]]:
    """The last word on everything. What is over is left out, if both ends of it are here."""
    found: dict[tuple[str, str], tuple[Turn, Mark]] = {}
    for turn, mark in turns:
        if mark.about is not None:
            before = found.pop(mark.about, None)
            if before is None or not mark.ends:
                found[mark.about] = turn, mark
    return list(found.values())


def _verbatim(parts: Parts) -> Parts:
    """As it was answered; blob references are for the store, not for the one who is asked."""
    return tuple(
        [k.Text(part.text) if isinstance(part, k.Text) and part.blob else part for part in parts]
    )


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
    left_out = (
        f"[… {len(text) - head - tail:,} of {len(text):,} characters are not shown here; all are on"
        " record …]"
    )
    return f"{text[:head]}\n{left_out}\n{text[-tail:]}"


def _json(value: Json, limit: int) -> str:
    return cut(_encode(value).decode(), limit)


def _outcome(body: Any, get_blob: Callable[[Digest], bytes]) -> tuple[Parts, bool]:
    if isinstance(body, k.ToolFailed):
        return (k.Text(f"{body.failure.kind}: {body.failure.message}"),), True
    if isinstance(body, k.ToolUnknown):
        return (k.Text(f"its outcome is not known{': ' + body.why if body.why else ''}"),), True
    return (
        unpack(body.parts, get_blob),
        isinstance(body, k.ToolResolved) and body.verdict != "happened",
    )


def _about(body: Any, branch: str | None) -> tuple[tuple[str, str], bool]:
    """What a word is on, and whether it ends that.

    Branches speak for themselves: who is right is settled where they meet.
    """
    where = f"{branch}/" if branch else ""
    if isinstance(body, (k.FactRecorded, k.FactRetracted)):
        return (f"{where}fact", body.key), isinstance(body, k.FactRetracted)
    if isinstance(body, (k.PendingAdded, k.PendingSettled)):
        return (f"{where}pending", body.key), isinstance(body, k.PendingSettled)
    assert isinstance(body, k.ValidationRecorded)
    return (f"{where}verdict", body.name), False


def _knowledge(body: Any) -> str:
    if isinstance(body, k.FactRecorded):
        said = body.value if isinstance(body.value, str) else _json(body.value, ASIDE_MAX)
        return (
            f"({body.kind} {body.key}: {said}{', because ' + body.reason if body.reason else ''})"
        )
    if isinstance(body, k.FactRetracted):
        return f"({body.key} no longer holds{': ' + body.reason if body.reason else ''})"
    if isinstance(body, k.PendingAdded):
        return f"({'to do' if body.kind == 'step' else body.kind}: {body.what})"
    if isinstance(body, k.PendingSettled):
        return f"(settled {body.key}{': ' + body.outcome if body.outcome else ''})"
    assert isinstance(body, k.ValidationRecorded)
    detail = f": {_json(body.detail, ASIDE_MAX)}" if body.detail is not None else ""
    return f"(verdict {body.name}: {'passed' if body.passed else 'failed'}{detail})"
