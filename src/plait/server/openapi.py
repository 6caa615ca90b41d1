"""The OpenAPI document, made from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from plait import __version__
from plait.server.live_shapes import DeltaShape, NewsShape, ResetShape, WaitingShape
from plait.server.params import FeedParams, HelloBody, Params
from plait.server.route import Route
from plait.server.shapes import ErrorShape, HelloShape

_REF = "#/components/schemas/{name}"


def openapi_document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the OpenAPI document of these routes, and of those that every server has."""
    kinds = dict.fromkeys(_kinds(routes))
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    paths["/api/hello"] = {
        "post": {
            "operationId": "hello",
            "summary": "Exchange the token of this start for a cookie.",
            "requestBody": _content(HelloBody.__name__),
            "responses": {"200": {"description": "who acts", **_content(HelloShape.__name__)}},
        }
    }
    paths["/api/feed"] = {
        "get": {
            "operationId": "feed",
            "summary": "Follow everything that is committed, as server-sent events.",
            "parameters": list(_parameters(FeedParams, "/api/feed", schemas)),
            "responses": {
                "200": {
                    "description": (
                        "events `news` (NewsShape, with the commit number as id), `delta`, `run`"
                        " and `waiting`"
                    ),
                    "content": {"text/event-stream": {"schema": {"type": "string"}}},
                }
            },
        }
    }
    for route in routes:
        if route.params is not None:
            operation = paths[route.path][route.method.lower()]
            operation["parameters"] = list(_parameters(route.params, route.path, schemas))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Plait", "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _kinds(routes: Sequence[Route]) -> Iterator[type[msgspec.Struct]]:
    yield from (ErrorShape, NewsShape, ResetShape, DeltaShape, WaitingShape)
    yield from (HelloBody, HelloShape, FeedParams)
    for route in routes:
        for kind in (route.params, route.body, route.answer):
            if kind is not None:
                yield kind


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any]
    if route.answer is not None:
        found = {"description": "the answer", **_content(route.answer.__name__)}
    else:
        found = {"description": "bytes", "content": {"application/octet-stream": {}}}
    body = {"requestBody": _content(route.body.__name__)} if route.body is not None else {}
    failed = {"description": "an error of the error tree", **_content(ErrorShape.__name__)}
    return {
        "operationId": route.name,
        "summary": route.summary,
        **body,
        "responses": {"200": found, "default": failed},
    }


def _content(name: str) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": _REF.format(name=name)}}}}


def _parameters(kind: type[Params], path: str, schemas: dict[str, Any]) -> Iterator[dict[str, Any]]:
    schema = schemas[kind.__name__]
    in_path, required = set(re.findall(r"\{(\w+)\}", path)), schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        yield {
            "name": name,
            "in": "path" if name in in_path else "query",
            "required": name in in_path or name in required,
            "schema": each,
        }
