"""Values that bodies share: pieces of messages, usage, placements, failures."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from plait.errors import InvalidValue
from plait.errors.base import spelling_step
from plait.event.kinds.base import DurationMicros
from plait.event.strict import Json
from plait.ids import Digest, LogId, Micros


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A piece of a body."""


class Place(Value, frozen=True):
    """A position in a log, and the event that stands there."""

    log: LogId
    seq: int
    head: Digest


class Part(Value, frozen=True, tag_field="type"):
    """A piece of a message. Content beyond a few KB is in `blob`, and the inline field is empty."""


class Text(Part, frozen=True, tag="text"):
    text: str = ""
    blob: Digest | None = None


class Reasoning(Part, frozen=True, tag="reasoning"):
    """Kept verbatim, with everything that the provider wants back (signature, encrypted form)."""

    text: str = ""
    raw: Json = None
    blob: Digest | None = None


class Image(Part, frozen=True, tag="image"):
    media_type: str
    blob: Digest
    alt: str = ""


class File(Part, frozen=True, tag="file"):
    name: str
    media_type: str
    blob: Digest
    rest: tuple[Digest, ...] = ()  # the pieces after the first: a blob has a limit


class Data(Part, frozen=True, tag="data"):
    value: Json = None
    blob: Digest | None = None


Parts = tuple[Text | Reasoning | Image | File | Data, ...]


def blobs_of(parts: Parts) -> tuple[Digest, ...]:
    return tuple(
        [
            blob
            for part in parts
            if part.blob
            for blob in (part.blob, *(part.rest if isinstance(part, File) else ()))
        ]
    )


class Action(Value, frozen=True):
    """One tool call that a reply asks for.

    `call` names its bracket: every event of the effect carries it in the header.
    """

    call: str
    tool: str
    arguments: Json  # an object; a text if the model's own text was no JSON object, kept as it came
    reason: str = ""
    ref: str = ""  # the provider's own id of it


class Usage(Value, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated_tokens: int = 0  # of those above: the provider did not count them


class Price(Value, frozen=True):
    """The cost of a call, and the price list it was computed by."""

    cost_usd_nano: int
    source: str  # the price list and its version


class BudgetType(msgspec.StructMeta):
    """Names the right limit where a budget is made with one that there is not."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        known: tuple[str, ...] = cls.__struct_fields__
        for name in kwargs:
            if name not in known:
                why = f"a Budget has no limit {name!r}"
                raise InvalidValue(name, why, spelling_step(name, known, _LIMITS))
        return super().__call__(*args, **kwargs)


_LIMITS = {
    "tokens": "tokens_max=",
    "max_tokens": "tokens_max=",
    "cost": "cost_usd_max=",
    "dollars": "cost_usd_max=",
    "usd": "cost_usd_max=",
    "seconds": "wall_s_max=",
    "time": "wall_s_max=",
    "steps": "steps_max=",
    "max_steps": "steps_max=",
    "tool_calls": "tool_calls_max=",
}


class Budget(Value, frozen=True, metaclass=BudgetType):
    """Limits on spending. None: unlimited.

    Tokens, dollars, steps (asks of a model) and tool calls are limits over all runs and branches of
    a session, merged or not, from the grant on. `wall_s_max` is a limit on one run: seconds while a
    process holds it, its resumes added up, waits for people left out.
    """

    tokens_max: int | None = None
    cost_usd_max: float | None = None
    wall_s_max: float | None = None
    steps_max: int | None = None
    tool_calls_max: int | None = None


class Placement(Value, frozen=True):
    """The sandbox in which tools run, described exactly."""

    backend: str
    sandbox: str = ""
    generation: int = 0
    rung: str = ""
    image: str = ""
    network: str = ""
    detail: Json = None


class Trees(Value, frozen=True):
    """The workspace before and after an effect."""

    before: Digest
    after: Digest
    changed: tuple[str, ...] = ()


class Failure(Value, frozen=True):
    """An error as a value: as much as a program may see of it, live and replayed alike."""

    kind: str
    message: str
    traceback: str = ""
    retryable: bool = False


class Carried(Value, frozen=True):
    """A call of an abandoned tail that the request of an equal call stands for."""

    request: Digest  # its first one
    key: Digest  # the idempotency key that it was made under


class Wishes(Value, frozen=True):
    """The wishes of a submitted run: the workers that may execute it, and when."""

    need: tuple[str, ...] = ()  # the labels that its worker has, sorted
    priority: int = 0  # the higher first, within its project
    project: str = ""  # whose share of the workers it uses
    not_before: Micros | None = None  # None: at once
    deadline: Micros | None = None  # it is cancelled after that. None: never
    attempts: int = 1  # how often it may fail before it stays failed
    code: str = ""  # of the process that submitted it
    same_code: bool = False  # True: only workers with that code may execute it
    job: LogId | None = None  # the session of the job that it is a part of
    ordinal: int | None = None  # which part


class PlannedRun(Value, frozen=True):
    """The start of a run that is submitted later, by a process that need not have its program."""

    workflow: str  # import path, as in package.module:Class
    arguments: Json = None
    revision: str = ""
    environment: Json = None
    version: str = ""


Chosen = Literal["first", "woken", "taken over", "retried"]


class Claim(Value, frozen=True):
    """The worker that took a run, and for which reason."""

    worker: str
    chosen: Chosen
    host: str = ""
    labels: tuple[str, ...] = ()
    code: str = ""
    # affinity: the host that executed it before; stolen: another one
    place: Literal["", "affinity", "stolen"] = ""
    waited_us: DurationMicros = 0  # since it could have been taken; 0: not known


class Score(Value, frozen=True):
    """One candidate of a recall and why it ranked where it did."""

    memory: Digest
    score: float
    parts: dict[str, float] = {}
    marks: tuple[str, ...] = ()  # as it is shown: stale, disputed, less evidence


class StateDigest(Value, frozen=True):
    """The folded state at this place. Digests of different fold versions are not comparable."""

    fold: int
    digest: Digest


def roots_of(trees: Trees | None) -> tuple[Digest, ...]:
    return (trees.before, trees.after) if trees else ()
