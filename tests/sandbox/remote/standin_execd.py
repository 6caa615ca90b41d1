"""A stand-in for OpenSandbox's daemon, for images made here: the real one comes from a registry.

It is plain Python without packages, since it runs inside the container, and speaks as much of the
protocol as the SDK asks for: a ping, commands as server-sent events, files up and down.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

PORT = 44772


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None: ...

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/ping":
            return self._answer(200)
        path = Path(parse_qs(parts.query)["path"][0])
        self._answer(200, path.read_bytes()) if path.is_file() else self._answer(404, b"{}")

    def do_POST(self) -> None:
        body = self._read()
        if self.path == "/command":
            return self._stream(_command(json.loads(body)))
        if self.path == "/files/upload":
            parts = _parts(self.headers["content-type"], body)
            for about, content in zip(parts[::2], parts[1::2], strict=True):
                path = Path(json.loads(about)["path"])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            return self._answer(200)
        self._answer(404, b"{}")

    def _read(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        found = bytearray()
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(found)

    def _answer(self, status: int, content: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, events: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


def _command(asked: dict[str, str]) -> Iterator[bytes]:
    with subprocess.Popen(
        ["/bin/bash", "-c", asked["command"]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        yield event_line("init", text=str(process.pid))
        assert process.stdout is not None
        for line in process.stdout:
            yield event_line("stdout", text=line.decode().rstrip("\n"))
    if process.returncode:
        yield event_line(
            "error",
            error={"ename": "CommandExecError", "evalue": str(process.returncode), "traceback": []},
        )
    else:
        yield event_line("execution_complete", execution_time=1)


def event_line(kind: str, **fields: object) -> bytes:
    return f"data: {json.dumps({'type': kind, 'timestamp': 0, **fields})}\n\n".encode()


def _parts(kind: str, body: bytes) -> list[bytes]:
    found = re.search(r'boundary="?([^";]+)', kind)
    assert found is not None
    edge = b"\r\n--" + found[1].encode()
    return [part.partition(b"\r\n\r\n")[2] for part in (b"\r\n" + body).split(edge)[1:-1]]


if __name__ == "__main__":
    ThreadingHTTPServer(
        ("0.0.0.0", int(sys.argv[1]) if len(sys.argv) > 1 else PORT), Handler
    ).serve_forever()
