"""A member whose coordinator has no room: it waits, logs it in time, and leaves silently when that takes too long."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from typing import Any

import pytest

from tests.support.fake_cluster.coordinator import Coordinator
from tests.support.fake_cluster.faults import NO_ROOM
from tests.support.fake_cluster.stories import EXPLICIT, consumer, produce
from tests.support.virtual_time import now_s
from tests.unit.sharegroups.aio.test_throttled import WISH_MS, Timed, least_gap, play


@pytest.mark.rule("CL-86")
def test_a_heartbeat_that_was_refused_waits_as_long_as_asked_and_the_member_lives_on() -> None:
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
def test_wishes_in_a_row_hold_no_heartbeat_back_until_the_member_is_taken_for_dead() -> None:
    """Some requests must be sent in any case, since locks expire; each response to one asks the client to wait half a
    minute more."""

    async def story(fake: Timed) -> None:
        produce(fake)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            (message,) = await c.poll(5)
            async with c.keep_alive(message):
                fake.throttle_ms = 30_000
                fake.errors["acknowledge_top"].extend([NO_ROOM] * 400)
                until_s = now_s() + 200
                while now_s() < until_s:
                    await c.poll(1, max_records=0)
                lived = [*fake.times("heartbeat"), now_s()]
                assert max(later - sooner for sooner, later in pairwise(lived)) <= 40.1
                assert least_gap(fake.times("heartbeat")[2:]) > 4, "nor is one sent more often than the group wants"
            c.acknowledge(message)

    play(story)


@pytest.mark.rule("CL-86")
@pytest.mark.parametrize("answered_s", [0.0, 20.0])
def test_a_heartbeat_that_is_answered_late_with_a_wish_is_followed_within_the_session_time_out(
    answered_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = Coordinator.share_group_heartbeat

    async def late(self: Coordinator, request: Any, context: Any) -> Any:
        answer = await answered(self, request, context)
        await asyncio.sleep(answered_s if answer.error_code else 0)
        return answer

    monkeypatch.setattr(Coordinator, "share_group_heartbeat", late)

    async def story(fake: Timed) -> None:
        async with consumer(fake) as c:
            c.subscribe(["t"])
            await c.poll(2)
            fake.throttle_ms = 30_000
            fake.errors["heartbeat"].append(NO_ROOM)
            refused = len(fake.times("heartbeat"))
            for _ in range(60):
                await c.poll(1)
            first, second = fake.times("heartbeat")[refused : refused + 2]
            assert 30 <= second - first <= 40.1

    play(story)


@pytest.mark.rule("CL-86")
def test_a_person_is_warned_before_a_member_that_may_not_say_it_lives_is_taken_for_dead(
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
            await c.poll(60)  # now and then, since otherwise the client itself would give up
            assert len(fake.members) == 1
        (reported,) = caplog.messages
        assert "'g'" in reported
        assert "node0:9000 has no capacity" in reported
        assert "rpc.memory.bytes" in reported

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
