"""Commands: `shell` and `python` run to their end in the sandbox, and say how they ended.

A command that fails is a result: the exit code is on the event, and the model reads the output. The
shown output is bounded; where that leaves something out, all of it is kept as a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from plait.errors import InvalidValue
from plait.event import Json
from plait.event.kinds import EffectClass, Placement
from plait.sandbox import Limits, Output, Ran, Sandbox
from plait.tool import Result, tool
from plait.tools.text import SHOWN_MAX

_COMMAND_MAX = 100_000  # bytes: a system takes 131,072 as one argument
_TIME_MAX_S = 24 * 3600.0

# One command instead of two: bash is looked for where it would be run.
_BASH = 'if command -v bash >/dev/null 2>&1; then exec bash -c "$1"; else exec sh -c "$1"; fi'

# The code comes by stdin, so that it may be long and leaves no file behind. It runs as the main
# module, and tracebacks show its lines.
_PYTHON = """
def _start():
    import linecache, sys, traceback
    code = sys.stdin.buffer.read().decode()
    linecache.cache["<code>"] = len(code), None, code.splitlines(True), "<code>"
    def show(kind, error, trace):
        traceback.print_exception(kind, error, trace and trace.tb_next and trace.tb_next.tb_next)
    sys.excepthook = show
    del globals()["_start"]
    exec(compile(code, "<code>", "exec", dont_inherit=True), globals())
_start()
"""

_WHY = {
    "time": "it took longer than it may",
    "memory": "it took more memory than it may",
    "processes": "it started more processes than it may",
    "output": "it wrote more output than it may",
    "disk": "it wrote more to disk than it may",
}


def class_of_commands(placement: Placement | None, arguments: Mapping[str, Any]) -> EffectClass:
    """A command can be undone if all that it can reach is the files of the session; otherwise it is
    at most once.

    Without isolation (the rung `host`) it can reach everything, also if its network was asked to be
    off.
    """
    if placement is None or placement.network != "off" or placement.rung == "host":
        return "at_most_once"
    detail: Json = placement.detail
    in_place = isinstance(detail, Mapping) and cast("Mapping[str, Json]", detail).get("in_place")
    return "at_most_once" if in_place else "workspace"


@tool(effect="at_most_once", effect_of=class_of_commands)
def shell(command: str, sandbox: Sandbox, timeout_s: float = 120.0) -> Result:
    """Run a shell command (bash if there is one) in the workspace, and wait until it ends.

    You get what it wrote, both streams in the order they came, and its exit code if that is not 0. Long output is shown by its beginning
    and its end, and kept whole as a file. Each call is a shell of its own: variables and `cd` do not last, files do. There is no terminal
    and no input. Whatever it leaves running is ended with it.

    Args:
        command: what to run, as in `pytest -q tests | tail -20`
        timeout_s: after how many seconds it is ended
    """  # noqa: E501
    _check_time(timeout_s)
    if "\0" in command or not command.strip():
        raise InvalidValue("command", "it is empty, or holds a zero character", "pass a command")
    if len(command.encode("utf-8", "surrogatepass")) > _COMMAND_MAX:
        raise InvalidValue(
            "command",
            f"it is longer than {_COMMAND_MAX:,} bytes",
            "write it to a file with write_file, and run that",
        )
    return _command_result(
        sandbox,
        sandbox.exec(["/bin/sh", "-c", _BASH, "sh", command], limits=_time_only(timeout_s)),
        "shell",
        timeout_s,
    )


@tool(effect="at_most_once", effect_of=class_of_commands)
def python(code: str, sandbox: Sandbox, timeout_s: float = 120.0) -> Result:
    """Run Python code in the workspace with the sandbox's own python3, as a program of its own, and wait until it ends.

    You get what it wrote, a traceback if it failed, and its exit code if that is not 0: print what you want to know. Nothing lasts from
    one call to the next but files. Long output is shown by its beginning and its end, and kept whole as a file.

    Args:
        code: a whole program
        timeout_s: after how many seconds it is ended
    """  # noqa: E501
    _check_time(timeout_s)
    if not code.strip():
        raise InvalidValue("code", "there is none", "pass a program")
    ran = sandbox.exec(
        ["python3", "-c", _PYTHON],
        stdin=code.encode("utf-8", "surrogatepass"),
        limits=_time_only(timeout_s),
    )
    return _command_result(sandbox, ran, "python", timeout_s)


def _check_time(timeout_s: float) -> None:
    if not 0 < timeout_s <= _TIME_MAX_S:
        raise InvalidValue(
            "timeout_s", f"{timeout_s} is no time to wait", f"pass seconds, up to {_TIME_MAX_S:g}"
        )


def _time_only(timeout_s: float) -> Limits:
    """Limit the time; the other limits are those of the sandbox, since a call can only
    narrow them.
    """
    return Limits(
        time_s=timeout_s,
        memory_mb=None,
        processes=None,
        open_files=None,
        output_mb=None,
        disk_mb=None,
    )


def _command_result(sandbox: Sandbox, ran: Ran, name: str, timeout_s: float) -> Result:
    text, whole = _output_text(ran.output)
    parts: list[Any] = [
        _with_end(text, _ending_note(ran, min(timeout_s, _time_limit(sandbox.placement))))
    ]
    if not whole:
        parts.append(sandbox.keep(ran.output, f"{name}-output.txt"))
    return Result(
        parts,
        exit_code=ran.exit_code,
        delta={"output_bytes": ran.output.size, "killed": ran.killed},
    )


def _time_limit(placement: Placement) -> float:
    """Return the longest time that a command may take in the sandbox."""
    limits = (
        cast("Mapping[str, Json]", placement.detail).get("limits")
        if isinstance(placement.detail, Mapping)
        else None
    )
    found = (
        cast("Mapping[str, Json]", limits).get("time_s") if isinstance(limits, Mapping) else None
    )
    return float(found) if isinstance(found, (int, float)) else float("inf")


def _ending_note(ran: Ran, timeout_s: float) -> str:
    """Return a note on how the command ended, if it is needed."""
    if ran.killed:
        why = (
            f"it ran longer than {timeout_s:g} s"
            if ran.killed == "time"
            else _WHY.get(ran.killed, ran.killed)
        )
        return f"[ended before it was done: {why} (limit: {ran.killed}); exit code {ran.exit_code}]"
    if ran.exit_code:
        return f"[exit code {ran.exit_code}]"
    return "" if ran.output.size else "[no output; exit code 0]"


def _with_end(text: str, ending: str) -> str:
    return (
        f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{ending}" if ending else text
    )


def _output_text(output: Output) -> tuple[str, bool]:
    """Return the output to show, and True if it is complete, character for character."""
    if output.size <= 4 * SHOWN_MAX:  # no character has more bytes
        try:
            text = b"".join(output.pieces()).decode()
            if len(text) <= SHOWN_MAX:
                return text, True
        except UnicodeDecodeError:
            pass
    return output.view(SHOWN_MAX), False
