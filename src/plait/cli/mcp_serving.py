"""Sessions for other agents: `mcp`."""

from __future__ import annotations

import click

from plait.cli.common import Options, writing


@click.command("mcp")
@click.option("--read-only", is_flag=True, help="Offer the tools that read alone.")
@writing
def mcp_command(given: Options, read_only: bool) -> None:
    """Serve the sessions of a store to an MCP client.

    The client starts this command, and talks over its standard input and output. It gets tools that
    list, read and fork sessions and say something in them; each is marked as reading or writing.
    Needs the extra [mcp].
    """
    from plait.server.session_tools import mcp_server

    mcp_server(given.store, given.actor, read_only=read_only).run("stdio")
