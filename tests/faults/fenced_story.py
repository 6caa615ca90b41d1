"""Workflows that pay in branches, and stop at one point until another process has taken their run
over.

`python -m tests.faults.fenced_story STORY EFFECT` is the process that loses: it waits at the
story's point, and goes on when told to. `… taker STORY EFFECT SESSION` takes the run and is killed
right after it has said so in the root.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from plait import Agent, Parallel, ScriptedModel, Session, ToolCall, Workflow, tool
from plait.errors import PlaitError
from plait.journal.stops import Parked
from plait.runs.take_up import resume_run
from plait.runtime.attendants import NOBODY
from plait.runtime.run import Run
from plait.session.ports import Draft
from plait.tool import Tool
from tests.support import wait_until

folder = Path(os.environ.get("STORY_FOLDER", "."))
meanwhile: list[Callable[[], object]] = []
LOSES = __name__ == "__main__" and sys.argv[1] != "taker"


def home() -> str:
    """The store of the story: STORY_STORE, else one in the folder."""
    return os.environ.get("STORY_STORE") or str(folder / ".plait")


def stop_here() -> None:
    """The process that loses stops here until it has lost; what `meanwhile` says is done where the
    other one is as far.
    """
    if LOSES and not (folder / "busy").exists():
        (folder / "busy").touch()
        wait_until((folder / "go").exists)
    elif meanwhile:
        meanwhile.pop()()


def note(key: str) -> str:
    with open(folder / "payments", "a") as out:
        print("the first" if LOSES else "another", key, file=out)
    return "paid"


def payer(effect: Any) -> Tool[..., Any]:
    @tool(effect=effect)
    def pay(idempotency_key: str) -> str:
        return note(idempotency_key)

    return pay


class Story(Workflow):
    """Pays three times, or as often as a story says."""

    payments = 3

    def __init__(self, effect: str) -> None:
        self.pay = payer(effect)


class Before(Story):
    """Branches are there when the run is taken; nothing was paid in them yet."""

    def forward(self, session: Session) -> Session:
        forks = [session.fork(name) for name in "abc"]
        stop_here()
        return session.merge(*[fork.use(self.pay) for fork in forks])


class Between(Story):
    """The run is taken between two payments in branches."""

    def forward(self, session: Session) -> Session:
        forks = [session.fork(name) for name in "abc"]
        first = forks[0].use(self.pay)
        stop_here()
        return session.merge(first, *[fork.use(self.pay) for fork in forks[1:]])


class After(Story):
    """Branches are forked after the run was taken."""

    def forward(self, session: Session) -> Session:
        stop_here()
        return session.merge(*[session.fork(name).use(self.pay) for name in "abc"])


class Nested(Story):
    """Branches of branches: one level is there when the run is taken, the next is not."""

    def forward(self, session: Session) -> Session:
        forks = [session.fork(name) for name in "abc"]
        twigs = [forks[0].fork("twig")]
        stop_here()
        twigs += [fork.fork("twig") for fork in forks[1:]]
        return session.merge(
            *[fork.merge(twig.use(self.pay)) for fork, twig in zip(forks, twigs, strict=True)]
        )


class Caught(Story):
    """A program that catches all it can, and goes on."""

    def forward(self, session: Session) -> Session:
        fork = session.fork("a")
        stop_here()
        for act in (
            lambda: fork.use(self.pay),
            lambda: session.fork("b").use(self.pay),
            lambda: fork.fork("c").use(self.pay),
        ):
            try:
                act()
            except BaseException:
                if not LOSES:
                    raise
        return session


class Threads(Story):
    """Threads of the program's own, which do not know that the run is lost."""

    def forward(self, session: Session) -> Session:
        forks = [session.fork(name) for name in "abc"]
        paid: list[Session] = []
        threads = [threading.Thread(target=self._pay, args=(fork, paid)) for fork in forks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return session.merge(*sorted(paid, key=lambda each: each.lineage.label or ""))

    def _pay(self, fork: Session, paid: list[Session]) -> None:
        stop_here()
        wait_until(lambda: not LOSES or (folder / "go").exists())
        try:
            paid.append(fork.use(self.pay))
        except BaseException:
            if not LOSES:
                raise


class Left(Story):
    """A thread that outlives its run: the program has heard that it lost, and the thread goes on
    with values of the run.
    """

    payments = 0

    def forward(self, session: Session) -> Session:
        fork = session.fork("a")
        if LOSES:
            threading.Thread(target=self._pay, args=(session, fork)).start()
        stop_here()
        return session.merge(fork.fact("done", 1))

    def _pay(self, session: Session, fork: Session) -> None:
        wait_until((folder / "lost").exists)
        for value in (
            fork,
            lambda: fork.fork("x"),
            lambda: session.fork("y"),
            session,
            lambda: fork.reload(),
            lambda: session.reload(),
        ):
            try:
                value = value() if callable(value) else value
                value.use(self.pay)
            except BaseException:
                continue


class Parks(Story):
    """A run that waits for an answer, and was let go; a thread of it goes on with its values."""

    payments = 0

    def forward(self, session: Session) -> Session:
        forks = [session.fork(name) for name in "ab"]
        if LOSES:
            threading.Thread(target=self._pay, args=(session, forks)).start()
        return session.ask("Go on?")

    def _pay(self, session: Session, forks: list[Session]) -> None:
        wait_until((folder / "lost").exists)
        stop_here()
        for act in (
            lambda: forks[0].use(self.pay),
            lambda: forks[0].fork("x").use(self.pay),
            lambda: session.fork("y").use(self.pay),
            lambda: Pays(self.pay)(forks[1]),
            lambda: forks[1].reload().say("still here"),
            lambda: session.reload().fact("still", "here"),
        ):
            try:
                act()
            except BaseException:
                continue


class InTool(Story):
    """A tool that forks the session it was handed, and pays there, in branches made before and
    after.
    """

    def __init__(self, effect: str) -> None:
        super().__init__(effect)
        self.work = Agent(
            "Work.", model=ScriptedModel([ToolCall("spend"), "well done"]), tools=[self._tool()]
        )

    def _tool(self) -> Tool[..., Any]:
        pay = self.pay

        @tool(effect="pure")
        def spend(session: Session) -> str:
            before = session.fork("before")
            stop_here()
            before.use(pay)
            session.fork("after").use(pay)
            session.use(pay)
            return "spent"

        return spend

    def forward(self, session: Session) -> Session:
        return self.work(session)


class Lane(Story):
    """Calls of one reply that run one after another: all were requested before the
    run was taken.
    """

    payments = 3  # the first call was under way, and is made again

    def __init__(self, effect: str) -> None:
        @tool(effect="workspace")
        def first() -> str:
            note("first")
            stop_here()
            return "done"

        @tool(effect="workspace")
        def second() -> str:
            return note("second")

        @tool(effect="pure")
        def look() -> str:
            return "side by side with them"

        script = [[ToolCall("first"), ToolCall("second"), ToolCall("look")], "well done"]
        self.work = Agent("Work.", model=ScriptedModel(script), tools=[first, second, look])

    def forward(self, session: Session) -> Session:
        return self.work(session)


class Branches(Story):
    """Agents side by side, in branches that Parallel makes."""

    payments = 2

    def __init__(self, effect: str) -> None:
        super().__init__(effect)
        halves = [
            Agent("Pay.", model=ScriptedModel([ToolCall("pay"), "well done"]), tools=[self.pay])
            for _ in "ab"
        ]
        self.both = Parallel(left=halves[0], right=halves[1])

    def forward(self, session: Session) -> Session:
        stop_here()
        return self.both(session)


class Pays(Workflow):
    """A run of its own, on a session of its own."""

    def __init__(self, pay: Tool[..., Any], stops: bool = False) -> None:
        self.pay, self.stops = pay, stops

    def forward(self, session: Session) -> Session:
        if self.stops:
            stop_here()
        return session.fork("own").use(self.pay).use(self.pay)


class Own(Story):
    """Sessions of their own that the run's code makes, with and without runs of their own, in its
    store and in another.
    """

    payments = 6

    def forward(self, session: Session) -> Session:
        store = home()
        mine, theirs = (
            Session("mine", store=where) for where in (store, str(folder / "elsewhere"))
        )
        inner = Session("run", store=store)
        Pays(self.pay, stops=True)(inner)
        for value in (mine, theirs):
            value.use(self.pay)
        Pays(self.pay)(Session("new", store=store))
        return session.fact("done", True)


class OwnAfter(Own):
    """The same, where what the program catches does not stop it."""

    def forward(self, session: Session) -> Session:
        mine = Session("mine", store=home())
        stop_here()
        for act in (
            lambda: mine.use(self.pay),
            lambda: Session("new", store=home()).use(self.pay),
            lambda: Session("far", store=str(folder / "elsewhere")).use(self.pay),
            lambda: Pays(self.pay)(Session("run", store=str(folder / "elsewhere"))),
            lambda: mine.reload().inbox.send("hello"),
        ):
            try:
                act()
            except BaseException:
                if not LOSES:
                    raise
        return session

    payments = 5


STORIES: dict[str, type[Story]] = {
    each.__name__: each
    for each in (
        Before,
        Between,
        After,
        Nested,
        Caught,
        Threads,
        Left,
        Parks,
        InTool,
        Lane,
        Branches,
        Own,
        OwnAfter,
    )
}


def main() -> None:
    if sys.argv[1] == "taker":
        take_and_die(
            STORIES[sys.argv[2]](sys.argv[3]),
            Session.open(sys.argv[4], store=home()),
        )
    session = Session("go", store=home(), user="u")
    print(session.id, flush=True)
    try:
        STORIES[sys.argv[1]](sys.argv[2])(session)
    except (PlaitError, Parked) as error:
        print(type(error).__name__, flush=True)
    else:
        print("done", flush=True)
    (folder / "lost").touch()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def take_and_die(workflow: Workflow, session: Session) -> None:
    def die(when: str, drafts: Sequence[Draft]) -> None:
        if when == "after":
            os.kill(os.getpid(), signal.SIGKILL)

    def started(run: Run) -> None:
        run.journal.on_write = die

    resume_run(session, workflow, (), {}, NOBODY, None, started)


if __name__ == "__main__":
    main()
