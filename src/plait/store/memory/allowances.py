"""Allowances and notices of a store in memory."""

from __future__ import annotations

import time

from plait.ids import Source
from plait.store.allowances import Level, as_allowance, close_for, draw_from
from plait.store.arguments import check_closing, check_draw, check_name, check_notice
from plait.store.memory.events import MemoryEvents
from plait.store.moment import Allowance, Drawn, Notice


class MemoryAllowances(MemoryEvents):
    """Amounts that refill with time, and notices."""

    def __init__(self, name: str, source: Source) -> None:
        super().__init__(name, source)
        self._levels: dict[str, Level] = {}
        self._notices: dict[str, dict[str, tuple[bytes, float]]] = {}  # by board and key

    def draw(
        self,
        allowance: str,
        amount: float,
        *,
        per_s: float,
        size: float,
        most: float = 0.0,
        reserves: bool = False,
    ) -> Drawn:
        check_draw(allowance, amount, per_s, size, most)
        with self._open():
            found = self._levels.get(allowance)
            level, drawn = draw_from(
                found, time.monotonic(), amount, per_s, size, most, bool(reserves)
            )
            self._levels[allowance] = level
            return drawn

    def close_allowance(self, allowance: str, seconds: float) -> None:
        check_closing(allowance, seconds)
        with self._open():
            found = self._levels.get(allowance)
            self._levels[allowance] = close_for(found, time.monotonic(), seconds)

    def allowances(self) -> dict[str, Allowance]:
        with self._open():
            now_s = time.monotonic()
            found = sorted(self._levels.items())
            return {name: as_allowance(level, now_s) for name, level in found}

    def drop_allowance(self, allowance: str) -> None:
        check_name("allowance", allowance)
        with self._open():
            self._levels.pop(allowance, None)

    def put_notice(self, board: str, key: str, data: bytes) -> None:
        check_name("board", board)
        check_name("key", key)
        check_notice(data)
        with self._open():
            self._notices.setdefault(board, {})[key] = data, time.monotonic()

    def drop_notice(self, board: str, key: str) -> None:
        check_name("board", board)
        check_name("key", key)
        with self._open():
            self._notices.get(board, {}).pop(key, None)

    def notices(self, board: str) -> dict[str, Notice]:
        check_name("board", board)
        with self._open():
            now, found = time.monotonic(), sorted(self._notices.get(board, {}).items())
            return {key: Notice(data, now - put_at) for key, (data, put_at) in found}
