"""A person says what a lost call returned: a value of the type that its tool returns, and nothing
else.
"""

from __future__ import annotations

from asyncio import CancelledError
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import pytest
from msgspec import Meta

from plait import Agent, ScriptedModel, Session, ToolCall, Workflow, tool
from plait.errors import InvalidValue
from plait.event.kinds import File
from plait.journal.stops import Parked
from plait.runs.replay import replay
from plait.runs.resume import resume
from plait.session.ports import store_at
from plait.session.typed import misfit, result_schema_of, schema_of
from plait.tool import Tool

ANA = "human:ana"


@dataclass
class Receipt:
    id: int
    total: float
    lines: list[str]
    state: Literal["paid", "open"] = "paid"


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Event:
    at: datetime
    content: bytes = b""
    parts: list[Event] = field(default_factory=list["Event"])


LATER: dict[str, Any] = {"at": "2026-01-03T00:00:00", "content": "", "parts": []}
EVENT: dict[str, Any] = {"at": "2026-01-02T00:00:00", "content": "eA==", "parts": [LATER]}


class Pair(NamedTuple):
    left: int
    right: str


def lost(returns: Any) -> Tool[..., Any]:
    """A tool whose process ends while it runs."""

    def pay():  # type: ignore[no-untyped-def]
        raise KeyboardInterrupt

    pay.__annotations__["return"] = returns
    return tool(pay)


class Pays(Workflow):
    def __init__(self, used: Tool[..., Any], type_: Any = None) -> None:
        self._used, self._type = used, type_

    def forward(self, session: Session) -> Session:
        session = session.use(self._used)
        known = session.result_as(self._type) if self._type is not None else session.result
        return session.fact("seen", type(known).__name__)


def waiting(used: Tool[..., Any], type_: Any = None) -> Session:
    session = Session("go", store="memory:")
    with pytest.raises(KeyboardInterrupt):
        Pays(used, type_)(session)
    with pytest.raises(Parked, match="plait resolve"):
        resume(session, Pays(used, type_))
    return session.reload()


FITS: list[tuple[Any, Any, Any]] = [
    (int, 7, 7),
    (float, 7.5, 7.5),
    (float, 7, 7),
    (bool, False, False),
    (str, "seven", "seven"),
    (str, "", ""),
    (list[int], [1, 2], [1, 2]),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (int | None, None, None),
    (None, None, None),
    (Receipt, Receipt(1, 2.5, ["x"]), {"id": 1, "total": 2.5, "lines": ["x"], "state": "paid"}),
    (Receipt, {"id": 1, "total": 2, "lines": []}, {"id": 1, "total": 2, "lines": []}),
    (list[Receipt], [Receipt(1, 2.5, [])], [{"id": 1, "total": 2.5, "lines": [], "state": "paid"}]),
    (Pair, [1, "x"], [1, "x"]),
    (Any, {"anything": [1]}, {"anything": [1]}),
    (datetime, datetime(2026, 1, 2, 3, 4), "2026-01-02T03:04:00"),
    (datetime, "2026-01-02T03:04:00Z", "2026-01-02T03:04:00Z"),
    (date, date(2026, 1, 2), "2026-01-02"),
    (time, time(3, 4), "03:04:00"),
    (timedelta, timedelta(hours=1), "PT3600S"),
    (Decimal, Decimal("1.50"), "1.50"),
    (UUID, UUID(int=7), str(UUID(int=7))),
    (Color, Color.RED, "red"),
    (Color, "red", "red"),
    (Level, Level.HIGH, 2),
    (set[int], {2, 1}, [1, 2]),
    (frozenset[str], frozenset({"a"}), ["a"]),
    (tuple[int, str], (1, "x"), [1, "x"]),
    (tuple[date, ...], (date(2026, 1, 2),), ["2026-01-02"]),
    (dict[str, bytes], {"a": b"hello"}, {"a": "aGVsbG8="}),
    (list[datetime | None], [None, datetime(2026, 1, 2)], [None, "2026-01-02T00:00:00"]),
    (dict[int, Decimal], {1: Decimal("2")}, {"1": "2"}),
    (dict[date, int], {date(2026, 1, 2): 1}, {"2026-01-02": 1}),
    (Event, Event(datetime(2026, 1, 2), b"x", [Event(datetime(2026, 1, 3))]), EVENT),
    (Annotated[int, Meta(ge=3)], 3, 3),
    (Path, Path("a/b"), "a/b"),
]


@pytest.mark.parametrize(("returns", "value", "result"), FITS)
def test_a_value_of_the_type_is_what_the_program_sees(
    returns: Any, value: Any, result: Any
) -> None:
    used = lost(returns)
    session = waiting(used)
    (ask,) = session.inbox.waiting
    session.inbox.resolve(ask, "happened", value, "the bank says so", actor=ANA)
    done = resume(session, Pays(used))
    assert done.at(-2).result == result
    if returns not in (Any, None):
        done.at(-2).result_as(returns)
    assert done.runs[-1].status == "finished"
    assert replay(done, Pays(used)).head == done.head


MISFITS: list[tuple[Any, Any]] = [
    (int, "seven"),
    (int, 7.5),
    (int, True),
    (int, None),
    (str, 7),
    (bool, 1),
    (None, 7),
    (list[int], [1, "two"]),
    (dict[str, int], {"a": "one"}),
    (Receipt, {"id": 1}),
    (Receipt, {"id": "1", "total": 2, "lines": []}),
    (Receipt, {"id": 1, "total": 2, "lines": [], "state": "lost"}),
    (list[Receipt], [{"id": 1}]),
    (Pair, [1]),
    (int | None, "x"),
    (int, object()),
    (int, Path("a.txt")),
    (int, b"7"),
    (str, b"seven"),
    (bytes, "not base64!"),
    (bytes, 7),
    (bytes, None),
    (bytes, {"a": 1}),
    (bytearray, "x"),
    (bytes | None, "x"),
    (dict[str, bytes], {"a": "not base64!"}),
    (list[bytes], ["aGVsbG8=", "?"]),
    (datetime, "tomorrow"),
    (datetime, 7),
    (datetime | None, "tomorrow"),
    (list[datetime], ["2026-01-02T03:04:00", "tomorrow"]),
    (tuple[int, datetime], [1, "tomorrow"]),
    (dict[str, datetime], {"a": "tomorrow"}),
    (Event, {"at": "tomorrow"}),
    (Event, {"at": "2026-01-02T03:04:00", "content": "?"}),
    (Event, {"at": "2026-01-02T03:04:00", "parts": [{"at": "tomorrow"}]}),
    (date, "2026-13-01"),
    (time, "25:00"),
    (timedelta, "an hour"),
    (Decimal, "much"),
    (UUID, "7"),
    (Color, "green"),
    (Level, 3),
    (Level, True),
    (set[int], [1, 1]),
    (set[int], [1, "x"]),
    (tuple[int, str], [1, "x", 2]),
    (dict[int, str], {"one": "x"}),
    (dict[date, int], {"tomorrow": 1}),
    (Annotated[int, Meta(ge=3)], 2),
    (Annotated[str, Meta(max_length=2)], "abc"),
    (Annotated[str, Meta(pattern="^a")], "b"),
    (Path, 7),
]


@pytest.mark.parametrize(("returns", "value"), MISFITS)
def test_a_value_of_another_type_is_refused_before_anything_is_written(
    returns: Any, value: Any
) -> None:
    session = waiting(lost(returns))
    with pytest.raises(InvalidValue, match=r"value: .* Nothing was written"):
        session.inbox.resolve(session.inbox.waiting[0], "happened", value, actor=ANA)
    assert session.inbox.events == [] and len(session.inbox.waiting) == 1


@pytest.mark.parametrize("value", [b"hello", "aGVsbG8=", bytearray(b"hello")])
@pytest.mark.parametrize("returns", [bytes, bytearray, bytes | None])
def test_bytes_are_resolved_with_bytes_or_base64_and_recorded_as_the_tool_would(
    returns: Any, value: Any
) -> None:
    used = lost(returns)
    session = waiting(used)
    session.inbox.resolve(session.inbox.waiting[0], "happened", value, actor=ANA)
    done = resume(session, Pays(used))
    result = done.at(-2).result
    assert isinstance(result, File) and store_at(done.store).get_blob(result.blob) == b"hello"
    assert replay(done, Pays(used)).head == done.head


def test_bytes_are_resolved_with_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"hello")
    used = lost(bytes)
    session = waiting(used)
    session.inbox.resolve(session.inbox.waiting[0], "happened", tmp_path / "a.bin", actor=ANA)
    assert resume(session, Pays(used)).runs[-1].status == "finished"


@dataclass
class Picky:
    value: int

    def __post_init__(self) -> None:
        if self.value < 0:
            raise CancelledError("as it likes")


def test_a_type_that_raises_whatever_it_likes_is_asked_for_again() -> None:
    used = lost(Picky)
    session = waiting(used)
    session.inbox.resolve(session.inbox.waiting[0], "happened", {"value": -1}, actor=ANA)
    with pytest.raises(Parked):
        resume(session, Pays(used))
    (ask,) = session.reload().inbox.waiting
    assert "CancelledError" in ask.why


def test_what_did_not_happen_needs_no_value() -> None:
    session = waiting(lost(int))
    session.inbox.resolve(session.inbox.waiting[0], "did_not_happen", actor=ANA)
    assert session.inbox.waiting == []


def test_a_call_of_a_model_is_resolved_likewise() -> None:
    used = lost(Receipt)

    def agent() -> Agent:
        return Agent("Pay.", model=ScriptedModel([ToolCall("pay"), "paid"]), tools=[used])

    session = Session("go", store="memory:")
    with pytest.raises(KeyboardInterrupt):
        agent()(session)
    with pytest.raises(Parked):
        resume(session, agent())
    (ask,) = session.reload().inbox.waiting
    assert ask.returns == schema_of(Receipt)
    with pytest.raises(InvalidValue, match="'total' is missing"):
        session.reload().inbox.resolve(ask, "happened", {"id": 1}, actor=ANA)
    session.reload().inbox.resolve(ask, "happened", Receipt(1, 2.0, []), actor=ANA)
    done = resume(session, agent())
    assert done.text == "paid" and done.effects[0].result["id"] == 1


def test_a_value_that_does_not_fit_the_tool_as_it_is_now_is_asked_for_again() -> None:
    session = waiting(lost(Any))  # nobody knew then what it returns
    session.inbox.resolve(session.inbox.waiting[0], "happened", "seven", actor=ANA)
    used = lost(int)
    with pytest.raises(Parked):
        resume(session, Pays(used, int))
    (ask,) = session.reload().inbox.waiting
    assert "does not fit" in ask.why and ask.returns == {"type": "integer"}
    session.reload().inbox.resolve(ask, "happened", 7, actor=ANA)
    done = resume(session, Pays(used, int))
    assert done.facts["seen"] == "int" and replay(done, Pays(used, int)).head == done.head


def test_a_schema_is_read_as_its_type_is() -> None:
    for returns, _, result in FITS:
        if returns is not Any:
            assert misfit(result, result_schema_of(returns)) is None, (returns, result)
    nested = schema_of(dict[str, list[Receipt]])
    assert (
        misfit({"a": [{"id": 1, "total": 1, "lines": ["x", 1]}]}, nested)
        == "at 'a': at 0: at 'lines': at 1: it is a int, not string"
    )
