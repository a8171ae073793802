"""The persister's stream to a node that asks it to move to another connection (CM-194)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932.internal.v1.state_stream_pb2 import StateStreamRequest, StateStreamResponse
from kip932.internal.v1.write_share_group_state_pb2 import WriteShareGroupStateRequest
from kip932.rpc.transport import TransportError
from kip932.state_values import WriteState
from share_persister.client import StateStream
from tests.support.virtual_time import virtual


class _Stream:
    """A stream of which the test writes the responses."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sent: list[int] = []
        self.answers: asyncio.Queue[StateStreamResponse | None] = asyncio.Queue()
        self.left = self.closed = False

    async def write(self, message: StateStreamRequest) -> None:
        self.sent.append(message.correlation_id)

    async def read(self) -> StateStreamResponse | None:
        return await self.answers.get()

    def leave_connection(self) -> None:
        self.left = True

    async def close(self) -> None:
        self.closed = True


class _Transport:
    def __init__(self) -> None:
        self.streams: list[_Stream] = []

    async def open_stream(self, address: str, method: Any) -> _Stream:
        self.streams.append(_Stream(len(self.streams)))
        return self.streams[-1]


def _write(stream: StateStream) -> asyncio.Task[Any]:
    return asyncio.create_task(stream.request(WriteState, WriteShareGroupStateRequest(group_id="g"), 5.0))


@pytest.mark.rule("CM-194")
@virtual
async def test_requests_under_way_are_answered_before_the_next_goes_over_a_new_connection() -> None:
    transport = _Transport()
    stream = StateStream(transport, "node")  # type: ignore[arg-type]
    first = _write(stream)
    await asyncio.sleep(1)
    (old,) = transport.streams
    old.answers.put_nowait(StateStreamResponse(move=True))
    await asyncio.sleep(1)
    second = _write(stream)
    await asyncio.sleep(1)
    assert (old.sent, old.left, len(transport.streams)) == ([1], False, 1)
    old.answers.put_nowait(StateStreamResponse(correlation_id=1))
    await asyncio.sleep(1)
    assert (await first).correlation_id == 1
    (_, new) = transport.streams
    assert (old.left, old.closed, new.sent) == (True, True, [2])
    new.answers.put_nowait(StateStreamResponse(correlation_id=2))
    assert (await second).correlation_id == 2
    third = _write(stream)
    await asyncio.sleep(1)
    assert new.sent == [2, 3]
    new.answers.put_nowait(StateStreamResponse(correlation_id=3))
    await third
    await stream.close()


@pytest.mark.rule("CM-194")
@virtual
async def test_a_stream_that_breaks_before_it_moved_fails_what_was_under_way_only() -> None:
    transport = _Transport()
    stream = StateStream(transport, "node")  # type: ignore[arg-type]
    first = _write(stream)
    await asyncio.sleep(1)
    (old,) = transport.streams
    old.answers.put_nowait(StateStreamResponse(move=True))
    await asyncio.sleep(1)
    second = _write(stream)
    await asyncio.sleep(1)
    old.answers.put_nowait(None)
    with pytest.raises(TransportError):
        await first
    await asyncio.sleep(1)
    assert transport.streams[-1].sent == [2]
    transport.streams[-1].answers.put_nowait(StateStreamResponse(correlation_id=2))
    await second
    await stream.close()
