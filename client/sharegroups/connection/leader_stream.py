"""The stream to one leader: opened when it is needed, abandoned when the leader is silent and other nodes lead its
partitions now, and replaced by one on another connection when the leader asks for that (CL-144). A session is bound to
the stream over which the leader accepted its last request: until then, the previous stream can take over again.

It also knows how long that leader throttles this client (CL-86); its owner must check `free_at_ms` before it sends.
Each share session has one stream, and each producer's sender has one for every leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, Generic

from kip932.ids import TopicIdPartition
from kip932.rpc.transport import Method, TransportError, TransportStatus
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.streams import CorrelatedStream, RequestT, ResponseT

log = logging.getLogger(__name__)

#: A stream stays open for at least this long before its client moves, so that a node that asks each stream at once
#: costs few connections.
MOVE_MIN_S: Final = 0.1


class LeaderStream(Generic[RequestT, ResponseT]):
    """The stream to node `node_id`. `held` returns the partitions of each request in flight, or of the session.
    `on_move` is called when the leader asks to move; the next `open` does so. With it, a session is bound to the
    stream, and the previous one stays open until `accepted` is called."""

    def __init__(
        self,
        node_id: int,
        cluster: Cluster,
        method: Method[RequestT, ResponseT],
        held: Callable[[], Iterable[Iterable[TopicIdPartition]]],
        on_move: Callable[[], None] | None = None,
    ) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._method = method
        self._held = held
        self._on_move = on_move
        self._opened_s = 0.0
        self._stream: CorrelatedStream[RequestT, ResponseT] | None = None
        #: The stream to which a session is bound: the current one, or the previous one.
        self._bound: CorrelatedStream[RequestT, ResponseT] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()
        #: After a move that failed, the next one waits this long.
        self._backoff = cluster.backoff()
        self._move_failed = False
        #: The number of streams opened so far.
        self.opened = 0

    @property
    def current(self) -> CorrelatedStream[RequestT, ResponseT] | None:
        """The stream, while requests may be sent over it at once: it is open, and need not be replaced."""
        stream = self._stream
        return None if stream is None or stream.is_lost or stream.must_move else stream

    @property
    def has_ended(self) -> bool:
        """True when the stream to which the session is bound has ended, and with it the session (PL-524)."""
        return self._bound is not None and self._bound.is_lost

    @property
    def free_at_ms(self) -> int:
        """When the leader's throttle time ends, in ms of the loop's clock (CL-86)."""
        throttle = self._cluster.transport.throttle
        return throttle.until_ms(self._cluster.address(self._node_id)) if throttle.latest_ms else 0

    def note_throttle(self, throttle_ms: int) -> None:
        """Note that the leader throttles this client for `throttle_ms`; 0 or less changes nothing."""
        if throttle_ms > 0 and (address := self._cluster.address(self._node_id)) is not None:
            self._cluster.transport.note_throttle(address, throttle_ms)

    async def open(self, ended: Callable[[], object] | None = None) -> CorrelatedStream[RequestT, ResponseT]:
        """Return the open stream. If it has ended, and a session with it, call `ended` and open a new one. Raises
        TransportError.

        If the leader has asked to move, wait until the requests in flight have their responses, then open a stream on
        a new connection. If that fails, return the one before it, and move later.
        """
        async with self._opening:
            if self._stream is not None and self._stream.must_move:
                await self._leave(self._stream)
            if (stream := self._stream) is not None and stream.is_lost:
                goes_back = self.is_moving
                if not goes_back and ended is not None:
                    ended()
                await stream.close()  # by then its requests have failed, and another one may use their epochs
                self._stream = None
                if goes_back:
                    self._go_back(stream.failure)
            if self._stream is None:
                try:
                    self._stream = await self._opened()
                except TransportError as error:
                    if not self.is_moving:
                        raise
                    self._go_back(error)
            if self._bound is None or self._bound.is_lost:
                self._bind()
            assert self._stream is not None
            return self._stream

    async def _opened(self) -> CorrelatedStream[RequestT, ResponseT]:
        address = self._cluster.address(self._node_id)
        if address is None:
            text = "its address is unknown"
            raise TransportError(TransportStatus.UNAVAILABLE, f"node {self._node_id}", text)
        transport = self._cluster.transport
        stream = await CorrelatedStream.open(transport, address, self._method, self._late, self._on_move)
        self._opened_s = asyncio.get_running_loop().time()
        self.opened += 1
        return stream

    async def _leave(self, stream: CorrelatedStream[RequestT, ResponseT]) -> None:
        """Leave a stream, once it is quiet, and its connection. A stream that has ended stays the current one."""
        await asyncio.sleep(max(0.0, self._opened_s + MOVE_MIN_S - asyncio.get_running_loop().time()))
        await stream.quiet()
        stream.leave_connection()
        if not stream.is_lost:
            self._stream = None
            if self._on_move is None:
                self._bound = None
            if stream is not self._bound:
                self._close_later(stream)

    def _go_back(self, error: TransportError | None) -> None:
        """After a move that failed with `error`, use the stream again to which the session is bound, and move later.
        If that one has ended meanwhile, nothing changes."""
        bound = self._bound
        if bound is None or bound.is_lost:
            return
        if not self._move_failed:
            log.warning(
                "node %d asks this client to connect again, but the new connection failed: %s. The old connection is "
                "used until a new one is accepted. If the node closes it before that, the share session is lost, and "
                "its records are delivered again",
                self._node_id, error,
            )  # fmt: skip
        self._move_failed = True
        self._stream = bound
        bound.put_off_move(self._backoff.next_ms() / 1000)

    @property
    def keeps_session(self) -> bool:
        """True while the stream to which the session is bound is open, so that the session lives."""
        return self._bound is not None and not self._bound.is_lost

    @property
    def is_moving(self) -> bool:
        """True while the session is bound to an open stream other than the current one."""
        return self.keeps_session and self._bound is not self._stream

    def accepted(self) -> None:
        """Note that the leader accepted a request over the current stream, or that the session is lost: nothing is
        bound to the stream before it, so that it is closed."""
        if self._bound is not self._stream:
            if self._bound is not None:
                self._close_later(self._bound)
            self._bind()

    def _bind(self) -> None:
        self._bound = self._stream
        if self._move_failed:
            self._move_failed = False
            self._backoff.reset()

    def _close_later(self, stream: CorrelatedStream[RequestT, ResponseT]) -> None:
        closing = asyncio.get_running_loop().create_task(stream.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def give_up_silent(self) -> None:
        """Abandon the stream if a response is late and other nodes lead a request's partitions (PL-524, CL-33,
        CL-34)."""
        stream, moved = self._stream, self._cluster.moved
        if stream is not None and stream.is_late and any(moved(held, self._node_id) for held in self._held()):
            for each in {stream, self._bound or stream}:
                each.abandon(f"no answer, and node {self._node_id} does not lead these partitions any more")

    async def close(self) -> None:
        """End the stream."""
        if self._stream is not None:
            await self._stream.close()
        self.accepted()
        await asyncio.gather(*self._closing)

    def _late(self) -> None:
        """Find out whether a silent leader still leads."""
        self._cluster.request_refresh()
        self.give_up_silent()
