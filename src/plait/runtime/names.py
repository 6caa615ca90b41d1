"""Names that follow from where a thing is: of calls, of classes, of principals."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

from plait.ids import LogId, digest


def call_id(run: str | None, log: LogId, seq: int, *more: str | int) -> str:
    """Return the id of a call: it follows from where the call begins, and suits every provider."""
    text = "/".join(map(str, (run or "", log, seq, *more)))
    return f"c{digest(b'plait/call/1', text.encode())[:23]}"


def import_path(cls: type) -> str:
    """Return where a class is found, as module:Class; a file that was loaded goes by its name."""
    return f"{cls.__module__.partition('@')[0]}:{cls.__qualname__}"


@lru_cache(1024)  # the same few paths, at every call
def principal_of(path: str) -> str:
    """Return a call path as part of a principal: without spaces, and not too long."""
    safe = "/-_.~+:@#=[]()<>"
    text = quote(path, safe=safe, encoding="utf-8", errors="backslashreplace") or "workflow"
    if len(text) <= 200:
        return text
    return f"{text[:160]}~{digest(b'plait/path/1', text.encode())[:16]}"
