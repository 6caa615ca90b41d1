"""Answers about files: folders, files, differences, blame, and blobs."""

from __future__ import annotations

from plait.errors import NoSuchFile
from plait.ids import Digest, parse_digest
from plait.outline.files import blame_shape, file_shape, files_diff, folder_shape, image_type
from plait.outline.shapes import BlameShape, FilesDiff, FileShape, FolderShape
from plait.server.desk import Desk
from plait.server.params import BlameParams, BlobParams, DiffParams, FileParams, FolderParams
from plait.server.refusals import Refusal, error_shape, status_of
from plait.server.route import Blob

NO_TREE = "none"


def read_folder(desk: Desk, params: FolderParams) -> FolderShape:
    """Return the entries of a folder of a tree."""
    return folder_shape(desk.store, parse_digest(params.tree, "tree"), params.folder)


def read_file(desk: Desk, params: FileParams) -> FileShape:
    """Return a file of a tree, with so many of its lines."""
    tree = parse_digest(params.tree, "tree")
    try:
        return file_shape(desk.store, tree, params.path, params.first, params.count)
    except NoSuchFile as error:
        raise _with_near(desk, error, tree, params.path) from error


def read_diff(desk: Desk, params: DiffParams) -> FilesDiff:
    """Return the difference of two trees."""
    return files_diff(desk.store, _tree(params.left), _tree(params.right), params.path)


def read_blame(desk: Desk, params: BlameParams) -> BlameShape:
    """Return the events that wrote the lines of a file, as it was at a place."""
    session = desk.open(params.session)
    try:
        return blame_shape(session, params.path)
    except NoSuchFile as error:
        raise _with_near(desk, error, session.files.tree, params.path) from error


def read_blob(desk: Desk, params: BlobParams) -> Blob:
    """Return the bytes of an attachment."""
    content = desk.store.get_blob(parse_digest(params.digest))
    media = image_type(content)
    name = params.name or params.digest[:12]
    return Blob(content, media or "application/octet-stream", name, bool(media))


def _tree(text: str) -> Digest | None:
    return None if text == NO_TREE else parse_digest(text, "tree")


def _with_near(desk: Desk, error: NoSuchFile, tree: Digest | None, path: str) -> Refusal:
    """Return the answer for a path that is not there: with those that are like it."""
    return Refusal(status_of(error), error_shape(error, desk.near_paths(tree, path)))
