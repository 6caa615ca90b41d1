"""For tests, ours and yours: the contracts of stores, sandboxes and memory, worlds made from a
seed, and histories that can be compared.
"""

from plait.testing.histories import history
from plait.testing.memory import MemoryContract
from plait.testing.sandbox import SandboxContract
from plait.testing.seeded import Seeded
from plait.testing.simulation import Simulation
from plait.testing.store import StoreContract

__all__ = ["MemoryContract", "SandboxContract", "Seeded", "Simulation", "StoreContract", "history"]
