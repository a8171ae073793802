"""Responses to ListShareProgress; each row is of what its node leads."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.api.v1.list_share_progress_pb2 import ListShareProgressRequest
from kip932.ids import PROGRESS_ROWS_MAX
from kip932.rpc.transport import TransportError, TransportStatus
from tests.integration.scenarios.sessions import ACCEPT, offsets
from tests.integration.scenarios.wire import attempts

from .hosting import Services, contract
from .members import Topic, member, other_node, produced, topic


async def listed(services: Services, address: str, **fields: Any) -> list[tuple[str, int, int, int]]:
    """Return group, partition, lag and records in flight of each row."""
    answer = await services.call("ListShareProgress", ListShareProgressRequest(**fields), address)
    assert answer.error_code == 0, answer.error_message
    assert answer.total == len(answer.rows)
    return [(row.group_id, row.partition_index, row.lag, row.in_flight) for row in answer.rows]


async def until(services: Services, place: Topic, expected: list[tuple[str, int, int, int]], **fields: Any) -> None:
    """Wait for rows: they may be a second old."""
    found = []
    async for _ in attempts():
        found = await listed(services, place.leaders[0], topic_names=[place.name], **fields)
        if found == expected:
            return
    raise AssertionError(f"{found}; expected {expected}")


@contract
async def test_a_leader_lists_the_groups_that_have_fetched_from_it(services: Services) -> None:
    place = await topic(services)
    await produced(services, place, 4)
    session = await member(services, place)
    assert sorted(offsets(await session.fetch())) == [0, 1, 2, 3]
    await until(services, place, [(session.group, -1, 4, 4)])
    await session.acknowledge((0, 1, [ACCEPT]))
    await until(services, place, [(session.group, -1, 2, 2)])
    await until(services, place, [(session.group, 0, 2, 2)], by_partition=True, group_ids=[session.group], limit=5)
    assert await listed(services, place.leaders[0], topic_names=[place.name], group_ids=["unknown"]) == []
    assert await listed(services, await other_node(services, place), topic_names=[place.name]) == []


@contract
async def test_a_limit_above_the_largest_is_refused(services: Services) -> None:
    request = ListShareProgressRequest(limit=PROGRESS_ROWS_MAX + 1)
    with pytest.raises(TransportError) as refused:
        await services.call("ListShareProgress", request)
    assert refused.value.status is TransportStatus.INVALID_ARGUMENT
