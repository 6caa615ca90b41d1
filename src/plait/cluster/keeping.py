"""Kept sessions: so many of one name are always at work, each under an ordinal.

The session of an ordinal has an id that follows from the store, the name and the ordinal. So it is
the same session, with its own files and its own sandbox, wherever its runs are executed; and of a
run there is one holder at a time. A run that ends is followed by the next one in the same session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from plait.cluster.keep_state import (
    KeepFold,
    KeptOrdinal,
    KeptStatus,
    keeper_of,
    kept_session,
)
from plait.cluster.log_driving import LogDriver
from plait.cluster.parts import ACTOR, CannotRun, JobPart, cancel_part, read_part, submit_part
from plait.cluster.programs import find_portable
from plait.cluster.submitting import (
    check_count,
    check_labels,
    now_in,
    plan_of,
    planned_start,
    submitted_code,
    wishes_of,
)
from plait.errors import LogExists, StaleHead, UnknownKept
from plait.event import Body
from plait.event import kinds as k
from plait.ids import LogId, Micros
from plait.journal.writer import direct_writer
from plait.session import Session
from plait.session.arguments import check_name
from plait.session.backoff import backoff_s
from plait.session.branching import recorded_durability
from plait.session.pauses import life_now
from plait.session.ports import Act, Draft, Position
from plait.session.session import session_at
from plait.session.value import core_of
from plait.session.work_rows import RETRY_S, RETRY_S_MAX
from plait.store import Store
from plait.workflow import Workflow

REPLICAS_MAX = 1000
_REST_S = 1.0  # from the start of a run to the next one, at least
_AT_REST = ("closed", "archived", "moved", "paused")


class Kept:
    """The kept sessions of one name, as the log of their keeper tells."""

    def __init__(self, store: Store, name: str) -> None:
        """Raises UnknownKept if there are none of this name."""
        self._store, self.name = store, name
        self.id = keeper_of(store.id, name)
        if self.id not in store.heads([self.id]):
            raise UnknownKept(name, store.address)
        self._fold = KeepFold(self.id)

    @property
    def session(self) -> Session:
        """The session of the keeper itself."""
        return Session.open(self.id, store=self._store)

    @property
    def replicas(self) -> int:
        return self._now().replicas

    @property
    def status(self) -> KeptStatus:
        return self._now().status

    @property
    def ordinals(self) -> tuple[KeptOrdinal, ...]:
        """Each ordinal that ever was at work, and how it stands."""
        known = sorted(self._now().ordinals.items())
        return tuple([msgspec.structs.replace(each) for _, each in known])

    @property
    def sessions(self) -> list[Session]:
        """The sessions that are kept at work, by ordinal."""
        found = [each for each in self.ordinals if each.ordinal < self._fold.replicas]
        return [Session.open(each.session, store=self._store) for each in found]

    def _now(self) -> KeepFold:
        self._fold.read(self._store)
        return self._fold

    def __repr__(self) -> str:
        return f"<Kept {self.name} {self.status}: {self.replicas}>"


def keep_sessions(
    store: Store,
    name: str,
    workflow: Workflow | str | None,
    kwargs: Mapping[str, Any],
    *,
    replicas: int,
    need: Iterable[str],
    priority: int,
    project: str | None,
    actor: str | None,
) -> Kept:
    """Say how many sessions of a name are kept at work, and bring them there."""
    check_labels({name}, "name")
    check_count("replicas", replicas, 0, REPLICAS_MAX)
    check_name("project", project or "")
    fold = KeepFold(keeper_of(store.id, name))
    if fold.log in store.heads([fold.log]):
        fold.read(store)
    if workflow is None:
        if fold.order is None:
            raise UnknownKept(name, store.address)
        body = msgspec.structs.replace(fold.order, replicas=replicas)
    else:
        body = _order(store, name, workflow, kwargs, replicas, need, priority, project)
    _say(store, fold, body, actor)
    KeepDriver(store).advance(fold.log)
    return Kept(store, name)


def _order(
    store: Store,
    name: str,
    workflow: Workflow | str,
    kwargs: Mapping[str, Any],
    replicas: int,
    need: Iterable[str],
    priority: int,
    project: str | None,
) -> k.KeeperSet:
    """Check the program of kept sessions, without a session that it could be called on yet."""
    program = find_portable(workflow)
    started = planned_start(None, program, (), kwargs)
    wishes = wishes_of(
        project or "",
        now=now_in(store),
        need=need,
        priority=priority,
        code=submitted_code(program),
    )
    return k.KeeperSet(name, replicas, plan_of(started), wishes)


def _say(store: Store, fold: KeepFold, body: k.KeeperSet, actor: str | None) -> None:
    """Write how many are kept, unless the log says so already."""
    act = Act(actor or direct_writer().principal())
    while fold.order != body:
        try:
            if fold.order is None:
                title = f"Keeper of {body.name}"
                _begin(store, fold.log, title, body.wishes.project, act, Draft(body, act))
            else:
                at = Position(store.address, fold.log, fold.seq, fold.head)
                direct_writer().write(at, [Draft(body, act)])
        except (LogExists, StaleHead):  # another writer was first
            pass
        fold.read(store)


def _begin(store: Store, log: LogId, title: str, project: str, act: Act, *more: Draft) -> None:
    opened = k.SessionOpened(
        title=title, project=project or None, durability=recorded_durability("full", store)
    )
    direct_writer().start(store, log, [Draft(opened, act), *more])


class KeepDriver(LogDriver[KeepFold]):
    """Drives the kept sessions of one store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, KeepFold)

    def _next_words(self, fold: KeepFold, now: Micros) -> list[Body]:
        if fold.order is None:
            return []
        active = fold.active
        words = [word for kept in active for word in self._see(fold, kept, active[0], now)]
        if words:
            return words
        starts = [self._start(fold, fold.order, n, now) for n in range(fold.replicas)]
        return [word for word in starts if word is not None]

    def _see(
        self, fold: KeepFold, kept: KeptOrdinal, highest: KeptOrdinal, now: Micros
    ) -> list[Body]:
        """Look at the run of an ordinal; return what is to be said of it, or act."""
        assert fold.order is not None
        session = Session.open(kept.session, store=self._store)
        part = JobPart(fold.log, kept.ordinal, kept.after)
        found = read_part(session, part)
        is_wanted = kept.ordinal < fold.replicas
        if found.state == "none":
            if not is_wanted:
                return [
                    self._end(kept, "cancelled", now, now, "scaled down before it was submitted")
                ]
            try:
                self._has_acted |= submit_part(session, part, fold.order.run, fold.order.wishes)
            except CannotRun as error:
                return [self._end(kept, "failed", now, now, f"{error}")]
            return []
        if found.state in ("open", "resubmitted"):
            # from the top: the next lower one is asked when this one has ended
            if not is_wanted and kept is highest and found.run not in self._asked:
                self._asked.add(found.run)
                self._has_acted = True
                cancel_part(session, found, f"{fold.order.name} is scaled to {fold.replicas}")
            return []
        since = found.began.header.time if found.began is not None else now
        return [self._end(kept, found.state, since, now, found.why)]

    def _end(
        self, kept: KeptOrdinal, how: k.IndexEnd, since: Micros, now: Micros, why: str
    ) -> k.KeptEnded:
        failures = kept.failures + 1 if how == "failed" else 0
        rest_s = backoff_s(RETRY_S, RETRY_S_MAX, kept.session, failures) if failures else 0.0
        due = max(now + int(rest_s * 1e6), since + int(_REST_S * 1e6))
        return k.KeptEnded(kept.ordinal, kept.round, how, due, why, failures)

    def _start(
        self, fold: KeepFold, order: k.KeeperSet, ordinal: int, now: Micros
    ) -> k.KeptStarted | None:
        """Return the word that the next run of an ordinal may start. None: it may not now."""
        known = fold.ordinals.get(ordinal)
        if known is not None and (known.is_active or known.due > now):
            return None
        log = kept_session(self._store.id, order.name, ordinal)
        if known is None:
            with suppress(LogExists):  # a driver died after it had begun it
                title = f"{order.name} {ordinal}"
                _begin(self._store, log, title, order.wishes.project, Act(ACTOR))
        at = self._store.log(log)
        session = session_at(Position(self._store.address, log, at.tip, at.head))
        if life_now(core_of(session)).status in _AT_REST:
            return None
        return k.KeptStarted(ordinal, log, known.round + 1 if known is not None else 1, at.tip)
