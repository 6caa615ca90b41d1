"""The lines of the picture lead to the parents of an event, to all of them and to no other."""

from __future__ import annotations

import random
from collections.abc import Sequence
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.outline.event_lanes import Dot, draw, order
from tests.support import growth


def history(text: str) -> list[Dot]:
    """'m:ab a:z' is a dot m with the parents a and b, and a dot a with the parent z."""
    return [
        Dot(id, tuple(parents)) for id, _, parents in (word.partition(":") for word in text.split())
    ]


def picture(dots: Sequence[Dot], *, plain: bool = False) -> str:
    """The margins, and after two spaces the ids."""
    drawn = list(draw(dots, plain=plain))
    return "\n".join(margin if id is None else f"{margin}  {id}" for margin, id in drawn)


PICTURES = {
    "nothing": ("", ""),
    "linear": (
        "c:b b:a a:",
        """
        ●  c
        ●  b
        ●  a
        """,
    ),
    "a fork": (
        "a:z b:z z:",
        """
        ●  a
        │ ●  b
        ├─╯
        ●  z
        """,
    ),
    "a fork and a merge": (
        "m:su u:t t:4 s:r r:4 4:3 3:",
        """
        ●  m
        ├─╮
        │ ●  u
        │ ●  t
        ● │  s
        ● │  r
        ├─╯
        ●  4
        ●  3
        """,
    ),
    "several forks from one place": (
        "a:z b:z c:z z:",
        """
        ●  a
        │ ●  b
        ├─╯
        │ ●  c
        ├─╯
        ●  z
        """,
    ),
    "an octopus": (
        "m:abcd a:z b:z c:z d:z z:",
        """
        ●  m
        ├─┬─┬─╮
        ● │ │ │  a
        │ ● │ │  b
        ├─╯ │ │
        │ ╭─┼─╯
        │ │ ●  c
        ├─┼─╯
        │ ●  d
        ├─╯
        ●  z
        """,
    ),
    "an octopus whose parents have lanes": (
        "a:z b:y m:zyx x: y: z:",
        """
        ●  a
        │ ●  b
        │ │ ●  m
        │ │ ├─┬─╮
        ├─┼─┼─╯ │
        │ ├─┼───╯
        │ │ ●  x
        │ ●  y
        ●  z
        """,
    ),
    "criss-cross": (
        "p:ab q:ba a:z b:z z:",
        """
        ●  p
        ├─╮
        │ │ ●  q
        │ │ ├─╮
        ├─┼─┼─╯
        │ ├─╯
        ● │  a
        │ ●  b
        ├─╯
        ●  z
        """,
    ),
    "a parent that has a lane, to the right": (
        "a:b c:d b:ed e: d:",
        """
        ●  a
        │ ●  c
        ● │  b
        ├─┼─╮
        │ ├─╯
        ● │  e
        ╭─╯
        ●  d
        """,
    ),
    "two roots": (
        "b:a a: d:c c:",
        """
        ●  b
        ●  a

        ●  d
        ●  c
        """,
    ),
    "two roots that were merged": (
        "m:ab a: b:",
        """
        ●  m
        ├─╮
        ● │  a
        ╭─╯
        ●  b
        """,
    ),
    "a root beside a lane": (
        "a:z b: c: z:",
        """
        ●  a
        │ ●  b
        │
        │ ●  c
        ●  z
        """,
    ),
    "dangling parents": (
        "c:bx b:a a:yz d:b",
        """
        ●  c
        ●  b
        ●  a

        ●  d
        """,
    ),
    "the same parent twice, and oneself": (
        "b:aba a:a",
        """
        ●  b
        ●  a
        """,
    ),
    "two joins in one line": (
        "a:v e:m b:w m:vw v: w:",
        """
        ●  a
        │ ●  e
        │ │ ●  b
        │ ● │  m
        │ ├─┼─╮
        ├─╯ ├─╯
        │ ╭─╯
        ● │  v
        ╭─╯
        ●  w
        """,
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture(name: str) -> None:
    text, drawn = PICTURES[name]
    assert picture(history(text)) == dedent(drawn).strip()


def test_in_ascii() -> None:
    dots = history("a:z m:bcd d:z c:z b: z:")
    dots[1] = dots[1]._replace(mark="◆")
    dots[2] = dots[2]._replace(mark="o")
    drawn = r"""
    *  a
    | *  m
    | |-\-\
    | | | o  d
    |-+-+-/
    | | *  c
    |-+-/
    | *  b
    *  z
    """
    assert picture(dots, plain=True) == dedent(drawn).strip()
    assert picture(dots).splitlines()[:4] == ["●  a", "│ ◆  m", "│ ├─┬─╮", "│ │ │ o  d"]


# ── order ────────────────────────────────────────────────────────────────────────────────────


def ids(dots: Sequence[Dot]) -> str:
    return "".join(dot.id for dot in dots)


def test_branches_stay_together() -> None:
    assert ids(order(history("4:3 3: r:4 t:4 s:r u:t m:su"))) == "mutsr43"
    assert ids(order(history("a:b x:y b:c y:z c:0 z:0 0:"))) == "abcxyz0"


def test_the_order_of_tips_is_kept() -> None:
    assert ids(order(history("b: a: c:"))) == "bac"


def test_a_loop_is_not_lost() -> None:
    dots = order(history("a:b b:cd c:b d:"))
    assert ids(dots) == "abcd"
    assert sorted(id for _, id in draw(dots) if id) == ["a", "b", "c", "d"]


def test_a_long_chain() -> None:
    dots = [Dot(str(at), (str(at + 1),)) for at in range(100_000)]
    assert order(dots[::-1]) == dots
    assert growth(lambda size: order(dots[:size][::-1]), 10_000) < 1.2
    assert all(margin == "●" for margin, _ in draw(dots))


# ── any history ──────────────────────────────────────────────────────────────────────────────


@st.composite
def histories(draw: st.DrawFn) -> list[Dot]:
    """Up to 20 dots in a topological order; some parents are not among them."""
    count = draw(st.integers(0, 20))
    near = draw(st.integers(1, 20))
    return [
        Dot(
            str(at),
            tuple(
                map(str, draw(st.lists(st.integers(at + 1, min(at + near, count + 1)), max_size=4)))
            ),
        )
        for at in range(count)
    ]


def edges(dots: Sequence[Dot]) -> set[tuple[str, str]]:
    known = {dot.id for dot in dots}
    return {(dot.id, parent) for dot in dots for parent in dot.parents if parent in known}


def traced(lines: Sequence[tuple[str, str | None]]) -> set[tuple[str, str]]:
    """The edges that somebody sees who follows the lines downward, cell by cell."""
    found: set[tuple[str, str]] = set()
    for at, (margin, id) in enumerate(lines):
        if id is not None:
            found |= {(id, end) for end in _follow(lines, at + 1, margin.index("●"))}
    return found


def _follow(lines: Sequence[tuple[str, str | None]], at: int, cell: int) -> set[str]:
    ends: set[str] = set()
    todo = [(at, cell)]
    while todo:
        at, cell = todo.pop()
        margin, id = lines[at] if at < len(lines) else ("", None)
        glyph = margin[cell : cell + 1]
        if glyph == "●":
            assert id is not None
            ends.add(id)
        else:
            todo += [(at + 1, below) for below in _exits(margin, cell, glyph)]
    return ends


def _exits(margin: str, cell: int, glyph: str) -> list[int]:
    """Where one who comes from above leaves a line: nowhere, if the glyph has no stroke upward."""
    if glyph and glyph in "│┼":
        return [cell]
    if glyph == "├":
        bend = margin[cell + 1 :]
        end = next(at for at, other in enumerate(bend) if other in "╮╯")
        assert set(bend[:end]) <= set("─┼┬" if bend[end] == "╮" else "─┼")
        return [cell, *(cell + 1 + at for at, other in enumerate(bend[: end + 1]) if other in "┬╮")]
    if glyph == "╯":
        start = max(at for at, other in enumerate(margin[:cell]) if other in "├╭")
        assert set(margin[start + 1 : cell]) <= set("─┼")
        return [start]
    return []


@given(histories(), st.randoms(use_true_random=False))
def test_the_picture_shows_the_edges_and_no_other(dots: list[Dot], chance: random.Random) -> None:
    shuffled = chance.sample(dots, len(dots))
    for ordered in (dots, order(shuffled)):
        lines = list(draw(ordered))
        assert [id for _, id in lines if id is not None] == [dot.id for dot in ordered]
        assert traced(lines) == edges(dots)


@given(histories(), st.randoms(use_true_random=False))
def test_order_is_topological_and_complete(dots: list[Dot], chance: random.Random) -> None:
    ordered = order(chance.sample(dots, len(dots)))
    assert sorted(ordered) == sorted(dots)
    place = {dot.id: at for at, dot in enumerate(ordered)}
    assert all(place[child] < place[parent] for child, parent in edges(dots))


@given(histories())
def test_it_is_as_wide_as_lanes_are_open(dots: list[Dot]) -> None:
    known = {dot.id: dot for dot in dots}
    open_lanes: set[str] = set()
    room = 0
    for margin, id in draw(dots):
        assert margin == margin.rstrip()
        width = (len(margin) + 1) // 2
        if id is None:
            assert width <= room
            continue
        assert width == len(open_lanes | {id})
        parents = {parent for parent in known[id].parents if parent in known}
        open_lanes = (open_lanes - {id}) | parents
        room = width + max(len(parents) - 1, 0)
    assert not open_lanes


@given(histories())
def test_ascii_is_the_same_picture(dots: list[Dot]) -> None:
    table = str.maketrans("●│─┼├╮┬╯╭", "*|-+|\\\\//")
    assert list(draw(dots, plain=True)) == [
        (margin.translate(table), id) for margin, id in draw(dots)
    ]
