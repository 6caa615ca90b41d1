"""Remembering: a proposal and the decision about it, in one append.

At session scope, and on a session that is at home, the rules are asked at once. A branch, or a run
that has not finished, only proposes to wider scopes; the rules are asked when the branch is merged
into its root, or the run ends (arrival.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, get_args

import msgspec

from plait.errors import InvalidValue, NoEvidence, TooLarge
from plait.event import Body, Event
from plait.event.kinds import (
    Ground,
    MemoryCommitted,
    MemoryKind,
    MemoryProposed,
    MemoryRejected,
    MemorySuperseded,
    MemorySupported,
    Scope,
    Text,
    Trust,
)
from plait.event.strict import check_text
from plait.ids import Digest, LogId, Micros
from plait.inside import is_inside
from plait.journal.writer import direct_writer
from plait.memory.evidence import EvidencePiece, lowest_trust, memories_read, pieces_of
from plait.memory.instructions import instruction_in
from plait.memory.rows import DECISION_KINDS, ITEM, decode_grounds, decode_ids
from plait.memory.rules import Detector, Proposal, decide, detected_ruling, is_quoted
from plait.memory.scopes import Viewer, owner_in, path_of
from plait.memory.standing import CONFIRMABLE, DOCUMENT, reason_out_of_time
from plait.memory.words import plain_text, text_digest, words_of
from plait.session.acting import Because, acting_in
from plait.session.appending import append_drafts, refuse_if_busy
from plait.session.arguments import check_choice
from plait.session.fold import state_at
from plait.session.moves import check_may
from plait.session.ports import Act, Draft, is_bound, writer_of
from plait.session.value import S, SessionValue, core_of, position_of
from plait.store import Row, Wanted, shared_names

NAME_MAX = 1000  # characters of a key, a speaker or a source
TEXT_MAX = 4000  # bytes: a memory is a statement; a document is ingested in pieces
KINDS: tuple[MemoryKind, ...] = get_args(MemoryKind)
_OPEN = "remember it in the workflow, with the value that its forward has, or in a fork"
SECOND_RUN = "second run"
_ALL = 2**31
_LATEST = 1000  # memories with the same words or key that are looked at


class Statement(msgspec.Struct, frozen=True):
    """A memory that is to be written, as its writer states it."""

    text: str
    scope: Scope = "session"
    kind: MemoryKind = "fact"
    key: str = ""
    speaker: str = ""
    source: str = ""
    importance: int | None = None
    valid_from: Micros | None = None
    valid_until: Micros | None = None
    expires: Micros | None = None
    review_by: Micros | None = None


_AUTHOR_TRUST: dict[str, Trust] = {"human": "said", "program": "observed", "tool": "observed"}


_RESTATED = ("key", "importance", "valid_from", "valid_until", "expires", "review_by")


class _Author(NamedTuple):
    """The writer of a memory: its act, and True if it is a person outside of any run."""

    act: Act
    is_person: bool


def remember(
    session: S,
    statement: Statement,
    evidence: Because,
    names: dict[Scope, str],
    *,
    supersedes: Sequence[Digest] = (),
    detectors: Sequence[Detector] = (),
    actor: str | None = None,
    origin: str | None = None,
) -> S:
    """Write a memory, with the decision if the rules are asked now; return the next value."""
    check_statement(statement)
    check_may(core_of(session), "remember")
    refuse_if_busy(session, "remember", _OPEN)
    owner = owner_in(session, statement.scope, names)
    if (followed := _follow_recording(session, statement, owner, actor, origin)) is not None:
        return followed
    writer = _writer_of(session, actor, origin)
    pieces = pieces_of(session, evidence)
    if not pieces and not writer.is_person:
        raise NoEvidence(writer.act.actor)
    memory = _Remembering(session, statement, owner, pieces, writer, detectors)
    drafts = memory.drafts(supersedes)
    return append_drafts(session, drafts) if drafts else session


class _Remembering:
    """One memory on its way into the log."""

    def __init__(
        self,
        session: SessionValue,
        statement: Statement,
        owner: str,
        pieces: Sequence[EvidencePiece],
        writer: _Author,
        detectors: Sequence[Detector],
    ) -> None:
        self._session, self._statement, self._owner = session, statement, owner
        self._pieces, self._writer, self._detectors = pieces, writer, detectors
        self._store = core_of(session).store
        self._row_owner = f"{statement.scope}:{owner}"
        is_wide = statement.scope != "session"
        owners = (self._row_owner,) if is_wide else ()
        path = () if is_wide else path_of(core_of(session))
        self._viewer = Viewer(self._store, owners, path)
        self._same = list(rows_with(self._viewer, "same", text_digest(statement.text)))

    def drafts(self, supersedes: Sequence[Digest]) -> list[Draft]:
        known = self._same_words()
        state = self._viewer.standing(known).state if known is not None else None
        if known is not None and state in ("active", "quarantined", "proposed"):
            return self._support(known, state)
        if known is not None and state == "rejected" and not self._writer.is_person:
            body = MemoryRejected("again", "the same words were rejected before")
            return [self._decision(body, Digest(str(known["id"])))]
        replaced = self._replaced([*supersedes, *self._restated()])
        proposal = Draft(self._proposed(replaced), self._act(self._evidence()))
        if self._statement.scope != "session" and not is_home(self._session):
            # the rules at the end of the run do not know the detectors of this memory
            detectors = () if self._writer.is_person else self._detectors
            found = detected_ruling(self._statement.text, detectors)
            return [proposal] if found is None else [proposal, self._decision(found.body(), 0)]
        was_retracted = any([is_taken_back(self._viewer, row) for row in self._same])
        ruling = decide(self._proposal(was_retracted=was_retracted), self._detectors)
        drafts = [proposal, self._decision(ruling.body(), 0)]
        if ruling.state == "active":
            rule = "key" if self._statement.key else "writer"
            drafts += [self._decision(MemorySuperseded(rule), each, 0) for each in replaced]
        return drafts

    # ── parts ────────────────────────────────────────────────────────────────────────────────

    def _proposed(self, replaced: tuple[Digest, ...]) -> MemoryProposed:
        statement = self._statement
        sorts = {piece.sort for piece in self._pieces}
        # a failed attempt proves that it failed, whatever its writer calls it
        kind = "failure" if sorts == {"failure"} else statement.kind
        trusts: list[Trust] = [piece.trust for piece in self._pieces]
        if self._writer.is_person:
            trusts.append("said")
        elif "verdict" not in sorts and not any(
            [is_quoted(statement.text, piece) for piece in self._pieces]
        ):
            trusts.append(_AUTHOR_TRUST.get(self._writer.act.origin, "unchecked"))
        return proposal_body(
            msgspec.structs.replace(statement, kind=kind),
            self._owner,
            lowest_trust(trusts),
            tuple([piece.ground for piece in self._pieces]),
            replaced,
            by_person=self._writer.is_person,
        )

    def _proposal(self, *, was_retracted: bool) -> Proposal:
        statement = self._statement
        return Proposal(
            statement.text,
            statement.kind,
            statement.scope,
            self._pieces,
            self._writer.is_person,
            self._writer.act.origin,
            was_retracted,
            "" if self._writer.is_person else echoed_memory(self._session, statement.text),
        )

    def _replaced(self, supersedes: Sequence[Digest]) -> tuple[Digest, ...]:
        """Return the memories that this one replaces: those named, and the one with its key."""
        found = list(supersedes)
        for memory in found:
            for row in self._store.rows("memory", ITEM, {"id": memory}, limit=1):
                is_other = row["scope"] != "session" and row["owner"] != self._row_owner
                # the same statement for more readers replaces the narrow one
                if is_other and row["same"] != text_digest(self._statement.text):
                    raise InvalidValue(
                        "supersedes",
                        f"{memory[:8]} belongs to another {row['scope']}",
                        f"remember it with scope={row['scope']!r}",
                    )
        if self._statement.key:
            for row in active_with_key(self._viewer, self._statement.key):
                found.append(Digest(str(row["id"])))
        return tuple(dict.fromkeys(found))

    def _same_words(self) -> Row | None:
        """Return the memory of the same owner that says the very same, and still holds.

        A person who says it again with another key or other limits says something new.
        """
        now = direct_writer().source(self._store.address).now(self._session.id, self._session.seq)
        for row in self._same:
            if self._viewer.standing(row).state == "superseded":
                continue
            if reason_out_of_time(row, now, now) is None and not self._is_restated(row):
                return row
        return None

    def _restated(self) -> list[Digest]:
        """Return the active memories that this one states anew."""
        return [
            Digest(str(row["id"]))
            for row in self._same
            if self._viewer.standing(row).state == "active" and self._is_restated(row)
        ]

    def _is_restated(self, row: Row) -> bool:
        if not self._writer.is_person:
            return False
        stated = self._statement
        return any(
            (value := getattr(stated, name)) not in (None, "") and value != row[name]
            for name in _RESTATED
        )

    def _support(self, known: Row, state: str) -> list[Draft]:
        """Return the further evidence for a memory that says the same already."""
        memory = Digest(str(known["id"]))
        if not self._writer.is_person and memory in _recalled_before(self._session):
            ruling = MemoryRejected("echo", f"it repeats {memory[:8]}, which was recalled")
            return [
                Draft(self._proposed(()), self._act(self._evidence())),
                self._decision(ruling, 0),
            ]
        grounds = tuple([piece.ground for piece in self._pieces])
        is_same = decode_grounds(str(known["grounds"])) == [*grounds]
        is_other_person = self._writer.is_person and known["actor"] != self._writer.act.actor
        if known["log"] == self._session.id and is_same and not is_other_person:
            return []  # a tool that is run again says it again
        body = MemorySupported(text_digest(self._statement.text), grounds)
        drafts = [Draft(body, self._act((memory, *self._evidence())))]
        may_decide = self._statement.scope == "session" or is_home(self._session)
        if not may_decide or state == "active":
            return drafts
        is_confirmed = state == "quarantined" and is_confirmed_by(
            self._viewer, known, self._session, self._pieces
        )
        if not self._writer.is_person and not is_confirmed:
            return drafts
        rule = "" if self._writer.is_person else SECOND_RUN
        drafts.append(self._decision(MemoryCommitted(rule), memory))
        for each in replaced_by(self._viewer, known):
            drafts.append(self._decision(MemorySuperseded("key"), each, memory))
        return drafts

    def _evidence(self) -> tuple[Digest, ...]:
        return tuple([piece.event.id for piece in self._pieces])

    def _act(self, causes: tuple[Digest | int, ...]) -> Act:
        act = self._writer.act
        return act._replace(causes=tuple(dict.fromkeys((*causes, *act.causes))))

    def _decision(self, body: Body, *memories: Digest | int) -> Draft:
        act = self._writer.act
        return Draft(body, Act(act.actor, act.origin, call=act.call, causes=memories))


# ── questions about the record ───────────────────────────────────────────────────────────────


def is_home(session: SessionValue) -> bool:
    """True if a session may decide for wider scopes: it is a root, and no value of a run."""
    if is_bound(session.run):
        return False
    core = core_of(session)
    path = (core.near or core.state).story.path
    return bool(path) and path[0].log == session.id


def rows_with(viewer: Viewer, column: str, value: str) -> Iterator[Row]:
    """Yield the memories with a value that a reader may see, the latest first. At session scope
    every log of the path is an owner.
    """
    wanted: dict[str, Wanted] = {column: value, "owner": frozenset(viewer.owners or ())}
    rows = viewer.store.rows("memory", ITEM, wanted, order="number", descending=True, limit=_LATEST)
    yield from [row for row in rows if viewer.may_see(row)]


def active_with_key(viewer: Viewer, key: str) -> list[Row]:
    """Return the active memories that have a key, also one that another displaces."""
    rows = rows_with(viewer, "key", key)
    return [row for row in rows if viewer.own_standing(row).state == "active"]


def replaced_by(viewer: Viewer, row: Row) -> list[Digest]:
    """Return the memories that one replaces when it is committed: named by it, or by its key."""
    found = dict.fromkeys(decode_ids(str(row["supersedes"])))
    if row["key"]:
        for other in active_with_key(viewer, str(row["key"])):
            found.setdefault(Digest(str(other["id"])))
    found.pop(Digest(str(row["id"])), None)
    return list(found)


def is_confirmed_by(
    viewer: Viewer, known: Row, session: SessionValue, pieces: Sequence[EvidencePiece]
) -> bool:
    """True if this session is a second, independent run, and the memory waits for one.

    It is independent if the two share no log, no run and no memory that both rest on, and if it is
    no session that code of a run has opened for itself. Text from outside that is read twice is the
    same text: it needs evidence of another sort.
    """
    by = viewer.standing(known).by
    if by is None or by.rule not in CONFIRMABLE:
        return False
    if by.rule == "origin" and all([piece.sort in ("document", "model") for piece in pieces]):
        return False
    if not is_bound(session.run) and is_inside(session.store, shared_names):
        return False
    if known["run"] is not None and known["run"] == session.run:
        return False
    core = core_of(session)
    logs = {*core.state.covers, *[span.log for span in path_of(core)]}
    bases = {base for ground in decode_grounds(str(known["grounds"])) for base in ground.memories}
    shared = bases & {base for piece in pieces for base in piece.memories}
    return known["log"] not in logs and not shared


def were_retracted(viewer: Viewer, text: str, memory: str = "") -> bool:
    """True if another memory that says the same was taken back."""
    rows = rows_with(viewer, "same", text_digest(text))
    return any([is_taken_back(viewer, row) for row in rows if row["id"] != memory])


def is_taken_back(viewer: Viewer, row: Row) -> bool:
    """True if a memory was taken back; a document that lost it may have it again."""
    standing = viewer.standing(row)
    is_lost = standing.by is not None and standing.by.rule == DOCUMENT
    return standing.state == "retracted" and not is_lost


def echoed_memory(session: SessionValue, text: str, upto: tuple[LogId, int] | None = None) -> str:
    """Return the memory that was recalled before on the path and that a text repeats, alone or
    among other words. "": there is none. `upto`: before that event of the path.
    """
    said = f" {plain_text(text)} "
    recalled = frozenset(_recalled_before(session, upto))
    store = core_of(session).store
    rows = store.rows("memory", ITEM, {"id": recalled}, limit=_ALL) if recalled else ()
    for row in rows:
        known = f" {plain_text(str(row['text']))}"
        if known in said or said.rstrip() in f"{known} ":
            return str(row["id"])
    return ""


def _recalled_before(
    session: SessionValue, upto: tuple[LogId, int] | None = None
) -> tuple[Digest, ...]:
    core = core_of(session)
    path = core.state.story.path
    if upto is not None:
        path = state_at(core.store, *upto).story.path
    return memories_read(core.store, path)


def _writer_of(session: SessionValue, actor: str | None, origin: str | None) -> _Author:
    act = acting_in(session, actor, (), origin)
    inside = is_bound(session.run) or bool(is_inside(session.store, shared_names))
    return _Author(act, act.actor.startswith("human:") and act.origin == "human" and not inside)


# ── a run that is taken up again ─────────────────────────────────────────────────────────────

_FIRST = frozenset(kind.__name__ for kind in (MemoryProposed, MemorySupported, MemoryRejected))


def _follow_recording(
    session: S, statement: Statement, owner: str, actor: str | None, origin: str | None
) -> S | None:
    """Take the recorded steps of a memory: the rules are not asked again. None: none are recorded.

    A program that states another memory than the record differs from it, which the append tells.
    """
    writer, here = writer_of(session.run), position_of(session)
    first = writer.recorded(here)
    if first is None:
        return None
    if first.kind not in _FIRST:
        return session  # it was remembered already then, and nothing was written
    act = acting_in(session, actor, (), origin)
    body = first.body
    if isinstance(body, MemoryProposed):
        kind = body.kind if body.kind == "failure" else statement.kind
        stated = msgspec.structs.replace(statement, kind=kind)
        body = proposal_body(stated, owner, body.trust, body.grounds, body.supersedes)
    elif isinstance(body, MemorySupported):
        body = MemorySupported(text_digest(statement.text), body.grounds)
    drafts = [Draft(body, act._replace(causes=first.header.causes))]
    while (step := writer.recorded(here, len(drafts))) is not None and _belongs_to(step, first):
        drafts.append(
            Draft(step.body, Act(act.actor, act.origin, call=act.call, causes=step.header.causes))
        )
    return append_drafts(session, drafts)


def _belongs_to(step: Event, first: Event) -> bool:
    """True if a step decides about the memory that the first one proposes or supports."""
    if step.kind not in DECISION_KINDS:
        return False
    memory = first.id if first.kind == MemoryProposed.__name__ else first.header.causes[0]
    return memory in step.header.causes[:2]


# ── checks ───────────────────────────────────────────────────────────────────────────────────


def proposal_body(
    statement: Statement,
    owner: str,
    trust: str,
    grounds: tuple[Ground, ...],
    supersedes: tuple[Digest, ...],
    *,
    by_person: bool = False,
) -> MemoryProposed:
    fields: dict[str, Any] = msgspec.structs.asdict(statement)
    text = fields.pop("text")
    return MemoryProposed(
        owner=owner,
        parts=(Text(text),),
        trust=trust,
        grounds=grounds,
        supersedes=supersedes,
        by_person=by_person,
        **fields,
    )


def check_statement(statement: Statement) -> None:
    """Raise for a memory that cannot be written."""
    text = statement.text
    if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue("text", "nothing is to be remembered", "pass a sentence")
    check_text(text, "text")
    if len(text.encode()) > TEXT_MAX:
        raise TooLarge("a memory", len(text.encode()), TEXT_MAX)
    if not words_of(text):
        raise InvalidValue("text", f"{text!r:.40} has no words", "pass a sentence")
    check_choice("kind", statement.kind, KINDS)
    for name in ("key", "speaker", "source"):
        value = getattr(statement, name)
        if not isinstance(value, str) or len(value) > NAME_MAX or not value.isprintable():
            step = f"pass one line of at most {NAME_MAX} characters"
            raise InvalidValue(name, f"{value!r:.40} is no name", step)
        check_text(value, name)
    if instruction_in(statement.speaker) is not None:
        raise InvalidValue("speaker", f"{statement.speaker!r:.40} is no name", "pass a name")
    importance = statement.importance
    if importance is not None and (type(importance) is not int or not 1 <= importance <= 10):
        raise InvalidValue("importance", f"{importance!r} is not from 1 to 10", "pass 1 to 10")
    for name in ("valid_from", "valid_until", "expires", "review_by"):
        value = getattr(statement, name)
        if value is not None and (type(value) is not int or not 0 <= value < 2**63):
            raise InvalidValue(
                name, f"{value!r} is no time", "pass microseconds since 1970, as events have them"
            )
    start, end = statement.valid_from, statement.valid_until
    if start is not None and end is not None and end <= start:
        raise InvalidValue("valid_until", "it is not after valid_from", "pass a later time")
