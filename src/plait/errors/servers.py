"""Errors about MCP servers."""

from __future__ import annotations

from plait.errors.base import PlaitError


class ServerError(PlaitError):
    """An MCP server failed, or could not be reached.

    Raised inside a tool, it becomes the failure that is recorded.
    """

    unknown = False  # True: the call may have happened all the same


class ServerUnreachable(ServerError):
    """It could not be started or reached; nothing was called."""

    def __init__(self, server: str, why: str, stderr: str = "") -> None:
        self.server, self.why, self.stderr = server, why, stderr
        super().__init__(
            f"{server} cannot be reached: {why}.{_last(stderr)} Nothing was called; check how it is"
            " started, then try again."
        )


class ServerClosed(ServerError):
    """Used after close()."""

    def __init__(self, server: str) -> None:
        self.server = server
        super().__init__(f"{server} was closed. Make a new MCPServer.")


class ServerLost(ServerError):
    """It went away during a call."""

    unknown = True

    def __init__(self, server: str, tool: str, why: str, stderr: str = "") -> None:
        self.server, self.tool, self.why, self.stderr = server, tool, why, stderr
        super().__init__(
            f"{server} went away during {tool!r}: {why}.{_last(stderr)} Whether the call took"
            " effect is not known: find out before calling again. The next call connects anew."
        )


class ServerSilent(ServerError):
    """It did not answer in time."""

    unknown = True

    def __init__(self, server: str, tool: str, timeout_s: float, stderr: str = "") -> None:
        self.server, self.tool, self.timeout_s, self.stderr = server, tool, timeout_s, stderr
        super().__init__(
            f"{server} did not answer {tool!r} within {timeout_s:g} s.{_last(stderr)} Whether the"
            " call took effect is not known: find out before calling again, or give it a longer"
            " timeout_s."
        )


class CallFailed(ServerError):
    """The server says that the call failed, in these words."""

    def __init__(self, server: str, tool: str, message: str) -> None:
        self.server, self.tool, self.message = server, tool, message
        super().__init__(message)


class ToolGone(ServerError):
    """The server does not offer the tool any more."""

    def __init__(self, server: str, tool: str) -> None:
        self.server, self.tool = server, tool
        super().__init__(
            f"{server} does not offer {tool!r} any more. Nothing was called; changes() shows what"
            " it offers now."
        )


def _last(stderr: str) -> str:
    return f" It wrote last: {stderr!r}." if stderr else ""
