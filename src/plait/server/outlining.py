"""Answers for people's eyes: families with their lanes, outlines, and steps."""

from __future__ import annotations

from plait.errors import InvalidInput, InvalidValue, StoreCorrupt
from plait.outline.comparing import comparison_shape
from plait.outline.details import step_detail
from plait.outline.family import family_shape
from plait.outline.filters import parse_filter
from plait.outline.shapes import (
    ComparisonShape,
    FamilyShape,
    OutlineShape,
    StepDetail,
    StepPage,
    SummaryPage,
    TrackShape,
)
from plait.outline.steps import outline_shape, step_page
from plait.outline.track import track_shape
from plait.secrets import hide_shown_text
from plait.server.desk import ServerDesk
from plait.server.params import (
    CompareParams,
    OutlineParams,
    OutlinesParams,
    SessionParams,
    SessionsParams,
    StepParams,
    StepsParams,
    TrackParams,
)
from plait.server.refusals import INVALID, refusal
from plait.server.shapes import OutlineList

LOGS_MAX = 200  # outlines in one answer


def list_sessions(desk: ServerDesk, params: SessionsParams) -> SummaryPage:
    """Return a page of sessions, by their last activity, chosen by a filter."""
    wanted, before = parse_filter(params.q), params.before or None
    return desk.summaries.page(wanted, before=before, limit=params.limit)


def read_comparison(desk: ServerDesk, params: CompareParams) -> ComparisonShape:
    """Compare two sessions, each at its place."""
    left, right = desk.open(params.left), desk.open(params.right)
    try:
        return comparison_shape(desk.outlines, left, right)
    except (StoreCorrupt, InvalidInput) as error:  # what is on record cannot be read
        raise refusal(
            INVALID,
            "DamagedSession",
            f"{left.short} and {right.short} cannot be compared, since events of them are damaged"
            f" ({hide_shown_text(error.record_text).rstrip('.')})",
            f"`plait verify {left.short}` and `plait verify {right.short}` name them",
        ) from error


def read_family(desk: ServerDesk, params: SessionParams) -> FamilyShape:
    """Return all sessions connected with one by forks and merges, as stretches and lanes."""
    return family_shape(desk.outlines, desk.open(params.session).id)


def read_outline(desk: ServerDesk, params: OutlineParams) -> OutlineShape:
    """Return the steps of a log in short."""
    return outline_shape(desk.outlines, desk.log(params.log), params.first)


def read_outlines(desk: ServerDesk, params: OutlinesParams) -> OutlineList:
    """Return the steps of several logs in short."""
    names = [name for name in params.logs.split(",") if name]
    if len(names) > LOGS_MAX:
        raise InvalidValue("logs", f"there are {len(names)}", f"ask for at most {LOGS_MAX}")
    found = [outline_shape(desk.outlines, desk.log(name)) for name in names]
    return OutlineList(tuple(found))


def read_steps(desk: ServerDesk, params: StepsParams) -> StepPage:
    """Return some steps of a log, with their words."""
    return step_page(desk.outlines, desk.log(params.log), params.first, params.count)


def read_track(desk: ServerDesk, params: TrackParams) -> TrackShape:
    """Return the piece of a log's track that holds a place: a state, and its changes."""
    return track_shape(desk.store, desk.log(params.log), params.seq, params.after)


def read_step(desk: ServerDesk, params: StepParams) -> StepDetail:
    """Return the step that holds an event, in full."""
    return step_detail(desk.outlines, desk.log(params.log), params.seq)
