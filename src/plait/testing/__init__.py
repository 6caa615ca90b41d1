"""For tests, ours and yours: the contract a store has to keep, and a source of time, ids and salt made from a seed."""

from plait.testing.seeded import Seeded
from plait.testing.store import StoreContract

__all__ = ["Seeded", "StoreContract"]
