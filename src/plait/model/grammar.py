"""Grammars that bound the output of a small model.

A small model that is given a schema fills it for as long as it may: a string runs on, a list never
ends. So everything that a schema leaves open is bounded before it becomes a grammar. Generated
values satisfy the schema as it was; the reverse need not hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from plait.event import Json

CHARACTERS_MAX = 80  # of a free string
ITEMS_MAX = 4  # of a list, and keys of a free object
NUMBER_MAX = 1_000_000_000

Schema = Mapping[str, Json]

_TEXT: Schema = {"type": "string", "maxLength": CHARACTERS_MAX}
_WHOLE: Schema = {"type": "integer", "minimum": -NUMBER_MAX, "maximum": NUMBER_MAX}
_SCALAR: Schema = {"anyOf": [_TEXT, _WHOLE, {"type": "boolean"}, {"type": "null"}]}

_NOTES = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
    }
)
_NAMED = ("properties", "$defs", "definitions", "patternProperties")  # a schema under each name
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties")


def grammar(schema: Json, lead: str = "") -> str:
    """Return the grammar of `lead`, then an object of this schema with no white space around.

    A grammar that the runtime cannot read is ignored by it, without a word; a text that does not
    begin with `lead` shows that.
    """
    # Lenient: a keyword it does not know is passed over. The runtime of the agent checks the whole
    # schema anyway.
    rules = msgspec.json.encode(
        {
            **_schema(without_keyword(schema, "discriminator")),
            "x-guidance": {"whitespace_flexible": False, "lenient": True},
        }
    ).decode()
    return (
        f"%llguidance {{}}\nstart: {_quote(lead) + ' ' if lead else ''}value\nvalue: %json {rules}"
    )


def bound_schema(schema: Json) -> Json:
    """Return the schema with a limit on everything that has none."""
    if not isinstance(schema, Mapping):
        return dict(_SCALAR) if schema is True else schema
    if not schema.keys() - _NOTES:
        return {**schema, **_SCALAR}
    return _bound_types({key: _bound_inner(key, value) for key, value in schema.items()})


def loose_schema(schema: Json) -> Json:
    """Return a schema with the same keys and simple values, for one that makes no grammar."""
    names = list(_map(_schema(schema).get("properties")))
    if not names:
        return _open({"type": "object"})
    return {
        "type": "object",
        "properties": {name: _SCALAR for name in names},
        "required": list(names),
        "additionalProperties": False,
    }


def without_keyword(schema: Json, keyword: str) -> Json:
    """Return the schema without a keyword, at any depth; a property may be called so."""
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Json] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            found[key] = {name: without_keyword(each, keyword) for name, each in value.items()}
        elif key in _LISTED and isinstance(value, Sequence) and not isinstance(value, str):
            found[key] = [without_keyword(each, keyword) for each in value]
        elif key != keyword:
            found[key] = without_keyword(value, keyword) if key in _SINGLE else value
    return found


def _bound_inner(key: str, value: Json) -> Json:
    if key in _NAMED and isinstance(value, Mapping):
        return {name: bound_schema(inner) for name, inner in value.items()}
    if key in _LISTED and isinstance(value, Sequence) and not isinstance(value, str):
        return [bound_schema(inner) for inner in value]
    return bound_schema(value) if key in _SINGLE else value


def _bound_types(schema: Schema) -> Schema:
    if "enum" in schema or "const" in schema:
        return schema
    kinds = _kinds(schema)
    if "string" in kinds and "format" not in schema:
        schema = _at_most(schema, "maxLength", "minLength", CHARACTERS_MAX)
    if "array" in kinds:
        schema = _at_most({"items": _SCALAR, **schema}, "maxItems", "minItems", ITEMS_MAX)
    if kinds & {"integer", "number"}:
        schema = _near(schema)
    return _open(schema) if "object" in kinds else schema


def _kinds(schema: Schema) -> set[Json]:
    kind = schema.get("type")
    if isinstance(kind, Sequence) and not isinstance(kind, str):
        return set(cast("list[str]", kind))
    return {"object"} if kind is None and "properties" in schema else {cast("str", kind)}


def _at_most(schema: Schema, most: str, least: str, limit: int) -> Schema:
    wanted, needed = schema.get(most), schema.get(least)
    top = min(wanted, limit) if isinstance(wanted, int) else limit
    return {**schema, most: max(top, needed) if isinstance(needed, int) else top}


def _near(schema: Schema) -> Schema:
    """Bound numbers to a few digits; a given bound stays, and the other one is set to fit it."""
    low, high = (
        _number(schema, *keys)
        for keys in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))
    )
    if low is None:
        schema = {
            **schema,
            "minimum": -NUMBER_MAX if high is None or high > -NUMBER_MAX else high - NUMBER_MAX,
        }
    if high is None:
        schema = {
            **schema,
            "maximum": NUMBER_MAX if low is None or low < NUMBER_MAX else low + NUMBER_MAX,
        }
    return schema


def _number(schema: Schema, *keys: str) -> int | float | None:
    found = [
        value
        for key in keys
        if isinstance(value := schema.get(key), (int, float)) and not isinstance(value, bool)
    ]
    return found[0] if found else None


def _open(schema: Schema) -> Schema:
    """Bound an object: one that names its keys has no others, unless it says so; one that names
    none has a few.
    """
    if _map(schema.get("properties")) or schema.get("patternProperties"):
        return {"additionalProperties": False, **schema}
    if schema.get("additionalProperties") is False:
        return schema
    return _at_most(
        {"additionalProperties": _SCALAR, **schema}, "maxProperties", "minProperties", ITEMS_MAX
    )


def _schema(schema: Json) -> Schema:
    return schema if isinstance(schema, Mapping) else {"type": "object"}


def _map(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _quote(text: str) -> str:
    return msgspec.json.encode(text).decode()
