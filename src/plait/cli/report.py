"""The report of `plait doctor`: its checks, as JSON and as text."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Literal

import click
import msgspec

from plait.cli.render import count_text

NO_SANDBOX = "none, so tools are refused a sandbox here"
APART = " | "  # between backends
Status = Literal["ok", "warn", "fail"]


class Check(msgspec.Struct, frozen=True):
    """One check and its result."""

    name: str
    status: Status
    detail: str
    next: str | None = None  # None: nothing to do

    @property
    def lines(self) -> list[str]:
        """The detail as it is printed: each backend on a line of its own."""
        return [
            _clean(line)
            for line in (self.detail.split(APART) if self.name == "backends" else [self.detail])
        ]


class Report(msgspec.Struct, frozen=True):
    """All checks. `store` always has the same keys; None there means not known."""

    plait: str
    checks: list[Check]
    store: dict[str, Any]

    @property
    def ok(self) -> bool:
        return not self.count("fail")

    def count(self, status: Status) -> int:
        return sum(check.status == status for check in self.checks)


def to_json(report: Report) -> str:
    """Return the report in ASCII with escapes: a path may hold any character, and the terminal sees
    none of them.
    """
    checks = [msgspec.structs.asdict(check) for check in report.checks]
    return json.dumps(
        {"plait": report.plait, "ok": report.ok, "checks": checks, "store": report.store}, indent=2
    )


def print_report(report: Report) -> None:
    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        # a path may hold characters that the terminal's encoding has not
        reconfigure(errors="backslashreplace")
    if sys.stdout.isatty():
        _print_table(report)
    else:
        _print_plain(report)


def _print_plain(report: Report) -> None:
    wide = max(len(check.name) for check in report.checks)
    for check in report.checks:
        first, *more = check.lines
        click.echo(f"{check.status:4}  {check.name:{wide}}  {first}")
        for line in more:
            click.echo(f"{'':4}  {'':{wide}}  {line}")
        if check.next:
            click.echo(f"{'':4}  {'':{wide}}  next: {_clean(check.next)}")
    click.echo(_summary(report))


def _print_table(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colours = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in report.checks:
        table.add_row(
            Text(f"{check.status:4}", colours[check.status]),
            Text(check.name, "bold"),
            Text("\n".join(check.lines)),
        )
        if check.next:
            table.add_row("", "", Text(f"next: {_clean(check.next)}", colours[check.status]))
    # rich keeps bold and dim under NO_COLOR, which asks for plain text
    console = Console(color_system=None if os.environ.get("NO_COLOR") else "auto")
    console.print(table)
    console.print(Text(f"\n{_summary(report)}", colours["ok" if report.ok else "fail"]))


def _summary(report: Report) -> str:
    warned = f", {count_text(report.count('warn'), 'warning')}" if report.count("warn") else ""
    if report.ok:
        refused = any(
            check.name == "isolation" and check.detail.startswith(NO_SANDBOX)
            for check in report.checks
        )
        but = ", but not for sandboxes: tools that need one are refused here" if refused else ""
        return f"Ready{warned}{but}."
    return f"{report.count('fail')} of {count_text(len(report.checks), 'check')} failed{warned}."


def _clean(text: str) -> str:
    """Replace characters that a terminal would act on: controls, escapes, changes of direction."""
    return "".join(char if char.isprintable() else "?" for char in text)
