"""The outcome of an administrator's call reaches the request that waits for it (GC-103, GC-108)."""

from __future__ import annotations

import asyncio

import pytest

from group_coordinator.admin_outcomes import WAIT_S, AdminOutcomes
from kip932 import errors
from kip932.ids import TopicIdPartition
from share_persister import PersisterError
from tests.support.virtual_time import now_s, run

P0, P1 = TopicIdPartition(bytes(16), 0), TopicIdPartition(bytes(16), 1)
REFUSED = PersisterError(errors.FencedStateEpochError("newer"), outcome_unknown=False)


@pytest.mark.rule("GC-103")
def test_errors_are_of_the_last_round_of_each_partition() -> None:
    async def body() -> None:
        outcomes = AdminOutcomes()
        with outcomes.waiting() as place:
            outcomes.answered(place.call_id, {P0: REFUSED, P1: REFUSED}, last=False)
            outcomes.answered(place.call_id, {P0: None})
            outcomes.failed(place.call_id, errors.NotCoordinatorError())  # the call has already ended
            assert dict(await place.end()) == {P1: REFUSED.error}

    run(body())


@pytest.mark.rule("GC-108")
def test_a_wait_has_a_bound() -> None:
    async def body() -> None:
        with AdminOutcomes().waiting() as place:
            began_s = now_s()
            with pytest.raises(errors.CoordinatorNotAvailableError, match="not ended within 50 s"):
                await place.end()
            assert now_s() - began_s == WAIT_S

    run(body())


def test_an_end_that_no_caller_waits_for_disturbs_none() -> None:
    async def body() -> None:
        outcomes = AdminOutcomes()
        with outcomes.waiting() as first, outcomes.waiting() as second:
            assert first.call_id != second.call_id
            outcomes.failed(first.call_id, errors.NotCoordinatorError("moved"))
            waiting = asyncio.ensure_future(second.end())
            await asyncio.sleep(0)
            waiting.cancel()
        outcomes.failed(second.call_id, errors.NotCoordinatorError("moved"))
        outcomes.answered(first.call_id, {P0: None})
        outcomes.failed(0, errors.NotCoordinatorError("moved"))
        await asyncio.gather(waiting, return_exceptions=True)

    run(body())
