"""Files as content-addressed trees.

Trees and their spelling are imported at once; the modules that touch disks are imported by their
users.
"""

from plait.workspace.base import (
    CHANGED_MAX,
    PIECE,
    FileAccess,
    FileChange,
    Kind,
    NewEntry,
    TreeEntry,
    TreeSnapshot,
)
from plait.workspace.rules import HEAVY, Rules
from plait.workspace.tree import EMPTY, EMPTY_BYTES, Objects, TreeReader, shown_path
from plait.workspace.view import Workspace

__all__ = [
    "CHANGED_MAX",
    "EMPTY",
    "EMPTY_BYTES",
    "HEAVY",
    "PIECE",
    "FileChange",
    "TreeEntry",
    "FileAccess",
    "Kind",
    "NewEntry",
    "Objects",
    "Rules",
    "TreeSnapshot",
    "TreeReader",
    "Workspace",
    "shown_path",
]
