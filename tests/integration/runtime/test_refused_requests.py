"""A refused request is freed immediately: nothing keeps it alive until Python collects reference cycles (CM-181)."""

from __future__ import annotations

import gc
from types import FrameType
from typing import Any, Final

import grpc
import pytest

from kip932.api.v1 import partition_leader_service_pb2 as service_pb
from kip932.api.v1 import produce_pb2
from kip932.errors import InvalidRequestError
from shard_runtime.rpc import adapter
from shard_runtime.rpc.fields import ENTRY_BYTES, FIELDS_MAX
from shard_runtime.rpc.server import RpcServer

pytestmark = pytest.mark.asyncio

SERVICE: Final = service_pb.DESCRIPTOR.services_by_name["PartitionLeaderService"]
PATH: Final = f"/{SERVICE.full_name}/"
LARGE: Final = 200_000
#: An empty topic, as encoded in a Produce request.
EMPTY_TOPIC: Final = bytes([produce_pb2.ProduceRequest.DESCRIPTOR.fields_by_name["topic_data"].number << 3 | 2, 0])
REQUEST: Final = produce_pb2.ProduceStreamRequest.DESCRIPTOR.fields_by_name["request"].number << 3 | 2


class Leader:
    """Refuses every Produce; records the memory that each request uses, for a stream that of its first message."""

    def __init__(self) -> None:
        self.weights: list[int] = []

    async def produce(self, request: produce_pb2.ProduceRequest, context: Any) -> produce_pb2.ProduceResponse:
        self.weights.append(context.share._budget.held(context.share.holder))
        raise InvalidRequestError(f"{len(request.topic_data)} topics")

    async def produce_stream(self, stream: Any) -> None:
        message = await stream.read()
        self.weights.append(stream.context.message_bytes)
        raise InvalidRequestError(f"{len(message.request.topic_data)} topics")


async def refused(server: RpcServer, method: str, body: bytes) -> str:
    """Return the reason why a call with this request was refused; the status must be INVALID_ARGUMENT."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        if method == "ProduceStream":
            call: Any = channel.stream_stream(PATH + method)()
            await call.write(body)
            answered = call.read()
        else:
            unary: Any = channel.unary_unary(PATH + method)
            answered = unary(body)
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await answered
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    return failure.value.details() or ""


def framed(method: str, topics: bytes) -> bytes:
    """Return these topics, encoded as a request of this method."""
    if method == "Produce":
        return topics
    size, head = len(topics), bytearray([REQUEST])
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*head, size]) + topics


def keepers() -> list[FrameType]:
    """Return the adapter's stack frames that still hold a large request, or a copy of it."""
    return [
        found
        for found in gc.get_objects()
        if isinstance(found, FrameType)
        and found.f_code.co_filename == adapter.__file__
        and any(isinstance(held, bytes) and len(held) >= LARGE for held in gc.get_referents(found))
    ]


@pytest.mark.rule("CM-181")
@pytest.mark.parametrize("method", ["Produce", "ProduceStream"])
@pytest.mark.parametrize("entries", [LARGE // 2, FIELDS_MAX], ids=["by its service", "for its fields"])
async def test_a_refused_request_is_freed_at_once_and_its_entries_weigh(method: str, entries: int) -> None:
    leader = Leader()
    server = RpcServer("127.0.0.1")
    server.add(SERVICE, leader)
    await server.start()
    body = framed(method, EMPTY_TOPIC * (entries if entries < FIELDS_MAX else entries + 1))
    gc.collect()
    gc.disable()
    try:
        reasons = [await refused(server, method, body) for _ in range(3)]
        await server.drain(5.0)
        assert keepers() == []
    finally:
        gc.enable()
    if entries < FIELDS_MAX:
        assert reasons == [f"{entries} topics"] * 3
        weight = len(body) + ENTRY_BYTES * (entries + (method == "ProduceStream"))
        assert leader.weights == [weight] * 3
    else:
        assert all(f"more than {FIELDS_MAX} fields" in reason for reason in reasons)
        assert leader.weights == []
    assert server.budget.used_bytes == 0
