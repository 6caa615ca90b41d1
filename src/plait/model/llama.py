"""llama.cpp inside this process, one instance per file of weights.

It is loaded when it is first needed and answers one question at a time, on one thread: more threads
are slower as soon as other work needs the processor. Its server insists on a socket to listen on.
It gets one in the file system, which is removed again at once; no port is opened and nothing is
connected to.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
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

BATCH_TOKENS = 256  # of a prompt that are read at once; only in between can it be stopped
EXIT_S_MAX = 30  # the end of the program waits so long for that
_SOCKET_PATH_MAX = 60  # an address has room for about a hundred characters, our own part included
_FAULTS = {
    "exceed_context_size_error": "ContextOverflow",
    "invalid_request_error": "BadRequest",
    "not_supported_error": "BadRequest",
}
_STREAMED: Mapping[str, Json] = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "return_progress": True,
}

OnText = Callable[[str], bool]  # a piece of text; True: enough


class EngineReply(msgspec.Struct, frozen=True):
    """The answer to one question."""

    text: str
    cut: bool  # at the limit, of tokens or of the context
    usage: Usage


class Engine:
    """One file of weights, loaded once. `with engine.reserve() as write:` has it for itself."""

    def __init__(self, path: Path, context_tokens: int) -> None:
        self.path, self.context_tokens = path, context_tokens
        self._lock = Lock()
        self._server: Any = None  # None: not loaded yet
        self._closing = False

    @contextmanager
    def reserve(self) -> Generator[Callable[[Mapping[str, Json], OnText], EngineReply]]:
        with self._lock:
            if self._closing:
                raise Fault("StreamCut", "the program is ending", retryable=True)
            if self._server is None:
                self._server = _load(self.path, self.context_tokens)
            yield self._write

    def _write(self, body: Mapping[str, Json], on_text: OnText) -> EngineReply:
        """Ask, and pass on each piece of text as it comes."""
        collector = _PieceCollector(lambda text: self._closing or (bool(text) and on_text(text)))
        try:
            self._server.handle_chat_completions({**body, **_STREAMED}, collector)
        except (ValueError, RuntimeError) as error:
            raise Fault("BadRequest", f"llama.cpp refused: {error}") from error
        written = collector.reply()
        if self._closing:
            raise Fault("StreamCut", "the program is ending", retryable=True, partial=written.text)
        return written

    def close(self) -> None:
        """Stop at the end of the program: its threads must be gone before the interpreter is."""
        self._closing = True
        if self._lock.acquire(timeout=EXIT_S_MAX):
            self._server = None
            self._lock.release()

    def forget(self) -> bool:
        """Drop the server in a forked child, without freeing it. Return True if there was one.

        Threads are not copied, so the server is of no use, and freeing it would wait for them
        forever.
        """
        loaded = self._server is not None
        if loaded:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._server))
        self._server, self._lock = None, Lock()
        return loaded


class _PieceCollector:
    """Collects the pieces of an answer. Native code calls it, so nothing may be raised here."""

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
        except BaseException as error:  # raised when the native code has returned
            self._raised = error
            return True

    def _hear(self, piece: dict[str, Any]) -> bool:
        if "error" in piece:
            self._error = piece["error"]
            return True
        if usage := piece.get("usage"):
            self._usage = Usage(
                usage["prompt_tokens"],
                usage["completion_tokens"],
                usage["prompt_tokens_details"]["cached_tokens"],
            )
        text = ""
        for choice in piece.get("choices", ()):
            self._cut = self._cut or choice.get("finish_reason") == "length"
            text += choice["delta"].get("content") or ""
        self._pieces.append(text)
        return self._on_text(text)

    def reply(self) -> EngineReply:
        text = "".join(self._pieces)
        if self._raised is not None:
            raise self._raised
        if self._error is not None:
            kind = _FAULTS.get(str(self._error.get("type")), "ServerError")
            raise Fault(
                kind, str(self._error.get("message", "llama.cpp gave no reason")), partial=text
            )
        return EngineReply(text, self._cut, self._usage)


# ── loading ──────────────────────────────────────────────────────────────────────────────────


def _load(path: Path, context_tokens: int) -> Any:
    try:
        native = import_module("xllamacpp")
        with _folder() as folder:
            return native.Server(_settings(native, path, context_tokens, f"{folder}/llama.sock"))
    except (ImportError, AttributeError, RuntimeError, ValueError, OSError) as error:
        raise Fault("BadModel", f"{path.name} could not be loaded by llama.cpp: {error}") from error


@contextmanager
def _folder() -> Generator[str]:
    """Make a folder for the socket, while the model loads."""
    folder = tempfile.mkdtemp(
        prefix="plait-", dir=None if len(tempfile.gettempdir()) <= _SOCKET_PATH_MAX else "/tmp"
    )
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _settings(native: Any, path: Path, context_tokens: int, socket: str) -> Any:
    settings = native.CommonParams()
    settings.model.path = str(path)
    settings.n_ctx = context_tokens
    settings.n_parallel = 1
    settings.n_batch = settings.n_ubatch = BATCH_TOKENS
    settings.n_gpu_layers = 0
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = settings.n_threads_http = 1
    settings.hostnames = [socket]
    settings.ui = False
    settings.offline = True
    settings.verbosity = -1  # it logs to the program's own stderr otherwise
    settings.warmup = False
    settings.cache_ram_mib = 0  # old prompts kept beside the context: up to 8 GB by default
    return settings


# ── one per process ──────────────────────────────────────────────────────────────────────────


class _EngineTable:
    """The engines of this process, by weights and size of the context."""

    def __init__(self) -> None:
        self.engines: dict[tuple[Path, int], Engine] = {}
        self.lock = Lock()
        self.is_forked = False  # True: it was forked from a process that had a model loaded


_process = _EngineTable()


def engine(path: Path, context_tokens: int) -> Engine:
    """Return the engine for these weights. Nothing is loaded yet."""
    with _process.lock:
        return _process.engines.setdefault((path, context_tokens), Engine(path, context_tokens))


def _close() -> None:
    for one in _process.engines.values():
        one.forget() if _process.is_forked else one.close()


def _after_fork() -> None:
    _process.lock = Lock()
    if any([one.forget() for one in _process.engines.values()]) and not _process.is_forked:
        _process.is_forked = True
        _leave_at_once()


def _leave_at_once() -> None:
    """The native library cleans up after threads that this process never had, at its very end, and
    dies of it. So that end is left out.

    Python itself has ended properly by then: this is the last thing that C does.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):
        libc.on_exit(libc._exit, None)


atexit.register(_close)
os.register_at_fork(after_in_child=_after_fork)
