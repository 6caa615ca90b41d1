"""Raises whole runs to be killed: one process that has imported everything and opened
nothing, and forks a child for every life.

A child starts a workflow, or takes it up again, and kills itself with SIGKILL at a chosen write, or
is killed from outside as it goes. People, children too, answer what it waits for meanwhile, as they
would: by looking at what the tools left in the world. In the end the story has to be the one of a
run that nobody disturbed, with no effect twice. A script, because no thread may be there when it
forks: it takes a request as JSON, and prints what it did and what was wrong.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from plait import (
    Agent,
    Compactor,
    Parallel,
    ScriptedModel,
    Selector,
    Session,
    ToolCall,
    Workflow,
    open_store,
    tool,
)
from plait.journal.stops import Parked
from plait.policy import Ask, Policy
from plait.runs.replay import replay
from plait.runs.take_up import resume_run
from plait.runtime.attendants import NOBODY
from plait.runtime.invoke import EnteredCall, invoke
from plait.runtime.run import Run
from plait.session import verify
from plait.session.inbox import all_waiting
from plait.session.ports import Draft, store_at
from tests.faults.lives import DONE, WRONG, exit_code, kill_at
from tests.faults.undisturbed import Wrong

MEMORY = "/dev/shm"
PARKED = 3  # how a life ends that waits for somebody
LIVES_MAX = 30

where = Path()  # the world of this child: its store, and the file of effects


# ── the workflow ─────────────────────────────────────────────────────────────────────────────


def effect(what: str, n: int, key: str) -> str:
    """One line in a file, on disk before anybody hears of it."""
    handle = os.open(where / "effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(handle, f"{what} {n} {key}\n".encode())
    os.fsync(handle)
    os.close(handle)
    return f"{what} {n}"


def effects() -> list[tuple[str, str, str]]:
    file = where / "effects"
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [(what, n, key) for what, n, key in lines]


@tool(effect="idempotent")
def put(n: int, idempotency_key: str) -> str:
    """What keeps the key it was given does nothing the second time."""
    if any(key == idempotency_key for _, _, key in effects()):
        return f"put {n}"
    return effect("put", n, idempotency_key)


@tool
def mail(n: int, idempotency_key: str) -> str:
    return effect("mail", n, idempotency_key)


@tool
def wire(n: int, idempotency_key: str) -> str:
    return effect("wire", n, idempotency_key)


def agent(*script: Any) -> Agent:
    return Agent("Work.", model=ScriptedModel(script), tools=[put, mail, wire])


class Story(Workflow):
    policy = Policy(Ask("wire"))

    def __init__(self) -> None:
        self.plan = agent([ToolCall("put", n=1), ToolCall("mail", n=2)], "planned")
        self.both = Parallel(
            left=agent(ToolCall("put", n=3), "left"), right=agent(ToolCall("mail", n=4), "right")
        )
        self.compact = Compactor(model=ScriptedModel(["What came before."]), keep=2)
        self.pay = agent(ToolCall("wire", n=5), "paid")
        self.route = Selector(
            more=agent(ToolCall("put", n=6), "more"),
            model=ScriptedModel(['{"choice": "more", "reason": "so"}']),
        )
        helpers = [
            agent(ToolCall("mail", n=8), "first").as_tool(name="first"),
            agent(ToolCall("put", n=9), "second").as_tool(name="second", takes="all"),
        ]
        calls = [ToolCall(each.name, request="work") for each in helpers]
        self.team = Agent("Lead.", model=ScriptedModel([calls, "led"]), tools=helpers)

    def forward(self, session: Session) -> Session:
        session = self.plan(session)
        side = session.fork("side").use(mail, n=7)
        session = session.merge(side.fact("side", 7))
        session = self.both(session)
        session = self.pay(self.team(self.compact(session)))
        return self.route(session)().fact("end", True)


# ── lives ────────────────────────────────────────────────────────────────────────────────────


def child(work: Callable[[], int]) -> int:
    """The exit code of a child in this world."""
    return exit_code(work, where)


def store() -> str:
    return str(where / ".plait")


def the_session() -> Session:
    return Session.open((where / "id").read_text(), store=store())


def live(arm: Callable[[Run], None]) -> int:
    """One life of the run: from its start, or from where it was left."""
    try:
        if (where / "id").exists():
            resume_run(the_session(), Story(), (), {}, NOBODY, None, arm)
        else:
            session = Session("go", store=store(), user="u")
            (where / "id").write_text(session.id)

            def on_start(entered: EnteredCall) -> None:
                arm(entered.run)

            invoke(msgspec.structs.replace(Story().invocation(session), on_start=on_start))
    except Parked:
        return PARKED
    return DONE


def people() -> int:
    """Answer as people do, by a look into the inbox and into the world."""
    found = all_waiting(store_at(the_session().store))
    for ask in found:
        session = Session.open(ask.log, store=store())
        if ask.kind == "approval":
            session.inbox.approve(ask, actor="human:boss")
        else:
            requests = [
                event
                for event in session.events
                if event.header.call == ask.call and event.kind == "ToolRequested"
            ]
            done = [f"{what} {n}" for what, n, key in effects() if key == requests[0].id]
            session.inbox.resolve(
                ask,
                "happened" if done else "did_not_happen",
                done[0] if done else None,
                actor="human:boss",
            )
    return DONE if found else WRONG


def write_story() -> int:
    """Write what came of it, as anybody finds it."""
    session = the_session()
    faults = [str(fault) for fault in verify(open_store(store()), state=True)]
    said = [f"{message.role}: {message.text}" for message in session.messages]
    called = sorted(f"{what} {n}" for what, n, _ in effects())
    story = {
        "said": said,
        "facts": dict(session.facts.items()),
        "effects": called,
        "status": session.runs[-1].status,
    }
    keys = [key for _, _, key in effects()]
    again = sorted({key for key in keys if keys.count(key) > 1})
    (where / "told").write_text(json.dumps({"story": story, "again": again, "faults": faults}))
    return DONE


def replayed() -> int:
    """Nothing leaves this process while it replays: no socket, no process, no file
    that is written.
    """
    session = the_session()
    assert session.messages
    sys.dont_write_bytecode = True
    tried: list[str] = []
    armed = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writes = (
            event == "open"
            and isinstance(arguments[2], int)
            and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        )
        leaves = event.startswith(
            (
                "socket.",
                "subprocess.",
                "os.system",
                "os.exec",
                "os.posix_spawn",
                "os.fork",
                "os.remove",
                "os.rename",
                "os.mkdir",
            )
        )
        if armed and (writes or leaves):
            tried.append(f"{event} {arguments!r}")
            raise RuntimeError(f"a replay does {event}")

    sys.addaudithook(hook)
    try:
        found = replay(session, Story())
    finally:
        armed = False
    assert found.head == session.head and not tried, tried
    return DONE


# ── histories ────────────────────────────────────────────────────────────────────────────────


def lived(lives: Sequence[Callable[[], int]], last: Callable[[], int]) -> int:
    """Live these lives, and more like the last one until the story is told; returns how many were
    killed.
    """
    killed = 0
    for number in range(LIVES_MAX):
        code = lives[number]() if number < len(lives) else last()
        if code == DONE:
            return killed
        if code == PARKED and child(people) != DONE:
            raise Wrong(f"it waits, and nobody knows for what. {_wrong()}")
        if code == WRONG or code not in (PARKED, -signal.SIGKILL):
            raise Wrong(f"life {number + 1} ended with {code}: {_wrong()}")
        killed += code == -signal.SIGKILL
    raise Wrong("it does not come to an end")


def _wrong() -> str:
    with suppress(OSError):
        return (where / "wrong").read_text()
    return ""


def in_a_new_world(work: Callable[[], None]) -> None:
    global where
    where = Path(
        tempfile.mkdtemp(dir=MEMORY if os.path.isdir(MEMORY) else None, prefix="plait-forward-")
    )
    try:
        work()
    finally:
        shutil.rmtree(where, ignore_errors=True)


def finding() -> dict[str, Any]:
    if child(write_story) != DONE:
        raise Wrong(_wrong())
    return json.loads((where / "told").read_text())


def undisturbed() -> tuple[dict[str, Any], list[int]]:
    """The story as it is without deaths, and how many moments each of its lives has."""
    moments: list[int] = []
    found: dict[str, Any] = {}

    def counted() -> int:
        code = child(lambda: live(kill_at(0, where)))
        moments.append(int((where / "moments").read_text()))
        return code

    def work() -> None:
        lived([], counted)
        found.update(finding())
        if child(replayed) != DONE:
            raise Wrong(_wrong())

    in_a_new_world(work)
    return found, moments


def compare(expected: dict[str, Any], about: str) -> None:
    found = finding()
    if found["again"]:
        raise Wrong(f"{about}: effects twice: {found['again']}")
    if found["faults"] or found["story"] != expected["story"]:
        raise Wrong(f"{about}: {found} instead of {expected}")


def at_every_moment(expected: dict[str, Any], moments: Sequence[int], part: int, parts: int) -> int:
    """Kill each life at each of its moments."""
    plain = lambda: child(lambda: live(lambda run: None))  # noqa: E731
    every = [(life, moment) for life, most in enumerate(moments) for moment in range(1, most + 1)]
    killed = 0
    for life, moment in every[part::parts]:

        def work(life: int = life, moment: int = moment) -> None:
            nonlocal killed
            lives = [*[plain] * life, lambda: child(lambda: live(kill_at(moment, where)))]
            times = lived(lives, plain)
            # dead after its last word: nothing is left to do
            ended = (life, moment) == (len(moments) - 1, moments[-1])
            if times != 1 and not ended:
                raise Wrong(f"life {life + 1} was not killed at moment {moment}")
            killed += times
            compare(expected, f"killed in life {life + 1} at moment {moment}")

        in_a_new_world(work)
    return killed


def killed_from_outside(chance: random.Random) -> int:
    """A life that somebody else ends, some time after so many writes."""
    mine, far = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(mine)
        code = WRONG

        def on_write(when: str, drafts: Sequence[Draft]) -> None:
            os.write(far, b".")

        def arm(run: Run) -> None:
            run.journal.on_write = on_write

        try:
            code = live(arm)
        except BaseException:
            (where / "wrong").write_text(traceback.format_exc())
        finally:
            os._exit(code)
    os.close(far)
    left = chance.randint(1, 90)
    while left and os.read(mine, 1):
        left -= 1
    # wherever it is by now; its end is not collected yet, so the number is its own
    os.kill(pid, signal.SIGKILL)
    os.close(mine)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def at_random(expected: dict[str, Any], kills: int, seed: int) -> int:
    chance = random.Random(seed)
    killed = 0
    while killed < kills:

        def work() -> None:
            nonlocal killed
            times = chance.randint(1, 4)
            killed += lived(
                [lambda: killed_from_outside(chance)] * times,
                lambda: child(lambda: live(lambda run: None)),
            )
            compare(expected, f"killed at random, SEED={seed}")
            if child(replayed) != DONE:
                raise Wrong(_wrong())

        in_a_new_world(work)
    return killed


def main() -> None:
    request = json.loads(sys.argv[1])
    answer: dict[str, Any] = {}
    try:
        expected, moments = undisturbed()
        answer.update(moments=moments, story=expected["story"])
        if "every" in request:
            answer["killed"] = at_every_moment(expected, moments, *request["every"])
        if "kills" in request:
            answer["killed"] = at_random(expected, request["kills"], request["seed"])
    except Wrong as error:
        answer["wrong"] = str(error)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
