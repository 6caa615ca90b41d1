"""JSON from outside, as raw bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import DuplicateKey, InvalidInput, InvalidValue, MalformedJson, TooDeep, TooLarge
from plait.event import parse
from plait.event.strict import DEPTH_MAX


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b'{"a":1,"a":2}', DuplicateKey),
        (b'{"x":{"a":1,"b":2,"a":3}}', DuplicateKey),
        (b'{"a":1,"\\u0061":2}', DuplicateKey),
        (b"NaN", InvalidValue),
        (b"[Infinity]", InvalidValue),
        (b"-Infinity", InvalidValue),
        (b"1e999", InvalidValue),
        (b"-1e999", InvalidValue),
        (b'"\\ud800"', InvalidValue),
        (b'{"\\udc00":1}', InvalidValue),
        (b'"\\ud800\\u0041"', InvalidValue),
        (b'"\xed\xa0\x80"', MalformedJson),
        (b'"\xff"', MalformedJson),
        (b"\xef\xbb\xbf1", MalformedJson),
        (b"[" * 200_000, TooDeep),
        (b'{"a":' * 200_000, TooDeep),
        (b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1), TooDeep),
        (b"1" * 5000, MalformedJson),
        (b" " * 2000, TooLarge),
        (b"", MalformedJson),
        (b"1 2", MalformedJson),
        (b"{'a':1}", MalformedJson),
        (b'"a\nb"', MalformedJson),
        (b'"a\x00b"', MalformedJson),
        (b"[1,]", MalformedJson),
        (b"01", MalformedJson),
        (b"// comment\n1", MalformedJson),
    ],
    ids=lambda value: repr(value[:20]) if isinstance(value, bytes) else value.__name__,
)
def test_what_is_refused(data: bytes, error: type[InvalidInput]) -> None:
    with pytest.raises(error):
        parse(data, size_max=1_000 if data.isspace() else 10_000_000)


@pytest.mark.parametrize(
    "data",
    [
        b'"\\ud83d\\ude00"',
        b'{"a":{"a":{"a":1}}}',
        b'["[[[[", "]]]]", "\\"[", "\\\\"]',
        b"[" * DEPTH_MAX + b"]" * DEPTH_MAX,
        b'"' + b"[" * 1000 + b'"',
        ' "\u2028\u2029\x85" '.encode(),
        b"[1.5, -0.0, 1E5, 18446744073709551616]",
    ],
)
def test_what_is_taken(data: bytes) -> None:
    assert parse(data) == json.loads(data)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_whatever_is_json_is_taken(value: Any) -> None:
    assert parse(json.dumps(value).encode()) == value
    assert parse(json.dumps(value, ensure_ascii=False).encode()) == value


@given(
    st.binary(max_size=200)
    | st.text(alphabet='[]{}",:\\ud80eEnNaI1.-', max_size=80).map(str.encode)
)
def test_nothing_else_escapes_but_a_typed_error(data: bytes) -> None:
    try:
        value = parse(data)
    except InvalidInput:
        return
    assert json.loads(data) == value
