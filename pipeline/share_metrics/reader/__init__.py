"""Reads the persisted streams of a cluster into Arrow record batches, without Spark (PM-1a, PM-6…PM-14).

It never writes to the store and holds no cursor there: where a reader stands is in offsets that its caller keeps.
"""

from .offsets import EntryId, Gap, Position, Range, Tip
from .reading import DataLossError, Reader, ReadOptions
from .schemas import Kind, schema_of
from .store import Store, StoreReplyError, StoreUnreachableError
from .streams import NoClusterError

__all__ = [
    "DataLossError",
    "EntryId",
    "Gap",
    "Kind",
    "NoClusterError",
    "Position",
    "Range",
    "ReadOptions",
    "Reader",
    "Store",
    "StoreReplyError",
    "StoreUnreachableError",
    "Tip",
    "schema_of",
]
