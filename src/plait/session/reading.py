"""What a session tells of itself: a place in a log, and everything that follows from it.

A value is a spot and a few memos of what was worked out for it. What it knows is folded from events
when asked for, from the nearest place whose state is known; that state is passed on from value to
value and shared, so a thousand branches cost little more than one. The verbs, which append, are in
`session.py`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, TypeVar

import msgspec

from plait.errors import (
    InvalidValue,
    NoStore,
    NoSuchFile,
    NotAFile,
    NotPlaced,
    OutsideWorkspace,
    PlaitError,
    UnknownKey,
)
from plait.event import Event, Json
from plait.event.kinds import (
    Budget,
    Data,
    EvidenceAttached,
    FactRecorded,
    FactRetracted,
    File,
    Image,
    Linked,
    Merged,
    MessageSaid,
    ModelReplied,
    Placement,
    PlacementChanged,
    QuestionAnswered,
    RunBranched,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunStarted,
    SessionOpened,
    Signalled,
    StateDigest,
    TimerFired,
    ToolFailed,
    ToolResolved,
    ToolReturned,
    Usage,
    ValidationRecorded,
)
from plait.ids import Digest, LogId, Micros, is_digest, short
from plait.session import revision
from plait.session.blame import Blame, Line, blame, path_in_tree
from plait.session.content import unpack, value_of
from plait.session.diff import Diff, compare
from plait.session.events import Events, along
from plait.session.files import first_tree
from plait.session.fold import SNAPSHOT_EVERY, advanced, keep_snapshot, state_at
from plait.session.gates import is_counted
from plait.session.grants import budget_left
from plait.session.graph import Graph, Trace, graph, influence, why
from plait.session.life import LIFE_KINDS, STATUSES, Life, Status, is_busy_after, live_on
from plait.session.listing import list_rows
from plait.session.origins import origins_of
from plait.session.ports import Position, host, note_read, store_at, writer_of
from plait.session.rows import run_of_branch
from plait.session.state import Cost, Gate, Pending, Spent, State, Stretch, state_digest
from plait.session.typed import name_of, to_type
from plait.session.views import (
    EFFECT_KINDS,
    Attachment,
    Change,
    Effect,
    Facts,
    Link,
    Message,
    Run,
    Validation,
    effects_of,
    message_of,
)
from plait.store import Durability, Store, ancestry, canonical, exists
from plait.workspace import Workspace
from plait.workspace.tree import TreeReader, shown

T = TypeVar("T")

_ENDS: dict[str, Literal["finished", "failed", "cancelled"]] = {
    RunFinished.__name__: "finished",
    RunFailed.__name__: "failed",
    RunCancelled.__name__: "cancelled",
}
_RUN_KINDS = frozenset({RunStarted.__name__, RunBranched.__name__, *_ENDS})

_RESULT_KINDS = frozenset(
    kind.__name__
    for kind in (ToolReturned, ToolResolved, ModelReplied, QuestionAnswered, Signalled, TimerFired)
)
_MESSAGE_KINDS = frozenset({MessageSaid.__name__, ModelReplied.__name__})
# What a verdict no longer speaks of, once it happened.
_MATERIAL = frozenset(
    kind.__name__
    for kind in (
        MessageSaid,
        ModelReplied,
        ToolReturned,
        ToolFailed,
        ToolResolved,
        FactRecorded,
        FactRetracted,
        Merged,
        PlacementChanged,
    )
)


_OPENINGS = frozenset({SessionOpened.__name__})


class Reading:
    """A place in a log, read only."""

    __slots__ = ("_busy", "_life", "_near", "_position", "_user")

    _position: Position
    # Memos of what follows from the spot, handed on from value to value and shared:
    _near: State | None  # the state here, or at an earlier place of this lineage
    _life: Life | None
    _user: str | None  # who acts unless somebody else is named
    _busy: bool | None  # whether a run is open at this place; None: not worked out yet

    # ── the value ────────────────────────────────────────────────────────────────────────────

    @property
    def position(self) -> Position:
        """All that it is: store address, id, place, head, run id."""
        return self._position

    @property
    def id(self) -> LogId:
        return self._position.id

    @property
    def short(self) -> str:
        """What people type: the start of the id's random tail."""
        return short(self._position.id)

    @property
    def seq(self) -> int:
        """The seq of its last event."""
        return self._position.seq

    @property
    def head(self) -> Digest:
        """The id of its last event."""
        return self._position.head

    @property
    def run(self) -> str | None:
        return self._position.run

    @property
    def store(self) -> str:
        """The address of its store."""
        return self._position.store

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reading) and self._position == other._position

    def __hash__(self) -> int:
        return hash(self._position)

    def __reduce__(self) -> tuple[Callable[[Position], Reading], tuple[Position]]:
        return type(self).of, (self._position,)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"a Session never changes: {name} cannot be set. Operations return the next value."
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Session never changes: {name} cannot be deleted.")

    def __repr__(self) -> str:
        try:
            state = self._state
        except Exception as error:  # a repr must not raise, least of all in a traceback
            return f"<Session {self.short}@{self.seq} ({type(error).__name__})>"
        about = " ".join(f"{text[:40]!r}" for text in (state.label, state.title) if text)
        return (
            f"<Session {self.short}@{self.seq}{' ' + about if about else ''} {state.life.status}>"
        )

    def __str__(self) -> str:
        """As it can be written again: `Session.open(str(s)) == s`, as long as its id is unique."""
        return f"{self.id}@{self.seq}"

    @classmethod
    def of(cls, spot: Position) -> Self:
        """The value at a spot, taken at its word: nothing is read."""
        session = object.__new__(cls)
        session._become(spot)
        return session

    def _become(
        self,
        spot: Position,
        near: State | None = None,
        life: Life | None = None,
        user: str | None = None,
        busy: bool | None = None,
    ) -> None:
        object.__setattr__(self, "_position", spot)
        object.__setattr__(self, "_near", near)
        object.__setattr__(self, "_life", life)
        object.__setattr__(self, "_user", user)
        object.__setattr__(self, "_busy", busy)

    # ── finding ──────────────────────────────────────────────────────────────────────────────

    @classmethod
    def open(cls, name: str, *, store: str | Path | Store | None = None) -> Self:
        """The session of this revision: an id or the start of either end of it, a label, `@`; then
        perhaps `@42` or `@-1`.
        """
        parsed, address = revision.parse(name), existing(store)
        there = store_at(address)
        log = there.log(revision.find(there, parsed.name))
        session = cls.of(Position(address, log.id, log.tip, log.head))
        return session if parsed.place is None else session.at(parsed.place)

    @classmethod
    def open_range(cls, name: str, *, store: str | Path | Store | None = None) -> tuple[Self, Self]:
        """Both ends of `A..B`."""
        left, right = revision.parse_range(name)
        return cls.open(left, store=store), cls.open(right, store=store)

    @classmethod
    def list(
        cls,
        *,
        status: Status | None = None,
        user: str | None = None,
        project: str | None = None,
        tag: Mapping[str, str] | None = None,
        label: str | None = None,
        parent: Reading | str | None = None,
        before: Reading | None = None,
        limit: int = 100,
        store: str | Path | Store | None = None,
    ) -> builtins.list[Self]:
        """A page of sessions as they are now, latest opened first; `before=` the last one gives the
        next page.
        """
        if status is not None and status not in STATUSES:
            raise InvalidValue(
                "status", f"{status!r} is not one", f"use one of {', '.join(STATUSES)}"
            )
        _check_filters(tag, before)
        address = existing(store)
        there = store_at(address)
        above = (
            parent.id
            if isinstance(parent, Reading)
            else cls.open(parent, store=store).id
            if parent is not None
            else None
        )
        where = {
            "status": status,
            "user": user,
            "project": project,
            "label": label,
            "parent": above,
        }
        found = list_rows(
            there,
            {name: value for name, value in where.items() if value is not None},
            tag,
            before.id if before else None,
            limit,
        )
        heads = there.heads([LogId(str(row["log"])) for row in found])
        return [
            cls.of(Position(address, log.id, log.tip, log.head))
            for row in found
            if (log := heads.get(LogId(str(row["log"]))))
        ]

    def reload(self) -> Self:
        """The same session as it is now."""
        now = writer_of(self.run).latest(self._position)
        return self if now.head == self.head else self._next(now, None)

    def at(self, place: int) -> Self:
        """The value whose last event is this one; -1 is one event before the last."""
        wanted = revision.place_in(self.id, place, self.seq)
        if wanted == self.seq:
            return self
        event = next(self._store.read(self.id, wanted, wanted))
        return self._next(Position(self.store, self.id, wanted, event.id, self.run), None)

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    @property
    def durability(self) -> Durability:
        """How its log is written: `full`, on disk at once; `async`, at the next boundary; `memory`,
        never.
        """
        return self._opening.durability or self._store.log(self.id).durability

    @property
    def status(self) -> Status:
        return self._living().status

    @property
    def status_history(self) -> tuple[Change, ...]:
        """Every change of status in this branch, with who made it."""
        changes: list[Change] = []
        life = Life()
        for event in self._own_events(LIFE_KINDS):
            life = live_on(life, event.kind)
            if not changes or changes[-1].status != life.status:
                reason = getattr(event.body, "reason", "")
                changes.append(
                    Change(life.status, event.seq, event.header.time, event.header.actor, reason)
                )
        return tuple(changes)

    # ── what it knows ────────────────────────────────────────────────────────────────────────

    @property
    def title(self) -> str:
        return self._state.title

    @property
    def user(self) -> str | None:
        return self._state.user

    @property
    def project(self) -> str | None:
        return self._state.project

    @property
    def tags(self) -> dict[str, str]:
        return {**self._state.tags}

    @property
    def opened(self) -> Micros:
        """When it was opened or forked, in microseconds since 1970, UTC."""
        return self._state.opened

    @property
    def label(self) -> str | None:
        """The name it was forked under."""
        return self._state.label

    @property
    def events(self) -> Events:
        """The whole log as seen from here, rewound parts included."""
        note_read(self._position, whole=True)
        return Events(self._position)

    @property
    def path(self) -> builtins.list[Event]:
        """Its events with rewinds followed: what the story is made of."""
        note_read(self._position)
        own = tuple(stretch for stretch in self._state.story.path if not stretch.via)
        return [event for _, event in along(self._store, own)]

    def walk(self, kinds: Collection[str] | None = None) -> Iterator[tuple[Stretch, Event]]:
        """Its path and those of merged branches, event by event, each with the
        stretch it came on.
        """
        return along(self._store, self._state.story.path, kinds)

    @property
    def origins(self) -> frozenset[str]:
        """Where its content comes from, causes in other sessions included: with "web" in it, a
        prompt may show text of the web.
        """
        return origins_of(self._store, self._state.story.path)

    @property
    def messages(self) -> builtins.list[Message]:
        """The transcript: its own path, and one named block per merged branch."""
        note_read(self._position)
        store = self._store
        found = (
            message_of(event, stretch, store.get_blob)
            for stretch, event in along(store, self._state.story.path, _MESSAGE_KINDS)
        )
        return [message for message in found if message is not None]

    @property
    def result(self) -> Any:
        """What the last tool returned, or an agent that returns a type: plain data, as recorded.

        None: nothing yet, or nothing.
        """
        note_read(self._position)
        return self._last_result()[1]

    def _last_result(self) -> tuple[Event | None, Any]:
        """The event that brought the last result, and that result."""
        store = self._store
        for _, event in along(store, self._state.story.path, _RESULT_KINDS, reverse=True):
            body = event.body
            if isinstance(body, QuestionAnswered):
                return event, body.answer
            if isinstance(body, TimerFired):
                if body.by == "time":
                    return event, None
                continue  # the signal it fired by stands before it
            if isinstance(body, Signalled):
                return event, body.value
            assert isinstance(body, (ToolReturned, ToolResolved, ModelReplied))
            if not isinstance(body, ModelReplied) or (
                not body.aside and any(isinstance(part, Data) for part in body.parts)
            ):
                return event, value_of(unpack(body.parts, store.get_blob))
        return None, None

    def _last_shown(self, value: Any) -> Event | None:
        """The event behind a value that is the last result, or the last text.

        None: it is neither.
        """
        if type(value) not in (str, bool, float, list, dict) or value in ("", [], {}):
            return None
        event, result = self._last_result()
        if type(result) is type(value) and result == value:
            return event
        if not isinstance(value, str):
            return None
        for stretch, event in along(
            self._store, self._state.story.path, _MESSAGE_KINDS, reverse=True
        ):
            if (message := message_of(event, stretch, self._store.get_blob)) is not None:
                return event if message.text == value else None
        return None

    def result_as(self, type_: Callable[..., T]) -> T:
        """The result as a type of the program's own."""
        try:
            return to_type(self.result, type_)
        except ValueError as error:
            raise InvalidValue(
                "result",
                f"it is not a {name_of(type_)}: {error}",
                "ask for the type it has, or look at session.result",
            ) from error

    @property
    def effects(self) -> builtins.list[Effect]:
        """Every tool call on its path and those of merged branches, with what came of it: the
        evidence.
        """
        note_read(self._position)
        return effects_of(
            along(self._store, self._state.story.path, EFFECT_KINDS), self._store.get_blob
        )

    @property
    def runs(self) -> builtins.list[Run]:
        """The runs that began on this very log, in their order, and how each of them stands."""
        found: dict[str, Run] = {}
        for event in self._own_events(_RUN_KINDS):
            body, id = event.body, event.header.run or event.id
            if isinstance(body, (RunStarted, RunBranched)):
                found[id] = Run(id, body.workflow, "open", "", event.seq, None)
            elif id in found:
                ended, why = _ENDS[event.kind], getattr(body, "reason", "")
                why = (
                    f"{body.failure.kind}: {body.failure.message}"
                    if isinstance(body, RunFailed)
                    else why
                )
                found[id] = msgspec.structs.replace(
                    found[id], status=ended, why=why, last=event.seq
                )
        return list(found.values())

    @property
    def delivered(self) -> int:
        """Up to which place of its inbox it has heard."""
        return self._state.delivered

    @property
    def open_run(self) -> str | None:
        """The run that began on this log and has not ended. None: there is none."""
        return self._state.run

    @property
    def text(self) -> str:
        """What was said last."""
        note_read(self._position)
        store = self._store
        for stretch, event in along(store, self._state.story.path, _MESSAGE_KINDS, reverse=True):
            if (message := message_of(event, stretch, store.get_blob)) is not None:
                return message.text
        return ""

    @property
    def facts(self) -> Facts:
        """Facts, decisions and findings by key; `.of(key)` says who recorded one, and where."""
        note_read(self._position)
        return Facts(self._state.story.facts)

    @property
    def decisions(self) -> Facts:
        return self.facts.only("decision")

    @property
    def findings(self) -> Facts:
        return self.facts.only("finding")

    @property
    def pending(self) -> dict[str, Pending]:
        """Open work by key."""
        note_read(self._position)
        return {key: each for key, each in self._state.story.pending.items() if not each.settled}

    @property
    def scratchpad(self) -> dict[str, Json]:
        """The working state."""
        note_read(self._position)
        return {key: msgspec.json.decode(text) for key, text in self._state.story.scratch.items()}

    @property
    def usage(self) -> Usage:
        """Tokens of every event counted here once: its own log, rewound parts too, and merged
        branches.
        """
        return self._state.spent.usage

    @property
    def spent(self) -> Spent:
        return self._state.spent

    @property
    def cost(self) -> Cost:
        """What asking models cost, in US dollars.

        `dollars` is None where no price is known; `unpriced` counts calls without one.
        """
        return self._state.spent.cost

    @property
    def budget(self) -> Budget | None:
        """What was granted. None: unlimited."""
        return self._state.budget

    @property
    def spent_of_budget(self) -> Spent:
        """What was spent since the budget was granted."""
        return self._state.spent - self._state.granted_at

    @property
    def left(self) -> Budget | None:
        """What the session's own log and its merges leave of the budget at this place. None:
        unlimited.

        A value cannot know of branches that were never merged: `left_now` counts them.
        """
        return self._state.left

    @property
    def left_now(self) -> Budget | None:
        """What may still be spent, in the store as it is now. None: unlimited.

        Branches that were never merged and sessions that follow this one count, as they do when
        something is spent.
        """
        return budget_left(self._store, self.id, self.seq, self._state.left)

    @property
    def placement(self) -> Placement | None:
        return self._state.story.placement

    @property
    def tree(self) -> Digest | None:
        tree = self._state.story.tree
        return tree.digest if tree else None

    @property
    def covers(self) -> dict[LogId, int]:
        """Every log whose events are counted here, with the last place that is."""
        return {**self._state.covers}

    @property
    def gates(self) -> dict[str, Gate]:
        """Verdicts that are required."""
        return {**self._state.gates}

    @property
    def validation(self) -> builtins.list[Validation]:
        """Every verdict on its path and those of merged branches."""
        note_read(self._position)
        gates = self._state.gates
        found = list[Validation]()
        for event, body in self._along(ValidationRecorded):
            counts = body.name not in gates or is_counted(gates[body.name].by, event)
            known = (body.name, body.passed, body.evidence, body.detail, body.tree)
            found.append(Validation(*known, event.log, event.seq, event.actor, counts))
        return found

    @property
    def evidence(self) -> builtins.list[Attachment]:
        """Everything attached on its path and those of merged branches."""
        note_read(self._position)
        store = self._store
        return [
            Attachment(body.name, unpack(body.parts, store.get_blob), event.log, event.seq)
            for event, body in self._along(EvidenceAttached)
        ]

    @property
    def links(self) -> builtins.list[Link]:
        note_read(self._position)
        return [
            Link(body.system, body.ref, body.digest, body.note, event.log, event.seq)
            for event, body in self._along(Linked)
        ]

    @property
    def lineage(self) -> tuple[Self, ...]:
        """From the root to here: each ancestor at the place it was forked."""
        found, place, head = list[Self](), self.seq, self.head
        for info in ancestry(self._store, self.id):
            if place > info.place:
                found.append(type(self).of(Position(self.store, info.id, place, head)))
                if info.parent is not None:
                    first = next(self._store.read(info.id, info.place + 1, info.place + 1))
                    place, head = info.place, first.header.parents[0]
        return tuple(reversed(found))

    @property
    def parent(self) -> Self | None:
        """The place it was forked from. None: it is a root."""
        line = self.lineage
        return line[-2] if len(line) > 1 else None

    @property
    def continues(self) -> Self | None:
        """The session it succeeds, or was detached from."""
        opened = next(self._store.read(self.id, 1, 1)).body
        place = opened.continues if isinstance(opened, SessionOpened) else None
        return (
            type(self).of(Position(self.store, place.log, place.seq, place.head)) if place else None
        )

    def blob(self, what: Digest | Image | File) -> bytes:
        """The bytes of an image, a file or a long text: by digest, or by the part itself."""
        if isinstance(what, File):
            whole = BytesIO()  # grows in place, where a list of pieces would be there a second time
            for piece in (what.blob, *what.rest):
                whole.write(self._store.get_blob(piece))
            return whole.getvalue()
        return self._store.get_blob(what.blob if isinstance(what, Image) else what)

    # ── questions ────────────────────────────────────────────────────────────────────────────

    def diff(self, other: Reading | None = None) -> Diff:
        """How this value and another differ; without another, what came since it began."""
        if other is not None and not isinstance(other, Reading):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
            raise InvalidValue(
                "other", f"a {type(other).__name__} is not a session", "open it first"
            )
        left, right = (self.at(1), self) if other is None else (self, other)
        note_read(left._position)
        note_read(right._position)
        began = first_tree(self._store, self._state) if other is None else None
        return compare(self._store, left._state, right._state, (left._title, right._title), began)

    def blame(self, path: str) -> Blame:
        """A file line by line, with the event that wrote each line."""
        note_read(self._position)
        return blame(self._store, self._state, self.short, path)

    @property
    def workspace(self) -> Workspace:
        """Its files as they were at this place, to look at."""
        note_read(self._position)
        tree = self.tree
        if tree is None:
            raise NotPlaced(self.short)
        return Workspace(self._store, tree)

    def why(self, about: Any, *, limit: int = 100, prompt: bool = False) -> Trace:
        """Where something comes from.

        `about` is an event or its place, a line of a file ("cart.py:6"), a fact, pending work, a
        verdict or evidence by name, an effect, a run, the last result, or a text that was said.
        `prompt` adds to each ask what the model was sent.
        """
        note_read(self._position, whole=True)
        events, question = self._events_about(about)
        path = self._state.story.path
        shown = partial(host("show a prompt").prompt, self) if prompt else None
        return why(self._store, path, self.id, events, question, limit, shown)

    def influence(self, about: Any, *, limit: int = 1000) -> Trace:
        """What became of something, in the store as it is now. `about` is as for `why`."""
        note_read(self._position, whole=True)
        events, question = self._events_about(about)
        return influence(self._store, events[0], question, limit)

    def graph(self) -> Graph:
        """The family of this session in the store as it is now: sessions, what they did, how it
        hangs together.
        """
        drawn = graph(self._store, self.id)
        for node in drawn.nodes:
            if node.type == "session":  # its nodes quote every one of them
                note_read(
                    Position(
                        self.store, node.session, node.place, Digest(str(node.detail["head"]))
                    ),
                    whole=True,
                )
        return drawn

    def verdict(self, name: str) -> tuple[bool, int] | None:
        """The last verdict of a name that counts: whether it passed, and where it was given.

        None: nobody gave one.
        """
        found, _ = self._judged(name)
        return (
            (found.body.passed, found.seq)
            if found is not None and isinstance(found.body, ValidationRecorded)
            else None
        )

    def _judged(self, name: str) -> tuple[Event | None, Event | None]:
        """The last verdict of a name that counts, and the last one of anybody else."""
        gate = self._state.gates.get(name)
        other: Event | None = None
        if name not in self._state.story.verdicts:
            return None, None
        for stretch, event in along(
            self._store, self._state.story.path, {ValidationRecorded.__name__}, reverse=True
        ):
            body = event.body
            if stretch.via or not isinstance(body, ValidationRecorded) or body.name != name:
                continue  # what was judged in a branch was judged before it was merged
            if gate is None or is_counted(gate.by, event):
                return event, other
            other = other or event
        return None, other

    @property
    def unmet(self) -> dict[str, str]:
        """The gates that would hold a merge or a close right now, and why."""
        tree = self._state.story.tree
        found: dict[str, str] = {}
        for name, gate in self._state.gates.items():
            verdict, other = self._judged(name)
            body = verdict.body if verdict is not None else None
            if verdict is None or not isinstance(body, ValidationRecorded):
                found[name] = "nobody gave a verdict"
                if other is not None:
                    found[name] = (
                        f"the verdict at {other.seq} is by {other.actor} and does not count: only"
                        f" that of {gate.by} does"
                    )
            elif not body.passed:
                found[name] = f"the verdict at {verdict.seq} is that it failed"
            elif body.tree != (tree.digest if tree else None):
                found[name] = f"the files have changed since the verdict at {verdict.seq}"
            elif (after := self._since(verdict.log, body.at or verdict.seq)) is not None:
                found[name] = f"event {after} came after the verdict at {verdict.seq}"
        return found

    def _since(self, log: LogId, seq: int) -> int | None:
        """The first thing on the path after an event that a verdict there does not speak of."""
        after = False
        for stretch in self._state.story.path:
            here = stretch.log == log and stretch.first <= seq <= stretch.last
            if (here or after) and not (stretch.via and not stretch.apart):
                first = seq + 1 if here else stretch.first
                for event in self._store.read(stretch.log, first, stretch.last, kinds=_MATERIAL):
                    return event.seq
            after = after or here
        return None

    # ── helpers ─────────────────────────────────────────────────────────────────────────────

    @property
    def _store(self) -> Store:
        return store_at(self._position.store)

    @property
    def _state(self) -> State:
        near = self._near
        if near is None or near.place != self.seq:
            near = state_at(self._store, self.id, self.seq, near=near)
            object.__setattr__(self, "_near", near)
        return near

    @property
    def _title(self) -> str:
        name = self._state.label or self._state.title
        return f"{name} {self.short}@{self.seq}" if name else f"{self.short}@{self.seq}"

    @property
    def _opening(self) -> SessionOpened:
        """What its lineage began with; a log that was not begun as a session says nothing."""
        first = next(self._store.read(self.id, 1, 1, kinds=_OPENINGS), None)
        opened = first.body if first is not None else None
        return opened if isinstance(opened, SessionOpened) else SessionOpened()

    def _living(self) -> Life:
        if self._life is None:
            object.__setattr__(self, "_life", self._state.life)
        assert self._life is not None
        return self._life

    def digest(self, ahead: int = 0) -> StateDigest:
        """The digest of its state, or of what that is after so many more events
        that fold nothing.
        """
        return state_digest(advanced(self._store, self._state, ahead))

    def keep_state(self, *, since: int) -> None:
        """Keep a snapshot if one is due between that place and this one.

        It is a cache: whatever goes wrong with it is nobody's concern.
        """
        if self.seq // SNAPSHOT_EVERY != since // SNAPSHOT_EVERY:
            with suppress(PlaitError):
                keep_snapshot(self._store, self._state, self.head)

    def later(self, spot: Position, *kinds: str) -> Self:
        """The value at a later spot of the same log, reached by events of these kinds: what is
        known of this one is handed on.
        """
        life, busy = self._life, self._busy if spot.run == self._position.run else None
        for kind in kinds:
            if kind in LIFE_KINDS:
                life = live_on(life, kind) if life is not None else None
                busy = is_busy_after(busy, kind)
        return self._next(spot, life, busy)

    def beyond(self, spot: Position) -> Self:
        """The value at a later spot of the same log, reached by events that nobody looked at."""
        return self._next(spot, None)

    def _next(self, spot: Position, life: Life | None, busy: bool | None = None) -> Self:
        """A value of the same lineage: earlier, later, or a branch from here."""
        near = self._near
        session = object.__new__(type(self))
        session._become(
            spot,
            near if near is not None and near.place <= spot.seq else None,
            life,
            self._user,
            busy,
        )
        return session

    def _is_busy(self) -> bool:
        """Whether a run is open at this place: one that began on this log, or one that this log is
        a branch of.
        """
        if self._busy is None:
            path = self._state.story.path
            # as most are, and a root is no branch of a run
            is_root = bool(path) and path[0].log == self.id
            busy = self._state.run is not None or (
                not is_root and run_of_branch(self._store, self.id) is not None
            )
            object.__setattr__(self, "_busy", busy)
        return bool(self._busy)

    def _own_events(self, kinds: frozenset[str]) -> Iterator[Event]:
        """Events of this branch alone; below the fork point, those of the ancestor that has this
        place.
        """
        log = self.lineage[-1].id
        return self._store.read(log, self._store.log(log).place + 1, self.seq, kinds=kinds)

    def _along(self, kind: type[Any]) -> builtins.list[tuple[Event, Any]]:
        return [
            (event, event.body)
            for _, event in along(self._store, self._state.story.path, {kind.__name__})
        ]

    def _events_about(self, about: Any, where: str = "about") -> tuple[list[Event], str]:
        store, state = self._store, self._state
        if isinstance(about, Event):
            return [about], f"event {about.seq} of {short(about.log)}"
        if isinstance(about, Message):
            return [store.event(about.id)], f"message {about.seq} of {short(about.log)}"
        if isinstance(about, Effect):
            return [
                about.outcome or about.request
            ], f"{about.tool}, event {about.request.seq} of {short(about.request.log)}"
        if isinstance(about, Reading):
            return [store.event(about.head)], f"event {about.seq} of {about.short}"
        if isinstance(about, (Attachment, Validation, Link, Line)):
            event = next(store.read(about.log, about.seq, about.seq))
            return [event], f"event {about.seq} of {short(about.log)}"
        if isinstance(about, Run):
            return [self._end_of_run(about, where)], f"run {about.workflow}, {about.status}"
        if isinstance(about, int) and not isinstance(about, bool):
            place = revision.place_in(self.id, about, self.seq)
            return [self.events[place - 1]], f"event {place} of {self.short}"
        found = self._named(about) if isinstance(about, str) else None
        if found is not None:
            return found
        if (
            not (isinstance(about, str) and is_digest(about))
            and (shown := self._last_shown(about)) is not None
        ):
            what = "the text" if shown.kind in _MESSAGE_KINDS else "the result"
            return [shown], f"{what} {about!r:.80}"
        if not isinstance(about, str):
            step = "pass an event, a run, a place, a key, a text or the last result"
            raise InvalidValue(where, f"a {type(about).__name__} cannot be traced", step)
        if (found := self._file_line(about)) is not None:
            return found
        if is_digest(about):
            return [store.event(Digest(about))], f"event {about[:12]}"
        for stretch, event in along(store, state.story.path, _MESSAGE_KINDS, reverse=True):
            message = message_of(event, stretch, store.get_blob)
            if about and message is not None and about in message.text:
                return [event], f"the text {about!r}"
        raise self._unknown(about)

    def _end_of_run(self, run: Run, where: str) -> Event:
        """The event that ended a run of this session; of one that is open, the
        event that began it.
        """
        seq = run.last or run.first
        event = Events(self._position)[seq - 1] if 1 <= seq <= self.seq else None
        if event is None or run.id not in (event.header.run, event.id):
            raise InvalidValue(
                where,
                f"run {run.id} is not one of session {self.short}",
                "pass an event of it, or its session",
            )
        return event

    def _unknown(self, about: str) -> PlaitError:
        """The error for a text that names nothing here: where it looks like a file, it says how
        files are named.
        """
        state = self._state
        what = "fact, pending work, verdict, evidence, result, file line or message"
        unknown = UnknownKey(self.short, what, about, tuple(state.story.facts))
        path, _, number = about.rpartition(":")
        is_line = bool(path) and number.isdecimal()
        path = path if is_line else about
        if (
            state.story.tree is None
            or not path
            or (not is_line and ("\n" in path or path.isspace()))
        ):
            return unknown
        reader, tree = TreeReader(self._store), state.story.tree.digest
        try:
            plain = path_in_tree(path)
        except OutsideWorkspace as error:
            return error if is_line else unknown
        found = reader.find(tree, plain)
        if found is not None and found.kind == "file":
            return InvalidValue(
                "about",
                f"a file needs path:line, and {about!r} has no line",
                f"name one, as in {plain}:1",
            )
        if found is not None:
            return NotAFile(path, f"a {found.kind}")
        if not is_line:
            return unknown
        files = [path for path, entry in islice(reader.walk(tree), 200) if entry.kind == "file"]
        return UnknownKey(self.short, "file", path, tuple(shown(path) for path in files[:11]))

    def _named(self, about: str) -> tuple[builtins.list[Event], str] | None:
        """The events behind a fact, pending work, a verdict or evidence of this name."""
        store, state = self._store, self._state
        if (fact := state.story.facts.get(about)) is not None:
            return (
                self._fact_events(about),
                (
                    f"{about} = {fact.json}"
                    if fact.json is not None
                    else f"{about}, which was retracted"
                ),
            )
        if (work := state.story.pending.get(about)) is not None:
            return [store.event(work.at.id)], f"pending: {work.what}"
        if (verdict := state.story.verdicts.get(about)) is not None:
            return [store.event(verdict.at.id)], f"verdict: {about}"
        kinds = {EvidenceAttached.__name__}
        for _, event in along(store, state.story.path, kinds, reverse=True):
            body = event.body
            if isinstance(body, EvidenceAttached) and body.name == about:
                return [event], f"evidence: {about}"
        return None

    def _file_line(self, about: str) -> tuple[builtins.list[Event], str] | None:
        """The event that wrote a line, as in cart.py:6. None: there is no such file."""
        path, _, number = about.rpartition(":")
        tree = self._state.story.tree
        if not path or not number.isdecimal() or tree is None:
            return None
        try:
            found = blame(self._store, self._state, self.short, path)
        except (NoSuchFile, NotAFile, OutsideWorkspace):
            return None  # it may be a text that was said
        if not 1 <= int(number) <= len(found):
            why = f"{path} has {len(found)} lines here"
            raise InvalidValue("about", f"{why}, so no line {number}", "name one that it has")
        line = found[int(number)]
        return [self._store.event(line.event)], f"{found.path}:{number}  {line.text.strip()}"

    def _fact_events(self, key: str) -> builtins.list[Event]:
        """The event that gave a fact its value; if that was a choice at a merge, also what was
        chosen between.
        """
        event = self._store.event(self._state.story.facts[key].at.id)
        body, found = event.body, [event]
        if isinstance(body, Merged):
            for state in (
                state_at(self._store, event.log, event.seq - 1),
                *(state_at(self._store, place.log, place.seq) for place in body.branches),
            ):
                if (fact := state.story.facts.get(key)) is not None:
                    found.append(self._store.event(fact.at.id))
        return list(dict.fromkeys(found))  # the choice first, then what it was between


def existing(store: str | Path | Store | None) -> str:
    """The address of a store that is there: looking for something does not make one."""
    address = address_of(store)
    if not exists(address):
        raise NoStore(address)
    return address


def _check_filters(tag: object, before: object) -> None:
    if tag is not None and not isinstance(tag, Mapping):
        raise InvalidValue("tag", f"{tag!r} is not a mapping", 'pass {"team": "web"}')
    if before is not None and not isinstance(before, Reading):
        raise InvalidValue(
            "before", f"{before!r} is not a session", "pass the last session of the page before"
        )


def address_of(store: str | Path | Store | None) -> str:
    if store is None:
        return writer_of(None).address()
    if isinstance(store, (str, Path)):
        return canonical(str(store))
    return store.address
