"""Memory: statements that outlive a session, with their evidence, scope and history.

`Memory` is the face of this room. It holds settings and no state: memories are events of the
store, found through rows that follow from them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from plait.errors import InvalidValue, UnknownMemory
from plait.event import Event
from plait.event.kinds import MemoryKind, MemoryProposed, MemorySupported, Purpose, Scope
from plait.ids import Digest, Micros
from plait.memory import deciding
from plait.memory.arguments import (
    check_actor,
    check_count,
    check_flag,
    check_functions,
    check_has,
    check_labels,
    check_score_parts,
    check_session,
)
from plait.memory.index import Index, IndexFilling, IndexFinder, filling_after
from plait.memory.ingest import ingest_document, ingest_session
from plait.memory.items import Hit, MemoryItem, Named, find_row, item_of, latest_rows, store_of
from plait.memory.provenance import (
    Absence,
    Presence,
    Use,
    VisibleEvents,
    reason_absent,
    reason_present,
    uses_of,
)
from plait.memory.ranking import Part
from plait.memory.recall import (
    Finder,
    Question,
    StoreFinder,
    check_question,
    moment_of,
    recall,
    search,
    time_of,
)
from plait.memory.remember import Statement, remember
from plait.memory.rollback import RollbackPlan, plan_rollback
from plait.memory.rules import Detector
from plait.memory.scopes import Overseer, Viewer, check_scopes, owners_of, viewer_of
from plait.memory.standing import STATES
from plait.memory.tools import memory_tools
from plait.memory.vector_finder import VectorFinder, Vectors
from plait.memory.vectors import Embedder
from plait.session.acting import Because
from plait.session.arguments import value_text
from plait.session.finding import address_of
from plait.session.ports import BINDINGS, store_at
from plait.session.provenance import influence, why
from plait.session.trace import MayShow, Trace
from plait.session.value import S, SessionValue, core_of
from plait.store import Store
from plait.tool import Tool

_ALL = 2**31
_WIDENED = frozenset({MemoryProposed.__name__, MemorySupported.__name__})
_PAGE = 256  # rows that a list with a limit reads at once


class Memory:
    """`Memory()` is in the session's own store, and reads all that the session may see."""

    def __init__(
        self,
        *,
        store: str | Path | Store | None = None,  # of calls without a session; None: the default
        scopes: Collection[Scope] | None = None,  # of recalls; None: all that the session has
        agent: str = "",  # the owner at agent scope; "": the agent that has the session in hand
        workflow: str = "",
        k: int = 5,  # of recalls that name none
        tokens_max: int = 1000,  # that memories may take in a prompt
        detectors: Sequence[Detector] = (),  # stricter rules of the program's own
        parts: Mapping[str, Part] | None = None,  # further parts of a score, by name
        weights: Mapping[str, float] | None = None,
        index: Index | None = None,  # another index; None: the store's own
        embedder: Embedder | None = None,  # vectors beside the words; None: words alone
    ) -> None:
        check_has("index", index, "name", "put", "search", "forget")
        check_has("embedder", embedder, "id", "size", "embed", "embed_question")
        if index is not None and embedder is not None:
            raise InvalidValue("embedder", "the index has a ranking of its own", "pass one of them")
        if not isinstance(store, (str, Path)):
            check_has("store", store, "address")
        check_labels(agent=agent, workflow=workflow)
        check_count("k", k)
        check_count("tokens_max", tokens_max)
        check_functions("detectors", detectors)
        check_score_parts(parts, weights)
        self._store, self.scopes = store, check_scopes(scopes)
        self.agent, self.workflow, self.k, self.tokens_max = agent, workflow, k, tokens_max
        self._detectors = tuple(detectors)
        self.index = index
        self._filling = None if index is None else IndexFilling(index)
        self._vectors = None if embedder is None else Vectors(embedder)
        self._parts, self._weights = parts, weights

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def remember(
        self,
        session: S,
        text: str,
        *,
        scope: Scope = "session",
        evidence: Because = (),
        kind: MemoryKind = "fact",
        key: str = "",
        supersedes: Named | Sequence[Named] = (),
        speaker: str = "",
        source: str = "",
        importance: int | None = None,
        valid_from: Micros | None = None,
        valid_until: Micros | None = None,
        expires: Micros | None = None,
        review_by: Micros | None = None,
        actor: str | None = None,
        origin: str | None = None,
    ) -> S:
        """Propose a memory; the rules decide at once, or when the branch or the run arrives.

        `evidence`: sessions, events, messages, positions, as `because=` takes them elsewhere.
        """
        check_session(session)
        check_labels(key=key, speaker=speaker, source=source)
        check_actor(actor)
        statement = Statement(
            text,
            scope,
            kind,
            key,
            speaker,
            source,
            importance,
            valid_from,
            valid_until,
            expires,
            review_by,
        )
        with filling_after(self._filling, session):
            return remember(
                session,
                statement,
                evidence,
                self.names_of(session),
                supersedes=self._ids(session, supersedes),
                detectors=self._detectors,
                actor=actor,
                origin=origin,
            )

    def widen(self, session: S, memory: Named, scope: Scope, *, actor: str | None = None) -> S:
        """Propose an active memory again for a wider scope, where the rules decide anew."""
        check_session(session)
        viewer = self._viewer(session)
        row = find_row(viewer.store, memory, viewer)
        event = core_of(session).store.event(Digest(str(row["id"])))
        body = event.body
        assert isinstance(body, MemoryProposed)
        if scope == body.scope:
            raise InvalidValue("scope", f"it has the scope {scope} already", "name a wider one")
        state = viewer.standing(row).state
        if state != "active" and not deciding.is_recorded_next(session, _WIDENED, event.id):
            raise InvalidValue("memory", f"{event.id[:8]} is {state}", "widen an active one")
        return self.remember(
            session,
            str(row["text"]),
            scope=scope,
            evidence=event,
            supersedes=event,
            kind=body.kind,
            key=body.key,
            speaker=body.speaker,
            valid_from=body.valid_from,
            valid_until=body.valid_until,
            expires=body.expires,
            review_by=body.review_by,
            actor=actor,
        )

    def ingest(
        self,
        session: S,
        source: str | PathLike[str] | SessionValue,
        *,
        scope: Scope = "session",
        kind: Literal["resource", "skill", "message"] | None = None,
        actor: str | None = None,
    ) -> S:
        """Remember a document in pieces, or the messages of another session, each citing its
        source.
        """
        check_session(session)
        check_actor(actor)
        if not isinstance(source, (str, PathLike, SessionValue)):  # pyright: ignore[reportUnnecessaryIsInstance]
            why = f"{value_text(source)} is no document"
            raise InvalidValue("source", why, "pass the path of a text file, or a session")
        names = self.names_of(session)
        with filling_after(self._filling, session):
            if isinstance(source, SessionValue):
                return ingest_session(session, source, scope, names, self._detectors, actor)
            return ingest_document(
                session,
                Path(source),
                scope,
                "resource" if kind is None else kind,
                names,
                self._detectors,
                actor,
            )

    def forget(
        self,
        memory: Named,
        *,
        session: S | None = None,
        reason: str = "",
        actor: str | None = None,
    ) -> S | MemoryItem:
        """Take one memory back: as an act of a session, or of a person, in the house log."""
        check_labels(reason=reason)
        check_actor(actor)
        if session is None:
            store = self._store_for(memory)
            with filling_after(self._filling, store):
                return deciding.forget(store, memory, reason=reason, actor=actor)
        check_session(session)
        viewer = self._viewer(session)
        row = find_row(viewer.store, memory, viewer)
        with filling_after(self._filling, session):
            return deciding.forget_in(session, row, viewer, reason, actor)

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def recall(
        self,
        session: S,
        query: str,
        *,
        k: int | None = None,
        scopes: Collection[Scope] | None = None,
        as_of: SessionValue | int | None = None,
        valid_at: Micros | None = None,
        purpose: Purpose | None = None,
        workflow: str = "",
        agent: str = "",
        shown: bool = False,
        actor: str | None = None,
    ) -> tuple[S, list[Hit]]:
        """Search, on record; return the next value and the hits, best first.

        `as_of` answers as of an earlier value, or a commit number; `valid_at` asks for what was
        true at a time. `shown` puts the hits into the prompt of the agent that asks.
        """
        check_session(session)
        check_labels(workflow=workflow, agent=agent)
        check_flag("shown", shown)
        check_actor(actor)
        question = Question(
            query,
            self.k if k is None else k,
            check_scopes(scopes) or self.scopes,
            purpose,
            workflow,
            valid_at,
            shown,
            self.tokens_max,
        )
        at, number = moment_of(session, as_of)
        names = owners_of(session, agent or self.agent, self.workflow)
        # another index holds what is active now: the past is looked up in the store
        finder = self.finder() if number is None else self._store_finder()
        return recall(session, question, names, finder, at=at, number=number, actor=actor)

    def search(
        self,
        query: str,
        *,
        session: SessionValue | None = None,
        as_of: SessionValue | int | None = None,
        k: int | None = None,
        valid_at: Micros | None = None,
    ) -> list[tuple[MemoryItem, float]]:
        """Look without leaving a record: as a session sees it, or, without one, all of the store.

        It is for people. A program that acts on the result should `recall`.
        """
        question = Question(query, self.k if k is None else k, valid_at=valid_at)
        check_question(question)
        if session is not None:
            check_session(session)
        reader = as_of if session is None and isinstance(as_of, SessionValue) else session
        store = core_of(reader).store if reader is not None else self._own_store()
        at, number = moment_of(reader if reader is not None else store, as_of)
        viewer = (
            Overseer(store, number)
            if reader is None
            else viewer_of(reader, self.names_of(reader), at=at, number=number)
        )
        now = time_of(reader if reader is not None else store, at, number)
        is_now = reader is not None and number is None
        finder = self.finder() if is_now else self._store_finder()
        found = search(store, query, viewer, finder, now, valid_at, question.k)
        return [
            (item_of(store, dict(each.row), viewer), each.score)
            for each in found.ranked[: question.k]
        ]

    def get(self, memory: Named, *, session: SessionValue | None = None) -> MemoryItem:
        """Return one memory, by its id or the first digits of it."""
        store, viewer = self._reader(memory, session)
        return item_of(store, find_row(store, memory, viewer), viewer)

    def items(
        self,
        session: SessionValue | None = None,
        *,
        state: str | None = "active",
        limit: int = _ALL,
    ) -> list[MemoryItem]:
        """Return memories, latest first: those a session may see, or, without one, all."""
        check_count("limit", limit)
        if state is not None and state not in STATES:
            raise InvalidValue(
                "state",
                f"{value_text(state)} is not one",
                f"use one of {', '.join(STATES)}, or None for all",
            )
        store, viewer = self._reader(None, session)
        found: list[MemoryItem] = []
        for row in latest_rows(store, _PAGE if limit < _ALL else _ALL):
            if not viewer.may_see(row):
                continue
            item = item_of(store, row, viewer)
            if state is None or item.state == state:
                found.append(item)
            if len(found) >= limit:
                break
        return found

    # ── provenance ───────────────────────────────────────────────────────────────────────────

    def why(self, memory: Named, *, session: SessionValue | None = None, limit: int = 100) -> Trace:
        """Walk back from a memory to its evidence, and to all that this rests on."""
        store, event, may_show = self._event(memory, session)
        events, about = [event], f"memory {event.id[:8]}"
        return why(store, (), event.log, events, about, limit, is_far=False, may_show=may_show)

    def influence(
        self, memory: Named, *, session: SessionValue | None = None, limit: int = 200
    ) -> Trace:
        """Walk forward from a memory: to decisions, recalls, replies, acts and further memories."""
        store, event, may_show = self._event(memory, session)
        return influence(store, event, f"memory {event.id[:8]}", limit, may_show=may_show)

    def why_present(self, session: SessionValue, memory: Named) -> Presence:
        """Tell by which recalls, rules and evidence a memory was in a session."""
        check_session(session)
        return reason_present(session, memory, self._viewer(session))

    def why_not(self, session: SessionValue, query: str, memory: Named) -> Absence:
        """Tell why a memory is not among the hits of a query, as the store is now."""
        check_session(session)
        names = self.names_of(session)
        return reason_absent(session, query, memory, names, self.finder(), self.k)

    def used(self, session: SessionValue) -> list[Use]:
        """Return the memories that a session has recalled, and those that were taken back since."""
        check_session(session)
        return uses_of(session)

    def ablate(self, session: SessionValue, memory: Named, **how: Any) -> Any:
        """Run a session's program again without a memory, in a branch, and tell the difference."""
        check_session(session)
        if BINDINGS.ablation is None:
            raise InvalidValue("ablate", "nothing is bound that can run it", "import plait")
        return BINDINGS.ablation(self, session, memory, **how)

    # ── control ──────────────────────────────────────────────────────────────────────────────

    def pending(self, session: SessionValue | None = None) -> list[tuple[MemoryItem, str]]:
        """Return the memories that wait for a person, each with the reason."""
        store, viewer = self._reader(None, session)
        return deciding.pending(store, viewer)

    def approve(self, memory: Named, *, reason: str = "", actor: str | None = None) -> MemoryItem:
        """Have a person commit a memory that waits. Its writer may not."""
        check_labels(reason=reason)
        store = self._store_for(memory)
        with filling_after(self._filling, store):
            return deciding.approve(store, memory, reason=reason, actor=actor)

    def reject(self, memory: Named, *, reason: str = "", actor: str | None = None) -> MemoryItem:
        """Have a person reject a memory that waits, for good."""
        check_labels(reason=reason)
        store = self._store_for(memory)
        with filling_after(self._filling, store):
            return deciding.reject(store, memory, reason=reason, actor=actor)

    def rollback(
        self,
        memory: Named | None = None,
        *,
        session: SessionValue | None = None,
        source: str | None = None,
        author: str | None = None,
        undo: Event | str | None = None,
    ) -> RollbackPlan:
        """Plan to take back a memory, all of a session, a document or an author, or to undo an
        earlier rollback. Nothing happens before `plan.apply(reason=…)`.
        """
        if session is not None:
            check_session(session)
        store = core_of(session).store if session is not None else self._store_for(memory)
        return plan_rollback(
            store, memory=memory, session=session, source=source, author=author, undo=undo
        )

    def rebuild(self) -> None:
        """Fold the rows of memories again from the events, and fill another index again."""
        store = self._own_store()
        store.rebuild("memory")
        if self._vectors is not None:
            self._vectors.clear(store)
        if self._filling is not None:
            self._filling.refill(store)

    @property
    def tools(self) -> list[Tool[..., Any]]:
        """Its tools for an agent: remember, recall and forget."""
        return memory_tools(self)

    # ── parts ────────────────────────────────────────────────────────────────────────────────

    def finder(self) -> Finder:
        """Return the way in which this memory finds candidates."""
        if self._filling is not None:
            return IndexFinder(self._filling, self._parts, self._weights)
        return self._store_finder()

    def _store_finder(self) -> Finder:
        """Return the way that needs no other index, and knows the past, too."""
        if self._vectors is not None:
            return VectorFinder(self._vectors, self._parts, self._weights)
        return StoreFinder(self._parts, self._weights)

    def names_of(self, session: SessionValue) -> dict[Scope, str]:
        """Return the owners that a session has, by scope."""
        return owners_of(session, self.agent, self.workflow)

    def _viewer(self, session: SessionValue) -> Viewer:
        return viewer_of(session, self.names_of(session))

    def _reader(self, memory: Named | None, session: SessionValue | None) -> tuple[Store, Viewer]:
        if session is not None:
            check_session(session)
            viewer = self._viewer(session)
            return viewer.store, viewer
        store = self._store_for(memory)
        return store, Overseer(store)

    def _event(
        self, memory: Named, session: SessionValue | None
    ) -> tuple[Store, Event, MayShow | None]:
        """Return the event of a memory, and the events around it that the reader may see."""
        store, viewer = self._reader(memory, session)
        event = store.event(Digest(str(find_row(store, memory, viewer)["id"])))
        return store, event, None if session is None else VisibleEvents(session, viewer).has

    def _ids(self, session: SessionValue, named: Named | Sequence[Named]) -> list[Digest]:
        every = [named] if isinstance(named, (str, MemoryItem, Hit, Event)) else named
        if not every:
            return []
        if not isinstance(every, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UnknownMemory(value_text(every))
        viewer = self._viewer(session)
        return [Digest(str(find_row(viewer.store, each, viewer)["id"])) for each in every]

    def _store_for(self, memory: Named | None) -> Store:
        found = store_of(memory, None) if memory is not None else None
        return found if found is not None else self._own_store()

    def _own_store(self) -> Store:
        return store_at(address_of(self._store))
