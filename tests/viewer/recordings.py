"""Recordings of a terminal as SVG, from real commands on real sessions: a part of `make pictures`.

A command runs in a terminal of its own. Its output is exported by rich, and becomes one picture
for both themes. Nothing in it is loaded: fonts are those of the reader.
"""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from fcntl import ioctl
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tests.outline.sessions import make_view_store
from tests.support import ROOT
from tests.support.processes import child_environment

FOLDER = ROOT / "docs" / "pictures"
COLUMNS = 100
# background, foreground, and the eight colours, normal and bright: no two alike
LIGHT = TerminalTheme(
    (252, 252, 250),
    (36, 41, 47),
    [
        (36, 41, 48),
        (176, 32, 40),
        (17, 106, 60),
        (138, 90, 0),
        (30, 86, 176),
        (126, 48, 150),
        (10, 104, 112),
        (95, 102, 110),
    ],
    [
        (70, 76, 84),
        (196, 52, 60),
        (27, 122, 74),
        (150, 100, 10),
        (46, 102, 196),
        (142, 64, 166),
        (20, 118, 126),
        (110, 118, 126),
    ],
)
DARK = TerminalTheme(
    (22, 27, 36),
    (220, 225, 232),
    [
        (110, 118, 130),
        (255, 123, 114),
        (99, 205, 140),
        (224, 178, 80),
        (121, 174, 255),
        (210, 150, 240),
        (92, 200, 193),
        (200, 206, 214),
    ],
    [
        (140, 148, 160),
        (255, 150, 142),
        (125, 220, 160),
        (236, 196, 110),
        (150, 192, 255),
        (222, 172, 246),
        (127, 224, 217),
        (232, 236, 242),
    ],
)
PARTS = "{styles}\f{lines}\f{matrix}\f{terminal_width}\f{terminal_height}"
PICTURE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>{title}</title>
<style>
.screen {{ fill: {light_background}; stroke: {light_edge} }}
.text {{ font: {size}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }}
{light}
@media (prefers-color-scheme: dark) {{
.screen {{ fill: {dark_background}; stroke: {dark_edge} }}
{dark}
}}
</style>
<rect class="screen" x="0.5" y="0.5" width="{inner_width}" height="{inner_height}" rx="8"/>
<defs>
{lines}
</defs>
<g class="text" transform="translate(12, 10)">
{matrix}
</g>
</svg>
"""
NAME = "terminal"


def record_output(words: Sequence[str], folder: Path, **settings: str) -> str:
    """Run a command in a terminal of its own, and return all that it wrote there."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    environment = child_environment() | {
        "TERM": "xterm-256color",
        "COLUMNS": str(COLUMNS),
        "LINES": "50",
        "PAGER": "cat",
        "PLAIT_ACTOR": "human:ann",
        "PYTHONWARNINGS": "ignore",
        **settings,
    }
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        words, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        written = b""
        while True:
            ready, _, _ = select.select([ours], [], [], 0.2)
            try:
                part = os.read(ours, 65536) if ready else b""
            except OSError:  # the command has closed its end
                break
            written += part
            if not part and process.poll() is not None:
                break
    os.close(ours)
    if process.returncode:
        raise SystemExit(
            f"{shlex.join(words)} ended with {process.returncode}:\n{written.decode()}"
        )
    return written.decode().replace("\r\n", "\n")


def picture_of(title: str, shown: str) -> str:
    """Return what a terminal shows, text with colours, as a picture for both themes."""
    exports = [_export(shown, theme) for theme in (LIGHT, DARK)]
    (light, lines, matrix, width, height), (dark, _, other, _, _) = exports
    if matrix != other:  # the classes of both themes have to be the same
        raise ValueError("two colours of a theme are the same")
    wide, high = int(float(width)) + 25, int(float(height)) + 24
    return PICTURE.format(
        title=title,
        size=20,
        width=wide,
        height=high,
        inner_width=wide - 1,
        inner_height=high - 1,
        light_background=LIGHT.background_color.hex,
        dark_background=DARK.background_color.hex,
        light_edge="#d0d4da",
        dark_edge="#3a4356",
        light=light,
        dark=dark,
        lines=lines,
        matrix=matrix.replace("</text>", "</text>\n").strip(),
    )


def _export(shown: str, theme: TerminalTheme) -> list[str]:
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(shown, no_wrap=True, overflow="crop"), soft_wrap=False)
    parts = console.export_svg(theme=theme, code_format=PARTS, unique_id=NAME).split("\f")
    # what lies beyond the last line is not needed, and neither are folds of white space
    return [re.sub(r"\n\s+", "\n", part) for part in parts]


def keep_recording(name: str, folder: Path, *commands: str) -> None:
    """Run commands one after another, and keep what a terminal shows of them as one picture."""
    shown = ""
    for command in commands:
        words = [sys.executable, "-m", *shlex.split(command)]
        shown += f"\x1b[1m$ {command}\x1b[0m\n{record_output(words, folder)}\n"
    text = picture_of(" · ".join(commands), shown.rstrip("\n"))
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


if __name__ == "__main__":
    keep_recordings()
