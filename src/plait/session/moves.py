"""Sessions that went to another store, or are still on the way from one.

A session that moved ends here with `SessionMoved`, and goes on there after `SessionArrived`: by its
events it is at home in one store at a time. While a copy is under way, the house log of the store
that it goes to says so (`CopyBegun`, `CopyFinished`): a log that lacks its end could look like one
with an interrupted run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plait.errors import HasMoved, StillArriving, UnknownLog
from plait.event.kinds import SessionMoved
from plait.ids import Digest, LogId, house_of, inbox_of, short
from plait.session.copy_rows import arriving_logs
from plait.session.core import Core
from plait.session.life import Life, check_status
from plait.store import Fence, Log, Store


def check_may(core: Core, verb: str, life: Life | None = None) -> None:
    """Raise WrongStatus if a session may not do this; HasMoved, which names its new address, if it
    went to another store. `life` None: that of the value.
    """
    check_moved(core, verb, life)
    check_status(core.short, (life or core.life).status, verb)


def check_moved(core: Core, verb: str, life: Life | None = None) -> None:
    """Raise HasMoved if a session went to another store."""
    if (life or core.life).moved:
        store, log = core.store, core.position.id
        raise HasMoved(core.short, verb, new_address(store, store.log(log)) or "another store")


def new_address(store: Store, log: Log) -> str | None:
    """Return the address of the store that a session went to. None: it is at home here."""
    if not log.epoch:  # as with sessions that never had a run
        return None
    last = next(store.read(log.id, log.tip, log.tip))  # nothing is appended after a move
    if last.kind != SessionMoved.__name__:
        return None
    assert isinstance(last.body, SessionMoved)
    return last.body.address


# The sessions on the way into a store, with the head of its house log, by the id of the store. They
# are read again when that log has grown.
_ARRIVING: dict[LogId, tuple[Digest, Mapping[LogId, str]]] = {}
_STORES_MAX = 64  # that are remembered


def check_arrived(
    store: Store, logs: Sequence[LogId], heads: Mapping[LogId, Log] | None = None
) -> None:
    """Raise StillArriving if a copy of one of these sessions, or of its inbox, into this store has
    not ended.

    `heads`: with the house log among them, if the caller has asked for others anyway. None: it is
    looked up, in one question.
    """
    house = house_of(store.id)
    head = (store.heads([house]) if heads is None else heads)[house].head
    known = _ARRIVING.get(store.id)
    if known is None or known[0] != head:
        known = head, arriving_logs(store)
        if len(_ARRIVING) >= _STORES_MAX:
            _ARRIVING.clear()
        _ARRIVING[store.id] = known
    arriving = known[1]
    for log in logs if arriving else ():
        if (source := arriving.get(log) or arriving.get(inbox_of(log))) is not None:
            raise StillArriving(short(log), source, store.address)


def home_fence(store: Store, log: LogId, heads: Mapping[LogId, Log]) -> Fence:
    """Return the fence of a write to the inbox of a session: it is at home in this store. Raises
    HasMoved if it is not, and UnknownLog if its inbox would never be read.
    """
    if log not in heads:
        raise UnknownLog(log)
    if (address := new_address(store, heads[log])) is not None:
        raise HasMoved(short(log), "take messages", address)
    return Fence(log, heads[log].epoch)
