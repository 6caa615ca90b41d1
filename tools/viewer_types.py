"""Write viewer/src/shapes.ts: the types of the page, made from the structs of outline and server.

python tools/viewer_types.py           writes the file
python tools/viewer_types.py --check   exits with 1 if it is not up to date
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import msgspec.inspect as ins

import plait.outline.shapes as outline_shapes
import plait.server.live_shapes as live_shapes
import plait.server.params as server_params
import plait.server.shapes as server_shapes
from plait.server.routes import ROUTES

TARGET = Path(__file__).parents[1] / "viewer" / "src" / "shapes.ts"
MODULES = (outline_shapes, server_shapes, live_shapes, server_params)
HEAD = """\
// Made by tools/viewer_types.py from the structs of the server. Do not edit: run the tool.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
"""
_BASES = {"Shape", "Params"}


def type_text(kind: ins.Type, names: dict[frozenset[object], str]) -> str:
    """Return the TypeScript type of a type of msgspec."""
    match kind:
        case ins.AnyType():
            return "Json"
        case ins.NoneType():
            return "null"
        case ins.BoolType():
            return "boolean"
        case ins.IntType() | ins.FloatType():
            return "number"
        case ins.StrType():
            return "string"
        case ins.LiteralType(values):
            return names.get(frozenset(values), _literals(values))
        case ins.StructType(cls):
            return cls.__name__
        case ins.DictType(key_type, value_type):
            key = "number" if isinstance(key_type, ins.IntType) else "string"
            return f"{{ [key: {key}]: {type_text(value_type, names)} }}"
        case ins.TupleType(item_types):
            return f"[{', '.join(type_text(each, names) for each in item_types)}]"
        case ins.VarTupleType(item_type) | ins.ListType(item_type):
            inner = type_text(item_type, names)
            return f"({inner})[]" if " " in inner and not inner.startswith("{") else f"{inner}[]"
        case ins.UnionType(types):
            texts = dict.fromkeys(type_text(each, names) for each in types)
            return "Json" if "Json" in texts else " | ".join(texts)
        case _:
            raise TypeError(f"no TypeScript for {kind}")


def _literals(values: Iterable[object]) -> str:
    return " | ".join(json.dumps(value) for value in values)


def _aliases() -> Iterator[tuple[str, Any]]:
    """Yield the names of sets of texts, as `StepType`."""
    from plait.session.life import Status
    from plait.session.trace import Relation
    from plait.session.views import WaitKind

    yield from {"Status": Status, "Relation": Relation, "WaitKind": WaitKind}.items()
    for module in MODULES:
        for name, value in vars(module).items():
            if get_origin(value) is Literal and name not in ("Status", "Relation", "WaitKind"):
                yield name, value


def _structs() -> Iterator[type[msgspec.Struct]]:
    for module in MODULES:
        for name, value in vars(module).items():
            is_struct = isinstance(value, type) and issubclass(value, msgspec.Struct)
            if is_struct and value.__module__ == module.__name__ and name not in _BASES:
                yield value


def _remarks(cls: type[msgspec.Struct]) -> dict[str, str]:
    """Return the comments at the ends of a struct's lines, by field."""
    lines = [line for each in reversed(cls.__mro__[:-2]) for line in _source_lines(each)]
    found = [re.match(r"    (\w+): .*?  # (.*)$", line) for line in lines]
    return {match[1]: match[2] for match in found if match is not None}


def _source_lines(cls: type) -> list[str]:
    in_house = cls.__module__.startswith("plait.")
    return inspect.getsource(cls).splitlines() if in_house else []


def struct_text(cls: type[msgspec.Struct], names: dict[frozenset[object], str]) -> str:
    """Return the interface of a struct; of one that is sent as a list, a tuple."""
    info = ins.type_info(cls)
    assert isinstance(info, ins.StructType)
    may_lack = cls.__module__ == server_params.__name__ or cls.__struct_config__.omit_defaults
    remarks = _remarks(cls)
    lines = list[str]()
    for field in info.fields:
        is_optional = not field.required and (may_lack or field.default is msgspec.UNSET)
        text = type_text(field.type, names)
        if info.array_like:
            lines.append(f"{field.encode_name}: {text}")
        else:
            remark = f" // {remarks[field.name]}" if field.name in remarks else ""
            mark = "?" if is_optional else ""
            lines.append(f"  {field.encode_name}{mark}: {text};{remark}")
    doc = (cls.__doc__ or "").strip()
    about = f"/** {' '.join(doc.split())} */\n" if doc and not doc.startswith(cls.__name__) else ""
    if info.array_like:
        return f"{about}export type {cls.__name__} = [{', '.join(lines)}];\n"
    if not lines:
        return f"{about}export type {cls.__name__} = Record<string, never>;\n"
    return f"{about}export interface {cls.__name__} {{\n" + "\n".join(lines) + "\n}\n"


def routes_text() -> str:
    """Return the table of routes: their types, and their methods and paths as values."""
    types, values = list[str](), list[str]()
    for route in ROUTES:
        params = route.params.__name__ if route.params is not None else "null"
        body = route.body.__name__ if route.body is not None else "null"
        answer = route.answer.__name__ if route.answer is not None else "null"
        types.append(f"  {route.name}: {{ params: {params}; body: {body}; answer: {answer} }};")
        values.append(f'  {route.name}: {{ method: "{route.method}", path: "{route.path}" }},')
    return (
        "/** The routes of the server, by name: parameters of path and query, body, answer. */\n"
        "export interface Routes {\n" + "".join(f"{each}\n" for each in types) + "}\n\n"
        "export const ROUTES: { readonly [name in keyof Routes]: { method: string; path: string } }"
        " = {\n" + "".join(f"{each}\n" for each in values) + "};\n"
    )


def typescript() -> str:
    """Return the whole file."""
    aliases = list(dict(_aliases()).items())
    names = dict[frozenset[object], str]()
    for name, value in aliases:
        names.setdefault(frozenset(get_args(value)), name)
    texts = [f"export type {name} = {_literals(get_args(value))};\n" for name, value in aliases]
    structs = [struct_text(cls, names) for cls in _structs()]
    return "\n".join([HEAD, *texts, *structs, routes_text()])


def main() -> int:
    text = typescript()
    if "--check" in sys.argv[1:]:
        is_same = TARGET.exists() and TARGET.read_text() == text
        print("up to date" if is_same else f"out of date: run {sys.argv[0]}")
        return 0 if is_same else 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
