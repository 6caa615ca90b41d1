"""The page as it was built into the package; in a fresh clone it is not."""

from __future__ import annotations

from pathlib import Path

BUILT = Path(__file__).parent / "dist"


def is_page_built() -> bool:
    """True if `plait view` has a page to show."""
    return (BUILT / "index.html").is_file()
