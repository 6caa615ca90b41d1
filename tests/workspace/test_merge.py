from __future__ import annotations

import pytest

from plait.errors import InvalidValue
from plait.ids import Digest
from plait.workspace import PIECE, NewEntry, TreeEntry
from plait.workspace.merge import TEXT_MAX, Choice, Merging, merge_lines, merge_trees, resolve
from plait.workspace.tree import encode, find
from tests.planting import FOLDER, Blobs, Content

Files = dict[str, Content]

NAMES = ("a", "b")
TEXT = "".join(f"line {i}\n" for i in range(20))


class Scene:
    """Trees to be merged, and what comes of it, as files."""

    def __init__(self, bases: Files | list[Files], ours: Files, theirs: Files) -> None:
        self.blobs = Blobs()
        self.bases = [
            self.blobs.plant(base) for base in (bases if isinstance(bases, list) else [bases])
        ]
        self.ours, self.theirs = self.blobs.plant(ours), self.blobs.plant(theirs)

    def merge(self) -> Merging:
        return merge_trees(self.blobs, self.bases, self.ours, self.theirs, NAMES)

    def files(self, merging: Merging | None = None) -> Files:
        merging = merging or self.merge()
        assert not merging.conflicts and merging.tree is not None
        self.blobs.update(merging.blobs)
        return self.blobs.told(merging.tree)

    def conflicts(self) -> list[str]:
        merging = self.merge()
        assert merging.tree is None and not merging.blobs
        assert all(set(sides) == set(NAMES) for sides in merging.conflicts.values())
        return list(merging.conflicts)

    def resolve(self, choices: dict[str, Choice]) -> Files:
        return self.files(resolve(self.blobs, self.bases, self.ours, self.theirs, NAMES, choices))


def merged(bases: Files | list[Files], ours: Files, theirs: Files) -> Files:
    one, other = Scene(bases, ours, theirs), Scene(bases, theirs, ours)
    assert one.merge().tree == other.merge().tree
    return one.files()


def conflicts(bases: Files | list[Files], ours: Files, theirs: Files) -> list[str]:
    found = Scene(bases, ours, theirs).conflicts()
    assert Scene(bases, theirs, ours).conflicts() == found
    return found


def plain(files: Files) -> Files:
    return {
        path: content.encode() if isinstance(content, str) else content
        for path, content in files.items()
    }


# ── what comes together by itself ────────────────────────────────────────────────────────────


def test_what_only_one_side_changed_is_taken() -> None:
    base: Files = {
        "ours": "0",
        "theirs": "0",
        "gone/x": "0",
        "same": "0",
        "deep/er/x": "0",
        "deep/er/y": "0",
    }
    ours: Files = {
        "ours": "1",
        "theirs": "0",
        "gone/x": "0",
        "same": "0",
        "deep/er/x": "1",
        "deep/er/y": "0",
        "new": "a",
    }
    theirs: Files = {
        "ours": "0",
        "theirs": "2",
        "same": "0",
        "deep/er/x": "0",
        "deep/er/y": "2",
        "other/new": "b",
    }
    assert merged(base, ours, theirs) == plain(
        {
            "ours": "1",
            "theirs": "2",
            "same": "0",
            "deep/er/x": "1",
            "deep/er/y": "2",
            "new": "a",
            "other/new": "b",
        }
    )


def test_what_both_did_alike_is_done_once() -> None:
    assert merged({"a": "0", "b": "0"}, {"a": "1", "c": "2"}, {"a": "1", "c": "2"}) == plain(
        {"a": "1", "c": "2"}
    )


def test_lines_of_both_are_taken() -> None:
    ours, theirs = TEXT.replace("line 3\n", "ours\n"), TEXT.replace("line 15\n", "theirs\nmore\n")
    assert merged({"a": TEXT}, {"a": ours}, {"a": theirs}) == plain(
        {"a": ours.replace("line 15\n", "theirs\nmore\n")}
    )


def test_a_mode_and_a_text_come_together() -> None:
    run = NewEntry("file", 0o755, TEXT.encode())
    assert merged({"a": TEXT}, {"a": run}, {"a": TEXT + "end\n"}) == {
        "a": NewEntry("file", 0o755, (TEXT + "end\n").encode())
    }


def test_both_modes_of_a_folder_and_what_is_in_it() -> None:
    private = NewEntry("folder", 0o700)
    assert merged({"d/x": "0"}, {"d": private, "d/x": "0"}, {"d/x": "0", "d/y": "1"}) == {
        "d": private,
        "d/x": b"0",
        "d/y": b"1",
    }


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "whole"),
    [
        (b"1\r\n2\r\n3\r\n", b"eins\r\n2\r\n3\r\n", b"1\r\n2\r\n3", b"eins\r\n2\r\n3"),
        (b"1\n2\n3", b"0\n1\n2\n3", b"1\n2\n3\n", b"0\n1\n2\n3\n"),
        (
            "1\u2028x\n2\n3\n".encode(),
            "1\u2028y\n2\n3\n".encode(),
            "1\u2028x\n2\n3\n4\n".encode(),
            "1\u2028y\n2\n3\n4\n".encode(),
        ),
        (
            b"a\rb\n\x0c\n\x85\n",
            b"a\rc\n\x0c\n\x85\n",
            b"a\rb\n\x0c\n\x85\n\xff",
            b"a\rc\n\x0c\n\x85\n\xff",
        ),
        (b"", b"", b"1\n", b"1\n"),
        (b"1\n2\n3\n", b"1\n2\n3\n", b"", b""),
        (b"\n\n\n1\n", b"\n\n\n\n1\n", b"\n\n\n1\n2\n", b"\n\n\n\n1\n2\n"),
    ],
)
def test_lines_survive_byte_for_byte(base: bytes, ours: bytes, theirs: bytes, whole: bytes) -> None:
    assert merge_lines(base, ours, theirs) == merge_lines(base, theirs, ours) == whole
    assert merged({"a": base}, {"a": ours}, {"a": theirs}) == {"a": whole}


def test_a_long_file_is_merged_in_pieces() -> None:
    lines = [f"{i:063}\n" for i in range(2 * PIECE // 64)]
    base, ours, theirs = "".join(lines), "".join(["first\n", *lines]), "".join([*lines, "last\n"])
    assert merged({"a": base}, {"a": ours}, {"a": theirs}) == {
        "a": ("first\n" + base + "last\n").encode()
    }


def test_empty_folders() -> None:
    assert merged({}, {"e": FOLDER}, {"f": FOLDER}) == {"e": FOLDER, "f": FOLDER}
    assert merged({"e": FOLDER}, {}, {"e": FOLDER}) == {}
    assert merged({"e": FOLDER}, {}, {"e/x": "1"}) == {"e/x": b"1"}
    assert merged({"e/x": "1"}, {"e": FOLDER}, {"e/x": "1", "e/y": "2"}) == {"e/y": b"2"}
    assert merged({"e/x": "1"}, {"e": FOLDER}, {}) == {}


def test_a_folder_that_went_stays_for_what_the_other_side_put_in() -> None:
    private = NewEntry("folder", 0o700)
    base: Files = {"d": private, "d/x": "1", "d/s/y": "1"}
    assert merged(base, {}, {**base, "d/new": "2"}) == {"d": private, "d/new": b"2"}
    assert merged(base, {}, {"d": private, "d/x": "1"}) == {}


def test_a_file_that_became_a_folder() -> None:
    assert merged({"d": "1"}, {"d/x": "1"}, {"d": "1"}) == {"d/x": b"1"}
    assert merged({"d": "1"}, {"d/x": "1"}, {}) == {"d/x": b"1"}
    assert merged({"d/x": "1"}, {"d": "1"}, {"d/x": "1"}) == {"d": b"1"}
    assert merged({"d/x": "1", "d/y": "2"}, {"d": "1"}, {"d/x": "1"}) == {"d": b"1"}
    assert merged({"d/x": "1"}, {"d": "1"}, {}) == {"d": b"1"}


def test_blobs_are_those_that_are_new() -> None:
    scene = Scene(
        {"a/x": TEXT, "b/y": "1"},
        {"a/x": "new\n" + TEXT, "b/y": "1"},
        {"a/x": TEXT + "end\n", "b/y": "1"},
    )
    merging = scene.merge()
    assert merging.tree in merging.blobs
    assert len(merging.blobs) == 3  # the file, its folder, the root
    assert not set(merging.blobs) & set(scene.blobs)


# ── conflicts ────────────────────────────────────────────────────────────────────────────────

LINK = NewEntry("link", 0o777, target="1")
CONFLICTS: dict[str, tuple[Files, Files, Files, list[str]]] = {
    "lines": ({"a": "1\n"}, {"a": "2\n"}, {"a": "3\n"}, ["a"]),
    "neighbouring lines": ({"a": "1\n2\n"}, {"a": "eins\n2\n"}, {"a": "1\nzwei\n"}, ["a"]),
    "both added": ({}, {"d/a": "2\n"}, {"d/a": "3\n"}, ["d/a"]),
    "removed and edited": ({"d/a": "1", "d/b": "1"}, {}, {"d/a": "2", "d/b": "1"}, ["d/a"]),
    "renamed and edited": ({"a": TEXT}, {"b": TEXT}, {"a": TEXT + "end"}, ["a"]),
    "removed and made executable": ({"a": "1"}, {}, {"a": NewEntry("file", 0o755, b"1")}, ["a"]),
    "binary": ({"a": b"1\n2\n3\n\0"}, {"a": b"0\n2\n3\n\0"}, {"a": b"1\n2\n3\n\0\1"}, ["a"]),
    "modes": (
        {"a": "1"},
        {"a": NewEntry("file", 0o755, b"1")},
        {"a": NewEntry("file", 0o600, b"1")},
        ["a"],
    ),
    "modes of what both added": ({}, {"a": NewEntry("file", 0o755, b"1")}, {"a": "1"}, ["a"]),
    "links": (
        {"a": LINK},
        {"a": NewEntry("link", 0o777, target="2")},
        {"a": NewEntry("link", 0o777, target="3")},
        ["a"],
    ),
    "link and file": ({"a": "1"}, {"a": LINK}, {"a": "2"}, ["a"]),
    "file and folder": ({}, {"d": "1"}, {"d/x": "2"}, ["d"]),
    "file and empty folder": ({}, {"d": "1"}, {"d": FOLDER}, ["d"]),
    "edited file, folder": ({"d": "1"}, {"d": "2"}, {"d/x": "3"}, ["d"]),
    "file, edited folder": ({"d/x": "1"}, {"d": "2"}, {"d/x": "3"}, ["d"]),
    "file, folder with more": ({"d/x": "1"}, {"d": "2"}, {"d/x": "1", "d/y": "3"}, ["d"]),
    "modes of a folder, and in it": (
        {"d/x": "1"},
        {"d": NewEntry("folder", 0o700), "d/x": "2"},
        {"d": NewEntry("folder", 0o750), "d/x": "3"},
        ["d", "d/x"],
    ),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_conflicts_are_named(case: str) -> None:
    base, ours, theirs, named = CONFLICTS[case]
    assert conflicts(base, ours, theirs) == named


@pytest.mark.parametrize("case", CONFLICTS)
def test_a_side_settles_its_conflicts(case: str) -> None:
    base, ours, theirs, named = CONFLICTS[case]
    scene = Scene(base, ours, theirs)
    found = scene.merge().conflicts
    for name, side in (("a", ours), ("b", theirs)):
        settled = scene.resolve({path: found[path][name].entry for path in named})
        for path in plain(side):
            if any(path == each or path.startswith(each + "/") for each in named):
                assert settled[path] == plain(side)[path]


def test_a_conflict_shows_what_each_side_has() -> None:
    both: tuple[Files, Files] = (
        {"a": "eins\n", "gone": "x", "d": "file"},
        {"a": NewEntry("file", 0o755, b"\0"), "d/x": "2"},
    )
    scene = Scene({"a": "1\n", "gone": "1"}, *both)
    found = scene.merge().conflicts
    assert list(found) == ["a", "d", "gone"]
    assert (
        found["a"]["a"].text,
        found["a"]["a"].mode,
        found["a"]["b"].text,
        found["a"]["b"].mode,
    ) == ("eins\n", 0o644, None, 0o755)
    assert found["a"]["a"].digests == (scene.blobs.put(b"eins\n"),)
    assert (
        found["gone"]["b"].is_absent
        and found["gone"]["b"].kind is None
        and str(found["gone"]["b"]) == "nothing"
    )
    assert found["d"]["b"].kind == "folder"
    assert str(found["gone"]["a"]) == "a file, mode 644: x"


def test_a_long_text_is_not_shown() -> None:
    found = Scene({}, {"a": "x" * TEXT_MAX}, {"a": "x" * (TEXT_MAX + 1)}).merge().conflicts["a"]
    assert found["a"].text == "x" * TEXT_MAX and found["b"].text is None


def test_conflicts_are_settled_by_content_and_by_removal() -> None:
    base: Files = {"a": "0", "b": "0", "run": NewEntry("file", 0o755, b"0"), "d/x": "0"}
    ours: Files = {"a": "1", "b": "1", "run": NewEntry("file", 0o755, b"1"), "d/x": "1"}
    theirs: Files = {
        "a": "2",
        "b": "2",
        "run": NewEntry("file", 0o755, b"2"),
        "new": "3",
        "d/x": "2",
    }
    scene = Scene(base, ours, theirs)
    assert scene.resolve({"a": b"both", "b": None, "run": b"r", "d/x": None}) == {
        "a": b"both",
        "run": NewEntry("file", 0o755, b"r"),
        "new": b"3",
        "d": FOLDER,
    }


def test_what_is_not_settled_comes_back() -> None:
    scene = Scene({}, {"a": "1", "b": "1"}, {"a": "2", "b": "2"})
    left = resolve(scene.blobs, scene.bases, scene.ours, scene.theirs, NAMES, {"a": b"x"})
    assert left.tree is None and list(left.conflicts) == ["b"]


def test_a_choice_for_no_conflict_is_refused() -> None:
    scene = Scene({}, {"a": "1"}, {"b": "2"})
    with pytest.raises(InvalidValue, match="no conflict at 'a'"):
        scene.resolve({"a": b"x"})
    with pytest.raises(InvalidValue, match="both sides"):
        merge_trees(scene.blobs, [], scene.ours, scene.theirs, ("x", "x"))


def test_the_mode_of_a_folder_is_settled_and_what_is_in_it_is_merged() -> None:
    scene = Scene(
        {"d/x": "1"},
        {"d": NewEntry("folder", 0o700), "d/x": "2"},
        {"d": NewEntry("folder", 0o750), "d/x": "1", "d/y": "3"},
    )
    theirs = scene.merge().conflicts["d"]["b"].entry
    assert scene.resolve({"d": theirs}) == {
        "d": NewEntry("folder", 0o750),
        "d/x": b"2",
        "d/y": b"3",
    }
    assert scene.resolve({"d": None}) == {}


def test_withheld_files_are_never_merged_by_content() -> None:
    blobs = Blobs()
    trees = [
        blobs.put(encode([TreeEntry(".env", "withheld", 0o600, 3, (Digest(letter * 64),))]))
        for letter in "123"
    ]
    assert list(merge_trees(blobs, trees[:1], trees[1], trees[2], NAMES).conflicts) == [".env"]
    assert merge_trees(blobs, trees[:1], trees[0], trees[2], NAMES).tree == trees[2]


# ── several bases, and none ──────────────────────────────────────────────────────────────────


def test_several_bases_have_to_agree() -> None:
    """Seen from one of them a side did not change it, seen from another it took a change back: that
    is for somebody to say.
    """
    assert conflicts([{"a": "1"}, {"a": "2"}], {"a": "2"}, {"a": "3"}) == ["a"]
    assert conflicts([{"d/a": "1"}, {}], {}, {"d/a": "3"}) == ["d/a"]
    assert merged(
        [{"a": "1", "b": "1"}, {"a": "1", "b": "2"}], {"a": "1", "b": "2"}, {"a": "3", "b": "2"}
    ) == {"a": b"3", "b": b"2"}


def test_sides_that_chose_differently_between_bases_are_in_conflict() -> None:
    assert conflicts([{"a": "1"}, {"a": "2"}], {"a": "1"}, {"a": "2"}) == ["a"]
    assert conflicts([{"a": "1"}, {}], {"a": "1"}, {}) == ["a"]
    assert conflicts(
        [{"d/a": "1", "d/b": "0"}, {"d/a": "2"}], {"d/a": "1", "d/b": "0"}, {"d/a": "2", "d/c": "3"}
    ) == ["d/a", "d/b"]


def test_lines_are_merged_by_the_base_that_allows_it() -> None:
    one, other = TEXT.replace("line 3\n", "x\n"), TEXT.replace("line 9\n", "y\n")
    ours, theirs = (
        "top\n" + one.replace("line 9\n", "y\n"),
        one.replace("line 9\n", "y\n") + "end\n",
    )
    assert merged([{"a": one}, {"a": other}], {"a": ours}, {"a": theirs}) == {
        "a": (ours + "end\n").encode()
    }


def test_without_a_base_all_is_new() -> None:
    blobs = Blobs()
    ours, theirs = blobs.plant({"a": "1", "b": "2"}), blobs.plant({"b": "2", "c": "3"})
    for bases in ([], [None]):
        merging = merge_trees(blobs, bases, ours, theirs, NAMES)
        blobs.update(merging.blobs)
        assert merging.tree is not None and blobs.told(merging.tree) == {
            "a": b"1",
            "b": b"2",
            "c": b"3",
        }


def test_a_very_deep_tree() -> None:
    path = "/".join(["d"] * 1500)
    blobs = Blobs()

    def deep(content: bytes) -> Digest:
        tree = blobs.put(
            encode([TreeEntry("x", "file", 0o644, len(content), (blobs.put(content),))])
        )
        for _ in range(1500):
            tree = blobs.put(encode([TreeEntry("d", "folder", 0o755, 0, (tree,))]))
        return tree

    merging = merge_trees(
        blobs, [deep(b"1\n2\n3\n")], deep(b"0\n2\n3\n"), deep(b"1\n2\n4\n"), NAMES
    )
    blobs.update(merging.blobs)
    assert merging.tree is not None
    entry = find(blobs, merging.tree, f"{path}/x")
    assert entry is not None and blobs[entry.blobs[0]] == b"0\n2\n4\n"


def test_where_lines_repeat_one_change_is_not_counted_twice() -> None:
    assert merge_lines(b"a\na\na\n", b"a\na\n", b"Z\na\na\n") is None
    assert merge_lines(b"a\na\n", b"a\na\na\n", b"Z\na\na\na\n") is None
    assert merge_lines(b"a\nb\nc\n", b"A\nb\nc\n", b"a\nb\nC\n") == b"A\nb\nC\n"
