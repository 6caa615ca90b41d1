"""The story of the demo: seven scenes on one session, each told from what is on record."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from plait import Memory, open_store
from plait.demo.ending import Ending, print_ending
from plait.demo.face import ConsentAnswer, Face, StyledText
from plait.demo.figures import DemoFigures, ResumeFigures, figures_of, seconds_of, verify_at
from plait.demo.folder import (
    BROKEN_LINE,
    NAME,
    NOTE,
    QUESTION,
    DemoFolder,
    DemoRefused,
)
from plait.demo.lanes import LiveFamily
from plait.demo.pacing import DEMO, demo_environment
from plait.demo.questions import (
    Alternative,
    answer_why,
    first_words_of_plan,
    place_of_line,
    try_alternative,
)
from plait.demo.tampering import copy_with_other_verdict
from plait.demo.worker import DemoProcess
from plait.event import kinds as k
from plait.ids import short
from plait.outline.shapes import StepShape
from plait.session import Session
from plait.session.content import text_of
from plait.session.ports import store_at
from plait.store import Store

HELD = "clamp"  # the branch in the middle of whose comment the worker is killed
TICK_S = 0.03
HOLD_MAX_S = 40.0  # seconds that the other branch gets before the worker is killed
WAITING, FULL = 4, 75  # exit codes of `plait`
DIM, BAD, GOOD, STRONG = "dim", "red", "green", "bold"


class StoryOptions(msgspec.Struct, frozen=True):
    """The choices of the one who runs the demo."""

    pace_s: float  # seconds that the script waits before each reply
    model: str | None = None  # None: the script
    kill_after: int | None = None  # events of the run; None: in the middle of a comment


class DemoStory:
    """Tells the demo, scene by scene. After `stop`, no process of it is left."""

    def __init__(self, folder: DemoFolder, face: Face, options: StoryOptions) -> None:
        self.folder, self.face, self.options = folder, face, options
        self.session: Session | None = None  # None: not opened yet
        self._worker: DemoProcess | None = None
        self._began = time.perf_counter()
        self._paused = self._asked = 0.0  # seconds: for the reader, for a person's answer
        self._scene = 0
        self._is_judged = False  # True: the first verdict was shown
        self._held_at: float | None = None  # None: the worker is not in the held call yet

    # ── the whole ────────────────────────────────────────────────────────────────────────────

    def tell(self, opened: Callable[[Session], None] = lambda session: None) -> None:
        """Tell all of it. `opened` is called when the session is there."""
        pace_s = 0.0 if self.options.model is not None else self.options.pace_s
        with demo_environment(self.folder, pace_s):
            self._tell(opened)

    def _tell(self, opened: Callable[[Session], None]) -> None:
        store = open_store(self.folder.store)
        session = self.session = self._open(store)
        opened(session)
        family = LiveFamily(store, session.id)
        self._begin(session, family)
        take_up = self._kill_and_resume(session, family)
        session = self._decide(session.reload(), family)
        figures = figures_of(session, self.folder.outside)
        writer = self._why(session) if figures.merged else ""
        alternative = self._what_if(session, figures)
        session = self.session = session.reload()
        flipped = self._verify(store, session)
        ending = Ending(
            session=session,
            figures=figures,
            take_up=take_up,
            alternative=alternative,
            verification=verify_at(store),
            writer=writer,
            flipped=flipped,
            shown_s=time.perf_counter() - self._began,
            paused_s=self._paused + self._script_waited(figures),
            asked_s=self._asked,
            pace_s=self.options.pace_s,
        )
        print_ending(self.face, ending)

    def stop(self) -> None:
        """End the process at work, if there is one."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    @property
    def next_command(self) -> str:
        """The command that goes on after an interrupt."""
        if self.session is None:
            return "plait demo --again"
        session = self.session.reload()
        verb = "log {} --steps" if session.status == "finished" else "resume {}"
        if not session.runs:
            verb = "run demo.py:Repair --session {}"
        return f"cd {NAME} && plait {verb.format(session.short)}"

    def _open(self, store: Store) -> Session:
        """Open the session, with a note that a person left in an earlier one."""
        noted = Session("How do coupons work here?", project="shop", store=store)
        Memory().remember(noted, NOTE, scope="project")
        return Session(QUESTION, project="shop", store=store)

    # ── scenes ───────────────────────────────────────────────────────────────────────────────

    def _begin(self, session: Session, family: LiveFamily) -> None:
        """Show the first patch, its verdict and the branches, until it is time to kill."""
        self._heading("An agent reads the issue and a note, and patches cart.py")
        words = ["run", "demo.py:Repair", "--session", session.short]
        if self.options.model is not None:
            words += ["--model", self.options.model]
        hold = {"DEMO_HOLD": HELD} if self.options.kill_after is None else {}
        self._start_worker(words, hold)
        self._show_steps(family, self._is_time_to_kill)

    def _kill_and_resume(self, session: Session, family: LiveFamily) -> ResumeFigures | None:
        """Kill the worker, and have another process go on."""
        worker = self._require_worker()
        if worker.exit_code is None and self._kill(worker, family):
            self._heading("Another process goes on. What passes is merged, the rest stays")
            self._start_worker(["resume", session.short], {})
            self._show_steps(family, lambda: False)
        self._check_exit()
        figures = figures_of(session.reload(), self.folder.outside)
        if figures.take_up is not None:
            self._tell_take_up(figures.take_up)
        return figures.take_up

    def _kill(self, worker: DemoProcess, family: LiveFamily) -> bool:
        """Kill the worker. False: it had come to its end by then."""
        self._heading("kill -9, in the middle of a call")
        self._show_rows(family, also_open=True)
        if self.options.kill_after is None:
            self.face.line(
                StyledText(
                    "  The comment is posted: see tracker.txt. The log does not know yet.", DIM
                )
            )
        self._pause()
        signal = worker.kill()
        if signal is None:
            self.face.line(StyledText("  The worker had come to its end by then.", DIM))
            return False
        self.face.line(
            StyledText(f"  $ kill -9 {worker.pid}  ", STRONG),
            StyledText(f"the worker is gone, ended by signal {signal}", BAD),
        )
        self.face.command("ls", "--interrupted")
        self._pause()
        return True

    def _tell_take_up(self, found: ResumeFigures) -> None:
        self.face.line(
            StyledText(f"  resumed at event {found.seq}; ", STRONG),
            StyledText(
                f"{found.repeated_model_calls} of {found.model_calls} model calls and"
                f" {found.repeated_effects} of {found.effects} effects repeated",
                GOOD if not found.repeated_model_calls + found.repeated_effects else BAD,
            ),
        )
        self.face.line(
            StyledText(
                f"  counted in the log. By outside.txt, where each call leaves a line, too:"
                f" {found.repeated_outside}",
                DIM,
            )
        )
        self._pause()

    def _decide(self, session: Session, family: LiveFamily) -> Session:
        """Let a person decide about a command, if the run waits for that."""
        asks = [ask for ask in session.inbox.waiting if ask.kind == "approval"]
        if not asks:
            return session
        self._heading("A risky command asks first. The run waits, and no process with it")
        self._show_rows(family, also_open=True)
        command = msgspec.convert(asks[0].arguments, dict[str, Any])["command"]
        answer = self._answer(f"{asks[0].actor.partition(':')[2]} wants to run: {command}")
        actor = None if self.face.is_terminal else DEMO
        if answer.word == "no":
            session.inbox.deny(asks[0], answer.reason, actor=actor)
        else:
            edited = {"command": answer.command} if answer.word == "edit" else None
            note = "" if self.face.is_terminal else "no terminal: allowed by the rule of the demo"
            session.inbox.approve(asks[0], edited=edited, note=note, actor=actor)
        return self._finish(session.reload(), family)

    def _answer(self, question: str) -> ConsentAnswer:
        if not self.face.is_terminal:
            self.face.line(StyledText(f"  {question}", STRONG))
            self.face.line(
                StyledText("  no terminal: a rule of the demo allows it, on record", DIM)
            )
            return ConsentAnswer("yes")
        began = time.perf_counter()
        try:
            return self.face.ask(question)
        finally:
            self._asked += time.perf_counter() - began

    def _finish(self, session: Session, family: LiveFamily) -> Session:
        """Resume the run in this process, to its end."""
        from plait.runs.resume import resume

        session = resume(session, on_event=lambda item: self._show_rows(family))
        self._show_rows(family)
        self._pause()
        return session

    def _why(self, session: Session) -> str:
        """Show why a line is as it is; return the place that wrote it."""
        place = f"cart.py:{BROKEN_LINE}"
        self._heading(f"Why is line {BROKEN_LINE} of cart.py as it is?")
        for how, text in answer_why(session, place):
            self.face.line(StyledText(f"  {how:<12}", DIM), text)
        self._pause()
        return place_of_line(session, place)

    def _what_if(self, session: Session, figures: DemoFigures) -> Alternative | None:
        plan = first_words_of_plan(session)
        if plan is None:
            return None
        self._heading("What if the plan had been another one? The same run, in a branch")
        with demo_environment(self.folder, 0.0):  # its steps are not shown
            found = try_alternative(session, plan, figures)
        rows = [
            (StyledText(name, DIM), StyledText(was), StyledText(now))
            for name, was, now in found.rows
        ]
        self.face.table(("", "as it was", f"what if ({found.seconds:.1f} s)"), rows)
        self._pause()
        return found

    def _verify(self, store: Store, session: Session) -> str:
        """Verify the store, and a copy with a changed verdict; return what it names there."""
        self._heading("Can the record be changed unseen?")
        found = verify_at(store)
        self.face.line(
            StyledText("  plait verify  ", STRONG),
            f"{found.events} events in {found.sessions} sessions and {found.other_logs} inboxes: ",
            StyledText(f"{len(found.faults)} faults", BAD if found.faults else GOOD),
        )
        judged = next(
            event for event in session.events if isinstance(event.body, k.ValidationRecorded)
        )
        try:
            forgery = copy_with_other_verdict(
                self.folder.store, self.folder.tampered / ".plait", judged
            )
        except ImportError:
            self.face.line(StyledText("  this Python has no sqlite3, so nothing is changed", DIM))
            return ""
        self.face.line(
            f"  the verdict {forgery.place} is changed from {forgery.was} to {forgery.now} in a"
            " copy"
        )
        copy = open_store(self.folder.tampered / ".plait")
        faults = verify_at(copy).faults
        copy.close()
        place = faults[0] if faults else ""
        self.face.line(
            StyledText("  plait verify --store tampered  ", STRONG),
            StyledText(f"wrong at {place}" if place else "0 faults", BAD),
        )
        self._pause()
        return place

    # ── the worker ───────────────────────────────────────────────────────────────────────────

    def _start_worker(self, words: list[str], settings: dict[str, str]) -> None:
        self.stop()
        self.face.line(StyledText(f"  $ plait {' '.join(words)}", STRONG))
        words = [*words, "--approve", "park", "--quiet"]
        self._worker = DemoProcess(self.folder, words, settings)

    def _require_worker(self) -> DemoProcess:
        assert self._worker is not None
        return self._worker

    def _show_steps(self, family: LiveFamily, is_over: Callable[[], bool]) -> None:
        """Show steps as they come, until the worker has ended, or the scene is over."""
        worker = self._require_worker()
        while True:
            ended, over = worker.exit_code is not None, is_over()
            self._show_rows(family)
            if ended or over:
                return
            worker.wait(TICK_S)

    def _show_rows(self, family: LiveFamily, *, also_open: bool = False) -> None:
        for row in family.new_rows(also_open=also_open):
            self.face.row(row)
            if row.step is not None and row.step.type == "memory":
                self._tell_note(family.outlines.store, row.step)
            elif row.step is not None and row.step.says.startswith("happened"):
                self.face.line(
                    StyledText(
                        "       Its probe finds it in tracker.txt: it is not posted again.", DIM
                    )
                )
            elif row.step is not None and row.step.type == "verdict" and not self._is_judged:
                self._is_judged = True
                if row.step.state == "failed" or row.step.subject == "failed":
                    self._pause()
                    self._heading("Rejected. The session forks: two strategies, at the same time")

    def _tell_note(self, store: Store, step: StepShape) -> None:
        """Show the first memory that a step recalled."""
        recalled = next(store.read(step.log, step.seq, step.seq)).body
        if isinstance(recalled, k.MemoryRecalled) and recalled.hits:
            noted = store.event(recalled.hits[0].memory)
            if isinstance(body := noted.body, k.MemoryProposed):
                place = f"{short(noted.log)}@{noted.seq}"
                text = f"“{text_of(body.parts)}” {noted.actor}, {place}"
                self.face.line(StyledText(f"       {text}", DIM))

    def _is_time_to_kill(self) -> bool:
        if self.options.kill_after is not None:
            return self._is_killed_by_count()
        if not self.folder.tracker.exists():
            return False
        if not any(
            line.startswith(f"{HELD}:")
            for line in self.folder.tracker.read_text(encoding="utf-8").splitlines()
        ):
            return False
        self._held_at = self._held_at or time.perf_counter()
        # the other branch is told to its verdict first: two lanes are seen at work
        is_late = time.perf_counter() - self._held_at > HOLD_MAX_S
        return is_late or self._count({k.ValidationRecorded.__name__}) >= 2

    def _is_killed_by_count(self) -> bool:
        return self.options.kill_after is not None and self._count(None) >= self.options.kill_after

    def _count(self, kinds: set[str] | None) -> int:
        assert self.session is not None
        store = store_at(self.session.store)
        return sum(1 for _, event in store.feed(kinds=kinds) if event.header.run)

    def _check_exit(self) -> None:
        """Raise if the worker failed: neither finished nor waiting."""
        worker = self._require_worker()
        code = worker.exit_code
        if code in (0, WAITING):
            return
        said = next(iter(worker.error_lines()), f"the worker ended with {code}")
        step = f"When the cause is gone: {self.next_command}"
        raise DemoRefused(f"{said.removeprefix('plait: ')}\n{step}", FULL if code == FULL else 1)

    # ── pacing ───────────────────────────────────────────────────────────────────────────────

    def _heading(self, text: str) -> None:
        self._scene += 1
        self.face.heading(self._scene, text)

    def _pause(self) -> None:
        """Give a reader time, and count it: it is no time of work."""
        time.sleep(self.options.pace_s)
        self._paused += self.options.pace_s

    def _script_waited(self, figures: DemoFigures) -> float:
        """Return the seconds that the script waited, by the session."""
        return seconds_of(figures.waits) if self.options.pace_s and not self.options.model else 0.0
