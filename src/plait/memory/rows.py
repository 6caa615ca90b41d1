"""Rows about memories: one per memory, with its words and every decision about it.

The rows are a projection of the store: they follow from events alone, are folded in the transaction
of each append, and can be dropped and made again. Which decisions count depends on the reader
(scopes.py), so a row keeps them all, each with its position and its commit number.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from plait.event import Event
from plait.event.kinds import (
    Ground,
    MemoryCommitted,
    MemoryProposed,
    MemoryQuarantined,
    MemoryRecalled,
    MemoryRejected,
    MemoryRestored,
    MemoryRetracted,
    MemoryRolledBack,
    MemorySuperseded,
    MemorySupported,
    Rewound,
    ValidationRecorded,
)
from plait.ids import Digest, LogId
from plait.memory.words import WORDS_VERSION, text_digest, words_of
from plait.session.content import text_of
from plait.store import Row, Rows, Table

ITEM, REST, SUPPORT, READ, REWIND = "item", "rest", "support", "read", "rewind"
ARRIVING = "arriving"


class MemoryDecision(NamedTuple):
    """A decision about a memory, and where it stands."""

    number: int  # its commit number
    kind: str
    log: LogId
    seq: int
    other: str  # the second memory of a superseded or restored one; "": none
    rule: str  # "": a person decided
    actor: str


_encode = msgspec.json.Encoder().encode
decode_decisions = msgspec.json.Decoder(list[MemoryDecision]).decode
decode_grounds = msgspec.json.Decoder(list[Ground]).decode
decode_ids = msgspec.json.Decoder(list[Digest]).decode

_DECISIONS = (
    MemoryCommitted,
    MemoryQuarantined,
    MemoryRejected,
    MemorySuperseded,
    MemoryRetracted,
    MemoryRestored,
)
DECISION_KINDS = frozenset(kind.__name__ for kind in _DECISIONS)
VERDICT = ValidationRecorded.__name__
_REWOUND = Rewound.__name__
_LIMITS = ("valid_from", "valid_until", "expires")


class MemoryRows:
    """A `Projection`: memories by id, owner, words, key, source and log.

    `rest` leads from a memory to those that rest on it; `support` has evidence that came later;
    `read` has the recalls of each log, `rewind` the rewinds, which may leave a commit behind;
    `arriving` has the proposals, supports and verdicts that a merge or the end of a run may have to
    decide about. A memory is `plain` if it was committed, has no limits in time, and nothing was
    decided since.
    """

    name = "memory"
    version = 2 + WORDS_VERSION
    kinds = DECISION_KINDS | {
        MemoryProposed.__name__,
        MemorySupported.__name__,
        MemoryRolledBack.__name__,
        MemoryRecalled.__name__,
        VERDICT,
        _REWOUND,
    }
    tables = (
        Table(
            ITEM,
            key=("id",),
            columns={
                "id": "text",
                "number": "integer",
                "log": "text",
                "seq": "integer",
                "owner": "text",
                "scope": "text",
                "kind": "text",
                "trust": "text",
                "text": "text",
                "words": "text",
                "same": "text",
                "key": "text",
                "speaker": "text",
                "source": "text",
                "importance": "integer",
                "valid_from": "integer",
                "valid_until": "integer",
                "expires": "integer",
                "review_by": "integer",
                "time": "integer",
                "actor": "text",
                "run": "text",
                "grounds": "text",
                "supersedes": "text",
                "decisions": "text",
                "supports": "integer",
                "weakened": "integer",
                "plain": "integer",
            },
            order="number",
            indexes=(
                ("same", "owner", "number"),
                ("key", "owner", "number"),
                ("source", "owner", "number"),
                ("log", "number"),
            ),
            words="words",
            group="owner",
        ),
        Table(REST, key=("base", "memory"), columns={"base": "text", "memory": "text"}),
        Table(
            SUPPORT,
            key=("memory", "number"),
            columns={
                "memory": "text",
                "number": "integer",
                "grounds": "text",
                "run": "text",
                "person": "integer",  # 1: a person said so, and not code of a run
            },
        ),
        Table(
            READ,
            key=("log", "seq"),
            columns={"log": "text", "seq": "integer", "number": "integer", "memories": "text"},
        ),
        Table(ARRIVING, key=("log", "seq"), columns={"log": "text", "seq": "integer"}),
        Table(
            REWIND,
            key=("log", "number"),
            columns={"log": "text", "number": "integer", "seq": "integer", "target": "integer"},
        ),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        kind, header = event.kind, event.header
        if kind in DECISION_KINDS:
            if header.causes:
                self._decide(rows, number, event, header.causes[0])
            return
        if kind == VERDICT:
            for cause in header.causes:
                self._judge(rows, number, event, cause)
            return
        body = event.body
        if isinstance(body, MemoryProposed):
            rows.put(ITEM, item_row(number, event, body))
            _put_rests(rows, event.id, body.grounds)
            if body.scope != "session":
                rows.put(ARRIVING, {"log": header.log, "seq": header.seq})
        elif isinstance(body, MemorySupported) and header.causes:
            self._support(rows, number, event, header.causes[0], body.grounds)
        elif isinstance(body, MemoryRecalled):
            memories = _encode([hit.memory for hit in body.hits]).decode()
            at: Row = {"log": header.log, "seq": header.seq, "number": number}
            rows.put(READ, {**at, "memories": memories})
        elif isinstance(body, MemoryRolledBack):
            for memory in body.weakened:
                if (row := rows.get(ITEM, memory)) is not None:
                    step = -1 if body.undoes is not None else 1
                    rows.put(ITEM, {**row, "weakened": _count(row["weakened"]) + step})
        elif isinstance(body, Rewound):
            place: Row = {"seq": header.seq, "target": body.to}
            rows.put(REWIND, {"log": header.log, "number": number, **place})

    def _decide(self, rows: Rows, number: int, event: Event, memory: Digest) -> None:
        row = rows.get(ITEM, memory)
        if row is None:
            return
        body, header = event.body, event.header
        other = ""
        if isinstance(body, (MemorySuperseded, MemoryRestored)) and len(header.causes) > 1:
            other = header.causes[1]
        rule = getattr(body, "rule", "")
        place = header.log, header.seq
        decision = MemoryDecision(number, event.kind, *place, other, rule, header.actor)
        known = decode_decisions(str(row["decisions"]))
        if known and known[-1][1] == decision.kind == MemoryRejected.__name__:
            return  # it is rejected again: nothing changes
        row = {**row, "decisions": _encode([*known, decision]).decode()}
        if isinstance(body, MemoryRejected):
            row["words"] = ""  # no search finds it
        elif isinstance(body, MemoryCommitted) and not row["words"]:
            row["words"] = _words_text(words_of(str(row["text"])), str(row["speaker"]))
        is_first = not known and isinstance(body, MemoryCommitted)
        row["plain"] = int(is_first and all([row[limit] is None for limit in _LIMITS]))
        rows.put(ITEM, row)

    def _judge(self, rows: Rows, number: int, event: Event, memory: Digest) -> None:
        """Take in a verdict on a memory: one that passes confirms it."""
        row, body = rows.get(ITEM, memory), event.body
        if row is None or not isinstance(body, ValidationRecorded) or not body.passed:
            return
        rows.put(ARRIVING, {"log": event.log, "seq": event.seq})
        if row["scope"] != "session" and event.header.run is not None:
            return  # a run only proposes to wider scopes: its end decides
        place = event.log, event.seq
        decision = MemoryDecision(number, VERDICT, *place, "", f"verdict {body.name}", event.actor)
        known = decode_decisions(str(row["decisions"]))
        row = {**row, "decisions": _encode([*known, decision]).decode(), "plain": 0}
        rows.put(ITEM, row)

    def _support(
        self, rows: Rows, number: int, event: Event, memory: Digest, grounds: tuple[Ground, ...]
    ) -> None:
        row = rows.get(ITEM, memory)
        if row is None:
            return
        rows.put(ITEM, {**row, "supports": _count(row["supports"]) + 1})
        rows.put(ARRIVING, {"log": event.log, "seq": event.seq})
        header = event.header
        by_person = header.actor.startswith("human:") and header.origin == "human"
        said: Row = {
            "grounds": _encode(grounds).decode(),
            "run": header.run,
            "person": int(by_person and header.run is None),
        }
        rows.put(SUPPORT, {"memory": memory, "number": number, **said})
        _put_rests(rows, memory, grounds)


def item_row(number: int, event: Event, body: MemoryProposed) -> Row:
    """Return the row of a memory as it is proposed."""
    text = text_of(body.parts)
    words = words_of(text)
    header = event.header
    return {
        "id": event.id,
        "number": number,
        "log": header.log,
        "seq": header.seq,
        "owner": f"{body.scope}:{body.owner}",
        "scope": body.scope,
        "kind": body.kind,
        "trust": body.trust,
        "text": text,
        "words": _words_text(words, body.speaker),
        "same": text_digest(text),
        "key": body.key or None,
        "speaker": body.speaker,
        "source": body.source or None,
        "importance": body.importance,
        "valid_from": body.valid_from,
        "valid_until": body.valid_until,
        "expires": body.expires,
        "review_by": body.review_by,
        "time": header.time,
        "actor": header.actor,
        "run": header.run,
        "grounds": _encode(body.grounds).decode(),
        "supersedes": _encode(body.supersedes).decode(),
        "decisions": "[]",
        "supports": 0,
        "weakened": 0,
        "plain": 0,
    }


def _words_text(words: list[str], speaker: str) -> str:
    return " ".join(words_of("", speaker) + words if speaker else words)


def _put_rests(rows: Rows, memory: Digest, grounds: tuple[Ground, ...]) -> None:
    for base in {base for ground in grounds for base in ground.memories}:
        rows.put(REST, {"base": base, "memory": memory})


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
