"""The end of the demo: its claims, each with a figure and the command that shows it again."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import msgspec

from plait.demo.face import Face, StyledText
from plait.demo.figures import DemoFigures, ResumeFigures, Verification
from plait.demo.folder import BROKEN_LINE, NAME
from plait.demo.questions import LABEL, Alternative
from plait.session import Session

PROGRAM = "plait"


class Ending(msgspec.Struct, frozen=True):
    """All that the last lines are made of."""

    session: Session
    figures: DemoFigures
    take_up: ResumeFigures | None
    alternative: Alternative | None
    verification: Verification
    writer: str  # the place that wrote the mended line; "": none did
    flipped: str  # the place that `verify` names in the copy; "": it found nothing
    shown_s: float
    paused_s: float  # of these: waited for the reader, by the script and between scenes
    asked_s: float  # of these: waited for a person's answer
    pace_s: float

    @property
    def worked_s(self) -> float:
        return max(self.shown_s - self.paused_s - self.asked_s, 0.0)


def print_ending(face: Face, ending: Ending) -> None:
    """Print the table, three lines to copy, and the times."""
    face.line()
    face.table(
        ("claim", "figure", f"in {NAME}/, shown again by"),
        [
            (StyledText(claim), StyledText(figure, "bold"), StyledText(command, "cyan"))
            for claim, figure, command in table_rows(ending)
        ],
    )
    face.line()
    face.line(StyledText(f"  {_times_text(ending)}", "dim"))
    first = command_for_path(Path(sys.executable).parent, os.environ.get("PATH", ""), Path.cwd())
    for command, what in (
        *([(first, f"this shell does not find {PROGRAM} yet")] if first else []),
        (f"cd {NAME}", "all of it stays there"),
        ("plait log @ --steps", "what you have just seen"),
        ('plait run demo.py:Repair -i "Mend it."', "run it yourself: then @ is that run"),
    ):
        face.line(StyledText(f"  {command:<22}", "bold"), StyledText(f"  # {what}", "dim"))
    face.line("look at it: ", *_view_words(), StyledText("plait view @", "bold"))


def command_for_path(folder: Path, search_path: str, here: Path) -> str:
    """Return what to type in `here` so that the shell finds the program of this installation; "" if
    it does. `folder` has the Python that runs.
    """
    found = shutil.which(PROGRAM, path=search_path)
    if found is not None and Path(found).parent.resolve() == folder.resolve():
        return ""
    if not (folder / PROGRAM).exists():
        return f"alias {PROGRAM}={shlex.quote(f'{sys.executable} -m plait')}"
    if folder.is_relative_to(here):
        inner = str(folder.relative_to(here))
        if shlex.quote(inner) == inner:
            return f'export PATH="$PWD/{inner}:$PATH"'
    return f'export PATH={shlex.quote(str(folder))}:"$PATH"'


def _view_words() -> tuple[StyledText | str, ...]:
    """Return what comes before `plait view`, if the page is not built."""
    from plait.view.built import is_page_built

    if is_page_built():
        return ()
    return (StyledText("make viewer", "bold"), " in the clone (it needs Node), then ")


def table_rows(ending: Ending) -> list[tuple[str, str, str]]:
    """Return the rows: claim, figure, command."""
    figures, rows = ending.figures, list[tuple[str, str, str]]()
    if (found := ending.take_up) is not None:
        repeated = found.repeated_model_calls + found.repeated_effects + found.repeated_outside
        rows += [
            (
                "a killed run goes on",
                f"resumed at event {found.seq}",
                "plait log @ --steps | grep kill",
            ),
            ("nothing is done twice", f"{repeated} repeated", "sort outside.txt | uniq -d"),
        ]
    tested = f"{figures.rejected} rejected, {figures.passed} passed"
    rows.append(("patches are tested", tested, "plait log @ --steps | grep tests"))
    if figures.branches:
        merged = f"{len(figures.merged)} of {len(figures.branches)} merged"
        rows.append(("branches are merged", merged, "plait graph @"))
    if figures.asked:
        consent = f"{figures.asked} asked, {figures.allowed} allowed"
        rows.append(("risky calls ask first", consent, "plait inbox @ --all"))
    if figures.merged:
        place = f"cart.py:{BROKEN_LINE}"
        rows.append((f"{place} has a reason", f"by {ending.writer}", f"plait why @ {place}"))
    if (other := ending.alternative) is not None:
        calls = f"{other.model_calls} for {figures.model_calls} model calls"
        rows.append(("what if, in a branch", calls, f"plait diff @ {LABEL}"))
    checked = f"{ending.verification.events} events, {len(ending.verification.faults)} faults"
    rows.append(("the record is whole", checked, "plait verify"))
    if ending.flipped:
        rows.append(("a change is found", f"at {ending.flipped}", "plait verify --store tampered"))
    return rows


def _times_text(ending: Ending) -> str:
    told = f"worked {ending.worked_s:.1f} s, shown in {ending.shown_s:.1f} s"
    waits = [f"{ending.paused_s:.1f} s to read"] if ending.paused_s else []
    waits += [f"{ending.asked_s:.1f} s for you"] if ending.asked_s else []
    return f"{told}; waits: {', '.join(waits)}" if waits else told
