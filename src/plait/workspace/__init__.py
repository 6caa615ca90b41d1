"""Files as content-addressed trees."""

from plait.workspace.base import CHANGED_MAX, PIECE, Change, Entry, Files, Kind, Node, Snapshot
from plait.workspace.checkout import checkout
from plait.workspace.copies import (
    Copy,
    CopyInfo,
    Layered,
    Plain,
    cache_folder,
    list_copies,
    open_copy,
    open_in_place,
    snapshot_folder,
)
from plait.workspace.diff import Changes, changes
from plait.workspace.edited import edited
from plait.workspace.files import LocalFiles
from plait.workspace.merge import merge_trees, resolve
from plait.workspace.rules import HEAVY, Rules, heavy_in, rules_for
from plait.workspace.tree import EMPTY, EMPTY_BYTES, Objects, TreeReader, shown
from plait.workspace.view import Workspace

__all__ = [
    "CHANGED_MAX",
    "EMPTY",
    "EMPTY_BYTES",
    "HEAVY",
    "PIECE",
    "Change",
    "Changes",
    "Copy",
    "CopyInfo",
    "Entry",
    "Files",
    "Kind",
    "Layered",
    "LocalFiles",
    "Node",
    "Objects",
    "Plain",
    "Rules",
    "Snapshot",
    "TreeReader",
    "Workspace",
    "cache_folder",
    "changes",
    "checkout",
    "edited",
    "heavy_in",
    "list_copies",
    "merge_trees",
    "open_copy",
    "open_in_place",
    "resolve",
    "rules_for",
    "shown",
    "snapshot_folder",
]
