"""The steps of a dossier as HTML: one line each, and the rest folded below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from plait.dossier.anchors import Anchors
from plait.dossier.markup import (
    cost_text,
    count_text,
    json_line,
    json_lines,
    line,
    text,
    time_text,
    tokens_text,
    took_text,
)
from plait.dossier.picture import color_class
from plait.dossier.shapes import Dossier, LeanDetail, LeanPart, LeanStep
from plait.event import Json
from plait.event.effect_classes import OUTWARD
from plait.outline.shapes import FileDiff, FilesDiff, StretchShape
from plait.outline.texts import is_patch

GROUP = 50  # steps that are folded together, where there are many
FLAT_MAX = 60  # steps of a stretch that are not folded together
SHOWN_MAX = 6_000  # characters of a text on the page; dossier.json has more
DIFF_MAX = 400  # lines of a difference on the page
_SIGNS = {"passed": "✓", "failed": "✗", "denied": "✗", "waiting": "…", "open": "…", "unknown": "?"}
_WORDS = {
    "failed": "failed",
    "denied": "not allowed",
    "waiting": "waits",
    "open": "open",
    "unknown": "not known",
}


class StepMarkup:
    """Writes the steps of one dossier."""

    def __init__(self, dossier: Dossier, anchors: Anchors, *, long: bool) -> None:
        self._dossier, self._anchors = dossier, anchors
        self._is_long = long
        size = sum([len(part.text) for each in dossier.steps for part in each.parts])
        # many texts are shown shorter, so that a page can be opened
        self._most = SHOWN_MAX if size < 600_000 else 600 if size < 2_000_000 else 200
        self._diffs = {(each.at.log, each.at.seq): each.files for each in dossier.diffs}

    def all(self) -> Iterator[str]:
        """Yield all steps, stretch by stretch, as the picture has them."""
        family = self._dossier.family
        if family is None:
            return
        at = 0
        for stretch in family.stretches:
            steps = self._dossier.steps[at : at + stretch.step_count]
            at += stretch.step_count
            if steps:
                yield from self._stretch(stretch, steps)

    def _stretch(self, stretch: StretchShape, steps: Sequence[LeanDetail]) -> Iterator[str]:
        assert self._dossier.family is not None
        branch = self._dossier.family.branches[stretch.branch]
        span = f"events {stretch.first:,} to {stretch.last:,}"
        yield f'<div class="stretch {color_class(branch.color)}">'
        yield f'<h3><i class="dot"></i>{line(branch.name, 60)} <small>{span}</small></h3>'
        if len(steps) <= FLAT_MAX:
            for detail in steps:
                yield self.step(detail)
        else:
            for first in range(0, len(steps), GROUP):
                yield from self._group(first, steps[first : first + GROUP])
        yield "</div>"

    def _group(self, first: int, steps: Sequence[LeanDetail]) -> Iterator[str]:
        title = f"Steps {first + 1:,} to {first + len(steps):,}"
        yield f'<details class="fold"><summary><b>{title}</b> <span>{_group_text(steps)}</span>'
        yield "</summary>"
        for detail in steps:
            yield self.step(detail)
        yield "</details>"

    # ── one step ─────────────────────────────────────────────────────────────────────────────

    def step(self, detail: LeanDetail) -> str:
        step = detail.step
        anchor = self._anchors.of_step(step)
        body = "" if self._is_long and not _is_notable(step) else "".join(self._body(detail))
        summary = self._summary(step)
        gone = " gone" if step.is_rewound else ""
        if not body:
            return f'<p class="s{gone}" id="{anchor}">{summary}</p>'
        return (
            f'<details class="s{gone}" id="{anchor}"><summary>{summary}</summary>{body}</details>'
        )

    def _summary(self, step: LeanStep) -> str:
        state = step.state
        sign = "passed" if "passed" in step.marks else "failed" if "failed" in step.marks else state
        shown = _SIGNS.get(sign, "")
        word = _WORDS.get(state, "passed" if sign == "passed" else "failed" if shown else "")
        mark = f'<i class="m {sign}" title="{word}">{shown}</i>' if shown else '<i class="m"></i>'
        parts = [f'<span class="n">{step.first}</span>', mark]
        if step.verb:
            parts.append(f"<b>{line(step.verb, 60)}</b>")
        elif step.type in ("message", "reply"):
            parts.append(f"<b>{line(_speaker(step), 40)}</b>")
        if step.subject:
            parts.append(f'<span class="o">{line(step.subject, 160)}</span>')
        if step.says:
            parts.append(f'<span class="w">{line(step.says, 200)}</span>')
        figure = took_text(step.took_us)
        if figure:
            parts.append(f'<span class="f">{figure}</span>')
        return " ".join(parts)

    def _body(self, detail: LeanDetail) -> Iterator[str]:
        yield from self._texts(detail)
        step = detail.step
        diff = self._diffs.get((step.log, step.first))
        if diff is not None:
            yield "".join(diff_markup(diff, DIFF_MAX if self._most == SHOWN_MAX else 60))
        elif step.files:
            paths = ", ".join(step.files[:20])
            yield _row("changed", line(paths, 400))
        is_plain = not step.marks and step.type in ("tool", "reply")
        if not (self._dossier.is_brief and is_plain):
            yield f'<p class="meta">{" · ".join(self._meta(detail))}</p>'

    def _texts(self, detail: LeanDetail) -> Iterator[str]:
        if detail.arguments is not None:
            yield self._arguments(detail.arguments, detail.step.subject)
        for part in detail.asked_parts:
            yield self._part("asked", part)
        if detail.reason:
            yield _row("reason", text(detail.reason[: self._most]))
        said = {"tool": "result", "message": "", "reply": "", "memory": ""}
        for part in detail.parts:
            if _is_told(detail, part, has_diff=self._has_diff(detail)):
                continue
            label = "reasoning" if part.type == "reasoning" else said.get(detail.step.type, "text")
            yield self._part(label, part)
        if detail.failure:
            yield _row("failure", text(detail.failure[: self._most]))
        if detail.traceback and self._most == SHOWN_MAX:
            yield _block("traceback", text(detail.traceback[-SHOWN_MAX:]))
        for word in detail.approvals:
            edited = "" if word.edited is None else f" {json_line(word.edited)}"
            words = f": “{word.words}”" if word.words else ""
            yield _row(word.how, text(f"by {word.actor}{words}{edited}"))
        if len(detail.attempts) > 1:
            for attempt in detail.attempts:
                told = " ".join(filter(None, [attempt.state, attempt.words]))
                yield _row(f"attempt {attempt.number}", text(told[:400]))
        for part in detail.kept:
            yield self._part("kept", part)
        if detail.delta is not None and detail.effect in OUTWARD:
            yield _row("observed", text(json_line(detail.delta)[: self._most]))
        fields = {name: value for name, value in detail.fields.items() if _is_said(detail, name)}
        for name, value in fields.items():
            if value not in (None, "", [], {}, False):
                shown = value if isinstance(value, str) else json_line(value)
                yield _row(name.replace("_", " "), text(shown[: self._most]))

    def _has_diff(self, detail: LeanDetail) -> bool:
        return (detail.step.log, detail.step.first) in self._diffs

    def _meta(self, detail: LeanDetail) -> Iterator[str]:
        step = detail.step
        yield text(step.actor)
        if step.path and step.path not in step.actor:
            yield text(step.path)
        yield time_text(step.time)
        if detail.effect:
            yield text(f"effect {detail.effect}")
        if detail.placement_text:
            yield text(f"ran in {detail.placement_text}")
        elif step.type == "tool" and detail.effect:
            yield "ran in the program"
        if detail.model:
            yield text(detail.model)
        if detail.usage is not None:
            yield f"{tokens_text(detail.usage)}, {cost_text(detail.usage)}"
        if step.is_rewound:
            yield "rewound: it is no part of the story"
        for ref in step.links:
            yield f"to {self._anchors.link(ref)}"

    def _arguments(self, value: Json, subject: str) -> str:
        if isinstance(value, dict) and [*value.values()] == [subject]:
            return ""  # the line says it
        if isinstance(value, dict):
            rows = [self._argument(name, each) for name, each in value.items()]
            return f'<dl class="a">{"".join(rows)}</dl>' if rows else ""
        return _block("arguments", text(json_lines(value)[: self._most]))

    def _argument(self, name: str, value: Json) -> str:
        shown = value if isinstance(value, str) else json_line(value)
        cut = len(shown) - self._most
        more = f"\n… {cut:,} characters more" if cut > 0 else ""
        body = text(shown[: self._most] + more)
        return f"<div><dt>{line(name, 60)}</dt><dd><code>{body}</code></dd></div>"

    def _part(self, label: str, part: LeanPart) -> str:
        if part.type in ("image", "file"):
            about = ", ".join(filter(None, [part.name or part.text, part.media_type]))
            return _row(part.type, text(f"{about}, {part.size:,} bytes, {part.blob}"))
        shown = part.text[: self._most]
        if not shown.strip() and not part.is_cut:
            return ""
        is_cut = part.is_cut or len(part.text) > self._most
        more = f"\n… cut here; {part.size:,} bytes in all" if is_cut else ""
        return _block(label, text(shown + more))


def _row(label: str, body: str) -> str:
    return f'<p class="k"><span>{text(label)}</span> {body}</p>'


def _block(label: str, body: str) -> str:
    title = f'<p class="k"><span>{text(label)}</span></p>' if label else ""
    return f"{title}<pre>{body}</pre>"


_TOLD = frozenset(
    (
        *("name", "passed", "role", "key", "kind", "value", "what", "choices", "asked", "shown"),
        *("parent", "place", "label", "holder", "epoch", "state", "branches", "covers", "tree"),
        *("by", "to", "workflow", "decision", "expires", "durability", "placement"),
    )
)


def _is_said(detail: LeanDetail, name: str) -> bool:
    """False if the line of a step says a field already."""
    if name == "value" and detail.step.type == "fact":
        return len(detail.step.says) > 200
    return name not in _TOLD


def _is_told(detail: LeanDetail, part: LeanPart, *, has_diff: bool) -> bool:
    """True if the line of a step, or its difference, says a text already."""
    if part.type != "text":
        return False
    return part.text.strip() == detail.step.says or (has_diff and is_patch(part.text))


def _is_notable(step: LeanStep) -> bool:
    """True if a step is shown in full in a very long dossier."""
    return bool(set(step.marks) & {"passed", "failed", "approval", "kill", "merge", "rewind"})


def _speaker(step: LeanStep) -> str:
    return step.subject or step.actor.partition(":")[2].rpartition("/")[2] or step.actor


def _group_text(steps: Sequence[LeanDetail]) -> str:
    """Return the sorts of steps that are folded together, the commonest first."""
    names = Counter([each.step.verb or each.step.type for each in steps])
    told = [f"{text(name)} × {count}" for name, count in names.most_common(4)]
    failed = sum([each.step.state == "failed" for each in steps])
    if failed:
        told.append(f'<b class="bad">{count_text(failed, "failure")}</b>')
    return ", ".join(told)


# ── differences ──────────────────────────────────────────────────────────────────────────────


def diff_markup(diff: FilesDiff, most: int) -> Iterator[str]:
    """Yield the files of a difference, with so many of their lines."""
    left = most
    for file in diff.files:
        yield f'<p class="k"><span>{file.status}</span> {_file_title(file)}</p>'
        lines = [each for hunk in file.hunks for each in (*hunk, None)][:-1]
        shown = lines[: max(left, 0)]
        left -= len(shown)
        if shown:
            rows = [_diff_line(each) for each in shown]
            if len(shown) < len(lines) or file.is_cut:
                rows.append("<span>… more lines differ</span>")
            yield f'<pre class="d">{"".join(rows)}</pre>'


def _file_title(file: FileDiff) -> str:
    old = f"{line(file.old_path, 160)} → " if file.old_path else ""
    counts = f' <span class="c"><ins>+{file.added}</ins> <del>−{file.removed}</del></span>'
    form = {"binary": " (no text)", "mode": " (mode)", "link": " (link)"}.get(file.form, "")
    has_counts = file.added or file.removed
    return f"<code>{old}{line(file.path, 200)}</code>{form}{counts if has_counts else ''}"


def _diff_line(row: Any) -> str:
    if row is None:
        return '<span class="gap">⋯</span>'
    if row.mark == " ":
        return f"<span>  {text(row.text)}</span>"
    tag = "ins" if row.mark == "+" else "del"
    sign = "+" if row.mark == "+" else "−"
    return f"<{tag}>{sign} {text(row.text)}</{tag}>"
