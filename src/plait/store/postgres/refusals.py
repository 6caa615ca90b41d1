"""Why a server refused a connection, as a code.

The driver gives a text for it, in the language of the server. The code is in the message of the
server all the same: the connection is tried once more, and the driver writes down what it hears.
"""

from __future__ import annotations

import os
import re
import select
import time
from contextlib import suppress
from typing import NamedTuple

import psycopg
from psycopg import pq

_PATIENCE_S = 5.0
_TRACE_BYTES = 1 << 16
_LINE = re.compile(r"^B\t\d+\tErrorResponse\t(.*)$", re.MULTILINE)
_STATE = re.compile(r'(?: [SV] "[^"]*")* C "(\w{5})"')  # before any text that names users
_ROUTINE = re.compile(r' R "(\w+)" \\x00$')


class ConnectRefusal(NamedTuple):
    """The code of an error, and the routine of the server that raised it."""

    state: str
    routine: str


def ask_refusal(conninfo: str) -> ConnectRefusal | None:
    """Connect once more, and return how the server refuses. None: it said nothing, it accepts by
    now, or the driver cannot write down what it hears (it can on Linux).
    """
    with suppress(psycopg.Error, OSError, AttributeError):
        said = _LINE.findall(_hear(conninfo))
        if said and (state := _STATE.match(said[-1])):
            routine = _ROUTINE.search(said[-1])
            return ConnectRefusal(state[1], routine[1] if routine else "")
    return None


def _hear(conninfo: str) -> str:
    """Return the messages of an attempt to connect. They stay in the memory of this process."""
    file = os.memfd_create("plait-refusal", os.MFD_CLOEXEC)
    try:
        connection: pq.abc.PGconn = pq.PGconn.connect_start(conninfo.encode())
        try:
            connection.trace(file)
            connection.set_trace_flags(pq.Trace.SUPPRESS_TIMESTAMPS)
            _poll(connection)
            connection.untrace()
        finally:
            connection.finish()
        return os.pread(file, _TRACE_BYTES, 0).decode(errors="replace")
    finally:
        os.close(file)


def _poll(connection: pq.abc.PGconn) -> None:
    until = time.monotonic() + _PATIENCE_S
    while (left := until - time.monotonic()) > 0:
        status = connection.connect_poll()
        if status == pq.PollingStatus.READING:
            select.select([connection.socket], [], [], left)
        elif status == pq.PollingStatus.WRITING:
            select.select([], [connection.socket], [], left)
        else:
            return
