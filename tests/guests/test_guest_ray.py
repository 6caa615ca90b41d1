"""Workers as actors of a Ray cluster of two nodes, one of which goes under load."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.guests.hosting import HERE, ROOT, programs

FLOWS = '''
import time
from pathlib import Path

from plait import Session, Workflow, tool


@tool(effect="idempotent")
def note_line(path: str, text: str, idempotency_key: str) -> str:
    """Append a line, with its key, to a file."""
    with Path(path).open("a") as file:
        file.write(f"{text} {idempotency_key}\\n")
    time.sleep(0.1)
    return text


class Notes(Workflow):
    def forward(self, session: Session, path: str, steps: int) -> Session:
        for step in range(steps):
            session = session.use(note_line, path=path, text=f"{session.short}/{step}")
        return session.say("noted", role="assistant")
'''


@pytest.mark.slow
def test_a_node_that_goes_takes_nothing_along(tmp_path: Path) -> None:
    python = programs("ray") / "python"
    package = tmp_path / "shopflows"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "flows.py").write_text(FLOWS)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT / "src"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    }
    done = subprocess.run(
        [str(python), "-W", "ignore", str(HERE / "ray_host.py")],
        input=json.dumps({"folder": str(tmp_path)}),
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["workers"] == ["gpu", "linux", "linux"]
    assert report["ended"] == ["noted"] * 16 and report["with gpu"] == "noted"
    assert report["lines"] == 17 * 6  # an effect that was made again has its own key
    assert report["taken over"] >= 1 and report["same code"] and report["codes"] == 1
    assert report["actors"] == 3 and report["left"] == [] and report["problems"] == []
