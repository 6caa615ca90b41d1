"""Errors about a store that a server keeps."""

from __future__ import annotations

import shlex

from plait.errors.stores import StoreError


def migrate_command(address: str) -> str:
    """Return the command that makes or upgrades the tables of a store, as a shell takes it: the
    parameters of an address have characters that a shell reads otherwise.
    """
    return f"plait migrate {shlex.quote(address)}"


class StoreUnreachable(StoreError):
    """The server of a store does not answer. `is_new`: it never did, to this process."""

    def __init__(self, address: str, why: str, waited_s: float, is_new: bool = False) -> None:
        self.address, self.why, self.waited_s, self.is_new = address, why, waited_s, is_new
        writes = (
            "Nothing was written."
            if is_new
            else "A write that was on its way may stand or not: `plait resume` finds out when the"
            " server is back."
        )
        super().__init__(
            f"the store {address} could not be reached for {waited_s:g} s: {why}. {writes} Check"
            " the address and the server; PLAIT_STORE_WAIT_S sets how long to wait."
        )


class StoreDenied(StoreError):
    """The server of a store refuses this user; nothing was written."""

    def __init__(self, address: str, why: str, step: str) -> None:
        self.address, self.why = address, why
        super().__init__(f"the store {address} cannot be used: {why}. Nothing was written; {step}.")


class StoreReadOnly(StoreError):
    """The server takes no writes: it is a standby, or this user may only read."""

    def __init__(self, address: str, why: str) -> None:
        self.address, self.why = address, why
        super().__init__(
            f"the store {address} takes no writes: {why}. Nothing was written; use the address of"
            " the primary server, and a user that may write."
        )


class NotMigrated(StoreError):
    """The tables of a store are not there, or are older than this Plait needs."""

    def __init__(self, address: str, found: int, known: int) -> None:
        self.address, self.found, self.known = address, found, known
        tables = "has no tables" if not found else f"has tables of version {found}, not {known}"
        super().__init__(
            f"the store {address} {tables}. Nothing was written; run"
            f" `{migrate_command(address)}` as a user that may create tables."
        )


class StoreRestored(StoreError):
    """The database was restored from a dump, and its transaction ids began anew."""

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(
            f"the store {address} was restored from a dump into a server whose transaction ids are"
            " lower: new events would have the numbers of old ones. Nothing was written; run"
            f" `{migrate_command(address)}`, which goes on counting after them."
        )


class StoreReplaced(StoreError):
    """Another database server answers at the address than when the store was opened."""

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(
            f"another server than before answers for the store {address}: the database was restored"
            " or moved. Nothing was written there; start the program again, which looks at it anew."
        )


class EventsLost(StoreError):
    """Events that were acknowledged are gone from the end of a log."""

    def __init__(self, log: str, seq: int, tip: int) -> None:
        self.log, self.seq, self.tip = log, seq, tip
        super().__init__(
            f"session {log[-12:-4] or log} has lost event {seq}, which was written; it ends with"
            f" event {tip}. A crash of the server takes back async events that are not on its disk,"
            " and a failover those that the standby did not have. Nothing was written; reload() the"
            " session, or resume its run, which goes on from there."
        )
