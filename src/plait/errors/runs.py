"""Errors about a run: taking it up, holding it, and replaying it."""

from __future__ import annotations

from typing import Any

from plait.errors.base import brief, without_full_stop
from plait.errors.inputs import InvalidInput
from plait.errors.sessions import SessionError


class RunOpen(SessionError):
    """A run of this session began and has not ended: it is going on somewhere, or its process died.

    Nothing was written.
    """

    def __init__(self, session: str, run: str, verb: str = "", step: str = "") -> None:
        """`verb`: the act that is refused meanwhile, "" if it is the start of another run.
        `step`: the next step to suggest, "" for resuming, cancelling or forking.
        """
        self.session, self.run, self.verb, self.step = session, run, verb, step
        cannot = (
            f": it cannot {verb} from outside the run, nor from another thread of it"
            if verb
            else ""
        )
        step = step or (
            f"take it up again with resume(session) or `plait resume {session}`, end it with"
            " session.inbox.cancel(), or go on without it in a fork: session.fork()"
        )
        super().__init__(
            f"session {session} has an open run, {run}{cannot}. Nothing was written; {step}."
        )


class RunHeld(SessionError):
    """A run has one holder at a time, and this one is at work. Nothing was written."""

    def __init__(self, session: str, run: str, holder: str) -> None:
        self.session, self.run, self.holder = session, run, holder
        super().__init__(
            f"run {run[:13]} of session {session} is held by {holder}. Nothing was written; wait"
            " for it, or end that process."
        )


class RunLost(SessionError):
    """Another process took the run, or ended it, while this one was away.

    Events that came too late are in the session's inbox.
    """

    def __init__(self, session: str, run: str, holder: str) -> None:
        self.session, self.run, self.holder = session, run, holder
        super().__init__(
            f"run {run[:13]} of session {session} was taken over by {holder}. Nothing more is"
            f" written from here; look at it with `plait show {session}`."
        )


class TurnFailed(SessionError):
    """A turn that another process took did not come to an answer. It is on record."""

    def __init__(self, session: str, at: int, why: str, *, can_resume: bool = False) -> None:
        self.session, self.at, self.why, self.can_resume = session, at, why, can_resume
        again = "say it again, with another key or none"
        step = f"{again}, or resume it: plait resume {session}" if can_resume else again
        why = without_full_stop(why)
        super().__init__(
            f"the turn of session {session} that ended at {at} has no answer: {why}. Look at it"
            f" with `plait show {session}@{at}`; {step}."
        )


class TurnCircle(SessionError):
    """Runs of sessions would wait for turns of each other, for ever. Nothing was written."""

    def __init__(self, sessions: tuple[str, ...]) -> None:
        """`sessions`: each waits for the next; the last is the first."""
        self.sessions = sessions
        circle = " waits for ".join(sessions)
        super().__init__(
            f"the run of session {sessions[0]} would wait for itself: {circle}."
            " Nothing was written; let turns go one way, or use wait=False."
        )


class KeyTaken(SessionError):
    """Another message was sent under this key. Nothing was written."""

    def __init__(self, session: str, key: str, turn: str) -> None:
        self.session, self.key, self.turn = session, key, turn
        super().__init__(
            f"session {session}: the key {key!r} belongs to another message, {turn[:12]}. Nothing"
            " was written; send each message with a key of its own, and a retry with the same"
            " words."
        )


class NothingToResume(SessionError):
    """No run of this session waits to be taken up again."""

    def __init__(self, session: str, why: str, step: str = "start one: workflow(session)") -> None:
        self.session, self.why, self.step = session, why, step
        super().__init__(self._text(step))

    def _text(self, step: str) -> str:
        why = f"there is nothing to resume in session {self.session}: {self.why}"
        return f"{why}. Nothing was written; {step}."

    @property
    def record_text(self) -> str:
        run = f"plait run FILE.py:NAME --session {self.session}"
        return self._text(self.step.replace("workflow(session)", run))


class NothingToDebug(SessionError):
    """No code of a program was at work at this step."""

    def __init__(self, session: str, seq: int, why: str, step: str) -> None:
        self.session, self.seq, self.why = session, seq, why
        super().__init__(
            f"{session}@{seq} cannot be debugged: {why}. Nothing was executed; {step}."
        )


class NeedsWorkflow(SessionError):
    """A run says which program it is of, and that cannot be found or made from here."""

    def __init__(
        self,
        session: str,
        workflow: str,
        why: str,
        more: str = "",
        verb: str = "resume",
        step: str = "",
        name: str = "",
        file: str = "",
    ) -> None:
        """`more`: the arguments to pass besides the workflow, as in `key=…`. `verb`: the function
        that needs it. `step`: the next step, if it is another one than passing the workflow.
        `name`: the name in its file that the program was run by; "": the class of the workflow.
        `file`: where it stands; "": that is not known.
        """
        self.file = file
        self.session, self.workflow, self.why, self.more = session, workflow, why, more
        made = workflow.rpartition(":")[2]
        self.name = name or made
        passed = self.name if self.name != made else f"{made or 'Workflow'}(…)"
        call = f"{passed}{', ' + more if more else ''}"
        self.verb, self.call, self.step = verb, f"{verb}(session, {call})", step
        super().__init__(
            f"the run of session {session} is of {workflow}, and {why}."
            f" {step or f'Pass it: {self.call}'}."
        )


class LeavesRecord(SessionError):
    """Code of a run that is replayed writes to a session that is not the run's. It was not written,
    and nothing was executed.
    """

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(
            f"the program of session {session} works on a session of its own, which is not on the"
            " record of its run, so a replay cannot follow it there: nothing was executed and"
            " nothing was written. Work on session.fork(), or do that work in a tool; `plait"
            f" resume {session}` runs the program."
        )


class ReplayDiverged(SessionError):
    """The program wants another step than the one on record. That step was not executed.

    A replay has written nothing. A resume has written that it took the run over.
    """

    def __init__(
        self,
        session: str,
        at: int,
        expected: dict[str, Any],
        found: dict[str, Any],
        cause: str = "",
        log: str = "",
    ) -> None:
        """`log`: the log of the recorded step; "": the change cannot be accepted there."""
        self.session, self.at, self.expected, self.found = session, at, expected, found
        self.log = log
        sides = [
            f"  {name}: {_side(side, other)}"
            for name, side, other in (("on record", expected, found), ("wanted", found, expected))
        ]
        why = f" ({cause})" if cause else ""
        super().__init__(
            "\n".join(
                [
                    (
                        f"the program goes another way than the record of session {session}, at"
                        f" event {at}{why}:"
                    ),
                    *sides,
                    (
                        "The step was not executed. Put the program back as it was, or go on live"
                        f" in a branch: whatif(session, at={max(1, at - 1)})"
                        + (_ACCEPT.format(session=session) if log else ".")
                    ),
                ]
            )
        )


_ACCEPT = (
    "; or accept the change, and go on live from there: resume(session, accept=…),"
    ' `plait resume {session} --accept "…"`.'
)


class NothingToAccept(SessionError):
    """There is no change to accept: the program makes every recorded step, or the run is over.
    Nothing was written.
    """

    def __init__(self, session: str, run: str, *, is_finished: bool = False) -> None:
        self.session, self.run, self.is_finished = session, run, is_finished
        super().__init__(
            f"run {run[:13]} of session {session} has finished: no step of it is left for a changed"
            " program. Nothing was written; start another run: workflow(session), or change a step"
            f" of this one in a branch: plait whatif {session}@K."
            if is_finished
            else f"the program makes every recorded step of run {run[:13]} of session {session}: an"
            " accept without a difference. Nothing was written; go on without accept="
            f" (`plait resume {session}`)."
        )


class ProgramFailed(SessionError):
    """The program of a run raises an error while the record of the run is replayed.

    Nothing was written.
    """

    def __init__(
        self, session: str, at: int, kind: str, why: str, file: str = "", line: int = 0
    ) -> None:
        """`at`: the seq of the last recorded step before. `kind`: the class of the error. `file`,
        `line`: of the program; "" and 0 if no line of it raised the error.
        """
        self.session, self.at, self.kind, self.why = session, at, kind, why
        self.file, self.line = file, line
        super().__init__(
            f"the program raises an error after event {at} of session {session}:"
            f" {without_full_stop(why)}. Nothing was written; correct the program, then look"
            f" with `plait check`, or end the run: `plait cancel {session}`."
        )


def sides_text(expected: dict[str, Any], found: dict[str, Any]) -> tuple[str, str]:
    """Return both sides of a difference in short: kinds, and the fields that differ."""
    return _side(expected, found), _side(found, expected)


def _side(side: dict[str, Any], other: dict[str, Any]) -> str:
    """Return the kind of an event, with the fields in which it differs from the other one."""
    if side.get("kind") != other.get("kind"):
        told = [(name, value) for name, value in side.items() if name not in ("kind", "v")][:3]
    else:
        told = [(name, value) for name, value in side.items() if value != other.get(name)]
    return " ".join([str(side.get("kind")), *(f"{name}={brief(value)}" for name, value in told)])


class EndsAgree(InvalidInput):
    """Both ends of a bisection have the same outcome: no step between them changed it.

    Nothing was written.
    """

    def __init__(self, session: str, good: int, bad: int, outcome: str, output: str = "") -> None:
        """`outcome`: good or bad, of both ends; same: nothing was changed between them. `output`:
        that of the command at one of the ends.
        """
        self.session, self.good, self.bad = session, good, bad
        self.outcome, self.output = outcome, output
        why, step = {
            "good": (
                f"{session}@{bad} is good",
                "test for the failure, or name a later end: bad=K",
            ),
            "bad": (
                f"{session}@{good} is bad already",
                "look at the test, or name an earlier: good=K",
            ),
            "same": ("nothing was changed between them", "name others: good=K, bad=K"),
        }[outcome]
        super().__init__(
            f"there is no first bad step between {session}@{good} and {session}@{bad}: {why}."
            f" Nothing was written; {step}."
        )


class BisectAborted(SessionError):
    """A test of a bisection gave no verdict where one was needed. Nothing was written."""

    def __init__(
        self,
        session: str,
        seq: int,
        why: str,
        output: str = "",
        step: str = "let it exit with 125 where it cannot test the files",
    ) -> None:
        self.session, self.seq, self.why, self.output = session, seq, why, output
        super().__init__(
            f"the bisection stopped at {session}@{seq}: {why}. Nothing was written; {step}."
        )


class ScorerFailed(SessionError):
    """A scorer of an evaluation gave no verdict on a session. Earlier trials are scored."""

    def __init__(self, scorer: str, trial: str, why: str) -> None:
        self.scorer, self.trial, self.why = scorer, trial, why
        super().__init__(
            f"the scorer {scorer} gave no verdict on {trial}: {why}. Trials that are done stay"
            " done; correct it, and evaluate again: that goes on from there."
        )
