"""`plait memory`: the statements that outlive sessions."""

from __future__ import annotations

import click

from plait.cli.memory_acting import (
    memory_approve,
    memory_forget,
    memory_rebuild,
    memory_reject,
    memory_rollback,
)
from plait.cli.memory_ingest import memory_ingest
from plait.cli.memory_page import memory_show
from plait.cli.memory_reading import (
    memory_influence,
    memory_ls,
    memory_pending,
    memory_search,
    memory_used,
    memory_why,
)


@click.group("memory", no_args_is_help=False)
def memory() -> None:
    """Memories, their evidence and history: ls, show, search, …

    M is a memory: the start of its id, with or without m: before it.
    """


for command in (
    memory_ls,
    memory_show,
    memory_search,
    memory_why,
    memory_influence,
    memory_used,
    memory_pending,
    memory_approve,
    memory_reject,
    memory_rollback,
    memory_forget,
    memory_ingest,
    memory_rebuild,
):
    memory.add_command(command)
