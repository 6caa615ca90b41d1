# pyright: basic, reportMissingImports=false
"""Run by Restate's own Python: the service whose handlers its server calls.

Arguments: a port, the file of effects, and which revision of the code this is (old or new).
"""

import asyncio
import sys
import time
from datetime import timedelta
from pathlib import Path

import hypercorn.asyncio
import hypercorn.config
import restate
from restate import RunOptions, WorkflowContext, WorkflowSharedContext

port, path, way = int(sys.argv[1]), sys.argv[2], sys.argv[3]
flow = restate.Workflow("Flow")
STEPS = 6


def note(text: str) -> str:
    with Path(path).open("a") as out:
        out.write(f"{text}\n")
    time.sleep(0.03)
    return text


def stamp() -> str:
    lines = Path(f"{path}.stamps")
    with lines.open("a") as out:
        out.write(f"{time.monotonic()}\n")
    if len(lines.read_text().split()) < 3:
        raise RuntimeError("not yet")
    return "at last"


@flow.main()
async def run(ctx: WorkflowContext, what: str) -> object:
    if what == "timer":
        await ctx.sleep(timedelta(seconds=2))
        return "awake"
    if what == "signal":
        ctx.set("stage", "waiting")
        return await ctx.promise("built").value()
    if what == "retry":
        quick = RunOptions(initial_retry_interval=timedelta(seconds=0.2), retry_interval_factor=2.0)
        return await ctx.run_typed("stamp", stamp, quick)
    if what == "endless":
        while True:
            await ctx.sleep(timedelta(milliseconds=50))
    if what == "parent":
        calls = [ctx.workflow_call(run, f"{ctx.key()}-{each}", each) for each in ("left", "right")]
        return [await each for each in calls]
    if what == "changing":
        if way == "old":
            await ctx.run_typed("step_old", lambda: "old")
        else:
            await ctx.run_typed("step_new", lambda: "new")
        return await ctx.promise("built").value()
    if what == "note":
        for step in range(STEPS):
            await ctx.run_typed(f"note{step}", note, RunOptions(), f"{ctx.key()}/{step}")
        return "noted"
    return what if way == "old" else f"{what} anew"


@flow.handler()
async def signal(ctx: WorkflowSharedContext, value: object) -> None:
    await ctx.promise("built").resolve(value)


@flow.handler()
async def stage(ctx: WorkflowSharedContext) -> object:
    return await ctx.get("stage")


config = hypercorn.config.Config()
config.bind = [f"127.0.0.1:{port}"]
config.errorlog = None
asyncio.run(hypercorn.asyncio.serve(restate.app(services=[flow]), config))
