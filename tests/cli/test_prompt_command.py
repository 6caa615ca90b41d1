"""`plait show S@k --prompt`: what was sent, as it was sent, or a loud no."""

from __future__ import annotations

import pytest

from plait import Agent, Compactor, ScriptedModel, Session, ToolCall
from plait.event.kinds import ModelAsked
from plait.ids import Digest
from plait.runtime.appends import append_events
from plait.session.ports import Act, Draft
from tests.cli.shell import Shell, shell
from tests.support import word_count

__all__ = ["shell"]


@pytest.fixture
def worked(shell: Shell) -> Session:
    model = ScriptedModel([ToolCall("word_count", text="to be\x1b[31m or"), "Three."])
    agent = Agent(
        "Count, please.",
        model=model,
        tools=[word_count],
        name="counter",
        parameters={"temperature": 0},
    )
    session = agent(Session("How many?\nIn all.", store=shell.address).fact("lang", "en"))
    session = Compactor(rule=lambda session, messages: "They counted.", keep=1)(session)
    return Agent("Answer.", model=ScriptedModel(["Yes."]), name="other")(session.say("Sure?"))


def asks(session: Session) -> list[int]:
    return [event.seq for event in session.events if event.kind == "ModelAsked"]


def test_it_shows_what_was_sent_in_order(shell: Shell, worked: Session) -> None:
    at = asks(worked)[1]
    told = shell("show", f"{worked.short}@{at}", "--prompt")
    spec = next(each for each in shell.json("show", f"{worked.short}@{at}", "--prompt")["tools"])
    assert f"  {spec['name']}  {spec['description'].partition(chr(10))[0]}" in told
    assert "as sent: digest matches" in told and "\x1b" not in told
    order = [
        "Count, please.",
        "word_count",
        '{"temperature":0}',
        "How many?",
        "In all.",
        "(fact lang: en)",
        "calls word_count",
        "returned",
    ]
    places = [told.index(each) for each in order]
    assert places == sorted(places)
    # Any place after it, up to the next ask, shows the same one.
    assert shell("show", f"{worked.short}@{at + 1}", "--prompt") == told


def test_it_is_data_for_programs(shell: Shell, worked: Session) -> None:
    at = asks(worked)[-1]
    found = shell.json("show", worked.short, "--prompt", "--why")
    assert (found["place"], found["as_sent"], found["agent"], found["model"]) == (
        at,
        True,
        "agent:other",
        "scripted",
    )
    assert (
        found["digest"] == found["recorded"]
        and found["instruction"] == "Answer."
        and found["tools"] == []
    )
    texts = [" ".join(part["text"] for part in turn["parts"]) for turn in found["turns"]]
    assert texts == [
        "(what went before, in short) They counted.",
        "(fact lang: en)",
        "[counter] Three.",
        "Sure?",
    ]
    left = {(each["kind"], each["why"].rpartition(" ")[0]) for each in found["left_out"]}
    assert left == {
        (kind, "it left with the compaction at")
        for kind in ("MessageSaid", "ModelReplied", "ToolReturned")
    }
    assert "left_out" not in shell.json("show", worked.short, "--prompt")
    assert "it left with the compaction at" in shell("show", worked.short, "--prompt", "--why")


def test_what_does_not_match_fails_loudly(shell: Shell, worked: Session) -> None:
    asked = ModelAsked("scripted", Digest("0" * 64))
    forged, _ = append_events(worked, [Draft(asked, Act("agent:other", "program", call="c1"))])
    assert "NOT as sent" in shell("show", forged.short, "--prompt", code=6)
    assert shell.json("show", forged.short, "--prompt", code=6)["as_sent"] is False


def test_without_an_ask_there_is_no_prompt(shell: Shell, worked: Session) -> None:
    assert "no model was asked by then" in shell.error(3, "show", f"{worked.short}@1", "--prompt")
    nobody, _ = append_events(
        worked,
        [Draft(ModelAsked("m", Digest("0" * 64)), Act("agent:nobody", "program", call="c1"))],
    )
    assert "is not on record" in shell.error(3, "show", nobody.short, "--prompt")
    assert "--why goes with --prompt" in shell.error(2, "show", worked.short, "--why")
    assert "--messages without it" in shell.error(2, "show", worked.short, "--prompt", "-n", "2")
