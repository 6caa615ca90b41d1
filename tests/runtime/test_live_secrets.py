"""What is told while it happens has secrets hidden as the record has, also where one lies across
two pieces.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait import Agent, ScriptedModel, Session, ToolCall, Workflow, secrets, tool
from plait.calls.model_call import Retry
from plait.combinators import Parallel
from plait.errors import BranchFailed, InvalidValue, ModelFailed, PlaitError, ToolFailed
from plait.event import Event
from plait.event.kinds import Reasoning, Text, Usage
from plait.model.base import (
    Delta,
    Fault,
    OnDelta,
    OutputDelta,
    ReasoningDelta,
    Reply,
    Request,
    Restarted,
    TextDelta,
    ToolDelta,
)
from plait.sandbox import Sandbox
from plait.secrets import HiddenPieces
from tests.support import python, run_forked

pytestmark = pytest.mark.long  # `make quick` leaves these out

CANARY = "sk_live_51+H8x/Qz7~kanarienvogel"
KEY = "-----BEGIN KEY-----\nMIIEabc123def456\nqwertyuiop98765\n-----END KEY-----"
SHOWN = "[secret STRIPE_KEY]"


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    secrets.forget()
    secrets.register(CANARY, "STRIPE_KEY")
    yield
    secrets.forget()


# ── texts in pieces ──────────────────────────────────────────────────────────────────────────


def spellings(text: str) -> dict[str, str]:
    coded = base64.b64encode(f"u:{text}".encode()).decode()
    return {
        "plain": text,
        "hex": text.encode().hex(),
        "base64": coded,
        "base64 in lines": "\n".join(coded[at : at + 64] for at in range(0, len(coded), 64)),
        "JSON in JSON": json.dumps(json.dumps({"key": text})),
        "repr": repr(text),
    }


@pytest.mark.parametrize("secret", [CANARY, KEY])
@pytest.mark.parametrize("spelling", spellings(CANARY))
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_pieces_put_together_are_the_text_as_recorded(
    secret: str, spelling: str, size: int
) -> None:
    secrets.register(KEY, "PEM")
    text = f"before {spellings(secret)[spelling]} after, and sk_live_5 is not all of it"
    pieces = HiddenPieces()
    shown = [pieces.feed(text[at : at + size]) for at in range(0, len(text), size)] + [pieces.end()]
    assert "".join(shown) == secrets.hide_text(text) != text


@given(st.data())
def test_any_cuts_of_any_text_give_what_is_recorded(data: st.DataObject) -> None:
    secrets.register(CANARY, "STRIPE_KEY")
    secrets.register("sk_live_51", "SHORT")
    parts = st.sampled_from(
        [
            CANARY,
            "sk_live_51",
            CANARY[:9],
            "sk_",
            "\n",
            "\\",
            "n",
            " ",
            "word",
            CANARY.encode().hex(),
            *spellings(CANARY).values(),
        ]
    )
    text = "".join(data.draw(st.lists(parts, max_size=6)))
    pieces, shown, at = HiddenPieces(), "", 0
    while at < len(text):
        size = data.draw(st.integers(1, 30))
        shown += pieces.feed(text[at : at + size])
        at += size
    assert shown + pieces.end() == secrets.hide_text(text)


def test_what_cannot_be_a_secret_is_shown_at_once() -> None:
    pieces = HiddenPieces()
    assert pieces.feed("All is well. ") == "All is well. "
    assert (
        pieces.feed("It is: sk_") == "It is:" and pieces.feed("y, not live.") == " sk_y, not live."
    )
    secrets.forget()
    assert pieces.feed("sk_live") == "sk_live"


# ── deltas ───────────────────────────────────────────────────────────────────────────────────


class Leaking:
    """Says the secret in its reasoning, its text and a call, in pieces of so many characters, and
    fails with it first.
    """

    name = "scripted:leaking"

    def __init__(self, size: int, fails: bool = False) -> None:
        self.size, self.fails = size, fails

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        said, thought, given = (
            f"the key is {CANARY}",
            f"I know {CANARY}",
            json.dumps({"n": f"{CANARY}!"}),
        )
        done = any(
            "ToolReturned" in str(turn) or type(turn).__name__ == "Returned"
            for turn in request.turns
        )
        if on_delta is not None:
            for at in range(0, len(thought), self.size):
                on_delta(ReasoningDelta(thought[at : at + self.size]))
            for at in range(0, len(said), self.size):
                on_delta(TextDelta(said[at : at + self.size]))
            on_delta(ToolDelta(0, "look"))
            for at in range(0, len(given), self.size) if not done else ():
                on_delta(ToolDelta(0, "look", given[at : at + self.size]))
        if self.fails and not request.outcomes:
            raise Fault("StreamCut", f"it broke off at {CANARY}", retryable=True, partial=said)
        calls = () if done else (ToolCall("look", n=f"{CANARY}!"),)
        return Reply(
            (Reasoning(thought), Text(said)), calls, "end" if done else "calls", Usage(5, 5)
        )


@tool(effect="pure")
def look(n: str = "") -> str:
    """Look at something."""
    return f"seen {CANARY}"


def heard_of(
    run: Callable[[Callable[[Event | Delta], object]], Session],
) -> tuple[list[Any], Session]:
    heard: list[Any] = []
    session = run(heard.append)
    return heard, session


@pytest.mark.parametrize("size", [1, 3, 11, 500])
@pytest.mark.parametrize("fails", [False, True])
def test_deltas_have_secrets_hidden_wherever_they_are_cut(size: int, fails: bool) -> None:
    agent = Agent(
        "x", model=Leaking(size, fails), tools=[look], retry=Retry(attempts=2, wait_s=0.0)
    )
    heard, session = heard_of(lambda listener: agent(Session("go"), on_event=listener))
    said = [item for item in heard if not isinstance(item, Event)]
    assert CANARY not in "".join(map(repr, heard))
    for kind, field in ((TextDelta, "text"), (ReasoningDelta, "thought"), (ToolDelta, "arguments")):
        whole = "".join(getattr(item, field) for item in said if isinstance(item, kind))
        assert CANARY not in whole and SHOWN in whole and "kanarienvogel" not in whole
    restarts = [at for at, item in enumerate(said) if isinstance(item, Restarted)]
    assert len(restarts) == fails
    assert "".join(item.text for item in said[restarts[0] if restarts else 0 :]) == 2 * session.text
    streamed = [
        item for item in Agent("x", model=Leaking(size), tools=[look]).stream(Session("go"))
    ]
    assert CANARY not in "".join(getattr(item, "text", "") for item in streamed)


@pytest.mark.parametrize("size", [1, 5, 64])
def test_output_as_it_comes_has_secrets_hidden(size: int, tmp_path: Path) -> None:
    from plait.runtime.lent_sandbox import OutputListener

    told, raw = list[str](), list[bytes]()
    heard = OutputListener(told.append, raw.append)
    data = f"größer: {CANARY}\n".encode() + b"\xff\xfe" + CANARY.encode().hex().encode() + b"\n"
    for at in range(0, len(data), size):
        heard(data[at : at + size])
    heard.end()
    assert "".join(told) == f"größer: {SHOWN}\n\ufffd\ufffd{SHOWN}\n"
    assert b"".join(raw) == secrets.hide_bytes(data)


def test_a_command_in_a_run_tells_no_secret_in_two_writes(tmp_path: Path) -> None:
    @tool
    def leak(sandbox: Sandbox) -> int:
        """Print a secret in two pieces."""
        half = len(CANARY) // 2
        told: list[bytes] = []
        code = (
            f"import sys; o=sys.stdout; o.write({CANARY[:half]!r}); o.flush();"
            f" o.write({CANARY[half:]!r} + chr(10)); o.flush()"
        )
        sandbox.exec([sys.executable, "-c", code], on_output=told.append)
        assert CANARY.encode() not in b"".join(told)
        return len(told)

    class Run(Workflow):
        def forward(self, session: Session) -> Session:
            return session.use(leak)

    (tmp_path / "work").mkdir()
    session = Session("go", store=tmp_path / "store").to(
        "local", tmp_path / "work", isolation="host"
    )
    heard, _ = heard_of(lambda listener: Run()(session, on_event=listener))
    output = "".join(item.output for item in heard if isinstance(item, OutputDelta))
    assert output == f"{SHOWN}\n"


# ── errors ───────────────────────────────────────────────────────────────────────────────────


def shown_of(error: BaseException) -> str:
    return f"{error} {error!r} {error.args!r}"


def test_errors_raised_to_the_program_have_secrets_hidden() -> None:
    @tool
    def fails() -> str:
        """Fail."""
        raise ValueError(f"bad key {CANARY}")

    with pytest.raises(ToolFailed) as caught:
        Session("go").use(fails)
    assert CANARY not in shown_of(caught.value) and SHOWN in str(caught.value)
    model = ScriptedModel([Fault("AuthFailed", f"no such key: {CANARY}")])
    with pytest.raises(ModelFailed) as failed:
        Agent("x", model=model)(Session("go"))
    assert CANARY not in shown_of(failed.value) and SHOWN in str(failed.value)

    class Broken(Workflow):
        def forward(self, session: Session) -> Session:
            raise ValueError(f"bad key {CANARY}")

    with pytest.raises(BranchFailed) as branch:
        Parallel({"a": Broken(), "b": Broken()})(Session("go"))
    assert CANARY not in shown_of(branch.value)
    with pytest.raises(PlaitError) as named:
        Session.open(CANARY)
    assert CANARY not in shown_of(named.value)
    assert CANARY not in shown_of(InvalidValue("key", f"{CANARY!r} is none"))


def test_a_secret_that_is_refused_does_not_hide_other_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secrets.from_environment({"PLAIT_SECRETS": "SHORT", "SHORT": "abc"})
    assert "no such thing" in str(InvalidValue("x", "no such thing"))


PROGRAM = """
import os, sys, threading, traceback, warnings
from plait import Agent, ScriptedModel, Secret, Session, Workflow
from plait.model import Fault

KEY = Secret("STRIPE_KEY").value

class Raises(Workflow):
    def forward(self, session):
        warnings.warn(f"careful with {KEY}")
        thread = threading.Thread(target=lambda: 1 / 0 if not KEY else [].index(KEY))
        thread.start(); thread.join()
        print("said", KEY, file=sys.stderr)
        raise ValueError(f"bad key {KEY}")

class Asks(Workflow):
    def __init__(self):
        self.agent = Agent("x", model=ScriptedModel([Fault("AuthFailed", f"no such key: {KEY}")]))
    def forward(self, session):
        return self.agent(session)

def unmade():
    raise RuntimeError(f"cannot be made with {KEY}")
"""


def test_a_fault_that_nobody_caught_is_told_without_secrets(tmp_path: Path) -> None:
    program = f"""
from plait import secrets
from plait.cli import main
from plait.session import Session
secrets.register({CANARY!r}, "STRIPE_KEY")
def fail(*_, **__):
    raise ZeroDivisionError({CANARY!r})
Session.__init__ = fail
main(["new", "x"], prog_name="plait")
"""
    environment = {**os.environ, "PLAIT_STORE": str(tmp_path / "store")}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (
        ran.returncode == 1
        and f"ZeroDivisionError: {SHOWN}" in ran.stderr
        and CANARY not in ran.stderr
    )


@pytest.mark.parametrize("target", ["Raises", "Asks", "unmade", "missing"])
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_the_shell_shows_no_secret_on_stderr(tmp_path: Path, target: str, more: list[str]) -> None:
    (tmp_path / "flow.py").write_text(textwrap.dedent(PROGRAM))
    environment = {
        **os.environ,
        "STRIPE_KEY": CANARY,
        "PLAIT_DEBUG": "1",
        "PLAIT_STORE": str(tmp_path / "store"),
    }
    command = [
        sys.executable,
        "-c",
        "from plait.cli import main; main(prog_name='plait')",
        "run",
        f"flow.py:{target}",
        "-i",
        CANARY,
        *more,
    ]
    ran = run_forked(command, cwd=tmp_path, env=environment)
    assert ran.returncode == (1 if target in ("Raises", "Asks") else 2), ran.stderr
    assert CANARY not in ran.stderr + ran.stdout
    if target in ("Raises", "Asks", "unmade"):
        assert SHOWN in ran.stderr


UNCAUGHT = """
import sys, threading
from plait import Secret, Session, Workflow

secret = Secret("LIVE_KEY", "SUPERSECRETVALUE12345")

class Fails(Workflow):
    def forward(self, session):
        def worker():
            raise ValueError(f"in a thread: {secret.value}")
        thread = threading.Thread(target=worker)
        thread.start()
        thread.join()
        try:
            raise KeyError(secret.value)
        except KeyError as error:
            raise RuntimeError(f"with {secret.value}") from error

Fails()(Session("x", store="memory:"))
"""


def test_a_traceback_that_python_prints_has_secrets_hidden() -> None:
    done = python(UNCAUGHT, check=False)
    assert done.returncode == 1 and "SUPERSECRET" not in done.stderr
    assert done.stderr.count("[secret LIVE_KEY]") >= 3 and "in a thread" in done.stderr
