"""The admin client for asyncio: topics, logs, configs, and by inheritance share groups, transactions, access control
entries and quotas (CL-45)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from google.protobuf.message import Message

from kip932.api.v1.create_partitions_pb2 import CreatePartitionsRequest
from kip932.api.v1.create_topics_pb2 import CreateTopicsRequest
from kip932.api.v1.delete_records_pb2 import DeleteRecordsRequest
from kip932.api.v1.delete_topics_pb2 import DeleteTopicsRequest
from kip932.api.v1.describe_cluster_pb2 import DescribeClusterRequest
from kip932.api.v1.describe_configs_pb2 import DescribeConfigsRequest, DescribeConfigsResponse
from kip932.api.v1.incremental_alter_configs_pb2 import IncrementalAlterConfigsRequest
from kip932.api.v1.list_offsets_pb2 import ListOffsetsRequest
from kip932.api.v1.metadata_pb2 import MetadataRequest
from kip932.errors import (
    InvalidRequestError,
    KafkaError,
    LeaderNotAvailableError,
    ThrottlingQuotaExceededError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kip932.ids import OFFSET_LATEST, RESOURCE_BROKER, TopicIdPartition, TopicPartition
from kip932.rpc.transport import Method, Transport, TransportError
from sharegroups import arguments
from sharegroups.admin_values import (
    AlterConfig,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    Node,
    PartitionDescription,
    RecordsExplained,
    RecordsRead,
    ShareGroupDescription,
    TopicDescription,
)
from sharegroups.administration.acl_admin import AclAdmin
from sharegroups.administration.explaining import Question, explained
from sharegroups.administration.group_admin import GroupAdmin
from sharegroups.administration.log_dirs import LogDirs, describe_log_dirs
from sharegroups.administration.log_reading import READ_BYTES, Span, read
from sharegroups.administration.progress_admin import ProgressAdmin
from sharegroups.administration.quota_admin import QuotaAdmin
from sharegroups.administration.transaction_admin import TransactionAdmin
from sharegroups.administration.user_admin import UserAdmin
from sharegroups.arguments import partition, text, whole
from sharegroups.config import ADMIN, Config, given_settings
from sharegroups.connection import wire
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.coordinator_calls import at_any, until_answered, while_no_room
from sharegroups.connection.security import transport_for
from sharegroups.errors import NetworkError

Errors = dict[str, KafkaError | None]
ResponseT = TypeVar("ResponseT", bound=Message)

#: How long a call waits for a leader of its partitions, in seconds: a node's metadata may be older than the leader of a
#: new topic.
LEADER_WAIT_S: Final = 2.0


class Admin(GroupAdmin, ProgressAdmin, TransactionAdmin, AclAdmin, QuotaAdmin, UserAdmin):
    """The admin client. Takes settings as a dict, or as keyword arguments with `_` for `.`. Use it as `async with`, or
    call `close`.

    A call about several items returns a result or an error for each. It raises KafkaError if it fails as a whole.
    """

    def __init__(
        self, settings: Mapping[str, Any] | None = None, *, transport: Transport | None = None, **keywords: Any
    ) -> None:
        self._config = Config(ADMIN, given_settings(settings, keywords))
        self._own_transport = transport is None
        self._transport = transport if transport is not None else transport_for(self._config)
        super().__init__(Cluster(self._transport, self._config), self._config["default.api.timeout.ms"] / 1000)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()
        if self._own_transport:
            await self._transport.close()

    # Topics.

    async def create_topics(self, topics: Iterable[NewTopic | str], validate_only: bool = False) -> Errors:
        """Create topics (CM-21); a plain name means one partition. Retries calls that a quota refuses (CL-160)."""
        request = CreateTopicsRequest(timeout_ms=int(self._timeout_s * 1000), validate_only=validate_only)
        instead = 'create_topics(["orders"]), or create_topics([NewTopic("orders", 2)])'
        for given in arguments.items("create_topics", topics, "topics or their names", (NewTopic, str), instead):
            topic = NewTopic(given) if isinstance(given, str) else given
            call = f"create_topics, NewTopic {topic.name!r}"
            name, count = text(call, "name", topic.name), whole(call, "num_partitions", topic.num_partitions)
            entry = request.topics.add(name=name, num_partitions=count, replication_factor=-1)
            configs = arguments.mapping(call, "config", topic.config, "names to values", '{"retention.ms": "60000"}')
            for config, value in configs.items():
                entry.configs.add(
                    name=text(call, "a config's name", config), value=text(call, f"config {config}", value)
                )

        async def attempt(names: Collection[str], timeout_s: float) -> Errors:
            _keep(request.topics, names)
            response = await at_any(self._cluster, wire.CREATE_TOPICS, request, timeout_s)
            return {result.name: error_for(result.error_code, result.error_message) for result in response.topics}

        return await self._until_admitted([topic.name for topic in request.topics], attempt)

    async def create_partitions(self, counts: Mapping[str, int], validate_only: bool = False) -> Errors:
        """Increase the partition counts of topics; they cannot decrease. Retries calls that a quota refuses
        (CL-160)."""
        request = CreatePartitionsRequest(timeout_ms=int(self._timeout_s * 1000), validate_only=validate_only)
        call, instead = "create_partitions", 'create_partitions({"orders": 4})'
        for name, count in arguments.mapping(call, "counts", counts, "topic names to counts", instead).items():
            request.topics.add(
                name=text(call, "a topic's name", name), count=whole(call, f"the count of {name}", count)
            )

        async def attempt(names: Collection[str], timeout_s: float) -> Errors:
            _keep(request.topics, names)
            response = await at_any(self._cluster, wire.CREATE_PARTITIONS, request, timeout_s)
            return {result.name: error_for(result.error_code, result.error_message) for result in response.results}

        return await self._until_admitted([topic.name for topic in request.topics], attempt)

    async def delete_topics(self, names: Iterable[str]) -> Errors:
        """Delete topics with their records. A delayed attempt never deletes a newer topic with the same name
        (CL-156). Retries calls that a quota refuses (CL-160)."""
        left = arguments.items("delete_topics", names, "topic names", str, 'delete_topics(["orders"])')
        clock, backoff = asyncio.get_running_loop().time, self._cluster.backoff()
        began_s = clock()
        errors = await self._until_admitted(left, self._delete_topics)
        # An earlier attempt of this call deleted them, or the node that was asked for their ids has outdated metadata.
        while left := [name for name, error in errors.items() if isinstance(error, UnknownTopicIdError)]:
            await asyncio.sleep(backoff.next_ms() / 1000)
            if (passed_s := clock() - began_s) >= min(LEADER_WAIT_S, self._timeout_s):
                return errors | {name: UnknownTopicOrPartitionError(f"topic {name!r} was deleted") for name in left}
            errors |= await self._delete_topics(left, self._timeout_s - passed_s)
        return errors

    async def _until_admitted(
        self, names: Sequence[str], attempt: Callable[[Collection[str], float], Awaitable[Errors]]
    ) -> Errors:
        """Repeat `attempt` for the names that the quota of this client refuses, until the time for the call is over.
        An attempt waits for as long as the nodes ask. Raises what the first attempt raises."""
        clock, backoff = asyncio.get_running_loop().time, self._cluster.backoff()
        until_s = clock() + self._timeout_s
        errors = await attempt(names, self._timeout_s)
        while left := [name for name, error in errors.items() if isinstance(error, ThrottlingQuotaExceededError)]:
            await asyncio.sleep(min(backoff.next_ms() / 1000, max(until_s - clock(), 0)))
            if clock() + self._cluster.throttled_s() >= until_s:
                break
            try:
                errors |= await attempt(left, until_s - clock())
            except KafkaError as error:
                return errors | dict.fromkeys(left, error)
        return errors

    async def _delete_topics(self, names: Collection[str], timeout_s: float) -> Errors:
        """Delete the topics that have these names according to one node's metadata. The error is UnknownTopicIdError
        for a topic that an earlier attempt deleted, or that was replaced without that node knowing it yet."""
        until_s = asyncio.get_running_loop().time() + timeout_s
        request = DeleteTopicsRequest(timeout_ms=int(timeout_s * 1000))
        question = MetadataRequest()
        question.topics.SetInParent()
        for name in names:
            question.topics.values.add(name=name)
        metadata = await at_any(self._cluster, wire.METADATA, question, timeout_s)
        ids = {topic.name: topic.topic_id for topic in metadata.topics if not topic.error_code}
        for name in names:
            if name in ids:
                request.topics.add(topic_id=ids[name])
            else:  # the node that answered may not know it yet; the one that deletes reads the newest metadata
                request.topics.add(name=name)
        left_s = max(until_s - asyncio.get_running_loop().time(), 0.0)
        response = await at_any(self._cluster, wire.DELETE_TOPICS, request, left_s)
        names_of = {topic_id: name for name, topic_id in ids.items()}
        return {
            names_of.get(result.topic_id, result.name): error_for(result.error_code, result.error_message)
            for result in response.responses
        }

    async def list_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """Describe all topics, or the named ones; the description of an unknown topic holds its error."""
        request = MetadataRequest()
        if names is not None:
            request.topics.SetInParent()
            for name in arguments.items("list_topics", names, "topic names", str, 'list_topics(["orders"])'):
                request.topics.values.add(name=name)
        response = await at_any(self._cluster, wire.METADATA, request, self._timeout_s)
        if error := error_for(response.error_code, response.error_message):
            raise error
        return {
            topic.name: TopicDescription(
                topic.name,
                topic.topic_id,
                tuple(
                    PartitionDescription(
                        part.partition_index, part.leader_id, part.leader_epoch, error_for(part.error_code)
                    )
                    for part in sorted(topic.partitions, key=lambda part: part.partition_index)
                ),
                topic.is_internal,
                error_for(topic.error_code, topic.error_message),
            )
            for topic in response.topics
        }

    async def describe_cluster(self) -> ClusterDescription:
        """Return the cluster id and its live nodes."""
        response = await at_any(self._cluster, wire.DESCRIBE_CLUSTER, DescribeClusterRequest(), self._timeout_s)
        if error := error_for(response.error_code, response.error_message):
            raise error
        nodes = tuple(
            Node(
                node.node_id,
                node.host,
                node.port,
                node.rack if node.HasField("rack") else None,
                tuple(node.roles),
                node.kafka_address if node.HasField("kafka_address") else None,
            )
            for node in sorted(response.brokers, key=lambda node: node.node_id)
        )
        return ClusterDescription(response.cluster_id, response.controller_id, nodes)

    # Logs.

    async def list_offsets(
        self, specs: Mapping[TopicPartition, int] | Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | KafkaError]:
        """Return offsets by timestamp in ms, or by kip932.ids.OFFSET_*; for just a list of partitions, the end offset
        of each log (CM-45)."""
        if isinstance(specs, Mapping):
            wanted = dict(specs)
        else:
            instead = 'list_offsets([TopicPartition("orders", 0)])'
            listed = arguments.items("list_offsets", specs, "TopicPartition", object, instead)
            wanted = {partition("list_offsets", one): OFFSET_LATEST for one in listed}
        for name, spec in wanted.items():
            whole("list_offsets", f"the offset for {partition('list_offsets', name)}", spec, 64)

        async def call(address: str, parts: dict[TopicIdPartition, TopicPartition]) -> dict[TopicPartition, Any]:
            request = ListOffsetsRequest()
            for topic_id, numbers in wire.by_topic(parts).items():
                topic = request.topics.add(topic_id=topic_id)
                for number in numbers:
                    name = parts[TopicIdPartition(topic_id, number)]
                    topic.partitions.add(partition_index=number, current_leader_epoch=-1, timestamp=wanted[name])
            response = await self._cluster.transport.call(address, wire.LIST_OFFSETS, request, self._timeout_s)
            return {
                parts[TopicIdPartition(topic.topic_id, part.partition_index)]: error_for(
                    part.error_code, part.error_message
                )
                or part.offset
                for topic in response.topics
                for part in topic.partitions
            }

        return await self._at_leaders(wanted, call)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        """Move the start offsets of logs forward to these offsets; −1 means the log's end. Returns the new start
        offsets."""
        instead = 'delete_records({TopicPartition("orders", 0): 100})'
        arguments.mapping("delete_records", "before", before, "TopicPartition to offsets", instead)
        for key, offset in before.items():
            whole("delete_records", f"the offset for {partition('delete_records', key)}", offset, 64)

        async def call(address: str, parts: dict[TopicIdPartition, TopicPartition]) -> dict[TopicPartition, Any]:
            request = DeleteRecordsRequest(timeout_ms=int(self._timeout_s * 1000))
            for topic_id, numbers in wire.by_topic(parts).items():
                topic = request.topics.add(topic_id=topic_id)
                for number in numbers:
                    name = parts[TopicIdPartition(topic_id, number)]
                    topic.partitions.add(partition_index=number, offset=before[name])
            response = await self._cluster.transport.call(address, wire.DELETE_RECORDS, request, self._timeout_s)
            return {
                parts[TopicIdPartition(topic.topic_id, part.partition_index)]: error_for(
                    part.error_code, part.error_message
                )
                or part.low_watermark
                for topic in response.topics
                for part in topic.partitions
            }

        return await self._at_leaders(before, call)

    async def describe_log_dirs(
        self, node_ids: Iterable[int] | None = None, topics: Iterable[str] | None = None
    ) -> LogDirs:
        """Return the sizes of logs by the node that leads them, and how much space is left in the store that holds them
        (CM-209).

        By default of all partition leaders and of all topics that this client's user may describe. A node that does not
        answer has an error in place of its log directories; ClusterAuthorizationFailedError without DESCRIBE on the
        cluster. Raises KafkaError when no node answers.
        """
        call = "describe_log_dirs"
        nodes = None
        if node_ids is not None:
            listed = arguments.items(call, node_ids, "node ids", int, "describe_log_dirs([1, 2])")
            nodes = [whole(call, "a node id", one) for one in listed]
        if topics is not None:
            topics = [
                text(call, "a topic", one)
                for one in arguments.items(call, topics, "topics", str, f'{call}(topics=["orders"])')
            ]
        return await describe_log_dirs(self._cluster, nodes, topics, self._timeout_s)

    async def read_records(self, partition: TopicPartition, offset: int, max_bytes: int = READ_BYTES) -> RecordsRead:
        """Return records of a partition from `offset` on, even if consumed (CL-92): about `max_bytes` of them, at least
        one batch. Reading does not affect any group.

        Raises KafkaError: OffsetOutOfRangeError outside the log, UnknownTopicOrPartitionError, RequestTimedOutError.
        """
        call = "read_records"
        given = arguments.partition(call, partition)
        place = TopicPartition(given.topic, given.partition)
        span = Span(place, whole(call, "offset", offset, 64), whole(call, "max_bytes", max_bytes))
        return await read(self._cluster, span, self._timeout_s, self._at_leaders)

    async def explain_record(
        self,
        group_id: str,
        partition: TopicPartition,
        offset: int,
        last_offset: int | None = None,
        *,
        group: ShareGroupDescription | None = None,
    ) -> RecordsExplained:
        """Explain why a record is, or is not, delivered to a group now. With `last_offset`, explain all records from
        `offset` to `last_offset`, at most 1,000 (CL-90). `group`: its description from a moment ago, so that its
        coordinator is not asked again. Changes nothing.

        Raises KafkaError: GroupIdNotFoundError, UnknownTopicOrPartitionError, InvalidRequestError for invalid offsets,
        NotLeaderOrFollowerError when no leader was found in time.
        """
        call_name = "explain_record"
        arguments.text(call_name, "group_id", group_id)
        arguments.partition(call_name, partition)
        whole(call_name, "offset", offset, 64)
        last = whole(call_name, "last_offset", offset if last_offset is None else last_offset, 64)
        return await explained(
            self._cluster,
            Question(group_id, TopicPartition(*partition), offset, last),
            self._timeout_s,
            self._at_leaders,
            self._describe if group is None else partial(_known, group),
        )

    async def _at_leaders(self, partitions: Iterable[TopicPartition], call: Any) -> dict[TopicPartition, Any]:
        """Send each leader one call for its partitions. In the result, partitions without a leader have an error."""
        results, by_address = await self._find_leaders(list(partitions))

        async def guarded(address: str, parts: dict[TopicIdPartition, TopicPartition]) -> dict[TopicPartition, Any]:
            try:
                answer: dict[TopicPartition, Any] = await while_no_room(
                    self._cluster, self._timeout_s, lambda: call(address, parts)
                )
            except TransportError as error:
                return dict.fromkeys(parts.values(), NetworkError(str(error)))
            return answer

        for answer in await asyncio.gather(*(guarded(*item) for item in by_address.items())):
            results.update(answer)
        return results

    async def _find_leaders(
        self, names: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, Any], dict[str, dict[TopicIdPartition, TopicPartition]]]:
        """Return the errors of partitions without a leader, and the others by their leaders' addresses. While an
        existing partition has no leader, the metadata are fetched again for a short time (CL-155)."""
        cluster, topics = self._cluster, {name.topic for name in names}
        backoff, clock = cluster.backoff(), asyncio.get_running_loop().time
        until_s = clock() + min(self._timeout_s, LEADER_WAIT_S)
        while True:
            await until_answered(cluster, "Metadata", self._timeout_s, lambda: cluster.fetch_metadata(topics))
            errors, by_address = self._by_leader(names)
            delay_s = backoff.next_ms() / 1000
            absent = any(isinstance(error, LeaderNotAvailableError) for error in errors.values())
            if not absent or clock() + delay_s >= until_s:
                return errors, by_address
            await asyncio.sleep(delay_s)

    def _by_leader(
        self, names: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, Any], dict[str, dict[TopicIdPartition, TopicPartition]]]:
        errors: dict[TopicPartition, Any] = {}
        by_address: dict[str, dict[TopicIdPartition, TopicPartition]] = {}
        for name in names:
            topic = self._cluster.topics.get(name.topic)
            if topic is None or not 0 <= name.partition < topic.partitions:
                errors[name] = UnknownTopicOrPartitionError(f"{name.topic}-{name.partition} does not exist")
                continue
            key = TopicIdPartition(topic.topic_id, name.partition)
            leader = self._cluster.leader(key)
            address = self._cluster.address(leader.node_id) if leader is not None else None
            if address is None:
                errors[name] = LeaderNotAvailableError(f"{name.topic}-{name.partition} has no live leader")
            else:
                by_address.setdefault(address, {})[key] = name
        return errors, by_address

    # Configs.

    async def describe_configs(
        self, resources: Iterable[ConfigResource], documentation: bool = False
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
        """Return configs of topics, nodes and groups, with their synonyms (CM-23)."""
        request = DescribeConfigsRequest(include_synonyms=True, include_documentation=documentation)
        instead = 'describe_configs([ConfigResource.topic("orders")])'
        for resource in arguments.items("describe_configs", resources, "ConfigResource", ConfigResource, instead):
            _check_resource("describe_configs", resource)
            request.resources.add(resource_type=resource.type, resource_name=resource.name)
        answers, missing = await _at_config_nodes(self._cluster, wire.DESCRIBE_CONFIGS, request, self._timeout_s)
        return {
            ConfigResource(result.resource_type, result.resource_name): error_for(
                result.error_code, result.error_message
            )
            or {config.name: _config(config) for config in result.configs}
            for answer in answers
            for result in answer.results
        } | missing

    async def incremental_alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[AlterConfig]], validate_only: bool = False
    ) -> dict[ConfigResource, KafkaError | None]:
        """Change only the named configs; the others keep their values."""
        request = IncrementalAlterConfigsRequest(validate_only=validate_only)
        call = "incremental_alter_configs"
        instead = f'{call}({{ConfigResource.topic("orders"): [AlterConfig("retention.ms", "60000")]}})'
        arguments.mapping(call, "changes", changes, "ConfigResource to lists of AlterConfig", instead)
        for resource, alterations in changes.items():
            _check_resource(call, resource)
            entry = request.resources.add(resource_type=resource.type, resource_name=resource.name)
            for change in arguments.items(call, alterations, "AlterConfig for each resource", AlterConfig, instead):
                name = text(call, "AlterConfig.name", change.name)
                value = None if change.value is None else text(call, f"the value of {name}", change.value)
                operation = whole(call, "AlterConfig.operation", change.operation)
                entry.configs.add(name=name, config_operation=operation, value=value)
        answers, missing = await _at_config_nodes(self._cluster, wire.ALTER_CONFIGS, request, self._timeout_s)
        return {
            ConfigResource(result.resource_type, result.resource_name): error_for(
                result.error_code, result.error_message
            )
            for answer in answers
            for result in answer.responses
        } | missing


async def _known(group: ShareGroupDescription, _group_id: str) -> ShareGroupDescription:
    """Return a description in place of a coordinator's."""
    return group


def _check_resource(call: str, given: object) -> None:
    if not isinstance(given, ConfigResource) or type(given.type) is not int or not isinstance(given.name, str):
        instead = 'ConfigResource.topic("orders"), .group("workers") or .broker("1")'
        raise arguments.refusal(call, "a resource", given, "a ConfigResource", instead)


def _config(config: DescribeConfigsResponse.Config) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value if config.HasField("value") else None,
        config.config_source,
        config.read_only,
        config.is_sensitive,
        tuple(
            (synonym.name, synonym.value if synonym.HasField("value") else None, synonym.source)
            for synonym in config.synonyms
        ),
        config.documentation if config.HasField("documentation") else None,
    )


async def _at_config_nodes(
    cluster: Cluster, method: Method[Any, ResponseT], request: Any, timeout_s: float
) -> tuple[list[ResponseT], dict[ConfigResource, KafkaError]]:
    """Return the responses to a request with `resources`, and an error for each resource whose node is not alive.

    A node's own configs are requested from that node, since no other knows them; the rest from any node. Raises
    KafkaError, RequestTimedOutError after `timeout_s` without a response.
    """
    parts: dict[str, Any] = {}
    for resource in request.resources:
        node = resource.resource_name if resource.resource_type == RESOURCE_BROKER else ""
        if node not in parts:
            parts[node] = type(request)()
            parts[node].CopyFrom(request)
            parts[node].ClearField("resources")
        parts[node].resources.append(resource)
    if any(parts):
        await until_answered(cluster, "Metadata", timeout_s, lambda: cluster.fetch_metadata([]))
    answers: list[ResponseT] = []
    errors: dict[ConfigResource, KafkaError] = {}
    for node, part in parts.items():
        address = cluster.address(int(node)) if node.isdecimal() else None
        if not node:
            answers.append(await at_any(cluster, method, part, timeout_s))
        elif address is None:
            alive = ", ".join(map(str, cluster.node_ids()))
            errors[ConfigResource.broker(node)] = InvalidRequestError(
                f"no node {node!r} is alive; the live nodes of the cluster are {alive}"
            )
        else:
            answers.append(await _at_node(cluster, address, method, part, timeout_s))
    return answers, errors


async def _at_node(
    cluster: Cluster, address: str, method: Method[Any, ResponseT], request: Any, timeout_s: float
) -> ResponseT:
    one_s = min(timeout_s, cluster.timeout_s)
    return await until_answered(
        cluster, method.name, timeout_s, lambda: cluster.transport.call(address, method, request, one_s)
    )


def _keep(topics: Any, names: Collection[str]) -> None:
    """Remove the topics from a request that have none of these names."""
    wanted = set(names)
    for index in reversed(range(len(topics))):
        if topics[index].name not in wanted:
            del topics[index]
