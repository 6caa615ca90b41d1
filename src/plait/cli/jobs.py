"""`plait cluster jobs`, `job` and `kept`: jobs and kept sessions of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from plait.cli.common import Options, listing, writing
from plait.cli.documents import print_json, print_jsonl
from plait.cli.render import ACCENT, BAD, DIM, Cell, Column, Out, count_text
from plait.errors import InvalidValue
from plait.ids import LogId, short
from plait.outline.documents import Document
from plait.session import Session
from plait.session.job_rows import job_rows
from plait.session.ports import store_at

if TYPE_CHECKING:
    from plait.cluster import Job


@click.command("jobs")
@listing
def cluster_jobs(given: Options) -> None:
    """List the jobs of this store, until their time to live is over."""
    from plait.cluster import Job

    store = store_at(given.store)
    logs = [LogId(str(row["log"])) for row in job_rows(store) if not row["name"]]
    found = [_job_document(Job(Session.open(log, store=store))) for log in logs]
    if given.form != "text":
        print_json(found) if given.form == "json" else print_jsonl(found)
        return
    out = Out()
    if not found:
        out.hint("no job is listed: cluster.job(workflow, sessions) makes one")
        return
    cells = [
        [
            Cell(short(LogId(each["job"])), ACCENT),
            Cell(each["status"], BAD if each["status"] == "failed" else ""),
            Cell(f"{each['succeeded']}/{each['completions']}"),
            Cell(count_text(each["active"], "active run")),
            Cell(count_text(each["failed"], "failure")),
            Cell(each["workflow"], DIM),
        ]
        for each in found
    ]
    out.table([Column(name) for name in ("job", "status", "done", "active", "failed", "of")], cells)


@click.command("job")
@click.argument("name", metavar="J")
@click.option("--suspend", is_flag=True, help="Submit no more runs, and pause those at work.")
@click.option("--resume", is_flag=True, help="Go on with a suspended job.")
@click.option("--reason", default="", help="Why.")
@writing
def cluster_job(given: Options, name: str, suspend: bool, resume: bool, reason: str) -> None:
    """Show a job and each index of it, with what it waits for; suspend or resume it."""
    from plait.cluster import Job

    if suspend and resume:
        raise InvalidValue("--suspend", "--resume is there, too", "pass one of them")
    job = Job(given.open_last(name))
    if suspend:
        job.suspend(reason, actor=given.actor_name)
    if resume:
        job.resume(reason, actor=given.actor_name)
    found = _job_document(job)
    indexes = _index_documents(job)
    if given.form == "json":
        print_json({**found, "indexes": indexes})
        return
    out = Out()
    counts = (
        f"{found['succeeded']} of {found['completions']} succeeded, {found['active']} active,"
        f" {count_text(found['failed'], 'failure')}"
    )
    out.line(Cell(job.short, ACCENT), f"  {found['status']}: {counts}  ", found["workflow"])
    for each in found["conditions"]:
        why = f": {each['message'] or each['reason']}" if each["message"] or each["reason"] else ""
        out.line(f"  {each['kind']} {'yes' if each['is_true'] else 'no'}{why}")
    cells = [
        [
            Cell(str(each["index"])),
            Cell(short(LogId(each["session"])), ACCENT),
            Cell(each["status"], BAD if each["status"] == "failed" else ""),
            Cell(each["why"], DIM),
        ]
        for each in indexes
    ]
    out.table([Column(name) for name in ("index", "session", "status", "why")], cells, indent="  ")


def _job_document(job: Job) -> Document:
    order = job.order
    limits = ("parallelism", "completions", "backoff_limit", "backoff_limit_per_index")
    return {
        "job": job.id,
        "status": job.status,
        "workflow": order.run.workflow,
        "active": job.active,
        "succeeded": job.succeeded,
        "failed": job.failed,
        **{name: getattr(order, name) for name in limits},
        "deadline_s": order.deadline_s,
        "ttl_s": order.ttl_s,
        "conditions": [each._asdict() for each in job.conditions],
    }


def _index_documents(job: Job) -> list[Document]:
    from plait.cluster.explaining import explain_run

    store = store_at(job.session.store)
    found = list[Document]()
    for index in job.indexes:
        why = index.why
        if index.status == "active" and not why:
            why = explain_run(store, index.session)
        elif index.status == "waiting":
            why = "it starts when there is room" if job.status == "active" else ""
        found.append(
            {
                "index": index.index,
                "session": index.session,
                "status": index.status,
                "failures": index.failures,
                "why": why,
            }
        )
    return found


@click.command("kept")
@listing
def cluster_kept(given: Options) -> None:
    """List the sessions that are kept at work, by name and ordinal."""
    from plait.cluster import Kept
    from plait.cluster.explaining import explain_run

    store = store_at(given.store)
    names = [str(row["name"]) for row in job_rows(store) if row["name"]]
    found = list[Document]()
    for name in names:
        kept = Kept(store, name)
        for each in kept.ordinals:
            if each.ordinal < kept.replicas or each.is_active:
                why = explain_run(store, each.session) if each.is_active else each.why
                found.append(
                    {
                        "name": name,
                        "ordinal": each.ordinal,
                        "replicas": kept.replicas,
                        "session": each.session,
                        "runs": each.round,
                        "failures": each.failures,
                        "why": why,
                    }
                )
    if given.form != "text":
        print_json(found) if given.form == "json" else print_jsonl(found)
        return
    out = Out()
    if not found:
        out.hint("no session is kept at work: cluster.keep(name, workflow, replicas=3)")
        return
    cells = [
        [
            Cell(f"{each['name']} {each['ordinal']}"),
            Cell(short(LogId(each["session"])), ACCENT),
            Cell(count_text(each["runs"], "run")),
            Cell(each["why"], DIM),
        ]
        for each in found
    ]
    out.table([Column(name) for name in ("name", "session", "runs", "why")], cells)
