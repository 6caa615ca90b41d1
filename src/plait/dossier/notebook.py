"""Values in a notebook: small pieces of HTML without scripts, in the colours of the notebook.

`watch` shows a run while it works. Everything is cut to what one looks at; the dossier and the page
have the rest.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

from plait.dossier.markup import (
    cost_text,
    count_text,
    json_line,
    line,
    text,
    tokens_text,
    took_text,
)
from plait.dossier.picture import color_class, picture_rows
from plait.errors import InvalidValue
from plait.event import Event, Json
from plait.ids import LogId, short
from plait.model.base import Delta, TextDelta
from plait.outline.family import family_shape
from plait.outline.outlines import Outlines
from plait.outline.shapes import FamilyShape, StepShape
from plait.outline.spent import spent_shape
from plait.outline.steps import step_shapes
from plait.session import Diff, Session
from plait.session.blame import Blame
from plait.session.event_text import event_text
from plait.session.graph import Graph
from plait.session.ledger import costs
from plait.session.ports import store_at
from plait.session.safe_text import clean
from plait.session.trace import Step, Trace

STEPS, ROWS, LINES = 14, 12, 60  # that are shown
_STYLE = """\
.plait{--p-dim:#55544f;--p-line:#cfccc5;--p-good:#126b3a;--p-bad:#b3261e;--l0:#465062;--l1:#b5470a;
--l2:#2f7258;--l3:#2460ea;--l4:#b313a8;--l5:#7a4306;--l6:#36106e;--l7:#7a1008;font-size:13px;
line-height:1.45;max-width:60em}
.plait :is(td,th){text-align:left;padding:1px 12px 1px 0;vertical-align:top;border:0;
background:none;font-weight:400;font-size:13px;line-height:1.45}
.plait table{border:0;margin:4px 0;border-collapse:collapse}
.plait tr{background:none}.plait p{margin:2px 0}.plait svg{display:block}
.plait .dim{color:var(--p-dim)}.plait .good{color:var(--p-good)}.plait .bad{color:var(--p-bad)}
.plait :is(code,pre){font-size:12px;background:none;color:inherit;padding:0;white-space:pre-wrap}
.plait .pic td{padding:0 10px 0 0;line-height:26px;height:26px}
.plait .pic tr.bend td{line-height:14px;height:14px}
.plait{overflow-x:auto}
.plait path{stroke:var(--l0);stroke-width:2;fill:none}.plait circle{fill:var(--l0)}
.plait path.l1{stroke:var(--l1)}.plait path.l2{stroke:var(--l2)}.plait path.l3{stroke:var(--l3)}
.plait path.l4{stroke:var(--l4)}.plait path.l5{stroke:var(--l5)}.plait path.l6{stroke:var(--l6)}
.plait path.l7{stroke:var(--l7)}.plait circle.l1{fill:var(--l1)}.plait circle.l2{fill:var(--l2)}
.plait circle.l3{fill:var(--l3)}.plait circle.l4{fill:var(--l4)}.plait circle.l5{fill:var(--l5)}
.plait circle.l6{fill:var(--l6)}.plait circle.l7{fill:var(--l7)}
"""
_DARK = (
    "{--p-dim:#b0afab;--p-line:#3c3f46;--p-good:#6fd39b;--p-bad:#ff8f85;--l0:#a3acba;--l1:#f2a23a;"
    "--l2:#7fe8b8;--l3:#6cb6ff;--l4:#f5bdf2;--l5:#eef070;--l6:#8b82ff;--l7:#e8704a}"
)
# the theme of Jupyter and of VS Code if there is one, else that of the system
_THEMES = (
    f'[data-jp-theme-light="false"] .plait,.vscode-dark .plait{_DARK}\n'
    "@media (prefers-color-scheme:dark)"
    f'{{:root:not(:has([data-jp-theme-light="true"],.vscode-light)) .plait{_DARK}}}'
)


def value_html(value: object) -> str:
    """Return a session, a difference, a blame, a graph or a trace as HTML."""
    match value:
        case Session():
            return _framed(_session(value))
        case Diff():
            return _framed(_diff(value))
        case Blame():
            return _framed(_blame(value))
        case Graph():
            return _framed(_graph(value))
        case Trace():
            return _framed(_trace(value))
        case _:
            return f"<pre>{text(str(value))}</pre>"


def _framed(parts: Iterable[str]) -> str:
    return f'<div class="plait"><style>{_STYLE}{_THEMES}</style>{"".join(parts)}</div>'


def _more(count: int, noun: str) -> str:
    return f'<p class="dim">… and {count_text(count, noun)} more</p>' if count > 0 else ""


def _rows(rows: Sequence[str], noun: str, most: int = ROWS) -> str:
    return f"<table>{''.join(rows[:most])}</table>{_more(len(rows) - most, noun)}"


def _value(value: Json) -> str:
    return f"<code>{line(value if isinstance(value, str) else json_line(value), 160)}</code>"


# ── a session ────────────────────────────────────────────────────────────────────────────────


def _session(session: Session) -> Iterator[str]:
    store = store_at(session.store)
    outlines = Outlines(store)
    family = family_shape(outlines, session.id)
    spent = spent_shape(costs(store, session=session).total)
    status = session.status
    tone = {"finished": "good", "closed": "good", "failed": "bad", "interrupted": "bad"}
    told = [f'<b class="{tone.get(status, "")}">{status}</b>', f"event {session.seq:,}"]
    if spent.model_calls:
        told += [tokens_text(spent), cost_text(spent)]
    name = line(session.title or session.lineage.label or "", 80)
    yield f"<p><b>Session {short(session.id)}</b> {name} · {' · '.join(told)}</p>"
    yield _picture(outlines, family, session)
    facts = session.facts
    rows = [
        f'<tr><td class="dim">{facts.of(key).kind}</td><td>{line(key, 60)}</td>'
        f"<td>{_value(facts[key])}</td></tr>"
        for key in facts
    ]
    if rows:
        yield _rows(rows, "fact")
    for name, verdict in {each.name: each for each in session.checks.verdicts[-ROWS:]}.items():
        sign = '<b class="good">✓</b>' if verdict.passed else '<b class="bad">✗</b>'
        yield f"<p>{sign} {line(name, 80)} {'passed' if verdict.passed else 'failed'}</p>"


def _picture(outlines: Outlines, family: FamilyShape, session: Session) -> str:
    """Return the last steps of a family with their lanes."""
    rows = [*picture_rows(family, by_step=sum(b.step_count for b in family.branches) <= 400)]
    shown = rows[-(STEPS + sum([row.is_bend for row in rows[-STEPS:]])) :]
    steps = _steps(outlines, family, [(row.stretch, row.step) for row in shown])
    left = sum([not row.is_bend for row in rows[: len(rows) - len(shown)]])
    found = list[str]()
    for row in shown:
        step = steps.get((row.stretch, row.step))
        kind = ' class="bend"' if row.is_bend else ""
        words = "" if row.is_bend else _step_line(family, row.stretch, step)
        found.append(f"<tr{kind}><td>{row.drawing}</td><td>{words}</td></tr>")
    before = f'<p class="dim">{count_text(left, "row")} before</p>' if left else ""
    return f'{before}<table class="pic">{"".join(found)}</table>'


def _steps(
    outlines: Outlines, family: FamilyShape, wanted: Sequence[tuple[int, int | None]]
) -> dict[tuple[int, int | None], StepShape]:
    """Return these steps of a family, read log by log."""
    by_log = dict[LogId, dict[int, tuple[int, int | None]]]()
    for stretch, step in wanted:
        if step is not None:
            log = family.branches[family.stretches[stretch].branch].log
            by_log.setdefault(log, {})[step] = (stretch, step)
    return {
        places[shape.index]: shape
        for log, places in by_log.items()
        for shape in step_shapes(outlines, outlines.record(log), sorted(places))
    }


def _step_line(family: FamilyShape, stretch: int, step: StepShape | None) -> str:
    place = family.stretches[stretch]
    branch = line(family.branches[place.branch].name, 30)
    if step is None:
        return f"{branch} <span class=dim>{count_text(place.step_count, 'step')}</span>"
    parts = [f"<b>{line(step.verb, 40)}</b>"] if step.verb else []
    parts += [f"<code>{line(step.subject, 80)}</code>"] if step.subject else []
    parts += [f'<span class="dim">{line(step.says, 100)}</span>'] if step.says else []
    failed = step.state in ("failed", "denied") or "failed" in step.marks
    mark = (
        ' <b class="bad">✗</b>' if failed else ' <b class="good">✓</b>' * ("passed" in step.marks)
    )
    took = f' <span class="dim">{took_text(step.took_us)}</span>' if step.took_us else ""
    return f"{' '.join(parts)}{mark}{took}"


# ── a difference, a blame, a graph, a trace ──────────────────────────────────────────────────


def _diff(diff: Diff) -> Iterator[str]:
    yield f"<p><b>{line(diff.left, 60)}</b> against <b>{line(diff.right, 60)}</b></p>"
    if not diff:
        yield '<p class="dim">They tell the same story.</p>'
    rows = list[str]()
    for sign, tone, side in (("−", "bad", "left"), ("+", "good", "right")):
        for said in getattr(diff.messages, side):
            if not said.text.strip():
                continue  # a reply that only calls tools: they stand below
            words = line(f"{said.name or said.role}: {said.text}", 160)
            rows.append(f'<tr><td class="{tone}">{sign}</td><td>{words}</td></tr>')
        for call in getattr(diff.calls, side):
            words = f"<b>{line(call.tool, 40)}</b> {_value(call.arguments)} {text(call.state)}"
            rows.append(f'<tr><td class="{tone}">{sign}</td><td>{words}</td></tr>')
    if rows:
        yield _rows(rows, "difference", 2 * ROWS)
    for name, sides in (("fact", diff.facts), ("verdict", diff.validation)):
        table = [
            f'<tr><td class="dim">{name}</td><td>{line(key, 60)}</td>'
            f"<td>{_value(each.left) if each.left_there else '–'}</td>"
            f"<td>{_value(each.right) if each.right_there else '–'}</td></tr>"
            for key, each in sides.items()
        ]
        if table:
            yield _rows(table, name)
    if diff.files.left != diff.files.right:
        lines = diff.files.lines(ROWS)
        yield f"<pre>{text(chr(10).join(lines))}</pre>"
    left, right = (spent_shape(each) for each in diff.cost)
    yield f'<p class="dim">{tokens_text(left)}, {cost_text(left)} against '
    yield f"{tokens_text(right)}, {cost_text(right)}</p>"


def _blame(blame: Blame) -> Iterator[str]:
    yield f"<p><b>{line(blame.path, 160)}</b> {count_text(len(blame), 'line')}</p>"
    rows, before = list[str](), ""
    for each in blame.lines:
        writer = f"{short(each.log)}@{each.seq} {each.tool or each.kind} {each.actor}"
        shown = "" if writer == before else line(writer, 60)
        before = writer
        rows.append(
            f'<tr><td class="dim">{shown}</td><td class="dim">{each.number}</td>'
            f"<td><code>{text(each.text[:200])}</code></td></tr>"
        )
    yield _rows(rows, "line", LINES)


def _graph(graph: Graph) -> Iterator[str]:
    sessions = [node for node in graph.nodes if node.type == "session"]
    things = Counter([(node.session, node.type) for node in graph.nodes])
    yield f"<p><b>{text(str(graph))}</b></p>"
    parents = {edge.source: edge for edge in graph.edges if edge.type == "parent"}
    merged = {edge.target: edge for edge in graph.edges if edge.type == "merged"}
    rows = list[str]()
    for at, node in enumerate(sessions):
        counts = [
            f"{count} {text(type)}"
            for (log, type), count in things.items()
            if log == node.session and type != "session"
        ]
        edge = parents.get(node.id)
        above = f"forked at {edge.place}" if edge is not None else "root"
        above += ", merged" if node.id in merged else ""
        dot = f'<svg width="12" height="12"><circle class="{color_class(at)}" cx="6" cy="6" r="4"/>'
        rows.append(
            f"<tr><td>{dot}</svg></td><td><b>{line(node.name, 60)}</b></td>"
            f'<td class="dim">{text(str(node.detail.get("status") or ""))}</td>'
            f'<td class="dim">{above}</td><td>{", ".join(counts[:8])}</td></tr>'
        )
    yield _rows(rows, "session", 2 * ROWS)


def _trace(trace: Trace) -> Iterator[str]:
    yield f"<p><b>{line(trace.about, 160)}</b></p>"
    rows = [_trace_row(step) for step in trace.steps]
    yield _rows(rows, "step", 2 * ROWS)
    if not trace.complete:
        yield '<p class="dim">There are more: ask for a higher limit.</p>'


def _trace_row(step: Step) -> str:
    indent = "&nbsp;" * (4 * min(step.depth, 12))
    reason = f" because {line(step.reason, 120)}" if step.reason else ""
    dim = ' class="dim"' if step.relation in ("context", "order") else ""
    return (
        f"<tr{dim}><td>{indent}<span class=dim>{text(step.how)}</span> {line(step.says, 160)}"
        f'{reason}</td><td class="dim">{line(step.branch, 40)}@{step.seq}</td>'
        f'<td class="dim">{line(step.actor, 60)}</td></tr>'
    )


# ── progress ─────────────────────────────────────────────────────────────────────────────────

_QUIET = frozenset(("CallStarted", "CallFinished", "ModelAsked", "Delivered"))


def watch(items: Iterable[Delta | Event | Session]) -> Session:
    """Show a run while it works, and return its session: `watch(agent.stream(s, events=True))`.

    In a notebook the last lines stand in the output of the cell, and change in place; elsewhere
    each line is printed as it comes.
    """
    board = _NotebookBoard() if _is_notebook() else _PrintedBoard()
    session: Session | None = None
    for item in items:
        if isinstance(item, Session):
            session = item
        elif isinstance(item, TextDelta):
            board.hear(item.text)
        elif not isinstance(item, Event):
            continue
        elif item.kind not in _QUIET:
            board.add(f"{item.seq} {event_text(item)}")
    if session is None:
        raise InvalidValue(
            "items",
            "the stream ended without a session",
            "pass agent.stream(session, events=True)",
        )
    return session


def _is_notebook() -> bool:
    """True if this process serves a notebook."""
    shell: Any = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")


class _PrintedBoard:
    """Prints each line as it comes."""

    def add(self, told: str) -> None:
        print(clean(told))

    def hear(self, words: str) -> None:
        """Pass over the words of a model: the reply is a line of its own."""


class _NotebookBoard:
    """Shows the last lines in the output of a cell, in place."""

    def __init__(self) -> None:
        self._api: Any = import_module("IPython.display")  # the notebook brings it along
        self._lines, self._said = list[str](), ""
        self._handle: Any = self._api.display(self._api.HTML(self.html()), display_id=True)

    def add(self, told: str) -> None:
        self._lines.append(told)
        self._said = ""
        self._update()

    def hear(self, words: str) -> None:
        self._said = (self._said + words)[-200:]
        self._update()

    def _update(self) -> None:
        self._handle.update(self._api.HTML(self.html()))

    def html(self) -> str:
        left = len(self._lines) - ROWS
        before = f'<p class="dim">{count_text(left, "event")} before</p>' if left > 0 else ""
        rows = [f"<div>{line(each, 140)}</div>" for each in self._lines[-ROWS:]]
        now = f'<div class="dim">{line(self._said, 140)}</div>' if self._said else ""
        return _framed([before, *rows, now])
