"""The calls of a session as spans: a fold over the events of all logs that its bill counts.

A call is inside the innermost open call of its run whose path is the beginning of its own; in the
branch of an agent that is a tool, inside the call of that tool. A call that has not ended is no
span yet, so a span never changes once it is there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from plait.errors import PlaitError
from plait.event import Event
from plait.event import kinds as k
from plait.export.attributes import (
    answer_attributes,
    ask_attributes,
    call_attributes,
    content_attributes,
    model_attributes,
    recall_attributes,
    record_attributes,
    request_attributes,
)
from plait.export.spans import (
    Attributes,
    CallSpan,
    Connection,
    Operation,
    SpanLink,
    SpanSet,
    span_id,
    trace_id,
)
from plait.ids import LogId, Micros
from plait.runtime.names import principal_of
from plait.session.ports import store_at
from plait.session.run_branches import is_of_run, logs_with_branches
from plait.session.session import Session
from plait.store import Store

_INTERRUPTED = "interrupted"  # its process ended, and the next one asked again


def spans_of(session: Session, *, content: bool = False) -> SpanSet:
    """Return the spans of a session and of all that `plait cost` counts for it."""
    store, logs = store_at(session.store), logs_with_branches(session)
    fold = _CallFold(store, content=content)
    for log in _parents_first(store, logs):
        fold.take_log(log, logs[log], [store.log(each).place for each in logs])
    return fold.span_set()


def _parents_first(store: Store, logs: Iterable[LogId]) -> list[LogId]:
    depths = {log: len(store.lineage(log)) for log in logs}
    return sorted(depths, key=lambda log: (depths[log], log))


class _CallDraft:
    """A call that is being read. Its end comes later, or not at all."""

    def __init__(
        self,
        event: Event,
        operation: Operation,
        subject: str,
        parent: _CallDraft | None,
        attributes: Attributes,
    ) -> None:
        self.log, self.seq, self.time = event.log, event.seq, event.time
        self.trace, self.id = trace_id(event.header.run, event.log), span_id(event.id)
        self.operation: Operation = operation
        self.name = f"{operation} {subject}".strip()
        self.parent = parent
        self.attributes: Attributes = {"gen_ai.operation.name": operation, **attributes}
        self.path = ""  # of a workflow or an agent, as principals have it
        self.links: list[tuple[Connection, LogId, int]] = []
        self.end: Micros | None = None
        self.error = self.message = ""

    def finish(self, event: Event, failure: k.Failure | None = None, error: str = "") -> None:
        self.end = event.time
        self.error = failure.kind if failure is not None else error
        self.message = failure.message if failure is not None else ""


class _CallFold:
    """The calls of several logs, read one after the other, parents first."""

    def __init__(self, store: Store, *, content: bool) -> None:
        self._store, self._content = store, content
        self._calls: list[_CallDraft] = []
        self._runs: dict[str, _CallDraft] = {}  # by trace
        self._by_call: dict[
            tuple[LogId, str], _CallDraft
        ] = {}  # asks and requests without an outcome
        self._tools: dict[str, _CallDraft] = {}  # the last request of each call
        # workflows and agents at work at each place that a log is forked from
        self._open_at: dict[tuple[LogId, int], list[_CallDraft]] = {}
        self._open: list[_CallDraft] = []
        self._base: _CallDraft | None = None  # the tool whose call this branch carries out
        self._fork: tuple[LogId, int] | None = None  # not linked yet
        self._owners: dict[LogId, tuple[list[int], list[_CallDraft]]] = {}
        self._conversations: dict[LogId, LogId] = {}

    def take_log(self, log: LogId, upto: int, forked_at: Iterable[int]) -> None:
        """Read the own events of a log up to a place."""
        info, places = self._store.log(log), {*forked_at}
        parent = info.parent
        self._open = [*self._open_at.get((parent, info.place), ())] if parent else []
        self._base, self._fork = None, (parent, info.place) if parent else None
        self._owners[log] = ([], [])
        for event in self._store.read(log, info.place + 1, upto):
            try:
                body = event.body
            except PlaitError:  # erased
                body = None
            owner = self._take(event, body)
            if owner is not None:
                seqs, calls = self._owners[log]
                seqs.append(event.seq)
                calls.append(owner)
            if event.seq in places:
                self._open_at[log, event.seq] = [*self._open]

    def span_set(self) -> SpanSet:
        for call in self._calls:
            run = self._runs.get(call.trace)
            if call.end is None and run is not None and run.end is not None:
                call.end, call.error = run.end, run.error or _INTERRUPTED
        ended = [call for call in self._calls if call.end is not None]
        spans = [self._span(call) for call in ended]
        spans.sort(key=lambda span: (span.start, span.attributes["plait.seq"], span.id))
        return SpanSet(tuple(spans), len(self._calls) - len(ended))

    def _span(self, call: _CallDraft) -> CallSpan:
        assert call.end is not None
        links = self._links(call)
        return CallSpan(
            call.trace,
            call.id,
            call.parent.id if call.parent is not None else None,
            call.operation,
            call.name,
            call.time,
            max(call.end, call.time),
            self._attributes(call, links),
            tuple(links),
            call.error,
            call.message if self._content else "",
        )

    def _links(self, call: _CallDraft) -> list[SpanLink]:
        links = dict[SpanLink, None]()
        for how, log, seq in call.links:
            target = self._owner_at(log, seq)
            if target is not None and target is not call:
                links[SpanLink(how, target.trace, target.id)] = None
        return [*links]

    def _attributes(self, call: _CallDraft, links: list[SpanLink]) -> Attributes:
        found = {**call.attributes}
        if links:  # some receivers keep no links
            found["plait.links"] = tuple([f"{to.connection} {to.span}" for to in links])
        if call.error:
            found["error.type"] = call.error
        return found

    def _owner_at(self, log: LogId, seq: int) -> _CallDraft | None:
        """Return the call that was at work at a place, or the last one before it."""
        at: LogId | None = log
        while at is not None:
            seqs, calls = self._owners.get(at, ([], []))
            found = bisect_right(seqs, seq)
            if found:
                return calls[found - 1]
            info = self._store.log(at)
            at, seq = info.parent, min(seq, info.place)
        return None

    # ── events ───────────────────────────────────────────────────────────────────────────────

    def _take(self, event: Event, body: object) -> _CallDraft | None:
        """Take an event in, and return the call that it belongs to."""
        match body:
            case k.RunStarted() | k.RunBranched():
                return self._begin_run(event, body)
            case k.RunFinished() | k.RunFailed() | k.RunCancelled():
                return self._end_run(event, body)
            case k.RunResumed():
                run = self._runs.get(trace_id(event.header.run, event.log))
                if run is not None and run.log == event.log:
                    run.end = None  # it had failed, and is tried again
                return run
            case k.CallStarted():
                return self._begin_call(event, body)
            case k.CallFinished():
                return self._end_call(event, body)
            case k.ModelAsked() | k.ToolRequested():
                return self._begin_effect(event, body)
            case k.ModelReplied() | k.ModelFailed():
                return self._end_ask(event, body)
            case k.ToolReturned() | k.ToolFailed() | k.ToolResolved():
                return self._end_request(event, body)
            case k.MemoryRecalled() | k.RecallFailed():
                return self._add_recall(event, body)
            case k.ForkedFrom():
                self._base = self._tools.get(event.header.call or "")
            case k.Merged():
                owner = self._parent(event, _path_of(event))
                if owner is not None:
                    for place in body.branches:
                        owner.links.append(("merge", place.log, place.seq))
                return owner
            case _:
                pass
        return self._parent(event, _path_of(event))

    def _begin_run(self, event: Event, body: k.RunStarted | k.RunBranched) -> _CallDraft:
        attributes: Attributes = {"gen_ai.workflow.name": body.workflow}
        run = self._add(event, "invoke_workflow", body.workflow, None, attributes)
        if isinstance(body, k.RunBranched):
            run.links = [("whatif", body.source.log, body.source.seq)]
        self._runs[run.trace] = run
        return run

    def _end_run(
        self, event: Event, body: k.RunFinished | k.RunFailed | k.RunCancelled
    ) -> _CallDraft | None:
        run = self._runs.get(trace_id(event.header.run, event.log))
        if run is None or (isinstance(body, k.RunCancelled) and not body.by):
            return run  # its process let go of it: it is open
        failure = body.failure if isinstance(body, k.RunFailed) else None
        error = "cancelled" if isinstance(body, k.RunCancelled) else ""
        run.finish(event, failure, error)
        return run

    def _begin_call(self, event: Event, body: k.CallStarted) -> _CallDraft:
        path = principal_of(body.path)
        operation: Operation = "invoke_workflow" if body.agent is None else "invoke_agent"
        subject = body.agent or body.workflow
        parent = self._parent(event, path.rpartition("/")[0])
        run = self._runs.get(trace_id(event.header.run, event.log))
        if run is not None and parent is run and run.log == event.log and "/" not in path:
            return self._name_run(run, operation, subject, path, call_attributes(body))
        call = self._add(event, operation, subject, parent, call_attributes(body))
        call.path = path
        self._open.append(call)
        self._by_call[event.log, event.header.call or ""] = call
        return call

    def _name_run(
        self, run: _CallDraft, operation: Operation, subject: str, path: str, attributes: Attributes
    ) -> _CallDraft:
        """Tell a run as its outermost call: both are one span."""
        run.operation, run.name, run.path = operation, f"{operation} {subject}", path
        run.attributes.update({**attributes, "gen_ai.operation.name": operation})
        self._open.append(run)
        return run

    def _end_call(self, event: Event, body: k.CallFinished) -> _CallDraft | None:
        call = self._by_call.pop((event.log, event.header.call or ""), None)
        if call is None:  # the run itself, or of the run that this one branched from
            return self._runs.get(trace_id(event.header.run, event.log))
        call.finish(event, body.failure)
        self._open = [each for each in self._open if each is not call]
        return call

    def _begin_effect(self, event: Event, body: k.ModelAsked | k.ToolRequested) -> _CallDraft:
        key = event.header.call or ""
        earlier = self._by_call.get((event.log, key))
        if earlier is not None:
            earlier.finish(event, error=_INTERRUPTED)
        parent = self._parent(event, _path_of(event))
        if isinstance(body, k.ModelAsked):
            attributes = ask_attributes(body)
            model = str(attributes["gen_ai.request.model"])
            call = self._add(event, "chat", model, parent, attributes)
        else:
            attributes = request_attributes(body, key)
            call = self._add(event, "execute_tool", body.tool, parent, attributes)
            self._tools[key] = call
        self._tell_content(call, body)
        self._by_call[event.log, key] = call
        return call

    def _end_ask(self, event: Event, body: k.ModelReplied | k.ModelFailed) -> _CallDraft:
        call = self._by_call.pop((event.log, event.header.call or ""), None)
        if call is None:  # the reply of a what-if: nobody asked for it here
            model = body.model if isinstance(body, k.ModelReplied) else ""
            parent = self._parent(event, _path_of(event))
            call = self._add(event, "chat", model, parent, model_attributes(model))
        call.attributes.update(answer_attributes(body))
        self._tell_content(call, body)
        call.finish(event, body.failure if isinstance(body, k.ModelFailed) else None)
        return call

    def _end_request(
        self, event: Event, body: k.ToolReturned | k.ToolFailed | k.ToolResolved
    ) -> _CallDraft | None:
        call = self._by_call.pop((event.log, event.header.call or ""), None)
        if call is None:
            return self._parent(event, _path_of(event))
        self._tell_content(call, body)
        if isinstance(body, k.ToolResolved):
            happened = body.verdict == "happened"
            call.finish(event, error="" if happened else body.verdict)
            return call
        call.finish(event, body.failure if isinstance(body, k.ToolFailed) else None)
        if body.exit_code is not None:
            call.attributes["plait.exit_code"] = body.exit_code
        return call

    def _add_recall(self, event: Event, body: k.MemoryRecalled | k.RecallFailed) -> _CallDraft:
        parent = self._parent(event, _path_of(event))
        attributes = recall_attributes(body)
        subject = str(attributes["gen_ai.data_source.id"])
        call = self._add(event, "retrieval", subject, parent, attributes)
        self._tell_content(call, body)
        call.finish(event, body.failure if isinstance(body, k.RecallFailed) else None)
        return call

    # ── where a call belongs ─────────────────────────────────────────────────────────────────

    def _add(
        self,
        event: Event,
        operation: Operation,
        subject: str,
        parent: _CallDraft | None,
        attributes: Attributes,
    ) -> _CallDraft:
        of_record = record_attributes(event, self._conversation(event.log))
        call = _CallDraft(event, operation, subject, parent, {**of_record, **attributes})
        if self._fork is not None:
            # a run that branched links its source by another name
            if not isinstance(event.body, k.RunBranched):
                call.links.append(("fork", *self._fork))
            self._fork = None
        self._calls.append(call)
        return call

    def _parent(self, event: Event, path: str) -> _CallDraft | None:
        """Return the innermost open call of the same run at the beginning of a path."""
        trace = trace_id(event.header.run, event.log)
        _, _, tool = (event.header.run or "").partition("/")
        if tool and tool in self._tools:  # code of a tool wrote it
            return self._tools[tool]
        for call in reversed(self._open):
            if call.trace != trace:
                continue
            if self._base is not None and call.log != event.log:
                break
            if path == call.path or path.startswith(f"{call.path}/"):
                return call
        if self._base is not None and self._base.trace == trace:
            return self._base
        return self._runs.get(trace)

    def _conversation(self, log: LogId) -> LogId:
        """Return the session that a log belongs to: a branch of a run belongs to the run's."""
        if log not in self._conversations:
            parent = self._store.log(log).parent
            is_branch = parent is not None and is_of_run(self._store, log)
            of = self._conversation(parent) if is_branch and parent is not None else log
            self._conversations[log] = of
        return self._conversations[log]

    def _tell_content(self, call: _CallDraft, body: object) -> None:
        if self._content:
            call.attributes.update(content_attributes(body, self._store))


def _path_of(event: Event) -> str:
    return event.actor.partition(":")[2]
