"""Bounds on one request (CM-62): how many items it may name, and how many bytes it may have before it is parsed."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from group_coordinator.service import DESCRIPTIONS_BYTES_MAX
from group_coordinator.service_offsets import DESCRIBED_PARTITIONS_MAX
from kip932 import ids
from kip932.api.v1 import list_offsets_pb2 as pb
from kip932.api.v1 import partition_leader_service_pb2 as service_pb
from kip932.errors import InvalidRequestError
from kip932.failures import FAILURES_MAX
from kip932.ids import ACKNOWLEDGED_RANGES_MAX, PRODUCED_BATCHES_MAX, REQUEST_PARTITIONS_MAX
from kip932.rpc.transport import TransportError, TransportStatus, service_methods
from shard_runtime.config.process_settings import REQUEST_MAX_BYTES, load_settings
from shard_runtime.rpc.binding import bind
from shard_runtime.rpc.bounds import (
    check_batches,
    check_configs,
    check_groups,
    check_partitions,
    check_ranges,
    check_state_batches,
    check_topics,
)
from shard_runtime.rpc.status import RpcFailureError
from shard_runtime.rpc.table import RequestSize
from tests.support.virtual_time import virtual
from tests.twin.transport import InMemoryNetwork

SERVICE = service_pb.DESCRIPTOR.services_by_name["PartitionLeaderService"]
LISTS_BYTES_MAX: Final = RequestSize.LISTS.value


def topics(*partitions: int) -> list[pb.ListOffsetsRequest.Topic]:
    partition = pb.ListOffsetsRequest.Partition()
    return [pb.ListOffsetsRequest.Topic(partitions=[partition] * count) for count in partitions]


@pytest.mark.rule("CM-62")
def test_partitions_of_all_lists_count_together_and_empty_topics_too() -> None:
    check_partitions((topics(REQUEST_PARTITIONS_MAX - 1, 1), "partitions"))
    check_partitions((topics(REQUEST_PARTITIONS_MAX - 1), "partitions"), (topics(1), "partitions"))
    check_partitions()
    for lists in (
        [topics(REQUEST_PARTITIONS_MAX, 1)],
        [topics(REQUEST_PARTITIONS_MAX), topics(1)],
        [topics(*[0] * (REQUEST_PARTITIONS_MAX + 1))],
    ):
        with pytest.raises(InvalidRequestError, match=f"at most {REQUEST_PARTITIONS_MAX} go into one request"):
            check_partitions(*((one, "partitions") for one in lists))


@pytest.mark.rule("CM-91", "CM-94", "CM-113")
def test_the_bounds_are_those_of_the_rules() -> None:
    settings = load_settings({})
    found = {
        "bytes of a request with record batches or state": settings[REQUEST_MAX_BYTES],
        "bytes of any other": LISTS_BYTES_MAX,
        "groups described": ids.REQUEST_GROUPS_MAX,
        "bytes of several descriptions": DESCRIPTIONS_BYTES_MAX,
        "partitions of all groups whose offsets are described": DESCRIBED_PARTITIONS_MAX,
        "configs": ids.REQUEST_CONFIGS_MAX,
        "partitions of a session": ids.SESSION_PARTITIONS_MAX,
        "characters of a coordinator key": ids.COORDINATOR_KEY_MAX,
        "acknowledged ranges": ACKNOWLEDGED_RANGES_MAX,
        "batches of a share-partition": ids.SHARE_PARTITION_BATCHES_MAX,
        "batches of a write, and offsets whose batches a summary asks for": ids.STATE_BATCHES_MAX,
        "those of one share-partition": ids.EXPLAINED_OFFSETS_MAX,
        "batches of a Produce": PRODUCED_BATCHES_MAX,
        "batches of one of its partitions": ids.PARTITION_BATCHES_MAX,
    }
    assert list(found.values()) == [
        8 << 20, 1 << 20, 1_000, 16 << 20, 200_000, 10_000, 50_000, 290, 5_000, 10_000, 50_000, 1_000, 10_000, 512,
    ], found  # fmt: skip


@pytest.mark.rule("CM-62")
def test_batches_and_acknowledged_ranges_are_bounded() -> None:
    check_batches(PRODUCED_BATCHES_MAX)
    check_ranges(ACKNOWLEDGED_RANGES_MAX)
    with pytest.raises(InvalidRequestError, match="record batches"):
        check_batches(PRODUCED_BATCHES_MAX + 1)
    with pytest.raises(InvalidRequestError, match="ranges of offsets"):
        check_ranges(ACKNOWLEDGED_RANGES_MAX + 1)


@pytest.mark.rule("CM-62")
def test_topics_groups_group_ids_and_configs_are_bounded() -> None:
    check_topics(ids.CHANGED_TOPICS_MAX)
    check_groups(ids.REQUEST_GROUPS_MAX, ["g", "i" * ids.GROUP_ID_MAX])
    check_groups(0, [])
    check_configs(ids.REQUEST_CONFIGS_MAX)
    with pytest.raises(InvalidRequestError, match=f"names {ids.CHANGED_TOPICS_MAX + 1} topics; at most"):
        check_topics(ids.CHANGED_TOPICS_MAX + 1)
    with pytest.raises(InvalidRequestError, match=f"{ids.REQUEST_GROUPS_MAX + 1} groups were asked for"):
        check_groups(ids.REQUEST_GROUPS_MAX + 1, ["g"])
    with pytest.raises(InvalidRequestError, match=f"a group id has {ids.GROUP_ID_MAX + 1} characters"):
        check_groups(1, ["g", "i" * (ids.GROUP_ID_MAX + 1)])
    with pytest.raises(InvalidRequestError, match=f"names {ids.REQUEST_CONFIGS_MAX + 1} configs"):
        check_configs(ids.REQUEST_CONFIGS_MAX + 1)


@pytest.mark.rule("CM-62")
def test_the_state_batches_of_a_write_are_bounded_for_each_share_partition_and_together() -> None:
    most, together = ids.SHARE_PARTITION_BATCHES_MAX, ids.STATE_BATCHES_MAX
    full = [most] * (together // most)
    check_state_batches([])
    check_state_batches(full)
    with pytest.raises(InvalidRequestError, match=f"the request brings {together + 1} state batches"):
        check_state_batches([*full, together - sum(full) + 1])
    with pytest.raises(InvalidRequestError, match=f"a share-partition has {most + 1} state batches"):
        check_state_batches([1, most + 1])


@pytest.mark.rule("CM-62", "SC-117")
def test_reasons_of_failures_count_with_the_state_batches() -> None:
    check_state_batches([9_000] * 5, [0, FAILURES_MAX, 0, 0, 0])
    with pytest.raises(InvalidRequestError, match="45000 state batches and 5001 reasons of failures; together at most"):
        check_state_batches([9_000] * 5, [1, FAILURES_MAX, 0, 0, 0])
    with pytest.raises(InvalidRequestError, match=f"a share-partition has {FAILURES_MAX + 1} reasons of failures"):
        check_state_batches([0, 0], [1, FAILURES_MAX + 1])


class Leader:
    async def list_offsets(self, _request: Any, _context: Any) -> pb.ListOffsetsResponse:
        return pb.ListOffsetsResponse()

    async def produce(self, _request: Any, _context: Any) -> Any:
        raise AssertionError("not called")

    async def share_stream(self, stream: Any) -> None:
        while await stream.read() is not None:
            pass


@pytest.mark.rule("CM-62")
def test_a_service_bounds_the_bytes_of_a_request_before_it_is_parsed() -> None:
    bound = {one.method.name: one for one in bind(SERVICE, Leader())}
    assert bound["Produce"].request_bytes_max is None
    text = f"the request of ListOffsets has {LISTS_BYTES_MAX + 1} bytes; at most {LISTS_BYTES_MAX}"
    with pytest.raises(RpcFailureError, match=text):
        bound["ListOffsets"].parse(b"\xff" * (LISTS_BYTES_MAX + 1))


@pytest.mark.rule("CM-62")
@virtual
async def test_a_request_that_is_too_large_is_an_invalid_argument_for_calls_and_streams() -> None:
    network = InMemoryNetwork()
    network.serve("leader:1", SERVICE, Leader())
    transport, methods = network.transport(), service_methods(SERVICE)
    small = pb.ListOffsetsRequest(topics=topics(1))
    await transport.call("leader:1", methods["ListOffsets"], small, 5)
    large = pb.ListOffsetsRequest(topics=[pb.ListOffsetsRequest.Topic(topic_id=bytes(LISTS_BYTES_MAX))])
    with pytest.raises(TransportError, match=f"at most {LISTS_BYTES_MAX}") as refused:
        await transport.call("leader:1", methods["ListOffsets"], large, 5)
    assert refused.value.status is TransportStatus.INVALID_ARGUMENT
    stream = await transport.open_stream("leader:1", methods["ShareStream"])
    message: Any = methods["ShareStream"].request_type()
    message.fetch.group_id = "g" * LISTS_BYTES_MAX
    await stream.write(message)
    with pytest.raises(TransportError, match=f"at most {LISTS_BYTES_MAX}") as ended:
        await asyncio.wait_for(stream.read(), 30)
    assert ended.value.status is TransportStatus.INVALID_ARGUMENT
    await transport.close()
