"""FindCoordinator, Metadata and DescribeCluster, answered from hints and the metadata image (CM-14, CM-22)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kip932.acls import CLUSTER_NAME, ResourceType
from kip932.api.v1.common_pb2 import NodeEndpoint
from kip932.api.v1.describe_cluster_pb2 import DescribeClusterRequest, DescribeClusterResponse
from kip932.api.v1.find_coordinator_pb2 import FindCoordinatorRequest, FindCoordinatorResponse
from kip932.api.v1.metadata_pb2 import MetadataRequest, MetadataResponse
from kip932.errors import (
    CoordinatorNotAvailableError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    LeaderNotAvailableError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kip932.ids import (
    COORDINATOR_KEY_MAX,
    KEY_TYPE_GROUP,
    KEY_TYPE_SHARE,
    KEY_TYPE_TRANSACTION,
    NULL_TOPIC_ID,
    TOPIC_ID_BYTES,
    TOPIC_NAME_RULE,
    TopicIdPartition,
    parse_share_key,
    possible_topic_name,
    shard_index,
    topic_id_text,
)
from shard_runtime.cluster.metadata import MetadataImage, TopicCreated
from shard_runtime.cluster.metadata_log import MetadataLog
from shard_runtime.cluster.nodes import NodeRegistry
from shard_runtime.cluster.owners import Owner, Owners, host_port
from shard_runtime.record_log.cluster_store import NodeRecord
from shard_runtime.record_log.protocol import ShardId, ShardKind
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.bounds import Turns
from shard_runtime.rpc.status import invalid_argument

KEYS_MAX: Final = 10_000
TOPICS_MAX: Final = 10_000
#: How many keys are looked up before other tasks get a turn.
KEYS_SLICE: Final = 250
PARTITIONS_SLICE: Final = 1_000
#: How many characters of an invalid name an error message repeats.
_NAME_SHOWN: Final = 260
NO_AUTHORIZED_OPERATIONS: Final = -(2**31)


def checked_topic_id(topic_id: bytes) -> bytes:
    """Return a request's topic id. Raises INVALID_ARGUMENT unless it has 16 bytes (CM section 1)."""
    if len(topic_id) != TOPIC_ID_BYTES:
        raise invalid_argument(f"topic id has {len(topic_id)} bytes; expected {TOPIC_ID_BYTES}")
    return topic_id


def node_endpoint(node: NodeRecord) -> NodeEndpoint:
    """Return a node's id, host, port, rack and roles, for a response."""
    where = host_port(node.address)
    return NodeEndpoint(
        node_id=node.node_id, host=where.host, port=where.port, rack=node.rack or None, roles=sorted(node.roles)
    )


def _described(node: NodeRecord) -> NodeEndpoint:
    """Return a node for a DescribeCluster, which also has where it serves Kafka's clients (KL-121)."""
    endpoint = node_endpoint(node)
    if node.kafka_address:
        endpoint.kafka_address = node.kafka_address
    return endpoint


class Lookups:
    """Serves the three RPCs. `group_shards` and `state_shards`: the number of shards of each kind (SC-3, GC-1).

    `address_of` returns the address at which the caller reaches a coordinator.
    """

    def __init__(
        self,
        metadata: MetadataLog,
        registry: NodeRegistry,
        owners: Owners,
        group_shards: int,
        state_shards: int,
        *,
        address_of: Callable[[NodeRecord], str] = lambda node: node.address,
    ) -> None:
        self._metadata = metadata
        self._registry = registry
        self._owners = owners
        self._address_of = address_of
        self._shards = {ShardKind.GROUP: group_shards, ShardKind.SHARE_STATE: state_shards}

    async def find_coordinator(self, request: FindCoordinatorRequest, context: CallContext) -> FindCoordinatorResponse:
        """Return the coordinator of each key (GC-130…GC-132)."""
        if len(request.coordinator_keys) > KEYS_MAX:
            raise invalid_argument(f"{len(request.coordinator_keys)} keys; at most {KEYS_MAX} in one request")
        response, turns = FindCoordinatorResponse(), Turns(KEYS_SLICE)
        for key in request.coordinator_keys:
            if len(key) > COORDINATOR_KEY_MAX:
                raise invalid_argument(f"a key has {len(key)} characters; at most {COORDINATOR_KEY_MAX} are allowed")
        for key in request.coordinator_keys:
            await turns.step()
            try:
                _require_coordinator(context, request.key_type, key)
                found = await self._coordinator(request.key_type, key)
            except KafkaError as error:
                response.coordinators.add(
                    key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message
                )
            else:
                where = host_port(self._address_of(found.node))
                response.coordinators.add(key=key, node_id=found.node.node_id, host=where.host, port=where.port)
        return response

    async def _coordinator(self, key_type: int, key: str) -> Owner:
        match key_type:
            case k if k == KEY_TYPE_GROUP:
                kind, text = ShardKind.GROUP, key
            case k if k == KEY_TYPE_SHARE:
                kind, text = ShardKind.SHARE_STATE, parse_share_key(key).text
            case _:
                raise InvalidRequestError(f"key type {key_type} is not served; expected 0 (group) or 2 (share)")
        shard = ShardId(kind, str(shard_index(text, self._shards[kind])))
        owner = await self._owners.find(shard)
        if owner is None:
            raise CoordinatorNotAvailableError(f"no live node owns shard {shard.name} at present; try again")
        return owner

    async def metadata(self, request: MetadataRequest, context: CallContext) -> MetadataResponse:
        """Return topics, leaders and nodes (CM-22). A topic requested twice is returned once, as in Kafka (CM-91)."""
        if len(request.topics.values) > TOPICS_MAX:
            raise invalid_argument(f"{len(request.topics.values)} topics; at most {TOPICS_MAX} in one request")
        image = self._metadata.image
        response = MetadataResponse(cluster_id=self._metadata.cluster_id, metadata_version=image.version)
        await self._owners.refresh(ShardKind.TOPIC)
        leaders = await self._add_topics(response, request, image, context)
        # Read last: nodes join and leave while the topics are added, and each leader named needs an address.
        nodes = leaders | {node.node_id: node for node in self._registry.nodes()}
        response.brokers.extend(node_endpoint(node) for node in nodes.values())
        return response

    async def _add_topics(
        self, response: MetadataResponse, request: MetadataRequest, image: MetadataImage, context: CallContext
    ) -> dict[int, NodeRecord]:
        """Add the requested topics, or all topics that the caller may DESCRIBE, to the response. Returns the leaders
        named, by node id."""
        leaders: dict[int, NodeRecord] = {}
        turns = Turns(PARTITIONS_SLICE)
        if not request.HasField("topics"):
            for topic in image.topics.values():
                await turns.step()
                if context.may(ResourceType.TOPIC, topic.name):
                    await self._add_topic(response, topic, leaders, turns)
            return leaders
        answered: set[str | bytes] = set()
        for asked in request.topics.values:
            found = self._asked(response, image, asked, answered, context)
            if found is not None:
                await self._add_topic(response, found, leaders, turns)
            await turns.step()
        return leaders

    def _asked(
        self,
        response: MetadataResponse,
        image: MetadataImage,
        asked: MetadataRequest.Topic,
        answered: set[str | bytes],
        context: CallContext,
    ) -> TopicCreated | None:
        """Return the requested topic; None when the response has it already, or when it is missing or refused: then its
        error is added. A refused name is answered alike whether a topic has it or not."""
        by_id = asked.HasField("topic_id") and asked.topic_id != NULL_TOPIC_ID
        topic = image.by_id.get(checked_topic_id(asked.topic_id)) if by_id else image.topics.get(asked.name)
        name = asked.name if topic is None else topic.name
        if not by_id:
            refused = context.refusal(ResourceType.TOPIC, name)
        else:
            refused = None if topic is None else context.refusal_by_id(asked.topic_id, name)
        # A refused name and a refused id are two entries, even of one topic: else a guess at the name could be checked.
        known = topic.topic_id if topic is not None and refused is None else asked.topic_id if by_id else asked.name
        if known in answered:
            return None
        answered.add(known)
        if refused is not None and by_id:
            response.topics.add(error_code=refused.code, error_message=refused.message, topic_id=asked.topic_id)
            return None
        if refused is not None:
            response.topics.add(
                error_code=refused.code, error_message=refused.message, name=name, topic_id=NULL_TOPIC_ID
            )
            return None
        if topic is not None:
            return topic
        if by_id:
            error: KafkaError = UnknownTopicIdError(f"topic id {topic_id_text(asked.topic_id)} is not known")
            response.topics.add(error_code=error.code, error_message=error.message, topic_id=asked.topic_id)
        else:
            error = _missing_topic_error(asked.name)
            response.topics.add(
                error_code=error.code, error_message=error.message, name=asked.name, topic_id=NULL_TOPIC_ID
            )
        return None

    async def _add_topic(
        self, response: MetadataResponse, topic: TopicCreated, leaders: dict[int, NodeRecord], turns: Turns
    ) -> None:
        entry = response.topics.add(name=topic.name, topic_id=topic.topic_id, is_internal=topic.name.startswith("__"))
        for partition in range(topic.partitions):
            await turns.step()
            shard = ShardId(ShardKind.TOPIC, TopicIdPartition(topic.topic_id, partition).text)
            owner = self._owners.peek(shard)
            if owner is None:
                entry.partitions.add(
                    error_code=LeaderNotAvailableError.code, partition_index=partition, leader_id=-1, leader_epoch=-1
                )
            else:
                leaders[owner.node.node_id] = owner.node
                entry.partitions.add(partition_index=partition, leader_id=owner.node.node_id, leader_epoch=owner.epoch)

    async def describe_cluster(self, request: DescribeClusterRequest, context: CallContext) -> DescribeClusterResponse:
        """Return the cluster's id and nodes, to every caller: a client needs no right to find its nodes."""
        operations = NO_AUTHORIZED_OPERATIONS
        if request.include_cluster_authorized_operations and context.may(ResourceType.CLUSTER, CLUSTER_NAME):
            operations = context.operations(ResourceType.CLUSTER, CLUSTER_NAME)
        nodes: Sequence[NodeRecord] = self._registry.nodes()
        return DescribeClusterResponse(
            cluster_id=self._metadata.cluster_id,
            controller_id=-1,
            brokers=[_described(node) for node in nodes],
            cluster_authorized_operations=operations,
        )


def _require_coordinator(context: CallContext, key_type: int, key: str) -> None:
    """Raise unless the caller may look up this coordinator (GC-139)."""
    if key_type == KEY_TYPE_GROUP:
        context.require(ResourceType.GROUP, key)
    elif key_type == KEY_TYPE_TRANSACTION:
        context.require(ResourceType.TRANSACTIONAL_ID, key)
    elif key_type == KEY_TYPE_SHARE:
        context.require(ResourceType.CLUSTER, CLUSTER_NAME)


def _missing_topic_error(name: str) -> KafkaError:
    """Return the error for a missing topic: the name is invalid, or no topic has it yet (CM-22)."""
    if possible_topic_name(name):
        return UnknownTopicOrPartitionError(f"topic {name!r} does not exist")
    return InvalidTopicError(f"topic name {name[:_NAME_SHOWN]!r} cannot be: a name has {TOPIC_NAME_RULE}")
