"""The demo as one sees it: every figure on the screen is that of the session."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from plait import Session, open_store
from plait.cli import main
from plait.demo import program
from plait.demo.ending import command_for_path
from plait.event import Event
from plait.event import kinds as k
from plait.session.audit import Audit
from plait.view.built import is_page_built
from tests.cli.shell import on_a_terminal
from tests.demo.runs import DemoRun, check_nothing_left, neutral, run_demo
from tests.support import ROOT

LINES_MAX = 24  # of a terminal: no scene is longer


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    """A demo without waits."""
    return run_demo(tmp_path_factory.mktemp("demo"), "--pace", "0")


@pytest.fixture(scope="module")
def events(shown: DemoRun) -> list[tuple[int, Event]]:
    """All events of its store, in the order of their commits."""
    return list(open_store(shown.path / ".plait").feed())


def of_run(shown: DemoRun, events: list[tuple[int, Event]]) -> list[tuple[int, Event]]:
    run = shown.session.runs[0].id
    return [(number, event) for number, event in events if event.header.run == run]


def test_it_ends_well_and_leaves_its_folder(shown: DemoRun) -> None:
    assert (shown.code, shown.errors) == (0, "")
    assert "the model is a script, everything else is real" in shown.screen
    last = shown.screen.rstrip().splitlines()[-1]
    assert last.startswith("look at it: ") and last.endswith("plait view @")
    assert is_page_built() == ("make viewer" not in last)
    left = {path.name for path in shown.path.iterdir()}
    assert left == {".plait", "demo.py", "outside.txt", "shop", "tampered", "tracker.txt"}
    names = {path.name for path in (shown.path / "shop").iterdir()}
    assert names == {"ISSUE.md", "cart.py", "test_cart.py"}
    assert (shown.path / "demo.py").read_text() == Path(program.__file__).read_text()
    check_nothing_left(shown.folder)


def test_no_scene_is_longer_than_a_terminal(shown: DemoRun) -> None:
    scenes = re.split(r"\n(?=\d  |  claim )", shown.screen)
    assert len(scenes) == 10
    assert max(scene.count("\n") for scene in scenes) <= LINES_MAX


def test_the_take_up_is_counted(shown: DemoRun, events: list[tuple[int, Event]]) -> None:
    own = of_run(shown, events)
    (number, resumed), *_ = [each for each in own if isinstance(each[1].body, k.RunResumed)]
    before = [event for at, event in own if at < number]
    after = {event.header.call for at, event in own if at > number and is_request(event)}
    effects = {
        event.header.call
        for event in before
        if isinstance(body := event.body, k.ToolRequested) and body.effect != "pure"
    }
    replies = {e.header.call for e in before if isinstance(e.body, k.ModelReplied)}
    outcomes = {e.header.call for e in before if isinstance(e.body, k.ToolReturned)} & effects
    told = (
        f"  resumed at event {resumed.seq}; {len(replies & after)} of {len(replies)} model calls"
        f" and {len(outcomes & after)} of {len(outcomes)} effects repeated\n"
    )
    assert told in shown.screen
    assert (len(replies & after), len(outcomes & after)) == (0, 0)
    assert len(replies) >= 6 and len(outcomes) >= 5
    assert shown.table["a killed run goes on"][0] == f"resumed at event {resumed.seq}"
    lines = Counter((shown.path / "outside.txt").read_text().splitlines())
    assert max(lines.values()) == 1
    assert shown.table["nothing is done twice"][0] == "0 repeated"
    # the call in the middle was settled by its probe, and the comment is there once
    (settled,) = [event for _, event in own if isinstance(event.body, k.ToolResolved)]
    comments = (shown.path / "tracker.txt").read_text().splitlines()
    assert len(comments) == 2 and settled.header.call not in after - effects


def is_request(event: Event) -> bool:
    return isinstance(event.body, (k.ModelAsked, k.ToolRequested))


def test_the_table_is_counted(shown: DemoRun, events: list[tuple[int, Event]]) -> None:
    own = [event for _, event in of_run(shown, events)]
    verdicts = [e.body.passed for e in own if isinstance(e.body, k.ValidationRecorded)]
    counts = Counter(event.kind for event in own)
    session = shown.session
    other = Session.open("zero", store=session.store)
    replies = [event for event in other.events if event.kind == "ModelReplied"]
    line = session.files.blame("cart.py")[6]
    assert {claim: figure for claim, (figure, _) in shown.table.items()} == {
        "a killed run goes on": "resumed at event 31",
        "nothing is done twice": "0 repeated",
        "patches are tested": (f"{verdicts.count(False)} rejected, {verdicts.count(True)} passed"),
        "branches are merged": f"{counts['Merged']} of {counts['ForkedFrom']} merged",
        "risky calls ask first": (
            f"{counts['ApprovalRequested']} asked, {counts['ApprovalGranted']} allowed"
        ),
        "cart.py:6 has a reason": f"by {line.branch}@{line.seq}",
        "what if, in a branch": f"{len(replies)} for {counts['ModelReplied']} model calls",
        "the record is whole": f"{len(events)} events, 0 faults",
        "a change is found": f"at {session.short}@30",
    }
    assert session.events[29].kind == "ValidationRecorded"


def test_the_commands_of_the_table_show_it_again(
    shown: DemoRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shown.path)
    monkeypatch.delenv("PLAIT_STORE", raising=False)
    expected = {
        "a killed run goes on": r"@31 +taken up again \(after a kill\)",
        "patches are tested": r"tests failed(.|\n)+tests failed(.|\n)+tests passed",
        "branches are merged": r"clamp .+merged into \w+@\d+",
        "risky calls ask first": r"service:demo  shell command=\"rm ISSUE\.md\": allowed",
        "cart.py:6 has a reason": r"clamp@39",
        "what if, in a branch": r"Let it stop at zero",
        "the record is whole": r"nothing is wrong",
        "a change is found": r"@30 .+the body of event 30 hashes to",
    }
    for claim, (_, command) in shown.table.items():
        words, _, wanted = command.partition(" | grep ")
        if words.startswith("plait "):
            code = 6 if "tampered" in words else 0
            result = CliRunner().invoke(main, words.split()[1:], catch_exceptions=False)
            assert result.exit_code == code, f"{command}: {result.output}"
            lines = [line for line in result.output.splitlines() if wanted in line]
            assert re.search(expected[claim], "\n".join(lines)), f"{command}: {lines}"
    assert shown.table["nothing is done twice"][1] == "sort outside.txt | uniq -d"


def test_the_proofs_fit_on_a_terminal_of_eighty(
    shown: DemoRun, events: list[tuple[int, Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shown.path)
    monkeypatch.delenv("PLAIT_STORE", raising=False)
    merged = on_a_terminal("graph", "@", width=80, NO_COLOR="1")
    assert re.search(rf"clamp .+from 30, merged into {shown.session.short}@\d+", merged)
    allowed = on_a_terminal("inbox", "@", "--all", width=80, NO_COLOR="1")
    assert 'shell command="rm ISSUE.md": allowed' in allowed
    sessions = len(Session.list(store=shown.session.store))
    others = len({event.log for _, event in events}) - sessions
    assert f"{len(events)} events in {sessions} sessions and {others} inboxes" in shown.screen
    whole = CliRunner().invoke(main, ["verify"], catch_exceptions=False).output
    assert whole.startswith(f"{sessions} sessions and {others} other logs, {len(events)} events:")


def test_why_and_what_if_are_those_of_the_session(shown: DemoRun) -> None:
    session = shown.session
    other = Session.open("zero", store=session.store)
    assert re.search(
        r"^  cart\.py:6   return max\(0, sum\(prices\) - coupon\)$", shown.screen, re.M
    )
    assert re.search(r"^  written by  edit of repair/clamp/coder, clamp@39$", shown.screen, re.M)
    assert re.search(r"^  having seen the note, @7; ISSUE.md, @12; tests failed, @30$",
                     shown.screen, re.M)  # fmt: skip
    assert re.search(r"^  asked by    human:\S+, @2: Checkout goes negative", shown.screen, re.M)
    assert session.files.text("cart.py") == other.files.text("cart.py")
    assert "cart.py      mended                   the same file" in shown.screen
    assert "first tests  failed                   passed" in shown.screen
    assert [other.checks.verdicts[0].passed, session.checks.verdicts[0].passed] == [True, False]


def test_a_consent_that_no_person_gave_is_in_no_persons_name(
    shown: DemoRun, events: list[tuple[int, Event]]
) -> None:
    other = Session.open("zero", store=shown.session.store)
    granted = [event for _, event in events if isinstance(event.body, k.ApprovalGranted)]
    assert {shown.session.id, other.id} <= {event.log for event in granted}
    assert {event.actor for event in granted} == {"service:demo"}


def test_the_changed_verdict_is_whole_but_for_its_hash(shown: DemoRun) -> None:
    session = shown.session
    told = f"the verdict {session.short}@30 is changed from failed to passed in a copy"
    assert told in shown.screen
    copy = open_store(shown.path / "tampered" / ".plait")
    try:
        forged = next(copy.read(session.id, 30, 30)).body
        assert isinstance(forged, k.ValidationRecorded) and forged.passed
        first, *_ = Audit(copy).faults()
        assert (first.log, first.seq) == (session.id, 30)
        assert first.what.startswith("the body of event 30 hashes to")
    finally:
        copy.close()


def test_the_readme_shows_what_it_prints(shown: DemoRun) -> None:
    text = (ROOT / "README.md").read_text()
    block = text.partition("```text\n")[2].partition("```")[0]
    there = neutral(shown.screen).splitlines()
    wanted = [line for line in neutral(block).splitlines() if line.strip() not in ("", "…")]
    places = [there.index(line) for line in wanted]
    assert places == sorted(places) and len(places) > 10


def test_what_to_type_first_where_the_shell_finds_no_plait(tmp_path: Path) -> None:
    folder = tmp_path / "clone" / ".venv" / "bin"
    folder.mkdir(parents=True)
    clone, other = tmp_path / "clone", tmp_path / "other"
    assert command_for_path(folder, "", clone).startswith("alias plait=")
    for where in (folder, other):
        where.mkdir(exist_ok=True)
        (where / "plait").write_text(f"#!/bin/sh\necho {where.name}\n")
        (where / "plait").chmod(0o755)
    assert command_for_path(folder, f"{folder}:/usr/bin", clone) == ""
    for at in (clone, tmp_path / "other"):
        for before in ("/usr/bin:/bin", f"{other}:/usr/bin:/bin"):  # none, and another program
            typed = command_for_path(folder, before, at)
            done = subprocess.run(
                ["/bin/sh", "-c", f"{typed}; cd /; plait"],
                cwd=at,
                env={"PATH": before},
                capture_output=True,
                text=True,
            )
            assert done.stdout == "bin\n", typed
    assert command_for_path(folder, "", clone) == 'export PATH="$PWD/.venv/bin:$PATH"'


def test_the_commands_at_the_end_are_found_after_it(shown: DemoRun) -> None:
    """In the shell of a newcomer: the last lines are typed as they are."""
    lines = [
        line.partition("  # ")[0].strip()
        for line in shown.screen.partition("shown in ")[2].splitlines()[1:-1]
    ]
    typed = "\n".join(["set -e", *lines[:-1]])  # the last one runs it once more
    done = subprocess.run(
        ["/bin/sh", "-c", typed],
        cwd=shown.folder,
        env={**os.environ},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and "taken up again" in done.stdout, done.stderr
