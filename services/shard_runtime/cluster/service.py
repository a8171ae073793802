"""ClusterService: served by all three roles, so that a client can bootstrap from any node (CM section 1).

It only wires the parts that do the work.
"""

from __future__ import annotations

from collections.abc import Callable

from shard_runtime.clock import Clock
from shard_runtime.cluster.acl_admin import AclAdmin
from shard_runtime.cluster.config_admin import ConfigAdmin
from shard_runtime.cluster.lookups import Lookups
from shard_runtime.cluster.metadata_log import MetadataLog
from shard_runtime.cluster.nodes import NodeRegistry
from shard_runtime.cluster.owners import Owners
from shard_runtime.cluster.quota_admin import QuotaAdmin
from shard_runtime.cluster.topic_admin import TopicAdmin, Transactional
from shard_runtime.cluster.user_admin import UserAdmin
from shard_runtime.config.effective_configs import EffectiveConfigs
from shard_runtime.config.kafka_configs import GROUP_SHARDS, STATE_SHARDS


class NodeLookups:
    """The RPC of ClusterService that nodes call on each other: FindCoordinator, with internal addresses (CM-80)."""

    def __init__(
        self, metadata: MetadataLog, registry: NodeRegistry, owners: Owners, group_shards: int, state_shards: int
    ) -> None:
        lookups = Lookups(
            metadata, registry, owners, group_shards, state_shards, address_of=lambda node: node.internal_address
        )
        self.find_coordinator = lookups.find_coordinator


class ClusterService:
    """The service object for `kip932.api.v1.ClusterService`."""

    def __init__(
        self,
        metadata: MetadataLog,
        registry: NodeRegistry,
        owners: Owners,
        configs: EffectiveConfigs,
        *,
        clock: Clock,
        transactions: Transactional | None = None,
        history: Callable[[], str] = lambda: "",
        circle: Callable[[str, str], str] = lambda group_id, topic: "",
    ) -> None:
        settings = configs.settings
        lookups = Lookups(metadata, registry, owners, settings[GROUP_SHARDS], settings[STATE_SHARDS])
        topics = TopicAdmin(metadata, configs, clock, transactions, history)
        admin = ConfigAdmin(metadata, configs, lambda: registry.record.node_id, circle)
        acls = AclAdmin(metadata)
        quotas = QuotaAdmin(metadata)
        users = UserAdmin(metadata)
        self.find_coordinator = lookups.find_coordinator
        self.metadata = lookups.metadata
        self.describe_cluster = lookups.describe_cluster
        self.create_topics = topics.create_topics
        self.create_partitions = topics.create_partitions
        self.delete_topics = topics.delete_topics
        self.init_producer_id = topics.init_producer_id
        if transactions is not None:
            self.end_txn = transactions.end_txn
            self.list_transactions = transactions.list_transactions
            self.describe_transactions = transactions.describe_transactions
        self.describe_configs = admin.describe_configs
        self.incremental_alter_configs = admin.incremental_alter_configs
        self.create_acls = acls.create_acls
        self.describe_acls = acls.describe_acls
        self.delete_acls = acls.delete_acls
        self.alter_client_quotas = quotas.alter_client_quotas
        self.describe_client_quotas = quotas.describe_client_quotas
        self.describe_user_scram_credentials = users.describe_user_scram_credentials
        self.alter_user_scram_credentials = users.alter_user_scram_credentials
