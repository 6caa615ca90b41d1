"""Events and their bytes: what is written reads back the same, and what is not canonical is
refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import (
    CommitmentBroken,
    InvalidInput,
    InvalidValue,
    MalformedJson,
    NotCanonical,
    TooDeep,
    TooLarge,
    UnknownKind,
    UnknownVersion,
)
from plait.event import (
    KINDS,
    VOCABULARY,
    Body,
    Event,
    Header,
    Vocabulary,
    kinds,
    parse_event,
    seal,
    seal_all,
    without_measured,
)
from plait.event.kinds import (
    Data,
    FactRecorded,
    MessageSaid,
    ModelReplied,
    ScratchSet,
    SessionOpened,
    Text,
    Usage,
)
from plait.event.strict import DEPTH_MAX, SIZE_MAX
from plait.ids import Digest, LogId, derive_id, house_of, inbox_of, short
from plait.runtime.live import Live
from plait.testing import Seeded

LOG = derive_id("test", 1)
SALT = bytes(16)


def make(body: Body, **header: Any) -> Event:
    fields: dict[str, Any] = {
        "log": LOG,
        "seq": 1,
        "parents": (),
        "time": 1,
        "salt": SALT,
        "actor": "human:u-17",
        **header,
    }
    return seal(body, **fields)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


# ── the shape that is hashed ─────────────────────────────────────────────────────────────────


def test_the_header_is_exactly_this() -> None:
    """Golden: these bytes are hashed, so they can never change.

    Computed here by hand, without our code.
    """
    event = make(
        FactRecorded("db", "postgres 15", "fact"),
        seq=7,
        parents=(Digest("a" * 64),),
        time=1_750_000_000_000_000,
        behalf="human:u-1",
        origin="model",
        run="run-1",
        call="call-2",
        causes=(Digest("b" * 64),),
        salt=bytes(range(16)),
    )
    content = b'{"v":1,"key":"db","value":"postgres 15","kind":"fact"}'
    body = hashlib.sha256(b"plait/body/1" + bytes(range(16)) + content).hexdigest()
    header = (
        '{"version":1,"kind":"FactRecorded","log":"'
        + LOG
        + '","seq":7,"parents":["'
        + "a" * 64
        + '"],"time":1750000000000000,'
        '"actor":"human:u-17","behalf":"human:u-1","origin":"model","run":"run-1","call":"call-2",'
        '"causes":["' + "b" * 64 + '"],"body":"' + body + '"}'
    ).encode()
    assert event.content == content
    assert event.raw == header
    assert event.id == hashlib.sha256(b"plait/event/1" + header).hexdigest()


def test_ids_are_known() -> None:
    """Golden: logs are found again by derived ids."""
    assert derive_id("plait/test", "a", 1) == "75491fa9-269d-83b4-a97c-5b0b9bece49b"
    assert inbox_of(LOG) == derive_id("plait/inbox/1", LOG)
    assert house_of(LOG) == derive_id("plait/house/1", LOG)
    fresh = Live().fresh()
    assert fresh[14] == "7" and derive_id("x")[14] == "8"
    assert short(fresh) == fresh.replace("-", "")[20:28]


@given(json_values)
def test_any_json_value_comes_back_exactly(value: Any) -> None:
    event = make(ScratchSet("k", value))
    again = parse_event(event.raw, event.salt, event.content)
    assert again.body == ScratchSet("k", value)
    assert again.id == event.id
    assert json.loads(event.content).get("value") == value


@given(st.text())
def test_any_text_comes_back_exactly(text: str) -> None:
    event = make(MessageSaid("user", (Text(text),)))
    assert parse_event(event.raw, event.salt, event.content).body == MessageSaid(
        "user", (Text(text),)
    )


def test_bytes_follow_from_the_value_alone() -> None:
    one = VOCABULARY.encode(ScratchSet("k", {"b": 1, "a": {"z": 1, "y": 2}}))
    two = VOCABULARY.encode(ScratchSet("k", {"a": {"y": 2, "z": 1}, "b": 1}))
    assert one == two == b'{"v":1,"key":"k","value":{"a":{"y":2,"z":1},"b":1}}'


def test_every_kind_is_exported() -> None:
    assert {kind.__name__ for kind in KINDS} <= set(kinds.__all__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_default_is_a_value_that_exists_once(kind: type[Body]) -> None:
    """msgspec leaves out a default by identity.

    A default that exists twice would give one fact two spellings.
    """
    for field in msgspec.structs.fields(kind):
        if field.default is msgspec.NODEFAULT:
            assert field.default_factory in (msgspec.NODEFAULT, dict), (
                f"{kind.__name__}.{field.name}"
            )
        else:
            default = field.default
            assert (
                default is None
                or default == ()
                or default == ""
                or (isinstance(default, int) and 0 <= default < 256)
            ), field.name


def test_the_salt_hides_the_body() -> None:
    one, two = make(ScratchSet("k", 1)), make(ScratchSet("k", 1), salt=bytes(15) + b"\1")
    assert one.content == two.content
    assert one.header.body != two.header.body


def test_measured_fields_do_not_make_a_difference() -> None:
    def reply(latency: int) -> ModelReplied:
        return ModelReplied((Text("hi"),), Usage(3, 4), "end", latency_us=latency)

    assert reply(1) != reply(2)
    assert without_measured(reply(1)) == without_measured(reply(2))


def test_a_seed_reproduces_a_history() -> None:
    def history(seed: int) -> list[Digest]:
        bodies = [SessionOpened(), ScratchSet("a", 1)]
        return [
            event.id
            for event in seal_all(
                bodies, log=LOG, seq=1, parents=(), source=Seeded(seed), actor="human:x"
            )
        ]

    assert history(7) == history(7) != history(8)


# ── what is refused before it is written ─────────────────────────────────────────────────────


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (float("nan"), InvalidValue),
        (float("inf"), InvalidValue),
        ({"a": [1, float("-inf")]}, InvalidValue),
        ("\ud800", InvalidValue),
        ({"\udfff": 1}, InvalidValue),
        (b"bytes", InvalidValue),
        ((1, 2), InvalidValue),
        ({1: "int key"}, InvalidValue),
        ({None: 1}, InvalidValue),
        ({1, 2}, InvalidValue),
        (object(), InvalidValue),
        (10**5000, InvalidInput),
        (deep(DEPTH_MAX + 1), TooDeep),
        (deep(100_000), TooDeep),
        ("x" * (SIZE_MAX + 1), TooLarge),
    ],
    ids=lambda value: type(value).__name__,
)
def test_hostile_values_are_refused(value: Any, error: type[InvalidInput]) -> None:
    with pytest.raises(error):
        make(ScratchSet("k", value))


def test_a_refusal_names_the_culprit() -> None:
    with pytest.raises(
        InvalidValue, match=r"ScratchSet\.value\.rows\[1\]\.price: nan is not a JSON number"
    ):
        make(ScratchSet("k", {"rows": [{"price": 1.0}, {"price": float("nan")}]}))
    with pytest.raises(InvalidValue, match=r"parts: a list comes back as a tuple.*pass a tuple"):
        make(MessageSaid("user", [Text("x")]))  # type: ignore[arg-type]
    with pytest.raises(
        InvalidValue, match=r"ScratchSet\.value\.a: a tuple comes back as a list.*pass a list"
    ):
        make(ScratchSet("k", {"a": (1, 2)}))
    with pytest.raises(InvalidValue, match="a dict is not an event's body"):
        make({"a": 1})  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="lone surrogate"):
        make(MessageSaid("user", (Text("ok"), Data("\ud800"))))


def test_the_deepest_legal_value_is_taken() -> None:
    event = make(ScratchSet("k", deep(DEPTH_MAX - 1)))
    assert parse_event(event.raw, event.salt, event.content).body == ScratchSet(
        "k", deep(DEPTH_MAX - 1)
    )


def test_fields_of_the_wrong_type_are_refused() -> None:
    for body in (
        FactRecorded("k", 1, "rumour"),  # type: ignore[arg-type]
        FactRecorded(3, 1, "fact"),  # type: ignore[arg-type]
        MessageSaid("user", [Text("a list, not a tuple")]),  # type: ignore[arg-type]
        SessionOpened(tags={"a": 1}),  # type: ignore[dict-item]
    ):
        with pytest.raises(InvalidValue):
            make(body)


class Invented(Body, frozen=True):
    x: int


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UnknownKind):
        make(Invented(1))
    with pytest.raises(UnknownKind):
        VOCABULARY.decode("Invented", b'{"v":1,"x":1}')


@pytest.mark.parametrize(
    "header",
    [
        {"actor": "u-17"},
        {"actor": "human:"},
        {"actor": "human:a b"},
        {"actor": "human:\x1b[31m"},
        {"behalf": "nobody"},
        {"origin": ""},
        {"origin": "Model"},
        {"log": "not-a-uuid"},
        {"log": LogId(str(LOG).upper())},
        {"seq": 0},
        {"seq": 2},
        {"parents": ("x",), "seq": 2},
        {"parents": (Digest("a" * 64),) * 2, "seq": 2},
        {"causes": ("A" * 64,)},
        {"time": -1},
        {"time": 2**63},
        {"run": ""},
        {"call": "x" * 201},
        {"call": "a\nb"},
        {"run": "\ud800"},
        {"salt": b"short"},
        {"seq": "1"},
        {"time": 1.5},
    ],
    ids=str,
)
def test_bad_headers_are_refused(header: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        make(SessionOpened(), **header)


# ── what is refused when it comes from outside ───────────────────────────────────────────────


def foreign(
    event: Event,
    edit: Callable[[bytes], bytes] = lambda raw: raw,
    content: Callable[[bytes], bytes] | None = None,
) -> Event:
    """The event with its raw bytes edited; a changed body is committed to again, as
    a forger would.
    """
    raw, body = event.raw, event.content
    if content is not None:
        body = content(body)
        old = event.header.body.encode()
        raw = raw.replace(
            old, hashlib.sha256(b"plait/body/1" + event.salt + body).hexdigest().encode()
        )
    return parse_event(edit(raw), event.salt, body)


HEADER_EDITS: list[tuple[str, Callable[[bytes], bytes], type[Exception]]] = [
    ("white space", lambda raw: raw.replace(b",", b", ", 1), NotCanonical),
    ("trailing newline", lambda raw: raw + b"\n", NotCanonical),
    ("a key twice", lambda raw: raw.replace(b'"seq":1', b'"seq":2,"seq":1'), NotCanonical),
    ("an unknown field", lambda raw: raw[:-1] + b',"extra":1}', MalformedJson),
    ("a missing field", lambda raw: raw.replace(b'"behalf":null,', b""), MalformedJson),
    (
        "other order",
        lambda raw: raw.replace(b'"run":null,"call":null', b'"call":null,"run":null'),
        NotCanonical,
    ),
    ("an escaped letter", lambda raw: raw.replace(b'"kind":"S', b'"kind":"\\u0053'), NotCanonical),
    ("a float", lambda raw: raw.replace(b'"seq":1', b'"seq":1.0'), MalformedJson),
    ("a boolean", lambda raw: raw.replace(b'"seq":1', b'"seq":true'), MalformedJson),
    ("an unknown version", lambda raw: raw.replace(b'"version":1', b'"version":2'), UnknownVersion),
    ("an unknown kind", lambda raw: raw.replace(b"ScratchSet", b"SomethingElse"), UnknownKind),
    ("another kind", lambda raw: raw.replace(b"ScratchSet", b"MessageSaid"), InvalidValue),
    ("NaN", lambda raw: raw.replace(b'"seq":1', b'"seq":NaN'), MalformedJson),
    ("not UTF-8", lambda raw: raw.replace(b"human:u", b"human:\xff"), MalformedJson),
    ("a lone surrogate", lambda raw: raw.replace(b"human:u", b"human:\\ud800"), MalformedJson),
    ("nesting", lambda raw: b"[" * 200_000, TooDeep),
    ("length", lambda raw: raw + b" " * 2_000_000, TooLarge),
    ("nothing", lambda raw: b"", MalformedJson),
    ("half of it", lambda raw: raw[: len(raw) // 2], MalformedJson),
    ("a bad parent", lambda raw: raw.replace(b'"parents":[]', b'"parents":["x"]'), InvalidValue),
]


@pytest.mark.parametrize(
    ("edit", "error"), [row[1:] for row in HEADER_EDITS], ids=[row[0] for row in HEADER_EDITS]
)
def test_foreign_headers_are_parsed_strictly(
    edit: Callable[[bytes], bytes], error: type[Exception]
) -> None:
    event = make(ScratchSet("k", {"a": 1}))
    with pytest.raises(error):
        foreign(event, edit)


BODY_EDITS: list[tuple[str, Callable[[bytes], bytes], type[Exception]]] = [
    ("white space", lambda body: body.replace(b":", b": ", 1), NotCanonical),
    ("a key twice", lambda body: body.replace(b'"key":"k"', b'"key":"x","key":"k"'), NotCanonical),
    ("an inner key twice", lambda body: body.replace(b'{"a":1}', b'{"a":2,"a":1}'), NotCanonical),
    ("no version", lambda body: body.replace(b'"v":1,', b""), NotCanonical),
    ("a newer version", lambda body: body.replace(b'"v":1', b'"v":2'), UnknownVersion),
    ("version zero", lambda body: body.replace(b'"v":1', b'"v":0'), InvalidValue),
    ("a textual version", lambda body: body.replace(b'"v":1', b'"v":"1"'), InvalidValue),
    ("an unknown field", lambda body: body[:-1] + b',"extra":1}', InvalidValue),
    ("unsorted keys", lambda body: body.replace(b'{"a":1}', b'{"b":1,"a":1}'), NotCanonical),
    ("NaN", lambda body: body.replace(b'{"a":1}', b"NaN"), InvalidInput),
    ("another number format", lambda body: body.replace(b'{"a":1}', b"1E5"), NotCanonical),
    ("infinity by overflow", lambda body: body.replace(b'{"a":1}', b"1e999"), InvalidInput),
    ("a lone surrogate", lambda body: body.replace(b'{"a":1}', b'"\\ud800"'), InvalidInput),
    ("not UTF-8", lambda body: body.replace(b'{"a":1}', b'"\xff"'), InvalidInput),
    ("nesting", lambda body: body.replace(b'{"a":1}', b"[" * 50_000 + b"]" * 50_000), TooDeep),
    ("length", lambda body: body + b" " * SIZE_MAX, TooLarge),
    ("an array", lambda body: b"[]", InvalidValue),
    ("nothing", lambda body: b"", InvalidInput),
]


@pytest.mark.parametrize(
    ("edit", "error"), [row[1:] for row in BODY_EDITS], ids=[row[0] for row in BODY_EDITS]
)
def test_foreign_bodies_are_parsed_strictly(
    edit: Callable[[bytes], bytes], error: type[Exception]
) -> None:
    event = make(ScratchSet("k", {"a": 1}))
    with pytest.raises(error):
        foreign(event, content=edit)


def test_a_body_that_was_not_committed_to_is_refused() -> None:
    event = make(ScratchSet("k", 1))
    with pytest.raises(CommitmentBroken):
        parse_event(event.raw, event.salt, event.content.replace(b"1}", b"2}"))
    with pytest.raises(CommitmentBroken):
        parse_event(event.raw, b"\1" * 16, event.content)
    with pytest.raises(InvalidValue):
        parse_event(event.raw, b"", event.content)


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 400))
def test_no_mutation_of_the_bytes_is_taken_silently(noise: bytes, start: int, length: int) -> None:
    event = make(ScratchSet("k", {"a": [1, "text"]}))
    mutated = event.raw[:start] + noise + event.raw[start + length :]
    try:
        taken = parse_event(mutated, event.salt, event.content)
    except (InvalidInput, CommitmentBroken):
        return
    assert taken.raw == mutated
    assert msgspec.json.encode(msgspec.json.decode(mutated, type=Header)) == mutated


# ── versions ─────────────────────────────────────────────────────────────────────────────────


class Renamed(Body, frozen=True, tag=3):
    """Version 1 had `name`; version 2 called it `title`; version 3 added `size`."""

    title: str
    size: int


UPCASTERS: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {
    ("Renamed", 1): lambda old: {"title": old["name"]},
    ("Renamed", 2): lambda old: {**old, "size": len(old["title"])},
}


def test_old_bodies_are_brought_up_to_date_when_read() -> None:
    words = Vocabulary([Renamed], UPCASTERS)
    assert words.decode("Renamed", b'{"v":1,"name":"abc"}') == Renamed("abc", 3)
    assert words.decode("Renamed", b'{"v":2,"title":"abcd"}') == Renamed("abcd", 4)
    assert words.decode("Renamed", words.encode(Renamed("x", 9))) == Renamed("x", 9)
    with pytest.raises(UnknownVersion, match="Upgrade"):
        words.decode("Renamed", b'{"v":4,"title":"x","size":1}')
    with pytest.raises(InvalidValue):
        words.decode("Renamed", b'{"v":2,"title":5}')
    with pytest.raises(InvalidInput):
        words.decode("Renamed", b'{"v":1,"name":"a","name":"b"}')


def test_a_version_without_its_upcaster_is_found_at_once() -> None:
    with pytest.raises(ValueError, match="no upcaster from \\[2\\]"):
        Vocabulary([Renamed], {("Renamed", 1): UPCASTERS["Renamed", 1]})


def test_which_kinds_hold_floats_is_known() -> None:
    """Only their bodies are written a second time, from what was read back: 5 in a field of floats
    is 5.0.
    """

    def holds(node: Any) -> bool:
        if isinstance(node, msgspec.inspect.FloatType):
            return True
        if isinstance(node, msgspec.inspect.StructType):
            return any(holds(field.type) for field in node.fields)
        inner = [
            getattr(node, name, None) for name in ("item_type", "key_type", "value_type", "type")
        ]
        inner += [*getattr(node, "types", ()), *(getattr(node, "item_types", ()))]
        return any(holds(each) for each in inner if isinstance(each, msgspec.inspect.Type))

    for kind in KINDS:
        assert VOCABULARY._kinds[kind.__name__].has_floats == holds(  # pyright: ignore[reportPrivateUsage]
            msgspec.inspect.type_info(kind)
        ), kind
