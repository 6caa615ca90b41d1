"""mini-swe-agent on a session: its agents run as they are, and every command they run is an event
with the files before and after.

    env = SweEnvironment(Session("Fix the failing test").to("local", "./repo"))
    DefaultAgent(model, env, **config).run("Fix the failing test")
    env.session.diff()

An environment has to have: `execute`, `get_template_vars`, `serialize` and a `config`.
A session is a value, so the environment holds the newest one, as `session`.
"""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import msgspec

from plait.errors import ToolFailed
from plait.event.kinds import ToolReturned
from plait.session import Session
from plait.tools.commands import shell

# a command prints it first to hand in the lines after it
DONE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class SweConfig(msgspec.Struct, frozen=True):
    cwd: str = ""  # relative to the workspace
    env: Mapping[str, str] = {}
    timeout: int = 30  # seconds


class SweEnvironment:
    """A session as the environment of an agent of mini-swe-agent."""

    def __init__(
        self,
        session: Session,
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        timeout: int = 30,
    ) -> None:
        self.session = session
        self.config = SweConfig(cwd, env or {}, timeout)
        self._submitted: Any = import_module("minisweagent.exceptions").Submitted

    def execute(
        self, action: Mapping[str, Any], cwd: str = "", *, timeout: int | None = None
    ) -> dict[str, Any]:
        """Run a command, recorded; a command that hands in the result ends the agent."""
        command = self._command(str(action.get("command", "")), cwd or self.config.cwd)
        output = self._use(command, float(timeout or self.config.timeout))
        self._end_if_done(output)
        return output

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Return the variables for templates: the settings and the kind of machine.

        The environment of this process is left out: it may hold secrets.
        """
        return {**msgspec.to_builtins(self.config), **platform.uname()._asdict(), **kwargs}

    def serialize(self) -> dict[str, Any]:
        kind = f"{type(self).__module__}.{type(self).__name__}"
        return {
            "info": {
                "config": {
                    "environment": msgspec.to_builtins(self.config),
                    "environment_type": kind,
                },
                "session": self.session.id,
            }
        }

    def _command(self, command: str, cwd: str) -> str:
        settings = [
            f"export {name}={shlex.quote(value)}" for name, value in self.config.env.items()
        ]
        return "\n".join([*settings, *([f"cd {shlex.quote(cwd)} || exit"] if cwd else []), command])

    def _use(self, command: str, timeout_s: float) -> dict[str, Any]:
        try:
            self.session = self.session.use(shell, command=command, timeout_s=timeout_s)
        except ToolFailed as error:
            self.session = error.session
            return {"output": "", "returncode": -1, "exception_info": error.message}
        result: Any = self.session.result
        # output too long to be shown is a file beside it
        text = result if isinstance(result, str) else result[0]
        return {"output": text, "returncode": self._exit_code(), "exception_info": ""}

    def _exit_code(self) -> int | None:
        bodies = (event.body for event in reversed(self.session.events))
        return next(body.exit_code for body in bodies if isinstance(body, ToolReturned))

    def _end_if_done(self, output: Mapping[str, Any]) -> None:
        first, _, rest = output["output"].lstrip().partition("\n")
        if first.strip() == DONE and output["returncode"] == 0:
            ended = {"exit_status": "Submitted", "submission": rest}
            raise self._submitted({"role": "exit", "content": rest, "extra": ended})
