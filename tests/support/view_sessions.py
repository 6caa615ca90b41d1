"""Real sessions for the tests of viewers, and a long family for their benchmarks."""

from tests.outline.sessions import ViewStore, make_long_store, make_view_store

__all__ = ("ViewStore", "make_long_store", "make_view_store")
