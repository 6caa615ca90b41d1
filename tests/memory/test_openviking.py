"""OpenViking's wire, without its server: a stand-in on the loopback that answers as the real one
does. The real one is in tests/guests.
"""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from plait.errors import IndexFailed, InvalidValue
from plait.memory.index import Index
from plait.memory.openviking import OpenVikingIndex
from plait.memory.words import query_words
from plait.secrets import Secret
from plait.testing import MemoryContract

ANN = ["user:ann"]


class StandIn(ThreadingHTTPServer):
    """Keeps files, and finds them by the cosine of their words."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), StandInHandler)
        self.files: dict[str, Counter[str]] = {}
        self.failed: list[str] = []  # tasks of texts that could not be embedded
        self.keys: set[str | None] = set()
        self.is_gone = False
        self.reply: tuple[int, bytes] | None = None  # to all requests; None: as it should

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def write(self, asked: dict[str, Any]) -> dict[str, Any]:
        task = f"{asked['uri']}#{len(self.files)}"
        if "UNEMBEDDABLE" in asked["content"]:
            self.failed.append(task)
        self.files[asked["uri"]] = Counter(query_words(asked["content"]))
        return {"task_id": task, "vector_status": "queued"}

    def wait(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"Embedding": {"error_count": len(self.failed)}, "Semantic": {"error_count": 0}}

    def find(self, asked: dict[str, Any]) -> dict[str, Any]:
        words = Counter(query_words(asked["query"]))
        found: list[dict[str, Any]] = [
            {"uri": uri, "level": 2, "score": (1 + _cosine(words, file)) / 2}
            for uri, file in [*self.files.items()]
            if any(uri.startswith(folder) for folder in asked["target_uri"])
        ]
        found.sort(key=lambda each: -each["score"])
        return {"resources": found[: asked["limit"]], "memories": [], "skills": []}

    def glob(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        below = [uri for uri in [*self.files] if uri.startswith(asked["uri"])]
        end = asked["pattern"].removeprefix("*")
        return {"matches": [uri for uri in below if uri.endswith(end)]} if below else None

    def task(self, name: str) -> dict[str, Any]:
        return {"result": None if name in self.failed else {"vector_status": "complete"}}

    def remove(self, folder: str) -> dict[str, Any]:
        for uri in [uri for uri in self.files if uri.startswith(f"{folder}/")]:
            del self.files[uri]
        return {"uri": folder}


def _cosine(one: Counter[str], other: Counter[str]) -> float:
    shared = sum(count * other[word] for word, count in one.items())
    length = math.hypot(*one.values()) * math.hypot(*other.values())
    return shared / length if length else 0.0


class StandInHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = self.path.rpartition("/")[2]
        self._answer(lambda: getattr(self._stand_in, name)(asked))

    def do_GET(self) -> None:
        name = unquote(self.path.removeprefix("/api/v1/tasks/"))
        self._answer(lambda: self._stand_in.task(name))

    def do_DELETE(self) -> None:
        (folder,) = parse_qs(urlsplit(self.path).query)["uri"]
        self._answer(lambda: self._stand_in.remove(folder))

    @property
    def _stand_in(self) -> StandIn:
        assert isinstance(self.server, StandIn)
        return self.server

    def _answer(self, act: Callable[[], dict[str, Any] | None]) -> None:
        stand_in = self._stand_in
        if stand_in.is_gone:
            return  # the connection ends in the middle of the request
        stand_in.keys.add(self.headers["X-API-Key"])
        result = act()
        status, body = stand_in.reply or (
            200 if result is not None else 404,
            json.dumps({"status": "ok", "result": result}).encode(),
        )
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def stand_in() -> Generator[StandIn]:
    server = StandIn()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class TestOpenViking(MemoryContract):
    @pytest.fixture
    def index(self, stand_in: StandIn) -> OpenVikingIndex:
        self._stand_in = stand_in
        return OpenVikingIndex(stand_in.url)

    def end_in_search(self, index: Index) -> None:
        self._stand_in.is_gone = True


def test_a_text_that_is_not_embedded_makes_searches_fail_until_it_is_put_again(
    stand_in: StandIn,
) -> None:
    index, other = OpenVikingIndex(stand_in.url), OpenVikingIndex(stand_in.url)
    index.put("a" * 64, "fish UNEMBEDDABLE", "user:ann")
    other.put("b" * 64, "fish", "user:bob")
    assert other.search("fish", ["user:bob"], 5), "it is not a text of this client"
    for _ in range(2):
        with pytest.raises(IndexFailed, match="1 texts are not embedded: aaaaaaaa"):
            index.search("fish", ANN, 5)
    index.put("a" * 64, "fish", "user:ann")
    assert [id for id, _ in index.search("fish", ANN, 5)] == ["a" * 64]


@pytest.mark.parametrize(
    "reply",
    [(200, b"<html>"), (500, b'{"status": "error"}'), (401, b"{}"), (404, b"{}"), (200, b"\xff")],
)
def test_an_answer_that_makes_no_sense_is_an_index_that_failed(
    stand_in: StandIn, reply: tuple[int, bytes]
) -> None:
    index = OpenVikingIndex(stand_in.url)
    stand_in.reply = reply
    with pytest.raises(IndexFailed, match="the index openviking failed"):
        index.put("a" * 64, "fish", "user:ann")
    with pytest.raises(IndexFailed, match="the index openviking failed"):
        index.search("fish", ANN, 5)


def test_a_key_is_sent_and_not_shown(stand_in: StandIn) -> None:
    index = OpenVikingIndex(stand_in.url, key=Secret("OPENVIKING_KEY", "hush-hush-17"))
    index.put("a" * 64, "fish", "user:ann")
    OpenVikingIndex(stand_in.url, key="plain").put("b" * 64, "fish", "user:ann")
    assert stand_in.keys == {"hush-hush-17", "plain"}
    stand_in.reply = (403, b'{"status": "error", "message": "hush-hush-17 is wrong"}')
    with pytest.raises(IndexFailed) as failed:
        index.search("fish", ANN, 5)
    assert "hush-hush" not in str(failed.value)


def test_a_server_that_is_not_there_is_an_index_that_failed() -> None:
    with pytest.raises(IndexFailed, match="Refused"):
        OpenVikingIndex("http://127.0.0.1:9").put("a" * 64, "fish", "user:ann")


def test_an_address_that_makes_no_sense_is_refused() -> None:
    for url in ("", "127.0.0.1:1933", "viking://there", "http://"):
        with pytest.raises(InvalidValue, match="url"):
            OpenVikingIndex(url)
    for space in ("", "a/b", "..%2f"):
        with pytest.raises(InvalidValue, match="space"):
            OpenVikingIndex("http://127.0.0.1:1933", space=space)
