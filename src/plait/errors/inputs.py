"""Errors about input, which is refused before a byte is written."""

from __future__ import annotations

from plait.errors.base import PlaitError


class InvalidInput(PlaitError, ValueError):
    """Refused before anything was written."""


class InvalidValue(InvalidInput):
    """A value that cannot be taken: it would not come back from the log as it went in, or does not
    belong there.
    """

    def __init__(self, where: str, why: str, step: str = "correct it and try again") -> None:
        self.where, self.why, self.step = where, why, step
        super().__init__(f"{where}: {why}. Nothing was written; {step}.")


class TooDeep(InvalidInput):
    """Nested beyond the limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"nested deeper than {limit} levels. Nothing was written; flatten the value or store it"
            " as a blob."
        )


class TooLarge(InvalidInput):
    """Longer than the limit."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        self.what, self.size, self.limit = what, size, limit
        super().__init__(
            f"{what} has {size:,} bytes; the limit is {limit:,}. Nothing was written; store large"
            " content as a blob."
        )


class DuplicateKey(InvalidInput):
    """An object that names the same key twice means two things at once."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"the key {key!r} stands twice in one object. Nothing was written; send each key once."
        )


class MalformedJson(InvalidInput):
    """Not JSON."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(
            f"not valid JSON: {why}. Nothing was written; send UTF-8 JSON as in RFC 8259."
        )


class NotCanonical(InvalidInput):
    """JSON, but not the one spelling that is hashed: other order, white space, or a key given
    twice.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"the {what} is not in canonical form. Nothing was written; take the exact bytes from"
            " where it was made."
        )


class UnknownKind(InvalidInput):
    """An event kind this Plait does not know."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(
            f"unknown event kind {kind!r}. It was probably written by a newer Plait: upgrade to"
            " read it."
        )


class UnknownVersion(InvalidInput):
    """A body version this Plait does not know."""

    def __init__(self, kind: str, found: int, known: int) -> None:
        self.kind, self.found, self.known = kind, found, known
        super().__init__(
            f"{kind} has body version {found}; this Plait knows up to {known}. Upgrade to read it."
        )


class CommitmentBroken(PlaitError):
    """Bytes that do not hash to the digest claimed for them."""

    def __init__(self, what: str, claimed: str, found: str) -> None:
        self.what, self.claimed, self.found = what, claimed, found
        super().__init__(
            f"the {what} hashes to {found[:12]}…, but {claimed[:12]}… is claimed. It was altered:"
            " restore it from a good copy."
        )
