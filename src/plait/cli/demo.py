"""`plait demo`: a run to watch, with a folder to go on in."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from plait.cli.exits import INTERRUPTED, ShellError
from plait.cli.render import BAD, DIM, GAP, STRONG, Cell, Out, cell_width
from plait.cli.terminal import cut_text

if TYPE_CHECKING:
    from plait.demo.face import Answer, Span
    from plait.demo.folder import DemoFolder, Isolation
    from plait.demo.lanes import LiveRow
    from plait.demo.story import Story, StoryOptions

GOOD = "green"
PACE_S = 0.4  # seconds that the script waits on a terminal
_PLAIN = str.maketrans("│─┼├╮╯", "|-+|\\/")
_NAME = 14  # cells of a place
_YES, _NO, _EDIT = ("y", "yes"), ("n", "no"), ("e", "edit")


@click.command("demo")
@click.option("--open", "is_opened", is_flag=True, help="Watch it in the browser, too.")
@click.option(
    "--pace",
    "pace_s",
    metavar="SECONDS",
    type=click.FloatRange(0, 60),
    help=f"So long the script waits before each reply: {PACE_S} on a terminal, else 0.",
)
@click.option(
    "--model",
    metavar="NAME",
    help="Ask this model instead of the script: local, openai:gpt-5, anthropic:…",
)
@click.option("--again", is_flag=True, help="Remove plait-demo/ of an earlier demo first.")
@click.option("--kill-after", type=click.IntRange(1), hidden=True)
def demo_command(
    is_opened: bool, pace_s: float | None, model: str | None, again: bool, kill_after: int | None
) -> None:
    """Watch a run that is killed, resumed, questioned and checked, in 20 seconds.

    It makes plait-demo/ here, and leaves it: everything that it ends with can be typed. The model
    is a script, so no key is needed; everything else is real.
    """
    face = TerminalFace()
    face.line(Cell("plait demo", STRONG), "  a bug is mended, a process is killed, nothing is lost")
    if pace_s is None:
        pace_s = PACE_S if face.is_terminal else 0.0
    from plait.demo.folder import DemoRefused
    from plait.demo.story import StoryOptions

    if model is not None:
        from plait.model import find

        find(model)  # an unknown model is refused before anything is written
    try:
        _demonstrate(face, StoryOptions(pace_s, model, kill_after), is_opened, again)
    except DemoRefused as refused:
        raise ShellError(refused, str(refused).splitlines(), refused.code) from refused


def _demonstrate(face: TerminalFace, options: StoryOptions, is_opened: bool, again: bool) -> None:
    from plait.demo.folder import demo_folder, find_isolation, make_folder, remove_folder
    from plait.demo.story import Story

    folder = demo_folder(Path.cwd())
    if again:
        remove_folder(folder)
    _check_is_new(folder)
    isolation = find_isolation(folder.path.parent)
    make_folder(folder, isolation)
    _print_terms(face, isolation, options)
    story = Story(folder, isolation, face, options)
    with _interrupts(face, story):
        story.tell()


def _print_terms(face: TerminalFace, isolation: Isolation, options: StoryOptions) -> None:
    """Print what is real in the demo, and what is not."""
    model = f"the model is {options.model}" if options.model else "the model is a script"
    face.line(Cell(f"  In ./plait-demo/: {model}, everything else is real.", DIM))
    if isolation.missing:
        face.line(Cell(f"  Sandbox: {isolation.rung} only. {isolation.missing}.", BAD))
        face.line(Cell(f"  {isolation.fix}.", BAD))
    else:
        face.line(Cell(f"  Sandbox: {isolation.rung}, without network.", DIM))
    if options.pace_s and options.model is None:
        wait = f"{options.pace_s:g} s"
        face.line(
            Cell(f"  The script waits {wait} before each reply, so that you can follow.", DIM)
        )
    if os.environ.get("PLAIT_STORE"):
        face.line(Cell("  PLAIT_STORE is set: `unset PLAIT_STORE` before you go on there.", BAD))


def _check_is_new(folder: DemoFolder) -> None:
    from plait.demo.folder import NAME, DemoRefused, is_demo

    if not os.path.lexists(folder.path):
        return
    if not is_demo(folder):
        raise DemoRefused(
            f"{NAME}/ is there, and was not made by `plait demo`. Go to another folder.", 2
        )
    raise DemoRefused(
        f"{NAME}/ is there from an earlier demo. Go on in it: cd {NAME} && plait log @ --steps.\n"
        "Begin anew: plait demo --again",
        2,
    )


@contextmanager
def _interrupts(face: TerminalFace, story: Story) -> Generator[None]:
    """End every process on Ctrl-C, SIGTERM and SIGHUP, and name the command that goes on."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupt) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except KeyboardInterrupt:
        story.stop()
        if face.is_terminal:
            click.echo()
        click.echo(f"interrupted; go on with: {story.next_command}", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    finally:
        story.stop()
        for each, handler in before.items():
            signal.signal(each, handler)


class TerminalFace:
    """Shows the demo on stdout."""

    def __init__(self) -> None:
        self._out = Out()
        self.is_terminal = self._out.tty and sys.stdin.isatty()
        self._plain = not (sys.stdout.encoding or "").lower().startswith("utf")

    def line(self, *spans: Span | Cell | str) -> None:
        """Print a line; on a terminal it is cut to its width."""
        cells = [Cell(each) if isinstance(each, str) else Cell(*each) for each in spans]
        left = self._out.width
        fitted = list[Cell]()
        for cell in cells:
            text = cut_text(cell.text, left) if self._out.tty else cell.text
            fitted.append(Cell(text, cell.style))
            left -= cell_width(text)
        self._out.line(*fitted)
        sys.stdout.flush()

    def heading(self, number: int, text: str) -> None:
        self.line()
        self.line(Cell(f"{number}  {text}", STRONG))

    def row(self, row: LiveRow) -> None:
        from plait.cli.steps import color_of, duration_text, mark_of, step_text, style_of

        margin, step = row.margin, row.step
        if self._plain:
            margin = margin.translate(_PLAIN)
        color = color_of(row.color)
        if step is None:
            self.line(Cell(margin, color))
            return
        place = f"{row.name}@{step.seq}"
        head = [
            Cell(margin.replace("{}", mark_of(step, self._plain)), color),
            Cell(GAP),
            Cell(f"{place:<{_NAME}}", color),
        ]
        text, style = step_text(step), style_of(step)
        if step.type == "verdict":
            style = BAD if step.subject == "failed" else GOOD
        took = duration_text(step.took_us) if step.took_us and step.type == "tool" else ""
        gap = self._out.width - sum(cell_width(cell.text) for cell in [*head, Cell(text)])
        if self._out.tty and took and gap >= len(took) + len(GAP):
            self.line(*head, Cell(text, style), Cell(f"{took:>{gap}}", DIM))
        else:
            self.line(*head, Cell(text, style))

    def table(self, heads: tuple[str, ...], rows: Sequence[tuple[Span, ...]]) -> None:
        """Print rows in aligned columns; where they do not fit, the last one on its own line."""
        all_rows = [tuple(Cell(head, DIM) for head in heads), *[tuple(map(_cell, r)) for r in rows]]
        widths = [max(cell_width(row[at].text) for row in all_rows) for at in range(len(heads))]
        is_narrow = self._out.tty and sum(widths) + len(GAP) * len(widths) > self._out.width
        for row in all_rows:
            cells = [
                each
                for width, cell in zip(widths, row, strict=True)
                for each in (Cell(GAP), Cell(f"{cell.text:<{width}}", cell.style))
            ]
            if is_narrow:
                self.line(*cells[:-2])
                self.line(GAP, GAP, *cells[-2:])
            else:
                self.line(*cells)

    def command(self, *words: str) -> None:
        self.line(Cell(f"  $ plait {' '.join(words)}", STRONG))
        command = click.get_current_context().find_root().command
        command.main([*words, "--store", "plait-demo"], prog_name="plait", standalone_mode=False)

    def ask(self, question: str) -> Answer:
        from plait.cli.consent import read_line
        from plait.demo.face import Answer

        self.line(Cell(f"  {question}", STRONG))
        while True:
            said = read_line("  Allow it? [y]es / [n]o / [e]dit: ")
            word = "n" if said is None else said.strip().lower()
            if word in _YES:
                return Answer("yes")
            if word in _NO:
                return Answer("no")
            if word in _EDIT:
                command = read_line("  Run instead: ")
                if command and command.strip():
                    return Answer("edit", command.strip())


def _cell(span: Span) -> Cell:
    return Cell(span.text, span.style)
