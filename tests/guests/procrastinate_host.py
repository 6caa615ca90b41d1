# pyright: basic, reportMissingImports=false
"""Run by procrastinate's own Python: a worker of its queue, whose task drives a session.

Arguments: what to do (`setup`, `defer` or `work`) and the addresses of queue and store; `defer`
reads the ids of sessions on standard input, `work` prints how each delivery ended.
"""

import json
import sys

from procrastinate import App, PsycopgConnector, RetryStrategy, SyncPsycopgConnector

from plait.cluster import drive

what, queue, store = sys.argv[1:]
connector = PsycopgConnector if what == "work" else SyncPsycopgConnector
app = App(connector=connector(conninfo=queue))
ended: list[str] = []


@app.task(name="drive", queue="sessions", retry=RetryStrategy(max_attempts=20, wait=1))
def drive_session(session: str) -> str:
    outcome = drive(session, store=store)
    ended.append(outcome.how)
    if outcome.how in ("lost", "away"):
        raise RuntimeError(outcome.why)
    return outcome.how


if what == "setup":
    with app.open():
        app.schema_manager.apply_schema()
elif what == "defer":
    with app.open():
        for session in json.load(sys.stdin):
            for _ in range(2):  # delivered twice, on purpose
                drive_session.defer(session=session)
else:
    app.run_worker(queues=["sessions"], concurrency=4, wait=False, install_signal_handlers=False)
    print("\n" + json.dumps(ended))
