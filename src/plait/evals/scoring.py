"""Scorers: functions of a session whose verdicts are recorded in it, with evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from plait.errors import InvalidValue, PlaitError, ScorerFailed
from plait.evals.trials import ACTOR, trial_name
from plait.event import Json
from plait.runtime.tracebacks import raised_text
from plait.session import Session
from plait.session.acting import Because


class ScorerVerdict(msgspec.Struct, frozen=True):
    """The verdict of a scorer about a session, with the events that show it.

    Without evidence it is the event that ended the run.
    """

    passed: bool
    detail: Json = None
    evidence: Because = ()


Scorer = Callable[[Session], bool | ScorerVerdict]


def scorer_names(scorers: Sequence[Scorer]) -> tuple[str, ...]:
    for each in scorers:
        if not callable(each):
            why = f"{each!r:.60} is no function of a session"
            raise InvalidValue("scorers", why, "write def score_NAME(session): return …")
    return tuple([str(getattr(each, "__name__", type(each).__name__)) for each in scorers])


def scored_names(session: Session) -> Mapping[str, bool]:
    """Return the verdicts that scorers have recorded in a session, by name."""
    verdicts = [each for each in session.checks.verdicts if each.actor == ACTOR]
    return {each.name: each.passed for each in verdicts}


def score_trial(session: Session, scorers: Mapping[str, Scorer]) -> Session:
    """Record the verdicts of those scorers that have given none on a session whose run is over."""
    known = scored_names(session)
    ended = session.runs[-1].last or session.seq
    shown = session.events[ended - 1]
    last = session
    for name, scorer in scorers.items():
        if name in known:
            continue
        found = _call(name, scorer, session)
        evidence = found.evidence or shown
        last = last.checks.record(
            name, found.passed, evidence=evidence, detail=found.detail, actor=ACTOR
        )
    return last


def _call(name: str, scorer: Scorer, session: Session) -> ScorerVerdict:
    """Call a scorer. All scorers see the session as its run left it."""
    try:
        found = cast("Any", scorer(session))
    except PlaitError:
        raise
    except Exception as error:
        raise ScorerFailed(name, trial_name(session), raised_text(error)) from error
    if isinstance(found, bool):
        return ScorerVerdict(found)
    if isinstance(found, ScorerVerdict):
        return found
    why = f"it returned {found!r:.60}, not True, False or a ScorerVerdict"
    raise ScorerFailed(name, trial_name(session), why)
