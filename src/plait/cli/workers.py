"""`plait worker` and `plait submit`: runs that workers execute."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from plait.cli.attending import act_as
from plait.cli.common import (
    Options,
    address_of,
    other_stores,
    pairs,
    parse_budget,
    serving_command,
    text_of,
    value_of,
    writing,
)
from plait.cli.documents import print_json
from plait.cli.exits import INTERRUPTED, WAITING
from plait.cli.loading import import_from_here, loading_errors
from plait.cli.render import Out
from plait.cli.running import check_forward_arguments
from plait.errors import InvalidValue, NoStore, TaskPending
from plait.session import Session
from plait.session.ports import store_at
from plait.store import store_exists

if TYPE_CHECKING:
    from plait.cluster.choosing import ProjectShare
    from plait.cluster.processes import WorkerProcesses
    from plait.cluster.worker import Worker


@click.command("worker")
@click.argument("modules", metavar="MODULE...", nargs=-1, required=True)
@click.option("--name", default="", help="Its name; else made of host and process.")
@click.option("--labels", default="", metavar="A,B", help="What it has: linux,gpu.")
@click.option("--slots", type=int, default=4, help="How many runs at a time; 4 without it.")
@click.option("--isolation", default="", metavar="RUNG", help="Offer at most this rung.")
@click.option(
    "--processes",
    type=int,
    metavar="N",
    help="Start N workers, each in a process of its own, and keep them alive.",
)
@click.option(
    "--share",
    "shares",
    metavar="PROJECT=WEIGHT[:RUNNING]",
    multiple=True,
    help="A project's weight, and how many of its runs at a time; * is every other project.",
)
@click.option("--until-empty", is_flag=True, help="End when no run is left for it.")
@click.option("--alive-file", metavar="FILE", help="Touch FILE every few seconds while it lives.")
@click.option("--while-stdin-open", "has_starter", is_flag=True, hidden=True)
@serving_command
def worker_command(
    given: Options,
    modules: Sequence[str],
    name: str,
    labels: str,
    slots: int,
    isolation: str,
    processes: int | None,
    shares: Sequence[str],
    until_empty: bool,
    alive_file: str | None,
    has_starter: bool,
) -> int:
    """Execute the submitted runs of the workflows in these modules.

    MODULE is importable from here, or MODULE:NAME for one workflow. SIGTERM or Ctrl-C drains the
    worker: it takes no more runs, each run lets go at its next safe point, and another worker takes
    it up. A second signal ends it at once, and loses nothing.
    """
    from plait.cluster.processes import WorkerProcesses
    from plait.cluster.worker import Worker

    import_from_here()
    addresses = [*dict.fromkeys([given.new_store, *map(address_of, other_stores())])]
    for address in addresses[1:]:
        if not store_exists(address):
            raise NoStore(address)
    if processes is not None:
        if until_empty or alive_file is not None:
            step = "leave out --processes: whatever starts this worker starts several"
            raise InvalidValue("--processes", "it goes with neither of these options", step)
        with loading_errors(modules[0], "module"):
            workers = WorkerProcesses(
                addresses[0],
                modules,
                processes,
                name=name,
                labels=split_labels(labels),
                slots=slots,
                isolation=isolation,
                shares=parse_shares(shares),
                others=addresses[1:],
            )
        return _supervise(workers)
    stores = [store_at(address) for address in addresses]
    with loading_errors(modules[0], "module"):
        worker = Worker(
            stores,
            modules,
            name=name,
            labels=split_labels(labels),
            slots=slots,
            isolation=isolation,
            shares=parse_shares(shares),
            until_empty=until_empty,
            alive_file=alive_file,
        )
    out = Out(stderr=True)
    programs = ", ".join(sorted(worker.ability.programs))
    out.line(f"worker {worker.name} serves {', '.join(addresses)}: {programs}")
    _drain_at_signals(worker)
    if has_starter:
        threading.Thread(target=_drain_after_starter, args=(worker,), daemon=True).start()
    worker.serve()
    told = ", ".join(f"{count} {how}" for how, count in sorted(worker.ended.items()))
    out.line(f"worker {worker.name} is drained{': ' + told if told else ''}")
    return 0


def split_labels(text: str) -> list[str]:
    """Return the labels of an option, as in linux,gpu."""
    return [each.strip() for each in text.split(",") if each.strip()]


def parse_shares(given: Sequence[str]) -> dict[str, ProjectShare]:
    """Return the shares of --share options, by project."""
    from plait.cluster.choosing import ProjectShare

    found = dict[str, ProjectShare]()
    for each in given:
        project, _, text = each.rpartition("=")
        weight, _, running = text.partition(":")
        try:
            share = ProjectShare(float(weight or 1), int(running) if running else None)
        except ValueError:
            share = ProjectShare(0)
        if not project or share.weight <= 0 or (share.running_max or 1) < 1:
            step = "write PROJECT=WEIGHT or PROJECT=WEIGHT:RUNNING, as in shop=2:8"
            raise InvalidValue("--share", f"{each!r:.80} is not one", step)
        found[project] = share
    return found


def _drain_at_signals(worker: Worker) -> None:
    """Drain the worker at the first signal, and end the process at the second."""
    seen = list[int]()

    def handle(number: int, _: object) -> None:
        if seen:
            os._exit(INTERRUPTED)
        seen.append(number)
        worker.drain()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)


def _drain_after_starter(worker: Worker) -> None:
    """Drain the worker when the process that started it is gone: its end of the pipe is closed."""
    while os.read(0, 1024):
        pass
    worker.drain()


def _supervise(workers: WorkerProcesses) -> int:
    """Keep workers alive until a signal asks them to drain; a second one ends them at once."""
    seen = list[int]()

    def handle(number: int, _: object) -> None:
        if seen:
            workers.kill()
        seen.append(number)
        workers.ask_stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    workers.start()
    return workers.wait()


# ── submit ───────────────────────────────────────────────────────────────────────────────────


@click.command("submit")
@click.argument("target", metavar="MODULE:NAME")
@click.option("--input", "-i", "text", metavar="TEXT", help="What it is to do; - reads stdin.")
@click.option("--session", "name", metavar="S", help="Go on in this session instead of a new one.")
@click.option("--title", default="", help="What the session is about.")
@click.option("--user", help="For whom.")
@click.option("--project", help="For what: its share of the workers is used.")
@click.option("--arg", "arguments", metavar="NAME=JSON", multiple=True, help="For `forward`.")
@click.option("--budget", metavar="LIMITS", help="As in tokens=200000,cost_usd=1.5.")
@click.option("--need", default="", metavar="A,B", help="Labels that the worker must have.")
@click.option("--priority", type=int, default=0, help="-100 to 100; the higher first.")
@click.option("--delay", "delay_s", type=float, metavar="S", help="Not before so many seconds.")
@click.option("--deadline", "deadline_s", type=float, metavar="S", help="Cancel it after that.")
@click.option("--attempts", type=int, default=1, help="How often it may fail.")
@click.option("--same-code", is_flag=True, help="Only workers with the code of this process.")
@click.option("--wait", "waits", is_flag=True, help="Wait for the end, and print what it says.")
@click.option("--timeout", "timeout_s", type=float, metavar="S", help="With --wait: so long.")
@writing
def submit_command(
    given: Options,
    target: str,
    text: str | None,
    name: str | None,
    title: str,
    user: str | None,
    project: str | None,
    arguments: Sequence[str],
    budget: str | None,
    need: str,
    priority: int,
    delay_s: float | None,
    deadline_s: float | None,
    attempts: int,
    same_code: bool,
    waits: bool,
    timeout_s: float | None,
) -> int:
    """Submit a run to the workers of this store.

    The start of the run is on record when the command returns; the next worker that can takes it.
    """
    from plait.cluster import Cluster
    from plait.cluster.programs import find_portable
    from plait.cluster.submitting import (
        check_wait,
        now_in,
        planned_start,
        submitted_code,
        wishes_of,
    )
    from plait.program import load

    import_from_here()
    act_as(given)
    check_wait(timeout_s)
    if timeout_s is not None and not waits:
        raise InvalidValue("--timeout", "without --wait there is no wait", "add --wait")
    with loading_errors(target, "workflow"):
        program = find_portable(load(target))
    more: dict[str, Any] = {key: value_of(each) for key, each in pairs("--arg", arguments).items()}
    check_forward_arguments(program, more)
    before = given.open_last(name) if name is not None else None
    if before is not None:
        project, user = before.project, before.user
    wishes = wishes_of(
        project or user or "",
        now=now_in(store_at(given.new_store)),
        need=split_labels(need),
        priority=priority,
        delay_s=delay_s,
        deadline_s=deadline_s,
        attempts=attempts,
        same_code=same_code,
        code=submitted_code(program),
    )
    cluster = Cluster(before.store if before is not None else given.new_store)
    cluster.check_room(wishes.project)
    if before is not None:
        planned_start(before, program, (), more)  # what is refused is refused before a word is said
        session = before.say(text_of(text), actor=given.actor_name) if text else before
    else:
        session = Session(
            *([text_of(text)] if text else []),
            title=title,
            user=user,
            project=project,
            budget=parse_budget(budget),
            store=given.new_store,
            actor=given.actor_name,
        )
    task = cluster.submit_wishes(program, session, (), more, wishes)
    if not waits:
        if given.form == "json":
            print_json({"session": session.id, "short": session.short, "run": task.run})
        else:
            Out().line(f"{session.short}  submitted: plait cluster why {session.short}")
        return 0
    try:
        ended = task.result(timeout_s)
    except TaskPending as error:
        Out(stderr=True).line(error.record_text)
        return WAITING
    if given.form == "json":
        print_json({"session": ended.id, "short": ended.short, "text": ended.text})
    else:
        Out().line(ended.text)
    return 0
