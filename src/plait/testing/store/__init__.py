"""The contract every store keeps, as tests for any store.

    class TestMine(StoreContract):
        @pytest.fixture
        def opened(self, tmp_path):
            return lambda *projections: MyStore(tmp_path, source=Seeded(), projections=projections)

`opened(*projections)` opens the store at one place: called again after `close()`, it finds the same
contents. The test class says how the store differs from one that has one writer at a time:

`durable = False`
    The store keeps nothing beyond its process.
`dense = False`
    Commit numbers grow and are not 1, 2, 3, …. Tests name events by rank, and wait for the settled
    number, which other transactions may hold back (`wait_until_settled`).
`folds_inside = False`
    Rows are folded when they are asked for. An event that a projection cannot fold is committed,
    and `rows` raises `RowsBroken` for this projection alone.
`bells_reach = False`
    Bells ring inside their own process alone.
"""

from plait.testing.store.acts import ActContract
from plait.testing.store.allowances import AllowanceContract
from plait.testing.store.appending import AppendContract
from plait.testing.store.bells import BellContract
from plait.testing.store.blobs import BlobContract
from plait.testing.store.durability import DurabilityContract
from plait.testing.store.epochs import EpochContract
from plait.testing.store.locks import LockContract
from plait.testing.store.notices import NoticeContract
from plait.testing.store.numbers import NumberContract
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
    NumberContract,
    SearchContract,
    LockContract,
    BellContract,
    NoticeContract,
    AllowanceContract,
    DurabilityContract,
):
    """All that a store does and refuses, by subject as in the port.

    `durable`, `dense`, `folds_inside` and `bells_reach` are class attributes, all True unless a
    test class says otherwise; `dense` and `folds_inside` are compared with the store's own.
    """
