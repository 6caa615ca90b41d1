"""The same probes on Plait, from its public face; one probe per process.

Reads {"probe", "step", "url", "folder"} and prints {"holds", "saw"}.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

ASKED = json.load(sys.stdin)
FOLDER, URL = Path(ASKED["folder"]), ASKED["url"]
STORE = str(FOLDER / ".plait")


def agent(prompt: str = "Answer.", **more: Any) -> Any:
    from plait import Agent

    return Agent(prompt, model=f"{URL}/v1#any", **more)


def user(text: str) -> Any:
    from plait import Session

    return Session(text, store=STORE)


def plain_subclass():
    from plait import Workflow

    class Echo(Workflow):
        def __init__(self):
            self.agent = agent()

        def forward(self, session):
            return self.agent(session)

    return True, f"answers {Echo()(user('hello')).text!r}"


def second_process():
    from plait import Memory, Session

    memory, session = Memory(), Session("x", user="ann", store=STORE)
    if ASKED["step"] == 1:
        text = "The staging database is read-only."
        memory.remember(session, text, scope="user", evidence=session)
        return True, ""
    _, hits = memory.recall(session, "staging database")
    return bool(hits), f"recalls {len(hits)} memories"


def verbs():
    import plait
    from plait import Session

    on_session = "rewind at diff events status fork inbox checks budget".split()
    names = {
        "replay": hasattr(plait, "replay"),
        "checkpoint": hasattr(Session, "fork"),  # every event is one, a label names it
        "pending": hasattr(Session, "inbox"),
        "approve": hasattr(Session, "inbox"),
        "validate": hasattr(Session, "checks"),
        "compact": hasattr(plait, "Compactor"),
        **{name: hasattr(Session, name) for name in on_session[:5]},
    }
    return all(names.values()), f"{sum(names.values())} of {len(names)} verbs are there"


def edited_fork():
    parent = user("the original")
    fork = parent.fork()
    try:
        fork.messages[0].text = "edited"
        fork.messages[0].parts[0].text = "edited"
    except (AttributeError, TypeError) as error:
        said = type(error).__name__
    else:
        said = "no error"
    text = parent.reload().messages[0].text
    return text == "the original" and said != "no error", f"{said}; the parent says {text!r}"


def merged_forks():
    parent = user("the task")
    left, right = agent()(parent.fork("left")), agent()(parent.fork("right"))
    times = [message.text for message in left.merge(right).messages].count("the task")
    return times == 1, f"the common message is there {times} times"


def usage_of_two():
    session = agent()(agent()(user("hello")))
    total = session.budget.usage.input_tokens + session.budget.usage.output_tokens
    forked = session.fork().budget.usage
    there = forked.input_tokens + forked.output_tokens
    return total == 20 and there == 20, f"{total} of 20 tokens; on a fork {there}"


def forks_of_files():
    from plait.errors import PlaitError
    from plait.tools import read_file, write_file

    repo = FOLDER / "repo"
    repo.mkdir()
    start = user("x").to("local", repo)
    left = start.fork("left").use(write_file, path="a.txt", content="left")
    try:
        saw = str(start.fork("right").use(read_file, path="a.txt").result)
    except PlaitError as error:
        saw = type(error).__name__
    kept = left.files.text("a.txt") == "left"
    return kept and "left" not in saw, f"the other fork reads {saw[:60]!r}"


def no_tools():
    said = agent(tools=[])(user("what tools?")).text
    return said == "tools: none", f"an agent with tools=[] is offered {said}"


def outside_sandbox():
    from plait.tools import shell

    target, repo = FOLDER / "outside.txt", FOLDER / "repo"
    repo.mkdir()
    asked = f"tool shell {json.dumps({'command': f'echo x > {target}'})}"
    agent(tools=[shell])(user(asked).to("local", repo))
    return not target.exists(), "writes outside" if target.exists() else "stays inside"


def no_match():
    from plait import Memory

    memory, session = Memory(), user("x")
    session = memory.remember(session, "The cafeteria opens at nine.")
    _, hits = memory.recall(session, "quantum chromodynamics")
    return not hits, f"{len(hits)} hits for a query that matches nothing"


def chinese():
    from plait import Memory

    memory, session = Memory(), user("x")
    session = memory.remember(session, "数据库是只读的")
    session = memory.remember(session, "The cafeteria opens at nine.")
    _, hits = memory.recall(session, "数据库", k=1)
    found = bool(hits) and "只读" in hits[0].text
    return found, "finds it" if found else "does not find it"


def evidence_of_memory():
    from plait import Memory

    memory, session = Memory(), user("The staging database is read-only.")
    said = session.events[-1]
    session = memory.remember(session, "The staging database is read-only.", evidence=said)
    _, hits = memory.recall(session, "staging database")
    cause = [event for event in session.events if event.id == hits[0].id][0].header.causes
    return said.id in cause, "a hit leads to the event that shows it"


def recalled_words():
    from plait import Memory

    memory, session = Memory(), user("May I write to the staging database?")
    session = memory.remember(session, "The staging database is read-only.")
    out = agent(memory=memory)(session)
    recalled = bool(out.events.where("MemoryRecalled"))
    told = [message.text for message in out.messages if message.role == "user"]
    as_user = any("read-only" in text for text in told)
    shown = "as the user's words" if as_user else "not as the user's words"
    return recalled and not as_user, shown


def two_writers():
    from plait.errors import StaleHead

    session = user("one")
    session.say("first")
    try:
        session.say("second")
    except StaleHead as error:
        return True, f"the second is refused: {type(error).__name__}"
    return False, "both write"


def fork_of_much():
    def cost(count: int) -> float:
        session = user("x")
        for number in range(count):
            session = session.fact(f"line {number % 50}", number)
        begun = time.process_time()
        for _ in range(50):
            session.fork()
        return (time.process_time() - begun) / 50

    small, large = cost(10), cost(5000)
    return large < 10 * small, f"{large / small:.1f} times as long with 500 times as many"


def odd_lines():
    from plait import Session

    session = user("a\u2028b\u2029c\u0085d")
    text = Session.open(session.id, store=STORE).messages[0].text
    return text == "a\u2028b\u2029c\u0085d", "reads it back"


def closed_writer():
    from plait.errors import PlaitError

    session = user("first").close()
    try:
        session.say("second")
    except PlaitError as error:
        said = f"refused: {type(error).__name__}"
    else:
        said = "accepted"
    kept = session.reload().messages[0].text == "first"
    return kept and said != "accepted", f"{said}; the first message is kept"


def lone_surrogate():
    from plait.errors import PlaitError

    session = user("one")
    try:
        session = session.say("a\ud800b")
        return True, "written and read"
    except PlaitError as error:
        after = session.say("two").reload()
        said = f"refused: {type(error).__name__}, and the session goes on"
        return len(after.messages) == 2, said


def reloaded():
    from plait import Session

    parent = user("hello")
    session = agent()(parent.fork())
    again = Session.open(session.id, store=STORE)
    same = again.id == session.id
    parents = again.lineage.parent is not None and again.lineage.parent.id == parent.id
    usage = again.budget.usage == session.budget.usage and again.budget.usage.input_tokens > 0
    return same and parents and usage, f"same id {same}, parents {parents}, usage {usage}"


def provider_error():
    from plait.errors import ModelFailed

    session = user("fail with 400")
    try:
        agent()(session)
    except ModelFailed as error:
        marks = [e for e in session.reload().events if e.kind == "ModelFailed"]
        return bool(marks), f"{type(error).__name__}; {len(marks)} marks on the session"
    return False, "no error"


def unknown_backend():
    from plait.errors import PlaitError

    try:
        user("hello").to("no-such-backend", FOLDER)
    except PlaitError as error:
        return True, f"refused: {type(error).__name__}"
    return False, "accepted"


def odd_choice():
    from plait import Selector
    from plait.errors import PlaitError

    session = user("choose oddly")
    choose = Selector({"first": agent(), "second": agent()}, model=f"{URL}/v1#any")
    try:
        done = choose(session).done
    except PlaitError as error:
        marks = len(session.reload().events.where("ModelReplied"))
        return marks > 0, f"{type(error).__name__}, with {marks} replies on record"
    return not done, "decides that it is done" if done else "chooses one"


def kept_after_kill():
    from plait import Session

    if ASKED["step"] == 1:
        session = user("one")
        (FOLDER / "id").write_text(session.id)
        for index in range(1000):
            session = session.fact(f"line {index}", index)
        os.kill(os.getpid(), 9)
    facts = len(Session.open((FOLDER / "id").read_text(), store=STORE).facts)
    return facts == 1000, f"{facts} of 1,000 kept"


def second_hop():
    from plait import Agent

    os.environ["PLAIT_MODEL"] = f"{URL}/v1#any"
    made = Agent("Answer.")
    session = made(made(user("hello")))
    return len(session.events.where("ModelReplied")) == 2, "answers twice"


def evidence_of_edit():
    from plait.tools import write_file

    repo = FOLDER / "repo"
    repo.mkdir()
    (repo / "a.txt").write_text("old text\n")
    session = user("x").to("local", repo).use(write_file, path="a.txt", content="new text\n")
    delta = json.dumps(session.effects[-1].delta)
    kept = "+new text" in delta and "-old text" in delta
    return kept, f"keeps {delta[:90]}"


def steps_workflow(fails_at: int = 0, killed_at: int = 0) -> Any:
    """A workflow of ten steps that leave a line each."""
    from plait import Workflow, tool

    @tool(effect="idempotent")
    def act(number: int, idempotency_key: str) -> int:
        """Leave a line."""
        with (FOLDER / "lines").open("a") as lines:
            lines.write(f"{number}\n")
        if number == fails_at and not (FOLDER / "failed").exists():
            (FOLDER / "failed").touch()
            raise OSError("no network")
        return number

    class Ten(Workflow):
        def forward(self, session):
            for number in range(1, 11):
                session = session.use(act, number=number)
                if number == killed_at and ASKED["step"] == 1:
                    os.kill(os.getpid(), 9)
            return session

    return Ten()


def lines_left() -> list[int]:
    return [int(line) for line in (FOLDER / "lines").read_text().split()]


def forward_is_durable():
    from plait import resume
    from plait.errors import PlaitError

    session = user("x")
    try:
        steps_workflow(fails_at=5)(session)
    except PlaitError:
        pass
    done = resume(session.reload(), steps_workflow(fails_at=5))
    return done.status == "finished", f"forward is resumed, and {done.status}"


def failed_step():
    from plait import resume
    from plait.errors import PlaitError

    session = user("x")
    try:
        steps_workflow(fails_at=8)(session)
    except PlaitError:
        pass
    done = resume(session.reload(), steps_workflow(fails_at=8))
    lines = lines_left()
    once = all(lines.count(number) == 1 for number in (1, 2, 3, 4, 5, 6, 7, 9, 10))
    return done.status == "finished" and once, f"{done.status}; the steps before are not repeated"


def stopped_worker():
    from plait import Session, resume

    if ASKED["step"] == 1:
        session = user("x")
        (FOLDER / "id").write_text(session.id)
        steps_workflow(killed_at=3)(session)
    session = Session.open((FOLDER / "id").read_text(), store=STORE)
    done = resume(session, steps_workflow())
    return lines_left() == [*range(1, 11)], f"at once: {done.status}"


def unknown_program():
    import threading

    from plait import Cluster, Session, open_store
    from plait.cluster import Worker

    (FOLDER / "known.py").write_text(
        "from plait import Workflow\nclass Known(Workflow):\n"
        "    def forward(self, session):\n        return session.fact('done', 1)\n"
    )
    (FOLDER / "other.py").write_text((FOLDER / "known.py").read_text().replace("Known", "Other"))
    sys.path.insert(0, str(FOLDER))
    from known import Known  # pyright: ignore

    store = open_store(STORE)
    task = Cluster(store).submit(Known(), Session("x", store=store))

    def serve(module: str) -> None:
        worker = Worker(store, [module], slots=1)
        thread = threading.Thread(target=worker.serve)
        thread.start()
        time.sleep(3)
        worker.drain()
        thread.join()

    serve("other")
    before = task.session.reload().status
    serve("known")
    done = task.result(30)
    kept = before != "failed" and done.facts["done"] == 1
    return kept, f"left alone ({before}), then done by a worker that knows it"


def two_questions():
    from plait import Parked, Workflow, resume

    asked = list[str]()

    class Twice(Workflow):
        def forward(self, session):
            for what in ("read the file?", "wire $1M?"):
                session = session.ask(what, ("yes", "no"))
                asked.append(what)
            return session

    try:
        Twice()(user("x"))
    except Parked as parked:
        session = parked.session
    session.inbox.answer(session.inbox.waiting[0], "yes", actor="human:ann")
    try:
        resume(session.reload(), Twice())
    except Parked as parked:
        waiting = parked.session.inbox.waiting
        return "wire" in str(waiting[0]), "each is asked for"
    return False, "one approval approves both"


def forged_records():
    import sqlite3

    from plait import Session, open_store
    from plait.session import verify

    session = Session("pay 10", store=STORE).say("pay 20").say("pay 30")
    open_store(STORE).close()
    (database,) = [path for path in Path(STORE).rglob("*.db")] or [*Path(STORE).glob("*.sqlite*")][
        :1
    ]
    with sqlite3.connect(database) as connection:
        where = "number = (SELECT max(number) FROM event WHERE body IS NOT NULL)"
        connection.execute(f"UPDATE event SET body = CAST(body || x'00' AS BLOB) WHERE {where}")
        connection.execute("DELETE FROM event WHERE seq = 3")
    connection.close()
    store = open_store(STORE)
    faults = list(verify(store, state=True))
    return len(faults) >= 2, f"verify names {len(faults)} faults in {session.short}"


def twenty_hops():
    from plait import open_store

    def size() -> int:
        open_store(STORE).close()
        return sum(path.stat().st_size for path in Path(STORE).rglob("*") if path.is_file())

    session = agent()(user("word " * 4200))
    before = size()
    session = opened(session.id)
    for _ in range(19):
        session = agent()(session)
    per_hop = (size() - before) // 19
    return per_hop < 10_500, f"a hop adds {per_hop:,} bytes to a talk of 21,000"


def opened(id: str) -> Any:
    from plait import Session

    return Session.open(id, store=STORE)


def import_cost():
    before = len(sys.modules)
    begun = time.process_time()
    from plait import Agent, Session, Workflow  # noqa: F401

    return True, {"cpu_s": time.process_time() - begun, "modules": len(sys.modules) - before}


def list_500():
    from plait import Session

    for number in range(500):
        session = Session(f"{number}", store=STORE, durability="async")
        for index in range(20):
            session = session.say(f"{number} {index} " + "word " * 40)
    begun = time.process_time()
    count = len(Session.list(store=STORE, limit=1000))
    return count == 500, {"cpu_s": time.process_time() - begun}


def recall_1000():
    from plait import Memory

    memory, session = Memory(), user("x")
    for number in range(1000):
        text = f"Service number {number} listens at port {number + 2000}."
        session = memory.remember(session, text)
    begun = time.process_time()
    for number in range(20):
        session, _ = memory.recall(session, f"port of service number {number * 37}")
    return True, {"cpu_s": (time.process_time() - begun) / 20}


def main() -> None:
    try:
        holds, saw = globals()[ASKED["probe"]]()
    except Exception as error:
        holds, saw = None, f"the probe itself failed: {type(error).__name__}: {error}"[:200]
    print(json.dumps({"holds": holds, "saw": saw, "rss": resource.getrusage(0).ru_maxrss}))


main()
