"""The contract every sandbox backend keeps, as tests that anybody can run on theirs.

    class TestMine(SandboxContract):
        @pytest.fixture
        def backend(self):
            return MyBackend()

        @pytest.fixture
        def store(self):
            return MemoryStore("mine", source=Seeded())

What a backend does not offer, by its own probe, is not asked of it, except to say so with
NotSupported. `wanted` can be overridden to name an image, options or a rung. Commands use nothing
but a POSIX shell and what every small image has.
"""

from plait.testing.sandbox.commands import CommandContract
from plait.testing.sandbox.files import FileContract
from plait.testing.sandbox.lives import LifeContract
from plait.testing.sandbox.placement import PlacementContract
from plait.testing.sandbox.snapshots import TreeContract

__all__ = ["SandboxContract"]


class SandboxContract(PlacementContract, CommandContract, FileContract, TreeContract, LifeContract):
    """All that a sandbox does and refuses."""
