"""Reads the persisted streams of a cluster into Arrow record batches, without Spark (PM-1a, PM-6…PM-14).

It keeps no cursor in the store: callers keep the offsets up to which they have read. Only `publishing` writes: it
publishes these positions to the owners of streams, who keep later entries longer (PM-12).
"""

from share_metrics.reader.offsets import EntryId, Gap, Position, Range, Tip
from share_metrics.reader.reading import DataLossError, Reader, ReadOptions
from share_metrics.reader.schemas import Kind, schema_of
from share_metrics.reader.store import Store, StoreReplyError, StoreUnreachableError
from share_metrics.reader.streams import NoClusterError

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
