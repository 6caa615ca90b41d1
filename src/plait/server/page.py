"""The page: files that were built into the package, and a plain page if they were not."""

from __future__ import annotations

import mimetypes
import stat
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:;"
    " connect-src 'self'; font-src 'none'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
FOREVER = "private, max-age=31536000, immutable"
BUILT = Path(__file__).parents[1] / "view" / "dist"
_MISSING = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Plait</title>
<h1>The page is not built</h1>
<p>This server works, and its data is at <code>/api</code> (<code>/api/openapi.json</code> names the
routes). The page is built in a checkout with <code>make viewer</code>, which needs Node; a wheel of
Plait has it.</p>
</html>
"""


class Page:
    """The built page. Its address decides what it shows, so each address is the same file."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = (folder or BUILT).resolve()

    async def index(self, request: Request) -> Response:
        path = self._folder / "index.html"
        headers = {"content-security-policy": POLICY, "cache-control": "no-cache"}
        if not _is_file(path):
            return Response(_MISSING, 200, headers, "text/html")
        return FileResponse(path, 200, headers, "text/html")

    async def asset(self, request: Request) -> Response:
        """Return a file of the page. Its name has a digest of its content."""
        path = self._folder / "assets" / str(request.path_params["name"])
        try:
            path = path.resolve()
        except (OSError, ValueError):  # no file has such a name
            return _not_there()
        if not path.is_relative_to(self._folder) or not _is_file(path):
            return _not_there()
        media = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        headers = {"content-security-policy": POLICY, "cache-control": FOREVER}
        return FileResponse(path, 200, headers, media)


def _not_there() -> Response:
    return Response("not there", 404, {"cache-control": "no-store"}, "text/plain")


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False
