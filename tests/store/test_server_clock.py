"""The clock of a server, as a client knows it."""

from __future__ import annotations

import time

from plait.store.postgres.server_clock import ServerClock


def test_the_surer_word_counts() -> None:
    clock, now = ServerClock(), time.monotonic()
    clock.take(1_000_000_000, now, now)
    sure = clock.now()
    clock.take(1_000_500_000, now - 1, now + 1)  # a slow line: it may be a second off
    assert 0 <= clock.now() - sure < 400_000
    clock.take(1_000_700_000, now, now)
    assert clock.now() >= 1_000_700_000


def test_a_clock_that_was_set_is_followed() -> None:
    clock, now = ServerClock(), time.monotonic()
    clock.take(1_000_000_000, now, now)
    for told in (9_000_000_000, 5_000_000_000):  # forward, and back
        clock.take(told, now - 0.1, now + 0.1)
        assert told <= clock.now() < told + 600_000_000
