"""Laws 4 to 6 as far as they are about trees: what differs, and how two trees become one.

Random trees; git is asked, too.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.ids import Digest
from plait.workspace import NewEntry
from plait.workspace.diff import changes
from plait.workspace.git_patch import patch_text
from plait.workspace.merge import Merging, merge_lines, merge_trees, resolve
from plait.workspace.tree import EMPTY, TreeReader
from tests.planting import FOLDER, Blobs, Content, check_out, found_in, git

Files = dict[str, Content]
NAMES = ("ours", "theirs")

# ── random trees ─────────────────────────────────────────────────────────────────────────────

names = st.sampled_from(["a", "b", "c d", "ü", os.fsdecode(b"\xff")])
LINES = [b"one\n", b"two\n", b"three\n", b"four\r\n", "f\u2028ve\n".encode(), b"six\n"]
texts = st.lists(st.booleans(), min_size=6, max_size=6).map(
    lambda kept: b"".join(line for line, keep in zip(LINES, kept, strict=True) if keep)
)
contents = texts | st.sampled_from([b"", b"\0\1", b"\0\2", b"no end", b"\xff\n"])
files = (
    contents
    | contents.map(lambda content: NewEntry("file", 0o755, content))
    | contents.map(lambda content: NewEntry("file", 0o600, content))
)
links = st.sampled_from(["a", "../out"]).map(lambda target: NewEntry("link", 0o777, target=target))


def trees(*, empty_folders: bool = True) -> st.SearchStrategy[Any]:
    inner = st.recursive(
        files | links,
        lambda below: st.dictionaries(names, below, min_size=0 if empty_folders else 1, max_size=3),
        max_leaves=8,
    )
    return st.dictionaries(names, inner, max_size=4)


def flat(tree: dict[str, Any], path: str = "") -> Files:
    """Return the leaves of the tree, as `plant` takes them."""
    found: Files = {}
    for name, what in tree.items():
        if isinstance(what, dict):
            below = flat(what, f"{path}{name}/")  # pyright: ignore[reportUnknownArgumentType]
            found.update(below or {path + name: FOLDER})
        else:
            found[path + name] = what
    return found


def mixed(draw: Any, one: Files, other: Files) -> Files:
    """Some paths as one has them, some as the other does, where they go together, and some with
    another content.
    """
    found: Files = {}
    for path in sorted({*one, *other}):
        what = draw(st.sampled_from(["one", "one", "one", "other", "new"]))
        side = other if what == "other" else one
        fits = not any(path.startswith(each + "/") or each.startswith(path + "/") for each in found)
        if path in side and fits:
            found[path] = draw(files) if what == "new" else side[path]
    return found


@st.composite
def forks(draw: Any, empty_folders: bool = True) -> tuple[Files, Files, Files]:
    """A base and two trees that came from it."""
    base, one, two = (flat(draw(trees(empty_folders=empty_folders))) for _ in range(3))
    return base, mixed(draw, base, one), mixed(draw, base, two)


class Scene:
    def __init__(self, base: Files, ours: Files, theirs: Files) -> None:
        self.blobs = Blobs()
        self.base, self.ours, self.theirs = (
            self.blobs.plant(each) for each in (base, ours, theirs)
        )

    def merge(
        self,
        ours: Digest | None = None,
        theirs: Digest | None = None,
        names: tuple[str, str] = NAMES,
    ) -> Merging:
        return merge_trees(self.blobs, [self.base], ours or self.ours, theirs or self.theirs, names)

    def told(self, merging: Merging) -> Files:
        self.blobs.update(merging.blobs)
        assert merging.tree is not None
        return self.blobs.told(merging.tree)


# ── what differs ─────────────────────────────────────────────────────────────────────────────


@given(forks())
def test_what_differs_makes_one_tree_of_the_other(trio: tuple[Files, Files, Files]) -> None:
    _, left, right = trio
    blobs = Blobs()
    one, two = blobs.plant(left), blobs.plant(right)
    found = {change.path: change for change in changes(blobs, one, two)}
    reader = TreeReader(blobs)
    made = dict(reader.walk(one))
    for path, change in found.items():
        assert change.before != change.after
        if change.before is not None:
            assert change.before == reader.find(one, path)
        if change.after is not None:
            assert change.after == reader.find(two, path)
        made.pop(path, None)
        if change.after is not None:
            made[path] = change.after
    ends = {path: entry for path, entry in made.items() if entry.kind != "folder"}
    assert ends == {path: entry for path, entry in reader.walk(two) if entry.kind != "folder"}
    empty = {path for path, entry in reader.walk(two) if entry.blobs == (EMPTY,)} - {
        path for path, _ in reader.walk(one)
    }
    assert empty <= found.keys()
    back = {change.path: (change.after, change.before) for change in changes(blobs, two, one)}
    assert back == {path: (change.before, change.after) for path, change in found.items()}


@settings(max_examples=25)
@given(forks())
def test_git_makes_one_tree_of_the_other_with_the_patch(
    tmp_path_factory: pytest.TempPathFactory, trio: tuple[Files, Files, Files]
) -> None:
    _, left, right = (
        {path: what for path, what in each.items() if _in_patches(what)} for each in trio
    )
    blobs = Blobs()
    patch = patch_text(blobs, changes(blobs, blobs.plant(left), blobs.plant(right)))
    here, wanted = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("wanted")
    git(here, "init", "-q")
    check_out(left, here)
    check_out(right, wanted)
    if patch:
        git(here, "apply", "-", stdin=patch.encode())
    assert found_in(here) == found_in(wanted)


def _in_patches(what: Content) -> bool:
    content = what.content if isinstance(what, NewEntry) else what
    return not (isinstance(what, NewEntry) and what.kind == "folder") and not (
        isinstance(content, bytes) and (b"\0" in content or b"\xff" in content)
    )


# ── merging ──────────────────────────────────────────────────────────────────────────────────


@given(forks())
def test_merging_what_nobody_else_changed_is_taking_it(trio: tuple[Files, Files, Files]) -> None:
    scene = Scene(*trio)
    assert scene.merge(scene.ours, scene.base) == Merging(scene.ours, {}, {})
    assert scene.merge(scene.base, scene.ours) == Merging(scene.ours, {}, {})
    assert scene.merge(scene.ours, scene.ours) == Merging(scene.ours, {}, {})


@given(forks())
def test_merging_is_the_same_both_ways(trio: tuple[Files, Files, Files]) -> None:
    scene = Scene(*trio)
    one, other = scene.merge(), scene.merge(scene.theirs, scene.ours, ("theirs", "ours"))
    assert one.tree == other.tree
    assert one.conflicts == other.conflicts


@given(forks())
def test_a_merge_brings_along_all_its_blobs(trio: tuple[Files, Files, Files]) -> None:
    scene = Scene(*trio)
    merging = scene.merge()
    assert (merging.tree is None) == bool(merging.conflicts)
    if merging.tree is not None:
        assert not {
            digest: blob
            for digest, blob in merging.blobs.items()
            if digest in scene.blobs and scene.blobs[digest] != blob
        }
        for content in scene.told(merging).values():
            assert content is not None


@given(forks())
def test_nothing_that_one_side_did_is_lost(trio: tuple[Files, Files, Files]) -> None:
    base, ours, theirs = (_plain(each) for each in trio)
    scene = Scene(*trio)
    conflicts = scene.merge().conflicts
    choices = {path: sides["ours"].entry for path, sides in conflicts.items()}
    result = scene.told(
        resolve(scene.blobs, [scene.base], scene.ours, scene.theirs, NAMES, choices)
    )
    for path in {*base, *ours, *theirs}:
        sides = [side.get(path) for side in (ours, theirs) if side.get(path) != base.get(path)]
        if len(sides) == 1 and not any(
            path == each or path.startswith(each + "/") for each in conflicts
        ):
            assert _plain(result).get(path) == sides[0]


def _plain(files: Files) -> Files:
    return {
        path: what
        for path, what in files.items()
        if not (isinstance(what, NewEntry) and what.kind == "folder")
    }


@settings(max_examples=60)
@given(forks(empty_folders=False))
def test_a_merge_is_what_each_path_by_itself_says(trio: tuple[Files, Files, Files]) -> None:
    scene = Scene(*trio)
    merging = scene.merge()
    expected, conflicts = _naive(*trio)
    assert set(merging.conflicts) == conflicts
    if not conflicts:
        assert _plain(scene.told(merging)) == expected


def _naive(base: Files, ours: Files, theirs: Files) -> tuple[Files, set[str]]:
    result: Files = {}
    conflicts: set[str] = set()
    for path in {*base, *ours, *theirs}:
        found = _naive_end(base.get(path), ours.get(path), theirs.get(path))
        if found == "conflict":
            conflicts.add(path)
        elif found is not None:
            result[path] = found
    taken = {*result, *conflicts}
    clashes = {path for path in taken if any(other.startswith(path + "/") for other in taken)}
    below = {path for path in taken if any(path.startswith(clash + "/") for clash in clashes)}
    return result, (conflicts | clashes) - below


def _naive_end(
    base: Content | None, ours: Content | None, theirs: Content | None
) -> Content | None:
    for one, other in ((ours, theirs), (theirs, ours)):
        if one in (base, other):
            return other
    nodes = [_node(each) for each in (base, ours, theirs)]
    if any(node is None or node.kind != "file" for node in nodes):
        return "conflict"
    old, one, two = (node for node in nodes if node is not None)
    if one.content == two.content or old.content in (one.content, two.content):
        content = one.content if two.content == old.content else two.content
    else:
        content = merge_lines(old.content, one.content, two.content)
    modes = {one.mode, two.mode} - {old.mode} if one.mode != two.mode else {one.mode}
    if content is None or len(modes) != 1:
        return "conflict"
    mode = modes.pop()
    return content if mode == 0o644 else NewEntry("file", mode, content)


def _node(what: Content | None) -> NewEntry | None:
    return (
        NewEntry("file", 0o644, what)
        if isinstance(what, bytes)
        else what
        if isinstance(what, NewEntry)
        else None
    )


# ── what git says ────────────────────────────────────────────────────────────────────────────


@st.composite
def line_forks(draw: Any) -> tuple[Files, Files, Files]:
    """Files in which no line stands twice, so that there is only one way to see
    what was changed.
    """
    base: dict[str, list[str]] = {}
    for path in draw(
        st.lists(st.sampled_from(["a", "b", "d/c", "d/e/f", "g"]), unique=True, max_size=5)
    ):
        base[path] = [f"{path} {i}\n" for i in range(draw(st.integers(0, 12)))]
    sides = [_edited(draw, base, side) for side in ("ours", "theirs")]
    one, two, three = (
        {path: "".join(lines).encode() for path, lines in each.items()} for each in (base, *sides)
    )
    return {**one}, {**two}, {**three}


def _edited(draw: Any, base: dict[str, list[str]], side: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path, lines in base.items():
        what = draw(st.sampled_from(["same", "edited", "edited", "edited", "gone"]))
        if what == "same":
            found[path] = lines
        elif what == "edited":
            found[path] = _edited_lines(draw, path, lines, side)
    if draw(st.booleans()):
        found[draw(st.sampled_from(["new", "d/new", "d/e/new"]))] = [
            draw(st.sampled_from(["1\n", "2\n"]))
        ]
    return found


def _edited_lines(draw: Any, path: str, lines: list[str], side: str) -> list[str]:
    found: list[str] = []
    places = draw(st.sets(st.integers(0, len(lines)), max_size=3))
    for number, line in enumerate([*lines, ""]):
        what = (
            draw(st.sampled_from(["drop", "replace", "insert", "alike"]))
            if number in places
            else "keep"
        )
        found += (
            [f"{path} {side} {number}\n"]
            if what in ("replace", "insert")
            else [f"{path} alike {number}\n"]
            if what == "alike"
            else []
        )
        found += [line] if what in ("keep", "insert") and line else []
    return found


@settings(max_examples=40)
@given(line_forks())
def test_git_merges_trees_alike(
    tmp_path_factory: pytest.TempPathFactory, trio: tuple[Files, Files, Files]
) -> None:
    folder = tmp_path_factory.mktemp("git")
    scene = Scene(*trio)
    merging = scene.merge()
    clean, theirs = _merged_by_git(folder, *trio)
    assert clean == (not merging.conflicts), (merging.conflicts.keys(), theirs)
    if clean:
        assert _plain(scene.told(merging)) == theirs
    else:
        assert merging.conflicts.keys() == theirs.keys()


def _merged_by_git(folder: Path, base: Files, ours: Files, theirs: Files) -> tuple[bool, Files]:
    """Return True and the files if it went well; else the paths that are in conflict."""
    git(folder, "init", "-q", "--bare")
    commits = [
        _commit("base", "", base),
        _commit("ours", "from refs/heads/base\n", ours),
        _commit("theirs", "from refs/heads/base\n", theirs),
    ]
    git(folder, "fast-import", "--quiet", stdin=b"".join(commits))
    asked = (
        "-c",
        "merge.renames=false",
        "-c",
        "merge.directoryRenames=false",
        "merge-tree",
        "--write-tree",
        "-z",
        "--name-only",
        "--no-messages",
    )
    done = git(folder, *asked, "ours", "theirs", check=False)
    assert done.returncode in (0, 1), done.stderr
    tree, *conflicts = [part.decode() for part in done.stdout.split(b"\0") if part]
    if done.returncode:
        return False, dict.fromkeys(conflicts, "")
    names = [
        name
        for name in (
            git(folder, "ls-tree", "-r", "-z", "--name-only", tree).stdout.decode().split("\0")
        )
        if name
    ]
    told = git(
        folder, "cat-file", "--batch", stdin="".join(f"{tree}:{name}\n" for name in names).encode()
    ).stdout
    return True, dict(zip(names, _batch(told), strict=True))


def _commit(branch: str, parent: str, files: Files) -> bytes:
    found = (
        f"commit refs/heads/{branch}\ncommitter t <t@example.org> 0 +0000\ndata"
        f" 0\n{parent}deleteall\n".encode()
    )
    for path, content in files.items():
        assert isinstance(content, bytes)
        found += f"M 100644 inline {path}\ndata {len(content)}\n".encode() + content + b"\n"
    return found


def _batch(told: bytes) -> list[bytes]:
    found: list[bytes] = []
    while told:
        head, _, rest = told.partition(b"\n")
        size = int(head.split()[2])
        found.append(rest[:size])
        told = rest[size + 1 :]
    return found
