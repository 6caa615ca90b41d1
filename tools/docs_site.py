"""The hook of mkdocs: brings pages of the repository beside docs/ into the site, and mends links.

The README is the first page of the site. A file of the repository that a page links to becomes a
page below `repository/`: Markdown as it is, code in a block. So a link that works in the repository
works on the site, and no page is written twice. A folder in the navigation stands for its pages.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)")
SOURCE = re.compile(r'((?:src|srcset|href)=")(?!\w+:|#)([^"#]+)')
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml", ".ts": "typescript"}
HOME = "README.md"
# files of the repository that stand in the navigation
NAMED = ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", "examples/README.md")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace each folder in the navigation by its pages."""
    config["nav"] = expanded(cast("object", config["nav"]))
    return config


def expanded(nav: object) -> object:
    """Return a navigation with the pages of its folders."""
    if isinstance(nav, list):
        return [expanded(entry) for entry in cast("list[Any]", nav)]
    if isinstance(nav, dict):
        return {title: expanded(entry) for title, entry in cast("dict[str, Any]", nav).items()}
    if isinstance(nav, str) and (DOCS / nav).is_dir():
        return [path.relative_to(DOCS).as_posix() for path in sorted((DOCS / nav).glob("*.md"))]
    return nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README as the first page, and a page for each file that pages link to."""
    seen: set[Path] = set()
    queue = [ROOT / HOME, *(ROOT / name for name in NAMED), *sorted(DOCS.rglob("*.md"))]
    while queue:
        path = queue.pop()
        if path in seen:
            continue
        seen.add(path)
        if not path.is_relative_to(DOCS):
            text = page_text(path)
            page = File.generated(config, page_uri(path), content=text)
            named = path.relative_to(ROOT).as_posix() in (HOME, *NAMED)
            page.inclusion = InclusionLevel.INCLUDED if named else InclusionLevel.NOT_IN_NAV
            files.append(page)
        if path.suffix == ".md":
            queue += targets_of(path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mend the links of a page: they are written for its place in the repository."""
    here = repository_path(page.file.src_uri)
    return mended(markdown, here, page.file.src_uri)


def mended(text: str, here: Path, uri: str) -> str:
    """Return the text of the page at a path with links to the pages of the site."""

    def mend(found: re.Match[str]) -> str:
        target = target_of(here, found[2])
        if target is None:
            return found[0]
        return found[1] + os.path.relpath(page_uri(target), os.path.dirname(uri) or ".")

    def mend_part(part: str) -> str:
        return SOURCE.sub(mend, LINK.sub(mend, part))

    pieces: list[str] = []
    end = 0
    for block in FENCED.finditer(text):  # links in code are code
        pieces += [mend_part(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*pieces, mend_part(text[end:])])


def targets_of(path: Path) -> Iterator[Path]:
    """Yield the files of the repository, beside docs/, that a page links to."""
    text = FENCED.sub("", path.read_text())
    for link in (*LINK.finditer(text), *SOURCE.finditer(text)):
        target = target_of(path, link[2])
        if target is not None and not target.is_relative_to(DOCS):
            yield target


def target_of(here: Path, link: str) -> Path | None:
    """Return the file that a link of the page at a path leads to; None: there is no such file."""
    target = Path(os.path.normpath(here.parent / link))
    return target if target.is_file() and target.is_relative_to(ROOT) else None


def page_uri(path: Path) -> str:
    """Return the address of a file of the repository in the site."""
    if path == ROOT / HOME:
        return "index.md"
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    # a README would be the first page of its section
    name = path.relative_to(ROOT).as_posix().replace("README.md", "about.md")
    return f"repository/{name}" if path.suffix == ".md" else f"repository/{name}.md"


def repository_path(uri: str) -> Path:
    """Return the file of the repository that a page of the site was made of."""
    if uri == "index.md":
        return ROOT / HOME
    if not uri.startswith("repository/"):
        return DOCS / uri
    name = uri.removeprefix("repository/").replace("about.md", "README.md")
    return ROOT / name if (ROOT / name).exists() else ROOT / name.removesuffix(".md")


def page_text(path: Path) -> str:
    """Return a file as Markdown."""
    text = path.read_text()
    if path.suffix == ".md":
        return text
    name = path.relative_to(ROOT).as_posix()
    return f"# {name}\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{text}\n````\n"
