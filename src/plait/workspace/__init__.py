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
from plait.workspace.edited import edited
from plait.workspace.files import LocalFiles
from plait.workspace.rules import Rules, heavy_in, rules_for
from plait.workspace.tree import EMPTY, Objects, TreeReader, shown
from plait.workspace.view import Workspace

__all__ = [
    "CHANGED_MAX",
    "EMPTY",
    "PIECE",
    "Change",
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
    "checkout",
    "edited",
    "heavy_in",
    "list_copies",
    "open_copy",
    "open_in_place",
    "rules_for",
    "shown",
    "snapshot_folder",
]
