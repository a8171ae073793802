"""S-115, S-116: the client renews locks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kip932 import errors
from sharegroups import AcknowledgeType, Messages, ShareConsumer, TopicIdPartition
from tests.integration.scenarios.clients import EXPLICIT, CountingTransport, World, deliveries, first
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
