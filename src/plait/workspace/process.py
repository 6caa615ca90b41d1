"""The tables of this process that stand behind workspaces: all that they remember outside of
stores and folders.

Each field has one module that reads and writes it, named beside it. They stand together so that one
hook puts them right in a forked child.
"""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any


class WorkspaceTables:
    """Values are `Any` where their class belongs to a module above this one."""

    def __init__(self) -> None:
        # workspace.copy_state: by the address of a store in memory: its sandboxes share one
        # folder. A forked child works in the folder of its parent, which removes it.
        self.temporary_folders: dict[str, Path] = {}
        # workspace.disk: of temporary names, which hold the id of the process, too
        self.temporary_numbers = count(1)
        self.start_child()

    def start_child(self) -> None:
        """Replace the locks that threads of the parent may have held, and forget searches that they
        may have left half done.
        """
        # workspace.masks: by heavy folder, which is mounted for every command
        self.searches: dict[str, Any] = {}
        self.searches_lock = Lock()
        self.folders_lock = Lock()


WORKSPACES = WorkspaceTables()

os.register_at_fork(after_in_child=WORKSPACES.start_child)
