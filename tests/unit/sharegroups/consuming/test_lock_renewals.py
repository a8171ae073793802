"""Locks that are kept alive in the background, and jobs that are notified when their lock could not be kept."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from typing import Any

import pytest

from kip932.errors import FencedMemberEpochError, InvalidRecordStateError, KafkaError, NetworkError
from sharegroups.errors import IllegalStateError
from sharegroups.messages import AcknowledgeType, Message, TopicIdPartition, delivered_of
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce

ONE = EXPLICIT | {"share.acquire.mode": "record_limit", "max.poll.records": 1}


@pytest.mark.rule("CL-94", "CL-95")
@on_fake_cluster()
async def test_a_record_stays_in_hand_for_many_locks_while_others_are_polled(fake: FakeCluster) -> None:
    produce(fake, 2)
    heard: list[set[int]] = []
    async with consumer(fake, **ONE) as c:
        c.set_acknowledgement_commit_callback(lambda offsets, _: heard.extend(offsets.values()))
        c.subscribe(["t"])
        (long,) = await c.poll(5)
        async with c.keep_alive(long) as kept:
            (short,) = await c.poll(5)
            c.acknowledge(short)
            for _ in range(100):
                assert (await c.poll(1)).is_empty()
            assert fake.states("t") == {0: "acquired", 1: "acknowledged"}
            assert heard == [{1}], "renewals are not outcomes for the application"
            c.acknowledge(long)
            assert list((await c.commit_sync()).values()) == [None]
            assert not kept.lost
            kept.check()
    assert fake.states("t") == {0: "acknowledged", 1: "acknowledged"}


@pytest.mark.rule("CL-94")
@on_fake_cluster()
async def test_a_short_lock_is_renewed_in_time_too(fake: FakeCluster) -> None:
    produce(fake, 2)
    fake.lock_ms = 600
    async with consumer(fake, **ONE) as c:
        c.subscribe(["t"])
        (first,) = await c.poll(5)
        async with c.keep_alive(first) as kept:
            await asyncio.sleep(0.1)
            (second,) = await c.poll(5)
            async with c.keep_alive(second) as later:
                await asyncio.sleep(10)
                assert not kept.lost
                assert not later.lost
                assert fake.states("t") == {0: "acquired", 1: "acquired"}


@pytest.mark.parametrize("ends", [True, False])
@on_fake_cluster()
async def test_records_that_are_done_are_freed_at_once_and_not_when_garbage_is_searched(
    fake: FakeCluster, ends: bool
) -> None:
    produce(fake, 2)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        messages = await c.poll(5)
        keeping = c.keep_alive(messages)
        seen = weakref.ref(keeping.begin())
        gc.collect()
        gc.disable()
        try:
            for message in messages:
                c.acknowledge(message)
            assert (await c.poll(3)).is_empty()
            assert seen() is not None
            if ends:
                keeping.end()
            del keeping, messages, message
            assert seen() is None, "it refers to the messages, and these to the bytes of their batches"
        finally:
            gc.enable()


@pytest.mark.rule("CL-94", "CL-95")
@on_fake_cluster()
async def test_a_record_that_was_lost_while_two_kept_it_does_not_keep_poll_from_being_called(fake: FakeCluster) -> None:
    produce(fake, 2)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        message, other = await c.poll(5)
        c.acknowledge(other)
        await c.commit_sync()
        first = c.keep_alive(message)
        first.begin()
        async with c.keep_alive(message) as second:
            first.end()
            await asyncio.sleep(50)
            assert fake.states("t") == {0: "acquired", 1: "acknowledged"}, "the second keeps it"
            fake.log("t").states["g"][0] = ("acquired", "another member", 2)
            await asyncio.sleep(100)
            assert second.is_lost(message)
            first.end()
            assert (await c.poll(1, max_records=0)).is_empty()
        with pytest.raises(IllegalStateError, match="must be acknowledged"):
            await c.poll(1)


@pytest.mark.rule("CL-94")
@on_fake_cluster()
async def test_renewals_end_with_the_block(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake, **ONE) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        async with c.keep_alive([message]):
            await asyncio.sleep(50)
        with pytest.raises(IllegalStateError, match="must be acknowledged"):
            await c.poll(1)
        await asyncio.sleep(31)
        assert fake.states("t") == {0: "available"}


@pytest.mark.rule("CL-95", "CL-21")
@on_fake_cluster()
async def test_a_record_that_is_not_kept_still_keeps_poll_from_being_called(fake: FakeCluster) -> None:
    produce(fake, 3)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        first, second, third = await c.poll(5)
        async with c.keep_alive([first, third]):
            with pytest.raises(IllegalStateError, match="must be acknowledged"):
                await c.poll(1)
            c.acknowledge(second)
            assert (await c.poll(1)).is_empty()
            c.acknowledge(third)
            assert (await c.poll(1)).is_empty()


@pytest.mark.rule("CL-94", "CL-96")
@on_fake_cluster()
async def test_of_several_records_only_the_lost_one_is_reported(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    produce(fake, 8)
    lost: list[Message] = []
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        messages = await c.poll(5)
        async with c.keep_alive(messages, lost.extend) as kept:
            fake.log("t").states["g"][5] = ("acknowledged", "", 1)  # an operator's reset, for example
            with caplog.at_level(logging.WARNING, logger="sharegroups"):
                await asyncio.sleep(100)
            assert [message.offset() for message in lost] == [5]
            assert [kept.is_lost(message) for message in messages] == [number == 5 for number in range(8)]
            assert isinstance(kept.error, InvalidRecordStateError)
            with pytest.raises(InvalidRecordStateError, match="t-0 offset 5"):
                kept.check()
            reported = [one.getMessage() for one in caplog.records if "is lost" in one.getMessage()]
            assert len(reported) == 1
            assert fake.states("t") == {number: "acknowledged" if number == 5 else "acquired" for number in range(8)}
            assert (await c.poll(1)).is_empty(), "a lost record does not keep poll from being called"


@pytest.mark.rule("CL-94")
@on_fake_cluster()
async def test_what_is_acknowledged_while_its_renewal_is_under_way_is_no_loss(fake: FakeCluster) -> None:
    produce(fake, 4)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        messages = list(await c.poll(5))
        async with c.keep_alive(messages) as kept:
            for number, message in enumerate(messages):
                await asyncio.sleep(10 - 0.01 * number)  # about when the renewals are sent
                c.acknowledge(message)
                c.commit_async()
            assert list((await c.commit_sync()).values()) in ([], [None])
            assert not kept.lost
    assert set(fake.states("t").values()) == {"acknowledged"}


@pytest.mark.rule("CL-96")
@on_fake_cluster()
async def test_the_end_of_the_connection_is_reported_within_a_second(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake, **ONE) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        async with c.keep_alive(message) as kept:
            await c.poll(1)
            fake.drop_streams(0)
            await asyncio.sleep(1.5)
            assert kept.is_lost(message)
            assert isinstance(kept.error, NetworkError)


@pytest.mark.rule("CL-96")
@on_fake_cluster()
async def test_a_fenced_member_renews_nothing_and_notifies_its_jobs(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake, **ONE) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        async with c.keep_alive(message) as kept:
            await c.poll(1)
            del fake.members[c.member_id]
            await asyncio.sleep(7)
            assert isinstance(kept.error, FencedMemberEpochError)
        await asyncio.sleep(30)
        assert fake.states("t") == {0: "available"}


@pytest.mark.rule("CL-96")
@on_fake_cluster()
async def test_a_loop_that_stood_still_for_longer_than_the_lock_renews_nothing(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake, **ONE) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        part = message._source.delivered
        part.acquired_ms -= 30_000  # as if 30 s had passed before the loop could run
        async with c.keep_alive(message) as kept:
            assert kept.lost
            assert "suspended" in str(kept.error)


@pytest.mark.rule("CL-94")
@on_fake_cluster()
async def test_it_needs_explicit_mode_and_records_in_hand(fake: FakeCluster) -> None:
    produce(fake, 2)
    async with consumer(fake) as implicit:
        implicit.subscribe(["t"])
        messages = await implicit.poll(5)
        with pytest.raises(IllegalStateError, match="needs share"):
            implicit.keep_alive(messages).begin()
    async with consumer(fake, **ONE) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        c.acknowledge(message)
        await c.commit_sync()
        with pytest.raises(IllegalStateError, match="not in your hands"):
            c.keep_alive(message).begin()
        with pytest.raises(ValueError, match="messages of poll"):
            c.keep_alive("t")  # type: ignore[arg-type]


@on_fake_cluster()
async def test_after_a_suspension_the_clock_shows_that_a_lock_is_lost_before_the_loop_does(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(fake, 3)
    loop = asyncio.get_running_loop()
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        first, second, third = await c.poll(5)
        async with c.keep_alive([first, second]) as kept:
            async with c.keep_alive(third):
                pass
            c.acknowledge(second)
            await c.commit_sync()
            awake = loop.time
            with monkeypatch.context() as suspended:
                suspended.setattr(kept, "_clock", lambda: awake() + 29.9)
                assert not kept.lost
                kept.check()
                suspended.setattr(kept, "_clock", lambda: awake() + 30)
                assert kept.lost
                assert [kept.is_lost(message) for message in (first, second, third)] == [True, False, False]
                with pytest.raises(InvalidRecordStateError, match=r"t-0 offset 0 is lost: .* suspended"):
                    kept.check()
            assert not kept.lost, "the loop has reported no loss, and could renew it"
            c.acknowledge(third)
            await asyncio.sleep(50)
            assert not kept.lost, "each renewal moves the end"


@pytest.mark.rule("CL-81")
@on_fake_cluster()
async def test_records_that_are_kept_alive_bring_no_advice_about_their_locks(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    produce(fake, 2)
    async with consumer(fake, **EXPLICIT) as c:
        c.set_acknowledgement_commit_callback(lambda offsets, error: None)
        c.subscribe(["t"])
        messages = await c.poll(5)
        kept = c.keep_alive(messages).begin()
        fake.log("t").states["g"].update(dict.fromkeys(range(2), ("acquired", "another member", 2)))
        await asyncio.sleep(40)
        assert kept.lost
        for message in messages:
            c.acknowledge(message)
        await c.commit_sync()
    assert "is lost" in caplog.text
    assert "What helps" not in caplog.text


@on_fake_cluster()
async def test_records_that_are_kept_no_longer_bring_it_again(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    produce(fake, 2)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        messages = await c.poll(5)
        async with c.keep_alive(messages):
            await asyncio.sleep(50)
            assert "What helps" not in caplog.text
        await asyncio.sleep(20)
    assert "has been held for" in caplog.text


@pytest.mark.rule("CL-97")
@on_fake_cluster()
async def test_one_lost_lock_does_not_cost_the_outcome_of_other_jobs(fake: FakeCluster) -> None:
    produce(fake, 4)
    outcomes: dict[int, KafkaError | None] = {}

    def heard(offsets: dict[TopicIdPartition, set[int]], error: KafkaError | None) -> None:
        outcomes.update((offset, error) for found in offsets.values() for offset in found)

    async with consumer(fake, **ONE) as c:
        c.set_acknowledgement_commit_callback(heard)
        c.subscribe(["t"])
        messages: list[Message] = []
        for _ in range(4):
            (message,) = await c.poll(5)
            c.keep_alive(message).begin()
            messages.append(message)
        fake.log("t").states["g"][2] = ("acquired", "another member", 2)
        for message in messages:
            c.acknowledge(message, AcknowledgeType.ACCEPT)
        await c.poll(1)  # the acknowledgements are sent with a fetch
        await c.poll(1)
    assert [type(outcomes[offset]) for offset in range(4)] == [
        type(None),
        type(None),
        InvalidRecordStateError,
        type(None),
    ]
    assert fake.states("t") == {number: "acquired" if number == 2 else "acknowledged" for number in range(4)}


@pytest.mark.rule("CL-98")
@on_fake_cluster()
async def test_a_poll_asks_for_no_more_records_than_it_is_asked_to(fake: FakeCluster) -> None:
    produce(fake, 10)
    settings: dict[str, Any] = ONE | {"max.poll.records": 6}
    async with consumer(fake, **settings) as c:
        c.subscribe(["t"])
        assert (await c.poll(2, max_records=0)).is_empty()
        assert fake.states("t") == {}
        found = []
        asked = []
        for most in (3, None, 1, 0):
            messages = await c.poll(2, max_records=most)
            found.append(len(messages))
            asked.append(fake.fetches[-1].max_records)
            for message in messages:
                c.acknowledge(message)
        assert found == [3, 6, 1, 0]
        assert asked == [3, 6, 1, 1], "the last poll sends no fetch"
        produce(fake, 10)
        messages = await c.poll(2, max_records=9)
        assert (len(messages), fake.fetches[-1].max_records) == (6, 6), "max.poll.records holds too"
        for message in messages:
            c.acknowledge(message)
        with pytest.raises(ValueError, match="max_records is -1"):
            await c.poll(1, max_records=-1)


@pytest.mark.rule("CL-94")
@on_fake_cluster()
async def test_a_record_that_is_kept_later_than_others_of_its_delivery_is_renewed_before_its_own_lock_ends(
    fake: FakeCluster,
) -> None:
    produce(fake, 3)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        early, later, never = await c.poll(5)
        async with c.keep_alive(early) as first:
            await asyncio.sleep(25)
            async with c.keep_alive(later) as second:
                await asyncio.sleep(40)
                assert not first.lost
                assert not second.lost
                assert fake.states("t") == {0: "acquired", 1: "acquired", 2: "available"}
                assert never.delivery_count() == 1


@pytest.mark.rule("CL-82", "CL-94", "CL-96")
@on_fake_cluster()
async def test_a_renewal_counts_with_the_lock_that_its_answer_shows(fake: FakeCluster) -> None:
    produce(fake, 2)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        message, other = await c.poll(5)
        c.acknowledge(other)
        async with c.keep_alive(message) as kept:
            await c.commit_sync()
            fake.lock_ms = 9_000  # an operator's change, which takes effect with the next renewal
            for _ in range(40):
                await asyncio.sleep(1)
                assert fake.states("t")[0] == "acquired", "it is renewed at a third of its new lock"
            assert not kept.lost
            part = delivered_of(message)
            assert part.acquired_ms + part.lock_ms <= fake._locked_until[part.id_partition, "g", 0] * 1000
            clock = kept._clock
            assert clock is not None
            ends_s = fake._locked_until[part.id_partition, "g", 0]
            kept._clock = lambda: ends_s + 0.001
            assert kept.lost, "the leader gives the record to others by now"


@pytest.mark.rule("CL-82", "CL-27")
@on_fake_cluster()
async def test_a_record_that_the_application_renewed_is_locked_for_as_long_as_the_answer_shows(
    fake: FakeCluster,
) -> None:
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        fake.lock_ms = 2_000
        c.acknowledge(message, AcknowledgeType.RENEW)
        (again,) = await c.poll(5)
        part = delivered_of(again)
        assert part.lock_ms == 2_000
        assert part.acquired_ms + part.lock_ms <= fake._locked_until[part.id_partition, "g", 0] * 1000
