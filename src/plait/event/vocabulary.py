"""The vocabulary: bytes to bodies and back, and bodies of older versions brought up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

from plait.errors import (
    InvalidInput,
    InvalidValue,
    TooDeep,
    TooLarge,
    UnknownKind,
    UnknownVersion,
)
from plait.event.kinds import KINDS, Body, Measured
from plait.event.strict import DEPTH_MAX, SIZE_MAX, check_depth, difference, explain, parse

# sorted keys inside maps, struct fields as declared
encode_canonical = msgspec.json.Encoder(order="deterministic").encode

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


_WITH_FLOATS = (
    "float",
    "Budget",
    "Score",
)  # the types that have a float in them, as annotations name them


class _Kind:
    def __init__(self, type: type[Body]) -> None:
        self.type = type
        self.version = cast("int", type.__struct_config__.tag)
        # Made at import, not when first needed, though it is a tenth of the import: msgspec crashes
        # the process if a second thread, or a signal handler, decodes while the first is still
        # working out the type.
        self.decode = msgspec.json.Decoder(type).decode
        self.has_floats = any(
            name in hint for hint in type.__annotations__.values() for name in _WITH_FLOATS
        )


class _BodyVersion(msgspec.Struct):
    v: int


_decode_version = msgspec.json.Decoder(_BodyVersion).decode


class Vocabulary:
    """The kinds that can be read and written, and the upcasters for bodies of older versions.

    An upcaster for (kind, n) takes the fields of a body of version n and returns those of version n
    + 1. Old bytes are never rewritten: they are hashed, so they stay as they are and are brought up
    to date each time they are read.
    """

    def __init__(
        self,
        kinds: Iterable[type[Body]],
        upcasters: Mapping[tuple[str, int], Upcaster] | None = None,
    ) -> None:
        self._kinds = {kind.__name__: _Kind(kind) for kind in kinds}
        self._types = {kind.type: kind for kind in self._kinds.values()}
        self._upcasters = dict(upcasters or {})
        for name, kind in self._kinds.items():
            missing = [n for n in range(1, kind.version) if (name, n) not in self._upcasters]
            if missing:
                raise ValueError(
                    f"{name} is at version {kind.version} but has no upcaster from {missing}"
                )

    def __contains__(self, kind: object) -> bool:
        return kind in self._kinds

    def decode(self, kind: str, data: bytes) -> Body:
        known = self._kinds.get(kind)
        if known is None:
            raise UnknownKind(kind)
        try:
            return known.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return self._decode_other_version(kind, known, data, error)

    def encode(self, body: Body) -> bytes:
        """Return the bytes of a body, after checking that they read back as the very same body."""
        known = self._types.get(type(body))
        if known is None:
            if not isinstance(body, Body):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
                raise InvalidValue(
                    "body",
                    f"a {type(body).__name__} is not an event's body",
                    "pass one of plait.event.kinds",
                )
            raise UnknownKind(type(body).__name__)
        try:
            data = encode_canonical(body)
            if len(data) > SIZE_MAX:
                raise TooLarge(f"the body of {type(body).__name__}", len(data), SIZE_MAX)
            check_depth(data)
            back = known.decode(data)
        except RecursionError as error:
            raise TooDeep(DEPTH_MAX) from error
        except (TypeError, UnicodeError, OverflowError, ValueError, msgspec.MsgspecError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise explain(body, type(body).__name__, str(error)) from error
        if back != body:
            raise difference(body, back, type(body).__name__)
        # The decoded body is encoded once more: 5 in a field of floats becomes 5.0.
        return encode_canonical(back) if known.has_floats else data

    def _decode_other_version(self, kind: str, known: _Kind, data: bytes, error: Exception) -> Body:
        value = parse(data)
        version = value.get("v") if isinstance(value, dict) else None
        if not isinstance(version, int) or version < 1 or version == known.version:
            raise InvalidValue(kind, str(error)) from error
        if version > known.version:
            raise UnknownVersion(kind, version, known.version) from error
        fields = cast("dict[str, Any]", value)
        try:
            for n in range(version, known.version):
                fields = self._upcasters[kind, n](fields)
        # an upcaster may count on its old fields; bytes from outside may lack them
        except Exception as broken:
            raise InvalidValue(
                kind, f"its body of version {version} cannot be brought up to date: {broken!r}"
            ) from broken
        try:
            return msgspec.convert({**fields, "v": known.version}, type=known.type)
        except msgspec.ValidationError as invalid:
            raise InvalidValue(kind, str(invalid)) from invalid


VOCABULARY = Vocabulary(KINDS)


def unchecked_bytes(body: Body) -> bytes | None:
    """Return the bytes of a body without the check of `Vocabulary.encode`, to compare them with
    recorded ones. None: it cannot be encoded.
    """
    try:
        return encode_canonical(body)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return None


B = TypeVar("B", bound=Body)


def without_measured(body: B) -> B:
    """Return the body with its measured fields reset: two runs of one history compare equal."""
    return msgspec.structs.replace(body, **_measured_defaults(type(body)))


@lru_cache
def _measured_defaults(kind: type[Body]) -> dict[str, object]:
    def is_measured(node: object) -> bool:
        if isinstance(node, msgspec.inspect.Metadata):
            return cast("Any", node).extra == Measured.extra or is_measured(node.type)
        return isinstance(node, msgspec.inspect.UnionType) and any(
            is_measured(member) for member in node.types
        )

    info = cast("msgspec.inspect.StructType", msgspec.inspect.type_info(kind))
    return {field.name: field.default for field in info.fields if is_measured(field.type)}


def is_current_version(body: Body, content: bytes) -> bool:
    """Return True if these bytes are of the current version.

    Older ones were brought up to date by decoding and cannot be compared with the body.
    """
    try:
        return _decode_version(content).v == body.__struct_config__.tag
    except msgspec.ValidationError:
        return True
