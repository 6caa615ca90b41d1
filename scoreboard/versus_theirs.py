# pyright: basic, reportMissingImports=false
"""The probes on OpenRath, from its public face; run by its own Python, one probe per process.

Reads {"probe", "step", "url", "folder"} and prints {"holds", "saw"}; OPENRATH_HOME is its folder.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path

ASKED = json.load(sys.stdin)
FOLDER, URL = Path(ASKED["folder"]), ASKED["url"]


def provider():
    from rath import flow

    return flow.Provider(model="any", base_url=f"{URL}/v1", api_key="none")


def agent(prompt="Answer.", **more):
    from rath import flow

    return flow.Agent(prompt, provider(), **more)


def user(text):
    from rath.session import Session

    return Session.from_user_message(text)


def contents(session):
    return [str(row.payload.get("content")) for row in session.chunk_table.rows]


def plain_subclass():
    from rath import flow

    class Echo(flow.Workflow):
        def __init__(self):
            self.agent = agent()

        def forward(self, session):
            return self.agent(session)

    try:
        return True, f"answers {Echo()(user('hello')).text()!r}"
    except AttributeError as error:
        return False, f"AttributeError: {error}"


def second_process():
    with agent(memory="local") as made:
        if ASKED["step"] == 1:
            made.remember_memory("The staging database is read-only.", wait=True)
            return True, ""
        found = made.recall_memory("staging database")
        return bool(found.hits), f"recalls {len(found.hits)} memories"


def verbs():
    from rath import flow
    from rath.session import Session

    names = "replay rewind at diff events status pending approve validate".split()
    there = [name for name in names if hasattr(Session, name)]
    count = len(there) + hasattr(Session, "fork") + hasattr(flow, "Compressor")
    return count == 11, f"{count} of 11 verbs are there"


def edited_fork():
    parent = user("the original")
    parent.fork().chunk_table.rows[0].payload["content"] = "edited"
    text = contents(parent)[0]
    return text == "the original", f"the parent says {text!r}"


def merged_forks():
    parent = user("the task")
    left, right = agent()(parent.fork()), agent()(parent.fork())
    times = contents(left.merge(right)).count("the task")
    return times == 1, f"the common message is there {times} times"


def usage_of_two():
    session = agent()(agent()(user("hello")))
    found = session.cumulative_usage
    total = found.total_tokens if found else None
    forked = session.fork().cumulative_usage
    return total == 20 and forked is not None, f"{total} of 20 tokens; on a fork {forked}"


def forks_of_files():
    start = user("tool write_workspace_file")
    start.to("local")
    start._ensure_sandbox()
    left, right = start.fork(), start.fork()
    from rath.backend.tool_types import BackendToolFilesRead, BackendToolFilesWrite

    left.require_sandbox().dispatch(BackendToolFilesWrite(path="a.txt", data="left"))
    try:
        found = right.require_sandbox().dispatch(BackendToolFilesRead(path="a.txt"))
        saw = str(getattr(found, "content", found))
    except Exception as error:
        saw = f"{type(error).__name__}"
    return "left" not in saw, f"the other fork reads {saw[:60]!r}"


def no_tools():
    said = agent(tools=[])(user("what tools?")).text()
    return said == "tools: none", f"an agent with tools=[] is offered {said}"


def outside_sandbox():
    target = FOLDER / "outside.txt"
    session = user(f"tool run_shell_command {json.dumps({'cmd': f'echo x > {target}'})}")
    agent()(session.to("local")).text()
    return not target.exists(), "writes outside" if target.exists() else "stays inside"


def no_match():
    with agent(memory="local") as made:
        made.remember_memory("The cafeteria opens at nine.", wait=True)
        found = made.recall_memory("quantum chromodynamics")
        return not found.hits, f"{len(found.hits)} hits for a query that matches nothing"


def chinese():
    with agent(memory="local") as made:
        made.remember_memory("数据库是只读的", wait=True)
        made.remember_memory("The cafeteria opens at nine.", wait=True)
        found = made.recall_memory("数据库", top_k=1)
        text = str(found.hits[0]) if found.hits else ""
        return "只读" in text, "finds it" if "只读" in text else "does not find it"


def evidence_of_memory():
    with agent(memory="local") as made:
        made.remember_memory("The staging database is read-only.", wait=True)
        (hit, *_) = made.recall_memory("staging database").hits
        names = [
            name for name in ("evidence", "source", "provenance", "causes") if hasattr(hit, name)
        ]
        return bool(names), f"a hit has {', '.join(names) or 'nothing that leads to its source'}"


def recalled_words():
    with agent(memory="local") as made:
        made.remember_memory("The staging database is read-only.", wait=True)
        out = made(user("May I write to the staging database?"))
        rows = [r for r in out.chunk_table.rows if r.kind.value == "user"]
        told = [str(r.payload.get("content")) for r in rows]
        as_user = any("read-only" in text for text in told)
        return not as_user, "as the user's words" if as_user else "not as the user's words"


def two_writers():
    from rath.session import SessionWriter

    session = user("one")
    first = SessionWriter(session)
    try:
        SessionWriter(session)
        return False, "both write"
    except Exception as error:
        return True, f"the second is refused: {type(error).__name__}"
    finally:
        first.close()


def fork_of_much():
    from rath.session import ChunkTable, Session, user_text_chunk

    def cost(count):
        rows = tuple(user_text_chunk(f"line {number}") for number in range(count))
        session = Session(ChunkTable(rows=rows))
        begun = time.process_time()
        for _ in range(200):
            session.fork()
        return (time.process_time() - begun) / 200

    small, large = cost(10), cost(5000)
    return large < 10 * small, f"{large / small:.1f} times as long with 500 times as many"


def odd_lines():
    from rath.session import SessionWriter, load_session, user_text_chunk

    session = user("one")
    with SessionWriter(session) as writer:
        writer.write_chunk(0, user_text_chunk("a\u2028b\u2029c\u0085d"))
    try:
        text = load_session(session.id).chunk_table.rows[0].payload["content"]
        return text == "a\u2028b\u2029c\u0085d", "reads it back"
    except Exception as error:
        return False, f"cannot be loaded: {type(error).__name__}"


def closed_writer():
    from rath.session import SessionWriter, load_session, user_text_chunk

    session = user("one")
    for text in ("first", "second"):
        try:
            with SessionWriter(session) as writer:
                writer.write_chunk(0, user_text_chunk(text))
        except Exception as error:
            return True, f"refused: {type(error).__name__}"
    rows = [row.payload["content"] for row in load_session(session.id).chunk_table.rows]
    return "first" in rows, f"the file has {rows}"


def lone_surrogate():
    from rath.session import SessionWriter, load_session, user_text_chunk

    session = user("one")
    try:
        with SessionWriter(session) as writer:
            writer.write_chunk(0, user_text_chunk("a\ud800b"))
        load_session(session.id)
        return True, "written and read"
    except Exception as error:
        kind = type(error).__name__
        return False, f"the write dies with {kind}"


def reloaded():
    from rath.session import SessionWriter, load_session

    session = agent()(user("hello").fork())
    with SessionWriter(session) as writer:
        for index, row in enumerate(session.chunk_table.rows):
            writer.write_chunk(index, row)
    again, _ = load_session(session.id).to_resumable_pair()
    same = again.id == session.id
    parents = bool(again.parent_session_ids)
    usage = again.cumulative_usage is not None
    return same and parents and usage, f"same id {same}, parents {parents}, usage {usage}"


def provider_error():
    session = user("fail with 400")
    try:
        out = agent()(session)
        out.text()
    except Exception as error:
        marks = [t for t in contents(session) if "400" in t and "fail with" not in t]
        return bool(marks), f"{type(error).__name__}; {len(marks)} marks on the session"
    return False, "no error"


def unknown_backend():
    try:
        user("hello").to("no-such-backend")
    except Exception as error:
        return True, f"refused: {type(error).__name__}"
    return False, "accepted"


def odd_choice():
    from rath import flow
    from rath.flow import EmptyWorkflow

    one, two = flow.EmptyWorkflow(), flow.EmptyWorkflow()
    one.description, two.description = "the first", "the second"
    chosen = flow.Selector(provider()).forward(user("choose oddly"), one, two)
    done = chosen is not one and chosen is not two and isinstance(chosen, EmptyWorkflow)
    return not done, "decides that it is done; nothing on record" if done else "chooses one"


def kept_after_kill():
    from rath.session import SessionWriter, load_session, user_text_chunk

    if ASKED["step"] == 1:
        session = user("one")
        writer = SessionWriter(session)
        (FOLDER / "id").write_text(f"{session.id}\n{writer.partial_path}")
        for index in range(1000):
            writer.write_chunk(index, user_text_chunk(f"line {index}"))
        os.kill(os.getpid(), 9)
    id, path = (FOLDER / "id").read_text().split("\n")
    rows = len(load_session(id, path=Path(path)).chunk_table.rows)
    return rows == 1000, f"{rows} of 1,000 kept"


def second_hop():
    from rath.session import Session, run_session_loop

    prompt = Session.from_agent_prompt("Answer.")
    session = user("hello").to(provider())
    try:
        for _ in range(2):
            session = run_session_loop(session, prompt, tools=[], lazy=False)
        return True, "answers twice"
    except Exception as error:
        return False, f"{type(error).__name__} at a hop: {str(error)[:80]}"


def evidence_of_edit():
    arguments = json.dumps({"path": "a.txt", "content": "new text", "data": "new text"})
    out = agent()(user(f"tool write_workspace_file {arguments}").to("local"))
    rows = [row.payload for row in out.chunk_table.rows if row.kind.value == "tool_result"]
    rows = rows or [row.payload for row in out.chunk_table.rows][-2:]
    text = str(rows)
    return "new text" in text and "+" in text, f"keeps {text[-90:]}"


def forward_is_durable():
    from uuid import uuid4

    from rath import flow
    from rath.runtime import LocalRuntime, SQLiteRunStore

    class Plain(flow.Workflow):
        def forward(self, session):
            return session

    runtime = LocalRuntime(SQLiteRunStore(FOLDER / "runs.db"))
    try:
        runtime.register(Plain(), revision_id=uuid4())
        return True, "accepted"
    except Exception as error:
        return False, f"refused: {type(error).__name__}: {str(error)[:60]}"


def ten_steps(fails_at=0):
    """A workflow of ten steps that leave a line each."""
    from rath import flow

    def step_of(number):
        name = f"s{number}"
        following = (f"s{number + 1}",) if number < 10 else ()

        @flow.step(entry=number == 1, successors=following)
        def act(self, state, context):
            with (FOLDER / "lines").open("a") as lines:
                lines.write(f"{number}\n")
            if number == fails_at and not (FOLDER / "failed").exists():
                (FOLDER / "failed").touch()
                raise OSError("no network")
            return {**state, name: number}

        act.__name__ = name
        return act

    steps = {f"s{number}": step_of(number) for number in range(1, 11)}
    return type("Ten", (flow.Workflow,), steps)()


def start_ten(fails_at=0):
    from uuid import UUID, uuid4

    from rath.context import RunContext
    from rath.runtime import LocalRuntime, SQLiteRunStore

    runtime = LocalRuntime(SQLiteRunStore(FOLDER / "runs.db"))
    workflow, revision = ten_steps(fails_at), UUID(int=7)
    context = RunContext.local(revision_id=revision)
    run = runtime.submit(workflow, session_id=uuid4(), context=context, state={})
    return runtime, run


def failed_step():
    runtime, run = start_ten(8)
    runtime.work_once(worker_id="a")
    again = runtime.work_once(worker_id="b")
    status = runtime.store.get_run(run.id).status.value
    kept = len(runtime.store.list_checkpoints(run.id))
    return status == "succeeded" and again is not None, f"{status}, with {kept} checkpoints"


def stopped_worker():
    runtime, run = start_ten()
    runtime.work_once(worker_id="a", max_steps=3)
    runtime.work_once(worker_id="b")
    status = runtime.store.get_run(run.id).status.value
    return status in ("succeeded", "completed"), f"at once: {status}"


def unknown_program():
    from rath.runtime import LocalRuntime

    runtime, run = start_ten()
    LocalRuntime(runtime.store).work_once(worker_id="of another revision")
    status = runtime.store.get_run(run.id).status.value
    return status not in ("failed",), f"the run is {status}"


def two_questions():
    from uuid import UUID, uuid4

    from rath import flow
    from rath.context import RunContext
    from rath.runtime import (
        ApprovalDecision,
        ApprovalDecisionKind,
        InterruptKind,
        LocalRuntime,
        SQLiteRunStore,
    )

    asked = []

    class Twice(flow.Workflow):
        @flow.step(entry=True)
        def act(self, state, context):
            for what in ("read the file?", "wire $1M?"):
                decision = context.interrupt(InterruptKind.APPROVAL, {"what": what})
                asked.append((what, decision.kind.value))
            return state

    runtime = LocalRuntime(SQLiteRunStore(FOLDER / "runs.db"))
    context = RunContext.local(revision_id=UUID(int=8))
    run = runtime.submit(Twice(), session_id=uuid4(), context=context, state={})
    runtime.work_once(worker_id="a")
    (waiting,) = runtime.store.list_interrupts(tenant_id=run.tenant_id, pending_only=True)
    yes = ApprovalDecision(ApprovalDecisionKind.APPROVE, "ann", "fine")
    now = runtime.store.get_run(run.id).version
    runtime.store.decide_interrupt(waiting.id, decision=yes, expected_run_version=now)
    runtime.work_once(worker_id="a")
    wired = ("wire $1M?", "approve") in asked
    return not wired, "one approval approves both" if wired else "each is asked for"


def forged_records():
    from rath.session import SessionWriter, load_session, user_text_chunk

    session = user("one")
    with SessionWriter(session) as writer:
        for index, text in enumerate(("pay 10", "pay 20", "pay 30")):
            writer.write_chunk(index, user_text_chunk(text))
    lines = writer.path.read_text().splitlines()
    forged = [line.replace("pay 10", "pay 99") for line in lines if "pay 20" not in line]
    writer.path.write_text("\n".join(forged) + "\n")
    try:
        rows = [row.payload["content"] for row in load_session(session.id).chunk_table.rows]
    except Exception as error:
        return True, f"found: {type(error).__name__}"
    return False, f"reads back {rows}"


def twenty_hops():
    from rath.session import Session, run_session_loop

    session = user("word " * 4200)
    for _ in range(20):
        prompt = Session.from_agent_prompt("Answer.")
        session = run_session_loop(
            session, prompt, agent_provider=provider(), tools=[], persist=True, lazy=False
        )
    files = [path for path in (FOLDER / "sessions").rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    per_hop = size // len(files)
    return per_hop < 10_500, f"a hop adds {per_hop:,} bytes to a talk of 21,000, in a file"


def import_cost():
    before = len(sys.modules)
    begun = time.process_time()
    from rath import flow  # noqa: F401
    from rath.session import Session  # noqa: F401

    return True, {"cpu_s": time.process_time() - begun, "modules": len(sys.modules) - before}


def list_500():
    from rath.session import SessionWriter, list_persisted_sessions, user_text_chunk

    for number in range(500):
        with SessionWriter(user("one")) as writer:
            for index in range(20):
                writer.write_chunk(index, user_text_chunk(f"{number} {index} " + "word " * 40))
    begun = time.process_time()
    count = len(list_persisted_sessions())
    return count == 500, {"cpu_s": time.process_time() - begun}


def recall_1000():
    with agent(memory="local") as made:
        for number in range(1000):
            made.remember_memory(
                f"Service number {number} listens at port {number + 2000}.", wait=True
            )
        begun = time.process_time()
        for number in range(20):
            made.recall_memory(f"port of service number {number * 37}")
        return True, {"cpu_s": (time.process_time() - begun) / 20}


def main():
    try:
        holds, saw = globals()[ASKED["probe"]]()
    except Exception as error:
        holds, saw = None, f"the probe itself failed: {type(error).__name__}: {error}"[:200]
    print(json.dumps({"holds": holds, "saw": saw, "rss": resource.getrusage(0).ru_maxrss}))


main()
