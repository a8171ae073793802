"""Settings of a real node take effect, or are refused with the reason."""

from __future__ import annotations

import urllib.request

import pytest

from kip932 import errors
from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeRequest
from kip932.ids import RESOURCE_GROUP
from sharegroups import Admin, AlterConfig, ConfigResource, NewTopic, Producer, ShareConsumer
from tests.integration.scenarios.sessions import ACCEPT, Session
from tests.integration.scenarios.wire import Wire
from tests.support.node import BOUND_S, QUICK, Cluster, StartedProcess, unique, up_words
from tests.support.ports import free_port


def test_fetches_keep_to_fetch_max_bytes() -> None:
    with Cluster({**QUICK, "fetch.max.bytes": "5000"}) as cluster:
        topic, group = unique("t"), unique("g")
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(topic)])
            earliest = [AlterConfig("share.auto.offset.reset", "earliest")]
            admin.incremental_alter_configs({ConfigResource(RESOURCE_GROUP, group): earliest})
        with Producer(bootstrap_servers=cluster.bootstrap, batch_num_records=1) as producer:
            for _ in range(20):
                producer.produce(topic, b"x" * 1_000)
        with ShareConsumer(bootstrap_servers=cluster.bootstrap, group_id=group) as consumer:
            consumer.subscribe([topic])
            polls = []
            for _ in range(BOUND_S):
                polls.append(len(consumer.poll(timeout=1)))
                if sum(polls) == 20:
                    break
        assert sum(polls) == 20
        assert max(polls) <= 5


def test_tail_caches_keep_to_log_tail_caches_bytes_and_all_is_read_nevertheless() -> None:
    bound, port, topic = 100_000, free_port(), unique("t")
    with Cluster({**QUICK, "log.tail.caches.bytes": str(bound), "metrics.port": str(port)}) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(topic)])
        with Producer(bootstrap_servers=cluster.bootstrap, batch_num_records=1) as producer:
            for _ in range(300):
                producer.produce(topic, b"x" * 1_000)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=BOUND_S) as answer:
            (line,) = [
                line
                for line in answer.read().decode().splitlines()
                if line.startswith("sharegroups_topic_log_cached_bytes ")
            ]
        assert bound // 2 < float(line.split()[1]) <= bound
        with ShareConsumer(bootstrap_servers=cluster.bootstrap, group_id=unique("g")) as consumer:
            consumer.subscribe([topic])
            seen: list[int] = []
            for _ in range(BOUND_S):
                seen += [message.offset() for message in consumer.poll(timeout=1)]
                if len(seen) == 300:
                    break
        assert seen == list(range(300))


@pytest.mark.asyncio
@pytest.mark.scenario("S-024")
@pytest.mark.rule("GC-8")
async def test_a_node_with_share_groups_switched_off_refuses_fetches_and_acknowledgements() -> None:
    with Cluster({**QUICK, "share.version": "0"}) as cluster:
        async with Wire(cluster.bootstrap, cluster.internal) as wire:
            session = Session(wire, "g", "m", await wire.create_topic("t", 2), partitions=(0, 1))
            unsupported = errors.UnsupportedVersionError.code
            opening = await session.fetch(epoch=0, wait_ms=0)
            assert (opening.error_code, opening.acquisition_lock_timeout_ms, len(opening.responses)) == (
                unsupported,
                0,
                0,
            )
            nothing = ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=0)
            assert (await wire.call("ShareAcknowledge", nothing)).error_code == unsupported
            assert (await session.fetch(wait_ms=0)).error_code == unsupported
            assert (await session.acknowledge((0, 0, [ACCEPT]), epoch=1)).error_code == unsupported
            assert (await wire.summary("g", session.topic_id)).error_code == errors.NONE, (
                "calls about state have no gate"
            )


def test_a_node_does_not_start_with_a_setting_that_would_have_no_effect() -> None:
    with Cluster() as cluster:
        given = {"share.version": "3", "offsets.load.buffer.size": "1"}
        process = StartedProcess(up_words(cluster.folder / "other", given), cluster.folder)
        assert process.ended() != 0
        assert "it must be at most 2" in process.errors
        assert "a shard is read by entries, not by bytes" in process.errors
