from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.workspace.blame import FileVersion, attribute
from plait.workspace.lines import LineMatcher, matching, split
from tests.planting import git
from tests.support import growth

pytestmark = pytest.mark.long  # `make quick` leaves these out


def blamed(*contents: str | None) -> list[tuple[int, bytes]]:
    """A file as it was changed step by step; a line's tag is the step."""
    return attribute(
        [
            FileVersion(None if text is None else text.encode(), (at - 1,) if at else (), at)
            for at, text in enumerate(contents)
        ]
    )


def test_each_line_is_of_the_version_that_brought_it() -> None:
    assert blamed("a\nb\n", "a\nx\nb\n", "a\nx\nc") == [(0, b"a\n"), (1, b"x\n"), (2, b"c")]


def test_a_file_that_went_and_came_again_is_new() -> None:
    assert blamed("a\n", None, "a\n") == [(2, b"a\n")]
    assert blamed("a\n", None) == blamed(None) == blamed("") == attribute([]) == []


def test_a_merge_takes_lines_from_where_they_were_written() -> None:
    versions = [
        FileVersion(b"1\n2\n3\n", (), "base"),
        FileVersion(b"1\nours\n2\n3\n", (0,), "ours"),
        FileVersion(b"1\n2\n3\ntheirs\n", (0,), "theirs"),
        FileVersion(b"never\n", (0,), "another branch"),
        FileVersion(b"1\nours\n2\n3\ntheirs\nmerge\n", (1, 2), "merge"),
    ]
    assert [tag for tag, _ in attribute(versions)] == [
        "base",
        "ours",
        "base",
        "base",
        "theirs",
        "merge",
    ]


def test_where_both_parents_have_a_line_it_is_the_firsts() -> None:
    versions = [
        FileVersion(b"", (), 0),
        FileVersion(b"x\n", (0,), 1),
        FileVersion(b"x\n", (0,), 2),
        FileVersion(b"x\n", (2, 1), 3),
    ]
    assert attribute(versions) == [(2, b"x\n")]


words = st.lists(st.sampled_from(["a", "b", "c", "d\n", "\n", "\r\n", "\u2028"]), max_size=12).map(
    "".join
)


@given(st.lists(words, min_size=1, max_size=6))
def test_the_lines_are_the_content(contents: list[str]) -> None:
    assert b"".join(line for _, line in blamed(*contents)) == contents[-1].encode()


@given(st.lists(st.lists(st.booleans(), min_size=30, max_size=30), min_size=1, max_size=6))
def test_a_line_that_was_always_there_is_of_the_first_version(kept: list[list[bool]]) -> None:
    contents = [
        "".join(f"{i}\n" for i in range(30)),
        *(
            "".join(f"{i}\n" if keep else f"{at} {i}\n" for i, keep in enumerate(row))
            for at, row in enumerate(kept, 1)
        ),
    ]
    found = dict((line, tag) for tag, line in blamed(*contents))
    assert all(found[f"{i}\n".encode()] == 0 for i in range(30) if all(row[i] for row in kept))


def _common(left: list[bytes], right: list[bytes]) -> int:
    """The length of the longest common part, the slow way."""
    row = [0] * (len(right) + 1)
    for one in left:
        before = row[:]
        for j, other in enumerate(right):
            row[j + 1] = before[j] + 1 if one == other else max(row[j], before[j + 1])
    return row[-1]


letters = st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=40)


@given(letters, letters)
def test_the_longest_common_part_is_found(left: list[bytes], right: list[bytes]) -> None:
    blocks = matching(left, right)
    assert sum(size for _, _, size in blocks) == _common(left, right)
    ends = [*blocks, (len(left), len(right), 0)]
    for (i, j, size), (next_i, next_j, _) in zip(blocks, ends[1:], strict=True):
        assert size and left[i : i + size] == right[j : j + size]
        assert i + size <= next_i and j + size <= next_j


def test_texts_that_differ_much_are_held_together_by_unique_lines() -> None:
    chance = random.Random(7)
    left = [b"%d" % (i if i % 10 == 0 else chance.randrange(10**9, 10**10)) for i in range(5000)]
    right = [b"%d" % (i if i % 10 == 0 else chance.randrange(10**10, 10**11)) for i in range(5000)]
    assert sum(size for _, _, size in matching(left, right)) == 500


def test_texts_without_unique_lines_take_no_forever() -> None:
    chance = random.Random(7)
    left, right = ([chance.choice([b"a", b"b", b"c"]) for _ in range(20_000)] for _ in range(2))
    assert (
        growth(
            lambda size: list(LineMatcher(None, left[:size], right[:size]).get_opcodes()), 5_000, 4
        )
        < 1.5
    )


def _edited(lines: list[str], chance: random.Random, mark: str) -> list[str]:
    """Some lines go and some come, none of which was ever there."""
    lines = [line for line in lines if chance.random() > 0.1]
    for number in range(chance.randrange(4)):
        lines.insert(chance.randrange(len(lines) + 1), f"{mark}.{number}\n")
    return lines


def test_it_says_what_git_says(tmp_path: Path) -> None:
    chance = random.Random(11)
    git(tmp_path, "init", "-q")
    lines, contents, commits = [f"{i}\n" for i in range(25)], list[str](), list[str]()
    for step in range(12):
        contents.append("".join(lines))
        (tmp_path / "f").write_text(contents[-1])
        git(tmp_path, "add", "f")
        git(tmp_path, "commit", "-qm", str(step), "--allow-empty")
        commits.append(git(tmp_path, "rev-parse", "HEAD").stdout.decode().strip())
        lines = _edited(lines, chance, f"new {step}")
    for at in range(len(commits)):
        told = git(tmp_path, "blame", "--porcelain", commits[at], "--", "f").stdout.decode()
        theirs = [
            commits.index(found)
            for found in re.findall(r"^([0-9a-f]{40}) \d+ \d+", told, re.MULTILINE)
        ]
        assert [tag for tag, _ in blamed(*contents[: at + 1])] == theirs


def test_two_hundred_versions_of_a_long_file() -> None:
    chance = random.Random(3)
    lines, contents = [f"    value_{i} = {i % 50}\n" for i in range(5000)], list[str]()
    for step in range(200):
        for number in range(10):
            lines[chance.randrange(len(lines))] = f"    changed in {step}, {number}\n"
        lines.insert(chance.randrange(len(lines)), f"# {step}\n")
        contents.append("".join(lines))
    found = blamed(*contents)
    assert b"".join(line for _, line in found) == contents[-1].encode()
    assert growth(lambda versions: blamed(*contents[:versions]), 100) < 1.3


def test_lines_end_with_a_line_feed_only() -> None:
    assert split("a\rb\r\nc\u2028d\x0ce\n\n".encode()) == [
        b"a\rb\r\n",
        "c\u2028d\x0ce\n".encode(),
        b"\n",
    ]
    assert split(b"") == []
