"""Answering effects live: what is asked is on record before anything happens, and what came of it before anything follows.

These are generators, too: they append, and yield what has to be waited for (a model's answer, a tool, a pause), so that blocking,
async and simulated drivers share every line. The program only ever sees what was recorded: an answer is decoded from the bytes just
written.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from plait.errors import InvalidInput, InvalidValue, ModelFailed, PlaitError, ToolFailed, UnknownBlob
from plait.event import Event, Json
from plait.event import kinds as k
from plait.event.codec import VOCABULARY
from plait.event.kinds import Action, Failure
from plait.event.strict import parse
from plait.ids import Digest, digest
from plait.model.base import Delta, Fault, Model, OnDelta, Reply, Request, Restarted, ToolCall
from plait.runtime.effects import Answer, AskModel, Effect, Retry, Turning, UseTools
from plait.runtime.prompt import told_failure
from plait.runtime.run import Run, call_id, check_running, record, record_at_tip, run_of
from plait.session import Session
from plait.session.content import Loose, pack, text_of
from plait.session.ports import Act, Draft, store_at
from plait.session.typed import to_json
from plait.tool import Tool, WrongArguments, difference

T = TypeVar("T")

TRACEBACK_MAX, MESSAGE_MAX, PARTIAL_MAX, DELTA_MAX = 8_000, 4_000, 100_000, 1_000_000
WRAPPED, WRAPPER = "answer", "an answer in an object"  # the one property, and the title, of a schema that is an object for providers' sake
SERVICE = "service:plait"  # who speaks when the runtime itself has something to say
_SILENT = {
    "length": "the reply came to its length limit before it said anything; raise tokens_max, or let it think less",
    "refusal": "the model declined, without a word",
}


# ── what has to be waited for ────────────────────────────────────────────────────────────────


class CallModel(NamedTuple):
    """Answer: `Reply` or `Fault`, and how long it took, in microseconds."""

    model: Model
    request: Request
    on_delta: OnDelta | None
    call: str  # its bracket, and which attempt: what a simulation draws lots by
    attempt: int


class Job(NamedTuple):
    """A tool to be run."""

    number: int
    tool: Tool[..., Any]
    arguments: dict[str, Any]
    call: str
    given: Json  # the arguments as recorded
    attempt: int = 1


class Done(NamedTuple):
    """What came of a job: a value, or a failure."""

    number: int
    value: Any = None
    failure: Failure | None = None
    duration_us: int = 0
    delta: Json = None


class Launch(NamedTuple):
    """Start these: lanes run side by side, the jobs of one lane one after another. Answer: a batch."""

    lanes: Sequence[Sequence[Job]]


class Next(NamedTuple):
    """Wait for whichever job of a batch is done next. Answer: `Done`."""

    batch: Any


class Pause(NamedTuple):
    """Wait so long."""

    seconds: float
    session: Session


Wait = CallModel | Launch | Next | Pause
Answering = Generator[Wait, Any, tuple[Session, Any]]


def play(turn: Turning[T]) -> Generator[Wait, Any, T]:
    """A turn with its effects answered."""
    try:
        effect = next(turn)
        while True:
            try:
                answer = yield from answering(effect)
            except PlaitError as error:
                effect = turn.throw(error)
            else:
                effect = turn.send(answer)
    except StopIteration as done:
        return done.value
    finally:
        turn.close()


def answering(effect: Effect) -> Answering:
    check_running(effect.session)
    run = run_of(effect.session)
    if isinstance(effect, AskModel):
        return (yield from _ask(effect, run))
    if isinstance(effect, UseTools):
        return (yield from _use(effect))
    body = k.MessageSaid(effect.role, (k.Text(effect.text),), "plait", bool(effect.aside))
    return record(effect.session, [Draft(body, Act(effect.aside or SERVICE, "program"))])[0], None


# ── models ───────────────────────────────────────────────────────────────────────────────────


def _ask(effect: AskModel, run: Run | None) -> Answering:
    session, prompt, model = effect.session, effect.prompt, effect.model
    run_id = session.run if run else None
    prompt.catch_up(session, run.since if run else None)
    chain, turns = prompt.ask()
    setup, causes = prompt.setup, prompt.causes[-8:]
    call = call_id(run_id, session.id, session.place + 1, "ask")
    store = store_at(session.store)
    attempt, outcomes = 1, prompt.outcomes
    while True:
        asked = k.ModelAsked(model.name, chain, {**setup.parameters} or None, attempt)
        session, (event,) = record(session, [Draft(asked, Act(effect.actor, "program", call=call, causes=causes))])
        request = Request(
            setup.instruction, setup.tools, turns, session, store.get_blob, setup.parameters, setup.output, effect.choice, outcomes
        )
        outcome, latency_us = yield CallModel(model, request, _deltas(run, effect.path), call, attempt)
        if isinstance(outcome, Reply):
            try:
                return _replied(effect, session, outcome, latency_us, call, event.id, run_id)
            except InvalidInput as error:  # a text that no log can hold: nothing of it was written
                outcome = Fault("MalformedReply", str(error), retryable=True, usage=outcome.usage, price=outcome.price)
            except Fault as error:
                outcome = error
        wait_s = _wait_s(effect.retry, outcome, attempt, call)
        session = _faulted(session, outcome, attempt, latency_us, Act(effect.actor, "model", call=call, causes=(event.id,)))
        if wait_s is None:
            raise ModelFailed(model.name, _line(outcome.kind), _line(outcome.message), attempt, session)
        if run is not None and run.heard:
            run.tell(Restarted(told_failure(_line(outcome.kind), _line(outcome.message)), effect.path))
        yield Pause(wait_s, session)
        attempt, outcomes = attempt + 1, [*outcomes, told_failure(_line(outcome.kind), _line(outcome.message))]


def _deltas(run: Run | None, path: str) -> OnDelta | None:
    if run is None or not run.heard:
        return None

    def tell(delta: Delta) -> None:
        run.tell(msgspec.structs.replace(delta, agent=path))

    return tell


def _replied(
    effect: AskModel, session: Session, reply: Reply, latency_us: int, call: str, asked: Digest, run: str | None
) -> tuple[Session, Answer]:
    """Record a reply, and with it what it asks for: nobody ever finds one without the other."""
    said = _joined(reply.parts)
    if not reply.calls and not any(not isinstance(part, k.Reasoning) for part in said):
        # Asked again, a model that thought up to its limit, or declined, would do the same at the same price.
        why = _SILENT.get(reply.stop)
        told = why or "the reply says nothing and asks for nothing"
        raise Fault("EmptyReply", told, retryable=why is None, usage=reply.usage, price=reply.price)
    if effect.prompt.setup.output is not None and not reply.calls:
        said = _shaped(said, effect.prompt.setup.output)
    parts, blobs = pack(said, "reply")
    seq = session.place + 1
    asks = reply.calls if effect.choice != "none" else ()
    calls = tuple([_action(each, call_id(run, session.id, seq, index)) for index, each in enumerate(asks)])
    stop = reply.stop if calls or reply.stop != "calls" else "end"
    body = k.ModelReplied(parts, reply.usage, stop, calls, reply.model or effect.model.name, reply.price, latency_us, effect.aside)
    drafts = [Draft(body, Act(effect.actor, "model", call=call, causes=(asked,)))]
    for action in calls:
        drafts.extend(_request(effect, action, len(drafts), truncated=reply.stop == "length"))
    # It was answered, and paid for, so it is recorded, also when somebody wrote meanwhile.
    session, events = record_at_tip(session, drafts, blobs)
    written = events[0].body
    assert isinstance(written, k.ModelReplied)
    data = next((part for part in said if isinstance(part, k.Data)), None)
    failed = {event.header.call for event in events if event.kind == "ToolFailed"}
    runnable = tuple([each for each in written.calls if each.call not in failed])
    return session, Answer(events[0].id, text_of(said), data, written.calls, runnable, written.stop)


def _joined(parts: k.Parts) -> k.Parts:
    """Without empty texts, and with those that follow each other as one: a provider may cut in the middle of a sentence."""
    found: list[Any] = []
    for part in parts:
        if isinstance(part, k.Text) and not part.blob:
            if found and isinstance(found[-1], k.Text):
                found[-1] = k.Text(found[-1].text + part.text)
            elif part.text:
                found.append(part)
        else:
            found.append(part)
    return tuple(found)


def _shaped(parts: k.Parts, schema: Any) -> k.Parts:
    """A reply that is to be data, as data; if it is not, as it came. What only stands in an object for the provider's sake is taken out."""
    text = "".join(part.text for part in parts if isinstance(part, k.Text)).strip()
    for candidate in (text, text.removeprefix("```json").removeprefix("```").removesuffix("```").strip()):
        try:
            value = parse(candidate.encode())
        except (InvalidInput, UnicodeEncodeError):
            continue
        if isinstance(value, Mapping) and schema.get("title") == WRAPPER and set(value) == {WRAPPED}:
            value = value[WRAPPED]
        return (*(part for part in parts if not isinstance(part, k.Text)), k.Data(value))
    return parts


def _action(call: ToolCall, id: str) -> Action:
    arguments = _parsed(call.arguments) if isinstance(call.arguments, str) else call.arguments
    if isinstance(arguments, Mapping):
        try:
            VOCABULARY.encode(k.ScratchSet("arguments", dict(arguments)))
        except InvalidInput:
            arguments = repr(arguments)  # not JSON, whatever it is: shown to the model as what it wrote
    return Action(id, call.tool[:200], dict(arguments) if isinstance(arguments, Mapping) else arguments, call.reason, call.ref)


def _parsed(text: str) -> Mapping[str, Json] | str:
    """The object a text is; if it is none, the text as it came."""
    try:
        value = parse(text.encode())
    except (InvalidInput, UnicodeEncodeError):
        return text
    return value if isinstance(value, Mapping) else text


def _request(effect: AskModel, action: Action, at: int, *, truncated: bool) -> list[Draft]:
    """The request of one call; if it cannot be run, also what the model is told about that."""
    tool = effect.tools.get(action.tool)
    act = Act(effect.actor, "model", call=action.call, causes=(0,))
    body = k.ToolRequested(
        action.tool,
        action.arguments,
        tool.effect if tool else "pure",
        tool.version if tool else "",
        action.reason,
        path=effect.path,
        source=tool.origin if tool else "",
    )
    why = _refusal(effect.tools, tool, action, truncated)
    refused = [Draft(k.ToolFailed(why), act._replace(origin="program", causes=(at,)))] if why else []
    return [Draft(body, act), *refused]


def _refusal(tools: Mapping[str, Tool[..., Any]], tool: Tool[..., Any] | None, action: Action, truncated: bool) -> Failure | None:
    if tool is None:
        return Failure("UnknownTool", f"there is no tool {action.tool!r}; there are: {', '.join(tools) or 'none'}")
    if truncated:
        return Failure("Truncated", "the reply was cut at its length limit, so this call was not run; ask for less at once")
    try:
        tool.arguments(action.arguments)
    except WrongArguments as error:
        return Failure("WrongArguments", f"{error}. It was not run; correct the arguments and call it again")
    return None


def _faulted(session: Session, fault: Fault, attempt: int, latency_us: int, act: Act) -> Session:
    partial = _line(fault.partial, PARTIAL_MAX)
    failure = Failure(_line(fault.kind, 200), _line(fault.message), _told(fault), retryable=bool(fault.retryable))
    body = k.ModelFailed(failure, attempt, fault.usage, partial, fault.price, latency_us)
    return record_at_tip(session, [Draft(body, act)])[0]


def _told(fault: Fault) -> str:
    """Where a fault comes from that is no provider's: a bug in a model of the program's own."""
    return _clean(_traceback(fault.__cause__)) if fault.__cause__ is not None and fault.kind == type(fault.__cause__).__name__ else ""


def _wait_s(retry: Retry, fault: Fault, attempt: int, call: str) -> float | None:
    """How long until the next attempt; None: there is none."""
    if not fault.retryable or attempt >= retry.attempts:
        return None
    if fault.retry_after_s is not None:
        return max(0.0, fault.retry_after_s) if fault.retry_after_s <= retry.wait_s_max else None
    # Lots are drawn by the call's name, so that the same history waits the same; two calls still do not knock together.
    share = int(digest(b"plait/wait/1", call.encode(), str(attempt).encode())[:8], 16) / 0xFFFFFFFF
    return min(retry.wait_s_max, retry.wait_s * 2 ** (attempt - 1)) * (0.5 + share / 2)


# ── tools ────────────────────────────────────────────────────────────────────────────────────


def _use(effect: UseTools) -> Answering:
    jobs = {
        index: Job(index, tool, _bound(tool, tool.arguments(action.arguments), effect.session), action.call, action.arguments)
        for index, action in enumerate(effect.calls)
        if (tool := effect.tools.get(action.tool)) is not None
    }
    session, _ = yield from _run_jobs(effect.session, jobs, effect.actor, effect.path, held=True)
    return session, None


def use_tool(session: Session, tool: Tool[..., Any], given: Mapping[str, Any], actor: str, path: str) -> Generator[Wait, Any, Session]:
    """A call by the program itself."""
    arguments, plain = _program_arguments(tool, given)
    check_running(session)
    run = run_of(session)
    call = call_id(session.run if run else None, session.id, session.place + 1, "use")
    body = k.ToolRequested(tool.name, plain, tool.effect, tool.version, path=path, source=tool.origin)
    session, _ = record(session, [Draft(body, Act(actor, "program", call=call))])
    jobs = {0: Job(0, tool, _bound(tool, arguments, session), call, plain)}
    try:
        session, outcomes = yield from _run_jobs(session, jobs, actor, path)
    except GeneratorExit:  # interrupted. In a run it can be taken up again; outside of any nobody else would ever settle it
        if run is None:
            failure = Failure("Interrupted", "it was interrupted while it ran; it may have happened")
            record_at_tip(session, [Draft(k.ToolFailed(failure), Act(actor, "program", call=call))])
        raise
    settled = outcomes[0].body
    if isinstance(settled, k.ToolFailed):
        raise ToolFailed(tool.name, settled.failure.kind, settled.failure.message, session)
    return session


def _program_arguments(tool: Tool[..., Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], Json]:
    """What to call it with, and what to record; refused before anything is written."""
    try:
        plain = to_json(dict(given))
        return tool.arguments(plain), plain
    except WrongArguments as error:
        raise InvalidValue(tool.name, str(error), "pass what its signature asks for") from error
    except (TypeError, ValueError) as error:
        raise InvalidValue(tool.name, str(error), "pass plain data") from error


def _bound(tool: Tool[..., Any], arguments: dict[str, Any], session: Session) -> dict[str, Any]:
    return {**arguments, "session": session} if tool.takes_session else arguments


def _run_jobs(
    session: Session, jobs: dict[int, Job], actor: str, path: str, *, held: bool = False
) -> Generator[Wait, Any, tuple[Session, dict[int, Event]]]:
    """Run them, and record each outcome as it comes; returns what was recorded, by job."""
    outcomes: dict[int, Event] = {}
    if not jobs:
        return session, outcomes
    batch = yield Launch(_lanes(list(jobs.values())))
    left = len(jobs)
    while left:
        done: Done = yield Next(batch)
        job = jobs[done.number]
        drafts, blobs = _outcome(job, done, actor)
        again = done.failure is not None and job.attempt < job.tool.attempts
        if again:
            job = jobs[done.number] = job._replace(attempt=job.attempt + 1)
            tool = job.tool
            body = k.ToolRequested(tool.name, job.given, tool.effect, tool.version, attempt=job.attempt, path=path, source=tool.origin)
            drafts.append(Draft(body, Act(actor, "program", call=job.call, causes=(0,))))
        try:
            # It happened, so it is recorded, also when somebody wrote meanwhile: the tool itself, to the session it was handed, say.
            session, events = _record_outcome(session, drafts, blobs, held=held and left == 1 and not again)
        except (InvalidInput, UnknownBlob) as error:  # it was refused before anything was written
            if done.failure is not None:
                raise
            session, events = record_at_tip(session, [_unfit(job, done, actor, error)])
        outcomes[done.number] = events[0]
        if again:
            batch.add(job)
        else:
            left -= 1
    return session, outcomes


def _record_outcome(session: Session, drafts: Sequence[Draft], blobs: Mapping[Digest, bytes], *, held: bool) -> tuple[Session, list[Event]]:
    """The last outcome of a turn's calls is followed by the next ask at once, and is written with it: nothing acts in between."""
    # What points to a blob is for the store to judge; the rest was judged when it was sealed.
    run = run_of(session) if held and not any(draft.body.refs() for draft in drafts) else None
    kept = run.hold(session.spot, drafts) if run is not None else None
    if kept is None:
        return record_at_tip(session, drafts, blobs)
    return session.later(kept[0], *[type(draft.body).__name__ for draft in drafts]), kept[1]


def _lanes(jobs: Sequence[Job]) -> list[list[Job]]:
    """What may write the workspace runs one after another; the rest side by side."""
    writing = [job for job in jobs if job.tool.effect == "workspace"]
    return [*([writing] if writing else []), *([job] for job in jobs if job.tool.effect != "workspace")]


def _outcome(job: Job, done: Done, actor: str) -> tuple[list[Draft], dict[Digest, bytes]]:
    if done.failure is None:
        try:
            parts, blobs = pack(contents(done.value), "result")
        except Exception as error:  # it may be anything, and do anything when it is looked at
            return [_unfit(job, done, actor, error)], {}
        body = k.ToolReturned(parts, delta=done.delta, attempt=job.attempt, duration_us=done.duration_us)
        return [Draft(body, Act(actor, "tool", call=job.call))], blobs
    return [_failed(job, done, done.failure, actor)], {}


def _unfit(job: Job, done: Done, actor: str, error: Exception) -> Draft:
    """It ran, and no log can hold what it returned."""
    failure = Failure("BadResult", f"it ran, but what it returned cannot be recorded: {text_of_error(error)}")
    return _failed(job, done._replace(delta=None), failure, actor)


def _failed(job: Job, done: Done, failure: Failure, actor: str) -> Draft:
    body = k.ToolFailed(failure, delta=done.delta, attempt=job.attempt, duration_us=done.duration_us)
    return Draft(body, Act(actor, "tool", call=job.call))


def contents(value: Any) -> list[Any]:
    """What a tool returned, as parts of a message: texts, images and files as they are, everything else as data."""
    if value is None:
        return []
    if isinstance(value, (str, Loose, k.Text, k.Image, k.File, k.Data)):
        return [value] if value != "" else [k.Data("")]
    if isinstance(value, (bytes, bytearray)):
        return [Loose(bytes(value), "application/octet-stream", "result")]
    items = cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()
    if any(isinstance(item, (Loose, k.Text, k.Image, k.File)) for item in items):
        return [part for item in items for part in contents(item)]
    return [k.Data(to_json(value))]


def run_tool(job: Job, clock: Any) -> Done:
    """Run a plain function, whatever it does."""
    started, before = clock(), observed_before(job)
    if isinstance(before, Failure):
        return Done(job.number, failure=before, duration_us=clock() - started)
    try:
        value, failure = job.tool.function(**job.arguments), None
    except (Exception, SystemExit) as error:
        value, failure = None, failure_of(error)
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        value, failure = None, Failure("BadResult", "it returned something to be awaited: write it as async def")
    return concluded(job, value, failure, before, started, clock)


class _Nothing:
    """Nothing was observed."""


def observed_before(job: Job) -> Any:
    """What is observed before the call; a failure if that cannot be had: then the tool is not run, since its delta could not be told."""
    if job.tool.observe is None:
        return _Nothing
    try:
        return job.tool.observed(job.arguments)
    except Exception as error:
        failed = failure_of(error)
        return Failure(failed.kind, f"not run: what is to be observed cannot be: {failed.message}", failed.traceback)


def concluded(job: Job, value: Any, failure: Failure | None, before: Any, started: int, clock: Any) -> Done:
    duration_us, delta = clock() - started, None
    if before is not _Nothing:
        try:
            after = job.tool.observed(job.arguments)
            delta = _recordable({"before": before, "after": after, "changed": difference(before, after)})
        except Exception as error:
            delta = {"unobserved": text_of_error(error)}
    return Done(job.number, value, failure, duration_us, delta)


def _recordable(delta: Json) -> Json:
    """An observation that cannot be recorded says so; it is not the tool's fault."""
    try:
        if len(VOCABULARY.encode(k.ScratchSet("delta", delta))) > DELTA_MAX:
            return {"unobserved": "it is too large to be recorded"}
    except InvalidInput as error:
        return {"unobserved": _line(str(error))}
    return delta


def failure_of(error: BaseException) -> Failure:
    """An error as a value, fit for the log whatever is in it."""
    return Failure(_line(type(error).__name__, 200), text_of_error(error), _traceback(error))


def text_of_error(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = "(it cannot be told in words)"
    return _line(text) or type(error).__name__


def misfit(reply: Reply) -> str | None:
    """Why a reply cannot be taken; None: it can. Models of the program's own may answer with anything."""
    parts: Any = reply.parts
    calls: Any = reply.calls
    if not isinstance(parts, tuple) or not all(
        isinstance(part, (k.Text, k.Reasoning, k.Image, k.File, k.Data)) for part in cast("Any", parts)
    ):
        return "its parts are not a tuple of parts"
    if not isinstance(calls, tuple) or not all(isinstance(call, ToolCall) for call in cast("Any", calls)):
        return "its calls are not a tuple of ToolCalls"
    if not all(isinstance(text, str) for call in reply.calls for text in (call.tool, call.reason, call.ref)):  # pyright: ignore[reportUnnecessaryIsInstance]
        return "the name of a tool is not a text"
    counts = [getattr(reply.usage, name, None) for name in k.Usage.__struct_fields__]
    if not all(isinstance(count, int) and 0 <= count < 2**53 for count in counts):
        return "its usage is not a number of tokens"
    texts: list[Any] = [reply.stop, reply.model]
    return None if all(isinstance(text, str) for text in texts) else "its stop or model is not a text"


def _line(text: Any, limit: int = MESSAGE_MAX) -> str:
    """A text from wherever, bounded and such that UTF-8 can hold it."""
    told = _clean(text if isinstance(text, str) else repr(text))
    return told if len(told) <= limit else f"{told[:limit]}… ({len(told):,} characters)"


def _traceback(error: BaseException) -> str:
    try:
        text = _clean("".join(traceback.format_exception(error)))
    except Exception:
        return ""
    return text if len(text) <= TRACEBACK_MAX else f"{text[: TRACEBACK_MAX // 4]}\n…\n{text[-TRACEBACK_MAX * 3 // 4 :]}"


def _clean(text: str) -> str:
    """What UTF-8 cannot hold is told as such: an error must reach the log whatever is in it."""
    return text.encode("utf-8", "backslashreplace").decode()
