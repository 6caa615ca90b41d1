"""A program whose forward uses tools in threads of its own, and that is sent SIGINT meanwhile.

    python -m tests.runtime.interrupted_threads STORE threads|pool|raw

It prints one JSON document: how many calls began, those that began after the interrupt, the errors
of the threads, the state of the run, and the calls that a resume made.
"""

from __future__ import annotations

import _thread
import json
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event, Semaphore, Thread, main_thread

from plait import Session, Workflow, resume, tool

BRANCHES, CALLS, INTERRUPT_AT = 3, 6, 4

began: list[str] = []
late: list[str] = []
errors: list[str] = []
may_begin = Event()  # all threads were started, and the main thread waits for them
interrupted = Event()  # Ctrl-C was raised in the main thread
is_resumed = Event()
ended = Semaphore(0)  # one for each thread that has ended


@tool(effect="pure")
def look(name: str) -> str:
    """Look something up."""
    if interrupted.is_set():
        late.append(name)
        return name
    began.append(name)
    if not is_resumed.is_set():
        if len(began) == INTERRUPT_AT:
            # to the main thread: another one that took it would not wake that one
            signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)
        if len(began) >= INTERRUPT_AT:
            interrupted.wait(60)
    return name


class Threads(Workflow):
    def __init__(self, way: str) -> None:
        self.way = way

    def forward(self, session: Session) -> Session:
        branches = [session.fork(f"b{at}") for at in range(BRANCHES)]
        ends = list(branches)

        def work(at: int) -> None:
            may_begin.wait(60)
            try:
                for number in range(CALLS):
                    ends[at] = ends[at].use(look, name=f"{at}-{number}")
            except BaseException as error:
                errors.append(type(error).__name__)
            finally:
                ended.release()

        getattr(self, f"_in_{self.way}")(work)
        return session.merge(*ends)

    def _in_threads(self, work: Callable[[int], None]) -> None:
        threads = [Thread(target=work, args=(at,)) for at in range(BRANCHES)]
        for each in threads:
            each.start()
        _until_interrupted(lambda: [each.join() for each in threads])

    def _in_raw(self, work: Callable[[int], None]) -> None:
        for at in range(BRANCHES):
            _thread.start_new_thread(work, (at,))
        _until_interrupted(lambda: [ended.acquire() for _ in range(BRANCHES)])

    def _in_pool(self, work: Callable[[int], None]) -> None:
        with ThreadPoolExecutor(BRANCHES) as pool:
            tasks = [pool.submit(work, at) for at in range(BRANCHES)]
            _until_interrupted(lambda: wait(tasks))


def _until_interrupted(block: Callable[[], object]) -> None:
    try:
        may_begin.set()
        block()
    except KeyboardInterrupt:
        interrupted.set()
        raise


def main(store: str, way: str) -> None:
    program, session = Threads(way), Session("go", store=store)
    raised = ""
    try:
        program(session)
    except BaseException as error:
        raised = type(error).__name__
    for _ in range(BRANCHES):
        ended.acquire(timeout=60)
    document = {
        "raised": raised,
        "status": session.reload().runs[-1].status,
        "began": len(began),
        "late": late,
        "errors": [*errors],
    }
    interrupted.clear()
    is_resumed.set()
    done = resume(session.reload(), program)
    document |= {"resumed": done.runs[-1].status, "calls": len(done.effects)}
    print(json.dumps(document))


if __name__ == "__main__":
    main(*sys.argv[1:])
