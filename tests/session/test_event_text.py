"""The line of an event in `plait log`, and the merge of each part of the story."""

from __future__ import annotations

from plait.event.kinds import KINDS
from plait.session.event_text import TEXTS
from plait.session.state import Story

NOT_WRITTEN_YET = {
    "MemoryExpired",
    "PrincipalChanged",
    "RoleChanged",
    "GrantChanged",
    "BodyRedacted",
    "CheckpointSigned",
}
"""Kinds that no verb writes so far."""

MERGED = {
    "facts": "three ways, by the writes that each side knew",
    "pending": "three ways",
    "tree": "three ways, file by file",
    "path": "the spans of the branch are appended",
    "scratch": "ours: it belongs to the branch that wrote it",
    "verdicts": "ours: a verdict is about the place where it was given",
    "placement": "ours",
}
"""The merge of each part of the story. A new part needs its line here, and a law."""


def test_every_kind_has_a_line_in_the_log() -> None:
    assert {kind.__name__ for kind in KINDS} - set(TEXTS) == NOT_WRITTEN_YET


def test_every_part_of_the_story_is_merged_in_a_way_that_is_said() -> None:
    assert set(Story.__struct_fields__) == set(MERGED)
