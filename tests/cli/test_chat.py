"""`plait chat`: on a terminal, and in a pipe."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.dialogue import dialogue
from tests.cli.shell import COMMAND, Shell, harmless, program_folder, shell
from tests.providers.chat_server import ChatServer
from tests.providers.wire import Answer, Asked
from tests.support import ForkedProgram, import_in_server, run_forked, said_texts

__all__ = ["shell"]

PROGRAM = '''
from plait import Agent, ScriptedModel, ToolCall, Workflow, tool
from plait.policy import Ask, Policy

@tool
def refund(order: int) -> str:
    """Give the money back."""
    return f"order {order} refunded"

def speak(at):
    last = at.messages[-1].text
    if last == "fail":
        raise LookupError("no stock")
    return ToolCall("refund", order=17) if last == "refund" else f"ok {last}"

mute = Agent("Say nothing.")

class Desk(Workflow):
    policy = Policy(Ask("refund"))

    def __init__(self):
        self.clerk = Agent("Serve.", model=ScriptedModel(speak), tools=[refund])

    def forward(self, session):
        if session.messages[-1].text == "broken":
            raise LookupError("no stock")
        return self.clerk(session)
'''


@pytest.fixture
def folder(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("PLAIT_MODEL", raising=False)
    with program_folder(tmp_path, "shop", PROGRAM, monkeypatch) as folder:
        yield folder


class _Model(ChatServer):
    """Echoes, and holds the answer to "slow" after its first word until it is released."""

    def __init__(self) -> None:
        super().__init__(lambda body: f"you said {_last(body)}")
        import_in_server("openai")  # each chat would take longer for that than for all it says

    def next(self, asked: Asked) -> Answer:
        answer = super().next(asked)
        return answer.hold(after=1) if _last(asked.json) == "slow" else answer


def _last(body: dict[str, Any]) -> str:
    return str([each["content"] for each in body["messages"] if each["role"] == "user"][-1])


def piped(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_forked([*COMMAND, "chat", *arguments], input=text)


def test_a_chat_with_a_model(shell: Shell, folder: Path) -> None:
    pytest.importorskip("openai")
    with _Model() as model, dialogue("chat", "--model", f"{model.url}/v1#any") as chat:
        chat.expect("> ")
        chat.type("/back\n")
        chat.expect("nothing was said yet")
        for words in ("one", "two", "three"):
            chat.type(f"{words}\n")
            chat.expect(f"you said {words}\n> ")
        chat.type("/cost\n")
        chat.expect("total")
        chat.type("/why\n")
        chat.expect("asked by")
        chat.type("/nix\n")
        chat.expect("/help lists them")
        chat.type("/files\n")
        chat.expect("has no files")
        chat.type("/back 9\n")
        chat.expect("a number from 1 to 3")
        chat.type("/back 2\n")
        chat.expect("rewound")
        chat.type("/fork try\n")
        chat.expect("a branch; the session before: plait chat")
        chat.type(" /two\n")
        chat.expect("you said /two\n> ")
        chat.type("\x04")
        chat.expect("is kept; go on: plait chat")
        assert chat.end() == 0
    branch = shell.open("try")
    assert said_texts(branch) == ["one", "you said one", "/two", "you said /two"]
    with _Model() as model, dialogue("chat", "try", "--model", f"{model.url}/v1#any") as chat:
        chat.expect("> /two\nyou said /two\n> ")  # where it stands
        chat.type("on\n/quit\n")
        chat.expect("is kept")
        assert chat.end() == 0
    assert said_texts(shell.open("try"))[-2:] == ["on", "you said on"]


def test_ctrl_c_stops_an_answer_and_keeps_it(shell: Shell, folder: Path) -> None:
    pytest.importorskip("openai")
    with _Model() as model, dialogue("chat", "--model", f"{model.url}/v1#any") as chat:
        chat.type("slow\n")
        chat.expect("you ")
        chat.interrupt()
        chat.expect("your next line goes on with it")
        assert shell.open("@").runs[-1].status == "interrupted"
        model.release()
        chat.type("next\n")
        chat.expect("you said slow\n")
        chat.expect("you said next\n> ")
        model.play()
        chat.type("slow\n")
        chat.expect("you ")
        chat.interrupt()
        chat.expect("/cancel drops it")
        chat.type("/cancel\n")
        chat.expect("dropped")
        chat.type("last\n")
        chat.expect("you said last\n> ")
        chat.interrupt()
        chat.expect("is kept")
        assert chat.end() == 0
    assert said_texts(shell.open("@")) == [
        *("slow", "you said slow", "next", "you said next"),
        *("slow", "last", "you said last"),
    ]


def test_approvals_are_asked_in_the_terminal(shell: Shell, folder: Path) -> None:
    with dialogue("chat", "shop.py:Desk") as chat:
        chat.type("refund\n")
        chat.expect("Allow it?")
        chat.type("l\n")
        chat.expect("waits:")
        chat.expect("> ")
        chat.type("and?\n")
        chat.expect("Allow it?")
        chat.type("y\n")
        chat.expect("refund 17 order 17 refunded")
        chat.expect("ok and?\n> ")
        chat.type("broken\n")
        chat.expect("the run failed: LookupError: no stock")
        chat.type("again\n")
        chat.expect("ok again\n> ")
        chat.type("/quit\n")
        assert chat.end() == 0
    runs = [run.status for run in shell.open("@").runs]
    assert runs == ["finished", "finished", "failed", "finished"]


def test_a_chat_in_a_pipe(shell: Shell, folder: Path) -> None:
    done = piped("one\n\ntwo\n", "shop.py:Desk")
    assert (done.returncode, done.stdout) == (0, "ok one\nok two\n")
    harmless(done.stderr)
    session = shell.open("@")
    assert f"plait chat {session.short}" in done.stderr
    assert piped("three", session.short).stdout == "ok three\n", "the program is on record"
    fork = session.reload().fork("b")
    assert piped("four", "b").stdout == "ok four\n", "and that of the parent of a branch"
    assert said_texts(fork.reload())[-2:] == ["four", "ok four"]
    assert piped("refund", "b").returncode == 4
    assert piped("broken", session.short).returncode == 1


@pytest.mark.parametrize(
    "lines, code, sent, unsent",
    [
        ("one\nrefund\nthree\n\n four", 4, ["one", "ok one", "refund"], ["three", "four"]),
        ("one\nbroken\nthree\n", 1, ["one", "ok one", "broken"], ["three"]),
        ("one\nrefund\n", 4, ["one", "ok one", "refund"], []),
        ("one\n/cost\ntwo", 0, ["one", "ok one", "/cost", "ok /cost", "two", "ok two"], []),
    ],
)
def test_a_pipe_names_the_lines_that_were_not_sent(
    shell: Shell, folder: Path, lines: str, code: int, sent: list[str], unsent: list[str]
) -> None:
    done = piped(lines, "shop.py:Desk")
    session = shell.open("@")
    assert done.returncode == code and not session.inbox.queued
    assert list(filter(None, said_texts(session))) == sent
    assert not unsent or f"not sent: {len(unsent)} line" in done.stderr
    assert [line for line in ("three", "four") if f"  {line}\n" in done.stderr] == unsent


def test_a_pipe_names_a_line_that_an_open_run_is_before(shell: Shell, folder: Path) -> None:
    assert piped("refund", "shop.py:Desk").returncode == 4
    session = shell.open("@")
    done = piped("two\nthree\n", session.short)
    assert done.returncode == 4 and "not sent: 2 lines\n  two\n  three\n" in done.stderr
    assert said_texts(session.reload()) == ["refund", ""] and not session.inbox.queued
    shell("approve", session.inbox.waiting[0].event)
    done = piped("two\nthree\n", session.short)
    assert (done.returncode, "not sent" in done.stderr) == (0, False)
    assert said_texts(session.reload())[-4:] == ["two", "ok two", "three", "ok three"]


def test_a_pipe_that_stays_open_is_not_waited_for(shell: Shell, folder: Path) -> None:
    command = [*COMMAND, "chat", "shop.py:Desk"]
    with ForkedProgram(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None and program.stdout is not None
        program.stdin.write("one\n")
        program.stdin.flush()
        assert program.stdout.readline() == "ok one\n"
        program.stdin.write("refund\nthree\n")
        program.stdin.flush()
        assert program.wait(60) == 4


@pytest.mark.parametrize("encoding", ["utf-8:surrogateescape", "utf-8:strict"])
def test_a_line_that_is_no_text_writes_nothing(
    shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    for form in ((), ("--jsonl",)):
        command = [*COMMAND, "chat", "shop.py:Desk", *form]
        done = subprocess.run(command, input=b"h\xff\n", capture_output=True, timeout=60)
        assert done.returncode == 2 and b"a line is not UTF-8" in done.stderr
        assert b"is kept" not in done.stderr
    done = piped("hello\n", "shop.py:mute")
    assert done.returncode == 1 and "has no model" in done.stderr
    assert not shell.folder.exists(), "nothing was written"


def test_a_chat_in_lines_of_json(shell: Shell, folder: Path) -> None:
    done = piped("one\nrefund\nnever\n", "shop.py:Desk", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 4 and done.stderr == ""
    answer = next(line for line in lines if line["type"] == "answer")
    deltas = [line["text"] for line in lines[: lines.index(answer)] if line["type"] == "delta"]
    assert "".join(deltas) == answer["text"] == "ok one"
    session = shell.open(answer["session"]["id"])
    seqs = [line["seq"] for line in lines if line["type"] == "event"]
    assert seqs == [event.seq for event in session.events[1:]]
    assert session.at(answer["session"]["place"]).text == "ok one"
    assert lines[-2]["type"] == "waiting" and lines[-2]["waiting"][0]["tool"] == "refund"
    assert lines[-1] == {"type": "unsent", "lines": ["never"]}
    failed = piped("broken\n", "shop.py:Desk", "--jsonl")
    assert failed.returncode == 1 and json.loads(failed.stderr)["error"]["type"] == "LookupError"


def test_a_chat_has_the_instruction_it_is_given(shell: Shell, folder: Path) -> None:
    pytest.importorskip("openai")
    with _Model() as model:
        named = "--model", f"{model.url}/v1#any"
        assert piped("one", *named, "--instruction", "Rhyme.").stdout == "you said one\n"
        piped("two", "@")  # model and instruction are on record
        (folder / "new.txt").write_text("Sing.")
        piped("three", "@", "--instruction", "@new.txt")
        piped("four", "@")
        systems = [asked.json["messages"][0]["content"] for asked in model.requests]
    assert systems == ["Rhyme.", "Rhyme.", "Sing.", "Sing."]


def test_what_cannot_be_talked_to(shell: Shell, folder: Path) -> None:
    for arguments, code, told in (
        ((), 1, "plait chat --model"),
        (("--model", "nix"), 1, "no model is called 'nix'"),
        (("shop.py:Nix",), 2, "has no 'Nix'"),
        (("a", "--session", "b"), 2, "once"),
        (("shop.py:Desk", "--instruction", "x"), 2, "leave out --instruction"),
        (
            ("--model", "http://127.0.0.1:9/v1#any", "--instruction", " "),
            2,
            "tell the agent what to do",
        ),
    ):
        done = piped("hello\n", *arguments)
        assert done.returncode == code and told in done.stderr, done.stderr
    assert not shell.folder.exists(), "nothing was written"
    closed = shell.new("x")
    assert piped("hello\n", "nix").returncode == 3
    shell("close", closed)
    assert piped("hello\n", "shop.py:Desk", "--session", closed).returncode != 0
