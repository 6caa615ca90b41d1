"""The site of the documentation: each page has a place, each public name a reference.

`make docs` builds the site, and fails on a link, an anchor or a page that leads nowhere.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import plait
from plait import policy, testing
from tests.support import ROOT
from tools import check_site, docs_site

REFERENCE = ROOT / "docs" / "reference"
# pages of the site in mkdocs.yml: `- words/event.md`, `- Changes: repository/CHANGELOG.md`
PAGE = re.compile(r"^ *- (?:[^:#\n]+: )?([\w./-]+?)(?:\.md)?$", re.MULTILINE)


def test_each_public_name_has_one_entry_in_the_reference() -> None:
    named = [
        name
        for page in sorted(REFERENCE.glob("*.md"))
        for name in re.findall(r"^::: ([\w.]+)", page.read_text(), re.MULTILINE)
    ]
    assert len(named) == len(set(named))
    public = {f"plait.{name}" for name in plait.__all__}
    public |= {f"plait.policy.{name}" for name in policy.__all__}
    public |= {f"plait.testing.{name}" for name in testing.__all__}
    assert public - set(named) == set()


def test_each_page_stands_once_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = [entry for entry in PAGE.findall(nav) if entry != "index"]
    assert len(named) == len(set(named))
    pages = {
        path.relative_to(ROOT / "docs").with_suffix("").as_posix()
        for path in (ROOT / "docs").rglob("*.md")
    }
    folders = {name for name in named if (ROOT / "docs" / name).is_dir()}
    in_folders = {page for page in pages if page.rpartition("/")[0] in folders}
    assert pages - in_folders - set(named) == set(), (
        "Give the page a line below `nav` in mkdocs.yml."
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<script src="https://elsewhere.example/a.js"></script>', "https://elsewhere.example/a.js"),
        ('<link rel="stylesheet" href="//elsewhere.example/a.css">', "//elsewhere.example/a.css"),
        ('<img srcset="a.png 1x, http://elsewhere.example/b.png 2x">', "http://elsewhere.example/b.png"),
        ("<style>@import 'https://elsewhere.example/a.css';</style>", "https://elsewhere.example/a.css"),
        ('<p style="background: url(https://elsewhere.example/a.png)">', "https://elsewhere.example/a.png"),
        ('<a href="https://elsewhere.example">a link to follow</a>', None),
        ('<link rel="canonical" href="https://elsewhere.example">', None),
        ('<script src="a.js"></script><img src="data:image/gif;base64,R0lG">', None),
    ],
)  # fmt: skip
def test_loads_from_elsewhere_are_found(text: str, found: str | None, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(text)
    wanted = [] if found is None else [f"page.html: {found}"]
    assert check_site.check_site(tmp_path) == wanted


def test_links_of_the_repository_become_links_of_the_site() -> None:
    text = "[a](../CHANGELOG.md) [b](runs.md#limits) [c](https://x.example) `[d](e.md)`"
    here = ROOT / "docs" / "session.md"
    assert docs_site.mended(text, here, "session.md").startswith(
        "[a](repository/CHANGELOG.md) [b](runs.md#limits) [c](https://x.example)"
    )
    home = '<img src="docs/pictures/viewer-light.png"> [words](docs/words/index.md)'
    assert docs_site.mended(home, ROOT / "README.md", "index.md") == (
        '<img src="pictures/viewer-light.png"> [words](words/index.md)'
    )
    example = "see [it](chat_server.py), [the page](../docs/chat.md)"
    assert docs_site.mended(
        example, ROOT / "examples/README.md", "repository/examples/about.md"
    ) == ("see [it](chat_server.py.md), [the page](../../chat.md)")
    assert docs_site.repository_path("repository/examples/payment.py.md") == (
        ROOT / "examples" / "payment.py"
    )


def test_recordings_are_for_both_themes_and_load_nothing() -> None:
    pictures = ROOT / "docs" / "pictures"
    assert check_site.check_site(pictures) == []
    for path in pictures.glob("*.svg"):
        text = path.read_text()
        assert "prefers-color-scheme: dark" in text and "@font-face" not in text
        assert "/tmp/" not in text and str(ROOT) not in text, "a path of this machine"
