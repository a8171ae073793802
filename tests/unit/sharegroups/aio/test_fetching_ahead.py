"""A quick application gets several polls' records with one fetch: requests, acknowledgements, and unpolled records."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kip932.ids import ACQUIRE_BATCH_OPTIMIZED
from sharegroups.aio import ShareConsumer
from sharegroups.consuming.core.fetch_ahead import RECORDS_MAX
from sharegroups.consuming.fetcher import UNPOLLED_S
from sharegroups.messages import AcknowledgeType, Messages
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumed, consumer, on_fake_cluster, produce

#: How many polls one fetch ahead has records for.
_POLLS = RECORDS_MAX // 500


def backlog(fake: FakeCluster, records: int = 10_000, partition: int = 0) -> None:
    """Produce batches of 250 records each."""
    for _ in range(records // 250):
        produce(fake, 250, partition=partition)


async def ahead(c: ShareConsumer) -> Messages:
    """Poll until one fetch has brought the records of several polls; return the first of these polls."""
    c.subscribe(["t"])
    assert len(await c.poll(5)) == 500, "the first fetch brings a poll's records"
    return await c.poll(5)


def acknowledged(request: Any) -> list[tuple[int, int]]:
    """The offsets that a request acknowledges."""
    return [
        (batch.first_offset, batch.last_offset)
        for topic in request.topics
        for part in topic.partitions
        for batch in part.acknowledgement_batches
    ]


@pytest.mark.rule("CL-36", "CL-136", "CL-139")
@on_fake_cluster()
async def test_one_fetch_brings_what_four_polls_return_and_the_next_one_carries_their_acknowledgements(
    fake: FakeCluster,
) -> None:
    backlog(fake)
    async with consumer(fake) as c:
        polls = [await ahead(c)]
        asked = len(fake.fetches)
        request = fake.fetches[-1]
        assert (request.max_records, request.batch_size) == (RECORDS_MAX, 500)
        assert request.share_acquire_mode == ACQUIRE_BATCH_OPTIMIZED
        polls += [await c.poll(5) for _ in range(_POLLS - 1)]
        assert [[polled[0].offset(), len(polled)] for polled in polls] == [
            [500 + 500 * number, 500] for number in range(_POLLS)
        ]
        assert len(fake.fetches) == asked, "they lay here"
        await c.poll(5)
        assert len(fake.fetches) == asked + 1
        assert fake.acknowledges == []
        sent = acknowledged(fake.fetches[-1])
        assert (sent[0][0], sent[-1][1]) == (500, 499 + RECORDS_MAX)
        assert sum(last - first + 1 for first, last in sent) == RECORDS_MAX
    assert {state for offset, state in fake.states("t").items() if offset < 500 + RECORDS_MAX} == {"acknowledged"}


@pytest.mark.rule("CL-139")
@on_fake_cluster()
async def test_acknowledgements_wait_for_the_next_fetch_twenty_milliseconds_at_most(fake: FakeCluster) -> None:
    backlog(fake)
    async with consumer(fake) as c:
        await ahead(c)
        await c.poll(5)
        await asyncio.sleep(0.015)
        assert fake.acknowledges == []
        await asyncio.sleep(0.006)
        (request,) = fake.acknowledges
        assert (acknowledged(request)[0][0], acknowledged(request)[-1][1]) == (500, 999)
        await c.poll(5)
        await asyncio.sleep(0.05)
        assert [bool(acknowledged(request)) for request in fake.acknowledges] == [True, True], "none is empty"


@pytest.mark.rule("CL-139")
@on_fake_cluster()
async def test_an_answer_that_comes_while_acknowledgements_are_due_leaves_no_empty_request(fake: FakeCluster) -> None:
    backlog(fake)
    async with consumer(fake) as c:
        await ahead(c)
        for _ in range(30):
            await asyncio.sleep(0.0195)
            await c.poll(5)
        assert all(map(acknowledged, fake.acknowledges))
        assert fake.acknowledges, "the timer has sent some"


@pytest.mark.rule("CL-138")
@on_fake_cluster()
async def test_an_application_that_becomes_slow_is_asked_for_no_more_than_a_poll(fake: FakeCluster) -> None:
    backlog(fake)
    async with consumer(fake) as c:
        for _ in range(_POLLS):
            await (c.poll(5) if c.subscription() else ahead(c))
        await asyncio.sleep(0.03)
        asked = len(fake.fetches)
        while len(fake.fetches) == asked:
            await c.poll(5)
        assert fake.fetches[-1].max_records == 500


@pytest.mark.rule("CL-98", "CL-138")
@on_fake_cluster()
async def test_a_poll_that_names_a_number_gets_no_more_with_its_fetch(fake: FakeCluster) -> None:
    backlog(fake)
    async with consumer(fake) as c:
        await ahead(c)
        for _ in range(_POLLS):
            await c.poll(5, max_records=100)
        assert fake.fetches[-1].max_records == 100


@pytest.mark.rule("CL-136")
@on_fake_cluster(nodes=2, partitions=2)
async def test_two_leaders_are_asked_for_as_much_together_as_one(fake: FakeCluster) -> None:
    for partition in (0, 1):
        backlog(fake, partition=partition)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        for _ in range(12):
            await c.poll(5)
        assert {request.max_records for request in fake.fetches} == {500, RECORDS_MAX // 2}


@pytest.mark.rule("CL-139")
@on_fake_cluster()
async def test_acknowledgements_wait_for_a_fetch_or_twenty_milliseconds_and_what_is_asked_for_at_once_does_not(
    fake: FakeCluster,
) -> None:
    async def polled(c: ShareConsumer, first: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        messages = await c.poll(5)
        assert len(messages) == 500, "two batches of 250"
        for number, message in enumerate(messages):
            c.acknowledge(message, AcknowledgeType.ACCEPT if number else first)

    backlog(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        for _ in range(2 + _POLLS):
            await polled(c)
        sent = acknowledged(fake.fetches[-1])
        assert (fake.acknowledges, sent[0][0], sent[-1][1]) == ([], 500, 499 + RECORDS_MAX), "with the next fetch"
        assert {request.batch_size for request in fake.fetches} == {500}
        await polled(c)
        await asyncio.sleep(0.015)
        assert fake.acknowledges == []
        await asyncio.sleep(0.006)
        assert acknowledged(fake.acknowledges[-1]) == [(2_500, 2_999)]
        assert list((await c.commit_sync()).values()) == [None]
        assert acknowledged(fake.acknowledges[-1])[-1][1] == 3_499
        await polled(c, AcknowledgeType.RENEW)
        asked = len(fake.fetches)
        await polled(c)
        assert len(fake.fetches) == asked, "it lay here"
        await asyncio.sleep(0.001)
        assert fake.acknowledges[-1].is_renew_ack, "the lock would not wait"
        c.commit_async()
        await asyncio.sleep(0.001)
        assert acknowledged(fake.acknowledges[-1])[-1][1] == 4_499


@pytest.mark.rule("CL-28")
@on_fake_cluster()
async def test_close_sends_what_waits_and_gives_back_what_lies(fake: FakeCluster) -> None:
    backlog(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        for _ in range(3):
            for message in await c.poll(5):
                c.acknowledge(message)
    states = fake.states("t")
    assert {states[offset] for offset in range(1_500)} == {"acknowledged"}
    assert {states[offset] for offset in range(1_500, 2_500)} == {"available"}


@pytest.mark.rule("CL-137")
@on_fake_cluster()
async def test_what_lies_for_a_second_without_a_poll_is_others(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="sharegroups")
    backlog(fake, 2_500)
    async with consumer(fake) as c:
        polled = await ahead(c)
        await asyncio.sleep(UNPOLLED_S / 2)
        polled = await c.poll(5)
        assert UNPOLLED_S == 1
        await asyncio.sleep(UNPOLLED_S - 0.01)
        states = fake.states("t")
        assert {states[offset] for offset in range(1_500, 2_500)} == {"acquired"}
        await asyncio.sleep(0.02)
        states = fake.states("t")
        assert {states[offset] for offset in range(1_500, 2_500)} == {"available"}
        assert {states[message.offset()] for message in polled} == {"acquired"}, "these are in its hands"
        (line,) = [record.getMessage() for record in caplog.records if "fetched ahead" in record.getMessage()]
        assert "group g" in line
        assert "1000 records" in line
        again = await c.poll(5)
        assert (again[0].offset(), again[0].delivery_count(), len(again)) == (1_500, 1, 500)


@pytest.mark.rule("CL-137")
@on_fake_cluster()
async def test_records_that_were_delivered_before_lie_on_for_a_release_might_be_their_last(fake: FakeCluster) -> None:
    backlog(fake, 2_500)
    consumed(fake, "t", 0, 0)
    fake.logs[fake.partition("t", 0)].states["g"] |= dict.fromkeys(range(2_500), ("available", "", 1))
    async with consumer(fake) as c:
        polled = await ahead(c)
        assert polled[0].delivery_count() == 2
        await asyncio.sleep(3 * UNPOLLED_S)
        assert set(fake.states("t").values()) == {"acknowledged", "acquired"}
        assert len(await c.poll(5)) == 500


@pytest.mark.rule("CL-137")
@on_fake_cluster()
async def test_of_what_lies_only_the_polls_with_records_that_were_delivered_before_stay(fake: FakeCluster) -> None:
    backlog(fake, 2_500)
    consumed(fake, "t", 0, 0)
    fake.logs[fake.partition("t", 0)].states["g"] |= dict.fromkeys(range(1_600, 1_650), ("available", "", 1))
    async with consumer(fake) as c:
        await ahead(c)
        await asyncio.sleep(3 * UNPOLLED_S)
        states = fake.states("t")
        assert {states[offset] for offset in range(1_500, 2_000)} == {"acquired"}, "one poll's worth"
        assert {states[offset] for offset in (*range(1_000, 1_500), *range(2_000, 2_500))} == {"available"}


@pytest.mark.rule("CL-137")
@on_fake_cluster()
async def test_what_a_parked_fetch_brings_when_the_application_polls_no_more_is_others_after_a_second_too(
    fake: FakeCluster,
) -> None:
    backlog(fake, 2_500)
    async with consumer(fake) as c:
        await ahead(c)
        for _ in range(_POLLS - 1):
            assert len(await c.poll(5)) == 500
        assert not await c.poll(0.3)
        assert fake.fetches[-1].max_records == RECORDS_MAX, "it is parked"
        await asyncio.sleep(0.1)
        backlog(fake, 2_000)
        await asyncio.sleep(UNPOLLED_S - 0.01)
        assert {state for offset, state in fake.states("t").items() if offset >= 2_500} == {"acquired"}
        await asyncio.sleep(0.02)
        assert {state for offset, state in fake.states("t").items() if offset >= 2_500} == {"available"}


@pytest.mark.rule("CL-95", "CL-138")
@on_fake_cluster()
async def test_who_keeps_a_record_is_not_known_to_be_quick(fake: FakeCluster) -> None:
    backlog(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        for message in await c.poll(5):
            c.acknowledge(message)
        first, *others = await c.poll(5)
        async with c.keep_alive(first):
            for message in others:
                c.acknowledge(message)
            for _ in range(_POLLS):
                for message in await c.poll(5):
                    c.acknowledge(message)
            assert fake.fetches[-1].max_records == 500
            c.acknowledge(first)


@pytest.mark.rule("CL-138")
@on_fake_cluster()
async def test_a_limit_of_records_is_one_for_fetches_too(fake: FakeCluster) -> None:
    backlog(fake)
    async with consumer(fake) as c:
        await ahead(c)
        c._engine.limit_records(10)
        for _ in range(_POLLS):
            await c.poll(5)
        assert fake.fetches[-1].max_records == 10


@pytest.mark.rule("CL-138")
@on_fake_cluster()
async def test_batches_that_do_not_divide_a_poll_do_not_end_it(fake: FakeCluster) -> None:
    for _ in range(25):
        produce(fake, 400)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        for _ in range(12):
            await c.poll(5)
        first, *others = [request.max_records for request in fake.fetches if request.share_session_epoch > 0]
        assert first in (500, RECORDS_MAX)
        assert set(others) == {RECORDS_MAX}


@pytest.mark.rule("CL-139")
@pytest.mark.parametrize("partitions", [1, 2])
def test_polls_return_as_much_as_without_it(partitions: int) -> None:
    @on_fake_cluster(partitions=partitions)
    async def story(fake: FakeCluster) -> None:
        async with consumer(fake) as c:
            c.subscribe(["t"])
            sizes: list[int] = []
            for _ in range(10):
                for _ in range(71):  # batches of 7: 497 records do not fill a poll, 504 do
                    produce(fake, 7)
                    produce(fake, 7, partition=partitions - 1)
                sizes.append(len(await c.poll(5)))
            assert RECORDS_MAX in {request.max_records for request in fake.fetches}
            assert max(sizes) == 504, "with less the answer was over"

    story()


@pytest.mark.rule("CL-138")
@on_fake_cluster()
async def test_an_answer_without_records_ends_it(fake: FakeCluster) -> None:
    backlog(fake, 2_500)
    async with consumer(fake) as c:
        await ahead(c)
        for _ in range(_POLLS - 1):
            await c.poll(5)
        assert not await c.poll(0.6)
        assert not await c.poll(0.6)
        asked = [request.max_records for request in fake.fetches]
        assert RECORDS_MAX in asked
        assert asked[-2:] == [500, 500]


@pytest.mark.rule("CL-136")
@on_fake_cluster(partitions=2)
async def test_what_an_answer_lets_expect_is_of_all_its_partitions(fake: FakeCluster) -> None:
    large = b"x" * 20_000
    async with consumer(fake) as c:
        c.subscribe(["t"])
        for _ in range(4):
            produce(fake, 1_000, partition=1)
            produce(fake, 400, partition=0, value=large)
            await c.poll(5)
        asked = {request.max_records for request in fake.fetches}
        assert 500 < max(asked) <= 750, "over both partitions a record has 6 to 16 kB on average, so few fit into 4 MiB"


@pytest.mark.rule("CL-138")
@on_fake_cluster()
async def test_who_was_slow_is_so_though_it_kept_a_record_then(fake: FakeCluster) -> None:
    backlog(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        for message in await c.poll(5):
            c.acknowledge(message)
        first, *others = await c.poll(5)
        async with c.keep_alive(first):
            await asyncio.sleep(5)
            for message in others:
                c.acknowledge(message)
            for message in await c.poll(5):
                c.acknowledge(message)
            c.acknowledge(first)
        asked = len(fake.fetches)
        for _ in range(5):
            for message in await c.poll(5):
                c.acknowledge(message)
        assert {request.max_records for request in fake.fetches[asked:]} == {500}


@pytest.mark.rule("CL-137")
@on_fake_cluster(nodes=2, partitions=2)
async def test_what_was_asked_for_ahead_is_others_though_it_came_when_the_application_was_slow(
    fake: FakeCluster,
) -> None:
    for partition in (0, 1):
        backlog(fake, 1_500, partition)
    async with consumer(fake, **{"fetch.max.wait.ms": 5_000}) as c:
        c.subscribe(["t"])
        for _ in range(6):
            assert len(await c.poll(5)) == 500
        assert not await c.poll(1)
        assert [request.max_records for request in fake.fetches[2:]] == [1_000] * 4
        backlog(fake, 500)
        assert len(await c.poll(5)) == 500
        await asyncio.sleep(1.5)  # the application is now slow, and the other leader still has the request for 1,000
        assert not await c.poll(0.01)
        backlog(fake, 2_000, partition=1)
        await asyncio.sleep(UNPOLLED_S / 2)
        assert list(fake.states("t", number=1).values()).count("acquired") == 1_000
        await asyncio.sleep(UNPOLLED_S / 2 + 0.1)
        assert "acquired" not in fake.states("t", number=1).values()


@pytest.mark.rule("CL-137")
@on_fake_cluster(nodes=2, partitions=2)
async def test_what_was_not_asked_for_ahead_is_kept_though_the_application_is_quick(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="sharegroups")
    for partition in (0, 1):
        backlog(fake, 10_000, partition=partition)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        for _ in range(7):
            await c.poll(5, max_records=500)
        await asyncio.sleep(3 * UNPOLLED_S)
        assert {request.max_records for request in fake.fetches} == {500}
        assert "fetched ahead" not in caplog.text


@pytest.mark.rule("CL-136")
@on_fake_cluster(nodes=4, partitions=4)
async def test_with_so_many_leaders_that_each_brings_a_poll_nothing_waits(fake: FakeCluster) -> None:
    for partition in range(4):
        backlog(fake, 2_000, partition=partition)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        for _ in range(8):
            await c.poll(5)
            await asyncio.sleep(0.001)
        assert {request.max_records for request in fake.fetches} == {500}
        assert fake.acknowledges, "they were sent while others' records lay here"


@pytest.mark.rule("CL-145")
@on_fake_cluster()
async def test_what_no_poll_has_returned_is_given_back_at_close_and_does_not_count(fake: FakeCluster) -> None:
    backlog(fake, 2_500)
    async with consumer(fake) as c:
        polled = await ahead(c)
        returned = {message.offset() for message in polled}
        states = fake.states("t")
        lying = [offset for offset, state in states.items() if state == "acquired" and offset not in returned]
        assert len(lying) >= 500
    counts = {offset: count for offset, (_, _, count) in fake.log("t").states["g"].items()}
    assert {fake.states("t")[offset] for offset in lying} == {"available"}
    assert {counts[offset] for offset in lying} == {0}
    assert {counts[offset] for offset in returned} == {1}, "these were in its hands"


@pytest.mark.rule("CL-145")
@on_fake_cluster()
async def test_an_application_says_that_it_has_not_begun_with_a_record(fake: FakeCluster) -> None:
    produce(fake, 3)
    async with consumer(fake, **{"share.acknowledgement.mode": "explicit"}) as c:
        c.subscribe(["t"])
        first, second, third = await c.poll(5)
        with pytest.raises(ValueError, match=r"only AcknowledgeType\.RELEASE takes a delivery back"):
            c.acknowledge(first, AcknowledgeType.ACCEPT, undelivered=True)
        with pytest.raises(ValueError, match=r"undelivered is 1 .*; expected True or False"):
            c.acknowledge(first, AcknowledgeType.RELEASE, undelivered=1)  # type: ignore[arg-type]
        c.acknowledge(first, AcknowledgeType.RELEASE, undelivered=True)
        c.acknowledge_offset("t", 0, second.offset(), AcknowledgeType.RELEASE, undelivered=True)
        c.acknowledge(third, AcknowledgeType.RELEASE)
        await c.commit_sync()
        assert [count for _, _, count in fake.log("t").states["g"].values()] == [0, 0, 1]
