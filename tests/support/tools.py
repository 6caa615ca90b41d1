"""Tools that an agent of a test has, and what a tool's result shows."""

from __future__ import annotations

from typing import Any

from plait import tool
from plait.sandbox import Sandbox
from plait.tool import Result
from tests.support.runs import RAN


@tool
def word_count(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


@tool
def double(number: int) -> int:
    """Twice a number."""
    return 2 * number


@tool(effect="pure")
def read(name: str) -> str:
    """Read a file."""
    RAN.append(name)
    return f"the words of {name}"


@tool(effect="workspace")
def sh(command: str, sandbox: Sandbox) -> Result:
    """Run a command."""
    ran = sandbox.exec(["sh", "-c", command])
    return Result([ran.output.view() or "(nothing)"], ran.exit_code)


def result_text(result: Result) -> str:
    """The text that a result begins with."""
    assert isinstance(result.parts[0], str)
    return result.parts[0]


def result_delta(result: Result) -> dict[str, Any]:
    """Return the change that a result reports."""
    assert isinstance(result.delta, dict)
    return result.delta
