"""Errors about a session: its status, its places, its merges and its waits."""

from __future__ import annotations

from os.path import commonprefix
from typing import Any

from plait.errors.base import PlaitError, brief


class SessionError(PlaitError):
    """Something a session cannot do, or not now."""


class WrongStatus(SessionError):
    """The session's status does not allow it; nothing was written."""

    def __init__(self, session: str, status: str, verb: str, step: str) -> None:
        self.session, self.status, self.verb, self.step = session, status, verb, step
        super().__init__(
            f"session {session} is {status}: it cannot {verb}. Nothing was written; {step}."
        )


class HasMoved(WrongStatus):
    """The session went to another store, and goes on there; nothing was written."""

    def __init__(self, session: str, verb: str, address: str) -> None:
        self.address = address
        step = f"it goes on in {address}: name that store with --store or PLAIT_STORE"
        super().__init__(session, "moved", verb, step)


class StillArriving(SessionError):
    """A copy of the session into this store has not ended; nothing was written."""

    def __init__(self, session: str, source: str, target: str) -> None:
        self.session, self.source, self.target = session, source, target
        super().__init__(
            f"session {session} is being copied from {source}, and may lack events. Nothing was"
            f" written; wait for the copy, or repeat it: plait copy {source} {target}."
        )


class NotSettled(SessionError):
    """An open run or call, or a message without an answer, stands in the way; nothing was
    written.
    """

    def __init__(
        self, session: str, what: str, verb: str, step: str = "let it finish, or cancel it"
    ) -> None:
        self.session, self.what, self.verb, self.step = session, what, verb, step
        super().__init__(
            f"session {session} has {what}, so it cannot be {verb}. Nothing was written; {step}."
        )


class GateUnmet(SessionError):
    """A verdict that was required is missing, failed or out of date; nothing was written."""

    def __init__(self, session: str, name: str, why: str, verb: str) -> None:
        self.session, self.name, self.why, self.verb = session, name, why, verb
        super().__init__(
            f"session {session} cannot be {verb}: gate {name!r} is not met, {why}. Nothing was"
            f" written; record a verdict on it as it is now: validate({name!r}, True), or `plait"
            " validate`."
        )


class MergeConflict(SessionError):
    """Two branches say different things under one name, and no resolution was given.

    Nothing was written. `conflicts` maps each name to the value of every side: {"verdict":
    {"strict": "reject", "lenient": "clamp"}}.
    """

    def __init__(
        self, session: str, conflicts: dict[str, dict[str, Any]], step: str | None = None
    ) -> None:
        """`step`: the way to choose, as the message says it; None: as facts are chosen."""
        self.session, self.conflicts = session, conflicts
        key = next(iter(conflicts), "key")
        self.step = step or (
            f"choose with resolve={{{key!r}: value}}, or merge --resolve KEY=VALUE in the shell"
        )
        sides = "; ".join(
            f"{key!r}: "
            + ", ".join(
                f"{side} says {brief(value)}"
                for side, value in _from_first_difference(said).items()
            )
            for key, said in conflicts.items()
        )
        super().__init__(
            f"cannot merge into {session}: the branches disagree on {sides}. Nothing was written;"
            f" {self.step}."
        )


def _from_first_difference(sides: dict[str, Any]) -> dict[str, Any]:
    """Cut the lines that all texts have in common at the start.

    Files begin alike, and the message shows only the beginning of each side.
    """
    if not all(isinstance(value, str) for value in sides.values()):
        return sides
    same = commonprefix([str(value).splitlines(keepends=True) for value in sides.values()])
    return {side: value[sum(map(len, same)) :] for side, value in sides.items()}


class NoCommonBase(SessionError):
    """The sessions share no place, so changes cannot be told from the content before."""

    def __init__(self, session: str, other: str) -> None:
        self.session, self.other = session, other
        super().__init__(
            f"{session} and {other} share no place. Nothing was written; "
            "name the place both come from with base=, or merge forks of one session."
        )


class UnknownPlace(SessionError):
    """The session has no such position."""

    def __init__(self, session: str, place: object, tip: int) -> None:
        self.session, self.place, self.tip = session, place, tip
        super().__init__(
            f"session {session} has no event {place}: its events are 1 to {tip}; -1 is the one"
            " before the last."
        )


class NoPrompt(SessionError):
    """There is no prompt to show at this place."""

    def __init__(self, session: str, place: int, why: str, step: str) -> None:
        self.session, self.place, self.why = session, place, why
        super().__init__(f"there is no prompt at {session}@{place}: {why}; {step}.")


class UnknownKey(SessionError):
    """No fact, pending work or text of that name at this place."""

    def __init__(self, session: str, what: str, key: str, known: tuple[str, ...] = ()) -> None:
        self.session, self.what, self.key, self.known = session, what, key, known
        there = (
            f"There are {', '.join(map(repr, known[:10]))}{' and more' if len(known) > 10 else ''}"
            if known
            else "There is none yet"
        )
        super().__init__(f"session {session} has no {what} {key!r}. {there}; check the name.")


class UnknownRevision(SessionError):
    """Nothing is called that."""

    def __init__(self, text: str, why: str) -> None:
        self.text, self.why = text, why
        super().__init__(
            f"{text!r}: {why}. `plait ls` shows the sessions; write one as its id, the start of it,"
            " or its label, then @PLACE."
        )


class AmbiguousRevision(SessionError):
    """Several things are called that."""

    def __init__(self, text: str, candidates: tuple[str, ...]) -> None:
        self.text, self.candidates = text, candidates
        super().__init__(f"{text!r} could be any of {', '.join(candidates)}. Write more of the id.")


class NoHost(SessionError):
    """Nothing is bound here that can run tools, place files or publish them."""

    def __init__(self, verb: str) -> None:
        self.verb = verb
        super().__init__(
            f"nothing is bound that could {verb} for a session. Bind a Host with"
            " plait.session.ports.bind_host()."
        )


class NoRun(SessionError):
    """No run of this session is open; nothing was written."""

    def __init__(self, session: str, verb: str, step: str = "") -> None:
        """`session`: "" if the act is one of the code of a run, and no run executes."""
        self.session, self.verb = session, verb
        step = step or "a branch belongs to the run of the session it was forked in: name that one"
        where = f"session {session} has no open run"
        if not session:
            where, step = "no run executes here", "call it in forward()"
        super().__init__(f"{where} that could {verb}. Nothing was written; {step}.")


class NoEndedRun(SessionError):
    """No run of this session has ended yet; nothing was written."""

    def __init__(self, session: str, verb: str) -> None:
        self.session, self.verb = session, verb
        super().__init__(
            f"session {session} cannot {verb}: no run of it has ended yet. Nothing was written; run"
            " a workflow on it first, or resume the run that is open."
        )


class UnknownAsk(SessionError):
    """Nothing that waits is called that, or it does not wait any more; nothing was written."""

    def __init__(
        self,
        session: str,
        ask: str,
        why: str,
        step: str = "look at what waits: session.inbox.waiting, or `plait inbox`",
    ) -> None:
        self.session, self.ask, self.why, self.step = session, ask, why, step
        where = f"session {session}" if session else "this store"
        super().__init__(f"{where}, {ask!r}: {why}. Nothing was written; {step}.")


class WrongAskKind(UnknownAsk):
    """The ask waits for an answer of another kind; nothing was written. `step` says which."""

    def __init__(self, session: str, ask: str, kind: str, why: str, step: str) -> None:
        self.kind = kind
        super().__init__(session, ask, why, step)


class AlreadyAnswered(SessionError):
    """An ask takes one answer, and another one came first; nothing was written."""

    def __init__(self, session: str, ask: str, kind: str, actor: str) -> None:
        self.session, self.ask, self.kind, self.actor = session, ask, kind, actor
        super().__init__(
            f"session {session}: {ask[:12]} was answered already, by {actor} ({kind}). "
            f"Nothing was written; the first answer holds: `plait inbox {session} --all` shows it."
        )


class AskExpired(SessionError):
    """The time for an answer is over; nothing was written."""

    def __init__(self, session: str, ask: str, expires: int) -> None:
        self.session, self.ask, self.expires = session, ask, expires
        super().__init__(
            f"session {session}: {ask[:12]} has expired. Nothing was written; resume the session:"
            " whoever asked is told, and may ask again."
        )


class MayNotApprove(SessionError):
    """The asking principal and agents cannot give the answer; nothing was written."""

    def __init__(self, session: str, actor: str, why: str) -> None:
        self.session, self.actor, self.why = session, actor, why
        super().__init__(
            f"session {session}: {actor} may not answer this: {why}. Nothing was written; let a"
            " person do it, with --as or actor=."
        )


class BypassRefused(SessionError):
    """Code of a run went around the session, where that is refused. It did not happen."""

    def __init__(self, what: str, target: str) -> None:
        self.what, self.target = what, target
        super().__init__(
            f"a {what} of this run's own code would leave no record: {target}. It was refused; put"
            " it into a tool and call session.use(tool, …), or set bypass='record' on the"
            " workflow."
        )


class NotASession(SessionError):
    """`forward` takes a session and gives one back."""

    def __init__(self, what: str, found: object) -> None:
        self.what, self.found = what, type(found).__name__
        hint = " Did you forget `return session`?" if found is None else ""
        super().__init__(
            f"{what} a {self.found}, not a Session.{hint} Pass a Session, and return the one that"
            " came last."
        )
