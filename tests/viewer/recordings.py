"""Recordings of a terminal, from real commands on real sessions: a part of `make pictures`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.outline.sessions import make_view_store
from tests.support import ROOT
from tests.viewer.terminals import Line, moving_picture, record_lines, still_picture

FOLDER = ROOT / "docs" / "pictures"
YES = {"[y]es": "y"}  # what is typed when the demo asks


def keep_recording(
    name: str,
    folder: Path,
    command: str,
    draw: Callable[[str, Sequence[Line]], str] = still_picture,
    answers: Mapping[str, str] | None = None,
) -> None:
    """Run a command in a terminal, and keep what it shows as a picture."""
    lines = record_lines([sys.executable, "-m", *shlex.split(command)], folder, answers)
    text = draw(command, [Line(f"\x1b[1m$ {command}\x1b[0m"), *lines])
    (FOLDER / f"{name}.svg").write_text(text)
    print(f"docs/pictures/{name}.svg  {len(text) // 1024} KB")


def keep_recordings() -> None:
    """Write the recordings that the pages show."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as place:
        made = make_view_store(Path(place))
        repair = made.session("repair").short
        made.store.close()
        keep_recording("terminal-steps", Path(place), f"plait log {repair} --steps")
        keep_recording("terminal-why", Path(place), f"plait why {repair} cart.py:6")
    with TemporaryDirectory() as place:
        keep_recording("terminal-demo", Path(place), "plait demo", moving_picture, YES)


if __name__ == "__main__":
    keep_recordings()
