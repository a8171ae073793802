"""When the transport resolves a peer's name again: on a new channel, which does so at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import grpc
import pytest
from grpc import aio

from kip932.api.v1.find_coordinator_pb2 import FindCoordinatorRequest, FindCoordinatorResponse
from kip932.api.v1.share_stream_pb2 import ShareStreamRequest, ShareStreamResponse
from kip932.rpc import grpc_transport
from kip932.rpc.grpc_transport import RENEW_S, GrpcTransport
from kip932.rpc.transport import Method, TransportError, TransportStatus
from tests.support.virtual_time import now_s, run, virtual

ADDRESS: Final = "share_coordinator-0:7932"
REQUEST: Final = FindCoordinatorRequest()
FIND: Final = Method("/a/Find", FindCoordinatorRequest, FindCoordinatorResponse)
STREAM: Final = Method("/a/Stream", ShareStreamRequest, ShareStreamResponse, True)
NO_ANSWER: Final = "errors resolving the name"


class FakeChannel:
    """Fails every call until a test sets another `answer`. `state`: the state of its connection, as gRPC reports it."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.state = grpc.ChannelConnectivity.TRANSIENT_FAILURE
        self.known = names.known  # like gRPC, it resolves the name once and then waits before it tries again
        self.answer: Callable[[], Coroutine[Any, Any, object]] = self._by_name
        self.grace: float | None = None

    async def _by_name(self) -> object:
        if not self.known:
            raise failure(grpc.StatusCode.UNAVAILABLE)
        return FindCoordinatorResponse()

    def unary_unary(self, path: str, **codecs: object) -> Callable[..., Coroutine[Any, Any, object]]:
        return lambda request, timeout, metadata: self.answer()

    def stream_stream(self, path: str, **codecs: object) -> Callable[..., object]:
        return lambda metadata: FakeStream(self)

    def get_state(self) -> grpc.ChannelConnectivity:
        return self.state

    async def close(self, grace: float | None = None) -> None:
        self.grace = grace


class FakeStream:
    def __init__(self, channel: FakeChannel) -> None:
        self._channel = channel
        self._cancelled = False

    async def read(self) -> object:
        try:
            return await self._channel.answer()
        except asyncio.CancelledError:  # like gRPC: cancelling a reader cancels its call
            self.cancel()
            raise

    async def write(self, message: object) -> None:
        await self.read()

    def cancel(self) -> bool:
        self._cancelled = True
        return True

    def cancelled(self) -> bool:
        return self._cancelled

    def done(self) -> bool:
        return self._cancelled

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.CANCELLED

    async def details(self) -> str:
        return "Locally cancelled by application!"

    async def trailing_metadata(self) -> aio.Metadata:
        return aio.Metadata()


class Names:
    """A name service that may know the peer, and the channels that were opened."""

    def __init__(self) -> None:
        self.known = False
        self.channels: list[FakeChannel] = []

    def open(self, address: str, options: object) -> FakeChannel:
        assert address == ADDRESS
        self.channels.append(FakeChannel(self))
        return self.channels[-1]


def failure(code: grpc.StatusCode) -> aio.AioRpcError:
    return aio.AioRpcError(code, aio.Metadata(), aio.Metadata(), NO_ANSWER)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    found = Names()
    monkeypatch.setattr(aio, "insecure_channel", found.open)
    return found


async def find(transport: GrpcTransport) -> TransportStatus | None:
    """Return the status of a failed call, or None if the call succeeded."""
    try:
        await transport.call(ADDRESS, FIND, REQUEST, 1.0)
    except TransportError as error:
        return error.status
    return None


async def until_answered(transport: GrpcTransport) -> float:
    """Repeat the call until it succeeds; return the loop's time in seconds at that moment."""
    while await find(transport) is not None:  # noqa: ASYNC110 - callers of a peer poll like this
        await asyncio.sleep(0.1)
    return now_s()


@pytest.mark.rule("CM-5")
@virtual
async def test_a_peer_whose_name_was_gone_is_reached_soon_after_it_is_back(names: Names) -> None:
    transport = GrpcTransport()
    asyncio.get_running_loop().call_later(10.0, lambda: setattr(names, "known", True))
    answered = await until_answered(transport)
    assert answered - 10.0 <= RENEW_S + 0.2
    assert len(names.channels) <= 2 + answered / RENEW_S
    await transport.close()


@pytest.mark.rule("CM-5")
@virtual
async def test_what_is_under_way_on_the_old_channel_may_end_and_close_ends_it(names: Names) -> None:
    transport = GrpcTransport()
    await find(transport)
    await asyncio.sleep(RENEW_S)
    await find(transport)
    await find(transport)
    await asyncio.sleep(0)
    first, second = names.channels
    assert first.grace == grpc_transport.RETIRE_S
    assert second.grace is None
    await transport.close()
    assert await find(transport) is TransportStatus.CANCELLED


@pytest.mark.rule("CM-5")
@virtual
async def test_a_peer_that_refuses_over_a_connection_keeps_its_channel(names: Names) -> None:
    transport = GrpcTransport()
    await find(transport)
    names.channels[0].state = grpc.ChannelConnectivity.READY
    for _ in range(5):
        await asyncio.sleep(RENEW_S)
        assert await find(transport) is TransportStatus.UNAVAILABLE
    assert len(names.channels) == 1
    await transport.close()


@pytest.mark.rule("CM-5")
@virtual
async def test_an_answer_in_between_begins_the_time_again(names: Names) -> None:
    transport = GrpcTransport()
    await find(transport)
    await asyncio.sleep(RENEW_S - 0.1)
    names.channels[0].known = True
    assert await find(transport) is None
    names.channels[0].known = False
    await asyncio.sleep(1.0)
    await find(transport)
    assert len(names.channels) == 1
    await transport.close()


@pytest.mark.rule("CM-5")
@virtual
async def test_streams_report_a_peer_that_cannot_be_reached_too(names: Names) -> None:
    transport = GrpcTransport()
    for _ in range(2):
        stream = await transport.open_stream(ADDRESS, STREAM)
        with pytest.raises(TransportError):
            await stream.read()
        await asyncio.sleep(RENEW_S)
    await transport.open_stream(ADDRESS, STREAM)
    assert len(names.channels) == 2
    await transport.close()


def test_a_call_whose_channel_is_closed_under_it_fails_and_its_caller_goes_on(names: Names) -> None:
    async def closed() -> object:
        raise asyncio.CancelledError

    async def main() -> None:
        transport = GrpcTransport()
        await find(transport)
        names.channels[0].answer = closed
        assert await find(transport) is TransportStatus.CANCELLED
        await transport.close()

    run(main())


@virtual
async def test_a_caller_that_is_cancelled_stays_so(names: Names) -> None:
    transport = GrpcTransport()
    await find(transport)
    names.channels[0].answer = asyncio.Event().wait
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(find(transport), 1.0)
    await transport.close()


@pytest.mark.rule("CM-5")
@virtual
async def test_a_message_of_a_stream_in_between_begins_the_time_again(names: Names) -> None:
    """Earlier, a client that only used streams, such as the persister, lost the channel at each later break."""

    transport = GrpcTransport()
    stream = await transport.open_stream(ADDRESS, STREAM)
    for known in (False, True, False):
        names.channels[0].known = known
        if known:
            assert await stream.read() is not None
        else:
            with pytest.raises(TransportError):
                await stream.read()
        await asyncio.sleep(3_600)
        stream = await transport.open_stream(ADDRESS, STREAM)
    assert len(names.channels) == 1
    await transport.close()


@pytest.mark.parametrize("does", ["read", "write"])
@virtual
async def test_a_streams_user_that_is_cancelled_stays_so_and_its_time_out_is_one(names: Names, does: str) -> None:
    """Earlier, the cancellation became an error of the stream, so a loop that reopens streams would have gone on."""

    transport = GrpcTransport()
    await find(transport)
    names.channels[0].answer = asyncio.Event().wait
    stream = await transport.open_stream(ADDRESS, STREAM)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await (stream.read() if does == "read" else stream.write(ShareStreamRequest()))
    user = asyncio.create_task((await transport.open_stream(ADDRESS, STREAM)).read())
    await asyncio.sleep(0)
    user.cancel()
    await asyncio.wait({user})
    assert user.cancelled()
    await transport.close()


@virtual
async def test_a_stream_whose_call_is_cancelled_under_it_fails_and_its_reader_goes_on(names: Names) -> None:
    transport = GrpcTransport()
    await find(transport)

    async def cancelled() -> object:
        raise asyncio.CancelledError

    names.channels[0].answer = cancelled
    for closed in (False, True):
        stream = await transport.open_stream(ADDRESS, STREAM)
        if closed:
            await stream.close()
        with pytest.raises(TransportError) as caught:
            await stream.read()
        assert caught.value.status is TransportStatus.CANCELLED
    await transport.close()


@virtual
async def test_a_caller_that_is_cancelled_as_the_transport_closes_stays_so(names: Names) -> None:
    """An error in place of the cancellation would be retried, and every retry fails at once: the caller would never
    end."""

    transport = GrpcTransport()
    await find(transport)
    names.channels[0].answer = asyncio.Event().wait
    caller = asyncio.create_task(until_answered(transport))
    await asyncio.sleep(0)
    caller.cancel()
    await transport.close()
    await asyncio.wait({caller}, timeout=60.0)
    assert caller.cancelled()


async def _delayed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    while data := await reader.read(65_536):
        await asyncio.sleep(delay_s)
        writer.write(data)
        await writer.drain()


@pytest.mark.rule("CL-187")
def test_a_node_whose_connection_takes_longer_than_a_second_is_reached() -> None:
    """Shows the time within which it is reached, not when it is given up."""

    async def story() -> None:
        server = aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            to, back = await asyncio.open_connection("127.0.0.1", port)
            writers.extend((writer, back))
            await asyncio.gather(_delayed(reader, back, 0), _delayed(to, writer, 1.1), return_exceptions=True)

        writers: list[asyncio.StreamWriter] = []

        async with await asyncio.start_server(connected, "127.0.0.1", 0) as proxy:
            transport = GrpcTransport()
            address = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
            try:
                with pytest.raises(TransportError) as error:
                    await transport.call(address, FIND, REQUEST, 20)
                assert error.value.status is TransportStatus.UNIMPLEMENTED, "the node was reached"
            finally:
                await transport.close()
                for writer in writers:
                    writer.close()
                await server.stop(0)

    asyncio.run(story())
