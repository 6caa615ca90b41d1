"""Fingerprints: digests of functions by their behaviour, the same in every process that has the
same source.

Consent is given for a function as it is, so the digest covers its code, its defaults, its closure,
the function it wraps, the object it is bound to, and the functions, classes and constants of the
program that its code names, and theirs. It covers no address, file name, line number or order of a
set, all of which differ between two processes.

Code of the standard library and of installed packages is named, and not followed. A value whose
state cannot be read (a socket, a generator, an object of C without a representation), or that
belongs to one process, thread or context (a thread, the environment, a ContextVar), is listed in
`unknown`: the digest does not tell two of them apart.

Objects are read by the account that they give of themselves to `copy` and `pickle`, unless that
account is code of the program: such an object is read field by field.

Data that a module keeps and changes as it runs (a list, a dict, an object) belongs to the digest
only where the caller asks for it with `state=True`. Otherwise a tool that counts its calls would be
another tool after each of them.
"""

from __future__ import annotations

from typing import NamedTuple

from plait.fingerprint.code import TAG, encode_sorted
from plait.fingerprint.hints import own_types
from plait.fingerprint.modules import module_spec, source_file
from plait.fingerprint.objects import TARGET, WRAPPED_FORWARD
from plait.fingerprint.ownership import is_own
from plait.fingerprint.reader import NODES_MAX, ValueReader
from plait.ids import Digest, digest

__all__ = (
    "NODES_MAX",
    "TARGET",
    "WRAPPED_FORWARD",
    "Fingerprint",
    "fingerprint",
    "is_own",
    "module_spec",
    "own_types",
    "source_file",
)


class Fingerprint(NamedTuple):
    digest: Digest
    unknown: tuple[str, ...]  # the values that the digest does not cover, with the reasons


def fingerprint(*values: object, state: bool = False) -> Fingerprint:
    """Return the digest of these values.

    With `state`, global lists, dicts and objects count by their content.
    """
    reader = ValueReader(state)
    read = [reader.read_value(value) for value in values]
    return Fingerprint(digest(TAG, encode_sorted(read)), tuple(dict.fromkeys(reader.unknown)))
