"""Runs that are started from a server: processes of their own, which outlive it.

A run is `plait resume` or `plait whatif`, started in the server's folder with its environment, in a
process session of its own, so that no signal to the server reaches it. The server imports no user
program. The output goes to a file beside the store, whether or not a server reads it. The process
has the lock of its folder, which ends with it: so a server that is started later knows which runs
go on.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from plait import secrets
from plait.errors import InvalidValue, PlaitError, UnknownKey
from plait.ids import LogId, Micros
from plait.runtime.live import Live
from plait.server.live_shapes import DeltaShape, RunShape
from plait.server.params import NewRun
from plait.server.places import is_locked, write_private
from plait.server.refusals import refusal
from plait.server.shapes import ErrorShape
from plait.session import Session
from plait.store import Store

RUNNING = 8  # runs at once; more are refused
KEPT = 50  # runs that have ended, whose outputs are kept
TAIL = 4_000  # bytes at the end of an error output that are shown
READ = 1_000_000  # bytes of an output that are read at once
Tell = Callable[[str, bytes], None]
_CODES = {0: "finished", 4: "waiting", 130: "interrupted"}


class Runner(Protocol):
    """Starts runs, and tells how they stand."""

    @property
    def folder(self) -> Path: ...

    def start(self, wanted: NewRun, session: Session, actor: str) -> RunShape: ...

    def runs(self) -> list[RunShape]: ...

    def stop(self, run: str) -> RunShape: ...

    def look(self, kinds: Set[str]) -> bool: ...


class ProcessRunner:
    """Starts runs as processes on this machine."""

    def __init__(self, store: Store, state: Path, folder: Path) -> None:
        self._store, self._state = store, state / "runs"
        self.folder = folder
        self._guard, self._starting = threading.Lock(), threading.Lock()
        self._started: dict[str, subprocess.Popen[bytes]] = {}  # by this process
        self._outputs: dict[str, RunOutput] = {}
        self._tell: Tell = lambda event, data: None

    def tell_with(self, tell: Tell) -> None:
        """Pass on deltas and states of runs with this."""
        self._tell = tell

    def start(self, wanted: NewRun, session: Session, actor: str) -> RunShape:
        """Start a process for a run. What it refuses is in its error, when it has ended."""
        with self._starting:
            self._check_count()
            return self._start(wanted, session, actor)

    def _check_count(self) -> None:
        count = sum(each.state != "ended" for each in self.runs())
        if count >= RUNNING:
            raise refusal(
                429,
                "TooManyRuns",
                f"{count} runs that were started from here go on",
                "wait until one of them ends, or stop one",
            )

    def _start(self, wanted: NewRun, session: Session, actor: str) -> RunShape:
        id = str(Live().fresh("server run"))
        place = self._state / id
        self._state.mkdir(mode=0o700, exist_ok=True)
        place.mkdir(mode=0o700)
        try:
            words = _command_words(wanted, session, actor, place)
        except PlaitError:
            shutil.rmtree(place, ignore_errors=True)
            raise
        shape = RunShape(
            id,
            wanted.verb,
            session.id,
            None,
            shlex.join(["plait", *words]),
            "running",
            0,
            _now(),
            None,
            None,
            "",
            None,
            "",
        )
        process = self._spawn(place, [words[0], "--jsonl", *words[1:]])
        shape = msgspec.structs.replace(shape, pid=process.pid)
        write_private(place / "run.json", msgspec.json.encode(shape))
        with self._guard:
            self._started[id] = process
            self._outputs[id] = RunOutput(place, shape, is_told=True)
        waiter = threading.Thread(target=self._wait, args=(process,), name=f"plait-run-{id}")
        waiter.daemon = True
        waiter.start()
        self._drop_old()
        self._tell("run", msgspec.json.encode(shape))
        return shape

    def _spawn(self, place: Path, words: Sequence[str]) -> subprocess.Popen[bytes]:
        with (
            (place / "lock").open("wb") as lock,
            (place / "out.jsonl").open("wb") as out,
            (place / "err.txt").open("wb") as err,
        ):
            fcntl.flock(lock, fcntl.LOCK_EX)  # it is the child's as well, and ends with it
            os.set_inheritable(lock.fileno(), True)
            return subprocess.Popen(
                [sys.executable, "-m", "plait", *words],
                cwd=self.folder,
                env={**os.environ, "PLAIT_STORE": self._store.address},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                pass_fds=(lock.fileno(),),
            )

    def runs(self) -> list[RunShape]:
        """Return the runs that go on, then those that ended last."""
        self._find_outputs()
        self._reap()
        found = [output.shape_now() for output in self._all_outputs()]
        found.sort(key=lambda run: (run.state != "ended", run.began), reverse=True)
        return found

    def stop(self, run: str) -> RunShape:
        """Interrupt a run, as Ctrl-C does: it can be resumed."""
        self._find_outputs()
        output = self._outputs.get(run)
        if output is None:
            raise UnknownKey("", "run of this server", run, tuple(self._outputs))
        if output.is_running():
            with suppress(ProcessLookupError):
                os.killpg(output.shape.pid, signal.SIGINT)
        return output.shape_now()

    def look(self, kinds: Set[str]) -> bool:
        """Pass on what the runs have written since the last look. True: there was something."""
        self._find_outputs()
        self._reap()
        told = False
        for output in self._all_outputs():
            deltas, shape = output.news()
            for delta in deltas:
                self._tell("delta", msgspec.json.encode(delta))
            if shape is not None:
                self._tell("run", msgspec.json.encode(shape))
            told = told or bool(deltas) or shape is not None
        return told

    def _all_outputs(self) -> list[RunOutput]:
        with self._guard:
            return list(self._outputs.values())

    def _find_outputs(self) -> None:
        """Take up the runs that another server has started."""
        if not self._state.is_dir():
            return
        for place in self._state.iterdir():
            if place.name in self._outputs:
                continue
            with suppress(OSError, msgspec.MsgspecError):
                shape = msgspec.json.decode((place / "run.json").read_bytes(), type=RunShape)
                with self._guard:
                    self._outputs[place.name] = RunOutput(place, shape)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the end of a process, so that its time is known whoever asks later."""
        process.wait()
        self._reap()

    def _reap(self) -> None:
        """Note the exit codes of runs that have ended: a process is asked by its parent alone."""
        with self._guard:
            ended = {id: each for id, each in self._started.items() if each.poll() is not None}
            for id, process in ended.items():
                del self._started[id]
                output = self._outputs.get(id)
                if output is not None:
                    output.note_exit(cast("int", process.returncode))

    def _drop_old(self) -> None:
        ended = [each for each in self.runs() if each.state == "ended"]
        for run in ended[KEPT:]:
            with self._guard:
                self._outputs.pop(run.id, None)
            shutil.rmtree(self._state / run.id, ignore_errors=True)


class RunOutput:
    """The output of one run, read as it grows."""

    def __init__(self, place: Path, shape: RunShape, *, is_told: bool = False) -> None:
        self._place, self.shape = place, shape
        self._read = 0  # bytes of the output that are read
        self._rest = b""  # of a line that is not whole yet
        self._told = shape if is_told else None  # as listeners know it
        self._guard = threading.Lock()

    def is_running(self) -> bool:
        if self.shape.state == "ended":
            return False
        try:
            with (self._place / "lock").open("rb") as file:
                return is_locked(file)
        except OSError:
            return False

    def note_exit(self, code: int) -> None:
        """Note the exit code; a signal is told as the shell does."""
        with self._guard:
            self._note_end(code if code >= 0 else 128 - code)

    def shape_now(self) -> RunShape:
        """Return the run as it stands, and note it if it has ended."""
        is_running = self.is_running()
        with self._guard:
            if not is_running:
                self._note_end(None)
            return self.shape

    def news(self) -> tuple[list[DeltaShape], RunShape | None]:
        """Return the deltas since the last time, and the run, if it stands otherwise than then."""
        is_running = self.is_running()
        with self._guard:
            deltas = self._read_deltas()
            if not is_running:
                self._note_end(None)
            changed = self.shape if self.shape != self._told else None
            self._told = self.shape
            return deltas, changed

    def _read_deltas(self) -> list[DeltaShape]:
        found = list[DeltaShape]()
        for line in self._new_lines():
            document = _parse(line)
            if document.get("type") == "delta":
                log = self.shape.branch or self.shape.session
                delta = _delta_of(self.shape.id, log, document)
                if delta is not None:
                    found.append(delta)
            elif document.get("type") == "event":
                self._note_event(document)
        return _joined(found)

    def _note_event(self, document: Mapping[str, Any]) -> None:
        """Note the branch of a what-if: its first event is the fork's."""
        log = document.get("session")
        is_branch = self.shape.verb == "whatif" and self.shape.branch is None
        if is_branch and isinstance(log, str) and log != self.shape.session:
            self.shape = msgspec.structs.replace(self.shape, branch=LogId(log))

    def _new_lines(self) -> list[bytes]:
        try:
            with (self._place / "out.jsonl").open("rb") as file:
                file.seek(self._read)
                data = file.read(READ)
        except OSError:
            return []
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines

    def _note_end(self, code: int | None) -> None:
        """Note the end of the run, with what it has written last. `code` is None: nobody saw it."""
        if self.shape.state == "ended" and (code is None or self.shape.exit_code is not None):
            return
        last = _last_document(self._place / "out.jsonl")
        errors = _tail_of(self._place / "err.txt")
        failed = _error_of(errors)
        kind = last.get("type")
        status = str(kind) if kind in ("finished", "waiting") else _CODES.get(code or -1, "")
        if failed is not None:
            status = {"Interrupted": "interrupted", "Cancelled": "cancelled"}.get(
                failed.error, "failed"
            )
        found: Any = last.get("session")
        is_branch = self.shape.verb == "whatif" and isinstance(found, dict)
        branch = cast("Mapping[str, Any]", found).get("id") if is_branch else None
        text = last.get("text") or last.get("why") or ""
        self.shape = msgspec.structs.replace(
            self.shape,
            state="ended",
            ended=self._end_time(code) if self.shape.ended is None else self.shape.ended,
            exit_code=code if code is not None else self.shape.exit_code,
            status=status or ("failed" if code else ""),
            error=failed,
            branch=branch if isinstance(branch, str) else self.shape.branch,
            text=secrets.hide_shown_text(str(text) if text else _without_error(errors)),
        )
        with suppress(OSError):  # the store is gone, and this with it
            write_private(self._place / "run.json", msgspec.json.encode(self.shape))

    def _end_time(self, code: int | None) -> Micros:
        """Return when the run ended: now if its end was seen, else when it last wrote something."""
        if code is not None:
            return _now()
        times = list[Micros]()
        for name in ("out.jsonl", "err.txt"):
            with suppress(OSError):
                times.append(Micros((self._place / name).stat().st_mtime_ns // 1_000))
        return max([self.shape.began, *times])


def _command_words(wanted: NewRun, session: Session, actor: str, place: Path) -> list[str]:
    """Return the command line of a run. Texts go to files: a command line is seen by all users.

    No value is taken for an option: it stands behind the `=` of its own, or after `--`.
    """
    words = _plain_words(wanted, session, actor, place)
    if any("\0" in word for word in words):
        raise InvalidValue("run", "a value has a zero byte", "leave it out")
    return words


def _plain_words(wanted: NewRun, session: Session, actor: str, place: Path) -> list[str]:
    consent = [f"--as={actor}", "--approve=park"]
    words = [f"--workflow={_checked_program(wanted.program)}"] if wanted.program else []
    match wanted.verb:
        case "resume":
            _refuse(wanted, "model", "instruction", "replace", "tools", "label")
            accept = [f"--accept={wanted.accept}"] if wanted.accept else []
            return ["resume", session.id, *consent, *words, *accept]
        case "run":
            _refuse(wanted, "accept", "instruction", "replace", "tools", "label")
            model = [f"--model={wanted.model}"] if wanted.model else []
            program = _program(wanted, session)
            return ["run", f"--session={session.id}", *consent, *model, "--", program]
        case "whatif":
            _refuse(wanted, "accept")
            name = f"{session.id}@{session.seq}"
            return ["whatif", name, *consent, *words, *_changes(wanted, place)]


def _changes(wanted: NewRun, place: Path) -> list[str]:
    """Return the options of a what-if that change something."""
    words = [f"--effects={wanted.effects}"]
    if wanted.model:
        words += [f"--model={wanted.model}"]
    if wanted.label:
        words += [f"--label={wanted.label}"]
    if wanted.instruction is not None:
        file = _text_file(place / "instruction.txt", wanted.instruction)
        words += [f"--instruction={file}"]
    words += [f"--tools={agent}={','.join(names)}" for agent, names in wanted.tools.items()]
    for seq, value in wanted.replace.items():
        if not (seq.isascii() and seq.isdecimal()):
            raise InvalidValue("replace", f"{seq!r:.40} is not a seq", "name events by their seq")
        text = value if isinstance(value, str) else json.dumps(value)
        words += [f"--replace={seq}={_text_file(place / f'replace-{seq}.txt', text)}"]
    return words


def _refuse(wanted: NewRun, *names: str) -> None:
    """Refuse fields that have no meaning for a verb."""
    for name in names:
        if getattr(wanted, name):
            raise InvalidValue(
                name, f"it has no meaning for {wanted.verb}", "leave it out, or use whatif"
            )


def _program(wanted: NewRun, session: Session) -> str:
    """Return the program to run in a session: as it is named, or as its last run says."""
    if wanted.program:
        return _checked_program(wanted.program)
    runs = session.runs
    if not runs:
        raise InvalidValue(
            "program",
            "no run of this session says which program it was",
            "name one: FILE.py:NAME or module:NAME",
        )
    return _checked_program(runs[-1].workflow)


def _checked_program(name: str) -> str:
    if name.startswith("-"):
        raise InvalidValue(
            "program", f"{name!r:.80} is an option", "name a program: FILE.py:NAME or module:NAME"
        )
    return name


def _text_file(path: Path, text: str) -> str:
    write_private(path, text.encode())
    return f"@{path}"


def _parse(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


_PIECES = ("text", "thought", "output", "arguments")
_DELTAS: Mapping[str, tuple[str, str]] = {
    "TextDelta": ("text", "text"),
    "ReasoningDelta": ("thought", "thought"),
    "ToolDelta": ("tool", "tool"),
    "Restarted": ("restart", "why"),
    "Queued": ("wait", "why"),
    "OutputDelta": ("output", "output"),
}


def _delta_of(run: str, log: LogId, document: Mapping[str, Any]) -> DeltaShape | None:
    known = _DELTAS.get(str(document.get("kind")))
    if known is None:
        return None
    type, field = known
    if type == "tool" and document.get("arguments"):
        type, field = "arguments", "arguments"
    path = str(document.get("agent") or "")
    return DeltaShape(run, log, path, cast("Any", type), str(document.get(field) or ""))


def _joined(deltas: Sequence[DeltaShape]) -> list[DeltaShape]:
    """Return the deltas with neighbours of one agent and type as one."""
    found = list[DeltaShape]()
    for delta in deltas:
        before = found[-1] if found else None
        is_same = before is not None and (before.path, before.type) == (delta.path, delta.type)
        if before is not None and is_same and delta.type in _PIECES:
            found[-1] = msgspec.structs.replace(before, text=before.text + delta.text)
        else:
            found.append(delta)
    return found


def _tail_of(path: Path, size: int = TAIL) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _last_document(path: Path) -> dict[str, Any]:
    """Return the last line of an output, if it is whole."""
    lines = _tail_of(path, READ).rstrip("\n").rsplit("\n", 1)
    return _parse(lines[-1].encode()) if lines else {}


def _error_of(errors: str) -> ErrorShape | None:
    """Return the error that a command has printed for programs. None: there is none."""
    for line in reversed(errors.splitlines()):
        said = _parse(line.encode()).get("error")
        if isinstance(said, dict):
            fields = cast("dict[str, Any]", said)
            name, message = str(fields.pop("type", "")), str(fields.pop("message", ""))
            return ErrorShape(name, secrets.hide_shown_text(message), fields=fields)
    return None


def _without_error(errors: str) -> str:
    """Return an error output without its last document."""
    return "\n".join([line for line in errors.splitlines() if not _parse(line.encode())])


def _now() -> Micros:
    return Live().now(LogId(""), 0)
