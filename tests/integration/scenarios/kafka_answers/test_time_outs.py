"""Locks of 1 s that expire. Where Kafka times each record of a batch separately, ours expire together (PL-306)."""

from __future__ import annotations

import asyncio

import pytest

from kip932 import errors
from tests.integration.scenarios.sessions import ACCEPT, RELEASE, RENEW, Acquired, Session, acquired, another, fx_rpc
from tests.integration.scenarios.wire import Wire, attempts

pytestmark = pytest.mark.asyncio

LOCK = "share.record.lock.duration.ms"
NONE = 0
NOT_YOURS = errors.InvalidRecordStateError.code
SHORT = {LOCK: "1000"}


async def _holding(wire: Wire, count: int, settings: dict[str, str]) -> tuple[Session, Session, str]:
    """A member that has acquired `count` records, a second one with an open session and no records, and the topic."""
    holder, topic = await fx_rpc(wire, settings)
    other = await another(holder, topic)
    await other.open()
    await wire.produce(holder.topic_id, count)
    assert await holder.acquire() == [(0, count - 1, 1)]
    return holder, other, topic


async def _gathered(session: Session, last: int) -> Acquired:
    """Return the records of successive fetches, up to the one that contains `last`."""
    found: Acquired = []
    async for _ in attempts():
        found += acquired(await session.fetch())
        if any(first <= last <= end for first, end, _ in found):
            return found
    raise AssertionError(f"{last} never came: {found}")


def _counts(found: Acquired) -> dict[int, int]:
    return {offset: count for first, last, count in found for offset in range(first, last + 1)}


async def _nothing_more(session: Session) -> None:
    """Assert that the next record to arrive is one produced now, so that no earlier one was left."""
    mark = await session.wire.produce(session.topic_id, 1)
    assert await session.acquire() == [(mark, mark, 1)]


async def _until_nothing_is_left(wire: Wire, group: str, topic: str) -> None:
    async for _ in attempts():
        if (await wire.lag(group, topic))[1] == 0:
            return
    raise AssertionError(f"{group} never came to lag 0")


@pytest.mark.rule("PL-306")
async def test_a_batch_of_which_one_record_was_accepted_runs_out_together(wire: Wire) -> None:
    """Kafka wakes the other member with one record, and delivers the next record later."""
    holder, other, _ = await _holding(wire, 3, SHORT)
    assert await holder.ack(1, 1, ACCEPT) == NONE
    assert _counts(acquired(await other.fetch(wait_ms=20_000))) == {0: 2, 2: 2}


@pytest.mark.rule("PL-308")
async def test_who_held_a_record_has_no_say_over_it_once_another_holds_it(wire: Wire) -> None:
    holder, other, _ = await _holding(wire, 2, SHORT | {"share.delivery.count.limit": "10"})
    assert await other.acquire() == [(0, 1, 2)]
    for kind in (ACCEPT, RELEASE):
        assert await holder.ack(0, 0, kind) == NOT_YOURS
    assert await holder.ack(0, 1, ACCEPT) == NOT_YOURS
    assert await other.ack(0, 1, ACCEPT) == NONE


@pytest.mark.rule("PL-308", "PL-418")
async def test_a_second_delivery_that_runs_out_at_a_limit_of_2_ends_its_records(wire: Wire) -> None:
    """Kafka reports success for a late ACCEPT of them, once the start offset has passed them."""
    holder, other, topic = await _holding(wire, 2, SHORT | {"share.delivery.count.limit": "2"})
    assert await other.acquire() == [(0, 1, 2)]
    await _until_nothing_is_left(wire, holder.group, topic)
    for late in (holder, other):
        assert await late.ack(0, 1, ACCEPT) == NOT_YOURS
    await _nothing_more(holder)


async def test_a_second_session_that_closes_at_a_limit_of_2_ends_its_records(wire: Wire) -> None:
    holder, other, topic = await _holding(wire, 2, {"share.delivery.count.limit": "2"})
    assert (await holder.fetch(epoch=-1)).error_code == NONE
    assert await other.acquire() == [(0, 1, 2)]
    assert (await other.fetch(epoch=-1)).error_code == NONE
    await _until_nothing_is_left(wire, holder.group, topic)
    await holder.fetch(epoch=0, wait_ms=0, min_bytes=0)
    await _nothing_more(holder)


async def test_a_record_that_was_renewed_stays_while_the_others_run_out(wire: Wire) -> None:
    holder, other, _ = await _holding(wire, 3, {LOCK: "1500"})
    await asyncio.sleep(0.75)
    answer = await holder.acknowledge((1, 1, [RENEW]), renew=True)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (NONE, NONE)
    assert _counts(await _gathered(other, 2)) == {0: 2, 2: 2}
    assert await holder.ack(1, 1, ACCEPT) == NONE


@pytest.mark.rule("PL-301")
@pytest.mark.parametrize("longer", [False, True], ids=["made shorter", "made longer"])
async def test_a_lock_that_runs_keeps_its_time_and_the_next_one_has_the_new_one(wire: Wire, longer: bool) -> None:
    before, after = ("1000", "60000") if longer else ("60000", "1000")
    holder, other, _ = await _holding(wire, 1, {LOCK: before})
    await wire.set_group(holder.group, {LOCK: after})
    await wire.produce(holder.topic_id, 1)
    answer = await holder.fetch()
    assert (acquired(answer), answer.acquisition_lock_timeout_ms) == ([(1, 1, 1)], int(after))
    ran_out, kept = (0, 1) if longer else (1, 0)
    assert await other.acquire() == [(ran_out, ran_out, 2)]
    assert await holder.ack(ran_out, ran_out, ACCEPT) == NOT_YOURS
    assert await holder.ack(kept, kept, ACCEPT) == NONE


async def test_of_two_members_only_the_silent_ones_records_come_back(wire: Wire) -> None:
    silent, busy, _ = await _holding(wire, 2, SHORT)
    await wire.produce(silent.topic_id, 2)
    assert await busy.acquire() == [(2, 3, 1)]
    assert await busy.ack(2, 3, ACCEPT) == NONE
    assert await busy.acquire() == [(0, 1, 2)]
    assert await busy.ack(0, 1, ACCEPT) == NONE
    await _nothing_more(busy)
