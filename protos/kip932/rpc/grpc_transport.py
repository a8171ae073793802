"""The Transport over gRPC: one long-lived channel per address, used by client and services alike.

It depends only on grpcio and protobuf. It never retries: the callers hold the epochs of heartbeats, fetches and
acknowledgements, so they retry.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Generic, Protocol

from google.protobuf import any_pb2, duration_pb2, empty_pb2
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from kip932 import handshakes
from kip932.grpc_library import FORKLESS, choosing
from kip932.rpc.transport import ClientStream, Method, RequestT, ResponseT, TransportError, TransportStatus

# Unless GRPC_ENABLE_FORK_SUPPORT is set, gRPC's fork support is of no use to a Python program, but its handlers run at
# each fork and can hang children, such as those of a Pool in a worker's handler.
with choosing(FORKLESS):
    import grpc
    from grpc import aio

MESSAGE_MAX_BYTES: Final = 64 * 1024 * 1024
#: Both sides use the same keepalive time. The server refuses pings that arrive at intervals of less than half that
#: time.
KEEPALIVE_MS: Final = 20_000
KEEPALIVE_TIMEOUT_MS: Final = 10_000
#: When a peer could not be reached for this many seconds, the transport opens a new channel to it. An old channel
#: resolves the peer's name only after pauses that grow to two minutes, and caches an answer for half a minute. That is
#: too long for a node that restarts while its name cannot be resolved, or comes back with another address.
RENEW_S: Final = 2.0
#: Calls in flight on the old channel have this many seconds to end.
RETIRE_S: Final = 5.0
#: The same for a channel that works, and was replaced because its connection is reaching its maximum age or there are
#: newer credentials. Nodes close an old connection sooner (CM-194).
REPLACED_S: Final = 120.0
#: How often a call checks for newer credentials, in seconds.
CREDENTIALS_S: Final = 1.0

#: How long an attempt to connect may take, ms. Within this time a node that is silent is not found to be so.
CONNECT_MS: Final = 3_000

_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.max_receive_message_length", MESSAGE_MAX_BYTES),
    ("grpc.max_send_message_length", MESSAGE_MAX_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A node restarts within a second; gRPC's default back-off would grow to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # An attempt to connect may take this long (CL-187). The handshakes of TCP, TLS and HTTP/2 are up to five ways there
    # and back, so less would keep out a client behind a satellite for ever.
    ("grpc.min_reconnect_backoff_ms", CONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),  # no shared connections: a share session ends with its connection (PL-524)
)
_UNREACHED: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_NOT_FOUND: Final = "Method not found!"
#: The trailer that carries gRPC's rich errors, and the numbers of the fields Status.details and RetryInfo.retry_delay.
_STATUS_KEY: Final = "grpc-status-details-bin"
_DETAILS: Final = 3
_RETRY_DELAY: Final = 1
_STATUSES: Final = {status.value: status for status in TransportStatus}

#: The id of the process, this one or an ancestor, that first opened a channel; None until then. grpc.aio does not work
#: in a process forked from it.
used_in: int | None = None


def _note_use() -> None:
    global used_in  # noqa: PLW0603 - gRPC's own state is the process's, too
    if used_in is None:
        used_in = os.getpid()


class Renewal(Protocol):
    """Gets new credentials for calls."""

    async def prepare(self, address: str) -> None:
        """Get them if a call to this address needs them. Raises TransportError."""
        ...

    def refused(self) -> bool:
        """Note that a node has refused the newest ones; return whether others may be accepted."""
        ...


class GrpcTransport:
    """`kip932.rpc.transport.Transport` over grpc.aio. It belongs to the event loop in which it is first used.

    `credentials` turns on TLS for every peer: it returns the newest ones, for each new channel, and the same object
    while they do not change. `metadata` returns the metadata of each call, such as a bearer token.
    `refusal` returns why nothing may be sent to an address, and calls then fail with UNAUTHENTICATED; "" allows them.
    `renewal` renews what `metadata` returns. `shown` returns what is known about the certificate that this side shows,
    for the errors of connections that end during the handshake.
    """

    def __init__(
        self,
        credentials: Callable[[], grpc.ChannelCredentials] | None = None,
        metadata: Callable[[], tuple[tuple[str, str], ...]] | None = None,
        refusal: Callable[[str], str] | None = None,
        renewal: Renewal | None = None,
        *,
        shown: Callable[[], str] = str,
    ) -> None:
        self._shown = shown
        self._renewal = renewal
        self._credentials = credentials
        self._metadata = metadata
        self._refusal = refusal
        self._channels: dict[str, _Channel] = {}
        self._lost: dict[str, float] = {}  # when a peer was first found unreachable, in seconds of the loop's clock
        self._retired: dict[asyncio.Task[None], aio.Channel] = {}
        self._newest: grpc.ChannelCredentials | None = None
        self._check_at_s = 0.0
        self._closed = False

    async def call(
        self, address: str, method: Method[RequestT, ResponseT], request: RequestT, timeout_s: float
    ) -> ResponseT:
        """Make one unary call. Raises TransportError."""
        if self._renewal is not None:
            await self._renewal.prepare(address)
        channel, metadata = self._channel(address), self._call_metadata()
        channel.open_calls += 1
        try:
            response: ResponseT = await channel.callable(method)(request, timeout=timeout_s, metadata=metadata)
        except aio.AioRpcError as error:
            self.note_failure(address, error.code())
            trailers = error.trailing_metadata()
            details = self.explained(error.details() or "")
            raise failure(address, method, self.renewed(error.code(), metadata), details, trailers) from None
        except aio.UsageError as error:
            raise TransportError(TransportStatus.CANCELLED, address, str(error)) from None
        except asyncio.CancelledError:
            if not _own_task_is_cancelled():
                raise TransportError(TransportStatus.CANCELLED, address, "the channel is closed") from None
            raise
        finally:
            channel.call_ended()
        self.note_answer(address)
        return response

    async def open_stream(self, address: str, method: Method[RequestT, ResponseT]) -> ClientStream[RequestT, ResponseT]:
        """Open a duplex stream. If the peer cannot be reached, the first read or write raises TransportError."""
        if self._renewal is not None:
            await self._renewal.prepare(address)
        channel, metadata = self._channel(address), self._call_metadata()
        call = channel.callable(method)(metadata=metadata)
        return _GrpcStream(address, method, call, self, channel, metadata=metadata)

    async def close(self) -> None:
        """Close every channel; calls in flight fail with CANCELLED."""
        self._closed = True
        channels = [*(each.channel for each in self._channels.values()), *self._retired.values()]
        self._channels.clear()
        for retiring in list(self._retired):
            retiring.cancel()
        for channel in channels:
            await channel.close()

    def note_answer(self, address: str) -> None:
        """Note that the peer answered."""
        if self._lost:
            self._lost.pop(address, None)

    def note_failure(self, address: str, code: grpc.StatusCode) -> None:
        """Note that a call or stream failed. If the peer could not be reached for `RENEW_S`, or there are newer
        credentials than those of the channel, the next call gets a new channel."""
        used = self._channels.get(address)
        if used is None or code not in _UNREACHED:
            return
        if used.channel.get_state() is grpc.ChannelConnectivity.READY:  # the peer was reached, but failed the call
            self._lost.pop(address, None)
            return
        loop = asyncio.get_running_loop()
        lost_s = loop.time() - self._lost.setdefault(address, loop.time())
        # A channel connects again with the certificates that it was made with.
        renewed = self._credentials is not None and self._credentials() is not used.credentials
        if lost_s < RENEW_S and not renewed:
            return
        del self._lost[address], self._channels[address]
        self._retire(used, used.channel.close(RETIRE_S))

    def replace(self, address: str, used: _Channel) -> None:
        """Use a new channel starting with the next call, unless `used` has already been replaced. The calls on `used`
        continue."""
        if self._channels.get(address) is used:
            del self._channels[address]
            self._retire(used, used.close_when_unused(REPLACED_S))

    def _retire(self, used: _Channel, closing: Coroutine[Any, Any, None]) -> None:
        retiring = asyncio.get_running_loop().create_task(closing)
        self._retired[retiring] = used.channel
        retiring.add_done_callback(self._retired.pop)

    def renewed(self, code: grpc.StatusCode, used: tuple[tuple[str, str], ...]) -> grpc.StatusCode:
        """Return the status that a failure counts as. Refused credentials count as a lost connection, which is retried,
        if there are newer ones by now or may be soon (CL-158)."""
        if code is not grpc.StatusCode.UNAUTHENTICATED:
            return code
        newer = self._call_metadata() != used or (self._renewal is not None and self._renewal.refused())
        return grpc.StatusCode.UNAVAILABLE if newer else code

    def explained(self, details: str) -> str:
        """Return gRPC's words for a failure, and what they mean if the connection failed for TLS (CM-60)."""
        return handshakes.explained(details, tls=self._credentials is not None, shown=self._shown())

    def _call_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata() if self._metadata is not None else ()

    def _channel(self, address: str) -> _Channel:
        if self._closed:
            raise TransportError(TransportStatus.CANCELLED, address, "the transport is closed")
        self._check_credentials()
        channel = self._channels.get(address)
        if channel is not None and channel.credentials is not self._newest:
            self.replace(address, channel)  # it would connect again with the old ones
            channel = None
        if channel is None:
            if self._refusal is not None and (why := self._refusal(address)):
                raise TransportError(TransportStatus.UNAUTHENTICATED, address, why, sent=False)
            _note_use()
            if self._credentials is not None:
                self._newest = self._credentials()
            channel = self._channels[address] = _Channel(address, self._newest)
        return channel

    def _check_credentials(self) -> None:
        if self._credentials is not None and (now_s := asyncio.get_running_loop().time()) >= self._check_at_s:
            self._check_at_s = now_s + CREDENTIALS_S
            self._newest = self._credentials()


class _Channel:
    """A channel to one peer, with the credentials that it was made with. `open_calls`: those of its calls and streams
    that have not ended."""

    __slots__ = ("_calls", "_unused", "channel", "credentials", "open_calls")

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.credentials = credentials
        self.channel: aio.Channel = (
            aio.insecure_channel(address, options=_OPTIONS)
            if credentials is None
            else aio.secure_channel(address, credentials, options=_OPTIONS)
        )
        self.open_calls = 0
        self._calls: dict[str, Any] = {}
        self._unused: asyncio.Event | None = None

    def callable(self, method: Method[Any, Any]) -> Any:
        """Return gRPC's object for calls of a method."""
        found = self._calls.get(method.path)
        if found is None:
            make: Callable[..., Any] = self.channel.stream_stream if method.streaming else self.channel.unary_unary
            found = self._calls[method.path] = make(
                method.path,
                request_serializer=method.request_type.SerializeToString,
                response_deserializer=method.response_type.FromString,
            )
        return found

    def call_ended(self) -> None:
        """Note that a call or stream has ended."""
        self.open_calls -= 1
        if not self.open_calls and self._unused is not None:
            self._unused.set()

    async def close_when_unused(self, timeout_s: float) -> None:
        """Close the channel when its last call has ended, or after `timeout_s`; no new calls may begin."""
        self._unused = asyncio.Event()
        if self.open_calls:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._unused.wait(), timeout_s)
        await self.channel.close()


class _GrpcStream(Generic[RequestT, ResponseT]):
    """The client's end of one stream. gRPC takes one write at a time, so writes wait for a lock."""

    __slots__ = ("_address", "_call", "_channel", "_closed", "_metadata", "_method", "_transport", "_write_lock")

    def __init__(
        self,
        address: str,
        method: Method[Any, Any],
        call: Any,
        transport: GrpcTransport,
        channel: _Channel,
        *,
        metadata: tuple[tuple[str, str], ...],
    ) -> None:
        self._metadata = metadata
        self._address = address
        self._method = method
        self._call = call
        self._transport = transport
        self._channel = channel
        channel.open_calls += 1
        self._closed = False
        self._write_lock = asyncio.Lock()

    async def write(self, message: RequestT) -> None:
        """Send one message. Raises TransportError."""
        try:
            async with self._write_lock:
                await self._call.write(message)
        except (aio.AioRpcError, aio.UsageError, asyncio.InvalidStateError, asyncio.CancelledError) as error:
            raise await self._ended(error) from None

    async def read(self) -> ResponseT | None:
        """The next message; None when the peer closed the stream. Raises TransportError."""
        try:
            message = await self._call.read()
        except (aio.AioRpcError, aio.UsageError, asyncio.InvalidStateError, asyncio.CancelledError) as error:
            raise await self._ended(error) from None
        self._transport.note_answer(self._address)
        return None if message is aio.EOF else message

    def leave_connection(self) -> None:
        """Let later calls to the peer use a connection newer than this stream's."""
        self._transport.replace(self._address, self._channel)

    async def close(self) -> None:
        """End the stream; the peer's handler is cancelled."""
        if not self._closed:
            self._closed = True
            self._channel.call_ended()
        self._call.cancel()

    async def _ended(self, error: BaseException) -> BaseException:
        """The TransportError for a broken stream; for a cancellation of the caller's own task, that CancelledError."""
        if isinstance(error, aio.AioRpcError):
            self._transport.note_failure(self._address, error.code())
            trailers = error.trailing_metadata()
            details = self._transport.explained(error.details() or "")
            code = self._transport.renewed(error.code(), self._metadata)
            return failure(self._address, self._method, code, details, trailers)
        if isinstance(error, asyncio.CancelledError) and _own_task_is_cancelled():
            return error  # the call is cancelled too: gRPC cancels it when the task that reads or writes is cancelled
        if self._closed:
            return TransportError(TransportStatus.CANCELLED, self._address, "the stream is closed on this side")
        if isinstance(error, asyncio.CancelledError) and not self._call.cancelled():
            return error
        if self._call.done():
            code, details = await self._call.code(), await self._call.details()
            self._transport.note_failure(self._address, code)
            trailers = await self._call.trailing_metadata()
            details = self._transport.explained(details or "the stream has ended")
            code = self._transport.renewed(code, self._metadata)
            return failure(self._address, self._method, code, details, trailers)
        return TransportError(TransportStatus.UNAVAILABLE, self._address, str(error))


def _own_task_is_cancelled() -> bool:
    """Return whether the caller's task was cancelled, not just the gRPC call."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def failure(
    address: str, method: Method[Any, Any], code: grpc.StatusCode, details: str, trailers: Iterable[Any] | None
) -> TransportError:
    """The TransportError for a call that gRPC failed."""
    status = _STATUSES.get(code.name, TransportStatus.UNKNOWN)
    if status is TransportStatus.UNIMPLEMENTED:
        named = f"{method.path} is not served there"  # gRPC's own text does not name the method
        details = named if details == _NOT_FOUND else f"{named}: {details}"
    throttle_ms = _retry_after_ms(trailers) if status is TransportStatus.RESOURCE_EXHAUSTED else 0
    return TransportError(status, address, details, throttle_ms)


def _retry_after_ms(trailers: Iterable[Any] | None) -> int:
    """The delay in the RetryInfo of a google.rpc.Status, in ms; 0 without one.

    The status is read field by field, because its classes are in a package that the client does not depend on.
    """
    try:
        for key, value in trailers or ():
            if key != _STATUS_KEY:
                continue
            for detail in _fields(value, _DETAILS):
                info = any_pb2.Any.FromString(detail)
                if info.type_url.rpartition("/")[2] == "google.rpc.RetryInfo":
                    delays = [duration_pb2.Duration.FromString(delay) for delay in _fields(info.value, _RETRY_DELAY)]
                    return max((delay.ToMilliseconds() for delay in delays), default=0)
    except (DecodeError, TypeError, ValueError):  # an unreadable RetryInfo counts as none
        return 0
    return 0


def _fields(message: bytes, number: int) -> list[bytes]:
    """The values of a length-delimited field, by its number."""
    found = UnknownFieldSet(empty_pb2.Empty.FromString(message))
    fields = (found[index] for index in range(len(found)))
    return [field.data for field in fields if field.field_number == number and isinstance(field.data, bytes)]
