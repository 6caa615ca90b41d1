"""A browser as tools: open, click, type, read, screenshot. It is the system's Chromium, and it runs
inside the sandbox.

Every call returns the address, the title and the text that a screen reader would see, with a ref at
each element that can be acted on. The picture and the whole of that text go along as blobs, so that
each step can be looked at later. The browser stays open between calls and ends with the sandbox's
handle; a call on a page that is gone fails, and no earlier act is repeated to bring it back.

It needs the extra `plait[browser]` and Chromium, as the system installs it or where PLAIT_CHROMIUM
says. Pages come from the workspace, by path or `file:` address, or, if the sandbox has a network,
from there.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from plait.errors import InvalidValue, NotAFile, SandboxFailed, WorkspaceError
from plait.event import Json
from plait.event.kinds import EffectClass, Placement
from plait.sandbox import Sandbox
from plait.session.content import file, image
from plait.tool import Result, tool
from plait.tools import screen

SNAPSHOT_MAX = 8_000  # characters of a page that are shown; all of them are kept
# On Debian the program comes before the script that starts it, which wants settings that a sandbox
# does not have.
CHROMIUM = (
    "/usr/lib/chromium/chromium",
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome",
)
KIND = "browser"


def _effect_of_opening(placement: Placement | None, arguments: Mapping[str, Json]) -> EffectClass:
    """Opening a page over a network is a GET, which may be repeated; without a network, only the
    screen changes.
    """
    return "workspace" if _is_offline(placement) else "idempotent"


def _effect_of_acting(placement: Placement | None, arguments: Mapping[str, Json]) -> EffectClass:
    """A click can buy something, unless there is no network."""
    return "workspace" if _is_offline(placement) else "at_most_once"


def _is_offline(placement: Placement | None) -> bool:
    return placement is not None and placement.network == "off" and placement.rung != "host"


@tool(effect="idempotent", effect_of=_effect_of_opening, taints="web")
def browser_open(url: str, sandbox: Sandbox) -> Result:
    """Open a page in the browser and see what is on it.

    Args:
        url: the address of a page, or the path of a file in the workspace, as in docs/index.html
    """
    address = _page_url(url, sandbox)
    _start_browser(sandbox)
    return _ask_browser(sandbox, f"open {url}", {"do": "open", "url": address})


@tool(effect_of=_effect_of_acting, taints="web")
def browser_click(target: str, sandbox: Sandbox) -> Result:
    """Click on something on the open page, and see what came of it.

    Args:
        target: the ref of an element in the newest snapshot, as in e12; or its exact name or text; or a CSS selector
    """  # noqa: E501
    return _ask_browser(sandbox, f"click {target}", {"do": "click", "target": target})


@tool(effect_of=_effect_of_acting, taints="web")
def browser_type(target: str, text: str, sandbox: Sandbox, submit: bool = False) -> Result:
    """Fill a field of the open page with a text, in place of what is in it. In a list of choices, choose the one with this label.

    Args:
        target: the ref of the field in the newest snapshot, as in e12; or its label; or a CSS selector
        text: what to type
        submit: whether to press Enter afterwards
    """  # noqa: E501
    return _ask_browser(
        sandbox,
        f"type into {target}",
        {"do": "type", "target": target, "text": text, "submit": submit},
    )


@tool(effect="pure", taints="web")
def browser_read(sandbox: Sandbox) -> Result:
    """See what is on the open page now, as text with a ref at each element."""
    return _ask_browser(sandbox, "read", {"do": "look"})


@tool(effect="pure", taints="web")
def browser_screenshot(sandbox: Sandbox) -> Result:
    """Take a picture of the open page as it is now."""
    return _ask_browser(sandbox, "take a screenshot", {"do": "look"}, shown=0)


def _start_browser(sandbox: Sandbox) -> screen.Screen:
    named = os.environ.get("PLAIT_CHROMIUM")
    try:
        return screen.start_screen(
            sandbox, KIND, "browser_inside", sandbox.workdir, *([named] if named else CHROMIUM)
        )
    except SandboxFailed as error:
        step = "install Chromium (or name it in PLAIT_CHROMIUM) and pip install 'plait[browser]'"
        raise SandboxFailed(KIND, "start", error.why, step) from error


def _ask_browser(
    sandbox: Sandbox, what: str, request: Mapping[str, Json], shown: int = SNAPSHOT_MAX
) -> Result:
    page = screen.find_screen(sandbox, KIND)
    if page is None:
        raise SandboxFailed(
            KIND,
            what,
            "no page is open here, or the browser was closed",
            "open the page again with browser_open",
        )
    return _page_result(
        what, page.ask(what, request, lambda path: _file_content(sandbox, path)), shown
    )


def _page_result(what: str, seen: Mapping[str, Any], shown: int) -> Result:
    url, title, snapshot = seen["url"], seen["title"], seen["snapshot"]
    text = "\n".join(
        [
            f"url: {url}",
            f"title: {title}",
            *(f"note: {note}" for note in seen["notes"]),
            *_snapshot_lines(snapshot, shown),
        ]
    )
    picture = image(base64.b64decode(seen["png"]), "image/png", alt=f"the page {title!r}")
    parts = [text, picture, file(snapshot.encode(), "page.yaml", "text/yaml")]
    return Result(parts, delta={"url": url, "title": title, "action": what})


def _snapshot_lines(snapshot: str, limit: int) -> list[str]:
    """Return as much of a page as fits, up to the end of a line."""
    if len(snapshot) <= limit:
        return [snapshot]
    if not limit:
        return []
    head = snapshot[:limit].rpartition("\n")[0]
    return [head, f"… ({len(snapshot) - len(head):,} more characters are in page.yaml)"]


def _file_content(sandbox: Sandbox, path: str) -> Json:
    """Return a file that a page asks for; None: there is none, or it is not allowed."""
    try:
        return base64.b64encode(sandbox.files.read(path)).decode()
    except WorkspaceError:
        return None


def _page_url(url: str, sandbox: Sandbox) -> str:
    """Return the URL of a page. Pages that could not be opened at all are refused, with the next
    step.
    """
    parts = urlsplit(url)
    if parts.scheme in ("http", "https"):
        if _is_offline(sandbox.placement):
            raise SandboxFailed(
                KIND,
                f"open {url}",
                "the network of this sandbox is off",
                "open a file of the workspace instead",
            )
        return url
    root = f"{sandbox.workdir.rstrip('/')}/"
    if parts.scheme == "file" and parts.path.startswith(root):
        return url
    if parts.scheme:
        raise InvalidValue(
            "url",
            f"{url!r} is no page",
            "use http:, https:, or the path of a file in the workspace",
        )
    path, mark, rest = url.removeprefix(root).partition("?")
    _check_is_file(sandbox, path.partition("#")[0])
    return f"file://{quote(root)}{quote(path, safe='/#%')}{mark}{rest}"


def _check_is_file(sandbox: Sandbox, path: str) -> None:
    if sandbox.files.entry(path).kind == "folder":
        raise NotAFile(path, "a folder")
