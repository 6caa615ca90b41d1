"""Sessions. So far: the rows by which they are listed."""

from plait.session.rows import SessionRows

__all__ = ["SessionRows"]
