"""The table of routes, from which the application, the OpenAPI document and types are made."""

from __future__ import annotations

from plait.server.route import Route

ROUTES: tuple[Route, ...] = ()
