from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.folder_sandbox import FolderSandbox


@pytest.fixture
def box(tmp_path: Path) -> FolderSandbox:
    """A sandbox with an empty workspace."""
    (tmp_path / "work").mkdir()
    (tmp_path / "aside").mkdir()
    return FolderSandbox(tmp_path / "work", tmp_path / "aside")


@pytest.fixture
def root(box: FolderSandbox) -> Path:
    return box.files.root
