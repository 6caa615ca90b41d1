"""The program of `plait demo`: agents mend shop/cart.py, and only patches whose tests pass count.

`plait demo` copies this file to plait-demo/demo.py. In that folder you can read it, change it, and
run it:

    plait run demo.py:Repair -i "Checkout goes negative: see ISSUE.md" --project shop

The model is a script, and needs no key. `--model openai:gpt-5` asks a real one instead. Everything
else is real: processes, sandboxes, tests, and the comments in tracker.txt, which stands for an
issue tracker out in the world.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from plait import Agent, Happened, Memory, ScriptedModel, Session, ToolCall, Workflow, tool
from plait.model.base import OnDelta, Reply, Request
from plait.policy import Ask, Policy
from plait.sandbox import Sandbox
from plait.tool import Result
from plait.tools import edit_file, read_file, shell

HERE = Path(__file__).resolve().parent
SHOP, TRACKER, OUTSIDE = HERE / "shop", HERE / "tracker.txt", HERE / "outside.txt"
# The isolation of tools; "": the best one that there is. `plait demo` writes another one here if
# it has to do with less.
ISOLATION = ""

OLD = "    return sum(prices) - coupon"
ABSOLUTE = "    return abs(sum(prices) - coupon)"
CLAMPED = "    return max(0, sum(prices) - coupon)"
REFUSED = (
    "    if coupon > sum(prices):\n"
    '        raise ValueError("the coupon is larger than the cart")\n'
    "    return sum(prices) - coupon"
)


def note_outside(what: str) -> None:
    """Note in a file outside of the log that a model or a tool really ran: a line each time."""
    with OUTSIDE.open("a") as file:
        file.write(f"{what}\n")


class Script(ScriptedModel):
    """A model that reads from a script. It waits before each reply, so that a person can follow."""

    def __init__(
        self, agent: str, script: Sequence[str | ToolCall] | Callable[..., object]
    ) -> None:
        super().__init__(script, name="a script")  # pyright: ignore[reportArgumentType]
        self.agent = agent

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        replies = sum(1 for failure in request.outcomes if not failure)
        note_outside(f"model {self.agent} {request.session.short}#{replies + 1}")
        time.sleep(float(os.environ.get("DEMO_PACE_S", "0")))
        return super().ask(request, on_delta)


# ── tools ────────────────────────────────────────────────────────────────────────────────────


@tool(effect="workspace")
def edit(path: str, old: str, new: str, sandbox: Sandbox, idempotency_key: str) -> Result:
    """Replace a text in a file by another one.

    Args:
        path: relative to the workspace
        old: the text to replace, exactly as it stands there
        new: the text to put in its place
    """
    note_outside(f"tool edit {idempotency_key[:12]}")
    return edit_file(path=path, old=old, new=new, sandbox=sandbox)


@tool(effect="workspace")
def run_tests(sandbox: Sandbox, idempotency_key: str) -> Result:
    """Run the tests."""
    note_outside(f"tool run_tests {idempotency_key[:12]}")
    return shell(command="python3 -B -m unittest -q 2>&1", sandbox=sandbox)


def find_comment(idempotency_key: str) -> Happened | None:
    """Look at the tracker for a comment, after a crash. The key is that of the call."""
    if TRACKER.exists() and idempotency_key in TRACKER.read_text():
        return Happened("posted")
    return None


@tool(effect="probeable", probe=find_comment)
def comment(text: str, idempotency_key: str) -> str:
    """Post a comment to the issue tracker, which cannot be taken back."""
    note_outside(f"tool comment {idempotency_key[:12]}")
    with TRACKER.open("a") as tracker:
        tracker.write(f"{text}  [{idempotency_key}]\n")
    if os.environ.get("DEMO_HOLD", "-") in text:
        # `plait demo` kills the process here: the comment is posted, and the log does not know
        time.sleep(60)
    return "posted"


# ── workflows ────────────────────────────────────────────────────────────────────────────────


class Validator(Workflow):
    """Runs the tests in a clean sandbox, whatever an agent says about them."""

    purpose = "validate"

    def forward(self, session: Session) -> Session:
        session = session.to("local", clean=True).use(run_tests)
        passed = session.effects[-1].exit_code == 0
        return session.checks.record("tests", passed, evidence=session.events[-1])


class Strategy(Workflow):
    """Mends the cart in one way, in a branch of its own."""

    def __init__(self, label: str, goal: str, new: str, words: str) -> None:
        self.label = label
        script = Script(
            f"repair/{label}/coder",
            [ToolCall("edit", path="cart.py", old=ABSOLUTE, new=new), words],
        )
        instruction = f"The tests of cart.py fail. {goal} Edit cart.py, then say it in a sentence."
        self.coder = Agent(instruction, model=script, tools=[read_file, edit])
        self.validator = Validator()

    def forward(self, session: Session) -> Session:
        session = self.coder(session)
        session = session.use(comment, text=f"{self.label}: {session.text}"[:200])
        session = self.validator(session)
        if session.checks.verdicts[-1].passed:
            return session.decide("outcome", "to be merged: its tests pass")
        return session.decide("outcome", "stays a branch: its tests fail")


def first_patch(session: Session) -> object:
    """The script of the first coder: it does what the plan says."""
    if session.effects and session.effects[-1].tool == "edit":
        return "Done: the total is never negative."
    new = ABSOLUTE if "absolute" in session.text else CLAMPED
    return ToolCall("edit", path="cart.py", old=OLD, new=new)


class Repair(Workflow):
    """One attempt; if its tests fail, two more in branches, at the same time. The one whose tests
    pass is merged. A person is asked before a file is removed.
    """

    policy = Policy(Ask("shell", name="a command of an agent"))

    def __init__(self) -> None:
        plan = [ToolCall("read_file", path="ISSUE.md"), "Use the absolute value."]
        self.planner = Agent(
            "Read ISSUE.md and cart.py. Say in a sentence how to mend cart.py.",
            model=Script("repair/planner", plan),
            tools=[read_file],
            memory=Memory(),
        )
        self.coder = Agent(
            "Edit cart.py as planned, then say in a sentence what you did.",
            model=Script("repair/coder", first_patch),
            tools=[read_file, edit],
        )
        self.validator = Validator()
        self.refuse = Strategy(
            "refuse",
            "Refuse a coupon that is larger than the cart.",
            REFUSED,
            "It is refused.",
        )
        self.clamp = Strategy("clamp", "Let the total stop at zero.", CLAMPED, "It stops at zero.")
        tidy = [ToolCall("shell", command="rm ISSUE.md"), "cart.py is mended."]
        self.tidy = Agent(
            "Remove ISSUE.md with the shell, then say in a sentence what was done.",
            model=Script("repair/tidy", tidy),
            tools=[shell],
        )

    def forward(self, session: Session) -> Session:
        session = session.to("local", str(SHOP), isolation=ISOLATION)
        session = self.validator(self.coder(self.planner(session)))
        if not session.checks.verdicts[-1].passed:
            with ThreadPoolExecutor() as pool:
                works = [
                    pool.submit(strategy, session.fork(strategy.label))
                    for strategy in (self.refuse, self.clamp)
                ]
            passing = [
                branch for branch in (work.result() for work in works)
                if branch.checks.verdicts[-1].passed
            ]  # fmt: skip
            if not passing:
                return session.decide("outcome", "nothing is merged: no tests pass")
            session = session.merge(passing[0])
        return self.tidy(session)
