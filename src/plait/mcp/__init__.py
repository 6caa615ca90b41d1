"""Tools from MCP servers.

    git = MCPServer.stdio("mcp-server-git", "--repository", "./repo")
    agent = Agent(tools=[git, other_tool])

A server is foreign: what it says of its tools goes into prompts, and may be another thing tomorrow.
So a tool is the one that was first seen (its definition is pinned by hash) until somebody accepts
another; what cannot be seen in a description is not passed on to a model, and is listed in
`warnings`; and the process gets a few harmless variables of our environment instead of all.
"""

from __future__ import annotations

from plait.mcp.server import Change, MCPServer

__all__ = ["Change", "MCPServer"]
