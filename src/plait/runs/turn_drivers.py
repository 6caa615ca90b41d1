"""Drivers of turns: in a thread, on an event loop, and apart from a caller who may go away; and of
queues whose clients are gone.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from plait.errors.spelling import CALL_NAMES, check_argument_names
from plait.event import Event
from plait.model.base import Delta
from plait.runs.take_up import aresume_run, resume_run
from plait.runs.turn_circles import TurnWait, waiting_for_turn
from plait.runs.turn_queue import QueueClient, QueueKeeper, TakeTurn, TakeUp, WaitFor
from plait.runs.turns import TurnClient
from plait.runtime.attendants import Watch
from plait.runtime.drivers.on_loop import finish_in_thread, run_in_thread
from plait.runtime.interrupts import handle_interrupts, held_interrupts, next_item
from plait.runtime.invoke import EnteredCall, ainvoke, invoke
from plait.runtime.process import THIS_PROCESS
from plait.runtime.workers import start_lasting_work
from plait.session import Session
from plait.streaming import hear_also
from plait.workflow import Workflow

_END: Any = object()
_CLOSE_S = 10.0  # of silence, until a stream that was stopped waits no more


def _watch_of(given: Mapping[str, Any]) -> Watch:
    """Return the attendants of a turn, or raise for an argument that turns do not have."""
    check_argument_names("a turn", given, ("key", "actor", *Watch._fields), CALL_NAMES)
    return Watch(**given)


def _drive(client: QueueClient) -> Session:
    """Take the steps of a client in this thread."""
    woken = threading.Event()
    client.attend(woken.set)
    try:
        while True:
            client.check_interrupt()
            step = client.look()
            if isinstance(step, Session):
                return step
            if isinstance(step, WaitFor):
                woken.wait(step.seconds)
                woken.clear()
                continue
            begun: list[object] = []

            def begin(entered: EnteredCall, begun: list[object] = begun) -> None:
                begun.append(entered)
                client.begin(entered.run)

            try:
                if isinstance(step, TakeTurn):
                    after = invoke(client.call_of(step, begin))
                else:
                    session, workflow, watch = client.resumption_of(step)
                    after = resume_run(
                        session,
                        workflow,
                        (),
                        {},
                        watch,
                        None,
                        client.begin,
                        lifts_pause=False,
                    )
            except BaseException as error:
                if not client.is_answered_by(step, error, has_begun=bool(begun)):
                    raise
                continue
            finally:
                client.wake_next()
            if client.is_own(step):
                if isinstance(step, TakeUp):
                    client.end_step(after)
                return after
    finally:
        client.release()


async def _adrive(client: QueueClient) -> Session:
    """Take the steps of a client on this event loop."""
    woken, here = asyncio.Event(), asyncio.get_running_loop()
    client.attend(lambda: here.call_soon_threadsafe(woken.set))
    try:
        while True:
            step = await run_in_thread(client.look)
            if isinstance(step, Session):
                return step
            if isinstance(step, WaitFor):
                woken.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), step.seconds)
                continue
            begun: list[object] = []
            try:
                if isinstance(step, TakeTurn):
                    after = await ainvoke(client.call_of(step, begun.append))
                else:
                    session, workflow, watch = client.resumption_of(step)
                    after = await aresume_run(session, workflow, (), {}, watch, lifts_pause=False)
            except BaseException as error:
                judge = partial(client.is_answered_by, step, error, has_begun=bool(begun))
                if isinstance(error, asyncio.CancelledError) or not await run_in_thread(judge):
                    raise
                continue
            finally:
                await run_in_thread(client.wake_next)
            if client.is_own(step):
                if isinstance(step, TakeUp):
                    await run_in_thread(partial(client.end_step, after))
                return after
    finally:
        client.release()


def _drive_turn(client: TurnClient) -> Session:
    """Take a turn in this thread; the messages that it leaves behind are answered in another."""
    try:
        return _drive(client)
    finally:
        keeper = client.next_keeper() if client.has_taken_up else None
        if keeper is not None:

            def keep() -> None:
                with suppress(BaseException):  # it is on record
                    _drive(keeper)

            start_lasting_work(keep)


async def _adrive_turn(client: TurnClient) -> Session:
    """Take a turn on this event loop; the messages that it leaves behind are answered in a task."""
    try:
        return await _adrive(client)
    finally:
        keeper = await run_in_thread(client.next_keeper) if client.has_taken_up else None
        if keeper is not None:
            _start_task(_adrive(keeper))


def answer_queue(session: Session, workflow: Workflow | None, watch: Watch) -> Session:
    """Answer the messages of a session whose clients are gone, in their order; return the session
    after the last of them.

    The first that failed is raised in the end: the others are answered all the same.
    """
    keeper = QueueKeeper(session, workflow, watch, is_named=True)
    return keeper.result(_drive(keeper))


async def aanswer_queue(session: Session, workflow: Workflow | None, watch: Watch) -> Session:
    """Do the same on this event loop."""
    keeper = QueueKeeper(session, workflow, watch, is_named=True)
    return keeper.result(await _adrive(keeper))


def _drive_apart(client: TurnClient, on_end: Callable[[Session | BaseException], object]) -> None:
    """Take a turn in a thread that outlives its caller, and that the interpreter waits for."""

    def work() -> None:
        try:
            on_end(_drive_turn(client))
        except BaseException as error:
            on_end(error)

    start_lasting_work(work)


def _task_of(post: Callable[[], TurnClient]) -> asyncio.Task[Session]:
    """Take a turn in a task that outlives its caller."""

    async def post_and_drive() -> Session:
        client, cancel = await finish_in_thread(post)
        if cancel is not None:
            client.release()
            raise cancel
        return await _adrive_turn(client)

    return _start_task(post_and_drive())


def _start_task(work: Coroutine[Any, Any, Session]) -> asyncio.Task[Session]:
    """Start work in a task that outlives its caller."""
    task = asyncio.ensure_future(work)
    THIS_PROCESS.turn_tasks.add(task)

    def end(task: asyncio.Task[Session]) -> None:
        THIS_PROCESS.turn_tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it is on record: no need to report it if no caller waits

    task.add_done_callback(end)
    return task


def _wait_for_end(items: queue.SimpleQueue[Any], ended: Sequence[object]) -> None:
    """Wait until a turn that Ctrl-C has stopped is at rest, but not for ever."""
    with suppress(queue.Empty):
        while not ended:
            items.get(timeout=_CLOSE_S)


class LocalTurns:
    """Takes turns in this process: the port of `session.turn` and of the streams of workflows."""

    def turn(
        self,
        session: Session,
        content: Any,
        workflow: Workflow,
        /,
        *,
        wait: bool = True,
        key: str = "",
        actor: str | None = None,
        **watch: Any,
    ) -> Session:
        if wait:
            with waiting_for_turn(session) as waits:
                return self._take_turn(session, content, workflow, key, actor, watch, waits)
        with held_interrupts():  # a message in the queue has a client
            client = TurnClient.post(session, content, workflow, key, actor, _watch_of(watch))
            _drive_apart(client, lambda _: None)
        return session

    def _take_turn(
        self,
        session: Session,
        content: Any,
        workflow: Workflow,
        key: str,
        actor: str | None,
        watch: Mapping[str, Any],
        waits: TurnWait,
    ) -> Session:
        clients: list[TurnClient] = []
        try:
            with held_interrupts():  # a message in the queue has a client, or is released
                clients.append(
                    TurnClient.post(session, content, workflow, key, actor, _watch_of(watch))
                )
            waits.turn = clients[0].turn
            return _drive_turn(clients[0])
        finally:
            for client in clients:
                client.release()

    async def aturn(
        self,
        session: Session,
        content: Any,
        workflow: Workflow,
        /,
        *,
        wait: bool = True,
        key: str = "",
        actor: str | None = None,
        **watch: Any,
    ) -> Session:
        posted = asyncio.Event()

        def post() -> TurnClient:
            client = TurnClient.post(session, content, workflow, key, actor, _watch_of(watch))
            here.call_soon_threadsafe(posted.set)
            return client

        here = asyncio.get_running_loop()
        task = _task_of(post)
        if wait:
            return await asyncio.shield(task)
        task.add_done_callback(lambda _: posted.set())
        await posted.wait()
        if task.done():
            task.result()  # raises if it could not be posted
        return session

    def stream_turn(
        self,
        session: Session,
        content: Any,
        workflow: Workflow,
        /,
        *,
        key: str = "",
        actor: str | None = None,
        **watch: Any,
    ) -> Iterator[Delta | Event | Session]:
        items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        heard = hear_also(_watch_of(watch), items.put)
        ended: list[Session | BaseException] = []

        def end(last: Session | BaseException) -> None:
            ended.append(last)
            items.put(_END)

        clients: list[TurnClient] = []

        def interrupt() -> None:
            for client in clients:
                client.interrupt()

        handler = handle_interrupts(interrupt)
        try:
            with held_interrupts():  # a message in the queue has a client, in a thread of its own
                client = TurnClient.post(session, content, workflow, key, actor, heard)
                clients.append(client)
                _drive_apart(client, end)
            while (item := next_item(items)) is not _END:
                yield item
        finally:
            if handler is not None:
                handler.remove()
            if any([client.is_interrupted for client in clients]):
                _wait_for_end(items, ended)
        if isinstance(ended[0], BaseException):
            raise ended[0]
        yield ended[0]

    async def astream_turn(
        self,
        session: Session,
        content: Any,
        workflow: Workflow,
        /,
        *,
        key: str = "",
        actor: str | None = None,
        **watch: Any,
    ) -> AsyncIterator[Delta | Event | Session]:
        items: asyncio.Queue[Any] = asyncio.Queue()
        here = asyncio.get_running_loop()

        def put_item(item: Delta | Event) -> None:
            here.call_soon_threadsafe(items.put_nowait, item)

        heard = hear_also(_watch_of(watch), put_item)
        task = _task_of(lambda: TurnClient.post(session, content, workflow, key, actor, heard))
        task.add_done_callback(lambda _: here.call_soon(items.put_nowait, _END))
        while (item := await items.get()) is not _END:
            yield item
        yield await asyncio.shield(task)
