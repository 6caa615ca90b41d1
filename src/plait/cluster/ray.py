"""Workers on a running Ray cluster: so many actors for each label, kept alive.

Ray gives machines, resources and code. It holds no state of Plait's: an actor that goes, with its
node or alone, is a worker that died, and others take its runs over. Importing this module loads no
Ray.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module, util
from pathlib import Path
from typing import Any

from plait.cluster.programs import served_programs
from plait.cluster.submitting import check_labels
from plait.cluster.worker import GRACE_S, Worker
from plait.errors import InvalidValue, MissingExtra
from plait.store import canonical_address

_LOOK_S = 1.0
_PAUSE_S = 2.0  # before a worker that ended is replaced
_log = logging.getLogger("plait.worker")


class RayWorker:
    """A worker inside an actor."""

    def __init__(self, address: str, modules: Sequence[str], label: str, slots: int) -> None:
        from plait import open_store

        self._worker = Worker(open_store(address), modules, labels=[label], slots=slots)

    def serve(self) -> dict[str, int]:
        """Execute runs until the worker is drained; return how many stopped how."""
        self._worker.serve()
        return self._worker.ended

    def drain(self) -> None:
        self._worker.drain()


class RayCluster:
    """So many workers for each label, on a Ray cluster."""

    def __init__(
        self,
        address: str,
        workers: Mapping[str, int],
        *,
        store: str | Path,
        modules: Sequence[str],
        slots: int = 4,
        runtime_env: Mapping[str, Any] | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Start the workers; `with` or `stop()` drains them.

        A worker with a label takes 1 of the custom resource of that name, and one processor;
        `options` has other options of its actor, by label, as {"gpu": {"num_gpus": 1}}. The
        top-level packages of `modules` are sent along, unless `runtime_env` says what is. A process
        that has called `ray.init` before has said there what is sent.
        """
        served_programs(modules)
        check_labels(workers, "workers")
        for label, count in workers.items():
            if isinstance(count, bool) or not 1 <= count <= 10_000:
                why = f"{count!r:.40} is not a count of workers with {label}"
                raise InvalidValue("workers", why, "pass 1 to 10000")
        if not workers:
            raise InvalidValue("workers", "there are none", 'pass {"linux": 2}')
        try:
            self._ray: Any = import_module("ray")
        except ImportError as error:
            raise MissingExtra("RayCluster", "ray", str(error)) from error
        if not self._ray.is_initialized():
            sent = {"py_modules": _package_folders(modules)} if runtime_env is None else runtime_env
            self._ray.init(address=address, log_to_driver=False, runtime_env=dict(sent))
        self._how = (canonical_address(str(store)), tuple(modules))
        self._slots, self._options = slots, dict(options or {})
        self._actors: dict[Any, tuple[str, Any]] = {}  # by the promise of their end
        self._is_stopping = threading.Event()
        for label, count in workers.items():
            for _ in range(count):
                self._start(label)
        self._keeper = threading.Thread(target=self._keep, name="plait-ray", daemon=True)
        self._keeper.start()

    def __len__(self) -> int:
        """The count of actors, those that wait for their resources too."""
        return len(self._actors)

    def _start(self, label: str) -> None:
        made = self._ray.remote(RayWorker).options(
            num_cpus=1,
            max_concurrency=2,  # one serves, one is asked to drain
            max_restarts=0,
            **{"resources": {label: 1}, **self._options.get(label, {})},
        )
        address, modules = self._how
        actor = made.remote(address, modules, label, self._slots)
        self._actors[actor.serve.remote()] = (label, actor)

    def _keep(self) -> None:
        """Replace the actors that ended without being asked to."""
        while not self._is_stopping.wait(_LOOK_S):
            ended, _ = self._ray.wait([*self._actors], num_returns=len(self._actors), timeout=0)
            for promise in ended:
                label, actor = self._actors.pop(promise)
                _log.warning("a worker with %s ended: %s", label, self._end_of(promise))
                self._ray.kill(actor)
                self._start(label)
            if ended:
                self._is_stopping.wait(_PAUSE_S)

    def _end_of(self, promise: Any) -> str:
        """Return how an actor ended, in words."""
        try:
            return f"drained, {self._ray.get(promise)}"
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:200]}"

    def stop(self, timeout_s: float = GRACE_S + 30) -> None:
        """Drain the workers, and end those that do not come to their end in time."""
        self._is_stopping.set()
        self._keeper.join()
        for _, actor in self._actors.values():
            actor.drain.remote()
        promises, until = [*self._actors], time.monotonic() + timeout_s
        self._ray.wait(promises, num_returns=len(promises), timeout=until - time.monotonic())
        for _, actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _package_folders(modules: Sequence[str]) -> list[str]:
    """Return the folders of the top-level packages of modules."""
    found = list[str]()
    for package in sorted({module.partition(":")[0].partition(".")[0] for module in modules}):
        spec = util.find_spec(package)
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
        if not folders:
            step = "put it into a package, or pass runtime_env={'working_dir': FOLDER}"
            raise InvalidValue("modules", f"{package} is a file, which Ray does not send", step)
        found += folders[:1]
    return found
