"""Much output ends in blobs: this process never holds more than a few megabytes of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.rooms import needs

PROGRAM = """
import json, os, resource, sys
from plait import Session
from plait.sandbox import Limits
from plait.tools import shell

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

store, command = sys.argv[1:]
session = Session("x", store=store).to("local", limits=Limits(output_mb=1000, time_s=300))
session = session.use(shell, command="seq 100000")
before = peak_mb()
session = session.use(shell, command=command, timeout_s=300)
used = peak_mb() - before
session = Session.open(session.id, store=store)
shown = len(str(session.result)), len(session.effects), len(session.messages), len(session.events)
read = peak_mb() - before - used
(kept,) = session.effects[-1].kept
print(json.dumps({"used": used, "read": read, "size": len(session.files.blob(kept)), "whole": peak_mb() - before, "shown": shown}))
"""  # noqa: E501


@pytest.mark.parametrize(
    ("what", "megabytes"),
    [
        pytest.param("head -c {size} /dev/urandom", 64, marks=pytest.mark.ci),
        pytest.param("head -c {size} /dev/urandom", 200, marks=pytest.mark.slow),
        pytest.param(
            "yes 'a line of text, and a key: sk-canary-0123456789' | head -c {size}",
            200,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_memory_grows_by_no_more_than_16_mb(tmp_path: Path, what: str, megabytes: int) -> None:
    needs("overlay", tmp_path)
    size = megabytes * 1_000_000
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "store"), what.format(size=size)]
    environ = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": ":".join(sys.path),
        "PLAIT_SECRETS": "KEY",
        "KEY": "sk-canary-0123456789",
    }
    done = subprocess.run(words, capture_output=True, text=True, env=environ)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["used"] <= 16 and found["read"] <= 16
    assert found["shown"][0] < 20_000
    if "urandom" in what:  # of a text with secrets less is kept
        assert found["size"] == size
        assert found["whole"] <= 1.3 * megabytes + 32  # all of it once, and not a second time
