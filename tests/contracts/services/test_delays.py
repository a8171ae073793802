"""A record released with a delay is redelivered when the delay is over; an invalid delay changes nothing."""

from __future__ import annotations

import pytest

from tests.integration.scenarios.sessions import ACCEPT, RELEASE, acquired, part
from tests.integration.scenarios.wire import attempts

from .hosting import Services, contract
from .members import opened, produced, topic

INVALID_REQUEST = 42
DAY_MS = 86_400_000


@pytest.mark.rule("PL-930", "PL-931")
@contract
async def test_released_records_wait_for_their_delay(services: Services) -> None:
    place = await topic(services)
    worker = await opened(services, place)
    await produced(services, place, 5)
    answer = await worker.fetch()
    assert answer.release_delay_max_ms == DAY_MS
    assert acquired(answer) == [(0, 4, 1)]
    for wrong in (
        (0, 1, [RELEASE, ACCEPT], [0, 0]),
        (0, 1, [RELEASE], [5, 5, 5]),
        (0, 1, [RELEASE], [-2]),
        (0, 1, [RELEASE], [DAY_MS + 1]),
    ):
        refused = part(await worker.acknowledge((4, 4, [ACCEPT]), wrong))
        assert refused.error_code == INVALID_REQUEST
        assert part(await worker.acknowledge(wrong)).error_code == INVALID_REQUEST
    batches = (0, 2, [RELEASE], [1_500, 0, -1]), (3, 4, [RELEASE, ACCEPT], [DAY_MS, -1])
    released = part(await worker.acknowledge(*batches))
    assert released.error_code == 0, released.error_message
    found = acquired(await worker.fetch(wait_ms=500))
    assert found == [(1, 2, 2)], "a delay of 0 means at once, and -1 means that none is given"
    async for _ in attempts():
        if found := acquired(await worker.fetch(wait_ms=500)):
            break
    assert found == [(0, 0, 2)]
    assert await services.lag(worker.group, place.name) == (0, 4), "a delayed record must still count as lag"
