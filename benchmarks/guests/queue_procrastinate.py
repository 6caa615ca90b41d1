# pyright: basic, reportMissingImports=false
"""procrastinate, a queue in PostgreSQL: tasks that do nothing, and keep no record of a step."""

import asyncio
import sys
from importlib.metadata import version

from procrastinate import App, PsycopgConnector
from queue_line import QueueGuest, serve

address = sys.argv[1].partition("?")[0]
app = App(connector=PsycopgConnector(conninfo=address))
loop = asyncio.new_event_loop()


@app.task(name="add_one", queue="tasks")
def add_one(number: int) -> int:
    return number + 1


@app.task(name="other", queue="others")
def other() -> None: ...


class Procrastinate(QueueGuest):
    def __init__(self) -> None:
        loop.run_until_complete(app.open_async())
        loop.run_until_complete(app.schema_manager.apply_schema_async())

    def about(self) -> str:
        return f"procrastinate {version('procrastinate')}, no record of steps"

    def dispatch(self, count: int) -> None:
        async def work() -> None:
            for _ in range(count):
                await add_one.defer_async(number=1)
            await app.run_worker_async(
                queues=["tasks"], concurrency=1, wait=False, install_signal_handlers=False
            )

        loop.run_until_complete(work())

    def fill(self, count: int) -> None:
        async def add(size: int) -> None:
            await other.batch_defer_async(*[{} for _ in range(size)])

        for done in range(0, count, 1000):
            loop.run_until_complete(add(min(1000, count - done)))

    def claim(self) -> None:
        async def work() -> None:
            row = await app.connector.execute_query_one_async(
                "SELECT id FROM procrastinate_fetch_job_v2(ARRAY['others']::varchar[], NULL)"
            )
            assert row["id"] is not None
            await app.connector.execute_query_async(
                "UPDATE procrastinate_jobs SET status = 'todo', worker_id = NULL WHERE id = %(id)s",
                id=row["id"],
            )

        loop.run_until_complete(work())


serve(Procrastinate())
