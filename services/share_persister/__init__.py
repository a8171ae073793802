"""The persister: client of the share coordinator, for leaders and group coordinators (PL-720…PL-732, GC-74).

Rules of the KIP are decided here (which errors are retried, which coordinator is asked), so it is no part of the
runtime.
"""

from share_persister.client import PersisterClient
from share_persister.settings import KAFKA_PROFILE, PersisterSettings
from share_persister.values import LocalCoordinator, Persister, PersisterError, StateInit, StoredState

__all__ = [
    "KAFKA_PROFILE",
    "LocalCoordinator",
    "Persister",
    "PersisterClient",
    "PersisterError",
    "PersisterSettings",
    "StateInit",
    "StoredState",
]
