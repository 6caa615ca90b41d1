"""The ports of a session: declared here, and bound by the composition root.

A session is plain data: a `Position`. Every append goes through the `Writer`, found by the run id
in the position (a registry, not a context variable: threads of a run must find it too). Outside a
run the writer seals and appends; a run registers one of its own, which consults the recording
first. Tools and files go through the `Host`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from plait.errors import NoHost
from plait.event import Body, Event, Json
from plait.event.kinds import Place, ValidationRecorded
from plait.ids import Digest, LogId
from plait.store import Store


class Position(msgspec.Struct, frozen=True):
    """A place in a log: all that a session is."""

    store: str  # the store's address
    id: LogId
    seq: int  # the seq of its last event
    head: Digest  # the id of that event
    run: str | None = None  # the run that this is a value of; None: outside of any


class Act(NamedTuple):
    """The actor of an event, its origin, and its causes."""

    actor: str
    origin: str = "program"
    behalf: str | None = None
    call: str | None = None
    # a number is a draft of the same append, counted from 0: it has no id yet
    causes: tuple[Digest | int, ...] = ()


class Draft(NamedTuple):
    """An event that is yet to be sealed."""

    body: Body
    act: Act


class Post(NamedTuple):
    """A part of one act over several logs that have many writers."""

    log: LogId | None  # to the inbox of this log; None: to the house log
    drafts: Sequence[Draft]


class Condition(NamedTuple):
    """A condition of an append, checked anew after events of these kinds, in the log and in its
    inbox.
    """

    check: Callable[[], object]  # raises if it does not hold
    kinds: frozenset[str]


class Writer(Protocol):
    """Appends a session's events. On return they are as durable as the store promises."""

    def store(self, address: str, /) -> Store:
        """Return the open store at this address, made if need be."""
        ...

    def address(self) -> str:
        """Return the address of the default store."""
        ...

    def principal(self, log: LogId | None = None) -> str:
        """Return the actor where the caller names none: a person, or in a run the workflow that
        has this log in hand.
        """
        ...

    def acting(self, store: str, position: Position | None = None) -> Act:
        """Return the act of a value of this writer where the caller names no actor. An empty actor
        or origin is for the caller to fill in.

        The causes are the places whose content the program read elsewhere before it wrote this.
        """
        ...

    def begin(
        self,
        address: str,
        drafts: Sequence[Draft],
        *,
        fork: Place | None = None,
        blobs: Mapping[Digest, bytes] | None = None,
        run: str | None = None,
    ) -> Position:
        """Begin a session with these events; with `fork`, as a branch from that place; by a value
        of this run.
        """
        ...

    def judges(self, log: LogId, store: str) -> tuple[str, ...]:
        """Return the names under which code of a run gives verdicts on this log: its principal,
        path and classes; (): it is no code of a run.
        """
        ...

    def path_of(self, log: LogId, workflow: object) -> str | None:
        """Return the path that this very workflow has in the run that has the log in hand.

        None: it has none there.
        """
        ...

    def has_in_hand(self, position: Position) -> bool:
        """Return True if the code that executes may append after this position.

        In a run another thread may not: it writes from outside.
        """
        ...

    def has_calls(self, log: LogId) -> bool:
        """Return True if a call of a run that was made on this very log has not ended."""
        ...

    def is_current(self, position: Position) -> bool:
        """Return True if the next append may come after this position."""
        ...

    def latest(self, position: Position) -> Position:
        """Return the end of the position's log as it is now; in a resumed run, as the run saw it
        then.
        """
        ...

    def recorded(self, position: Position, ahead: int = 0) -> Event | None:
        """Return the recorded step that comes after this position, or the one so many further: the
        next append has to be the same. None: it is written, not compared.
        """
        ...

    def withheld(self, position: Position) -> frozenset[Digest]:
        """Return the memories that a search for this value must not return: a run without them is
        tried out.
        """
        ...

    def append(
        self,
        position: Position,
        drafts: Sequence[Draft],
        *,
        merges: tuple[Digest, ...] = (),
        blobs: Mapping[Digest, bytes] | None = None,
        condition: Condition | None = None,
    ) -> Position:
        """Append after exactly this position, or raise StaleHead.

        `merges` are further parents of the first event. `condition` holds at the commit; in a run
        it is not checked, since a replay may find other events.
        """
        ...

    def post(
        self,
        address: str,
        log: LogId,
        drafts: Sequence[Draft],
        *,
        blobs: Mapping[Digest, bytes] | None = None,
        check: Callable[[Sequence[Event]], object] | None = None,
        run: str | None = None,
    ) -> list[Event]:
        """Append to the inbox of a log, which other writers may do at the same time, and return the
        events as they were written.

        `check` is called with the events as they would be written, and anew after each write of
        another that came first: the inbox then holds all that stands before them. If it raises,
        nothing is written. `run` is the run that writes, if one does.
        """
        ...

    def post_to_house(
        self,
        address: str,
        drafts: Sequence[Draft],
        *,
        blobs: Mapping[Digest, bytes] | None = None,
        check: Callable[[Sequence[Event]], object] | None = None,
    ) -> list[Event]:
        """Append to the house log of a store, which other writers may do at the same time, as
        `post` does to an inbox.

        Raises MayNotApprove in code of a run: it does not act for the house.
        """
        ...

    def post_all(
        self,
        address: str,
        posts: Sequence[Post],
        *,
        blobs: Mapping[Digest, bytes] | None = None,
        check: Callable[[Sequence[Event]], object] | None = None,
        kinds: frozenset[str] = frozenset(),
    ) -> list[Event]:
        """Append to the house log and to inboxes in one transaction: all of it or nothing. Returns
        the events as they were written, in the order of the posts.

        `check` is called with all of them, as for `post`, and anew after an event of one of these
        `kinds` in any log: it has then read all of them. A number among the causes of a draft is
        a draft of the whole act. Raises MayNotApprove in code of a run.
        """
        ...


class Reader(Protocol):
    """Notes the content that the program reads."""

    def note(self, position: Position, whole: bool) -> None:
        """Note that the program was handed content of the value at this position; `whole`: rewound
        parts included.
        """
        ...


class SessionLike(Protocol):
    """A session as a host sees it: plain data."""

    @property
    def id(self) -> LogId: ...
    @property
    def seq(self) -> int: ...
    @property
    def head(self) -> Digest: ...
    @property
    def run(self) -> str | None: ...
    @property
    def store(self) -> str: ...


class Host(Protocol):
    """Runs tools, places files and publishes them for a session. Each returns the next position,
    or the next value.
    """

    def use(
        self, session: SessionLike, tool: object, arguments: Mapping[str, Json]
    ) -> Position | SessionLike: ...
    async def ause(
        self, session: SessionLike, tool: object, arguments: Mapping[str, Json]
    ) -> Position | SessionLike: ...
    def ask(self, session: SessionLike, question: str, choices: Sequence[str]) -> Position: ...
    def sleep(self, session: SessionLike, seconds: float) -> Position: ...
    def wait_for(self, session: SessionLike, name: str, timeout_s: float | None) -> Position: ...
    def cancel(self, session: SessionLike, reason: str) -> None: ...
    def place(
        self, session: SessionLike, backend: str, where: str | None, options: Mapping[str, Any]
    ) -> Position: ...
    def publish(self, session: SessionLike, resolve: object) -> Position | SessionLike: ...
    def prompt(self, session: SessionLike, asked: Event) -> Json: ...
    def is_held(self, session: SessionLike, run: str) -> bool: ...
    def past_gates(
        self, into: SessionLike, gated: Sequence[SessionLike], verb: str
    ) -> Sequence[SessionLike]: ...


class MemoryRules(Protocol):
    """Decides about memories that a branch or a run has proposed beyond its own session."""

    def decisions_at_merge(self, session: Any, branches: Sequence[Any]) -> Sequence[Draft]:
        """Return the decisions to append together with a merge of these branches."""
        ...

    def decisions_at_verdict(
        self, session: Any, body: ValidationRecorded, act: Act
    ) -> Sequence[Draft]:
        """Return the decisions to append after a verdict that has memories among its causes."""
        ...

    def change_since(self, store: Store, memory: Event) -> str:
        """Tell in words why a memory does not hold any more; "": it does."""
        ...


class Ablate(Protocol):
    """Runs a session's program again without a memory; returns the difference."""

    def __call__(self, memory: Any, session: Any, hit: Any, /, **how: Any) -> Any: ...


class TurnTaker(Protocol):
    """Takes turns of a session: a message, and the run of a workflow that answers it."""

    def turn(self, session: Any, content: Any, workflow: Any, /, **how: Any) -> Any: ...
    async def aturn(self, session: Any, content: Any, workflow: Any, /, **how: Any) -> Any: ...
    def stream_turn(
        self, session: Any, content: Any, workflow: Any, /, **how: Any
    ) -> Iterator[Any]: ...
    def astream_turn(
        self, session: Any, content: Any, workflow: Any, /, **how: Any
    ) -> AsyncIterator[Any]: ...


UNNAMED = Act("", "")  # the act of an unknown actor


Drawing = Callable[[object], str]  # a value as HTML, for a notebook


class Bindings:
    """The writers, the reader and the host of this process.

    They are no part of a session: a session is plain data that may be pickled and opened in another
    process, where it meets the bindings of that process. They stand together because the
    composition root and the runtime fill them when they are imported. A forked child keeps them:
    the runtime halts the parent's runs there.
    """

    def __init__(self) -> None:
        self.writers: dict[str | None, Writer] = {}  # by run; None: outside of any
        # returns the writer of a run that was left, for code of that run
        self.left_writer: Callable[[str], Writer | None] | None = None
        self.reader: Reader | None = None
        self.host: Host | None = None
        self.memory_rules: MemoryRules | None = None
        self.ablation: Ablate | None = None
        self.turns: TurnTaker | None = None
        self.drawing: Drawing | None = None


BINDINGS = Bindings()


def bind_writer(writer: Writer, run: str | None = None) -> None:
    """Let this writer append for values of a run; None: for values outside of any."""
    BINDINGS.writers[run] = writer


def bind_left_writers(left_writer: Callable[[str], Writer | None]) -> None:
    """Let `left_writer` find the writer for code that goes on after its run was left."""
    BINDINGS.left_writer = left_writer


def unbind_writer(run: str) -> None:
    BINDINGS.writers.pop(run, None)


def is_bound(run: str | None) -> bool:
    """Return True if this run has a writer in this process: if it is going on here, or the code
    here is still its own.
    """
    return run is not None and (run in BINDINGS.writers or _left_writer(run) is not None)


def _left_writer(run: str | None) -> Writer | None:
    find = BINDINGS.left_writer
    return find(run) if find is not None and run is not None else None


def bind_reader(reader: Reader) -> None:
    BINDINGS.reader = reader


def note_read(position: Position, *, whole: bool = False) -> None:
    """Note that the program was handed content of this value; `whole`: of rewound events, too.

    What the program writes elsewhere afterwards has the origins of that content.
    """
    if (reader := BINDINGS.reader) is not None:
        reader.note(position, whole)


def bind_host(host: Host) -> None:
    BINDINGS.host = host


def bind_memory_rules(rules: MemoryRules) -> None:
    BINDINGS.memory_rules = rules


def bind_ablation(ablate: Ablate) -> None:
    BINDINGS.ablation = ablate


def bind_turns(turns: TurnTaker) -> None:
    BINDINGS.turns = turns


def bind_drawing(drawing: Drawing) -> None:
    BINDINGS.drawing = drawing


def notebook_html(value: object) -> str | None:
    """Return a value as a notebook shows it. None: as its text; this never raises."""
    if (drawing := BINDINGS.drawing) is None:
        return None
    try:
        return drawing(value)
    except Exception:  # a notebook shows the text instead, as it does for a repr
        return None


def writer_of(run: str | None) -> Writer:
    """Return the writer of a run.

    A value that outlived its run, or came from another process, writes as a value outside of runs,
    unless the code here is still that of the run.
    """
    writers = BINDINGS.writers
    return writers.get(run) or _left_writer(run) or writers[None]


def host(verb: str) -> Host:
    """Return the host. `verb` names its purpose in an error."""
    if (bound := BINDINGS.host) is None:
        raise NoHost(verb)
    return bound


def turns(verb: str) -> TurnTaker:
    """Return the port that takes turns. `verb` names its purpose in an error."""
    if (bound := BINDINGS.turns) is None:
        raise NoHost(verb)
    return bound


def store_at(address: str) -> Store:
    return BINDINGS.writers[None].store(address)
