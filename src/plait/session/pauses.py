"""Pauses of a session: those in its log, and the last word in its inbox that no run has heard yet.

A pause goes to the inbox while a run is open, and the run hears it before its next effect. No run
may ever hear it: the run waits without a process, its process dies, or the run ends first. The
pause holds all the same, because every reader of a status counts that word.
"""

from __future__ import annotations

import msgspec

from plait.errors import UnknownRows, WrongStatus
from plait.ids import LogId, inbox_of
from plait.session.core import Core
from plait.session.fold import state_at
from plait.session.life import Life
from plait.session.ports import is_bound
from plait.session.rows import SessionRows
from plait.session.state import State
from plait.store import Row, Store

_ALL = 2**31
_STEP = "take it up again: session.unpause(), or resume(session)"


def life_now(core: Core, *, has_inbox: bool = True) -> Life:
    """Return the life of a session as it is: its events, and then the word in its inbox.
    `has_inbox` False: it is known that nothing was ever posted there.
    """
    if not has_inbox or (word := _word_of(core)) is None:
        return core.life
    return life_with_word(core.store, core.position.id, core.life, word, core.state)


def is_paused(core: Core, *, has_inbox: bool = True) -> bool:
    """True if a session is paused, by its events and its inbox."""
    return life_now(core, has_inbox=has_inbox).status == "paused"


def has_unheard_word(core: Core) -> bool:
    """True if a pause, or the end of one, stands in the inbox of a session, and no run heard it."""
    row = _word_of(core)
    return row is not None and not _is_heard(core.store, core.position.id, row, core.state)


def check_not_paused(core: Core, verb: str, *, has_inbox: bool = True) -> None:
    """Raise WrongStatus if a session is paused. A value of a run that goes on is judged by its
    events alone, as a replay finds them.
    """
    life = core.life if is_bound(core.position.run) else life_now(core, has_inbox=has_inbox)
    if life.status == "paused":
        raise WrongStatus(core.short, "paused", verb, _STEP)


def words_in_inboxes(store: Store) -> dict[str, Row]:
    """Return the last words about pauses in the inboxes of a store, by inbox."""
    try:
        rows = store.rows(SessionRows.name, "word", limit=_ALL)
    except UnknownRows:
        return {}
    return {str(row["inbox"]): row for row in rows}


def life_with_word(
    store: Store, log: LogId, life: Life, word: Row | None, near: State | None = None
) -> Life:
    """Return a life with the last word in the inbox, if no run has heard it. `near` is a state of
    the log, if there is one at hand.
    """
    if word is None or bool(word["paused"]) == life.paused or _is_heard(store, log, word, near):
        return life
    return msgspec.structs.replace(life, paused=bool(word["paused"]))


def _word_of(core: Core) -> Row | None:
    try:
        wanted = {"inbox": inbox_of(core.position.id)}
        return next(iter(core.store.rows(SessionRows.name, "word", wanted, limit=1)), None)
    except UnknownRows:
        return None


def _is_heard(store: Store, log: LogId, word: Row, near: State | None) -> bool:
    """True if a run has passed a word by: earlier versions did not copy each one to the log."""
    tip = store.log(log).tip
    now = near if near is not None and near.place == tip else state_at(store, log, tip, near=near)
    return now.delivered >= int(str(word["seq"]))
