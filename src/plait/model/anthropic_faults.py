"""Errors of the Messages API and its SDK, as kinds of faults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, cast

from plait.model.anthropic_reply import ErrorInReply
from plait.model.base import (
    Fault,
)

if TYPE_CHECKING:
    import anthropic

_KINDS = {  # by status, and by the name that the API gives it: inside a stream there is no status
    "401": "AuthFailed",
    "402": "AuthFailed",
    "403": "AuthFailed",
    "404": "NotFound",
    "408": "Timeout",
    "409": "Conflict",
    "413": "ContextOverflow",
    "429": "RateLimited",
    "529": "Overloaded",
    "authentication_error": "AuthFailed",
    "billing_error": "AuthFailed",
    "permission_error": "AuthFailed",
    "not_found_error": "NotFound",
    "timeout_error": "Timeout",
    "request_too_large": "ContextOverflow",
    "rate_limit_error": "RateLimited",
    "overloaded_error": "Overloaded",
    "invalid_request_error": "BadRequest",
}
_PASSING = {
    "Timeout",
    "Conflict",
    "RateLimited",
    "Overloaded",
    "ServerError",
    "ConnectionLost",
    "StreamCut",
    "MalformedReply",
}
_OVERFLOW = re.compile(
    r"prompt is too long|exceeds? (the )?(model's )?(maximum )?context", re.IGNORECASE
)
_MESSAGE_MAX = 2000
Explained = tuple[str, str, bool, float | None]


def explain(error: Exception, begun: bool) -> Explained:
    """Return the kind, the message, True if it is worth asking again, and the seconds to wait."""
    import anthropic
    import httpx2

    if isinstance(error, anthropic.APIStatusError):
        return _explain_status(error)
    if isinstance(error, ErrorInReply):
        return _explanation(_kind("", error.type, error.message), error.message or error.type)
    if isinstance(error, Fault):
        return _explanation(error.kind, error.message)
    cause = (
        error.__cause__
        if isinstance(error, anthropic.APIConnectionError) and error.__cause__
        else error
    )
    message = f"{type(cause).__name__}: {cause}"
    if isinstance(error, (anthropic.APITimeoutError, httpx2.TimeoutException)):
        return _explanation("Timeout", message)
    if isinstance(error, anthropic.APIConnectionError):
        return _explanation("ConnectionLost", message)
    if isinstance(error, httpx2.TransportError):
        return _explanation("StreamCut" if begun else "ConnectionLost", message)
    # Before an answer began, the SDK refused to send; after that, the answer is not as the API
    # promises.
    return _explanation("MalformedReply" if begun else "BadRequest", message)


def _explanation(kind: str, message: str, wait_s: float | None = None) -> Explained:
    return kind, message[:_MESSAGE_MAX], kind in _PASSING, wait_s


def _explain_status(error: anthropic.APIStatusError) -> Explained:
    headers = cast("Mapping[str, str]", error.response.headers)
    message = str(error.api_message or error.message)
    kind, message, again, wait_s = _explanation(
        _kind(str(error.status_code), str(error.type), message), message, _wait_s(headers)
    )
    advice = headers.get("x-should-retry")
    return kind, message, again if advice is None else advice == "true", wait_s


def _kind(status: str, name: str, message: str) -> str:
    kind = (
        _KINDS.get(status)
        or _KINDS.get(name)
        or ("BadRequest" if status.startswith("4") else "ServerError")
    )
    return "ContextOverflow" if kind == "BadRequest" and _OVERFLOW.search(message) else kind


def _wait_s(headers: Mapping[str, str]) -> float | None:
    """Return Retry-After in seconds.

    A date is read against the server's own clock, not ours, which may be off.
    """
    asked = headers.get("retry-after", "").strip()
    try:
        if milliseconds := headers.get("retry-after-ms"):
            return max(0.0, float(milliseconds) / 1000)
        if re.fullmatch(r"[0-9.]+", asked):
            return float(asked)
        wait = parsedate_to_datetime(asked) - parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, wait.total_seconds())
    except (ValueError, TypeError):
        return None
