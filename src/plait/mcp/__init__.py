"""Tools from MCP servers.

    git = MCPServer.stdio("mcp-server-git", "--repository", "./repo")
    agent = Agent(tools=[git, other_tool])

A server is foreign: its descriptions of tools go into prompts, and may change tomorrow. So a tool
stays as it was first seen (its definition is pinned by hash) until another one is accepted; hidden
characters of a description are not passed on to a model, and are listed in `warnings`; and the
process gets a few harmless variables of our environment instead of all.
"""

from __future__ import annotations

from plait.mcp.server import MCPServer, ToolChange

__all__ = ("MCPServer", "ToolChange")
