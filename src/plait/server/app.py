"""The application: the table of routes behind a guard.

`make_app(store, guard, runner)` is all of it. Another guard, another runner and further routes make
another server of the same parts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.routing import Route as WebRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plait import secrets
from plait.errors import PlaitError, StoreCorrupt
from plait.outline.shapes import Shape
from plait.server.desk import ServerDesk
from plait.server.feed import Feed
from plait.server.guard import RequestGuard
from plait.server.openapi import openapi_document
from plait.server.page import Page
from plait.server.params import FeedParams, HelloBody
from plait.server.refusals import TAKEN, RequestRefusal, error_shape, refusal, status_of
from plait.server.requests import read_body, read_params
from plait.server.route import Blob, Route
from plait.server.routes import ROUTES
from plait.server.runner import ProcessRunner, Runner
from plait.server.shapes import ErrorShape, HelloShape
from plait.server.stream import EventStream, WaitingCount
from plait.server.threads import in_thread, limit_threads
from plait.session.ports import writer_of
from plait.store import Store

FOREVER = "private, max-age=31536000, immutable"
HEADERS: Mapping[str, str] = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}
Answer = Callable[[Request], Awaitable[ASGIApp]]


def make_app(
    store: Store,
    guard: RequestGuard,
    runner: Runner | None = None,
    *,
    actor: str | None = None,
    routes: Sequence[Route] = ROUTES,
    page: Path | None = None,
) -> ASGIApp:
    """Return the application of a store. Without a runner no runs are started; `actor` is who acts,
    else the principal of this process; `page` is the folder of the built page, if it is another.
    """
    feed = Feed(store)
    who = actor or writer_of(None).principal()
    desk = ServerDesk(store, who, feed, runner, read_only=guard.read_only)
    waiting = WaitingCount(store, feed)
    feed.add_source(waiting)
    if runner is not None:
        feed.add_source(runner)
        if isinstance(runner, ProcessRunner):
            runner.tell_with(feed.tell)
    answers = _Answers(desk, guard, waiting)
    shown = Page(page)
    web: list[BaseRoute] = [
        WebRoute("/api/hello", answers.hello, methods=["POST"]),
        WebRoute("/api/openapi.json", _openapi(routes), methods=["GET"]),
        WebRoute("/api/feed", answers.feed, methods=["GET"]),
        *(WebRoute(_web_path(each), answers.of(each), methods=[each.method]) for each in routes),
        WebRoute("/api/{rest:path}", _no_route, methods=["GET", "POST"]),
        WebRoute("/assets/{name:path}", shown.asset, methods=["GET"]),
        WebRoute("/{rest:path}", shown.index, methods=["GET"]),
    ]
    app = Starlette(routes=web, exception_handlers={405: _wrong_method, 404: _not_there})
    return Guarded(app, guard)


class Guarded:
    """Lets the guard look at every request, and adds the headers that every answer has."""

    def __init__(self, app: ASGIApp, guard: RequestGuard) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets are spoken here
            await send({"type": "websocket.close", "code": 1008})
            return
        limit_threads()

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [
                    *message["headers"],
                    *(pair for pair in more if pair[0] not in known),
                ]
            await send(message)

        try:
            self._check(scope)
        except RequestRefusal as found:
            await refused(found)(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _check(self, scope: Scope) -> None:
        headers = _Headers(scope)
        method, path = str(scope["method"]), str(scope["path"])
        self._guard.check_place(method, headers)
        is_data = path.startswith("/api/") and path != "/api/hello"
        if is_data:
            self._guard.check_reader(headers)


class _Headers(Mapping[str, str]):
    """Headers by name; a name that comes twice counts as one with a comma, as no host has it."""

    def __init__(self, scope: Scope) -> None:
        self._headers = Headers(scope=scope)

    def __getitem__(self, name: str) -> str:
        found = self._headers.getlist(name)
        if not found:
            raise KeyError(name)
        return (";" if name == "cookie" else ",").join(found)

    def __iter__(self) -> Any:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)


class _Answers:
    """Makes the endpoints of the routes."""

    def __init__(self, desk: ServerDesk, guard: RequestGuard, waiting: WaitingCount) -> None:
        self._desk, self._guard, self._waiting = desk, guard, waiting

    def of(self, route: Route) -> Answer:
        """Return the endpoint of a route."""

        async def endpoint(request: Request) -> ASGIApp:
            return await self._answer(request, lambda: self._do(route, request))

        endpoint.__name__ = route.name
        return endpoint

    async def _do(self, route: Route, request: Request) -> ASGIApp:
        if route.is_act:
            self._guard.check_act()
        given: list[Any] = []
        if route.params is not None:
            given.append(read_params(route.params, request))
        if route.body is not None:
            given.append(await read_body(route.body, request))
        found = await in_thread(lambda: self._call(route, given))
        if isinstance(found, Blob):
            return blob_response(found)
        return json_response(found, FOREVER if route.is_forever else "no-store")

    def _call(self, route: Route, given: Sequence[Any]) -> Any:
        self._desk.check_store()
        try:
            return route.do(self._desk, *given)
        except StoreCorrupt as error:
            self._desk.check_store()
            shape = error_shape(error)
            named = [getattr(given[0], name, "") for name in ("session", "log", "left") if given]
            broken = self._desk.first_fault(next(filter(None, named), ""))
            fields = {**shape.fields, "broken": broken}
            raise RequestRefusal(
                status_of(error), msgspec.structs.replace(shape, fields=fields)
            ) from error
        except PlaitError as error:
            self._desk.check_store()  # it may have gone in the meantime
            if not route.is_act or status_of(error) != TAKEN or not given:
                raise
            now = self._desk.place_now(getattr(given[0], "session", ""))
            shape = error_shape(error)
            fields = {**shape.fields, "now": now}
            raise RequestRefusal(TAKEN, msgspec.structs.replace(shape, fields=fields)) from error

    async def _answer(self, request: Request, do: Callable[[], Awaitable[ASGIApp]]) -> ASGIApp:
        try:
            return await do()
        except RequestRefusal as found:
            return refused(found)
        except PlaitError as error:
            return await in_thread(partial(self._error, error))
        except ClientDisconnect:  # nobody is there to be answered
            return refused(refusal(400, "Left", "the client left", "send the whole request"))
        except Exception as error:  # a bug of ours: told, and the server goes on
            text = secrets.hide_shown_text(f"{type(error).__name__}: {error}")
            _report(request, error)
            said = ErrorShape("Bug", f"this is a bug of Plait: {text}; please report it.")
            return json_response(said, status=500)

    def _error(self, error: PlaitError) -> Response:
        try:
            near = self._desk.near_names(error)
        except PlaitError:  # the store is away, or broken: the error itself says it
            near = []
        return json_response(error_shape(error, near), status=status_of(error))

    async def hello(self, request: Request) -> ASGIApp:
        """Exchange the token of this start for a cookie."""

        async def do() -> ASGIApp:
            body = await read_body(HelloBody, request)
            assert isinstance(body, HelloBody)
            cookie = self._guard.hello(body.token)
            found = json_response(HelloShape(self._desk.actor, self._guard.read_only))
            found.headers["set-cookie"] = cookie
            return found

        return await self._answer(request, do)

    async def feed(self, request: Request) -> ASGIApp:
        """Follow everything that is committed to the store."""

        async def do() -> ASGIApp:
            params = read_params(FeedParams, request)
            assert isinstance(params, FeedParams)
            last = request.headers.get("last-event-id", "")
            after = int(last) if last.isascii() and last.isdecimal() else params.after
            await in_thread(self._desk.check_store)
            return EventStream(self._desk.feed, after, self._waiting)

        return await self._answer(request, do)


def json_response(found: Shape, cache: str = "no-store", status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(found),
        status,
        {"cache-control": cache},
        "application/json",
    )


def blob_response(found: Blob) -> Response:
    """Return bytes from anywhere as a file that no browser runs, or as an image."""
    name = "".join(char if char.isalnum() or char in "._-" else "_" for char in found.name)[:100]
    way = "inline" if found.is_image else "attachment"
    return Response(
        found.content,
        200,
        {
            "cache-control": FOREVER,
            "content-security-policy": "sandbox; default-src 'none'",
            "content-disposition": f'{way}; filename="{name.encode("ascii", "replace").decode()}"',
        },
        found.media_type,
    )


def refused(found: RequestRefusal) -> Response:
    return json_response(found.shape, status=found.status)


def _web_path(route: Route) -> str:
    """Return a path in the words of starlette. Names of sessions may have slashes in them."""
    for name in ("session", "left", "right"):
        route_path = route.path.replace(f"{{{name}}}", f"{{{name}:path}}")
        route = msgspec.structs.replace(route, path=route_path)
    return route.path


def _openapi(routes: Sequence[Route]) -> Answer:
    async def endpoint(request: Request) -> ASGIApp:
        data = msgspec.json.encode(openapi_document(routes))
        return Response(data, 200, {"cache-control": "no-store"}, "application/json")

    return endpoint


async def _no_route(request: Request) -> Response:
    app: Starlette = request.app
    if any(each.matches(request.scope)[0] is Match.PARTIAL for each in app.routes):
        return await _wrong_method(request, RuntimeError())
    step = "GET /api/openapi.json has all routes"
    path = request.url.path[:200]
    return refused(refusal(404, "UnknownRoute", f"there is no route {path!r}", step))


async def _not_there(request: Request, error: Exception) -> Response:
    return await _no_route(request)


async def _wrong_method(request: Request, error: Exception) -> Response:
    step = "GET /api/openapi.json has all routes"
    said = f"{request.method} is not a method of {request.url.path[:200]!r}"
    return refused(refusal(405, "WrongMethod", said, step))


def _report(request: Request, error: Exception) -> None:
    import sys
    import traceback

    text = "".join(traceback.format_exception(error))
    sys.stderr.write(secrets.hide_shown_text(f"plait: {request.method} {request.url.path}\n{text}"))
