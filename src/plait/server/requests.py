"""Requests read into structs: parameters of path and query, and JSON bodies of a limited size."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request

from plait.errors import InvalidValue, TooLarge
from plait.event import parse
from plait.server.params import Params
from plait.server.refusals import refusal

BODY_MAX = 4_000_000  # bytes


def read_params(kind: type[Params], request: Request) -> Params:
    """Return the parameters of a path and a query."""
    given: dict[str, Any] = {**dict(request.query_params.multi_items()), **request.path_params}
    return _convert(given, kind, "parameters", strict=False)


async def read_body(kind: type[Params], request: Request) -> Params:
    """Return the body of a request. Only JSON is taken: no form of another page can send that."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise refusal(415, "NotJson", f"the body is {media[:80]!r}", "send application/json")
    said = request.headers.get("content-length", "")
    if said.isascii() and said.isdecimal() and int(said[:20]) > BODY_MAX:  # it is not waited for
        raise TooLarge("the body of the request", int(said[:20]), BODY_MAX)
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_MAX:
            raise TooLarge("the body of the request", len(data), BODY_MAX)
    return _convert(parse(bytes(data)), kind, "body", strict=True)


def _convert(given: Any, kind: type[Params], where: str, *, strict: bool) -> Any:
    try:
        return msgspec.convert(given, kind, strict=strict)
    except msgspec.ValidationError as error:
        names = ", ".join(kind.__struct_encode_fields__) or "nothing"
        raise InvalidValue(where, str(error), f"pass {names}") from error
