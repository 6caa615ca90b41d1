"""Files and images in a request: text files go to every model as text, others to the models that
take them. A part that a model cannot see is named in its place, and the caller is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from plait.errors import UnknownBlob
from plait.event.kinds import File, Image
from plait.ids import Digest
from plait.model.base import Answered, Model, Returned, Turn

IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
PDF = frozenset({"application/pdf"})
_OFFICE = "application/vnd.openxmlformats-officedocument."
DOCUMENTS = frozenset(
    {
        *PDF,
        f"{_OFFICE}wordprocessingml.document",
        f"{_OFFICE}presentationml.presentation",
        f"{_OFFICE}spreadsheetml.sheet",
        "application/msword",
        "application/vnd.ms-powerpoint",
        "application/vnd.ms-excel",
        "application/rtf",
        "application/vnd.oasis.opendocument.text",
    }
)
_TEXTS = frozenset(
    {
        "application/json",
        "application/xml",
        "application/yaml",
        "application/toml",
        "application/javascript",
        "application/x-sh",
        "application/sql",
    }
)

Blob = Callable[[Digest], bytes]


def is_text_type(media_type: str) -> bool:
    kind = media_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+json", "+xml"))


def part_bytes(part: Image | File, blob: Blob) -> bytes | None:
    """Return the content of a part. None: it was erased."""
    try:
        return blob(part.blob)
    except UnknownBlob:
        return None


def text_of_file(part: File, blob: Blob) -> str | None:
    """Return the text of a file. None: it is not text, is empty, or was erased."""
    content = part_bytes(part, blob) if is_text_type(part.media_type) else None
    try:
        return content.decode() if content and content.strip() else None
    except UnicodeDecodeError:
        return None


def shown_file(part: File, blob: Blob) -> str:
    """Return a file as words: its text, or that it is left out."""
    text = text_of_file(part, blob)
    return left_out_text(part, blob) if text is None else f"[the file {part.name}]\n{text}"


def left_out_text(part: Image | File, blob: Blob) -> str:
    """Return the words that stand for a part which the model cannot see."""
    content = part_bytes(part, blob)
    why = "it was erased" if content is None else "it is empty" if not content else ""
    why = why or f"{part.media_type}, {len(content or b'')} bytes, cannot be read here"
    name = (
        f"file: {part.name}" if isinstance(part, File) else f"image: {part.alt or part.media_type}"
    )
    return f"[{name}, left out: {why}]"


def can_take(part: Image | File, takes: frozenset[str], blob: Blob) -> bytes | None:
    """Return the content of a part that is sent as it is. None: it is not."""
    kind = part.media_type.partition(";")[0].strip().lower()
    return part_bytes(part, blob) or None if kind in takes else None


def unseen_parts(model: Model, turns: Sequence[Turn], blob: Blob) -> Iterator[Image | File]:
    """Yield the images and files in these turns that a model cannot see. A model without `takes`
    has not said what it can see.
    """
    takes: frozenset[str] | None = getattr(model, "takes", None)
    for part in files_in(turns) if takes is not None else ():
        is_text = isinstance(part, File) and text_of_file(part, blob) is not None
        if not is_text and can_take(part, takes or frozenset(), blob) is None:
            yield part


def files_in(turns: Sequence[Turn]) -> Iterator[Image | File]:
    for turn in turns:
        if isinstance(turn, Answered):
            continue
        results = turn.results if isinstance(turn, Returned) else (turn,)
        for each in results:
            for part in each.parts:
                if isinstance(part, (Image, File)):
                    yield part
