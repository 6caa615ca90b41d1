"""The events of sessions: `log`, also as a picture."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

import click

from plait.cli.common import Options, filters, listing, names_of, store_of
from plait.cli.documents import print_json, print_jsonl
from plait.cli.pager import paging
from plait.cli.react import print_react
from plait.cli.render import ACCENT, DIM, Cell, Column, Out
from plait.cli.steps import print_steps
from plait.event import Event
from plait.event.kinds import ForkedFrom, Merged, Rewound
from plait.ids import Digest, LogId, house_of, short
from plait.outline.documents import Document, event_document, session_document
from plait.outline.event_lanes import Dot, draw, order
from plait.session import Session
from plait.session.arguments import is_named
from plait.session.event_text import event_text
from plait.session.events import kind_names
from plait.session.graph import family
from plait.session.house import house_events
from plait.session.ports import store_at
from plait.session.run_branches import branches_of_runs
from plait.session.times import parse_when
from plait.session.value import counted_logs

# on a terminal, unless a number is given: the newest come first and must not scroll away
SHOWN = 50
BRANCHES = 3  # that are named below a log
MARKS = {Merged.__name__: "◆", ForkedFrom.__name__: "○", Rewound.__name__: "↺"}


class Filter(NamedTuple):
    """Chooses events by kind, actor and time."""

    kinds: set[str] | None
    actor: str | None
    first: int
    last: int

    @classmethod
    def of(
        cls,
        kinds: Sequence[str],
        actor: str | None,
        since: str | None,
        until: str | None,
        last: int,
    ) -> Filter:
        """`last` is the time from which a span such as 10m counts back."""
        return cls(
            kind_names(kinds) if kinds else None,
            actor,
            parse_when(since, last, "since") if since is not None else 0,
            parse_when(until, last, "until") if until is not None else 2**63,
        )

    @property
    def is_search(self) -> bool:
        """True if it leaves out some events."""
        return self != Filter(None, None, 0, 2**63)

    def __call__(self, event: Event) -> bool:
        header = event.header
        return (
            (self.kinds is None or header.kind in self.kinds)
            and (self.actor is None or is_named(header.actor, self.actor))
            and self.first <= header.time <= self.last
        )


# ── log ──────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("session", metavar="[S | A..B]", default="@")
@click.option(
    "-n",
    "--limit",
    "number",
    type=click.IntRange(min=1),
    help=f"The newest so many; else {SHOWN} on a terminal, and all elsewhere.",
)
@click.option(
    "--graph", "as_graph", is_flag=True, help="Draw the whole family: all forks and merges."
)
@click.option("--oneline", is_flag=True, help="Only S@k, and what the event says.")
@click.option("--reverse", is_flag=True, help="The oldest first.")
@click.option(
    "--path", "on_path", is_flag=True, help="Follow rewinds: leave out what they went back behind."
)
@click.option(
    "--react",
    "as_steps",
    is_flag=True,
    help="What agents thought, did and saw, step by step, the oldest first.",
)
@click.option(
    "--steps",
    "in_steps",
    is_flag=True,
    help="What happened, a line for each step, in the whole family, the oldest first.",
)
@click.option("--events", "in_events", is_flag=True, help="All events, also on a terminal.")
@click.option(
    "--house", "of_house", is_flag=True, help="The log of the store itself, instead of a session's."
)
@filters
@paging
@listing
def log(
    given: Options,
    session: str,
    number: int | None,
    of_house: bool,
    as_graph: bool,
    oneline: bool,
    reverse: bool,
    on_path: bool,
    as_steps: bool,
    in_steps: bool,
    in_events: bool,
    **which: Any,
) -> None:
    """Tell what happened in a session, step by step.

    On a terminal a step is a line, the oldest first, in the whole family of S: see --steps. With
    --events, with an option that is about events, and in a pipe: events, the newest first unless
    --reverse. A..B are those of B that A does not have. In the picture ● is an event, ○ the first
    of a fork, ◆ a merge and ↺ a rewind.
    """
    if of_house:
        if session != "@" or as_graph or on_path or as_steps or in_steps:
            raise click.UsageError(
                "--house shows the store's own log: leave out the session, --graph, --path,"
                " --react and --steps."
            )
        return _show_house(given, number, oneline, reverse, which)
    if reverse and (as_graph or as_steps):
        raise click.UsageError(
            "--reverse is for the list of events: leave out --graph, and --react, which tells the"
            " oldest first."
        )
    if as_graph and on_path:
        raise click.UsageError("--graph draws everything, also what was rewound: leave out --path.")
    if as_steps and (as_graph or which["kinds"] or ".." in session):
        raise click.UsageError(
            "--react tells the steps of one session, S or S@k: leave out --graph, --kind and A..B."
        )
    others = (as_graph, as_steps, on_path, reverse, oneline, ".." in session, *which.values())
    if in_steps and in_events:
        raise click.UsageError("--steps and --events exclude each other.")
    if not in_events and given.form == "text" and Out().tty and not any(others):
        in_steps = True
    if in_steps:
        if any(others):
            raise click.UsageError(
                "--steps shows the whole family of S: use it with -n, --json or --jsonl alone."
            )
        limit = SHOWN if Out().tty else None
        return print_steps(given, given.open(session), number, limit)
    before, value = given.open_range(session) if ".." in session else (None, given.open(session))
    wanted = Filter.of(
        which["kinds"], which["by"], which["since"], which["until"], value.events[-1].header.time
    )
    if as_steps:
        return print_react(given, value, wanted, number, oneline)
    if as_graph:
        graphed = _HistoryPicture.of(value, before, wanted)
        events: Iterable[Event] = islice(graphed.events, number)
    else:
        graphed = None
        events = islice(_newest_events(value, before, wanted, on_path), number)
    if given.form == "jsonl":
        print_jsonl(_event_documents(events, reverse))
    elif given.form == "json":
        document = {
            "from": session_document(before) if before else None,
            "session": session_document(value),
        }
        print_json({**document, "events": list(_event_documents(events, reverse))})
    elif graphed is not None:
        _print_graph(graphed, number, oneline)
    else:
        _print_log(value.short, events, number, oneline, reverse, value.short)
        if before is None:
            _print_branches(value, wanted)


def _event_documents(newest_first: Iterable[Event], reverse: bool) -> Iterator[Document]:
    events = reversed(list(newest_first)) if reverse else newest_first
    return map(event_document, events)


def _show_house(
    given: Options, number: int | None, oneline: bool, reverse: bool, which: Mapping[str, Any]
) -> None:
    store = store_at(given.store)
    house = house_of(store.id)
    newest = next(house_events(store, reverse=True)).header.time
    wanted = Filter.of(which["kinds"], which["by"], which["since"], which["until"], newest)
    found = filter(wanted, house_events(store, kinds=wanted.kinds, reverse=True))
    events = islice(found, number)
    if given.form == "jsonl":
        print_jsonl(_event_documents(events, reverse))
    elif given.form == "json":
        print_json({"house": house, "events": list(_event_documents(events, reverse))})
    else:
        _print_log(short(house), events, number, oneline, reverse, "--house")


def _newest_events(
    session: Session, before: Session | None, wanted: Filter, on_path: bool
) -> Iterator[Event]:
    known = counted_logs(before) if before else {}  # the events it covers, merged branches included
    events = (
        reversed(session.lineage.path)
        if on_path
        else store_of(session).read(session.id, 1, session.seq, kinds=wanted.kinds, reverse=True)
    )
    for event in events:
        if event.seq > known.get(event.log, 0) and wanted(event):
            yield event


def _print_log(
    name: str,
    events: Iterable[Event],
    number: int | None,
    oneline: bool,
    reverse: bool,
    asked: str,
) -> None:
    """Print events of the log with this short id. `asked` names it in a command."""
    out = Out()
    limit = SHOWN if number is None and out.tty else None
    left = iter(events)
    columns = [
        Column(right=True),
        *([] if oneline else [Column(aside=True)] * 2),
        Column(flex=True),
    ]
    marked = _mark_rewound(islice(left, limit))
    rows = (_log_row(out, name, event, gone, oneline) for event, gone in marked)
    out.table(columns, reversed(list(rows)) if reverse else rows)
    if next(left, None) is not None:
        more = "" if asked == "--house" else " --events"
        out.hint(f"… and older ones: plait log {asked}{more} -n 1000")


def _print_branches(session: Session, wanted: Filter) -> None:
    """Tell how many more events stand in branches of the session's runs. A search that leaves them
    out says so also in a pipe, on stderr.
    """
    store, counts = store_of(session), dict[LogId, int]()
    for log in branches_of_runs(session):
        events = store.read(log, store.log(log).place + 1, kinds=wanted.kinds)
        if count := sum(map(wanted, events)):
            counts[log] = count
    if not counts:
        return
    names = names_of(store, counts)
    shown = ", ".join(f"plait log {names[log]}" for log in list(counts)[:BRANCHES])
    more = f", and {len(counts) - BRANCHES} more" if len(counts) > BRANCHES else ""
    told = f"{sum(counts.values()):,} more in branches: {shown}{more}"
    if Out().tty:
        Out().hint(told)
    elif wanted.is_search:
        Out(stderr=True).line(told)


def _mark_rewound(events: Iterable[Event]) -> Iterator[tuple[Event, bool]]:
    """Yield each event, the newest first, with True if a rewind went back behind it."""
    upto = sys.maxsize
    for event in events:
        gone = event.seq > upto
        if not gone and isinstance(
            body := event.body if event.kind == Rewound.__name__ else None, Rewound
        ):
            upto = body.to
        yield event, gone


def _log_row(out: Out, name: str, event: Event, gone: bool, oneline: bool) -> list[Cell]:
    says = Cell(event_text(event), DIM if gone else "")
    if oneline:
        return [Cell(f"{name}@{event.seq}", ACCENT), says]
    return [
        Cell(str(event.seq), ACCENT),
        Cell(out.time(event.header.time), DIM),
        Cell(event.header.actor, DIM),
        says,
    ]


# ── the picture ──────────────────────────────────────────────────────────────────────────────


class _HistoryPicture(NamedTuple):
    """All sessions connected by forks and merges, in the order of the picture."""

    dots: list[Dot]
    known: dict[str, Event]
    names: dict[LogId, str]
    tips: set[str]

    @classmethod
    def of(cls, session: Session, before: Session | None, wanted: Filter) -> _HistoryPicture:
        store = store_of(session)
        logs = [store.log(log) for log in family(store, session.id)]
        numbered = [
            (record.number, event)
            for log in logs
            for record, event in zip(
                store.records(log.id), store.read(log.id, log.place + 1, log.tip), strict=False
            )
        ]
        # as committed: clocks may be wrong
        events = [event for _, event in sorted(numbered, key=itemgetter(0), reverse=True)]
        # the session that was asked for is drawn first
        events.sort(key=lambda event: event.log != session.id)
        shown = {
            event.id
            for event in (
                _newest_events(session, before, wanted, False) if before else filter(wanted, events)
            )
        }
        dots = _drop_hidden(
            order(
                [
                    Dot(event.id, event.header.parents, MARKS.get(event.kind, "●"))
                    for event in events
                ]
            ),
            shown,
        )
        return cls(
            dots,
            {event.id: event for event in events},
            names_of(store, [log.id for log in logs]),
            {log.head for log in logs},
        )

    @property
    def events(self) -> Iterator[Event]:
        return (self.known[dot.id] for dot in self.dots)


def _drop_hidden(dots: Sequence[Dot], shown: set[Digest]) -> list[Dot]:
    """Return the dots that are shown. A hidden dot is replaced by its parents, so that the lines
    stay true.
    """
    if len(shown) == len(dots):
        return list(dots)
    stand_in: dict[str, tuple[str, ...]] = {}
    kept = list[Dot]()
    for dot in reversed(dots):  # parents first
        parents = tuple(
            dict.fromkeys(id for parent in dot.parents for id in stand_in.get(parent, ()))
        )
        stand_in[dot.id] = (dot.id,) if dot.id in shown else parents
        if dot.id in shown:
            kept.append(dot._replace(parents=parents))
    return kept[::-1]


def _print_graph(found: _HistoryPicture, number: int | None, oneline: bool) -> None:
    out = Out()
    limit = number or (SHOWN if out.tty else None)
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    drawn = _first_dots(draw(found.dots, plain=plain), limit)
    columns = [
        Column(whole=True),
        Column(),
        Column(flex=True),
        *([] if oneline else [Column(aside=True)] * 2),
    ]
    out.table(columns, (_graph_row(out, found, margin, id, oneline) for margin, id in drawn))
    if limit is not None and len(found.dots) > limit:
        out.hint(
            f"… and {len(found.dots) - limit:,} older ones: -n {len(found.dots)} draws them all"
        )


def _first_dots(
    lines: Iterator[tuple[str, str | None]], limit: int | None
) -> Iterator[tuple[str, str | None]]:
    """Yield the lines down to so many dots. Below the cut the lanes go on."""
    count = 0
    for margin, id in lines:
        if id is not None and count == limit:
            return
        count += id is not None
        yield margin, id


def _graph_row(
    out: Out, found: _HistoryPicture, margin: str, id: str | None, oneline: bool
) -> list[Cell]:
    if id is None:
        return [Cell(margin, DIM), *[Cell("")] * (2 if oneline else 4)]
    event = found.known[id]
    name = Cell(f"{found.names[event.log]}@{event.seq}", ACCENT if id in found.tips else DIM)
    more = (
        [] if oneline else [Cell(event.header.actor, DIM), Cell(out.time(event.header.time), DIM)]
    )
    return [Cell(margin), name, Cell(event_text(event)), *more]
