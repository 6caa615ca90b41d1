"""Errors as answers: one table from the error tree to HTTP statuses, and the fields of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import msgspec

from plait import errors, secrets
from plait.errors import PlaitError
from plait.event import Json
from plait.server.shapes import ErrorShape
from plait.session import ABSENT

REFUSED, NOT_FOUND, TAKEN, GONE, TOO_LARGE, INVALID, FAILED, AWAY, FULL = (
    403,
    404,
    409,
    410,
    413,
    422,
    500,
    503,
    507,
)

STATUSES: Mapping[type[PlaitError], int] = MappingProxyType(
    {
        PlaitError: FAILED,
        errors.InvalidInput: INVALID,
        errors.TooLarge: TOO_LARGE,
        # These two are about the contents of the store, not about the request.
        errors.UnknownKind: FAILED,
        errors.UnknownVersion: FAILED,
        errors.SessionError: TAKEN,
        errors.UnknownRevision: NOT_FOUND,
        errors.AmbiguousRevision: NOT_FOUND,
        errors.UnknownPlace: NOT_FOUND,
        errors.UnknownKey: NOT_FOUND,
        errors.UnknownAsk: NOT_FOUND,
        errors.WrongAskKind: INVALID,
        errors.NoPrompt: NOT_FOUND,
        errors.AskExpired: GONE,
        errors.MayNotApprove: REFUSED,
        errors.MergeConflict: INVALID,
        errors.NoCommonBase: INVALID,
        errors.NeedsWorkflow: INVALID,
        errors.NotASession: FAILED,
        errors.NoHost: FAILED,
        errors.MemoryFault: INVALID,
        errors.UnknownMemory: NOT_FOUND,
        errors.AmbiguousMemory: NOT_FOUND,
        errors.MayNotDecide: REFUSED,
        errors.StalePlan: TAKEN,
        errors.SetupError: INVALID,
        errors.WorkspaceError: INVALID,
        errors.NotPlaced: NOT_FOUND,
        errors.NoSuchFile: NOT_FOUND,
        errors.SandboxBusy: TAKEN,
        errors.SandboxGone: GONE,
        errors.UnknownLog: NOT_FOUND,
        errors.UnknownEvent: NOT_FOUND,
        errors.UnknownBlob: NOT_FOUND,
        errors.StoreCorrupt: INVALID,  # about its contents as well: what is whole is still answered
        errors.StaleHead: TAKEN,
        errors.StaleEpoch: TAKEN,
        errors.StaleReading: TAKEN,
        errors.StoreDenied: REFUSED,
        errors.StoreReadOnly: REFUSED,
        errors.StoreUnreachable: AWAY,
        errors.StoreBusy: AWAY,
        errors.StoreUnsettled: AWAY,
        errors.EventsLost: AWAY,
        errors.OutcomeUnknown: AWAY,
        errors.StoreClosed: AWAY,
        errors.NoStore: AWAY,
        errors.DiskFull: FULL,
    }
)


class RequestRefusal(Exception):
    """A request that is refused, and the answer for it."""

    def __init__(self, status: int, shape: ErrorShape) -> None:
        super().__init__(shape.message)
        self.status, self.shape = status, shape


def refusal(status: int, name: str, message: str, step: str) -> RequestRefusal:
    """Return the refusal of a request by its form: its host, its token, its size."""
    return RequestRefusal(status, ErrorShape(name, f"{message}; {step}.", step))


def status_of(error: PlaitError) -> int:
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def error_shape(error: PlaitError, near: Sequence[str] = ()) -> ErrorShape:
    """Return the answer for an error: its own sentence, and its attributes as fields."""
    step = getattr(error, "step", "")
    return ErrorShape(
        type(error).__name__,
        secrets.hide_shown_text(error.record_text),
        step if isinstance(step, str) else "",
        tuple(near) or tuple(getattr(error, "candidates", ())),
        _conflict_fields(error) if isinstance(error, errors.MergeConflict) else _fields_of(error),
    )


def _fields_of(error: PlaitError) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for name, value in vars(error).items():
        if name in ("step", "candidates") or name.startswith("_"):
            continue
        if isinstance(value, (bool, int, float, type(None))):
            found[name] = value
        elif isinstance(value, str):
            found[name] = secrets.hide_shown_text(value)
        elif isinstance(value, (tuple, list)):
            items = cast("Sequence[Any]", value)
            found[name] = [secrets.hide_shown_text(str(each)) for each in items]
    return found


def _conflict_fields(error: errors.MergeConflict) -> dict[str, Json]:
    """Return the values of all sides, and the sides on which a key is gone."""
    said: dict[str, Json] = {}
    gone: dict[str, Json] = {}
    for key, sides in error.conflicts.items():
        said[key] = {side: _plain(value) for side, value in sides.items() if value is not ABSENT}
        absent = [side for side, value in sides.items() if value is ABSENT]
        if absent:
            gone[key] = absent
    return {"session": error.session, "conflicts": said, "retracted": gone}


def _plain(value: Any) -> Json:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, msgspec.MsgspecError):
        return str(value)
