"""The persister: the share coordinator's client, for leaders and group coordinators (PL-720…PL-732, GC-74).

It applies rules of the KIP (which errors are retried, which coordinator is called), so it is not part of the runtime.
"""

from share_persister.client import PersisterClient
from share_persister.settings import KAFKA_PROFILE, PersisterSettings
from share_persister.values import LocalCoordinator, Persister, PersisterError

__all__ = [
    "KAFKA_PROFILE",
    "LocalCoordinator",
    "Persister",
    "PersisterClient",
    "PersisterError",
    "PersisterSettings",
]
