"""Workflows as tools: a call of one is carried out by the workflow, in a branch of the session.

The branch is forked where the call was requested, inside the same run: the workflow is called there
as any other, below the caller, bound by the caller's policies and budget. Its steps are steps of
the run, so a resume goes on in the branch where it stood. The caller gets the answer as the result
of the call, and takes of the branch what the tool says: nothing more, its facts, its files, or all
of it, as a merge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol, get_args

import msgspec

from plait.calls.tool_call import STOPPED, ToolCallState
from plait.errors import (
    BadTool,
    BudgetExceeded,
    DelegationRefused,
    PlaitError,
    ResultInvalid,
    StaleHead,
)
from plait.event import Event, Json
from plait.event import kinds as k
from plait.event.kinds import EffectClass, Failure
from plait.ids import Digest
from plait.inside import Stop
from plait.runtime.appends import append_events, append_to_call
from plait.runtime.end import failure_causes
from plait.runtime.failures import failure_of
from plait.runtime.invoke import Invocation, invoke
from plait.runtime.names import import_path
from plait.runtime.registry import run_of
from plait.runtime.stack import Frame
from plait.runtime.waits import Done, ToolJob
from plait.session import Session
from plait.session.about import last_message
from plait.session.content import contents, pack, value_of
from plait.session.merging import MergePlan, merged_facts, merged_files, plan_merge
from plait.session.ports import Act, Draft, store_at, writer_of
from plait.session.typed import name_of, schema_of, to_type
from plait.session.value import next_value, position_of, value_at_seq
from plait.tool import Tool
from plait.workspace import EMPTY
from plait.workspace.tree import TreeReader, differing_paths

Takes = Literal["answer", "facts", "files", "all"]
REQUEST = "request"
# Workflows that call each other as tools: the first one that is refused stands this deep.
DEPTH_MAX = 8
_EFFECTS: Mapping[Takes, EffectClass] = {
    "answer": "pure",
    "facts": "pure",
    "files": "workspace",
    "all": "workspace",
}
_SAID_NOTHING = "(it ended without a word)"


class CallableWorkflow(Protocol):
    """A workflow, as a tool calls it."""

    name: str | None

    def invocation(self, session: Session, *, name: str | None = None) -> Invocation: ...
    def describe(self) -> str: ...


class WorkflowTool(Tool[..., Any]):
    """A tool whose calls are carried out by a workflow, each in a branch of its own."""

    def __init__(
        self,
        workflow: CallableWorkflow,
        *,
        name: str | None,
        description: str | None,
        returns: Any,
        takes: Takes,
        arguments: Any,
    ) -> None:
        called = name or workflow.name
        if not called:
            kind = type(workflow).__name__
            step = f'give it a name: {kind}(…, name="researcher"), or as_tool(name="researcher")'
            raise BadTool(kind, "it has no name", step)
        if takes not in _EFFECTS:
            step = f"use one of {', '.join(get_args(Takes))}"
            raise BadTool(called, f"takes={takes!r} is not a part of a branch", step)
        about = description or workflow.describe()
        if not about:
            raise BadTool(called, "a model cannot know what it is for", "pass description=")
        self.workflow, self.takes_of_branch = workflow, takes
        super().__init__(
            _refuse_direct_call,
            name=called,
            description=about,
            schema=_schema_of_arguments(called, arguments),
            effect=_EFFECTS[takes],
            convert=_converter_of(arguments),
        )
        if returns is not None:
            self.returns = returns

    def fingerprint_parts(self) -> tuple[object, ...]:
        """Return what consent to a call is for: the calls that the workflow makes are judged by
        themselves.
        """
        told = (self.name, self.description, self.schema, self.takes_of_branch)
        return (*told, import_path(type(self.workflow)), repr(self.workflow))


def _refuse_direct_call(**arguments: Any) -> Any:
    raise NotImplementedError("a workflow carries this out: hand it to an agent, as in tools=[…]")


def _schema_of_arguments(name: str, arguments: Any) -> Mapping[str, Json]:
    if arguments is None:
        about = "the task in words, with all that is needed to do it"
        return {
            "type": "object",
            "properties": {REQUEST: {"type": "string", "description": about}},
            "required": [REQUEST],
            "additionalProperties": False,
        }
    try:
        schema = schema_of(arguments)
    except (TypeError, NotImplementedError) as error:
        why = str(error).partition("\n")[0]
        raise BadTool(name, why, "pass arguments= a struct that JSON can carry") from error
    if schema.get("type") != "object" or "properties" not in schema:
        why = f"{name_of(arguments)} has no named fields"
        raise BadTool(name, why, "pass arguments= a struct, a dataclass or a model")
    schema.pop("title", None)
    return schema


class _TaskInWords(msgspec.Struct, forbid_unknown_fields=True):
    request: str


def _converter_of(arguments: Any) -> Callable[[Mapping[str, Json]], dict[str, Any]]:
    wanted = _TaskInWords if arguments is None else arguments

    def convert(given: Mapping[str, Json]) -> dict[str, Any]:
        to_type(given, wanted)
        return dict(given)

    return convert


# ── carrying out a call ──────────────────────────────────────────────────────────────────────


class BranchEnd(NamedTuple):
    """The end of the branch of a call: a value there, an error, or a stop."""

    session: Session | None = None  # as the workflow returned it. None: it returned nothing
    value: Any = None
    error: Exception | None = None
    stop: Stop | None = None  # it is parked, stopped or halted: the call has no outcome here


def branch_job(
    session: Session, call: ToolCallState, act: Act, check: Callable[[], object]
) -> ToolJob:
    """Return the job that carries out a call: its branch is forked, or found on record."""
    tool = call.tool
    assert isinstance(tool, WorkflowTool)
    branch = _branch_of(session, call, act)

    def act_in_branch() -> BranchEnd:
        try:
            return _call_in_branch(tool, branch, call, act)
        except Exception as error:
            return BranchEnd(error=error)
        except Stop as stop:
            return BranchEnd(stop=stop)

    acting = tool.with_function(act_in_branch)
    return ToolJob(call.number, acting, {}, call.id, call.given, call.attempt, check=check)


def _branch_of(session: Session, call: ToolCallState, act: Act) -> Session:
    """Fork the branch of a call, from its first request on: requested again, it goes on there."""
    at = value_at_seq(session, call.first.seq)
    is_edited = call.given != getattr(call.first.body, "arguments", None)
    label = f"{call.tool.name}-edited" if is_edited else call.tool.name
    here = position_of(at)
    forked = k.ForkedFrom(here.id, here.seq, label)
    begun = writer_of(here.run).begin(
        here.store,
        [Draft(forked, act._replace(origin="program", causes=(call.first.id,)))],
        fork=k.Place(here.id, here.seq, here.head),
        run=here.run,
    )
    return next_value(at, begun)


def _call_in_branch(
    tool: WorkflowTool, branch: Session, call: ToolCallState, act: Act
) -> BranchEnd:
    run = run_of(branch)
    depth = _depth_of(run.stack.frames(branch.id)) if run is not None else 0
    if depth >= DEPTH_MAX:
        raise DelegationRefused(tool.name, depth)
    given = call.given
    words = given[REQUEST] if isinstance(given, dict) and set(given) == {REQUEST} else given
    parts, blobs = pack(contents(words), REQUEST)
    said = Draft(k.MessageSaid("user", parts), act._replace(call=None, causes=(call.first.id,)))
    asked, _ = append_events(branch, [said], blobs)
    invocation = tool.workflow.invocation(asked, name=tool.name)
    ended = invoke(msgspec.structs.replace(invocation, how="tool"))
    return BranchEnd(ended, _answer_of(tool, asked, ended))


def _depth_of(frames: tuple[Frame, ...]) -> int:
    return sum(frame.how == "tool" for frame in frames)


def _answer_of(tool: WorkflowTool, asked: Session, ended: Session) -> Any:
    """Return the last word of the workflow: data if it is data, else its text."""
    text, message = ended.text, last_message(ended)
    if message is None or message.event.id == asked.head:
        return _SAID_NOTHING
    if not any(isinstance(part, k.Data) for part in message.parts):
        return text
    value = value_of(message.parts)
    why = tool.result_misfit(value)
    if why is not None:
        raise ResultInvalid(tool.name, name_of(tool.returns), why, ended)
    return value


# ── the outcome ──────────────────────────────────────────────────────────────────────────────


def record_branch_end(
    session: Session, call: ToolCallState, done: Done, end: BranchEnd, actor: str
) -> Session:
    """Record the outcome of a call, with what the caller takes of the branch."""
    act = Act(actor, call.tool.taints, call=call.id)
    if end.session is None:
        return append_to_call(session, call, [_failed_draft(call, done, end, act)])
    for _ in range(100):  # each time around another writer was first
        try:
            return _take_branch(session, call, done, end, act)
        except StaleHead:
            session = session.reload()
        except PlaitError as error:  # a conflict: nothing of the branch is taken
            end = BranchEnd(error=error)
            return append_to_call(session, call, [_failed_draft(call, done, end, act)])
    return _take_branch(session, call, done, end, act)


def record_stop(session: Session, call: ToolCallState, actor: str) -> Session:
    """Record that a call was stopped: if its run is resumed, it goes on in its branch."""
    failed = k.ToolFailed(Failure(STOPPED, "it was stopped before it came to its end"))
    return append_to_call(session, call, [Draft(failed, Act(actor, "program", call=call.id))])


def _failed_draft(call: ToolCallState, done: Done, end: BranchEnd, act: Act) -> Draft:
    assert end.error is not None
    failure = failure_of(end.error)
    if isinstance(end.error, BudgetExceeded) and end.error.why:
        # a model reads it, for which the next steps of a program are tokens without use
        told = f"the budget does not allow it: {end.error.why}"
        failure = msgspec.structs.replace(failure, message=told)
    failed = k.ToolFailed(failure, attempt=call.attempt, duration_us=done.duration_us)
    return Draft(failed, act._replace(causes=failure_causes(end.error)))


def _take_branch(
    session: Session, call: ToolCallState, done: Done, end: BranchEnd, act: Act
) -> Session:
    """Append the outcome, after what the caller takes, in one transaction."""
    branch, tool = end.session, call.tool
    assert branch is not None and isinstance(tool, WorkflowTool)
    takes, drafts, heads, trees = tool.takes_of_branch, list[Draft](), (), None
    parts, blobs = pack(contents(end.value), "result")
    blobs = {**blobs}
    if takes == "all":
        session, plan = plan_merge(session, (branch,))
        drafts = _merge_drafts(plan, act) if plan is not None else []
        heads = plan.heads if plan is not None else ()
        blobs |= (plan.blobs if plan is not None else None) or {}
    elif takes == "facts":
        drafts = _fact_drafts(session, branch, act)
    elif takes == "files":
        trees, more = _tree_change(session, branch)
        blobs |= more
    body = k.ToolReturned(parts, trees=trees, attempt=call.attempt, duration_us=done.duration_us)
    drafts.append(Draft(body, act._replace(causes=(branch.head,))))
    session, events = append_events(session, drafts, blobs, merges=heads)
    call.feed(events)
    return session


def _merge_drafts(plan: MergePlan, act: Act) -> list[Draft]:
    decisions = [draft._replace(act=draft.act._replace(call=act.call)) for draft in plan.decisions]
    return [Draft(plan.body, act._replace(origin="program")), *decisions]


def _fact_drafts(session: Session, branch: Session, act: Act) -> list[Draft]:
    """Return the facts of a branch as they are recorded here: each because of the one there."""
    store, drafts = store_at(session.store), list[Draft]()
    for fact in merged_facts(session, branch):
        source: Event = store.event(fact.at.id)
        said = source.body
        reason = str(getattr(said, "reason", ""))
        because = act._replace(origin=source.header.origin, causes=(source.id,))
        if fact.json is None:
            drafts.append(Draft(k.FactRetracted(fact.key, reason), because))
        else:
            body = k.FactRecorded(fact.key, fact.value, fact.kind, fact.review_by, reason)
            drafts.append(Draft(body, because))
    return drafts


class _NewBlobs(NamedTuple):
    """The blobs of a store, and new ones that are not in it yet."""

    store: Any
    new: Mapping[Digest, bytes]

    def get_blob(self, digest: Digest) -> bytes:
        found = self.new.get(digest)
        return found if found is not None else self.store.get_blob(digest)


def _tree_change(
    session: Session, branch: Session
) -> tuple[k.Trees | None, Mapping[Digest, bytes]]:
    """Return the change of the session's files by those of a branch. None: there is none."""
    after, blobs = merged_files(session, branch)
    before = session.files.tree or EMPTY
    if after is None or after == before:
        return None, {}
    reader = TreeReader(_NewBlobs(store_at(session.store), blobs))
    paths = tuple([change.path for change in differing_paths(reader, before, after)])
    return k.Trees(before, after, paths), blobs
