"""The short answer of `plait why`: first the decisions, one line each, then what was seen.

What stood in a prompt is context: it may have mattered, and no record can say that it did. So it is
told apart from decisions. The causes of context are left to `--all`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from plait.cli.common import names_of
from plait.cli.render import ACCENT, DIM, STRONG, Cell, Column, Out, count_text
from plait.event.kinds import MessageSaid, ModelAsked, ModelReplied, ToolRequested, ToolReturned
from plait.session import Trace
from plait.session.trace import Step
from plait.store import Store

_CALLS_ALONE = "reply: → "  # a reply without words: its calls are told by their results
_MAIN = ("command", "path", "url", "query")  # arguments that say what a call is about
_WORDS = {
    ("because of", ModelReplied.__name__): "decided in",
    ("because of", MessageSaid.__name__): "told by",
    ("because of", ToolRequested.__name__): "of the call",
    ("asked by", ToolRequested.__name__): "of the call",
}


class WhyLine(NamedTuple):
    """A line of the short answer."""

    word: str
    text: str
    step: Step


class WhyAnswer(NamedTuple):
    """The lines of a short answer: decisions, then what was seen."""

    lines: list[WhyLine]
    left_out: int  # steps of the trace that no line tells


def print_why(store: Store, trace: Trace, full_command: str) -> None:
    """Print the short answer, and the command that prints all of it."""
    out, names = Out(), names_of(store, [step.log for step in trace])
    answer = why_answer(trace)
    out.print_brief(Cell(trace.about, STRONG))
    rows = [
        [
            Cell(line.word, DIM),
            Cell(line.text),
            Cell(f"{names[line.step.log]}@{line.step.seq}", ACCENT),
            Cell(line.step.actor, DIM),
        ]
        for line in answer.lines
    ]
    out.table([Column(), Column(flex=True), Column(), Column(aside=True)], rows, indent="  ")
    if answer.left_out or not trace.complete:
        more = count_text(answer.left_out, "event") if trace.complete else "more"
        out.line(Cell(f"  and {more} behind these: {full_command}", DIM))


def why_answer(trace: Trace) -> WhyAnswer:
    """Choose and word the steps of a short answer: decisions, and the first layer of context."""
    steps = trace.steps
    decisions, seen = list[WhyLine](), list[WhyLine]()
    answered = list[Step | None]()  # calls that are told by their results
    under: int | None = None  # the depth of the context that the next steps belong to
    for index, step in enumerate(steps):
        if under is not None and step.depth > under:
            continue
        under = step.depth if step.relation == "context" else None
        line = WhyLine(_word_of(step), _step_text(steps, index), step)
        if step.how == "having seen":
            if not step.says.startswith(_CALLS_ALONE):
                seen.append(line._replace(word=""))
        elif step.kind != ModelAsked.__name__ and step not in answered:
            decisions.append(line)
            if step.kind == ToolReturned.__name__:
                answered.append(_request_of(steps, index))
    asking = _asking_line(steps, decisions)
    rest = [line for line in seen if line.step not in [each.step for each in asking]]
    lines = [*decisions, *asking, *rest]
    if rest:
        lines[-len(rest)] = rest[0]._replace(word="having seen")
    return WhyAnswer(lines, len(steps) - len(lines))


def _asking_line(steps: Sequence[Step], decisions: Sequence[WhyLine]) -> list[WhyLine]:
    """Return the nearest words of a person that led here, if no decision tells them already."""
    said = [step for step in steps if step.kind == MessageSaid.__name__ and _is_person(step)]
    if not said or any(line.step in said for line in decisions):
        return []
    nearest = min(said, key=lambda step: step.depth)
    return [WhyLine("asked by", nearest.says.removeprefix("user: "), nearest)]


def _is_person(step: Step) -> bool:
    return step.actor.startswith("human:")


def _word_of(step: Step) -> str:
    if step.relation == "subject" and step.files:
        return "written by"
    return _WORDS.get((step.how, step.kind), step.how)


def _step_text(steps: Sequence[Step], index: int) -> str:
    """Return the words of a step: of a result the call, its first argument, and the last words."""
    step = steps[index]
    if step.kind == ToolRequested.__name__:
        return _call_text(step.says)
    if step.kind != ToolReturned.__name__:
        return step.says
    call = _request_of(steps, index)
    said = [_call_text(call.says)] if call is not None else []
    if step.files:
        said.append(f"± {', '.join(step.files)}")
    elif words := _last_words(step.says.removeprefix("returned ")):
        said.append(f"→ {words}" if call is not None else words)
    return " ".join(said) or step.says


def _request_of(steps: Sequence[Step], index: int) -> Step | None:
    """Return the call that a result answers, from the steps below it."""
    for step in steps[index + 1 :]:
        if step.depth <= steps[index].depth:
            return None
        if step.depth == steps[index].depth + 1 and step.kind == ToolRequested.__name__:
            return step
    return None


def _call_text(says: str) -> str:
    """Return a call as its tool and the argument that tells most."""
    name, _, arguments = says.partition(" ")
    try:
        values = msgspec.json.decode(arguments, type=dict[str, Any])
    except msgspec.MsgspecError:  # cut, or of another kind
        return says
    if not values:
        return name
    main = [str(values[key]) for key in _MAIN if key in values]
    return f"{name} {main[0] if main else arguments}"


def _last_words(text: str) -> str:
    """Return the last line that says something; an exit code comes before it."""
    lines = [line.strip() for line in text.replace("⏎", "\n").splitlines() if line.strip(" -=\n")]
    code = lines.pop() if len(lines) > 1 and lines[-1].startswith("[exit code") else ""
    return f"{code} {lines[-1]}".strip() if lines else code
