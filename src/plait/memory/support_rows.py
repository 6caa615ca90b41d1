"""Rows of the evidence of memories: further support, and the memories that rest on others."""

from __future__ import annotations

import msgspec

from plait.event.kinds import Ground
from plait.ids import Digest
from plait.store import Row, Rows

ITEM, REST, SUPPORT = "item", "rest", "support"
_encode = msgspec.json.Encoder().encode


def put_support(rows: Rows, support: Row, grounds: tuple[Ground, ...]) -> None:
    """Put further evidence for a memory."""
    memory = Digest(str(support["memory"]))
    _count_support(rows, memory, 1)
    rows.put(SUPPORT, {**support, "grounds": _encode(grounds).decode()})
    put_rests(rows, memory, grounds)


def drop_support(rows: Rows, number: int, memory: Digest, base: Digest) -> None:
    """Take away the evidence that an equal statement was, before decisions are folded again."""
    _count_support(rows, memory, -1)
    rows.delete(SUPPORT, memory, number)
    rest = rows.get(REST, base, memory)
    if rest is not None and number_in(rest["times"]) > 1:
        rows.put(REST, {**rest, "times": number_in(rest["times"]) - 1})
    else:
        rows.delete(REST, base, memory)


def _count_support(rows: Rows, memory: Digest, step: int) -> None:
    if (row := rows.get(ITEM, memory)) is not None:
        rows.put(ITEM, {**row, "supports": number_in(row["supports"]) + step})


def put_rests(rows: Rows, memory: Digest, grounds: tuple[Ground, ...]) -> None:
    """Lead from each memory among the grounds to the one that rests on it.

    `times` counts how often it was said, so that one can be taken away.
    """
    for base in {base for ground in grounds for base in ground.memories}:
        rest = rows.get(REST, base, memory) or {"times": 0}
        times = number_in(rest["times"]) + 1
        rows.put(REST, {"base": base, "memory": memory, "times": times})


def number_in(value: object) -> int:
    """Return the number in a column; 0: there is none."""
    return value if isinstance(value, int) else 0
