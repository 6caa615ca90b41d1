"""Errors about the store in which events live."""

from __future__ import annotations

from collections.abc import Collection

from plait.errors.base import PlaitError


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
            f"no store at {address!r}: {why}. Use a folder, 'sqlite:FOLDER', 'memory:',"
            " 'memory:NAME' or 'postgresql://USER@HOST/DATABASE'."
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

    def __init__(
        self, path: str, setting: str, wanted: object, found: object, step: str = ""
    ) -> None:
        self.path, self.setting, self.wanted, self.found = path, setting, wanted, found
        super().__init__(
            f"{path}: {setting} is {found!r} where {wanted!r} is needed."
            f" {step or 'Put the store on a local disk'}."
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
    """Others kept the store busy for too long; nothing was written."""

    def __init__(self, path: str, waited_s: float, why: str = "") -> None:
        self.path, self.waited_s = path, waited_s
        what = why or f"was locked by another process for {waited_s:g} s"
        super().__init__(f"{path} {what}. Nothing was written; try again.")


class StoreUnsettled(StoreError):
    """A transaction stays open that began before events which can be seen: others may still be
    committed among them.
    """

    def __init__(self, address: str, waited_s: float) -> None:
        self.address, self.waited_s = address, waited_s
        super().__init__(
            f"a transaction in {address} was open for {waited_s:g} s while all commits before it"
            " were waited for. End it (plait doctor names it), and repeat the command."
        )


class DiskFull(StoreError):
    """No space. Nothing was written, reads still work, writing resumes when space returns."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"no space left for {path}. Nothing was written; free some space and try again."
        )


class StoreFailed(StoreError):
    """The disk, the operating system or the server refused; nothing was written."""

    def __init__(self, path: str, why: str, step: str = "check the disk") -> None:
        self.path, self.why = path, why
        super().__init__(f"{path}: {why}. Nothing was written; run `plait doctor` and {step}.")


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


class ContentGone(StoreCorrupt):
    """The content of an event is not there any more; its header is."""


class StaleHead(StoreError):
    """Another append came first. Reload the session, or fork it to keep both."""

    def __init__(
        self, log: str, expected: str | None, found: str, seq: int, run: str | None = None
    ) -> None:
        """`run`: the run that is open there now, and took the log over."""
        self.log, self.expected, self.found, self.seq, self.run = log, expected, found, seq, run
        step = (
            "keep the session that each call returns (session = session.say(…), session ="
            " agent(session)), or reload() it and try again, or fork it to keep both"
        )
        if run is not None:
            step = (
                f"a run is open in it, {run}: reload it and try again, which goes to its inbox, or"
                " fork it to keep both"
            )
        super().__init__(
            f"session {log[-12:-4] or log} has moved on, to event {seq}: this value of it is from"
            f" before. Nothing was written; {step}."
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


class StaleReading(StoreError):
    """An event was committed that the writer had not read, and that bears on what it writes."""

    def __init__(self, number: int | None, kinds: Collection[str]) -> None:
        self.number, self.kinds = number, frozenset(kinds)  # None: it rests on the ends of logs
        where = "the ends of logs" if number is None else f"number {number}"
        super().__init__(
            f"an event was committed after {where}, up to which this rests on the record:"
            f" one of {', '.join(sorted(kinds))}. Nothing was written; read again and decide anew."
        )


class LogExists(StoreError):
    """The id is taken; the log that has it was left untouched."""

    def __init__(self, log: str) -> None:
        self.log = log
        super().__init__(
            f"log {log} exists already. Nothing was written; append to it, or begin another under a"
            " fresh id."
        )


class LogsDiffer(StoreError):
    """Two stores have a log with the same beginning, and each went on by itself."""

    def __init__(self, log: str, seq: int, source: str, target: str) -> None:
        self.log, self.seq, self.source, self.target = log, seq, source, target
        super().__init__(
            f"log {log} differs from event {seq} on: {source} and {target} have other events there."
            " Nothing of it was written; fork it in one of the stores, and copy the fork."
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


class RowsBroken(StoreError):
    """A projection failed on an event that is committed: its rows are refused, those of others are
    not.
    """

    def __init__(self, projection: str, log: str, seq: int, why: str) -> None:
        self.projection, self.log, self.seq, self.why = projection, log, seq, why
        super().__init__(
            f"the rows of projection {projection!r} end before event {log}@{seq}, which it could"
            f" not fold: {why}. The event stands, and other rows answer; mend the projection and"
            " raise its version, or open the store without it."
        )


class RowsTooNew(UnknownRows):
    """A newer version of the projection keeps the rows."""

    def __init__(self, name: str, found: int, known: int) -> None:
        self.found, self.known = found, known
        why = f"a newer version of that projection keeps them ({found}; this program has {known})"
        super().__init__(name, why, "Use that version to read them")
