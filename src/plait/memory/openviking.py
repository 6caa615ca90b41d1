"""OpenViking as an index of memories, by its HTTP interface.

    memory = Memory(index=OpenVikingIndex("http://127.0.0.1:1933"))

Each text is a file below `viking://resources/SPACE/`, in a folder of its owner: the server searches
below folders, so that owners are never mixed. Nothing of OpenViking is imported here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Lock
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from plait.errors import IndexFailed, InvalidValue
from plait.ids import digest
from plait.memory.words import words_of
from plait.secrets import Secret

_OWNER_DIGITS = 32  # of the digest of an owner: its name may have signs that a folder cannot have
_FILE = "text.md"
_NOISE = 1e-6  # a cosine below is that of texts which share nothing
_EMBEDDED = ("complete", "skipped")  # skipped: the text is the same as before


class OpenVikingIndex:
    """An `Index` on an OpenViking server.

    The server embeds texts in the background. A search waits for the texts that this object has put
    before, and fails if one of them could not be embedded, until it is put again.
    """

    tested = "server-tested 2026-11-17 openviking 0.5.2"

    def __init__(
        self,
        url: str,
        *,
        key: str | Secret | None = None,  # None: the server asks for none
        space: str = "plait",
        name: str = "openviking",
        timeout_s: float = 60,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidValue("url", f"{url!r} is no address", "pass http://HOST:PORT")
        if not space or quote(space, safe="") != space:
            raise InvalidValue("space", f"{space!r} is no name of a folder", "use letters, digits")
        self.name = name
        self._root = f"viking://resources/{space}"
        self._parts, self._timeout_s, self._key = parts, timeout_s, key
        self._tasks: dict[str, str] = {}  # by the id of the text: those that may not be done yet
        self._failed: set[str] = set()  # texts that are not embedded
        self._errors = 0  # of the server, when it was last asked
        self._is_closed = False
        self._lock = Lock()

    def put(self, id: str, text: str, owner: str) -> None:
        if id in self._tasks:
            self._wait()  # the server refuses a text while it embeds the one before
        uri = f"{self._folder(owner)}/{id}/{_FILE}"
        how = {"mode": "create", "processing_mode": "vectors_only"}
        written = self._post("/api/v1/content/write", {"uri": uri, "content": text, **how})
        with self._lock:
            self._tasks[id] = written["task_id"]
            self._failed.discard(id)

    def search(self, query: str, owners: Sequence[str], limit: int) -> list[tuple[str, float]]:
        if not owners or not words_of(query):
            return []
        self._finish()
        folders = [f"{self._folder(owner)}/" for owner in owners]
        asked = {"query": query, "target_uri": folders, "limit": limit, "level": 2}
        found = self._post("/api/v1/search/find", asked)["resources"]
        # its scores are cosines, moved from -1..1 to 0..1
        scores = [(str(each["uri"]).split("/")[-2], 2 * each["score"] - 1) for each in found]
        return [(id, score) for id, score in scores if score > _NOISE]

    def forget(self, id: str) -> None:
        self._finish()  # a text that is embedded later would come back
        below = {"pattern": f"*/{id}/{_FILE}", "uri": f"{self._root}/"}
        for uri in self._post("/api/v1/search/glob", below, missing={"matches": []})["matches"]:
            gone = urlencode({"uri": uri.removesuffix(f"/{_FILE}"), "recursive": "true"})
            self._call("DELETE", f"/api/v1/fs?{gone}", missing={})

    def close(self) -> None:
        self._is_closed = True

    # ── calls ────────────────────────────────────────────────────────────────────────────────

    def _finish(self) -> None:
        """Wait for the texts that were put; raise IndexFailed for those that are not embedded."""
        self._wait()
        if self._failed:
            which = ", ".join([id[:8] for id in sorted(self._failed)[:3]])
            raise IndexFailed(self.name, f"{len(self._failed)} texts are not embedded: {which}")

    def _wait(self) -> None:
        with self._lock:
            tasks = dict(self._tasks)
        if not tasks:
            return
        queues = self._post("/api/v1/system/wait", {})
        errors = sum([queue["error_count"] for queue in queues.values()])
        is_suspect = errors != self._errors  # of these texts, or of the server's other clients
        failed = [id for id, task in tasks.items() if is_suspect and not self._is_done(task)]
        with self._lock:
            self._errors = errors
            self._failed.update([id for id in failed if self._tasks.get(id) == tasks[id]])
            for id, task in tasks.items():
                if self._tasks.get(id) == task:
                    del self._tasks[id]

    def _is_done(self, task: str) -> bool:
        result: Any = self._call("GET", f"/api/v1/tasks/{quote(task)}")["result"]
        return result is not None and result["vector_status"] in _EMBEDDED

    def _folder(self, owner: str) -> str:
        return f"{self._root}/{digest(owner.encode())[:_OWNER_DIGITS]}"

    def _post(self, path: str, document: object, missing: Any = None) -> Any:
        return self._call("POST", path, document, missing=missing)

    def _call(self, method: str, path: str, document: Any = None, missing: Any = None) -> Any:
        """Return the result of a request; `missing`: that of one about a file that is not there."""
        if self._is_closed:
            raise IndexFailed(self.name, "it is closed")
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        assert self._parts.hostname is not None
        headers = {"Content-Type": "application/json"}
        if self._key is not None:
            headers["X-API-Key"] = self._key.value if isinstance(self._key, Secret) else self._key
        body = None if document is None else json.dumps(document).encode()
        try:
            connection = kind(self._parts.hostname, self._parts.port, timeout=self._timeout_s)
            try:
                connection.request(method, f"{self._parts.path.rstrip('/')}{path}", body, headers)
                response = connection.getresponse()
                answer: Any = json.loads(response.read())
            finally:
                connection.close()
        except (OSError, HTTPException, ValueError) as error:
            raise IndexFailed(self.name, f"{type(error).__name__}: {error}"[:300]) from error
        if response.status == 404 and missing is not None:
            return missing
        if response.status != 200:
            raise IndexFailed(self.name, f"{method} {path}: {response.status} {answer}"[:300])
        return answer["result"]
