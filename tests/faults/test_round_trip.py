"""Round trips: whatever is said, recorded or attached comes back from the disk as it was, or is
refused before a byte is written.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from plait import Event, Session, Store, open_store
from plait.errors import InvalidInput
from plait.event.kinds import (
    Data,
    EvidenceAttached,
    FactRecorded,
    File,
    MessageSaid,
    ScratchSet,
    Text,
    ValidationRecorded,
)
from plait.event.strict import DEPTH_MAX, SIZE_MAX
from plait.session import verify
from tests.faults.folders import quick_folder
from tests.support import dose, report, seed

PER_STORE = 150  # examples that go through one store before it is closed and read again

ODD = [
    "\0",
    "\x85",
    "\u2028",
    "\u2029",
    "\ufeff",
    "\u202e",
    "é",
    "e\u0301",
    "漢",
    "שלום",
    "𝄞",
    "\U0010ffff",
    "👩‍🚀",
    "\r\n",
    '"',
    "\\",
    "\x7f",
]
characters = st.characters(exclude_categories=("Cs",))
texts = st.one_of(
    st.text(characters),
    st.lists(st.sampled_from(ODD), min_size=1).map("".join),
    st.text(characters, min_size=1).map(lambda text: text * 500),
)
INTEGERS = [
    0,
    -1,
    2**53,
    2**53 + 1,
    -(2**63),
    -(2**63) - 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    10**300,
]
FLOATS = [-0.0, 5e-324, 1.7976931348623157e308, 1e16, 0.1, 1e22, 2**63 * 1.0]
integers = st.one_of(st.integers(), st.sampled_from(INTEGERS))
floats = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(FLOATS))
scalars = st.one_of(st.none(), st.booleans(), integers, floats, texts)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=12,
)


def nested(depth: int) -> Any:
    value: Any = "in the middle"
    for i in range(depth):
        value = [value] if i % 2 else {"": value}
    return value


class Example(NamedTuple):
    """Something that goes in by one of the session's verbs."""

    verb: str
    key: str
    value: Any


# As deep as it may be: a body is one level around a value, and a message three around what is said.
structures = values | st.integers(0, DEPTH_MAX - 1).map(nested)
sayable = values.filter(lambda value: isinstance(value, (dict, list))) | st.integers(
    1, DEPTH_MAX - 3
).map(nested)
keys = texts.map(lambda text: text[:190] + "k")
examples = st.one_of(
    st.builds(Example, st.sampled_from(["say", "note"]), keys, texts.filter(str.strip)),
    st.builds(Example, st.sampled_from(["fact", "scratch", "validate"]), keys, structures),
    st.builds(Example, st.just("say"), keys, sayable),
    st.builds(Example, st.just("attach"), keys, st.binary()),
)


# Hypothesis finds odd corners at some milliseconds each; most examples are made at random, in a
# tenth of that.


def any_text(chance: random.Random, size: int = 12) -> str:
    """Characters of all planes, or those that are odd; now and then too long for an event."""
    if chance.random() < 0.3:
        return "".join(chance.choices(ODD, k=chance.randrange(1, size)))
    planes = ((1, 0x7F), (0x80, 0x24F), (0x300, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF))
    text = "".join(
        chr(chance.randint(*chance.choice(planes))) for _ in range(chance.randrange(1, size))
    )
    return text * 700 if chance.random() < 0.05 else text


def any_value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(8 if depth < 4 else 6)
    if kind < 2:
        return any_text(chance)
    if kind == 2:
        empty: list[Any] = [None, True, False, "", [], {}]
        return chance.choice(empty)
    if kind == 3:
        return (
            chance.choice(INTEGERS) if chance.random() < 0.5 else chance.randint(-(10**20), 10**20)
        )
    if kind < 6:
        number: float = struct.unpack("d", chance.randbytes(8))[0]
        return number if math.isfinite(number) else chance.choice(FLOATS)
    size = chance.randrange(5)
    if kind == 6:
        return [any_value(chance, depth + 1) for _ in range(size)]
    return {any_text(chance): any_value(chance, depth + 1) for _ in range(size)}


def any_example(chance: random.Random) -> Example:
    verb = chance.choice(("say", "say", "note", "fact", "scratch", "validate", "attach"))
    key, value = any_text(chance)[:190] + "k", any_value(chance)
    if verb == "note" or (verb == "say" and not isinstance(value, (dict, list))):
        value = any_text(chance) + "."
    return Example(
        verb, key, chance.randbytes(chance.randrange(300)) if verb == "attach" else value
    )


def same(one: Any, other: Any) -> bool:
    """Equal in type and value, all the way down: 1 is not 1.0, and 0.0 is not -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    if isinstance(one, dict):
        mapping = cast("dict[Any, Any]", one)
        return mapping.keys() == other.keys() and all(
            same(item, other[key]) for key, item in mapping.items()
        )
    if isinstance(one, list):
        items = cast("list[Any]", one)
        return len(items) == len(other) and all(map(same, items, other))
    return one == other


def put(session: Session, example: Example) -> Session:
    verb, key, value = example
    if verb == "say":
        return session.say(value)
    if verb == "note":
        return session.note(value, key=key)
    if verb == "fact":
        return session.fact(key, value)
    if verb == "scratch":
        return session.scratch(key, value)
    return (
        session.attach(key, value)
        if verb == "attach"
        else session.checks.record(key, True, detail=value)
    )


def got(store: Store, event: Event) -> Any:
    """What the event holds, whether in itself or in a blob; its bytes are exactly those of what it
    says.
    """
    body = event.body
    assert event.content == msgspec.json.encode(body, order="deterministic")
    if isinstance(body, (FactRecorded, ScratchSet)):
        return body.value
    if isinstance(body, ValidationRecorded):
        return body.detail
    assert isinstance(body, (MessageSaid, EvidenceAttached))
    (part,) = body.parts
    if isinstance(part, File):
        return store.get_blob(part.blob)
    content = store.get_blob(part.blob) if part.blob else None
    if isinstance(part, Text):
        return part.text if content is None else content.decode()
    assert isinstance(part, Data)
    return part.value if content is None else msgspec.json.decode(content)


def check(folder: Path, batch: list[Example]) -> None:
    """All of them into one store; then, by whoever opens it again, all of them out of it."""
    store = open_store(folder)
    session = Session(title="trip", store=store)
    for example in batch:
        session = put(session, example)
    store.close()
    store = open_store(folder)
    again = Session.open(f"{session.id}@{session.seq}", store=store)
    events = again.events[1:]
    assert again == session and len(events) == len(batch)
    for example, event in zip(batch, events, strict=True):
        value = got(store, event)
        assert same(value, example.value), f"{example} came back as {value!r}"
    check_views(again, batch)
    assert list(verify(store, state=True)) == []
    store.close()


def check_views(session: Session, batch: list[Example]) -> None:
    """What the session tells is what was put in, the last word on each key."""
    facts = {key: value for verb, key, value in batch if verb in ("fact", "note")}
    scratch = {key: value for verb, key, value in batch if verb == "scratch"}
    told = [part for message in session.messages for part in message.parts]
    assert same(dict(session.facts), facts)
    assert same(
        session.scratchpad, {key: value for key, value in scratch.items() if value is not None}
    )
    assert same(
        [part.text if isinstance(part, Text) else getattr(part, "value", None) for part in told],
        [e.value for e in batch if e.verb == "say"],
    )
    assert [each.name for each in session.evidence] == [
        example.key for example in batch if example.verb == "attach"
    ]


def generated(count: int, start: int) -> Iterator[Example]:
    """A tenth by hypothesis, the rest at random."""
    found: list[Example] = []

    @seeded(start)
    @settings(
        max_examples=count // 10,
        database=None,
        phases=[Phase.generate],
    )
    @given(examples)
    def gather(example: Example) -> None:
        found.append(example)

    gather()
    yield from found
    chance = random.Random(start)
    yield from (any_example(chance) for _ in range(count - len(found)))


def test_what_goes_in_comes_out() -> None:
    """EXAMPLES=100000: so many texts, structures and contents."""
    count, start, done = dose("EXAMPLES", short=300, long=10_000), seed(), 0
    source = generated(count, start)
    while batch := list(islice(source, PER_STORE)):
        try:
            with quick_folder() as folder:
                check(folder, batch)
        except AssertionError as error:
            raise AssertionError(f"SEED={start}: {error}") from error
        done += len(batch)
    assert done == count
    report("round trip", f"{done:,} texts, structures and contents, 0 differences", start)


# ── what is refused ──────────────────────────────────────────────────────────────────────────


class Liar(str):
    """A text that is equal to everything, and says it is something else."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __str__(self) -> str:
        return "something else"


class FalseInt(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class FalseDict(dict[str, Any]):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Mute:
    """Whoever asks it for words gets an exception."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def circle() -> Any:
    value: list[Any] = []
    value.append({"again": value})
    return value


HOSTILE: dict[str, Callable[[], Any]] = {
    "lone surrogate": lambda: "a\ud800b",
    "lone surrogate inside": lambda: {"a": ["\udfff"]},
    "lone surrogate as key": lambda: {"\ud83d": 1},
    "NaN": lambda: math.nan,
    "infinity": lambda: [math.inf],
    "minus infinity": lambda: {"a": -math.inf},
    "too deep": lambda: nested(DEPTH_MAX + 1),
    "absurdly deep": lambda: nested(100_000),
    "too long": lambda: "x" * (SIZE_MAX + 1),
    "huge number": lambda: 10**5000,
    "bytes": lambda: b"bytes",
    "tuple": lambda: (1, 2),
    "set": lambda: {1},
    "integer key": lambda: {1: 2},
    "nobody's object": object,
    "a class": lambda: int,
    "complex": lambda: 1j,
    "circle": circle,
    "text that lies": lambda: Liar("x"),
    "number that lies": lambda: FalseInt(7),
    "without words": Mute,
    "key without words": lambda: {Mute(): 1},
    "text that lies as key": lambda: {Liar("x"): 1},
}
VERBS: dict[str, Callable[[Session, Any], Session]] = {
    "say": lambda session, value: session.say(value),
    "fact": lambda session, value: session.fact("k", value),
    "fact key": lambda session, value: session.fact(value, 1),
    "scratch": lambda session, value: session.scratch("k", value),
    "note": lambda session, value: session.note(value),
    "attach": lambda session, value: session.attach("k", value),
    "attach name": lambda session, value: session.attach(value, b"x"),
    "detail": lambda session, value: session.checks.record("v", True, detail=value),
}


# A long text becomes a blob, a tuple a list of data; bytes are what is attached, and numbers are
# metrics.
FINE = {
    ("say", "too long"),
    ("attach", "too long"),
    ("say", "tuple"),
    ("attach", "tuple"),
    ("attach", "bytes"),
}


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return Session(
        "x", title="quiet", store=open_store(tmp_path_factory.mktemp("hostile") / ".plait")
    )


def test_a_mapping_that_says_it_is_equal_to_anything_is_taken_as_what_is_in_it(
    quiet: Session,
) -> None:
    """The comparison with what comes back asks the value itself, and this one lies.

    What is written is well-formed all the same.
    """
    after = quiet.fork().scratch("k", FalseDict({"a": (1, 2)}))
    assert same(after.scratchpad, {"k": {"a": [1, 2]}})
    assert list(verify(open_store(quiet.store), state=True)) == []


@pytest.mark.parametrize("verb", VERBS)
def test_what_cannot_come_back_is_refused_before_a_byte_is_written(
    quiet: Session, verb: str
) -> None:
    for name, make in HOSTILE.items():
        if (verb, name) in FINE:
            continue
        before = everything(quiet)
        try:
            after = VERBS[verb](quiet, make())
        except InvalidInput:
            assert everything(quiet) == before, f"{verb} of {name} wrote something"
        except Exception as error:
            raise AssertionError(
                f"{verb} of {name}: {type(error).__name__} is not one of ours"
            ) from error
        else:
            raise AssertionError(f"{verb} of {name} was taken: {after.events[-1].content[:200]!r}")
    refused = sum((verb, name) not in FINE for name in HOSTILE)
    report(f"hostile values, {verb}", f"{refused} refused, nothing written")


def everything(session: Session) -> tuple[Any, ...]:
    """The head, the last commit, and the bytes of the store's files."""
    folder = Path(session.store.removeprefix("sqlite:"))
    files = [
        (path.name, path.read_bytes())
        for path in sorted(folder.iterdir())
        if not path.name.endswith("-shm")
    ]
    return session.reload().head, open_store(session.store).number, files
