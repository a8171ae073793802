"""The spans of requests on a share stream: each ends once, also if the stream ends before its answer is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from google.protobuf.message import Message
from opentelemetry.trace import StatusCode

from kip932.api.v1 import share_stream_pb2
from tests.support.telemetry import Collected, node_telemetry

from .test_stream import Stream, play
from .worlds import World, settle

SENDER = 0xB7AD6B7169203331
TRACEPARENT = f"00-0af7651916cd43dd8448eb211c80319c-{SENDER:016x}-01"
FETCH = "kip932.api.v1.PartitionLeaderService/ShareFetch"
ACKNOWLEDGE = "kip932.api.v1.PartitionLeaderService/ShareAcknowledge"
End = Callable[[World, Stream, "asyncio.Task[None]"], Coroutine[Any, Any, None]]


class Broken(Stream):
    """A stream whose answers cannot be written once `readable` is not set."""

    async def write(self, message: Message) -> None:
        if not self.readable.is_set():
            raise ConnectionResetError
        await super().write(message)


@pytest.fixture
def collected() -> Iterator[Collected]:
    with node_telemetry() as found:
        yield found


def outcomes(collected: Collected) -> list[tuple[str, object]]:
    """Return what the ended spans of requests say, in order."""
    return [
        (span.name.rpartition("/")[2], (span.attributes or {}).get("error.type"))
        for span in collected.spans()
        if span.name in (FETCH, ACKNOWLEDGE)
    ]


async def cancelled(_world: World, _stream: Stream, served: asyncio.Task[None]) -> None:
    """The call is cancelled, as gRPC does when a client dies."""
    served.cancel()


async def refused(_world: World, stream: Stream, _served: asyncio.Task[None]) -> None:
    """The client sends what no request may be."""
    stream.incoming.put_nowait(share_stream_pb2.ShareStreamRequest(correlation_id=9))


async def half_closed(_world: World, stream: Stream, _served: asyncio.Task[None]) -> None:
    """The client sends no more, and one of its requests takes longer than the leader waits for it."""
    stream.incoming.put_nowait(None)
    await asyncio.sleep(120)


async def unwritable(_world: World, stream: Stream, _served: asyncio.Task[None]) -> None:
    """An answer cannot be written."""
    stream.readable.clear()
    stream.accept(9, 7, 0, 0)  # refused at once: it is out of turn


@pytest.mark.rule("CM-216")
@pytest.mark.parametrize("end", [cancelled, refused, half_closed, unwritable])
def test_requests_that_their_stream_left_unanswered_end_their_spans_with_a_status(
    collected: Collected, end: End
) -> None:
    async def scenario(world: World, stream: Stream, served: asyncio.Task[None]) -> None:
        await world.produce(3)
        stream.fetch(1, 0, traceparent=TRACEPARENT)
        await settle()
        assert outcomes(collected) == [("ShareFetch", None)]
        world.persister.hold("write")
        stream.accept(2, 1, 0, 2, traceparent=TRACEPARENT)
        stream.fetch(3, 2, max_wait_ms=200_000, traceparent=TRACEPARENT)
        await settle()
        assert collected.unended() == [ACKNOWLEDGE, FETCH]
        await end(world, stream, served)
        await settle()
        assert collected.unended() == []
        world.persister.let_go("write")
        await settle()
        assert collected.unended() == []

    play(scenario, kind=Broken)
    answered = end is half_closed  # the parked fetch at once, the acknowledgement when its write takes too long
    assert dict(outcomes(collected)[1:]) == {
        "ShareAcknowledge": "UNKNOWN_SERVER_ERROR" if answered else "CANCELLED",
        "ShareFetch": None if answered else "CANCELLED",
    }
    failed = [span for span in collected.spans() if "error.type" in (span.attributes or {})]
    assert {span.status.status_code for span in failed} == {StatusCode.ERROR}


@pytest.mark.rule("CM-216")
def test_a_refusal_that_waits_ends_its_span_with_its_stream(collected: Collected) -> None:
    async def scenario(_world: World, stream: Stream, served: asyncio.Task[None]) -> None:
        stream.fetch(1, 0, group="h", max_wait_ms=60_000, traceparent=TRACEPARENT)
        await settle()
        assert collected.unended() == [FETCH]
        served.cancel()
        await settle()
        assert collected.unended() == []

    play(scenario, sessions_max=0)
    assert outcomes(collected) == [("ShareFetch", "CANCELLED")]


@pytest.mark.rule("CM-216")
@pytest.mark.parametrize(
    "sent", ["0" * 10_000_000, f"{TRACEPARENT}\x00\x1b[2J", "\r\n" * 20, f"{TRACEPARENT}," * 1_000],
    ids=["10 MB", "control characters", "line ends", "1,000 entries"],
)  # fmt: skip
def test_a_forged_traceparent_changes_nothing(collected: Collected, sent: str) -> None:
    async def scenario(world: World, stream: Stream, _served: asyncio.Task[None]) -> None:
        await world.produce(3)
        stream.fetch(1, 0, traceparent=sent)
        await settle()
        stream.accept(2, 1, 0, 2, traceparent=sent)
        await settle()
        assert stream.answers[2].acknowledge.responses[0].partitions[0].error_code == 0

    play(scenario)
    assert collected.spans() == []
