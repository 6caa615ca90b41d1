"""Facts about code: a digest of its instructions, and the names and modules that it uses."""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple, cast

import msgspec

from plait.ids import digest

TAG = b"plait/fingerprint/1"
encode_sorted = msgspec.json.Encoder(order="deterministic").encode


ImportedModule = tuple[str, int]  # a module, and how many packages up


class CodeFacts(NamedTuple):
    """The digest of code and of the code inside it, and the names that they use."""

    digest: str
    globals: tuple[str, ...]  # names that it looks up around it
    attributes: tuple[str, ...]
    imports: tuple[ImportedModule, ...]
    items: tuple[tuple[ImportedModule, str], ...]  # imported from them; may be modules, too
    stored: frozenset[str]  # globals that it sets


@lru_cache(4096)
def facts_of(code: CodeType) -> CodeFacts:
    names: dict[str, set[Any]] = {
        kind: set() for kind in ("global", "attribute", "stored", "import", "item", "text")
    }
    read = _steps(code, names)
    if {"import_module", "__import__"} & (names["attribute"] | names["global"]):
        names["import"] |= {(text, 0) for text in names["text"]}
    found = {kind: tuple(sorted(each)) for kind, each in names.items()}
    text = digest(TAG, encode_sorted(read))
    return CodeFacts(
        text,
        found["global"],
        found["attribute"],
        found["import"],
        found["item"],
        frozenset(found["stored"]),
    )


@lru_cache(1024)
def facts_of_source(source: bytes) -> CodeFacts:
    return facts_of(compile(source, "", "exec", dont_inherit=True))


def absolute_name(wanted: ImportedModule, package: str) -> str:
    name, level = wanted
    if not level:
        return name
    above = package.split(".")
    return ".".join([*above[: len(above) - level + 1], *([name] if name else [])])


def _steps(code: CodeType, names: dict[str, set[Any]]) -> Any:
    """Return the instructions, constants by value and not by number; add to the names in use."""
    steps: list[Any] = []
    level = 0
    listed = list(dis.get_instructions(code))
    for at, step in enumerate(listed):
        after = listed[at + 1] if at + 1 < len(listed) else None
        if after is not None and after.argval == "__firstlineno__" and after.opname == "STORE_NAME":
            continue  # the number of a line
        name, value = step.opname, step.argval
        if name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            names["global"].add(value)
        elif name in ("LOAD_ATTR", "LOAD_METHOD"):
            names["attribute"].add(value)
        elif name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            names["stored"].add(value)
        elif name == "IMPORT_NAME":
            names["import"].add((value, level))
            before = listed[at - 1].argval
            names["item"] |= {((value, level), item) for item in before or () if item != "*"}
        if name == "LOAD_SMALL_INT" or (step.opcode in dis.hasconst and type(value) is int):
            level = value  # an import has its level two constants before it
        if step.opcode in dis.hasconst:
            steps.append([name, _constant(value, names)])
        else:
            steps.append([name, step.arg, value if isinstance(value, str) else None])
    shape = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
    variables = [*code.co_varnames, *code.co_cellvars, *code.co_freevars]
    return [shape, variables, steps, getattr(code, "co_exceptiontable", b"").hex()]


def _constant(value: Any, names: dict[str, set[Any]]) -> Any:
    if isinstance(value, CodeType):
        return ["code", value.co_name, _steps(value, names)]
    if isinstance(value, str) and all(part.isidentifier() for part in value.split(".")):
        names["text"].add(value)
    if isinstance(value, tuple):
        return ["tuple", *[_constant(item, names) for item in cast("tuple[Any, ...]", value)]]
    if isinstance(value, frozenset):
        items = [_constant(item, names) for item in cast("frozenset[Any]", value)]
        return ["frozenset", *sorted(items, key=encode_sorted)]
    return [type(value).__name__, ascii(value)]
