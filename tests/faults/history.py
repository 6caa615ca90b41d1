"""The acts of several writers, written down, and checked against the log they left: strict
serialisability, as Elle checks it.

Every attempt is recorded with its beginning and its end by a clock that all processes of one
machine share, and every look at a log with what was seen. The final logs say in which order the
appends took effect. From that follow edges:

    ww       one append stands before another
    wr       a look saw what an append had written last
    rw       a look did not see yet what an append wrote next
    process  a writer did one thing after another
    time     something ended before something else began

A history that one writer at a time could have made has no cycle in them. A lost, doubled, torn or
refused append that stands all the same needs no graph: it is seen by comparing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec


class Append(msgspec.Struct, frozen=True, tag="append"):
    """One attempt to append these texts, one event each."""

    writer: str
    log: str
    began: int  # nanoseconds
    ended: int
    texts: tuple[str, ...]
    outcome: str  # ok; stale: refused by StaleHead; anything else is what was raised, and a failure
    # where the last of them stands, as acknowledged; for a refusal, where it says the log ends
    place: int = 0
    head: str = ""  # the id that stands there


class Look(msgspec.Struct, frozen=True, tag="look"):
    """A look at a log: where it ends, and the last texts in it."""

    writer: str
    log: str
    began: int
    ended: int
    place: int
    head: str
    texts: tuple[str, ...] = ()


Act = Append | Look

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(list[Act]).decode


class Entry(NamedTuple):
    """One event of a final log."""

    place: int
    number: int  # its commit number
    id: str
    text: str


Final = Mapping[str, Sequence[Entry]]


def check(acts: Sequence[Act], final: Final, *, dense: bool = True) -> list[str]:
    """Everything that is wrong with a history, the first word naming the anomaly; nothing, if one
    writer at a time could have made it.

    Numbers that are not dense are given before a commit: two logs may be seen in another order than
    that of their numbers. So looks are compared with the order of each log alone, and the numbers
    of all logs with the clock.
    """
    found = [*_check_logs(final, dense), *_check_appends(acts, final), *_check_looks(acts, final)]
    # the graph needs acts that stand where they say
    if found or dense:
        return found or _check_order(acts, [final])
    appends = [act for act in acts if isinstance(act, Append) and act.outcome == "ok"]
    alone = [{log: entries} for log, entries in final.items()]
    return _check_order(acts, alone) + _check_order(appends, [final])


# ── by comparing ─────────────────────────────────────────────────────────────────────────────


def _check_logs(final: Final, dense: bool) -> Iterator[str]:
    """Places and commit numbers have no gaps, and rise together."""
    for log, entries in final.items():
        if [entry.place for entry in entries] != list(range(1, len(entries) + 1)):
            yield f"gap: the places of {log} are not 1 to {len(entries)}"
        if [entry.number for entry in entries] != sorted(entry.number for entry in entries):
            yield f"order: the commit numbers of {log} do not rise with its places"
    numbers = sorted(entry.number for entries in final.values() for entry in entries)
    if len(set(numbers)) < len(numbers):
        yield "duplicate: a commit number stands twice"
    if dense and numbers != list(range(1, len(numbers) + 1)):
        yield f"gap: the commit numbers are not 1 to {len(numbers)}"


def _check_appends(acts: Iterable[Act], final: Final) -> Iterator[str]:
    """An acknowledged append stands in the log once, whole, at its place; a refused one stands
    nowhere; and nothing else stands there.
    """
    there = {
        log: Counter(entry.text for entry in entries if entry.text)
        for log, entries in final.items()
    }
    for act in acts:
        if isinstance(act, Look):
            continue
        stands = [
            there[act.log].pop(text, 0) if act.outcome == "ok" else there[act.log][text]
            for text in act.texts
        ]
        if act.outcome == "ok":
            yield from _check_acknowledged(act, stands, final[act.log])
        elif act.outcome != "stale":
            yield f"error: {act.writer} got {act.outcome} for {act.texts}"
        elif any(stands):
            yield f"dirty write: {act.texts} was refused and stands in {act.log}"
    for log, left in there.items():
        for text in +left:
            yield f"dirty write: {text!r} stands in {log}, and nobody was told so"


def _check_acknowledged(act: Append, stands: list[int], entries: Sequence[Entry]) -> Iterator[str]:
    if not all(stands):
        torn = "fractured" if any(stands) else "lost update"
        yield (
            f"{torn}: {act.texts} was acknowledged at {act.place} of {act.log} and stands {stands}"
            " times"
        )
        return
    if any(times > 1 for times in stands):
        yield f"duplicate: {act.texts} stands {stands} times in {act.log}"
        return
    span = entries[act.place - len(act.texts) : act.place]
    if tuple(entry.text for entry in span) != act.texts or span[-1].id != act.head:
        texts = [entry.text for entry in entries]
        first = texts.index(act.texts[0])
        whole = tuple(texts[first : first + len(act.texts)]) == act.texts
        yield (
            f"{'misplaced' if whole else 'fractured'}: {act.texts} was acknowledged at {act.place}"
            f" of {act.log}, where {span} stands"
        )


def _check_looks(acts: Iterable[Act], final: Final) -> Iterator[str]:
    """Every look saw a beginning of the final log."""
    for act in acts:
        if isinstance(act, Append) and act.outcome != "stale":
            continue
        entries = final[act.log]
        if not 0 < act.place <= len(entries) or entries[act.place - 1].id != act.head:
            yield (
                f"dirty read: {act.writer} saw {act.log} end at {act.place} with {act.head[:12]},"
                " which is not in it"
            )
        elif isinstance(act, Look) and act.texts != tuple(
            entry.text for entry in entries[act.place - len(act.texts) : act.place]
        ):
            yield (
                f"dirty read: {act.writer} saw {act.texts} before place {act.place} of {act.log},"
                " where something else stands"
            )


# ── by the graph ─────────────────────────────────────────────────────────────────────────────


class Edge(NamedTuple):
    kind: str
    to: int


class _Graph:
    """Acts by their index; further nodes are moments."""

    def __init__(self, size: int) -> None:
        self.edges: list[list[Edge]] = [[] for _ in range(size)]

    def add(self, one: int, kind: str, other: int) -> None:
        self.edges[one].append(Edge(kind, other))

    def moment(self) -> int:
        self.edges.append([])
        return len(self.edges) - 1

    def cycle(self) -> list[tuple[int, str]]:
        """A way from some node back to itself, with the kind of edge that leaves each; empty if
        there is none.
        """
        left = [0] * len(self.edges)
        for edges in self.edges:
            for edge in edges:
                left[edge.to] += 1
        free = [node for node, count in enumerate(left) if not count]
        while free:
            for edge in self.edges[free.pop()]:
                left[edge.to] -= 1
                if not left[edge.to]:
                    free.append(edge.to)
        return self._walk({node for node, count in enumerate(left) if count})

    def _walk(self, tangled: set[int]) -> list[tuple[int, str]]:
        """Every tangled node has a tangled node before it: going back, sooner or later one is met
        twice.
        """
        if not tangled:
            return []
        back = {
            edge.to: (node, edge.kind)
            for node in tangled
            for edge in self.edges[node]
            if edge.to in tangled
        }
        way: dict[int, str] = {}
        node = next(iter(tangled))
        while node not in way:
            before, kind = back[node]
            way[node] = kind
            node = before
        nodes = list(way)[list(way).index(node) :]
        return [(back[each][0], way[each]) for each in nodes][::-1]


def _check_order(acts: Sequence[Act], ordered: Sequence[Final]) -> list[str]:
    graph = _Graph(len(acts))
    wrote = {
        (act.log, act.place - back): node
        for node, act in enumerate(acts)
        if isinstance(act, Append) and act.outcome == "ok"
        for back in range(len(act.texts))
    }
    for final in ordered:
        _add_commits(graph, wrote, final)
    _add_looks(graph, wrote, acts)
    _add_processes(graph, acts)
    _add_time(graph, acts)
    cycle = graph.cycle()
    if not cycle:
        return []
    words = [
        f"{_brief(acts[node]) if node < len(acts) else 'moment'} -{kind}->" for node, kind in cycle
    ]
    return [f"cycle: {' '.join(words[:12])}{' …' if len(words) > 12 else ''}"]


Places = Mapping[tuple[str, int], int]  # the act that wrote to a place of a log


def _add_commits(graph: _Graph, wrote: Places, final: Final) -> None:
    """ww along the commit numbers of these logs."""
    committed = sorted(
        (entry.number, log, entry.place) for log, entries in final.items() for entry in entries
    )
    order = list(
        dict.fromkeys(wrote[log, place] for _, log, place in committed if (log, place) in wrote)
    )
    for one, other in zip(order, order[1:], strict=False):
        graph.add(one, "ww", other)


def _add_looks(graph: _Graph, wrote: Places, acts: Sequence[Act]) -> None:
    """wr and rw between what was seen and what was written."""
    for node, act in enumerate(acts):
        if isinstance(act, Append) and act.outcome == "ok":
            continue
        if (before := wrote.get((act.log, act.place))) is not None:
            graph.add(before, "wr", node)
        if (after := wrote.get((act.log, act.place + 1))) is not None:
            graph.add(node, "rw", after)


def _add_processes(graph: _Graph, acts: Sequence[Act]) -> None:
    last: dict[str, int] = {}
    for node in sorted(range(len(acts)), key=lambda node: acts[node].began):
        before = last.get(acts[node].writer)
        if before is not None:
            graph.add(before, "process", node)
        last[acts[node].writer] = node


def _add_time(graph: _Graph, acts: Sequence[Act]) -> None:
    """A chain of moments, one for each end: as many edges as acts, where all pairs would be their
    square.
    """
    ends = sorted(range(len(acts)), key=lambda node: acts[node].ended)
    begins = sorted(range(len(acts)), key=lambda node: acts[node].began)
    moment, ended = None, 0
    for node in begins:
        while ended < len(ends) and acts[ends[ended]].ended < acts[node].began:
            later = graph.moment()
            if moment is not None:
                graph.add(moment, "time", later)
            graph.add(ends[ended], "time", later)
            moment, ended = later, ended + 1
        if moment is not None:
            graph.add(moment, "time", node)


def _brief(act: Act) -> str:
    if isinstance(act, Append):
        return f"{act.writer} append {'+'.join(act.texts)} ({act.outcome}@{act.place})"
    return f"{act.writer} look@{act.place}"
