"""The writer outside of any run: seals what a session says and appends it, and that is all."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from plait.errors import InvalidValue, OutcomeUnknown
from plait.event import Event, seal
from plait.event.kinds import BOUNDARIES, Place
from plait.ids import Digest, LogId, Source
from plait.session.ports import Draft, Spot
from plait.store import Store

_PRINCIPAL = re.compile(r"[a-z][a-z0-9_-]*:\S{1,200}\Z")


class DirectWriter:
    """The `Writer` for values without a run."""

    def __init__(self, source: Source, store: Callable[[str], Store], address: Callable[[], str]) -> None:
        self._source = source
        self._open = store
        self.address = address

    def store(self, address: str) -> Store:
        return self._open(address)

    def principal(self) -> str:
        """PLAIT_ACTOR, else the person who is logged in."""
        given = os.environ.get("PLAIT_ACTOR")
        if given is not None:
            if not _PRINCIPAL.match(given):
                raise InvalidValue("PLAIT_ACTOR", f"{given!r} is not a principal", "set it to something like human:u-17 or service:ci")
            return given
        return _login()

    def begin(
        self, address: str, drafts: Sequence[Draft], *, fork: Place | None = None, blobs: Mapping[Digest, bytes] | None = None
    ) -> Spot:
        store = self._open(address)
        about = ("fork", fork.log, fork.seq) if fork else ("session",)
        log = self._source.fresh(*about)
        events = self._seal(drafts, log, fork.seq + 1 if fork else 1, (fork.head,) if fork else (), None)
        _settled(lambda: store.begin(log, events, parent=fork.log if fork else None, blobs=blobs))
        return Spot(store.address, log, events[-1].seq, events[-1].id)

    def append(
        self, spot: Spot, drafts: Sequence[Draft], *, merges: tuple[Digest, ...] = (), blobs: Mapping[Digest, bytes] | None = None
    ) -> Spot:
        store = self._open(spot.store)
        events = self._seal(drafts, spot.id, spot.place + 1, (spot.head, *merges), spot.run)
        flush = any([type(draft.body) in BOUNDARIES for draft in drafts])
        _settled(lambda: store.append(spot.id, events, after=spot.head, blobs=blobs, flush=flush))
        return Spot(spot.store, spot.id, events[-1].seq, events[-1].id, spot.run)

    def _seal(self, drafts: Sequence[Draft], log: LogId, seq: int, parents: tuple[Digest, ...], run: str | None) -> list[Event]:
        events: list[Event] = []
        for place, (body, act) in enumerate(drafts, seq):
            event = seal(
                body,
                log=log,
                seq=place,
                parents=parents,
                time=self._source.now(log, place),
                salt=self._source.salt(log, place),
                actor=act.actor,
                origin=act.origin,
                behalf=act.behalf,
                run=run,
                call=act.call,
                causes=act.causes,
            )
            events.append(event)
            parents = (event.id,)
        return events


@cache
def _login() -> str:
    """Who is logged in. Looked up once: it is asked at every append, and may mean reading a user database."""
    try:
        return f"human:{re.sub(r'[^!-~]', '_', getpass.getuser())}"
    except (KeyError, OSError, ImportError):  # a container without a user database
        return f"human:uid-{os.getuid()}"


def _settled(write: Callable[[], object]) -> None:
    """Write; if it is unknown whether that stands, the very same events once more settle it."""
    try:
        write()
    except OutcomeUnknown:
        write()
