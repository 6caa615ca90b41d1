"""`plait demo`: a run to watch, with a folder to go on in."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from plait.cli.exits import INTERRUPTED, ShellError, code_of
from plait.cli.render import BAD, DIM, GAP, STRONG, Cell, Out, cell_width
from plait.errors import PlaitError

if TYPE_CHECKING:
    from plait.demo.face import ConsentAnswer, StyledText
    from plait.demo.folder import DemoFolder, Isolation
    from plait.demo.lanes import LiveRow
    from plait.demo.story import DemoStory, StoryOptions
    from plait.demo.worker import DemoProcess
    from plait.session import Session

GOOD = "green"
PACE_S = 0.4  # seconds that the script waits on a terminal
_PLAIN = str.maketrans("│─┼├╮╯", "|-+|\\/")
PAGE_WAITS = 100  # twentieths of a second for the address of the page
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
    """Watch a run that is killed, resumed and checked, in 20 seconds.

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
    from plait.demo.story import DemoStory

    folder = demo_folder(Path.cwd())
    if again:
        remove_folder(folder)
    _check_is_new(folder)
    story = DemoStory(folder, face, options)
    page = DemoPage(folder, face) if is_opened else None
    with _interrupts(face, story):
        try:
            isolation = find_isolation(folder.path.parent)
            make_folder(folder, isolation)
            _print_terms(face, isolation, options)
            story.tell(page.open if page is not None else lambda session: None)
            if page is not None:
                page.stay()
        finally:
            if page is not None:
                page.close()


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
def _interrupts(face: TerminalFace, story: DemoStory) -> Generator[None]:
    """End every process on Ctrl-C, SIGTERM and SIGHUP, and name the command that goes on."""
    from plait.demo.folder import DemoRefused

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupt) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except (KeyboardInterrupt, click.Abort):  # a command that is run here turns one into the other
        story.stop()
        if face.is_terminal:
            click.echo(err=True)  # the terminal has put ^C there
        click.echo(f"interrupted; go on with: {story.next_command}", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except (PlaitError, OSError) as error:
        story.stop()
        if isinstance(error, BrokenPipeError):
            raise
        said = f"{error}\nWhen the cause is gone: {story.next_command}"
        raise DemoRefused(said, code_of(error)) from error
    finally:
        story.stop()
        for each, handler in before.items():
            signal.signal(each, handler)


class DemoPage:
    """The page of the session in a browser, while the demo runs."""

    def __init__(self, folder: DemoFolder, face: TerminalFace) -> None:
        self._folder, self._face = folder, face
        self._server: DemoProcess | None = None

    def open(self, session: Session) -> None:
        """Serve the page and open it; without a page, say why and go on."""
        from plait.demo.worker import DemoProcess

        self._server = server = DemoProcess(self._folder, ["view", session.short], {})
        for _ in range(PAGE_WAITS):
            if server.output_lines() or server.wait(0.05):
                break
        for line in server.output_lines()[:1]:
            self._face.line(Cell("  Watch it: ", DIM), line)
        for line in server.error_lines()[:2] if server.exit_code is not None else []:
            self._face.line(Cell(f"  {line}", BAD))

    def stay(self) -> None:
        """Serve until Ctrl-C, if there is a terminal to press it at."""
        server = self._server
        if server is None or server.exit_code is not None or not self._face.is_terminal:
            return
        self._face.line(Cell("  The page stays until you press Ctrl-C.", DIM))
        with suppress(KeyboardInterrupt):
            while not server.wait(1.0):
                pass

    def close(self) -> None:
        if self._server is not None:
            self._server.stop(gently=True)


class TerminalFace:
    """Shows the demo on stdout."""

    def __init__(self) -> None:
        self._out = Out()
        self.is_terminal = self._out.tty and sys.stdin.isatty()
        self._plain = not (sys.stdout.encoding or "").lower().startswith("utf")

    def line(self, *spans: StyledText | Cell | str) -> None:
        """Print a line; on a terminal it is wrapped at its width."""
        cells = [Cell(each) if isinstance(each, str) else Cell(*each) for each in spans]
        for line in _wrap(cells, self._out.width) if self._out.tty else [cells]:
            self._out.line(*line)
        sys.stdout.flush()

    def _print_cut(self, *cells: Cell) -> None:
        """Print a line that is cut to the width of a terminal."""
        self._out.print_brief(*cells)
        sys.stdout.flush()

    def heading(self, number: int, text: str) -> None:
        self.line()
        self.line(Cell(f"{number}  ", STRONG), Cell(text, STRONG))

    def row(self, row: LiveRow) -> None:
        from plait.cli.steps import color_of, duration_text, mark_of, step_text, style_of

        step, color = row.step, color_of(row.color)
        margin = row.margin.translate(_PLAIN) if self._plain else row.margin
        mark = mark_of(step, self._plain) if step is not None else ""
        head = [
            Cell(char.replace("•", mark), color if at % 2 else color_of(row.lane_colors[at // 2]))
            for at, char in enumerate(margin)
        ]
        if step is None:
            self._print_cut(*head)
            return
        place = f"{row.name}@{step.seq}"
        head += [Cell(GAP), Cell(f"{place:<{_NAME}}", color)]
        text, style = step_text(step), style_of(step)
        if step.type == "verdict":
            style = BAD if step.subject == "failed" else GOOD
        took = duration_text(step.took_us) if step.took_us and step.type == "tool" else ""
        gap = self._out.width - sum(cell_width(cell.text) for cell in [*head, Cell(text)])
        if self._out.tty and took and gap >= len(took) + len(GAP):
            self._print_cut(*head, Cell(text, style), Cell(f"{took:>{gap}}", DIM))
        else:
            self._print_cut(*head, Cell(text, style))

    def table(self, heads: tuple[str, ...], rows: Sequence[tuple[StyledText, ...]]) -> None:
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
                self._print_cut(*cells[:-2])
                self._print_cut(Cell(GAP * 2), *cells[-2:])
            else:
                self._print_cut(*cells)

    def command(self, *words: str) -> None:
        self.line(Cell(f"  $ plait {' '.join(words)}", STRONG))
        command = click.get_current_context().find_root().command
        command.main([*words, "--store", "plait-demo"], prog_name="plait", standalone_mode=False)

    def ask(self, question: str) -> ConsentAnswer:
        from plait.cli.consent import read_line
        from plait.demo.face import ConsentAnswer

        self.line(Cell(f"  {question}", STRONG))
        while True:
            said = read_line("  Allow it? [y]es / [n]o / [e]dit: ")
            word, _, reason = ("n" if said is None else said.strip()).partition(" ")
            word = word.lower()
            if word in _NO:
                return ConsentAnswer("no", reason=reason.strip())
            if reason:
                continue
            if word in _YES:
                return ConsentAnswer("yes")
            if word in _EDIT:
                command = read_line("  Run instead: ")
                if command and command.strip():
                    return ConsentAnswer("edit", command.strip())


def _cell(span: StyledText) -> Cell:
    return Cell(span.text, span.style)


def _wrap(cells: Sequence[Cell], width: int) -> list[list[Cell]]:
    """Break a line between words. Lines after the first are set in as far as the first one, and two
    cells more.
    """
    text = "".join(cell.text for cell in cells)
    indent = " " * (len(text) - len(text.lstrip()) + len(GAP))
    lines, left = [list[Cell]()], width
    for cell in cells:
        for word in re.findall(r"\s*\S+|\s+", cell.text):
            if cell_width(word) > left and lines[-1]:
                lines.append([Cell(indent)])
                left, word = width - len(indent), word.lstrip()
            lines[-1].append(Cell(word, cell.style))
            left -= cell_width(word)
    return lines
