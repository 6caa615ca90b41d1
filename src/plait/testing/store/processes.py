"""Processes that a part of the contract forks off."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager


@contextmanager
def fork_process(work: Callable[[], str]) -> Generator[tuple[int, str]]:
    """Do some work in a forked process, which stays until the block ends.

    Gives the id of the process, and the text that the work returned.
    """
    with _begin_process(work) as (process, answer):
        yield process, _read_text(answer)


@contextmanager
def fork_all(count: int, work: Callable[[], str]) -> Generator[list[str]]:
    """Do the same work in several processes at once, which stay until the block ends.

    Gives the texts that they returned.
    """
    with ExitStack() as processes:
        begun = [processes.enter_context(_begin_process(work)) for _ in range(count)]
        yield [_read_text(answer) for _, answer in begun]


@contextmanager
def _begin_process(work: Callable[[], str]) -> Generator[tuple[int, int]]:
    """Fork a process; gives its id, and the end of a pipe that its answer comes from."""
    answer, answering = os.pipe()
    staying, stay = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads of the test may run
        process = os.fork()
    if process == 0:
        os.close(stay)
        try:
            text = work()
        except BaseException as error:
            text = repr(error)
        os.write(answering, text.encode())
        os.close(answering)
        os.read(staying, 1)  # until the parent closes its end, or dies
        os._exit(0)
    os.close(answering)
    os.close(staying)
    try:
        yield process, answer
    finally:
        os.close(stay)
        os.waitpid(process, 0)


def _read_text(answer: int) -> str:
    with open(answer, encoding="utf-8") as file:
        return file.read()
