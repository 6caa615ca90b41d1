"""One route: its method, its path, its parameters, its answer, and the function that answers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from plait.outline.shapes import Shape
from plait.server.params import Params


class Blob(msgspec.Struct, frozen=True):
    """An answer that is bytes of the store."""

    content: bytes
    media_type: str
    name: str
    is_image: bool  # by its bytes, whatever its name is


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One route of the server."""

    name: str
    method: Literal["GET", "POST"]
    path: str  # with `{names}` of parameters
    do: Callable[..., Any]  # given the desk, then the parameters and the body, if it has them
    answer: type[Shape] | None  # None: bytes
    params: type[Params] | None = None  # of path and query; None: it takes none
    body: type[Params] | None = None
    is_act: bool = False  # it writes or starts something: refused by a server that only reads
    is_forever: bool = False  # named by a digest: its answer never changes

    @property
    def summary(self) -> str:
        return " ".join((self.do.__doc__ or "").split("\n\n")[0].split())
