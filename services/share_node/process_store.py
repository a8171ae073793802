"""Opens a process's clients of the store, after the checks that keep it from losing or mixing up data (CM-20)."""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shard_runtime import configs
from shard_runtime.clock import Clock
from shard_runtime.cluster_store import ClusterStore
from shard_runtime.redis.checks import check_store
from shard_runtime.redis.cluster_store import StoreClusterStore
from shard_runtime.redis.connection import StoreSettings
from shard_runtime.redis.log import StoreRecordLog
from shard_runtime.redis.topology import open_store
from shard_runtime.rpc.server import ListenError, refuse_plaintext
from shard_runtime.settings import (
    ADVERTISED_HOST,
    ALLOW_PLAINTEXT,
    DATA_DIR,
    LISTEN_HOST,
    STORE_REPLICAS,
    STORE_URL,
    Settings,
)
from share_node.data_directory import DataDirectory

#: The file of a data directory that holds the id of its cluster.
CLUSTER_MEMO: Final = "cluster-id"


class StartError(Exception):
    """The process cannot start; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class StoreClient:
    """This process's clients of the store, and the cluster the store belongs to."""

    record_log: StoreRecordLog
    cluster: ClusterStore
    cluster_id: str

    async def close(self) -> None:
        """Close every connection."""
        await self.record_log.close()
        await self.cluster.close()


def refuse_unusable(settings: Settings) -> None:
    """What the settings alone show to be impossible, for telling it before anything is locked, asked or made.

    Raises ValueError for a store URL that makes no sense, ListenError for an address that needs TLS, or that nobody
    could call.
    """
    if settings[STORE_URL]:
        open_store(settings[STORE_URL])
    refuse_plaintext(settings[LISTEN_HOST], settings[ALLOW_PLAINTEXT])
    _refuse_unspecified(settings)


def _refuse_unspecified(settings: Settings) -> None:
    """0.0.0.0 and :: stand for all addresses of a machine: clients sent there would call themselves (CM-1)."""
    setting = ADVERTISED_HOST if settings[ADVERTISED_HOST] else LISTEN_HOST
    host = settings[setting]
    try:
        unspecified = ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return
    if unspecified:
        raise ListenError(
            f"{setting.name} is {host}, and clients and other nodes would be told to call this node there; expected a "
            f"name or address that they reach it by. Try {ADVERTISED_HOST.name}=NAME, or the variable "
            f"{ADVERTISED_HOST.environment}; 127.0.0.1 when they all run on this machine."
        )


async def open_clients(
    settings: Settings,
    clock: Clock,
    *,
    make_cluster: bool,
    initialise: bool = False,
    allow: frozenset[str] = frozenset(),
) -> StoreClient:
    """Check the store and open the clients.

    `make_cluster`: a store without a cluster is given a new one. A data directory remembers its cluster, and no other
    is accepted with it, nor none, unless `initialise` says that the store is meant to be new (CM-20).
    Raises StoreCheckError, StartError, LogError, DataDirectoryError; ValueError for a URL that makes no sense.
    """
    directory = DataDirectory(Path(settings[DATA_DIR])) if settings[DATA_DIR] else None
    known = directory.remembered(CLUSTER_MEMO) if directory is not None else None
    expected = None if initialise else known
    store = open_store(settings[STORE_URL])
    replicas, in_sync = settings[STORE_REPLICAS], settings[configs.MIN_INSYNC_REPLICAS]
    copies = StoreSettings(replicas=replicas, min_insync_replicas=in_sync)
    await check_store(store, expected, copies.claim_replicas, allow=allow)  # behind a fail-over one may be missing
    cluster = StoreClusterStore(store, copies)
    found = await cluster.cluster_id()
    if found is None and make_cluster:
        found = await cluster.init_cluster(secrets.token_urlsafe(16))
    if found is None:
        await cluster.close()
        raise StartError(
            f"store {settings[STORE_URL]} holds no cluster, and a wiped store must not be mistaken for a new one. "
            "If it is meant to be new, say so once with --init"
        )
    if directory is not None and found != known:
        directory.remember(CLUSTER_MEMO, found)
    checked = StoreSettings(cluster_id=found, replicas=replicas, min_insync_replicas=in_sync)
    record_log = StoreRecordLog(store, checked, clock)
    await record_log.open()
    return StoreClient(record_log, cluster, found)
