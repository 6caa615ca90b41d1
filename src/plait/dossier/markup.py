"""Texts of others as HTML that does nothing, and figures as people read them.

Every text is escaped, and characters that show nothing, reorder or control are shown as marks:
there is no way from a text to an element, an attribute or an address. Colours of terminals are
left out, since they say nothing on paper.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import escape
from typing import Any, cast

import msgspec

from plait.event import Json
from plait.outline.shapes import SpentShape

_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)
_PICTURES = 0x2400  # U+2400 is the picture of U+0000, and so on


def text(value: str) -> str:
    """Return a text for HTML."""
    if "\x1b" in value:
        value = _COLOURS.sub("", value)
    value = value.replace("\r\n", "\n")
    # a quick look first: most texts are plain
    shown = value if value.isascii() and value.isprintable() else _HIDDEN.sub(_mark, value)
    return escape(shown, quote=True)


def _mark(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(_PICTURES + code)
    return "␡" if code == 0x7F else f"[U+{code:04X}]"


def line(value: str, most: int = 240) -> str:
    """Return a text in one line for HTML, cut if it is long."""
    flat = " ".join(value.split())
    return text(flat if len(flat) <= most else f"{flat[: most - 1]}…")


def json_lines(value: Json) -> str:
    """Return a value as lines of JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def object_of(value: Json) -> dict[str, Any]:
    """Return a value that is an object; of any other, an empty one."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def json_line(value: Json) -> str:
    return msgspec.json.encode(value).decode()


# ── figures ──────────────────────────────────────────────────────────────────────────────────


def time_text(time: int) -> str:
    """Return a time as people write it, in UTC."""
    if not time:
        return "–"
    when = datetime.fromtimestamp(time / 1e6, UTC)
    return f"{when.day} {when:%b %Y, %H:%M:%S} UTC"


def took_text(micros: int | None) -> str:
    """Return a duration; "": there is none."""
    if micros is None:
        return ""
    if micros < 1000:
        return f"{micros} µs"
    if micros < 1_000_000:
        return f"{micros / 1000:.0f} ms"
    seconds = micros / 1e6
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.0f} days"


def dollars_text(amount: float) -> str:
    """Return an amount; a small one with two digits that say something."""
    if amount >= 1 or amount == 0:
        return f"${amount:,.2f}"
    return f"${amount:.4f}" if amount >= 0.001 else f"${amount:.6f}".rstrip("0")


def actor_text(actor: str) -> str:
    """Return a principal, which may break at its slashes."""
    return text(actor).replace("/", "/<wbr>")


def cost_text(spent: SpentShape) -> str:
    """Return a cost. An unknown price is said, and is never a zero."""
    if spent.cost_usd is None:
        return "price not known"
    cost = dollars_text(spent.cost_usd)
    if not spent.unpriced:
        return cost
    replies = "reply" if spent.unpriced == 1 else "replies"
    return f"at least {cost}, and {spent.unpriced:,} {replies} without a known price"


def tokens_text(spent: SpentShape) -> str:
    count = spent.input_tokens + spent.output_tokens
    about = "about " if spent.estimated_tokens else ""
    return f"{about}{count_text(count, 'token')}"


def count_text(count: int, noun: str, plural: str = "") -> str:
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
