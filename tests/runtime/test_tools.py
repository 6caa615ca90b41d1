"""Tools: schemas off signatures, evidence on every call, and nothing a tool does that brings the
runtime down.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import sys
import threading
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from plait import Agent, ScriptedModel, Session, ToolCall, file, image, tool
from plait.errors import BadTool, InvalidValue, ToolFailed
from plait.event import kinds as k
from plait.tool import Tool, WrongArguments
from tests.support import kinds, word_count


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Row(typing.TypedDict):
    name: str


class Item(msgspec.Struct):
    sku: str
    amount: int = 1


# ── schemas ──────────────────────────────────────────────────────────────────────────────────


def test_a_schema_says_what_the_signature_says() -> None:
    @tool
    def everything(
        text: str,
        point: Point,
        row: Row,
        item: Item,
        how: Literal["fast", "slow"] = "fast",
        colour: Colour = Colour.RED,
        weights: dict[str, float] | None = None,
        tags: list[str] = [],  # noqa: B006
        limit: Annotated[int, "how many at most"] = 10,
    ) -> str:
        """Do everything at once.

        And more than that.

        Args:
            text: what to do it with
            how (str): at which speed

        Returns:
            nothing of interest
        """
        return text

    schema: Any = everything.schema
    properties = schema["properties"]
    assert everything.name == "everything"
    assert everything.description.startswith("Do everything at once.\n\nAnd more than that.")
    assert "at which speed" not in everything.description
    assert (
        schema["required"] == ["text", "point", "row", "item"]
        and schema["additionalProperties"] is False
    )
    assert properties["text"] == {"type": "string", "description": "what to do it with"}
    assert properties["how"]["enum"] == ["fast", "slow"] and properties["how"]["default"] == "fast"
    assert properties["how"]["description"] == "at which speed"
    assert properties["limit"]["description"] == "how many at most"
    assert set(schema["$defs"]) == {"Colour", "Item", "Point", "Row"}
    given = everything.arguments(
        {
            "text": "a",
            "point": {"x": 1},
            "row": {"name": "n"},
            "item": {"sku": "s"},
            "colour": "blue",
        }
    )
    assert given == {
        "text": "a",
        "point": Point(1),
        "row": {"name": "n"},
        "item": Item("s"),
        "colour": Colour.BLUE,
    }


def test_pydantic_models_are_taken_and_given() -> None:
    pydantic = pytest.importorskip("pydantic")
    Inner = pydantic.create_model("Inner", a=(int, ...))
    Outer = pydantic.create_model("Outer", inner=(Inner, ...), name=(str, "n"))

    def act(outer: Any) -> Any:
        return outer

    act.__annotations__ = {"outer": Outer, "return": Outer}
    made = tool(act)
    schema: Any = made.schema
    assert set(schema["$defs"]) >= {"Inner"} and "$defs" not in schema["properties"]["outer"]
    assert made.arguments({"outer": {"inner": {"a": 1}}})["outer"].inner.a == 1
    with pytest.raises(WrongArguments, match="inner"):
        made.arguments({"outer": {}})
    assert Session("x").use(made, outer={"inner": {"a": 1}}).result == {
        "inner": {"a": 1},
        "name": "n",
    }


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "missing required field `text`"),
        ({"text": 1}, "Expected `str`, got `int` - at `$.text`"),
        ({"text": "a", "txet": "b"}, "unknown field `txet`"),
        ("{broken", "not a JSON object"),
        ([1], "not a JSON object"),
        (None, "not a JSON object"),
    ],
)
def test_wrong_arguments_are_told_in_words(given: Any, why: str) -> None:
    with pytest.raises(WrongArguments, match=why.replace("$", r"\$")):
        word_count.arguments(given)


def test_what_cannot_be_a_tool_says_why() -> None:
    def star(*texts: str) -> None: ...
    def strange(event: threading.Event) -> None: ...

    refused: list[tuple[Any, str]] = [
        (star, "'texts'"),
        (strange, "Event"),
        (lambda: 0, "<lambda>"),
    ]
    for function, why in refused:
        with pytest.raises(BadTool, match=why):
            tool(function)
    with pytest.raises(BadTool, match="not an effect class"):
        tool(effect="often")(word_count.function)  # type: ignore[arg-type]
    with pytest.raises(BadTool, match="is made once"):
        tool(attempts=3)(word_count.function)
    with pytest.raises(BadTool, match="0 attempts are none"):
        tool(effect="pure", attempts=0)(word_count.function)
    for wrong in (word_count, "word_count", 3):
        with pytest.raises(InvalidValue, match="is not a list of tools"):
            Agent("x", tools=wrong)  # type: ignore[arg-type]
    with pytest.raises(BadTool, match="neither a tool nor a function"):
        Agent("x", tools=[42])
    with pytest.raises(InvalidValue, match="two tools are called"):
        Agent("x", tools=[word_count, tool(word_count.function)])


def test_a_tool_is_still_a_function() -> None:
    assert word_count("to be") == 2
    assert isinstance(word_count, Tool) and word_count.effect == "at_most_once"
    assert word_count.__doc__ == "Count the words of a text."


class Shop:
    def __init__(self) -> None:
        self.sold: list[str] = []

    @tool
    def sell(self, sku: str) -> int:
        """Sell one."""
        self.sold.append(sku)
        return len(self.sold)


def test_a_method_is_bound_to_its_object() -> None:
    shop = Shop()
    assert list(typing.cast("Any", shop.sell.schema)["properties"]) == ["sku"]
    assert (
        shop.sell("a") == 1
        and Session("x").use(shop.sell, sku="b").result == 2
        and shop.sold == ["a", "b"]
    )
    with pytest.raises(BadTool, match="a method without its object"):
        Agent("x", tools=[Shop.sell])


def test_paths_are_texts_to_a_model(tmp_path: Path) -> None:
    @tool
    def size(path: Path) -> Path:
        return path.parent

    assert Session("x").use(size, path=typing.cast("Any", tmp_path / "a")).result == str(tmp_path)
    assert size.arguments({"path": "a/b"}) == {"path": Path("a/b")}


def test_the_version_follows_the_definition() -> None:
    same = tool(word_count.function)
    other = tool(description="Count.")(word_count.function)
    assert word_count.version == same.version != other.version


# ── calls by the program ─────────────────────────────────────────────────────────────────────


def test_the_program_uses_a_tool() -> None:
    session = Session("hi")
    after = session.use(word_count, text="to be or not")
    assert after.result == 4 and session.result is None
    assert kinds(after)[2:] == ["ToolRequested", "ToolReturned"]
    (effect,) = after.effects
    assert (effect.tool, effect.arguments, effect.result, effect.attempts) == (
        "word_count",
        {"text": "to be or not"},
        4,
        1,
    )
    assert (
        effect.effect == "at_most_once"
        and effect.duration_us >= 0
        and effect.actor.startswith("human:")
    )
    requested = after.events[2].body
    assert isinstance(requested, k.ToolRequested) and requested.version == word_count.version


def test_wrong_arguments_of_the_program_write_nothing() -> None:
    session = Session("hi")
    for given in ({}, {"text": 1}, {"text": "a", "more": 1}, {"text": object()}):
        with pytest.raises(InvalidValue, match="word_count"):
            session.use(word_count, **given)  # type: ignore[arg-type]
    assert session.reload() == session


def test_a_failing_tool_is_on_record_and_raises() -> None:
    @tool
    def explode(why: str) -> None:
        """Raise."""
        raise RuntimeError(f"because {why}")

    session = Session("hi")
    with pytest.raises(ToolFailed, match="explode failed: RuntimeError: because of it") as caught:
        session.use(explode, why="of it")
    after = caught.value.session
    assert kinds(after)[2:] == ["ToolRequested", "ToolFailed"] and after == session.reload()
    failure = after.effects[0].failure
    assert failure is not None and "raise RuntimeError" in failure.traceback
    assert after.use(word_count, text="a").result == 1  # and life goes on


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (None, None),
        ("", ""),
        ("text", "text"),
        ({"a": [1, None]}, {"a": [1, None]}),
        ([], []),
        (Point(1, 2), {"x": 1, "y": 2}),
        (Item("s"), {"sku": "s", "amount": 1}),
        ({1}, [1]),
        (Colour.RED, "red"),
        ((1, "a"), [1, "a"]),
        ({1: "a"}, {"1": "a"}),
        (3.5, 3.5),
        (True, True),
    ],
)
def test_results_are_recorded_as_data(value: Any, result: Any) -> None:
    @tool
    def give() -> Any:
        return value

    assert Session("x").use(give).result == result


@pytest.mark.parametrize("value", [float("nan"), object(), "\ud800", {"a": object()}])
def test_a_result_that_no_log_can_hold_is_a_failure_that_says_it_ran(value: Any) -> None:
    ran: list[int] = []

    @tool
    def give() -> Any:
        ran.append(1)
        return value

    with pytest.raises(ToolFailed, match="it ran, but what it returned cannot be recorded"):
        Session("x").use(give)
    assert ran == [1]


def test_images_and_files_come_back_as_parts() -> None:
    @tool
    def picture() -> Any:
        return [image(b"GIF89a", "image/gif"), "a caption", file(b"%PDF", "a.pdf")]

    @tool
    def raw() -> bytes:
        return b"\x00\xff"

    session = Session("x").use(picture)
    parts = session.effects[0].parts
    assert (
        isinstance(parts[0], k.Image)
        and isinstance(parts[2], k.File)
        and session.result[1] == "a caption"
    )
    assert session.files.blob(parts[0].blob) == b"GIF89a"
    session = session.use(raw)
    (part,) = session.effects[-1].parts
    assert isinstance(part, k.File) and session.files.blob(part.blob) == b"\x00\xff"


def test_a_large_result_is_whole_in_the_log_and_bounded_for_the_model() -> None:
    seen: list[str] = []

    @tool
    def dump() -> str:
        return "".join(f"line {n}\n" for n in range(50_000))

    def script(session: Session) -> Any:
        return "done" if session.effects else ToolCall("dump")

    class Spy(ScriptedModel):
        def ask(self, request: Any, on_delta: Any) -> Any:
            seen.extend(
                result.parts[0].text
                for turn in request.turns
                for result in getattr(turn, "results", ())
            )
            return super().ask(request, on_delta)

    session = Agent("x", model=Spy(script), tools=[dump])(Session("go"))
    assert session.result == dump() and len(dump()) > 500_000
    assert len(seen[-1]) < 17_000 and "characters are not shown here" in seen[-1]
    assert seen[-1].startswith("line 0\n") and seen[-1].endswith("line 49999\n")


def test_a_tool_may_read_the_session() -> None:
    @tool
    def how_long(session: Session, unit: str = "messages") -> int:
        return len(session.messages)

    assert "session" not in typing.cast("Any", how_long.schema)["properties"]
    assert Session("one").say("two").use(how_long).result == 2


def test_async_tools_run_wherever_they_are_used() -> None:
    @tool
    async def slow(text: str) -> str:
        await asyncio.sleep(0)
        return text + "!"

    assert Session("x").use(slow, text="a").result == "a!"

    async def inside() -> Any:
        session = Session("x")
        blocking = await asyncio.to_thread(session.use, slow, text="b")
        # on a running loop, too
        return (await blocking.ause(slow, text="c")).result, session.fork().use(
            slow, text="d"
        ).result

    assert asyncio.run(inside()) == ("c!", "d!")


def test_exits_and_base_exceptions_of_tools() -> None:
    @tool
    def leave() -> None:
        sys.exit(3)

    @tool
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(ToolFailed, match="SystemExit"):
        Session("x").use(leave)
    session = Session("x")
    with pytest.raises(KeyboardInterrupt):
        session.use(interrupt)
    failure = session.reload().effects[0].failure
    assert (
        failure is not None
        and failure.kind == "Interrupted"
        and "may have happened" in failure.message
    )
    session.reload().close()


def test_attempts_are_on_record_each() -> None:
    tries: list[int] = []

    @tool(effect="idempotent", attempts=3)
    def flaky(x: int) -> int:
        tries.append(x)
        if len(tries) < 3:
            raise OSError("not yet")
        return x

    session = Session("x").use(flaky, x=5)
    assert session.result == 5 and tries == [5, 5, 5]
    assert kinds(session)[2:] == ["ToolRequested", "ToolFailed"] * 2 + [
        "ToolRequested",
        "ToolReturned",
    ]
    (effect,) = session.effects
    assert effect.attempts == 3 and effect.failure is None and effect.result == 5
    assert {event.header.call for event in session.events[2:]} == {effect.call}


def test_observe_shows_the_state_delta() -> None:
    stock = {"apples": 3, "pears": 1}

    def look() -> dict[str, int]:
        return dict(stock)

    @tool(observe=look)
    def sell(fruit: str) -> int:
        stock[fruit] -= 1
        if not stock.get("pears", 1):
            del stock["pears"]
        if fruit == "apples" and stock["apples"] < 2:
            raise ValueError("too few")
        return stock.get(fruit, 0)

    session = Session("x").use(sell, fruit="pears")
    assert session.effects[0].delta == {
        "before": {"apples": 3, "pears": 1},
        "after": {"apples": 3},
        "changed": {"pears": {"before": 1}},
    }
    session = session.use(sell, fruit="apples")
    with pytest.raises(ToolFailed) as caught:
        session.use(sell, fruit="apples")
    changed: Any = caught.value.session.effects[-1].delta
    # what a failing call changed is told, too
    assert changed["changed"] == {"apples": {"before": 2, "after": 1}}


def test_an_observer_may_name_arguments_and_one_that_fails_keeps_the_tool_from_running() -> None:
    ran: list[str] = []

    def look(key: str) -> str:
        if key == "bad":
            raise LookupError("no such thing")
        return key.upper()

    @tool(observe=look)
    def touch(key: str, other: int = 0) -> None:
        ran.append(key)

    delta: Any = Session("x").use(touch, key="a").effects[0].delta
    assert delta == {"before": "A", "after": "A", "changed": None}
    with pytest.raises(ToolFailed, match="not run: what is to be observed cannot be"):
        Session("x").use(touch, key="bad")
    assert ran == ["a"]


# ── parallel calls of one reply ──────────────────────────────────────────────────────────────


def test_requests_in_order_outcomes_as_they_come() -> None:
    first_may_end = threading.Event()

    @tool
    def wait(name: str) -> str:
        if name == "first":
            assert first_may_end.wait(10)
        else:
            first_may_end.set()
        return name

    calls = [ToolCall("wait", name="first"), ToolCall("wait", name="second")]
    session = Agent("x", model=ScriptedModel([calls, "done"]), tools=[wait])(Session("go"))
    shown = [
        (event.kind, getattr(event.body, "arguments", None))
        for event in session.events
        if event.kind.startswith("Tool")
    ]
    assert [kind for kind, _ in shown] == [
        "ToolRequested",
        "ToolRequested",
        "ToolReturned",
        "ToolReturned",
    ]
    assert [arguments for _, arguments in shown[:2]] == [{"name": "first"}, {"name": "second"}]
    outcomes = [event for event in session.events if event.kind == "ToolReturned"]
    assert [event.body.parts[0].text for event in outcomes] == ["second", "first"]  # type: ignore[union-attr]
    assert [effect.result for effect in session.effects] == ["first", "second"]


def test_calls_that_write_the_workspace_run_one_after_another() -> None:
    inside = threading.Lock()
    order: list[int] = []

    @tool(effect="workspace")
    def write(n: int) -> int:
        assert inside.acquire(blocking=False)
        order.append(n)
        inside.release()
        return n

    calls = [ToolCall("write", n=n) for n in range(8)]
    session = Agent("x", model=ScriptedModel([calls, "done"]), tools=[write])(Session("go"))
    assert order == list(range(8)) and [effect.result for effect in session.effects] == order
