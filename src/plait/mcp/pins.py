"""Accepted definitions: kept by the server object, and in a file if one is named.

The file may serve several servers and processes: it is read and replaced under a lock, whole. It is
JSON in ASCII, so that hidden characters of a description can be seen there.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from plait.errors import InvalidInput, InvalidValue
from plait.event.strict import parse
from plait.ids import Digest
from plait.mcp.definition import Definition

_FORMAT = 1


class _Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    digest: Digest
    definition: Definition


class _PinFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    servers: dict[str, dict[str, _Pin]]


class Pins:
    """Accepted definitions of one server, by tool."""

    def __init__(self, server: str, path: Path | None) -> None:
        self._server, self._path = server, path
        self._accepted: dict[str, Definition] = {}

    def get(self, tool: str) -> Definition | None:
        return self._accepted.get(tool)

    def all(self) -> Mapping[str, Definition]:
        return self._accepted

    def load(self) -> None:
        """Read the file again; another process may have accepted something."""
        if self._path and self._path.exists():
            self._accepted = {
                name: pin.definition
                for name, pin in _read_file(self._path).servers.get(self._server, {}).items()
            }

    def accept(self, found: Mapping[str, Definition | None]) -> None:
        """Pin these; None: forget it."""
        if not found:
            return
        if self._path is None:
            self._merge(found)
            return
        with _file_lock(self._path):
            self.load()
            self._merge(found)
            servers = dict(_read_file(self._path).servers) if self._path.exists() else {}
            servers[self._server] = {
                name: _Pin(definition.digest, definition)
                for name, definition in sorted(self._accepted.items())
            }
            _write(self._path, _PinFile(_FORMAT, servers))

    def _merge(self, found: Mapping[str, Definition | None]) -> None:
        merged = {**self._accepted, **found}
        self._accepted = {
            name: definition for name, definition in merged.items() if definition is not None
        }


def _read_file(path: Path) -> _PinFile:
    """Read a file of pins. One that cannot be trusted is refused: pins must not change in
    silence.
    """
    try:
        found = msgspec.convert(parse(path.read_bytes()), _PinFile)
    except (OSError, InvalidInput, msgspec.ValidationError) as error:
        raise _bad_pins_error(path, str(error)) from error
    if found.format != _FORMAT:
        raise _bad_pins_error(path, f"format {found.format} is not known")
    for server, pins in found.servers.items():
        for name, pin in pins.items():
            if pin.definition.digest != pin.digest or pin.definition.name != name:
                raise _bad_pins_error(
                    path, f"the digest of {name} of {server} is not that of its definition"
                )
    return found


def _bad_pins_error(path: Path, why: str) -> InvalidValue:
    return InvalidValue(str(path), why, "restore the file, or delete it to accept every tool anew")


def _write(path: Path, content: _PinFile) -> None:
    plain: Any = msgspec.to_builtins(content)
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("w", encoding="ascii") as file:
            json.dump(plain, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _file_lock(path: Path) -> Generator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
