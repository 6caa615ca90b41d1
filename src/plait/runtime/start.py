"""Starting a run: its lock, its parts, and the event that begins it."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import platform
import sys
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib import metadata
from threading import Lock
from typing import Any
from urllib.parse import unquote

import msgspec

from plait.errors import InvalidInput, InvalidValue, RunOpen
from plait.errors.spelling import CALL_NAMES
from plait.event import Event, Json
from plait.event import kinds as k
from plait.event.vocabulary import VOCABULARY
from plait.ids import LogId, digest, house_of, inbox_of
from plait.journal.writer import direct_writer
from plait.runtime.attendants import Watch, check_attendants
from plait.runtime.drivers.blocking import Blocking, Waiter
from plait.runtime.executing import executing
from plait.runtime.names import principal_of
from plait.runtime.registry import open_run, released_run
from plait.runtime.run import Run
from plait.runtime.safe_points import turn_delivery
from plait.runtime.spend import run_budget
from plait.session import Session
from plait.session.moves import check_arrived
from plait.session.pauses import check_not_paused
from plait.session.ports import Act, Draft, store_at
from plait.session.run_rows import run_of_branch
from plait.session.turn_rows import run_of_turn
from plait.session.typed import to_json
from plait.session.value import advance, core_of, delivered_seq, open_run_of, position_of
from plait.store import Log


def start_run(
    session: Session,
    started: k.RunStarted,
    watch: Watch,
    waiter: Waiter | None,
    turn: Event | None = None,
    heads: Mapping[LogId, Log] | None = None,
    *,
    is_held: bool = True,
) -> tuple[Run, Session]:
    """Start a run on a session; return it and the value that its outermost call has in hand.

    `turn`: the message in the inbox that it answers. The message and the start are one append, so
    that a turn is taken once. `heads`: as a caller has read them that has just read the session.
    Without `is_held` this process never has the run: any process may take it from its first event
    on.
    """
    spot = position_of(session)
    store, inbox = store_at(spot.store), inbox_of(spot.id)
    heads = heads or store.heads([spot.id, inbox, house_of(store.id)])
    log = heads.get(spot.id) or store.log(spot.id)  # which raises
    check_arrived(store, [spot.id], heads)
    if (open_now := open_run_of(session) or run_of_branch(store, log)) is not None:
        raise RunOpen(session.short, open_now)
    id = (
        str(direct_writer().source(spot.store).fresh("run", spot.id, spot.seq))
        if turn is None
        else run_of_turn(turn.id)
    )
    lock = store.lock(id, session.short) if is_held else None
    run = None
    try:
        said_by = turn.header if turn is not None else None
        behalf = (said_by.behalf or said_by.actor) if said_by is not None else None
        run = new_run(id, session, watch, waiter, behalf)
        run.lock = lock
        if (budget := run_budget(session, run)) is not None:
            run.budgets.set_root(budget)
        run.started_at = max(
            heads[inbox].tip if inbox in heads else 0, turn.seq if turn is not None else 0
        )
        if turn is None and run.started_at:  # the client of a turn has looked
            check_not_paused(core_of(session), "run a workflow")
        draw_under(run)
        said = [] if turn is None else _seal_delivery(session, turn)
        if said:
            last = said[-1]
            spot = msgspec.structs.replace(spot, seq=last.seq, head=last.id)
        inside = advance(session, msgspec.structs.replace(spot, run=id))
        after, _ = run.journal.append(
            position_of(inside),
            [Draft(started, Act(run.settings.behalf, "program"))],
            held=said,
        )
        # All that raises the epoch moves the head, too: since the append found the head, the epoch
        # was that of the log until then.
        run.journal.fence.hold(log.epoch + 1)
        if turn is not None:  # the first safe point need not fold the log for it
            upto = max(turn.seq, delivered_seq(session))
            run.journal.deliveries.advance(session.id, upto)
    except BaseException:
        if run is not None:
            run.journal.fence.is_closed = True
        if lock is not None:
            lock.release()
        raise
    if is_held:
        open_run(run)
    else:
        run.journal.fence.is_closed = True
    return run, advance(inside, after, k.RunStarted.__name__)


def _seal_delivery(session: Session, turn: Event) -> list[Event]:
    """Return the events that bring the message of a turn into its session, before the run."""
    at = msgspec.structs.replace(position_of(session), run=None)
    return direct_writer().seal(at, turn_delivery(session, turn))[1]


def new_run(
    id: str, session: Session, watch: Watch, waiter: Waiter | None, behalf: str | None = None
) -> Run:
    """Return a run on a session that stands where the run starts."""
    check_attendants(session, watch)
    direct = direct_writer()
    behalf = behalf or (
        f"human:{principal_of(session.user)}" if session.user else direct.principal()
    )
    run = Run(id, session, direct, waiter or Blocking(), behalf=behalf, on_event=watch.on_event)
    run.settings.approver, run.settings.answerer = watch.approver, watch.answerer
    here = executing()
    past = released_run(session.run) if session.run != id else None
    is_here = past is not None and past.home == session.store
    run.journal.fence.rest_on(
        here[0].journal.fence if here is not None else None,
        past.fences if past is not None and is_here else (),
    )
    run.journal.requires_verdicts = bool(session.checks.gates)
    # the agent that spoke last, in whichever run, has the session until another is called
    replies = store_at(session.store).read(session.id, 1, session.seq, kinds=_REPLIES, reverse=True)
    if (reply := next(replies, None)) is not None:
        run.stack.hand_over(session.id, id, unquote(reply.actor.partition(":")[2]))
    return run


_REPLIES = frozenset({k.ModelReplied.__name__})


def draw_under(run: Run) -> None:
    """Bind a run that code of another run starts, on any session: it may no more than that
    code, and draws on its budget as well.
    """
    here = executing()
    if here is None or here[0] is run:
        return
    outer, frame = here
    run.reads = outer.reads
    run.settings.policies = (
        *run.settings.policies,
        *outer.settings.policies,
        *(frame.policies if frame is not None else ()),
    )
    above = outer.budgets.of(frame.log if frame is not None else outer.root)
    if above is not None:
        run.budgets.draw_on(above)


# ── the fields of RunStarted ─────────────────────────────────────────────────────────────────


def check_forward(
    node: object, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Raise if a `forward` cannot be called with these besides the session."""
    misfit = _misfit(forward, len(args), tuple(kwargs))
    if not misfit:
        return
    cls = type(node).__qualname__
    step = "pass what forward takes besides the session"
    if other := [CALL_NAMES[name] for name in kwargs if name in CALL_NAMES]:
        step = f"write {other[0]}"
    elif len(args) == 1 and isinstance(args[0], str):
        step = "write session.turn(TEXT, workflow) to say something and have it answered"
    raise InvalidValue(cls, f"its forward does not take that: {misfit}", step)


@lru_cache(256)  # every turn asks
def _misfit(forward: Callable[..., Any], count: int, names: tuple[str, ...]) -> str:
    """Return why a forward does not take so many arguments, and those of these names, besides the
    session; "" if it does.
    """
    try:
        inspect.signature(forward).bind(*[None] * (2 + count), **dict.fromkeys(names))
    except TypeError as error:
        return str(error)
    return ""


def forward_arguments(
    node: object, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Json:
    """Return the arguments of `forward` besides the session, as far as JSON can carry them; None if
    there are none. Raises if it does not take them.
    """
    if not args and not kwargs:
        return None
    check_forward(node, forward, args, kwargs)
    try:
        plain = to_json({"args": list(args), "kwargs": dict(kwargs)})
        VOCABULARY.encode(k.ScratchSet("arguments", plain))
    except (TypeError, ValueError, RecursionError, InvalidInput):
        return {
            "repr": repr((args, dict(kwargs)))[:1000].encode("utf-8", "backslashreplace").decode()
        }
    return plain


MAIN = "__main__:"  # the beginning of the import path of a class in that file
_parsing = Lock()


@cache
def source_revision(cls: type) -> str:
    """Return a digest of a class's source, for people to compare: nothing depends on it."""
    try:
        file = inspect.getfile(cls)
        linecache.checkcache(file)
        lines = linecache.getlines(file, vars(sys.modules[cls.__module__]))
        with _parsing:  # Python's own parser may fail when two threads are in it
            first = _class_lines("".join(lines))[cls.__qualname__]
        source = "".join(inspect.getblock(lines[first - 1 :]))
    except Exception:  # a notebook, an interpreter, a frozen program
        return ""
    return digest(b"plait/revision/1", source.encode("utf-8", "surrogatepass"))[:16]


@lru_cache(maxsize=16)
def _class_lines(source: str) -> dict[str, int]:
    """Return the first line of each class of a file, by qualified name.

    `inspect.getsource` parses the whole file again for each class.
    """
    found: dict[str, int] = {}

    def look_into(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                lines = [child.lineno, *[each.lineno for each in child.decorator_list]]
                found.setdefault(prefix + child.name, min(lines))
                look_into(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                look_into(child, f"{prefix}{child.name}.<locals>.")
            elif not isinstance(child, ast.expr):
                look_into(child, prefix)

    look_into(ast.parse(source), "")
    return found


@lru_cache(maxsize=64)
def environment_facts(workflow: str) -> tuple[tuple[str, str], ...]:
    """Return the versions that a run notes of its process; and the file that `python` was started
    with, if its program stands there: the name of that module, `__main__`, does not tell it.
    """
    try:
        version = metadata.version("plait")
    except metadata.PackageNotFoundError:
        version = "unknown"
    return (
        ("plait", version),
        ("python", platform.python_version()),
        ("system", platform.system()),
        *([("main", file)] if workflow.startswith(MAIN) and (file := _main_file()) else []),
    )


def _main_file() -> str:
    """Return the file that `python` was started with; "": a notebook, an interpreter."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.realpath(file) if isinstance(file, str) and os.path.isfile(file) else ""
