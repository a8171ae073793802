"""What becomes of a member's records when its connection ends: by the client, or by its age."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_listener.core.order import UNDER_WAY_MAX
from kafka_listener.messages.apis import api
from tests.integration.kafka_listener.share_members import (
    ACCEPT,
    EXPLICIT,
    Member,
    Taken,
    address_of,
    ask,
    kafka_cluster,
    member,
    produce,
    taken_of,
)
from tests.support.kafka_client import KafkaClient
from tests.support.node import BOUND_S, Cluster, unique

FETCH, METADATA = api("Fetch"), api("Metadata")
HEARTBEAT, SHARE_FETCH = api("ShareGroupHeartbeat"), api("ShareFetch")
#: How long a plain fetch waits, ms: longer than the tests wait for what they show.
PARKED_MS = 24_000


def topic_of(cluster: Cluster) -> tuple[str, bytes]:
    """Create a topic of one partition with ten records; return its name and id."""
    name = unique("topic")
    admin = AdminClient({"bootstrap.servers": address_of(cluster), "log_level": 0})
    admin.create_topics([NewTopic(name, 1)])[name].result(BOUND_S)
    produce(cluster, name, [f"v{number}" for number in range(10)])
    asked = METADATA.request(topics=[METADATA.request.MetadataRequestTopic(name=name)])
    return name, ask(cluster, "Metadata", 12, asked).topics[0].topic_id


async def acquired(client: KafkaClient, group: str, topic: str, topic_id: bytes) -> int:
    """Join the group, and acquire records; return how many."""
    beat = HEARTBEAT.request(group_id=group, member_id=unique("m"), subscribed_topic_names=[topic])
    member_id = (await client.ask("ShareGroupHeartbeat", 1, beat)).member_id
    request = SHARE_FETCH.request
    deadline, epoch, found = time.monotonic() + BOUND_S, 0, 0
    while not found:
        assert time.monotonic() < deadline
        asked = request(
            group_id=group,
            member_id=member_id,
            share_session_epoch=epoch,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1_000_000,
            max_records=100,
            batch_size=100,
            topics=[] if epoch else [request.FetchTopic(topic_id=topic_id, partitions=[request.FetchPartition()])],
        )
        response = await client.ask("ShareFetch", 1, asked)
        epoch += response.error_code == 0
        ranges = [each for one in response.responses for part in one.partitions for each in part.acquired_records]
        found = sum(each.last_offset - each.first_offset + 1 for each in ranges)
    return found


def parked(topic: str) -> Any:
    """A fetch at the end of the topic, which waits for more."""
    partition = FETCH.request.FetchPartition(partition=0, fetch_offset=10, partition_max_bytes=1_000)
    return FETCH.request(
        max_wait_ms=PARKED_MS,
        min_bytes=1,
        max_bytes=1_000,
        session_epoch=-1,
        topics=[FETCH.request.FetchTopic(topic=topic, partitions=[partition])],
    )


@pytest.mark.rule("KL-106", "KL-81")
@pytest.mark.asyncio
async def test_records_of_a_client_that_leaves_while_nothing_is_read_are_delivered_at_once() -> None:
    with kafka_cluster() as cluster:
        topic, topic_id = topic_of(cluster)
        group = unique("g")
        client = await KafkaClient.connect(int(address_of(cluster).rpartition(":")[2]))
        assert await acquired(client, group, topic, topic_id) == 10
        for _ in range(UNDER_WAY_MAX + 20):
            client.send("Fetch", 12, parked(topic))
        await client.writer.drain()
        client.close()
        await client.writer.wait_closed()
        began_s = time.monotonic()
        with member(cluster, group, topic) as other:
            taken = other.take(10)
        assert [each.delivery_count for each in taken] == [2] * 10
        assert time.monotonic() - began_s < PARKED_MS / 1_000 - 4  # before, those fetches had to end first


def held_for_a_while(one: Member) -> list[Taken]:
    """Take records, and acknowledge them after some time."""
    deadline, found = time.monotonic() + BOUND_S, one.poll()
    while not found:
        assert time.monotonic() < deadline
        found = one.poll()
    time.sleep(0.3)
    for message in found:
        one.consumer.acknowledge(message, ACCEPT)
    one.commit()
    return [taken_of(message) for message in found]


@pytest.mark.rule("KL-108")
def test_a_member_keeps_its_records_while_its_connections_end_at_their_age() -> None:
    with kafka_cluster(**{"connections.max.age.ms": "3000"}) as cluster:
        topic, _ = topic_of(cluster)
        host, _, port = address_of(cluster).rpartition(":")
        with (
            member(cluster, unique("g"), topic, **EXPLICIT) as one,
            socket.create_connection((host, int(port)), BOUND_S) as silent,
        ):
            taken = held_for_a_while(one)
            while len(taken) < 10:
                taken += held_for_a_while(one)
            for number in range(20):
                produce(cluster, topic, [f"w{number}"])
                taken += held_for_a_while(one)
            assert one.refused == []
            assert silent.recv(1) == b""  # its age has come, and so has that of the member's connections
        assert [each.offset for each in taken] == list(range(30))
        assert {each.delivery_count for each in taken} == {1}
