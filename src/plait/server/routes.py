"""The table of routes, from which the application, the OpenAPI document and types are made.

A route whose path begins like another's stands before it: names of sessions may have slashes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait.outline.shapes import (
    BlameShape,
    ComparisonShape,
    FamilyShape,
    FilesDiff,
    FileShape,
    FolderShape,
    OutlineShape,
    StepDetail,
    StepPage,
    SummaryPage,
    TrackShape,
)
from plait.server import (
    acting,
    asking,
    costing,
    live_shapes,
    looking,
    outlining,
    params,
    reading,
    recalling,
    running,
    shapes,
    tracing,
)
from plait.server.params import Params
from plait.server.route import Route

Do = Callable[..., Any]


def _act(verb: str, do: Do, body: type[Params]) -> Route:
    return Route(
        name=verb,
        method="POST",
        path=f"/api/sessions/{{session}}/acts/{verb}",
        do=do,
        answer=shapes.ActShape,
        params=params.SessionParams,
        body=body,
        is_act=True,
    )


def _of_session(
    name: str, do: Do, answer: Any, given: type[Params] = params.SessionParams
) -> Route:
    path = f"/api/sessions/{{session}}/{name}"
    return Route(name=name, method="GET", path=path, do=do, answer=answer, params=given)


STORE: tuple[Route, ...] = (
    Route(
        name="store",
        method="GET",
        path="/api/store",
        do=reading.read_store,
        answer=shapes.StoreShape,
    ),
    Route(
        name="sessions",
        method="GET",
        path="/api/sessions",
        do=outlining.list_sessions,
        answer=SummaryPage,
        params=params.SessionsParams,
    ),
    Route(
        name="search",
        method="GET",
        path="/api/search",
        do=reading.search_said,
        answer=shapes.SearchPage,
        params=params.SearchParams,
    ),
    Route(
        name="inbox",
        method="GET",
        path="/api/inbox",
        do=asking.read_inbox,
        answer=shapes.InboxPage,
        params=params.InboxParams,
    ),
    Route(
        name="costs",
        method="GET",
        path="/api/costs",
        do=costing.read_costs,
        answer=shapes.CostsShape,
        params=params.CostsParams,
    ),
)

FILES: tuple[Route, ...] = (
    Route(
        name="folder",
        method="GET",
        path="/api/trees/{tree}",
        do=looking.read_folder,
        answer=FolderShape,
        params=params.FolderParams,
        is_forever=True,
    ),
    Route(
        name="file",
        method="GET",
        path="/api/trees/{tree}/file",
        do=looking.read_file,
        answer=FileShape,
        params=params.FileParams,
        is_forever=True,
    ),
    Route(
        name="diff",
        method="GET",
        path="/api/trees/{left}/diff/{right}",
        do=looking.read_diff,
        answer=FilesDiff,
        params=params.DiffParams,
        is_forever=True,
    ),
    Route(
        name="blob",
        method="GET",
        path="/api/blobs/{digest}",
        do=looking.read_blob,
        answer=None,
        params=params.BlobParams,
        is_forever=True,
    ),
)

LOGS: tuple[Route, ...] = (
    Route(
        name="outline",
        method="GET",
        path="/api/logs/{log}/outline",
        do=outlining.read_outline,
        answer=OutlineShape,
        params=params.OutlineParams,
    ),
    Route(
        name="outlines",
        method="GET",
        path="/api/outlines",
        do=outlining.read_outlines,
        answer=shapes.OutlineList,
        params=params.OutlinesParams,
    ),
    Route(
        name="steps",
        method="GET",
        path="/api/logs/{log}/steps",
        do=outlining.read_steps,
        answer=StepPage,
        params=params.StepsParams,
    ),
    Route(
        name="step",
        method="GET",
        path="/api/logs/{log}/steps/{seq}",
        do=outlining.read_step,
        answer=StepDetail,
        params=params.StepParams,
    ),
    Route(
        name="track",
        method="GET",
        path="/api/logs/{log}/track",
        do=outlining.read_track,
        answer=TrackShape,
        params=params.TrackParams,
    ),
    Route(
        name="events",
        method="GET",
        path="/api/logs/{log}/events",
        do=reading.read_events,
        answer=shapes.EventPage,
        params=params.EventsParams,
    ),
)

SESSIONS: tuple[Route, ...] = (
    Route(
        name="compare",
        method="GET",
        path="/api/sessions/{left}/compare/{right}",
        do=outlining.read_comparison,
        answer=ComparisonShape,
        params=params.CompareParams,
    ),
    _of_session("family", outlining.read_family, FamilyShape),
    _of_session("blame", looking.read_blame, BlameShape, params.BlameParams),
    _of_session("prompt", tracing.read_prompt, shapes.PromptShape),
    _of_session("why", tracing.read_why, shapes.TraceShape, params.AboutParams),
    _of_session("influence", tracing.read_influence, shapes.TraceShape, params.AboutParams),
    _of_session("flame", costing.read_flame, shapes.FlameShape),
    _of_session("memory", recalling.read_memory, shapes.MemoryPage),
    _of_session("verify", reading.verify_session, shapes.VerifyShape),
    Route(
        name="session",
        method="GET",
        path="/api/sessions/{session}",
        do=reading.read_session,
        answer=shapes.SessionShape,
        params=params.SessionParams,
    ),
)

ACTS: tuple[Route, ...] = (
    _act("send", acting.send_message, params.SayBody),
    _act("say", acting.say_message, params.SayBody),
    _act("signal", acting.send_signal, params.SignalBody),
    _act("note", acting.add_note, params.NoteBody),
    _act("approve", acting.approve_ask, params.ApproveBody),
    _act("deny", acting.deny_ask, params.DenyBody),
    _act("answer", acting.answer_ask, params.AnswerBody),
    _act("resolve", acting.resolve_ask, params.ResolveBody),
    _act("pause", acting.pause_session, params.ReasonBody),
    _act("unpause", acting.unpause_session, params.ReasonBody),
    _act("cancel", acting.cancel_run, params.ReasonBody),
    _act("close", acting.close_session, params.ReasonBody),
    _act("validate", acting.add_verdict, params.ValidateBody),
    _act("fork", acting.fork_session, params.ForkBody),
    _act("rewind", acting.rewind_session, params.RewindBody),
    _act("merge", acting.merge_sessions, params.MergeBody),
)

RUNS: tuple[Route, ...] = (
    Route(
        name="runs",
        method="GET",
        path="/api/runs",
        do=running.list_runs,
        answer=live_shapes.RunList,
    ),
    Route(
        name="start_run",
        method="POST",
        path="/api/runs",
        do=running.start_run,
        answer=live_shapes.RunShape,
        body=params.NewRun,
        is_act=True,
    ),
    Route(
        name="stop_run",
        method="POST",
        path="/api/runs/{run}/stop",
        do=running.stop_run,
        answer=live_shapes.RunShape,
        params=params.RunParams,
        body=params.StopRun,
        is_act=True,
    ),
)

ROUTES: tuple[Route, ...] = (*STORE, *FILES, *LOGS, *SESSIONS, *ACTS, *RUNS)
