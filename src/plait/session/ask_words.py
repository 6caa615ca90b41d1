"""Words that may wake an ask that is folded after them.

An ask and the events that answer it stand in different logs, and rows may be folded in any order
between logs. An event that names its ask comes after it in any order; a wish to cancel and a
verdict name none, so the rows of asks keep them, each with its commit number: as if all had been
folded in the order of their numbers, a word counts for the asks that were committed before it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from plait.event import Event
from plait.event.kinds import (
    ApprovalDenied,
    ApprovalGranted,
    CancelRequested,
    ToolResolved,
    ValidationRecorded,
)
from plait.ids import LogId, Micros, inbox_of
from plait.session.asks import is_late, is_verdict_for, refusal_reason
from plait.session.views import Waiting
from plait.store import Row, Rows, Scalar, Table

WORD_TABLE = Table(
    "word", key=("log", "name"), columns={"log": "text", "name": "text", "said": "text"}
)
_CANCEL = "cancel"


class _Word(NamedTuple):
    """The part of an event that may answer or wake an ask."""

    number: int
    seq: int
    time: Micros  # 0: it does not matter
    actor: str
    by: tuple[str, ...] = ()


_words = msgspec.json.Decoder(list[_Word]).decode
_encode = msgspec.json.Encoder().encode


def keep_word(rows: Rows, number: int, event: Event) -> None:
    """Keep an event that may answer or wake an ask that is folded later."""
    if (name := _name_of(event)) is None:
        return
    body, header = event.body, event.header
    by = body.by if isinstance(body, ValidationRecorded) else ()
    time = header.time if isinstance(body, (ApprovalGranted, ApprovalDenied, ToolResolved)) else 0
    before = rows.get("word", event.log, name)
    said = _words(str(before["said"])) if before is not None else []
    # of the same principals, the last word counts for every ask for which an earlier one does
    said = [each for each in said if each[2:] != (time, event.actor, by)]
    said.append(_Word(number, event.seq, time, event.actor, by))
    rows.put("word", {"log": event.log, "name": name, "said": _encode(said).decode()})


def words_after(rows: Rows, ask: Waiting, number: int) -> Row:
    """Return what an ask's row has by words that were folded before the ask, and committed after
    it.
    """
    about = ask.of or ask.log
    inbox = inbox_of(about)
    names = {
        "approval": f"approval {ask.binding}",
        "unknown": f"unknown {ask.request}",
        "verdict": f"verdict {ask.name}",
    }
    if ask.kind in names:
        for log in (inbox, about):
            for word in _said(rows, log, names[ask.kind]):
                if word.number > number and _is_answer(ask, log, word):
                    return {"answered": 1, "woken": 1}
    is_cancelled = any([word.number > number for word in _said(rows, inbox, _CANCEL)])
    return {"woken": 1} if is_cancelled else {}


def _name_of(event: Event) -> str | None:
    """Return the name under which asks find an event. None: no ask needs to."""
    body, header = event.body, event.header
    if isinstance(body, ValidationRecorded):
        return f"verdict {body.name}" if body.passed else None
    if header.causes or header.call or header.run:  # it names its ask, or stands in a session
        return None
    if isinstance(body, (ApprovalGranted, ApprovalDenied)):
        return f"approval {body.binding}"
    if isinstance(body, ToolResolved):
        return f"unknown {body.request}"
    return _CANCEL if isinstance(body, CancelRequested) else None


def _is_answer(ask: Waiting, log: LogId, word: _Word) -> bool:
    if ask.kind == "verdict":
        return is_verdict_for(ask, log, word.seq, word.actor, word.by)
    is_there = log != ask.log
    return is_there and refusal_reason(ask, word.actor) is None and not is_late(ask, word.time)


def _said(rows: Rows, log: LogId, name: str) -> list[_Word]:
    row = rows.get("word", log, name)
    return _words(str(row["said"])) if row is not None else []


ids_in = msgspec.json.Decoder(list[str]).decode


def with_id(ids: Scalar, id: str) -> str:
    """Return a list of ids with one more, in the order of the ids: that of arrival may differ."""
    return _encode(sorted({*ids_in(str(ids)), id})).decode()


def without_id(ids: Scalar, id: Scalar) -> str:
    return _encode([each for each in ids_in(str(ids)) if each != id]).decode()
