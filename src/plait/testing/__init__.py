"""For tests, ours and yours: the contracts of stores and sandboxes, worlds made from a seed, and
histories that can be compared.
"""

from plait.testing.sandbox import SandboxContract
from plait.testing.seeded import Seeded
from plait.testing.simulation import Simulation, history
from plait.testing.store import StoreContract

__all__ = ["SandboxContract", "Seeded", "Simulation", "StoreContract", "history"]
