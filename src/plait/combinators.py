"""Workflows made of workflows: one after another, and side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from typing import Any

import msgspec

from plait.errors import BranchFailed, EffectError, InvalidValue, NotASession
from plait.journal.stops import Cancelled, Parked, Stop
from plait.runtime import loop
from plait.runtime.drivers.on_loop import await_to_end, run_in_thread
from plait.runtime.failures import text_of_error
from plait.runtime.invoke import Invocation
from plait.runtime.registry import run_of
from plait.session import Session
from plait.workflow import Nested, Workflow, acall_as, call_as, original

Resolve = Any  # as in Session.merge
INTERRUPTED_S = 2.0  # seconds that an interrupt waits for branches to come to rest


class Sequential(Workflow):
    """One after another: each gets the session the one before returned."""

    def __init__(self, *workflows: Workflow | Mapping[str, Workflow], **named: Workflow) -> None:
        self._steps = _members_by_name("Sequential", workflows, named)

    def named_children(self) -> Iterator[tuple[str, Nested]]:
        yield from self._steps.items()

    def describe(self) -> str:
        return super().describe() if type(self) is not Sequential else _own_description(self)

    def forward(self, session: Session) -> Session:
        for name, step in self._steps.items():
            session = call_as(name, step, session)
        return session

    def invocation(self, session: Session, **how: Any) -> Invocation:
        call = super().invocation(session, **how)
        if call.forward is not _SEQUENTIAL:  # a subclass has one of its own
            return call
        return msgspec.structs.replace(call, forward_on_loop=self._forward_on_loop)

    async def _forward_on_loop(self, session: Session) -> Session:
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
        self._branches = _members_by_name("Parallel", workflows, named)
        self._resolve = resolve

    def named_children(self) -> Iterator[tuple[str, Nested]]:
        yield from self._branches.items()

    def describe(self) -> str:
        return super().describe() if type(self) is not Parallel else _own_description(self)

    def forward(self, session: Session) -> Session:
        forks = {name: session.fork(name) for name in self._branches}
        calls = {
            name: lambda name=name: call_as(name, self._branches[name], forks[name])
            for name in forks
        }
        run = run_of(session)
        self._stop_unbegun(session, forks)
        start_all: Callable[..., Any] = getattr(
            run.io if run is not None else None, "start_all", loop.start_all
        )
        works, next_done = start_all(calls)
        stopped = False
        try:
            for _ in works:
                name = next_done()
                error = works[name].exception()
                # while one branch is parked, the others go on
                if error is not None and not isinstance(error, Parked) and not stopped:
                    stopped = True
                    self._stop(session, forks, but=name)
        except BaseException:  # the wait is interrupted: no branch goes on behind our back
            self._stop(session, forks)
            # effects that are under way are recorded, if that does not take long
            wait(works.values(), INTERRUPTED_S)
            raise
        results = {
            name: future.result() for name, future in works.items() if future.exception() is None
        }
        failed = _failed_branch({name: future.exception() for name, future in works.items()})
        return self._merge(
            session, forks, results, failed, works[failed].exception() if failed else None
        )

    def invocation(self, session: Session, **how: Any) -> Invocation:
        call = super().invocation(session, **how)
        if call.forward is not _PARALLEL:  # a subclass has one of its own
            return call
        return msgspec.structs.replace(call, forward_on_loop=self._forward_on_loop)

    async def _forward_on_loop(self, session: Session) -> Session:
        forks = await run_in_thread(lambda: {name: session.fork(name) for name in self._branches})
        self._stop_unbegun(session, forks)
        tasks = {
            name: asyncio.ensure_future(acall_as(name, self._branches[name], fork))
            for name, fork in forks.items()
        }
        try:
            await _wait_for_failure(tasks)
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
        failed = _failed_branch(errors)
        error = errors[failed] if failed and not tasks[failed].cancelled() else None
        return await run_in_thread(lambda: self._merge(session, forks, results, failed, error))

    def _stop(self, session: Session, forks: Mapping[str, Session], but: str | None = None) -> None:
        run = run_of(session)
        for name, fork in forks.items():
            if run is not None and name != but:
                run.stops.stop(fork.id)

    def _stop_unbegun(self, session: Session, forks: Mapping[str, Session]) -> None:
        """Stop the branches that were stopped before their first step when this was recorded."""
        run = run_of(session)
        for fork in forks.values():
            if run is not None and run.journal.was_left_behind(fork.id, is_unbegun=True):
                run.stops.stop(fork.id)

    def _merge(
        self,
        session: Session,
        forks: Mapping[str, Session],
        results: Mapping[str, Session],
        failed: str | None,
        error: BaseException | None,
    ) -> Session:
        """Return the session with the results merged; raise if a branch failed."""
        if failed is not None:
            if isinstance(error, Cancelled) or not isinstance(error, Exception):
                raise error if error is not None else Cancelled(f"branch {failed!r} was cancelled")
            branches = {name: fork.reload() for name, fork in forks.items()}
            after = error.session if isinstance(error, EffectError) else branches[failed]
            raise BranchFailed(
                failed, f"{type(error).__name__}: {text_of_error(error)}", after, branches
            ) from error
        for name, result in results.items():
            if not isinstance(result, Session):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise NotASession(f"branch {name!r} returned", result)
        changed = [result for result in results.values() if result != session]
        return session.merge(*changed, resolve=self._resolve) if changed else session


_PARALLEL = original(Parallel)


def _failed_branch(errors: Mapping[str, BaseException | None]) -> str | None:
    """Return the branch that failed: of several, always the same one, whichever failed first this
    time. None: none did.
    """
    found = [
        (_error_rank(error), place, name)
        for place, (name, error) in enumerate(errors.items())
        if error is not None
    ]
    return min(found)[2] if found else None


def _error_rank(error: BaseException) -> int:
    """Return 0 for an error that interrupts the process, and more for each that counts less; a
    branch that was only stopped counts least.
    """
    if isinstance(error, (Cancelled, asyncio.CancelledError)):
        return 4
    if isinstance(error, Parked):
        return 3
    if isinstance(error, Stop):
        return 2
    return 1 if isinstance(error, Exception) else 0


async def _wait_for_failure(tasks: Mapping[str, asyncio.Task[Session]]) -> None:
    """Wait until one fails, or all are done; while one is parked, the others go on."""
    left = set(tasks.values())
    while left:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_EXCEPTION)
        if any(
            task.cancelled()
            or (task.exception() is not None and not isinstance(task.exception(), Parked))
            for task in done
        ):
            return


def _own_description(workflow: Workflow) -> str:
    """Return the description that was set, or "": the docstrings of these classes say nothing about
    their members, so a model that chooses is not shown them.
    """
    return getattr(workflow, "description", None) or ""


def _members_by_name(
    kind: str, given: Sequence[Workflow | Mapping[str, Workflow]], named: Mapping[str, Workflow]
) -> dict[str, Workflow]:
    """Return workflows by name: given by keyword, in a mapping, or in a row, where the place is the
    name.
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
