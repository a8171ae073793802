"""Turns bound methods into grpc.aio handlers. Bytes are parsed here, so that broken ones become INVALID_ARGUMENT.

A stream's handler is one coroutine that reads in a loop: no task and no generator per message (P-4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple, cast

import grpc
from google.protobuf.message import Message
from grpc_status import rpc_status  # type: ignore[import-untyped]  # it ships no types

from kip932.errors import ThrottlingQuotaExceededError
from kip932.rpc.transport import CLIENT_ID_KEY, Method
from kip932.telemetry import TRACEPARENT
from shard_runtime.call_ids import CLIENT_ID_MAX, REQUEST_ID_KEY, begin_call, current_request_id
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.rpc.access import Needs
from shard_runtime.rpc.authentication import Identity
from shard_runtime.rpc.binding import BoundMethod, CallContext
from shard_runtime.rpc.budget import THROTTLE_MS, Budget, Holder
from shard_runtime.rpc.fields import COUNTED_AT_ONCE
from shard_runtime.rpc.gate import Caller, Gate
from shard_runtime.rpc.short_refusals import serialized
from shard_runtime.rpc.status import expected, rich_status
from shard_runtime.rpc.table import Effect
from shard_runtime.tracing import failed, tracing

#: The key of the call metadata that says who calls (CM-186).
_AUTHORIZATION: Final = "authorization"

GrpcContext = grpc.aio.ServicerContext[Any, Any]


def method_handlers(methods: Iterable[BoundMethod], gate: Gate) -> dict[str, grpc.RpcMethodHandler[bytes, bytes]]:
    """Return the handlers of a service's methods for grpc.aio, by the methods' names."""
    return {bound.method.name: _method_handler(bound, gate) for bound in methods}


class Call(NamedTuple):
    """What a call's metadata say about its caller, and where it comes from. `authorization`: None if there is none."""

    context: GrpcContext
    connection: str
    host: str
    client_id: str
    authorization: str | None
    traceparent: str = ""


def call_of(context: GrpcContext, begins: str = "") -> Call:
    """Describe a call by gRPC's peer name, `ipv4:127.0.0.1:5000`, `ipv6:%5B::1%5D:5000` or `unix:…`, and its
    metadata. Log lines of the present task then say that it answers this call (CM-240). `begins`: as for Gate."""
    connection = context.peer()
    client_id, authorization, traceparent, request_id = "", None, "", ""
    for key, value in context.invocation_metadata() or ():
        if key == CLIENT_ID_KEY and not client_id:
            client_id = str(value)[:CLIENT_ID_MAX]
        elif key == _AUTHORIZATION:
            text = value if isinstance(value, str) else value.decode("latin-1")
            # Two of them are not credentials that anyone accepts.
            authorization = text if authorization is None else f"{authorization},{text}"
        elif tracing.on and key == TRACEPARENT:
            traceparent = str(value)
        elif key == REQUEST_ID_KEY and not request_id:
            request_id = str(value)
    begin_call(request_id, client_id)
    return Call(context, begins + connection, _host(connection), client_id, authorization, traceparent)


async def identity_of(call: Call, gate: Gate) -> Identity:
    """Return who makes a call (CM-186). Raises SaslAuthenticationFailedError."""
    found = gate.authentication.known(call.authorization, call.context.auth_context if gate.tls else None)
    if found is None and call.authorization is not None:
        found = await gate.authentication.check(call.authorization, call.host)
    assert found is not None, "without credentials a caller is known"
    return found


def call_context(call: Call, identity: Identity, gate: Gate, needs: Needs) -> CallContext:
    """Describe the caller to a handler."""
    move_in_s = gate.authentication.move_in_s(identity)
    if gate.ages is not None:
        now_s = asyncio.get_running_loop().time()
        old_in_s = gate.ages.move_at_s(call.connection, now_s) - now_s
        move_in_s = old_in_s if move_in_s is None else min(move_in_s, old_in_s)
    caller = Caller(call.connection, call.host, call.client_id, identity, call.context.time_remaining)
    return gate.context(caller, needs, move_in_s)


def _host(connection: str) -> str:
    kind, _, rest = connection.partition(":")
    return rest.rpartition(":")[0].replace("%5B", "").replace("%5D", "") if kind in {"ipv4", "ipv6"} else kind


def _bytes_of(message: Message, caller: CallContext, gate: Gate) -> bytes:
    """Return a response's bytes, with the addresses of nodes by which callers of this port reach them. Only those of a
    caller that was refused something are searched for refusals: they may hold megabytes of records."""
    if gate.renamed is not None:
        message = gate.renamed(message)
    refused = caller.rights is not None and caller.rights.has_refused
    return serialized(message) if refused else message.SerializeToString()


def _method_handler(bound: BoundMethod, gate: Gate) -> grpc.RpcMethodHandler[bytes, bytes]:
    if bound.method.streaming:
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(_stream(bound, gate))
        return handler
    return grpc.unary_unary_rpc_method_handler(gate.calls.counted(_unary(bound, gate)))


class _Held:
    """The bytes that one call holds of the budget until gRPC has finished it: its request, then also its answer."""

    __slots__ = ("_budget", "_holder", "_size")

    def __init__(self, budget: Budget, holder: Holder, size: int) -> None:
        self._budget = budget
        self._holder = holder
        self._size = size

    def keep(self, size: int, *, at_any_rate: bool) -> bool:
        """Take room for the answer, too. Returns False when there is none. `at_any_rate`: take it even without room."""
        if at_any_rate:
            self._budget.add(self._holder, size)
        elif not self._budget.take(self._holder, size):
            self._budget.throttle(self._holder)
            return False
        self._size += size
        return True

    def give(self, _: Any) -> None:
        """Give the bytes back: the answer was sent, or the caller has left."""
        self._budget.give(self._holder, self._size)


def _unary(bound: BoundMethod, gate: Gate) -> Callable[[bytes, GrpcContext], Awaitable[bytes]]:
    handler, method, parse = bound.handler, bound.method, bound.method.request_type.FromString
    budget, came = gate.budget, gate.unfinished.came
    answer_counts = bound.effect is Effect.WRITES

    async def handle(data: bytes, context: GrpcContext) -> bytes:
        call, user = call_of(context, gate.begins), None
        came(call.connection, len(data))
        try:
            caller = call_context(call, await identity_of(call, gate), gate, bound.needs)
            gate.admit(caller)
            gate.calls.begin(gate.user_of(caller))
            user = gate.user_of(caller)
            holder = caller.share.holder
            size = bound.memory_bytes(data, COUNTED_AT_ONCE)
            if size is None:
                size = await _weigh_long(bound, data, budget, holder)
            if size is None or not (budget.take(holder, size) or await budget.wait(holder, size)):
                return await _throttled(method, context, gate, _no_memory(method))
            held = _Held(budget, holder, size)
            context.add_done_callback(cast(Any, held.give))
            answering = handler(parse(data), caller)
            response: Message = await (_traced(call, method, answering) if call.traceparent else answering)
            answer = _bytes_of(response, caller, gate)
            if held.keep(len(answer), at_any_rate=answer_counts):
                return answer
            del response, answer
            return await _throttled(method, context, gate, _no_memory(method))
        except ThrottlingQuotaExceededError as error:
            data = b""
            return await _throttled(method, context, gate, error)
        except Exception as error:
            data = b""  # ending a call with a status keeps this frame alive (`_abort`)
            return await _abort(method, context, error, gate.failures)
        finally:
            if user is not None:
                gate.calls.end(user)

    return handle


async def _traced(call: Call, method: Method[Message, Message], answering: Awaitable[Message]) -> Message:
    """Answer a call under a span, if a sampled one has sent it (CM-216)."""
    span = tracing.begin(call.traceparent, method.path[1:])
    if span is None:
        return await answering
    try:
        return await answering
    except BaseException as error:
        failed(span, error)
        raise
    finally:
        span.end()


async def _weigh_long(bound: BoundMethod, data: bytes, budget: Budget, holder: Holder) -> int | None:
    """Return the memory that a request of many fields needs; None when there is no room for its bytes, which count
    during the call."""
    size = len(data)
    if not (budget.take(holder, size) or await budget.wait(holder, size)):
        return None
    try:
        return await bound.memory_bytes_in_thread(data)
    finally:
        budget.give(holder, size)


def _no_memory(method: Method[Message, Message]) -> ThrottlingQuotaExceededError:
    return ThrottlingQuotaExceededError(
        f"this node has no memory left for {method.name} at present; try again in {THROTTLE_MS} ms"
    )


async def _throttled(
    method: Method[Message, Message], context: GrpcContext, gate: Gate, error: ThrottlingQuotaExceededError
) -> bytes:
    """Ask the caller to retry later: in the response if that has the fields for it, else by the call's status."""
    fields = method.response_type.DESCRIPTOR.fields_by_name
    if not {"error_code", "throttle_time_ms"} <= set(fields):
        return await _abort(method, context, error, gate.failures)
    response: Any = method.response_type()
    response.error_code, response.throttle_time_ms = error.code, THROTTLE_MS
    if "error_message" in fields:
        response.error_message = error.message
    return bytes(response.SerializeToString())


def _stream(bound: BoundMethod, gate: Gate) -> Callable[[Any, GrpcContext], Awaitable[None]]:
    async def handle(_requests: Any, context: GrpcContext) -> None:
        try:
            call = call_of(context, gate.begins)
            identity = await identity_of(call, gate)
            stream = GrpcServerStream(bound, call, identity, gate)
            user = gate.user_of(stream.context)
            gate.calls.begin(user)
            try:
                async with gate.authentication.stream_of(call.authorization, identity, call.host):
                    await bound.handler(stream)
            finally:
                gate.calls.end(user)
        except Exception as error:
            await _abort(bound.method, context, error, gate.failures)

    return handle


async def _abort(
    method: Method[Message, Message], context: GrpcContext, error: Exception, failures: RateLimitedLog
) -> bytes:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    status = rich_status(error)
    if not expected(error):
        status.message += f", request {current_request_id()}"
        failures.error(
            "call_failed",
            key=(method.path, _host(context.peer()), type(error)),
            method=method.path,
            peer=context.peer(),
            exc_info=error,
        )
    # grpc.aio keeps the exception that ends a call, and that keeps this one: a reference cycle through the frames of
    # both, which would hold the request until the next garbage collection.
    _forget_frames(error)
    await context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError("abort_with_status returned")


def _forget_frames(error: BaseException) -> None:
    """Clear the tracebacks of an exception and of those chained to it, to free the objects that their frames hold."""
    seen: BaseException | None = error
    while seen is not None:
        seen.__traceback__ = None
        seen = seen.__cause__ or seen.__context__


class GrpcServerStream:
    """`ServerStream` over grpc.aio's read and write."""

    __slots__ = ("_bound", "_call", "_came", "_context", "_gate", "_identity", "_write_lock", "context")

    def __init__(self, bound: BoundMethod, call: Call, identity: Identity, gate: Gate) -> None:
        self.context = call_context(call, identity, gate, bound.needs)
        self._call = call
        self._identity = identity
        self._gate = gate
        self._came = gate.unfinished.came
        self._context = call.context
        self._bound = bound
        self._write_lock = asyncio.Lock()

    async def read(self) -> Message | None:
        """Return the next message; None when the client ended the stream. Raises what `BoundMethod.parse`, `Gate.admit`
        and `Authentication.refresh` raise."""
        data = await self._context.read()
        if data is grpc.aio.EOF:
            return None
        self._came(self.context.connection_id, len(data))
        if self._call.authorization is not None:
            await self._gate.authentication.refresh(self._call.authorization, self._identity, self._call.host)
        self._gate.admit(self.context)  # each message: a right may have been taken away since the stream was opened
        size = self._bound.memory_bytes(data, COUNTED_AT_ONCE)
        self.context.message_bytes = await self._bound.memory_bytes_in_thread(data) if size is None else size
        return self._bound.method.request_type.FromString(data)

    async def write(self, message: Message) -> None:
        """Send one message; gRPC takes one write at a time."""
        data = _bytes_of(message, self.context, self._gate)
        async with self._write_lock:
            await self._context.write(data)
