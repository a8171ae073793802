"""Unmodified ShareConsumers of confluent_kafka at a real node: what they are given, confirm, release and reject, beside
native clients in the same group."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType as KafkaType
from confluent_kafka import Message
from prometheus_client.parser import text_string_to_metric_families

from kafka_listener.messages.apis import api
from sharegroups import AcknowledgeType, Admin, NewTopic, Producer, ShareConsumer, TopicPartition
from sharegroups.admin_values import ShareGroupOffset
from tests.integration.dead_letters.queues import COPY_CONFIG, Queues, said
from tests.integration.kafka_listener.share_members import (
    ACCEPT,
    EXPLICIT,
    REJECT,
    RELEASE,
    Taken,
    ask,
    kafka_cluster,
    member,
    produce,
    taken_of,
)
from tests.integration.scenarios.clients import deliveries, first
from tests.support.node import BOUND_S, Cluster, unique
from tests.support.ports import free_port

HOUR_MS = "3600000"
KINDS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def metrics_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def node(metrics_port: int) -> Iterator[Cluster]:
    with kafka_cluster(**{"metrics.port": str(metrics_port)}) as cluster:
        yield cluster


def requests_of(port: int, name: str) -> int:
    """How many requests of an API the node's Kafka listener has had."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=BOUND_S) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = [sample for family in families for sample in family.samples]
    found = [each.value for each in samples if each.name == "sharegroups_kafka_requests_total"
             and each.labels["api"] == name]  # fmt: skip
    return int(sum(found))


@pytest.fixture
def admin(node: Cluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=node.bootstrap) as made:
        yield made


@pytest.fixture
def topic(admin: Admin) -> str:
    name = unique("topic")
    assert admin.create_topics([NewTopic(name, 1)]) == {name: None}
    return name


def offsets(admin: Admin, group: str, topic: str, backlog: bool = False) -> ShareGroupOffset:
    found = admin.list_share_group_offsets({group: None}, backlog)[group]
    assert isinstance(found, Mapping), found
    offset = found[TopicPartition(topic, 0)]
    assert isinstance(offset, ShareGroupOffset), offset
    return offset


@pytest.mark.rule("KL-70", "KL-81", "KL-83", "KL-84")
@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_each_record_of_each_compression_is_delivered_once_and_confirmed(
    node: Cluster, admin: Admin, topic: str, mode: str
) -> None:
    sent = [f"{kind}-{number}" for kind in KINDS for number in range(200)]
    for kind in KINDS:
        values = [value for value in sent if value.startswith(kind)]
        produce(node, topic, values, **{"compression.type": kind, "linger.ms": 20})
    group = unique("g")
    with member(node, group, topic, **{"share.acknowledgement.mode": mode}) as one:
        taken = one.take(len(sent), (lambda _: ACCEPT) if mode == "explicit" else None)
        one.commit()
        assert [each.value for each in taken] == sent
        assert {each.delivery_count for each in taken} == {1}
        assert (one.confirmed, one.refused) == ({0: set(range(len(sent)))}, [])
    found = offsets(admin, group, topic)
    assert (found.start_offset, found.lag) == (len(sent), 0)


@pytest.mark.rule("KL-84")
def test_released_records_come_again_and_rejected_ones_become_dead_letters(node: Cluster) -> None:
    queues = Queues(node)
    try:
        queues.configure(**{COPY_CONFIG: "true"})
        produce(node, queues.topic, [f"v{number}" for number in range(6)], **{"compression.type": "lz4"})
        acts = {0: ACCEPT, 1: RELEASE, 2: REJECT, 3: ACCEPT, 4: RELEASE, 5: REJECT}

        def act(message: Message) -> KafkaType:
            again = (message.delivery_count() or 0) > 1
            return ACCEPT if again else acts[message.offset() or 0]

        with member(node, queues.group, queues.topic, **EXPLICIT) as one:
            taken = one.take(8, act)
            assert one.refused == []
        assert [each[1:] for each in taken] == [(number, 1) for number in range(6)] + [(1, 2), (4, 2)]
        letters = queues.until_letters(2)
        assert [(letter.key, letter.value) for letter in letters] == [(b"k2", b"v2"), (b"k5", b"v5")]
        assert [said(letter)["offset"] for letter in letters] == ["2", "5"]
        queues.until_start(6)
    finally:
        queues.close()


@pytest.mark.rule("KL-83")
def test_native_and_kafka_producers_and_members_share_one_group(node: Cluster, admin: Admin, topic: str) -> None:
    with Producer(bootstrap_servers=node.bootstrap, compression_type="gzip") as native:
        for turn in range(3):
            for number in range(20):
                native.produce(topic, f"n{turn}-{number}", key="k", headers={"n": b"1"})
            native.produce(topic, None, key=None)
            assert native.flush(BOUND_S) == 0
            produce(node, topic, [*[f"k{turn}-{number}" for number in range(20)], None])
    sent = 3 * 42
    group = unique("g")
    seen: list[str] = []
    with (
        member(node, group, topic, **EXPLICIT) as theirs,
        ShareConsumer(
            bootstrap_servers=node.bootstrap, group_id=group, share_acknowledgement_mode="explicit", max_poll_records=7
        ) as ours,
    ):
        ours.subscribe([topic])
        deadline = time.monotonic() + BOUND_S
        by_ours = by_theirs = 0
        while len(seen) < sent:
            assert time.monotonic() < deadline, f"{len(seen)} of {sent} records came"
            for message in ours.poll(0.2):
                value = message.value()
                seen.append("" if value is None else value.decode())
                ours.acknowledge(message)
                by_ours += 1
            assert set(ours.commit_sync().values()) <= {None}
            for each in theirs.poll():
                seen.append(taken_of(each).value)
                theirs.consumer.acknowledge(each, ACCEPT)
                by_theirs += 1
            theirs.commit()
    assert len(seen) == by_ours + by_theirs == sent
    named = [f"{kind}{turn}-{number}" for kind in "nk" for turn in range(3) for number in range(20)]
    assert sorted(seen) == sorted([*named, *[""] * 6])
    assert offsets(admin, group, topic).lag == 0


@pytest.mark.rule("KL-83")
def test_each_sees_what_the_other_one_released_with_its_count(node: Cluster, topic: str) -> None:
    produce(node, topic, ["a", None, "c"])
    with Producer(bootstrap_servers=node.bootstrap) as native:
        native.produce(topic, "d", key="k3", headers={"n": b"3"})
    group = unique("g")
    with member(node, group, topic, **EXPLICIT) as theirs:
        taken = theirs.take(4, lambda _: RELEASE)
    assert taken == [Taken("a", 0, 1), Taken("", 1, 1), Taken("c", 2, 1), Taken("d", 3, 1)]
    with ShareConsumer(
        bootstrap_servers=node.bootstrap, group_id=group, share_acknowledgement_mode="explicit",
        share_acquire_mode="batch_optimized",
    ) as ours:  # fmt: skip
        ours.subscribe([topic])
        found = first(ours)
        for message in found:
            ours.acknowledge(message, AcknowledgeType.RELEASE)
        assert set(ours.commit_sync().values()) == {None}
    assert deliveries(found) == [(number, 2) for number in range(4)]
    assert [message.value() for message in found] == [b"a", None, b"c", b"d"]
    assert [message.key() for message in found] == [b"k0", b"k1", b"k2", b"k3"]
    assert dict(found[0].headers()) == {"n": b"0", "null": None}
    with member(node, group, topic, **EXPLICIT) as theirs:
        last = theirs.take(4, lambda _: ACCEPT)
    assert [each.delivery_count for each in last] == [3, 3, 3, 3]


@pytest.mark.rule("KL-84")
def test_a_release_waits_for_the_groups_back_off(node: Cluster, admin: Admin, topic: str) -> None:
    queues = Queues(node)
    try:
        queues.configure(
            **{"sharegroups.retry.backoff.initial.ms": HOUR_MS, "sharegroups.retry.backoff.max.ms": HOUR_MS}
        )
        produce(node, queues.topic, ["a", "b"])
        with member(node, queues.group, queues.topic, **EXPLICIT) as one:
            one.take(2, lambda message: RELEASE if message.offset() == 0 else ACCEPT)
            assert queues.offsets(backlog=True).delayed == 1
            produce(node, queues.topic, ["c"])
            assert one.take(1, lambda _: ACCEPT) == [Taken("c", 2, 1)]
    finally:
        queues.close()


@pytest.mark.rule("KL-81")
def test_a_member_that_closes_leaves_its_records_to_the_next(node: Cluster, topic: str) -> None:
    produce(node, topic, ["a", "b", "c"])
    group = unique("g")
    with member(node, group, topic, **EXPLICIT) as one:
        assert [each.offset for each in one.take(3)] == [0, 1, 2]
        one.consumer.acknowledge_offset(topic, 0, 1, ACCEPT)
        one.commit()
    with member(node, group, topic, **EXPLICIT) as other:
        assert [each[1:] for each in other.take(2, lambda _: ACCEPT)] == [(0, 2), (2, 2)]


@pytest.mark.rule("KL-85")
def test_a_topic_that_is_deleted_under_a_member_is_not_asked_for_without_a_pause(
    node: Cluster, admin: Admin, topic: str, metrics_port: int
) -> None:
    produce(node, topic, ["a"])
    with member(node, unique("g"), topic) as one:
        one.take(1)
        one.commit()
        assert admin.delete_topics([topic]) == {topic: None}
        before = requests_of(metrics_port, "ShareFetch")
        until = time.monotonic() + 3
        while time.monotonic() < until:
            one.poll()
        assert requests_of(metrics_port, "ShareFetch") - before < 100, (
            "a client that is not held back asks 10,000 times"
        )


@pytest.mark.rule("KL-71", "KL-72", "KL-73", "KL-74", "KL-75")
def test_the_requests_of_kafkas_tools_about_groups(node: Cluster, topic: str) -> None:
    produce(node, topic, ["a", "b", "c"])
    group = unique("g")
    describe, list_groups = api("ShareGroupDescribe").request, api("ListGroups").request
    with member(node, group, topic) as one:
        one.take(3)
        one.commit()
        [found] = ask(node, "ShareGroupDescribe", 1, describe(group_ids=[group])).groups
        assert (found.error_code, found.group_state, len(found.members)) == (0, "Stable", 1)
        [held] = found.members[0].assignment.topic_partitions
        assert (held.topic_name, held.partitions, found.members[0].client_host) == (topic, [0], "/127.0.0.1")
        asked = api("DeleteGroups").request(groups_names=[group])
        assert [each.error_code for each in ask(node, "DeleteGroups", 2, asked).results] == [68]
    for version in range(6):
        listed = ask(node, "ListGroups", version, list_groups())
        assert listed.error_code == 0
        assert group in [each.group_id for each in listed.groups]
    assert ask(node, "ListGroups", 5, list_groups(types_filter=["classic"])).groups == []
    assert _start(node, group, topic) == (3, 0)
    assert _partition(node, group, topic).leader_epoch > 1_000_000, "leader epochs are seconds since 2026"
    alter = api("AlterShareGroupOffsets").request
    partitions = [alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)]
    topics = [alter.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)]
    [before] = ask(node, "ShareGroupDescribe", 1, describe(group_ids=[group])).groups
    altered = ask(node, "AlterShareGroupOffsets", 0, alter(group_id=group, topics=topics))
    assert (altered.error_code, altered.responses[0].partitions[0].error_code) == (0, 0)
    assert _start(node, group, topic) == (1, 2)
    [after] = ask(node, "ShareGroupDescribe", 1, describe(group_ids=[group])).groups
    assert after.group_epoch == before.group_epoch + 1
    delete = api("DeleteShareGroupOffsets").request
    named = [delete.DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in (topic, "no-such-topic")]
    deleted = ask(node, "DeleteShareGroupOffsets", 0, delete(group_id=group, topics=named))
    assert [each.error_code for each in deleted.responses] == [0, 3]
    assert [each.error_code for each in ask(node, "DeleteGroups", 0, asked).results] == [0]
    [gone] = ask(node, "ShareGroupDescribe", 1, describe(group_ids=[group])).groups
    assert (gone.error_code, gone.group_state) == (69, "")


def _start(node: Cluster, group: str, topic: str) -> tuple[int, int]:
    """The start offset and the lag, by DescribeShareGroupOffsets."""
    partition = _partition(node, group, topic)
    return partition.start_offset, partition.lag


def _partition(node: Cluster, group: str, topic: str) -> Any:
    """The answer of DescribeShareGroupOffsets about the only partition."""
    kind = api("DescribeShareGroupOffsets").request
    asked = kind(groups=[kind.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)])
    [found] = ask(node, "DescribeShareGroupOffsets", 1, asked).groups
    assert [each.topic_name for each in found.topics] == [topic]
    [partition] = found.topics[0].partitions
    return partition
