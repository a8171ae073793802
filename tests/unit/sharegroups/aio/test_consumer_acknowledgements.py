"""The share consumer's acknowledgements: by record and by offset, committed, renewed, and passed to the callback."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.errors import InvalidRecordStateError, KafkaError, RequestTimedOutError
from kip932.ids import ACK_ACCEPT, ACK_GAP
from sharegroups.errors import IllegalStateError, WakeupError
from sharegroups.messages import AcknowledgeType, TopicIdPartition
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, play, produce


@pytest.mark.rule("CL-26")
@pytest.mark.scenario("S-004")
@on_fake_cluster()
async def test_the_callback_hears_of_success_on_a_later_poll(fake: FakeCluster) -> None:
    produce(fake, 2)
    heard: list[tuple[dict[TopicIdPartition, set[int]], KafkaError | None]] = []
    async with consumer(fake) as c:
        c.set_acknowledgement_commit_callback(lambda offsets, error: heard.append((offsets, error)))
        c.subscribe(["t"])
        assert len(await c.poll(5)) == 2
        assert (await c.poll(0.5)).is_empty()
        assert (await c.poll(0.5)).is_empty()
        assert heard == [({TopicIdPartition("t", 0, fake.topics["t"][0]): {0, 1}}, None)]


@pytest.mark.scenario("S-004")
@pytest.mark.rule("CL-26", "CL-28")
@on_fake_cluster()
async def test_close_waits_for_acknowledgements_that_travel_with_a_parked_fetch_and_reports_their_outcome(
    fake: FakeCluster,
) -> None:
    produce(fake, 2)
    heard: list[tuple[set[int], KafkaError | None]] = []
    async with consumer(fake, **{"fetch.max.wait.ms": 500}) as c:
        c.set_acknowledgement_commit_callback(
            lambda offsets, error: heard.append((set().union(*offsets.values()), error))
        )
        c.subscribe(["t"])
        assert len(await c.poll(5)) == 2
        assert (await c.poll(0.1)).is_empty()  # the acknowledgements are sent with a fetch that stays parked
        assert heard == []
    assert heard == [({0, 1}, None)]


@pytest.mark.rule("CL-26")
@pytest.mark.scenario("S-005")
@on_fake_cluster()
async def test_a_refused_acknowledgement_reaches_the_callback_and_the_record_comes_again(fake: FakeCluster) -> None:
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


@pytest.mark.rule("CL-26", "CL-29")
@pytest.mark.scenario("S-006")
@on_fake_cluster()
async def test_the_callback_may_not_use_the_consumer_except_wakeup(fake: FakeCluster) -> None:
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


@pytest.mark.rule("CL-26")
@pytest.mark.scenario("S-006")
@on_fake_cluster()
async def test_an_error_of_the_callback_leaves_poll_and_the_consumer_stays_usable(fake: FakeCluster) -> None:
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


@pytest.mark.rule("CL-23")
@pytest.mark.scenario("S-007")
@on_fake_cluster()
async def test_the_last_acknowledgement_before_the_commit_wins(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        c.acknowledge(message, AcknowledgeType.RELEASE)
        c.acknowledge(message, AcknowledgeType.ACCEPT)
        assert (await c.poll(0.5)).is_empty()
    assert fake.states("t") == {0: "acknowledged"}


@pytest.mark.rule("CL-23")
@pytest.mark.scenario("S-008")
@on_fake_cluster()
async def test_a_released_record_comes_back_on_the_next_poll(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        c.acknowledge(message, AcknowledgeType.RELEASE)
        (again,) = await c.poll(5)
        assert (again.offset(), again.delivery_count()) == (0, 2)
        c.acknowledge(again)
        assert (await c.poll(0.5)).is_empty()


@pytest.mark.rule("CL-23")
@pytest.mark.scenario("S-009")
@on_fake_cluster()
async def test_acknowledging_what_is_not_in_flight_is_refused_without_an_rpc(fake: FakeCluster) -> None:
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
@on_fake_cluster()
async def test_acknowledge_offset_works_for_records_in_flight_and_for_nothing_else(fake: FakeCluster) -> None:
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


@pytest.mark.rule("CL-21")
@on_fake_cluster()
async def test_explicit_mode_refuses_a_poll_with_unacknowledged_records_and_they_can_still_be_acknowledged(
    fake: FakeCluster,
) -> None:
    produce(fake, 2)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        first, second = await c.poll(5)
        c.acknowledge(first)
        with pytest.raises(IllegalStateError, match="must be acknowledged"):
            await c.poll(1)
        c.acknowledge(second)
        assert (await c.poll(0.5)).is_empty()


@pytest.mark.rule("CL-24")
@on_fake_cluster()
async def test_commit_sync_returns_results_per_partition_and_nothing_when_nothing_is_pending(fake: FakeCluster) -> None:
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


@pytest.mark.rule("CL-34")
@on_fake_cluster()
async def test_retriable_partition_errors_are_retried_and_end_in_a_time_out(fake: FakeCluster) -> None:
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


@pytest.mark.rule("CL-27")
@on_fake_cluster()
async def test_a_renewed_record_comes_back_from_poll_and_can_then_be_accepted(fake: FakeCluster) -> None:
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


@pytest.mark.rule("CL-145")
@on_fake_cluster()
async def test_a_renewed_record_that_no_later_poll_returned_counts_as_delivered_at_close(fake: FakeCluster) -> None:
    produce(fake, 1)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        c.acknowledge(message, AcknowledgeType.RENEW)
        await c.commit_sync(5)  # the record waits for the next poll
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (again,) = await c.poll(5)
        assert again.delivery_count() == 2, "the application was given it once"


@pytest.mark.rule("CL-27")
@on_fake_cluster()
async def test_a_renewal_that_fails_drops_the_record_and_no_fetch_carries_one(fake: FakeCluster) -> None:
    produce(fake, 2)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        for message in await c.poll(5):
            c.acknowledge(message, AcknowledgeType.RENEW)
        fake.errors["acknowledge"].append(121)
        assert (await c.poll(1)).is_empty()  # a poll sends them as well
        (request,) = fake.acknowledges
        assert request.is_renew_ack
        sent = [part for asked in fake.fetches for topic in asked.topics for part in topic.partitions]
        assert not any(part.acknowledgement_batches for part in sent)
        assert not any(asked.is_renew_ack for asked in fake.fetches)
        with pytest.raises(IllegalStateError):
            c.acknowledge_offset("t", 0, 0)


@pytest.mark.rule("CL-22", "CL-27")
@on_fake_cluster()
async def test_records_renewed_one_after_the_other_come_back_by_offset(fake: FakeCluster) -> None:
    produce(fake, 6)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        messages = await c.poll(5)
        for chosen in ((3, 5), (0, 4), (1,), (2,)):
            for message in messages:
                if message.offset() in chosen:
                    c.acknowledge(message, AcknowledgeType.RENEW)
            assert list((await c.commit_sync()).values()) == [None]
        again = await c.poll(5)
        assert [message.offset() for message in again] == [0, 1, 2, 3, 4, 5]
        assert [message.value() for message in again] == [b"v%d" % number for number in range(6)]
        for message in again:
            c.acknowledge(message)
        assert list((await c.commit_sync()).values()) == [None]
    assert set(fake.states("t").values()) == {"acknowledged"}


@pytest.mark.rule("CL-23", "CL-26", "PL-232", "PL-804")
def test_offsets_of_control_batches_are_acknowledged_as_gaps_and_the_callback_does_not_hear_of_them() -> None:
    heard: list[set[int]] = []

    async def story(fake: FakeCluster) -> None:
        produce(fake, 2)
        fake.log("t").append(b"", 1, is_control=True)
        produce(fake, 1)
        async with consumer(fake, **EXPLICIT) as c:
            c.set_acknowledgement_commit_callback(lambda offsets, error: heard.extend(offsets.values()))
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
    assert heard == [{0, 1, 3}]


@pytest.mark.rule("CL-23", "PL-804")
@pytest.mark.parametrize("mode", [EXPLICIT, {}])
@on_fake_cluster()
async def test_offsets_without_any_record_are_acknowledged_as_gaps_by_themselves(
    fake: FakeCluster, mode: dict[str, str]
) -> None:
    fake.log("t").append(b"", 1, is_control=True)
    async with consumer(fake, **mode) as c:
        c.subscribe(["t"])
        assert [len(await c.poll(1)), len(await c.poll(1))] == [0, 0]
        sent: list[Any] = [*fake.fetches, *fake.acknowledges]
        (batch,) = [
            batch
            for request in sent
            for topic in request.topics
            for part in topic.partitions
            for batch in part.acknowledgement_batches
        ]
        assert (batch.first_offset, batch.last_offset, list(batch.acknowledge_types)) == (0, 0, [ACK_GAP])
        assert "acquired" not in fake.states("t").values()
        produce(fake, 1)
        assert [message.offset() for message in await c.poll(5)] == [1]
