"""A member whose coordinator has no room: it waits, says so in time, and leaves without a word when that takes long."""

from __future__ import annotations

import logging

import pytest

from tests.support.fake_cluster.faults import NO_ROOM
from tests.support.fake_cluster.stories import consumer, produce
from tests.support.virtual_time import now_s
from tests.unit.sharegroups.aio.test_throttled import WISH_MS, Timed, least_gap, play


@pytest.mark.rule("CL-86")
def test_a_heartbeat_that_was_refused_waits_as_long_as_told_and_the_member_lives_on() -> None:
    async def story(fake: Timed) -> None:
        fake.errors["heartbeat"].extend([NO_ROOM, NO_ROOM])
        produce(fake)
        async with consumer(fake) as c:
            c.subscribe(["t"])
            assert len(await c.poll(30)) == 1
            joins = fake.times("heartbeat")[:3]
            assert least_gap(joins) >= WISH_MS / 1000

    play(story)


@pytest.mark.rule("CL-86")
def test_a_person_is_told_before_a_member_that_may_not_say_it_lives_is_taken_for_dead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(fake: Timed) -> None:
        async with consumer(fake) as c:
            c.subscribe(["t"])
            await c.poll(2)
            heard, fake.throttle_ms = now_s(), 10_000
            fake.errors["heartbeat"].extend([NO_ROOM] * 3)
            while not caplog.records:
                await c.poll(1)
            assert now_s() - heard < 45
            await c.poll(60)  # from time to time, or the client itself gives up
            assert len(fake.members) == 1
        (told,) = caplog.messages
        assert "'g'" in told
        assert "node0:9000 has no room" in told
        assert "rpc.memory.bytes" in told

    with caplog.at_level(logging.WARNING):
        play(story)


@pytest.mark.rule("CL-86")
@pytest.mark.parametrize("refused", ["fetch_top", "heartbeat"])
def test_a_leave_that_would_wait_for_long_is_not_sent_and_close_does_not_wait_for_it(refused: str) -> None:
    async def story(fake: Timed) -> None:
        async with consumer(fake) as c:
            c.subscribe(["t"])
            await c.poll(2)
            fake.throttle_ms = 25_000
            fake.errors[refused].append(NO_ROOM)
            await c.poll(8)
            began = now_s()
        assert now_s() - began < 5
        assert all(request.member_epoch >= 0 for request in fake.heartbeats)

    play(story)


@pytest.mark.rule("CL-86")
def test_a_leave_that_waits_for_less_than_two_seconds_is_sent() -> None:
    async def story(fake: Timed) -> None:
        async with consumer(fake) as c:
            c.subscribe(["t"])
            await c.poll(2)
            fake.throttle_ms = 1_900
            fake.errors["fetch_top"].append(NO_ROOM)
            refused = len(fake.times("fetch_top"))
            while len(fake.times("fetch_top")) == refused:
                await c.poll(0.05)
            free_s = now_s() + 1.5
        assert fake.heartbeats[-1].member_epoch == -1
        assert free_s < now_s() < free_s + 1, "when the node's time was over"

    play(story)


@pytest.mark.rule("CL-86")
def test_the_warning_comes_again_once_a_heartbeat_has_succeeded_in_between(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fake: Timed) -> None:
        async with consumer(fake) as c:
            c.subscribe(["t"])
            await c.poll(2)
            fake.throttle_ms = 10_000
            for times in (1, 2):
                fake.errors["heartbeat"].extend([NO_ROOM] * 3)
                while fake.errors["heartbeat"]:
                    await c.poll(1)
                assert len(caplog.messages) == times
                await c.poll(20)

    with caplog.at_level(logging.WARNING):
        play(story)
