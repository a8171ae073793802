"""A member says why it gives records up, and the leader keeps that until the group is finished with them."""

from __future__ import annotations

import pytest

from kip932.api.v1.explain_record_pb2 import ExplainRecordRequest
from kip932.failures import REASON_BYTES_MAX
from tests.integration.scenarios.sessions import ACCEPT, REJECT, RELEASE, AckBatch, Session, acquired, part
from tests.integration.scenarios.wire import attempts

from .hosting import Services, contract
from .members import opened, produced, topic

INVALID_REQUEST = 42
NONE = ("", 0)


async def said(services: Services, worker: Session, count: int) -> list[tuple[str, int]]:
    """Return the reasons of the first `count` records, each with the delivery count that it was given at."""
    asked = ExplainRecordRequest(group_id=worker.group, topic_id=worker.topic_id, offset=0, last_offset=count - 1)
    answer = await services.call("ExplainRecord", asked, worker.address)
    assert answer.error_code == 0, answer.error_message
    return [
        (record.reason, record.reason_delivery_count)
        for record in answer.records
        for _ in range(record.first_offset, record.last_offset + 1)
    ]


@pytest.mark.rule("PL-942", "PL-944")
@contract
async def test_reasons_are_kept_with_the_records_that_a_member_gave_up(services: Services) -> None:
    """Shows (a), (b) and (c), except after a fail-over."""
    place = await topic(services)
    worker = await opened(services, place)
    await produced(services, place, 5)
    assert acquired(await worker.fetch()) == [(0, 4, 1)]
    most = "é" * (REASON_BYTES_MAX // 2)
    failed: AckBatch = (1, 2, [RELEASE, ACCEPT], [], "ValueError: a")
    given = part(await worker.acknowledge(failed, (3, 3, [REJECT], [], most), (4, 4, [RELEASE])))
    assert given.error_code == 0, given.error_message
    assert await said(services, worker, 5) == [NONE, ("ValueError: a", 1), NONE, (most, 1), NONE]
    async for _ in attempts():
        if found := acquired(await worker.fetch(wait_ms=500)):
            break
    assert found == [(1, 1, 2), (4, 4, 2)]
    late = await worker.acknowledge((1, 1, [RELEASE]), (4, 4, [RELEASE], [], "late"))
    assert part(late).error_code == 0
    assert await said(services, worker, 5) == [NONE, ("ValueError: a", 1), NONE, (most, 1), ("late", 2)]
    assert await worker.ack(0, 0, ACCEPT) == 0
    assert (await said(services, worker, 5))[1] == ("ValueError: a", 1), "it is not finished yet"


@pytest.mark.rule("PL-942")
@contract
async def test_a_reason_that_is_too_long_or_of_records_that_are_not_given_up_is_refused(services: Services) -> None:
    """Shows the refusals of (a)."""
    place = await topic(services)
    worker = await opened(services, place)
    await produced(services, place, 3)
    assert acquired(await worker.fetch()) == [(0, 2, 1)]
    invalid: list[AckBatch] = [
        (0, 0, [RELEASE], [], "x" * (REASON_BYTES_MAX + 1)),
        (0, 0, [REJECT], [], "é" * (REASON_BYTES_MAX // 2) + "x"),
        (0, 1, [ACCEPT, ACCEPT], [], "x"),
    ]
    for wrong in invalid:
        assert part(await worker.acknowledge(wrong)).error_code == INVALID_REQUEST
        refused = part(await worker.acknowledge(wrong, (2, 2, [REJECT], [], "y")))
        assert refused.error_code == INVALID_REQUEST
    assert await said(services, worker, 3) == [NONE] * 3
    assert await worker.ack(0, 2, ACCEPT) == 0, "nothing was applied before"
