"""The relations between events and sessions: `why`, `influence`, `graph`, `diff`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

from plait.cli.common import (
    Negative,
    Options,
    command_line,
    is_number,
    listing,
    names_of,
    store_of,
)
from plait.cli.documents import print_json, print_jsonl
from plait.cli.exits import ShellError
from plait.cli.files import print_changes, print_patch
from plait.cli.pager import paging
from plait.cli.render import ACCENT, DIM, STRONG, Cell, Column, Out, as_json, cell_width, count_text
from plait.cli.terminal import cut_text
from plait.cli.why_text import print_why
from plait.errors import NotPlaced, UnknownPlace
from plait.ids import short
from plait.outline.documents import (
    diff_document,
    edge_document,
    files_document,
    node_document,
    place_document,
    session_document,
    step_document,
    trace_document,
)
from plait.session import Diff, Graph, Message, Session, Trace
from plait.session.diff import Sides, call_text, diff_lines
from plait.session.graph import Node
from plait.session.safe_text import clean
from plait.session.state import tokens_text
from plait.session.trace import prompt_lines
from plait.store import Store

# ── why and influence ────────────────────────────────────────────────────────────────────────

if TYPE_CHECKING:
    from plait.cli.graph_formats import GraphFormat


@click.command(cls=Negative)
@click.argument("session", metavar="S")
@click.argument("what", required=False)
@click.option("--all", "tells_all", is_flag=True, help="Tell the causes of each cause, too.")
@click.option("--prompt", is_flag=True, help="Tell all, with what the model was sent at each ask.")
@listing
def why(given: Options, session: str, what: str | None, tells_all: bool, prompt: bool) -> None:
    """Tell where something comes from.

    WHAT is a line of a file (cart.py:6), the name of a fact, a verdict or evidence, a seq, a text
    that was said, or the id of an event. S@7 alone is that event. "having seen" is context: it
    stood in the prompt of what decided.
    """
    value = given.open(session)
    with _number_errors(given, "why", value, what):
        trace = value.why(_subject_of(value, what), prompt=prompt)
    if given.form != "text" or tells_all or prompt:
        _print_answer(given, value, trace)
    else:
        words = [session] if what is None else [session, shlex.quote(what)]
        print_why(store_of(value), trace, command_line(given, "why", *words, "--all"))


@click.command(cls=Negative)
@click.argument("session", metavar="S")
@click.argument("what", required=False)
@listing
def influence(given: Options, session: str, what: str | None) -> None:
    """Tell what became of something.

    WHAT is a line of a file (cart.py:6), the name of a fact, a verdict or evidence, a seq, a text
    that was said, or the id of an event. S@7 alone is that event.
    """
    value = given.open(session)
    with _number_errors(given, "influence", value, what):
        trace = value.lineage.influence(_subject_of(value, what))
    _print_answer(given, value, trace)


def _subject_of(session: Session, what: str | None) -> str | int:
    """Return the place or the text that is asked about. A number in quotes is a text."""
    if what is None:
        return session.seq
    if is_number(what.strip('"')) and len(what) > 2 and what[0] == what[-1] == '"':
        return what[1:-1]
    return int(what) if is_number(what) and what not in session.facts else what


@contextmanager
def _number_errors(
    given: Options, verb: str, session: Session, what: str | None
) -> Generator[None]:
    """Raise the error of a number that is no place with the way to ask for it as a text."""
    try:
        yield
    except UnknownPlace as error:
        as_text = command_line(given, verb, session.short, f"'\"{what}\"'")
        lines = [str(error), f"If it is a text that was said: {as_text}"]
        raise ShellError(error, lines) from error


def _print_answer(given: Options, session: Session, trace: Trace) -> None:
    if given.form == "jsonl":
        print_jsonl(map(step_document, trace))
    elif given.form == "json":
        print_json({"session": session_document(session), **trace_document(trace)})
    else:
        print_trace(store_of(session), trace)


def print_trace(store: Store, trace: Trace) -> None:
    """Print a trace for people: each step below the one it belongs to."""
    out, names = Out(), names_of(store, [step.log for step in trace])
    out.print_brief(Cell(trace.about, STRONG))
    rows = (
        [
            Cell(f"{'  ' * step.depth}{step.how}", DIM),
            Cell(f"{step.says}  (in {step.placement})" if step.placement else step.says),
            Cell(f"{names[step.log]}@{step.seq}", ACCENT),
            Cell(step.actor, DIM),
            Cell(out.time(step.time), DIM),
        ]
        for step in trace
    )
    out.table([Column(), Column(flex=True), Column(), *[Column(aside=True)] * 2], rows, indent="  ")
    if not trace.complete:
        out.line(Cell("  … and more", DIM))
    for step in trace:
        if step.prompt is not None:
            out.heading(f"Prompt at {names[step.log]}@{step.seq}")
            for line in prompt_lines(step.prompt):
                out.line("  ", clean(line))


# ── graph ────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("session", metavar="[S]", default="@")
@click.option(
    "--format",
    "form",
    type=click.Choice(["svg", "dot", "mermaid", "graphml"]),
    help="A picture of all steps (svg), sessions (dot, mermaid), or all nodes (graphml).",
)
@listing
def graph(given: Options, session: str, form: GraphFormat | None) -> None:
    """Show the family of a session: all forks and merges.

    For people a tree of sessions; --json and --format graphml have every node and edge.
    """
    if form is not None and given.form != "text":
        raise click.UsageError("--format and --json exclude each other.")
    value = given.open(session)
    found = value.lineage.graph()
    if form is not None:
        from plait.cli.graph_formats import graph_text

        click.echo(graph_text(value, found, form), nl=False)
        return
    if given.form == "jsonl":
        print_jsonl({"node": node_document(node)} for node in found.nodes)
        print_jsonl({"edge": edge_document(edge)} for edge in found.edges)
    elif given.form == "json":
        print_json(
            {
                "nodes": [*map(node_document, found.nodes)],
                "edges": [*map(edge_document, found.edges)],
            }
        )
    else:
        _SessionTree(found, value).print()


class _SessionTree:
    """Sessions below the ones they were forked from."""

    def __init__(self, graph: Graph, session: Session) -> None:
        self._here = session.id
        self._sessions = {node.id: node for node in graph.nodes if node.type == "session"}
        self._places = {edge.source: edge.place for edge in graph.edges if edge.type == "parent"}
        self._children: dict[str, list[str]] = {}
        for edge in graph.edges:
            if edge.type == "parent":
                self._children.setdefault(edge.target, []).append(edge.source)
        self._counts: dict[str, Counter[str]] = {id: Counter() for id in self._sessions}
        events: dict[str, Node] = {}
        for node in graph.nodes:
            if node.session not in self._sessions:
                continue  # a memory that was read: it stands in a session of another family
            if node.type not in ("session", "message", "merge", "result", "run"):
                self._counts[node.session][node.type] += 1
            elif node.type == "merge":
                events[node.id] = node
        self._merges: dict[str, list[Node]] = {}
        for edge in graph.edges:
            if edge.type == "merged":
                self._merges.setdefault(edge.target, []).append(events[edge.source])

    def print(self) -> None:
        out = Out()
        roots = [id for id in self._sessions if id not in self._places]
        rows = (row for root in roots for row in self._rows(root, "", ""))
        out.table(
            [
                Column(),
                Column(),
                Column(aside=True),
                Column(right=True, aside=True),
                Column(flex=True),
            ],
            rows,
        )

    def _rows(self, root: str, margin: str, below: str) -> Iterator[list[Cell]]:
        stack = [(root, margin, below)]  # a chain of forks may be deeper than Python's own stack
        while stack:
            id, margin, below = stack.pop()
            yield self._row(self._sessions[id], margin)
            children = self._children.get(id, [])
            for child in reversed(children):
                last = child == children[-1]
                stack.append(
                    (
                        child,
                        f"{below}{'└─' if last else '├─'} ",
                        f"{below}{'   ' if last else '│  '}",
                    )
                )

    def _row(self, node: Node, margin: str) -> list[Cell]:
        own = node.place - self._places.get(node.id, 0)
        name = short(node.session)
        label = node.detail.get("label") or node.detail.get("title") or ""
        return [
            Cell(f"{margin}{label or name}", STRONG if node.id == self._here else ""),
            Cell(name, ACCENT),
            Cell(str(node.detail.get("status") or ""), DIM),
            Cell(count_text(own, "event")),
            Cell(self._activity_text(node), DIM),
        ]

    def _activity_text(self, node: Node) -> str:
        parts = [f"from {self._places[node.id]}"] if node.id in self._places else []
        parts += [
            f"merged into {short(merge.session)}@{merge.place}"
            for merge in self._merges.get(node.id, [])
        ]
        # last, because a narrow terminal cuts them
        parts += [count_text(count, type) for type, count in sorted(self._counts[node.id].items())]
        return ", ".join(parts)


# ── diff ─────────────────────────────────────────────────────────────────────────────────────


@click.command("diff")
@click.argument("left", metavar="A | A..B")
@click.argument("right", metavar="[B]", required=False)
@click.option(
    "--files",
    "as_patch",
    is_flag=True,
    help=(
        "Only the files, as a patch that `git apply` and `patch -p1` take: text files; others are"
        " named in comments."
    ),
)
@click.option("--stat", "as_list", is_flag=True, help="Only the files, as a list of what changed.")
@paging
@listing
def diff_command(
    given: Options, left: str, right: str | None, as_patch: bool, as_list: bool
) -> None:
    """Compare two values: messages, facts, verdicts, files, cost.

    A alone is compared with where it began, and its files with those it was first placed with.
    """
    if as_patch and as_list:
        raise click.UsageError("--files and --stat exclude each other.")
    one, two, found = _open_compared(given, left, right)
    if (as_patch or as_list) and found.files.left is None and found.files.right is None:
        raise NotPlaced(two.short)
    if given.form != "text":
        document = (
            _files_alone(found, one, two, as_patch)
            if as_patch or as_list
            else diff_document(found, one, two)
        )
        return print_json(document) if given.form == "json" else print_jsonl([document])
    if as_patch:
        print_patch(found.files.patch())
    elif as_list:
        print_changes(Out(), found.files)
    else:
        print_diff(found)


def _open_compared(given: Options, left: str, right: str | None) -> tuple[Session, Session, Diff]:
    if right is None and ".." in left:
        one, two = given.open_range(left)
    elif right is not None:
        one, two = given.open(left), given.open(right)
    else:
        two = given.open(left)
        return two.at(1), two, two.diff()
    return one, two, one.diff(two)


def _files_alone(found: Diff, one: Session, two: Session, as_patch: bool) -> dict[str, Any]:
    patch = {"patch": found.files.patch()} if as_patch else {}
    return {
        "left": place_document(one),
        "right": place_document(two),
        "files": files_document(found.files),
        **patch,
    }


def print_diff(diff: Diff) -> None:
    """Print the difference of two values: side by side on a terminal, line by line in a pipe."""
    out = Out()
    if not out.tty:
        for line in diff_lines(diff):
            out.line(line)
        return
    _SideBySide(out).print(diff)


class _SideBySide:
    """Both sides next to each other, for a terminal."""

    LINES = 8  # of one message

    def __init__(self, out: Out) -> None:
        self._out = out
        self._half = (out.width - 3) // 2

    def print(self, diff: Diff) -> None:
        said = diff.messages
        self._pair([diff.left], [diff.right], STRONG)
        self._title(
            "Messages",
            f"{said.common:,} in common" + ("" if said.left or said.right else ", and no others"),
        )
        for left, right in zip_longest(said.left, said.right):
            self._pair(self._message(left), self._message(right))
        self._calls(diff)
        self._sides("Facts", diff.facts)
        self._sides(
            "Verdicts", {name: _verdict_sides(sides) for name, sides in diff.validation.items()}
        )
        if diff.files:
            self._title("Files", count_text(len(diff.files), "path"))
            print_changes(self._out, diff.files)
        self._title("Cost")
        costs = [f"{tokens_text(spent)}, {spent.cost}" for spent in diff.cost]
        self._pair(costs[:1], costs[1:])

    def _title(self, text: str, aside: str = "") -> None:
        self._out.heading(text, aside)

    def _calls(self, diff: Diff) -> None:
        calls = diff.calls
        if not (calls.common or calls.left or calls.right):
            return
        others = "" if calls.left or calls.right else ", and no others"
        self._title("Tool calls", f"{calls.common:,} in common{others}")
        for pair in zip_longest(calls.left, calls.right):
            left, right = [
                self._wrap_lines(f"{call.request.seq} {call_text(call)}") if call else []
                for call in pair
            ]
            self._pair(left, right)

    def _sides(self, title: str, all_sides: dict[str, Sides]) -> None:
        if not all_sides:
            return
        self._title(title)
        for key, sides in all_sides.items():
            left = self._wrap_lines(f"{key} = {as_json(sides.left)}") if sides.left_there else []
            right = self._wrap_lines(f"{key} = {as_json(sides.right)}") if sides.right_there else []
            self._pair(left, right)

    def _message(self, message: Message | None) -> list[str]:
        if message is None:
            return []
        branch = f" (from {message.branch})" if message.branch else ""
        return self._wrap_lines(
            f"{message.seq} {message.name or message.role}{branch}: {message.text}"
        )

    def _wrap_lines(self, text: str) -> list[str]:
        return self._out.wrap_lines(text, self._half, self.LINES)

    def _pair(self, left: Sequence[str], right: Sequence[str], style: str = "") -> None:
        for one, two in zip_longest(left, right, fillvalue=""):
            text = cut_text(clean(one), self._half)
            space = " " * (self._half - cell_width(text))
            self._out.line(
                Cell(text, style),
                space,
                Cell(" │ ", DIM),
                Cell(cut_text(clean(two), self._half), style),
            )


def _verdict_sides(sides: Sides) -> Any:
    return Sides(
        _verdict_text(sides.left), _verdict_text(sides.right), sides.left_there, sides.right_there
    )


def _verdict_text(passed: Any) -> str:
    return "passed" if passed else "failed"
