"""The turns of one agent on one path: each event of the path adds, fills or takes away some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plait.calls.tool_call import SERVICE
from plait.event import Event, Json
from plait.event import kinds as k
from plait.event.kinds import Parts
from plait.ids import Digest, LogId
from plait.model.base import Answered, AnsweredCall, CallResult, Returned, Said, Turn
from plait.runtime.prompt import View
from plait.runtime.prompt.chain import Chain
from plait.runtime.prompt.marks import (
    LeftOut,
    Mark,
    leaves_branch,
    leaves_session,
    mark_of,
    standing_knowledge,
    subject_of,
)
from plait.runtime.prompt.parts import (
    ASIDE_MAX,
    CORRECTED,
    GO_ON,
    NOT_RUN,
    SHOWN_MAX,
    SUMMARY,
    UNKNOWN,
    attributed_parts,
    bounded_parts,
    failure_text,
    json_text,
    knowledge_text,
    outcome_parts,
    recall_failure_text,
    said_text,
    verbatim_parts,
)
from plait.session.content import unpack
from plait.session.refusals import WITHHELD, RefusedInput, refused_input
from plait.session.state import Span
from plait.session.views import speaker

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
_SHOWN_BY_VIEW = {
    "facts": "what is known, and the last message",
    "calls": "what some agents said, and people",
}


class TurnList:
    """Turns with their marks, and the calls and outcomes needed to take in the next event."""

    def __init__(
        self, log: LogId | None, actor: str, view: View, chain: Chain, *, explain: bool
    ) -> None:
        self._log, self._actor, self._view, self._explain = log, actor, view, explain
        self._chain = chain
        self.items: list[Turn] = []
        self.marks: list[Mark] = []  # of each turn
        self.causes: tuple[Digest, ...] = ()  # the events that the next ask answers
        self.heard: Parts = ()  # the last message that is neither its own nor the runtime's
        # of the agent's own asks, by run: the model's name, and "" or the failure
        self.outcomes: dict[str | None, list[tuple[str, str]]] = {}
        self._model = ""  # the name of the model that the agent asked last
        self.left_out: list[LeftOut] = []  # only with `explain`
        # a session that was detached has a path in another numbering of places before its own
        self.epoch = 0
        self._frozen = 0  # turns that a model has been shown
        # an own call: the turn of its result and which one
        self._slots: dict[str, tuple[int, int]] = {}
        # an own call that a person allowed with other arguments: the person, and the arguments
        self._corrected: dict[str, tuple[str, Json]] = {}
        # every call: its tool, its arguments, how much of its outcome is shown
        self._calls: dict[str, tuple[str, Json, int]] = {}
        # refusals of budgets, and the notes about them to models
        self._refusals: set[Digest] = set()
        self._budget_notes: set[Digest] = set()
        self.withheld: set[Digest] = set()  # messages that no guard has passed
        # of the event that is being taken in
        self._mark = Mark((0, 0), 0, LogId(""), 0, 0, "")

    def take(self, event: Event, span: Span | None, get_blob: Callable[[Digest], bytes]) -> None:
        """Take in the next event of the path."""
        branch = span.branch if span else None
        kind, own, body = event.kind, event.actor == self._actor, event.body
        if kind == "SessionOpened" and not (span and span.via):
            self.epoch += 1
        elif own and isinstance(body, k.ModelAsked):
            self._model = body.model
            if body.attempt == 1:  # a further attempt shows the turns of the first one
                self._frozen = len(self.items)
        elif own and isinstance(body, (k.ModelReplied, k.ModelFailed)):
            failure = body.failure if isinstance(body, k.ModelFailed) else None
            outcome = failure_text(failure.kind, failure.message) if failure else ""
            self.outcomes.setdefault(event.header.run, []).append((self._model, outcome))
        elif kind == "BudgetRefused":
            self._refusals.add(event.id)
        if kind not in _HANDLERS:
            return
        self._mark = mark_of(event, span, self.epoch)
        if (refused := refused_input(event)) is not None:
            self._drop_refused(refused, event.seq)
        if event.id in self.withheld:
            self._withhold(event, branch)
        elif self._is_in_view(event, own):
            _HANDLERS[kind](self, event, body, own, branch, get_blob)
        else:
            shown = _SHOWN_BY_VIEW.get(self._view.what, "less")
            self.leave_out(self._mark, f"the view shows {shown}")

    @property
    def budget_note(self) -> Mark | None:
        """The last turn that tells the model that its budget is nearly used up. None: no turn
        does.
        """
        notes = self._budget_notes
        if not notes:
            return None
        return next((mark for mark in reversed(self.marks) if mark.id in notes), None)

    def pass_over(self, event: Event, span: Span, why: str) -> None:
        """Note an event that the view leaves out as a whole."""
        if event.kind in _HANDLERS:
            self.leave_out(mark_of(event, span, 0), why)

    def leave_out(self, mark: Mark, why: str) -> None:
        if self._explain:
            note = LeftOut(mark.log, mark.seq, mark.kind, why)
            if note not in self.left_out[-1:]:
                self.left_out.append(note)

    def _is_in_view(self, event: Event, own: bool) -> bool:
        view = self._view
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

    # ── by kind of event ─────────────────────────────────────────────────────────────────────

    def take_message(
        self,
        event: Event,
        body: k.MessageSaid,
        own: bool,
        branch: str | None,
        get_blob: Callable[[Digest], bytes],
    ) -> None:
        if body.aside and not own:
            return self.leave_out(self._mark, "it was said aside")
        if body.instead_of is not None:
            self._drop_replaced(body.instead_of, event.seq)
        if event.actor == SERVICE and not self._refusals.isdisjoint(event.header.causes):
            self._budget_notes.add(event.id)
        parts = unpack(body.parts, get_blob)
        if own and body.role == "assistant":
            return self._add_answer(event, Answered(verbatim_parts(parts)))
        if not own and event.actor != SERVICE:
            self.heard = parts
        who = body.name or (
            ""
            if body.role == "user"
            else body.role
            if body.role == "system"
            else speaker(event.actor)
        )
        self._add_words(event, attributed_parts("/".join(filter(None, (branch, who))), parts))

    def take_reply(
        self,
        event: Event,
        body: k.ModelReplied,
        own: bool,
        branch: str | None,
        get_blob: Callable[[Digest], bytes],
    ) -> None:
        if body.aside and not own:
            return self.leave_out(self._mark, "it was said aside")
        parts = unpack(body.parts, get_blob)
        if own:
            return self._add_answer(
                event,
                Answered(
                    verbatim_parts(parts),
                    tuple(
                        [AnsweredCall(call.call, call.tool, call.arguments) for call in body.calls]
                    ),
                ),
            )
        self.heard = parts
        name = "/".join(dict.fromkeys(filter(None, (branch, speaker(event.actor)))))
        words = tuple([part for part in parts if not isinstance(part, k.Reasoning)])
        asked = [
            k.Text(f"(asked for {call.tool} {json_text(call.arguments, ASIDE_MAX)})")
            for call in body.calls
        ]
        if words or asked:
            self._add_words(event, attributed_parts(name, (*words, *asked)))

    def take_request(
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
        # A result that the program asked for is there for the agent to read; the results of
        # another agent's calls are that agent's.
        others = event.actor.startswith("agent:") and not own
        self._calls[call] = body.tool, body.arguments, ASIDE_MAX if others else SHOWN_MAX

    def take_outcome(
        self,
        event: Event,
        body: Any,
        own: bool,
        branch: str | None,
        get_blob: Callable[[Digest], bytes],
    ) -> None:
        call = event.header.call or ""
        parts, failed = outcome_parts(body, get_blob)
        slot = self._slots.get(call)
        if (corrected := self._corrected.get(call)) is not None and slot is not None:
            arguments = json_text(corrected[1], ASIDE_MAX)
            parts = (k.Text(CORRECTED.format(who=corrected[0], arguments=arguments)), *parts)
        if slot is not None and slot[0] >= self._frozen:
            self._fill_slot(slot, call, parts, failed)
            self.causes = (*self.causes, event.id)
        elif call in self._calls or slot is not None:
            tool, arguments, limit = self._calls.get(call, ("a tool", None, ASIDE_MAX))
            how = "failed" if failed else "returned"
            title = k.Text(f"({tool} {json_text(arguments, ASIDE_MAX)} {how})")
            words = (title, *bounded_parts(parts, limit))
            self._add_words(event, attributed_parts(branch or "", words))

    def take_knowledge(
        self,
        event: Event,
        body: Any,
        own: bool,
        branch: str | None,
        get_blob: Callable[[Digest], bytes],
    ) -> None:
        about, ends = subject_of(body, branch)
        self._mark = self._mark._replace(about=about, ends=ends)
        refused = refused_input(event)
        text = knowledge_text(body) if refused is None else refused.marker
        self._add_words(event, attributed_parts(branch or "", (k.Text(text),)))

    def take_recall(
        self,
        event: Event,
        body: k.MemoryRecalled,
        own: bool,
        branch: str | None,
        get_blob: Callable[[Digest], bytes],
    ) -> None:
        """Show memories to the agent that recalled them: as data, and never as an instruction."""
        if not body.shown:  # the program or a tool has them
            return
        if not own:
            return self.leave_out(self._mark, "it was recalled for another agent")
        self._add_words(event, attributed_parts(branch or "", unpack(body.shown, get_blob)))

    def take_failed_recall(
        self,
        event: Event,
        body: k.RecallFailed,
        own: bool,
        branch: str | None,
        get_blob: Callable[[Digest], bytes],
    ) -> None:
        # a tool that could not recall says so itself
        if own and event.header.call not in self._slots:
            words = (k.Text(recall_failure_text(body)),)
            self._add_words(event, attributed_parts(branch or "", words))

    def take_compaction(
        self,
        event: Event,
        body: k.ContextCompacted,
        own: bool,
        branch: str | None,
        get_blob: Callable[[Digest], bytes],
    ) -> None:
        words = (k.Text(SUMMARY), *unpack(body.summary, get_blob))
        summary = Said(attributed_parts(branch or "", words))
        mark, (first, last) = self._mark, body.left
        mark = mark._replace(until=last, at=mark.at if mark.via else (self.epoch, last))
        if self._view.what == "compacted" and not mark.via:
            for gone in self.marks:
                self.leave_out(gone, f"it is before the compaction at {event.seq}")
            self._replace_all([(summary, mark)])
        else:
            is_leaving = (
                leaves_branch(mark, first, last)
                if mark.via
                else leaves_session(self.epoch, first, last)
            )
            self._compact(is_leaving, summary, mark, f"it left with the compaction at {event.seq}")
        self.causes = (*self.causes, event.id)

    def _compact(
        self, is_leaving: Callable[[Mark], bool], summary: Said, mark: Mark, why: str
    ) -> None:
        """Put the summary in the place of the turns that leave, and their knowledge after it."""
        every = list(zip(self.items, self.marks, strict=True))
        gone = [at for at, (_, each) in enumerate(every) if is_leaving(each)]
        first = gone[0] if gone else len(every) if mark.via else 0
        known = standing_knowledge([every[at] for at in gone])
        staying = {each for _, each in known}
        for at in gone:
            if every[at][1] not in staying:
                self.leave_out(every[at][1], why)
        hidden = set(gone)
        self._replace_all(
            [
                *every[:first],
                (summary, mark),
                *known,
                *(every[at] for at in range(first, len(every)) if at not in hidden),
            ]
        )

    # ── turns ────────────────────────────────────────────────────────────────────────────────

    def _replace_all(self, every: Sequence[tuple[Turn, Mark]]) -> None:
        """Have these turns and no others. No model was shown them so: the chain begins anew."""
        self.items, self.marks = [turn for turn, _ in every], [mark for _, mark in every]
        self._chain.drop_from(0)
        self._frozen = 0
        self._slots = {
            result.call: (at, number)
            for at, turn in enumerate(self.items)
            if isinstance(turn, Returned)
            for number, result in enumerate(turn.results)
        }

    def _drop_replaced(self, place: k.Place, seq: int) -> None:
        """Take away a message that another one was put in the place of. A note about the budget is
        taken away with all others about it.
        """
        notes = self._budget_notes
        gone = notes if place.head in notes else {place.head}
        self._drop_turns(
            lambda mark: mark.id in gone, f"another text was put in its place at {seq}"
        )

    def _drop_refused(self, refused: RefusedInput, seq: int) -> None:
        """Take away the message that a guard refused: this agent must not see it."""
        why = f"the guard {refused.guard} refused it at {seq}"
        if self._drop_turns(lambda mark: mark.id == refused.message, why):
            self.heard = (k.Text(refused.marker),)
        self.causes = tuple([cause for cause in self.causes if cause != refused.message])

    def _withhold(self, event: Event, branch: str | None) -> None:
        """Show that there was a message, and not what it says: no guard has passed it."""
        self.leave_out(self._mark, "no guard has passed it")
        self.heard, causes = (k.Text(WITHHELD),), self.causes
        self._add_words(event, attributed_parts(branch or "", self.heard))
        self.causes = causes

    def _drop_turns(self, is_dropped: Callable[[Mark], bool], why: str) -> bool:
        """Take turns away; return True if there were some."""
        every = list(zip(self.items, self.marks, strict=True))
        kept = [each for each in every if not is_dropped(each[1])]
        for mark in dict.fromkeys([mark for _, mark in every if is_dropped(mark)]):
            self.leave_out(mark, why)
        if len(kept) == len(every):
            return False
        self._replace_all(kept)
        return True

    def _add(self, turn: Turn) -> None:
        self.items.append(turn)
        self.marks.append(self._mark)

    def _add_words(self, event: Event, parts: Parts) -> None:
        self._add(Said(parts))
        self.causes = (
            (*self.causes, event.id)
            if not self.items[-2:-1] or isinstance(self.items[-2], Said)
            else (event.id,)
        )

    def _add_answer(self, event: Event, turn: Answered) -> None:
        # it was told so when it was asked
        if not self.items or isinstance(self.items[-1], Answered):
            self._add(said_text(GO_ON))
        self._add(turn)
        self.causes = ()
        if turn.calls:
            at = len(self.items)
            # A branch leaves open calls behind; in the log where they were made, an open call may
            # have happened.
            unsettled = UNKNOWN if event.log == self._log else NOT_RUN
            self._add(
                Returned(
                    tuple([CallResult(call.id, call.tool, unsettled, True) for call in turn.calls])
                )
            )
            self._slots.update({call.id: (at, index) for index, call in enumerate(turn.calls)})

    def _fill_slot(self, slot: tuple[int, int], call: str, parts: Parts, failed: bool) -> None:
        turn = self.items[slot[0]]
        assert isinstance(turn, Returned)
        results = list(turn.results)
        shown = bounded_parts(parts, SHOWN_MAX)
        results[slot[1]] = CallResult(call, results[slot[1]].tool, shown, failed)
        self.items[slot[0]] = Returned(tuple(results))
        self._chain.drop_from(slot[0])


_HANDLERS: dict[str, Callable[..., None]] = {
    kind.__name__: handler
    for kinds, handler in (
        ((k.MessageSaid,), TurnList.take_message),
        ((k.ModelReplied,), TurnList.take_reply),
        ((k.ToolRequested,), TurnList.take_request),
        ((k.ToolReturned, k.ToolFailed, k.ToolUnknown, k.ToolResolved), TurnList.take_outcome),
        (
            (
                k.FactRecorded,
                k.FactRetracted,
                k.PendingAdded,
                k.PendingSettled,
                k.ValidationRecorded,
            ),
            TurnList.take_knowledge,
        ),
        ((k.MemoryRecalled,), TurnList.take_recall),
        ((k.RecallFailed,), TurnList.take_failed_recall),
        ((k.ContextCompacted,), TurnList.take_compaction),
    )
    for kind in kinds
}
