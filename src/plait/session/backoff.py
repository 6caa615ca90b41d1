"""The waits between attempts: longer each time, and spread by lot."""

from __future__ import annotations

from plait.ids import digest

WAIT_S_MAX = 60.0  # between two attempts of a tool


def backoff_s(wait_s: float, wait_s_max: float, call: str, attempt: int) -> float:
    """Return the seconds to wait after this attempt: twice as long as after the one before.

    Lots are drawn by the call's id, so that the same history waits the same; two calls still do not
    knock together.
    """
    lot = digest(b"plait/wait/1", call.encode(), str(attempt).encode())
    share = int(lot[:8], 16) / 0xFFFFFFFF
    return min(wait_s_max, wait_s * 2 ** (attempt - 1)) * (0.5 + share / 2)
