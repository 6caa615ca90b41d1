"""Settings of models: those of the environment, and below them those of the file plait.toml.

The file stands beside the folder of the store, so beside `.plait` in most projects; in the current
folder if the store has none. It can be committed: it names the environment variables of keys, and
holds no key itself. It is read anew when it has changed. docs/settings.md lists every setting.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any, cast

import msgspec

from plait.errors import BadSettings, InvalidValue
from plait.model.prices import TokenPrice, token_price
from plait.store import folder_of, locate
from plait.store.trust import owner_fault

FILE_NAME = "plait.toml"
FILE_VARIABLE = "PLAIT_SETTINGS"
MODEL_VARIABLE = "PLAIT_MODEL"
# settings that the environment sets for every model, before the file
VARIABLES = {
    "timeout_s": "PLAIT_TIMEOUT_S",
    "requests_per_minute": "PLAIT_REQUESTS_PER_MINUTE",
    "tokens_per_minute": "PLAIT_TOKENS_PER_MINUTE",
    "concurrency": "PLAIT_CONCURRENCY",
}


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of one model, or of all models of a provider. None: not set here."""

    base_url: str | None = None
    model: str | None = None  # the name that the server knows it by
    key: str | None = None  # the environment variable that has its key
    api_version: str | None = None
    timeout_s: float | None = None  # of silence
    headers: dict[str, str] | None = None  # a value "$NAME" is that of the environment variable
    price: TokenPrice | None = None  # dollars per million tokens
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None  # asks at a time
    shared: bool | None = None  # the limits per minute are for all processes of a store

    def over(self, other: ModelSettings) -> ModelSettings:
        """Return these settings, and those of another where these say nothing."""
        if self is _NONE or other is _NONE:  # as most are, and each ask looks
            return other if self is _NONE else self
        both = {
            name: getattr(self, name) if getattr(self, name) is not None else getattr(other, name)
            for name in self.__struct_fields__
        }
        return ModelSettings(**both)

    def header_values(self) -> dict[str, str]:
        """Return the headers with the values of environment variables in place of their names."""
        found: dict[str, str] = {}
        for name, value in (self.headers or {}).items():
            variable = value[1:] if value.startswith("$") else ""
            if variable and variable not in os.environ:
                why = f"the environment variable {variable} is not set"
                raise BadSettings(FILE_NAME, 0, f"headers.{name}", why, f"set {variable}")
            found[name] = os.environ[variable] if variable else value
        return found


_NONE = ModelSettings()


class ProjectSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The share of one project of the workers. None: not set here."""

    weight: float | None = None
    running_max: int | None = None
    queued_max: int | None = None


class FileSettings(msgspec.Struct, frozen=True):
    """The content of plait.toml."""

    model: str | list[str] | None = None  # where an agent names none
    models: dict[str, ModelSettings] = {}
    projects: dict[str, ProjectSettings] = {}  # "*": every project without a table


_NO_FILE = FileSettings()


class _SettingsFile:
    """The file as it was last read. One for the process; a forked child has a lock of its own."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._read: tuple[tuple[str, int, int] | None, FileSettings] = (None, _NO_FILE)
        self._places: dict[tuple[str, str], Path] = {}

    def settings(self) -> FileSettings:
        path = self._path()
        try:
            found = os.stat(path)
        except OSError:
            if os.environ.get(FILE_VARIABLE):
                step = f"correct {FILE_VARIABLE}, or unset it"
                raise BadSettings(str(path), 0, "", "there is no such file", step) from None
            return _NO_FILE
        stamp = (str(path), found.st_mtime_ns, found.st_size)
        with self._lock:
            if self._read[0] != stamp:
                if (fault := owner_fault(path, found, os.environ)) is not None:
                    step = "use a file of your own: it says where keys are sent to"
                    raise BadSettings(str(path), 0, "", fault, step)
                try:
                    text = path.read_text("utf-8", "replace")
                except OSError as error:
                    why = f"it cannot be read: {error.strerror}"
                    raise BadSettings(str(path), 0, "", why, "make it a file of yours") from None
                self._read = stamp, parse_settings(text, str(path))
            return self._read[1]

    def _path(self) -> Path:
        if given := os.environ.get(FILE_VARIABLE):
            return Path(given).expanduser()
        key = os.getcwd(), os.environ.get("PLAIT_STORE", "")
        if key not in self._places:
            folder = folder_of(locate(Path(key[0]), os.environ))
            # a store without a folder is used from a folder of a project
            self._places[key] = (folder.parent if folder else Path(key[0])) / FILE_NAME
        return self._places[key]

    def start_child(self) -> None:
        self._lock = Lock()


_file = _SettingsFile()
os.register_at_fork(after_in_child=_file.start_child)


def settings_of(name: str) -> ModelSettings:
    """Return the settings of a model: of the environment, else of its table in the file, else of
    the table of its provider.
    """
    models = _file.settings().models
    own, provider = models.get(name, _NONE), models.get(name.partition(":")[0], _NONE)
    return _of_environment().over(own).over(provider if provider is not own else _NONE)


def project_settings() -> Mapping[str, ProjectSettings]:
    """Return the settings of projects by their names."""
    return _file.settings().projects


def default_model() -> tuple[str | list[str] | None, str]:
    """Return the model of an agent that names none, and where that is written. None: nowhere."""
    if named := os.environ.get(MODEL_VARIABLE):
        return named, MODEL_VARIABLE
    return _file.settings().model, FILE_NAME


def _of_environment() -> ModelSettings:
    given = {name: os.environ[each] for name, each in VARIABLES.items() if os.environ.get(each)}
    if not given:
        return _NONE
    for name, value in given.items():
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if why := _misfit_of_number(name, number):
            step = f"set {VARIABLES[name]} to a number above 0, or unset it"
            raise BadSettings("the environment", 0, VARIABLES[name], f"{value!r} {why}", step)
    return msgspec.convert(given, ModelSettings, strict=False)


# ── reading the file ─────────────────────────────────────────────────────────────────────────


def parse_settings(text: str, path: str) -> FileSettings:
    """Return the settings in a text of TOML; raise BadSettings with the line and the key."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"line (\d+)", str(error))
        why = str(error).partition(" (at ")[0]
        line = int(at[1]) if at else text.count("\n") + 1
        raise BadSettings(path, line, "", f"it is not TOML: {why}", "correct the line") from None
    for key in found:
        if key not in FileSettings.__struct_fields__:
            raise _bad(text, path, [key], "there is no such setting", _names(FileSettings))
    models, projects = [_tables_in(found, name, text, path) for name in ("models", "projects")]
    return FileSettings(
        _model_named(found.get("model"), text, path),
        {name: _model_table(name, table, text, path) for name, table in models.items()},
        {name: _project_table(name, table, text, path) for name, table in projects.items()},
    )


def _tables_in(found: dict[str, Any], name: str, text: str, path: str) -> dict[str, Any]:
    tables: Any = found.get(name, {})
    if not isinstance(tables, dict):
        raise _bad(text, path, [name], "it is not a table", f"write [{name}.NAME]")
    return cast("dict[str, Any]", tables)


def _model_named(given: Any, text: str, path: str) -> str | list[str] | None:
    try:
        return msgspec.convert(given, str | list[str] | None)
    except msgspec.ValidationError:
        step = 'write model = "openai:gpt-5", or a list of names'
        raise _bad(text, path, ["model"], "it is not a name or a list of names", step) from None


def _model_table(name: str, table: Any, text: str, path: str) -> ModelSettings:
    where = ["models", name]
    given = _checked_table(where, table, ModelSettings, text, path)
    for key, value in given.items():
        try:
            if key == "price":
                given = {**given, key: token_price(value)}
            else:
                _check_setting(key, value, ModelSettings)
        except InvalidValue as error:
            step = _PRICE if key == "price" else error.step
            raise _bad(text, path, [*where, key], error.why, step) from None
        if key == "base_url" and not str(value).startswith(("http://", "https://")):
            step = 'write base_url = "https://HOST/v1"'
            raise _bad(text, path, [*where, key], "it is not an address of the web", step)
    return msgspec.convert(given, ModelSettings)


def _project_table(name: str, table: Any, text: str, path: str) -> ProjectSettings:
    where = ["projects", name]
    given = _checked_table(where, table, ProjectSettings, text, path)
    for key, value in given.items():
        try:
            _check_setting(key, value, ProjectSettings)
        except InvalidValue as error:
            raise _bad(text, path, [*where, key], error.why, error.step) from None
    return msgspec.convert(given, ProjectSettings)


def _checked_table(
    where: list[str], table: Any, kind: type[msgspec.Struct], text: str, path: str
) -> dict[str, Any]:
    """Return a table all of whose keys are settings."""
    if not isinstance(table, dict):
        step = f'write [{where[0]}."{where[1]}"]'
        raise _bad(text, path, where, "it is not a table", step)
    for key in cast("dict[str, Any]", table):
        if key not in kind.__struct_fields__:
            raise _bad(text, path, [*where, key], "there is no such setting", _names(kind))
    return cast("dict[str, Any]", table)


def _check_setting(key: str, value: Any, kind: type[msgspec.Struct]) -> None:
    """Raise InvalidValue unless a setting can have this value."""
    try:
        msgspec.convert({key: value}, kind)
    except msgspec.ValidationError as error:
        why = str(error).partition(" - at")[0]
        raise InvalidValue(key, why, "see docs/settings.md") from None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and (why := _misfit_of_number(key, cast("float", value))):
        raise InvalidValue(key, f"{value!r} {why}", "write a number above 0")


_PRICE = "write price = [0.5, 1.5], dollars per million input and output tokens"


_FRACTIONS = frozenset({"timeout_s", "weight"})


def _misfit_of_number(key: str, value: float) -> str:
    if not 0 < value < math.inf:
        return "is not a number above 0"
    return "is not a whole number" if key not in _FRACTIONS and value != int(value) else ""


def _names(struct: type[msgspec.Struct]) -> str:
    return f"use one of {', '.join(struct.__struct_fields__)}"


def _bad(text: str, path: str, keys: list[str], why: str, step: str) -> BadSettings:
    return BadSettings(path, _line_of(text, keys), ".".join(keys), why, step)


def _line_of(text: str, keys: list[str]) -> int:
    """Return the line on which a key is set, as far as it can be found: TOML's reader keeps no
    lines. It is that of the last key that is found, from the first one on.
    """
    lines, at, found = text.splitlines(), 0, 0
    for key in keys:
        spelled = rf"""(^|[\s.\[{{,"']){re.escape(key)}["']?\s*([=.\]]|$)"""
        for number in range(at, len(lines)):
            if re.search(spelled, lines[number].partition("#")[0]):
                at, found = number, number + 1
                break
    return found


def table_of_settings() -> Mapping[str, str]:
    """Return every setting of the file with the variable that is before it, "" if there is none.

    docs/settings.md lists the same.
    """
    listed = {f"models.NAME.{name}": VARIABLES.get(name, "") for name in _NONE.__struct_fields__}
    shares = {f"projects.NAME.{name}": "" for name in ProjectSettings.__struct_fields__}
    return {"model": MODEL_VARIABLE, **listed, **shares}
