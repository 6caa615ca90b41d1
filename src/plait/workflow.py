"""Workflows: `forward(session) -> session`, nested freely, as layers are.

Call the thing, write the `forward`. Children register by being attributes (also in lists and
dicts), so the tree can be printed, walked and rebound. `workflow(session)` and
`workflow.forward(session)` are the same act: the class wraps `forward` at definition, and either
spelling starts a run or joins the one the value belongs to.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from functools import cache, wraps
from threading import Lock
from typing import Any, Literal, Self, cast, get_args

from plait import inside
from plait.errors import BranchFailed, EffectError, InvalidValue, NotASession
from plait.event import Event
from plait.event.kinds import Purpose
from plait.fingerprint import TARGET
from plait.ids import digest
from plait.journal.stops import Cancelled, Parked, Stop
from plait.model.base import Delta, Model
from plait.runtime import loop
from plait.runtime.call import (
    NOBODY,
    Answerer,
    Calling,
    Entry,
    Watch,
    arguments_of,
    enter,
    fail,
    leave,
)
from plait.runtime.drivers.blocking import Waiter
from plait.runtime.drivers.on_loop import await_to_end, finish_in_thread, run_in_thread
from plait.runtime.executing import note_raised
from plait.runtime.listeners import OnEvent
from plait.runtime.names import import_path
from plait.runtime.policy import Approver, Policy
from plait.runtime.reads import Calls, doing
from plait.runtime.registry import run_of
from plait.runtime.run import Run, acting, running
from plait.session import Session
from plait.session.ports import Position

Resolve = Any  # as in Session.merge
INTERRUPTED_S = 2.0  # how long an interrupt waits for branches to come to rest


class Nested:
    """Something that has children and can be shown as a tree."""

    def named_children(self) -> Iterator[tuple[str, Nested]]:
        """The children with their names, in the order they were set."""
        for name, value in vars(self).items():
            if name.startswith("_"):
                continue
            yield from _named(name, value)

    def children(self) -> Iterator[Nested]:
        for _, child in self.named_children():
            yield child

    def named_parts(
        self, prefix: str = "", above: tuple[Nested, ...] = ()
    ) -> Iterator[tuple[str, Nested]]:
        """Everything below, by path: critics/style.

        A child that knows its parent is no reason to go round in circles.
        """
        line = (*above, self)
        for name, child in self.named_children():
            if not any(child is each for each in line):
                path = f"{prefix}/{name}" if prefix else name
                yield path, child
                yield from child.named_parts(path, line)

    def to(self, *, model: str | Model) -> Self:
        """Ask this model from now on, in every agent and selector below.

        Returns the same object, as PyTorch does.
        """
        for part in (self, *(part for _, part in self.named_parts())):
            part._rebind(model)
        return self

    def _rebind(self, model: str | Model) -> None:
        """What has a model of its own takes the new one."""

    def describe(self) -> str:
        """What it is good for, in a line: its description, else the first line of its docstring."""
        given = getattr(self, "description", None)
        doc = type(self).__doc__ if type(self).__module__ != __name__ else None
        return given or (inspect.cleandoc(doc).partition("\n")[0] if doc else "")

    def _brief(self) -> str:
        """What stands in its brackets when it is printed."""
        return ""

    def __repr__(self) -> str:
        return self._drawn(())

    def _drawn(self, above: tuple[Nested, ...]) -> str:
        if any(self is each for each in above):
            return f"{type(self).__name__}(…)"
        lines = [
            f"({name}): {child._drawn((*above, self))}".replace("\n", "\n  ")
            for name, child in self.named_children()
        ]
        brief = self._brief()
        if not lines:
            return f"{type(self).__name__}({brief})"
        return "\n".join([f"{type(self).__name__}({brief}", *(f"  {line}" for line in lines), ")"])


def _named(name: str, value: Any) -> Iterator[tuple[str, Nested]]:
    if isinstance(value, Nested):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[Any, Any]", value).items():
            yield from _named(f"{name}.{key}", item)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(cast("Sequence[Any]", value)):
            yield from _named(f"{name}.{index}", item)


def check_setting(name: str, value: object) -> None:
    """Raise InvalidValue for an attribute that a workflow cannot have."""
    if name in _RESERVED:
        raise InvalidValue(name, "a workflow has a method of that name", "use another name")
    if value is None:
        return
    if name == "policy" and not isinstance(value, Policy):
        raise InvalidValue(name, f"a {type(value).__name__} is not one", "pass Policy(…), or None")
    choices = _CHOICES.get(name)
    if choices is not None and value not in choices:
        step = f"use one of {', '.join(choices)}, or None"
        raise InvalidValue(name, f"{value!r:.80} is not one", step)


def _missing(self: Any, session: Session) -> Session:
    raise NotImplementedError(
        f"{type(self).__name__} has no forward(self, session). Write one, and return the session"
        " that came last."
    )


class Workflow(Nested):
    """Write `forward(self, session)`, plain or async, and return the session that came last."""

    # plan, act, validate, reflect, route; or pass purpose= where it is called
    purpose: Purpose | None = None
    policy: Policy | None = None  # what it, and whoever it calls, may do. None: what its caller may
    # what is done about acts around the session; None: PLAIT_BYPASS, or record
    bypass: Literal["record", "warn", "refuse"] | None = None
    # what it is called where it is nobody's attribute; None: its class, in lower case
    name: str | None = None

    # Not a method: a forward may be plain or async and take more than the session, and type
    # checkers are to let it.
    forward: Callable[..., Any] = _missing

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute; raise InvalidValue for a method's name or a setting of another type.

        Otherwise the mistake would show where the workflow is called, far from its cause.
        """
        check_setting(name, value)
        super().__setattr__(name, value)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        forward: Any = cls.forward  # its own, or that of a mixin
        if forward is not _missing and not hasattr(forward, _MARK):
            cls.forward = _joining(forward)

    def __call__(
        self,
        session: Session,
        *args: Any,
        on_event: OnEvent | None = None,
        approver: Approver | None = None,
        answerer: Answerer | None = None,
        **kwargs: Any,
    ) -> Session:
        """Run it, blocking. `on_event=` is called with every event as it is recorded, and with
        deltas as a model streams.

        `approver=` and `answerer=` are asked at once for consent and for answers; without them a
        run that needs either is `Parked`.
        """
        return self._run(
            original(type(self)), session, args, kwargs, watch=Watch(on_event, approver, answerer)
        )

    async def acall(
        self,
        session: Session,
        *args: Any,
        on_event: OnEvent | None = None,
        approver: Approver | None = None,
        answerer: Answerer | None = None,
        **kwargs: Any,
    ) -> Session:
        """The same for whoever has an event loop: an `async def forward` runs on it, a plain one in
        a thread.
        """
        return await self._acall(session, args, kwargs, Watch(on_event, approver, answerer))

    def stream(self, session: Session, *args: Any, **kwargs: Any) -> Iterator[Delta | Session]:
        """Run it, and yield text and tool deltas as they come; the last item is the new session."""
        return _stream(self, session, args, kwargs)

    def astream(
        self, session: Session, *args: Any, **kwargs: Any
    ) -> AsyncIterator[Delta | Session]:
        return _astream(self, session, args, kwargs)

    # ── one call ─────────────────────────────────────────────────────────────────────────────

    def _called(self, session: object, called: str | None = None) -> str:
        """Its name: its own, else the one it is called by, else the one it has in
        whoever calls it.
        """
        if (isinstance(self.name, str) and self.name) or called:
            return self.name or called or ""
        run = run_of(session) if isinstance(session, Session) else None
        frames = run.stack.frames(session.id) if run and isinstance(session, Session) else ()
        parent = frames[-1].node if frames else None
        found = (
            next((path for path, part in parent.named_parts() if part is self), None)
            if isinstance(parent, Nested)
            else None
        )
        return found or self._own_name()

    def _own_name(self) -> str:
        return type(self).__name__.lower()

    def _calling(
        self,
        session: object,
        forward: object,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        called: str | None,
    ) -> Calling:
        cls = type(self)
        path = import_path(cls)
        return Calling(
            self,
            forward,
            self._called(session, called),
            path,
            lambda: _revision(cls),
            self.purpose,
            arguments=arguments_of(args, kwargs),
            environment=target_of(self),
            policy=self.policy,
            bypass=self.bypass,
        )

    def _act(
        self,
        forward: Callable[..., Any],
        session: Session,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        result = forward(self, session, *args, **kwargs)
        return (
            loop.wait(loop.spawn(lambda: asyncio.run(_await(result))))
            if inspect.isawaitable(result)
            else result
        )

    async def _aact(
        self,
        forward: Callable[..., Any],
        session: Session,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        if inspect.iscoroutinefunction(forward):
            return await forward(self, session, *args, **kwargs)
        work = asyncio.wrap_future(loop.spawn(lambda: self._act(forward, session, args, kwargs)))
        try:
            return await asyncio.shield(work)
        # it is stopped before its next effect, and waited for: nothing goes on behind our back
        except asyncio.CancelledError:
            run = run_of(session)
            stop = run.stops.stop(session.id) if run is not None else 0
            with suppress(BaseException):
                await await_to_end(work)
            if run is not None:
                run.stops.undo(stop)
            raise

    def _run(
        self,
        forward: Callable[..., Any],
        session: Session,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        watch: Watch = NOBODY,
        waiter: Waiter | None = None,
        on_start: Callable[[Entry], None] | None = None,
        called: str | None = None,
        again: Run | None = None,
    ) -> Session:
        kwargs = kwargs or {}
        watch = _noting(watch, session)
        entry = enter(
            session,
            self._calling(session, forward, args, kwargs, called),
            watch=watch,
            waiter=waiter,
            again=again,
        )
        mine, call, before = (
            running.set(entry.run),
            acting.set(entry.frame),
            doing.set(_calls(entry)),
        )
        outer = inside.enter_code()
        raised: BaseException | None = None
        try:
            with _heard(entry, watch.on_event):
                if on_start is not None:
                    on_start(entry)
                entry.run.stack.begin_code(entry.frame)
                result = self._act(forward, entry.session, args, kwargs)
        except BaseException as error:
            raised = error
            instead = fail(entry, error)
            if instead is not None:
                raise instead from None
            raise
        finally:
            inside.leave_code(outer)
            running.reset(mine)
            doing.reset(before)
            acting.reset(call)
            if raised is not None:
                note_raised(entry.run, entry.frame, entry.callers, raised)
        return leave(entry, result)

    async def _acall(
        self,
        session: Session,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        watch: Watch,
        called: str | None = None,
    ) -> Session:
        forward = original(type(self))
        watch = _noting(watch, session)
        entry, hit = await finish_in_thread(
            lambda: enter(
                session, self._calling(session, forward, args, kwargs, called), watch=watch
            )
        )
        mine, call, before = (
            running.set(entry.run),
            acting.set(entry.frame),
            doing.set(_calls(entry)),
        )
        caught: BaseException | None = None
        try:
            if hit is not None:
                raise hit
            with _heard(entry, watch.on_event):
                entry.run.stack.begin_code(entry.frame)
                result = await self._aact(forward, entry.session, args, kwargs)
        except BaseException as error:
            caught = failed = error
            instead, _ = await finish_in_thread(lambda: fail(entry, failed))
            if instead is not None:
                raise instead from None
            raise
        finally:
            running.reset(mine)
            doing.reset(before)
            acting.reset(call)
            if caught is not None:
                note_raised(entry.run, entry.frame, entry.callers, caught)
        return await run_in_thread(lambda: leave(entry, result))


def _calls(entry: Entry) -> Calls:
    """The calls that go on now.

    A thread that the program started does not know them from its context.
    """
    above = doing.get() or tuple([frame.call for frame in entry.callers])
    return (*above, entry.frame.call)


def _noting(watch: Watch, session: Session) -> Watch:
    """Who attends the call, such that what code of a run hears of it counts as read
    by that code.
    """
    on_event = watch.on_event
    run = (
        (running.get() or run_of(session))
        if on_event is not None and isinstance(session, Session)  # pyright: ignore[reportUnnecessaryIsInstance]
        else None
    )
    if on_event is None or run is None or run.closed:
        return watch
    calls, store = run.calls(session.id), session.store

    def noted(item: Event | Delta) -> object:
        if isinstance(item, Event):  # a delta is of a reply whose ask was heard before
            run.reads.note(calls, Position(store, item.log, item.seq, item.id))
        return on_event(item)

    return watch._replace(on_event=noted)


@contextmanager
def _heard(entry: Entry, on_event: OnEvent | None) -> Generator[None]:
    """In a call inside a run, the listener hears what happens in this call; that of the run is
    there from its start.
    """
    if on_event is None or entry.outermost:
        yield
        return

    def within(item: Event | Delta) -> object:
        path = entry.frame.path
        mine = (
            item.log == entry.frame.log
            if isinstance(item, Event)
            else item.agent == path or item.agent.startswith(f"{path}/")
        )
        return on_event(item) if mine else None

    entry.run.listeners.add(within)
    try:
        yield
    finally:
        entry.run.listeners.remove(within)


def call_as(name: str, workflow: Workflow, session: Session, **kwargs: Any) -> Session:
    """Call a child by the name it has here: it may be somebody else's child, too, under another
    one.
    """
    watch = Watch(kwargs.pop("on_event", None))
    return workflow._run(original(type(workflow)), session, (), kwargs, watch=watch, called=name)  # pyright: ignore[reportPrivateUsage]


async def acall_as(name: str, workflow: Workflow, session: Session, **kwargs: Any) -> Session:
    watch = Watch(kwargs.pop("on_event", None))
    return await workflow._acall(session, (), kwargs, watch, name)  # pyright: ignore[reportPrivateUsage]


def call_again(
    workflow: Workflow,
    run: Run,
    session: Session,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    watch: Watch,
) -> Session:
    """Call a workflow from where a run of it started: what it did then is answered
    from the record.
    """
    return workflow._run(original(type(workflow)), session, args, kwargs, watch=watch, again=run)  # pyright: ignore[reportPrivateUsage]


def name_target(workflow: Workflow, where: Mapping[str, str]) -> None:
    """Say where this very object can be found again: a file and the name it has there."""
    vars(workflow)[TARGET] = id(workflow), dict(where)


def target_of(workflow: Workflow) -> dict[str, str]:
    """Where an object can be found again. Empty: nowhere, as for a copy of one that can."""
    owner, where = vars(workflow).get(TARGET, (None, {}))
    return where if owner == id(workflow) else {}


_MARK = "__plait_forward__"
_CHOICES: dict[str, tuple[str, ...]] = {
    "purpose": get_args(Purpose),
    "bypass": ("record", "warn", "refuse"),
}
# The methods of every workflow, and `forward`, which is wrapped where its class is defined.
_RESERVED = frozenset(
    name
    for owner in (Nested, Workflow)
    for name, value in vars(owner).items()
    if inspect.isfunction(value) and not name.startswith("__")
)


def original(cls: type[Workflow]) -> Callable[..., Any]:
    """`forward` as it was written, decorators and all."""
    forward: Any = cls.forward
    return getattr(forward, _MARK, forward)


def _joining(forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def joined(
        self: Workflow, session: Session, *args: Any, on_event: OnEvent | None = None, **kwargs: Any
    ) -> Any:
        run = run_of(session) if isinstance(session, Session) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        frames = run.stack.frames(session.id) if run else ()
        if frames and frames[-1].node is self and frames[-1].forward is not forward:
            # super().forward(session): the same call
            return forward(self, session, *args, **kwargs)
        return self._run(forward, session, args, kwargs, watch=Watch(on_event))  # pyright: ignore[reportPrivateUsage]

    setattr(joined, _MARK, forward)
    return joined


async def _await(result: Any) -> Any:
    return await result


_parsing = Lock()


@cache
def _revision(cls: type) -> str:
    """A digest of the class's source: it informs, it does not decide."""
    try:
        with _parsing:  # Python's own parser may fail when two threads are in it
            source = inspect.getsource(cls)
    except Exception:  # a notebook, an interpreter, a frozen program
        return ""
    return digest(b"plait/revision/1", source.encode("utf-8", "surrogatepass"))[:16]


# ── streaming ────────────────────────────────────────────────────────────────────────────────

_END: Any = object()


def _stream(
    workflow: Workflow, session: Session, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[Delta | Session]:
    items: queue.SimpleQueue[Any] = queue.SimpleQueue()
    calls: list[Entry] = []
    more = dict(kwargs)
    tell = _both(items.put, more.pop("on_event", None))
    work = lambda: workflow._run(  # noqa: E731  # pyright: ignore[reportPrivateUsage]
        original(type(workflow)), session, args, more, watch=Watch(tell), on_start=calls.append
    )
    future = loop.spawn(work, "plait-stream")
    future.add_done_callback(lambda _: items.put(_END))
    try:
        while (item := items.get()) is not _END:
            if not isinstance(item, Event):
                yield item
        yield future.result()
    finally:
        if not future.done():  # nobody reads on: stop, and wait until the session is left in order
            stops = [(call.run, call.run.stops.stop(call.frame.log)) for call in calls]
            while items.get() is not _END:
                pass
            for run, stop in stops:
                run.stops.undo(stop)


def _both(one: OnEvent, other: OnEvent | None) -> OnEvent:
    return one if other is None else lambda item: (one(item), other(item))


async def _astream(
    workflow: Workflow, session: Session, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> AsyncIterator[Delta | Session]:
    items: asyncio.Queue[Any] = asyncio.Queue()
    here = asyncio.get_running_loop()
    more = dict(kwargs)

    def tell(item: Event | Delta) -> None:
        here.call_soon_threadsafe(items.put_nowait, item)

    task = asyncio.ensure_future(
        workflow.acall(session, *args, on_event=_both(tell, more.pop("on_event", None)), **more)
    )
    task.add_done_callback(lambda _: here.call_soon(items.put_nowait, _END))
    try:
        while (item := await items.get()) is not _END:
            if not isinstance(item, Event):
                yield item
        yield await task
    finally:
        if not task.done():
            task.cancel()
            with suppress(BaseException):
                await await_to_end(task)


# ── the two that everybody needs ─────────────────────────────────────────────────────────────


class Sequential(Workflow):
    """One after another: each gets the session the one before returned."""

    def __init__(self, *workflows: Workflow | Mapping[str, Workflow], **named: Workflow) -> None:
        self._steps = _members("Sequential", workflows, named)

    def named_children(self) -> Iterator[tuple[str, Nested]]:
        yield from self._steps.items()

    def forward(self, session: Session) -> Session:
        for name, step in self._steps.items():
            session = call_as(name, step, session)
        return session

    async def _aact(
        self,
        forward: Callable[..., Any],
        session: Session,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        if forward is not _SEQUENTIAL:  # a subclass has one of its own
            return await super()._aact(forward, session, args, kwargs)
        for name, step in self._steps.items():
            session = await acall_as(name, step, session)
        return session


_SEQUENTIAL = original(Sequential)


class Parallel(Workflow):
    """Fork, run every branch at the same time, and merge.

    If a branch fails the others are stopped and nothing is merged.
    """

    def __init__(
        self,
        *workflows: Workflow | Mapping[str, Workflow],
        resolve: Resolve = None,
        **named: Workflow,
    ) -> None:
        self._branches = _members("Parallel", workflows, named)
        self._resolve = resolve

    def named_children(self) -> Iterator[tuple[str, Nested]]:
        yield from self._branches.items()

    def forward(self, session: Session) -> Session:
        forks = {name: session.fork(name) for name in self._branches}
        calls = {
            name: lambda name=name: call_as(name, self._branches[name], forks[name])
            for name in forks
        }
        run = run_of(session)
        start_all: Callable[..., Any] = getattr(
            run.io if run is not None else None, "start_all", loop.start_all
        )
        works, next_done = start_all(calls)
        stopped = False
        try:
            for _ in works:
                name = next_done()
                error = works[name].exception()
                # While one branch waits for somebody, the others go on.
                if error is not None and not isinstance(error, Parked) and not stopped:
                    stopped = True
                    self._stop(session, forks, but=name)
        except BaseException:  # somebody interrupts the wait: no branch goes on behind our back
            self._stop(session, forks)
            # what is being done is recorded, if that does not take long
            wait(works.values(), INTERRUPTED_S)
            raise
        results = {
            name: future.result() for name, future in works.items() if future.exception() is None
        }
        failed = _failing({name: future.exception() for name, future in works.items()})
        return self._merged(
            session, forks, results, failed, works[failed].exception() if failed else None
        )

    async def _aact(
        self,
        forward: Callable[..., Any],
        session: Session,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        if forward is not _PARALLEL:
            return await super()._aact(forward, session, args, kwargs)
        forks = await run_in_thread(lambda: {name: session.fork(name) for name in self._branches})
        tasks = {
            name: asyncio.ensure_future(acall_as(name, self._branches[name], fork))
            for name, fork in forks.items()
        }
        try:
            await _first_failure(tasks)
        finally:
            for task in tasks.values():
                task.cancel()
            await await_to_end(asyncio.wait(tasks.values()))
        results = {
            name: task.result()
            for name, task in tasks.items()
            if not task.cancelled() and task.exception() is None
        }
        errors = {
            name: asyncio.CancelledError() if task.cancelled() else task.exception()
            for name, task in tasks.items()
        }
        failed = _failing(errors)
        error = errors[failed] if failed and not tasks[failed].cancelled() else None
        return await run_in_thread(lambda: self._merged(session, forks, results, failed, error))

    def _stop(self, session: Session, forks: Mapping[str, Session], but: str | None = None) -> None:
        run = run_of(session)
        for name, fork in forks.items():
            if run is not None and name != but:
                run.stops.stop(fork.id)

    def _merged(
        self,
        session: Session,
        forks: Mapping[str, Session],
        results: Mapping[str, Session],
        failed: str | None,
        error: BaseException | None,
    ) -> Session:
        if failed is not None:
            if isinstance(error, Cancelled) or not isinstance(error, Exception):
                raise error if error is not None else Cancelled(f"branch {failed!r} was cancelled")
            branches = {name: fork.reload() for name, fork in forks.items()}
            after = error.session if isinstance(error, EffectError) else branches[failed]
            raise BranchFailed(
                failed, f"{type(error).__name__}: {error}", after, branches
            ) from error
        for name, result in results.items():
            if not isinstance(result, Session):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise NotASession(f"branch {name!r} returned", result)
        changed = [result for result in results.values() if result != session]
        return session.merge(*changed, resolve=self._resolve) if changed else session


def _failing(errors: Mapping[str, BaseException | None]) -> str | None:
    """Which branch failed: of several, always the one that was named first, whoever came first this
    time; None: none did.
    """
    found = [
        (_weight(error), place, name)
        for place, (name, error) in enumerate(errors.items())
        if error is not None
    ]
    return min(found)[2] if found else None


def _weight(error: BaseException) -> int:
    """What interrupts the process counts most; who only was stopped, least."""
    if isinstance(error, (Cancelled, asyncio.CancelledError)):
        return 4
    if isinstance(error, Parked):
        return 3
    if isinstance(error, Stop):
        return 2
    return 1 if isinstance(error, Exception) else 0


async def _first_failure(tasks: Mapping[str, asyncio.Task[Session]]) -> None:
    """Wait until one fails, or all are done; while one waits for somebody, the others go on."""
    left = set(tasks.values())
    while left:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_EXCEPTION)
        if any(
            task.cancelled()
            or (task.exception() is not None and not isinstance(task.exception(), Parked))
            for task in done
        ):
            return


_PARALLEL = original(Parallel)


def _members(
    kind: str, given: Sequence[Workflow | Mapping[str, Workflow]], named: Mapping[str, Workflow]
) -> dict[str, Workflow]:
    """Workflows by name: given by keyword, in a mapping, or in a row, where the
    place is the name.
    """
    found: dict[str, Workflow] = {}
    for index, each in enumerate(given):
        found.update(each if isinstance(each, Mapping) else {str(index): each})
    found.update(named)
    if not found:
        raise InvalidValue(kind, "it has nothing to run", "pass workflows")
    for name, workflow in found.items():
        if not isinstance(workflow, Workflow):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
            raise InvalidValue(
                kind,
                f"{name!r} is a {type(workflow).__name__}, not a workflow",
                "pass agents and workflows",
            )
    return found
