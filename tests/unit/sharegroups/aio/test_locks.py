"""Locks that expire while an application works: logged once, with figures, and their records are not handed out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from kip932.errors import InvalidRecordStateError, KafkaError
from kip932.ids import ACQUIRE_BATCH_OPTIMIZED, ACQUIRE_RECORD_LIMIT
from sharegroups.aio import ShareConsumer
from sharegroups.errors import IllegalStateError
from sharegroups.messages import AcknowledgeType, TopicIdPartition
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.silence import SilentTransport
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, play, produce
from tests.support.virtual_time import now_s

Lines = Callable[[str], list[str]]

_JOBS = {"share.acquire.mode": "record_limit", "max.poll.records": 1}
#: An error that ends an acknowledgement at once, without a retry.
_NOT_ALLOWED = 29


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """The warnings so far that contain a given word."""
    caplog.set_level(logging.WARNING, logger="sharegroups")
    return lambda word: [record.getMessage() for record in caplog.records if word in record.getMessage()]


@pytest.mark.rule("CL-81")
@pytest.mark.scenario("S-005")
@on_fake_cluster()
async def test_a_slow_implicit_loop_is_warned_at_half_the_lock_and_learns_what_was_refused(
    fake: FakeCluster, lines: Lines
) -> None:
    produce(fake, 500)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        assert len(await c.poll(5)) == 500
        await asyncio.sleep(14)
        assert lines("") == []
        await asyncio.sleep(2)
        (warned,) = lines("has been held")
        assert "t-0 offset 0, one of 500 records" in warned
        assert "held for 15.0 s" in warned
        assert "expires after 30.0 s" in warned
        assert "max.poll.records" in warned
        await asyncio.sleep(34)
        again = await c.poll(5)
        assert {message.delivery_count() for message in again} == {2}
        (refused,) = lines("was refused")
        assert "t-0 offsets 0 to 499 (500 records)" in refused
        assert "held for 50.0 s, locked for 30.0 s" in refused
        await asyncio.sleep(50)
        await c.poll(5)
        assert (len(lines("has been held")), len(lines("was refused"))) == (1, 1)
    assert [line for line in lines("500 more records") if "refused" in line] != []


@pytest.mark.rule("CL-81")
def test_commit_sync_and_the_callback_keep_their_form_beside_the_warning(lines: Lines) -> None:
    heard: list[tuple[set[int], KafkaError | None]] = []

    def callback(offsets: dict[TopicIdPartition, set[int]], error: KafkaError | None) -> None:
        heard.append((set().union(*offsets.values()), error))

    async def story(fake: FakeCluster) -> None:
        produce(fake, 2)
        async with consumer(fake, **EXPLICIT) as c:
            c.set_acknowledgement_commit_callback(callback)
            c.subscribe(["t"])
            for message in await c.poll(5):
                c.acknowledge(message)
            await asyncio.sleep(31)
            (error,) = (await c.commit_sync()).values()
            assert isinstance(error, InvalidRecordStateError)
            ((offsets, reported),) = heard
            assert offsets == {0, 1}
            assert reported is error
            (refused,) = lines("was refused")
            assert "offsets 0 to 1 (2 records)" in refused

    play(story)


@pytest.mark.rule("CL-81")
@on_fake_cluster()
async def test_a_loop_that_acknowledges_in_time_hears_nothing(fake: FakeCluster, lines: Lines) -> None:
    produce(fake, 20)
    async with consumer(fake, **_JOBS) as c:
        c.subscribe(["t"])
        for number in range(20):
            (message,) = await c.poll(5)
            assert (message.offset(), message.delivery_count()) == (number, 1)
            await asyncio.sleep(14)
        await c.commit_sync()
    assert lines("") == []


@pytest.mark.rule("CL-81")
@on_fake_cluster()
async def test_a_loop_that_blocks_its_event_loop_is_reported_at_its_next_poll(fake: FakeCluster, lines: Lines) -> None:
    fake.lock_ms = 1000
    produce(fake, 1)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        assert len(await c.poll(5)) == 1
        held = asyncio.get_running_loop().time
        loop = asyncio.get_running_loop()
        loop.time = lambda: held() + 0.7  # type: ignore[method-assign] # the clock advances while the loop does not run
        await c.commit_sync()
        assert len(lines("has been held")) == 1


@pytest.mark.rule("CL-81")
@on_fake_cluster()
async def test_a_failure_that_is_not_the_locks_is_reported_where_no_caller_asks(
    fake: FakeCluster, lines: Lines
) -> None:
    produce(fake)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        assert len(await c.poll(5)) == 1
        fake.drop_streams(0)
        await asyncio.sleep(0.1)
        await c.poll(1)
        (failed,) = lines("failed: ")
        assert "t-0 offset 0" in failed


@pytest.mark.rule("CL-81")
def test_a_failure_that_a_caller_asks_for_is_left_to_the_caller(lines: Lines) -> None:
    heard: list[KafkaError | None] = []

    async def story(fake: FakeCluster) -> None:
        produce(fake, 2)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            first, second = await c.poll(5)
            c.acknowledge(first)
            fake.errors["acknowledge"].append(_NOT_ALLOWED)
            (error,) = (await c.commit_sync()).values()
            assert error is not None
            c.set_acknowledgement_commit_callback(lambda offsets, error: heard.append(error))
            c.acknowledge(second)
            fake.errors["acknowledge"].append(_NOT_ALLOWED)
            c.commit_async()
            await asyncio.sleep(0.1)
            await c.poll(0.1)
        assert [type(one) for one in heard] == [type(error)]
        assert lines("") == []

    play(story)


async def _park_a_fetch_and_leave(fake: FakeCluster, c: ShareConsumer, away_s: float) -> None:
    c.subscribe(["t"])
    while not fake.fetches:
        await c.poll(0.01)
    assert (await c.poll(0.01)).is_empty()  # its fetch remains parked at the leader
    produce(fake, 3)
    await asyncio.sleep(away_s)


@pytest.mark.rule("CL-83")
@on_fake_cluster()
async def test_a_record_whose_lock_ran_out_in_the_client_is_not_handed_out(fake: FakeCluster, lines: Lines) -> None:
    async with consumer(fake) as c, consumer(fake) as other:
        await _park_a_fetch_and_leave(fake, c, 31)
        assert fake.log("t").states["g"][0][2] == 1
        other.subscribe(["t"])
        assert [m.delivery_count() for m in await other.poll(5)] == [2, 2, 2]
        assert (await c.poll(1)).is_empty()
        (dropped,) = lines("not handed out")
        assert "t-0 offsets 0 to 2 (3 records)" in dropped
        assert "locked for 30.0 s" in dropped
        group = "consumer-share-fetch-manager-metrics"
        assert c.metrics()[group, "records-expired-total"] == 3
        assert set((await other.commit_sync()).values()) == {None}
    assert set(fake.states("t").values()) == {"acknowledged"}


@pytest.mark.rule("CL-82", "CL-83")
@on_fake_cluster()
async def test_a_lock_counts_from_when_its_request_was_sent(fake: FakeCluster, lines: Lines) -> None:
    async with consumer(fake, **{"fetch.max.wait.ms": 10_000}) as c:
        c.subscribe(["t"])
        await c.poll(5)
        sent_s = now_s()
        await asyncio.sleep(4)
        produce(fake, 1)  # locked four seconds after the request was sent
        await asyncio.sleep(sent_s + 29.5 - now_s())
        assert fake.states("t") == {0: "acquired"}
        assert (await c.poll(0)).is_empty()
        assert len(lines("not handed out")) == 1
        (again,) = await c.poll(5)
        assert again.delivery_count() == 1, "the application was not given it before"


@pytest.mark.rule("CL-82")
@on_fake_cluster()
async def test_a_renewed_lock_counts_from_when_the_renewal_was_sent(fake: FakeCluster, lines: Lines) -> None:
    transport = SilentTransport(fake.network)
    produce(fake, 1)
    config = {"bootstrap.servers": fake.bootstrap, "group.id": "g", **EXPLICIT}
    async with ShareConsumer(config, transport=transport) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        await asyncio.sleep(10)
        c.acknowledge(message, AcknowledgeType.RENEW)
        transport.slow.add(fake.bootstrap)
        renewing = asyncio.create_task(c.commit_sync())
        await asyncio.sleep(4)
        await transport.speak(fake.bootstrap)
        assert list((await renewing).values()) == [None]
        await asyncio.sleep(26.5)
        assert (await c.poll(0)).is_empty()
        (dropped,) = lines("not handed out")
        assert "fetched 30.5 s ago and locked for 30.0 s" in dropped, "26.5 s after the answer"


@pytest.mark.rule("CL-83")
@on_fake_cluster(nodes=3, partitions=3)
async def test_a_record_that_has_lain_too_long_for_the_next_job_goes_back_before_its_lock_is_over(
    fake: FakeCluster, lines: Lines
) -> None:
    for number in range(3):
        produce(fake, 1, partition=number)
    async with consumer(fake, **{"max.poll.records": 1}) as c:
        c.subscribe(["t"])
        last = {0, 1, 2}
        for _ in range(2):
            (message,) = await c.poll(5)
            last.discard(message.partition())
            await asyncio.sleep(12)
        (number,) = last  # its record has waited for 24 s; the remaining 6 s are less than a job's 12 s
        assert fake.states("t", number=number) == {0: "acquired"}
        assert (await c.poll(0)).is_empty()
        await asyncio.sleep(0.1)
        assert fake.states("t", number=number) == {0: "available"}
        assert len(lines("not handed out")) == 1
        assert c.metrics()["consumer-share-fetch-manager-metrics", "records-expired-total"] == 1


@pytest.mark.rule("CL-83", "CL-84")
def test_a_slow_application_has_nothing_fetched_ahead_from_other_leaders() -> None:
    seen: list[tuple[int, int, int]] = []
    given_back: list[int] = []

    async def story(fake: FakeCluster) -> None:
        for number in range(3):
            for _ in range(4):
                produce(fake, 1, partition=number)
        async with consumer(fake, **{"max.poll.records": 1, "share.acquire.mode": "batch_optimized"}) as c:
            c.subscribe(["t"])
            while len(seen) < 12:
                for message in await c.poll(1):
                    seen.append((message.partition(), message.offset(), message.delivery_count()))
                    await asyncio.sleep(20)
        states = [state for number in range(3) for state in fake.states("t", number=number).values()]
        assert states.count("acknowledged") == 11  # close() releases the records that the last poll returned
        given_back.extend(offset for number in range(3) for offset in fake.log("t", number).taken_back["g"])

    play(story, nodes=3, partitions=3)
    # Only records of the very first fetches waited too long and were released; after that the client knew the
    # application's pace.
    assert len(given_back) == 2
    assert {count for _, _, count in seen} == {1}, "the application was not given them before"
    assert sorted((partition, offset) for partition, offset, _ in seen) == [(p, o) for p in range(3) for o in range(4)]


@pytest.mark.rule("CL-27")
@on_fake_cluster()
async def test_a_second_renewal_without_a_poll_names_the_record_and_the_reason(fake: FakeCluster) -> None:
    produce(fake, 2)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        first, second = await c.poll(5)
        c.acknowledge(first, AcknowledgeType.RENEW)
        await c.commit_sync()
        with pytest.raises(IllegalStateError, match=r"t-0 offset 0: its renewal has been sent.*poll\(\)"):
            c.acknowledge(first, AcknowledgeType.RENEW)
        c.acknowledge(second)
        await c.commit_sync()
        with pytest.raises(IllegalStateError, match="t-0 offset 1: it is not in your hands"):
            c.acknowledge(second)
        with pytest.raises(IllegalStateError, match="t-0 offset 7"):
            c.acknowledge_offset("t", 0, 7)
        (renewed,) = await c.poll(5)
        c.acknowledge(renewed, AcknowledgeType.RENEW)
        (renewed,) = await c.poll(5)
        c.acknowledge(renewed)


@pytest.mark.rule("CL-27", "CL-81")
@on_fake_cluster()
async def test_renewed_in_time_a_job_may_take_many_locks(fake: FakeCluster, lines: Lines) -> None:
    produce(fake, 1)
    async with consumer(fake, **EXPLICIT, **_JOBS) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        for _ in range(20):
            await asyncio.sleep(10)
            c.acknowledge(message, AcknowledgeType.RENEW)
            (message,) = await c.poll(5)
            assert message.delivery_count() == 1
        c.acknowledge(message)
        assert list((await c.commit_sync()).values()) == [None]
    assert lines("") == []


@pytest.mark.rule("CL-85")
@pytest.mark.parametrize("jobs_ms", [1, 100, 2_000, 20_000])
def test_a_consumer_without_a_number_asks_for_what_is_worked_through_in_time(jobs_ms: int, lines: Lines) -> None:
    counts: list[int] = []
    sizes: list[int] = []

    async def story(fake: FakeCluster) -> None:
        produce(fake, 1000)
        config = {"bootstrap.servers": fake.bootstrap, "group.id": "g"}
        async with ShareConsumer(config, transport=fake.transport()) as c:
            c.subscribe(["t"])
            while len(sizes) < 20 and len(counts) < 1000:
                messages = await c.poll(5)
                sizes.append(len(messages))
                for message in messages:
                    counts.append(message.delivery_count())
                    await asyncio.sleep(jobs_ms / 1000)
        assert lines("refused") == []
        modes = {request.share_acquire_mode for request in fake.fetches}
        assert ACQUIRE_RECORD_LIMIT in modes
        assert modes <= {ACQUIRE_RECORD_LIMIT, ACQUIRE_BATCH_OPTIMIZED}

    play(story)
    assert set(counts) == {1}
    assert sizes[0] == 1
    assert max(sizes) == {1: 489, 100: 20, 2_000: 1, 20_000: 1}[jobs_ms]


@pytest.mark.rule("CL-85")
@on_fake_cluster()
async def test_the_time_of_a_poll_ends_when_its_last_record_is_acknowledged_and_sent(fake: FakeCluster) -> None:
    produce(fake, 20)
    async with consumer(fake, **EXPLICIT, **{"share.acquire.mode": "adaptive"}) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        c.acknowledge(message)
        first, second = await c.poll(5)
        c.acknowledge(first)
        await c.commit_sync()
        await asyncio.sleep(10)
        c.acknowledge(second)
        (message,) = await c.poll(5)  # the last poll took 5 s per record, so now one record at a time
        c.acknowledge(message)


@pytest.mark.rule("CL-36")
@on_fake_cluster()
async def test_max_poll_records_is_taken_at_its_word(fake: FakeCluster) -> None:
    produce(fake, 100)
    async with consumer(fake, **{"share.acquire.mode": "record_limit", "max.poll.records": 10}) as c:
        c.subscribe(["t"])
        for _ in range(10):
            assert len(await c.poll(5)) == 10
            await asyncio.sleep(20)


@pytest.mark.rule("CL-36", "CL-85")
@on_fake_cluster(nodes=3, partitions=3)
async def test_leaders_without_records_do_not_hold_up_the_one_that_has_some(fake: FakeCluster) -> None:
    for _ in range(300):
        produce(fake, 1, partition=1)
    async with consumer(fake, **_JOBS) as c:
        c.subscribe(["t"])
        await c.poll(5)
        began = now_s()
        for _ in range(200):
            assert len(await c.poll(5)) == 1
        assert now_s() - began < 1  # in virtual time: no fetch was parked
        while not (await c.poll(5)).is_empty():
            pass
        asked = len(fake.fetches)
        began = now_s()
        assert (await c.poll(5)).is_empty()
        assert len(fake.fetches) - asked <= 31 + 3  # each half second is shared by three leaders
        parked = asyncio.create_task(c.poll(5))
        await asyncio.sleep(0.25)
        produce(fake, 1, partition=2)
        at = now_s()
        assert len(await parked) == 1
        assert now_s() - at < 0.5
