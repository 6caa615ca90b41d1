"""Content of messages and attachments, as parts and the blobs that go with them.

A text is said as it is; a path becomes an image or a file by its name; a dict or a list becomes
data. Content of more than a few KB goes to the blob store, by digest, so that the same long text is
kept once however often it is said.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from plait import secrets
from plait.errors import InvalidValue, MalformedJson, UnknownBlob
from plait.event import VOCABULARY, Json
from plait.event.hidden import without_secrets
from plait.event.kinds import Data, File, Image, Part, Parts, Reasoning, ScratchSet, Text
from plait.event.strict import check_text
from plait.ids import Digest
from plait.session.typed import to_json

INLINE_MAX = 4096  # bytes of one part that stay in the event


class Loose(NamedTuple):
    """A part whose bytes are still to be stored; made by `image` and `file`."""

    content: bytes
    media_type: str
    name: str | None  # None: an image
    alt: str = ""

    def part(self, blob: Digest) -> Image | File:
        return (
            Image(self.media_type, blob, self.alt)
            if self.name is None
            else File(self.name, self.media_type, blob)
        )


Content = (
    str
    | Path
    | Loose
    | Text
    | Reasoning
    | Image
    | File
    | Data
    | Mapping[str, Json]
    | Sequence[Json]
)


def image(source: bytes | str | Path, media_type: str | None = None, *, alt: str = "") -> Loose:
    """Make an image to say or attach: bytes with their media type, or the path of a file."""
    content, name = _load(source)
    return Loose(content, media_type or _guess(name, "image/"), None, alt)


def file(
    source: bytes | str | Path, name: str | None = None, media_type: str | None = None
) -> Loose:
    """Make a file to say or attach: its path, or bytes and a name."""
    content, found = _load(source)
    called = name or found
    if not called:
        raise InvalidValue("name", "bytes have no name of their own", "pass name=")
    return Loose(content, media_type or _guess(called), called)


def contents(value: Any) -> list[Any]:
    """Return the result of a tool as contents of a message: texts, images and files as they are,
    all else as data.
    """
    if value is None:
        return []
    if isinstance(value, (str, Loose, Text, Image, File, Data)):
        return [value] if value != "" else [Data("")]
    if isinstance(value, (bytes, bytearray)):
        return [Loose(bytes(value), "application/octet-stream", "result")]
    items = cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()
    if any(isinstance(item, (Loose, Text, Image, File)) for item in items):
        return [part for item in items for part in contents(item)]
    return [Data(to_json(value))]


def pack(contents: Sequence[Content], where: str) -> tuple[Parts, dict[Digest, bytes]]:
    """Return the parts, and the blobs that must be stored with them."""
    blobs: dict[Digest, bytes] = {}
    if "" in contents and all(content == "" for content in contents):
        raise InvalidValue(where, "nothing is said", "pass a text that says something")
    return tuple([_pack(content, blobs, where) for content in contents]), blobs


def _pack(
    content: Content, blobs: dict[Digest, bytes], where: str
) -> Text | Reasoning | Image | File | Data:
    if isinstance(content, str):
        return _move_to_blob(Text(secrets.hide_text(content)), blobs)
    if isinstance(content, Path):
        kind = _guess(content.name)
        content = (
            image(content, kind) if kind.startswith("image/") else file(content, media_type=kind)
        )
    if isinstance(content, Loose):
        return content.part(_add_blob(secrets.hide_bytes(content.content), blobs))
    if isinstance(content, (Text, Reasoning, Image, File, Data)):
        return _move_to_blob(without_secrets(content), blobs)
    if isinstance(content, (Mapping, list, tuple)):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        return _move_to_blob(without_secrets(Data(_plain(content))), blobs)
    step = "say a text, a Path, image(…), file(…), a dict or a list"
    raise InvalidValue(where, f"a {type(content).__name__} is not something that can be said", step)


def _move_to_blob(
    part: Text | Reasoning | Image | File | Data, blobs: dict[Digest, bytes]
) -> Text | Reasoning | Image | File | Data:
    """Return the part with its long content moved to a blob."""
    if isinstance(part, Text):
        text = part.text
        if (
            part.blob is None
            and len(text) > INLINE_MAX // 4
            and not (text.isascii() and len(text) <= INLINE_MAX)
        ):
            check_text(text, "text")
            content = text.encode()
            if len(content) > INLINE_MAX:
                return Text(blob=_add_blob(content, blobs))
        return part
    if (
        isinstance(part, Data)
        and part.blob is None
        and not isinstance(part.value, (int, float, bool, type(None)))
    ):
        content = _json(part.value)
        if len(content) > INLINE_MAX:
            return Data(blob=_add_blob(content, blobs))
    return part


def _add_blob(content: bytes, blobs: dict[Digest, bytes]) -> Digest:
    digest = Digest(sha256(content).hexdigest())
    blobs[digest] = content
    return digest


def _json(value: Json) -> bytes:
    """Return the JSON of a value that goes to a blob, after a check that it reads back the same."""
    VOCABULARY.encode(ScratchSet("data", value))
    return msgspec.json.encode(value, order="deterministic")


def _plain(content: Mapping[str, Json] | Sequence[Json]) -> Json:
    return dict(content) if isinstance(content, Mapping) else list(content)


def _load(source: bytes | str | Path) -> tuple[bytes, str]:
    if isinstance(source, bytes):
        return source, ""
    path = Path(source)
    try:
        return path.read_bytes(), path.name
    except OSError as error:
        raise InvalidValue(
            "file", f"{path} cannot be read: {error.strerror or error}", "check the path"
        ) from error


def _guess(name: str, wanted: str = "") -> str:
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    if wanted and not kind.startswith(wanted):
        raise InvalidValue(
            "media_type",
            f"{name or 'the bytes'} may be anything",
            f"pass media_type={wanted + 'png'!r} or what it is",
        )
    return kind


# ── reading ──────────────────────────────────────────────────────────────────────────────────


def unpack(parts: Parts, get_blob: Callable[[Digest], bytes]) -> Parts:
    """Return the parts with texts and data filled in again; images and files stay references."""
    for part in parts:
        if part.blob:
            return tuple([_unpack(part, get_blob) if part.blob else part for part in parts])
    return parts  # as most are


def _unpack(
    part: Part, get_blob: Callable[[Digest], bytes]
) -> Text | Reasoning | Image | File | Data:
    try:
        if isinstance(part, Text) and part.blob:
            return Text(get_blob(part.blob).decode(), part.blob)
        if isinstance(part, Data) and part.blob:
            return Data(msgspec.json.decode(get_blob(part.blob)), part.blob)
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise MalformedJson(f"the blob of a {type(part).__name__} part: {error}") from error
    except UnknownBlob:
        pass  # erased: its kind and digest are still known
    return cast("Text", part)


def value_of(parts: Parts) -> Any:
    """Return parts as a program sees them: data as data, a text as a text, several parts as a list,
    reasoning left out. None: there are none.
    """
    said = [part for part in parts if not isinstance(part, Reasoning)]
    values = [
        part.value if isinstance(part, Data) else part.text if isinstance(part, Text) else part
        for part in said
    ]
    return None if not values else values[0] if len(values) == 1 else values


def text_of(parts: Parts) -> str:
    """Return the text of parts: images and files are named in brackets, reasoning is left out."""
    return "\n".join(_part_text(part) for part in parts if not isinstance(part, Reasoning))


def _part_text(part: Part) -> str:
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Image):
        return f"[image: {part.alt or part.media_type}]"
    if isinstance(part, File):
        return f"[file: {part.name}]"
    assert isinstance(part, Data)
    return msgspec.json.encode(part.value).decode()
