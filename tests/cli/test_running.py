"""Runs from the shell: started, watched, interrupted, killed, parked, taken up again, replayed."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from plait import Session
from plait.cli.consent import Terminal, mode_of
from plait.cli.progress import Progress
from plait.event import kinds as k
from plait.ids import Digest
from plait.session.ports import Act, Draft, store_at, writer_of
from plait.session.session import session_at
from plait.session.value import position_of
from plait.store import store_exists
from tests.cli.shell import COMMAND, Shell, harmless, on_a_terminal, process, program_folder, shell
from tests.support import ForkedProgram, kinds, python, run_forked, wait_until

__all__ = ["shell"]

PROGRAM = r'''
import time
from pathlib import Path

from plait import Agent, ScriptedModel, ToolCall, Workflow, tool
from plait.policy import Ask, Policy

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202eevil"
HERE = Path(__file__).parent


@tool(effect="at_most_once")
def send(text: str) -> str:
    """Send it."""
    with (HERE / "sent").open("a") as sent:
        sent.write(text + "\n")
    return "sent"


@tool(effect="pure")
def wait() -> str:
    """Wait until somebody lets it go on."""
    until = time.monotonic() + 60
    while not (HERE / "go").exists() and time.monotonic() < until:
        time.sleep(0.01)
    return "waited"


def agent(*script, tools=(send, wait)):
    return Agent("Do it.", model=ScriptedModel(list(script)), tools=list(tools))


class Flow(Workflow):
    def __init__(self):
        self.coder = agent(ToolCall("send", text="hello"), f"All {HOSTILE}done.\nBye.")

    def forward(self, session):
        return self.coder(session)


class Waits(Flow):
    def __init__(self):
        self.coder = agent(ToolCall("send", text="hello"), ToolCall("wait"), "Done.")


class Asks(Flow):
    policy = Policy(Ask("send"))

    def __init__(self):
        self.coder = agent(ToolCall("send", text=f"x{HOSTILE}"), "Done.")


class Fails(Workflow):
    def forward(self, session):
        if (HERE / "mended").exists():
            return session.say("mended", role="assistant")
        raise ValueError(f"bad {HOSTILE} thing")


class Needs(Workflow):
    def __init__(self, number):
        self.number = number

    def forward(self, session, more):
        return session.say(f"{self.number} and {more}", role="assistant")


def made():
    return Needs(7)


def not_one():
    return 7


ready = Needs(8)
'''


@pytest.fixture
def folder(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with program_folder(tmp_path, "flow", PROGRAM, monkeypatch) as folder:
        yield folder


def ran(code: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = process(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    harmless(done.stdout + done.stderr)
    return done


def sent(folder: Path) -> list[str]:
    return (folder / "sent").read_text().splitlines() if (folder / "sent").exists() else []


def latest(shell: Shell) -> Session:
    return Session.list(store=shell.address)[0]


# ── as a user does it ────────────────────────────────────────────────────────────────────────


def test_run_log_replay(shell: Shell, folder: Path) -> None:
    done = ran(
        0,
        "run",
        "flow.py:Flow",
        "-i",
        "Say hello.",
        "--title",
        "Hello",
        "--user",
        "ana",
        "--project",
        "p",
        "--tag",
        "a=b",
    )
    assert done.stdout == "All evildone.\nBye.\n"
    session = latest(shell)
    assert (session.title, session.user, session.project, session.tags) == (
        "Hello",
        "ana",
        "p",
        {"a": "b"},
    )
    assert session.messages[0].text == "Say hello."
    steps = done.stderr.splitlines()
    assert (
        re.match(r"❯    \w{8}@2    Say hello\.", steps[0])
        and "run started Flow" in steps[1]
        and re.match(r"●    \w{8}@\d+ +send .*sent", steps[2])
    )
    assert (
        f"{session.short}  Flow finished: 2 steps, 1 tool call" in done.stderr
        and "$0.0000" in done.stderr
    )
    assert (
        f"plait log {session.short}" in done.stderr and f"plait show {session.short}" in done.stderr
    )
    assert "run finished" in ran(0, "log", session.short).stdout
    again = ran(0, "resume", session.short)
    assert again.stdout == done.stdout and session.reload() == session
    assert "Flow had finished already, and nothing was run: 2 steps" in again.stderr
    replayed = ran(0, "replay", session.short).stdout
    assert (
        "nothing executed" in replayed
        and session.runs[0].id[:13] in replayed
        and f"same head {session.head[:12]}" in replayed
    )
    assert sent(folder) == ["hello"] and session.reload() == session
    assert ran(0, "resume", session.short).stdout == done.stdout  # it had come to its end
    assert sent(folder) == ["hello"] and session.reload() == session


def test_for_programs(shell: Shell, folder: Path) -> None:
    done = ran(0, "run", "flow.py:Flow", "-i", "x", "--json")
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["status"] == "finished" and found["session"]["id"] == latest(shell).id
    # exactly as it was said
    assert found["text"] == "All \x1b[2J\x1b]0;owned\x07\u202eevildone.\nBye."
    assert (found["used"]["steps"], found["used"]["tool_calls"]) == (2, 1) and found["used"][
        "input_tokens"
    ] > 0
    session = latest(shell)
    replayed = json.loads(ran(0, "replay", session.short, "--json").stdout)
    assert replayed == {
        "session": session.id,
        "run": session.runs[0].id,
        "workflow": "flow:Flow",
        "events": session.seq - 2,
        "place": session.seq,
        "head": session.head,
    }
    failed = json.loads(ran(1, "run", "flow.py:Fails", "-i", "x", "--json").stderr)["error"]
    assert failed["type"] == "ValueError" and failed["session"] == latest(shell).id
    assert failed["resume"] == f"plait resume {latest(shell).short}" and failed["exit_code"] == 1


def test_quiet(shell: Shell, folder: Path) -> None:
    done = ran(0, "run", "flow.py:Flow", "-i", "x", "--quiet")
    assert (done.stdout, done.stderr) == ("All evildone.\nBye.\n", "")


def test_input_from_a_pipe_and_a_module(shell: Shell, folder: Path) -> None:
    done = run_forked([*COMMAND, "run", "flow:Flow", "-q", "-i", "-"], input="from a pipe\n")
    assert done.returncode == 0 and latest(shell).messages[0].text == "from a pipe"
    ran(0, "replay", "@")  # found by the module it names


def test_going_on_in_a_session(shell: Shell, folder: Path) -> None:
    session = shell.open(shell.new("first"))
    assert (
        ran(
            0,
            "run",
            "flow.py:made",
            "--session",
            session.short,
            "-i",
            "second",
            "--arg",
            "more=[1]",
            "-q",
        ).stdout
        == "7 and [1]\n"
    )
    assert [message.text for message in session.reload().messages] == [
        "first",
        "second",
        "7 and [1]",
    ]
    shell.error(
        2, "run", "flow.py:made", "--session", session.short, "--title", "other", "--arg", "more=1"
    )


def test_what_is_said_is_of_this_run(shell: Shell, folder: Path) -> None:
    session = shell.open(shell.new("x")).say("an old answer", role="assistant")
    (folder / "mute.py").write_text(
        "from plait import Workflow\nclass Mute(Workflow):\n    def forward(self, session):\n      "
        "  return session\n"
    )
    assert ran(0, "run", "mute.py:Mute", "--session", session.short).stdout == ""


def test_a_store_elsewhere_is_named_in_what_to_type(shell: Shell, folder: Path) -> None:
    done = ran(0, "run", "flow.py:Flow", "-i", "x", "--store", "else where")
    assert "--store 'else where'" in done.stderr


def test_a_budget_stands_in_the_session(shell: Shell, folder: Path) -> None:
    ran(
        0,
        "run",
        "flow.py:made",
        "-i",
        "x",
        "--arg",
        "more=1",
        "--budget",
        "tokens=10000,cost_usd=1.5,wall_s=60,steps=4,tool_calls=5",
    )
    assert latest(shell).budget.limits == k.Budget(10000, 1.5, 60, 4, 5)
    for wrong in ("nonsense=1", "tokens", "tokens=many", "tokens=true", "tokens=-1"):
        shell.error(2, "run", "flow.py:made", "-i", "x", "--arg", "more=1", "--budget", wrong)


# ── programs that cannot be run ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("flow.py", "write FILE.py:NAME or module:NAME"),
        ("flow.py:Nothing", "it has: Flow, Waits, Asks, Fails, Needs, ready"),
        ("flow.py:Needs", "write a function that makes it"),
        ("flow.py:not_one", "is a int, not a workflow"),
        ("flow.py:made", "missing a required argument: 'more'"),
        ("nowhere.py:Flow", "there is no file nowhere.py"),
        ("nowhere:Flow", "there is no module 'nowhere'"),
        ("broken.py:Flow", "broken.py, line 2: "),
        ("missing.py:Flow", "No module named 'nobody_has_this'"),
        ("raises.py:Flow", "ZeroDivisionError: division by zero (raises.py, line 1)"),
        ("exits.py:Flow", "if __name__ == '__main__'"),
        ("n\x1b[31m.py:\u202eX", "there is no file"),
    ],
)
def test_programs_that_cannot_be_run(shell: Shell, folder: Path, target: str, said: str) -> None:
    (folder / "broken.py").write_text("x = 1\ndef f(:\n")
    (folder / "missing.py").write_text("import nobody_has_this\n")
    (folder / "raises.py").write_text("1 / 0\n")
    (folder / "exits.py").write_text("raise SystemExit(0)\n")
    assert said in harmless(shell.error(2, "run", target, "-i", "x"))
    assert not shell.folder.exists()  # nothing was written


def test_a_traceback_is_there_for_whoever_asks(shell: Shell, folder: Path) -> None:
    done = process("run", "flow.py:Fails", "-i", "x", env={**os.environ, "PLAIT_DEBUG": "1"})
    assert done.returncode == 1 and "Traceback" in done.stderr and "\x1b" not in done.stderr


def test_nothing_is_begun_without_something_to_do(shell: Shell, folder: Path) -> None:
    assert "-i TEXT" in shell.error(2, "run", "flow.py:Flow")
    assert "nothing is said" in shell.error(2, "run", "flow.py:Flow", "-i", "")
    assert "cannot be given here" in shell.error(
        2, "run", "flow.py:made", "--arg", "more=1", "--arg", "on_event=2"
    )
    assert "no model is called" in shell.error(
        1, "run", "flow.py:Flow", "-i", "x", "--model", "nobody:x"
    )
    assert not shell.folder.exists()


# ── failing, and going on ────────────────────────────────────────────────────────────────────


def test_a_failed_run_can_be_resumed_when_it_is_mended(shell: Shell, folder: Path) -> None:
    done = ran(1, "run", "flow.py:Fails", "-i", "x")
    session = latest(shell)
    assert (
        "ValueError: bad evil thing (flow.py, line" in done.stderr
        and f"plait resume {session.short}" in done.stderr
    )
    assert f"on record: session {session.short}, {session.seq} events" in done.stderr
    ran(1, "resume", session.short)
    (folder / "mended").touch()
    assert ran(0, "resume").stdout == "mended\n"


def test_what_fails_among_many_keeps_no_other_from_going_on(shell: Shell, folder: Path) -> None:
    sessions = list[Session]()
    for _ in range(3):
        with running(shell, folder, "run", "flow.py:Waits", "-i", "x") as (started, session):
            assert shell.json("ls", "--status", "running")["sessions"][0]["id"] == session.id
            started.kill()
        sessions.append(session)
    gone = Path("flow.py").read_text()
    Path("flow.py").write_text(gone.replace("class Waits", "class Gone"))
    found = json.loads(ran(1, "resume", "--interrupted", "--json").stdout)["resumed"]
    assert [each["status"] for each in found] == ["failed"] * 3 and "Waits" in found[0]["why"]
    Path("flow.py").write_text(gone)
    (folder / "go").touch()
    held = store_at(shell.address).lock(sessions[1].reload().runs[0].id, "")
    done = json.loads(ran(0, "resume", "--interrupted", "--due", "--json").stdout)["resumed"]
    held.release()
    assert {each["session"]: each["status"] for each in done} == {
        sessions[0].id: "finished",
        sessions[2].id: "finished",
    }
    assert [run["status"] for run in shell.json("runs")["runs"]] == [
        "finished",
        "interrupted",
        "finished",
    ]
    assert len(shell("runs", "--status", "finished", "--limit", "1").splitlines()) == 1


def test_calls_are_found_and_a_run_is_judged(shell: Shell, folder: Path) -> None:
    (folder / "go").touch()
    ran(0, "run", "flow.py:Waits", "-i", "x")
    session = latest(shell)
    (line,) = shell("find", "--tool", "send").splitlines()
    assert line.split()[2:] == [f"{session.short}@{_seq_of(session, 'send')}", *line.split()[3:]]
    assert line.endswith("send  returned")
    (call,) = shell.json("find", "--tool", "send", "--since", "1h")["calls"]
    assert (call["session"], call["run"]) == (session.id, session.runs[-1].id)
    assert shell.jsonl("find", "--tool", "send", "--actor", call["actor"]) == [call]
    (newest,) = shell.jsonl("find", "--outcome", "returned", "--limit", "1")
    assert newest["tool"] == "wait"
    assert shell.jsonl("find", "--tool", "send", "--session", session.short) == [call]
    assert shell("find", "--tool", "send", "--outcome", "failed") == ""
    assert shell("find", "--path", "src/") == ""
    assert "no path in" in shell.error(2, "find", "--path", "/etc")
    shell.error(2, "find", "text", "--tool", "send")
    assert "--good or --bad" in shell.error(2, "feedback", session.short, "well")
    assert "one of them" in shell.error(2, "feedback", session.short, "--good", "--bad")
    assert "feedback failed: wrong host" in shell("feedback", session.short, "--bad", "wrong host")
    assert "bad: wrong host, by human:ana" in shell("show", session.short)
    assert shell.json("show", session.short)["validation"][-1]["detail"] == "wrong host"
    assert "no run of it has ended" in shell.error(1, "feedback", shell.new("x"), "--good")


def _seq_of(session: Session, tool: str) -> int:
    return next(each.request.seq for each in session.effects if each.tool == tool)


def test_nothing_to_resume(shell: Shell, folder: Path) -> None:
    session = shell.new("x")
    assert "no run was ever started" in shell.error(1, "resume", session)
    assert "no run was ever started" in shell.error(1, "replay", session)
    shell.error(2, "resume", session, "--due")
    assert shell("resume", "--due") == "nothing is due\n" and shell.json("resume", "--due") == {
        "resumed": []
    }


def test_a_program_that_is_gone_can_be_named(shell: Shell, folder: Path) -> None:
    ran(0, "run", "flow.py:Flow", "-i", "x", "-q")
    (folder / "flow.py").rename(folder / "moved.py")
    assert "--workflow FILE.py:Flow" in ran(1, "replay", "@").stderr
    (folder / "moved.py").rename(folder / "flow.py")  # the class names its module, too
    assert "nothing executed" in ran(0, "replay", "@", "--workflow", "flow.py:Flow").stdout


@contextmanager
def running(
    shell: Shell, folder: Path, *arguments: str, waits: str = "wait"
) -> Generator[tuple[subprocess.Popen[str], Session]]:
    """A run in a new session that has got as far as this tool, and stays there."""
    there = len(Session.list(store=shell.address)) if store_exists(shell.address) else 0
    with ForkedProgram(
        [*COMMAND, *arguments], stdin=subprocess.DEVNULL, stdout=-1, stderr=-1, text=True
    ) as started:
        try:

            def at_the_tool() -> Session | None:
                if not store_exists(shell.address) or not (
                    len(found := Session.list(store=shell.address)) > there
                ):
                    return None
                session = found[0]
                bodies = [event.body for event in session.events]
                return (
                    session
                    if any(
                        isinstance(body, k.ToolRequested) and body.tool == waits for body in bodies
                    )
                    else None
                )

            yield started, wait_until(at_the_tool)
        finally:
            started.kill()


def test_interrupted_and_resumed(shell: Shell, folder: Path) -> None:
    with running(shell, folder, "run", "flow.py:Waits", "-i", "x") as (started, session):
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=30)
    assert (started.returncode, out) == (130, "")
    assert err.splitlines()[-1] == f"interrupted; go on with: plait resume {session.short}"
    assert session.reload().runs[0].status == "interrupted"
    assert shell("resume", "--due") == "nothing is due\n"
    assert f"plait resume {session.short}" in shell("show", session.short)
    assert shell.json("ls", "--interrupted")["sessions"][0]["id"] == session.id
    assert [run["status"] for run in shell.jsonl("runs", session.short)] == ["interrupted"]
    shell.error(2, "resume", session.short, "--interrupted")
    shell.error(2, "ls", "--interrupted", "--status", "open")
    (folder / "go").touch()
    assert ran(0, "resume", "--interrupted").stdout == f"{session.short}  finished\n"
    assert shell("resume", "--due", "--interrupted") == "nothing is due or interrupted\n"
    assert sent(folder) == ["hello"]
    assert session.reload().runs[0].status == "finished"
    ran(0, "replay", session.short)


def test_interrupted_for_programs(shell: Shell, folder: Path) -> None:
    with running(shell, folder, "run", "flow.py:Waits", "-i", "x", "--json") as (started, session):
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=30)
    found = json.loads(err)["error"]
    assert (started.returncode, out, found["exit_code"], found["session"]) == (
        130,
        "",
        130,
        session.id,
    )
    assert found["type"] == "Interrupted"
    assert found["resume"] == f"plait resume {session.short}"


def test_killed_and_resumed(shell: Shell, folder: Path) -> None:
    with running(shell, folder, "run", "flow.py:Waits", "-i", "x") as (started, session):
        held = ran(75, "resume", session.short).stderr  # somebody has it in hand
        assert str(started.pid) in held
        assert (
            "plait resume"
            in ran(1, "run", "flow.py:Flow", "--session", session.short, "-i", "more").stderr
        )
        started.send_signal(signal.SIGKILL)
        started.communicate(timeout=30)
    (folder / "go").touch()
    assert json.loads(ran(0, "resume", "--json").stdout)["text"] == "Done."
    assert sent(folder) == ["hello"] and [
        message.text for message in session.reload().messages if message.role == "user"
    ] == ["x"]


def test_killed_within_an_effect(shell: Shell, folder: Path) -> None:
    (folder / "stuck.py").write_text(
        "from flow import *\n@tool(effect='at_most_once')\ndef hang() -> str:\n    '''Hang.'''\n   "
        " (HERE / 'sent').open('a').write('hung\\n')\n    time.sleep(60)\n    return ''\nclass"
        " Hangs(Flow):\n    def __init__(self):\n        self.coder = agent(ToolCall('hang'),"
        " 'Done.', tools=[hang])\n"
    )
    with running(shell, folder, "run", "stuck.py:Hangs", "-i", "x", waits="hang") as (
        started,
        session,
    ):
        wait_until(lambda: sent(folder))
        started.send_signal(signal.SIGKILL)
        started.communicate(timeout=30)
    # cron is to notice that a person is needed
    assert "waiting" in ran(4, "resume", "--interrupted", "-q").stdout
    parked = ran(4, "resume", session.short)
    assert (
        "plait resolve" in parked.stderr
        and "happened|did-not-happen|compensated" in parked.stderr
        and parked.stdout == ""
    )
    [ask] = session.reload().inbox.waiting
    ran(0, "resolve", ask.event[:12], "happened", "--value", "hung up", "--note", "I saw it")
    done = ran(0, "resume", "--due", "-q")
    assert re.fullmatch(rf"{session.short}  finished\n", done.stdout)
    assert sent(folder) == ["hung"]


# ── consent ──────────────────────────────────────────────────────────────────────────────────


def test_parked_answered_and_due(shell: Shell, folder: Path) -> None:
    done = ran(4, "run", "flow.py:Asks", "-i", "x")
    session = latest(shell)
    [ask] = session.inbox.waiting
    assert done.stdout == "" and sent(folder) == []
    assert r'{"text": "x\u001b[2J' in done.stderr and "at_most_once" in done.stderr
    assert (
        f"plait approve {ask.event[:8]}" in done.stderr
        and f"plait resume {session.short}" in done.stderr
    )
    again = json.loads(ran(4, "resume", session.short, "--json").stdout)
    assert (
        again["status"] == "waiting"
        and [each["id"] for each in again["waiting"]] == [ask.event]
        and again["session"]["id"] == session.id
    )
    assert ran(0, "resume", "--due").stdout == "nothing is due\n"  # nobody has answered
    ran(0, "approve", ask.event[:8])
    assert (
        json.loads(ran(0, "resume", "--due", "--json").stdout)["resumed"][0]["status"] == "finished"
    )
    assert len(sent(folder)) == 1


def test_all_is_typed_and_recorded(shell: Shell, folder: Path) -> None:
    ran(0, "run", "flow.py:Asks", "-i", "x", "--approve", "all", "--as", "human:ben")
    grant = next(
        event for event in latest(shell).events if isinstance(event.body, k.ApprovalGranted)
    )
    assert grant.actor == "human:ben" and grant.header.origin == "human"
    assert (
        isinstance(grant.body, k.ApprovalGranted)
        and "human:ben started this with --approve all" in grant.body.note
    )
    assert len(sent(folder)) == 1


def test_asking_needs_a_terminal(shell: Shell, folder: Path) -> None:
    done = run_forked([*COMMAND, "run", "flow.py:Asks", "-i", "x", "--approve", "ask"], input="y\n")
    assert done.returncode == 2 and "needs a terminal" in done.stderr and sent(folder) == []


PROMPT = b"or why not: "


def at_a_terminal(
    *arguments: str, keys: list[bytes], width: int = 100, **environ: str
) -> tuple[int, str]:
    """`plait` on a terminal, with somebody who types these, one at each prompt."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    env = {
        **os.environ,
        "TERM": "xterm-256color",
        "NO_COLOR": "1",
        "PYTHONIOENCODING": "utf-8",
        **environ,
    }
    got, left = b"", list(keys)
    with ForkedProgram(
        [*COMMAND, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
        start_new_session=True,
    ) as started:
        os.close(theirs)
        try:
            while chunk := os.read(ours, 65536):
                got += chunk
                if left and got.count(PROMPT) > len(keys) - len(left):
                    os.write(ours, left.pop(0))
        except OSError:  # Linux says so when the other end is closed
            pass
        started.wait(30)
    os.close(ours)
    return started.returncode, got.decode()


@pytest.mark.parametrize(
    ("keys", "code", "done", "recorded"),
    [
        ([b"y\n"], 0, 1, {"ApprovalGranted"}),
        ([b"\n", b"yes\n"], 0, 1, {"ApprovalGranted"}),
        ([b"n\n"], 0, 0, {"ApprovalDenied", "ToolFailed"}),
        ([b"not today\n"], 0, 0, {"ApprovalDenied", "ToolFailed"}),
        ([b"d\n", b"l\n"], 4, 0, {"ApprovalRequested"}),
        ([b"\x04"], 4, 0, {"ApprovalRequested"}),
    ],
    ids=["yes", "nothing is no answer", "no", "why not", "later", "end of input"],
)
def test_asking_at_the_terminal(
    shell: Shell, folder: Path, keys: list[bytes], code: int, done: int, recorded: set[str]
) -> None:
    ended, text = at_a_terminal("run", "flow.py:Asks", "-i", "x", keys=keys)
    assert ended == code, text
    assert (
        r'arguments   {"text": "x\u001b[2J\u001b]0;owned\u0007\u202eevil"}' in text
        and "\x1b]0;" not in text
        and "\u202e" not in text
    )
    assert "agent:asks/coder" in text and "coder wants to run send " in text
    with_details = keys[0].startswith(b"d")
    assert [text.count(word) for word in ("at_most_once", "version", "binding")] == (
        [with_details] * 3
    ), "a yes or no needs no digests"
    # in the first line of the ask and in its arguments
    shown = text.count(r"\u202eevil")
    assert shown == 2 * (1 + with_details) or code == 0, "once, if it is put off"
    assert len(sent(folder)) == done and recorded <= set(kinds(latest(shell).reload()))
    if b"today" in keys[0]:
        denied = next(
            event.body for event in latest(shell).events if isinstance(event.body, k.ApprovalDenied)
        )
        assert denied.reason == "not today"


GUARDED = """
from plait import Agent, Correct, Reject, ScriptedModel, Workflow

def judge(session, text):
    return Reject("too long") if len(text) > 12 else Correct(text.replace("Ann", "[name]"))

class Guarded(Workflow):
    def __init__(self):
        self.first = Agent("x", model=ScriptedModel(["Too many words.", "Ask Ann."]), after=[judge])
        self.last = Agent("y", model=ScriptedModel(["Done."]))

    def forward(self, session):
        return self.last(self.first(session))
"""


def test_text_that_guards_refuse_is_not_on_the_terminal(folder: Path) -> None:
    (folder / "guarded.py").write_text(GUARDED)
    code, text = at_a_terminal("run", "guarded.py:Guarded", "-i", "x", keys=[])
    assert code == 0 and "Too many" not in text and "Ask Ann" not in text
    assert "Ask [name].\r\n" in text and text.count("[name]") == text.count("Done.") == 1, text


def test_editing_at_the_terminal(shell: Shell, folder: Path) -> None:
    (folder / "edit.sh").write_text(
        '#!/bin/sh\ncp "$1" seen.json\necho \'{"text": "better"}\' > "$1"\ntouch -d "2001-01-01"'
        ' "$1"\n'
    )
    (folder / "edit.sh").chmod(0o755)
    code, text = at_a_terminal(
        "run", "flow.py:Asks", "-i", "x", keys=[b"e\n", b"y\n"], EDITOR=str(folder / "edit.sh")
    )
    assert code == 0 and '{"text": "better"}' in text and sent(folder) == ["better"]
    assert json.loads((folder / "seen.json").read_text()) == {
        "text": "x\x1b[2J\x1b]0;owned\x07\u202eevil"
    }
    assert "\x1b" not in (folder / "seen.json").read_text()
    grant = next(
        event.body for event in latest(shell).events if isinstance(event.body, k.ApprovalGranted)
    )
    assert grant.edited == {"text": "better"}


def test_an_edit_that_is_none_grants_nothing(shell: Shell, folder: Path) -> None:
    (folder / "edit.sh").write_text('#!/bin/sh\necho "[1]" > "$1"\ntouch -d "2001-01-01" "$1"\n')
    (folder / "edit.sh").chmod(0o755)
    code, text = at_a_terminal(
        "run", "flow.py:Asks", "-i", "x", keys=[b"e\n", b"n\n"], EDITOR=str(folder / "edit.sh")
    )
    assert code == 0 and "not a JSON object" in text and sent(folder) == []


def test_without_a_terminal_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mode_of(None) == "park" and mode_of("all") == "all"


def test_questions_at_the_terminal(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    session = shell.open(shell.new("x"))

    def asked(said: list[str], *choices: str) -> Any:
        return Terminal(
            Progress(quiet=True), session, lambda prompt: said.pop(0) if said else None
        ).answer("Which\x1b[2J?", choices)

    assert asked(["", "blue"]) == "blue" and asked(['{"a": 1}']) == {"a": 1}
    assert (
        asked(["green", "3", "0", "2"], "red", "blue") == "blue"
        and asked(["red"], "red", "blue") == "red"
    )
    with pytest.raises(BaseException, match="put off") as parked:
        asked([])
    assert type(parked.value).__name__ == "Parked"
    assert "Which\\u001b[2J?" in harmless(capsys.readouterr().err)


# ── progress ─────────────────────────────────────────────────────────────────────────────────


def test_the_line_on_a_terminal_is_harmless_and_goes(shell: Shell, folder: Path) -> None:
    for width in (100, 40):
        text = on_a_terminal("run", "flow.py:Flow", "-i", "x", width=width, NO_COLOR="1")
        for part in re.split(r"\x1b\[[?0-9;]*[A-Za-z]|\r", text):  # what rich moves the cursor with
            harmless(part)
            assert "owned" not in part
        assert "All evildone.\nBye.\n" in text and " Flow finished: 2 steps" in text


HOSTILE = "t\x1b[2J\x1b]0;owned\x07\u202eevil\nline"


def test_the_line_tells_who_does_what(shell: Shell) -> None:
    session = shell.open(shell.new("x"))
    progress = Progress(quiet=True)

    def hear(body: Any, actor: str = "agent:team/coder", call: str = "c1") -> None:
        nonlocal session
        session = session_at(
            writer_of(None).append(
                position_of(session), [Draft(body, Act(actor, "model", call=call))]
            )
        )
        progress(session.events[-1])

    hear(k.ModelAsked("openai:x", Digest("0" * 64)))
    assert "team/coder · asks openai:x" in progress.line(100)
    hear(k.ModelReplied((), k.Usage(1200, 34), "calls", price=k.Price(2_500_000, "list")))
    hear(k.ToolRequested(HOSTILE, {}, "pure", path=f"team/{HOSTILE}"))
    line = harmless(progress.line(100))
    assert (
        line.startswith("1 step · 1,200 in 34 out · $0.0025 · ")
        and "tevil" in line
        and "\n" not in line
    )
    assert len(harmless(progress.line(39))) <= 39
    hear(k.ToolReturned(()))
    assert "tevil" not in progress.line(100).rpartition(" · ")[2]
    hear(k.ModelReplied((), k.Usage(1, 1), "end"))
    assert "$0.0025+?" in progress.line(100)


# ── the program and the record ───────────────────────────────────────────────────────────────


def test_a_replay_that_diverges_shows_both_sides(shell: Shell, folder: Path) -> None:
    ran(0, "run", "flow.py:Flow", "-i", "x", "-q")
    session = latest(shell)
    (folder / "flow.py").write_text(
        PROGRAM.replace(
            "class Waits",
            "class Flow(Flow):\n    def forward(self, session):\n        return"
            " self.coder(session.fact('k', HOSTILE))\n\n\nclass Waits",
            1,
        )
    )
    done = ran(7, "replay", session.short)
    assert (
        "on record" in done.stderr
        and "wanted now" in done.stderr
        and "FactRecorded" in done.stderr
        and done.stdout == ""
    )
    assert re.search(rf"plait whatif {session.short}@\d+", done.stderr)
    found = json.loads(ran(7, "replay", session.short, "--json").stderr)["error"]
    assert (
        found["type"] == "ReplayDiverged"
        and found["found"]["kind"] == "FactRecorded"
        and found["expected"]["kind"] != "FactRecorded"
    )
    for width in (100, 40):
        text = on_a_terminal("replay", session.short, width=width, NO_COLOR="1")
        rows = [line for line in harmless(text).splitlines() if line.startswith("  ")]
        # without room one below the other
        assert len(rows) > 3 and (width < 100 or all(len(row) <= width for row in rows))
    assert session.reload() == session and sent(folder) == ["hello"]


# ── light ────────────────────────────────────────────────────────────────────────────────────


def test_what_acts_is_not_loaded_for_help() -> None:
    code = (
        "from plait.cli import main; main(['run', '--help'], standalone_mode=False)\nimport sys;"
        " print(*sys.modules, file=sys.stderr)"
    )
    loaded = set(python(code).stderr.split())
    assert not loaded & {
        "plait.runs.resume",
        "plait.workflow",
        "plait.agent",
        "plait.runtime.run",
        "asyncio",
        "rich",
    }
