"""The record in a dossier, and the program that checks it with nothing but Python.

The lines of the record are the bytes that were hashed, so nothing has to be serialised again:
anyone with SHA-256 can compute every id, and the head, from them.
"""

from __future__ import annotations

import zlib
from base64 import b85encode

import msgspec

from plait.dossier.shapes import RecordHead, RecordShape
from plait.errors import PlaitError
from plait.event import Event
from plait.ids import LogId
from plait.outline.shapes import FamilyShape
from plait.store import Store

BODIES_MAX = 4 << 20  # bytes of bodies, before they are compressed; beyond it: headers alone
EVENTS_MAX = 20_000  # beyond it the record is in the store alone
_encode = msgspec.json.Encoder().encode

PROGRAM = """\
# python3 check.py dossier.json     needs nothing but Python
import base64, hashlib, json, sys, zlib


def need(holds, words):
    if not holds:
        sys.exit(words)


check = json.load(open(sys.argv[1], encoding="utf-8"))["check"]
record = check["record"]
need(record["data"], "the record is not in this file: `plait verify` checks it in the store")
lines = zlib.decompress(base64.b85decode(record["data"])).decode().split("\\n")
heads = {each["log"]: each for each in record["heads"]}
ids, last, bodies, id = set(), {}, 0, ""
for line in filter(None, lines):
    raw, salt, body = json.loads(line)
    raw = raw.replace('["^"', '["' + id + '"')  # the event before is the line before
    header = json.loads(raw)
    log, parents = header["log"], header["parents"]
    where = f"{log}@{header['seq']}"
    need(log in heads, f"{where}: its log has no head")
    seq, before = last.get(log, (heads[log]["place"], None))
    need(header["seq"] == seq + 1, f"{where}: one event is missing before it, or is there twice")
    need(parents or seq == 0, f"{where}: it has no event before it")
    need(before in (None, *parents[:1]), f"{where}: the event before it is another one")
    for parent in parents:
        need(parent in ids, f"{where}: an event that it names is another one, or is missing")
    if body is not None:
        tag = b"plait/body/1" + bytes.fromhex(salt)
        found = hashlib.sha256(tag + body.encode("utf-8", "surrogatepass")).hexdigest()
        need(found == header["body"], f"{where}: its content was changed")
        bodies += 1
    id = hashlib.sha256(b"plait/event/1" + raw.encode("utf-8", "surrogatepass")).hexdigest()
    last[log] = (header["seq"], id)
    ids.add(id)
for log, each in heads.items():
    need(last.get(log) == (each["tip"], each["head"]), f"{log}: it does not end with its head")
need(check["head"] in ids, "the head of the dossier is not in the record")
need(len(ids) == record["events"], "the number of events is another one")
need(bodies == record["bodies"], "contents are missing")
print(f"{len(ids)} events and {bodies} contents are those that were hashed; head {check['head']}")
if bodies < len(ids):
    print(f"{len(ids) - bodies} contents are not in this file: erased, damaged, or too large")
print("Compare the heads with those you have from elsewhere. The page's words are not checked.")
for each in heads.values():
    print(each["log"], each["tip"], each["head"])
"""


class _Lines:
    """The lines of a record, compressed while they come."""

    def __init__(self) -> None:
        self._pack = zlib.compressobj(6)
        self._data = bytearray()
        self.bodies = 0
        self.body_bytes = 0
        self.is_whole = True
        self._last = ""  # the id of the line before

    def add(self, event: Event, content: bytes | None) -> None:
        raw, salt = event.raw, event.salt
        before = b'"parents":["' + self._last.encode()
        if self._last and before in raw:
            raw = raw.replace(before, b'"parents":["^', 1)
        self._last = event.id
        if content is not None:
            self.body_bytes += len(content)
        if content is None or self.body_bytes > BODIES_MAX:
            self.is_whole = self.is_whole and content is None
            content = None
        else:
            self.bodies += 1
        body = None if content is None else content.decode("utf-8")
        line = _encode([raw.decode("utf-8"), salt.hex() if content is not None else "", body])
        self._data += self._pack.compress(line + b"\n")

    def text(self) -> str:
        return b85encode(bytes(self._data) + self._pack.flush()).decode()


def record_shape(store: Store, family: FamilyShape | None, log: LogId) -> RecordShape:
    """Return the events of a family, each log after those that its events rest on."""
    logs = [branch.log for branch in family.branches] if family is not None else [log]
    heads = list[RecordHead]()
    for each in logs:
        try:
            info = store.log(each)
        except PlaitError:
            continue
        heads.append(RecordHead(info.id, info.place, info.tip, info.head))
    count = sum([head.tip - head.place for head in heads])
    if count > EVENTS_MAX or family is None:
        return RecordShape(tuple(heads), count, 0, "", False)
    lines = _Lines()
    try:
        _add_events(store, family, lines)
    except (PlaitError, UnicodeDecodeError):  # a header is damaged: nothing after it holds
        return RecordShape(tuple(heads), count, 0, "", False)
    return RecordShape(tuple(heads), count, lines.bodies, lines.text(), lines.is_whole)


def _add_events(store: Store, family: FamilyShape, lines: _Lines) -> None:
    """Add the events stretch by stretch: parents always stand before their children."""
    for stretch in family.stretches:
        log = family.branches[stretch.branch].log
        for event in store.read(log, stretch.first, stretch.last):
            try:
                content = event.content
                content.decode("utf-8")
            except (PlaitError, UnicodeDecodeError):  # erased, or no text any more
                content = None
            lines.add(event, content)
