"""KEDA gets an error when the scaler's principal lacks a permission, not a number, which would stop the workers."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.api.v1.fetch_pb2 import FetchResponse
from kip932.errors import (
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from kip932.ids import TopicPartition
from kip932.keda import external_scaler_pb2 as keda
from kip932.rpc.transport import TransportStatus
from shard_runtime.rpc.status import RpcFailureError
from share_node.scaler.backlog import BacklogReader
from share_node.scaler.demand import AGE
from share_node.scaler.service import ExternalScaler
from sharegroups.admin_values import Node, PartitionDescription, ShareGroupOffset, TopicDescription

pytestmark = pytest.mark.asyncio


class Cluster:
    """The cluster as the scaler's client sees it: one group with a lag of 7 records on topic `t`."""

    topic = TopicDescription("t", b"t" * 16, (PartitionDescription(0, 1, 1, None),))

    def __init__(self) -> None:
        self.fetched = FetchResponse()
        self.offsets: Any = {TopicPartition("t", 0): ShareGroupOffset(start_offset=3, leader_epoch=None, lag=7)}

    async def list_share_group_offsets(self, asked: dict[str, None], *, backlog: bool) -> dict[str, Any]:
        return dict.fromkeys(asked, self.offsets)

    async def list_topics(self, names: Any) -> dict[str, TopicDescription]:
        return dict.fromkeys(names, self.topic)

    async def describe_cluster(self) -> Any:
        return self

    @property
    def nodes(self) -> list[Node]:
        return [Node(1, "127.0.0.1", 9092)]

    async def call(self, *_: Any) -> FetchResponse:
        return self.fetched

    async def status(self, **metadata: str) -> TransportStatus:
        scaler = ExternalScaler(BacklogReader(cast(Any, self), cast(Any, self)), lambda: 0)
        ref = keda.ScaledObjectRef(scaler_metadata={"group": "g", "ageTargetSeconds": "5", **metadata})
        with pytest.raises(RpcFailureError) as refused:
            await scaler.get_metrics(keda.GetMetricsRequest(scaled_object_ref=ref, metric_name=AGE))
        return refused.value.status


@pytest.mark.rule("CM-61")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (GroupAuthorizationFailedError("no"), TransportStatus.PERMISSION_DENIED),
        (CoordinatorNotAvailableError("later"), TransportStatus.UNAVAILABLE),
    ],
)
async def test_a_group_that_may_not_be_described_is_refused(error: KafkaError, expected: TransportStatus) -> None:
    cluster = Cluster()
    cluster.offsets = error
    assert await cluster.status() is expected


@pytest.mark.rule("CM-61")
async def test_a_topic_of_the_trigger_that_may_not_be_described_is_refused() -> None:
    cluster = Cluster()
    cluster.topic = TopicDescription("t", bytes(16), (), error=TopicAuthorizationFailedError("no"))
    assert await cluster.status(topics="t") is TransportStatus.PERMISSION_DENIED


@pytest.mark.rule("CM-61")
async def test_an_age_that_may_not_be_read_is_refused() -> None:
    cluster = Cluster()
    topic = cluster.fetched.responses.add()
    topic.partitions.add(error_code=ErrorCode.ValueType(TopicAuthorizationFailedError.code), error_message="no")
    assert await cluster.status() is TransportStatus.PERMISSION_DENIED
