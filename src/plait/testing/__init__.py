"""For tests, ours and yours: the contract a store has to keep, and a source of time, ids and salt made from a seed."""

from plait.testing.seeded import Seeded

__all__ = ["Seeded"]
