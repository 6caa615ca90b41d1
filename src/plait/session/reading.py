"""A session's readers: everything that can be asked of a value, folded from its events.

The verbs, which append, are in `session.py`; subjects with readers and verbs of their own are in
`accessors/`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from plait.errors import InvalidValue, PlaitError
from plait.event import Json
from plait.event.kinds import (
    EvidenceAttached,
    RunBranched,
    RunFailed,
    RunResumed,
    RunStarted,
)
from plait.session.about import MESSAGE_KINDS, events_about, last_message, last_result
from plait.session.accessors import (
    SessionBudget,
    SessionChecks,
    SessionFiles,
    SessionInbox,
    SessionLineage,
)
from plait.session.content import unpack
from plait.session.diff import Diff, compare
from plait.session.effect_rows import EffectRows
from plait.session.events import Events, path_events
from plait.session.files import first_tree
from plait.session.finding import list_values, open_value
from plait.session.life import OPEN_RUN_STATUSES, RUN_STATUS, Status
from plait.session.ports import host, note_read
from plait.session.provenance import why
from plait.session.state import Pending
from plait.session.status import status_at
from plait.session.trace import Trace
from plait.session.transcript import end_text, transcript_text
from plait.session.typed import name_of, to_type
from plait.session.value import SessionValue, core_of, reload, value_at_seq
from plait.session.views import (
    Attachment,
    Effects,
    Facts,
    Message,
    RunView,
    effects_of,
    message_of,
)
from plait.store import Store

T = TypeVar("T")

_RUN_KINDS = frozenset(
    {RunStarted.__name__, RunBranched.__name__, RunResumed.__name__, *RUN_STATUS}
)


class Reading(SessionValue):
    """A place in a log, read only."""

    __slots__ = ()

    # ── finding ──────────────────────────────────────────────────────────────────────────────

    @classmethod
    def open(cls, name: str, *, store: str | Path | Store | None = None) -> Self:
        """Open the session of a revision: an id or the start of either end of it, a label, `@`;
        then perhaps `@42` or `@-1`.
        """
        return open_value(cls, name, store)

    @classmethod
    def list(
        cls,
        *,
        status: Status | None = None,
        user: str | None = None,
        project: str | None = None,
        tag: Mapping[str, str] | None = None,
        label: str | None = None,
        parent: SessionValue | str | None = None,
        before: SessionValue | None = None,
        limit: int = 100,
        store: str | Path | Store | None = None,
    ) -> builtins.list[Self]:
        """A page of sessions as they are now, latest opened first; `before=` the last one gives the
        next page.
        """
        return list_values(
            cls,
            status=status,
            tag=tag,
            parent=parent,
            before=before,
            limit=limit,
            store=store,
            where={"user": user, "project": project, "label": label},
        )

    def reload(self) -> Self:
        """The same session as it is now."""
        return reload(self)

    def at(self, place: int) -> Self:
        """The value whose last event is this one; -1 is one event before the last."""
        return value_at_seq(self, place)

    # ── subjects of their own ────────────────────────────────────────────────────────────────

    @property
    def inbox(self) -> SessionInbox[Self]:
        """Messages and answers from outside of its run, and the asks that wait for them."""
        return SessionInbox(self)

    @property
    def budget(self) -> SessionBudget[Self]:
        """Its limits, the amounts used, and the amounts left."""
        return SessionBudget(self)

    @property
    def checks(self) -> SessionChecks[Self]:
        """Required verdicts, given verdicts, and gates that are not met."""
        return SessionChecks(self)

    @property
    def files(self) -> SessionFiles[Self]:
        """Its files as they were at this place, and where its tools run."""
        return SessionFiles(self)

    @property
    def lineage(self) -> SessionLineage[Self]:
        """The sessions before it, its family, and its links to other systems."""
        return SessionLineage(self)

    # ── content ──────────────────────────────────────────────────────────────────────────────

    @property
    def status(self) -> Status:
        """Its status: `open` (no run began on it), `running`, `interrupted` (its run is open, or a
        message waits for one, and no process attends to it), `waiting`, `paused`, `failed`,
        `cancelled`, `finished`, `closed` or `archived`.

        The latest value says how the session stands in the store now: locks tell running from
        interrupted, and a branch that was forked in a run has that run's status. An earlier
        value, and a value inside of its run, says what its own events say: there an open run is
        running.
        """
        return status_at(self._core)

    @property
    def title(self) -> str:
        return self._core.state.title

    @property
    def user(self) -> str | None:
        return self._core.state.user

    @property
    def project(self) -> str | None:
        return self._core.state.project

    @property
    def tags(self) -> dict[str, str]:
        return {**self._core.state.tags}

    @property
    def events(self) -> Events:
        """The whole log as seen from here, rewound parts included."""
        position = self._core.position
        note_read(position, whole=True)
        return Events(position)

    @property
    def messages(self) -> builtins.list[Message]:
        """The transcript: its own path, and one named block per merged branch."""
        note_read(self._core.position)
        store = self._core.store
        found = (
            message_of(event, span, store.get_blob)
            for span, event in path_events(store, self._core.state.story.path, MESSAGE_KINDS)
        )
        return [message for message in found if message is not None]

    def transcript(self) -> str:
        """Return the whole transcript as text, a paragraph for each message."""
        return transcript_text(self.messages)

    def __str__(self) -> str:
        """The end of the transcript, below a line that names the session: for `print(session)`."""
        try:
            return "\n".join([repr(self), end_text(self.messages)])
        except PlaitError:  # as for a repr: it must not raise
            return repr(self)

    @property
    def text(self) -> str:
        """The text of the last message."""
        note_read(self._core.position)
        message = last_message(self)
        return message.text if message is not None else ""

    @property
    def result(self) -> Any:
        """The value that the last tool returned, or an agent that returns a type: plain data, as
        recorded.

        None: no result yet, or the result is None.
        """
        note_read(self._core.position)
        return last_result(self)[1]

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
    def effects(self) -> Effects:
        """Every tool call on its path and those of merged branches, with its outcome: the
        evidence. `effects.where(tool="shell", path="src/", outcome="failed")` chooses some.
        """
        core = self._core
        note_read(core.position)
        events = path_events(core.store, core.state.story.path, EffectRows.kinds)
        return Effects(
            effects_of(events, core.store.get_blob),
            lambda: core.store.event(core.position.head).time,
        )

    @property
    def runs(self) -> builtins.list[RunView]:
        """The runs that began on this very log, in their order, and the status of each.

        An open one is running, waiting, paused or interrupted, as `status` is.
        """
        found: dict[str, RunView] = {}
        for event in self._core.own_events(_RUN_KINDS):
            body, id = event.body, event.header.run or event.id
            if isinstance(body, (RunStarted, RunBranched)):
                found[id] = RunView(id, body.workflow, "running", "", event.seq, None)
            elif isinstance(body, RunResumed):
                if id in found and not body.branch:
                    found[id] = msgspec.structs.replace(
                        found[id], status="running", why="", last=None
                    )
            elif id in found:
                ended, why = RUN_STATUS[event.kind], getattr(body, "reason", "")
                why = (
                    f"{body.failure.kind}: {body.failure.message}"
                    if isinstance(body, RunFailed)
                    else why
                )
                found[id] = msgspec.structs.replace(
                    found[id], status=ended, why=why, last=event.seq
                )
        runs = list(found.values())
        if runs and runs[-1].last is None:
            status = self.status
            # a session that was closed or archived has left its run behind
            left = status if status in OPEN_RUN_STATUSES else "interrupted"
            runs[-1] = msgspec.structs.replace(runs[-1], status=left)
        return runs

    @property
    def facts(self) -> Facts:
        """Facts, decisions and findings by key; `.of(key)` shows the event that recorded one."""
        note_read(self._core.position)
        return Facts(self._core.state.story.facts)

    @property
    def pending(self) -> dict[str, Pending]:
        """Open work by key."""
        note_read(self._core.position)
        pending = self._core.state.story.pending
        return {key: each for key, each in pending.items() if not each.settled}

    @property
    def scratchpad(self) -> dict[str, Json]:
        """The working state."""
        note_read(self._core.position)
        scratch = self._core.state.story.scratch
        return {key: msgspec.json.decode(text) for key, text in scratch.items()}

    @property
    def evidence(self) -> builtins.list[Attachment]:
        """Everything attached on its path and those of merged branches."""
        core = self._core
        note_read(core.position)
        return [
            Attachment(body.name, unpack(body.parts, core.store.get_blob), event.log, event.seq)
            for event, body in core.path_bodies(EvidenceAttached)
        ]

    # ── questions ────────────────────────────────────────────────────────────────────────────

    def diff(self, other: Reading | None = None) -> Diff:
        """Compare this value with another; without another, with the session as it began."""
        if other is not None and not isinstance(other, Reading):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
            raise InvalidValue(
                "other", f"a {type(other).__name__} is not a session", "open it first"
            )
        core = self._core
        left = core if other is not None else core_of(self.at(1))
        right = core if other is None else core_of(other)
        note_read(left.position)
        note_read(right.position)
        began = first_tree(core.store, core.state) if other is None else None
        return compare(core.store, left.state, right.state, (left.title, right.title), began)

    def why(self, about: Any, *, limit: int = 100, prompt: bool = False) -> Trace:
        """Trace the events that something comes from.

        `about` is an event or its place, a line of a file ("cart.py:6"), a fact, pending work, a
        verdict or evidence by name, an effect, a run, the last result, or a text that was said.
        `prompt` adds to each ask the prompt that the model was sent.
        """
        core = self._core
        note_read(core.position, whole=True)
        events, question = events_about(self, about)
        shown = partial(host("show a prompt").prompt, self) if prompt else None
        path = core.state.story.path
        return why(core.store, path, self.id, events, question, limit, shown)
