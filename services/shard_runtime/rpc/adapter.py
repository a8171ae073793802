"""From bound methods to grpc.aio handlers. Bytes are parsed here, so that broken ones become INVALID_ARGUMENT.

The stream handler is one coroutine per connection that reads in a loop: no task and no generator per message (P-4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import grpc
import structlog
from google.protobuf.message import Message
from grpc_status import rpc_status  # type: ignore[import-untyped]  # it ships no types

from kip932.rpc.transport import CLIENT_ID_KEY, Method
from shard_runtime.rpc.binding import BoundMethod, CallContext
from shard_runtime.rpc.status import expected, rich_status

log = structlog.get_logger(__name__)

CLIENT_ID_MAX: Final = 255

GrpcContext = grpc.aio.ServicerContext[Any, Any]


def generic_handler(service: str, methods: Iterable[BoundMethod]) -> grpc.GenericRpcHandler:
    """The handler of one service for grpc.aio."""
    handlers = {bound.method.name: _method_handler(bound) for bound in methods}
    return grpc.method_handlers_generic_handler(service, handlers)


def call_context(context: GrpcContext) -> CallContext:
    """Who calls, from gRPC's `ipv4:127.0.0.1:5000`, `ipv6:%5B::1%5D:5000` or `unix:…`."""
    connection = context.peer()
    kind, _, rest = connection.partition(":")
    host = rest.rpartition(":")[0].replace("%5B", "").replace("%5D", "") if kind in {"ipv4", "ipv6"} else kind
    return CallContext(host, connection, context.time_remaining, client_id=_client_id(context))


def _client_id(context: GrpcContext) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == CLIENT_ID_KEY:
            return str(value)[:CLIENT_ID_MAX]
    return ""


def _method_handler(bound: BoundMethod) -> grpc.RpcMethodHandler[bytes, bytes]:
    if bound.method.streaming:
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(_stream(bound))
        return handler
    return grpc.unary_unary_rpc_method_handler(_unary(bound))


def _unary(bound: BoundMethod) -> Callable[[bytes, GrpcContext], Awaitable[bytes]]:
    handler, parse, method = bound.handler, bound.parse, bound.method

    async def handle(data: bytes, context: GrpcContext) -> bytes:
        try:
            response: Message = await handler(parse(data), call_context(context))
            return response.SerializeToString()
        except Exception as error:
            return await _abort(method, context, error)

    return handle


def _stream(bound: BoundMethod) -> Callable[[Any, GrpcContext], Awaitable[None]]:
    async def handle(_requests: Any, context: GrpcContext) -> None:
        try:
            await bound.handler(GrpcServerStream(bound, context))
        except Exception as error:
            await _abort(bound.method, context, error)

    return handle


async def _abort(method: Method[Message, Message], context: GrpcContext, error: Exception) -> bytes:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not expected(error):
        log.error("call failed", method=method.path, peer=context.peer(), exc_info=error)
    await context.abort_with_status(rpc_status.to_status(rich_status(error)))
    raise AssertionError("abort_with_status returned")


class GrpcServerStream:
    """`ServerStream` over grpc.aio's read and write."""

    __slots__ = ("_context", "_parse", "_write_lock", "context")

    def __init__(self, bound: BoundMethod, context: GrpcContext) -> None:
        self.context = call_context(context)
        self._context = context
        self._parse = bound.parse
        self._write_lock = asyncio.Lock()

    async def read(self) -> Message | None:
        """The next message; None when the client closed in good order. Raises as `BoundMethod.parse`."""
        data = await self._context.read()
        return None if data is grpc.aio.EOF else self._parse(data)

    async def write(self, message: Message) -> None:
        """Send one message; gRPC takes one write at a time."""
        data = message.SerializeToString()
        async with self._write_lock:
            await self._context.write(data)
