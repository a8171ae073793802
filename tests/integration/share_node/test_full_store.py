"""A store with a memory limit, filled by producers: they are refused before it is full, and it is emptied again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from random import Random

import pytest
import redis

from kip932.errors import KafkaError
from kip932.ids import RESOURCE_GROUP
from sharegroups import Admin, AlterConfig, ConfigResource, NewTopic, Producer, ShareConsumer, TopicPartition
from tests.support.node import BOUND_S, QUICK, Cluster, unique

_SIZE = 1 << 20


def _burst(cluster: Cluster, topic: str, partitions: int, count: int, seed: int) -> tuple[set[bytes], list[KafkaError]]:
    """Produce records at once, without waiting for any. Returns the keys of those that were stored, and errors."""
    rng, stored, errors = Random(seed), set[bytes](), list[KafkaError]()
    with Producer(bootstrap_servers=cluster.bootstrap, delivery_timeout_ms=6_000, buffer_memory=400 << 20) as producer:
        for number in range(count):
            key = f"{seed}-{number}".encode()

            def done(error: KafkaError | None, _: object, key: bytes = key) -> None:
                if error is None:
                    stored.add(key)
                else:
                    errors.append(error)

            producer.produce(topic, rng.randbytes(_SIZE - 200), key, number % partitions, done)
        producer.flush()
    return stored, errors


class _Worker:
    """A share consumer in a thread of its own that goes on through everything; collects the keys of its records."""

    def __init__(self, cluster: Cluster, topic: str, group: str) -> None:
        self.keys: list[bytes] = []
        self.errors: list[Exception] = []
        self._ends = threading.Event()
        self._came = threading.Condition()
        self._thread = threading.Thread(target=self._run, args=(cluster.bootstrap, topic, group))
        self._thread.start()

    def _run(self, bootstrap: str, topic: str, group: str) -> None:
        try:
            with ShareConsumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
                consumer.subscribe([topic])
                while not self._ends.is_set():
                    found = [message.key() for message in consumer.poll(timeout=0.2)]  # acknowledges those before
                    self.errors += [error for error in consumer.commit_sync().values() if error is not None]
                    with self._came:
                        self.keys += [key for key in found if key is not None]
                        self._came.notify_all()
        except Exception as error:
            self.errors.append(error)

    def until(self, keys: set[bytes]) -> None:
        with self._came:
            assert self._came.wait_for(lambda: self.errors or keys <= set(self.keys), BOUND_S * 2), keys - {*self.keys}

    def end(self) -> None:
        self._ends.set()
        self._thread.join(BOUND_S)


def _from_the_start(admin: Admin, groups: Sequence[str]) -> None:
    earliest = [AlterConfig("share.auto.offset.reset", "earliest")]
    admin.incremental_alter_configs({ConfigResource(RESOURCE_GROUP, group): earliest for group in groups})


@pytest.mark.rule("CM-214", "CM-215")
def test_a_nearly_full_store_takes_acknowledgements_and_deletions_and_after_them_records_again() -> None:
    topic, first, late, partitions = unique("jobs"), unique("g"), unique("g"), 3
    with Cluster(QUICK, "--store-memory", "96MiB") as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions)])
        _from_the_start(admin, [first, late])
        worker = _Worker(cluster, topic, first)
        try:
            stored, errors = _burst(cluster, topic, partitions, 300, seed=1)
            assert 40 < len(stored) < 96, "it takes nearly all that fits"
            assert len(stored) + len(errors) == 300
            for words in ("store.produce.memory.percent", "96 MiB", "topics delete-records", "--store-memory"):
                assert words in str(errors[-1]), str(errors[-1])
            worker.until(stored)
            # Another group begins only now: members, states and acknowledgements are written while records are refused.
            second = _Worker(cluster, topic, late)
            try:
                second.until(stored)
            finally:
                second.end()
            assert not second.errors
            again, refused = _burst(cluster, topic, partitions, 30, seed=2)  # a few may fit into what buffers took
            assert refused, "it is still nearly full: acknowledged records are kept"
            stored |= again
            ends = {TopicPartition(topic, number): -1 for number in range(partitions)}
            starts = admin.delete_records(ends)
            assert all(isinstance(start, int) and start > 0 for start in starts.values()), starts
            more, refused = _burst(cluster, topic, partitions, 20, seed=3)
            assert (len(more), refused) == (20, [])
            worker.until(stored | more)
        finally:
            worker.end()
        assert not worker.errors
        assert set(worker.keys) >= stored | more
        with redis.Redis(unix_socket_path=cluster.store_socket) as store:
            assert "errorstat_OOM" not in store.info("errorstats"), "the store itself refused nothing"
