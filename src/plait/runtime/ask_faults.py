"""Faults of models, as they are recorded."""

from __future__ import annotations

from plait import secrets
from plait.model.base import Fault
from plait.runtime.failures import bounded_text, traceback_of

PARTIAL_MAX = 100_000  # characters of an answer that broke off


def without_secrets_of(fault: Fault) -> Fault:
    """Return a fault as it is recorded."""
    if not secrets.is_armed():
        return fault
    kind, message, partial = [
        secrets.hide_shown_text(bounded_text(text, PARTIAL_MAX))
        for text in (fault.kind, fault.message, fault.partial)
    ]
    hidden = Fault(kind, message, partial=partial, usage=fault.usage, price=fault.price)
    hidden.retryable, hidden.retry_after_s = fault.retryable, fault.retry_after_s
    hidden.__cause__ = fault.__cause__
    return hidden


def fault_traceback(fault: Fault) -> str:
    """Return the traceback of an error of the program's own model; "" for a provider's fault."""
    cause = fault.__cause__
    is_own = cause is not None and fault.kind == type(cause).__name__
    return traceback_of(cause) if cause is not None and is_own else ""
