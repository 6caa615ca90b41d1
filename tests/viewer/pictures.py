"""Pictures of every screen, in both themes and widths, from real runs.

`make screenshots TO=FOLDER` writes them to a folder. `make pictures` writes the two of the README.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from playwright.sync_api import Browser, expect

from tests.outline.sessions import ViewStore, make_view_store
from tests.server.clients import LiveServer, live_server
from tests.support import ROOT
from tests.viewer.browsers import WAIT_MS, opened_viewer, started_browser
from tests.viewer.tour import Screen, all_screens, show

THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDTHS = (1440, 390)
README_SCREEN, README_SIZE = "file", (1440, 860)
README_FOLDER = ROOT / "docs" / "pictures"


@contextmanager
def shown_store() -> Generator[tuple[Browser, LiveServer, ViewStore]]:
    """Make sessions by real runs, serve them, and start a browser."""
    expect.set_options(timeout=WAIT_MS)
    with TemporaryDirectory() as folder:
        made = make_view_store(Path(folder))
        with live_server(Path(folder), PLAIT_ACTOR="human:ann") as server:
            with started_browser() as browser:
                yield browser, server, made


def keep_picture(
    browser: Browser,
    server: LiveServer,
    screen: Screen,
    size: tuple[int, int],
    theme: Literal["light", "dark"],
    path: Path,
) -> None:
    """Write one picture."""
    with opened_viewer(browser, server, width=size[0], theme=theme) as viewer:
        viewer.page.set_viewport_size({"width": size[0], "height": size[1]})
        page = show(viewer, screen)
        page.mouse.move(0, 0)
        page.screenshot(path=path, animations="disabled", caret="hide")


def make_small(path: Path) -> None:
    """Write a picture with 256 colours, which is less than half as large. Needs ImageMagick."""
    command = ["convert", path, "-strip", "-dither", "None", "-colors", "256", f"PNG8:{path}"]
    subprocess.run(command, check=True)


def keep_all(folder: Path) -> None:
    """Write a picture of each screen in each theme and width."""
    folder.mkdir(parents=True, exist_ok=True)
    with shown_store() as (browser, server, made):
        for screen in all_screens(made):
            for width in WIDTHS:
                for theme in THEMES:
                    name = f"{screen.name}-{width}-{theme}.png"
                    keep_picture(browser, server, screen, (width, 860), theme, folder / name)


def keep_for_readme(folder: Path = README_FOLDER) -> None:
    """Write the pictures that the README shows."""
    folder.mkdir(parents=True, exist_ok=True)
    with shown_store() as (browser, server, made):
        screen = next(each for each in all_screens(made) if each.name == README_SCREEN)
        for theme in THEMES:
            path = folder / f"viewer-{theme}.png"
            keep_picture(browser, server, screen, README_SIZE, theme, path)
            make_small(path)


if __name__ == "__main__":
    if sys.argv[1:]:
        keep_all(Path(sys.argv[1]))
    else:
        keep_for_readme()
