"""Rows about memories: one per memory, with its words and every decision about it.

The rows are a projection of the store: they follow from events alone, and can be dropped and made
again. Which decisions count depends on the reader (scopes.py), so a row keeps them all, each with
its position and its commit number.

Decisions about rivals, the memories of one owner and key or of one statement, come from many logs,
and may be folded in any order between these. They count in the order of their commit numbers: one
that comes late is put in its place, and those about its rivals are folded again.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from plait.ids import Digest
from plait.memory.standing import (
    FAILED_VERDICT,
    KEY,
    SAME,
    VERDICT,
    VERDICTS,
    MemoryDecision,
    is_own_verdict,
    standing_of,
)
from plait.memory.support_rows import (
    ITEM,
    REST,
    SUPPORT,
    drop_support,
    number_in,
    put_rests,
    put_support,
)
from plait.memory.words import WORDS_VERSION, text_digest, words_of
from plait.session.content import text_of
from plait.store import Row, Rows, Table

READ, REWIND = "read", "rewind"
ARRIVING, HOLDER, LATE = "arriving", "holder", "late"


_encode = msgspec.json.Encoder().encode
_all_decisions = msgspec.json.Decoder(list[MemoryDecision]).decode
decode_grounds = msgspec.json.Decoder(list[Ground]).decode
decode_ids = msgspec.json.Decoder(list[Digest]).decode


def decode_decisions(text: str) -> list[MemoryDecision]:
    """Return the decisions about a memory, in commit order, without those that changed nothing."""
    return [each for each in _all_decisions(text) if each.part != "repeat"]


_DECISIONS = (
    MemoryCommitted,
    MemoryQuarantined,
    MemoryRejected,
    MemorySuperseded,
    MemoryRetracted,
    MemoryRestored,
)
DECISION_KINDS = frozenset(kind.__name__ for kind in _DECISIONS)
_REWOUND, _COMMITTED = Rewound.__name__, MemoryCommitted.__name__
_REPEATED = frozenset((MemoryRejected.__name__, MemorySuperseded.__name__))
_LIMITS = ("valid_from", "valid_until", "expires")
# two memories with the same words and these make the same statement
STATED = ("key", "speaker", "source", "importance", *_LIMITS, "review_by")


class MemoryRows:
    """A `Projection`: memories by id, owner, words, key, source and log.

    `rest` leads from a memory to those that rest on it; `support` has evidence that came later;
    `read` has the recalls of each log, `rewind` the rewinds, which may leave a commit behind;
    `arriving` has the proposals, supports and verdicts that a merge or the end of a run may have to
    decide about. A memory is `plain` if it was committed, has no limits in time, and nothing was
    decided since.

    Of one owner and key, at most one memory is active: one that becomes active supersedes the one
    that was, in this fold, since writers that do not know of each other may commit both. `holder`
    has the last memory that became active for each owner and key, and for each statement; `last` is
    the last decision about any rival there, `newest` the rival that was decided about last for the
    first time, from which `before` leads to the others. At session scope this depends on the path:
    `late` has the memories for which a reader has to look.
    """

    name = "memory"
    version = 5 + WORDS_VERSION
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
                "before": "text",
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
        Table(
            REST,
            key=("base", "memory"),
            columns={"base": "text", "memory": "text", "times": "integer"},
        ),
        Table(
            SUPPORT,
            key=("memory", "number"),
            columns={
                "memory": "text",
                "number": "integer",
                "log": "text",
                "seq": "integer",
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
            HOLDER,
            key=("owner", "name"),
            columns={
                "owner": "text",
                "name": "text",
                "memory": "text",
                "last": "integer",
                "newest": "text",
            },
        ),
        Table(LATE, key=("key", "memory"), columns={"key": "text", "memory": "text"}),
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
            if header.run is not None and header.causes:
                # it may be the copy of one that came through the inbox and names a memory
                rows.put(ARRIVING, {"log": header.log, "seq": header.seq})
            return
        body = event.body
        if isinstance(body, MemoryProposed):
            rows.put(ITEM, item_row(number, event, body))
            put_rests(rows, event.id, body.grounds)
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
                    rows.put(ITEM, {**row, "weakened": number_in(row["weakened"]) + step})
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
        _add_in_order(rows, row, _decision_at(number, event, event.kind, rule, other))
        if row["scope"] == "session" and row["key"]:
            if isinstance(body, MemoryCommitted) and not rule:
                rows.put(LATE, {"key": row["key"], "memory": memory})

    def _judge(self, rows: Rows, number: int, event: Event, memory: Digest) -> None:
        """Take in a verdict on a memory. At session scope it decides; for wider scopes a decision
        follows it.
        """
        row, body = rows.get(ITEM, memory), event.body
        if row is None or not isinstance(body, ValidationRecorded):
            return
        if is_own_verdict(str(row["actor"]), event.actor, body.by):
            return
        rows.put(ARRIVING, {"log": event.log, "seq": event.seq})
        kind = VERDICT if body.passed else FAILED_VERDICT
        _add_in_order(rows, row, _decision_at(number, event, kind, f"verdict {body.name}"))
        if row["scope"] == "session" and row["key"] and body.passed:
            rows.put(LATE, {"key": row["key"], "memory": memory})

    def _support(
        self, rows: Rows, number: int, event: Event, memory: Digest, grounds: tuple[Ground, ...]
    ) -> None:
        if rows.get(ITEM, memory) is None:
            return
        rows.put(ARRIVING, {"log": event.log, "seq": event.seq})
        header = event.header
        by_person = header.actor.startswith("human:") and header.origin == "human"
        said: Row = {"run": header.run, "person": int(by_person and header.run is None)}
        at: Row = {"memory": memory, "number": number, "log": header.log, "seq": header.seq}
        put_support(rows, {**at, **said}, grounds)


# ── decisions in commit order ────────────────────────────────────────────────────────────────


def _add_in_order(rows: Rows, row: Row, decision: MemoryDecision) -> None:
    """Add a decision that an event made, at its place among those about the memory and its rivals.

    Mostly it is the last one. If not, they are all folded again: that gives the rows that folding
    in commit order would have given.
    """
    known = _all_decisions(str(row["decisions"]))
    if row["scope"] == "session":
        if known and known[-1].number > decision.number:
            _fold_again(rows, [row], (str(row["id"]), decision))
        else:
            _add_last(rows, row, decision)
        return
    held = _holder_row(rows, row, holder_names(row)[-1])
    if number_in(held["last"]) > decision.number:
        rivals = _rivals(rows, held)
        if not known:
            rivals.append(row)
        _fold_again(rows, rivals, (str(row["id"]), decision))
    else:
        _add_last(rows, row, decision)


def _rivals(rows: Rows, held: Row) -> list[Row]:
    """Return the memories under a name about which a decision was folded."""
    found: list[Row] = []
    newest = held["newest"]
    while newest is not None and (row := rows.get(ITEM, newest)) is not None:
        found.append(row)
        newest = row["before"]
    return found


def _fold_again(rows: Rows, rivals: list[Row], late: tuple[str, MemoryDecision]) -> None:
    """Fold all decisions about some rivals from the beginning, with one that came late."""
    due = [late]
    for row in rivals:
        for each in _all_decisions(str(row["decisions"])):
            if each.part != "fold":
                due.append((str(row["id"]), each._replace(part="event")))
            elif each.rule == SAME:
                drop_support(rows, each.number, Digest(each.other), Digest(str(row["id"])))
    for row in rivals:
        again = rows.get(ITEM, row["id"]) or row  # its supports have changed
        blank: Row = {"decisions": "[]", "plain": 0, "before": None, "words": _row_words(row)}
        rows.put(ITEM, {**again, **blank})
        if row["scope"] != "session":
            for name in holder_names(row):
                rows.delete(HOLDER, row["owner"], name)
    for memory, decision in sorted(due, key=lambda each: each[1].number):
        if (row := rows.get(ITEM, memory)) is not None:
            _add_last(rows, row, decision)


def _add_last(rows: Rows, row: Row, decision: MemoryDecision) -> None:
    """Add a decision after all others about a memory and its rivals."""
    row, is_wide, kind = {**row}, row["scope"] != "session", decision.kind
    every = _all_decisions(str(row["decisions"]))
    if is_wide:
        held = _holder_row(rows, row, holder_names(row)[-1])
        if not every:
            row["before"], held["newest"] = held["newest"], row["id"]
        rows.put(HOLDER, {**held, "last": decision.number})
    known = [each for each in every if each.part != "repeat"]
    if known and (known[-1].kind, known[-1].other) == (kind, decision.other):
        if kind in _REPEATED:  # it is rejected again, or superseded as the fold has it
            decision = decision._replace(part="repeat")
            rows.put(ITEM, {**row, "decisions": _encode([*every, decision]).decode()})
            return
    row["decisions"] = _encode([*every, decision]).decode()
    if kind not in VERDICTS:
        if kind == MemoryRejected.__name__:
            row["words"] = ""  # no search finds it
        elif kind == _COMMITTED and not row["words"]:
            row["words"] = _row_words(row)
        is_first = not known and kind == _COMMITTED
        row["plain"] = int(is_first and all([row[limit] is None for limit in _LIMITS]))
    rows.put(ITEM, row)
    if is_wide and not is_wide_active(known) and is_wide_active([*known, decision]):
        _take_hold(rows, row, decision)


# ── one memory for each key and statement ────────────────────────────────────────────────────


def is_wide_active(decisions: Sequence[MemoryDecision]) -> bool:
    """True if a memory of a wider scope is active, by all decisions about it."""
    return standing_of(deciding_at(decisions, is_wide=True)).state == "active"


def deciding_at(decisions: Sequence[MemoryDecision], *, is_wide: bool) -> list[MemoryDecision]:
    """Return the decisions that count at a scope: at a wider one, a verdict is evidence alone, and
    the decision that follows it counts.
    """
    return [each for each in decisions if not is_wide or each.kind not in VERDICTS]


def _take_hold(rows: Rows, row: Row, by: MemoryDecision) -> None:
    """Let a memory of a wider scope that becomes active replace the active one of its key; if the
    same statement is active already, let it be support of that one.
    """
    memory, (statement, *keys) = str(row["id"]), holder_names(row)
    if (first := _active_holder(rows, row, statement)) is not None:
        _add_decision(rows, row, _superseded(by, str(first["id"]), SAME))
        ground = Ground(Digest(memory), (Digest(memory),))
        at: Row = {"memory": first["id"], "number": by.number, "log": by.log, "seq": by.seq}
        put_support(rows, {**at, "run": None, "person": 0}, (ground,))
        return
    for key in keys:
        if (old := _active_holder(rows, row, key)) is not None:
            _add_decision(rows, old, _superseded(by, memory, KEY))
    for name in (statement, *keys):
        rows.put(HOLDER, {**_holder_row(rows, row, name), "memory": memory})


def _holder_row(rows: Rows, row: Row, name: str) -> Row:
    """Return the row of the holder of a name of a memory's owner, perhaps a new one."""
    blank: Row = {"memory": None, "last": 0, "newest": None}
    return rows.get(HOLDER, row["owner"], name) or {"owner": row["owner"], "name": name, **blank}


def holder_names(row: Row) -> list[str]:
    """Return the names under which one memory of an owner is active at most: its statement, and its
    key, if it has one.
    """
    stated = [row[name] for name in STATED]
    same = f"{row['same']} {_encode(stated).decode()}" if any(stated) else str(row["same"])
    return [same, f"key {row['key']}"] if row["key"] else [same]


def _active_holder(rows: Rows, row: Row, name: str) -> Row | None:
    """Return another memory that is active under a name of the same owner. None: there is none."""
    held = rows.get(HOLDER, row["owner"], name)
    if held is None or held["memory"] == row["id"]:
        return None
    other = rows.get(ITEM, held["memory"])
    is_held = other is not None and is_wide_active(decode_decisions(str(other["decisions"])))
    return other if is_held else None


def _superseded(by: MemoryDecision, other: str, rule: str) -> MemoryDecision:
    return by._replace(kind=MemorySuperseded.__name__, other=other, rule=rule, part="fold")


def _add_decision(rows: Rows, row: Row, decision: MemoryDecision) -> None:
    """Add a decision of the fold itself."""
    every = _all_decisions(str(row["decisions"]))
    rows.put(ITEM, {**row, "decisions": _encode([*every, decision]).decode(), "plain": 0})


def _decision_at(
    number: int, event: Event, kind: str, rule: str, other: str = ""
) -> MemoryDecision:
    return MemoryDecision(number, kind, event.log, event.seq, other, rule, event.actor)


def item_row(number: int, event: Event, body: MemoryProposed) -> Row:
    """Return the row of a memory as it is proposed."""
    text, header = text_of(body.parts), event.header
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
        "words": _words_text(text, body.speaker),
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
        "before": None,
    }


def _row_words(row: Row) -> str:
    return _words_text(str(row["text"]), str(row["speaker"]))


def _words_text(text: str, speaker: str) -> str:
    words = words_of(text)
    return " ".join(words_of("", speaker) + words if speaker else words)
