"""Web servers that a test starts: real ones, in processes of their own, on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.processes import child_environment, free_port, wait_until


@contextmanager
def uvicorn_server(*arguments: str, folder: Path, **environment: str) -> Generator[str]:
    """Run `uvicorn` with these arguments in a folder, and yield its address, host:port."""
    port = free_port()
    log = folder / "uvicorn.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", *arguments, "--port", str(port)],
            cwd=folder,
            env=child_environment(**environment),
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        wait_until(lambda: answers(port) or server.poll() is not None, evidence=log.read_text)
        assert server.poll() is None, log.read_text()
        yield f"127.0.0.1:{port}"
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def answers(port: int) -> bool:
    """True if a server listens there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
