"""Asks partition leaders for the sizes of their logs, and for the space that is left in the store that holds them
(CM-209)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from kip932.api.v1.common_pb2 import NodeEndpoint
from kip932.api.v1.describe_log_dirs_pb2 import DescribeLogDirsRequest, DescribeLogDirsResponse
from kip932.errors import InvalidRequestError, KafkaError, NetworkError, error_for
from kip932.ids import TopicPartition
from kip932.rpc.transport import TransportError
from sharegroups.admin_values import LogDirDescription, ReplicaInfo
from sharegroups.connection import wire
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.coordinator_calls import fatal_error, until_answered, while_no_room

_ROLE = "partition-leader"
#: What each node answers: its log directories by name, or the error.
LogDirs = dict[int, dict[str, LogDirDescription] | KafkaError]


async def describe_log_dirs(
    cluster: Cluster, node_ids: Collection[int] | None, topics: Iterable[str] | None, timeout_s: float
) -> LogDirs:
    """Ask these nodes, or all partition leaders. Raises KafkaError when no node returns the list of nodes."""
    method = wire.DESCRIBE_LOG_DIRS
    metadata = await until_answered(cluster, method.name, timeout_s, lambda: cluster.fetch_metadata([]))
    alive = {node.node_id: node for node in metadata.brokers}
    request = DescribeLogDirsRequest()
    if topics is not None:
        request.topics.SetInParent()
        for topic in topics:
            request.topics.values.add(topic=topic)
    wanted = [node.node_id for node in metadata.brokers if _leads(node)] if node_ids is None else list(node_ids)

    async def ask(node_id: int) -> dict[str, LogDirDescription] | KafkaError:
        node = alive.get(node_id)
        if node is None:
            known = ", ".join(map(str, sorted(alive)))
            return InvalidRequestError(f"no node {node_id} is alive; the live nodes of the cluster are {known}")
        address = wire.address_of(node)
        try:
            response = await while_no_room(
                cluster, timeout_s, lambda: cluster.transport.call(address, method, request, timeout_s)
            )
        except TransportError as error:
            return fatal_error(error) or NetworkError(f"node {node_id} at {address} did not answer: {error}")
        return error_for(response.error_code, response.error_message) or _described(response)

    return dict(zip(wanted, await asyncio.gather(*map(ask, wanted)), strict=True))


def _leads(node: NodeEndpoint) -> bool:
    return not node.roles or any(role.replace("_", "-") == _ROLE for role in node.roles)


def _described(response: DescribeLogDirsResponse) -> dict[str, LogDirDescription]:
    return {
        result.log_dir: LogDirDescription(
            error_for(result.error_code, result.error_message),
            {
                TopicPartition(topic.name, part.partition_index): ReplicaInfo(
                    part.partition_size,
                    part.offset_lag,
                    part.is_future_key,
                    part.record_count,
                    part.oldest_append_time_ms if part.HasField("oldest_append_time_ms") else None,
                    part.size_is_estimate,
                )
                for topic in result.topics
                for part in topic.partitions
            },
            _known(result.total_bytes),
            _known(result.usable_bytes),
            _known(result.used_bytes),
        )
        for result in response.results
    }


def _known(number: int) -> int | None:
    return number if number >= 0 else None
