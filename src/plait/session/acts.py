"""The verbs of a session that act: on tools, people, places, and by the workflow of a turn.

A session value only reads and appends. These verbs are done by ports that the runtime binds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Never, Self, cast

from plait.errors import InvalidValue
from plait.event import Json
from plait.session.appending import refuse_if_busy, value_from_host
from plait.session.arguments import check_key, check_seconds, check_text, value_text
from plait.session.content import Content
from plait.session.moves import check_may
from plait.session.ports import host, turns
from plait.session.reading import Reading
from plait.session.value import next_value

_IN_RUN = "do it in the workflow, with the value that its forward has"


def _refuse_unnamed(unnamed: Sequence[object]) -> None:
    if unnamed:
        raise InvalidValue(
            "arguments",
            f"{value_text(unnamed[0])} is passed without a name",
            "pass arguments of the tool by name: session.use(tool, name=…)",
        )


class Acting(Reading):
    """A place in a log from which one can act."""

    __slots__ = ()

    def use(self, tool: object, /, *unnamed: Never, **arguments: Json) -> Self:
        """Run a tool as the program's own act; `session.result` is its result.

        `reason=` says why, in words, and is recorded with the call, unless the tool has a parameter
        of that name.
        """
        _refuse_unnamed(unnamed)
        refuse_if_busy(self, "use a tool", "use it in a fork: session.fork().use(…)")
        return value_from_host(self, host("use a tool").use(self, tool, arguments))

    async def ause(self, tool: object, /, *unnamed: Never, **arguments: Json) -> Self:
        """Run a tool as `use` does, in an event loop."""
        _refuse_unnamed(unnamed)
        refuse_if_busy(self, "use a tool", "use it in a fork: session.fork()")
        return value_from_host(self, await host("use a tool").ause(self, tool, arguments))

    def ask(self, question: str, choices: Sequence[str] = ()) -> Self:
        """Ask a person, in a workflow; `session.result` is the answer.

        A run that is not answered at once is parked.
        """
        check_text("question", question)
        if isinstance(choices, str) or not all(isinstance(each, str) for each in choices):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(
                "choices", f"{value_text(choices)} is not a list of texts", 'pass ["eu", "us"]'
            )
        refuse_if_busy(self, "ask a person", _IN_RUN)
        return next_value(self, host("ask a person").ask(self, question, choices), None)

    def sleep(self, seconds: float) -> Self:
        """Wait so long, in a workflow.

        A long sleep holds no process: the run is parked until its time.
        """
        check_seconds("seconds", seconds)
        refuse_if_busy(self, "sleep", _IN_RUN)
        return next_value(self, host("sleep").sleep(self, seconds), None)

    def wait_for(self, name: str, timeout_s: float | None = None) -> Self:
        """Wait, in a workflow, for a signal (`session.inbox.signal(name, value)`, `plait signal`),
        or so long.

        `session.result` is the value of the signal; None: it did not come in time.
        """
        check_key(name, "name")
        if timeout_s is not None:
            check_seconds("timeout_s", timeout_s)
        refuse_if_busy(self, "wait", _IN_RUN)
        return next_value(self, host("wait").wait_for(self, name, timeout_s), None)

    def to(self, backend: str, where: str | Path | None = None, **options: Any) -> Self:
        """Place it: choose where its tools run, on which files. Without a folder it keeps those it
        has, or begins with none.

        Rights there: `network="on"`, `isolation=` a rung by name, `limits=Limits(…)`, `env=`,
        `egress=` hosts for the `http` tool. Not recorded: `heavy=` folders, `ignore=` names.
        With `needs_heavy=True` workers of a cluster run it only where the heavy folders are.
        `in_place=True` works on the folder itself, without a way back; `clean=True` is a fresh
        sandbox with the same files and nothing else.
        """
        check_may(self._core, "be placed")
        refuse_if_busy(self, "be placed", "place a fork: session.fork().to(…)")
        return next_value(
            self,
            host("place it").place(
                self, backend, str(where) if where is not None else None, options
            ),
            None,
        )

    def turn(
        self,
        content: Content | tuple[Content, ...],
        workflow: object,
        /,
        *,
        wait: bool = True,
        key: str = "",
        actor: str | None = None,
        on_event: Callable[[Any], object] | None = None,
        approver: Callable[..., Any] | None = None,
        answerer: Callable[..., Any] | None = None,
        **unknown: Never,
    ) -> Self:
        """Say something as a user, have the workflow answer, and return the session after that.

        Any number of threads and processes may do so at once: messages are answered one after
        another, in the order in which they came. `wait=False` returns this value at once, and the
        turn goes on without its caller. A second turn with the same `key` is the first one.
        """
        watch = {"on_event": on_event, "approver": approver, "answerer": answerer}
        found = turns("take turns").turn(
            self, content, workflow, wait=wait, key=key, actor=actor, **watch, **unknown
        )
        return cast("Self", found)

    async def aturn(
        self,
        content: Content | tuple[Content, ...],
        workflow: object,
        /,
        *,
        wait: bool = True,
        key: str = "",
        actor: str | None = None,
        on_event: Callable[[Any], object] | None = None,
        approver: Callable[..., Any] | None = None,
        answerer: Callable[..., Any] | None = None,
        **unknown: Never,
    ) -> Self:
        """Say something, and have the workflow answer, as `turn` does, in an event loop.

        If the caller is cancelled, the turn goes on to its end.
        """
        watch = {"on_event": on_event, "approver": approver, "answerer": answerer}
        found = await turns("take turns").aturn(
            self, content, workflow, wait=wait, key=key, actor=actor, **watch, **unknown
        )
        return cast("Self", found)
