"""mini-swe-agent from PyPI runs unchanged on a session: every command it runs is an event, with the
files before and after.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from plait import Session
from plait.event.kinds import ToolRequested, ToolReturned
from tests.guests.hosting import ROOT, guest

BROKEN = "def total(prices):\n    return sum(prices[1:])\n"
FIXED = BROKEN.replace("prices[1:]", "prices")
TEST = (
    "from cart import total\n\nassert total([1, 2, 3]) == 6, total([1, 2, 3])\nprint('all is"
    " well')\n"
)
COMMANDS = [
    "cat cart.py",
    "python3 test_cart.py",
    "sed -i 's/prices\\[1:\\]/prices/' cart.py",
    "python3 test_cart.py; echo PAGER=$PAGER",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat cart.py",
]


@pytest.mark.slow
def test_it_edits_tests_and_hands_in_and_all_of_it_is_on_record(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "cart.py").write_text(BROKEN)
    (repo / "test_cart.py").write_text(TEST)
    store = str(tmp_path / "store")
    task = {
        "src": str(ROOT / "src"),
        "store": store,
        "folder": str(repo),
        "commands": COMMANDS,
        "config": str(tmp_path / "config"),
    }
    told = guest("mini-swe-agent", "mini_swe_agent.py", task)

    assert told["ended"] == {"exit_status": "Submitted", "submission": FIXED}
    _, listed, failed, edited, passed = told["said"]
    assert "sum(prices[1:])" in listed and "<returncode>0</returncode>" in listed
    assert "AssertionError: 5" in failed and "<returncode>1</returncode>" in failed
    assert "<returncode>0</returncode>" in edited
    assert "all is well\nPAGER=cat" in passed
    assert told["saved"]["config"]["environment_type"] == "plait.tools.swe.SweEnvironment"

    session = Session.open(told["session"], store=store)
    bodies = [event.body for event in session.events]
    asked = [body.arguments for body in bodies if isinstance(body, ToolRequested)]
    returned = [body for body in bodies if isinstance(body, ToolReturned)]
    assert [str(each["command"]).split("\n", 1)[1] for each in asked] == COMMANDS  # type: ignore[index,call-overload]
    assert [body.exit_code for body in returned] == [0, 1, 0, 0, 0]
    assert [
        body.trees is not None and body.trees.before != body.trees.after for body in returned
    ] == [False, False, True, False, False]
    assert returned[2].trees is not None and returned[2].trees.changed == ("cart.py",)
    assert all(body.placement is not None and body.placement.network == "off" for body in returned)
    assert session.files.read("cart.py").decode() == FIXED
    # the folder itself is not touched until somebody says so
    assert (repo / "cart.py").read_text() == BROKEN
