"""Laws 4, 5 and 6 with files: random trees, changed by commands and by the files' own verbs, on
every rung this machine offers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from plait import Session, tool
from plait.errors import MergeConflict
from plait.sandbox import Sandbox, backend
from plait.session.ports import store_at
from tests.support import count, dose

# shrinking would take minutes: every step is a process
SHORT = (Phase.explicit, Phase.reuse, Phase.generate)
LADDER = ("overlay", "bubblewrap", "landlock", "host")
RUNGS = [
    each.name
    for each in backend("local").probe().capabilities
    if each.name in LADDER and each.offered
]

NAMES = ("a", "b.txt", "dir", "dir/c", "dir/sub/d", "dir/ünï", "-rf", "x y", "\n", "e/f/g", "e")
# A program inside the sandbox does these, so that files are changed as commands change them.
PROGRAM = """
import json, os, shutil, sys
def clear(path):
    if os.path.islink(path) or os.path.isfile(path): os.remove(path)
    elif os.path.isdir(path): shutil.rmtree(path)
def room(path):
    parts = path.split('/')[:-1]
    for n in range(1, len(parts) + 1):
        above = '/'.join(parts[:n])
        if os.path.islink(above) or (os.path.lexists(above) and not os.path.isdir(above)): clear(above)
    if parts: os.makedirs('/'.join(parts), exist_ok=True)
for op, path, more in json.load(sys.stdin):
    path = './' + path
    if op == 'write':
        room(path); clear(path); open(path, 'wb').write(bytes(more))
    elif op == 'append' and os.path.isfile(path) and not os.path.islink(path): open(path, 'ab').write(bytes(more))
    elif op == 'remove': clear(path)
    elif op == 'folder': room(path); clear(path); os.mkdir(path)
    elif op == 'link': room(path); clear(path); os.symlink(more, path)
    elif op == 'mode' and os.path.isfile(path) and not os.path.islink(path): os.chmod(path, more)
    elif op == 'rename' and os.path.lexists(path) and not os.path.isdir(path):
        more = './' + more
        if more != path and not (os.path.isdir(path)) and not path.startswith(more + '/') and not more.startswith(path + '/'):
            room(more); clear(more)
            if os.path.lexists(path): os.rename(path, more)
"""  # noqa: E501

paths = st.sampled_from(NAMES)
contents = st.sampled_from(
    [b"", b"one\n", b"one\ntwo\nthree\n", b"\x00\xff binary", "ünï\u2028x".encode()]
).map(list)
edits = st.lists(
    st.one_of(
        st.tuples(st.just("write"), paths, contents),
        st.tuples(st.just("append"), paths, contents),
        st.tuples(st.just("remove"), paths, st.none()),
        st.tuples(st.just("folder"), paths, st.none()),
        st.tuples(
            st.just("link"), paths, st.sampled_from(["a", "/etc/passwd", "nowhere", "../.."])
        ),
        st.tuples(st.just("mode"), paths, st.sampled_from([0o600, 0o755, 0o444])),
        st.tuples(st.just("rename"), paths, paths),
    ),
    max_size=5,
)


@tool(effect="workspace")
def change(edits: str, sandbox: Sandbox) -> str:
    """Change files by a program in the sandbox."""
    ran = sandbox.exec(["python3", "-c", PROGRAM], stdin=edits.encode())
    assert ran.exit_code == 0, ran.output.view()
    return "changed"


@tool(effect="pure")
def look(sandbox: Sandbox) -> str:
    """What a command sees."""
    program = (
        "import os, json\nfound = {}\nfor folder, folders, files in os.walk('.'):\n    for name in"
        " folders + files:\n        path = os.path.join(folder, name)[2:]\n        found[path] ="
        " ['link', os.readlink(path)] if os.path.islink(path) else ['folder'] if"
        " os.path.isdir(path) else [oct(os.stat(path).st_mode & 0o777), open(path,"
        " 'rb').read().hex()]\nprint(json.dumps(found))"
    )
    ran = sandbox.exec(["python3", "-c", program])
    assert ran.exit_code == 0, ran.output.view()
    return ran.output.view(10_000_000)


def seen(session: Session) -> dict[str, Any]:
    """Return the recorded files, in the words of `look`."""
    found: dict[str, Any] = {}
    workspace = session.files.workspace

    def below(path: str) -> None:
        for entry in workspace.list(path):
            here = f"{path}/{entry.name}" if path else entry.name
            if entry.kind == "link":
                found[here] = ["link", entry.target]
            elif entry.kind == "folder":
                found[here] = ["folder"]
                below(here)
            else:
                found[here] = [oct(entry.mode), workspace.read(here).hex()]

    below("")
    return found


def looked(session: Session) -> dict[str, Any]:
    return json.loads(str(session.fork().use(look).result))


def changed(session: Session, what: list[Any]) -> Session:
    return session.use(change, edits=json.dumps(what))


@pytest.mark.parametrize("rung", RUNGS)
def test_fork_rewind_and_merge_take_the_files_along(rung: str, tmp_path: Path) -> None:
    began = Session("files", store=tmp_path / "store").to("local", isolation=rung)

    @settings(
        max_examples=dose("FILES", 3, 150, ci=8),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        phases=SHORT,
    )
    @given(edits, edits, edits, edits)
    def law(first: list[Any], ours: list[Any], theirs: list[Any], later: list[Any]) -> None:
        count(f"fork, rewind and merge with files ({rung})", store_at(began.store))
        root = changed(began.fork(), first)
        assert looked(root) == seen(root)  # what is recorded is what is there
        a, b = root.fork("a"), root.fork("b")
        a, b = changed(a, ours), changed(b, theirs)
        # each has its own
        assert looked(b) == seen(b) and looked(a) == seen(a) and looked(root) == seen(root)
        on = changed(a.fork(), later)
        back = on.rewind(a.seq)
        assert back.files.tree == a.files.tree and looked(back) == seen(a)
        _check_merge(root, a, b)

    law()


def _check_merge(root: Session, a: Session, b: Session) -> None:
    base, ours, theirs = seen(root), seen(a), seen(b)
    try:
        merged = a.merge(b)
    except MergeConflict as error:
        for path in error.conflicts:  # only what both sides changed, there or below or above
            assert _differs(base, ours, path) and _differs(base, theirs, path), path
        return
    found = seen(merged)
    for path in base.keys() | ours.keys() | theirs.keys():
        before, left, right = base.get(path), ours.get(path), theirs.get(path)
        if left == right or right == before:
            wanted = left
        elif left == before:
            wanted = right
        else:
            continue  # merged line by line, or content here and mode there
        # a folder goes and comes with what is in it
        if wanted != ["folder"] and before != ["folder"]:
            assert found.get(path) == wanted, path
    assert looked(merged) == found


def _touches(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")


def _differs(base: dict[str, Any], side: dict[str, Any], path: str) -> bool:
    return any(
        base.get(each) != side.get(each)
        for each in base.keys() | side.keys()
        if _touches(each, path)
    )
