"""Settings that somebody sets on a real node do what they say, or are refused with the reason."""

from __future__ import annotations

import urllib.request

import pytest

from kip932 import errors
from kip932.ids import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC
from sharegroups import Admin, AlterConfig, ConfigResource, NewTopic, Producer, ShareConsumer
from tests.integration.scenarios.sessions import ACCEPT, Session
from tests.integration.scenarios.wire import Wire
from tests.support.node import BOUND_S, QUICK, Cluster, StartedProcess, unique, up_words
from tests.support.ports import free_port


def refused(resource: ConfigResource, name: str, value: str, admin: Admin) -> str:
    (outcome,) = admin.incremental_alter_configs({resource: [AlterConfig(name, value)]}).values()
    return "" if outcome is None else str(outcome)


def test_dead_letter_configs_are_refused_with_the_reason_and_fetches_keep_to_fetch_max_bytes() -> None:
    with Cluster({**QUICK, "fetch.max.bytes": "5000"}) as cluster:
        topic, group = unique("t"), unique("g")
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(topic)])
            for resource, name, value in (
                (ConfigResource(RESOURCE_GROUP, group), "errors.deadletterqueue.topic.name", "dlq.orders"),
                (ConfigResource(RESOURCE_GROUP, group), "errors.deadletterqueue.copy.record.enable", "true"),
                (ConfigResource(RESOURCE_TOPIC, topic), "errors.deadletterqueue.group.enable", "true"),
                (ConfigResource(RESOURCE_BROKER, ""), "errors.deadletterqueue.topic.name.prefix", "mine."),
            ):
                text = refused(resource, name, value, admin)
                assert "dead-letter queues are not served yet" in text
                assert name in text
            empty = ConfigResource(RESOURCE_GROUP, group)
            assert refused(empty, "errors.deadletterqueue.topic.name", "", admin) == ""
            assert refused(empty, "share.auto.offset.reset", "earliest", admin) == ""
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
                line for line in answer.read().decode().splitlines() if line.startswith("topic_log_cached_bytes ")
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
@pytest.mark.rule("GC-8")
async def test_a_node_with_share_groups_switched_off_refuses_fetches_and_acknowledgements() -> None:
    with Cluster({**QUICK, "share.version": "0"}) as cluster:
        async with Wire(cluster.bootstrap, cluster.internal) as wire:
            session = Session(wire, "g", "m", await wire.create_topic("t"))
            unsupported = errors.UnsupportedVersionError.code
            assert (await session.fetch(wait_ms=0)).error_code == unsupported
            assert (await session.acknowledge((0, 0, [ACCEPT]), epoch=1)).error_code == unsupported
            assert (await wire.summary("g", session.topic_id)).error_code == errors.NONE, (
                "calls about state have no gate"
            )


def test_a_node_does_not_start_with_a_setting_that_would_have_no_effect() -> None:
    with Cluster() as cluster:
        given = {"share.version": "2", "offsets.load.buffer.size": "1"}
        process = StartedProcess(up_words(cluster.folder / "other", given), cluster.folder)
        assert process.ended() != 0
        assert "dead-letter queues, which are not served yet" in process.errors
        assert "a shard is read by entries, not by bytes" in process.errors
