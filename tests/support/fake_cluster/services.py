"""The fake cluster's ClusterService, as far as a client uses it."""

from __future__ import annotations

from typing import Any, Final

from kip932.api.v1 import (
    create_partitions_pb2,
    create_topics_pb2,
    describe_cluster_pb2,
    describe_transactions_pb2,
    end_txn_pb2,
    find_coordinator_pb2,
    init_producer_id_pb2,
    list_transactions_pb2,
    metadata_pb2,
)
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.ids import NULL_TOPIC_ID, TOPIC_NAME_RULE, TopicIdPartition, possible_topic_name
from kip932.rpc.transport import TransportStatus
from shard_runtime.rpc.status import RpcFailureError
from tests.support.fake_cluster.acls import Acls
from tests.support.fake_cluster.client_quotas import ClientQuotas
from tests.support.fake_cluster.configs import Configs
from tests.support.fake_cluster.faults import GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED
from tests.support.fake_cluster.state import FakeState
from tests.support.fake_cluster.users import Users
from transaction_coordinator.read_service import Surroundings, TransactionReads

UNKNOWN_TOPIC_OR_PARTITION: Final = 3
INVALID_TOPIC_EXCEPTION: Final = 17
LEADER_NOT_AVAILABLE: Final = 5
TOPIC_ALREADY_EXISTS: Final = 36
INVALID_PARTITIONS: Final = 37
UNKNOWN_TOPIC_ID: Final = 100


class Cluster(Configs, Acls, ClientQuotas, Users):
    def __init__(self, fake: FakeState, node: int = 0) -> None:
        super().__init__(fake, node)
        self.fake = fake
        self.transaction_reads = TransactionReads(fake.transactions, Surroundings(lambda: node, self._name))

    def _name(self, topic_id: bytes) -> str:
        return next((name for name, (found, _) in self.fake.topics.items() if found == topic_id), "")

    async def metadata(self, request: metadata_pb2.MetadataRequest, context: Any) -> metadata_pb2.MetadataResponse:
        fake = self.fake
        fake.metadata_requests += 1
        response = metadata_pb2.MetadataResponse(
            cluster_id="fake", brokers=fake.endpoints(), metadata_version=fake.metadata_version
        )
        if request.HasField("topics"):
            wanted = [(topic.name, topic.topic_id) for topic in request.topics.values]
        else:
            wanted = [(name, b"") for name in fake.topics]
        by_id = {topic_id: name for name, (topic_id, _) in fake.topics.items()}
        for asked, topic_id in wanted:
            name = asked or by_id.get(topic_id, "")
            if text := fake.denial("DESCRIBE", "topic", name):
                named = {"name": asked, "topic_id": NULL_TOPIC_ID} if asked else {"topic_id": topic_id}
                response.topics.add(error_code=TOPIC_AUTHORIZATION_FAILED, error_message=text, **named)
            elif name in fake.topics:
                self._add(response, name)
            elif not topic_id and not possible_topic_name(asked):
                text = f"topic name {asked!r} cannot be: a name has {TOPIC_NAME_RULE}"
                response.topics.add(
                    error_code=INVALID_TOPIC_EXCEPTION, error_message=text, name=asked, topic_id=NULL_TOPIC_ID
                )
            elif not topic_id:
                response.topics.add(error_code=UNKNOWN_TOPIC_OR_PARTITION, name=asked, topic_id=NULL_TOPIC_ID)
            else:
                response.topics.add(error_code=UNKNOWN_TOPIC_ID, topic_id=topic_id)
        return response

    async def describe_cluster(self, request: Any, context: Any) -> describe_cluster_pb2.DescribeClusterResponse:
        return describe_cluster_pb2.DescribeClusterResponse(
            cluster_id="fake", controller_id=-1, brokers=self.fake.endpoints()
        )

    def _add(self, response: metadata_pb2.MetadataResponse, name: str) -> None:
        topic_id, count = self.fake.topics[name]
        topic = response.topics.add(name=name, topic_id=topic_id)
        for number in range(count):
            leader, epoch = self.fake.leaders[TopicIdPartition(topic_id, number)]
            if leader >= 0:
                topic.partitions.add(partition_index=number, leader_id=leader, leader_epoch=epoch)
            else:
                topic.partitions.add(
                    partition_index=number, leader_id=-1, leader_epoch=-1, error_code=LEADER_NOT_AVAILABLE
                )

    async def find_coordinator(self, request: Any, context: Any) -> find_coordinator_pb2.FindCoordinatorResponse:
        response = find_coordinator_pb2.FindCoordinatorResponse()
        for key in request.coordinator_keys:
            if text := self.fake.denial("DESCRIBE", "group", key):
                code = ErrorCode.ValueType(GROUP_AUTHORIZATION_FAILED)
                response.coordinators.add(key=key, node_id=-1, error_code=code, error_message=text)
                continue
            node = self.fake.endpoint(self.fake.coordinator)
            response.coordinators.add(key=key, node_id=node.node_id, host=node.host, port=node.port)
        return response

    async def init_producer_id(self, request: Any, context: Any) -> init_producer_id_pb2.InitProducerIdResponse:
        self.fake.identities += 1
        new_id = 1000 + self.fake.identities
        if request.HasField("transactional_id"):
            return self.fake.transactions.begin(request, new_id)
        return init_producer_id_pb2.InitProducerIdResponse(producer_id=new_id, producer_epoch=0)

    async def end_txn(self, request: Any, context: Any) -> end_txn_pb2.EndTxnResponse:
        if code := self.fake.take_error("end_txn"):
            return end_txn_pb2.EndTxnResponse(error_code=ErrorCode.ValueType(code), producer_id=-1, producer_epoch=-1)
        answer = self.fake.transactions.end(request)
        if self.fake.take_error("end_txn_lost"):
            raise RpcFailureError(TransportStatus.UNAVAILABLE, "decided, and the answer is lost")
        return answer

    async def list_transactions(self, request: Any, context: Any) -> list_transactions_pb2.ListTransactionsResponse:
        if code := self.fake.take_error("list_transactions"):
            return list_transactions_pb2.ListTransactionsResponse(error_code=ErrorCode.ValueType(code))
        return await self.transaction_reads.list_transactions(request, context)

    async def describe_transactions(
        self, request: Any, context: Any
    ) -> describe_transactions_pb2.DescribeTransactionsResponse:
        return await self.transaction_reads.describe_transactions(request, context)

    async def create_topics(self, request: Any, context: Any) -> create_topics_pb2.CreateTopicsResponse:
        response = create_topics_pb2.CreateTopicsResponse()
        for topic in request.topics:
            if topic.name in self.fake.topics:
                response.topics.add(name=topic.name, error_code=TOPIC_ALREADY_EXISTS)
            else:
                response.topics.add(name=topic.name, topic_id=self.fake.add_topic(topic.name, topic.num_partitions))
        return response

    async def create_partitions(self, request: Any, context: Any) -> create_partitions_pb2.CreatePartitionsResponse:
        response = create_partitions_pb2.CreatePartitionsResponse()
        for topic in request.topics:
            _, before = self.fake.topics.get(topic.name, (b"", -1))
            refused = UNKNOWN_TOPIC_OR_PARTITION if before < 0 else INVALID_PARTITIONS if topic.count <= before else 0
            if not refused and not request.validate_only:
                self.fake.grow_topic(topic.name, topic.count)
            response.results.add(name=topic.name, error_code=ErrorCode.ValueType(refused))
        return response
