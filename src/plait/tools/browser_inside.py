"""The half of the browser tools that runs inside the sandbox: it holds Chromium and carries out the
requests of the other half, line by line.

This file is handed to the sandbox's Python as a program, so it imports nothing of ours. A request
and its answer are one line of JSON each. In between it may ask for files of the workspace: the
browser sees no others, since pages from `file:` are answered with the content that the other half
sends. So it sees the files as they are now and cannot look around in the machine.
"""

from __future__ import annotations

import base64
import json
import mimetypes
import os
import re
import shutil
import sys
import tempfile
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Download,
    Error,
    Locator,
    Page,
    Playwright,
    Route,
    sync_playwright,
)

SIZE = {"width": 1024, "height": 768}
NAME_MAX = 40
ACT_MS, LOAD_MS, SETTLE_MS = 5_000, 20_000, 150
NOTES_MAX, NOTE_MAX = 20, 300
CONTROLS: tuple[Any, ...] = (
    "button",
    "link",
    "textbox",
    "combobox",
    "checkbox",
    "radio",
    "tab",
    "menuitem",
)
REF = re.compile(r"\[?(?:ref=)?((?:f\d+)?e\d+)\]?\Z")
FLAGS = [
    "--no-sandbox",  # its own would need user namespaces of its own; it is in a sandbox already
    "--disable-dev-shm-usage",  # /dev/shm may be missing or tiny
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class BrowserRefusal(Exception):
    """Nothing was done; the text gives the reason and the next step."""


class BrowserInside:
    def __init__(self, context: BrowserContext, root: str) -> None:
        self.root = root.rstrip("/")
        self.notes: list[str] = []
        context.route("file://**", self.serve_file)
        context.on("page", self.on_page_opened)
        self.page = context.new_page()

    def on_page_opened(self, page: Page) -> None:
        """Look at the page that opened last, as a person would."""
        self.page = page
        page.set_default_timeout(ACT_MS)
        page.on("dialog", self.on_dialog)
        page.on("console", self.on_console)
        page.on("download", self.on_download)
        page.on("close", self.on_page_closed)

    def on_page_closed(self, page: Page) -> None:
        others = [each for each in page.context.pages if each is not page]
        if page is self.page and others:
            self.page = others[-1]

    def on_dialog(self, dialog: Dialog) -> None:
        self.note(f"the page said, as {dialog.type}: {dialog.message!r}; it was dismissed")
        dialog.dismiss()

    def on_console(self, message: ConsoleMessage) -> None:
        self.note(f"console {message.type}: {message.text}")

    def on_download(self, download: Download) -> None:
        self.note(f"a download of {download.suggested_filename!r} was not taken")

    def note(self, text: str) -> None:
        self.notes = [*self.notes, text[:NOTE_MAX]][-NOTES_MAX:]

    def serve_file(self, route: Route) -> None:
        """Answer with a file of the workspace, as the other half reads it."""
        path = unquote(urlsplit(route.request.url).path)
        if not path.startswith(f"{self.root}/"):
            self.note(f"{path} is outside of the workspace")
            return route.abort("accessdenied")
        send({"need": path[len(self.root) + 1 :]})
        content = receive().get("content")
        if content is None:
            return route.abort("failed")
        kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
        charset = "; charset=utf-8" if kind.startswith("text/") else ""
        return route.fulfill(body=base64.b64decode(content), content_type=kind + charset)

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        getattr(self, f"do_{asked['do']}")(asked)
        self.wait_until_loaded()
        png = base64.b64encode(self.page.screenshot(type="png")).decode()
        notes, self.notes = self.notes, []
        return {
            "url": self.page.url,
            "title": self.page.title(),
            "snapshot": self.snapshot(),
            "png": png,
            "notes": notes,
        }

    def snapshot(self) -> str:
        try:
            return self.page.aria_snapshot(mode="ai")
        # the act is done, even if the page cannot be read afterwards
        except Error as error:
            return f"(the page cannot be read: {short_message(error)})"

    def wait_until_loaded(self) -> None:
        """Wait until a load that the act set off has ended. A page that never stops loading is
        shown as it is.
        """
        self.page.wait_for_timeout(SETTLE_MS)
        with suppress(Error):
            self.page.wait_for_load_state("load", timeout=LOAD_MS)

    def do_look(self, asked: dict[str, Any]) -> None:
        """Do nothing: the answer shows the page as it is."""

    def do_open(self, asked: dict[str, Any]) -> None:
        try:
            self.page.goto(asked["url"], timeout=LOAD_MS, wait_until="load")
        except Error as error:
            if "Timeout" not in str(error):
                raise BrowserRefusal(short_message(error)) from error
            self.note("the page has not finished loading")

    def do_click(self, asked: dict[str, Any]) -> None:
        found = self.find(asked["target"])
        self.check_reachable(found, asked["target"])
        found.click(no_wait_after=True)

    def do_type(self, asked: dict[str, Any]) -> None:
        found = self.find(asked["target"])
        self.check_reachable(found, asked["target"])
        if found.evaluate("element => element.tagName") == "SELECT":
            found.select_option(label=asked["text"])
        else:
            found.fill(asked["text"])
        if asked["submit"]:
            found.press("Enter", no_wait_after=True)

    def check_reachable(self, found: Locator, target: str) -> None:
        """Try the click first, so that an impossible one is known not to have happened."""
        try:
            found.click(trial=True)
        except Error as error:
            raise BrowserRefusal(f"{target} cannot be reached: {short_message(error)}") from error

    def find(self, target: str) -> Locator:
        """Find one element by its ref in the snapshot, by its name, or by a CSS selector; refuse if
        there is not exactly one.
        """
        if ref := REF.match(target.strip()):
            return self.check_single(self.page.locator(f"aria-ref={ref[1]}"), target)
        for found in self.candidates(target):
            with suppress(Error):  # not a selector at all
                if found.count():
                    return self.check_single(found, target)
        raise BrowserRefusal(
            f"nothing on the page is called {target!r}; take a ref from the snapshot, as in e12"
        )

    def candidates(self, target: str) -> list[Locator]:
        page = self.page
        controls = [page.get_by_role(role, name=target, exact=True) for role in CONTROLS]
        return [
            *controls,
            page.get_by_label(target, exact=True),
            page.get_by_text(target, exact=True),
            page.locator(f"css={target}"),
        ]

    def check_single(self, found: Locator, target: str) -> Locator:
        if (count := found.count()) != 1:
            raise BrowserRefusal(
                f"{target!r} names {count} elements on the page, not one; take a ref from the"
                " newest snapshot, as in e12"
            )
        return found


def short_message(error: Error) -> str:
    return error.message.split("Call log:")[0].strip()[:500]


def send(document: dict[str, Any]) -> None:
    OUT.write(json.dumps(document).encode() + b"\n")
    OUT.flush()


def receive() -> dict[str, Any]:
    line = sys.stdin.buffer.readline()
    if not line:
        raise SystemExit(0)  # the other half has ended
    return json.loads(line)


def reply(inside: BrowserInside, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        return inside.answer(asked)
    except BrowserRefusal as error:
        return {"refused": str(error)}
    except Error as error:
        return {"failed": short_message(error)}


def make_home() -> str:
    """Make a folder of its own, emptied of files that a killed predecessor left.

    The names of sockets in it have to be short.
    """
    if len(tempfile.gettempdir()) > NAME_MAX:
        # only without isolation is the scratch folder's name a long one
        return tempfile.mkdtemp(prefix="plait-browser-", dir="/tmp")
    path = os.path.join(tempfile.gettempdir(), "plait-browser")
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path)
    return path


def launch_browser(playwright: Playwright, programs: list[str]) -> Browser:
    program = next((each for each in programs if os.access(each, os.X_OK)), None)
    if program is None:
        raise SystemExit(f"there is no {' and no '.join(programs)} in the sandbox")
    try:
        return playwright.chromium.launch(
            executable_path=program, args=FLAGS, chromium_sandbox=False
        )
    except Error as error:
        lines = error.message.splitlines()
        raise SystemExit(next((line for line in lines if "[err]" in line), lines[0])) from None


def main(root: str, *programs: str) -> None:
    os.environ["TMPDIR"] = tempfile.tempdir = make_home()  # where it keeps its profile
    with sync_playwright() as playwright:
        browser = launch_browser(playwright, list(programs))
        context = browser.new_context(
            viewport=SIZE,  # pyright: ignore[reportArgumentType]
            accept_downloads=False,
            service_workers="block",
        )
        inside = BrowserInside(context, root)
        send({"ready": browser.version})
        while True:
            send(reply(inside, receive()))


if __name__ == "__main__":
    OUT = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other output must not mix with the answers
    main(*sys.argv[1:])
