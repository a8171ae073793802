"""Opens a process's clients of the store, after checks against losing or mixing up data (CM-20)."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kip932.store_settings import (
    STORE_FSYNC_ALWAYS,
    STORE_PRODUCE_PERCENT,
    STORE_REPLICAS,
    STORE_SETTINGS,
    STORE_UNSAFE_STOP,
    STORE_URL,
    StoreAccess,
)
from shard_runtime.clock import Clock, StoreTime
from shard_runtime.config import kafka_configs
from shard_runtime.config.process_settings import (
    ALLOW_PLAINTEXT,
    CLOCK_SKEW_MAX_MS,
    DATA_DIR,
    LISTEN_HOST,
    NODE_ROLES,
    Settings,
)
from shard_runtime.ownership.placement import ROLE_OF_KIND
from shard_runtime.record_log.cluster_store import ClusterStore, IncompleteRestoreError
from shard_runtime.record_log.damage_notes import DamageNotes
from shard_runtime.record_log.protocol import NameTakenError, StoreUnavailableError
from shard_runtime.record_log.redis.cluster_store import StoreClusterStore
from shard_runtime.record_log.redis.connection import Store, StoreSettings
from shard_runtime.record_log.redis.log import StoreRecordLog
from shard_runtime.record_log.redis.startup_checks import StoreCheckError, StoreNeeds, check_store
from shard_runtime.record_log.redis.store_rights import check_rights
from shard_runtime.record_log.redis.store_watch import StoreWatch
from shard_runtime.record_log.redis.topology import open_store
from shard_runtime.record_log.store_url import masked_url
from shard_runtime.rpc.server import refuse_plaintext
from share_node.node.internal import check_certificates, internal_host, refuse_uncallable
from share_node.store.data_directory import DataDirectory

#: The file in a data directory with the id of its cluster.
CLUSTER_MEMO: Final = "cluster-id"


class StartError(Exception):
    """The process cannot start; the message says why and what to do."""


class NoClusterError(StartError):
    """The store can be used but has no cluster. Only a person may declare it new, with `sharegroups init` (CM-20)."""


#: Problems that waiting does not solve: this process needs other settings, and therefore a restart.
_OWN_FINDINGS: Final = frozenset({"credentials", "other-cluster"})


def awaited(error: Exception) -> str:
    """Return what a process that could not start may wait for, in a few words (CM-130); "" when waiting does not help.

    It waits for things that others provide: the store, its contents and its settings, a cluster in it. It does not wait
    when its own settings are wrong: password, URL, data directory, port, number of shards.
    """
    if isinstance(error, NoClusterError):
        return "a cluster in the store"
    if isinstance(error, IncompleteRestoreError):
        return "a restore that is not complete"
    if isinstance(error, NameTakenError):
        return "node name"
    if isinstance(error, StoreUnavailableError):
        return "store"
    if isinstance(error, StoreCheckError):
        names = {finding.name for finding in error.findings}
        return "" if names & _OWN_FINDINGS else f"store: {', '.join(sorted(names))}"
    return ""


@dataclass(frozen=True, slots=True)
class StoreClient:
    """This process's clients of the store, and the id of the store's cluster."""

    record_log: StoreRecordLog
    cluster: ClusterStore
    cluster_id: str
    damage: DamageNotes = field(default_factory=DamageNotes)
    watch: StoreWatch | None = None
    """None when nothing watches the store; its clock is not known then."""

    async def close(self) -> None:
        """Close every connection."""
        if self.watch is not None:
            await self.watch.stop()
        await self.record_log.close()
        await self.cluster.close()


def refuse_unusable(settings: Settings) -> None:
    """Refuse settings that are impossible by themselves, before anything is locked, called or made.

    Raises ValueError for an invalid store URL, ListenError for an address that needs TLS, certificates that cannot
    be used, or an address at which no caller would reach this process.
    """
    if settings[STORE_URL]:
        opened_store(settings)
    if not check_certificates(settings):
        refuse_plaintext(settings[LISTEN_HOST], settings[ALLOW_PLAINTEXT])
        refuse_plaintext(internal_host(settings), settings[ALLOW_PLAINTEXT])
    refuse_uncallable(settings)


def opened_store(settings: Settings) -> Store:
    """Return the store of these settings, not connected yet. Raises ValueError for a URL, a password file or files for
    TLS that cannot be used."""
    return open_store(
        settings[STORE_URL], access=StoreAccess.of({name: settings.text(name) for name in STORE_SETTINGS})
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

    `make_cluster`: make a new cluster in a store without one. A data directory remembers its cluster: a store with
    another cluster, or none, is refused with it, unless `initialise` declares the store new (CM-20).
    Raises StoreCheckError, StartError, LogError, DataDirectoryError; ValueError for an invalid URL.
    """
    directory = DataDirectory(Path(settings[DATA_DIR])) if settings[DATA_DIR] else None
    known = directory.remembered(CLUSTER_MEMO) if directory is not None else None
    expected = None if initialise else known
    store = opened_store(settings)
    replicas, in_sync = settings[STORE_REPLICAS], settings[kafka_configs.MIN_INSYNC_REPLICAS]
    copies = StoreSettings(replicas=replicas, min_insync_replicas=in_sync)
    always = settings[STORE_FSYNC_ALWAYS]
    # After a fail-over one replica may be missing.
    accepted = await check_store(store, expected, copies.claim_replicas, allow=allow, fsync_always=always)
    await check_rights(store, [kind for kind, role in ROLE_OF_KIND.items() if role in settings[NODE_ROLES]])
    damage = DamageNotes()
    cluster = StoreClusterStore(store, copies, damage)
    record_log: StoreRecordLog | None = None
    watch: StoreWatch | None = None
    try:
        found = await cluster.cluster_id()
        if found is None and make_cluster:
            found = await cluster.init_cluster(secrets.token_urlsafe(16))
        if found is None:
            raise NoClusterError(
                f"store {masked_url(settings[STORE_URL])} holds no cluster, and a wiped store must not be mistaken for "
                "a new one. If it is meant to be new, say so once: `sharegroups init`, on Kubernetes the job init, "
                "with `sharegroups up` --init"
            )
        checked = StoreSettings(cluster_id=found, replicas=replicas, min_insync_replicas=in_sync)
        time = StoreTime(clock, settings[CLOCK_SKEW_MAX_MS])
        record_log = StoreRecordLog(store, checked, time, damage=damage)
        await record_log.open()
        watch = StoreWatch(
            store,
            record_log,
            time,
            StoreNeeds(copies.claim_replicas, always),
            accepted=[finding.name for finding in accepted],
            stop_writes=settings[STORE_UNSAFE_STOP],
            produce_percent=settings[STORE_PRODUCE_PERCENT],
        )
        await watch.check()  # it also compares the clocks: from its first claim on, this process uses the store's
        if directory is not None and found != known:
            directory.remember(CLUSTER_MEMO, found)
    except BaseException:  # the caller may try again, so nothing of this attempt may stay open
        if watch is not None:
            await watch.stop()
        if record_log is not None:
            await record_log.close()
        await cluster.close()
        raise
    return StoreClient(record_log, cluster, found, damage, watch)
