"""For tests, ours and yours: the contract a store has to keep, worlds made from a seed, and histories that can be compared."""

from plait.testing.seeded import Seeded
from plait.testing.simulation import Simulation, history
from plait.testing.store import StoreContract

__all__ = ["Seeded", "Simulation", "StoreContract", "history"]
