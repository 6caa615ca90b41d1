"""The rungs of the ladder: what runs there, what is recorded of it, and that nothing runs on less
than was asked for.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from plait.errors import (
    IsolationMissing,
    NoSuchFile,
    NotSupported,
    OutsideWorkspace,
    SandboxFailed,
    SandboxGone,
    UnknownBackend,
)
from plait.event.kinds import Placement
from plait.ids import Digest
from plait.sandbox import Limits, Wanted, backend, backends
from plait.sandbox.local import LocalBackend
from plait.sandbox.rungs import choose
from plait.workspace.folder_snapshot import snapshot_folder
from tests.sandbox.rooms import (
    NAMESPACED,
    RUNGS,
    Room,
    needs,
    on_every,
    on_isolated,
    on_namespaced,
    room,
)
from tests.support import python


@on_every
def test_a_command_works_on_the_files(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung, {"a.txt": "hello\n", "sub/b.txt": "there\n"}) as here:
        here.box.begin()
        ran = here.sh("cat a.txt sub/b.txt; echo more >>a.txt; rm sub/b.txt; echo err >&2; exit 3")
        assert (ran.exit_code, ran.killed, ran.output.view()) == (3, "", "hello\nthere\nerr\n")
        assert here.box.snapshot().changed == ("a.txt", "sub/b.txt")
        assert here.box.files.read("a.txt") == b"hello\nmore\n"
        assert (here.folder / "a.txt").read_text() == "hello\n"


@on_every
def test_how_a_command_ends(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung) as here:
        assert here.sh("kill -9 $$").exit_code == 128 + signal.SIGKILL
        assert here.sh("kill -TERM $$").exit_code == 128 + signal.SIGTERM
        assert here.box.exec(["no-such-program"]).exit_code == 127
        assert here.box.exec(["./a.txt"]).exit_code == 126
        assert here.sh("exit 1").exit_code == 1


@on_every
def test_input_working_folder_and_environment(
    tmp_path: Path, rung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "of-the-parent")
    with room(tmp_path, rung, {"sub/b.txt": "x"}, env={"OWN": "1"}) as here:
        assert here.said("cat") == ""
        assert here.said("cat", stdin=b"given") == "given"
        assert here.said("pwd; ls", cwd="sub") == f"{here.box.workdir}/sub\nb.txt"
        names = dict(
            line.split("=", 1) for line in here.said("env", env={"MORE": "2"}).splitlines()
        )
        assert (names["OWN"], names["MORE"]) == ("1", "2")
        assert set(names) - {"PWD", "SHLVL", "_", "OLDPWD"} <= set(
            "PATH HOME TMPDIR LANG LC_ALL TERM TZ USER OWN MORE".split()
        )
        with pytest.raises(OutsideWorkspace):
            here.sh("true", cwd="../..")
        assert here.sh("pwd", cwd="sub/../sub").exit_code == 0


@on_namespaced
def test_a_working_folder_that_is_not_there(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung) as here, pytest.raises(NoSuchFile):
        here.sh("true", cwd="nowhere")


@on_every
def test_output_comes_live_and_in_order(tmp_path: Path, rung: str) -> None:
    chunks: list[bytes] = []
    with room(tmp_path, rung) as here:
        ran = here.sh("echo one; echo two >&2; printf '\\033[31mred\\377'", on_output=chunks.append)
        assert b"".join(chunks) == b"one\ntwo\n\x1b[31mred\xff" == b"".join(ran.output.pieces())
        assert ran.output.view() == "one\ntwo\n\x1b[31mred�"
        kept = here.box.keep(ran.output, "out.txt")
        assert here.store.get_blob(kept.blob) == b"".join(chunks)


@on_every
def test_the_interpreter_of_plait_is_there(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung) as here:
        found = here.said("python3 -c 'import sys, ssl; print(sys.version_info[:2])'")
        assert found == str(sys.version_info[:2])


@on_every
def test_what_is_recorded(tmp_path: Path, rung: str) -> None:
    limits = Limits(memory_mb=100)
    with room(tmp_path, rung, limits=limits) as here:
        placement = here.box.placement
        detail = cast("dict[str, Any]", placement.detail)
        assert (placement.backend, placement.sandbox, placement.rung) == ("local", "one", rung)
        assert placement.network == ("on" if rung == "host" else "off")
        assert detail["limits"]["memory_mb"] == 100
        assert "Linux" in detail["version"] and ("bubblewrap" in detail["version"]) == (
            rung in NAMESPACED
        )


@on_every
def test_attach_restore_fork_and_destroy(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung) as here:
        before = here.box.snapshot().tree
        here.box.begin()
        here.sh("echo changed >a.txt")
        after = here.box.snapshot()
        other = here.box.fork(wanted(here, "two", rung))
        assert other.files.read("a.txt") == b"changed\n"
        other.exec(["sh", "-c", "echo forked >a.txt"])
        assert here.said("cat a.txt") == "changed"
        here.box.restore(before)
        assert here.said("cat a.txt") == "hello"
        placement = here.box.placement
        here.box.close()
        again = LocalBackend().attach(placement, wanted(here, "one", rung, tree=after.tree))
        assert again.files.read("a.txt") == b"hello\n"
        assert {held.sandbox for held in LocalBackend().list_sandboxes(here.store)} == {
            "one",
            "two",
        }
        again.destroy()
        other.destroy()
        assert not LocalBackend().list_sandboxes(here.store)
        with pytest.raises(SandboxGone):
            LocalBackend().attach(placement, wanted(here, "one", rung, tree=before))


def wanted(here: Room, key: str, rung: str, **more: Any) -> Wanted:
    tree = more.pop("tree", None) or here.box.snapshot().tree
    return Wanted(here.store, key, tree, isolation=rung, folder=str(here.folder), **more)


@on_every
def test_clean_has_nothing_but_the_tree(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung) as here:
        here.sh("echo left >$HOME/left; echo left >left")
        for _ in range(2):
            clean = LocalBackend().create(
                Wanted(here.store, "one", _tree(here), isolation=rung, clean=True)
            )
            seen = clean.exec(
                ["sh", "-c", "ls -A .; ls $HOME/left $HOME/more 2>/dev/null; echo x >$HOME/more"]
            )
            assert seen.output.view() == "a.txt\n"
            clean.close()


def _tree(here: Room) -> Digest:
    return snapshot_folder(here.store, here.folder).tree


@on_namespaced
def test_in_place_works_on_the_folder_and_hides_the_store(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, "bubblewrap" if rung == "overlay" else rung, in_place=True) as here:
        assert here.sh("echo more >>a.txt; ls -A .plait").output.view() == ""
        assert (here.folder / "a.txt").read_text() == "hello\nmore\n"
        assert os.listdir(here.folder / ".plait")
        assert cast("dict[str, Any]", here.box.placement.detail)["in_place"] is True


def test_landlock_refuses_what_it_cannot_hide(tmp_path: Path) -> None:
    with (
        pytest.raises(NotSupported, match="PLAIT_STORE"),
        room(tmp_path, "landlock", in_place=True),
    ):
        pass


def test_in_place_needs_a_folder(tmp_path: Path) -> None:
    with room(tmp_path, "bubblewrap") as here, pytest.raises(SandboxFailed, match="no folder"):
        LocalBackend().create(Wanted(here.store, "x", _tree(here), in_place=True))


# ── heavy folders ────────────────────────────────────────────────────────────────────────────


@on_namespaced
def test_heavy_folders_are_there_read_only_in_both_places(tmp_path: Path, rung: str) -> None:
    tool = tmp_path / "repo/.venv/bin/tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho tool from $0\n")
    tool.chmod(0o755)
    with room(tmp_path, rung, heavy=(".venv",)) as here:
        assert here.said("tool") == "tool from /workspace/.venv/bin/tool"
        assert here.said(f"{tool}") == f"tool from {tool}"
        assert here.sh("echo x >.venv/bin/tool").exit_code != 0
        assert here.sh(f"echo x >{tool}").exit_code != 0
        assert here.box.snapshot().changed == ()
        assert "/workspace/.venv" in cast("dict[str, Any]", here.box.placement.detail)["mounts"]
    assert "tool from" in tool.read_text()


@on_namespaced
def test_a_link_in_the_place_of_a_heavy_folder_is_not_followed(tmp_path: Path, rung: str) -> None:
    """Neither one that a command left in the workspace or the scratch folder, nor one that the
    repository brought along.
    """
    (tmp_path / "repo/.venv").mkdir(parents=True)
    (tmp_path / "repo/.venv/mark").write_text("venv")
    canary = tmp_path / "outside"
    canary.mkdir()
    (canary / "secret").write_text("canary")
    (tmp_path / "repo/node_modules").symlink_to(canary)
    with room(tmp_path, rung, heavy=(".venv", "node_modules")) as here:
        assert "canary" not in here.said("cat node_modules/secret .venv/mark")
        assert cast("dict[str, Any]", here.box.placement.detail)["left out"] == ["node_modules"]
        for target in ("/etc", "/oldroot/etc", "../../oldroot" + str(canary), str(canary), "/proc"):
            first = str(tmp_path).split("/")[2] if str(tmp_path).startswith("/tmp/") else ""
            assert here.sh(f"rm -rf node_modules; ln -sfn {target} node_modules").exit_code == 0
            if first:
                here.sh(
                    f"rm -rf /tmp/{first} 2>/dev/null; mv /tmp/{first} /tmp/moved 2>/dev/null; ln"
                    f" -sfn {target} /tmp/{first}"
                )
            assert "canary" not in here.said(
                "ls node_modules/; cat node_modules/secret node_modules/outside/secret"
            )
        assert [path.name for path in canary.iterdir()] == ["secret"]


def test_an_overlay_in_a_user_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As everybody but root gets it, through unshare(1)."""
    needs("overlay", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with room(tmp_path, "overlay", limits=Limits(processes=30, time_s=10)) as here:
        here.box.begin()
        assert here.said("echo more >>a.txt; mkdir new; rm -r new; cat a.txt") == "hello\nmore"
        assert here.box.snapshot().changed == ("a.txt",)
        assert (
            here.sh(
                "grep -q 'CapEff:.0000000000000000' /proc/self/status && unshare -U true"
            ).exit_code
            == 1
        )
        assert here.sh("sleep 600", limits=Limits(time_s=0.3)).killed == "time"


def test_a_mount_that_fails_is_told(tmp_path: Path) -> None:
    with room(tmp_path, "overlay") as here:
        shutil.rmtree(here.folder / ".plait/work/copies/one/work")
        with pytest.raises(SandboxGone, match="The next tool call makes another"):
            here.sh("true")


# ── never on less than was asked for ─────────────────────────────────────────────────────────


def test_the_best_rung_is_taken(tmp_path: Path) -> None:
    needs("overlay", tmp_path)
    with room(tmp_path, "overlay") as here:
        box = LocalBackend().create(Wanted(here.store, "best", _tree(here)))
        assert box.placement.rung == "overlay"
        box.close()


def test_without_bubblewrap_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with room(tmp_path, "host") as here:
        monkeypatch.setenv("PATH", str(tmp_path))
        for isolation in ("", "overlay", "bubblewrap"):
            with pytest.raises(IsolationMissing, match="apt install bubblewrap"):
                LocalBackend().create(Wanted(here.store, "none", _tree(here), isolation=isolation))
        offered = {
            each.name: each.offered
            for each in LocalBackend().probe().capabilities
            if each.name in RUNGS
        }
        assert (offered["overlay"], offered["bubblewrap"], offered["host"]) == (False, False, True)


def test_an_unknown_rung_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsolationMissing, match="overlay, bubblewrap, landlock, host"):
        choose("chroot", str(tmp_path))


def test_why_a_better_rung_was_passed_over(tmp_path: Path) -> None:
    odd = tmp_path / "with,comma"
    odd.mkdir()
    needs("bubblewrap", odd)
    rung, passed = choose("", str(odd))
    assert rung == "bubblewrap" and "characters" in passed["overlay"]


def test_a_bubblewrap_that_fails_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(IsolationMissing, match="No permissions to create new namespace"):
        choose("", str(tmp_path))


def test_backends_are_found_by_name() -> None:
    assert backends()[:4] == ["local", "e2b", "opensandbox", "cube"]
    assert backend("local") is backend("local")
    with pytest.raises(UnknownBackend, match="local, e2b"):
        backend("nowhere")


def test_looking_at_backends_imports_none() -> None:
    script = (
        "import sys; from plait.sandbox import backends; backends(); sys.exit('plait.sandbox.local'"
        " in sys.modules)"
    )
    python(script)


@on_isolated
def test_a_placement_without_a_copy_is_gone(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung) as here, pytest.raises(SandboxGone):
        LocalBackend().attach(Placement("local", "never", rung=rung), wanted(here, "never", rung))
