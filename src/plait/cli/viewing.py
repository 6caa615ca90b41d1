"""The page of a store in a browser: `serve` and `view`."""

from __future__ import annotations

import sys
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from plait.cli.common import Options, writing
from plait.cli.documents import print_jsonl
from plait.cli.render import Out
from plait.errors import PageMissing
from plait.session import Session
from plait.session.ports import store_at
from plait.store import Store
from plait.view.built import BUILT, is_page_built

if TYPE_CHECKING:
    from plait.server.places import ServerNotice

LEFT_OUT = 8  # lines about things that are not in a file


@click.command("serve")
@click.option("--open", "is_opened", is_flag=True, help="Open the page in a browser.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="On this port of 127.0.0.1; else on one that belongs to the store.",
)
@click.option("--host", default="127.0.0.1", hidden=True)
@click.option("--read-only", is_flag=True, help="Take no acts, and start no runs.")
@writing
def serve_command(
    given: Options,
    is_opened: bool,
    port: int | None,
    host: str,
    read_only: bool,
) -> None:
    """Serve the sessions of a store as a page, to this machine.

    The address is printed once; it holds the token of this start. Ctrl-C ends the server, and no
    run.
    """
    from plait.server.serving import check_host

    check_host(host)
    _serve(given, store_at(given.store), "/", port, is_opened=is_opened, read_only=read_only)


@click.command("view")
@click.argument("session", metavar="[S | A..B]", default="@")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the page as one file, which needs no server.",
)
@click.option(
    "--without",
    type=click.Choice(["files", "prompts", "blobs"]),
    multiple=True,
    help="With -o: leave these out.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="If a server has to be started: on this port of 127.0.0.1.",
)
@click.option("--no-open", is_flag=True, help="Print the address, and open no browser.")
@writing
def view_command(
    given: Options,
    session: str,
    output: Path | None,
    without: tuple[str, ...],
    port: int | None,
    no_open: bool,
) -> None:
    """Open a session in a browser; S@42 at event 42. Without S, the one written to last. A..B
    compares two.

    A server that runs for this store is used; else one is started, until Ctrl-C. With -o nothing
    is started: the page and its data are written as one file.
    """
    if output is not None and output.name in ("", "-"):
        raise click.UsageError("-o takes the name of a file.")
    if without and output is None:
        raise click.UsageError("--without is for a file: name it with -o.")
    left, right = given.open_range(session) if ".." in session else (given.open(session), None)
    if output is not None:
        _write_file(given, left, right, output, without)
        return
    from plait.server.places import running_servers, state_folder

    store = store_at(given.store)
    path = (
        page_path(left, is_placed="@" in session.removeprefix("@"))
        if right is None
        else f"/compare/{left.short}@{left.seq}..{right.short}@{right.seq}"
    )
    running = running_servers(state_folder(store))
    if not running:
        _serve(given, store, path, port, is_opened=not no_open)
        return
    _tell(given, running[0], path, is_opened=not no_open)


def _write_file(
    given: Options,
    session: Session,
    other: Session | None,
    path: Path,
    without: tuple[str, ...],
) -> None:
    """Write the page as one file, and say what is not in it."""
    from plait.view.file import LARGE, SUBJECTS, write_file

    wanted = [name for name in SUBJECTS if name in without]
    written = write_file(session, path, made=Out().now, other=other, without=wanted)
    if given.form != "text":
        print_jsonl([msgspec.to_builtins(written)])
        return
    click.echo(f"{written.path}  {written.size:,} bytes")
    out = Out(stderr=True)
    for line in written.left_out[:LEFT_OUT]:
        out.hint(f"not in it: {line}")
    if len(written.left_out) > LEFT_OUT:
        out.hint(f"… and {len(written.left_out) - LEFT_OUT:,} more")
    if written.size > LARGE:
        largest = sorted(written.sizes.items(), key=itemgetter(1), reverse=True)[:4]
        sizes = ", ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in largest)
        out.hint(f"it is large: {sizes}. Leave out some: --without files, prompts or blobs")


def page_path(session: Session, *, is_placed: bool) -> str:
    """Return the path of a session on the page; `is_placed`: at this place, also when it grows."""
    return f"/s/{session.short}@{session.seq}" if is_placed else f"/s/{session.short}"


def _serve(
    given: Options,
    store: Store,
    path: str,
    port: int | None,
    *,
    is_opened: bool,
    read_only: bool = False,
) -> None:
    from plait.server.serving import serve

    def ready(notice: ServerNotice) -> None:
        _tell(given, notice, path, is_opened=is_opened)
        if given.form == "text":
            Out(stderr=True).hint("Ctrl-C ends it")

    serve(
        store,
        actor=given.actor_name,
        folder=Path.cwd(),
        port=port,
        read_only=read_only,
        ready=ready,
    )


def _tell(given: Options, notice: ServerNotice, path: str, *, is_opened: bool) -> None:
    """Print the address of a page, and open it if that is wanted."""
    address = notice.address(path)
    if given.form == "json":
        print_jsonl([{"address": address, "port": notice.port, "pid": notice.pid}])
    else:
        click.echo(address)
    sys.stdout.flush()
    if not is_page_built():
        click.echo(f"plait: {PageMissing(str(BUILT))}", err=True)
    if is_opened:
        _open_browser(address)


def _open_browser(address: str) -> None:
    """Open an address. Without a browser it stands on the terminal."""
    import webbrowser

    with suppress(webbrowser.Error):
        webbrowser.open(address)
