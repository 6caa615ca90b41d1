"""Small servers of our own, each a script that is run as a child."""

from __future__ import annotations

import sys
from pathlib import Path

# Run by the test's own Python: the SDK is installed beside us.
_HEAD = """
import asyncio, base64, os, signal, sys, threading, time
from pathlib import Path
from typing import Annotated
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import BlobResourceContents, CallToolResult, EmbeddedResource, ResourceLink, TextContent, TextResourceContents, Tool
from pydantic import Field

HERE = Path(__file__).parent
with (HERE / "pids").open("a") as pids:
    print(os.getpid(), file=pids)
server = MCPServer("small")
"""  # noqa: E501

# Speaks the protocol of 2025 by hand, and starts twenty times faster than the SDK does.
_PLAIN_HEAD = r"""
import json, os, signal, sys, threading
from pathlib import Path

with (Path(__file__).parent / "pids").open("a") as pids:
    print(os.getpid(), file=pids)
TOOLS = {}
def tool(function):
    TOOLS[function.__name__] = function
    return function
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def changed():
    send(method="notifications/tools/list_changed")
"""

_PLAIN_RUN = r"""
def answer(method, params):
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}}
        return {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": {"name": "plain", "version": "1"}}
    if method == "tools/list":
        schema = {"type": "object", "properties": {}}
        return {"tools": [{"name": name, "description": one.__doc__, "inputSchema": schema} for name, one in TOOLS.items()]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": str(TOOLS[params["name"]](**params.get("arguments", {})))}]}

for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        result = answer(asked["method"], asked.get("params", {}))
        if result is None:
            send(id=asked["id"], error={"code": -32601, "message": "Method not found"})
        else:
            send(id=asked["id"], result=result)
"""  # noqa: E501


class Small:
    """A server in a folder, made with the SDK. Its tools are what the file says when it starts."""

    head, run = _HEAD, "\nserver.run()\n"

    def __init__(self, folder: Path, tools: str) -> None:
        self.folder, self.script = folder, folder / "small.py"
        self.write(tools)

    def write(self, tools: str) -> None:
        self.script.write_text(self.head + tools + self.run)

    @property
    def command(self) -> tuple[str, str]:
        return sys.executable, str(self.script)

    def pids(self) -> list[int]:
        """Of all its processes, from the first to the last."""
        file = self.folder / "pids"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def alive(self) -> list[int]:
        return [pid for pid in self.pids() if is_alive(pid)]


class Plain(Small):
    """The same without the SDK: for what happens to a process, and is no question
    of what it says.
    """

    head, run = _PLAIN_HEAD, _PLAIN_RUN


def is_alive(pid: int) -> bool:
    """True if it runs; one that has ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
