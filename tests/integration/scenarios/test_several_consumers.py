"""S-013, S-108, S-132: consumers of several topics and groups, and several consumers of one group."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from sharegroups import Admin, Producer, ShareConsumer, TopicIdPartition
from tests.integration.scenarios.clients import BOUND_S, EXPLICIT, World, first
from tests.support.node import QUICK, Cluster, unique

CROWD = 3


@pytest.mark.scenario("S-013")
def test_a_topic_is_deleted_beside_another_one(cluster: Cluster) -> None:
    bar, baz = World(cluster), World(cluster)
    with bar.consumer(subscribed=False) as consumer:
        consumer.subscribe([bar.topic, baz.topic])
        for world in (bar, baz):
            world.produce("a")
            assert [message.topic() for message in first(consumer)] == [world.topic]
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            assert admin.delete_topics([bar.topic]) == {bar.topic: None}
        assert len(consumer.poll(0.5)) == 0
        for value in ("b", "c"):
            baz.produce(value)
            (message,) = first(consumer)
            assert (message.topic(), message.value(), message.delivery_count()) == (baz.topic, value.encode(), 1)


class Crowd:
    """Consumers of one group, each in its own thread and accepting everything. Records the consumed and the confirmed
    deliveries, by (partition, offset) and by consumer."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._failures: list[BaseException] = []
        self.consumed: list[Counter[tuple[int, int]]] = [Counter() for _ in range(CROWD)]
        self.confirmed: list[Counter[tuple[int, int]]] = [Counter() for _ in range(CROWD)]
        self.threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CROWD)]

    def everybody_worked(self) -> bool:
        with self._lock:
            return all(self.consumed) and all(self.confirmed)

    def all_confirmed(self) -> int:
        with self._lock:
            return sum(one.total() for one in self.confirmed)

    def end(self) -> None:
        """Wait for all consumers; fails if one of them raised."""
        self._ends.set()
        for thread in self.threads:
            thread.join(BOUND_S)
            assert not thread.is_alive()
        assert self._failures == []

    def _run(self, number: int) -> None:
        try:
            with self._world.consumer(EXPLICIT) as consumer:
                consumer.set_acknowledgement_commit_callback(
                    lambda reported, error: self._reported(number, reported, error)
                )
                while not self._ends.is_set():
                    self._turn(number, consumer)
        except BaseException as error:  # reported by `end`
            self._failures.append(error)

    def _turn(self, number: int, consumer: ShareConsumer) -> None:
        messages = consumer.poll(0.2)
        with self._lock:
            self.consumed[number].update((message.partition(), message.offset()) for message in messages)
        for message in messages:
            consumer.acknowledge(message)
        consumer.commit_sync()

    def _reported(self, number: int, reported: dict[TopicIdPartition, set[int]], error: BaseException | None) -> None:
        assert error is None, error
        with self._lock:
            for partition, offsets in reported.items():
                self.confirmed[number].update((partition.partition, offset) for offset in offsets)


@pytest.mark.scenario("S-108")
@pytest.mark.parametrize(("partitions", "records"), [(1, 4_000), (3, 10_000)])
def test_without_a_failure_each_record_is_confirmed_exactly_once(
    cluster: Cluster, partitions: int, records: int
) -> None:
    world = World(cluster, partitions)
    crowd = Crowd(world)
    for thread in crowd.threads:
        thread.start()
    produced = 0
    try:
        for _ in range(BOUND_S * 10):
            produced += _produced(world, partitions, records // 20)
            if produced >= records and crowd.everybody_worked():
                break
        for _ in range(BOUND_S * 10):
            if crowd.all_confirmed() >= produced:
                break
            crowd.threads[0].join(0.1)
    finally:
        crowd.end()
    assert crowd.everybody_worked()
    confirmed = sum(crowd.confirmed, Counter())
    assert (len(confirmed), confirmed.total()) == (produced, produced)
    assert sum(crowd.consumed, Counter()).total() >= produced


def _produced(world: World, partitions: int, count: int) -> int:
    with Producer(bootstrap_servers=world.cluster.bootstrap) as producer:
        for number in range(count):
            producer.produce(world.topic, str(number), partition=number % partitions)
    return count


@pytest.fixture
def narrow() -> Iterator[Cluster]:
    """A cluster with room for one share session."""
    with Cluster({**QUICK, "group.share.max.size": "1", "group.share.max.share.sessions": "1"}) as made:
        yield made


@pytest.mark.scenario("S-132")
def test_a_client_waits_for_room_for_its_session(narrow: Cluster) -> None:
    world = World(narrow)
    world.produce("a")
    with ExitStack() as leaving, world.consumer(group_id=unique("group2")) as second:
        one = leaving.enter_context(world.consumer())
        assert _values(first(one)) == [b"a"]
        world.produce("b")
        assert [len(second.poll(1)) for _ in range(3)] == [0, 0, 0]
        leaving.close()
        seen: list[bytes | None] = []
        while len(seen) < 2:
            seen += _values(first(second))
        assert seen == [b"a", b"b"]


def _values(messages: Sequence[object]) -> list[bytes | None]:
    return [message.value() for message in messages]  # type: ignore[attr-defined]
