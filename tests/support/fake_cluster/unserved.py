"""A fake cluster with transactions, which no service has yet (docs/architecture.md, "Built, and not served yet").

The client's side of them is built and tested against this. It claims nothing about services, so no contract holds it.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import ServiceDescriptor

from kip932.api.v1 import init_producer_id_pb2, produce_pb2, write_txn_markers_pb2
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.leader import Leader
from tests.support.fake_cluster.services import Cluster


class TransactionalCluster(FakeCluster):
    """It takes transactional ids and batches, and keeps the markers that it is sent."""

    def __init__(self, nodes: int = 1) -> None:
        self.markers: list[write_txn_markers_pb2.WriteTxnMarkersRequest] = []
        super().__init__(nodes)

    def services(self, node: int) -> list[tuple[ServiceDescriptor, object]]:
        (cluster, _), group, (leader, _) = super().services(node)
        return [(cluster, _Cluster(self)), group, (leader, _Leader(self, node))]


class _Cluster(Cluster):
    async def init_producer_id(self, request: Any, context: Any) -> init_producer_id_pb2.InitProducerIdResponse:
        return self.new_producer()


class _Leader(Leader):
    def __init__(self, fake: TransactionalCluster, node: int) -> None:
        super().__init__(fake, node)
        self._markers = fake.markers

    def _refusal(self, request: produce_pb2.ProduceRequest) -> int:
        return 0

    async def write_txn_markers(
        self, request: write_txn_markers_pb2.WriteTxnMarkersRequest, context: Any
    ) -> write_txn_markers_pb2.WriteTxnMarkersResponse:
        self._markers.append(request)
        return write_txn_markers_pb2.WriteTxnMarkersResponse()
