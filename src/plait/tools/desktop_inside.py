"""The half of the desktop tools that runs inside the sandbox: it holds an X server without a
screen, and the programs shown on it.

This file is handed to the sandbox's Python as a program, so it imports nothing of ours. A request
and its answer are one line of JSON each. The keyboard belongs to the window that the pointer is in,
since there is no window manager to say otherwise.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

SIZE = "1024x768x24"
WINDOW_S, SETTLE_S, STEP_S = 20.0, 1.5, 0.15
RUN_S, WORDS_MAX = 20.0, 300
KEYS = {"\n": "Return", "\t": "Tab"}


class DesktopRefusal(Exception):
    """Nothing was done; the text gives the reason and the next step."""


class Program:
    """A started program, and the end of its error output."""

    def __init__(self, command: str) -> None:
        self.command, self.words = command, tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            ["sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.words,
        )

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def end_note(self) -> str:
        text = f"{self.command!r} ended with {self.process.returncode}"
        self.words.seek(max(0, self.words.seek(0, os.SEEK_END) - WORDS_MAX))
        return (
            f"{text}: {self.words.read().decode('utf-8', 'replace').strip()}"
            if self.process.returncode
            else text
        )


class Keyboard:
    """Gives characters that are on no key a key of their own. xdotool lends them one for a moment,
    which a slow program sees too late.
    """

    def __init__(self) -> None:
        self.known: dict[str, str] = {}  # character to key, the one learnt first first
        self.free: list[str] | None = None  # None: not looked up yet

    def learn(self, text: str) -> None:
        new = [char for char in dict.fromkeys(text) if ord(char) > 126 and char not in self.known]
        if not new or shutil.which("xmodmap") is None:
            return
        self.free = unused_keys() if self.free is None else self.free
        words = [f"keycode {self.key_for(char)} = U{ord(char):04X}" for char in new]
        subprocess.run(
            ["xmodmap", "-"], input="\n".join(words), text=True, capture_output=True, timeout=RUN_S
        )

    def key_for(self, char: str) -> str:
        assert self.free is not None
        key = self.free.pop() if self.free else self.known.pop(next(iter(self.known)))
        self.known[char] = key
        return key


def unused_keys() -> list[str]:
    """Return keys without a meaning, and those of a laptop's lid and lamps."""
    listed = subprocess.run(
        ["xmodmap", "-pke"], capture_output=True, text=True, timeout=RUN_S
    ).stdout
    rows = [line.split() for line in listed.splitlines()]
    return [row[1] for row in rows if len(row) == 3 or (len(row) > 3 and row[3].startswith("XF86"))]


class DesktopInside:
    def __init__(self) -> None:
        self.programs: list[Program] = []
        self.keyboard = Keyboard()

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        getattr(self, f"do_{asked['do']}")(asked)
        png = settled_picture()
        ended = [each for each in self.programs if each.has_ended]
        self.programs = [each for each in self.programs if each not in ended]
        return {
            "windows": window_names(),
            "png": base64.b64encode(png).decode(),
            "notes": [each.end_note() for each in ended],
        }

    def do_look(self, asked: dict[str, Any]) -> None:
        """Do nothing: the answer shows the screen as it is."""

    def do_start(self, asked: dict[str, Any]) -> None:
        before = window_names()
        program = Program(asked["command"])
        self.programs.append(program)
        until = time.monotonic() + WINDOW_S
        while window_names() == before and not program.has_ended and time.monotonic() < until:
            time.sleep(STEP_S)

    def do_click(self, asked: dict[str, Any]) -> None:
        x, y = asked["x"], asked["y"]
        width, height, _ = map(int, SIZE.split("x"))
        if not (0 <= x < width and 0 <= y < height):
            raise DesktopRefusal(
                f"{x}, {y} is not on the screen, which is {width} wide and {height} high"
            )
        xdotool(
            "mousemove",
            "--sync",
            str(x),
            str(y),
            "click",
            "--repeat",
            str(asked["times"]),
            "--delay",
            "60",
            str(asked["button"]),
        )

    def do_type(self, asked: dict[str, Any]) -> None:
        self.keyboard.learn(asked["text"])
        # xdotool types a line break as a key that few programs know
        for piece in re.split(r"([\n\t])", asked["text"]):
            if piece:
                xdotool(
                    *(
                        ["key", KEYS[piece]]
                        if piece in KEYS
                        else ["type", "--delay", "12", "--file", "-"]
                    ),
                    words=piece,
                )

    def do_key(self, asked: dict[str, Any]) -> None:
        xdotool("key", "--delay", "60", *asked["keys"].split())


def xdotool(*arguments: str, words: str = "") -> str:
    done = subprocess.run(
        ["xdotool", *arguments], input=words, capture_output=True, text=True, timeout=RUN_S
    )
    if done.returncode or "No such key" in done.stderr:
        words = (done.stderr or done.stdout).strip().partition("\n")[0]
        # the keys before it were pressed
        raise subprocess.SubprocessError(
            words or f"xdotool {arguments[0]} ended with {done.returncode}"
        )
    return done.stdout


def window_names() -> list[str]:
    """Return the names of the visible windows."""
    found = subprocess.run(
        ["xdotool", "search", "--onlyvisible", "--name", "."],
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    named = [
        subprocess.run(["xdotool", "getwindowname", each], capture_output=True, text=True)
        for each in found.stdout.split()
    ]
    return list(dict.fromkeys(each.stdout.strip() for each in named if each.stdout.strip()))


def take_picture() -> bytes:
    return subprocess.run(
        ["import", "-silent", "-window", "root", "png:-"],
        capture_output=True,
        check=True,
        timeout=RUN_S,
    ).stdout


def settled_picture() -> bytes:
    """Return a picture of the screen once it has stopped changing, or after a while: a cursor that
    blinks never stops.
    """
    time.sleep(STEP_S)
    until, before, now = time.monotonic() + SETTLE_S, b"", take_picture()
    while before != now and time.monotonic() < until:
        time.sleep(STEP_S)
        before, now = now, take_picture()
    return now


def send(document: dict[str, Any]) -> None:
    OUT.write(json.dumps(document).encode() + b"\n")
    OUT.flush()


def receive() -> dict[str, Any]:
    line = sys.stdin.buffer.readline()
    if not line:
        raise SystemExit(0)  # the other half has ended
    return json.loads(line)


def reply(inside: DesktopInside, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        return inside.answer(asked)
    except DesktopRefusal as error:
        return {"refused": str(error)}
    except (OSError, subprocess.SubprocessError) as error:
        return {"failed": str(error)[:500]}


def start_server() -> str:
    """Start an X server of our own. It reports its display itself, so that none is taken twice."""
    reading, writing = os.pipe()
    command = [
        "Xvfb",
        "-displayfd",
        str(writing),
        "-screen",
        "0",
        SIZE,
        "-nolisten",
        "tcp",
        "-noreset",
    ]
    subprocess.Popen(
        command, pass_fds=(writing,), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    os.close(writing)
    with os.fdopen(reading) as answer:
        display = answer.readline().strip()
    if not display:
        raise SystemExit("Xvfb did not start")
    return f":{display}"


def main() -> None:
    os.environ.update(
        DISPLAY=start_server(),
        GDK_BACKEND="x11",
        NO_AT_BRIDGE="1",
        GSETTINGS_BACKEND="memory",
        LIBGL_ALWAYS_SOFTWARE="1",
    )
    os.environ.setdefault("LANG", "C.UTF-8")  # or typed text is taken for ASCII
    inside = DesktopInside()
    send({"ready": os.environ["DISPLAY"]})
    while True:
        send(reply(inside, receive()))


if __name__ == "__main__":
    OUT = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other output must not mix with the answers
    main()
