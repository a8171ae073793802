"""The RPCs that this client calls, with their message types, and small conversions between messages and values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from google.protobuf.message import Message

from kip932.api.v1 import (
    alter_client_quotas_pb2,
    alter_user_scram_credentials_pb2,
    create_acls_pb2,
    create_partitions_pb2,
    create_topics_pb2,
    delete_acls_pb2,
    delete_groups_pb2,
    delete_records_pb2,
    delete_share_group_offsets_pb2,
    delete_topics_pb2,
    describe_acls_pb2,
    describe_client_quotas_pb2,
    describe_cluster_pb2,
    describe_configs_pb2,
    describe_log_dirs_pb2,
    describe_share_group_offsets_pb2,
    describe_transactions_pb2,
    describe_user_scram_credentials_pb2,
    end_txn_pb2,
    explain_record_pb2,
    fetch_pb2,
    find_coordinator_pb2,
    incremental_alter_configs_pb2,
    init_producer_id_pb2,
    list_groups_pb2,
    list_offsets_pb2,
    list_share_progress_pb2,
    list_transactions_pb2,
    metadata_pb2,
    produce_pb2,
    share_group_describe_pb2,
    share_group_heartbeat_pb2,
    share_stream_pb2,
)
from kip932.api.v1 import (
    alter_share_group_offsets_pb2 as alter_offsets,
)
from kip932.api.v1.common_pb2 import NodeEndpoint
from kip932.api.v1.record_batch_pb2 import FetchedBatch
from kip932.errors import CorruptMessageError, UnsupportedCompressionTypeError
from kip932.ids import TopicIdPartition
from kip932.record_batches import open_batch
from kip932.rpc.transport import Method
from sharegroups.messages import DecodedBatch

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)

_CLUSTER: Final = "ClusterService"
_GROUP: Final = "GroupCoordinatorService"
_LEADER: Final = "PartitionLeaderService"


def _method(
    service: str, name: str, request: type[RequestT], response: type[ResponseT], streaming: bool = False
) -> Method[RequestT, ResponseT]:
    return Method(f"/kip932.api.v1.{service}/{name}", request, response, streaming)


METADATA = _method(_CLUSTER, "Metadata", metadata_pb2.MetadataRequest, metadata_pb2.MetadataResponse)
FIND_COORDINATOR = _method(
    _CLUSTER,
    "FindCoordinator",
    find_coordinator_pb2.FindCoordinatorRequest,
    find_coordinator_pb2.FindCoordinatorResponse,
)
DESCRIBE_CLUSTER = _method(
    _CLUSTER,
    "DescribeCluster",
    describe_cluster_pb2.DescribeClusterRequest,
    describe_cluster_pb2.DescribeClusterResponse,
)
CREATE_TOPICS = _method(
    _CLUSTER, "CreateTopics", create_topics_pb2.CreateTopicsRequest, create_topics_pb2.CreateTopicsResponse
)
CREATE_PARTITIONS = _method(
    _CLUSTER,
    "CreatePartitions",
    create_partitions_pb2.CreatePartitionsRequest,
    create_partitions_pb2.CreatePartitionsResponse,
)
DELETE_TOPICS = _method(
    _CLUSTER, "DeleteTopics", delete_topics_pb2.DeleteTopicsRequest, delete_topics_pb2.DeleteTopicsResponse
)
DESCRIBE_CONFIGS = _method(
    _CLUSTER,
    "DescribeConfigs",
    describe_configs_pb2.DescribeConfigsRequest,
    describe_configs_pb2.DescribeConfigsResponse,
)
ALTER_CONFIGS = _method(
    _CLUSTER,
    "IncrementalAlterConfigs",
    incremental_alter_configs_pb2.IncrementalAlterConfigsRequest,
    incremental_alter_configs_pb2.IncrementalAlterConfigsResponse,
)
INIT_PRODUCER_ID = _method(
    _CLUSTER,
    "InitProducerId",
    init_producer_id_pb2.InitProducerIdRequest,
    init_producer_id_pb2.InitProducerIdResponse,
)
END_TXN = _method(_CLUSTER, "EndTxn", end_txn_pb2.EndTxnRequest, end_txn_pb2.EndTxnResponse)
LIST_TRANSACTIONS = _method(
    _CLUSTER,
    "ListTransactions",
    list_transactions_pb2.ListTransactionsRequest,
    list_transactions_pb2.ListTransactionsResponse,
)
DESCRIBE_TRANSACTIONS = _method(
    _CLUSTER,
    "DescribeTransactions",
    describe_transactions_pb2.DescribeTransactionsRequest,
    describe_transactions_pb2.DescribeTransactionsResponse,
)
CREATE_ACLS = _method(_CLUSTER, "CreateAcls", create_acls_pb2.CreateAclsRequest, create_acls_pb2.CreateAclsResponse)
DESCRIBE_ACLS = _method(
    _CLUSTER, "DescribeAcls", describe_acls_pb2.DescribeAclsRequest, describe_acls_pb2.DescribeAclsResponse
)
DELETE_ACLS = _method(_CLUSTER, "DeleteAcls", delete_acls_pb2.DeleteAclsRequest, delete_acls_pb2.DeleteAclsResponse)
ALTER_CLIENT_QUOTAS = _method(
    _CLUSTER,
    "AlterClientQuotas",
    alter_client_quotas_pb2.AlterClientQuotasRequest,
    alter_client_quotas_pb2.AlterClientQuotasResponse,
)
DESCRIBE_CLIENT_QUOTAS = _method(
    _CLUSTER,
    "DescribeClientQuotas",
    describe_client_quotas_pb2.DescribeClientQuotasRequest,
    describe_client_quotas_pb2.DescribeClientQuotasResponse,
)
DESCRIBE_USERS = _method(
    _CLUSTER,
    "DescribeUserScramCredentials",
    describe_user_scram_credentials_pb2.DescribeUserScramCredentialsRequest,
    describe_user_scram_credentials_pb2.DescribeUserScramCredentialsResponse,
)
ALTER_USERS = _method(
    _CLUSTER,
    "AlterUserScramCredentials",
    alter_user_scram_credentials_pb2.AlterUserScramCredentialsRequest,
    alter_user_scram_credentials_pb2.AlterUserScramCredentialsResponse,
)
HEARTBEAT = _method(
    _GROUP,
    "ShareGroupHeartbeat",
    share_group_heartbeat_pb2.ShareGroupHeartbeatRequest,
    share_group_heartbeat_pb2.ShareGroupHeartbeatResponse,
)
DESCRIBE_GROUPS = _method(
    _GROUP,
    "ShareGroupDescribe",
    share_group_describe_pb2.ShareGroupDescribeRequest,
    share_group_describe_pb2.ShareGroupDescribeResponse,
)
LIST_GROUPS = _method(_GROUP, "ListGroups", list_groups_pb2.ListGroupsRequest, list_groups_pb2.ListGroupsResponse)
DELETE_GROUPS = _method(
    _GROUP, "DeleteGroups", delete_groups_pb2.DeleteGroupsRequest, delete_groups_pb2.DeleteGroupsResponse
)
DESCRIBE_OFFSETS = _method(
    _GROUP,
    "DescribeShareGroupOffsets",
    describe_share_group_offsets_pb2.DescribeShareGroupOffsetsRequest,
    describe_share_group_offsets_pb2.DescribeShareGroupOffsetsResponse,
)
ALTER_OFFSETS = _method(
    _GROUP,
    "AlterShareGroupOffsets",
    alter_offsets.AlterShareGroupOffsetsRequest,
    alter_offsets.AlterShareGroupOffsetsResponse,
)
DELETE_OFFSETS = _method(
    _GROUP,
    "DeleteShareGroupOffsets",
    delete_share_group_offsets_pb2.DeleteShareGroupOffsetsRequest,
    delete_share_group_offsets_pb2.DeleteShareGroupOffsetsResponse,
)
LIST_OFFSETS = _method(
    _LEADER, "ListOffsets", list_offsets_pb2.ListOffsetsRequest, list_offsets_pb2.ListOffsetsResponse
)
DELETE_RECORDS = _method(
    _LEADER, "DeleteRecords", delete_records_pb2.DeleteRecordsRequest, delete_records_pb2.DeleteRecordsResponse
)
DESCRIBE_LOG_DIRS = _method(
    _LEADER,
    "DescribeLogDirs",
    describe_log_dirs_pb2.DescribeLogDirsRequest,
    describe_log_dirs_pb2.DescribeLogDirsResponse,
)
LIST_SHARE_PROGRESS = _method(
    _LEADER,
    "ListShareProgress",
    list_share_progress_pb2.ListShareProgressRequest,
    list_share_progress_pb2.ListShareProgressResponse,
)
EXPLAIN_RECORD = _method(
    _LEADER, "ExplainRecord", explain_record_pb2.ExplainRecordRequest, explain_record_pb2.ExplainRecordResponse
)
FETCH = _method(_LEADER, "Fetch", fetch_pb2.FetchRequest, fetch_pb2.FetchResponse)
PRODUCE_STREAM = _method(
    _LEADER, "ProduceStream", produce_pb2.ProduceStreamRequest, produce_pb2.ProduceStreamResponse, streaming=True
)
SHARE_STREAM = _method(
    _LEADER, "ShareStream", share_stream_pb2.ShareStreamRequest, share_stream_pb2.ShareStreamResponse, streaming=True
)


def address_of(node: NodeEndpoint) -> str:
    """Return `host:port` of a node."""
    return f"{node.host}:{node.port}"


def by_topic(partitions: Iterable[TopicIdPartition]) -> dict[bytes, list[int]]:
    """Return the partition numbers by topic id, in the order given."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in partitions:
        topics.setdefault(topic_id, []).append(partition)
    return topics


def decode(fetched: FetchedBatch, data: bytes | None = None) -> DecodedBatch:
    """Decode one batch with a single parse. The result for an unreadable batch has its offsets and the error.

    `data`: the batch's bytes if the caller already has them, since every access to `fetched.batch` copies them.
    """
    try:
        base_timestamp_ms, records = open_batch(fetched.batch if data is None else data, fetched.count)
    except (CorruptMessageError, UnsupportedCompressionTypeError) as error:
        last = fetched.base_offset + fetched.count - 1
        problem = type(error)(f"the batch with offsets {fetched.base_offset} to {last} cannot be read: {error}")
        return DecodedBatch(fetched.base_offset, fetched.count, 0, (), problem)
    return DecodedBatch(fetched.base_offset, fetched.count, base_timestamp_ms, records, None)
