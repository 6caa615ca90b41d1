"""`plait cluster`: the workers and the submitted runs of a store."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import click
import msgspec

from plait.cli.common import Options, listing, names_of, writing
from plait.cli.documents import print_json, print_jsonl
from plait.cli.jobs import cluster_job, cluster_jobs, cluster_kept
from plait.cli.render import ACCENT, BAD, DIM, Cell, Column, Out, count_text
from plait.cli.terminal import age
from plait.cli.workers import split_labels
from plait.ids import LogId
from plait.journal.writer import direct_writer
from plait.outline.documents import Document
from plait.session.ask_rows import InboxRows
from plait.session.ports import store_at
from plait.session.work_rows import WorkState, read_wishes
from plait.store import Row, Store

_ALL = 2**31
_STATES = get_args(WorkState)


@click.group("cluster", no_args_is_help=False)
def cluster() -> None:
    """Workers and submitted runs: ls, top, runs, why, drain, jobs, …"""


for command in (cluster_jobs, cluster_job, cluster_kept):
    cluster.add_command(command)


@cluster.command("ls")
@listing
def cluster_ls(given: Options) -> None:
    """List the workers that serve this store, and what each of them executes."""
    from plait.cluster.workers import all_workers

    store = store_at(given.store)
    found = [
        {**msgspec.to_builtins(worker), "alive": is_alive}
        for worker, is_alive in all_workers(store)
    ]
    if given.form != "text":
        print_json(found) if given.form == "json" else print_jsonl(found)
        return
    out = Out()
    if not found:
        out.hint("no worker serves this store: plait worker MODULE")
        return
    rows = [_worker_cells(each) for each in found]
    names = ("worker", "runs", "labels", "isolation", "code", "programs")
    out.table([Column(name) for name in names], rows)


def _worker_cells(worker: Document) -> list[Cell]:
    state = "" if worker["alive"] else "  gone"
    state = "  draining" if worker["draining"] and worker["alive"] else state
    return [
        Cell(f"{worker['name']}{state}", ACCENT if worker["alive"] else BAD),
        Cell(f"{len(worker['runs'])}/{worker['slots']}"),
        Cell(",".join(worker["labels"]) or "-"),
        Cell(next(iter(worker["rungs"]), "-")),
        Cell(str(worker["code"])[:8]),
        Cell(", ".join(worker["programs"])),
    ]


@cluster.command("check")
@click.argument("name", metavar="WORKER")
@listing
def cluster_check(given: Options, name: str) -> None:
    """Tell whether a worker serves this store: exits with 0, or with 3 if it does not."""
    from plait.cluster.workers import find_worker

    worker = find_worker(store_at(given.store), name)
    if given.form != "text":
        print_json({**msgspec.to_builtins(worker), "alive": True})
        return
    Out().line(f"{name} serves this store: {count_text(len(worker.runs), 'run')}")


@cluster.command("top")
@listing
def cluster_top(given: Options) -> None:
    """Count the submitted runs by project: queued, timed, taken, parked, failed."""
    store = store_at(given.store)
    found = _counts(store)
    if given.form != "text":
        print_json(found) if given.form == "json" else print_jsonl(found)
        return
    out = Out()
    if not found:
        out.hint("no submitted run is open: plait submit MODULE:NAME")
        return
    rows = [
        [Cell(each["project"] or "(no project)", ACCENT), Cell(_states_text(each))]
        for each in found
    ]
    out.table([Column("project"), Column("runs")], rows)


def _states_text(counts: Document) -> str:
    return ", ".join(f"{counts[state]} {state}" for state in _STATES if counts[state])


def _counts(store: Store) -> list[Document]:
    counts = dict[str, Counter[str]]()
    for row in store.rows(InboxRows.name, "work", limit=_ALL):
        project = read_wishes(str(row["wishes"])).project
        counts.setdefault(project, Counter())[str(row["state"])] += 1
    return [
        {"project": project, **{state: counts[project][state] for state in _STATES}}
        for project in sorted(counts)
    ]


@cluster.command("runs")
@click.option("--state", type=click.Choice(_STATES), help="Only those in this state.")
@listing
def cluster_runs(given: Options, state: str | None) -> None:
    """List the submitted runs that are open, with what each waits for."""
    from plait.cluster.explaining import explain_run

    store = store_at(given.store)
    where = {"state": state} if state is not None else None
    rows = store.rows(InboxRows.name, "work", where, order="number", limit=1000)
    found = [
        {**_run_document(row), "why": explain_run(store, LogId(str(row["log"])))} for row in rows
    ]
    if given.form != "text":
        print_json(found) if given.form == "json" else print_jsonl(found)
        return
    out = Out()
    names = names_of(store, [LogId(str(row["log"])) for row in rows])
    now = direct_writer().source(store.address).now(LogId(""), 0)
    cells = [
        [
            Cell(names[LogId(each["session"])], ACCENT),
            Cell(each["state"]),
            Cell(each["program"]),
            Cell(age(int(each["since"]), now)),
            Cell(each["why"], DIM),
        ]
        for each in found
    ]
    out.table([Column(name) for name in ("session", "state", "program", "since", "why")], cells)
    out.hint(count_text(len(found), "run"))


def _run_document(row: Row) -> Document:
    names = ("state", "program", "worker", "host", "failures", "since")
    return {"session": row["log"], "run": row["run"], **{name: row[name] for name in names}}


@cluster.command("why")
@click.argument("name", metavar="S")
@listing
def cluster_why(given: Options, name: str) -> None:
    """Say why a session runs where it does, or what it waits for."""
    from plait.cluster.explaining import explain_run

    session = given.open(name)
    why = explain_run(store_at(session.store), session.id)
    if given.form != "text":
        print_json({"session": session.id, "short": session.short, "why": why})
        return
    Out().line(Cell(session.short, ACCENT), "  ", why)


@cluster.command("drain")
@click.argument("name", metavar="WORKER")
@writing
def cluster_drain(given: Options, name: str) -> None:
    """Ask a worker to take no more runs, and to let go of those that it has."""
    from plait.cluster.workers import ask_drain

    ask_drain(store_at(given.store), name)
    if given.form == "json":
        print_json({"worker": name, "draining": True})
        return
    Out().line(f"{name} was asked to drain: plait cluster ls")


@cluster.command("adopt")
@click.argument("name", metavar="S")
@click.option("--need", default="", metavar="A,B", help="Labels that the worker must have.")
@click.option("--priority", type=int, default=0, help="-100 to 100; the higher first.")
@click.option("--attempts", type=int, default=1, help="How often it may fail.")
@writing
def cluster_adopt(given: Options, name: str, need: str, priority: int, attempts: int) -> None:
    """Leave the open run of a session, whose process is gone, to the workers."""
    from plait.cluster import Cluster

    session = given.open_last(name)
    task = Cluster(session.store).adopt(
        session,
        actor=given.actor_name,
        need=split_labels(need),
        priority=priority,
        attempts=attempts,
    )
    if given.form == "json":
        print_json({"session": session.id, "run": task.run})
        return
    Out().line(Cell(session.short, ACCENT), "  left to the workers: ", task.why)
