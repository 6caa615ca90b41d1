"""What tests look for in a page: its elements, their attributes, and the text that is shown."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from plait.dossier.making import make_dossier
from plait.dossier.shapes import Dossier
from plait.view.html import BuiltPage
from tests.outline.sessions import ViewStore

PAGE = BuiltPage("console.log(1)", "body { color: red }", b"<svg/>")
NOW = 1_800_000_000_000_000


class PageElements(HTMLParser):
    """The elements of a page as a browser would make them."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: dict[str, int] = {}
        self.attributes: set[str] = set()
        self.anchors: list[str] = []
        self.links: list[str] = []
        self._texts: list[str] = []
        self.feed(document)
        self.close()

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                self.anchors.append(value or "")
            elif name == "href":
                self.links.append(value or "")

    def handle_data(self, data: str) -> None:
        self._texts.append(data)


def dossier_of(made: ViewStore, name: str) -> Dossier:
    return make_dossier(made.session(name), made=NOW)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
