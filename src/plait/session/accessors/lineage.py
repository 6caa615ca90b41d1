"""The lineage of a session: the sessions before it, its family, and its links to other systems."""

from __future__ import annotations

from typing import Any

from plait.event import Event
from plait.event.kinds import Linked, SessionOpened
from plait.ids import Digest, Micros, parse_digest
from plait.session.about import events_about
from plait.session.accessors.view import SessionView
from plait.session.acting import Because
from plait.session.appending import append_to
from plait.session.arguments import check_key
from plait.session.events import path_events
from plait.session.graph import Graph, draw_graph
from plait.session.life import LIFE_KINDS, Life, life_after_event
from plait.session.origins import origins_of
from plait.session.ports import Position, note_read
from plait.session.provenance import influence
from plait.session.trace import Trace
from plait.session.value import S, value_at
from plait.session.views import Link, StatusChange


class SessionLineage(SessionView[S]):
    """The sessions that a session comes from, and the content that came from them."""

    __slots__ = ()

    @property
    def sessions(self) -> tuple[S, ...]:
        """The sessions from the root to here: each ancestor at the place it was forked."""
        kind = type(self._session)
        return tuple([value_at(kind, position) for position in self._core.lineage()])

    @property
    def parent(self) -> S | None:
        """The place it was forked from. None: it is a root."""
        line = self.sessions
        return line[-2] if len(line) > 1 else None

    @property
    def continues(self) -> S | None:
        """The session it succeeds, or was detached from."""
        core = self._core
        opened = next(core.store.read(core.position.id, 1, 1)).body
        place = opened.continues if isinstance(opened, SessionOpened) else None
        if place is None:
            return None
        before = Position(core.position.store, place.log, place.seq, place.head)
        return value_at(type(self._session), before)

    @property
    def label(self) -> str | None:
        """The name it was forked under."""
        return self._core.state.label

    @property
    def opened(self) -> Micros:
        """The time it was opened or forked, in microseconds since 1970, UTC."""
        return self._core.state.opened

    @property
    def statuses(self) -> tuple[StatusChange, ...]:
        """Every change of status in this branch, with its actor."""
        changes: list[StatusChange] = []
        life = Life()
        for event in self._core.own_events(LIFE_KINDS):
            life = life_after_event(life, event)
            if not changes or changes[-1].status != life.status:
                reason = getattr(event.body, "reason", "")
                changes.append(
                    StatusChange(
                        life.status, event.seq, event.header.time, event.header.actor, reason
                    )
                )
        return tuple(changes)

    @property
    def path(self) -> list[Event]:
        """Its events with rewinds followed: the events that its story is folded from."""
        core = self._core
        note_read(core.position)
        own = tuple(span for span in core.state.story.path if not span.via)
        return [event for _, event in path_events(core.store, own)]

    @property
    def origins(self) -> frozenset[str]:
        """The origins of its content, causes in other sessions included: with "web" in it, a
        prompt may show text of the web.
        """
        return origins_of(self._core.store, self._core.state.story.path)

    def graph(self) -> Graph:
        """The family of this session in the store as it is now: sessions, their events and the
        edges between them.
        """
        drawn = draw_graph(self._core.store, self._session.id)
        store = self._session.store
        for node in drawn.nodes:
            if node.type == "session":  # its nodes quote every one of them
                head = Digest(str(node.detail["head"]))
                note_read(Position(store, node.session, node.place, head), whole=True)
        return drawn

    def influence(self, about: Any, *, limit: int = 1000) -> Trace:
        """Trace the events that followed from `about`, in the store as it is now.

        `about` is as for `session.why`.
        """
        note_read(self._core.position, whole=True)
        events, question = events_about(self._session, about)
        return influence(self._core.store, events[0], question, limit)

    @property
    def links(self) -> list[Link]:
        """Every link on its path and those of merged branches."""
        core = self._core
        note_read(core.position)
        return [
            Link(body.system, body.ref, body.digest, body.note, event.log, event.seq)
            for event, body in core.path_bodies(Linked)
        ]

    def link(
        self,
        system: str,
        ref: str,
        *,
        digest: str | None = None,
        note: str = "",
        actor: str | None = None,
        because: Because = (),
    ) -> S:
        """Point to a record in another system's store: a trace, a row, an object, a URL."""
        body = Linked(
            check_key(system, "system"),
            check_key(ref, "ref", 4000),
            parse_digest(digest) if digest is not None else None,
            note,
        )
        return append_to(self._session, body, "take links", actor=actor, because=because)
