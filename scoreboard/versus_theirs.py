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
