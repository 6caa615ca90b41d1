"""llama.cpp inside this process, one instance per file of weights.

It is loaded when it is first needed and answers one question at a time, on one thread: with more it is slower as soon as anybody
else wants the processor. Its server insists on a socket to listen on. It gets one in the file system, which is removed again before
anybody can find it; no port is opened and nothing is connected to.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from plait.event import Json
from plait.event.kinds import Usage
from plait.model.base import Fault

EXIT_S_MAX = 60  # how long the end of the program waits for an answer that is being read: a full context takes half of that
_SOCKET_PATH_MAX = 60  # an address has room for about a hundred characters, our own part included
_FAULTS = {"exceed_context_size_error": "ContextOverflow", "invalid_request_error": "BadRequest", "not_supported_error": "BadRequest"}

OnText = Callable[[str], bool]  # the text so far grew by this; True: enough


class Written(msgspec.Struct, frozen=True):
    """What came of one question."""

    text: str
    cut: bool  # at the limit, of tokens or of the context
    usage: Usage


class Engine:
    """One file of weights, loaded once. `with engine.held() as write:` has it for itself."""

    def __init__(self, path: Path, context_tokens: int) -> None:
        self.path, self.context_tokens = path, context_tokens
        self._lock = Lock()
        self._server: Any = None  # None: not loaded yet
        self._closing = False

    @contextmanager
    def held(self) -> Generator[Callable[[Mapping[str, Json], OnText], Written]]:
        with self._lock:
            if self._server is None:
                self._server = _load(self.path, self.context_tokens)
            yield self._write

    def _write(self, body: Mapping[str, Json], on_text: OnText) -> Written:
        """Ask, and tell each piece of text as it comes."""
        ear = _Ear(lambda text: on_text(text) or self._closing)
        try:
            self._server.handle_chat_completions({**body, "stream": True, "stream_options": {"include_usage": True}}, ear)
        except (ValueError, RuntimeError) as error:
            raise Fault("BadRequest", f"llama.cpp refused: {error}") from error
        return ear.written()

    def close(self) -> None:
        """At the end of the program: its threads must be gone before the interpreter is."""
        self._closing = True
        if self._lock.acquire(timeout=EXIT_S_MAX):
            self._server = None
            self._lock.release()

    def forget(self) -> None:
        """In a forked child: the threads were not copied, so the server is neither of use nor can it be taken down."""
        if self._server is not None:
            ctypes.pythonapi.Py_IncRef(
                ctypes.py_object(self._server)
            )  # never freed, or freeing it would wait for threads that are not there
        self._server, self._lock = None, Lock()


class _Ear:
    """Hears the pieces. Native code calls it, so that nothing may be raised here."""

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self._pieces: list[str] = []
        self._cut = False
        self._usage = Usage()
        self._error: Mapping[str, Any] | None = None
        self._raised: BaseException | None = None

    def __call__(self, piece: dict[str, Any]) -> bool:
        try:
            return self._hear(piece)
        except BaseException as error:
            self._raised = error
            return True

    def _hear(self, piece: dict[str, Any]) -> bool:
        if "error" in piece:
            self._error = piece["error"]
            return True
        if usage := piece.get("usage"):
            self._usage = Usage(usage["prompt_tokens"], usage["completion_tokens"], usage["prompt_tokens_details"]["cached_tokens"])
        for choice in piece.get("choices", ()):
            self._cut = self._cut or choice.get("finish_reason") == "length"
            if text := choice.get("delta", {}).get("content"):
                self._pieces.append(text)
                return self._on_text(text)
        return False

    def written(self) -> Written:
        text = "".join(self._pieces)
        if self._raised is not None:
            raise self._raised
        if self._error is not None:
            kind = _FAULTS.get(str(self._error.get("type")), "ServerError")
            raise Fault(kind, str(self._error.get("message", "llama.cpp gave no reason")), partial=text)
        return Written(text, self._cut, self._usage)


# ── loading ──────────────────────────────────────────────────────────────────────────────────


def _load(path: Path, context_tokens: int) -> Any:
    try:
        native = import_module("xllamacpp")
        with tempfile.TemporaryDirectory(prefix="plait-", dir=_short_folder()) as folder:
            return native.Server(_settings(native, path, context_tokens, f"{folder}/llama.sock"))
    except (ImportError, AttributeError, RuntimeError, ValueError, OSError) as error:
        raise Fault("BadModel", f"{path.name} could not be loaded by llama.cpp: {error}") from error


def _short_folder() -> str | None:
    return None if len(tempfile.gettempdir()) <= _SOCKET_PATH_MAX else "/tmp"


def _settings(native: Any, path: Path, context_tokens: int, socket: str) -> Any:
    settings = native.CommonParams()
    settings.model.path = str(path)
    settings.n_ctx = context_tokens
    settings.n_parallel = 1
    settings.n_gpu_layers = 0
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = settings.n_threads_http = 1
    settings.hostnames = [socket]
    settings.ui = False
    settings.offline = True
    settings.verbosity = -1  # it logs to the program's own stderr otherwise
    settings.warmup = False
    settings.cache_ram_mib = 0  # old prompts kept beside the context: up to 8 GB if nobody says no
    return settings


# ── one per process ──────────────────────────────────────────────────────────────────────────

_engines: dict[tuple[Path, int], Engine] = {}
_lock = Lock()


def engine(path: Path, context_tokens: int) -> Engine:
    """The one for these weights. Nothing is loaded yet."""
    with _lock:
        return _engines.setdefault((path, context_tokens), Engine(path, context_tokens))


def _close() -> None:
    for one in _engines.values():
        one.close()


def _after_fork() -> None:
    global _lock
    _lock = Lock()
    for one in _engines.values():
        one.forget()


atexit.register(_close)
os.register_at_fork(after_in_child=_after_fork)
