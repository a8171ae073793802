"""The in-memory twin of a Redis or Valkey store: a fake *server* that can fail like one, used by the real client logic.

`MemoryStore` is the deployment (master, replicas, disk, network hooks); `memory_log` and `memory_cluster_store` build
the same `StoreRecordLog` and `StoreClusterStore` as production, so tests and the simulator exercise the code that
evaluates replies in production.
"""

from shard_runtime.record_log.redis.connection import ConnectionLostError
from tests.twin.server import MemoryServer
from tests.twin.store import FaultPoint, MemoryStore, Stage, memory_cluster_store, memory_log

__all__ = [
    "ConnectionLostError",
    "FaultPoint",
    "MemoryServer",
    "MemoryStore",
    "Stage",
    "memory_cluster_store",
    "memory_log",
]
