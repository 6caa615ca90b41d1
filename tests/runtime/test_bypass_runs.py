"""Acts around the session in a run are on its log, once; acts of a tool are the tool's."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from plait import (
    Agent,
    Parallel,
    Parked,
    ScriptedModel,
    Session,
    ToolCall,
    Workflow,
    replay,
    resume,
    tool,
)
from plait.errors import BypassRefused
from plait.event.kinds import Bypassed
from plait.policy import Ask, Policy


@tool
def write(path: str) -> str:
    """Write a file."""
    Path(path).write_text("by a tool")
    subprocess.run(["true", "in a tool"], check=True)
    return "written"


class Sneaky(Workflow):
    """Does something behind the session's back, then something on record."""

    def __init__(
        self,
        sneak: Callable[[], object],
        how: Literal["record", "warn", "refuse"] | None = None,
        path: str = "",
    ) -> None:
        self.bypass = how
        self.worker = Agent(
            "Write.",
            model=ScriptedModel([ToolCall("write", path=path), "done"]),
            tools=[write],
            policy=Policy(Ask("write")),
        )
        self._sneak = sneak

    def forward(self, session: Session) -> Session:
        self._sneak()
        return self.worker(session)


def seen(session: Session) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for event in session.events:
        if isinstance(event.body, Bypassed):
            detail: Any = event.body.detail
            found.append((event.body.what, detail["target"]))
    return found


def through(workflow: Callable[[], Workflow]) -> Session:
    """Run it, wait for consent, resume it."""
    with pytest.raises(Parked) as caught:
        workflow()(Session("go"))
    session = caught.value.session
    session.inbox.approve(session.inbox.waiting[0], actor="human:boss")
    return resume(session, workflow())


def test_files_and_processes_are_on_the_log_once_and_a_tools_are_not(tmp_path: Path) -> None:
    def sneak() -> None:
        (tmp_path / "sneaked").write_text("x")
        (tmp_path / "sneaked").write_text("y")
        subprocess.run(["true", "sneaked"], check=True)

    make = lambda: Sneaky(sneak, path=str(tmp_path / "owned"))  # noqa: E731
    session = through(make)
    assert session.text == "done" and (tmp_path / "owned").read_text() == "by a tool"
    # not again when it was resumed
    assert seen(session) == [("file", str(tmp_path / "sneaked")), ("process", "true sneaked")]
    assert replay(session, make()).head == session.head and seen(session.reload()) == seen(session)


def test_a_connection_is_on_the_log() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def sneak() -> None:
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                pass

        session = through(lambda: Sneaky(sneak, path="/dev/null"))
        assert ("socket", f"127.0.0.1:{port}") in seen(session)


def test_whoever_warns_says_so_and_goes_on(tmp_path: Path) -> None:
    def sneak() -> None:
        (tmp_path / "sneaked").write_text("x")

    with pytest.warns(RuntimeWarning, match="no effect owns"), pytest.raises(Parked) as caught:
        Sneaky(sneak, "warn", str(tmp_path / "owned"))(Session("go"))
    assert (tmp_path / "sneaked").exists() and seen(caught.value.session) == [
        ("file", str(tmp_path / "sneaked"))
    ]


def test_whoever_refuses_lets_nothing_happen(tmp_path: Path) -> None:
    def sneak() -> None:
        (tmp_path / "sneaked").write_text("x")

    session = Session("go")
    with pytest.raises(BypassRefused):
        Sneaky(sneak, "refuse")(session)
    session = session.reload()
    assert not (tmp_path / "sneaked").exists() and [run.status for run in session.runs] == [
        "failed"
    ]
    assert seen(session) == [("file", str(tmp_path / "sneaked"))]
    # taken up when the cause is mended
    fixed = Sneaky(lambda: None, "refuse", str(tmp_path / "owned"))
    with pytest.raises(Parked) as caught:
        resume(session, fixed)
    caught.value.session.inbox.approve(caught.value.session.inbox.waiting[0], actor="human:boss")
    assert resume(session, Sneaky(lambda: None, "refuse", str(tmp_path / "owned"))).text == "done"


def test_a_process_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BypassRefused):
        Sneaky(lambda: subprocess.run(["touch", str(tmp_path / "sneaked")], check=True), "refuse")(
            Session("go")
        )
    assert not (tmp_path / "sneaked").exists()


class Side(Workflow):
    def __init__(self, path: Path) -> None:
        self._path = path

    def forward(self, session: Session) -> Session:
        self._path.write_text("x")
        return session.say(self._path.name)


def test_what_branches_do_is_on_the_runs_own_log(tmp_path: Path) -> None:
    def make() -> Parallel:
        return Parallel(a=Side(tmp_path / "a"), b=Side(tmp_path / "b"))

    session = make()(Session("go"))
    assert sorted(seen(session)) == [("file", str(tmp_path / "a")), ("file", str(tmp_path / "b"))]
    assert replay(session, make()).head == session.head


def test_outside_of_a_run_nobody_looks(tmp_path: Path) -> None:
    session = Session("go")
    (tmp_path / "mine").write_text("x")
    session = session.use(write, path=str(tmp_path / "owned"))
    assert seen(session) == []
