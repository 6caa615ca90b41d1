"""The examples of a dataset: JSON lines, or rows of a Python program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from plait.errors import InvalidInput, InvalidValue
from plait.event import Json, parse
from plait.ids import Digest, digest

ID_MAX = 120  # characters of the id of an example
_ROW = 'write a row as {"id": …, "input": …, "expected": …}'


class EvalExample(msgspec.Struct, frozen=True):
    """One row of a dataset."""

    id: str
    input: Json  # the first message of each session: a text, an object or a list
    args: dict[str, Json]  # passed to `forward` besides the session
    row: dict[str, Json]  # all of it, with fields that only scorers read

    @property
    def digest(self) -> Digest:
        """The digest of the row, by which two evaluations know that they mean the same."""
        encoded = msgspec.json.encode(self.row, order="deterministic")
        return digest(b"plait/example/1", encoded)


def read_dataset(source: str | Path | Iterable[Mapping[str, Any]]) -> list[EvalExample]:
    """Return the examples of a file of JSON lines, or of rows. Raises InvalidValue, with file, line
    and field, for the first row that is none.
    """
    is_file = isinstance(source, (str, Path))
    rows = _file_rows(Path(source)) if is_file else _given_rows(source)
    found, places = list[EvalExample](), dict[str, str]()
    for number, (where, row) in enumerate(rows, 1):
        example = _example(where, number, row)
        if example.id in places:
            why = f"field id: {example.id!r} is the id of {places[example.id]} already"
            raise InvalidValue(where, why, "give each example an id of its own")
        places[example.id] = where
        found.append(example)
    if not found:
        name = str(source) if is_file else "examples"
        raise InvalidValue(name, "it has no examples", _ROW)
    return found


def _file_rows(file: Path) -> Iterator[tuple[str, object]]:
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise InvalidValue(str(file), f"{error.strerror or error}", "check the path") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            row = parse(line)
        except InvalidInput as error:
            raise InvalidValue(where, f"it is not JSON: {error}", _ROW) from error
        yield where, row


def _given_rows(rows: Iterable[object]) -> Iterator[tuple[str, object]]:
    for number, row in enumerate(rows, 1):
        where = f"examples, row {number}"
        try:
            yield where, parse(msgspec.json.encode(row))
        except (TypeError, ValueError, InvalidInput) as error:
            raise InvalidValue(where, f"it is not plain data: {error}", _ROW) from error


def _example(where: str, number: int, row: object) -> EvalExample:
    if not isinstance(row, dict):
        raise InvalidValue(where, f"it is a {type(row).__name__}, not an object", _ROW)
    fields = cast("dict[str, Json]", row)
    id, said, args = fields.get("id", number), fields.get("input"), fields.get("args", {})
    if isinstance(id, bool) or not isinstance(id, (str, int)) or not 0 < len(str(id)) <= ID_MAX:
        step = f"write a text of 1 to {ID_MAX} characters, or a number"
        raise InvalidValue(where, f"field id: {id!r:.60} is not an id", step)
    if not str(id).isprintable() or str(id) != str(id).strip():
        step = "write it without control characters, and without spaces around it"
        raise InvalidValue(where, f"field id: {id!r:.60} is not an id", step)
    if not isinstance(said, (str, dict, list)) or not said or str(said).isspace():
        why = "it is missing" if "input" not in fields else f"{said!r:.60} says nothing"
        raise InvalidValue(where, f"field input: {why}", "write a text, an object or a list")
    if not isinstance(args, dict):
        step = 'write what forward takes besides the session: {"NAME": VALUE}'
        raise InvalidValue(where, f"field args: {args!r:.60} is not an object", step)
    return EvalExample(str(id), said, args, fields)
