"""A record that is not acknowledged in time becomes available again, unless its lock is renewed."""

from __future__ import annotations

from tests.integration.scenarios.sessions import ACCEPT, RENEW, acquired, another, part
from tests.integration.scenarios.wire import attempts

from .hosting import Services, contract
from .members import member, produced, topic

INVALID_RECORD_STATE = 121


@contract
async def test_locks_run_out_unless_they_are_renewed(services: Services) -> None:
    place = await topic(services)
    late = await member(services, place)
    await services.lock_ms(late.group, 2_000)
    await late.open()
    next_one = await another(late, place.name)
    next_one.address = late.address
    await next_one.open()
    await produced(services, place, 3)
    answer = await late.fetch()
    assert answer.acquisition_lock_timeout_ms == 2_000
    assert acquired(answer) == [(0, 2, 1)]
    assert await late.ack(2, 2, ACCEPT) == 0
    async for _ in attempts():
        renewed = await late.acknowledge((1, 1, [RENEW]), renew=True)
        assert part(renewed).error_code == 0
        if found := acquired(await next_one.fetch(wait_ms=200)):
            break
    assert found == [(0, 0, 2)], "the one that was neither renewed nor accepted"
    assert await late.ack(0, 0, ACCEPT) == INVALID_RECORD_STATE
    assert await late.ack(1, 1, ACCEPT) == 0
    assert await next_one.ack(0, 0, ACCEPT) == 0
    assert await services.lag(late.group, place.name) == (3, 0)
