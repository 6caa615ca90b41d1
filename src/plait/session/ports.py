"""What a session needs from above, declared here and bound by the composition root.

A session is plain data: a `Position`. Every append goes through the `Writer`, found by the run id
in the position (a registry, not a context variable: threads of a run must find it too). Outside a
run the writer seals and appends; a run registers one of its own, which consults the recording
first. Tools and files go through the `Host`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from plait.errors import NoHost
from plait.event import Body, Event, Json
from plait.event.kinds import Place
from plait.ids import Digest, LogId
from plait.store import Store


class Position(msgspec.Struct, frozen=True):
    """A place in a log: all that a session is."""

    store: str  # the store's address
    id: LogId
    seq: int  # the seq of its last event
    head: Digest  # the id of that event
    run: str | None = None  # the run whose value this is; None: outside of any


class Act(NamedTuple):
    """Who did it, and because of what."""

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


class Writer(Protocol):
    """Where a session's events go. On return they are as durable as the store promises."""

    def store(self, address: str) -> Store:
        """The open store at this address, made if need be."""
        ...

    def address(self) -> str:
        """Where the store is if nobody names one."""
        ...

    def principal(self, log: LogId | None = None) -> str:
        """Who acts when nobody is named: a person, or in a run the workflow that has this log in
        hand.
        """
        ...

    def acting(self, store: str, position: Position | None = None) -> Act:
        """How a value of this writer acts when nobody is named. An empty actor or origin is for the
        caller to fill in.

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
        """The names under which code of a run gives verdicts on this log: its principal, path and
        classes; (): it is no code of a run.
        """
        ...

    def path_of(self, log: LogId, workflow: object) -> str | None:
        """The path that this very workflow has in the run that has the log in hand.

        None: it has none there.
        """
        ...

    def has_in_hand(self, position: Position) -> bool:
        """Whether the code that executes may append after this position.

        In a run another thread may not: it writes from outside.
        """
        ...

    def is_current(self, position: Position) -> bool:
        """Whether the next append may come after this position."""
        ...

    def latest(self, position: Position) -> Position:
        """Where the log of this position ends now; to a run that is taken up again, where it ended
        then.
        """
        ...

    def append(
        self,
        position: Position,
        drafts: Sequence[Draft],
        *,
        merges: tuple[Digest, ...] = (),
        blobs: Mapping[Digest, bytes] | None = None,
    ) -> Position:
        """Append after exactly this position, or raise StaleHead.

        `merges` are further parents of the first event.
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
        """Append to the inbox of a log, whoever else does so at the same time, and return the
        events as they were written.

        `check` is called with the events as they would be written, and anew whenever somebody else
        was first: what it finds in the inbox is all there is before them. If it raises, nothing is
        written. `run` is who writes, if it is a run.
        """
        ...


class Reader(Protocol):
    """Who is told what the program reads."""

    def read(self, position: Position, whole: bool) -> None:
        """The program was handed content of the value at this position; `whole`: rewound parts
        included.
        """
        ...


class Value(Protocol):
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
    """Who runs tools, places files and publishes them for a session; each returns where the session
    then stands.
    """

    def use(
        self, session: Value, tool: object, arguments: Mapping[str, Json]
    ) -> Position | Value: ...
    async def ause(
        self, session: Value, tool: object, arguments: Mapping[str, Json]
    ) -> Position | Value: ...
    def ask(self, session: Value, question: str, choices: Sequence[str]) -> Position: ...
    def sleep(self, session: Value, seconds: float) -> Position: ...
    def wait_for(self, session: Value, name: str, timeout_s: float | None) -> Position: ...
    def cancel(self, session: Value, reason: str) -> None: ...
    def place(
        self, session: Value, backend: str, where: str | None, options: Mapping[str, Any]
    ) -> Position: ...
    def publish(self, session: Value, resolve: object) -> Position | Value: ...
    def prompt(self, session: Value, asked: Event) -> Json: ...
    def is_held(self, session: Value, run: str) -> bool: ...
    def past_gates(self, into: Value, gated: Sequence[Value], verb: str) -> Sequence[Value]: ...


UNNAMED = Act("", "")  # nothing is known of who acts
_writers: dict[str | None, Writer] = {}
_readers: list[Reader] = []
_hosts: list[Host] = []


def bind_writer(writer: Writer, run: str | None = None) -> None:
    """From now on this writer takes what values of this run append; None: values outside of any."""
    _writers[run] = writer


def unbind_writer(run: str) -> None:
    _writers.pop(run, None)


def is_bound(run: str | None) -> bool:
    """Whether this run has a writer in this process: whether it is going on here."""
    return run is not None and run in _writers


def bind_reader(reader: Reader) -> None:
    _readers[:] = [reader]


def note_read(position: Position, *, whole: bool = False) -> None:
    for reader in _readers:
        reader.read(position, whole)


def bind_host(host: Host) -> None:
    _hosts[:] = [host]


def writer_of(run: str | None) -> Writer:
    """The writer of a run.

    A value that outlived its run, or came from another process, writes as anybody else.
    """
    return _writers.get(run) or _writers[None]


def host(verb: str) -> Host:
    if not _hosts:
        raise NoHost(verb)
    return _hosts[0]


def store_at(address: str) -> Store:
    return _writers[None].store(address)
