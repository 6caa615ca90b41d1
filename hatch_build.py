"""The build of a wheel or an sdist: the page of the viewer is built first, with Node.

It is skipped for editable installs (`make viewer` builds it there), if the page is up to date, and
with PLAIT_WITHOUT_PAGE=1: then `plait view` says what is missing. An sdist has the built page, so
that a wheel made from it needs no Node.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WITHOUT = "PLAIT_WITHOUT_PAGE"
STAMP = "sources.sha256"
NEXT = f"Install Node 20 or newer with npm, or build without the page: {WITHOUT}=1"


class PageMissing(RuntimeError):
    """A wheel without the page must be asked for."""


class PageBuild(BuildHookInterface[Any]):
    """Builds `viewer/` into `src/plait/view/dist`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        sources, built = root / "viewer", root / "src" / "plait" / "view" / "dist"
        if version == "editable" or os.environ.get(WITHOUT):
            return
        if not (sources / "package.json").is_file():  # an sdist
            if not (built / "index.html").is_file():
                raise PageMissing(f"the page of the viewer is missing. {NEXT}")
            return
        wanted = digest_of(sources)
        stamp = built / STAMP
        if not stamp.is_file() or stamp.read_text() != wanted:
            build_page(sources)
            stamp.write_text(wanted)


def digest_of(sources: Path) -> str:
    """Return a digest of all that the page is built from."""
    found = sha256()
    for path in sorted(sources.rglob("*")):
        inside = path.relative_to(sources)
        if path.is_file() and not {"node_modules", "test", "dev"} & set(inside.parts):
            found.update(f"{inside}\0{path.stat().st_size}\0".encode())
            found.update(path.read_bytes())
    return found.hexdigest()


def build_page(sources: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise PageMissing(f"the page of the viewer is built with npm, which is not there. {NEXT}")
    for command in ([npm, "ci", "--no-audit", "--no-fund"], [npm, "run", "build"]):
        done = subprocess.run(command, cwd=sources, capture_output=True, text=True)
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[:2000]
            raise PageMissing(f"{' '.join(command[1:])} failed: {said}\n{NEXT}")


if __name__ == "__main__":  # make viewer
    here = Path(__file__).parent
    build_page(here / "viewer")
    (here / "src" / "plait" / "view" / "dist" / STAMP).write_text(digest_of(here / "viewer"))
