"""A program in which Ctrl-C comes between any two lines of the start of a lasting thread.

It ends if the interpreter knows every thread that was started.
"""

from __future__ import annotations

from threading import Event

from plait.runtime.process import THIS_PROCESS
from plait.runtime.workers import start_lasting_work
from tests.support.interrupting import InterruptedLines

FILES = ("/plait/runtime/workers.py", "/concurrent/futures/thread.py", "/threading.py")


def start(stop_at: int) -> InterruptedLines:
    THIS_PROCESS.lasting_threads = None
    lines, done = InterruptedLines(stop_at, *FILES), Event()
    try:
        with lines:
            start_lasting_work(done.set)
    except KeyboardInterrupt:
        assert lines.is_stopped
    if not lines.is_stopped or done.wait(0.01):
        done.wait()
    return lines


if __name__ == "__main__":
    count = start(0).count
    for stop_at in range(1, count + 1):
        start(stop_at)
    print(f"{count} lines")
