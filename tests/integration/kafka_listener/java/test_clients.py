"""Kafka's Java clients, unmodified: KafkaProducer and KafkaShareConsumer at a real node."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from sharegroups import Admin, AlterConfig, ConfigResource, NewTopic
from tests.integration.kafka_listener.java.kafka_java import JavaError, JavaProcess, KafkaJava, Member, Record, Sender
from tests.integration.kafka_listener.share_members import address_of
from tests.support.node import BOUND_S, Cluster, unique
from tools.kafka_transcripts.running import JAVA

PAGE: Final = (Path(__file__).parents[4] / "docs/howto/kafka-clients.md").read_text(encoding="utf-8")
EXPLICIT: Final = {"share.acknowledgement.mode": "explicit"}
KINDS: Final = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def topic(node: Cluster) -> str:
    """Return a topic of its own, with two partitions."""
    return topic_of(node, 2)


def topic_of(node: Cluster, partitions: int) -> str:
    name = unique("t")
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        assert admin.create_topics([NewTopic(name, partitions)]) == {name: None}
    return name


def configure(node: Cluster, group: str, name: str, value: str) -> None:
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        resource = ConfigResource.group(group)
        assert admin.incremental_alter_configs({resource: [AlterConfig(name, value)]}) == {resource: None}


def sender(process: JavaProcess, node: Cluster, **settings: str) -> Sender:
    return Sender(process, unique("p"), address_of(node), **settings)


def member(process: JavaProcess, node: Cluster, group: str, topic: str, **settings: str) -> Member:
    return Member(process, unique("m"), address_of(node), group, [topic], **settings)


def values(count: int) -> list[str | None]:
    return [f"value {number}" for number in range(count)]


@pytest.mark.rule("KL-83", "KL-84")
@pytest.mark.parametrize("kind", KINDS)
def test_records_of_each_compression_come_once_and_are_confirmed(
    process: JavaProcess, node: Cluster, topic: str, kind: str
) -> None:
    producer = sender(process, node, **{"compression.type": kind, "linger.ms": "20"})
    producer.send(topic, values(500), key="k")
    producer.send(topic, [None])
    producer.flush()
    assert (len(producer.stored), producer.failed) == (501, {})
    one = member(process, node, unique("g"), topic)
    found: list[Record] = []
    while len(found) < 501:
        found += one.some()
        one.commit()
    assert Counter(each.value for each in found) == Counter([*values(500), None])
    assert {(each.value, each.partition, each.offset) for each in found} == {
        (value, *place) for value, place in producer.stored.items()
    }
    assert {each.delivery for each in found} == {1}
    assert {(each.key, *each.headers.items()) for each in found if each.value == "value 7"} == {
        ("k", ("n", "value 7"), ("null", None))
    }
    one.close()
    assert (sum(map(len, one.confirmed.values())), one.refused) == (501, [])


@pytest.mark.rule("KL-84")
def test_a_released_record_comes_again_and_accepted_and_rejected_ones_do_not(
    process: JavaProcess, node: Cluster, topic: str
) -> None:
    producer = sender(process, node)
    producer.send(topic, values(12), partition=0)
    producer.flush()
    one = member(process, node, unique("g"), topic, **EXPLICIT)
    found: list[tuple[int, int]] = []
    while len(found) < 14:
        given = one.some()
        found += [(each.offset, each.delivery) for each in given]
        one.acknowledge(*((each, action(each)) for each in given))
        one.commit()
    assert Counter(found) == Counter([(offset, 1) for offset in range(12)] + [(3, 2), (7, 2)])
    assert one.poll(1_000) == []
    one.close()
    assert (one.confirmed, one.refused) == ({0: set(range(12))}, [])


def action(record: Record) -> str:
    if record.offset in {3, 7} and record.delivery == 1:
        return "RELEASE"
    return "REJECT" if record.offset == 5 else "ACCEPT"


@pytest.mark.rule("KL-84")
def test_a_renewed_record_stays_with_its_member(process: JavaProcess, node: Cluster, topic: str) -> None:
    group = unique("g")
    configure(node, group, "share.record.lock.duration.ms", "3000")
    producer = sender(process, node)
    producer.send(topic, ["long work"], partition=0)
    producer.flush()
    one = member(process, node, group, topic, **EXPLICIT)
    (record,) = one.some()
    assert one.call("lock")["lock_ms"] == 3_000
    other = member(process, node, group, topic)
    for _ in range(4):  # longer than the lock lasts
        one.acknowledge((record, "RENEW"))
        one.commit()
        assert other.poll(1_000) == []
        assert [each.place for each in one.poll(100)] in ([], [record.place])
    one.acknowledge((record, "ACCEPT"))
    one.commit()
    assert other.poll(1_000) == []
    other.close()
    one.close()
    assert (one.confirmed, one.refused) == ({0: {record.offset}}, [])


@pytest.mark.rule("KL-84")
def test_an_acknowledgement_that_comes_too_late_is_reported(process: JavaProcess, node: Cluster, topic: str) -> None:
    group = unique("g")
    configure(node, group, "share.record.lock.duration.ms", "1000")
    producer = sender(process, node)
    producer.send(topic, ["slow"], partition=0)
    producer.flush()
    one = member(process, node, group, topic, **EXPLICIT)
    (record,) = one.some()
    other = member(process, node, group, topic)
    (again,) = other.some()
    assert (again.place, again.delivery) == (record.place, 2)
    one.acknowledge((record, "ACCEPT"))
    assert one.call("commit")["refused"] == {f"{topic}-0": "InvalidRecordStateException"}
    other.commit()
    assert other.confirmed == {0: {record.offset}}
    one.close()
    other.close()


@pytest.mark.rule("KL-100", "KL-103")
def test_transactions_of_javas_producer_are_committed_or_aborted(
    process: JavaProcess, node: Cluster, topic: str
) -> None:
    group = unique("g")
    configure(node, group, "share.isolation.level", "read_committed")
    name = unique("p")
    producer = Sender(process, name, address_of(node), **{"transactional.id": unique("id")})
    process.call(name, "init")
    for outcome, sent in (("abort", "aborted"), ("end", "committed"), ("abort", "aborted again"), ("end", "last")):
        process.call(name, "begin")
        producer.send(topic, [f"{sent} {number}" for number in range(3)], partition=1)
        process.call(name, outcome)
    one = member(process, node, group, topic)
    found: list[str | None] = []
    while len(found) < 6:
        found += [each.value for each in one.some()]
        one.commit()
    assert found == [f"{sent} {number}" for sent in ("committed", "last") for number in range(3)]
    one.close()


@pytest.mark.rule("KL-41", "KL-45")
def test_a_topic_that_does_not_exist_is_not_created(process: JavaProcess, node: Cluster) -> None:
    producer = sender(process, node, **{"max.block.ms": "1000"})
    producer.send(unique("nope"), ["lost"])
    producer.flush()
    assert producer.failed == {"lost": "TimeoutException"}
    one = member(process, node, unique("g"), unique("nope"))
    assert one.poll(1_000) == []
    one.close()
    bad = member(process, node, unique("g"), "bad/name")
    with pytest.raises(JavaError, match="InvalidTopic"):
        bad.some()


def test_the_java_program_of_the_howto(java: KafkaJava, process: JavaProcess, node: Cluster, tmp_path: Path) -> None:
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        assert admin.create_topics([NewTopic("orders", 2)]) == {"orders": None}
    producer = sender(process, node)
    producer.send("orders", values(10))
    producer.flush()
    (program,) = (each for each in re.findall(r"```java\n(.*?)```", PAGE, re.DOTALL) if "static void main" in each)
    assert program.count("127.0.0.1:9092") == 1
    path = tmp_path / "Worker.java"
    path.write_text(program.replace("127.0.0.1:9092", address_of(node)), encoding="utf-8")
    words = [*JAVA, "-cp", f"{java.jars}/*", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"value {number} delivery 1" for number in range(10)]
