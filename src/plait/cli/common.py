"""The options that all commands have: the address of the store, the form of the output, the
principal.

Looking never makes a store: only `init` and `new` do, and `migrate` on a server. The principal that
writes is named with --as, else by PLAIT_ACTOR, else by the login.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import click

from plait.cli.exits import FAILED, NOT_FOUND, ShellError
from plait.errors import BadAddress, InvalidValue, MalformedJson, NoStore, UnknownRevision
from plait.event import Json, parse
from plait.event.kinds import Budget
from plait.ids import LogId, house_of, short
from plait.session import Session
from plait.session.finding import open_range
from plait.session.listing import list_rows, session_row
from plait.session.ports import store_at, writer_of
from plait.store import FOLDER, Store, canonical_address, find_open, locate, store_exists
from plait.store.postgres.address import is_postgres
from plait_shell.groups import nearest_names

Form = Literal["text", "json", "jsonl"]
NEAR_MAX = 300  # sessions among which a name that is near is looked for
Command = TypeVar("Command", bound=Callable[..., Any])


class Options(NamedTuple):
    """The values of the options that all commands have."""

    address: str | None  # None: PLAIT_STORE, else the nearest .plait upward, else here
    form: Form = "text"
    actor: str | None = None  # None: the principal of this process

    @property
    def store(self) -> str:
        """The address of a store that exists."""
        address = address_of(self.address)
        # memory ends with its process
        if find_open(address) is None and (
            address.startswith("memory:") or not store_exists(address)
        ):
            raise NoStore(address)
        return address

    @property
    def new_store(self) -> str:
        """The address of a store that exists, or can be made in a folder that exists."""
        address = address_of(self.address)
        scheme, _, place = address.partition(":")
        folder = os.path.dirname(place)
        if scheme == "sqlite" and not store_exists(address) and not os.path.isdir(folder):
            raise BadAddress(address, f"there is no folder {folder}, and one may be mistyped")
        return address

    @property
    def actor_name(self) -> str:
        return self.actor or writer_of(None).principal()

    def open(self, name: str) -> Session:
        try:
            return Session.open(name, store=self.store)
        except UnknownRevision as error:
            raise near_error(error, self.store) from error

    def open_last(self, name: str) -> Session:
        """Open a session to append to. A value in the past is refused: nothing can be appended
        there.
        """
        value = self.open(name)
        if value.reload() != value:
            raise click.UsageError(
                f"{name} is in the past: nothing can be appended there. Branch off with `plait fork"
                f" {name} LABEL`, or go back with `plait rewind {value.short} {value.seq}`."
            )
        return value

    def open_range(self, name: str) -> tuple[Session, Session]:
        return open_range(Session, name, store=self.store)


def near_error(error: UnknownRevision, address: str) -> Exception:
    """Return the error of a name that is none, with the names that are near to it."""
    name = error.text.partition("@")[0].partition(":")[0]
    rows = islice(list_rows(store_at(address), {}, None, None, NEAR_MAX), NEAR_MAX)
    known = [(str(row["label"] or ""), short(LogId(str(row["log"])))) for row in rows]
    names = dict.fromkeys([each for pair in known for each in pair if each])
    near = nearest_names(name, list(names)) if name else []
    if not near:
        return error
    question = f"Did you mean {' or '.join(near)}?"
    told = f"{error.text!r}: {error.why}. {question} `plait ls` shows all."
    return ShellError(error, [told], details={"near": near})


def address_of(given: str | None) -> str:
    """Return the one spelling of an address; without one, the address that `open_store()` would
    find.
    """
    if given is not None:
        address, inside = (
            canonical_address(given),
            canonical_address(os.path.join(given, FOLDER)) if ":" not in given else None,
        )
        # as git: the folder is enough
        return (
            inside
            if inside is not None and not store_exists(address) and store_exists(inside)
            else address
        )
    try:
        return locate(Path.cwd(), os.environ)
    # the current folder was removed, or lies below one that may not be entered
    except OSError as error:
        raise click.UsageError(
            f"the current folder cannot be used: {error.strerror}. Go elsewhere, or pass --store"
            " /FOLDER."
        ) from error


def store_of(session: Session) -> Store:
    return store_at(session.store)


def names_of(store: Store, logs: Iterable[LogId]) -> dict[LogId, str]:
    """Return a name for each session that can be typed: its label, if no other session has that
    label, else the short id. The store's own log is called the house.
    """
    house = house_of(store.id)
    return {
        log: "house" if log == house else _label(store, log) or short(log)
        for log in dict.fromkeys(logs)
    }


def _label(store: Store, log: LogId) -> str | None:
    label = session_row(store, log).get("label")
    alone = (
        label is not None and len(store.rows("session", "session", {"label": label}, limit=2)) == 1
    )
    return str(label) if alone else None


def command_line(given: Options, verb: str, *words: str) -> str:
    """Return a command as it has to be typed, with --store if that was given."""
    where = ["--store", shlex.quote(given.address)] if given.address is not None else []
    return " ".join(["plait", verb, *words, *where])


def store_option(given: Options) -> str:
    return f" --store {shlex.quote(given.address)}" if given.address is not None else ""


# ── options ──────────────────────────────────────────────────────────────────────────────────


def listing(command: Command) -> Command:
    """Decorate a command that only reads."""
    return _add_options(command, _store, _json, _jsonl)


def writing(command: Command) -> Command:
    """Decorate a command that appends."""
    return _add_options(command, _store, _as, _json)


def running(command: Command) -> Command:
    """Decorate a command that runs a workflow: for programs it has one document in the end, or
    lines while it runs.
    """
    return _add_options(command, _store, _as, _json, _run_lines)


def acting_command(command: Command) -> Command:
    """Decorate a command that acts on the world. It acts for the principal of the session, so it
    has no --as.
    """
    return _add_options(command, _store, _json)


def between_stores(command: Command) -> Command:
    """Decorate a command whose arguments name the stores."""
    return _add_options(command, _as, _json)


def talking_command(command: Command) -> Command:
    """Decorate a command that talks with a person: it has no output for programs."""
    return _add_options(command, _store)


def serving_command(command: Command) -> Command:
    """Decorate a command that serves one store or several: --store may be said again."""
    return _add_options(command, _stores)


def other_stores() -> tuple[str, ...]:
    """Return the addresses of --store after the first, in a serving command."""
    return tuple(click.get_current_context().meta.get(_OTHERS, ()))


def talking(command: Command) -> Command:
    """Decorate a command that is a dialogue: for programs it has lines, and no one document."""
    return _add_options(command, _store, _as, _lines)


_OTHERS = "plait.other_stores"
_STORE_HELP = (
    "A folder, or 'postgresql://USER@HOST/DATABASE'. Else PLAIT_STORE, else the nearest .plait."
)


def _first_store(
    context: click.Context, _: click.Parameter, addresses: tuple[str, ...]
) -> str | None:
    context.meta[_OTHERS] = addresses[1:]
    return addresses[0] if addresses else None


_store = click.option("--store", "address", metavar="ADDRESS", help=_STORE_HELP)
_stores = click.option(
    "--store",
    "address",
    metavar="ADDRESS",
    multiple=True,
    callback=_first_store,
    help=f"{_STORE_HELP} Again for each other store.",
)
_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document, for programs."
)
_jsonl = click.option("--jsonl", "as_jsonl", is_flag=True, help="Print one JSON document per line.")
_lines = click.option(
    "--jsonl",
    "--json",
    "as_jsonl",
    is_flag=True,
    help="Print one JSON document per line, for programs: deltas, events and answers.",
)
_run_lines = click.option(
    "--jsonl",
    "as_jsonl",
    is_flag=True,
    help="Print deltas and events as they come, one JSON document per line, for programs.",
)
_as = click.option(
    "--as",
    "actor",
    metavar="PRINCIPAL",
    help="Who does it, as in human:ana or service:ci. Else PLAIT_ACTOR, else you.",
)


def _add_options(command: Callable[..., Any], *options: Callable[[Any], Any]) -> Any:
    @functools.wraps(command)
    def call(
        address: str | None = None,
        as_json: bool = False,
        as_jsonl: bool = False,
        actor: str | None = None,
        **rest: Any,
    ) -> Any:
        if as_json and as_jsonl:
            raise click.UsageError("--json and --jsonl exclude each other.")
        if address is not None and is_postgres(address):
            address = canonical_address(address)  # hints repeat it: no password is left in it
        return command(
            Options(address, "jsonl" if as_jsonl else "json" if as_json else "text", actor), **rest
        )

    for option in reversed(options):
        call = option(call)
    return call


# Options of commands that run a workflow.
approve_option = click.option(
    "--approve",
    type=click.Choice(["ask", "park", "all"]),
    help=(
        "How consent is got: ask at the terminal (as a rule, if there is one), park the run until"
        " `plait approve`, or allow all unseen."
    ),
)


quiet_option = click.option("--quiet", "-q", is_flag=True, help="Tell nothing while it runs.")


workflow_option = click.option(
    "--workflow",
    "target",
    metavar="TARGET",
    help="The program, FILE.py:NAME or module:NAME, if it is not where it was.",
)


def filters(command: Any) -> Any:
    """Add the options that choose events."""
    for option in (
        click.option("--until", metavar="WHEN", help="Up to then."),
        click.option(
            "--since",
            metavar="WHEN",
            help="From then on: 10m, 2h, 3d back from the last event, or 2026-11-15T20:30 (UTC).",
        ),
        click.option(
            "--actor",
            "by",
            metavar="WHO",
            help="By this principal, as in agent:team/lead, or its last parts: agent:lead, lead.",
        ),
        click.option(
            "--kind",
            "kinds",
            metavar="KIND",
            multiple=True,
            help="Of this kind, as in MessageSaid; may be repeated.",
        ),
    ):
        command = option(command)
    return command


def limits(*others: str) -> Callable[[Any], Any]:
    """Add the options of a budget. `others` are beginnings of further names for them."""

    def decorate(command: Any) -> Any:
        for name, type, what in reversed(_LIMITS):
            names = [f"--{name}-max", *(f"--{other}-{name}" for other in others)]
            command = click.option(
                *names,
                f"{name.replace('-', '_')}_max",
                type=type,
                help=f"{what}; unlimited if left out.",
            )(command)
        return command

    return decorate


_COUNT, _AMOUNT = click.IntRange(min=0), click.FloatRange(min=0)
_LIMITS: tuple[tuple[str, Any, str], ...] = (
    ("tokens", _COUNT, "At most so many tokens"),
    ("cost-usd", _AMOUNT, "At most so many US dollars"),
    ("wall-s", _AMOUNT, "At most so many seconds"),
    ("steps", _COUNT, "At most so many replies of models"),
    ("tool-calls", _COUNT, "At most so many calls of tools"),
)


def budget_of(limits: dict[str, Any]) -> Budget | None:
    return Budget(**limits) if any(limit is not None for limit in limits.values()) else None


LIMIT_NAMES = tuple(name.removesuffix("_max") for name in Budget.__struct_fields__)


def parse_budget(text: str | None, where: str = "--budget") -> Budget | None:
    """Return the budget that LIMITS stand for; `where` is their name on the command line."""
    if text is None:
        return None
    found: dict[str, Any] = {}
    for name, limit in pairs(where, text.split(",")).items():
        value = value_of(limit)
        if name not in LIMIT_NAMES:
            raise InvalidValue(
                where, f"there is no limit {name!r}", f"name some of {', '.join(LIMIT_NAMES)}"
            )
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidValue(where, f"{limit!r} is not a number", f"write {name}=NUMBER")
        found[f"{name}_max"] = value
    return Budget(**found)


class Negative(click.Command):
    """A command whose places may be negative: in `rewind S -1`, -1 is no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.ignore_unknown_options = any(is_number(arg) for arg in args)
        return super().parse_args(ctx, args)


# ── values ───────────────────────────────────────────────────────────────────────────────────


def is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 19


def pairs(name: str, given: Sequence[str]) -> dict[str, str]:
    """Parse `k=v`, given several times."""
    for text in given:
        if not text.partition("=")[0] or "=" not in text:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE.", param_hint=f"'{name}'")
    return {key: value for key, _, value in (text.partition("=") for text in given)}


def value_of(text: str) -> Json:
    """Return the value if the text is JSON, else the text itself."""
    try:
        return parse(text.encode("utf-8", "surrogatepass"))
    except (MalformedJson, InvalidValue):  # InvalidValue: NaN and the like
        return text


def text_of(text: str) -> str:
    """Return the text; for `-`, read standard input, without its last line break."""
    if text != "-":
        return text
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        step = "send text, or attach a file with --file"
        raise _input_error(f"byte {error.start}", step) from error


def read_line() -> str:
    """Return the next line of standard input; "" at its end.

    It is read as bytes, so that no line is in a buffer where `lines_left` would not see it.
    """
    try:
        return sys.stdin.buffer.readline().decode(sys.stdin.encoding)
    except UnicodeDecodeError as error:
        raise _input_error("a line") from error


def lines_left() -> list[str]:
    """Read the lines that stand in standard input by now, without waiting for more."""
    if sys.stdin.isatty():
        return []
    data: bytes | None = None
    with _unblocked_input():
        data = sys.stdin.buffer.read()
    text = (data or b"").decode(sys.stdin.encoding, "replace")
    return [line.strip() for line in text.split("\n") if line.strip()]


@contextmanager
def _unblocked_input() -> Generator[None]:
    """Let reads of standard input return the bytes that are there."""
    try:
        number = sys.stdin.fileno()
    except OSError:  # a file in memory: nothing is to come
        yield
        return
    before = os.get_blocking(number)
    os.set_blocking(number, False)
    try:
        yield
    finally:
        os.set_blocking(number, before)


def _input_error(why: str, step: str = "send text") -> InvalidValue:
    return InvalidValue("standard input", f"{why} is not UTF-8", step)


def text_or_file(option: str, text: str) -> str:
    """Return the text of an option; that of a file, if it is @FILE."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else FAILED
        wrong = InvalidValue(
            option, f"{text[1:]} cannot be read: {error}", "name a file of text after the @"
        )
        raise ShellError(wrong, [str(wrong)], code) from error
