"""S-001, S-002, S-007 … S-009, S-012: the blocking client against a real node and store."""

from __future__ import annotations

import time

import pytest

from kip932 import errors
from kip932.ids import STATE_ACKNOWLEDGED
from share_coordinator.core.records import ShareSnapshot, ShareUpdate
from sharegroups import AcknowledgeType, IllegalStateError
from tests.integration.scenarios.clients import BOUND_S, EXPLICIT, CountingTransport, World, deliveries, first
from tests.integration.scenarios.stored import share_records
from tests.support.node import Cluster


@pytest.fixture
def world(cluster: Cluster) -> World:
    return World(cluster)


@pytest.mark.scenario("S-001")
@pytest.mark.rule("CL-20", "CL-21")
def test_polling_needs_a_subscription(world: World) -> None:
    with world.consumer(subscribed=False) as consumer:
        with pytest.raises(IllegalStateError, match="not subscribed"):
            consumer.poll(0.5)
        assert consumer.subscription() == []
        consumer.subscribe([world.topic])
        assert len(consumer.poll(0.5)) == 0
        consumer.unsubscribe()
        assert consumer.subscription() == []
        with pytest.raises(IllegalStateError, match="not subscribed"):
            consumer.poll(0.5)
        consumer.subscribe([world.topic])
        deadline = time.monotonic() + BOUND_S
        records = share_records(world.cluster, world.group, world.topic_id)
        while len(records) < 2 and time.monotonic() < deadline:
            assert len(consumer.poll(0.2)) == 0
            records = share_records(world.cluster, world.group, world.topic_id)
        initialised, read = records[:2]
        assert isinstance(initialised, ShareSnapshot)
        assert (initialised.snapshot_epoch, initialised.leader_epoch, initialised.batches) == (0, 0, ())
        assert isinstance(read, ShareUpdate)
        assert read.leader_epoch == next(iter(world.ask("leaders", world.topic).values())).epoch
        assert read.batches == ()
        consumer.subscribe([])
        assert consumer.subscription() == []
        with pytest.raises(IllegalStateError, match="not subscribed"):
            consumer.poll(0.5)


@pytest.mark.scenario("S-002")
@pytest.mark.rule("CL-28")
def test_consecutive_polls_return_only_what_was_produced_in_between(world: World) -> None:
    world.produce("a")
    with world.consumer() as consumer:
        seen = [deliveries(first(consumer))]
        for value in ("b", "c"):
            world.produce(value)
            seen.append(deliveries(consumer.poll(5)))
        assert seen == [[(0, 1)], [(1, 1)], [(2, 1)]]
        world.until_state(2, [])
    # No poll followed the third: the close releases it (CL-28).
    world.until_state(2, [(2, 2, 0, 1)])


@pytest.mark.scenario("S-007")
def test_the_last_acknowledgement_before_the_commit_wins(world: World) -> None:
    world.produce("a")
    with world.consumer(EXPLICIT) as consumer:
        (message,) = first(consumer)
        consumer.acknowledge(message, AcknowledgeType.RELEASE)
        consumer.acknowledge(message, AcknowledgeType.ACCEPT)
        assert len(consumer.poll(0.5)) == 0
        world.until_state(1, [])
    updates = share_records(world.cluster, world.group, world.topic_id)
    written = [batch for record in updates if isinstance(record, ShareUpdate) for batch in record.batches]
    assert [(batch.first_offset, batch.last_offset, batch.delivery_state) for batch in written] in (
        [(0, 0, STATE_ACKNOWLEDGED)],
        [],  # a write that moves the start past the record need not contain it
    )


@pytest.mark.scenario("S-008")
def test_a_released_record_comes_back_on_the_next_poll(world: World) -> None:
    world.produce("a")
    with world.consumer(EXPLICIT) as consumer:
        (message,) = first(consumer)
        consumer.acknowledge(message, AcknowledgeType.RELEASE)
        again = consumer.poll(5)
        assert deliveries(again) == [(0, 2)]
        consumer.acknowledge(again[0], AcknowledgeType.ACCEPT)
        assert len(consumer.poll(0.5)) == 0
    assert world.state()[:2] == (1, [])


@pytest.mark.rule("PL-418")
def test_who_accepts_a_record_after_its_last_lock_has_ended_learns_that_it_does_not_count(world: World) -> None:
    settings = {"share.delivery.count.limit": "2", "share.record.lock.duration.ms": "1000"}
    world.ask("set_group", world.group, settings)
    world.produce("a")
    with world.consumer(EXPLICIT) as consumer:
        reported: list[BaseException | None] = []
        consumer.set_acknowledgement_commit_callback(lambda _, error: reported.append(error))
        (message,) = first(consumer)
        consumer.acknowledge(message, AcknowledgeType.RELEASE)
        (again,) = first(consumer)
        assert again.delivery_count() == 2
        world.until_state(1, [])  # its lock has ended, and the start offset has passed it
        consumer.acknowledge(again, AcknowledgeType.ACCEPT)
        (refused,) = consumer.commit_sync().values()
        assert isinstance(refused, errors.InvalidRecordStateError)
        assert "archived and not delivered again" in str(refused)
        assert [type(error) for error in reported] == [type(None), errors.InvalidRecordStateError], (
            "of RELEASE, of ACCEPT"
        )


@pytest.mark.scenario("S-008")
def test_a_record_released_at_the_close_goes_to_another_member(world: World) -> None:
    world.produce("a")
    with world.consumer(EXPLICIT) as consumer:
        (message,) = first(consumer)
        consumer.acknowledge(message, AcknowledgeType.RELEASE)
    with world.consumer() as other:
        assert deliveries(first(other)) == [(0, 2)]


@pytest.mark.scenario("S-009")
def test_a_record_acknowledged_and_committed_is_refused_locally(world: World) -> None:
    world.produce("a")
    counting = CountingTransport()
    with world.consumer(EXPLICIT, transport=counting) as consumer:
        (message,) = first(consumer)
        consumer.acknowledge(message)
        assert len(consumer.poll(0.5)) == 0
        assert counting.sent.total() == 1
        with pytest.raises(IllegalStateError):
            consumer.acknowledge(message)
        assert consumer.commit_sync() == {}
        assert counting.sent.total() == 1
    assert world.state()[:2] == (1, [])


@pytest.mark.scenario("S-009")
@pytest.mark.parametrize("after_an_empty_poll", [False, True])
def test_implicit_mode_refuses_acknowledge(world: World, after_an_empty_poll: bool) -> None:
    world.produce("a")
    counting = CountingTransport()
    with world.consumer(transport=counting) as consumer:
        (message,) = first(consumer)
        if after_an_empty_poll:
            assert len(consumer.poll(0.5)) == 0
        sent = counting.sent.total()
        assert sent == (1 if after_an_empty_poll else 0)
        for kind in AcknowledgeType:  # including RENEW
            with pytest.raises(IllegalStateError, match="Implicit acknowledgement of delivery is being used"):
                consumer.acknowledge(message, kind)
        assert counting.sent.total() == sent


@pytest.mark.scenario("S-012")
def test_an_expired_lock_redelivers(world: World) -> None:
    """The lock is 1.5 s; its end is detected in the stored state, without sleeping."""
    world.ask("set_group", world.group, {"share.record.lock.duration.ms": "1500"})
    with world.consumer() as consumer:
        world.produce("k1")
        assert deliveries(first(consumer)) == [(0, 1)]
        assert len(consumer.poll(1)) == 0
        assert consumer.acquisition_lock_timeout_ms() == 1500
        world.produce("k2")
        assert deliveries(consumer.poll(5)) == [(1, 1)]
        world.until_state(1, [(1, 1, 0, 1)])
        again = consumer.poll(5)
        assert [message.value() for message in again] == [b"k2"]
        assert deliveries(again) == [(1, 2)]
        assert len(consumer.poll(1)) == 0
    assert world.state()[:2] == (2, [])


@pytest.mark.scenario("S-012")
def test_an_expired_lock_redelivers_to_another_consumer(world: World) -> None:
    world.ask("set_group", world.group, {"share.record.lock.duration.ms": "1000"})
    world.produce("k1")
    with world.consumer() as holder:
        assert deliveries(first(holder)) == [(0, 1)]
        with world.consumer() as other:
            assert deliveries(first(other)) == [(0, 2)]
            assert set(other.commit_sync().values()) == {None}
        assert world.state()[:2] == (1, [])
