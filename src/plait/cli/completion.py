"""Completion for bash, zsh and fish: commands, options, sessions by id and label, places, paths,
asks and keys.

Completing never writes, makes no store and prints no error: what cannot be read is not offered.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Literal

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
)

from plait.cli.common import Options
from plait.session.safe_text import clean
from plait_shell.groups import COMPLETE_VARIABLE

SHELLS = ("bash", "zsh", "fish")
SESSIONS_MAX, STEPS_MAX, FILES_MAX = 50, 40, 200
_Kind = Literal["session", "file", "ask", "key", "memory", "path"]
_KINDS: dict[str, _Kind] = {
    "S:PATH": "file",
    "S[:PATH]": "file",
    "ID": "ask",
    "M": "memory",
    "M…": "memory",
    "[M]": "memory",
    "TARGET": "path",
    "[TARGET]": "path",
    "DIR": "path",
    "[DIR]": "path",
}
_SESSION_NAMES = ("S", "A", "B", "OTHER")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS), required=False)
def completion_command(shell: str | None) -> None:
    """Print the script that completes commands in your shell.

    bash, in ~/.bashrc: eval "$(plait completion bash)". zsh, in ~/.zshrc: eval "$(plait completion
    zsh)". fish: plait completion fish > ~/.config/fish/completions/plait.fish. Without an argument
    it is the shell that SHELL names.
    """
    name = shell or os.path.basename(os.environ.get("SHELL", ""))
    if name not in SHELLS:
        raise click.UsageError(f"name the shell: plait completion {'|'.join(SHELLS)}.")
    make = get_completion_class(name)
    root = click.get_current_context().find_root().command
    assert make is not None
    click.echo(make(root, {}, "plait", COMPLETE_VARIABLE).source())


class _BashNames(BashComplete):
    """Completion in bash, which takes @, : and = for ends of words."""

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n' line="${COMP_LINE:0:COMP_POINT}" word breaks kind value
    local -a words
    IFS=' ' read -r -a words <<< "$line"
    [[ "$line" == *' ' ]] && words+=("")
    word="${words[${#words[@]}-1]}"
    breaks="${word%%"${word##*[@:=]}"}"
    COMPREPLY=()
    while IFS=',' read -r kind value; do
        case "$kind" in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("${value#"$breaks"}") ;;
        esac
    done < <(COMP_WORDS="$line" COMP_CWORD=$((${#words[@]}-1)) \\
        %(complete_var)s=bash_complete %(prog_name)s)
    [[ ${#COMPREPLY[@]} == 1 && "${COMPREPLY[0]}" == *[@:] ]] && compopt -o nospace
    return 0
}
complete -F %(complete_func)s %(prog_name)s
"""

    @staticmethod
    def _check_version() -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Start no shell to print a script."""


add_completion_class(_BashNames, "bash")


def add_names(command: click.Command) -> click.Command:
    """Let the arguments of a command complete the names that there are."""
    for parameter in command.params:
        kind = _kind_of(parameter)
        if kind is not None and type(parameter.type) is type(click.STRING):
            parameter.type = _NameType(kind)
    return command


def _kind_of(parameter: click.Parameter) -> _Kind | None:
    name = (parameter.metavar or "").strip()
    if isinstance(parameter, click.Option):
        return "session" if name == "S" else None
    if name in _KINDS:
        return _KINDS[name]
    if name.strip("[].…").split("[")[0].split("@")[0].split(" ")[0].split("|")[0] in _SESSION_NAMES:
        return "session"
    return "key" if parameter.name in ("key", "what") else None


class _NameType(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  click 8.1
    """A text, with completion by names."""

    name = "text"

    def __init__(self, kind: _Kind) -> None:
        self._kind: _Kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        if self._kind == "path":
            return [CompletionItem(incomplete, type="file")]
        found = dict[str, CompletionItem]()
        # a store that is gone, a name that is none: nothing is offered
        with suppress(Exception):
            for value, told in _FINDERS[self._kind](ctx, incomplete):
                if value.startswith(incomplete):
                    # a name with a newline or an escape would forge candidates
                    if clean(value) == value and "\n" not in value:
                        found.setdefault(value, CompletionItem(value, help=clean(told)))
        return list(found.values())


# ── names ────────────────────────────────────────────────────────────────────────────────────

_Names = Iterator[tuple[str, str]]  # each with words about it


def _options_of(ctx: click.Context) -> Options:
    return Options(ctx.params.get("address"))


def _session_names(ctx: click.Context, incomplete: str) -> _Names:
    from plait.cli.listing import first_words
    from plait.session import Session
    from plait.session.ports import store_at

    name, at, _ = incomplete.partition("@")
    if at and name:
        yield from _place_names(ctx, name)
        return
    store = store_at(_options_of(ctx).store)
    yield "@", "the session written to last"
    for session in islice(Session.list(store=store), SESSIONS_MAX):
        told = session.title or first_words(store, session)
        if session.lineage.label:
            yield session.lineage.label, told
        yield session.short, told


def _place_names(ctx: click.Context, name: str) -> _Names:
    """Yield the places of the last steps of a session."""
    from plait.cli.steps import step_text
    from plait.outline.outlines import Outlines
    from plait.outline.steps import step_shapes
    from plait.session.ports import store_at

    session = _options_of(ctx).open(name)
    outlines = Outlines(store_at(session.store))
    record = outlines.record(session.id)
    indexes = range(max(record.step_count - STEPS_MAX, 0), record.step_count)
    for step in step_shapes(outlines, record, indexes):
        yield f"{name}@{step.seq}", step_text(step)


def _file_names(ctx: click.Context, incomplete: str) -> _Names:
    name, colon, _ = incomplete.partition(":")
    if not colon:
        for value, told in _session_names(ctx, incomplete):
            yield f"{value}:", told
        return
    session = _options_of(ctx).open(name or "@")
    for path in islice(session.files.paths(), FILES_MAX):
        yield f"{name}:{path}", ""


def _ask_names(ctx: click.Context, incomplete: str) -> _Names:
    from plait.cli.ask_lines import ask_headline
    from plait.session.inbox import all_waiting
    from plait.session.ports import store_at

    store = store_at(_options_of(ctx).store)
    for ask in all_waiting(store):
        if ask.kind != "timer":
            yield ask.event[: max(8, len(incomplete))], ask_headline(store, ask)


def _key_names(ctx: click.Context, incomplete: str) -> _Names:
    session = _options_of(ctx).open(str(ctx.params.get("session") or "@"))
    for key in session.facts:
        yield key, str(session.facts[key])
    for key, pending in session.pending.items():
        yield key, pending.what


def _memory_names(ctx: click.Context, incomplete: str) -> _Names:
    from plait.memory.memory import Memory

    for item in islice(Memory(store=_options_of(ctx).store).items(), SESSIONS_MAX):
        yield item.short, item.text


_FINDERS: dict[_Kind, Any] = {
    "session": _session_names,
    "file": _file_names,
    "ask": _ask_names,
    "key": _key_names,
    "memory": _memory_names,
}
