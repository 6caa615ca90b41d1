"""Check that a built site loads nothing from elsewhere: `python tools/check_site.py FOLDER`.

A link that a reader follows may lead elsewhere. What a page loads by itself may not: scripts,
styles, fonts, pictures, frames, and addresses in styles.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

# attributes by which an element loads something; of a link only those of these relations
LOADING = {"src", "srcset", "data", "poster", "background"}
RELATIONS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "manifest"}
ELSEWHERE = re.compile(r"(?:https?:)?//", re.IGNORECASE)
IN_STYLE = re.compile(r"(?:url\(\s*|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)


class Loads(HTMLParser):
    """Collects the addresses elsewhere that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        names = set(LOADING)
        if tag == "link" and RELATIONS & set(given.get("rel", "").lower().split()):
            names.add("href")
        if tag in ("image", "use"):
            names |= {"href", "xlink:href"}
        self.found += [
            address
            for name in names & set(given)
            for address in given[name].split()
            if ELSEWHERE.match(address)
        ]
        self.found += IN_STYLE.findall(given.get("style", ""))


def loads_of(path: Path) -> list[str]:
    """Return the addresses elsewhere that a page, a picture or a style loads."""
    text = path.read_text(errors="replace")
    if path.suffix == ".css":
        return IN_STYLE.findall(text)
    page = Loads()
    page.feed(text)
    styles = re.findall(r"<style.*?</style>", text, re.DOTALL)
    return [*page.found, *(address for style in styles for address in IN_STYLE.findall(style))]


def check_site(folder: Path) -> list[str]:
    """Return a line for each thing that a site loads from elsewhere."""
    pages = [path for path in sorted(folder.rglob("*")) if path.suffix in (".html", ".css", ".svg")]
    return [f"{path.relative_to(folder)}: {found}" for path in pages for found in loads_of(path)]


if __name__ == "__main__":
    site = Path(sys.argv[1])
    pages = len(list(site.rglob("*.html")))
    if wrong := check_site(site):
        sys.exit("\n".join(["loaded from elsewhere:", *wrong]))
    print(f"{pages} pages, nothing loaded from elsewhere: open {site / 'index.html'}")
