"""A small cluster in memory that speaks the client-facing protos: topics, one group coordinator, leaders with sessions.

It keeps the rules that the client can see (epochs, session ids, acquisition, parked fetches, sequences) and lets a test
break them: `errors`, `drop_streams`, `move_leader`, `hold_produce`.
"""

from __future__ import annotations

from google.protobuf.descriptor import ServiceDescriptor

from kip932.api.v1 import cluster_service_pb2, group_coordinator_service_pb2, partition_leader_service_pb2
from tests.support.fake_cluster.leader import Leader
from tests.support.fake_cluster.services import Cluster, Coordinator
from tests.support.fake_cluster.state import FakeState


class FakeCluster(FakeState):
    """Nodes `node<i>:9000`; every node serves everything it leads."""

    def __init__(self, nodes: int = 1) -> None:
        super().__init__(nodes)
        for node in self.nodes:
            self.serve(node)

    def services(self, node: int) -> list[tuple[ServiceDescriptor, object]]:
        found = (
            (cluster_service_pb2, "ClusterService", Cluster(self)),
            (group_coordinator_service_pb2, "GroupCoordinatorService", Coordinator(self)),
            (partition_leader_service_pb2, "PartitionLeaderService", Leader(self, node)),
        )
        return [(module.DESCRIPTOR.services_by_name[name], service) for module, name, service in found]

    def serve(self, node: int) -> None:
        for descriptor, service in self.services(node):
            self.network.serve(f"node{node}:9000", descriptor, service)
