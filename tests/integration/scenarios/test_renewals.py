"""S-115 … S-117: the client renews locks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kip932 import errors
from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest
from sharegroups import AcknowledgeType, Messages, ShareConsumer, TopicIdPartition
from tests.integration.scenarios.clients import BOUND_S, EXPLICIT, CountingTransport, World, deliveries, first
from tests.integration.share_node.test_scrapes import scrape, series
from tests.support.node import QUICK, Cluster
from tests.support.ports import free_port

WHOLE: dict[str, Any] = {"share_acquire_mode": "batch_optimized"}
EVEN, ODD = [0, 2, 4, 6, 8], [1, 3, 5, 7, 9]


@pytest.fixture(scope="module")
def metered() -> Iterator[tuple[Cluster, int]]:
    """A cluster, and its metrics port."""
    port = free_port()
    with Cluster({**QUICK, "metrics.port": str(port)}) as cluster:
        yield cluster, port


@pytest.fixture
def world(metered: tuple[Cluster, int]) -> World:
    made = World(metered[0])
    made.ask("produce", made.topic_id, 10)
    return made


class Acknowledged:
    """Counts the records acknowledged since construction, by type, from the node's metric."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.before = self._read()

    def _read(self) -> dict[str, int]:
        name = "sharegroups_record_acknowledgements_total"
        return {
            dict(labels)["ack_type"]: int(number)
            for (found, labels), number in series(scrape(self.port)).items()
            if found == name
        }

    def now(self) -> dict[str, int]:
        return {kind: number - self.before[kind] for kind, number in self._read().items()}


class Heard:
    """Collects the calls of the consumer's callback."""

    def __init__(self, consumer: ShareConsumer) -> None:
        self.offsets: Counter[int] = Counter()
        self.failures: list[BaseException] = []
        consumer.set_acknowledgement_commit_callback(self)

    def __call__(self, reported: dict[TopicIdPartition, set[int]], error: BaseException | None) -> None:
        for offsets in reported.values():
            self.offsets.update(offsets)
        if error is not None:
            self.failures.append(error)


def _split(consumer: ShareConsumer, messages: Messages) -> None:
    """Accept the even offsets, renew the odd ones."""
    for message in messages:
        kind = AcknowledgeType.RENEW if message.offset() % 2 else AcknowledgeType.ACCEPT
        consumer.acknowledge(message, kind)


def _accept(consumer: ShareConsumer, messages: Messages) -> None:
    for message in messages:
        consumer.acknowledge(message)


@pytest.mark.scenario("S-115")
def test_a_renewal_on_a_poll_keeps_the_record_with_the_application(world: World, metered: tuple[Cluster, int]) -> None:
    acknowledged = Acknowledged(metered[1])
    world.ask("set_group", world.group, {"share.record.lock.duration.ms": "15000"})
    transport = CountingTransport()
    with world.consumer(EXPLICIT, transport=transport, **WHOLE) as consumer:
        heard = Heard(consumer)
        messages = first(consumer)
        assert deliveries(messages) == [(offset, 1) for offset in range(10)]
        _split(consumer, messages)
        again = first(consumer)
        assert deliveries(again) == [(offset, 1) for offset in ODD]
        _accept(consumer, again)
        assert list(consumer.commit_sync().values()) == [None]
        assert heard.failures == []
        assert heard.offsets == dict.fromkeys(EVEN, 1) | dict.fromkeys(ODD, 2)
        assert heard.offsets.total() == 15
        assert transport.sent == {AcknowledgeType.ACCEPT: 10, AcknowledgeType.RENEW: 5}
        assert acknowledged.now() == {"accept": 10, "release": 0, "reject": 0, "renew": 5}
    assert world.state()[:2] == (10, [])


@pytest.mark.scenario("S-116")
def test_renewal_switched_off_for_the_group(world: World) -> None:
    """The lock lasts only 2 s, so that the test can wait for its end."""
    settings = {"share.renew.acknowledge.enable": "false", "share.record.lock.duration.ms": "2000"}
    world.ask("set_group", world.group, settings)
    with world.consumer(EXPLICIT, **WHOLE) as consumer:
        messages = first(consumer)
        for message in messages:
            consumer.acknowledge(message, AcknowledgeType.RENEW)
        (refused,) = consumer.commit_sync().values()
        assert isinstance(refused, errors.InvalidRecordStateError)
        with world.consumer(EXPLICIT, **WHOLE) as other:
            assert len(other.poll(0.5)) == 0, "the original lock"
            again = first(other)
            assert deliveries(again) == [(offset, 2) for offset in range(10)]
            _accept(other, again)
            assert list(other.commit_sync().values()) == [None]


@pytest.mark.scenario("S-117")
def test_a_request_with_renewals_fetches_nothing_and_new_records_come_beside_them(
    world: World, metered: tuple[Cluster, int]
) -> None:
    acknowledged = Acknowledged(metered[1])
    world.ask("set_group", world.group, {"share.record.lock.duration.ms": "12000"})
    transport = CountingTransport()
    with world.consumer(EXPLICIT, transport=transport, **WHOLE) as consumer:
        heard = Heard(consumer)
        _split(consumer, first(consumer))
        world.ask("produce", world.topic_id, 5)
        seen: list[tuple[int, int]] = []
        for _ in range(BOUND_S):
            messages = consumer.poll(1)
            seen += deliveries(messages)
            _accept(consumer, messages)
            if len(seen) == 10:
                break
        assert sorted(seen) == [(offset, 1) for offset in [*ODD, *range(10, 15)]], "each once, none delivered again"
        assert set(consumer.commit_sync().values()) == {None}
        for _ in range(BOUND_S):  # some were sent with a fetch, and their results arrive with its response
            if heard.offsets.total() >= 20:
                break
            assert len(consumer.poll(1)) == 0
        (request,) = transport.renewing
        (batches,) = [part.acknowledgement_batches for topic in request.topics for part in topic.partitions]
        assert sum(batch.last_offset - batch.first_offset + 1 for batch in batches) == 10
        if isinstance(request, ShareFetchRequest):
            assert (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records) == (0, 0, 0, 0)
        assert heard.failures == []
        assert heard.offsets == dict.fromkeys(EVEN, 1) | dict.fromkeys(ODD, 2) | dict.fromkeys(range(10, 15), 1)
        assert heard.offsets.total() == 20
        assert transport.sent == {AcknowledgeType.ACCEPT: 15, AcknowledgeType.RENEW: 5}
        assert acknowledged.now() == {"accept": 15, "release": 0, "reject": 0, "renew": 5}
    assert world.state()[:2] == (15, [])


@pytest.mark.rule("CL-94", "CL-95")
def test_a_blocking_consumer_keeps_a_record_for_many_locks_while_it_polls_others(world: World) -> None:
    """A thread of the client sends the renewals while the calling thread waits in `poll` or makes no call at all."""
    world.ask("set_group", world.group, {"share.record.lock.duration.ms": "1000"})
    transport = CountingTransport()
    one: dict[str, Any] = {"share_acquire_mode": "record_limit", "max_poll_records": 1}
    with world.consumer(EXPLICIT, transport=transport, **one) as consumer:
        (long,) = first(consumer)
        with consumer.keep_alive(long) as kept:
            others = 0
            while others < 9:
                for message in consumer.poll(1):
                    consumer.acknowledge(message)
                    others += 1
            assert list(consumer.commit_sync().values()) == [None]
            time.sleep(3)
            with world.consumer(EXPLICIT, **one) as other:
                assert len(other.poll(0.5)) == 0, "it is locked after three locks' time"
            assert not kept.lost
            consumer.acknowledge(long)
            assert list(consumer.commit_sync().values()) == [None]
        assert transport.sent[AcknowledgeType.ACCEPT] == 10
        assert transport.sent[AcknowledgeType.RENEW] >= 6
    assert world.state()[:2] == (10, [])


@pytest.mark.rule("CL-96")
@pytest.mark.scenario("S-116")
def test_a_job_learns_when_the_group_allows_no_renewals(world: World) -> None:
    world.ask("set_group", world.group, {"share.renew.acknowledge.enable": "false"})
    world.ask("set_group", world.group, {"share.record.lock.duration.ms": "1500"})
    lost: list[int] = []
    with world.consumer(EXPLICIT, **WHOLE) as consumer:
        messages = first(consumer)
        with consumer.keep_alive(messages, lambda gone: lost.extend(one.offset() for one in gone)) as kept:
            deadline = time.monotonic() + BOUND_S
            while len(lost) < 10 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert sorted(lost) == list(range(10))
            assert all(kept.is_lost(message) for message in messages)
            with pytest.raises(errors.InvalidRecordStateError):
                kept.check()
