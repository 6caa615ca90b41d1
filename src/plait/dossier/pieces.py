"""Pieces of a page: tables, pairs of names and values, and lists that fold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from plait.dossier.markup import (
    cost_text,
    count_text,
    dollars_text,
    json_line,
    json_lines,
    line,
    text,
    tokens_text,
)
from plait.dossier.shapes import Dossier, EvidenceLine, MemoryOrigin
from plait.event import Json
from plait.outline.shapes import SeqRef, SpentShape

ROWS_MAX = 12  # of a table that are not folded
NAMES_MAX = 3  # of a list in a sentence


def ref_of_event(each: EvidenceLine | MemoryOrigin) -> SeqRef:
    assert each.log is not None
    return SeqRef(each.log, each.seq)


def nothing(words: str) -> str:
    return f'<p class="none">{text(words)}</p>'


def hash_code(digest: str | None) -> str:
    return f"<code>{text(digest[:12])}</code>" if digest else "(none)"


def names_text(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = f" and {len(names) - NAMES_MAX:,} more" if len(names) > NAMES_MAX else ""
    return ", ".join([line(name, 60) for name in names[:NAMES_MAX]]) + more


def branches_text(dossier: Dossier) -> str:
    """Return how many branches there are, and how many what-ifs beside them."""
    count = len(dossier.family.branches) if dossier.family is not None else 1
    apart = len(dossier.what_ifs)
    branches = count_text(count - apart, "branch", "branches")
    return f"{branches} and {count_text(apart, 'what-if')}" if apart else branches


def code(value: Json) -> str:
    shown = json_line(value)
    if len(shown) > 120:
        return f"<pre>{text(json_lines(value)[:4000])}</pre>"
    return f"<code>{text(shown)}</code>"


def spent_text(spent: SpentShape) -> str:
    calls = f"{count_text(spent.model_calls, 'model call')}, "
    tools = f"{count_text(spent.tool_calls, 'tool call')}, "
    cached = f" ({spent.cached_tokens:,} cached)" if spent.cached_tokens else ""
    cost = cost_text(spent) if spent.model_calls else "no cost"
    return f"{calls}{tools}{tokens_text(spent)}{cached}, {cost}"


def limit_text(name: str, value: Any, left: dict[str, Any]) -> str:
    def amount(each: Any) -> str:
        return dollars_text(float(each)) if name == "cost_usd_max" else f"{each:,}"

    remains = left.get(name)
    return amount(value) + (f", {amount(remains)} left" if remains is not None else "")


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    cells = [f"<div><dt>{text(name)}</dt><dd>{body}</dd></div>" for name, body in rows]
    return f'<dl class="p">{"".join(cells)}</dl>'


def table(
    heads: Sequence[str],
    rows: Sequence[str],
    noun: str,
    *,
    most: int = ROWS_MAX,
    figures: int = 0,
) -> Iterator[str]:
    """Yield a table. Rows beyond `most` are folded; the last columns may be figures."""
    cells = [f"<th scope=col>{text(head)}</th>" if head else "<td></td>" for head in heads]
    kind = f"t f{figures}" if figures else "t"
    wide = (
        f'<div class="wide" tabindex="0" role="group" aria-label="{noun}">' if figures else "<div>"
    )
    top = f'{wide}<table class="{kind}"><thead><tr>{"".join(cells)}</tr></thead><tbody>'
    yield f"{top}{''.join(rows[:most])}</tbody></table></div>"
    if len(rows) > most:
        yield f'<details class="fold"><summary><b>{len(rows) - most:,} more {noun}</b></summary>'
        yield f"{top}{''.join(rows[most:])}</tbody></table></div></details>"


def folded(parts: Sequence[str], most: int, noun: str) -> Iterator[str]:
    yield from parts[:most]
    if len(parts) > most:
        yield f'<details class="fold"><summary><b>{len(parts) - most:,} more {noun}</b></summary>'
        yield from parts[most:]
        yield "</details>"


def folded_list(
    items: Sequence[str], kind: str, noun: str, *, most: int = ROWS_MAX
) -> Iterator[str]:
    yield f'<ul class="{kind}">{"".join(items[:most])}</ul>'
    if len(items) > most:
        yield f'<details class="fold"><summary><b>{len(items) - most:,} more {noun}</b></summary>'
        yield f'<ul class="{kind}">{"".join(items[most:])}</ul></details>'
