"""The contract of memory, as tests for any index.

    class TestMine(MemoryContract):
        @pytest.fixture
        def index(self):
            return MyIndex()

`index` is empty for each test. One with a server of its own says how to kill it in the middle of a
search: `end_in_search(index)`, which closes the index if it is not overridden.

`RecallContract` is the part that goes through `Memory` alone. The store's own index keeps it, too,
with `None` as its index.
"""

from plait.testing.memory.indexes import IndexContract
from plait.testing.memory.recalls import RecallContract

__all__ = ["MemoryContract", "RecallContract"]


class MemoryContract(RecallContract, IndexContract):
    """All that an index does and refuses, by itself and behind a `Memory`."""
