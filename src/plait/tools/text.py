"""Text as tools show and compare it: lines, bounded views, differences, and media types.

A line ends at its line feed and nowhere else, as git counts them: a carriage return is part of the
line, so that files keep theirs.
"""

from __future__ import annotations

import difflib
import mimetypes
from collections.abc import Sequence
from hashlib import sha256

from plait.sandbox import VIEW_MAX

# characters of content in one result: there is room for a word about the rest
SHOWN_MAX = VIEW_MAX - 1_000
DIFF_MAX = 20_000  # characters of a difference that stand in the evidence itself
# pairs of lines that are compared one by one; beyond, the difference is one block
_COMPARE_MAX = 4_000_000
NO_NEWLINE = "\\ No newline at end of file"

_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def lines_of(text: str) -> list[str]:
    """Return the lines with their ends; only the last may have none."""
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def bounded_text(text: str, limit: int = SHOWN_MAX) -> str:
    """Return the text, or its beginning and its end if it is longer than the limit."""
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    return f"{text[:head]}\n[… {len(text) - head - tail:,} characters left out …]\n{text[-tail:]}"


def count_text(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def text_or_none(content: bytes) -> str | None:
    """Return the text that the bytes are; None: they are none."""
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None


def image_type(content: bytes) -> str | None:
    """Return the media type of a picture that models can look at, by its first bytes; None: it is
    none.
    """
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if content.startswith(magic)), None)


def media_type(path: str, content: bytes) -> str:
    return image_type(content) or mimetypes.guess_type(path)[0] or "application/octet-stream"


def digest_of(content: bytes) -> str:
    return sha256(content).hexdigest()


def is_crlf(text: str) -> bool:
    """Return True if every line ends as on Windows."""
    return "\r\n" in text and text.count("\n") == text.count("\r\n")


def as_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def unified_diff(path: str, before: str | None, after: str | None, context: int = 3) -> str:
    """Return the difference as git writes it, fit for `git apply`; None: there is no such file.

    "" if nothing differs.
    """
    old, new = lines_of(before or ""), lines_of(after or "")
    if before == after:
        return ""
    head = [f"--- {_side_name('a', path, before)}", f"+++ {_side_name('b', path, after)}"]
    body = [
        line for group in _hunk_groups(old, new, context) for line in _hunk_lines(group, old, new)
    ]
    return "\n".join([*head, *body]) + "\n"


def changed_lines(before: str, after: str) -> tuple[int, int]:
    """Return the numbers of lines added and removed."""
    blocks = [block for block in _blocks(lines_of(before), lines_of(after)) if block[0] != "equal"]
    return sum(block[4] - block[3] for block in blocks), sum(
        block[2] - block[1] for block in blocks
    )


# the operation, and its lines: from and to in the old, from and to in the new
_Block = tuple[str, int, int, int, int]


def _side_name(prefix: str, path: str, text: str | None) -> str:
    if text is None:
        return "/dev/null"
    name = f"{prefix}/{path}"
    odd = any(char in '"\\' or ord(char) < 32 or ord(char) == 127 for char in name)
    return quoted_name(name) if odd else f"{name}\t" if " " in name else name


def quoted_name(name: str) -> str:
    """Return a name with odd characters in it, as git writes it."""
    return (
        '"'
        + "".join(
            f"\\{ord(char):03o}" if ord(char) < 32 or ord(char) == 127 or char in '"\\' else char
            for char in name
        )
        + '"'
    )


def _hunk_groups(old: Sequence[str], new: Sequence[str], context: int) -> list[list[_Block]]:
    """Return groups of blocks, each for one hunk, with a few equal lines around them."""
    groups: list[list[_Block]] = []
    for tag, i1, i2, j1, j2 in _blocks(old, new):
        if tag != "equal":
            if not groups:
                groups.append([])
            groups[-1].append((tag, i1, i2, j1, j2))
            continue
        if groups and groups[-1]:
            groups[-1].append((tag, i1, min(i1 + context, i2), j1, min(j1 + context, j2)))
        if not groups or i2 - i1 > 2 * context:
            groups.append([(tag, max(i2 - context, i1), i2, max(j2 - context, j1), j2)])
        else:
            groups[-1][-1] = (tag, i1, i2, j1, j2)
    return [
        _trim_group(group, context)
        for group in groups
        if any(block[0] != "equal" for block in group)
    ]


def _trim_group(group: list[_Block], context: int) -> list[_Block]:
    """Remove equal lines at the end of a group beyond the context."""
    tag, i1, i2, j1, j2 = group[-1]
    return (
        [*group[:-1], (tag, i1, min(i2, i1 + context), j1, min(j2, j1 + context))]
        if tag == "equal"
        else group
    )


def _blocks(old: Sequence[str], new: Sequence[str]) -> list[_Block]:
    """Return the blocks of equal and of changed lines.

    Equal lines at both ends are set aside first: comparing the rest takes the product of their
    lengths.
    """
    start = _common_size(old, new)
    end = _common_size(old[start:][::-1], new[start:][::-1])
    a, b = old[start : len(old) - end], new[start : len(new) - end]
    if len(a) * len(b) > _COMPARE_MAX:
        middle: list[_Block] = [("replace", 0, len(a), 0, len(b))]
    else:
        middle = list(difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes())
    moved = [
        (tag, i1 + start, i2 + start, j1 + start, j2 + start) for tag, i1, i2, j1, j2 in middle
    ]
    around_end = (len(old) - end, len(old), len(new) - end, len(new))
    return [
        *([("equal", 0, start, 0, start)] if start else []),
        *moved,
        *([("equal", *around_end)] if end else []),
    ]


def _common_size(old: Sequence[str], new: Sequence[str]) -> int:
    return next(
        (number for number, (one, other) in enumerate(zip(old, new, strict=False)) if one != other),
        min(len(old), len(new)),
    )


def _hunk_lines(group: Sequence[_Block], old: Sequence[str], new: Sequence[str]) -> list[str]:
    first, last = group[0], group[-1]
    lines = [f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@"]
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            lines += [text for line in old[i1:i2] for text in _marked_lines(" ", line)]
            continue
        lines += [text for line in old[i1:i2] for text in _marked_lines("-", line)]
        lines += [text for line in new[j1:j2] for text in _marked_lines("+", line)]
    return lines


def _marked_lines(mark: str, line: str) -> list[str]:
    return [mark + line[:-1]] if line.endswith("\n") else [mark + line, NO_NEWLINE]


def _range(first: int, end: int) -> str:
    length = end - first
    begins = first + 1 if length else first
    return str(begins) if length == 1 else f"{begins},{length}"
