"""Evidence: the events behind a memory, their sort, their trust, and the memories they rest on.

The sort of a piece follows from the kind of the cited event. The trust of a memory is the lowest on
its chain of evidence. Words that a model wrote rest on every memory that was shown before them on
their path: if one of those is taken back, they count no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, get_args

import msgspec

from plait.errors import NotEvidence, PlaitError, UnknownEvent
from plait.event import Event
from plait.event import kinds as k
from plait.event.kinds import Ground, Trust
from plait.ids import Digest, LogId, inbox_of
from plait.memory.rows import DECISION_KINDS, ITEM, READ, decode_ids
from plait.memory.scopes import owners_of, viewer_of
from plait.memory.words import plain_text
from plait.session.acting import Because, cited_events
from plait.session.content import text_of, unpack
from plait.session.core import Core
from plait.session.fold import state_at
from plait.session.origins import ORDINARY
from plait.session.ports import Position
from plait.session.state import Known, Span
from plait.session.value import SessionValue, core_of
from plait.store import Store

Sort = Literal["word", "result", "failure", "verdict", "document", "memory", "model", "program"]
"""A person's word or correction, a tool's result, a failed attempt, a passing verdict, a document
or another text from outside, another memory, words of a model, words of the program.
"""

TRUSTS: tuple[Trust, ...] = get_args(Trust)  # the highest first
_ALL = 2**31
_RECALLED = k.MemoryRecalled.__name__
_NEVER = {
    _RECALLED: "it is a recall, and a memory that was recalled proves nothing new",
    k.RecallFailed.__name__: "it is a recall",
    k.MemoryUsed.__name__: "it says that a memory was used",
}
_ABOUT_MEMORIES = DECISION_KINDS | {k.MemoryProposed.__name__, k.MemorySupported.__name__}
RECALL_TOOL = "recall"
_REQUESTS = frozenset({k.ToolRequested.__name__})
_REQUEST_AHEAD = 256  # events before a result among which its request is looked for
_ANSWERS = (k.ApprovalGranted, k.ApprovalDenied, k.QuestionAnswered, k.ToolResolved)


class EvidencePiece(NamedTuple):
    """One piece of evidence."""

    event: Event
    sort: Sort
    trust: Trust
    text: str  # its words; "": it has none
    memories: tuple[Digest, ...] = ()  # the memories that it rests on

    @property
    def ground(self) -> Ground:
        return Ground(self.event.id, self.memories)


def pieces_of(session: SessionValue, evidence: Because) -> list[EvidencePiece]:
    """Return the evidence that a caller names, which is what `because=` takes.

    Raises for an event that is not in the store, that the session may not see, or that cannot be
    evidence.
    """
    if evidence == ():
        return []
    core = core_of(session)
    store = core.store
    found: list[EvidencePiece] = []
    for event in cited_events(session, evidence, "evidence"):
        if not is_visible(core, event) or not _may_cite(session, event):
            raise UnknownEvent(event.id)  # as if it did not exist
        if event.kind in _NEVER:
            raise NotEvidence(f"event {event.seq}", _NEVER[event.kind])
        found.append(piece_of(store, event))
    return found


def _may_cite(session: SessionValue, event: Event) -> bool:
    """True if a memory that is cited as evidence may be seen, too."""
    if event.kind != k.MemoryProposed.__name__:
        return True
    viewer = viewer_of(session, owners_of(session))
    rows = viewer.store.rows("memory", ITEM, {"id": event.id}, limit=1)
    scope = rows[0]["scope"] if rows else ""
    return scope in ("agent", "workflow") or any(viewer.may_see(row) for row in rows)


def piece_of(store: Store, event: Event) -> EvidencePiece:
    """Return an event as a piece of evidence."""
    sort = sort_of(store, event)
    memories: tuple[Digest, ...] = ()
    trust: Trust = _TRUST_OF[sort]
    if sort == "memory":
        # a decision about a memory, or support for it, says no more than that memory does
        is_itself = isinstance(event.body, k.MemoryProposed)
        memories = (event.id,) if is_itself else event.header.causes[:1]
        rows = store.rows("memory", ITEM, {"id": memories[0]}, limit=1) if memories else []
        trust = msgspec.convert(rows[0]["trust"], Trust) if rows else "unchecked"
    text = text_of_event(event, store.get_blob)
    if sort == "result" and _repeats_arguments(store, event, text):
        sort, trust = "model", "unchecked"
    if sort == "model":
        memories = memories_shown(store, event)
    return EvidencePiece(event, sort, trust, text, memories)


def _repeats_arguments(store: Store, event: Event, text: str) -> bool:
    """True if a result only repeats the arguments that a model gave, or comes out of memory."""
    call, first = event.header.call, max(1, event.seq - _REQUEST_AHEAD)
    for asked in store.read(event.log, first, event.seq - 1, kinds=_REQUESTS, reverse=True):
        body = asked.body
        if asked.header.call == call and isinstance(body, k.ToolRequested):
            if not asked.actor.startswith("agent:"):
                return False
            given = plain_text(msgspec.json.encode(body.arguments).decode())
            return body.tool == RECALL_TOOL or plain_text(text) in given
    return False


def sort_of(store: Store, event: Event) -> Sort:
    """Return the sort of a piece of evidence."""
    body = event.body
    if event.kind in _ABOUT_MEMORIES:
        return "memory"
    origin = event.header.origin
    if origin not in ORDINARY:
        return "document"
    if isinstance(body, k.ValidationRecorded):
        return "verdict" if body.passed else "failure"
    if isinstance(body, (k.ToolFailed, k.ModelFailed, k.RunFailed, k.ToolUnknown)):
        return "failure"
    if isinstance(body, k.ToolReturned):
        return "result"
    is_person = event.actor.startswith("human:") and not _is_words_of_run(store, event)
    if isinstance(body, _ANSWERS):
        return "word" if is_person else "program"
    if isinstance(body, (k.ModelReplied, k.ModelAsked, k.RunFinished, k.CallFinished)):
        return "model"
    if is_person and origin == "human":
        return "word"
    return "model" if origin == "model" or event.actor.startswith("agent:") else "program"


def _is_words_of_run(store: Store, event: Event) -> bool:
    """True if code of a run wrote an event, perhaps in the name of a person. A message that the run
    took from its inbox is the person's.
    """
    if event.header.run is None:
        return False
    inbox = inbox_of(event.log)
    for cause in event.header.causes:
        with suppress(PlaitError):
            said = store.event(cause)
            if said.log == inbox and said.header.run is None and said.actor == event.actor:
                return False
    return True


_TRUST_OF: dict[Sort, Trust] = {
    "word": "said",
    "verdict": "checked",
    "result": "observed",
    "failure": "observed",
    "program": "observed",
    "document": "unchecked",
    "model": "unchecked",
    "memory": "unchecked",
}


def lowest_trust(trusts: Sequence[Trust]) -> Trust:
    """Return the lowest of some trusts; of none, the lowest there is."""
    return TRUSTS[max([TRUSTS.index(trust) for trust in trusts], default=-1)]


def text_of_event(event: Event, get_blob: Callable[[Digest], bytes]) -> str:
    """Return the words of an event."""
    body = event.body
    parts = getattr(body, "parts", None)
    if parts is None and isinstance(body, k.ContextCompacted):
        parts = body.summary
    if parts is not None:
        try:
            return text_of(unpack(parts, get_blob))
        except PlaitError:  # a blob that is gone: there is nothing to quote
            return ""
    if isinstance(body, k.FactRecorded):
        return body.value if isinstance(body.value, str) else ""
    if isinstance(body, k.QuestionAnswered):
        return body.answer if isinstance(body.answer, str) else ""
    return ""


def memories_shown(store: Store, event: Event) -> tuple[Digest, ...]:
    """Return the memories that recalls returned before an event, on its path."""
    try:
        path = state_at(store, event.log, event.seq).story.path
    except PlaitError:  # an inbox has no state
        return ()
    return memories_read(store, path)


def memories_read(store: Store, path: Sequence[Span]) -> tuple[Digest, ...]:
    """Return the memories that recalls on a path returned, in their order."""
    reads: dict[str, list[tuple[int, str]]] = {}
    logs = frozenset([span.log for span in path])
    for row in store.rows("memory", READ, {"log": logs}, order="seq", limit=_ALL):
        reads.setdefault(str(row["log"]), []).append((int(str(row["seq"])), str(row["memories"])))
    found: dict[Digest, None] = {}
    for span in path:
        for seq, memories in reads.get(span.log, ()):
            if span.first <= seq <= span.last:
                found.update(dict.fromkeys(decode_ids(memories)))
    return tuple(found)


def is_visible(core: Core, event: Event) -> bool:
    """True if a session may see an event: of its own family, or of a session of its user or
    project. Sessions that name neither share a user: the person who has the store.
    """
    log = event.log
    if log in (core.position.id, inbox_of(core.position.id)):
        return True
    state = core.state
    if log in state.covers or Known(state.story.path).has(log, event.seq):
        return True
    other = _opening_of(core, log)
    if other is None:
        return False
    mine = core.opening
    if mine.project is not None and other.project == mine.project:
        return True
    return other.user == mine.user and (other.project is None or mine.project is None)


def _opening_of(core: Core, log: LogId) -> k.SessionOpened | None:
    """Return the opening of a log's lineage. None: it is no session's."""
    try:
        at = core.store.log(log)
    except PlaitError:
        return None
    opening = Core(Position(core.position.store, log, at.tip, at.head)).opening
    first = next(core.store.read(log, 1, 1), None)
    return opening if first is not None and isinstance(first.body, k.SessionOpened) else None
