"""A real HTTP server on loopback, with what the three vendors' protocols have in common."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import threading
from base64 import b64encode
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from socket import SHUT_RDWR
from typing import IO, Any, cast
from urllib.parse import parse_qs, urlsplit

from tests.sandbox.remote.machine import Machine

KEY = "key-of-the-loopback-0123456789"


class Cloud:
    """The machines of one server, and what it was asked."""

    def __init__(self) -> None:
        self.machines: dict[str, Machine] = {}
        self.images: dict[str, Machine] = {}  # snapshots: machines that do not run
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[bytes] = []
        # paths whose next request is cut off in the middle of the answer
        self.breaks: list[str] = []
        self.refuses: list[str] = []  # paths whose next request is answered with an error
        self._count = 0
        self._lock = threading.Lock()

    def make(self, source: Path | None = None) -> Machine:
        with self._lock:
            self._count += 1
            name = f"box{self._count}x{id(self)}"
            self.machines[name] = machine = Machine(name, source)
            return machine

    def snapshot(self, machine: Machine) -> str:
        with self._lock:
            self._count += 1
            name = f"snap{self._count}"
            self.images[name] = Machine(name, machine.root)
            return name

    def end(self) -> None:
        for machine in [*self.machines.values(), *self.images.values()]:
            machine.end()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cloud: Cloud

    def log_message(self, format: str, *args: object) -> None:
        """Tests say what they want to know."""

    # requests

    def do_GET(self) -> None:
        self._handle()

    do_POST = do_DELETE = do_PUT = do_PATCH = do_GET

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        self.route, self.query = (
            parts.path,
            {name: values[0] for name, values in parse_qs(parts.query).items()},
        )
        self.body = self._read()
        self.cloud.requests.append((self.command, self.route))
        self.cloud.bodies.append(self.body)
        if self.route in self.cloud.refuses:
            self.cloud.refuses.remove(self.route)
            return self.answer(500, {"code": 500, "message": "refused on purpose"})
        try:
            self.serve()
        except FileNotFoundError as error:
            self.answer(404, {"code": 404, "message": f"there is no {error}"})

    def serve(self) -> None:
        raise NotImplementedError

    def _read(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            found = bytearray()
            while size := int(self.rfile.readline().split(b";")[0], 16):
                found += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return bytes(found)
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def json(self) -> dict[str, Any]:
        return json.loads(self.body or b"{}")

    # answers

    def answer(
        self,
        status: int,
        value: object = None,
        content: bytes | None = None,
        media_type: str = "application/json",
    ) -> None:
        data = (
            content if content is not None else b"" if value is None else json.dumps(value).encode()
        )
        self.send_response(status)
        if status != 204:
            self.send_header("content-type", media_type)
            self.send_header("content-length", str(len(data)))
        self.end_headers()
        if status != 204:
            self.wfile.write(data)

    def stream(self, media_type: str, parts: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("content-type", media_type)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for part in parts:
            if self.route in self.cloud.breaks:
                self.cloud.breaks.remove(self.route)
                self.close_connection = True
                self.connection.shutdown(SHUT_RDWR)
                return cast("Generator[bytes]", parts).close()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def machine(self, name: str) -> Machine | None:
        return self.cloud.machines.get(name)


class Envd(Handler):
    """The daemon inside a machine of E2B and of Cube: processes as Connect streams, files over
    plain HTTP.
    """

    def serve_envd(self, machine: Machine) -> None:
        match self.command, self.route:
            case "GET", "/health":
                self.answer(204)
            case "POST", "/process.Process/Start":
                self.stream("application/connect+json", self._process(machine))
            case "GET", "/files":
                self.answer(
                    200,
                    content=machine.path(self.query["path"]).read_bytes(),
                    media_type="application/octet-stream",
                )
            case "POST", "/files":
                path = machine.path(self.query["path"])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.upload())
                self.answer(200, [{"name": path.name, "type": "file", "path": self.query["path"]}])
            case _:
                self.answer(404, {"code": "unimplemented", "message": self.route})

    def upload(self) -> bytes:
        kind = self.headers["content-type"]
        if kind.startswith("multipart/"):
            return next(
                content for head, content in multipart(kind, self.body) if b'name="file"' in head
            )
        return self.body

    def _process(self, machine: Machine) -> Iterator[bytes]:
        (size,) = struct.unpack(">I", self.body[1:5])
        asked = json.loads(self.body[5 : 5 + size])["process"]
        process = machine.start(
            [asked["cmd"], *asked["args"]], asked.get("envs") or {}, asked.get("cwd") or ""
        )
        with ended(process):
            yield from self._told(process)

    def _told(self, process: subprocess.Popen[bytes]) -> Iterator[bytes]:
        yield _envelope({"event": {"start": {"pid": process.pid}}})
        for name, data in written(process):
            yield _envelope({"event": {"data": {name: b64encode(data).decode()}}})
        code = process.wait()
        yield _envelope(
            {"event": {"end": {"exitCode": code, "exited": True, "status": f"exit status {code}"}}}
        )
        yield _envelope({}, flags=2)


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Generator[None]:
    """Whatever becomes of the connection, the process is not left behind."""
    with process:
        try:
            yield
        finally:
            process.kill()


def written(process: subprocess.Popen[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the output of a process, as it comes."""
    with DefaultSelector() as selector:
        assert process.stdout is not None and process.stderr is not None
        streams: dict[str, IO[bytes]] = {"stdout": process.stdout, "stderr": process.stderr}
        for name, stream in streams.items():
            selector.register(stream, EVENT_READ, name)
        while streams:
            for key, _ in selector.select():
                data = cast("Any", key.fileobj).read1(1 << 16)
                if data:
                    yield key.data, data
                else:
                    selector.unregister(key.fileobj)
                    streams.pop(key.data).close()


def multipart(kind: str, body: bytes) -> list[tuple[bytes, bytes]]:
    """The parts of a form: head and content."""
    found = re.search(r'boundary="?([^";]+)', kind)
    assert found is not None
    edge = b"--" + found[1].encode()
    parts = (b"\r\n" + body).split(b"\r\n" + edge)[1:-1]
    return [(head, content) for head, _, content in (part.partition(b"\r\n\r\n") for part in parts)]


def _envelope(value: object, flags: int = 0) -> bytes:
    data = json.dumps(value).encode()
    return struct.pack(">BI", flags, len(data)) + data


class Server:
    """One of them, running."""

    def __init__(self, handler: type[Handler]) -> None:
        self.cloud = Cloud()
        bound = type(handler.__name__, (handler,), {"cloud": self.cloud})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), bound)
        self._http.daemon_threads = True
        self.port = self._http.server_port
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        self.cloud.end()
