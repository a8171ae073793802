"""Requests with every field set, and the cluster state that they require."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from google.protobuf.message import Message

from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.ids import KEY_TYPE_SHARE, RESOURCE_TOPIC, topic_id_text
from tests.integration.scenarios.sessions import Session
from tests.integration.scenarios.transacting import Writer
from tests.integration.scenarios.wire import METHODS, Wire
from tests.support.node import unique

TRACEPARENT: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE_RPCS: Final = {name for name in METHODS if "ShareGroupState" in name}
#: The other methods that only nodes call.
_OTHERS: Final = {"StateStream", "ReadTopicStartOffsets", "ReportMemberConnections", "EndMemberSessions"}
_INTERNAL: Final = STATE_RPCS | _OTHERS


class World:
    """A topic of two partitions with three records each, and the cluster state that the requests need."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.topic = unique("t")
        self.group = unique("g")
        self.topic_id = b""
        self.session: Session | None = None

    async def set_up(self, name: str) -> Message:
        """Create the state that the request requires; returns the request with every field set that may be set."""
        self.topic_id = await self.wire.create_topic(self.topic, 2)
        for partition in (0, 1):
            await self.wire.produce(self.topic_id, 3, partition)
        request: Message = await FULL[name](self)
        return request

    async def call(self, name: str, request: Message) -> Any:
        """Send the request; returns the response, for a stream the first one."""
        address = self.wire.internal if name in _INTERNAL else self.wire.bootstrap
        if name in STATE_RPCS:
            text = f"{self.group}:{topic_id_text(self.topic_id)}:1"
            address = await self.wire.coordinator(text, KEY_TYPE_SHARE)
        if not METHODS[name].streaming:
            return await self.wire.call(name, request, address)
        stream = await self.wire.transport.open_stream(address, METHODS[name])
        try:
            await stream.write(request)
            return await stream.read()
        finally:
            await stream.close()

    async def state_call(self, name: str, **fields: Any) -> Any:
        """Call one method about the state of partition 1."""
        request = METHODS[name].request_type(group_id=self.group)
        request.topics.add(topic_id=self.topic_id).partitions.add(partition=1, **fields)
        answer = await self.call(name, request)
        (part,) = answer.results[0].partitions
        assert part.error_code == 0, part.error_message
        return part


Build = Callable[[World], Awaitable[Any]]
FULL: dict[str, Build] = {}


def full(function: Build) -> Build:
    words = function.__name__.removeprefix("_").split("_")
    FULL["".join(word.capitalize() for word in words)] = function
    return function


def _new(name: str, **fields: Any) -> Any:
    return METHODS[name].request_type(**fields)


@full
async def _produce(world: World) -> Any:
    data = RecordBatch(base_timestamp_ms=5, records=[Record(value=b"v")]).SerializeToString()
    request = _new("Produce", acks=-1, timeout_ms=5_000)
    part = request.topic_data.add(topic_id=world.topic_id).partition_data.add(index=1)
    part.batches.add(
        record_batch=data, record_count=1, producer_id=random.getrandbits(60) + 1, producer_epoch=0, base_sequence=0,
        max_timestamp_ms=5, is_transactional=False, after_given_up=False,
    )  # fmt: skip
    return request


@full
async def _produce_stream(world: World) -> Any:
    return _new("ProduceStream", correlation_id=7, traceparent=TRACEPARENT, request=await _produce(world))


@full
async def _fetch(world: World) -> Any:
    request = _new(
        "Fetch", max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, isolation_level=1, batch_formats=[2]
    )  # fmt: skip
    request.topics.add(topic_id=world.topic_id).partitions.add(
        partition=1, current_leader_epoch=-1, fetch_offset=1, partition_max_bytes=1 << 20
    )
    return request


@full
async def _list_offsets(world: World) -> Any:
    request = _new("ListOffsets", isolation_level=1)
    request.topics.add(topic_id=world.topic_id).partitions.add(
        partition_index=1, current_leader_epoch=-1, timestamp=-1, share_group_id=world.group
    )
    return request


@full
async def _explain_record(world: World) -> Any:
    return _new(
        "ExplainRecord", group_id=world.group, topic_id=world.topic_id, partition_index=1, offset=1, last_offset=2
    )


@full
async def _list_share_progress(world: World) -> Any:
    return _new("ListShareProgress", group_ids=[world.group], topic_names=[world.topic], by_partition=True, limit=10)


@full
async def _delete_records(world: World) -> Any:
    request = _new("DeleteRecords", timeout_ms=5_000)
    request.topics.add(topic_id=world.topic_id).partitions.add(partition_index=1, offset=2)
    return request


@full
async def _describe_log_dirs(world: World) -> Any:
    request = _new("DescribeLogDirs")
    request.topics.values.add(topic=world.topic, partitions=[1])
    return request


async def _session(world: World) -> Session:
    """A member that holds records 0 to 2 of partition 1, where a fourth is available; its session includes partition
    0."""
    member = await world.wire.join(world.group, [world.topic])
    session = world.session = Session(world.wire, world.group, member, world.topic_id, partitions=(1,))
    await session.open_with_records()
    await world.wire.produce(world.topic_id, 1, 1)
    return session


@full
async def _share_fetch(world: World) -> Any:
    session = await _session(world)
    request = _new(
        "ShareFetch", group_id=world.group, member_id=session.member, share_session_epoch=session.epoch,
        max_wait_ms=2_000, min_bytes=1, max_bytes=1 << 20, max_records=500, batch_size=500, share_acquire_mode=1,
        session_id=session.session_id, compression_types=[2, 3, 4], batch_formats=[2],
    )  # fmt: skip
    part = request.topics.add(topic_id=world.topic_id).partitions.add(partition_index=1, partition_max_bytes=1 << 20)
    part.acknowledgement_batches.add(first_offset=1, last_offset=2, acknowledge_types=[1], release_delays_ms=[-1])
    request.forgotten_topics_data.add(topic_id=world.topic_id, partitions=[0])
    return request


@full
async def _share_acknowledge(world: World) -> Any:
    session = await _session(world)
    request = _new(
        "ShareAcknowledge", group_id=world.group, member_id=session.member, share_session_epoch=session.epoch,
        session_id=session.session_id,
    )  # fmt: skip
    part = request.topics.add(topic_id=world.topic_id).partitions.add(partition_index=1)
    part.acknowledgement_batches.add(first_offset=1, last_offset=2, acknowledge_types=[1], release_delays_ms=[-1])
    return request


@full
async def _share_stream(world: World) -> Any:
    member = await world.wire.join(world.group, [world.topic])
    request = _new("ShareStream", correlation_id=7, traceparent=TRACEPARENT)
    request.fetch.group_id, request.fetch.member_id = world.group, member
    request.fetch.topics.add(topic_id=world.topic_id).partitions.add(partition_index=1)
    return request


@full
async def _share_group_heartbeat(world: World) -> Any:
    member = unique("m")
    joined = await world.wire.heartbeat(world.group, member, 0, [world.topic])
    request = _new(
        "ShareGroupHeartbeat", group_id=world.group, member_id=member, member_epoch=joined.member_epoch, rack_id="r"
    )
    request.subscribed_topic_names.values.append(world.topic)
    return request


@full
async def _share_group_describe(world: World) -> Any:
    await world.wire.join(world.group, [world.topic])
    return _new("ShareGroupDescribe", group_ids=[world.group], include_authorized_operations=True)


@full
async def _describe_share_group_offsets(world: World) -> Any:
    await world.wire.join(world.group, [world.topic])
    request = _new("DescribeShareGroupOffsets")
    group = request.groups.add(group_id=world.group, include_backlog=True)
    group.topics.values.add(topic_name=world.topic, partitions=[1])
    return request


async def _emptied(world: World) -> None:
    """Leave the group with state of both partitions and no member."""
    member = await world.wire.join(world.group, [world.topic])
    assert (await world.wire.heartbeat(world.group, member, -1)).error_code == 0


@full
async def _delete_groups(world: World) -> Any:
    await _emptied(world)
    return _new("DeleteGroups", groups_names=[world.group])


@full
async def _delete_share_group_offsets(world: World) -> Any:
    await _emptied(world)
    request = _new("DeleteShareGroupOffsets", group_id=world.group)
    request.topics.values.add(topic_name=world.topic)
    return request


@full
async def _alter_share_group_offsets(world: World) -> Any:
    await _emptied(world)
    request = _new("AlterShareGroupOffsets", group_id=world.group)
    request.topics.values.add(topic_name=world.topic).partitions.add(partition_index=1, start_offset=2)
    return request


@full
async def _list_groups(world: World) -> Any:
    await world.wire.join(world.group, [world.topic])
    request = _new("ListGroups")
    request.states_filter.values.append("Stable")
    request.types_filter.values.append("share")
    return request


@full
async def _find_coordinator(world: World) -> Any:
    key = f"{world.group}:{topic_id_text(world.topic_id)}:1"
    return _new("FindCoordinator", key_type=KEY_TYPE_SHARE, coordinator_keys=[key])


@full
async def _metadata(world: World) -> Any:
    request = _new("Metadata")
    request.topics.values.add(name=world.topic, topic_id=world.topic_id)
    return request


@full
async def _describe_cluster(world: World) -> Any:
    return _new("DescribeCluster", include_cluster_authorized_operations=True)


@full
async def _create_topics(world: World) -> Any:
    request = _new("CreateTopics", timeout_ms=5_000)
    topic = request.topics.add(name=unique("new"), num_partitions=1, replication_factor=1)
    topic.configs.add(name="retention.ms", value="5000")
    return request


@full
async def _create_partitions(world: World) -> Any:
    request = _new("CreatePartitions", timeout_ms=5_000)
    request.topics.add(name=world.topic, count=3)
    return request


@full
async def _delete_topics(world: World) -> Any:
    request = _new("DeleteTopics", timeout_ms=5_000)
    request.topics.add(name=world.topic, topic_id=world.topic_id)
    return request


@full
async def _describe_configs(world: World) -> Any:
    request = _new("DescribeConfigs", include_synonyms=True, include_documentation=True)
    resource = request.resources.add(resource_type=RESOURCE_TOPIC, resource_name=world.topic)
    resource.configuration_keys.values.append("retention.ms")
    return request


@full
async def _incremental_alter_configs(world: World) -> Any:
    request = _new("IncrementalAlterConfigs")
    resource = request.resources.add(resource_type=RESOURCE_TOPIC, resource_name=world.topic)
    resource.configs.add(name="retention.ms", config_operation=0, value="5000")
    return request


def _entry(world: World) -> dict[str, Any]:
    """An access control entry that no other request has."""
    return {
        "resource_type": 2, "resource_name": world.topic, "resource_pattern_type": 3,
        "principal": f"User:{world.group}", "host": "10.0.0.7", "operation": 3, "permission_type": 3,
    }  # fmt: skip


@full
async def _create_acls(world: World) -> Any:
    return _new("CreateAcls", creations=[_entry(world)])


async def _entry_added(world: World) -> dict[str, Any]:
    answer = await world.call("CreateAcls", await _create_acls(world))
    assert [result.error_code for result in answer.results] == [0]
    return _entry(world)


@full
async def _describe_acls(world: World) -> Any:
    return _new("DescribeAcls", filter=await _entry_added(world))


@full
async def _delete_acls(world: World) -> Any:
    return _new("DeleteAcls", filters=[await _entry_added(world)])


def _user_set(world: World) -> dict[str, Any]:
    """A password for a user that no other request has."""
    return {"name": world.group, "mechanism": 2, "iterations": 5_000, "salt": b"s" * 16, "salted_password": b"p" * 64}


@full
async def _alter_user_scram_credentials(world: World) -> Any:
    """Removes one password of a user, and sets another."""
    name = world.group
    first = {**_user_set(world), "mechanism": 1, "salted_password": b"p" * 32}
    answer = await world.call("AlterUserScramCredentials", _new("AlterUserScramCredentials", upsertions=[first]))
    assert [result.error_code for result in answer.results] == [0]
    request = _new("AlterUserScramCredentials", upsertions=[_user_set(world)])
    request.deletions.add(name=name, mechanism=1)
    return request


@full
async def _describe_user_scram_credentials(world: World) -> Any:
    await world.call("AlterUserScramCredentials", _new("AlterUserScramCredentials", upsertions=[_user_set(world)]))
    return _new("DescribeUserScramCredentials", users=[{"name": world.group}])


@full
async def _alter_client_quotas(world: World) -> Any:
    request = _new("AlterClientQuotas", validate_only=True)
    entry = request.entries.add(entity=[{"entity_type": "user", "entity_name": world.group}])
    entry.ops.add(key="producer_byte_rate", value=1e9, remove=False)
    return request


@full
async def _describe_client_quotas(world: World) -> Any:
    request = await _alter_client_quotas(world)
    request.validate_only = False
    answer = await world.call("AlterClientQuotas", request)
    assert [result.error_code for result in answer.entries] == [0]
    return _new(
        "DescribeClientQuotas",
        components=[{"entity_type": "user", "match_type": 0, "match": world.group}],
        strict=True,
    )


@full
async def _init_producer_id(world: World) -> Any:
    return _new("InitProducerId", transaction_timeout_ms=5, producer_id=-1, producer_epoch=-1)


@full
async def _end_txn(world: World) -> Any:
    """The request of a producer's second instance, so that its epoch is not 0."""
    writer = Writer(world.wire, world.topic_id)
    await writer.begin()
    await writer.begin()
    await writer.write(1)
    request = _new(
        "EndTxn",
        transactional_id=writer.transactional_id,
        producer_id=writer.producer_id,
        producer_epoch=writer.epoch,
        committed=True,
    )
    request.topics.add(topic_id=world.topic_id, partition_indexes=[0])
    return request


@full
async def _list_transactions(world: World) -> Any:
    """Request a list with an open transaction. A cursor can only come from a response."""
    writer = Writer(world.wire, world.topic_id)
    await writer.write(1)
    return _new(
        "ListTransactions", state_filters=["Ongoing"], producer_id_filters=[writer.producer_id], duration_filter=-1
    )


@full
async def _describe_transactions(world: World) -> Any:
    writer = Writer(world.wire, world.topic_id)
    await writer.begin()
    return _new("DescribeTransactions", transactional_ids=[writer.transactional_id])


async def _state(world: World, name: str, **fields: Any) -> Any:
    """State with epoch 5 and start offset 2, read by a leader of epoch 3 and generation 2."""
    await world.state_call("InitializeShareGroupState", state_epoch=5, start_offset=2)
    await world.state_call("ReadShareGroupState", leader_epoch=3, generation=2)
    request = _new(name, group_id=world.group)
    request.topics.add(topic_id=world.topic_id).partitions.add(partition=1, **fields)
    return request


@full
async def _initialize_share_group_state(world: World) -> Any:
    return await _state(world, "InitializeShareGroupState", state_epoch=6, start_offset=1)


@full
async def _read_share_group_state(world: World) -> Any:
    return await _state(world, "ReadShareGroupState", leader_epoch=3, generation=2)


@full
async def _write_share_group_state(world: World) -> Any:
    request = await _state(
        world, "WriteShareGroupState", state_epoch=5, leader_epoch=3, generation=2, start_offset=2,
        delivery_complete_count=1,
    )  # fmt: skip
    part = request.topics[0].partitions[0]
    part.state_batches.add(first_offset=2, last_offset=2, delivery_state=2, delivery_count=1)
    part.state_batches.add(first_offset=3, last_offset=3, delivery_count=1, not_before_ms=1)
    part.failures.add(first_offset=3, last_offset=3, delivery_count=1, reason="ValueError: no number")
    for message in (part.stats, part.stats.archived.add()):
        for field in filter(lambda field: field.message_type is None, type(message).DESCRIPTOR.fields):
            setattr(message, field.name, 1)
    return request


@full
async def _delete_share_group_state(world: World) -> Any:
    return await _state(world, "DeleteShareGroupState", state_epoch=5)


@full
async def _read_share_group_state_summary(world: World) -> Any:
    asked = {"batches_from": 1, "batches_through": 2, "delayed_at_ms": 7}
    return await _state(world, "ReadShareGroupStateSummary", leader_epoch=3, **asked)


@full
async def _read_topic_start_offsets(world: World) -> Any:
    return _new("ReadTopicStartOffsets", topic_ids=[world.topic_id])


@full
async def _report_member_connections(world: World) -> Any:
    request = _new("ReportMemberConnections", leader="127.0.0.1:7")
    request.members.add(group_id=world.group, member_id="m", returned=True, ago_ms=9)
    return request


@full
async def _end_member_sessions(world: World) -> Any:
    world.session = await _session(world)
    request = _new("EndMemberSessions")
    request.members.add(group_id=world.group, member_id=world.session.member, group_epoch=1 << 30)
    return request


@full
async def _state_stream(world: World) -> Any:
    return _new("StateStream", correlation_id=7, traceparent=TRACEPARENT, read=await _read_share_group_state(world))
