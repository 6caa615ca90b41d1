"""Needs that a run has by itself: the host of its folder, and the isolation of its commands.

Both are labels: a worker has those of its host and of the rungs that it offers, and a run needs
those that its placement names. So the claim, the queues and `plait cluster why` treat them like
labels that people give.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from plait.errors import InvalidValue, RunHeld
from plait.event import kinds as k
from plait.event.kinds import Placement
from plait.ids import LogId, digest
from plait.runtime.appends import append_around_run
from plait.runtime.place import LOCAL
from plait.runtime.placement import detail_of
from plait.sandbox.rungs import DEFAULT, RUNGS, find
from plait.session.ask_rows import InboxRows
from plait.session.ports import Act, Draft, Position
from plait.session.session import session_at
from plait.session.work_rows import WORK_BELL, read_wishes
from plait.store import Store
from plait.workspace.copy_state import cache_folder

HOST, ISOLATION = "host:", "isolation:"
_HOST_MAX = 48  # characters of a host's name in a label
_ACTOR = "service:cluster"


def host_label(host: str) -> str:
    """Return the label of the workers on a host."""
    is_plain = host.isascii() and all(each.isalnum() or each in "._-" for each in host)
    if is_plain and 0 < len(host) <= _HOST_MAX:
        return HOST + host
    return HOST + digest(b"plait/host/1", host.encode("utf-8", "replace"))[:16]


def find_rungs(store: Store, best: str = "") -> tuple[str, ...]:
    """Return the rungs of isolation that this machine offers, from `best` down. "": all."""
    if best and best not in RUNGS:
        step = f"name one of {', '.join(RUNGS)}"
        raise InvalidValue("isolation", f"{best!r:.40} is no rung", step)
    folder = str(cache_folder(store))
    wanted = RUNGS[RUNGS.index(best) :] if best else RUNGS
    return tuple([rung for rung in wanted if find(rung, folder).offered])


def place_labels(host: str, rungs: Sequence[str]) -> frozenset[str]:
    """Return the labels that a worker has by itself."""
    return frozenset({host_label(host), *[ISOLATION + rung for rung in rungs]})


def check_given(labels: Collection[str]) -> None:
    """Raise for a label that a worker has by itself, or has not."""
    for label in labels:
        if label.startswith((HOST, ISOLATION)):
            why = f"{label!r:.80} is said by the worker itself"
            step = "leave it out; --isolation offers less than the machine has"
            raise InvalidValue("labels", why, step)


def demands_of(placement: Placement | None) -> frozenset[str]:
    """Return the labels that a session needs because of where its files are."""
    if placement is None or placement.backend != LOCAL:
        return frozenset()
    detail = detail_of(placement)
    found = {ISOLATION + str(detail.get("isolation") or DEFAULT[-1])}
    is_bound = detail.get("in_place") or (detail.get("needs_heavy") and detail.get("heavy"))
    if is_bound and detail.get("host"):
        found.add(host_label(str(detail["host"])))
    return frozenset(found)


def with_demands(wishes: k.Wishes, placement: Placement | None) -> k.Wishes:
    """Return wishes with the labels that a placement needs."""
    more = demands_of(placement).difference(wishes.need)
    if not more:
        return wishes
    return msgspec.structs.replace(wishes, need=tuple(sorted({*wishes.need, *more})))


def missing_places(store: Store, log: LogId, labels: Collection[str]) -> frozenset[str]:
    """Return the labels that a session needs by now, and that a worker does not have. A run may
    have moved its files after it was submitted.
    """
    end = store.log(log)
    session = session_at(Position(store.address, log, end.tip, end.head))
    return demands_of(session.files.placement).difference(labels)


def bind_run(store: Store, log: LogId, run: str, labels: Collection[str]) -> None:
    """Leave an open run to workers with these labels, too. Its lock must be free, or be had by the
    caller.
    """
    rows = store.rows(InboxRows.name, "work", {"run": run}, limit=1)
    if not rows:
        return
    wishes = read_wishes(str(rows[0]["wishes"]))
    need = tuple(sorted({*wishes.need, *labels}))
    if need == wishes.need:
        return
    end = store.log(log)
    body = k.RunSubmitted(run, msgspec.structs.replace(wishes, need=need))
    append_around_run(
        Position(store.address, log, end.tip, end.head), [Draft(body, Act(_ACTOR, "program"))]
    )
    store.ring(WORK_BELL)


def bind_free_run(store: Store, log: LogId, run: str, labels: Collection[str]) -> None:
    """Do the same with a run that this process has let go of. One that another process has taken
    meanwhile stays as it is: that process finds out as well.
    """
    try:
        lock = store.lock(run, log)
    except RunHeld:
        return
    try:
        bind_run(store, log, run, labels)
    finally:
        lock.release()


def explain_missing(need: Collection[str], rungs: Collection[Sequence[str]]) -> str:
    """Say which places a run needs, and which there are: `rungs` are those of each worker. "": it
    needs none that is missing.
    """
    hosts = [each.removeprefix(HOST) for each in sorted(need) if each.startswith(HOST)]
    wanted = [each.removeprefix(ISOLATION) for each in sorted(need) if each.startswith(ISOLATION)]
    known = {rung for each in rungs for rung in each}
    lacking = [rung for rung in wanted if rung not in known]
    if lacking:
        best = next((rung for rung in RUNGS if rung in known), "none")
        return f"needs isolation {lacking[0]}; {{workers}} there, the best has {best}"
    return f"bound to host {hosts[0]}; {{workers}} there, none on that host" if hosts else ""
