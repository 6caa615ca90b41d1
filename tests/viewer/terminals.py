"""A terminal that is recorded, and its picture as SVG: still, or moving as it was.

The output is exported by rich, once for each theme, and becomes one picture for both. Nothing in
it is loaded: fonts are those of the reader.
"""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import struct
import subprocess
import termios
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping, Sequence
from fcntl import ioctl
from html import escape
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tests.support.processes import child_environment

COLUMNS, ROWS = 100, 30
LINE = 24.4  # the height of a line in an export of rich
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
NAME = "terminal"
PICTURE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>{title}</title>
<style>
.screen {{ fill: {light_background}; stroke: #d0d4da }}
.text {{ font: 20px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }}
{light}
@media (prefers-color-scheme: dark) {{
.screen {{ fill: {dark_background}; stroke: #3a4356 }}
{dark}
}}
{motion}
</style>
<rect class="screen" x="0.5" y="0.5" width="{inner_width}" height="{inner_height}" rx="8"/>
<defs>
<clipPath id="window"><rect x="0" y="0" width="{inner_width}" height="{window}"/></clipPath>
{lines}
</defs>
<g class="text" transform="translate(12, 10)" clip-path="url(#window)"><g class="scroll">
{matrix}
</g></g>
</svg>
"""
# without motion all lines are there, and the last ones are in sight
MOTION = """.scroll {{ transform: translateY({last:.1f}px) }}
@media (prefers-reduced-motion: no-preference) {{
.line {{ animation: wait 1s }}
.scroll {{ animation: scroll {seconds:.2f}s steps(1) }}
}}
@keyframes wait {{ from, to {{ opacity: 0 }} }}
@keyframes scroll {{
{steps}
}}"""


class Line(NamedTuple):
    """A line of a terminal, with its colours, and the seconds after which it was there."""

    text: str
    at_s: float = 0.0


def record_lines(
    words: Sequence[str], folder: Path, answers: Mapping[str, str] | None = None
) -> list[Line]:
    """Run a command in a terminal of its own, and return the lines that it wrote there.

    `answers` are typed when the terminal shows their keys.
    """
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    settings = {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    environment = child_environment() | settings | {"PAGER": "cat", "PLAIT_ACTOR": "human:ann"}
    environment.pop("NO_COLOR", None)
    lines: list[Line] = []
    rest, begin, open_answers = "", time.monotonic(), dict(answers or {})
    with subprocess.Popen(
        words, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        decoder = getincrementaldecoder("utf-8")()
        while True:
            has_ended = process.poll() is not None
            part = decoder.decode(_read_part(ours))
            if has_ended and not part:
                break
            *ended, rest = (rest + part).replace("\r\n", "\n").split("\n")
            lines += [Line(each, time.monotonic() - begin) for each in ended]
            for key in [key for key in open_answers if key in rest]:
                os.write(ours, f"{open_answers.pop(key)}\n".encode())
    os.close(ours)
    if process.returncode:
        shown = "\n".join(line.text for line in lines)
        raise SystemExit(f"{shlex.join(words)} ended with {process.returncode}:\n{shown}")
    return [*lines, Line(rest, time.monotonic() - begin)] if rest else lines


def _read_part(terminal: int) -> bytes:
    ready, _, _ = select.select([terminal], [], [], 0.2)
    try:
        return os.read(terminal, 65536) if ready else b""
    except OSError:  # the command has closed its end
        return b""


def still_picture(title: str, lines: Sequence[Line]) -> str:
    """Return the picture of a terminal that is high enough for all lines."""
    return _picture(title, lines, len(lines), "", lambda at, line: line)


def moving_picture(title: str, lines: Sequence[Line]) -> str:
    """Return a picture in which each line comes when it came, in a terminal of `ROWS` lines."""
    seconds = max(line.at_s for line in lines) + 0.01
    steps = [f"{0:.2f}% {{ transform: none }}"]
    for at, line in enumerate(lines):
        if at >= ROWS:
            up, share = (at + 1 - ROWS) * LINE, 100 * line.at_s / seconds
            steps.append(f"{share:.2f}% {{ transform: translateY({-up:.1f}px) }}")
    last = -max(0, len(lines) - ROWS) * LINE
    steps.append(f"100% {{ transform: translateY({last:.1f}px) }}")
    motion = MOTION.format(seconds=seconds, steps="\n".join(steps), last=last)

    def come_late(at: int, texts: str) -> str:
        return f'<g class="line" style="animation-duration:{lines[at].at_s:.2f}s">{texts}</g>'

    return _picture(title, lines, min(ROWS, len(lines)), motion, come_late)


def _picture(
    title: str,
    lines: Sequence[Line],
    rows: int,
    motion: str,
    place: Callable[[int, str], str],
) -> str:
    shown = "\n".join(line.text for line in lines)
    (light, clips, matrix, width, _), (dark, _, other, _, _) = (
        _export(shown, theme) for theme in (LIGHT, DARK)
    )
    if matrix != other:  # the classes of both themes have to be the same
        raise ValueError("two colours of a theme are the same")
    texts: dict[int, list[str]] = {}
    for text in re.findall(r"<text.*?</text>", matrix, re.DOTALL):
        at = round((float(re.findall(r' y="([\d.]+)"', text)[0]) - 20) / LINE)
        texts.setdefault(at, []).append(text)
    wide, high = round(float(width)) + 25, round(rows * LINE) + 24
    return PICTURE.format(
        title=escape(title),
        width=wide,
        height=high,
        inner_width=wide - 1,
        inner_height=high - 1,
        window=round(rows * LINE) + 4,
        light_background=LIGHT.background_color.hex,
        dark_background=DARK.background_color.hex,
        light=light,
        dark=dark,
        motion=motion,
        lines=clips,
        matrix="\n".join(place(at, "".join(each)) for at, each in texts.items()),
    )


def _export(shown: str, theme: TerminalTheme) -> list[str]:
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(shown, no_wrap=True, overflow="crop"), soft_wrap=False)
    parts = console.export_svg(theme=theme, code_format=PARTS, unique_id=NAME).split("\f")
    return [re.sub(r"\n\s+", "\n", part) for part in parts]
