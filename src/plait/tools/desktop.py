"""A desktop as tools: start a program, look, click, type, press keys. It is an X server without a
screen, and it runs inside the sandbox.

Every call returns the names of the windows, with a picture of the screen as a blob, so that each
step can be looked at later. The desktop stays between calls and ends with the sandbox's handle; a
call on one that is gone fails, and no earlier act is repeated.

It needs the programs Xvfb, xdotool and ImageMagick's import, and xmodmap for characters that are on
no key. On Debian: apt-get install xvfb xdotool imagemagick x11-xserver-utils.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Literal

from plait.errors import SandboxFailed
from plait.event import Json
from plait.sandbox import Sandbox
from plait.session.content import image
from plait.tool import Result, tool
from plait.tools import screen
from plait.tools.commands import class_of_commands

KIND = "desktop"
BUTTONS = {"left": 1, "middle": 2, "right": 3}


@tool(effect_of=class_of_commands)
def desktop_start(command: str, sandbox: Sandbox) -> Result:
    """Start a program with windows, as a shell command, and see the screen. It runs in the workspace and stays open.

    Args:
        command: what to run, as in: mousepad notes.txt
    """  # noqa: E501
    try:
        screen.start_screen(sandbox, KIND, "desktop_inside")
    except SandboxFailed as error:
        raise SandboxFailed(
            KIND,
            "start",
            error.why,
            "install Xvfb, xdotool and ImageMagick where the sandbox can see them",
        ) from error
    return _ask_desktop(sandbox, f"start {command}", {"do": "start", "command": command})


@tool(effect="pure")
def desktop_screenshot(sandbox: Sandbox) -> Result:
    """See the screen as it is now."""
    return _ask_desktop(sandbox, "take a screenshot", {"do": "look"})


@tool(effect_of=class_of_commands)
def desktop_click(
    x: int,
    y: int,
    sandbox: Sandbox,
    button: Literal["left", "middle", "right"] = "left",
    times: int = 1,
) -> Result:
    """Move the pointer to a place on the screen and click there. Places are counted in pixels from the top left corner.

    Args:
        x: how far to the right
        y: how far down
        button: which mouse button
        times: 2 for a double click
    """  # noqa: E501
    return _ask_desktop(
        sandbox,
        f"click {x}, {y}",
        {"do": "click", "x": x, "y": y, "button": BUTTONS[button], "times": times},
    )


@tool(effect_of=class_of_commands)
def desktop_type(text: str, sandbox: Sandbox) -> Result:
    """Type a text on the keyboard. It goes to the window that the pointer is in: click there first.

    Args:
        text: what to type; a line break is the Enter key
    """
    return _ask_desktop(sandbox, f"type {len(text)} characters", {"do": "type", "text": text})


@tool(effect_of=class_of_commands)
def desktop_key(keys: str, sandbox: Sandbox) -> Result:
    """Press keys, several at once or one after another. They go to the window that the pointer is in.

    Args:
        keys: X names of keys, as in: ctrl+s; or: alt+f Down Return
    """  # noqa: E501
    return _ask_desktop(sandbox, f"press {keys}", {"do": "key", "keys": keys})


def _ask_desktop(sandbox: Sandbox, what: str, request: Mapping[str, Json]) -> Result:
    desktop = screen.find_screen(sandbox, KIND)
    if desktop is None:
        raise SandboxFailed(
            KIND,
            what,
            "nothing was started here, or the desktop was closed",
            "start the program with desktop_start",
        )
    if request["do"] != "look":
        sandbox.begin()  # programs write files as they please
    return _screen_result(what, desktop.ask(what, request))


def _screen_result(what: str, seen: Mapping[str, Any]) -> Result:
    windows = [str(each) for each in seen["windows"]]
    text = "\n".join(
        [f"windows: {', '.join(windows) or 'none'}", *(f"note: {note}" for note in seen["notes"])]
    )
    picture = image(base64.b64decode(seen["png"]), "image/png", alt="the screen")
    return Result([text, picture], delta={"windows": windows, "action": what})
