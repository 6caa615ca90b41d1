"""Other engines for durable execution run the cases of row 5 of the scoreboard."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guests.hosting import ROOT, guest
from tests.support import free_port

CASES = 12
THEIRS = {"dbos": "dbos_parity.py", "restate": "restate_parity.py"}


@pytest.mark.slow
@pytest.mark.parametrize("name", THEIRS)
def test_another_engine_is_asked_for_the_same_cases(name: str, tmp_path: Path) -> None:
    ports = [free_port() for _ in range(5)]
    asked = {"folder": str(tmp_path), "root": str(ROOT), "ports": ports, "kills": 2}
    found = guest(name, THEIRS[name], asked)
    assert len(found["cases"]) == CASES and found["kills"] >= 2
    passed = [case for case, said in found["cases"].items() if said == "yes"]
    assert {"timer", "signal", "query", "retry", "cancel", "child", "search"} <= set(passed), found
