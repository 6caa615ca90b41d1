"""Values of the program's own types: their JSON schema, their JSON, and back.

Builtins, Literal, Enum, dataclass, TypedDict, NamedTuple, datetime and msgspec structs are
msgspec's own ground. Pydantic models are asked by name of method, so that pydantic is never
imported here.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any, cast
from uuid import UUID

import msgspec
from msgspec import inspect as types

from plait.event import Json
from plait.session.unions import UnionOf, union_schema, union_value, with_unions


def schema_of(type_: Any) -> dict[str, Any]:
    """Return the JSON schema of a type; all that it refers to stands in its own $defs."""
    try:
        return _flat(msgspec.json.schema(type_, schema_hook=_schema_hook))
    except TypeError:
        plain = with_unions(type_)
        if plain is type_:
            raise
        return _flat(msgspec.json.schema(plain, schema_hook=_schema_hook))


def result_schema_of(type_: Any) -> dict[str, Any]:
    """Return the JSON schema of a type, with formats also for times and keys, of which msgspec says
    only that they are strings.

    It is apart from `schema_of`, whose bytes stand in the prompts that are on record.
    """
    schema = msgspec.json.schema(type_, schema_hook=_schema_hook)
    _add_formats(types.type_info(type_), schema, schema.get("$defs", {}), set())
    return _flat(schema)


def _add_formats(
    info: types.Type, schema: dict[str, Any], known: Mapping[str, Any], seen: set[str]
) -> None:
    while isinstance(info, types.Metadata):
        info = info.type
    if isinstance(ref := schema.get("$ref"), str):
        name = ref.rpartition("/")[2]
        if name in known and name not in seen:
            seen.add(name)
            _add_formats(info, known[name], known, seen)
    elif (form := _FORMAT_OF.get(type(info))) is not None:
        schema.setdefault("format", form)
    elif isinstance(info, types.CollectionType) and "items" in schema:
        _add_formats(info.item_type, schema["items"], known, seen)
    elif isinstance(info, types.TupleType):
        for item, rule in zip(info.item_types, schema.get("prefixItems", ()), strict=False):
            _add_formats(item, rule, known, seen)
    elif isinstance(info, types.DictType):
        _add_key_format(info.key_type, schema)
        if isinstance(rule := schema.get("additionalProperties"), dict):
            _add_formats(info.value_type, cast("dict[str, Any]", rule), known, seen)
    elif isinstance(info, types.UnionType):
        # Structs and None stand last in the schema, in this order; neither has a format.
        others = [
            each
            for each in info.types
            if not isinstance(_without_metadata(each), (types.StructType, types.NoneType))
        ]
        for each, rule in zip(others, schema.get("anyOf", ()), strict=False):
            _add_formats(each, rule, known, seen)
        structs = [
            each for each in info.types if isinstance(_without_metadata(each), types.StructType)
        ]
        for each, rule in zip(structs, schema.get("anyOf", ())[len(others) :], strict=False):
            _add_formats(each, rule, known, seen)
    elif isinstance(
        info, (types.StructType, types.DataclassType, types.TypedDictType, types.NamedTupleType)
    ):
        _add_field_formats(info.fields, schema, known, seen)


def _add_field_formats(
    fields: Sequence[types.Field], schema: dict[str, Any], known: Mapping[str, Any], seen: set[str]
) -> None:
    by_name: dict[str, Any] = schema.get("properties", {})
    in_order: list[Any] = schema.get("prefixItems", [])
    # a tag stands first
    for place, field in enumerate(fields, len(in_order) - len(fields) if in_order else 0):
        rule = by_name.get(field.encode_name) or (in_order[place] if in_order else None)
        if rule is not None:
            _add_formats(field.type, rule, known, seen)


def _add_key_format(key: types.Type, schema: dict[str, Any]) -> None:
    key = _without_metadata(key)
    if isinstance(key, types.IntType):
        schema.setdefault("propertyNames", {"pattern": r"^-?[0-9]+$"})
    elif (form := _FORMAT_OF.get(type(key))) is not None:
        schema.setdefault("propertyNames", {"format": form})


def _without_metadata(info: types.Type) -> types.Type:
    while isinstance(info, types.Metadata):
        info = info.type
    return info


_FORMAT_OF: Mapping[type[types.Type], str] = {
    types.DateTimeType: "date-time",
    types.DateType: "date",
    types.TimeType: "time",
    types.TimeDeltaType: "duration",
    types.UUIDType: "uuid",
    types.DecimalType: "decimal",
}
_OF_FORMAT: Mapping[str, Any] = {
    "date-time": datetime,
    "date": date,
    "time": time,
    "partial-time": time,
    "duration": timedelta,
    "uuid": UUID,
    "decimal": Decimal,
}


def takes_bytes(schema: Any) -> bool:
    """Return True if a value of this schema may be bytes, which JSON spells as base64."""
    if not isinstance(schema, Mapping):
        return False
    rules = cast("Mapping[str, Any]", schema)
    return rules.get("contentEncoding") == "base64" or any(map(takes_bytes, rules.get("anyOf", ())))


def bytes_of(text: str) -> bytes | None:
    """Return the bytes that a text spells as base64. None: it is no base64."""
    with suppress(ValueError):
        return b64decode(text, validate=True)
    return None


def to_type(value: Json, type_: Any) -> Any:
    """Convert a JSON value to a type, or raise a ValueError that names the fault and its place."""
    try:
        return _convert(value, type_)
    except ValueError:
        whole = _with_integers(value)
        if whole == value and repr(whole) != repr(value):  # 5.0 is an integer to JSON schema
            return _convert(whole, type_)
        raise


def _convert(value: Json, type_: Any) -> Any:
    try:
        return msgspec.convert(value, type_, dec_hook=_dec_hook, str_keys=True)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
    except TypeError:  # a union that msgspec does not take
        plain = with_unions(type_)
        if plain is type_:
            raise
        return _convert(value, plain)


def _with_integers(value: Any) -> Any:
    """Return the value with whole numbers as integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_with_integers(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in cast("dict[str, Any]", value).items()}
    return value


def misfit(value: Json, schema: Any, definitions: Any = None) -> str | None:
    """Return the reason why a JSON value does not fit a JSON schema. None: it fits, as far as
    types, fields and choices go.

    It is for callers that have not the type itself: a shell, or another program.
    """
    if not isinstance(schema, Mapping):
        return None
    rules = cast("Mapping[str, Any]", schema)
    known: Any = definitions if definitions is not None else rules.get("$defs", {})
    if isinstance(ref := rules.get("$ref"), str):
        return misfit(value, known.get(ref.rpartition("/")[2]), known)
    for rule in ("anyOf", "oneOf"):
        if rule in rules and all(misfit(value, each, known) is not None for each in rules[rule]):
            return (
                misfit(value, rules[rule][0], known)
                if len(rules[rule]) == 1
                else f"it is none of {len(rules[rule])} shapes"
            )
    for each in rules.get("allOf", ()):
        if (why := misfit(value, each, known)) is not None:
            return why
    if "enum" in rules and not any(
        value == each and isinstance(value, bool) == isinstance(each, bool)
        for each in rules["enum"]
    ):
        return f"it is not one of {', '.join(map(repr, rules['enum']))}"
    if "const" in rules and value != rules["const"]:
        return f"it is not {rules['const']!r}"
    types: Any = rules.get("type", ())
    wanted: list[str] = [types] if isinstance(types, str) else list(types)
    if wanted and not any(_TYPES.get(each, lambda _: True)(value) for each in wanted):
        return f"it is a {type(value).__name__}, not {' or '.join(wanted)}"
    if isinstance(value, str):
        return _misfit_of_text(value, rules)
    if isinstance(value, (int, float)):
        return _misfit_of_number(value, rules)
    if isinstance(value, dict):
        return _misfit_of_fields(value, rules, known)
    if isinstance(value, list):
        return _misfit_of_items(value, rules, known)
    return None


def _misfit_of_text(value: str, rules: Mapping[str, Any]) -> str | None:
    if rules.get("contentEncoding") == "base64" and bytes_of(value) is None:
        return "it is not base64, which is how JSON spells bytes"
    wanted = _OF_FORMAT.get(rules.get("format", ""))
    if wanted is not None:
        try:
            msgspec.convert(value, wanted)
        except msgspec.ValidationError:
            return f"{value[:80]!r} is not a {rules['format']}"
    if not rules.get("minLength", 0) <= len(value) <= rules.get("maxLength", len(value)):
        return f"it has {len(value)} characters"
    with suppress(re.error):  # of another dialect: the tool itself will look
        if "pattern" in rules and re.search(rules["pattern"], value) is None:
            return f"{value[:80]!r} does not match {rules['pattern']}"
    return None


def _misfit_of_number(value: float, rules: Mapping[str, Any]) -> str | None:
    low, high = rules.get("minimum"), rules.get("maximum")
    above, below = rules.get("exclusiveMinimum"), rules.get("exclusiveMaximum")
    within = (low is None or value >= low) and (high is None or value <= high)
    inside = (above is None or value > above) and (below is None or value < below)
    step = rules.get("multipleOf")
    if within and inside and (step is None or value % step == 0):
        return None
    return f"{value} is out of bounds"


def _misfit_of_fields(value: dict[str, Any], rules: Mapping[str, Any], known: Any) -> str | None:
    fields: Any = rules.get("properties", {})
    other: Any = rules.get("additionalProperties", True)
    for name in rules.get("required", ()):
        if name not in value:
            return f"{name!r} is missing"
    if not rules.get("minProperties", 0) <= len(value) <= rules.get("maxProperties", len(value)):
        return f"it has {len(value)} fields"
    names: Any = rules.get("propertyNames")
    for name, item in value.items():
        if (why := misfit(name, names, known)) is not None:
            return f"as a name, {why}"
        if name not in fields and other is False:
            return f"{name!r} is not one of its fields"
        if (why := misfit(item, fields.get(name, other), known)) is not None:
            return f"at {name!r}: {why}"
    return None


def _misfit_of_items(value: list[Any], rules: Mapping[str, Any], known: Any) -> str | None:
    first: Any = rules.get("prefixItems", ())
    if not rules.get("minItems", 0) <= len(value) <= rules.get("maxItems", len(value)):
        return f"it has {len(value)} items"
    if rules.get("uniqueItems") and any(item in value[:place] for place, item in enumerate(value)):
        return "an item is there twice"
    for place, item in enumerate(value):
        rule = first[place] if place < len(first) else rules.get("items")
        if (why := misfit(item, rule, known)) is not None:
            return f"at {place}: {why}"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def to_json(value: Any) -> Json:
    """Return a value as plain JSON data, or raise a TypeError if it has none."""
    if _is_flat(value):
        return value.copy()  # as most arguments are: nothing in it needs another form
    plain = value if type(value) in _PLAIN else _sorted_sets(value)
    return _without_tuples(msgspec.to_builtins(plain, enc_hook=_enc_hook, str_keys=True))


def _is_flat(value: Any) -> bool:
    """Return True if it is a dict of texts, numbers and nothing else."""
    if type(value) is not dict:
        return False
    for key, item in cast("dict[Any, Any]", value).items():
        if type(key) is not str or type(item) not in _PLAIN:
            return False
    return True


def _sorted_sets(value: Any) -> Any:
    """Return the value with the items of sets sorted: their own order differs from process to
    process.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, (set, frozenset)):
        items = [_sorted_sets(item) for item in cast("set[Any]", value)]
        return sorted(
            items,
            key=lambda item: msgspec.json.encode(item, enc_hook=_enc_hook, order="deterministic"),
        )
    if type(value) in (list, tuple):
        return [_sorted_sets(item) for item in cast("Sequence[Any]", value)]
    if type(value) is dict:
        known = cast("dict[Any, Any]", value)
        return {
            key: item if type(item) in _PLAIN else _sorted_sets(item) for key, item in known.items()
        }
    kind = cast("object", type(value))
    fields: Any = getattr(kind, "__struct_fields__", None) or getattr(
        kind, "__dataclass_fields__", None
    )
    if fields is not None and any(
        isinstance(getattr(value, name, None), _HOLDERS) for name in fields
    ):
        return msgspec.to_builtins(value, enc_hook=_enc_hook, str_keys=True, order="deterministic")
    return value


_PLAIN = frozenset({str, int, float, bool, type(None)})
_HOLDERS = (set, frozenset, list, tuple, dict)


def _without_tuples(value: Any) -> Any:
    """Return the value with lists for tuples, which JSON does not know."""
    if isinstance(value, (list, tuple)):
        return [_without_tuples(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, dict):
        return {key: _without_tuples(item) for key, item in cast("dict[str, Any]", value).items()}
    return value


def name_of(type_: Any) -> str:
    return getattr(type_, "__name__", None) or str(type_)


def _is_pydantic(type_: Any) -> bool:
    return hasattr(type_, "model_json_schema") and hasattr(type_, "model_validate")


def _is_path(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, PurePath)


def _is_union(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, UnionOf)


def _schema_hook(type_: Any) -> dict[str, Any]:
    if _is_union(type_):
        return union_schema(type_, schema_of)
    if _is_pydantic(type_):
        return type_.model_json_schema(ref_template="#/$defs/{model}")
    if _is_path(type_):
        return {"type": "string", "format": "path"}
    raise TypeError(f"{name_of(type_)} has no JSON schema")


def _dec_hook(type_: Any, value: Any) -> Any:
    if _is_union(type_):
        return union_value(type_, value, schema_of, to_type)
    if _is_pydantic(type_):
        # its error is a ValueError, which msgspec passes on with the place
        return type_.model_validate(value)
    if _is_path(type_) and isinstance(value, str):
        return type_(value)
    raise TypeError(f"{name_of(type_)} cannot be made from JSON")


def _enc_hook(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    raise TypeError(f"a {type(value).__name__} is not JSON data")


def _flat(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with one root and one $defs: those of nested schemas are moved up, and a
    root that only refers to a definition is replaced by it.
    """
    found: dict[str, Any] = {}
    root = cast("dict[str, Any]", _hoist(schema, found))
    while set(root) == {"$ref"}:
        root = dict(found[root["$ref"].rpartition("/")[2]])
    wanted = _reachable(root, found)
    return {**root, "$defs": wanted} if wanted else root


def _hoist(node: Any, found: dict[str, Any]) -> Any:
    if isinstance(node, Mapping):
        fields = cast("Mapping[str, Any]", node)
        definitions: dict[str, Any] = fields.get("$defs", {})
        names = {
            name: _free_name(name, definition, found) for name, definition in definitions.items()
        }
        if any(name != other for name, other in names.items()):
            fields = cast("Mapping[str, Any]", _rename_refs(fields, names))
            definitions = fields["$defs"]
        for name, definition in definitions.items():
            found[names[name]] = definition  # before its parts: it may be a part of itself
            found[names[name]] = _hoist(definition, found)
        return {key: _hoist(value, found) for key, value in fields.items() if key != "$defs"}
    if isinstance(node, list):
        return [_hoist(item, found) for item in cast("list[Any]", node)]
    return node


def _free_name(name: str, definition: Any, found: Mapping[str, Any]) -> str:
    """Return the name, or another one if a different definition has it already."""
    number, free = 2, name
    while free in found and found[free] != definition:
        free, number = f"{name}_{number}", number + 1
    return free


def _rename_refs(node: Any, names: Mapping[str, str]) -> Any:
    """Return the schema with references to the new names."""
    if isinstance(node, Mapping):
        fields = cast("Mapping[str, Any]", node)
        ref = fields.get("$ref")
        last = ref.rpartition("/")[2] if isinstance(ref, str) else ""
        more = {"$ref": f"#/$defs/{names[last]}"} if last in names else {}
        return {**{key: _rename_refs(value, names) for key, value in fields.items()}, **more}
    return (
        [_rename_refs(item, names) for item in cast("list[Any]", node)]
        if isinstance(node, list)
        else node
    )


def _reachable(root: Any, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definitions that are used, sorted, so that a schema has one spelling."""
    names, queue = set[str](), [root]
    while queue:
        node: Any = queue.pop()
        if isinstance(node, Mapping):
            fields = cast("Mapping[str, Any]", node)
            ref = fields.get("$ref")
            name = ref.rpartition("/")[2] if isinstance(ref, str) else ""
            if name in definitions and name not in names:
                names.add(name)
                queue.append(definitions[name])
            queue.extend(fields.values())
        elif isinstance(node, Sequence) and not isinstance(node, str):
            queue.extend(cast("Sequence[Any]", node))
    return {name: definitions[name] for name in sorted(names)}
