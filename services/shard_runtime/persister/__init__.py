"""The persister: client of the share coordinator, for leaders and group coordinators (PL-720…PL-732, GC-74)."""

from shard_runtime.persister.client import PersisterClient
from shard_runtime.persister.settings import KAFKA_PROFILE, PersisterSettings
from shard_runtime.persister.values import (
    LocalCoordinator,
    Persister,
    PersisterError,
    StateInit,
    StateSummary,
    StateWrite,
    StoredState,
)

__all__ = [
    "KAFKA_PROFILE",
    "LocalCoordinator",
    "Persister",
    "PersisterClient",
    "PersisterError",
    "PersisterSettings",
    "StateInit",
    "StateSummary",
    "StateWrite",
    "StoredState",
]
