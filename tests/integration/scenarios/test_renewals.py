"""S-115 … S-117: the client renews locks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kip932 import errors
from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest
from sharegroups import AcknowledgeType, Messages, ShareConsumer, TopicIdPartition
from tests.integration.scenarios.clients import BOUND_S, EXPLICIT, CountingTransport, World, deliveries, first
from tests.support.node import Cluster

WHOLE: dict[str, Any] = {"share_acquire_mode": "batch_optimized"}
EVEN, ODD = [0, 2, 4, 6, 8], [1, 3, 5, 7, 9]


@pytest.fixture
def world(cluster: Cluster) -> World:
    made = World(cluster)
    made.ask("produce", made.topic_id, 10)
    return made


class Heard:
    """What the callback is told."""

    def __init__(self, consumer: ShareConsumer) -> None:
        self.offsets: Counter[int] = Counter()
        self.failures: list[BaseException] = []
        consumer.set_acknowledgement_commit_callback(self)

    def __call__(self, told: dict[TopicIdPartition, set[int]], error: BaseException | None) -> None:
        for offsets in told.values():
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
def test_a_renewal_on_a_poll_keeps_the_record_with_the_application(world: World) -> None:
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
    assert world.state()[:2] == (10, [])


@pytest.mark.scenario("S-116")
def test_renewal_switched_off_for_the_group(world: World) -> None:
    """The lock is 2 s, so that its end can be awaited."""
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
def test_a_request_with_renewals_fetches_nothing_and_new_records_come_beside_them(world: World) -> None:
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
        assert sorted(seen) == [(offset, 1) for offset in [*ODD, *range(10, 15)]], "each once, none delivered anew"
        assert set(consumer.commit_sync().values()) == {None}
        for _ in range(BOUND_S):  # some of them left with a fetch, and their results come with its answer
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
    assert world.state()[:2] == (15, [])
