"""The asyncio share consumer against the fake cluster, on a loop whose time jumps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kip932.errors import (
    InvalidRecordStateError,
    KafkaError,
    NetworkError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
)
from kip932.ids import ACK_ACCEPT, ACK_GAP
from sharegroups import wire
from sharegroups.aio import ShareConsumer
from sharegroups.errors import ConcurrentModificationError, ConfigError, IllegalStateError, WakeupError
from sharegroups.messages import AcknowledgeType, TopicIdPartition
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.virtual_time import run

EXPLICIT = {"share.acknowledgement.mode": "explicit"}


def produce(fake: FakeCluster, count: int = 1, topic: str = "t", partition: int = 0, value: bytes = b"v") -> None:
    records = [wire.ProducedRecord(None, value + str(index).encode(), (), 1000) for index in range(count)]
    fake.log(topic, partition).append(wire.encode(records, "none")[0], count)
    fake.notify()


def consumer(fake: FakeCluster, **settings: Any) -> ShareConsumer:
    given = {"bootstrap.servers": fake.bootstrap, "group.id": "g"} | settings
    return ShareConsumer(given, transport=fake.transport())


def play(story: Callable[[FakeCluster], Awaitable[None]], nodes: int = 1, partitions: int = 1) -> None:
    async def main() -> None:
        fake = FakeCluster(nodes)
        fake.add_topic("t", partitions)
        await story(fake)

    run(main())


@pytest.mark.rule("CL-20", "CL-21", "CL-1")
@pytest.mark.scenario("S-001")
def test_polling_needs_a_subscription() -> None:
    async def story(fake: FakeCluster) -> None:
        async with consumer(fake) as c:
            with pytest.raises(IllegalStateError, match="not subscribed"):
                await c.poll(0.5)
            assert c.subscription() == []
            c.subscribe(["t"])
            assert (await c.poll(0.5)).is_empty()
            c.unsubscribe()
            assert c.subscription() == []
            with pytest.raises(IllegalStateError, match="not subscribed"):
                await c.poll(0.5)
            c.subscribe(["t"])
            produce(fake)
            assert len(await c.poll(5)) == 1
            c.subscribe([])
            assert c.subscription() == []
            with pytest.raises(IllegalStateError, match="not subscribed"):
                await c.poll(0.5)

    play(story)


@pytest.mark.rule("CL-21", "CL-22")
@pytest.mark.scenario("S-002")
def test_consecutive_polls_return_only_what_was_produced_in_between() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake)
        async with consumer(fake) as c:
            c.subscribe(["t"])
            seen = []
            for _ in range(3):
                messages = await c.poll(5)
                seen += [(m.offset(), m.delivery_count(), m.value()) for m in messages]
                produce(fake)
            assert seen == [(0, 1, b"v0"), (1, 1, b"v0"), (2, 1, b"v0")]
        assert fake.states("t") == {0: "acknowledged", 1: "acknowledged", 2: "available"}

    play(story)


@pytest.mark.rule("CL-26")
@pytest.mark.scenario("S-004")
def test_the_callback_hears_of_success_on_a_later_poll() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake, 2)
        heard: list[tuple[dict[TopicIdPartition, set[int]], KafkaError | None]] = []
        async with consumer(fake) as c:
            c.set_acknowledgement_commit_callback(lambda offsets, error: heard.append((offsets, error)))
            c.subscribe(["t"])
            assert len(await c.poll(5)) == 2
            assert (await c.poll(0.5)).is_empty()
            assert (await c.poll(0.5)).is_empty()
            assert heard == [({TopicIdPartition("t", 0, fake.topics["t"][0]): {0, 1}}, None)]

    play(story)


@pytest.mark.rule("CL-26")
@pytest.mark.scenario("S-005")
def test_a_refused_acknowledgement_reaches_the_callback_and_the_record_comes_again() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake)
        heard: list[KafkaError | None] = []
        async with consumer(fake) as c:
            c.set_acknowledgement_commit_callback(lambda offsets, error: heard.append(error))
            c.subscribe(["t"])
            assert len(await c.poll(5)) == 1
            fake.log("t").states["g"][0] = ("available", "", 1)  # the lock has expired
            again = await c.poll(5)
            assert [m.delivery_count() for m in again] == [2]
            await c.poll(0.5)
            assert isinstance(heard[0], InvalidRecordStateError)

    play(story)


@pytest.mark.rule("CL-26", "CL-29")
@pytest.mark.scenario("S-006")
def test_the_callback_may_not_use_the_consumer_except_wakeup() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake)
        async with consumer(fake) as c:
            refused: list[str] = []

            def callback(offsets: dict[TopicIdPartition, set[int]], error: KafkaError | None) -> None:
                try:
                    c.subscribe(["t"])
                except IllegalStateError as problem:
                    refused.append(str(problem))
                c.wakeup()

            c.set_acknowledgement_commit_callback(callback)
            c.subscribe(["t"])
            await c.poll(5)
            with pytest.raises(WakeupError):
                await c.poll(5)
            assert "callback" in refused[0]

    play(story)


@pytest.mark.rule("CL-26")
@pytest.mark.scenario("S-006")
def test_an_error_of_the_callback_leaves_poll_and_the_consumer_stays_usable() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake)
        async with consumer(fake) as c:

            def callback(offsets: dict[TopicIdPartition, set[int]], error: KafkaError | None) -> None:
                raise LookupError("mine")

            c.set_acknowledgement_commit_callback(callback)
            c.subscribe(["t"])
            await c.poll(5)
            with pytest.raises(LookupError, match="mine"):
                await c.poll(5)
            produce(fake)
            c.set_acknowledgement_commit_callback(None)
            assert [m.offset() for m in await c.poll(5)] == [1]

    play(story)


@pytest.mark.rule("CL-23")
@pytest.mark.scenario("S-007")
def test_the_last_acknowledgement_before_the_commit_wins() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            (message,) = await c.poll(5)
            c.acknowledge(message, AcknowledgeType.RELEASE)
            c.acknowledge(message, AcknowledgeType.ACCEPT)
            assert (await c.poll(0.5)).is_empty()
        assert fake.states("t") == {0: "acknowledged"}

    play(story)


@pytest.mark.rule("CL-23")
@pytest.mark.scenario("S-008")
def test_a_released_record_comes_back_on_the_next_poll() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            (message,) = await c.poll(5)
            c.acknowledge(message, AcknowledgeType.RELEASE)
            (again,) = await c.poll(5)
            assert (again.offset(), again.delivery_count()) == (0, 2)
            c.acknowledge(again)
            assert (await c.poll(0.5)).is_empty()

    play(story)


@pytest.mark.rule("CL-28")
@pytest.mark.scenario("S-008")
def test_close_sends_the_release_so_that_another_member_gets_the_record() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            (message,) = await c.poll(5)
            c.acknowledge(message, AcknowledgeType.RELEASE)
        async with consumer(fake) as other:
            other.subscribe(["t"])
            assert [m.offset() for m in await other.poll(5)] == [0]

    play(story)


@pytest.mark.rule("CL-23")
@pytest.mark.scenario("S-009")
def test_acknowledging_what_is_not_in_flight_is_refused_without_an_rpc() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            (message,) = await c.poll(5)
            c.acknowledge(message)
            assert (await c.poll(0.5)).is_empty()
            sent = len(fake.fetches) + len(fake.acknowledges)
            with pytest.raises(IllegalStateError, match="cannot be acknowledged"):
                c.acknowledge(message)
            assert len(fake.fetches) + len(fake.acknowledges) == sent
        produce(fake)
        async with consumer(fake) as implicit:
            implicit.subscribe(["t"])
            (message,) = await implicit.poll(5)
            with pytest.raises(IllegalStateError, match="Implicit"):
                implicit.acknowledge(message)
            assert (await implicit.poll(0.5)).is_empty()
            with pytest.raises(IllegalStateError, match="Implicit"):
                implicit.acknowledge(message)

    play(story)


@pytest.mark.rule("CL-45")
@pytest.mark.scenario("S-010")
def test_a_record_that_cannot_be_deserialised_keeps_its_bytes_and_can_be_rejected_by_offset() -> None:
    def strict(data: bytes) -> str:
        if data == b"v2":
            raise ValueError("not mine")
        return data.decode()

    async def story(fake: FakeCluster) -> None:
        produce(fake, 3)
        async with consumer(fake, **EXPLICIT, **{"value.deserializer": strict}) as c:
            c.subscribe(["t"])
            messages = await c.poll(5)
            assert [m.value() for m in messages] == ["v0", "v1", b"v2"]
            problem = messages[2].error()
            assert problem is not None
            assert (problem.name, "offset 2" in problem.message) == ("_VALUE_DESERIALIZATION", True)
            for message, kind in zip(messages, [1, 1, 2], strict=True):
                c.acknowledge(message, AcknowledgeType(kind))
            await c.commit_sync()
            (again,) = await c.poll(5)
            assert (again.offset(), again.delivery_count()) == (2, 2)
            c.acknowledge_offset("t", 0, 2, AcknowledgeType.REJECT)
            assert list((await c.commit_sync()).values()) == [None]
            assert (await c.poll(0)).is_empty()
        assert fake.states("t") == {0: "acknowledged", 1: "acknowledged", 2: "archived"}

    play(story)


@pytest.mark.rule("CL-23")
@pytest.mark.scenario("S-011")
def test_acknowledge_offset_works_for_records_in_flight_and_for_nothing_else() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake, 2)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            await c.poll(5)
            c.acknowledge_offset("t", 0, 0)
            for wrong in (("foo", 0, 1), ("t", 1, 1), ("t", 0, 2)):
                with pytest.raises(IllegalStateError):
                    c.acknowledge_offset(*wrong)
            c.acknowledge_offset("t", 0, 1, AcknowledgeType.REJECT)
            await c.commit_sync()
            with pytest.raises(IllegalStateError):
                c.acknowledge_offset("t", 0, 1, AcknowledgeType.REJECT)

    play(story)


@pytest.mark.rule("CL-21")
def test_explicit_mode_refuses_a_poll_with_unacknowledged_records_and_they_can_still_be_acknowledged() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake, 2)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            first, second = await c.poll(5)
            c.acknowledge(first)
            with pytest.raises(IllegalStateError, match="must be acknowledged"):
                await c.poll(1)
            c.acknowledge(second)
            assert (await c.poll(0.5)).is_empty()

    play(story)


@pytest.mark.rule("CL-24")
def test_commit_sync_returns_results_per_partition_and_nothing_when_nothing_is_pending() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake, 2)
        async with consumer(fake) as c:
            c.subscribe(["t"])
            assert await c.commit_sync() == {}
            await c.poll(5)
            key = TopicIdPartition("t", 0, fake.topics["t"][0])
            assert await c.commit_sync() == {key: None}
            assert await c.commit_sync() == {}
            produce(fake)
            await c.poll(5)
            fake.errors["acknowledge"].append(121)
            assert isinstance((await c.commit_sync())[key], InvalidRecordStateError)

    play(story)


@pytest.mark.rule("CL-34")
def test_retriable_partition_errors_are_retried_and_end_in_a_time_out() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake, 1)
        async with consumer(fake) as c:
            c.subscribe(["t"])
            await c.poll(5)
            fake.errors["acknowledge"].extend([15, 15])
            assert list((await c.commit_sync()).values()) == [None]
            produce(fake)
            await c.poll(5)
            fake.errors["acknowledge"].extend([15] * 100)
            (error,) = (await c.commit_sync(2)).values()
            assert isinstance(error, RequestTimedOutError)
            fake.errors["acknowledge"].clear()

    play(story)


@pytest.mark.rule("CL-27")
def test_a_renewed_record_comes_back_from_poll_and_can_then_be_accepted() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake, 3)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            messages = await c.poll(5)
            for message in messages:
                renew = message.offset() == 1
                c.acknowledge(message, AcknowledgeType.RENEW if renew else AcknowledgeType.ACCEPT)
            (renewed,) = await c.poll(5)
            assert (renewed.offset(), renewed.delivery_count(), renewed.value()) == (1, 1, b"v1")
            assert fake.acknowledges[-1].is_renew_ack
            assert c.acquisition_lock_timeout_ms() == 30_000
            c.acknowledge(renewed)
            assert (await c.poll(0.5)).is_empty()
        assert set(fake.states("t").values()) == {"acknowledged"}

    play(story)


@pytest.mark.rule("CL-23", "PL-232", "PL-804")
def test_offsets_of_control_batches_are_acknowledged_as_gaps() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake, 2)
        fake.log("t").append(b"", 1, is_control=True)
        produce(fake, 1)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            messages = await c.poll(5)
            assert [m.offset() for m in messages] == [0, 1, 3]
            with pytest.raises(IllegalStateError):
                c.acknowledge_offset("t", 0, 2)
            for message in messages:
                c.acknowledge(message)
            await c.commit_sync()
            (batch,) = fake.acknowledges[-1].topics[0].partitions[0].acknowledgement_batches
            assert list(batch.acknowledge_types) == [ACK_ACCEPT, ACK_ACCEPT, ACK_GAP, ACK_ACCEPT]

    play(story)


@pytest.mark.rule("PL-250", "CL-28")
def test_only_acquired_records_of_a_batch_are_handed_out_and_close_releases_the_rest() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake, 10)
        a, b = consumer(fake, **{"max.poll.records": 4}), consumer(fake)
        a.subscribe(["t"])
        b.subscribe(["t"])
        assert [m.offset() for m in await a.poll(5)] == [0, 1, 2, 3]
        assert [m.offset() for m in await b.poll(5)] == [4, 5, 6, 7, 8, 9]
        await a.close()
        assert [m.offset() for m in await b.poll(5)] == [0, 1, 2, 3]
        await b.close()
        assert fake.states("t")[0] == "available"
        assert fake.states("t")[9] == "acknowledged"

    play(story)


@pytest.mark.rule("CL-30", "PL-502a")
@pytest.mark.scenario("S-027")
def test_epochs_run_in_sending_order_and_the_session_id_is_echoed() -> None:
    async def story(fake: FakeCluster) -> None:
        async with consumer(fake) as c:
            c.subscribe(["t"])
            for _ in range(3):
                produce(fake)
                await c.poll(5)
                await c.commit_sync()
            epochs = [r.share_session_epoch for r in fake.fetches]
            both = sorted(epochs + [r.share_session_epoch for r in fake.acknowledges])
            assert both == list(range(len(both)))
            assert epochs[0] == 0
            assert not fake.fetches[0].HasField("session_id")
            assert {r.session_id for r in fake.fetches[1:]} == {101}
        assert fake.acknowledges[-1].share_session_epoch == -1
        assert fake.sessions[0] == {}

    play(story)


@pytest.mark.rule("P-5", "CL-30")
def test_acknowledgements_do_not_wait_behind_a_parked_fetch() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake, 1, partition=0)
        async with consumer(fake, **{"fetch.max.wait.ms": 60_000}) as c:
            c.subscribe(["t"])
            messages = await c.poll(5)
            assert len(messages) == 1
            assert (await c.poll(0.1)).is_empty()  # accepted; both leaders' fetches are parked now
            produce(fake, 1, partition=1)
            messages = await c.poll(5)
            produce(fake, 1, partition=0)
            assert len(await c.poll(5)) == 1
            assert await c.commit_sync(1)
            assert set(fake.states("t", number=0).values()) == {"acknowledged"}

    play(story, nodes=2, partitions=2)


@pytest.mark.rule("CL-31")
def test_a_lost_session_is_opened_again_and_its_acknowledgements_fail_with_a_network_error() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake)
        heard: list[KafkaError | None] = []
        async with consumer(fake) as c:
            c.set_acknowledgement_commit_callback(lambda offsets, error: heard.append(error))
            c.subscribe(["t"])
            await c.poll(5)
            fake.errors["fetch_top"].append(122)
            again = await c.poll(5)
            assert [(m.offset(), m.delivery_count()) for m in again] == [(0, 2)]
            assert isinstance(heard[0], NetworkError)
            assert [r.share_session_epoch for r in fake.fetches][-1] == 0

    play(story)


@pytest.mark.rule("CL-33", "PL-524")
def test_the_end_of_the_stream_is_the_end_of_the_session() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake)
        async with consumer(fake) as c:
            c.subscribe(["t"])
            await c.poll(5)
            fake.drop_streams(0)
            (error,) = (await c.commit_sync()).values()
            assert isinstance(error, NetworkError)
            assert [m.delivery_count() for m in await c.poll(5)] == [2]

    play(story)


@pytest.mark.rule("CL-33", "CL-34")
@pytest.mark.scenario("S-025")
def test_a_moved_leader_is_followed_by_its_redirect_and_old_acknowledgements_fail() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            (message,) = await c.poll(5)
            c.acknowledge(message)
            await c.commit_sync()
            produce(fake)
            (message,) = await c.poll(5)
            fake.move_leader("t", 0, 1)
            produce(fake)
            c.acknowledge(message)
            messages = await c.poll(5)
            while messages.is_empty():
                messages = await c.poll(5)
            assert messages[0].offset() == 2
            assert fake.sessions[1]
            for m in messages:
                c.acknowledge(m)

    play(story, nodes=2)


@pytest.mark.rule("CL-33")
def test_acknowledgements_after_a_move_fail_without_being_sent() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            (message,) = await c.poll(5)
            fake.move_leader("t", 0, 1)
            assert c._engine._machinery is not None
            await c._engine._machinery.cluster.wait_refreshed()
            c.acknowledge(message)
            (error,) = (await c.commit_sync()).values()
            assert isinstance(error, NotLeaderOrFollowerError)
            assert fake.acknowledges == []

    play(story, nodes=2)


@pytest.mark.rule("CL-36")
@pytest.mark.scenario("S-017")
def test_record_limit_asks_one_leader_at_a_time() -> None:
    async def story(fake: FakeCluster) -> None:
        async with consumer(fake, **{"share.acquire.mode": "record_limit", "max.poll.records": 5}) as c:
            c.subscribe(["t"])
            produce(fake, 10, partition=0)
            produce(fake, 10, partition=1)
            for _ in range(4):
                assert len(await c.poll(5)) == 5
            assert {r.share_acquire_mode for r in fake.fetches} == {1}
            held = [s for number in (0, 1) for s in fake.states("t", number=number).values() if s == "acquired"]
            assert len(held) == 5

    play(story, nodes=2, partitions=2)


@pytest.mark.rule("CL-37")
def test_a_session_without_partitions_is_closed_once_its_acknowledgements_are_done() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake)
        async with consumer(fake) as c:
            c.subscribe(["t"])
            await c.poll(5)
            c.unsubscribe()
            assert list((await c.commit_sync()).values()) == [None]
            fake.add_topic("other")
            c.subscribe(["other"])
            await c.poll(5)
            assert -1 in [r.share_session_epoch for r in fake.acknowledges]

    play(story)


@pytest.mark.rule("CL-6")
@pytest.mark.scenario("S-069")
def test_a_fenced_member_joins_again_under_its_id() -> None:
    async def story(fake: FakeCluster) -> None:
        async with consumer(fake) as c:
            c.subscribe(["t"])
            await c.poll(1)
            fake.members.clear()
            await c.poll(12)
            produce(fake)
            assert not (await c.poll(5)).is_empty()
            assert {r.member_id for r in fake.heartbeats} == {c.member_id}
            assert [r.member_epoch for r in fake.heartbeats].count(0) == 2

    play(story)


@pytest.mark.rule("CL-9", "CL-16")
@pytest.mark.scenario("S-024")
def test_a_fatal_error_is_raised_by_every_poll() -> None:
    async def story(fake: FakeCluster) -> None:
        c = consumer(fake)
        c.subscribe(["t"])
        fake.errors["heartbeat"].append(35)
        for _ in range(2):
            with pytest.raises(KafkaError, match="not enabled"):
                await c.poll(5)
        with pytest.raises(KafkaError, match="not enabled"):
            await c.close()

    play(story)


@pytest.mark.rule("CL-28")
def test_close_twice_is_fine_and_other_calls_after_it_are_refused() -> None:
    async def story(fake: FakeCluster) -> None:
        c = consumer(fake)
        c.subscribe(["t"])
        await c.poll(1)
        await c.close()
        await c.close()
        assert fake.members == {}
        with pytest.raises(IllegalStateError, match="already been closed"):
            await c.poll(1)

    play(story)


@pytest.mark.rule("CL-29")
def test_a_second_task_inside_the_consumer_is_refused() -> None:

    async def story(fake: FakeCluster) -> None:
        async with consumer(fake) as c:
            c.subscribe(["t"])
            first = asyncio.create_task(c.poll(5))
            await asyncio.sleep(0.1)
            with pytest.raises(ConcurrentModificationError):
                await c.poll(1)
            c.wakeup()
            with pytest.raises(WakeupError):
                await first

    play(story)


@pytest.mark.rule("CL-40", "CL-45")
@pytest.mark.scenario("S-023")
@pytest.mark.parametrize(
    "name",
    [
        "auto.offset.reset",
        "enable.auto.commit",
        "group.instance.id",
        "isolation.level",
        "partition.assignment.strategy",
        "interceptor.classes",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "group.protocol",
        "group.remote.assignor",
    ],
)
def test_settings_of_ordinary_groups_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be set when using a share group."):
        ShareConsumer({"bootstrap.servers": "h:1", "group.id": "g", name: "x"})


@pytest.mark.rule("CL-41")
def test_metrics_count_what_happened() -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake, 3)
        async with consumer(fake) as c:
            c.subscribe(["t"])
            await c.poll(5)
            await c.commit_sync()
            metrics = {name: value for (_, name), value in c.metrics().items()}
            assert metrics["records-consumed-total"] == 3
            assert metrics["acknowledgements-send-total"] == 1
            assert metrics["rebalance-total"] == 1
            assert len(metrics) == 28

    play(story)


@pytest.mark.rule("PL-507", "CL-30")
def test_acknowledging_a_partition_taken_away_does_not_bring_it_back_into_the_session() -> None:
    async def story(fake: FakeCluster) -> None:
        fake.add_topic("u")
        produce(fake, topic="u")
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t", "u"])
            (message,) = await c.poll(5)
            c.acknowledge(message)
            assert (await c.poll(0.1)).is_empty()
            produce(fake, topic="u")
            (message,) = await c.poll(5)
            engine = c._engine
            assert engine._machinery is not None
            engine._machinery.fetcher.assign(frozenset({fake.partition("t")}))
            engine._machinery.fetcher.send_fetches(now_ms=10_000)
            await asyncio.sleep(1)  # the leader has forgotten the partition before its acknowledgement leaves
            produce(fake, topic="t")
            c.acknowledge(message)
            (other,) = await c.poll(5)
            c.acknowledge(other)
            assert set(fake.states("u").values()) == {"acknowledged"}
            last = [request for request in fake.fetches if request.forgotten_topics_data][-1]
            assert [topic.topic_id for topic in last.forgotten_topics_data] == [fake.topics["u"][0]]
            (session,) = fake.sessions[0].values()
            assert list(session.partitions) == [fake.partition("t")]

    play(story)
