"""Lines, and which of them two texts share.

A line ends with a line feed and nothing else: a carriage return belongs to the line, and a line
separator of Unicode is a character. So the lines of a text, put together again, are the text, byte
for byte.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from difflib import Match, SequenceMatcher

_NEAR = 128  # lines added and removed, up to which the shortest way is looked for at once
# the same where no line is unique on both sides: beyond, the lines count as replaced
_FAR = 1024

Block = tuple[int, int, int]  # where it is on the left, where on the right, how many lines


def split(content: bytes) -> list[bytes]:
    """Return the lines, each with its end; the last may have none."""
    parts = content.split(b"\n")
    last = parts.pop()
    lines = [part + b"\n" for part in parts]
    return [*lines, last] if last else lines


def is_text(content: bytes) -> bool:
    """Return True if the content can be split into lines: it has no NUL."""
    return b"\0" not in content


def as_text(content: bytes) -> str | None:
    """Return the content as text; None if it is not UTF-8, or has a NUL in it."""
    try:
        return content.decode() if is_text(content) else None
    except UnicodeDecodeError:
        return None


class LineMatcher(SequenceMatcher[bytes]):
    """difflib's comparison of two texts, on blocks that `matching` finds: every line counts, and
    long texts are fast.
    """

    def set_seqs(self, a: Sequence[bytes], b: Sequence[bytes]) -> None:
        self.a, self.b = a, b
        self.opcodes = self.matching_blocks = None

    def get_matching_blocks(self) -> list[Match]:
        return [
            Match(*block) for block in (*matching(self.a, self.b), (len(self.a), len(self.b), 0))
        ]


def matching(left: Sequence[bytes], right: Sequence[bytes]) -> list[Block]:
    """Return the blocks of lines that both have, in order.

    Equal lines at both ends are set aside. Of the rest the longest common part is found where
    little differs; where much does, lines that are unique on both sides hold the texts together,
    and the gaps between them are compared one by one.
    """
    found: list[Block] = []
    open = [(0, len(left), 0, len(right))]
    while open:
        i, i_end, j, j_end = open.pop()
        start = _common(left, right, i, j, min(i_end - i, j_end - j))
        found.append((i, j, start))
        i, j = i + start, j + start
        end = _common_end(left, right, i_end, j_end, min(i_end - i, j_end - j))
        i_end, j_end = i_end - end, j_end - end
        found.append((i_end, j_end, end))
        if i < i_end and j < j_end:
            blocks, gaps = _match_middle(left[i:i_end], right[j:j_end])
            found += [(i + x, j + y, size) for x, y, size in blocks]
            open += [(i + x, i + x_end, j + y, j + y_end) for x, x_end, y, y_end in gaps]
    return _join_blocks(found)


def _common(left: Sequence[bytes], right: Sequence[bytes], i: int, j: int, most: int) -> int:
    size = 0
    while (
        size < most
        and left[i + size : i + min(size + 64, most)] == right[j + size : j + min(size + 64, most)]
    ):
        size = min(size + 64, most)
    while size < most and left[i + size] == right[j + size]:
        size += 1
    return size


def _common_end(left: Sequence[bytes], right: Sequence[bytes], i: int, j: int, most: int) -> int:
    size = 0
    while (
        size < most
        and left[i - min(size + 64, most) : i - size] == right[j - min(size + 64, most) : j - size]
    ):
        size = min(size + 64, most)
    while size < most and left[i - size - 1] == right[j - size - 1]:
        size += 1
    return size


def _match_middle(
    left: Sequence[bytes], right: Sequence[bytes]
) -> tuple[list[Block], list[tuple[int, int, int, int]]]:
    """Return matching blocks that are final, and gaps that are to be compared again."""
    if set(left).isdisjoint(right):
        return [], []
    blocks = _shortest_blocks(left, right, _NEAR)
    if blocks is not None:
        return blocks, []
    anchors = _anchors(left, right)
    if not anchors:
        return _shortest_blocks(left, right, _FAR) or [], []
    starts = [(-1, -1), *anchors]
    ends = [*anchors, (len(left), len(right))]
    return [(x, y, 1) for x, y in anchors], [
        (x + 1, x_end, y + 1, y_end) for (x, y), (x_end, y_end) in zip(starts, ends, strict=True)
    ]


def _shortest_blocks(
    left: Sequence[bytes], right: Sequence[bytes], most: int
) -> list[Block] | None:
    """Return the shortest way from one to the other (Myers, 1986); None if it takes more than
    `most` lines added and removed.
    """
    n, m = len(left), len(right)
    reach = {1: 0}  # by diagonal: how far on the left one gets
    trail: list[dict[int, int]] = []
    for step in range(min(most, n + m) + 1):
        trail.append(reach)
        reach = dict(reach)
        for k in range(-step, step + 1, 2):
            x = (
                reach[k + 1]
                if k == -step or (k != step and reach[k - 1] < reach[k + 1])
                else reach[k - 1] + 1
            )
            y = x - k
            while x < n and y < m and left[x] == right[y]:
                x += 1
                y += 1
            reach[k] = x
            if x >= n and y >= m:
                return _trace_back(trail, n, m)
    return None


def _trace_back(trail: list[dict[int, int]], x: int, y: int) -> list[Block]:
    """Return the blocks on the way back from the end, step by step."""
    blocks: list[Block] = []
    for step in range(len(trail) - 1, -1, -1):
        reach, k = trail[step], x - y
        if step == 0:
            from_x, start = 0, 0
        else:
            down = k == -step or (k != step and reach[k - 1] < reach[k + 1])
            from_x = reach[k + 1] if down else reach[k - 1]
            start = from_x if down else from_x + 1
        if x > start:
            blocks.append((start, start - k, x - start))
        if step:
            x, y = from_x, from_x - (k + 1 if start == from_x else k - 1)
    return blocks


def _anchors(left: Sequence[bytes], right: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return lines that stand once on each side, as many as are in the same order on both."""
    once = {line for line, times in Counter(left).items() if times == 1}
    once &= {line for line, times in Counter(right).items() if times == 1}
    places = {line: y for y, line in enumerate(right) if line in once}
    return _rising_pairs([(x, places[line]) for x, line in enumerate(left) if line in once])


def _rising_pairs(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence of pairs whose right sides rise, too."""
    tops: list[int] = []
    last: list[int] = []
    before: list[int | None] = []
    for index, (_, y) in enumerate(pairs):
        pile = bisect_left(tops, y)
        before.append(last[pile - 1] if pile else None)
        tops[pile : pile + 1] = [y]
        last[pile : pile + 1] = [index]
    found: list[tuple[int, int]] = []
    at = last[-1] if last else None
    while at is not None:
        found.append(pairs[at])
        at = before[at]
    return found[::-1]


def _join_blocks(blocks: list[Block]) -> list[Block]:
    """Return the blocks in order, without empty ones, those that touch joined."""
    found: list[Block] = []
    for i, j, size in sorted(block for block in blocks if block[2]):
        if found and found[-1][0] + found[-1][2] == i and found[-1][1] + found[-1][2] == j:
            i, j, size = found[-1][0], found[-1][1], found.pop()[2] + size
        found.append((i, j, size))
    return found
