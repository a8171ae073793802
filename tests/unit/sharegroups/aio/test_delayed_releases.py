"""A consumer releases records with a delay: the requests, and what refuses a delay at once (CL-113)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932.errors import UnsupportedVersionError
from sharegroups.errors import DelayTooLongError, IllegalStateError
from sharegroups.messages import AcknowledgeType, TopicIdPartition
from tests.support.fake_cluster import log
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce, released
from tests.support.virtual_time import now_s

RELEASE = AcknowledgeType.RELEASE


@pytest.mark.rule("CL-113")
@on_fake_cluster()
async def test_a_record_that_is_released_with_a_delay_comes_again_when_it_is_over(fake: FakeCluster) -> None:
    produce(fake, 4)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        first, second, third, fourth = await c.poll(5)
        c.acknowledge(first, RELEASE, delay=2.5)
        c.acknowledge_offset("t", 0, second.offset(), RELEASE, delay=0)
        c.acknowledge(third, RELEASE)
        c.acknowledge(fourth, RELEASE, delay=9)
        c.acknowledge(fourth)
        assert await c.commit_sync() == {TopicIdPartition("t", 0, fake.topics["t"][0]): None}
        assert released(fake) == [(0, 3, [2, 2, 2, 1], [2_500, 0, -1, -1])], "the last word about a record counts"
        released_s = now_s()
        again = await c.poll(1)
        assert [(m.offset(), m.delivery_count()) for m in again] == [(1, 2), (2, 2)]
        for message in again:
            c.acknowledge(message)
        (late,) = await c.poll(5)
        assert (late.offset(), late.delivery_count()) == (0, 2)
        assert now_s() - released_s >= 2.5
        c.acknowledge(late)


@on_fake_cluster()
async def test_records_that_wait_equally_long_share_one_delay(fake: FakeCluster) -> None:
    produce(fake, 100)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        for message in await c.poll(5):
            c.acknowledge(message, RELEASE, delay=0.0001)
        await c.commit_sync()
        assert released(fake) == [(0, 99, [2], [1])], "a delay is never shorter than what was asked for"


@pytest.mark.rule("CL-113")
@pytest.mark.parametrize(
    ("kind", "delay"),
    [
        (AcknowledgeType.ACCEPT, 1.0),
        (AcknowledgeType.REJECT, 0),
        (AcknowledgeType.RENEW, 1),
        (RELEASE, -0.5),
        (RELEASE, float("nan")),
        (RELEASE, float("inf")),
        (RELEASE, True),
        (RELEASE, "30"),
    ],
)
def test_a_delay_that_cannot_be_is_refused_where_it_is_given(kind: AcknowledgeType, delay: Any) -> None:
    @on_fake_cluster()
    async def story(fake: FakeCluster) -> None:
        produce(fake)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            (message,) = await c.poll(5)
            with pytest.raises(ValueError, match="delay is "):
                c.acknowledge(message, kind, delay=delay)
            with pytest.raises(ValueError, match="delay is "):
                c.acknowledge_offset("t", 0, 0, kind, delay=delay)
            c.acknowledge(message)
            await c.commit_sync()
        assert fake.states("t") == {0: "acknowledged"}

    story()


@pytest.mark.rule("CL-113")
@on_fake_cluster()
async def test_a_node_that_would_pass_over_a_delay_is_not_sent_one(fake: FakeCluster) -> None:
    fake.knows_delays = False
    produce(fake, 2)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        first, second = await c.poll(5)
        with pytest.raises(UnsupportedVersionError, match="node 0, which leads t-0, does not support release delays"):
            c.acknowledge(first, RELEASE, delay=1)
        with pytest.raises(UnsupportedVersionError, match="upgrade that node"):
            c.acknowledge_offset("t", 0, 1, RELEASE, delay=1)
        with pytest.raises(IllegalStateError, match="not in your hands"):
            c.acknowledge_offset("t", 0, 7, RELEASE, delay=1)
        c.acknowledge(first, RELEASE, delay=0)  # what such a node does anyway
        c.acknowledge(second)
        await c.commit_sync()
    assert fake.states("t") == {0: "available", 1: "acknowledged"}


@pytest.mark.rule("CL-113")
@on_fake_cluster()
async def test_a_delay_above_the_groups_maximum_is_refused_where_it_is_given(fake: FakeCluster) -> None:
    produce(fake, 2)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        long, done = await c.poll(5)
        c.acknowledge(done)
        c.acknowledge(long, AcknowledgeType.REJECT)
        with pytest.raises(
            DelayTooLongError, match=r"259200 s for t-0 offset 0, but the group allows 86400 s"
        ) as found:
            c.acknowledge(long, RELEASE, delay=3 * 86_400)
        assert found.value.maximum == 86_400
        with pytest.raises(DelayTooLongError, match=r"raise the group's sharegroups\.retry\.delay\.max\.ms"):
            c.acknowledge_offset("t", 0, 0, RELEASE, delay=86_400.001)
        (outcome,) = (await c.commit_sync()).values()
        assert outcome is None
        assert fake.states("t") == {0: "archived", 1: "acknowledged"}, "the record stays as it was: rejected"


@pytest.mark.rule("CL-97")
@pytest.mark.rule("CL-113")
@pytest.mark.parametrize("with_a_fetch", [True, False])
def test_a_maximum_that_was_lowered_meanwhile_costs_no_other_outcome(
    with_a_fetch: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @on_fake_cluster()
    async def story(fake: FakeCluster) -> None:
        produce(fake, 4)
        async with consumer(fake, **EXPLICIT | {"max.poll.records": 2, "share.acquire.mode": "record_limit"}) as c:
            c.subscribe(["t"])
            first, second = await c.poll(5)
            c.keep_alive([first, second]).begin()
            third, fourth = await c.poll(5)
            monkeypatch.setattr(log, "DELAY_MAX_MS", 1_000)
            c.acknowledge(first, RELEASE, delay=1)
            c.acknowledge(second)
            c.acknowledge(third, AcknowledgeType.REJECT)
            c.acknowledge(fourth, RELEASE, delay=5)
            if with_a_fetch:
                await c.poll(0.1)
            (outcome,) = (await c.commit_sync()).values() if not with_a_fetch else [None]
            assert outcome is None
            await asyncio.sleep(0.8)  # meanwhile a parked fetch gets its response
            states = fake.states("t")
            assert (states[0], states[1], states[2]) == ("delayed", "acknowledged", "archived")
            assert (2, 3, [3, 2], []) in released(fake), "that delay is left to the group's back-off"
        assert caplog.text.count("t-0: the leader refused release delays") == 1

    story()
