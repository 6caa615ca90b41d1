"""The difference of two values: messages, facts, verdicts, cost and files of each side."""

from __future__ import annotations

import msgspec

from plait.event import Event, Json
from plait.event.kinds import MessageSaid, ModelReplied, ValidationRecorded
from plait.ids import Digest
from plait.session.content import text_of
from plait.session.effect_rows import EffectRows
from plait.session.events import path_events
from plait.session.files import tree_of
from plait.session.ports import notebook_html
from plait.session.state import EventRef, Known, Spent, State, tokens_text
from plait.session.views import Effect, Message, effects_of, message_of
from plait.store import Store
from plait.workspace.changes import Changes

_RESULT_MAX = 80  # characters of a result in a line
_MESSAGES = frozenset({MessageSaid.__name__, ModelReplied.__name__})


class Messages(msgspec.Struct, frozen=True):
    common: int  # how many both have
    left: tuple[Message, ...]  # only here
    right: tuple[Message, ...]  # only there


class Calls(msgspec.Struct, frozen=True):
    """Tool calls, in the order of their requests."""

    common: int  # how many both have
    left: tuple[Effect, ...]  # only here
    right: tuple[Effect, ...]  # only there


class Sides(msgspec.Struct, frozen=True):
    """The values of both sides for one key; `there` tells a null from nothing at all."""

    left: Json
    right: Json
    left_there: bool = True
    right_there: bool = True


class Diff(msgspec.Struct, frozen=True):
    left: str
    right: str
    messages: Messages
    files: Changes
    facts: dict[str, Sides]
    validation: dict[str, Sides]
    cost: tuple[Spent, Spent]
    calls: Calls = Calls(0, (), ())

    def __bool__(self) -> bool:
        """Return True if the stories differ. A difference in cost does not count."""
        said = self.messages
        return bool(
            said.left
            or said.right
            or self.calls.left
            or self.calls.right
            or self.facts
            or self.validation
            or self.files.left != self.files.right
        )

    @property
    def is_same_story(self) -> bool:
        """True if both sides say, call and leave the same, though in events of their own."""
        said, made = self.messages, self.calls
        return (
            [(each.role, each.name, each.parts) for each in said.left]
            == [(each.role, each.name, each.parts) for each in said.right]
            and [(each.tool, each.arguments, each.state, each.parts) for each in made.left]
            == [(each.tool, each.arguments, each.state, each.parts) for each in made.right]
            and not (self.facts or self.validation)
            and self.files.left == self.files.right
        )

    def __str__(self) -> str:
        return "\n".join(diff_lines(self))

    def _repr_html_(self) -> str | None:
        return notebook_html(self)

    def __repr__(self) -> str:
        said = len(self.messages.left) + len(self.messages.right)
        files = "other files" if self.files.left != self.files.right else "the same files"
        return (
            f"<Diff {self.left} {self.right}: messages {said}, facts {len(self.facts)}, verdicts"
            f" {len(self.validation)}, {files}>"
        )


def compare(
    store: Store, left: State, right: State, titles: tuple[str, str], began: Digest | None = None
) -> Diff:
    """Compare two states. `began` is the tree that files are compared with, if not the left one."""
    facts = {
        key: Sides(*_side_values(left.story.facts.get(key), right.story.facts.get(key)))
        for key in {**left.story.facts, **right.story.facts}
        if (one.json if (one := left.story.facts.get(key)) else None)
        != (two.json if (two := right.story.facts.get(key)) else None)
    }
    return Diff(
        left=titles[0],
        right=titles[1],
        messages=_compare_messages(store, left, right),
        files=Changes(store, began or tree_of(left), tree_of(right)),
        facts=facts,
        validation=_compare_verdicts(store, left, right),
        cost=(left.spent, right.spent),
        calls=_compare_calls(store, left, right),
    )


def diff_lines(diff: Diff) -> list[str]:
    """Write the difference for people: `-` only left, `+` only right."""
    found = [f"--- {diff.left}", f"+++ {diff.right}", f"messages: {diff.messages.common} in common"]
    for sign, said in (("-", diff.messages.left), ("+", diff.messages.right)):
        found += [f"{sign} {each.name or each.role}: {each.text}" for each in said]
    calls = diff.calls
    if calls.common or calls.left or calls.right:
        found.append(f"tool calls: {calls.common} in common")
    for sign, made in (("-", calls.left), ("+", calls.right)):
        found += [f"{sign} {call_text(each)}" for each in made]
    for name, sides in (("facts", diff.facts), ("validation", diff.validation)):
        found += [f"{name}:"] if sides else []
        for key, both in sides.items():
            found += [f"- {key} = {_json(both.left)}"] if both.left_there else []
            found += [f"+ {key} = {_json(both.right)}"] if both.right_there else []
    if diff.files.left != diff.files.right:
        found += ["files:", *diff.files.lines()]
    left, right = diff.cost
    found.append(
        f"cost: {tokens_text(left)}, {left.cost} against {tokens_text(right)}, {right.cost}"
    )
    return found


def _side_values(left: object, right: object) -> tuple[Json, Json, bool, bool]:
    there = [fact is not None and getattr(fact, "json", None) is not None for fact in (left, right)]
    return (getattr(left, "value", None), getattr(right, "value", None), there[0], there[1])


def _compare_messages(store: Store, left: State, right: State) -> Messages:
    """Compare by event: messages on both paths are common, the others belong to one side."""
    sides: list[list[Message]] = []
    common = 0
    for one, other in ((left, right), (right, left)):
        known, found, common = Known(other.story.path), list[Message](), 0
        for span, event in path_events(store, one.story.path, _MESSAGES):
            if EventRef(event.log, event.seq, event.id) in known:
                common += 1
            elif (message := message_of(event, span, store.get_blob)) is not None:
                found.append(message)
        sides.append(found)
    return Messages(common, tuple(sides[0]), tuple(sides[1]))


def _compare_calls(store: Store, left: State, right: State) -> Calls:
    """Compare by the events that requested each call and ended it."""
    sides: list[list[Effect]] = []
    common = 0
    for one, other in ((left, right), (right, left)):
        known = Known(other.story.path)
        made = effects_of(path_events(store, one.story.path, EffectRows.kinds), store.get_blob)
        own = [each for each in made if any(_ref(at) not in known for at in _ends_of(each))]
        common = len(made) - len(own)
        sides.append(own)
    return Calls(common, tuple(sides[0]), tuple(sides[1]))


def _ends_of(call: Effect) -> list[Event]:
    return [call.request] if call.outcome is None else [call.request, call.outcome]


def _ref(event: Event) -> EventRef:
    return EventRef(event.log, event.seq, event.id)


def call_text(call: Effect) -> str:
    """Return a call in one line: tool, arguments, outcome, and the first line of the result."""
    result = text_of(call.parts).strip().partition("\n")[0]
    said = f" {result[:_RESULT_MAX]}" if result else ""
    return f"{call.tool} {_json(call.arguments)}: {call.state}{said}"


def _compare_verdicts(store: Store, left: State, right: State) -> dict[str, Sides]:
    found: list[dict[str, bool]] = []
    for state in (left, right):
        last: dict[str, bool] = {}
        for _, event in path_events(store, state.story.path, {ValidationRecorded.__name__}):
            body = event.body
            assert isinstance(body, ValidationRecorded)
            last[body.name] = body.passed
        found.append(last)
    one, two = found
    return {
        name: Sides(one.get(name), two.get(name), name in one, name in two)
        for name in {**one, **two}
        if one.get(name) != two.get(name)
    }


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()
