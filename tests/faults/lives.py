"""Lives of a run: each is a child that a process without threads forks, and that kills itself at a
chosen write.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from plait.runtime.bypass import owned
from plait.runtime.run import Run
from plait.session.ports import Draft

DONE, WRONG = 0, 1


def exit_code(work: Callable[[], int | None], folder: Path) -> int:
    """Do the work in a child; returns what it returned, or less than 0 for a signal.

    The file `wrong` says what it raised.
    """
    pid = os.fork()
    if pid == 0:
        code = WRONG
        try:
            code = work() or DONE
        except BaseException:
            (folder / "wrong").write_text(traceback.format_exc())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_at(moment: int, folder: Path) -> Callable[[Run], None]:
    """Kill this process at a moment, before or after a write, counted from 1.

    The file `moments` says how many it lived through.
    """

    def arm(run: Run) -> None:
        met = 0

        def on_write(when: str, drafts: Sequence[Draft]) -> None:
            nonlocal met
            met += 1
            if met == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            with owned():  # what the test does is no doing of the run
                (folder / "moments").write_text(str(met))

        run.journal.on_write = on_write

    return arm
