"""Compressed batches through a real node and store: each compression type, and a worker that lacks one (CM-116,
CL-111)."""

from __future__ import annotations

import pytest

from kip932.compression.kinds import Compression
from sharegroups import Admin, Producer, ShareConsumer, TopicPartition
from sharegroups.errors import UnsupportedCompressionTypeError
from tests.integration.scenarios.clients import World, deliveries, first
from tests.support.missing_codecs import without
from tests.support.node import Cluster

KINDS = [kind.label for kind in Compression]
WORDS = "the same words again and again, so that they pack well; "


@pytest.fixture
def world(cluster: Cluster) -> World:
    return World(cluster)


def produce(world: World, kind: str, count: int) -> None:
    with Producer(bootstrap_servers=world.cluster.bootstrap, compression_type=kind) as producer:
        for number in range(count):
            producer.produce(world.topic, f"{WORDS * 20}{number}", key=kind, headers={"kind": kind})
        assert producer.flush(30) == 0


@pytest.mark.rule("CM-116", "CM-112", "CL-112")
def test_what_is_produced_with_each_compression_is_consumed(world: World) -> None:
    for kind in KINDS:
        produce(world, kind, 50)
    found: list[tuple[str, str, str]] = []
    with world.consumer() as consumer:
        messages = first(consumer)
        while True:
            found += [
                (message.key().decode(), (dict(message.headers())["kind"] or b"").decode(), message.value().decode())
                for message in messages
            ]
            if len(found) >= 50 * len(KINDS):
                break
            messages = consumer.poll(10)
        assert set(consumer.commit_sync().values()) == {None}
    assert found == [(kind, kind, f"{WORDS * 20}{number}") for kind in KINDS for number in range(50)]
    world.until_state(50 * len(KINDS), [])


@pytest.mark.rule("CL-111", "PL-257", "CL-92")
def test_a_worker_without_the_library_leaves_the_records_to_one_that_has_it(world: World) -> None:
    produce(world, "zstd", 3)
    partition = TopicPartition(world.topic, 0)
    with without("zstd"):
        poor = ShareConsumer(bootstrap_servers=world.cluster.bootstrap, group_id=world.group)
        poor.subscribe([world.topic])
        for _ in range(7):  # more than the delivery count limit
            with pytest.raises(UnsupportedCompressionTypeError, match=r"-0: .*offset 0 .*'sharegroups\[zstd\]'"):
                poor.poll(20)
        with Admin(bootstrap_servers=world.cluster.bootstrap) as admin:
            read = admin.read_records(partition, 0)
        assert [str(one.error).count("pip install 'sharegroups[zstd]'") for one in read.unreadable] == [1]
    with world.consumer(share_acquire_mode="batch_optimized") as rich:
        assert deliveries(first(rich)) == [(0, 1), (1, 1), (2, 1)]
        assert set(rich.commit_sync().values()) == {None}
    world.until_state(3, [])
    with pytest.raises(UnsupportedCompressionTypeError):
        poor.close()
