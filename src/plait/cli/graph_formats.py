"""The family of a session for other programs: as a picture (SVG), and as DOT, Mermaid and GraphML.

DOT and Mermaid have a node for each session, an arrow for each fork and a dashed one for each
merge. GraphML has every node and edge that `graph --json` has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

from plait.cli.steps import step_text, steps_by_place
from plait.dossier.picture import BEND, LEFT, ROW, WIDTH, picture_rows
from plait.ids import short
from plait.outline.family import family_shape
from plait.outline.outlines import Outlines
from plait.session import Session
from plait.session.graph import Graph, Node
from plait.session.ports import store_at
from plait.session.safe_text import clean

GraphFormat = Literal["svg", "dot", "mermaid", "graphml"]
_COLORS = ("#64748b", "#2563eb", "#b45309", "#15803d", "#a21caf", "#0e7490", "#b91c1c", "#4d7c0f")
_TEXT_MAX = 110  # characters of a step in the picture
_CHARACTER = 7.3  # cells of a monospaced letter of 12 pixels


def graph_text(session: Session, graph: Graph, form: GraphFormat) -> str:
    """Return the family of a session in one of the formats."""
    if form == "svg":
        return _svg_text(session)
    makers = {"dot": _dot_lines, "mermaid": _mermaid_lines, "graphml": _graphml_lines}
    return "\n".join(makers[form](graph)) + "\n"


# ── sessions and their edges ─────────────────────────────────────────────────────────────────


def _sessions(graph: Graph) -> dict[str, Node]:
    return {node.id: node for node in graph.nodes if node.type == "session"}


def _session_text(node: Node) -> str:
    label = node.detail.get("label") or node.detail.get("title") or ""
    status = node.detail.get("status") or ""
    name = f"{short(node.session)}@{node.place}"
    return clean(" ".join(filter(None, [str(label), name, str(status)])))


def _arrows(graph: Graph) -> Iterator[tuple[str, str, str, bool]]:
    """Yield from, to, words, and True for a merge."""
    known, events = _sessions(graph), {node.id: node for node in graph.nodes}
    for edge in graph.edges:
        if edge.type == "parent" and edge.source in known and edge.target in known:
            yield edge.target, edge.source, f"fork at {edge.place}", False
        elif edge.type == "merged" and edge.target in known:
            merge = events[edge.source]
            into = next((id for id, node in known.items() if node.session == merge.session), None)
            if into is not None:
                yield edge.target, into, f"merged at {merge.place}", True


def _dot_lines(graph: Graph) -> Iterator[str]:
    yield "digraph plait {"
    yield '  node [shape=box, style=rounded, fontname="monospace"];'
    for id, node in _sessions(graph).items():
        yield f"  {_quoted(id)} [label={_quoted(_session_text(node))}];"
    for source, target, text, is_merge in _arrows(graph):
        style = ", style=dashed" if is_merge else ""
        yield f"  {_quoted(source)} -> {_quoted(target)} [label={_quoted(text)}{style}];"
    yield "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _mermaid_lines(graph: Graph) -> Iterator[str]:
    names = {id: f"s{at}" for at, id in enumerate(_sessions(graph))}
    yield "flowchart TD"
    for id, node in _sessions(graph).items():
        yield f'  {names[id]}["{_entities(_session_text(node))}"]'
    for source, target, text, is_merge in _arrows(graph):
        arrow = "-.->" if is_merge else "-->"
        yield f"  {names[source]} {arrow}|{text}| {names[target]}"


def _entities(text: str) -> str:
    """Return a text in which Mermaid finds no marks of its own."""
    return "".join(
        char if char.isalnum() or char in " .,@-_/" or ord(char) > 127 else f"#{ord(char)};"
        for char in text
    )


def _graphml_lines(graph: Graph) -> Iterator[str]:
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    for key, target, type in (
        ("type", "all", "string"),
        ("name", "node", "string"),
        ("session", "node", "string"),
        ("place", "all", "int"),
        ("detail", "node", "string"),
    ):
        yield f'  <key id="{key}" for="{target}" attr.name="{key}" attr.type="{type}"/>'
    yield '  <graph id="plait" edgedefault="directed">'
    for node in graph.nodes:
        values = {
            "type": node.type,
            "name": node.name,
            "session": node.session,
            "place": node.place,
            "detail": json.dumps(node.detail, default=str),
        }
        yield f"    <node id={quoteattr(node.id)}>{_data(values)}</node>"
    for edge in graph.edges:
        ends = f"source={quoteattr(edge.source)} target={quoteattr(edge.target)}"
        yield f"    <edge {ends}>{_data({'type': edge.type, 'place': edge.place})}</edge>"
    yield "  </graph>"
    yield "</graphml>"


def _data(values: Mapping[str, object]) -> str:
    return "".join(
        f'<data key="{key}">{escape(clean(str(value)))}</data>' for key, value in values.items()
    )


# ── the picture ──────────────────────────────────────────────────────────────────────────────


def _svg_text(session: Session) -> str:
    """Return a picture of every step of the family, with its lanes."""
    outlines = Outlines(store_at(session.store))
    family = family_shape(outlines, session.id)
    steps = steps_by_place(outlines, family)
    left = LEFT * 2 + WIDTH * (family.lane_count - 1)
    parts, y, widest = list[str](), 0, 0
    for row in picture_rows(family, by_step=True):
        parts.append(f'<g transform="translate(0,{y})">{row.drawing}')
        if row.step is not None:
            step = steps[family.branches[family.stretches[row.stretch].branch].log, row.step]
            name = f"{outlines.name_of(step.log)}@{step.seq}"
            text = clean(f"{name:<14}  {step_text(step)}")
            text = text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 1]}…"
            widest = max(widest, len(text))
            parts.append(f'<text x="{left + 8}" y="{ROW // 2 + 4}">{escape(text)}</text>')
        parts.append("</g>\n")
        y += BEND if row.is_bend else ROW
    width = left + 16 + int(widest * _CHARACTER)
    colors = "".join(
        f"path.l{at}{{stroke:{color}}}circle.l{at}{{fill:{color}}}"
        for at, color in enumerate(_COLORS)
    )
    style = (
        "path{fill:none;stroke-width:2}path.dash{stroke-dasharray:4 3}"
        "text{font:12px monospace;white-space:pre;fill:#334155}"
        f"{colors}@media(prefers-color-scheme:dark){{text{{fill:#cbd5e1}}}}"
    )
    title = escape(clean(session.title or session.short))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}"'
        f' viewBox="0 0 {width} {y}" role="img"><title>{title}</title><style>{style}</style>\n'
        f"{''.join(parts)}</svg>\n"
    )
