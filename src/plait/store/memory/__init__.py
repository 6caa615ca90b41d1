"""A store in memory."""

from plait.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]
