"""The commands about files: what is in them reaches a pipe as it is, and a terminal only when it is
harmless.
"""

from __future__ import annotations

import json
import os
import subprocess
from base64 import b64decode
from pathlib import Path

import pytest
from click.testing import CliRunner

from plait.cli import main
from plait.errors import UnknownBlob
from plait.event.kinds import Text, ToolRequested, ToolReturned
from plait.session.ports import store_at
from plait.workspace import NewEntry
from tests.cli.field import Field, withheld
from tests.cli.shell import COMMAND, Shell, on_a_terminal, shell
from tests.planting import check_out, found_in, git

__all__ = ["shell"]

BAD_NAME = os.fsdecode(b"b\xffd.txt")
EVIL = "\x1b]0;owned\x07"
BEFORE = {
    "src/cart.py": "def total():\n\treturn 0\n",
    "README": "one\ntwo\nthree\n",
    "old.txt": "moves\n",
}
AFTER = {
    "src/cart.py": "def total():\n\treturn 1\n\n# end\n",
    "README": "one\ntwo\nthree\n",
    "new.txt": "moves\n",
    "run.sh": NewEntry("file", 0o755, b"#!/bin/sh\n"),
    "logo.png": b"\x89PNG\0\xff\x1b[2J",
    "latest": NewEntry("link", 0o777, target="src/cart.py"),
    "out": NewEntry("link", 0o777, target="../../etc/passwd"),
    "docs": NewEntry("folder", 0o755),
    BAD_NAME: "latin\n",
    f"evil{EVIL}.txt": f"red {EVIL}\x1b[31m text\nnext\n",
}


@pytest.fixture
def field(shell: Shell) -> Field:
    return Field(shell)


@pytest.fixture
def placed(field: Field) -> tuple[Field, str]:
    """A session: placed at 3, a tool wrote at 5."""
    name = field.shell.new("fix it")
    field.place(
        name, field.plant(BEFORE), sandbox="box-1", rung="overlay", detail={"folder": "/repo"}
    )
    field.work(name, "write_file", field.plant(AFTER, withheld(".env")))
    return field, name


def raw(*arguments: str) -> bytes:
    """Return the bytes that a pipe gets."""
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout_bytes


def is_harmless(text: str) -> bool:
    """True if nothing is left that a terminal obeys, but for our own colours."""
    plain = text.replace("\n", "")
    for code in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[36m"):
        plain = plain.replace(code, "")
    return plain.isprintable() and "owned" not in plain.replace("\\033]0;owned\\a", "")


# ── cat and files ────────────────────────────────────────────────────────────────────────────


def test_cat_gives_a_pipe_every_byte(placed: tuple[Field, str]) -> None:
    _, name = placed
    assert raw("cat", f"{name}:logo.png") == b"\x89PNG\0\xff\x1b[2J"
    assert raw("cat", f"{name}:evil{EVIL}.txt").decode() == AFTER[f"evil{EVIL}.txt"]
    assert raw("cat", f"{name}:{BAD_NAME}") == b"latin\n"
    assert raw("cat", f"{name}@3:src/cart.py") == b"def total():\n\treturn 0\n"
    assert (
        raw("cat", "@@3:src/cart.py")
        == raw("cat", "@3:src/cart.py")
        == raw("cat", f"{name}@3:src/cart.py")
    )
    assert (
        raw("cat", "@:src/cart.py")
        == raw("cat", name, "src/cart.py")
        == raw("cat", f"{name}:./src//cart.py")
    )
    # links lead on, inside
    assert raw("cat", f"{name}:latest") == raw("cat", f"{name}:src/cart.py")
    # named in bytes, as a shell does
    done = subprocess.run([*COMMAND, "cat", f"{name}:{BAD_NAME}"], capture_output=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == (b"latin\n", b"", 0)


def test_cat_of_a_folder_lists_it(placed: tuple[Field, str]) -> None:
    field, name = placed
    assert field.shell("cat", f"{name}:src") == "cart.py\n"
    assert field.shell("cat", f"{name}:").splitlines() == [
        ".env  (withheld: it holds a secret)",
        "README",
        '"b\\377d.txt"',
        "docs/",
        '"evil\\033]0;owned\\a.txt"',
        "latest → src/cart.py",
        "logo.png",
        "new.txt",
        "out → ../../etc/passwd",
        "run.sh",
        "src/",
    ]
    assert field.shell("cat", f"{name}:docs") == ""


def test_cat_in_json(placed: tuple[Field, str]) -> None:
    field, name = placed
    found = field.shell.json("cat", f"{name}:README")
    assert (found["path"], found["size"], found["text"], found["base64"]) == (
        "README",
        14,
        "one\ntwo\nthree\n",
        None,
    )
    found = field.shell.json("cat", f"{name}:logo.png")
    assert found["text"] is None and b64decode(found["base64"]) == AFTER["logo.png"]
    assert [each["path"] for each in field.shell.json("cat", f"{name}:src")["entries"]] == [
        "cart.py"
    ]


def test_cat_says_why_not(placed: tuple[Field, str]) -> None:
    field, name = placed
    assert f"plait files {name}@3" in field.shell.error(3, "cat", f"{name}@3:new.txt")
    assert "holds a secret" in field.shell.error(1, "cat", f"{name}:.env")
    assert "not in the workspace" in field.shell.error(2, "cat", f"{name}:out")
    assert "given twice" in field.shell.error(2, "cat", f"{name}:README", "README")
    assert "plait to" in field.shell.error(3, "cat", f"{name}@2:README")
    assert f"there is no {EVIL!r}"[:-1] not in field.shell.error(3, "cat", f"{name}:{EVIL}")
    assert field.shell.error(3, "cat", f"{name}:{EVIL}").replace("\n", "").isprintable()
    assert "no session is called that" in field.shell.error(3, "cat", "nobody:README")


def test_cat_on_a_terminal_is_harmless(placed: tuple[Field, str]) -> None:
    _, name = placed
    assert on_a_terminal("cat", f"{name}:evil{EVIL}.txt") == "red  text\nnext\n"
    assert (
        on_a_terminal("cat", f"{name}:src/cart.py") == "def total():\n        return 1\n\n# end\n"
    )
    assert "no text: 10 bytes" in on_a_terminal("cat", f"{name}:logo.png")
    assert is_harmless(on_a_terminal("cat", f"{name}:"))


def test_files(placed: tuple[Field, str]) -> None:
    field, name = placed
    assert field.shell("files", f"{name}@3").splitlines() == [
        "-rw-r--r--  14  README",
        "-rw-r--r--   6  old.txt",
        "-rw-r--r--  23  src/cart.py",
    ]
    found = {
        line.split(maxsplit=2)[2]: line.split()[0]
        for line in field.shell("files", name).splitlines()
    }
    assert (
        found["run.sh"] == "-rwxr-xr-x"
        and found["latest → src/cart.py"] == "lrwxrwxrwx"
        and found["docs/"] == "drwxr-xr-x"
    )
    assert found['"b\\377d.txt"'] and "src/" not in found
    assert (
        field.shell("files", name, "src")
        == field.shell("files", f"{name}:src")
        == "-rw-r--r--  30  src/cart.py\n"
    )
    document = field.shell.json("files", name)
    assert document["tree"] == field.shell.open(name).files.tree
    assert {each["path"] for each in document["files"]} >= {"b\\xffd.txt", "docs", ".env"}
    assert document["files"][0].keys() == {"path", "kind", "mode", "size", "target", "blobs"}
    assert field.shell.jsonl("files", name) == document["files"]
    assert is_harmless(on_a_terminal("files", name))
    assert "there is no" in field.shell.error(3, "files", name, "nowhere")


def test_many_files_do_not_scroll_away(field: Field) -> None:
    name = field.shell.new("many")
    field.place(name, field.plant({f"f{n:03}": "x" for n in range(250)}))
    assert len(field.shell("files", name).splitlines()) == 250
    shown = on_a_terminal("files", name).splitlines()
    assert len(shown) == 201 and "… and 50 more" in shown[-1]


# ── diff ─────────────────────────────────────────────────────────────────────────────────────


def test_diff_lists_what_changed(placed: tuple[Field, str]) -> None:
    field, name = placed
    found = field.shell("diff", f"{name}@3", name).splitlines()
    at = found.index("files:")
    listed = found[at + 1 : -1]
    assert (
        "M src/cart.py +3 −1" in listed
        and "R old.txt → new.txt" in listed
        and "A logo.png (no text)" in listed
    )
    assert field.shell("diff", f"{name}@3", name, "--stat").splitlines() == listed
    # the first tree is what it began with
    assert field.shell("diff", name, "--stat").splitlines() == listed
    assert "files:" not in field.shell("diff", name, name)
    assert field.shell("diff", name, name, "--stat") == ""


def test_a_patch_from_a_pipe_can_be_applied(field: Field, tmp_path: Path) -> None:
    before = {"src/cart.py": "def total():\n\treturn 0  \n", "gone": "x\n", "old.txt": "moves\n"}
    after = {
        "src/cart.py": "def total():\n\treturn 1  \n",
        "new.txt": "moves\n",
        "esc.txt": "a\x1b[31m\rb\x0c\n",
        BAD_NAME: "y\n",
    }
    name = field.shell.new("patch")
    field.place(name, field.plant(before))
    field.work(name, "shell", field.plant(after))
    folder = tmp_path / "there"
    folder.mkdir()
    check_out(before, folder)
    git(folder, "init", "-q")
    git(folder, "apply", "-", stdin=raw("diff", name, "--files"))
    want = tmp_path / "want"
    want.mkdir()
    check_out(after, want)
    assert found_in(folder) == found_in(want)


def test_diff_on_a_terminal_is_harmless(placed: tuple[Field, str]) -> None:
    _, name = placed
    assert is_harmless(on_a_terminal("diff", name, width=60))
    shown = on_a_terminal("diff", name, "--files")
    assert is_harmless(shown)
    assert "\x1b[32m+        return 1" in shown and "\x1b[31m-        return 0" in shown


def test_diff_in_json(placed: tuple[Field, str]) -> None:
    field, name = placed
    found = field.shell.json("diff", name)["files"]
    by_path = {each["path"]: each for each in found["changes"]}
    assert by_path["src/cart.py"]["status"] == "changed"
    assert (by_path["src/cart.py"]["added_lines"], by_path["src/cart.py"]["removed_lines"]) == (
        3,
        1,
    )
    assert (by_path["new.txt"]["status"], by_path["new.txt"]["old_path"]) == (
        "renamed",
        "old.txt",
    ) and "old.txt" not in by_path
    assert (
        by_path["logo.png"]["added_lines"] is None
        and by_path[".env"]["after"]["kind"] == "withheld"
    )
    alone = field.shell.json("diff", name, "--files")
    assert (
        alone.keys() == {"left", "right", "files", "patch"}
        and alone["files"] == found
        and "+\treturn 1\n" in alone["patch"]
    )
    assert field.shell.json("diff", name, "--stat").keys() == {"left", "right", "files"}


def test_diff_without_files(shell: Shell) -> None:
    name = shell.new("no files")
    assert "files:" not in shell("diff", name)
    assert shell.json("diff", name)["files"] == {"left": None, "right": None, "changes": []}
    assert "no workspace" in shell.error(3, "diff", name, "--files")
    assert "exclude" in shell.error(2, "diff", name, "--files", "--stat")


# ── checkout and blame ───────────────────────────────────────────────────────────────────────


def test_checkout(placed: tuple[Field, str], tmp_path: Path) -> None:
    field, name = placed
    said = field.shell("checkout", f"{name}@3", str(tmp_path / "a"))
    assert said == f"wrote 3 files of {name}@3 to {tmp_path / 'a'}\n"
    want = tmp_path / "want"
    want.mkdir()
    check_out(BEFORE, want)
    assert found_in(tmp_path / "a") == found_in(want)
    found = field.shell.json("checkout", name, str(tmp_path / "b"))
    assert (found["files"], found["withheld"], found["folder"]) == (
        9,
        [".env"],
        str(tmp_path / "b"),
    )
    assert (tmp_path / "b" / BAD_NAME).read_text() == "latin\n" and (
        tmp_path / "b" / "docs"
    ).is_dir()
    assert not (tmp_path / "b" / ".env").exists()
    assert "without .env: it holds a secret" in field.shell("checkout", name, str(tmp_path / "c"))


def test_checkout_only_where_nothing_is(placed: tuple[Field, str], tmp_path: Path) -> None:
    field, name = placed
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("mine")
    assert "empty folder" in field.shell.error(1, "checkout", name, str(full))
    assert [each.name for each in full.iterdir()] == ["mine"]
    assert field.shell.error(1, "checkout", name, str(full / "mine"))
    assert (full / "mine").read_text() == "mine"
    assert "plait cat" in field.shell.error(2, "checkout", f"{name}:src", str(tmp_path / "x"))
    assert "plait to" in field.shell.error(3, "checkout", f"{name}@2", str(tmp_path / "x"))


def test_blame(placed: tuple[Field, str]) -> None:
    field, name = placed
    told = [line.split() for line in field.shell("blame", f"{name}:src/cart.py").splitlines()]
    assert [(line[0], line[1], line[2]) for line in told] == [
        (f"{name}@3", "(placed)", "human:ana"),
        *[(f"{name}@5", "write_file", "agent:coder")] * 3,
    ]
    document = field.shell.json("blame", f"{name}:src/cart.py")
    assert document["path"] == "src/cart.py" and [line["number"] for line in document["lines"]] == [
        1,
        2,
        3,
        4,
    ]
    assert [(line["tool"], line["seq"], line["text"]) for line in document["lines"][:2]] == [
        (None, 3, "def total():"),
        ("write_file", 5, "\treturn 1"),
    ]
    assert field.shell.jsonl("blame", name, "src/cart.py") == document["lines"]
    assert field.shell.jsonl("blame", f"{name}:{BAD_NAME}")[0]["text"] == "latin"
    assert "plait files" in field.shell.error(3, "blame", f"{name}:nowhere")
    assert "folder" in field.shell.error(2, "blame", f"{name}:src")


@pytest.mark.parametrize("width", [50, 120])
def test_blame_on_a_terminal(placed: tuple[Field, str], width: int) -> None:
    _, name = placed
    shown = on_a_terminal("blame", f"{name}:evil{EVIL}.txt", width=width, NO_COLOR="1")
    assert is_harmless(shown) and "red  text" in shown
    assert max(map(len, shown.splitlines())) <= width
    assert ("agent:coder" in shown) == (width > 60)  # the text comes first, then who, then when


def test_blame_on_a_terminal_leaves_half_of_it_to_the_text(placed: tuple[Field, str]) -> None:
    field, name = placed
    field.work(name, "write_file", field.plant({"long.py": "total = " + "x" * 200 + "\n"}))
    told = {
        width: on_a_terminal("blame", f"{name}:long.py", width=width, NO_COLOR="1").rstrip("\n")
        for width in (120, 80, 75, 40)
    }
    kept = {
        width: [word in line for word in ("write_file", "agent:coder", "just now")]
        for width, line in told.items()
    }
    assert kept == {
        120: [True, True, True],
        80: [True, True, False],
        75: [True, False, False],
        40: [False, False, False],
    }
    assert all(
        len(line) == width and len(line) - line.index("total") >= width // 2
        for width, line in told.items()
    )


# ── what other commands say of files ─────────────────────────────────────────────────────────


def test_show_says_where_it_is_placed_and_what_changed(placed: tuple[Field, str]) -> None:
    field, name = placed
    shown = field.shell("show", name)
    assert "placement  local, overlay, network off, from /repo, sandbox box-1" in shown
    assert "Changed here" in shown and "  M src/cart.py +3 −1" in shown
    assert "Changed here" not in field.shell("show", f"{name}@4")
    document = field.shell.json("show", name)
    assert (
        document["placement"]["rung"] == "overlay"
        and document["tree"] == field.shell.open(name).files.tree
    )
    assert (
        document["changed"]["after"] == document["tree"]
        and "src/cart.py" in document["changed"]["paths"]
    )
    assert field.shell.json("show", f"{name}@4")["changed"] is None
    assert is_harmless(on_a_terminal("show", name))


def test_a_sandbox_is_told_by_a_short_id(field: Field) -> None:
    name = field.shell.new("fix it")
    id = field.shell.open(name).id
    for sandbox, short in ((id, name), (f"{id}-clean4", f"{name}-clean4"), (f"{id}0", f"{id}0")):
        field.place(name, field.plant(BEFORE), sandbox=sandbox, rung="overlay")
        assert field.shell("log", name, "-n", "1", "--oneline").endswith(
            f"placed in local, overlay, network off, sandbox {short}\n"
        )
        assert f"network off, sandbox {short}\n" in field.shell("show", name)


def test_log_says_what_a_tool_changed(placed: tuple[Field, str]) -> None:
    field, name = placed
    first, _, third, *_ = field.shell("log", name, "--oneline").splitlines()
    assert first.endswith("returned done (11 paths changed)")
    assert third == f"{name}@3  placed in local, overlay, network off, sandbox box-1"


def test_rewind_names_what_it_does_not_undo(placed: tuple[Field, str]) -> None:
    field, name = placed
    asked = ToolRequested("send_mail", {"to": f"bob{EVIL}"}, "at_most_once")
    field.append(name, "agent:coder", asked, ToolReturned((Text("sent"),)))
    field.shell("fork", name, "copy")
    said = field.shell("rewind", name, "3")
    assert f'  not undone  {name}@7  send_mail {{"to":"bob' in said and said.rstrip().endswith(
        "returned sent"
    )
    assert ", 1 effect not undone\n" in field.shell("log", name, "-n", "1", "--oneline")
    # the files are as they were
    assert said.replace("\n", "").isprintable() and "write_file" not in said
    assert raw("cat", f"{name}:src/cart.py") == b"def total():\n\treturn 0\n"
    found = field.shell.json("rewind", "copy", "3")["not_undone"]
    assert [(each["tool"], each["seq"], each["says"]) for each in found] == [
        ("send_mail", 7, "returned sent")
    ]


# ── merging files ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def apart(field: Field) -> tuple[Field, str]:
    """Two branches that changed the same line."""
    name = field.shell.new("branches")
    field.place(name, field.plant({"a.txt": "one\n", "b.txt": "b\n"}))
    for label in ("left", "right"):
        field.shell("fork", name, label)
        field.work(
            label,
            "edit_file",
            field.plant({"a.txt": f"{label}\n", "b.txt": "b\n", f"{label}.txt": "new\n"}),
        )
    return field, name


def test_a_conflict_of_files_is_named_and_chosen_by_side(apart: tuple[Field, str]) -> None:
    field, _ = apart
    place = field.shell.open("left").seq
    said = field.shell.error(8, "merge", "left", "right")
    assert "a.txt" in said and "b.txt" not in said and field.shell.open("left").seq == place
    assert "plait merge left right --resolve a.txt=" in said
    assert json.loads(field.shell.run("merge", "left", "right", "--json").stderr)["error"][
        "conflicts"
    ].keys() == {"a.txt"}
    assert "is no side" in field.shell.error(
        2, "merge", "left", "right", "--resolve", "a.txt=middle"
    )
    field.shell("merge", "left", "right", "--resolve", "a.txt=right")
    assert (
        raw("cat", "left:a.txt") == b"right\n"
        and raw("cat", "left:right.txt") == raw("cat", "left:left.txt") == b"new\n"
    )


def test_a_conflict_of_files_is_settled_by_content(
    apart: tuple[Field, str], tmp_path: Path
) -> None:
    field, _ = apart
    (tmp_path / "mine").write_bytes(b"both \xff\n")
    assert "cannot be read" in field.shell.error(
        2, "merge", "left", "right", "--resolve", f"a.txt=@{tmp_path / 'nowhere'}"
    )
    field.shell("merge", "left", "right", "--resolve", f"a.txt=@{tmp_path / 'mine'}")
    assert raw("cat", "left:a.txt") == b"both \xff\n"


def test_a_file_in_dispute_can_go(apart: tuple[Field, str]) -> None:
    field, _ = apart
    field.shell("merge", "left", "right", "--drop", "a.txt")
    assert "there is no" in field.shell.error(3, "cat", "left:a.txt")


# ── gc ───────────────────────────────────────────────────────────────────────────────────────


def test_gc_removes_what_nothing_leads_to(placed: tuple[Field, str]) -> None:
    field, name = placed
    store = store_at(field.shell.address)
    stray = store.put_blob(b"stray")
    field.shell("say", name, "later")
    assert field.shell("gc").startswith("removed 0 blobs")  # it may be about to be recorded
    assert store.get_blob(stray) == b"stray"
    # and the tree that the field made on the way
    assert field.shell.json("gc", "--now")["removed"] == 2
    with pytest.raises(UnknownBlob):
        store.get_blob(stray)
    kept = field.shell.json("gc", "--now")
    assert kept["removed"] == 0 and kept["missing"] == []
    assert field.shell("gc") == f"removed 0 blobs; files lead to {kept['kept']} blobs\n"
    assert raw("cat", f"{name}:logo.png") == AFTER["logo.png"]


def test_help_stays_light() -> None:
    code = (
        "from plait.cli import main; main(['cat', '--help'], standalone_mode=False)\nimport sys;"
        " print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([*COMMAND[:2], code], capture_output=True, text=True, timeout=60)
    assert "plait.cli.files" in done.stderr.split()
    assert not {"rich", "plait.sandbox.local", "e2b", "opensandbox"} & set(done.stderr.split())
