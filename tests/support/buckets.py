"""Buckets for the tests: a server for S3 in a process of its own, on loopback.

The first test that asks starts it, and all workers of the run share it. It ends with the run.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

from tests.support.postgres import locked, run_folder, start_kept
from tests.support.processes import free_port, wait_until
from tests.support.servers import answers

_NUMBERS = itertools.count(1)


def bucket_server() -> str:
    """The endpoint of the server that the whole test run shares; the first that asks starts it."""
    state = run_folder() / "buckets.port"
    with locked(state.with_suffix(".lock")):
        if not state.exists():
            folder, port = run_folder() / "buckets", free_port()
            folder.mkdir()
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
            start_kept(command, folder, {})
            wait_until(lambda: answers(port), evidence=(folder / "log").read_text)
            state.write_text(str(port))
        return f"http://127.0.0.1:{state.read_text()}"


def bucket_environment(endpoint: str) -> dict[str, str]:
    """The variables by which a client finds the server, and is let in."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_REGION": "us-east-1",
    }


def new_bucket(endpoint: str) -> str:
    """Make a bucket and return its name."""
    name = f"plait-{os.getpid()}-{next(_NUMBERS)}"
    urlopen(Request(f"{endpoint}/{name}", method="PUT"), timeout=30).close()
    return name


@contextmanager
def broken_bucket(status: int, code: str = "") -> Generator[str]:
    """The endpoint of a server that answers every request with this status; 0: with nothing."""
    waiting = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def handle_one_request(self) -> None:
            if not status:
                waiting.wait(30)
                self.close_connection = True
                return
            super().handle_one_request()

        def _refuse(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            text = f"<Error><Code>{code}</Code></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _refuse

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        waiting.set()
        server.shutdown()
        server.server_close()
        thread.join()
