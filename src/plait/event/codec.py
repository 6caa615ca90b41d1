"""Facts and their bytes.

An event is a header, a salt and a body. The header is canonical JSON and its hash is the event's
id; the body is committed to inside the header by a salted hash:

    body id  = SHA-256("plait/body/1"  ‖ salt ‖ body bytes)
    event id = SHA-256("plait/event/1" ‖ header bytes)

So the chain of headers can be checked without the bodies, and a body can be erased while the chain
still holds; the salt keeps a short body from being guessed from its hash. The stored bytes are the
hashed ones: checking them re-serialises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256

import msgspec

from plait.errors import (
    CommitmentBroken,
    InvalidValue,
    MalformedJson,
    NotCanonical,
    TooLarge,
    UnknownVersion,
)
from plait.event.kinds import Body
from plait.event.strict import SIZE_MAX, check_depth
from plait.event.vocabulary import VOCABULARY, encode_canonical, is_current_version
from plait.ids import (
    SALT_SIZE,
    Digest,
    LogId,
    Micros,
    Source,
    digest,
    parse_digest,
    parse_log_id,
    short,
)

HEADER_VERSION = 1
EVENT_TAG = b"plait/event/1"
BODY_TAG = b"plait/body/1"
HEADER_SIZE_MAX = 1024 * 1024

_PRINCIPAL = re.compile(r"[a-z][a-z0-9_-]*:\S{1,200}\Z")
_WORD = re.compile(r"[a-z][a-z0-9_.:/-]{0,99}\Z")


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields that every event has.

    The order of the fields is the order of the bytes: it never changes.
    """

    version: int
    kind: str
    log: LogId
    seq: int
    # the previous event; more than one for a merge; the fork point for a child's first
    parents: tuple[Digest, ...]
    time: Micros
    actor: str  # a principal: human:u-17, agent:review/judge, service:ci
    behalf: str | None  # the principal for which the actor acted; None: for itself
    origin: str  # of the content, for taint: human, model, tool, memory, program, …
    run: str | None  # the run that wrote it; None: written outside a run
    call: str | None  # the call of a model or tool that it belongs to
    causes: tuple[Digest, ...]
    body: Digest


_decode_header = msgspec.json.Decoder(Header).decode


class Event:
    """One immutable fact.

    Header and id are decoded at their first use, so that reading a long log costs little: bodies
    can be read without headers. The body is decoded anew at each access: editing it edits a copy,
    never the past.
    """

    __slots__ = ("_content", "_header", "_id", "_kind", "_raw", "_refs", "checked", "salt")

    def __init__(
        self,
        raw: bytes | Callable[[], bytes],
        salt: bytes,
        content: bytes | Callable[[], bytes],
        *,
        kind: str | None = None,
        header: Header | None = None,
        id: Digest | None = None,
        refs: tuple[Digest, ...] | None = None,
        checked: bool = False,
    ) -> None:
        self._raw = raw
        self.salt = salt
        self._kind = kind  # as the store says; None: as its header says
        self._content = content
        self._header = header
        self._id = id
        self._refs = refs
        # True: it was sealed here or parsed strictly; a store checks the others before it writes
        self.checked = checked

    @property
    def raw(self) -> bytes:
        """The header's bytes, as hashed."""
        if not isinstance(self._raw, bytes):
            self._raw = self._raw()
        return self._raw

    @property
    def id(self) -> Digest:
        if self._id is None:
            self._id = digest(EVENT_TAG, self.raw)
        return self._id

    @property
    def header(self) -> Header:
        if self._header is None:
            self._header = decode_header(self.raw)
        return self._header

    @property
    def kind(self) -> str:
        return self._kind or (self._header or self.header).kind

    @property
    def log(self) -> LogId:
        return (self._header or self.header).log

    @property
    def seq(self) -> int:
        return (self._header or self.header).seq

    @property
    def actor(self) -> str:
        return (self._header or self.header).actor

    @property
    def time(self) -> Micros:
        return (self._header or self.header).time

    @property
    def content(self) -> bytes:
        """The body's bytes, as committed to."""
        if not isinstance(self._content, bytes):
            self._content = self._content()
        return self._content

    @property
    def body(self) -> Body:
        content = self._content
        return VOCABULARY.decode(
            self._kind or self.kind, content if isinstance(content, bytes) else self.content
        )

    @property
    def refs(self) -> tuple[Digest, ...]:
        """The blobs its body points to."""
        if self._refs is None:
            self._refs = self.body.refs()
        return self._refs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<{self.kind} {short(self.log)}@{self.seq} {self.id[:12]}>"


# ── headers ──────────────────────────────────────────────────────────────────────────────────


def decode_header(raw: bytes) -> Header:
    """Read a header that we wrote. `parse_event` is for those we did not."""
    try:
        return _decode_header(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedJson(f"header: {error}") from error


def check_header(header: Header) -> None:
    """Check everything about a header that its types do not say."""
    if header.version != HEADER_VERSION:
        raise UnknownVersion("the event header", header.version, HEADER_VERSION)
    _check_fields(header)
    parse_digest(header.body, "body")


def _check_fields(header: Header) -> None:
    """Check the fields that a caller of `seal` chooses; one function, for every append has it."""
    seq, parents, time, causes = header.seq, header.parents, header.time, header.causes
    call = header.call
    if type(seq) is not int or not 1 <= seq < 2**62:
        raise InvalidValue("seq", f"{seq!r} is not a position: they are counted from 1")
    if type(parents) is not tuple or type(causes) is not tuple:
        name, ids = ("causes", causes) if type(parents) is tuple else ("parents", parents)
        raise InvalidValue(name, f"a {type(ids).__name__} is not a tuple")
    for id in parents:
        parse_digest(id, "parents")
    for id in causes:
        parse_digest(id, "causes")
    if seq > 1 and not parents:
        raise InvalidValue("parents", "only the first event of a root has none")
    if len(parents) > 1 and len(set(parents)) != len(parents):
        raise InvalidValue("parents", "the same event stands twice")
    if type(time) is not int or not 0 <= time < 2**63:
        raise InvalidValue("time", f"{time!r} is not a count of microseconds since 1970")
    _check_names(header.log, header.actor, header.behalf, header.origin, header.run)
    if call is not None:  # not among those names: every call has one of its own
        _check_word("call", call)


def _check_salt(salt: bytes) -> None:
    if type(salt) is not bytes or len(salt) != SALT_SIZE:
        raise InvalidValue("salt", f"{salt!r} is not {SALT_SIZE} bytes")


@lru_cache(4096)  # the same few names stand in every header of a session
def _check_names(log: str, actor: str, behalf: str | None, origin: str, run: str | None) -> None:
    parse_log_id(log)
    _check_principal(actor, "actor")
    if behalf is not None:
        _check_principal(behalf, "behalf")
    check_origin(origin)
    if run is not None:
        _check_word("run", run)


def check_origin(origin: str) -> str:
    """Return the origin if a header can hold it, else raise InvalidValue."""
    if not isinstance(origin, str) or not _WORD.match(origin):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise InvalidValue(
            "origin",
            f"{str(origin)[:200]!r} is not a lowercase word such as human, model or tool:http",
        )
    return origin


def _check_word(name: str, text: str) -> None:
    if not (0 < len(text) <= 200 and text.isprintable()):
        raise InvalidValue(name, f"{text!r} is not an id of 1 to 200 printable characters")


def _check_principal(text: str, where: str) -> None:
    if not (_PRINCIPAL.match(text) and text.isprintable()):
        raise InvalidValue(
            where, f"{text!r} is not a principal such as human:u-17, agent:planner or service:ci"
        )


# ── making and reading events ────────────────────────────────────────────────────────────────


def seal(
    body: Body,
    *,
    log: LogId,
    seq: int,
    parents: tuple[Digest, ...],
    time: Micros,
    salt: bytes,
    actor: str,
    origin: str = "program",
    behalf: str | None = None,
    run: str | None = None,
    call: str | None = None,
    causes: tuple[Digest, ...] = (),
) -> Event:
    """Make an event that can be written, read back and verified, or raise a typed error."""
    _check_salt(salt)
    content = VOCABULARY.encode(body)
    commitment = Digest(sha256(BODY_TAG + salt + content).hexdigest())
    try:
        kind = type(body).__name__
        header = Header(
            HEADER_VERSION,
            kind,
            log,
            seq,
            parents,
            time,
            actor,
            behalf,
            origin,
            run,
            call,
            causes,
            commitment,
        )
        _check_fields(header)
        raw = encode_canonical(header)
    except (TypeError, AttributeError, UnicodeError, OverflowError) as error:
        raise InvalidValue("header", str(error)) from error
    if len(raw) > HEADER_SIZE_MAX:
        raise TooLarge("the header", len(raw), HEADER_SIZE_MAX)
    id = Digest(sha256(EVENT_TAG + raw).hexdigest())
    return Event(
        raw, salt, content, kind=kind, header=header, id=id, refs=body.refs(), checked=True
    )


def seal_all(
    bodies: Sequence[Body],
    *,
    log: LogId,
    seq: int,
    parents: tuple[Digest, ...],
    source: Source,
    actor: str,
    origin: str = "program",
    behalf: str | None = None,
    run: str | None = None,
    call: str | None = None,
    causes: tuple[Digest, ...] = (),
) -> list[Event]:
    """Seal bodies one after another, the first at `seq` with these parents."""
    events: list[Event] = []
    for place, body in enumerate(bodies, seq):
        now, salt = source.now(log, place), source.salt(log, place)
        event = seal(
            body,
            log=log,
            seq=place,
            parents=parents,
            time=now,
            salt=salt,
            actor=actor,
            origin=origin,
            behalf=behalf,
            run=run,
            call=call,
            causes=causes,
        )
        events.append(event)
        parents = (event.id,)
    return events


def parse_event(raw: bytes, salt: bytes, content: bytes) -> Event:
    """Read an event that came from outside, trusting nothing: every byte must be the one we would
    have written.
    """
    for name, data in (("header", raw), ("body", content)):
        if type(data) is not bytes:
            raise InvalidValue(name, f"a {type(data).__name__} is not bytes")
    if len(raw) > HEADER_SIZE_MAX:
        raise TooLarge("the header", len(raw), HEADER_SIZE_MAX)
    _check_salt(salt)
    header = parse_header(raw)
    body = check_content(header, salt, content)
    return Event(raw, salt, content, header=header, refs=body.refs(), checked=True)


def parse_header(raw: bytes) -> Header:
    """Read a header from outside: well-formed, canonical and with every field as it must be."""
    check_depth(raw)
    header = decode_header(raw)
    if encode_canonical(header) != raw:
        raise NotCanonical("header")
    check_header(header)
    return header


def check_content(header: Header, salt: bytes, content: bytes) -> Body:
    """Decode body bytes from outside, if they are the ones committed to and in canonical form."""
    found = digest(BODY_TAG, salt, content)
    if found != header.body:
        raise CommitmentBroken(f"body of event {header.seq}", header.body, found)
    if len(content) > SIZE_MAX:
        raise TooLarge("the body", len(content), SIZE_MAX)
    check_depth(content)
    body = VOCABULARY.decode(header.kind, content)
    if encode_canonical(body) != content and is_current_version(body, content):
        raise NotCanonical("body")
    return body
