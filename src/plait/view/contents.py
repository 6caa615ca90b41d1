"""The files of a family for a file: folders and contents by digest, the events that wrote them,
prompts, and blobs.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec

from plait.errors import PlaitError
from plait.event import Event
from plait.event.kinds import Body, Merged, ModelAsked, ToolFailed, ToolRequested, ToolReturned
from plait.ids import Digest, LogId
from plait.outline.files import image_type
from plait.outline.shapes import FamilyShape, PartShape, StepDetail
from plait.outline.texts import body_of
from plait.server.desk import ServerDesk
from plait.server.params import SessionParams
from plait.server.shapes import PromptShape
from plait.server.tracing import read_prompt
from plait.session.blame import taken_branch
from plait.session.files import TREE_KINDS, tree_left_by
from plait.view.chunks import Chunks
from plait.workspace import TreeEntry
from plait.workspace.base import CHANGED_MAX
from plait.workspace.lines import as_text
from plait.workspace.tree import TreeReader, shown_path

FILE_MAX, BLOB_MAX = 1 << 20, 1 << 20  # bytes of one file, and of one attachment
PIECE_MAX = 1 << 18  # bytes of a piece of contents, before it is compressed
PROMPTS_MAX = 600  # in a family; the others are named as left out
_REQUESTED = ToolRequested.__name__


class Contents:
    """Collects what steps point to, each content once."""

    def __init__(self, desk: ServerDesk, family: FamilyShape, chunks: Chunks) -> None:
        self._desk, self._family, self._chunks = desk, family, chunks
        self._reader = TreeReader(desk.store)
        self._trees: dict[Digest, None] = {}
        self._blobs: dict[Digest, None] = {}
        self._logs = {branch.log: at for at, branch in enumerate(family.branches)}
        self.left_out: list[str] = []

    def take(self, detail: StepDetail) -> None:
        """Note the trees and blobs of a step."""
        for tree in (detail.tree_before, detail.tree_after):
            if tree is not None:
                self._trees[tree] = None
        for part in (*detail.parts, *detail.asked_parts, *detail.kept):
            if part.blob is not None and _is_wanted(part):
                self._blobs[part.blob] = None

    # ── files ────────────────────────────────────────────────────────────────────────────────

    def add_files(self) -> None:
        """Add every folder and file of the trees that were noted."""
        folders, files = dict[Digest, list[Any]](), dict[str, TreeEntry]()
        waiting = list(self._trees)
        while waiting:
            folder = waiting.pop()
            if folder in folders:
                continue
            try:
                entries = self._reader.entries(folder)
            except PlaitError:
                self.left_out.append(f"the folder {folder[:12]}, which the store does not have")
                continue
            folders[folder] = [_entry(entry) for entry in entries]
            for entry in entries:
                if entry.kind == "folder":
                    waiting.append(entry.blobs[0])
                elif entry.kind == "file":
                    files[content_key(entry)] = entry
        self._chunks.add("folders/0", folders)
        self._add_contents(files)

    def _add_contents(self, files: dict[str, TreeEntry]) -> None:
        index, piece, size, number = dict[str, int](), dict[str, Any](), 0, 0
        for key, entry in files.items():
            if entry.size > FILE_MAX:
                self.left_out.append(f"a file of {entry.size:,} bytes: {shown_path(entry.name)}")
                continue
            try:
                content = self._reader.content(entry)
            except PlaitError:
                self.left_out.append(f"the content of {shown_path(entry.name)}, which is gone")
                continue
            piece[key] = _content(content)
            index[key] = number
            size += len(content)
            if size >= PIECE_MAX:
                self._chunks.add(f"contents/{number}", piece)
                piece, size, number = {}, 0, number + 1
        self._chunks.add(f"contents/{number}", piece)
        self._chunks.add("content-index/0", index)

    def add_versions(self) -> None:
        """Add the events that left another tree. The page attributes the lines of files to them, as
        `session/blame.py` does.
        """
        rows = list[Any]()
        for at, branch in enumerate(self._family.branches):
            tools = dict[str | None, str]()
            for event in self._desk.store.read(
                branch.log, branch.place + 1, branch.tip, kinds=TREE_KINDS | {_REQUESTED}
            ):
                body = body_of(event)
                if isinstance(body, ToolRequested):
                    tools[event.header.call] = body.tool
                elif body is not None and (tree := tree_left_by(event)) is not None:
                    self._trees[tree] = None
                    tool = tools.get(event.header.call, "")
                    rows.append([at, event.seq, tree, *self._writer(event, body, tool)])
        self._chunks.add("versions/0", rows)

    def _writer(self, event: Event, body: Body, tool: str) -> list[Any]:
        """Return who left a tree, the places of branches whose files came with it, and the paths
        that changed; None: any path may have.
        """
        places, changed = list[tuple[LogId, int]](), None
        if isinstance(body, Merged):
            places = [(place.log, place.seq) for place in body.branches]
        elif isinstance(body, (ToolReturned, ToolFailed)) and body.trees is not None:
            few = len(body.trees.changed) < CHANGED_MAX
            changed = body.trees.changed if few else None
            if isinstance(body, ToolReturned):
                taken = taken_branch(self._desk.store, event)
                places = [(taken.log, taken.seq)] if taken is not None else []
        known = [[self._logs[log], seq] for log, seq in places if log in self._logs]
        return [event.kind, tool, event.actor, event.time, event.id, known, changed]

    # ── prompts ──────────────────────────────────────────────────────────────────────────────

    def add_prompts(self) -> None:
        """Add the prompts as they were sent. Turns that the one before has are not repeated."""
        asks = [
            (branch.log, event.seq)
            for branch in self._family.branches
            for event in self._desk.store.read(
                branch.log, branch.place + 1, branch.tip, kinds={ModelAsked.__name__}
            )
        ]
        if len(asks) > PROMPTS_MAX:
            self.left_out.append(
                f"{len(asks) - PROMPTS_MAX:,} earlier prompts: plait show S@k --prompt has them"
            )
        rows, before = list[Any](), dict[str, PromptShape]()
        for log, seq in asks[-PROMPTS_MAX:]:
            try:
                shape = read_prompt(self._desk, SessionParams(session=f"{log}@{seq}"))
            except PlaitError:  # a part of it was erased
                continue
            rows.append(_shared_prompt(log, seq, shape, before.get(f"{log} {shape.agent}")))
            before[f"{log} {shape.agent}"] = shape
        self._chunks.add("prompts/0", rows)

    # ── blobs ────────────────────────────────────────────────────────────────────────────────

    def add_blobs(self) -> None:
        """Add attachments: images, and long outputs."""
        images = dict[Digest, Any]()
        for digest in self._blobs:
            try:
                content = self._desk.store.get_blob(digest)
            except PlaitError:
                continue
            if len(content) > BLOB_MAX:
                self.left_out.append(f"an attachment of {len(content):,} bytes ({digest[:12]})")
                continue
            media = image_type(content)
            row = {"media_type": media or "text/plain", "data": b64encode(content).decode()}
            if media:
                images[digest] = row
            else:
                self._chunks.add(f"blobs/{digest}", {digest: row})
        self._chunks.add("images/0", images)


def content_key(entry: TreeEntry) -> str:
    """Return the name of a file's content: its digest, or those of its pieces."""
    return "+".join(entry.blobs)


def _is_wanted(part: PartShape) -> bool:
    return part.is_cut or part.type in ("image", "file", "text", "data")


def _entry(entry: TreeEntry) -> list[Any]:
    key = entry.blobs[0] if entry.kind == "folder" else content_key(entry)
    is_executable = 1 if entry.kind == "file" and entry.mode & 0o100 else 0
    target = shown_path(entry.target)
    return [shown_path(entry.name), entry.kind, entry.size, is_executable, key, target]


def _content(content: bytes) -> dict[str, str]:
    """Return a content as the page shows it: text, an image, or neither."""
    text = as_text(content)
    if text is not None:
        return {"text": content.decode("utf-8", "replace")}
    media = image_type(content)
    return {"image": media, "data": b64encode(content).decode()} if media else {}


def _shared_prompt(log: LogId, seq: int, shape: PromptShape, before: PromptShape | None) -> Any:
    """Return a prompt, with the number of turns that are those of the one before."""
    document: dict[str, Any] = msgspec.to_builtins(shape)
    shared = 0
    if before is not None:
        for old, new in zip(before.turns, shape.turns, strict=False):
            if old != new:
                break
            shared += 1
        for name in ("instruction", "tools", "view", "output", "parameters"):
            if getattr(before, name) == getattr(shape, name):
                del document[name]
    document["turns"] = list(shape.turns[shared:])
    return [log, seq, shared, document]
