"""`plait cost` and `plait tail`, for people and for programs."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from plait import Session
from plait.event.kinds import (
    ModelAsked,
    ModelReplied,
    Price,
    RunFinished,
    RunStarted,
    Text,
    ToolRequested,
    Usage,
)
from plait.ids import Digest
from plait.session.ports import Act, Draft, writer_of
from plait.session.session import session_at
from plait.session.value import counted_logs, position_of
from tests.cli.shell import COMMAND, Shell, on_a_terminal, shell
from tests.support import ForkedProgram, wait_until

__all__ = ["shell"]

WAIT_S = 30


def spend(
    session: Session, model: str, nano: int | None, agent: str = "coder", tokens: int = 1000
) -> Session:
    reply = ModelReplied(
        (Text("yes"),),
        Usage(tokens, tokens // 2),
        "end",
        price=Price(nano, "test") if nano is not None else None,
    )
    bodies = [
        ModelAsked(model, Digest("0" * 64)),
        reply,
        ToolRequested("echo", {"text": "x"}, "pure"),
    ]
    drafts = [
        Draft(body, Act(f"agent:{agent}", "model", call="c1" if at < 2 else None))
        for at, body in enumerate(bodies)
    ]
    return session_at(writer_of(None).append(position_of(session), drafts))


@pytest.fixture
def spent(shell: Shell) -> Session:
    root = spend(
        shell.open(shell.new("go", "--user", "ana", "--project", "shop", "--tag", "team=web")),
        "openai:gpt-5",
        12_345_000,
    )
    branch = spend(root.fork("left"), "local", None, agent="critic")
    merged = root.merge(branch)
    spend(Session("more", user="bo", store=shell.address), "openai:gpt-5", 1_000_000_000)
    return merged


# ── cost ─────────────────────────────────────────────────────────────────────────────────────


def test_cost_of_everything(shell: Shell, spent: Session) -> None:
    assert shell("cost") == "total  4,500  3,000 + 1,500  3  3  ≥ 1.0123  1 call unpriced\n"
    assert shell("cost", "--by", "model").splitlines() == [
        "openai:gpt-5  3,000  2,000 + 1,000  2  0    1.0123",
        "local         1,500    1,000 + 500  1  0   unknown",
        "(none)            0                 0  3",
        "total         4,500  3,000 + 1,500  3  3  ≥ 1.0123  1 call unpriced",
    ]


def test_cost_for_programs(shell: Shell, spent: Session) -> None:
    document = shell.json("cost", "--by", "user,tag:team")
    fields = {"session", "since", "until", "by", "rows", "total", "not_merged"}
    assert set(document) == fields and document["not_merged"] is None
    assert document["by"] == ["user", "tag:team"] and document["session"] is None
    assert [
        (row["user"], row["tag:team"], row["cost_usd"], row["unpriced"]) for row in document["rows"]
    ] == [
        ("bo", None, 1.0, 0),
        ("ana", "web", 0.012345, 1),
    ]
    assert document["total"]["cost_usd"] == 1.012345 and document["total"]["model_calls"] == 3
    assert shell.jsonl("cost", "--by", "user,tag:team") == document["rows"]
    rows = list(
        csv.DictReader(io.StringIO(shell("cost", "--by", "user", "--by", "project", "--csv")))
    )
    assert [
        (row["user"], row["project"], row["input_tokens"], row["cost_usd"]) for row in rows
    ] == [
        ("bo", "", "1000", "1.0"),
        ("ana", "shop", "2000", "0.012345"),
    ]


def test_cost_of_one_session_equals_its_ledger(shell: Shell, spent: Session) -> None:
    document = shell.json("cost", spent.short, "--by", "session")
    shown = shell.json("show", spent.short)
    assert document["session"]["id"] == spent.id
    assert {row["session"] for row in document["rows"]} == set(counted_logs(spent))
    assert document["total"] == shown["usage"]
    assert document["total"]["input_tokens"] == spent.budget.used.usage.input_tokens == 2000


def test_cost_in_a_time(shell: Shell, spent: Session) -> None:
    assert shell.json("cost", "--since", "1d")["total"]["model_calls"] == 3
    assert shell.json("cost", "--until", "2020-01-01")["total"]["model_calls"] == 0
    assert shell("cost", "--until", "2020-01-01") == ""
    assert "--since" in shell.error(2, "cost", "--since", "soon") or "since" in shell.error(
        2, "cost", "--since", "soon"
    )


def test_cost_refuses_what_makes_no_sense(shell: Shell, spent: Session) -> None:
    assert "nothing is summed by 'weather'" in shell.error(2, "cost", "--by", "weather")
    assert "--csv excludes" in shell.error(2, "cost", "--csv", "--json")
    shell.error(3, "cost", "nobody")


def test_a_sheet_is_not_given_formulas(shell: Shell) -> None:
    spend(
        Session(
            "x",
            user="=cmd()\x1b[31m",
            store=Session.open(shell.new("y"), store=shell.address).store,
        ),
        "m",
        1,
    )
    told = shell("cost", "--by", "user", "--csv")
    assert "\n'=cmd()" in told and "\x1b" not in told


def test_cost_on_a_terminal(shell: Shell, spent: Session) -> None:
    told = on_a_terminal(
        "cost", "--by", "agent,model", "--store", str(shell.folder), NO_COLOR="1"
    ).splitlines()
    assert told[0].split() == [
        "agent",
        "model",
        "tokens",
        "in",
        "+",
        "out",
        "model",
        "calls",
        "tool",
        "calls",
        "US",
        "dollars",
    ]
    assert told[-1].startswith("total") and "≥ 1.0123" in told[-1]
    assert "Nothing was spent in that time." in on_a_terminal("cost", "--until", "2020-01-01")


# ── tail ─────────────────────────────────────────────────────────────────────────────────────


def test_tail_shows_the_end(shell: Shell) -> None:
    name = shell.new("first")
    for number in range(30):
        shell.open(name).reload().say(f"message {number}")
    told = shell("tail", name).splitlines()
    assert len(told) == 20
    assert (
        told[-1].split()[0] == "32"
        and told[-1].endswith("user: message 29")
        and "human:ana" in told[-1]
    )
    assert [line.rpartition(" ")[2] for line in shell("tail", name, "-n", "3").splitlines()] == [
        "27",
        "28",
        "29",
    ]
    assert shell("tail", f"{name}@2", "-n", "1").endswith("user: first\n")
    assert shell("tail", name, "-n", "0") == ""
    assert [event["seq"] for event in shell.jsonl("tail", name, "-n", "2")] == [31, 32]
    document = shell.json("tail", name, "-n", "2")
    assert (
        document["events"] == shell.jsonl("tail", name, "-n", "2")
        and document["session"]["place"] == 32
    )
    assert "use --jsonl" in shell.error(2, "tail", name, "-f", "--json")


class Following:
    """`plait tail` in a process of its own, line by line."""

    def __init__(self, *arguments: str) -> None:
        self.process = ForkedProgram(
            [*COMMAND, "tail", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_for(self, there: Callable[[], Any]) -> None:
        wait_until(there, WAIT_S, lambda: self.lines)

    def end(self) -> int:
        code = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        return code


@pytest.fixture
def follow() -> Iterator[Callable[..., Following]]:
    begun: list[Following] = []

    def make(*arguments: str) -> Following:
        begun.append(Following(*arguments))
        return begun[-1]

    yield make
    for each in begun:
        each.process.kill()
        each.process.wait()
        for stream in (each.process.stdout, each.process.stderr):
            if stream is not None:
                stream.close()


def test_tail_follows_what_others_write(shell: Shell, follow: Callable[..., Following]) -> None:
    name = shell.new("first")
    following = follow(name, "-f", "--jsonl", "-n", "1")
    following.wait_for(lambda: len(following.lines) == 1)
    session = shell.open(name)
    for number in range(5):
        session = session.say(f"message {number}")
        following.wait_for(lambda count=number: len(following.lines) == 2 + count)
    session.say("a", "b").fact("k", 1)
    following.wait_for(lambda: len(following.lines) == 8)
    assert [json.loads(line)["seq"] for line in following.lines] == list(range(2, 10))
    os.kill(following.process.pid, signal.SIGINT)
    assert following.end() == 130
    assert (
        following.process.stderr is not None and "Traceback" not in following.process.stderr.read()
    )


def test_tail_ends_with_the_run(shell: Shell, follow: Callable[..., Following]) -> None:
    name = shell.new("first")
    assert shell("tail", name, "--until-end", "-n", "1").endswith("user: first\n"), "no run is open"
    spot = position_of(shell.open(name))
    spot = writer_of(None).append(spot, [Draft(RunStarted("m:W"), Act("service:w"))])
    following = follow(name, "--until-end", "-n", "1")
    following.wait_for(lambda: following.lines)
    spot = writer_of(None).append(spot, [Draft(RunFinished(), Act("service:w"))])
    assert following.end() == 0
    assert [line.split("  ")[-1].strip() for line in following.lines] == [
        "run started: W",
        "run finished",
    ]


def test_tail_on_a_terminal(shell: Shell) -> None:
    name = shell.new("first \x1b[31mred", "--title", "t")
    shell("say", name, "long " * 60)
    told = on_a_terminal("tail", name, width=60, NO_COLOR="1").splitlines()
    assert all(len(line) <= 60 for line in told) and told[-1].endswith("…") and len(told) == 3
    assert "\x1b[31m" not in "".join(told)
