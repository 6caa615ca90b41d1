"""The state of a session, worked out the slow and obvious way: as sets and lists of whole
events.

Nothing here shares code or ideas with the folds: no stretches, no snapshots, no covers. A story is
the list of its events; a ledger is the set of everything that was ever counted; a write is
superseded by a write that knew it.
"""

from __future__ import annotations

from typing import Any

from plait.event import Event
from plait.event.kinds import (
    FactRecorded,
    FactRetracted,
    Merged,
    MessageSaid,
    ModelReplied,
    PendingAdded,
    PendingSettled,
    Rewound,
    ScratchSet,
    SessionClosed,
    SessionOpened,
)
from plait.ids import Digest, LogId
from plait.store import Store

Place = tuple[LogId, int]
Absent = object()


class Naive:
    """The naive reading of one store. Places never change, so answers are kept."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._stories: dict[Place, list[Event]] = {}
        self._ledgers: dict[Place, dict[Digest, Event]] = {}
        self._merges: list[Event] = []

    def story(self, log: LogId, place: int) -> list[Event]:
        """The events of the path in order, merged branches where they were merged,
        each event once.
        """
        if (log, place) not in self._stories:
            path: list[Event] = []
            for event in self.store.read(log, 1, place):
                body = event.body
                if isinstance(body, Rewound):
                    path = [*self.story(log, body.to), event]
                elif isinstance(body, SessionOpened) and body.detached and body.continues:
                    path = [*self.story(body.continues.log, body.continues.seq), event]
                elif isinstance(body, Merged):
                    path = [*path, event]
                    for branch in body.branches:
                        there = {each.id for each in path}
                        path += [
                            each
                            for each in self.story(branch.log, branch.seq)
                            if each.id not in there
                        ]
                else:
                    path = [*path, event]
            self._stories[log, place] = path
        return self._stories[log, place]

    def own_path(self, log: LogId, place: int) -> list[Event]:
        """The path without what was merged in."""
        path: list[Event] = []
        for event in self.store.read(log, 1, place):
            body = event.body
            if isinstance(body, Rewound):
                path = [*self.own_path(log, body.to), event]
            elif isinstance(body, SessionOpened) and body.detached and body.continues:
                path = [*self.own_path(body.continues.log, body.continues.seq), event]
            else:
                path = [*path, event]
        return path

    def ledger(self, log: LogId, place: int) -> dict[Digest, Event]:
        """Everything counted: the whole log, rewound parts too, and the ledgers of
        merged branches.
        """
        if (log, place) not in self._ledgers:
            found: dict[Digest, Event] = {}
            for event in self.store.read(log, 1, place):
                found[event.id] = event
                body = event.body
                if isinstance(body, Merged):
                    for branch in body.branches:
                        found.update(self.ledger(branch.log, branch.seq))
            self._ledgers[log, place] = found
        return self._ledgers[log, place]

    def tokens(self, log: LogId, place: int) -> int:
        return sum(
            body.usage.input_tokens
            for event in self.ledger(log, place).values()
            if isinstance(body := event.body, ModelReplied)
        )

    def messages(self, log: LogId, place: int) -> list[Digest]:
        return [
            event.id
            for event in self.story(log, place)
            if event.kind in ("MessageSaid", "ModelReplied")
        ]

    def said(self, log: LogId, place: int) -> list[str]:
        bodies = [event.body for event in self.story(log, place)]
        return [body.parts[0].text for body in bodies if isinstance(body, MessageSaid)]  # type: ignore[union-attr]

    # ── facts ────────────────────────────────────────────────────────────────────────────────

    def words(self, *places: Place) -> dict[str, set[str]]:
        """For each key, the values whose writes nobody in these stories knew and wrote over.

        More than one: a dispute.
        """
        events = {event.id: event for place in places for event in self.story(*place)}
        self._merges = [event for event in events.values() if event.kind == "Merged"]
        writes: dict[str, list[tuple[Event, Any]]] = {}
        for event in events.values():
            for key, value in _written(event):
                writes.setdefault(key, []).append((event, value))
        return {
            key: {repr(value) for event, value in made if not self._superseded(event, made)}
            for key, made in writes.items()
        }

    def _superseded(self, event: Event, writes: list[tuple[Event, Any]]) -> bool:
        """True if a later write replaced it, or replaced a write that had been found equal to it
        at a merge, without being equal too.
        """
        equal = self._equals(event, writes)
        return any(
            other.id not in equal
            and any(self._knew(other, each) for each, _ in writes if each.id in equal)
            for other, _ in writes
        )

    def _equals(self, event: Event, writes: list[tuple[Event, Any]]) -> set[Digest]:
        """The writes that stood beside this one, with the same value, when branches met: one of
        them stands for all.
        """
        equal = {event.id}
        values = {each.id: repr(value) for each, value in writes}
        for merge in self._merges:
            there = {each.id for each in self.story(merge.log, merge.seq)}
            made = [
                (each, value) for each, value in writes if each.id in there and each.id != merge.id
            ]
            standing = {
                each.id
                for each, _ in made
                if not any(self._knew(other, each) for other, _ in made if other.id != each.id)
            }
            same = {id for id in standing if values[id] == values[event.id]}
            if equal & same and len({values[id] for id in standing}) == 1:
                equal |= same
        return equal

    def _knew(self, writer: Event, written: Event) -> bool:
        """True if a write was made in sight of another: it was on the story right before, or came
        with the very merge.
        """
        story = (
            self.story(writer.log, writer.seq)
            if writer.kind == "Merged"
            else self.story(writer.log, writer.seq - 1)
        )
        return written.id in {each.id for each in story} and written.id != writer.id

    def facts(self, log: LogId, place: int) -> dict[str, str]:
        found: dict[str, str] = {}
        for key, values in self.words((log, place)).items():
            (value,) = values  # otherwise a dispute was let through
            if value != repr(Absent):
                found[key] = value
        return found

    def pending(self, log: LogId, place: int) -> set[str]:
        """Keys with an open word that nobody in the story knew and settled."""
        writes: dict[str, list[tuple[Event, bool]]] = {}
        self._merges = [event for event in self.story(log, place) if event.kind == "Merged"]
        for event in self.story(log, place):
            body = event.body
            if isinstance(body, (PendingAdded, PendingSettled)):
                writes.setdefault(body.key, []).append((event, isinstance(body, PendingAdded)))
        return {
            key
            for key, made in writes.items()
            if any(is_open and not self._superseded(event, made) for event, is_open in made)
        }

    def scratch(self, log: LogId, place: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for event in self.own_path(log, place):
            body = event.body
            if isinstance(body, ScratchSet):
                found.pop(body.key, None)
                if body.value is not None:
                    found[body.key] = body.value
            elif isinstance(body, SessionClosed):
                found = {}
        return found


def _written(event: Event) -> list[tuple[str, Any]]:
    body = event.body
    if isinstance(body, FactRecorded):
        return [(body.key, body.value)]
    if isinstance(body, FactRetracted):
        return [(body.key, Absent)]
    if isinstance(body, Merged):
        return [
            (key, Absent if choice.absent else choice.value)
            for key, choice in body.resolved.items()
        ]
    return []
