"""`plait`: the command line.

Commands import heavy packages where they use them, so that `--help` is quick.
"""

from __future__ import annotations

import click

from plait.cli.bisecting import bisect_command
from plait.cli.branching import fork, merge, rewind
from plait.cli.chat import chat_command
from plait.cli.check import check_command
from plait.cli.cluster import cluster
from plait.cli.copying import copy_command
from plait.cli.cost import cost
from plait.cli.debugging import debug_command
from plait.cli.deploy import deploy
from plait.cli.doctor import doctor
from plait.cli.exits import CommandGroup
from plait.cli.feedback import feedback
from plait.cli.files import blame_command, cat, checkout, files_command
from plait.cli.finding import find
from plait.cli.history import log
from plait.cli.inbox import answer, approve, cancel, deny, inbox, resolve, send, signal
from plait.cli.listing import ls, runs
from plait.cli.mcp_serving import mcp_command
from plait.cli.memory import memory
from plait.cli.migrating import migrate_command
from plait.cli.places import gc, sandbox, to_command
from plait.cli.publishing import apply
from plait.cli.running import replay_command, resume_command, run_command
from plait.cli.sessions import show
from plait.cli.tail import tail
from plait.cli.tracing import diff_command, graph, influence, why
from plait.cli.verifying import verify_command
from plait.cli.viewing import serve_command, view_command
from plait.cli.whatif import whatif_command
from plait.cli.workers import submit_command, worker_command
from plait.cli.writing import (
    archive,
    close,
    decide,
    fact,
    grant,
    init,
    new,
    note,
    pause,
    require,
    retract,
    say,
    settle,
    todo,
    unpause,
    validate,
)


@click.group(
    "plait",
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(package_name="plait", prog_name="plait", message="%(prog)s %(version)s")
def main() -> None:
    """Sessions that are durable, branchable and provable.

    S is a session: its id, the start of it, or its label; @ is the one written to last. S@7 is its
    value at event 7, and S@-1 one event before the last. S@7:src/cart.py is a file as it was then.
    """


SECTIONS: dict[str, list[click.Command]] = {
    "Begin": [init, migrate_command, new, copy_command],
    "Run": [
        run_command,
        chat_command,
        resume_command,
        replay_command,
        whatif_command,
        debug_command,
        grant,
    ],
    "Cluster": [submit_command, worker_command, cluster, deploy],
    "Look": [view_command, serve_command, mcp_command, ls, runs, show, log, tail, find, cost],
    "Ask": [why, influence, graph, diff_command, bisect_command],
    "Memory": [memory],
    "Files": [to_command, files_command, cat, blame_command, checkout, apply, sandbox],
    "Branch": [fork, rewind, merge],
    "Record": [say, note, fact, decide, retract, todo, settle, require, validate, feedback],
    "People": [inbox, approve, deny, answer, resolve, send, signal, cancel],
    "End": [pause, unpause, close, archive],
    "Check": [check_command, verify_command, doctor, gc],
}
for commands in SECTIONS.values():
    for command in commands:
        main.add_command(command)
CommandGroup.sections = {
    title: [str(command.name) for command in commands] for title, commands in SECTIONS.items()
}
