"""A browser on the page of a server."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from plait.server.page import BUILT
from tests.server.clients import LiveServer

WAIT_MS = 15_000  # on a machine that does much else


@contextmanager
def started_browser() -> Generator[Browser]:
    """Start Chromium. The test is skipped if there is none, or no built page."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium here")
    if not (BUILT / "index.html").is_file():
        pytest.skip("the page is not built: make viewer")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


class Viewer:
    """One window of the page, which notes what goes wrong in it."""

    def __init__(
        self,
        browser: Browser,
        server: LiveServer,
        *,
        width: int = 1440,
        theme: Literal["light", "dark"] = "light",
    ) -> None:
        self._server = server
        self._context = browser.new_context(
            viewport={"width": width, "height": 844}, color_scheme=theme
        )
        self._context.set_default_timeout(WAIT_MS)
        self.page: Page = self._context.new_page()
        self.errors: list[str] = []
        self.strangers: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self._note_request(request.url))
        self.page.goto(server.address)
        self.page.get_by_role("link", name="Plait, all sessions").wait_for()

    def _note_request(self, url: str) -> None:
        if not url.startswith((self._server.base, "data:", "blob:")):
            self.strangers.append(url)

    def open(self, address: str) -> Page:
        """Open an address of the page."""
        self.page.goto(f"{self._server.base}{address}")
        return self.page

    def close(self) -> None:
        self._context.close()
        assert self.errors == []
        assert self.strangers == []


@contextmanager
def opened_viewer(
    browser: Browser,
    server: LiveServer,
    *,
    width: int = 1440,
    theme: Literal["light", "dark"] = "light",
) -> Generator[Viewer]:
    """Open a window, and look at its end whether something went wrong in it."""
    viewer = Viewer(browser, server, width=width, theme=theme)
    yield viewer
    viewer.close()


def steps_of(page: Page) -> Locator:
    """Return the steps in the list of the workbench."""
    return page.get_by_role("listbox").get_by_role("option")


def picture(page: Page, path: Path) -> None:
    """Keep a picture of a window."""
    page.screenshot(path=path)
