"""The traps that others fell into with tools and sandboxes, each through a session and the built-in
tools as a user has them.

What they say of the ladder itself is tried on every rung in test_escapes.py, test_limits.py and
test_conformance.py; MCP's in tests/mcp.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from plait import Agent, ScriptedModel, Session, ToolCall
from plait.errors import IsolationMissing
from plait.event import kinds as k
from plait.sandbox import Limits
from plait.session.ports import store_at
from plait.tools import edit_file, read_file, shell, write_file
from tests.support import filled_folder


@pytest.fixture
def placed(tmp_path: Path) -> Session:
    repo = filled_folder(tmp_path / "repo", {"a.txt": "one\ntwo\n"})
    return Session("x", store=tmp_path / "store").to("local", repo)


def test_the_shell_does_not_tell_the_environment(
    placed: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-of-the-environment-4711")
    told = placed.use(shell, command="env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; set")
    assert "canary" not in str(told.result) and "OPENAI" not in str(told.result)


def test_a_link_that_is_swapped_leads_nowhere(placed: Session, tmp_path: Path) -> None:
    """While a command swaps a folder for a link to the outside, nothing of the outside is read or
    written.
    """
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.txt").write_text("outside\n")
    swapped = placed.use(
        shell, command=f"mkdir d; echo inside > d/a.txt; ln -s {tmp_path}/outside link"
    )
    for path in ("link/a.txt", "link/../../outside/a.txt", "d/../link/a.txt"):
        read = Agent(
            "x", model=ScriptedModel([ToolCall("read_file", path=path), "done"]), tools=[read_file]
        )(swapped.fork())
        assert read.effects[-1].failure is not None and "outside\n" not in str(
            read.effects[-1].failure.message
        )
    written = Agent(
        "x",
        model=ScriptedModel([ToolCall("write_file", path="link/b", content="x"), "done"]),
        tools=[write_file],
    )(swapped)
    assert written.effects[-1].failure is not None and not (tmp_path / "outside" / "b").exists()


def test_much_output_is_kept_whole_and_shown_in_part(placed: Session) -> None:
    told = placed.use(shell, command="yes 0123456789 | head -c 3000000; echo THE END")
    body = told.events[-1].body
    assert (
        isinstance(body, k.ToolReturned)
        and len(str(told.result)) < 20_000
        and "THE END" in str(told.result)
    )
    (whole,) = body.kept
    store = store_at(told.store)
    assert sum(len(store.get_blob(blob)) for blob in (whole.blob, *whole.rest)) == 3_000_000 + len(
        "THE END\n"
    )


def test_a_pipe_does_not_hang_a_reader(placed: Session) -> None:
    piped = placed.use(shell, command="mkfifo pipe; ln -s pipe to-pipe; echo made")
    for path in ("pipe", "to-pipe"):
        found = Agent(
            "x", model=ScriptedModel([ToolCall("read_file", path=path), "done"]), tools=[read_file]
        )(piped.fork())
        assert found.effects[-1].failure is not None


def test_the_shell_ends_by_itself(placed: Session) -> None:
    told = placed.use(shell, command="trap '' TERM; setsid sleep 600 & sleep 600", timeout_s=0.5)
    assert "time" in str(told.result)


def test_without_isolation_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # where no bubblewrap is
    fresh = Session("x", store=tmp_path / "store")
    with pytest.raises(IsolationMissing, match="bubblewrap"):
        fresh.to("local")
    assert fresh.reload() == fresh


def test_root_in_the_sandbox_is_nobody(placed: Session) -> None:
    told = str(
        placed.use(
            shell,
            command=(
                "grep -E 'Cap(Eff|Bnd|Prm)|NoNewPrivs' /proc/self/status; unshare -Ur true 2>&1;"
                " id -u"
            ),
        ).result
    )
    assert (
        told.count("0000000000000000") == 3
        and "NoNewPrivs:\t1" in told
        and "ermitted" in told
        and "\n0\n" not in told
    )


def test_a_fork_bomb_ends_though_we_are_root(tmp_path: Path) -> None:
    small = Session("x", store=tmp_path / "store").to(
        "local", limits=Limits(time_s=20, processes=40)
    )
    told = small.use(shell, command="bomb() { bomb | bomb & }; bomb; sleep 30")
    assert told.events[-1].body.exit_code != 0  # type: ignore[union-attr]
    alive = [pid for pid in os.listdir("/proc") if pid.isdecimal() and "bomb" in _command(pid)]
    assert not alive


def _command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def test_rewinding_brings_back_what_the_shell_changed(placed: Session) -> None:
    changed = placed.use(shell, command="rm a.txt; echo b > b.txt")
    assert (
        changed.rewind(placed.seq).use(shell, command="cat a.txt; ls").result == "one\ntwo\na.txt\n"
    )


def test_a_fork_has_a_sandbox_of_its_own(placed: Session) -> None:
    first = placed.use(shell, command="echo 1 > n; echo parent > /tmp/n")
    fork = first.fork("f").use(shell, command="cat n; cat /tmp/n; echo 2 > n")
    assert (
        "parent" not in str(fork.result)
        and first.reload().use(shell, command="cat n").result == "1\n"
    )
    mine, its = (session.effects[-1].placement for session in (first, fork))
    assert mine is not None and its is not None and mine.sandbox != its.sandbox


def test_the_evidence_of_an_edit_is_the_edit(placed: Session) -> None:
    written = placed.use(write_file, path="a.txt", content="one\n2\n").use(
        edit_file, path="a.txt", old="one", new="1"
    )
    first, second = (effect.delta for effect in written.effects)
    assert (
        "-two" in str(first)
        and "+2" in str(first)
        and "-one" in str(second)
        and "+1" in str(second)
    )


def test_an_agent_without_tools_has_none(placed: Session) -> None:
    tried = Agent("x", model=ScriptedModel([ToolCall("shell", command="id"), "done"]), tools=[])(
        placed
    )
    assert tried.effects[-1].failure is not None and tried.effects[-1].failure.kind == "UnknownTool"


def test_two_threads_on_one_session_do_not_share_a_call(placed: Session) -> None:
    """Branches of one session at the same time, each in its own thread: each sees its own files."""
    seen: dict[int, str] = {}

    def work(number: int) -> None:
        session = placed.fork(f"t{number}").use(shell, command=f"echo {number} > n")
        seen[number] = str(session.use(shell, command="cat n").result)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == {number: f"{number}\n" for number in range(4)}
