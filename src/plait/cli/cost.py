"""The cost of sessions: `cost`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence

import click

from plait.cli.common import Options, listing, names_of
from plait.cli.documents import print_json, print_jsonl
from plait.cli.render import ACCENT, DIM, STRONG, Cell, Column, Out, count_text
from plait.ids import LogId, short
from plait.outline.documents import session_document, spent_document
from plait.session.ledger import BRANCH, Costs, costs
from plait.session.ports import store_at
from plait.session.safe_text import clean
from plait.session.state import NOTHING, Spent, dollars_text
from plait.store import Store

NAME_MIN = 8  # cells of the first column: a short id fits
FIGURES = (
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "estimated_tokens",
    "model_calls",
    "tool_calls",
    "cost_usd",
    "unpriced",
)


@click.command("cost")
@click.argument("session", metavar="[S]", required=False)
@click.option(
    "--by",
    "names",
    metavar="WHAT",
    multiple=True,
    help="user, project, tag:NAME, agent, model, session, run or day; several with commas.",
)
@click.option(
    "--since",
    metavar="WHEN",
    help="From then on: 2h, 7d back from the last event, or 2026-11-15 (UTC).",
)
@click.option("--until", metavar="WHEN", help="Up to then.")
@click.option(
    "--csv", "as_csv", is_flag=True, help="Print comma-separated values, for a spreadsheet."
)
@listing
def cost(
    given: Options,
    session: str | None,
    names: Sequence[str],
    since: str | None,
    until: str | None,
    as_csv: bool,
) -> None:
    """Sum up what models and tools were used, and what that cost.

    Of all sessions, or of S: what it was forked from, what was merged into it, and the branches
    that its runs opened, as those of agents that are tools. Each call counts once. The last line,
    and with --by run rows of their own, tell the cost of branches that were not merged.
    """
    if as_csv and given.form != "text":
        raise click.UsageError("--csv excludes --json and --jsonl.")
    value = given.open(session) if session is not None else None
    store = store_at(given.store)
    found = costs(store, list(names), since=since, until=until, session=value)
    if as_csv:
        _print_csv(found)
    elif given.form == "jsonl":
        print_jsonl(_row_document(found.by, key, spent) for key, spent in found.rows)
    elif given.form == "json":
        print_json(
            {
                "session": session_document(value) if value is not None else None,
                "since": found.since,
                "until": found.until,
                "by": list(found.by),
                "rows": [_row_document(found.by, key, spent) for key, spent in found.rows],
                "total": spent_document(found.total),
                "not_merged": None
                if found.not_merged is None
                else spent_document(found.not_merged),
            }
        )
    else:
        _print_table(store, found)


def _row_document(by: Sequence[str], key: Sequence[str], spent: Spent) -> dict[str, object]:
    return {
        **{name: value or None for name, value in zip(by, key, strict=True)},
        **spent_document(spent),
    }


def _print_csv(found: Costs) -> None:
    """Print one line per row.

    A cell that a spreadsheet would take for a formula begins with an apostrophe.
    """
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([*found.by, *FIGURES])
    for key, spent in found.rows:
        document = spent_document(spent)
        writer.writerow([*map(_plain, key), *(document[name] for name in FIGURES)])


def _plain(text: str) -> str:
    text = clean(text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _print_table(store: Store, found: Costs) -> None:
    out = Out()
    if not found.rows:
        out.hint(
            "Nothing was spent"
            + (" in that time." if found.since is not None or found.until is not None else ".")
        )
        return
    columns = [
        *(
            Column(name.removeprefix("tag:"), flex=at == 0, least=NAME_MIN)
            for at, name in enumerate(found.by)
        ),
        *([] if found.by else [Column(flex=True)]),
        Column("tokens", right=True),
        Column("in + out", right=True, aside=True),
        Column("model calls", right=True),
        Column("tool calls", right=True),
        Column("US dollars", right=True),
        Column(""),
    ]
    sessions = names_of(
        store,
        [
            LogId(key[at])
            for at, name in enumerate(found.by)
            if name == "session"
            for key, _ in found.rows
        ],
    )
    rows = [
        [
            *(_name(name, value, sessions) for name, value in zip(found.by, key, strict=True)),
            *_figures(spent, out.tty),
        ]
        for key, spent in (found.rows if found.by else ())
    ]
    sums = [_sum_row("total", STRONG, len(found.by), _figures(found.total, out.tty))]
    if found.not_merged is not None and found.not_merged != NOTHING:
        figures = _figures(found.not_merged, out.tty)
        sums.append(_sum_row("of it not merged", DIM, len(found.by), figures))
    out.table(columns, [*rows, *sums], heads=True)


def _sum_row(name: str, style: str, names: int, figures: Sequence[Cell]) -> list[Cell]:
    """Return a row below the others, which have so many names."""
    return [
        Cell(name, style),
        *[Cell("")] * (names - 1),
        *(Cell(cell.text, style) for cell in figures),
    ]


def _name(what: str, value: str, sessions: dict[LogId, str]) -> Cell:
    if not value:
        return Cell("" if what == BRANCH else "(none)", DIM)
    if what == "run":
        return Cell(short(LogId(value)), ACCENT)
    return (
        Cell(sessions.get(LogId(value), short(LogId(value))), ACCENT)
        if what == "session"
        else Cell(value)
    )


def _figures(spent: Spent, narrow: bool) -> list[Cell]:
    """Return the cells of one row. `narrow`: there is only the width of a terminal."""
    usage = spent.usage
    unpriced = f"{spent.unpriced:,}" if narrow else count_text(spent.unpriced, "call")
    return [
        Cell(f"{'~' if usage.estimated_tokens else ''}{spent.tokens:,}"),
        Cell(f"{usage.input_tokens:,} + {usage.output_tokens:,}" if spent.tokens else "", DIM),
        Cell(f"{spent.model_calls:,}"),
        Cell(f"{spent.tool_calls:,}"),
        Cell(dollars_figure(spent)),
        Cell(
            f"{unpriced} unpriced" if spent.unpriced and spent.cost.dollars is not None else "", DIM
        ),
    ]


def dollars_figure(spent: Spent) -> str:
    """Return the cost; nothing if no model was asked, a lower bound if some prices are unknown."""
    if not spent.model_calls and not spent.tokens:
        return ""
    cost = spent.cost
    if cost.dollars is None:
        return "unknown"
    bound, about = "≥ " if cost.unpriced else "", "~" if cost.estimated else ""
    return f"{bound}{about}{dollars_text(cost.dollars).removeprefix('$')}"
