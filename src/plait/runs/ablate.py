"""Ablation: a run made again without a memory, in a branch, and the difference that this makes.

The first recall that returned the memory is repeated without it, and the program goes on live from
there; no later recall of the branch returns it either. Recalls that do not stand among the run's
own steps, but in a tool call or a branch of the run, are made again, without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from plait.errors import InvalidValue, NotRecalled, RunOpen, WrongStatus
from plait.event import Event
from plait.event import kinds as k
from plait.ids import Digest, LogId
from plait.journal.recorded_run import RecordedRun, last_run, root_session
from plait.memory.items import Named
from plait.memory.memory import Memory
from plait.runs.whatif import whatif
from plait.runtime.appends import append_at_tip
from plait.runtime.end import outside
from plait.session import Session
from plait.session.acting import acting_in
from plait.session.diff import Diff
from plait.session.moves import check_moved
from plait.session.ports import Draft, store_at
from plait.session.value import core_of, open_run_of, walk_path
from plait.workflow import Workflow

WAYS = ("text", "calls", "files", "verdicts")  # in which two runs are compared
_RECALLED = frozenset({k.MemoryRecalled.__name__})
_LINES_MAX = 40  # of the difference of one run, as people read it


class AblatedRun(msgspec.Struct, frozen=True):
    """One run without the memory."""

    session: Session  # the branch
    differs: tuple[str, ...]  # of text, calls, files and verdicts
    diff: Diff  # from the run as it was to the run without
    calls: tuple[tuple[str, ...], tuple[str, ...]]  # the calls of each, if they differ

    def __str__(self) -> str:
        where = f"{self.session.short}: "
        if not self.differs:
            return f"{where}nothing changes"
        lines = str(self.diff).splitlines()[2:]
        if "calls" in self.differs:
            lines += ["calls:", *[f"- {call}" for call in self.calls[0]]]
            lines += [f"+ {call}" for call in self.calls[1]]
        shown = lines[:_LINES_MAX]
        if len(lines) > len(shown):
            shown.append(f"… {len(lines) - len(shown)} more lines: see .diff")
        return "\n".join([f"{where}{', '.join(self.differs)} change", *shown])


class Ablation(msgspec.Struct, frozen=True):
    """The difference that a memory made to a run."""

    memory: Digest
    text: str
    recalls: tuple[int, ...]  # the places on the path at which recalls returned it
    runs: tuple[AblatedRun, ...]
    differs: dict[str, int]  # of text, calls, files and verdicts: in how many runs
    session: Session  # with the use on record

    def __bool__(self) -> bool:
        """Return True if a run without the memory differs from the run as it was."""
        return any(self.differs.values())

    def __str__(self) -> str:
        places = ", ".join(map(str, self.recalls))
        number = len(self.runs)
        changes = ", ".join(f"{way} in {count}" for way, count in self.differs.items() if count)
        return "\n".join(
            [
                f"without [m:{self.memory[:8]}] {self.text}",
                f"recalled at {places}; {number} {'run' if number == 1 else 'runs'} without it:"
                f" {changes or 'nothing changes'}",
                *map(str, self.runs),
            ]
        )


def ablate(
    memory: Memory,
    session: Session,
    hit: Named,
    *,
    workflow: Workflow | None = None,
    n: int = 1,
    label: str | None = None,
    **how: Any,
) -> Ablation:
    """Run a session's last program again without a memory, in `n` branches, and compare.

    A model that always answers the same needs one run. The branches draw on the session's budget.
    Further options are those of `whatif`. The result is on record as a use of the memory.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue("n", f"{n!r} is not a number of runs", "pass a number from 1")
    session = root_session(outside(session))
    _check_rests(session)
    item = memory.get(hit, session=session)
    recorded = last_run(session)
    recalls = _recalls_of(session, recorded, item.id) if recorded is not None else []
    if recorded is None or not recalls:
        raise NotRecalled(session.short, item.id)
    change = _change_without(session, recorded, recalls, item.id)
    was, runs = session.at(recorded.last.seq), list[AblatedRun]()
    for number in range(1, n + 1):
        name = label or f"without {item.id[:8]}"
        branch = whatif(
            session,
            workflow,
            label=f"{name} {number}" if n > 1 else name,
            without=(item.id,),
            **change,
            **how,
        )
        runs.append(_compare(was, branch))
    differs = {way: sum(way in run.differs for run in runs) for way in WAYS}
    body = k.MemoryUsed("ablation", runs=n, differs=differs)
    causes = (item.id, *(run.session.head for run in runs))
    after, _ = append_at_tip(
        session.reload(), lambda at: [Draft(body, acting_in(at)._replace(causes=causes))]
    )
    places = tuple([recall.place for recall in recalls])
    return Ablation(item.id, item.text, places, tuple(runs), differs, after)


def _check_rests(session: Session) -> None:
    """Raise if nothing can be appended to a session, before any program is run."""
    now = session.reload()
    check_moved(core_of(now), "record an ablation")
    if now.status in ("closed", "archived"):
        step = "fork it, and ablate in the fork"
        raise WrongStatus(now.short, now.status, "record an ablation", step)
    if (run := open_run_of(now)) is not None:
        raise RunOpen(now.short, run, "ablate a memory", "resume it first, or cancel it")


# ── the place to branch off ──────────────────────────────────────────────────────────────────


class FoundRecall(NamedTuple):
    """A recall of a run that returned the memory."""

    event: Event
    place: int  # on the path: its own, or that of the merge that brought it


def _recalls_of(session: Session, run: RecordedRun, memory: Digest) -> list[FoundRecall]:
    """Return the recalls of a run that returned a memory, in the order of the path."""
    found: list[FoundRecall] = []
    for span, event in walk_path(session, _RECALLED):
        body = event.body
        assert isinstance(body, k.MemoryRecalled)
        is_of_run = (event.header.run or "").partition("/")[0] == run.id
        if is_of_run and memory in [hit.memory for hit in body.hits]:
            found.append(FoundRecall(event, span.via or event.seq))
    return found


def _change_without(
    session: Session, run: RecordedRun, recalls: Sequence[FoundRecall], memory: Digest
) -> dict[str, Any]:
    """Return the options of a what-if that goes another way at the first of these recalls."""
    starts = {recall: _start_of(session, recall.event) for recall in recalls}
    first = min(recalls, key=lambda recall: starts[recall])
    body = first.event.body
    assert isinstance(body, k.MemoryRecalled)
    if first.event.log == session.id and first.event.header.run == run.id:
        kept = [hit.memory for hit in body.hits if hit.memory != memory]
        return {"replace": {first.event.seq: kept}}
    return {"at": starts[first]}


def _start_of(session: Session, event: Event) -> int:
    """Return the last place of the session's own log before an event, or before the branch that
    the event stands in was forked.
    """
    store, log, place = store_at(session.store), event.log, event.seq - 1
    while log != session.id:
        branch = store.log(log)
        place, log = branch.place, LogId(branch.parent or session.id)
    return place


# ── what changes ─────────────────────────────────────────────────────────────────────────────


def _compare(was: Session, branch: Session) -> AblatedRun:
    diff = was.diff(branch)
    texts = [
        [(message.role, message.name, message.text) for message in side if message.text]
        for side in (diff.messages.left, diff.messages.right)
    ]
    calls = _calls_of(was), _calls_of(branch)
    changed = {
        "text": texts[0] != texts[1],
        "calls": calls[0] != calls[1],
        "files": diff.files.left != diff.files.right,
        "verdicts": bool(diff.validation),
    }
    differs = tuple([way for way in WAYS if changed[way]])
    return AblatedRun(branch, differs, diff, calls if changed["calls"] else ((), ()))


def _calls_of(session: Session) -> tuple[str, ...]:
    """Return the calls of a session as texts: tool, arguments, and whether it failed."""
    return tuple(
        [
            f"{effect.tool} {msgspec.json.encode(effect.arguments, order='sorted').decode()}"
            f"{' failed' if effect.failure is not None else ''}"
            for effect in session.effects
        ]
    )
