"""Every command says what happened, to people and to programs."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from rich.cells import cell_len

from plait import Agent, Budget, ScriptedModel, open_store
from plait.event.kinds import ModelReplied, Price, PrincipalChanged, Text, Usage
from plait.ids import house_of, short
from plait.journal import writer
from plait.journal.hidden_names import login_name
from plait.runs.turns import TurnClient
from plait.runtime.attendants import NOBODY
from plait.session.house import append_to_house
from plait.session.ports import Act, Draft, store_at, writer_of
from plait.session.value import position_of
from tests.cli.shell import Shell, on_a_terminal, process, shell
from tests.support import count_calls

__all__ = ["shell"]

SESSION = {
    "id",
    "short",
    "place",
    "head",
    "title",
    "label",
    "status",
    "user",
    "project",
    "tags",
    "parent",
    "updated",
    "queued",
    "due",
    "standing",
    "store",
}
EVENT = {
    "id",
    "session",
    "seq",
    "kind",
    "time",
    "actor",
    "behalf",
    "origin",
    "run",
    "call",
    "parents",
    "causes",
    "body",
}
MESSAGE = {"id", "session", "seq", "time", "actor", "role", "name", "branch", "text", "parts"}
ESCAPE = "\x1b"


@pytest.fixture
def family(shell: Shell) -> tuple[Shell, str]:
    """A session, two forks that disagree, their merge, a rewind, and what came after."""
    root = shell.new(
        "Reject negative sizes, or clamp them?",
        "--title",
        "Negative sizes",
        "--user",
        "ana",
        "--project",
        "parser",
    )
    shell("fact", root, "language", "python")
    shell("todo", root, "write a test")
    shell("fork", root, "strict")
    shell("fork", root, "lenient")
    shell(
        "say",
        "strict",
        "Reject them.",
        "--role",
        "assistant",
        "--name",
        "critic",
        "--as",
        "agent:critic",
    )
    shell("decide", "strict", "verdict", "reject")
    shell("say", "lenient", "Clamp them.", "--role", "assistant", "--as", "agent:pragmatist")
    shell("decide", "lenient", "verdict", "clamp")
    shell("merge", root, "strict", "lenient", "--resolve", "verdict=reject")
    shell("say", root, "Wait.")
    shell("rewind", root, "-1", "--reason", "too early")
    shell("say", root, "Ship it.")
    return shell, root


def named(text: str, shell: Shell) -> str:
    """The text with the short ids of sessions replaced: of forks by their labels, of others by
    `root`.
    """
    for session in shell.json("ls", "--all")["sessions"]:
        text = text.replace(session["short"], session["label"] or "root")
    return text


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


# ── beginning ────────────────────────────────────────────────────────────────────────────────


def test_init_makes_a_store_once(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shell("init") == f"made a store at {shell.address}\n"
    assert (shell.folder / "store.db").exists()
    assert shell("init") == f"there is a store already at {shell.address}\n"
    assert shell.json("init") == {"store": shell.address, "made": False}
    assert shell.json("init", "below/it") == {
        "store": f"sqlite:{tmp_path / 'below' / 'it' / '.plait'}",
        "made": True,
    }
    monkeypatch.chdir(tmp_path / "below")
    # here, though above there is one
    assert shell.json("init")["store"] == f"sqlite:{tmp_path / 'below' / '.plait'}"
    assert shell.json("init", "--store", str(tmp_path / "s")) == {
        "store": f"sqlite:{tmp_path / 's'}",
        "made": True,
    }
    monkeypatch.setenv("PLAIT_STORE", str(tmp_path / "t"))
    assert shell.json("init") == {"store": f"sqlite:{tmp_path / 't'}", "made": True}
    assert "give one of them" in shell.error(2, "init", "x", "--store", "y")


def test_new_makes_the_store_and_prints_the_session(shell: Shell) -> None:
    assert re.fullmatch(r"[0-9a-f]{8}@2  user: hello\n", shell("new", "hello"))
    found = shell.json(
        "new", "--title", "T", "--user", "u", "--project", "p", "--tag", "a=1", "--tag", "b=x=y"
    )
    assert found.keys() == SESSION
    assert (found["title"], found["user"], found["project"], found["tags"]) == (
        "T",
        "u",
        "p",
        {"a": "1", "b": "x=y"},
    )
    assert (found["place"], found["label"], found["status"], found["parent"], found["store"]) == (
        1,
        None,
        "open",
        None,
        shell.address,
    )
    assert shell.open(found["id"]).head == found["head"]
    assert shell.open(found["short"]).id == found["id"]


def test_new_with_a_budget(shell: Shell) -> None:
    limits = [
        "--tokens-max",
        "100",
        "--cost-usd-max",
        "1.5",
        "--wall-s-max",
        "60",
        "--steps-max",
        "3",
        "--tool-calls-max",
        "4",
    ]
    assert shell.open(shell.new("x", *limits)).budget.limits == Budget(100, 1.5, 60.0, 3, 4)
    assert shell.open(shell.new("x")).budget.limits is None
    assert "is not in the range" in shell.error(2, "new", "x", "--tokens-max", "-1")


def test_text_from_standard_input(shell: Shell) -> None:
    shell("new", "-", input="first\nsecond\n")
    assert shell.open("@").text == "first\nsecond"
    shell("say", "@", "-", input="no newline")
    assert shell.open("@").text == "no newline"
    shell("note", "@", "-", input="a finding\n")
    assert list(shell.open("@").facts.findings.values()) == ["a finding"]
    result = shell.run("say", "@", "-", input=b"\xff")
    assert result.exit_code == 2 and "not UTF-8" in result.stderr
    assert shell.run("say", "@", "-", input="").exit_code == 2


def test_who_writes(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    session = shell.new("x")
    shell("say", session, "y", "--as", "service:ci")
    monkeypatch.delenv("PLAIT_ACTOR")
    monkeypatch.setenv("LOGNAME", "bob")
    monkeypatch.setattr(writer, "login_name", login_name.__wrapped__)  # asked anew each time
    shell("fork", session, "--as", "human:eve")
    shell("say", session, "z", "--role", "system")
    assert [event.header.actor for event in shell.open(session).events] == [
        "human:ana",
        "human:ana",
        "service:ci",
        "human:bob",
    ]
    assert shell.open("@").events[-1].header.actor == "human:bob"
    assert "not a principal" in shell.error(2, "say", session, "y", "--as", "nobody")


# ── looking ──────────────────────────────────────────────────────────────────────────────────


def test_ls(family: tuple[Shell, str]) -> None:
    shell, root = family
    other = shell.new("Another thing, untitled")
    found = [line.split("  ") for line in lines(shell("ls"))]
    assert [line[0] for line in found] == [
        other,
        root,
        shell.open("lenient").short,
        shell.open("strict").short,
    ]
    first = lines(shell("ls"))[0]
    assert "Another thing, untitled" in first and re.search(
        r"open  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d +2$", first
    )
    documents = shell.json("ls")
    assert documents["store"] == shell.address
    assert shell.jsonl("ls") == documents["sessions"]
    assert [each["label"] for each in documents["sessions"]] == [None, None, "lenient", "strict"]
    assert documents["sessions"][3]["parent"] == {"id": shell.open(root).id, "place": 4}


def test_a_label_that_two_branches_have_says_whose(family: tuple[Shell, str]) -> None:
    shell, root = family
    other = shell.new("Another thing")
    shell("fork", other, "strict")
    labels = [line.split("  ")[1] for line in lines(shell("ls"))]
    assert labels[2:] == [f"strict of {other}", "lenient", f"strict of {root}"]


def test_a_listed_session_is_the_shown_one(family: tuple[Shell, str]) -> None:
    shell, _ = family
    for listed in shell.jsonl("ls"):
        shown = shell.json("show", listed["id"])
        assert listed.keys() == SESSION | {"due"}
        assert not listed.pop("due")  # a matter of lists: an answer is there, and no process is
        assert listed == {name: shown[name] for name in listed}


def test_ls_by_what_is_known(family: tuple[Shell, str]) -> None:
    shell, root = family
    tagged = shell.new("--tag", "team=web", "--tag", "tier=1", "--user", "bob")

    def ids(*arguments: str) -> list[str]:
        return [each["label"] or each["short"] for each in shell.json("ls", *arguments)["sessions"]]

    assert (
        ids("--tag", "team=web", "--tag", "tier=1") == [tagged] and ids("--tag", "team=core") == []
    )
    assert ids("--user", "ana", "--project", "parser") == [root, "lenient", "strict"]
    assert ids("--label", "strict") == ids("--label", "strict", "--parent", root) == ["strict"]
    assert ids("--parent", root) == ["lenient", "strict"]
    shell("pause", tagged)
    assert ids("--status", "paused") == [tagged]
    assert ids("--limit", "3") == [tagged, root, "lenient"]
    assert len(ids("--all")) == 4
    assert "KEY=VALUE" in shell.error(2, "ls", "--tag", "x")
    assert shell.error(2, "ls", "--status", "asleep")


def test_ls_all_pages_through(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.cli.listing.PAGE", 3)
    for _ in range(8):
        shell.new("x")
    assert len(shell.jsonl("ls", "--all")) == 8
    assert len(shell.jsonl("ls", "--limit", "7")) == 7
    assert len({each["id"] for each in shell.jsonl("ls", "--all")}) == 8


def test_show(family: tuple[Shell, str]) -> None:
    shell, root = family
    session = shell.open(root).checks.require("tests", by="ci").checks.record("lint", False)
    text = lines(
        re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", named(shell("show", root), shell))
    )
    key = next(iter(session.pending))
    assert text == dedent(f"""\
        Negative sizes
          session  root@10
          id       {session.id.replace(session.short, "root")}
          status   open
          opened   TIME by human:ana
          user     ana
          project  parser

        Facts
          language  "python"  @3

        Decisions
          verdict  "reject"  @5

        Pending
          step  write a test  {key}  @4

        Verdicts
          lint   failed                                                @10
          tests  no verdict  required, not met: nobody gave a verdict  @9

        Messages
          2  user  Reject negative sizes, or clamp them?
          ┌ merged from strict
          │ 6  critic assistant  Reject them.
          ┌ merged from lenient
          │ 6  assistant  Clamp them.
          └
          8  user  Ship it.""").split("\n")


def test_show_in_json(family: tuple[Shell, str]) -> None:
    shell, root = family
    found = shell.json("show", root)
    assert {name for name in found if name not in SESSION} == {
        *(
            "opened",
            "lineage",
            "continues",
            "durability",
            "runs",
            "facts",
            "pending",
            "budget",
            "left",
            "usage",
            "not_merged",
            "gates",
            "validation",
        ),
        *("placement", "tree", "changed", "queue", "message_count", "messages"),
    }
    assert found["facts"]["verdict"] == {
        **{
            "kind": "decision",
            "value": "reject",
            "session": found["id"],
            "seq": 5,
            "review_by": None,
        },
        "event": shell.open(root).events[4].id,
    }
    assert [message["branch"] for message in found["messages"]] == [None, "strict", "lenient", None]
    assert found["messages"][0].keys() == MESSAGE and found["message_count"] == 4
    assert [
        message["text"] for message in shell.json("show", root, "--messages", "1")["messages"]
    ] == ["Ship it."]
    assert shell.json("show", root, "-n", "0")["messages"] == []
    assert isinstance(found["opened"], int) and found["budget"] is None


def test_show_at_a_place(family: tuple[Shell, str]) -> None:
    shell, root = family
    assert shell.json("show", f"{root}@2")["facts"] == {}
    assert shell.json("show", "strict@-1")["place"] == 6
    assert shell.json("show", "strict")["lineage"] == [
        {"id": shell.open(root).id, "place": 4},
        {"id": shell.open("strict").id, "place": 7},
    ]
    assert "  lineage  root@4 › strict@7" in lines(named(shell("show", "strict"), shell))
    assert shell.json("show")["id"] == shell.open(root).id  # the one written to last


def test_show_what_was_spent(shell: Shell) -> None:
    session = shell.open(shell.new("x", "--tokens-max", "1000", "--cost-usd-max", "1"))
    reply = ModelReplied((Text("y"),), Usage(100, 50), "end", price=Price(2_000_000, "list/1"))
    writer_of(None).append(position_of(session), [Draft(reply, Act("agent:a", "model"))])
    text = shell("show", session.short)
    assert "  budget   850 of 1,000 tokens left, 0.998 of 1.0 US dollars left" in lines(text)
    assert "  used     150 tokens, $0.0020, 0 model calls, 0 tool calls" in lines(text)
    found = shell.json("show")
    assert found["left"] == {
        "tokens_max": 850,
        "cost_usd_max": 0.998,
        "wall_s_max": None,
        "steps_max": None,
        "tool_calls_max": None,
    }
    assert (
        found["usage"]["input_tokens"],
        found["usage"]["cost_usd"],
        found["usage"]["output_tokens"],
    ) == (100, 0.002, 50)


# ── what happened ────────────────────────────────────────────────────────────────────────────


def says(shell: Shell, *arguments: str) -> list[str]:
    """The log without times and actors."""
    return [
        named(line, shell).split("  ", 1)[1]
        for line in lines(shell("log", *arguments, "--oneline"))
    ]


def test_log(family: tuple[Shell, str]) -> None:
    shell, root = family
    found = lines(shell("log", root))
    assert re.fullmatch(r"8  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  human:ana  user: Ship it\.", found[0])
    assert len(found) == 8
    assert says(shell, root, "-n", "3") == [
        "user: Ship it.",
        "rewound to 5: too early",
        "user: Wait.",
    ]
    assert says(shell, root, "--path")[:2] == [
        "user: Ship it.",
        "rewound to 5: too early",
    ] and "user: Wait." not in says(shell, root, "--path")
    assert says(shell, f"{root}@2") == [
        "user: Reject negative sizes, or clamp them?",
        "opened: Negative sizes",
    ]
    assert lines(shell("log", root, "--oneline", "-n", "1")) == [f"{root}@8  user: Ship it."]
    assert lines(shell("log", root, "--reverse")) == found[::-1]
    assert [event["seq"] for event in shell.jsonl("log", root, "--reverse", "-n", "2")] == [7, 8]
    shell.error(2, "log", root, "--reverse", "--graph")


def test_log_by_kind_actor_and_time(family: tuple[Shell, str]) -> None:
    shell, root = family
    assert (
        says(shell, "strict", "--actor", "agent:critic")
        == says(shell, "strict", "--actor", "critic")
        == ["critic: Reject them."]
    )
    assert says(shell, root, "--kind", "Rewound", "--kind", "FactRecorded") == [
        "rewound to 5: too early",
        'fact language = "python"',
    ]
    assert len(says(shell, root, "--since", "1h")) == 8
    assert says(shell, root, "--until", "1h") == []
    assert len(says(shell, root, "--until", "0s")) == 8
    assert (
        len(says(shell, root, "--since", "2000-01-01")) == 8
        and says(shell, root, "--since", "2999-01-01") == []
    )
    assert "perhaps MessageSaid" in shell.error(2, "log", root, "--kind", "MessageSayed")
    assert "not a moment" in shell.error(2, "log", root, "--since", "yesterday")


def test_log_of_a_range(family: tuple[Shell, str]) -> None:
    shell, root = family
    strict = ['decided verdict = "reject"', "critic: Reject them.", "forked from root@4 as strict"]
    assert says(shell, "lenient..strict") == says(shell, f"{root}@4..strict") == strict
    assert says(shell, f"{root}..strict") == []  # merged there
    assert says(shell, f"{root}@6..{root}") == ["user: Ship it.", "rewound to 5: too early"]
    assert (
        says(shell, f"strict..{root}@4") == [] and says(shell, "lenient@6..strict@6") == strict[1:]
    )
    assert says(shell, f"{root}@2..", "--path")[-1] == 'fact language = "python"'
    found = shell.json("log", "lenient..strict")
    assert (found["from"]["label"], found["session"]["label"], len(found["events"])) == (
        "lenient",
        "strict",
        3,
    )


def test_log_of_the_house(family: tuple[Shell, str]) -> None:
    shell, root = family
    store = store_at(shell.address)
    house = house_of(store.id)
    act = Act("human:ana", "human")
    for name in ("bo", "cy"):
        append_to_house(store.address, [Draft(PrincipalChanged(f"human:{name}", "added"), act)])
    found = lines(shell("log", "--house"))
    assert len(found) == 3 and found[0].startswith("3  ") and "human:cy" in found[0]
    assert lines(shell("log", "--house", "--oneline", "-n", "1"))[0].startswith(f"{short(house)}@3")
    assert len(lines(shell("log", "--house", "--kind", "HouseOpened"))) == 1
    document = shell.json("log", "--house")
    assert document["house"] == house and [each["seq"] for each in document["events"]] == [3, 2, 1]
    assert shell.jsonl("log", "--house", "--actor", "ana") == document["events"][:2]
    assert "leave out" in shell.error(2, "log", root, "--house")
    assert "leave out" in shell.error(2, "log", "--house", "--graph")
    assert short(house) not in shell("ls", "--all")
    for command in ("log", "show"):
        assert house not in shell.error(3, command, short(house), "--json")


def test_log_in_json(family: tuple[Shell, str]) -> None:
    shell, root = family
    found = shell.json("log", root)
    assert found["from"] is None and found["session"]["id"] == found["events"][0]["session"]
    assert shell.jsonl("log", root) == found["events"]
    newest, merged = found["events"][0], found["events"][3]
    assert newest.keys() == EVENT
    assert newest["body"] == {
        "v": 1,
        "role": "user",
        "parts": [{"type": "text", "text": "Ship it."}],
    }
    assert (newest["seq"], newest["kind"], newest["actor"], newest["origin"]) == (
        8,
        "MessageSaid",
        "human:ana",
        "human",
    )
    assert (
        newest["parents"] == [found["events"][1]["id"]]
        and newest["causes"] == []
        and newest["call"] is None
    )
    assert merged["parents"][1:] == [shell.open("strict").head, shell.open("lenient").head]
    assert type(newest["time"]) is int
    assert len(shell.jsonl("log", root, "-n", "2")) == 2


PICTURE = """\
●      root@8     user: Ship it.
↺      root@7     rewound to 5: too early
●      root@6     user: Wait.
◆      root@5     merged strict@7, lenient@7, chose verdict
├─┬─╮
│ │ ●  lenient@7  decided verdict = "clamp"
│ │ ●  lenient@6  assistant: Clamp them.
│ │ ○  lenient@5  forked from root@4 as lenient
├─┼─╯
│ ●    strict@7   decided verdict = "reject"
│ ●    strict@6   critic: Reject them.
│ ○    strict@5   forked from root@4 as strict
├─╯
●      root@4     to do: write a test
●      root@3     fact language = "python"
●      root@2     user: Reject negative sizes, or clamp them?
●      root@1     opened: Negative sizes"""


def picture(shell: Shell, *arguments: str) -> str:
    """The drawn log, with columns made narrow again after the ids were replaced."""
    found = lines(named(shell("log", "--graph", "--oneline", *arguments), shell))
    split = [re.match(r"(.*?)  (\S+@\d+) +(.*)", line) for line in found]
    wide = max(len(each[2]) for each in split if each)
    return "\n".join(
        f"{each[1]}  {each[2]:{wide}}  {each[3]}" if each else line
        for each, line in zip(split, found, strict=True)
    )


def test_the_picture_of_a_family(family: tuple[Shell, str]) -> None:
    shell, root = family
    assert picture(shell, root) == PICTURE
    assert picture(shell, "strict") == PICTURE  # whoever of the family is asked about
    assert [event["seq"] for event in shell.json("log", "--graph", root)["events"]] == [
        8,
        7,
        6,
        5,
        7,
        6,
        5,
        7,
        6,
        5,
        4,
        3,
        2,
        1,
    ]
    assert "leave out --path" in shell.error(2, "log", "--graph", "--path")


def test_the_picture_of_some_events(family: tuple[Shell, str]) -> None:
    """Where events are left out, the lines lead to the next ones that are shown."""
    shell, root = family
    assert picture(shell, root, "--kind", "MessageSaid") == dedent("""\
        ●      root@8     user: Ship it.
        ●      root@6     user: Wait.
        ├─┬─╮
        │ │ ●  lenient@6  assistant: Clamp them.
        ├─┼─╯
        │ ●    strict@6   critic: Reject them.
        ├─╯
        ●      root@2     user: Reject negative sizes, or clamp them?""")
    assert (
        picture(shell, f"{root}@6..{root}")
        == "●  root@8  user: Ship it.\n↺  root@7  rewound to 5: too early"
    )


def test_the_picture_has_who_and_when(family: tuple[Shell, str]) -> None:
    shell, root = family
    line = lines(shell("log", "--graph", root))[0]
    assert re.fullmatch(
        r"●      \S+@8 +user: Ship it\. +human:ana +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", line
    )


def test_the_picture_in_ascii(family: tuple[Shell, str]) -> None:
    shell, root = family
    found = process(
        "log",
        "--graph",
        root,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PLAIT_STORE": shell.address},
    ).stdout
    assert found.isascii() and "|-" in found and "\\u" not in found


def test_find(family: tuple[Shell, str]) -> None:
    shell, root = family
    assert [line.split()[0] for line in lines(named(shell("find", "CLAMP"), shell))] == [
        "lenient@7",
        "lenient@6",
        "root@2",
    ]
    assert [event["seq"] for event in shell.json("find", "clamp")["events"]] == [7, 6, 2]
    assert shell.jsonl("find", "clamp", "--session", root) == shell.jsonl("find", "clamp")[2:]
    assert [
        event["seq"]
        for event in shell.jsonl("find", "them", "--kind", "MessageSaid", "--actor", "critic")
    ] == [6]
    assert len(shell.jsonl("find", "--limit", "3")) == 3 and len(shell.jsonl("find")) == 14
    assert shell.jsonl("find", "--since", "1h", "--until", "1h") == []
    assert shell("find", "nowhere to be found") == ""
    assert shell.jsonl("find", "strict")[0]["kind"] == "ForkedFrom"
    assert shell.jsonl("find", "clamp")[0].keys() == EVENT | {"inbox"}


def test_find_in_long_texts_and_quotes(shell: Shell) -> None:
    session = shell.new("x" * 10_000 + " the needle " + "y" * 10_000)
    shell("fact", session, "quote", 'he said "yes"')
    assert [event["seq"] for event in shell.jsonl("find", "Needle")] == [2]
    assert [event["seq"] for event in shell.jsonl("find", 'said "yes"')] == [3]


# ── how it hangs together ────────────────────────────────────────────────────────────────────


def test_a_long_text_does_not_push_others_aside_in_a_pipe(shell: Shell) -> None:
    name = shell.new("x " * 200)
    shell("say", name, "short")
    lines = shell("why", name, "short", "--all").splitlines()
    assert "x " * 150 in lines[-1]  # nothing is cut
    assert (
        len(lines) > 2
        and max(map(len, lines[:-1])) < 160
        and lines == [line.rstrip() for line in lines]
    )


def test_why(family: tuple[Shell, str]) -> None:
    shell, root = family
    found = lines(named(shell("why", root, "verdict", "--all"), shell))
    assert found[0] == 'verdict = "reject"'
    assert re.match(r"  is +merged strict@7, lenient@7, chose verdict +root@5 +human:ana", found[1])
    assert any(
        re.match(r"    between +decided verdict = \"clamp\" +lenient@7", line) for line in found
    )
    document = shell.json("why", root, "verdict")
    assert (
        document.keys() == {"session", "about", "complete", "steps"}
        and document["complete"] is True
    )
    assert shell.jsonl("why", root, "verdict") == document["steps"]
    event = {"depth", "how", "id", "session", "seq", "kind", "branch", "actor", "time", "says"}
    assert document["steps"][0].keys() == event | {"relation", "reason", "placement", "files"}


def test_why_of_anything(family: tuple[Shell, str]) -> None:
    shell, root = family
    head = shell.open("strict@6").head
    firsts = [
        shell.jsonl("why", *arguments)[0]["id"]
        for arguments in (
            ("strict@6",),
            ("strict", "6"),
            ("strict", "-1"),
            ("strict", "Reject them"),
            (root, head),
        )
    ]
    assert firsts == [head] * 5
    assert shell.jsonl("why", "strict")[0]["seq"] == 7
    shell("fact", root, "7", "seven")
    assert shell.jsonl("why", root, "7")[0]["seq"] == 9  # a fact of that name comes first
    assert "has no fact" in shell.error(3, "why", root, "never heard of")


def test_influence(family: tuple[Shell, str]) -> None:
    shell, root = family
    found = shell.jsonl("influence", root, "2")
    assert found[0]["how"] == "is" and {"carried into", "followed by", "merged into"} <= {
        step["how"] for step in found
    }
    assert (
        shell.jsonl("influence", f"{root}@2")
        == found
        == shell.json("influence", root, "2")["steps"]
    )
    text = lines(named(shell("influence", root, "2"), shell))
    assert text[0] == "event 2 of root" and any(
        re.match(r"    carried into +forked from root@4 as strict +strict@5", line) for line in text
    )


def test_graph(family: tuple[Shell, str]) -> None:
    shell, _ = family
    found = [re.sub(" +", " ", line) for line in lines(named(shell("graph", "strict"), shell))]
    assert found == [
        "Negative sizes root open 8 events 1 fact, 1 pending, 1 rewind",
        "├─ strict strict open 3 events from 4, merged into root@5, 1 decision",
        "└─ lenient lenient open 3 events from 4, merged into root@5, 1 decision",
    ]
    document = shell.json("graph")
    assert {node["type"] for node in document["nodes"]} >= {
        "session",
        "fact",
        "decision",
        "merge",
        "rewind",
        "pending",
    }
    assert document["nodes"][0].keys() == {"id", "type", "name", "session", "place", "detail"}
    assert document["edges"][0].keys() == {"type", "source", "target", "place"}
    rows = shell.jsonl("graph")
    assert [row["node"] for row in rows if "node" in row] == document["nodes"]
    assert [row["edge"] for row in rows if "edge" in row] == document["edges"]


def test_graph_of_deep_forks(shell: Shell) -> None:
    session = shell.open(shell.new("x"))
    for _ in range(60):
        session = session.fork()
    found = lines(shell("graph"))
    assert len(found) == 61 and found[2].startswith("   └─ ")


def test_diff(family: tuple[Shell, str]) -> None:
    shell, root = family
    assert lines(named(shell("diff", "strict", "lenient"), shell)) == [
        "--- strict strict@7",
        "+++ lenient lenient@7",
        "messages: 1 in common",
        "- critic: Reject them.",
        "+ assistant: Clamp them.",
        "facts:",
        '- verdict = "reject"',
        '+ verdict = "clamp"',
        "cost: 0 tokens, $0.0000 against 0 tokens, $0.0000",
    ]
    assert shell("diff", "strict..lenient") == shell("diff", "strict", "lenient")
    found = shell.json("diff", "strict", "lenient")
    assert found.keys() == {
        "left",
        "right",
        "different",
        "same_story",
        "messages",
        "calls",
        "facts",
        "validation",
        "files",
        "usage",
    }
    assert (found["left"]["label"], found["right"]["label"], found["different"]) == (
        "strict",
        "lenient",
        True,
    )
    assert found["facts"]["verdict"] == {
        "left": "reject",
        "right": "clamp",
        "left_there": True,
        "right_there": True,
    }
    assert found["messages"]["common"] == 1 and found["messages"]["left"][0].keys() == MESSAGE
    assert shell.json("diff", root, root)["different"] is False
    since = shell.json("diff", root)
    assert (since["left"]["place"], since["right"]["place"]) == (1, 8) and len(
        since["messages"]["right"]
    ) == 4


# ── branching ────────────────────────────────────────────────────────────────────────────────


def test_fork(shell: Shell) -> None:
    root = shell.new("one")
    shell("say", root, "two")
    found = shell.json("fork", f"{root}@2", "early", "--budget-tokens", "5")
    assert (found["label"], found["place"], found["parent"]) == (
        "early",
        3,
        {"id": shell.open(root).id, "place": 2},
    )
    assert shell.open("early").text == "one" and shell.open("early").budget.limits == Budget(
        tokens_max=5
    )
    assert lines(named(shell("fork", root), shell))[0].endswith(f"forked from {'root'}@3")
    assert "cannot be a name" in shell.error(2, "fork", root, "a@b")


@pytest.mark.parametrize("arguments", [("@", "2"), ("@", "-1"), ("@@2",), ("@@-1",)])
def test_rewind(shell: Shell, arguments: tuple[str, ...]) -> None:
    session = shell.new("one")
    shell("say", session, "two")
    shell(
        "rewind",
        *(session + each[1:] if each[0] == "@" else each for each in arguments),
        "--reason",
        "no",
    )
    now = shell.open(session)
    assert (now.text, now.seq) == ("one", 4)
    assert lines(shell("log", "-n", "1", "--oneline")) == [f"{session}@4  rewound to 2: no"]
    assert "rewind to an earlier event" in shell.error(2, "rewind", session)
    assert "not a number" in shell.error(2, "rewind", session, "back")


def test_merge(family: tuple[Shell, str]) -> None:
    shell, root = family
    assert "has all of it already: nothing was written" in shell("merge", root, "strict")
    assert shell.json("merge", root, "strict")["place"] == 8
    shell("fact", "strict", "more", '{"a": [1]}')
    assert shell.json("merge", root, "strict")["place"] == 9
    assert shell.open(root).facts["more"] == {"a": [1]}


def test_merge_conflict_shows_the_command_that_settles_it(shell: Shell) -> None:
    root = shell.new("x")
    for label, value in (("strict", "reject it"), ("lenient", "42")):
        shell("fork", root, label)
        shell("fact", label, "it's a key", value)
        shell("fact", label, "a=b", value)
    said = shell.error(8, "merge", root, "strict", "lenient", "--as", "human:eve")
    assert lines(said) == [
        f"plait: cannot merge into {root}: the branches disagree. Nothing was written.",
        "",
        "  it's a key",
        '    strict   "reject it"',
        "    lenient  42",
        "  a=b",
        '    strict   "reject it"',
        "    lenient  42",
        "",
        "Choose a value for each, as here, or leave it out with --drop KEY:",
        f"""  plait merge {root} strict lenient --resolve 'it'"'"'s a key="reject it"' --resolve 'a=b="reject it"' --as human:eve""",  # noqa: E501
    ]
    shell(*shlex.split(lines(said)[-1])[1:])
    assert dict(shell.open(root).facts) == {"it's a key": "reject it", "a=b": "reject it"}
    assert shell.open(root).events[-1].header.actor == "human:eve"


def test_merge_that_drops(shell: Shell) -> None:
    root = shell.new("x")
    for label, value in (("a", "1"), ("b", "2")):
        shell("fork", root, label)
        shell("fact", label, "k", value)
    shell("merge", root, "a", "b", "--drop", "k")
    assert "k" not in shell.open(root).facts
    assert "needs no choice" in shell.error(
        2, "merge", root, shell.json("fork", "a")["short"], "--resolve", "z=1"
    )


def test_merge_with_a_base(shell: Shell) -> None:
    base, other = shell.new("base"), shell.new("other")
    shell("fact", other, "k", "v")
    assert "share no place" in shell.error(8, "merge", base, other)
    shell("merge", base, other, "--base", base)
    assert shell.open(base).facts["k"] == "v"


# ── recording ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        ("true", True),
        ("null", None),
        ('"42"', "42"),
        ("[1, 2]", [1, 2]),
        ("plain words", "plain words"),
        ("NaN", "NaN"),
        ("", ""),
    ],
)
def test_a_value_is_json_or_text(shell: Shell, text: str, value: Any) -> None:
    session = shell.new("x")
    shell("fact", session, "k", text)
    shell("decide", session, "d", text)
    assert shell.open(session).facts["k"] == value == shell.open(session).facts.decisions["d"]


def test_say(shell: Shell, tmp_path: Path) -> None:
    session = shell.new("x")
    (tmp_path / "notes.txt").write_text("content")
    (tmp_path / "dot.png").write_bytes(b"png")
    files = ["--file", str(tmp_path / "notes.txt"), "--file", str(tmp_path / "dot.png")]
    found = shell.json("say", session, "look", *files, "--role", "assistant", "--name", "bot")
    assert found["place"] == 3
    message = shell.open(session).messages[-1]
    assert (message.text, message.role, message.name) == (
        "look\n[file: notes.txt]\n[image: image/png]",
        "assistant",
        "bot",
    )
    shell("say", session, "--file", str(tmp_path / "notes.txt"))
    assert "Nothing to say" in shell.error(2, "say", session)
    assert "cannot be read" in shell.error(2, "say", session, "x", "--file", str(tmp_path / "none"))
    assert shell.error(2, "say", session, "x", "--role", "robot")


def test_note_todo_and_settle(shell: Shell) -> None:
    session = shell.new("x")
    assert shell("note", session, "it is green") == f"{session}@3  found: it is green\n"
    assert (
        shell("todo", session, "why green?", "--kind", "question")
        == f"{session}@4  question: why green?\n"
    )
    assert shell.json("todo", session, "paint it")["place"] == 5
    assert [each.kind for each in shell.open(session).pending.values()] == ["question", "step"]
    key = next(iter(shell.open(session).pending))
    shell("settle", session, key, "because of copper")
    shell("settle", session, "paint it")
    assert not shell.open(session).pending
    assert "has no pending work" in shell.error(3, "settle", session, "paint it")


def test_life(shell: Shell) -> None:
    session = shell.new("x")
    for command, status in (
        ("pause", "paused"),
        ("unpause", "open"),
        ("close", "closed"),
        ("archive", "archived"),
    ):
        assert shell.json(command, session, "--reason", f"to {command}")["status"] == status
    assert [change.reason for change in shell.open(session).lineage.statuses] == [
        "",
        "to pause",
        "to unpause",
        "to close",
        "to archive",
    ]
    assert shell("pause", shell.new("y")).endswith("  paused\n")


# ── on a terminal ────────────────────────────────────────────────────────────────────────────


def test_a_terminal_gets_headings_ages_and_hints(family: tuple[Shell, str]) -> None:
    _, root = family
    found = lines(on_a_terminal("ls", NO_COLOR="1"))
    assert found[0] == "session     label    title           status  last      events"
    assert re.search(r"open +just now +\d+$", found[1])
    assert [line[:2] for line in found[1:4]] == [root[:2], "└ ", "└ "]
    assert lines(on_a_terminal("fork", root, "new", NO_COLOR="1"))[1].startswith("  plait say ")
    assert ESCAPE in on_a_terminal("ls") and ESCAPE not in on_a_terminal("ls", NO_COLOR="1")
    assert "  │   Reject them." in lines(on_a_terminal("show", root, NO_COLOR="1"))
    assert "Reject them." in on_a_terminal("diff", "strict", "lenient", NO_COLOR="1")
    assert "nothing is wrong" in on_a_terminal("verify")


@pytest.mark.ci
def test_a_terminal_is_not_overrun_and_a_pipe_is_not_cut(shell: Shell) -> None:
    long = "a long text, 日本語, " * 40
    session = shell.new(long)
    for command in (
        ["ls"],
        ["log"],
        ["log", "--graph"],
        ["log", "--oneline"],
        ["find", "long"],
        ["why", session],
        ["graph"],
        ["show"],
    ):
        for width in (40, 60, 120):
            assert (
                max(map(cell_len, on_a_terminal(*command, width=width, NO_COLOR="1").splitlines()))
                <= width
            ), command
    for command in (
        ["ls"],
        ["log"],
        ["log", "--graph"],
        ["log", "--oneline"],
        ["find", "long"],
        ["why", session],
        ["show"],
    ):
        assert long.strip() in shell(*command), command
    assert lines(on_a_terminal("find", "LONG", width=60, NO_COLOR="1"))


def test_a_long_log_on_a_terminal_ends_with_how_to_see_more(shell: Shell) -> None:
    session = shell.open(shell.new("x"))
    for number in range(60):
        session = session.say(f"message {number}")
    found = lines(on_a_terminal("log", "--events", NO_COLOR="1"))
    assert (
        len(found) == 51
        and found[-1] == f"… and older ones: plait log {session.short} --events -n 1000"
    )
    assert len(lines(on_a_terminal("log", "--events", "-n", "55", NO_COLOR="1"))) == 55
    assert "older ones" in lines(on_a_terminal("log", "--graph", NO_COLOR="1"))[-1]
    assert len(lines(shell("log"))) == 62


def test_long_messages_are_shortened_on_a_terminal_only(shell: Shell) -> None:
    shell.new("\n".join(f"line {number}" for number in range(100)))
    assert "… 89 more lines" in on_a_terminal("show", NO_COLOR="1")
    assert "line 99" in shell("show")


# ── the whole ────────────────────────────────────────────────────────────────────────────────


def test_verify(family: tuple[Shell, str]) -> None:
    shell, root = family
    # the last with the branches it merged
    for arguments in (["verify"], ["verify", "--state"], ["verify", root]):
        first, head, *parts = shell(*arguments).splitlines()
        assert first == "3 sessions, 14 events: nothing is wrong" and head == "not checked:"
        assert all(part.startswith("  - ") for part in parts)
        last = "; ".join(parts)
        assert ("only --state folds" in last) == ("--state" not in arguments)
        assert ("only one session was asked for" in last) == (root in arguments)
        for width in (80, 120):
            told = on_a_terminal(*arguments, width=width).splitlines()
            assert max(map(cell_len, told)) <= width and "not checked:" in told
    found = shell.json("verify", "strict", "--state")
    skipped = found.pop("not_checked")
    assert (found.pop("sessions"), found.pop("other_logs"), found.pop("events")) == (3, 0, 14)
    assert found == {"ok": True, "state": True, "faults": []}
    told = shell("verify", "strict", "--state")
    assert all(f"  - {each['what']} ({each['why']})\n" in told for each in skipped)
    assert [list(each) for each in shell.jsonl("verify")] == [["not_checked"]]


def test_a_big_session_is_quick(shell: Shell) -> None:
    commands = (
        ["log"],
        ["log", "--graph"],
        ["show", "-n", "1"],
        ["ls"],
        ["show"],
        ["find", "message 7"],
        ["why", "@", "50"],
    )
    commands = (*commands, ["influence", "@", "2"], ["graph"], ["verify"])
    session, calls = shell.open(shell.new("x", "--title", "Big")), list[dict[str, int]]()
    for size in (100, 400):
        for number in range(session.seq, size):
            session = session.say(f"message {number}")
        assert all(shell(*command) for command in commands)  # what is read once is read by now
        calls.append(
            {
                " ".join(command): count_calls(lambda command=command: shell(*command))
                for command in commands
            }
        )
    # linear is 4
    assert {
        command: work for command, work in calls[1].items() if work > 6 * calls[0][command]
    } == {}
    assert len(lines(shell("log"))) == 400 and len(lines(shell("log", "--graph"))) == 400
    assert shell.json("show", "-n", "1")["message_count"] == 399


def test_help_for_everything(shell: Shell) -> None:
    from plait_shell.groups import load_command
    from plait_shell.table import SECTIONS

    within = [
        (entry.name, *more)
        for entries in SECTIONS.values()
        for entry in entries
        for more in [(sub,) for sub in getattr(load_command(entry), "commands", ())] or [()]
    ]
    for names in within:
        text = shell(*names, "--help")
        is_talk = names[0] in (
            "debug",
            "worker",
            "demo",
            "completion",
            "mcp",
        )  # they print no document
        names_stores = names[0] in ("copy", "migrate", "deploy", "demo", "completion")
        assert ("--json" in text or is_talk) and ("--store" in text or names_stores)


def test_how_a_session_is_written_can_be_chosen_and_seen(shell: Shell) -> None:
    session = shell.new("x", "--durability", "async")
    assert shell.json("show", session)["durability"] == "async"
    assert "durability  async" in shell("show", session)
    assert "durability" not in shell("show", shell.new("y"))
    assert "'fast' is not one of" in shell.error(2, "new", "x", "--durability", "fast")


def test_a_file_that_cannot_be_looked_through_is_unverified_too(shell: Shell) -> None:
    shell.new("x " * 2000)
    open_store(shell.address).close()
    path = Path(shell.address.partition(":")[2]) / "store.db"
    path.write_bytes(path.read_bytes()[:50_000])
    result = shell.run("verify")
    assert result.exit_code == 6 and "the store" in result.output


def test_messages_that_wait_are_shown(shell: Shell) -> None:
    name = shell.new("t")
    session = shell.open(name)
    assert "wait for an answer" not in shell("show", name)
    assert shell.json("show", name)["queue"] == []
    echo = Agent("Say it.", model=ScriptedModel(["ok"]), name="echo")
    for words, key in (("And with\ncoupons?", "r-1"), ("Hello?", "")):
        TurnClient.post(session, words, echo, key, "human:bo", NOBODY).release()
    page = shell("show", name)
    assert "2 messages wait for an answer\n" in page and "key r-1" in page
    assert "human:bo" in page and "its client is gone" in page
    document = shell.json("show", name)
    assert [turn["text"] for turn in document["queue"]] == ["And with\ncoupons?", "Hello?"]
    first, second = document["queue"]
    assert (first["actor"], first["key"], second["key"]) == ("human:bo", "r-1", None)
    assert not first["attended"] and document["queued"] == 2
    assert "interrupted, 2 queued" in shell("ls")
    assert [each["queued"] for each in shell.json("ls")["sessions"]] == [2]


def test_a_picture_that_is_cut_keeps_the_lanes_that_go_on(shell: Shell) -> None:
    session = shell.open(shell.new("x")).say("root")
    branch = session.fork("strict")
    for number in range(5):
        branch = branch.say(f"message {number}")
    merged = session.say("own").merge(branch)
    whole = shell("log", merged.short, "--graph", "--oneline").splitlines()
    cut = shell("log", merged.short, "--graph", "--oneline", "-n", "4").splitlines()
    assert [line.split()[0] for line in cut[:2]] == ["◆", "├─╮"]
    assert [line.split(merged.short)[0].rstrip() for line in cut] == [
        line.split(merged.short)[0].rstrip() for line in whole[: len(cut)]
    ]
