"""A producer and a share-group member built on nothing but the generated stubs: produce, join, fetch, decode,
acknowledge, leave.

    python raw_stubs.py [host:port] [topic] [group]

It shows the protocol, not how to write a client: it asks one node for everything and never retries. It produces one
batch without idempotence, so it leaves the three fields of an idempotent producer unset (set all three, or none:
docs/reference/protocol.md). A client that retries a Produce that got no response should set them, or the batch may be
stored twice. The member generates its id, heartbeats until it has an assignment, opens a share session at each
partition's leader (epoch 0), fetches with the next epoch, accepts what it acquired, and closes the session (epoch -1).
"""

from __future__ import annotations

import asyncio
import sys
import time
import uuid

from grpc import aio

from kip932.api.v1 import find_coordinator_pb2 as coordinators
from kip932.api.v1 import metadata_pb2 as metadata
from kip932.api.v1 import produce_pb2 as produce
from kip932.api.v1 import share_acknowledge_pb2 as acknowledge
from kip932.api.v1 import share_fetch_pb2 as fetch
from kip932.api.v1 import share_group_heartbeat_pb2 as heartbeat
from kip932.api.v1.cluster_service_pb2_grpc import ClusterServiceStub
from kip932.api.v1.common_pb2 import AcknowledgementBatch, StringList
from kip932.api.v1.group_coordinator_service_pb2_grpc import GroupCoordinatorServiceStub
from kip932.api.v1.partition_leader_service_pb2_grpc import PartitionLeaderServiceStub
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch

ACCEPT = 1
ACKS_ALL = -1


def check(answer: object, code: int, message: str) -> None:
    """Exit if a response contains a Kafka error."""
    if code:
        sys.exit(f"{type(answer).__name__}: error {code}: {message}")


async def store(stub: PartitionLeaderServiceStub, topic_id: bytes, partition: int, values: list[bytes]) -> int:
    """Produce one batch at the partition's leader; returns the offset of its first record."""
    now_ms = int(time.time() * 1000)
    records = RecordBatch(base_timestamp_ms=now_ms, records=[Record(value=value) for value in values])
    request = produce.ProduceRequest(acks=ACKS_ALL, timeout_ms=10_000)
    part = request.topic_data.add(topic_id=topic_id).partition_data.add(index=partition)
    part.batches.add(record_batch=records.SerializeToString(), record_count=len(values), max_timestamp_ms=now_ms)
    answer = await stub.Produce(request, timeout=30)
    for topic in answer.responses:
        for result in topic.partition_responses:
            check(result, result.error_code, result.error_message)
            return result.base_offset
    sys.exit("the answer to the Produce names no partition")


async def join(stub: GroupCoordinatorServiceStub, group: str, member: str, topic: str) -> dict[bytes, list[int]]:
    """Heartbeat with epoch 0, then with the epoch received, until partitions are assigned; topic id -> partitions."""
    request = heartbeat.ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=0, subscribed_topic_names=StringList(values=[topic])
    )
    for _ in range(60):
        answer = await stub.ShareGroupHeartbeat(request, timeout=10)
        check(answer, answer.error_code, answer.error_message)
        if answer.assignment.topic_partitions:
            return {part.topic_id: list(part.partitions) for part in answer.assignment.topic_partitions}
        await asyncio.sleep(0.5)
        request = heartbeat.ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=answer.member_epoch
        )
    sys.exit(f"topic {topic!r} was not assigned within 30 s; does it exist?")


async def consume(
    stub: PartitionLeaderServiceStub, group: str, member: str, topic_id: bytes, partitions: list[int]
) -> int:
    """Run one share session: open, fetch, accept with the closing ShareAcknowledge. Returns the number of records
    received."""
    opening = fetch.ShareFetchRequest(
        group_id=group, member_id=member, share_session_epoch=0, max_wait_ms=500, min_bytes=1,
        max_bytes=1 << 20, max_records=500, batch_size=500,
    )  # fmt: skip
    topic = opening.topics.add(topic_id=topic_id)
    for partition in partitions:
        topic.partitions.add(partition_index=partition)
    answer = await stub.ShareFetch(opening, timeout=30)
    check(answer, answer.error_code, answer.error_message)
    session_id = answer.session_id
    answers = [answer]
    for epoch in range(1, 11):
        if any(part.acquired_records for found in answers[-1].responses for part in found.partitions):
            break
        request = fetch.ShareFetchRequest()
        request.CopyFrom(opening)
        request.share_session_epoch = epoch
        request.session_id = session_id
        del request.topics[:]
        answers.append(await stub.ShareFetch(request, timeout=30))
        check(answers[-1], answers[-1].error_code, answers[-1].error_message)
    closing = acknowledge.ShareAcknowledgeRequest(
        group_id=group, member_id=member, share_session_epoch=-1, session_id=session_id
    )
    records = 0
    for found in answers[-1].responses:
        acked = closing.topics.add(topic_id=found.topic_id)
        for part in found.partitions:
            check(part, part.error_code, part.error_message)
            records += show(part)
            batches = [
                AcknowledgementBatch(
                    first_offset=acquired.first_offset, last_offset=acquired.last_offset, acknowledge_types=[ACCEPT]
                )
                for acquired in part.acquired_records
            ]
            if batches:
                acked.partitions.add(partition_index=part.partition_index, acknowledgement_batches=batches)
    closed = await stub.ShareAcknowledge(closing, timeout=30)
    check(closed, closed.error_code, closed.error_message)
    for outcome in closed.responses:
        for result in outcome.partitions:
            check(result, result.error_code, result.error_message)
    return records


def show(part: fetch.ShareFetchResponse.PartitionResult) -> int:
    """Print the acquired records of one partition; its batches may also contain records that were not acquired."""
    shown = 0
    for fetched in part.records:
        if fetched.is_control:
            continue
        for index, record in enumerate(RecordBatch.FromString(fetched.batch).records):
            offset = fetched.base_offset + index
            if any(acquired.first_offset <= offset <= acquired.last_offset for acquired in part.acquired_records):
                print(f"partition {part.partition_index} offset {offset}: {record.value!r}")
                shown += 1
    return shown


async def main(bootstrap: str = "127.0.0.1:7932", topic: str = "orders", group: str = "raw") -> None:
    """Produce, join, consume from every leader, leave."""
    member = uuid.uuid4().hex
    async with aio.insecure_channel(bootstrap) as channel:
        cluster = ClusterServiceStub(channel)
        found = await cluster.FindCoordinator(coordinators.FindCoordinatorRequest(coordinator_keys=[group]), timeout=10)
        coordinator = found.coordinators[0]
        check(found, coordinator.error_code, coordinator.error_message)
        names = metadata.MetadataRequest.TopicList(values=[metadata.MetadataRequest.Topic(name=topic)])
        known = await cluster.Metadata(metadata.MetadataRequest(topics=names), timeout=10)
    nodes = {node.node_id: f"{node.host}:{node.port}" for node in known.brokers}
    for described in known.topics:
        check(described, described.error_code, described.error_message)
    if not nodes or not known.topics:
        sys.exit(f"{bootstrap} names no node that serves topic {topic!r}; is that a cluster's client port?")
    leaders = {part.partition_index: part.leader_id for found in known.topics for part in found.partitions}
    if without_leader := [number for number, leader in leaders.items() if leader not in nodes]:
        sys.exit(f"partitions {without_leader} of topic {topic!r} have no live leader; try again in some seconds")
    async with aio.insecure_channel(nodes[leaders[0]]) as channel:
        values = [b"raw order 1", b"raw order 2"]
        offset = await store(PartitionLeaderServiceStub(channel), known.topics[0].topic_id, 0, values)
        print(f"stored {len(values)} records in partition 0 from offset {offset}")
    async with aio.insecure_channel(f"{coordinator.host}:{coordinator.port}") as channel:
        groups = GroupCoordinatorServiceStub(channel)
        for topic_id, partitions in (await join(groups, group, member, topic)).items():
            for leader in sorted({leaders[partition] for partition in partitions}):
                led = [partition for partition in partitions if leaders[partition] == leader]
                async with aio.insecure_channel(nodes[leader]) as peer:
                    count = await consume(PartitionLeaderServiceStub(peer), group, member, topic_id, led)
                    print(f"{count} records from node {leader}")
        await groups.ShareGroupHeartbeat(
            heartbeat.ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=-1), timeout=10
        )


if __name__ == "__main__":
    if len(sys.argv) > 4:
        sys.exit("usage: python raw_stubs.py [host:port] [topic] [group]")
    try:
        asyncio.run(main(*sys.argv[1:]))
    except aio.AioRpcError as error:  # no response; the details name the address, if one was tried
        said = f"{error.code().name}: {error.details()}".replace("\n", " ")
        sys.exit(f"no answer: {said}. Is a cluster up (sharegroups up), and is the host:port right?")
