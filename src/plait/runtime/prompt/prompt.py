"""The prompt of one agent in one session, caught up with the session before each ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plait.event import Event
from plait.event import kinds as k
from plait.event.kinds import Parts
from plait.ids import Digest, LogId, digest
from plait.model.base import Answered, Returned, Turn
from plait.runtime.process import THIS_PROCESS
from plait.runtime.prompt.chain import PROMPT_TAG, Chain, link_digest
from plait.runtime.prompt.marks import LeftOut, Mark, leaves_session
from plait.runtime.prompt.parts import GO_ON, blob_reader, said_text
from plait.runtime.prompt.setup import Setup, encode_json
from plait.runtime.prompt.turns import TurnList
from plait.session import Session
from plait.session.ports import store_at
from plait.session.refusals import withheld_messages
from plait.session.value import walk_path

KEPT_MAX = 32  # prompts that are kept for the next ask

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
        k.MemoryRecalled,
        k.RecallFailed,
        k.BudgetRefused,
        k.RunFailed,
        k.RunResumed,
        k.ContextCompacted,
        k.Rewound,
        k.Merged,
        k.BodyRedacted,
    )
)
# after one of these the past is another
_CHANGES_PAST = frozenset(
    kind.__name__ for kind in (k.Rewound, k.Merged, k.BodyRedacted, k.RunFailed, k.RunResumed)
)


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
        self.setup, self._actor, self._explain = setup, actor, explain
        self._runs: tuple[str | None, ...] = (run,)
        self._chain = Chain(setup.encode() if encoded is None else encoded)
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
        """Return the prompt of this agent in this session: as it was when it last asked, or a new
        one. `put_back` it when done.

        `before` are the runs that this one was branched off: the agent's answers there are its
        answers here.
        """
        encoded = setup.encode()
        key = (session.store, session.id, actor, digest(PROMPT_TAG, encoded))
        kept: Prompt | None = THIS_PROCESS.prompts.pop(key, None)
        if kept is None or kept._seq > session.seq:
            kept = cls(setup, actor, run, encoded)
        kept._runs, kept._key = (*before, run), key
        return kept

    def put_back(self) -> None:
        """Keep the prompt, so that the next ask of this agent in this session begins with it."""
        if self._key is not None:
            kept = THIS_PROCESS.prompts
            kept[self._key] = self
            for oldest in list(kept)[:-KEPT_MAX] if len(kept) > KEPT_MAX else ():
                kept.pop(oldest, None)

    def _clear(self, log: LogId | None) -> None:
        self._log, self._seq = log, 0  # the last event that was taken in
        self._chain.drop_from(0)
        self._turns = TurnList(
            log, self._actor, self.setup.view, self._chain, explain=self._explain
        )

    @property
    def left_out(self) -> list[LeftOut]:
        """The events that are not shown. Empty without `explain`."""
        return self._turns.left_out

    @property
    def causes(self) -> tuple[Digest, ...]:
        """The events that the next ask answers."""
        return self._turns.causes

    @property
    def heard(self) -> Parts:
        """The last message of another that the agent sees."""
        return self._turns.heard

    @property
    def budget_note(self) -> k.Place | None:
        """The last note that the budget is nearly used up, if the agent sees one."""
        mark = self._turns.budget_note
        return None if mark is None else k.Place(mark.log, mark.seq, mark.id)

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """Replies and failures of its own in this run, on the path: the model asked, and "" or the
        failure.
        """
        outcomes = self._turns.outcomes
        return [outcome for run in self._runs for outcome in outcomes.get(run, ())]

    @property
    def outcomes_here(self) -> list[tuple[str, str]]:
        """Those of this very run, without the ones it was branched off."""
        outcomes = self._turns.outcomes
        return [outcome for run in self._runs[-1:] for outcome in outcomes.get(run, ())]

    def catch_up(
        self, session: Session, known: Callable[[LogId, int, int], list[Event] | None] | None = None
    ) -> None:
        """Take in the events of the session that the prompt has not.

        `known` returns events that are still in memory, so that the store need not be read.
        """
        get_blob = blob_reader(session)
        if session.id == self._log and session.seq >= self._seq:
            news = (
                known(session.id, self._seq + 1, session.seq)
                if known is not None and self._seq
                else None
            )
            if news is None:
                news = list(
                    store_at(session.store).read(
                        session.id, self._seq + 1, session.seq, kinds=_KINDS
                    )
                )
            if _CHANGES_PAST.isdisjoint([event.kind for event in news]):
                for event in news:
                    self._turns.take(event, None, get_blob)
                self._seq = session.seq
                return
        self._clear(session.id)
        self._turns.withheld = withheld_messages(session)
        own = session.id if self.setup.view.what == "branch" else None
        for span, event in walk_path(session, _KINDS):
            if own is None or event.log == own:
                self._turns.take(event, span, get_blob)
            else:
                why = "it happened before this branch was forked, or in another one"
                self._turns.pass_over(event, span, why)
        self._seq = session.seq

    def take(self, events: Sequence[Event], get_blob: Callable[[Digest], bytes]) -> None:
        """Take in the events that come right after, and are about to be written."""
        for event in events:
            if event.kind in _KINDS:
                self._turns.take(event, None, get_blob)
            self._seq = event.seq

    def forget(self) -> None:
        """Begin anew: events that were taken in were not written."""
        self._clear(None)

    def ask(self) -> tuple[Digest, Sequence[Turn]]:
        """Return the digest and the turns to ask with.

        They never change from the moment the ask is on record.
        """
        turns, marks = self._turns_in_view()
        is_whole = marks is self._turns.marks
        shown = (
            turns if turns and not isinstance(turns[-1], Answered) else [*turns, said_text(GO_ON)]
        )
        found = self._chain.end(self._turns.items)[0] if is_whole else self._chain.root
        for turn in shown[len(turns) :] if is_whole else shown:
            found = link_digest(found, encode_json(turn))
        return found, tuple(shown)

    @property
    def tokens(self) -> int:
        """About how many tokens it has: a rule of thumb, four bytes each."""
        turns, marks = self._turns_in_view()
        return (
            self._chain.end(turns)[1]
            if marks is self._turns.marks
            else self._chain.base + sum(len(encode_json(turn)) for turn in turns)
        ) // 4

    def tokens_leaving(self, last: int) -> int:
        """About how many tokens a compaction up to this place would take away."""
        sizes = self._chain.sizes(self._turns.items)
        is_leaving = leaves_session(self._turns.epoch, 1, last)
        return (
            sum(
                sizes[at + 1] - sizes[at]
                for at, mark in enumerate(self._turns.marks)
                if mark.about is None and is_leaving(mark)
            )
            // 4
        )

    def _turns_in_view(self) -> tuple[list[Turn], list[Mark]]:
        """The turns that the view shows, with their marks.

        Views that leave out events, not turns, get the very lists of all turns, whose chain counts.
        """
        view, turns, marks = self.setup.view, self._turns.items, self._turns.marks
        if view.what == "last":
            at = _start_of_last(turns, marks, view.turns)
            for mark in marks[:at]:
                self._turns.leave_out(mark, f"it is before the last {view.turns} turns")
            return _alternating_turns(turns[at:], bool(at)), marks[at:]
        if view.what == "facts":
            messages = [at for at, mark in enumerate(marks) if mark.kind == "MessageSaid"]
            gone = set(messages[:-1])
            for at in gone:
                self._turns.leave_out(
                    marks[at], "the view shows what is known, and the last message"
                )
            kept = [at for at in range(len(turns)) if at not in gone]
            return _alternating_turns([turns[at] for at in kept], bool(gone)), [
                marks[at] for at in kept
            ]
        return turns, marks


# what an agent recalls is shown with the turn that it recalls it for
_WITH_TURN_BEFORE = frozenset({k.MemoryRecalled.__name__, k.RecallFailed.__name__})


def _start_of_last(turns: Sequence[Turn], marks: Sequence[Mark], number: int) -> int:
    """Return the index at which the last so many turns begin."""
    # "Go on." is one of them
    number -= 1 if not turns or isinstance(turns[-1], Answered) else 0
    at = len(turns)
    while at > 0 and number > 0:
        at -= 1
        number -= marks[at].kind not in _WITH_TURN_BEFORE
    while 0 < at < len(turns) and isinstance(turns[at], Returned):
        at -= 1
    return at


def _alternating_turns(turns: Sequence[Turn], cut_off: bool) -> list[Turn]:
    """Put words before an answer that has none: some providers refuse a conversation that begins
    with an answer, or in which one answer follows another.
    """
    found: list[Turn] = []
    for turn in turns:
        if isinstance(turn, Answered) and (not found or isinstance(found[-1], Answered)):
            is_cut = cut_off and not found
            found.append(said_text("(what went before is not shown)" if is_cut else GO_ON))
        found.append(turn)
    return found
