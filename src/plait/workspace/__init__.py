"""Files as content-addressed trees."""

from plait.workspace.base import CHANGED_MAX, PIECE, Change, Entry, Files, Kind, Node, Snapshot

__all__ = ["CHANGED_MAX", "PIECE", "Change", "Entry", "Files", "Kind", "Node", "Snapshot"]
