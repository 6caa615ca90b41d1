"""Ingesting: a document in pieces, or the messages of a session, each citing its source.

A document is attached to the session once, as evidence, and every piece cites it. A person who
ingests a document vouches for it; a piece that reads like an instruction waits all the same, since
the person did not write it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from plait import secrets
from plait.errors import InvalidValue
from plait.event import Body, Event
from plait.event.kinds import (
    CallFinished,
    EvidenceAttached,
    MemoryKind,
    MemoryProposed,
    MemoryRetracted,
    MessageSaid,
    ModelReplied,
    Scope,
)
from plait.ids import Digest
from plait.inside import is_inside
from plait.memory.evidence import is_visible, piece_of
from plait.memory.instructions import instruction_in
from plait.memory.remember import (
    TEXT_MAX,
    Statement,
    check_statement,
    is_home,
    proposal_body,
    rows_with,
    were_retracted,
)
from plait.memory.rows import DECISION_KINDS, ITEM
from plait.memory.rules import Detector, Proposal, Ruling, decide
from plait.memory.scopes import owner_in, viewer_of
from plait.memory.standing import DOCUMENT
from plait.memory.words import text_digest, words_of
from plait.session.acting import acting_in
from plait.session.appending import append_drafts, refuse_if_busy
from plait.session.content import file, pack, text_of
from plait.session.events import path_events
from plait.session.moves import check_may
from plait.session.ports import Act, Draft, is_bound, writer_of
from plait.session.value import S, SessionValue, core_of, position_of
from plait.session.views import message_of
from plait.store import Row, shared_names

PIECE_MAX = 800  # characters of a piece of a document
DOCUMENT_MAX = 16 << 20  # bytes
INGEST = "service:ingest"
_ALL = 2**31
_MESSAGES = frozenset({MessageSaid.__name__, ModelReplied.__name__})
_OPEN = "ingest it in the workflow, with the value that its forward has, or in a fork"


def ingest_document(
    session: S,
    path: Path,
    scope: Scope,
    kind: Literal["resource", "skill", "message"],
    names: dict[Scope, str],
    detectors: Sequence[Detector],
    actor: str | None,
) -> S:
    """Remember a text file in pieces."""
    if kind not in ("resource", "skill"):
        raise InvalidValue("kind", f"{kind!r} is not one", "use resource or skill")
    text, content = read_document(path)
    name, source = path.name, path.as_posix()
    as_kind: MemoryKind = "procedure" if kind == "skill" else "resource"
    batch = _Batch(session, scope, names, detectors, actor, source)
    parts, blobs = pack([file(content, name)], "document")
    pieces = [Statement(each, scope, as_kind, source=source) for each in pieces_of_document(text)]
    if not pieces:
        raise InvalidValue("path", f"{name} has no words", "pass a text file")
    attached = Draft(EvidenceAttached(name, parts), batch.act._replace(origin="document"))
    if (recorded := batch.recorded_drafts(pieces, attached)) is not None:
        return append_drafts(session, recorded, blobs=blobs) if recorded else session
    drafts = [draft for each in pieces for draft in batch.piece_drafts(each)]
    gone = batch.gone_drafts(pieces)
    if not drafts and gone:
        return append_drafts(session, gone)
    if not drafts:
        return session  # every piece of it is there already
    drafts += gone
    return append_drafts(session, [attached, *drafts], blobs=blobs)


def ingest_session(
    session: S,
    other: SessionValue,
    scope: Scope,
    names: dict[Scope, str],
    detectors: Sequence[Detector],
    actor: str | None,
) -> S:
    """Remember the messages of another session, with the name of each speaker."""
    if other.store != session.store:
        raise InvalidValue("source", "it lives in another store", "ingest sessions of one store")
    core = core_of(other)
    store = core.store
    batch = _Batch(session, scope, names, detectors, actor, other.id)
    said: list[tuple[Statement, Event]] = []
    for span, event in path_events(store, core.state.story.path, _MESSAGES):
        message = message_of(event, span, store.get_blob)
        if message is None:
            continue
        if not is_visible(core_of(session), event):
            raise InvalidValue(
                "source", "the session may not see it", "pass one of the same user or project"
            )
        for text in pieces_of_text(message.text, TEXT_MAX // 4):
            said.append((Statement(text, scope, speaker=message.name, source=other.id), event))
    drafts = batch.recorded_drafts([statement for statement, _ in said])
    if drafts is None:
        drafts = [draft for each in said for draft in batch.message_drafts(*each)]
    return append_drafts(session, drafts) if drafts else session


class _Batch:
    """The memories of one source, on their way into one append."""

    def __init__(
        self,
        session: SessionValue,
        scope: Scope,
        names: dict[Scope, str],
        detectors: Sequence[Detector],
        actor: str | None,
        source: str,
    ) -> None:
        check_may(core_of(session), "ingest")
        refuse_if_busy(session, "ingest", _OPEN)
        self._session, self._scope = session, scope
        self._owner = owner_in(session, scope, names)
        self._store = core_of(session).store
        self._viewer = viewer_of(session, names, (scope,))
        self._source = source
        self._detectors = detectors
        self._seen: set[str] = set()
        self._count = 0  # drafts so far; the attached document is the first
        self._may_decide = scope == "session" or is_home(session)
        act = acting_in(session, actor)
        inside = is_bound(session.run) or bool(is_inside(session.store, shared_names))
        self._is_person = act.actor.startswith("human:") and not inside
        # the document speaks, not the person: so the person may approve what a rule holds back
        self.act = act._replace(actor=INGEST, behalf=act.actor, origin="program", causes=())

    def piece_drafts(self, statement: Statement) -> list[Draft]:
        """Return the drafts of a piece of the document that stands first in the append."""
        if self._is_known(statement.text):
            return []
        text = statement.text
        was_retracted = were_retracted(self._viewer, text)
        proposal = Proposal(
            text, statement.kind, statement.scope, (), False, "document", was_retracted
        )
        ruling = decide(proposal, self._detectors)
        # The rules at the arrival of a branch ask who vouches for a piece, and know no detectors:
        # so a piece that must wait all the same is held back here.
        is_vouched = self._is_person and ruling.rule == "origin"
        is_held = ruling.rule != "origin" and (
            self._is_person or ruling.rule.startswith("detector ")
        )
        proposed = proposal_body(
            statement,
            self._owner,
            "unchecked",
            (),
            (),
            by_person=is_vouched and not self._may_decide,
        )
        # the document has no id yet: its ground is the cause of the event
        drafts = [Draft(proposed, self.act._replace(origin="document", causes=(0,)))]
        self._count = max(self._count, 1) + 1
        if self._may_decide or is_held:
            drafts.append(self._decision(self._vouched(ruling)))
        return drafts

    def gone_drafts(self, statements: Sequence[Statement]) -> list[Draft]:
        """Return the retractions of pieces that an earlier version of the document had."""
        if not self._may_decide:
            return []
        here = {text_digest(each.text) for each in statements}
        rows = self._store.rows(
            "memory", ITEM, {"source": self._source}, order="number", limit=_ALL
        )
        reason = "the document does not have it any more"
        return [
            Draft(
                MemoryRetracted(DOCUMENT, reason),
                Act(INGEST, "program", self.act.behalf, self.act.call, (Digest(str(row["id"])),)),
            )
            for row in rows
            if row["same"] not in here and self._viewer.may_see(row) and self._is_held(row)
        ]

    def _is_held(self, row: Row) -> bool:
        return self._viewer.standing(row).state in ("active", "quarantined", "proposed")

    def message_drafts(self, statement: Statement, event: Event) -> list[Draft]:
        """Return the drafts of a message, which cite its event."""
        if self._is_known(statement.text):
            return []
        piece = piece_of(self._store, event)
        body = proposal_body(statement, self._owner, piece.trust, (piece.ground,), ())
        origin = event.header.origin
        drafts = [Draft(body, self.act._replace(origin=origin, causes=(event.id,)))]
        self._count += 1
        if self._may_decide:
            text = statement.text
            was_retracted = were_retracted(self._viewer, text)
            proposal = Proposal(
                text, statement.kind, statement.scope, [piece], False, origin, was_retracted
            )
            ruling = decide(proposal, self._detectors)
            if self._is_person and piece.sort == "word" and ruling.rule == "unconfirmed":
                ruling = Ruling("active", DOCUMENT, "a person ingested it")
            drafts.append(self._decision(ruling))
        return drafts

    # ── a run that is taken up again ─────────────────────────────────────────────────────────

    def recorded_drafts(
        self, statements: Sequence[Statement], attached: Draft | None = None
    ) -> list[Draft] | None:
        """Return the drafts as they are on record: nothing is decided again. []: nothing was
        written then. None: nothing is recorded here.

        The rows have what this very run wrote, so they cannot tell what was new to it.
        """
        writer, here = writer_of(self._session.run), position_of(self._session)
        first = writer.recorded(here)
        if first is None or _is_failed_call(first):
            return None
        stated: dict[str, Statement] = {}
        for each in statements:
            stated.setdefault(secrets.hide_text(each.text), each)
        drafts: list[Draft] = []
        if attached is not None and first.kind == EvidenceAttached.__name__:
            drafts.append(attached)
        while (step := writer.recorded(here, len(drafts))) is not None:
            draft = self._recorded_draft(step, stated)
            if draft is None:
                break
            drafts.append(draft)
        return [] if drafts == [attached] else drafts  # it was attached for another source

    def _recorded_draft(self, step: Event, stated: Mapping[str, Statement]) -> Draft | None:
        """Return the draft of a recorded step. None: it is none of this ingest."""
        causes = step.header.causes
        act = self.act._replace(origin=step.header.origin, causes=causes)
        body = step.body
        if step.actor != INGEST:
            return None
        if isinstance(body, MemoryProposed):
            statement = stated.get(text_of(body.parts))
            if statement is None or not self._is_from_source(body):
                return None
            return Draft(
                proposal_body(statement, self._owner, body.trust, body.grounds, body.supersedes),
                act,
            )
        if step.kind in DECISION_KINDS and self._is_from_source(self._store.event(causes[0]).body):
            return Draft(body, act)
        return None

    def _is_from_source(self, body: Body) -> bool:
        return isinstance(body, MemoryProposed) and (body.source, body.scope, body.owner) == (
            self._source,
            self._scope,
            self._owner,
        )

    def _vouched(self, ruling: Ruling) -> Ruling:
        if self._is_person and ruling.rule == "origin":
            return Ruling("active", DOCUMENT, "a person ingested it")
        return ruling

    def _decision(self, ruling: Ruling) -> Draft:
        act = Act(INGEST, "program", self.act.behalf, self.act.call, (self._count - 1,))
        self._count += 1
        return Draft(ruling.body(), act)

    def _is_known(self, text: str) -> bool:
        """True if these words are there from this source: it is ingested again."""
        check_statement(Statement(text))
        same = text_digest(text)
        if same in self._seen:
            return True
        self._seen.add(same)
        return any(self._is_held(row) for row in rows_with(self._viewer, "same", same))


def _is_failed_call(step: Event) -> bool:
    """True if a step only says that a call failed: this ingest may have failed it."""
    body = step.body
    return isinstance(body, CallFinished) and body.failure is not None


# ── pieces ───────────────────────────────────────────────────────────────────────────────────


def pieces_of_text(text: str, size_max: int = PIECE_MAX) -> list[str]:
    """Divide a text at blank lines, then at ends of sentences, then at blanks, into pieces of at
    most so many characters. Pieces without words are left out.
    """
    pieces: list[str] = []
    held = ""
    for part in _parts_of(text, size_max):
        if held and len(held) + len(part) + 2 > size_max:
            pieces.append(held)
            held = part
        else:
            held = f"{held}\n\n{part}" if held else part
    pieces.append(held)
    return [piece for piece in pieces if words_of(piece)]


def pieces_of_document(text: str) -> list[str]:
    """Return the pieces in which a document is remembered."""
    return [part for piece in pieces_of_text(text) for part in _harmless_parts(piece)]


def _harmless_parts(piece: str) -> list[str]:
    """Return a piece, or its lines, if it reads like an instruction: one bad line must not hold
    back the others, and is not approved with them.
    """
    if instruction_in(piece) is None:
        return [piece]
    lines = [line.strip() for line in piece.splitlines()]
    return [line for line in lines if words_of(line)]


def _parts_of(text: str, size_max: int) -> Iterator[str]:
    for paragraph in text.replace("\r\n", "\n").split("\n\n"):
        paragraph = paragraph.strip()
        while len(paragraph) > size_max:
            cut = _cut_at(paragraph, size_max)
            yield paragraph[:cut].rstrip()
            paragraph = paragraph[cut:].lstrip()
        if paragraph:
            yield paragraph


def _cut_at(text: str, size_max: int) -> int:
    """Return where to cut: after a sentence, else at a blank, else at the limit."""
    for mark in (". ", "! ", "? ", ".\n", "\n", "。", " "):
        at = text.rfind(mark, size_max // 3, size_max)
        if at > 0:
            return at + len(mark.rstrip()) if mark.strip() else at
    return size_max


def read_document(path: Path) -> tuple[str, bytes]:
    """Return the text of a document, and its bytes. Raises InvalidValue if it is no text."""
    try:
        if not path.is_file():
            raise InvalidValue("path", f"{path.name} is no file", "pass the path of a text file")
        if path.stat().st_size > DOCUMENT_MAX:
            raise InvalidValue("path", f"{path.name} is over 16 MB", "divide it first")
        content = path.read_bytes()
    except OSError as error:
        raise InvalidValue("path", f"{path.name}: {error.strerror}", "pass a text file") from error
    try:
        return content.decode(), content
    except UnicodeDecodeError as error:
        raise InvalidValue("path", f"{path.name} is not UTF-8 text", "convert it") from error
