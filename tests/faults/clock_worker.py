"""`python -m plait` by a clock that is so many seconds ahead: CLOCK_AHEAD_S."""

from __future__ import annotations

import os
import time

from plait.cli import main

AHEAD_NS = int(float(os.environ["CLOCK_AHEAD_S"]) * 1e9)


def turn_clock() -> None:
    """Have this process believe in another time."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + AHEAD_NS / 1e9
    time.time_ns = lambda: now_ns() + AHEAD_NS


if __name__ == "__main__":
    turn_clock()
    main(prog_name="plait")
