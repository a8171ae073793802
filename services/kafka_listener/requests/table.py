"""The requests that the listener serves: what it offers in ApiVersions is what has a handler here (KL-10)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests import (
    alter_client_quotas,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_user_scram_credentials,
    end_txn,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_groups,
    list_offsets,
    metadata,
    produce,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
)

#: Takes the request, its version and its connection; returns the response, `Paced`, or None: no answer at all.
Answer = Callable[[Any, int, Connection], Awaitable[Any]]


class Handler(NamedTuple):
    """One API: its name, the versions that ApiVersions offers, and what answers its requests. Of the offered versions
    those are served that the table of messages has; only Produce is offered below them (KL-11)."""

    api: str
    versions_offered: range
    answer: Answer


_ROWS: Final[tuple[Handler, ...]] = (
    Handler("Produce", range(0, 14), produce.answer),
    Handler("Fetch", range(4, 18), fetch.answer),
    Handler("ListOffsets", range(1, 12), list_offsets.answer),
    Handler("Metadata", range(0, 14), metadata.answer),
    Handler("FindCoordinator", range(0, 7), find_coordinator.answer),
    Handler("CreateTopics", range(2, 8), create_topics.answer),
    Handler("DeleteTopics", range(1, 7), delete_topics.answer),
    Handler("DeleteRecords", range(0, 3), delete_records.answer),
    Handler("InitProducerId", range(0, 7), init_producer_id.answer),
    Handler("EndTxn", range(5, 6), end_txn.answer),
    Handler("DescribeAcls", range(1, 4), describe_acls.answer),
    Handler("CreateAcls", range(1, 4), create_acls.answer),
    Handler("DeleteAcls", range(1, 4), delete_acls.answer),
    Handler("DescribeConfigs", range(1, 5), describe_configs.answer),
    Handler("CreatePartitions", range(0, 4), create_partitions.answer),
    Handler("IncrementalAlterConfigs", range(0, 2), incremental_alter_configs.answer),
    Handler("DescribeClientQuotas", range(0, 2), describe_client_quotas.answer),
    Handler("AlterClientQuotas", range(0, 2), alter_client_quotas.answer),
    Handler("DescribeUserScramCredentials", range(0, 1), describe_user_scram_credentials.answer),
    Handler("AlterUserScramCredentials", range(0, 1), alter_user_scram_credentials.answer),
    Handler("DescribeCluster", range(0, 3), describe_cluster.answer),
    Handler("DescribeTopicPartitions", range(0, 1), describe_topic_partitions.answer),
    Handler("ListGroups", range(6), list_groups.answer),
    Handler("DeleteGroups", range(3), delete_groups.answer),
    Handler("ShareGroupHeartbeat", range(1, 2), share_group_heartbeat.answer),
    Handler("ShareGroupDescribe", range(1, 2), share_group_describe.answer),
    Handler("ShareFetch", range(1, 3), share_fetch.answer),
    Handler("ShareAcknowledge", range(1, 3), share_acknowledge.answer),
    Handler("DescribeShareGroupOffsets", range(2), describe_share_group_offsets.answer),
    Handler("AlterShareGroupOffsets", range(1), alter_share_group_offsets.answer),
    Handler("DeleteShareGroupOffsets", range(1), delete_share_group_offsets.answer),
)

#: The handlers by the keys of their APIs.
HANDLERS: Final[Mapping[int, Handler]] = {api(row.api).key: row for row in _ROWS}
