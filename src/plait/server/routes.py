"""The table of routes: the application, the OpenAPI document and the page's types are made from it.
"""

from __future__ import annotations

from plait.server.route import Route

ROUTES: tuple[Route, ...] = ()
