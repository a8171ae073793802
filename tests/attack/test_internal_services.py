"""The client port does not serve the services for nodes, and these refuse numbers that no node can mean
(CM-80…CM-83)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kip932.errors import InvalidRequestError, UnknownServerError
from kip932.internal.v1 import write_share_group_state_pb2 as write_pb
from kip932.rpc.transport import TransportError, TransportStatus
from share_coordinator.core.plausible import EPOCH_ZERO_MS
from tests.integration.scenarios.sessions import Session
from tests.integration.scenarios.wire import METHODS, Wire, attempts
from tests.support.node import QUICK, Cluster, unique

pytestmark = [pytest.mark.attack, pytest.mark.asyncio]

STATE_METHODS = (
    "InitializeShareGroupState",
    "ReadShareGroupState",
    "WriteShareGroupState",
    "DeleteShareGroupState",
    "ReadShareGroupStateSummary",
    "ReadTopicStartOffsets",
)
END_OF_ALL_OFFSETS = 2**62 - 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(QUICK) as running:
        yield running


async def _refused(wire: Wire, name: str) -> TransportStatus:
    with pytest.raises(TransportError) as refused:
        await wire.call(name, METHODS[name].request_type())
    return refused.value.status


def _asking(name: str) -> Any:
    """Return a request that gets a response; most may be empty."""
    return METHODS[name].request_type(**({"topic_ids": [bytes(16)]} if name == "ReadTopicStartOffsets" else {}))


@pytest.mark.rule("CM-80")
@pytest.mark.parametrize("name", STATE_METHODS)
async def test_the_client_port_serves_none_of_it(cluster: Cluster, name: str) -> None:
    async with Wire(cluster.bootstrap, cluster.internal) as wire:
        assert await _refused(wire, name) is TransportStatus.UNIMPLEMENTED
        await wire.call(name, _asking(name), cluster.internal)


@pytest.mark.rule("CM-80")
async def test_nor_its_stream(cluster: Cluster) -> None:
    async with Wire(cluster.bootstrap) as wire:
        stream = await wire.transport.open_stream(cluster.bootstrap, METHODS["StateStream"])
        with pytest.raises(TransportError) as refused:
            async with asyncio.timeout(20):
                await stream.read()
        assert refused.value.status is TransportStatus.UNIMPLEMENTED


async def _write(wire: Wire, session: Session, start_offset: int, address: str) -> int:
    """Send a WriteShareGroupState that no fence refuses; return its error code."""
    request = write_pb.WriteShareGroupStateRequest(group_id=session.group)
    leader_epoch = (int(time.time() * 1000) - EPOCH_ZERO_MS) // 1000 + 3_600  # above any that a leader here has claimed
    request.topics.add(topic_id=session.topic_id).partitions.add(
        partition=0, state_epoch=50_000, leader_epoch=leader_epoch, start_offset=start_offset
    )
    answer = await wire.call("WriteShareGroupState", request, address)
    return int(answer.results[0].partitions[0].error_code)


async def _never_read(wire: Wire) -> Session:
    """Return a member of a group whose share-partition no leader has loaded yet."""
    topic, group = unique("t"), unique("g")
    topic_id = await wire.create_topic(topic)
    return Session(wire, group, await wire.join(group, [topic]), topic_id)


@pytest.mark.rule("CM-80", "CM-82")
async def test_no_caller_moves_a_logs_end_to_the_end_of_all_offsets(cluster: Cluster) -> None:
    async with Wire(cluster.bootstrap, cluster.internal) as wire:
        session = await _never_read(wire)
        with pytest.raises(TransportError) as refused:
            await _write(wire, session, END_OF_ALL_OFFSETS, cluster.bootstrap)
        assert refused.value.status is TransportStatus.UNIMPLEMENTED
        assert await _write(wire, session, END_OF_ALL_OFFSETS, cluster.internal) == InvalidRequestError.code
        await session.open()
        assert await wire.produce(session.topic_id, 3) == 0
        assert await session.acquire() == [(0, 2, 1)]
    assert '"implausible_value_refused"' in cluster.node.errors


@pytest.mark.rule("CM-83")
async def test_a_leader_does_not_believe_state_far_beyond_its_log(cluster: Cluster) -> None:
    """The share coordinator cannot refuse such state: it stores any offset that a log might have reached."""
    async with Wire(cluster.bootstrap, cluster.internal) as wire:
        session = await _never_read(wire)
        assert await _write(wire, session, 50_000_000, cluster.internal) == 0
        async for _ in attempts():
            answer = await session.fetch(epoch=0, min_bytes=0)
            codes = {part.error_code for topic in answer.responses for part in topic.partitions}
            if codes - {0}:
                break
        assert codes == {UnknownServerError.code}
        assert await wire.produce(session.topic_id, 3) == 0
    assert '"state_beyond_log_end"' in cluster.node.errors
