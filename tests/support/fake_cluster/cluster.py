"""A small in-memory cluster that serves the client-facing protos: topics, one group coordinator, leaders with sessions.

The tests in `tests/contracts/services`, which the real services also pass, check the fake's behaviour, file by file:

    services.py      test_cluster.py: Metadata, DescribeCluster, FindCoordinator, InitProducerId, CreateTopics,
                     CreatePartitions
    configs.py       test_configs.py: DescribeConfigs, IncrementalAlterConfigs
    coordinator.py   test_groups.py: heartbeats, assignments, groups and their offsets
    group_changes.py test_group_changes.py: DeleteGroups, DeleteShareGroupOffsets, AlterShareGroupOffsets
    leader.py        test_produce.py: Produce and ProduceStream; test_deleted_records.py: DeleteRecords, ListOffsets;
                     test_plain_fetch.py: Fetch; test_log_dirs.py: DescribeLogDirs
    share.py         test_share_sessions.py, test_share_stream.py: sessions, parked fetches, streams
    transactions.py  test_produce.py: InitProducerId with a transactional id, EndTxn, reports on transactions
    log.py           test_records.py, test_locks.py; test_produce.py for producers; test_deleted_records.py
    client_quotas.py no contract: AlterClientQuotas, DescribeClientQuotas, checked by the product's own rules
    acls.py          no contract yet, since no service has these RPCs: CreateAcls, DescribeAcls, DeleteAcls
    users.py         test_users.py: DescribeUserScramCredentials, AlterUserScramCredentials

RPCs that are missing here are not faked, and a response has only the fields that a client reads. A test's own
interventions imitate no service: `faults.py` (planned errors, lost responses, broken streams), `silence.py` (nodes that
send nothing), stopped nodes (`network.stop`), moved or missing leaders (`leaders`, `move_leader`), and values that a
test sets in `state.py`.
"""

from __future__ import annotations

from google.protobuf.descriptor import ServiceDescriptor

from kip932.api.v1 import cluster_service_pb2, group_coordinator_service_pb2, partition_leader_service_pb2
from tests.support.fake_cluster.coordinator import Coordinator
from tests.support.fake_cluster.leader import Leader
from tests.support.fake_cluster.services import Cluster
from tests.support.fake_cluster.state import FakeState


class FakeCluster(FakeState):
    """Nodes `node<i>:9000`; every node serves everything it leads."""

    def __init__(self, nodes: int = 1) -> None:
        super().__init__(nodes)
        for node in self.nodes:
            self.serve(node)

    def services(self, node: int) -> list[tuple[ServiceDescriptor, object]]:
        found = (
            (cluster_service_pb2, "ClusterService", Cluster(self, node)),
            (group_coordinator_service_pb2, "GroupCoordinatorService", Coordinator(self)),
            (partition_leader_service_pb2, "PartitionLeaderService", Leader(self, node)),
        )
        return [(module.DESCRIPTOR.services_by_name[name], service) for module, name, service in found]

    def serve(self, node: int) -> None:
        for descriptor, service in self.services(node):
            self.network.serve(f"node{node}:9000", descriptor, service)
