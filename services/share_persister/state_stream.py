"""One StateStream to one node: several requests in flight, answers matched by correlation id (P-4).

The first request opens it. When it breaks, every waiting request fails, and the next request opens a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from kip932.internal.v1.state_stream_pb2 import StateStreamRequest
from kip932.rpc.transport import ClientStream, Transport, TransportError, TransportStatus
from share_persister.messages import STATE_STREAM
from share_persister.values import StateOperation


class StateStream:
    """The stream to one address."""

    def __init__(self, transport: Transport, address: str) -> None:
        self._transport = transport
        self._address = address
        self._stream: ClientStream[Any, Any] | None = None
        self._opening = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 0

    async def request(self, operation: StateOperation, request: Any, timeout_s: float) -> Any:
        """Send a read or a write and return its StateStreamResponse. Raises TransportError, and closes the stream then,
        also when the answer takes longer than `timeout_s`."""
        self._next_id += 1
        message = StateStreamRequest(correlation_id=self._next_id)
        getattr(message, "write" if operation is StateOperation.WRITE else "read").CopyFrom(request)
        stream: ClientStream[Any, Any] | None = None
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                stream = await self._open()
                self._waiting[message.correlation_id] = answer
                await stream.write(message)
                return await answer
        except TimeoutError:
            # It is not known whether this stream still works, so the next request opens a new one.
            await self._leave(stream)
            text = f"no answer within {timeout_s:g} s"
            raise TransportError(TransportStatus.DEADLINE_EXCEEDED, self._address, text) from None
        except TransportError:
            await self._leave(stream)
            raise
        finally:
            self._waiting.pop(message.correlation_id, None)
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # retrieve it: the stream may have failed it while the write was under way

    async def close(self) -> None:
        """End the present stream; its waiting requests fail."""
        if self._stream is not None:
            await self._leave(self._stream)

    async def _leave(self, stream: ClientStream[Any, Any] | None) -> None:
        """End this stream, unless a newer one has replaced it."""
        if stream is None or stream is not self._stream:
            return
        reader = self._reader
        self._stream = self._reader = None
        self._fail_waiting(self._gone("the stream was closed"))
        if reader is not None:
            reader.cancel()
        await stream.close()

    async def _open(self) -> ClientStream[Any, Any]:
        async with self._opening:
            if self._stream is None:
                self._stream = await self._transport.open_stream(self._address, STATE_STREAM)
                self._reader = asyncio.get_running_loop().create_task(self._read(self._stream))
            return self._stream

    async def _read(self, stream: ClientStream[Any, Any]) -> None:
        why = self._gone("the peer ended the stream")
        with contextlib.suppress(asyncio.CancelledError):
            try:
                while (response := await stream.read()) is not None:
                    answer = self._waiting.get(response.correlation_id)
                    if answer is not None and not answer.done():
                        answer.set_result(response)
            except TransportError as error:
                why = error
            except Exception as error:
                why = self._gone(repr(error))
        if self._stream is stream:
            self._stream = self._reader = None
            self._fail_waiting(why)
            await stream.close()

    def _gone(self, text: str) -> TransportError:
        return TransportError(TransportStatus.UNAVAILABLE, self._address, text)

    def _fail_waiting(self, why: TransportError) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(why)
