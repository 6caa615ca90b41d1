"""Runs an OpenViking server in a network namespace of its own, which has no more than a loopback.

Run by `OpenViking` in test_guest_openviking.py: `openviking_host.py PROGRAM FOLDER LISTENER`. The
listener is a socket of the namespace outside: connections to it are passed on to the server. So the
server, and a stub that embeds its texts, reach nothing else. Commands come on stdin, one per line:

    start    start the server, and answer with a line when it is ready
    arm      kill the server as soon as it asks for the next embedding

It ends, with the server, when stdin does.
"""

from __future__ import annotations

import base64
import json
import math
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from hashlib import sha256
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from plait.memory.words import query_words

DIMENSION = 4096
PORT = 1933
READY_S_MAX = 120


def vector_of(text: str) -> list[float]:
    """Embed a text: each of its words is a dimension, by a hash."""
    vector = [0.0] * DIMENSION
    for word in query_words(text):
        vector[int.from_bytes(sha256(word.encode()).digest()[:4]) % DIMENSION] += 1.0
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return [value / length for value in vector]


class Stub(ThreadingHTTPServer):
    """Answers OpenAI's /embeddings, and /chat/completions with a word."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), StubHandler)
        self.process: subprocess.Popen[bytes] | None = None
        self.is_armed = False


class StubHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/embeddings"):
            message = {"role": "assistant", "content": "ok"}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            return self._answer({"object": "chat.completion", "choices": [choice]})
        stub = self.server
        assert isinstance(stub, Stub)
        if stub.is_armed and stub.process is not None:
            stub.is_armed = False
            stub.process.send_signal(signal.SIGKILL)
            return None
        texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
        if any("UNEMBEDDABLE" in text for text in texts):
            return self._answer({"error": {"message": "no"}}, 400)
        data = [
            {"object": "embedding", "index": place, "embedding": self._coded(text, asked)}
            for place, text in enumerate(texts)
        ]
        return self._answer({"object": "list", "data": data})

    def _coded(self, text: str, asked: dict[str, Any]) -> object:
        vector = vector_of(text)
        if asked.get("encoding_format") != "base64":
            return vector
        return base64.b64encode(struct.pack(f"<{DIMENSION}f", *vector)).decode()

    def _answer(self, document: dict[str, Any], status: int = 200) -> None:
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = json.dumps({"id": "1", "model": "stub", "usage": usage, **document}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


def config_of(folder: Path, stub: Stub) -> dict[str, Any]:
    model = {
        "provider": "openai",
        "api_key": "none",
        "api_base": f"http://127.0.0.1:{stub.server_address[1]}/v1",
        "model": "stub",
    }
    return {
        "server": {"host": "127.0.0.1", "port": PORT},
        "storage": {
            "workspace": str(folder / "data"),
            "agfs": {"backend": "local"},
            "vectordb": {"backend": "local", "name": "context"},
        },
        "embedding": {"dense": {**model, "dimension": DIMENSION}},
        "vlm": model,
    }


def start(program: str, folder: Path, stub: Stub) -> str:
    """Start the server; return "ready", or why it is not."""
    config, log = folder / "ov.conf", folder / "log"
    config.write_text(json.dumps(config_of(folder, stub)))
    with log.open("ab") as output:
        stub.process = subprocess.Popen(
            [program, "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        )
    for _ in range(READY_S_MAX * 5):
        with suppress(OSError):
            connection = HTTPConnection("127.0.0.1", PORT, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return "ready"
        with suppress(subprocess.TimeoutExpired):
            stub.process.wait(0.2)
            break
    return f"not ready: {log.read_text(errors='replace')[-500:]!r}"


def relay(listener: socket.socket) -> None:
    """Pass connections from outside on to the server."""
    while True:
        outside, _ = listener.accept()
        inside = socket.socket()
        try:
            inside.connect(("127.0.0.1", PORT))
        except OSError:
            outside.close()
            continue
        for one, other in ((outside, inside), (inside, outside)):
            threading.Thread(target=copy, args=(one, other), daemon=True).start()


def copy(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    with suppress(OSError):
        other.shutdown(socket.SHUT_WR)


def main(program: str, folder: Path, descriptor: int) -> None:
    if ip := shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin"):
        subprocess.run([ip, "link", "set", "lo", "up"], check=True)
    stub, listener = Stub(), socket.socket(fileno=descriptor)
    for job in (stub.serve_forever, lambda: relay(listener)):
        threading.Thread(target=job, daemon=True).start()
    try:
        for line in sys.stdin:
            if line.strip() == "start":
                print(start(program, folder, stub), flush=True)
            elif line.strip() == "arm":
                stub.is_armed = True
                print("armed", flush=True)
    finally:
        if stub.process is not None:
            stub.process.kill()
            stub.process.wait()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
