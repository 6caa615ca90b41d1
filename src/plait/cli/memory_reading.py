"""Looking at memories: `ls`, `show`, `search`, `why`, `influence`, `used`, `pending`.

A person who looks leaves no event. The room of memory is imported inside the commands, so that
`--help` is quick.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, get_args

import click

from plait.cli.common import Options, command_line, listing, names_of, text_of
from plait.cli.documents import print_json, print_jsonl
from plait.cli.memory_documents import (
    marks_of,
    memory_document,
    reason_of,
    use_document,
)
from plait.cli.memory_text import (
    TEXT_LINES,
    WAITING,
    check_name,
    deciding_steps,
    line_text,
    owner_text,
    print_first_lines,
    said_text,
)
from plait.cli.render import ACCENT, BAD, DIM, GAP, STRONG, Cell, Column, Out, count_text
from plait.cli.tracing import print_trace
from plait.event.kinds import Scope
from plait.ids import Micros
from plait.memory.rows import ITEM, READ
from plait.outline.documents import session_document, trace_document
from plait.session import Session
from plait.session.ports import store_at
from plait.session.safe_text import visible
from plait.session.trace import Trace
from plait.session.value import core_of
from plait.store import Row, Store

if TYPE_CHECKING:
    from plait.memory.items import MemoryItem
    from plait.memory.memory import Memory
    from plait.memory.provenance import Use
    from plait.memory.scopes import Viewer

PAGE = 500
LISTED = 50
SCOPES: tuple[str, ...] = get_args(Scope)
STATES = ("active", "quarantined", "proposed", "superseded", "retracted", "rejected", "all")


def open_memory(given: Options) -> Memory:
    """Return the memory of the store, which must exist."""
    from plait.memory.memory import Memory  # heavy: loaded only by commands that use it

    return Memory(store=given.store)


def viewer_in(given: Options, session: str | None) -> Viewer:
    """Return the reader that a session is; without one, the person who has the store."""
    from plait.memory.scopes import Overseer, owners_of, viewer_of

    if session is None:
        return Overseer(store_at(given.store))
    value = given.open(session)
    return viewer_of(value, owners_of(value))


session_option = click.option("--session", metavar="S", help="Only those that S may see.")


# ── ls ───────────────────────────────────────────────────────────────────────────────────────


class MemoryFilter(NamedTuple):
    """The memories that `ls` is asked for."""

    scope: str | None
    state: str
    key: str | None


@click.command("ls")
@click.option("--scope", type=click.Choice(SCOPES), help="Only those of this scope.")
@click.option(
    "--state",
    type=click.Choice(STATES),
    default="active",
    help="Those in this state; active if left out.",
)
@click.option("--key", help="Only those with this key.")
@session_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"At most so many; else {LISTED} on a terminal, and all elsewhere.",
)
@listing
def memory_ls(
    given: Options,
    scope: str | None,
    state: str,
    key: str | None,
    session: str | None,
    limit: int | None,
) -> None:
    """List memories, the latest first."""
    if limit is None and given.form == "text" and Out().tty:
        limit = LISTED
    viewer = viewer_in(given, session)
    found = _wanted_items(viewer, MemoryFilter(scope, state, key))
    shown = list(islice(found, limit))
    more = sum(1 for _ in found)
    now = now_of(viewer.store)
    if given.form == "jsonl":
        print_jsonl(memory_document(item, now) for item in shown)
    elif given.form == "json":
        documents = [memory_document(item, now) for item in shown]
        print_json({"store": given.store, "memories": documents, "more": more})
    else:
        _print_list(given, shown, more, state)


def _wanted_items(viewer: Viewer, wanted: MemoryFilter) -> Iterator[MemoryItem]:
    from plait.memory.items import item_of

    store = viewer.store
    for row in _rows_of(store, wanted.key):
        if (wanted.scope is None or row["scope"] == wanted.scope) and viewer.may_see(row):
            item = item_of(store, row, viewer)
            if wanted.state in ("all", item.state):
                yield item


def _rows_of(store: Store, key: str | None = None) -> Iterator[Row]:
    """Yield the rows of memories, page by page, the latest first."""
    where = {"key": key} if key is not None else None
    before: int | None = None
    while True:
        page = store.rows(
            "memory", ITEM, where, order="number", descending=True, before=before, limit=PAGE
        )
        yield from page
        if len(page) < PAGE:
            return
        before = int(str(page[-1]["number"]))


def now_of(store: Store) -> Micros:
    """Return the time for a person who looks."""
    from plait.memory.recall import now_in

    return now_in(store)


def _print_list(given: Options, items: Sequence[MemoryItem], more: int, state: str) -> None:
    out = Out()
    columns = [
        Column("memory"),
        Column("state", aside=True),
        Column("of", aside=True),
        Column("kind", aside=True),
        Column("trust", aside=True),
        Column("written", aside=True),
        Column("text", flex=True),
    ]
    out.table(columns, (_list_row(out, item) for item in items), heads=True)
    if more:
        out.line(Cell(f"… and {more:,} more: --limit {len(items) + more}", DIM))
    if not items and state == "active":
        out.hint(
            f"No such memories. Read a document: {command_line(given, 'memory', 'ingest', 'PATH')}",
            f"Those that wait for you: {command_line(given, 'memory', 'pending')}",
        )
    elif not items:
        out.hint(
            f"No such memories. In every state: {command_line(given, 'memory', 'ls')} --state all"
        )


def _list_row(out: Out, item: MemoryItem) -> list[Cell]:
    return [
        Cell(item.short, ACCENT),
        _state_cell(item, out.now),
        Cell(owner_text(item)),
        Cell(item.kind, DIM),
        Cell(item.trust, DIM),
        Cell(out.time(item.time), DIM),
        Cell(said_text(item)),
    ]


def _state_cell(item: MemoryItem, now: Micros) -> Cell:
    text = ", ".join([item.state, *marks_of(item, now)])
    if item.state in WAITING:
        return Cell(text, STRONG)
    return Cell(text, "" if text == "active" else DIM)


# ── search ───────────────────────────────────────────────────────────────────────────────────


@click.command("search")
@click.argument("text", metavar="TEXT")
@click.option(
    "--as-of", metavar="S@7", help="As it was believed at this event of a session, by that session."
)
@click.option("-k", "count", type=click.IntRange(1, 1000), default=10, help="At most so many; 10.")
@click.option("--session", metavar="S", help="As S sees it; else all of the store is searched.")
@listing
def memory_search(
    given: Options, text: str, as_of: str | None, count: int, session: str | None
) -> None:
    """Search the active memories by words, best first.

    It leaves no event. As TEXT, - reads standard input.
    """
    memory = open_memory(given)
    found = memory.search(
        text_of(text),
        session=given.open(session) if session is not None else None,
        as_of=given.open(as_of) if as_of is not None else None,
        k=count,
    )
    now = now_of(store_at(given.store))
    documents = ({"score": score, **memory_document(item, now)} for item, score in found)
    if given.form == "jsonl":
        print_jsonl(documents)
    elif given.form == "json":
        print_json({"hits": list(documents)})
    else:
        _print_hits(given, found)


def _print_hits(given: Options, found: Sequence[tuple[MemoryItem, float]]) -> None:
    out = Out()
    columns = [
        Column("score", right=True),
        Column("memory"),
        Column("of", aside=True),
        Column("kind", aside=True),
        Column("trust", aside=True),
        Column("written", aside=True),
        Column("text", flex=True),
    ]
    rows = (
        [
            Cell(f"{score:.3g}", DIM),
            Cell(item.short, ACCENT),
            Cell(owner_text(item)),
            Cell(item.kind, DIM),
            Cell(", ".join([item.trust, *marks_of(item, out.now)]), DIM),
            Cell(out.time(item.time), DIM),
            Cell(said_text(item)),
        ]
        for item, score in found
    )
    if not out.table(columns, rows, heads=True):
        out.hint(
            "Nothing active has these words. Those that wait:"
            f" {command_line(given, 'memory', 'pending')}"
        )


# ── why, influence, used ─────────────────────────────────────────────────────────────────────


@click.command("why")
@click.argument("memory", metavar="M")
@listing
def memory_why(given: Options, memory: str) -> None:
    """Tell where a memory comes from: its evidence, and all that this rests on."""
    check_name(given, memory)
    face = open_memory(given)
    _print_answer(given, face.get(memory), face.why(memory))


@click.command("influence")
@click.argument("memory", metavar="M")
@listing
def memory_influence(given: Options, memory: str) -> None:
    """Tell what became of a memory: decisions, recalls, replies, acts and further memories."""
    check_name(given, memory)
    face = open_memory(given)
    _print_answer(given, face.get(memory), face.influence(memory))


def _print_answer(given: Options, item: MemoryItem, trace: Trace) -> None:
    store = store_at(given.store)
    document = trace_document(trace)
    if given.form == "jsonl":
        print_jsonl(document["steps"])
    elif given.form == "json":
        print_json({"memory": memory_document(item, now_of(store)), **document})
    else:
        print_trace(store, trace)


@click.command("used")
@click.argument("session", metavar="S[@7]")
@listing
def memory_used(given: Options, session: str) -> None:
    """Show the memories that a session recalled, which of them its replies cite, and what became
    of them since.
    """
    value = given.open(session)
    uses = open_memory(given).used(value)
    if given.form == "jsonl":
        print_jsonl(map(use_document, uses))
    elif given.form == "json":
        documents = [use_document(use) for use in uses]
        print_json({"session": session_document(value), "uses": documents})
    else:
        _print_uses(store_at(given.store), uses)


def _print_uses(store: Store, uses: Sequence[Use]) -> None:
    out = Out()
    names = names_of(store, [use.log for use in uses])
    columns = [
        Column("memory"),
        Column("recalled"),
        Column("rank", right=True, aside=True),
        Column("since"),
        Column("cited"),
        Column("run without it", aside=True),
        Column("text", flex=True),
    ]
    rows = (
        [
            Cell(use.memory[:8], ACCENT),
            Cell(f"{names[use.log]}@{use.seq}"),
            Cell(str(use.rank), DIM),
            Cell(use.taken_back, BAD),
            Cell(_citing_text(use), "" if use.cited else DIM),
            Cell(_ablation_text(use), DIM),
            Cell(line_text(use.text)),
        ]
        for use in uses
    )
    if not out.table(columns, rows, heads=True):
        out.hint("It recalled nothing.")


def _citing_text(use: Use) -> str:
    return f"cited {count_text(len(use.cited), 'time')}" if use.cited else "not cited"


def _ablation_text(use: Use) -> str:
    """Tell what differed in runs without a memory; "": there was none."""
    facts: list[str] = []
    for each in use.ablations:
        differs = ", ".join(f"{what} {count}" for what, count in each.differs.items() if count)
        facts.append(f"{count_text(each.runs, 'run')} without it: {differs or 'the same'}")
    return "; ".join(facts)


def memories_lost(session: Session) -> list[str]:
    """Return the ids of memories that a session recalled and that do not hold any more.

    A session that recalled nothing is answered from its rows alone.
    """
    core = core_of(session)
    if not any(
        core.store.rows("memory", READ, {"log": span.log}, limit=1)
        for span in core.state.story.path
    ):
        return []
    from plait.memory.provenance import uses_of

    return list(dict.fromkeys(use.memory for use in uses_of(session) if use.taken_back))


# ── pending ──────────────────────────────────────────────────────────────────────────────────


@click.command("pending")
@session_option
@listing
def memory_pending(given: Options, session: str | None) -> None:
    """Show the memories that wait for a person, with the reason and the next step."""
    memory = open_memory(given)
    store = store_at(given.store)
    found = [
        (item, _full_reason(store, item, why))
        for item, why in memory.pending(given.open(session) if session is not None else None)
    ]
    now = now_of(store)
    documents = ({**memory_document(item, now), "why": why} for item, why in found)
    if given.form == "jsonl":
        print_jsonl(documents)
    elif given.form == "json":
        print_json({"pending": list(documents)})
    else:
        _print_pending(given, found)


def _full_reason(store: Store, item: MemoryItem, why: str) -> str:
    """Return why a memory waits, with the reason that its decision states."""
    by = item.standing.by
    if by is None or item.state not in WAITING:
        return why
    reason = next((reason_of(event) for event in store.read(by.log, by.seq, by.seq)), "")
    return f"{why}: {reason}" if reason else why


def _print_pending(given: Options, found: Sequence[tuple[MemoryItem, str]]) -> None:
    out = Out()
    for at, (item, why) in enumerate(found):
        if at:
            out.line()
        facts = [owner_text(item), item.kind, item.trust, f"by {visible(item.actor)}"]
        out.print_brief(
            Cell(item.short, STRONG),
            Cell(GAP),
            Cell(", ".join([*facts, out.time(item.time)]), DIM),
        )
        is_cut = print_first_lines(out, item.text, "  ")
        first, *rest = out.wrap_lines(visible(why), out.width - 7, TEXT_LINES)
        out.line(Cell("  why  ", DIM), first)
        for line in rest:
            out.line("       ", line)
        if is_cut:
            show = command_line(given, "memory", "show", item.short)
            out.line(Cell(f"  {show}   has all of the text", DIM))
        for step in _steps_of(given, item):  # in a pipe, too: without them a reader is stuck
            out.line(Cell(step, DIM))
    if not found:
        out.hint("No memory waits for a person.")


def _steps_of(given: Options, item: MemoryItem) -> list[str]:
    """Return the next steps about a memory that `pending` lists."""
    if item.state in WAITING:
        return deciding_steps(given, item)
    return [f"  {command_line(given, 'memory', 'rollback', item.short)}"]
