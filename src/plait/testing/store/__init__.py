"""The contract every store keeps, as tests for any store.

    class TestMine(StoreContract):
        @pytest.fixture
        def opened(self, tmp_path):
            return lambda *projections: MyStore(tmp_path, source=Seeded(), projections=projections)

`opened(*projections)` opens the store at one place: called again after `close()`, it finds the same
contents. A store that keeps nothing beyond its process says `durable = False`.
"""

from plait.testing.store.acts import ActContract
from plait.testing.store.appending import AppendContract
from plait.testing.store.blobs import BlobContract
from plait.testing.store.durability import DurabilityContract
from plait.testing.store.epochs import EpochContract
from plait.testing.store.locks import LockContract
from plait.testing.store.reading import ReadContract
from plait.testing.store.rows import RowContract
from plait.testing.store.searching import SearchContract
from plait.testing.store.snapshots import SnapshotContract

__all__ = ["StoreContract"]


class StoreContract(
    AppendContract,
    ActContract,
    ReadContract,
    EpochContract,
    BlobContract,
    SnapshotContract,
    RowContract,
    SearchContract,
    LockContract,
    DurabilityContract,
):
    """All that a store does and refuses, by subject as in the port."""
