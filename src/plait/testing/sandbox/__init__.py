"""The contract every sandbox backend keeps, as tests for any backend.

    class TestMine(SandboxContract):
        @pytest.fixture
        def backend(self):
            return MyBackend()

        @pytest.fixture
        def store(self):
            return MemoryStore("mine", source=Seeded())

A feature that a backend does not offer, by its own probe, is not asked of it, except to raise
NotSupported. `wanted` can be overridden to name an image, options or a rung. Commands use nothing
but a POSIX shell and the programs of every small image.
"""

from plait.testing.sandbox.commands import CommandContract
from plait.testing.sandbox.files import FileContract
from plait.testing.sandbox.lives import LifeContract
from plait.testing.sandbox.placement import PlacementContract
from plait.testing.sandbox.snapshots import TreeContract

__all__ = ["SandboxContract"]


class SandboxContract(PlacementContract, CommandContract, FileContract, TreeContract, LifeContract):
    """All that a sandbox does and refuses."""
