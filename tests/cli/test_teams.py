"""Agents as tools in the shell: what they did in branches is counted, found, shown and blamed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plait import Agent, ScriptedModel, Session, ToolCall, tool
from plait.cli.progress import Progress
from plait.event import kinds as k
from plait.model.base import OutputDelta
from plait.session.ledger import costs, spent_in_branches
from plait.session.ports import store_at
from plait.session.run_branches import branches_of_runs
from plait.tools import write_file
from tests.cli.shell import Shell, on_a_terminal, program_folder, shell
from tests.support import filled_folder

__all__ = ["shell"]


@tool(effect="pure")
def look(page: int) -> str:
    """Look something up."""
    raise ValueError(f"there is no page {page}\nof this book")


def write(path: str, content: str) -> ToolCall:
    return ToolCall("write_file", path=path, content=content)


def scripted(*script: Any) -> ScriptedModel:
    return ScriptedModel(list(script))


def team(takes: str = "files") -> Agent:
    """A lead with two agents as tools: one fails to look, one writes a file."""
    calls = [ToolCall("look", page=1), ToolCall("look", page=2)]
    reader = Agent("Read.", model=scripted(calls, "Nothing."), name="reader", tools=[look])
    model = scripted(write("note.txt", "first\nsecond\n"), "Written.")
    writer = Agent("Write.", model=model, name="writer", tools=[write_file])
    tools = [reader, writer.as_tool(takes=takes)]  # pyright: ignore[reportArgumentType]
    steps = [ToolCall("reader", request="read"), ToolCall("writer", request="write"), "Done."]
    return Agent("Lead.", model=scripted(*steps), name="lead", tools=[*tools, write_file])


@pytest.fixture
def worked(shell: Shell, tmp_path: Path) -> Session:
    folder = filled_folder(tmp_path / "files", {"base.txt": "base\n"})
    return team()(Session("Go.", store=shell.address).to("local", folder))


def calls_in(document: dict[str, int]) -> tuple[int, int]:
    return document["model_calls"], document["tool_calls"]


def test_the_cost_has_what_runs_did_in_branches(shell: Shell, worked: Session) -> None:
    document = shell.json("cost", worked.short, "--by", "agent")
    assert {row["agent"]: calls_in(row) for row in document["rows"]} == {
        "lead": (3, 2),
        "lead/reader": (2, 2),
        "lead/writer": (2, 1),
    }
    assert calls_in(document["total"]) == (7, 5) and calls_in(document["not_merged"]) == (4, 3)
    *_, total, rest = shell("cost", worked.short).splitlines()
    assert total.startswith("total ") and rest.startswith("of it not merged ")
    shown = shell.json("show", worked.short)
    assert shown["usage"] == document["total"] and shown["not_merged"] == document["not_merged"]
    page = shell("show", worked.short)
    assert "7 model calls, 5 tool calls\n" in page
    assert "4 model calls, 3 tool calls, in branches of runs that were not merged" in page


def test_branches_of_people_and_merged_ones_are_told_apart(shell: Shell, worked: Session) -> None:
    before = costs(store_at(worked.store), session=worked).total
    (reader,) = (
        log for log in branches_of_runs(worked) if "lead/reader" in log_actors(worked, log)
    )
    # a person goes on from the session, and from a branch of its run
    for fork in (worked.fork("mine"), Session.open(reader, store=worked.store).fork("more")):
        Agent("x", model=scripted(ToolCall("look", page=3), "No."), tools=[look])(fork)
    assert costs(store_at(worked.store), session=worked).total == before
    # of a branch in the middle, the rest is no part
    first = store_at(worked.store).log(reader).place + 1
    early = Session.open(f"{reader}@{first + 1}", store=worked.store)
    assert costs(store_at(worked.store), session=early).total.model_calls == 1
    merged = team(takes="all")(Session("Go.", store=shell.address))
    (left,) = branches_of_runs(merged)
    assert log_actors(merged, left) == {"lead", "lead/reader"}
    assert spent_in_branches(merged).model_calls == 2


def log_actors(session: Session, log: str) -> set[str]:
    events = Session.open(log, store=session.store).events
    found = {event.actor.partition(":")[2] for event in events if event.log == log}
    return found - {"plait"}


def test_calls_and_events_of_branches_are_found(shell: Shell, worked: Session) -> None:
    found = shell.json("find", "--outcome", "failed", "--session", worked.short)["calls"]
    assert [(call["actor"], call["why"]) for call in found] == [
        ("agent:lead/reader", "there is no page 2"),
        ("agent:lead/reader", "there is no page 1"),
    ]
    lines = shell("find", "--outcome", "failed").splitlines()
    assert [line.rpartition("  ")[2] for line in lines] == [call["why"] for call in found]
    texts = [event["actor"] for event in shell.jsonl("find", "Written.", "--session", worked.short)]
    assert texts == ["agent:lead", "agent:lead/writer"]  # the result, and before it the reply
    assert shell("find", "--tool", "look", "--session", f"{worked.short}@4") == ""


def test_the_log_leads_to_branches(shell: Shell, worked: Session) -> None:
    result = shell.run("log", worked.short, "--actor", "agent:lead/writer")
    assert result.stdout == "" and "8 more in branches: plait log writer" in result.stderr
    # without a search the lines of a pipe are all there is
    assert shell.run("log", worked.short).stderr == ""
    told = on_a_terminal(
        "log", worked.short, "--events", "--store", str(shell.folder), NO_COLOR="1"
    )
    assert "more in branches: plait log reader, plait log writer" in told
    branch = shell("log", "writer")
    assert "called lead/writer" in branch and "handed off" not in branch


@pytest.mark.parametrize("takes", ["files", "all"])
def test_a_line_is_of_the_agent_that_wrote_it(shell: Shell, tmp_path: Path, takes: str) -> None:
    folder = filled_folder(tmp_path / "files", {"base.txt": "base\n"})
    session = team(takes)(Session("Go.", store=shell.address).to("local", folder))
    content = "first\nours\nsecond\n"
    model = scripted(write("note.txt", content), "Ok.")
    session = Agent("Mend.", model=model, name="mender", tools=[write_file])(session)
    lines = shell.json("blame", f"{session.short}:note.txt")["lines"]
    assert [(line["text"], line["actor"], line["tool"], line["branch"]) for line in lines] == [
        ("first", "agent:lead/writer", "write_file", "writer"),
        ("ours", "agent:mender", "write_file", None),
        ("second", "agent:lead/writer", "write_file", "writer"),
    ]
    assert (
        shell.json("blame", f"{session.short}:base.txt")["lines"][0]["kind"] == "PlacementChanged"
    )


# ── progress ─────────────────────────────────────────────────────────────────────────────────

PROGRAM = '''
from plait import Agent, ScriptedModel, ToolCall, heartbeat, tool
from plait.policy import Ask, Policy


@tool
def wire(to: str) -> str:
    """Send money."""
    heartbeat("1 of 2")
    heartbeat("1 of 2")
    heartbeat("2 of 2\\x1b[2J")
    return "sent"


clerk = Agent(
    "Pay.", model=ScriptedModel([ToolCall("wire", to="ACME"), "Paid."]), name="clerk", tools=[wire]
)
script = ScriptedModel([ToolCall("clerk", request="pay"), "Done."])
lead = Agent("Lead.", model=script, name="lead", tools=[clerk], policy=Policy(Ask("wire")))
'''


@pytest.fixture
def folder(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with program_folder(tmp_path, "pay", PROGRAM, monkeypatch) as folder:
        yield folder


def test_heartbeats_and_calls_of_branches_are_progress(shell: Shell, folder: Path) -> None:
    shell("run", "pay.py:lead", "-i", "Go.", "--approve", "park", code=4)
    (ask,) = shell.jsonl("inbox")
    shell("approve", ask["id"])
    resumed = shell.run("resume", session_of(shell))
    assert resumed.exit_code == 0, resumed.output
    lines = [" ".join(line.split()) for line in resumed.stderr.splitlines()]
    *beats, wired = [line for line in lines if "wire" in line]
    assert beats == ["lead/clerk wire: 1 of 2", "lead/clerk wire: 2 of 2"]
    assert re.match(r"● clerk@\d+ wire .*sent", wired), wired


def session_of(shell: Shell) -> str:
    return shell.jsonl("ls", "--limit", "1")[0]["short"]


def test_the_line_on_a_terminal_has_the_last_heartbeat(shell: Shell, worked: Session) -> None:
    progress = Progress(quiet=True)
    request = worked.events.where("ToolRequested")[0]
    assert isinstance(request.body, k.ToolRequested)
    progress(request)
    progress(OutputDelta("page 7\n", "lead", request.body.tool))
    assert progress.line(200).endswith("lead · reader: page 7")
    progress(worked.events.where("ToolReturned")[0])
    assert "page 7" not in progress.line(200)


def test_calls_of_an_agent_are_found_by_its_name(shell: Shell, worked: Session) -> None:
    for name in ("reader", "agent:reader", "agent:lead/reader"):
        words = ("find", "--tool", "look", "--outcome", "failed", "--actor", name)
        found = shell.json(*words)["calls"]
        assert {call["actor"] for call in found} == {"agent:lead/reader"} and len(found) == 2
        assert {event["actor"] for event in shell.jsonl("find", "--actor", name)} == {
            "agent:lead/reader"
        }
    words = ("find", "--tool", "write_file", "--path", "note.txt", "--outcome", "returned")
    assert len(shell.json(*words, "--actor", "writer")["calls"]) == 1
    assert shell.json(*words, "--actor", "agent:lead")["calls"] == []
    told = shell.error(2, *words, "--actor", "agent:writr")
    assert "agent:lead, agent:lead/reader, agent:lead/writer" in told
    assert "human:ana" not in shell("find", "--actor", "nobody") and worked
