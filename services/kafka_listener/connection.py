"""One client's connection: bytes in, requests begun in their order, answers out in the same order, and every bound on
the way (KL-1 to KL-9).

Nothing here knows what a request means: `requests.table` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import structlog

from kafka_listener.authentication import Authenticator, Checks
from kafka_listener.calls import Calls, Served, Streams
from kafka_listener.core.age import Age, Phase
from kafka_listener.core.frames import PREFIX_BYTES, Frames, FrameSizeError
from kafka_listener.core.items import items_named
from kafka_listener.core.order import Order, Place
from kafka_listener.core.pacing import REFUSED_CREDENTIALS_MS, bounded_ms
from kafka_listener.core.versions import PRODUCE
from kafka_listener.counts import Counts
from kafka_listener.limits import Limits
from kafka_listener.messages.apis import Api
from kafka_listener.messages.errors import MalformedMessageError, TooManyElementsError
from kafka_listener.messages.headers import RequestHeader, read_header, response_head
from kafka_listener.messages.wire import ELEMENTS_MAX
from kafka_listener.offers import Offers
from kafka_listener.outgoing import Outgoing
from kafka_listener.ports import Paced
from kafka_listener.requests.slices import written
from kafka_listener.sockets import Peer, peer_of
from kafka_listener.tls import certificate_of
from kip932.errors import InvalidRequestError, KafkaError, SaslAuthenticationFailedError, UnknownServerError
from kip932.ids import REQUEST_PARTITIONS_MAX
from shard_runtime.call_ids import CLIENT_ID_MAX, begin_call
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.rpc.budget import Holder
from shard_runtime.rpc.gate import Caller
from shard_runtime.rpc.status import RpcFailureError

log = structlog.get_logger(__name__)

#: A larger request is read in a thread: one full of empty entries takes tens of milliseconds.
READ_AT_ONCE_BYTES: Final = 128 * 1024
#: So is a smaller one with more elements: each takes about a microsecond.
READ_AT_ONCE_ELEMENTS: Final = 10_000
#: The largest request of a client that must say first who it is.
UNKNOWN_REQUEST_BYTES: Final = 64 * 1024
#: How much is read of a connection with TLS while none of its requests may begin.
AHEAD_BYTES: Final = 64 * 1024
#: How many requests of one connection begin in one turn of the event loop: each step of others waits for a whole turn.
BEGUN_AT_ONCE: Final = 4
#: The maximum time for which nothing is read from a client that is over its quota, ms.
MUTED_MAX_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all connections of a listener share. `reader`: a thread for large requests; `opened` is called with each
    connection whose handshake succeeded, `closed` with each that is lost, and the task that ends what it had."""

    served: Served
    checks: Checks
    offers: Offers
    limits: Limits
    counts: Counts
    lines: RateLimitedLog
    reader: Executor
    opened: Callable[[KafkaConnection], None]
    closed: Callable[[KafkaConnection, asyncio.Task[None]], None]


class _Answer(NamedTuple):
    """The parts of an answer, its size before them; `last`: whether the connection ends with it."""

    parts: Sequence[bytes | memoryview]
    size: int
    last: bool


class KafkaConnection(asyncio.Protocol):
    """A connection. `host` and `peer` are the client's address and its name in the node's log; `connection` is its
    socket."""

    def __init__(self, around: Surroundings, host: str, peer: str, connection: socket.socket, *, tls: bool) -> None:
        self.host = host
        self.peer = peer
        self._around = around
        self._served = around.served
        self._tls = tls
        self._socket = connection
        self._transport: asyncio.Transport | None = None
        self._authenticator: Authenticator | None = None
        self._frames = Frames(around.limits.records_bytes)
        self._order: Order[_Answer] = Order()
        self._out = Outgoing(connection, self._give, tls=tls)
        self._streams = Streams(around.served, self._out.until_writable)
        self._calls: Calls | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: dict[asyncio.Task[None], Place[_Answer]] = {}
        """The requests under way that are given up when the client leaves: all but those with records."""
        self._reader: asyncio.Task[None] | None = None
        self._holder = Holder(peer)
        self._held = 0
        self._reading = True
        self._begun = 0
        """How many requests have begun in this turn of the event loop."""
        self._stopped = ""
        """Why no further request begins; empty: it does."""
        self._muted: asyncio.TimerHandle | None = None
        self._left = self._closing = self._lost = False
        self.is_open = False
        """Whether it was ever open: its handshake succeeded."""
        self._closed_s: float | None = None
        self._active_s = asyncio.get_running_loop().time()
        self._partial_s: float | None = None
        self._age = Age.begin(self._active_s, around.limits.age_s, random.random())

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Find out who calls, as far as the connection shows it."""
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True
        self._around.opened(self)
        self._out.open(self._transport)
        self._served.gate.unfinished.join(self.peer, self)
        certificate, valid_s = certificate_of(self._transport)
        self._age = Age.begin(self._active_s, self._around.limits.age_s, random.random(), valid_s)
        try:
            self._authenticator = Authenticator(
                self._around.checks, self.host, tls=self._tls, certificate=certificate, revoked=self._revoked
            )
        except SaslAuthenticationFailedError as error:
            self._refuse("authentication", error.message)
            return
        self._known()

    def data_received(self, data: bytes) -> None:
        """Take bytes, and begin the requests that are whole."""
        if self._closing:
            return
        self._hold(len(data))
        self._frames.feed(data)
        self._active_s = asyncio.get_running_loop().time()
        self._go_on()

    def eof_received(self) -> bool:
        """End the connection: Kafka's clients do not close one half of it."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End what the connection had: requests, streams with their sessions, bytes of the budget. Safe to repeat."""
        if self._lost:
            return
        if self._closing or self._stopped in {_DRAINING, _AUTHENTICATING}:
            self._frames.clear()
        self._closing = self._lost = True
        self._served.gate.unfinished.leave(self.peer)
        self._out.close()
        if self._muted is not None:
            self._muted.cancel()
        if self._authenticator is not None:
            self._authenticator.close()
        self._around.closed(self, asyncio.get_running_loop().create_task(self._end(), name="kafka-connection-end"))

    def pause_writing(self) -> None:
        """Note that the client does not read its answers."""
        self._out.pause(asyncio.get_running_loop().time())

    def resume_writing(self) -> None:
        """Note that the client has read its answers."""
        self._out.resume()
        if self._out.is_paused:
            return
        if self._closing:
            self._close()
        else:
            self._go_on()

    # What the listener calls.

    @property
    def under_way(self) -> int:
        """How many requests are not answered."""
        return self._order.under_way

    def check(self, now_s: float) -> None:
        """Close the connection if it is over one of its time limits."""
        limits, transport = self._around.limits, self._transport
        if transport is None:
            return
        if self._closing:
            self._closed_s = self._closed_s or now_s
            if now_s - self._closed_s > limits.partial_s:  # its last answers are not read
                transport.abort()
            return
        unread_s = self._out.unread_s(now_s)
        self._check_age(now_s)
        if not self._reading:
            self._check_peer()
        if self._closing:
            return
        if self._out.is_paused:
            if unread_s > limits.unread_s:
                self._refuse("unread", f"the client has read nothing for {limits.unread_s:.0f} s")
        elif self._partial_s is not None and now_s - self._partial_s > limits.partial_s:
            self._refuse("partial", f"a request did not come whole within {limits.partial_s:.0f} s")
        elif not self._order.under_way and now_s - self._active_s > limits.idle_s:
            self._close()

    def users_changed(self) -> None:
        """Check who it is again, since the users of the cluster have changed."""
        if self._authenticator is not None:
            self._authenticator.users_changed()

    def unread_s(self, now_s: float) -> float:
        """Return for how long the client has read none of its answers; 0 if it reads them, or there are none."""
        return self._out.unread_s(now_s)

    @property
    def held_bytes(self) -> int:
        """How many bytes of requests and answers the connection holds."""
        return self._held

    def cut(self) -> None:
        """Close the connection, since the node needs the memory that it holds (CM-93)."""
        self._around.counts.refuse("memory")
        self.abort()

    def drain(self) -> None:
        """Begin no further request; close when the last one is answered."""
        self._stop(_DRAINING)
        if not self._order.under_way:
            self._close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # Requests.

    def _go_on(self) -> None:
        """Begin what is whole, as far as the bounds allow, and read on or not."""
        taken = False
        try:
            while self._may_begin():
                frame = self._frames.take()
                if frame is None:
                    break
                taken = True
                self._count_turn()
                self._begin(frame)
        except (FrameSizeError, MalformedMessageError) as error:
            self._malformed(error)
        if self._closing:
            return
        self._note_partial(taken=taken)
        # The end of a TLS connection is a message in it, which nothing but reading shows.
        ahead = self._tls and not self._stopped and self._frames.buffered < AHEAD_BYTES
        self._read_on(ahead or self._may_begin())

    def _may_begin(self) -> bool:
        return not (
            self._closing
            or self._stopped
            or self._muted is not None
            or self._out.is_paused
            or self._order.is_full
            or self._begun >= BEGUN_AT_ONCE
        )

    def _count_turn(self) -> None:
        """Count the requests that begin in this turn of the event loop; more may in the next one."""
        if not self._begun:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._begun += 1

    def _next_turn(self) -> None:
        went_on, self._begun = self._begun < BEGUN_AT_ONCE, 0
        if not (went_on or self._closing):
            self._go_on()

    def _note_partial(self, *, taken: bool) -> None:
        """Note since when part of a request is there. While this side does not begin requests, the client is not to
        blame."""
        if not self._frames.buffered or not self._may_begin():
            self._partial_s = None
        elif self._partial_s is None or taken:
            self._partial_s = self._active_s

    def _read_on(self, reads: bool) -> None:
        assert self._transport is not None
        if reads and not self._room():
            self._stop("no room")
            self._spawn(self._until_room())
            reads = False
        if reads != self._reading:
            self._reading = reads
            if reads:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _room(self) -> bool:
        return self._held == 0 or self._served.gate.budget.room(self._holder) > 0

    async def _until_room(self) -> None:
        """Read on when the node has memory for it again. Half a request does not wait for ever: `check` ends it."""
        self._partial_s = self._active_s if self._frames.buffered else None
        budget, holder = self._served.gate.budget, self._holder  # which may become another one meanwhile
        if await budget.wait(holder, 1, self._around.limits.partial_s, there=False):
            budget.give(holder, 1)
        self._go("no room")

    def _begin(self, frame: bytes) -> None:
        """Begin the request of a frame. Raises MalformedMessageError."""
        header = read_header(frame)
        size = PREFIX_BYTES + len(frame)
        assert self._authenticator is not None
        if not self._around.offers.may_come(header.key, authenticated=self._authenticator.done):
            self._refuse("unauthenticated", "a request came before the client had said who it is")
            return
        served = self._around.offers.find(header.key, header.version)
        if served is None:
            unknown = self._around.offers.unsupported(header)
            if unknown is None:
                self._refuse("unserved", f"request {header.key} in version {header.version} is not served")
                return
            self._spawn(self._unsupported(self._order.begin(), header, unknown, size))
            return
        if served.size_max is not None and len(frame) > served.size_max:
            raise MalformedMessageError(f"a {served.api.name} of {len(frame)} bytes; at most {served.size_max}")
        if self._left and header.key != PRODUCE:
            return
        self._around.counts.asked(served.api.name)
        place = self._order.begin()
        read = _read_at_once(served.api, header, frame)
        if read is None:
            self._stop("reading")
            self._reader = self._spawn(self._read_large(place, served.api, header, frame))
            return
        if served.api in self._around.offers.sasl:
            self._stop(_AUTHENTICATING)
        work = self._spawn(self._answer(place, served.api, header, read, size))
        if header.key != PRODUCE:
            self._asked[work] = place
            work.add_done_callback(lambda done: self._asked.pop(done, None))

    async def _unsupported(self, place: Place[_Answer], header: RequestHeader, response: Any, size: int) -> None:
        """Answer an ApiVersions in a version that is not served. In a task, since sending begins the next request."""
        await self._settle(place, self._around.offers.api_versions, header._replace(version=0), response, size)

    async def _read_large(self, place: Place[_Answer], api: Api, header: RequestHeader, frame: bytes) -> None:
        """Read a large request in a thread; the next ones begin after it."""
        loop = asyncio.get_running_loop()
        try:
            read = await loop.run_in_executor(self._around.reader, _read, api, header, frame)
        except MalformedMessageError as error:
            self._malformed(error)
            return
        self._spawn(self._answer(place, api, header, read, PREFIX_BYTES + len(frame)))
        del frame, read
        loop.call_soon(self._go, "reading")

    async def _answer(
        self, place: Place[_Answer], api: Api, header: RequestHeader, read: tuple[Any, int], size: int
    ) -> None:
        """Have a request answered, and send the answer when it is its turn."""
        (request, items), last = read, False
        assert self._authenticator is not None
        begin_call(f"{self.peer}/{header.correlation_id}", header.client_id or "")
        try:
            if api is self._around.offers.handshake:
                response = self._authenticator.handshake(request)
                last = self._authenticator.refused
            elif api is self._around.offers.authenticate:
                response = await self._authenticated(request)
                last = self._authenticator.refused
            else:
                _check_items(api, items)
                handler = self._around.offers.handlers[api.key]
                response = await handler.answer(request, header.version, self._calls_of(header))
                if isinstance(response, Paced):
                    await asyncio.sleep(bounded_ms(response.delay_ms) / 1000)
                    response = response.response
        except KafkaError as error:
            response = self._error_response(api, header.version, error)
        except RpcFailureError as error:
            await asyncio.sleep(REFUSED_CREDENTIALS_MS / 1000)  # its client tries again at once
            self._refuse("authentication", f"credentials cannot be checked at present: {error}")
            return
        except Exception as error:
            self._failed(api, error)
            response = self._error_response(api, header.version, UnknownServerError())
        if response is _CLOSE:
            self._refuse("failed", f"{api.name} failed, and its answer has no place for an error")
            return
        await self._settle(place, api, header, response, size, last=last)
        self._go(_AUTHENTICATING)

    async def _authenticated(self, request: Any) -> Any:
        assert self._authenticator is not None
        response = await self._authenticator.authenticate(request)
        if response.error_code:
            self._around.counts.refuse("authentication")
            await asyncio.sleep(REFUSED_CREDENTIALS_MS / 1000)
        self._known()
        return response

    async def _settle(
        self, place: Place[_Answer], api: Api, header: RequestHeader, response: Any, size: int, *, last: bool = False
    ) -> None:
        """Note the answer to a request of `size` bytes, and send what can be sent. None: it gets none."""
        if self._closing:
            return
        if response is None:
            self._order.settle(place, None)
        else:
            head = response_head(api, header.version, header.correlation_id)
            try:
                body = await written(api, header.version, response)
            except ValueError as error:
                self._failed(api, error)
                self._refuse("failed", f"an answer to {api.name} cannot be written")
                return
            if self._closing:  # meanwhile
                return
            length = len(head) + sum(map(len, body))
            answer = _Answer([length.to_bytes(PREFIX_BYTES, "big"), head, *body], PREFIX_BYTES + length, last)
            self._order.settle(place, answer)
            self._hold(answer.size)
            throttle_ms = getattr(response, "throttle_time_ms", 0)
            if throttle_ms > 0:
                self._mute(throttle_ms)
        self._give(size)
        self._send()

    def _send(self) -> None:
        """Send the answers whose turn it is."""
        for answer in self._order.ready():
            left_bytes = self._out.left_bytes
            if self._out.is_paused and left_bytes > self._around.limits.unread_bytes:
                self._refuse("unread", f"the client has left {left_bytes} bytes unread")
                return
            if self._left:
                self._give(answer.size)
                continue
            self._out.write(answer.parts, answer.size)
            if answer.last:
                self._close()
                return
        self._active_s = asyncio.get_running_loop().time()
        if not self._order.under_way and (self._stopped == _DRAINING or self._is_over()):
            self._close()
        elif not self._reading or self._frames.buffered:
            self._go_on()

    def _calls_of(self, header: RequestHeader) -> Calls:
        """Return the calls of this caller by the name that it gives itself."""
        client_id = (header.client_id or "")[:CLIENT_ID_MAX]
        assert self._authenticator is not None
        identity = self._authenticator.identity
        calls = self._calls
        if calls is None or calls.caller.client_id != client_id or calls.caller.identity != identity:
            caller = Caller(self.peer, self.host, client_id, identity)
            calls = self._calls = Calls(self._served, caller, self._streams)
        return calls

    @staticmethod
    def _error_response(api: Api, version: int, error: KafkaError) -> Any:
        """Return the response that says what is wrong with the whole request; _CLOSE if it has no place for that in
        this version: it would say that all is well, with nothing in it."""
        response = api.response()
        if all(field.name != "error_code" for field in api.message("response").shape.present(version)):
            return _CLOSE
        response.error_code = error.code
        if hasattr(response, "error_message"):
            response.error_message = error.message
        return response

    # Bounds.

    def _known(self) -> None:
        """Note who it is: whose bytes it holds, and how large its requests may be."""
        authenticator, limits = self._authenticator, self._around.limits
        assert authenticator is not None
        holder = self._served.gate.holder(self.peer, authenticator.identity)
        if holder != self._holder:
            self._served.gate.budget.give(self._holder, self._held)
            self._served.gate.budget.add(holder, self._held)
            self._holder = holder
        self._frames.size_max = limits.records_bytes if authenticator.done else UNKNOWN_REQUEST_BYTES

    def _hold(self, size: int) -> None:
        self._held += size
        self._served.gate.budget.add(self._holder, size)

    def _give(self, size: int) -> None:
        size = min(size, self._held)
        self._held -= size
        self._served.gate.budget.give(self._holder, size)

    def _stop(self, why: str) -> None:
        if self._stopped != _DRAINING:
            self._stopped = why

    def _go(self, why: str) -> None:
        """Begin requests again, if this is why none was begun."""
        if self._stopped == why:
            self._stopped = ""
            if not self._closing:
                self._go_on()

    def _mute(self, throttle_ms: int) -> None:
        """Begin no further request of a client that is over its quota, for as long as its answer says. Of several
        answers, the longest time counts."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + min(throttle_ms, MUTED_MAX_MS) / 1000
        if self._muted is not None:
            until_s = max(until_s, self._muted.when())
            self._muted.cancel()
        self._muted = loop.call_at(until_s, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self._go_on()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _end(self) -> None:
        """End what the connection had, once the requests that came have begun: a Produce that wants no answer is stored
        although its client has left."""
        if self._reader is not None:
            await asyncio.wait([self._reader])
        await asyncio.sleep(0)
        await self._begin_rest()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(self._streams.end(), *tasks, return_exceptions=True)
        self._give(self._held)

    async def _begin_rest(self) -> None:
        """Begin the requests with records among those that came whole and had not begun."""
        loop, offers = asyncio.get_running_loop(), self._around.offers
        if self._authenticator is None or not self._authenticator.done:
            self._frames.clear()
        with contextlib.suppress(FrameSizeError, MalformedMessageError):
            while (frame := self._frames.take()) is not None:
                header = read_header(frame)
                served = offers.find(header.key, header.version)
                if header.key != PRODUCE or served is None:
                    continue
                read = await loop.run_in_executor(self._around.reader, _read, served.api, header, frame)
                self._spawn(self._answer(Place(), served.api, header, read, 0))
                await asyncio.sleep(0)
        self._frames.clear()

    # Ends.

    def _check_peer(self) -> None:
        """Notice, while nothing is read, that the client has left (KL-106)."""
        peer = Peer.THERE if self._left else peer_of(self._socket)
        if peer is Peer.LOST:
            self.abort()
        elif peer is Peer.LEFT:
            self._leave()

    def _leave(self) -> None:
        """End what the client waited for, now that it has left; its records among the bytes that came before are still
        stored, then the end is read."""
        self._left = True
        if self._stopped == _AUTHENTICATING:
            self.abort()
            return
        self._spawn(self._streams.end_members())
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        for work, place in list(self._asked.items()):
            work.cancel()
            self._order.settle(place, None)
        self._send()

    def _check_age(self, now_s: float) -> None:
        """Do what a connection does at its age (KL-108)."""
        phase = self._age.phase(now_s)
        if phase is Phase.YOUNG:
            return
        self._streams.acquire_none = True
        if self._age.reason and (phase is Phase.OVER or self._is_over()):
            self._refuse("credentials ended", self._age.reason)
        if phase is Phase.OVER:
            self.abort()
        elif phase is Phase.LAST:
            self.drain()
        elif self._is_over():
            self._close()

    def _is_over(self) -> bool:
        """Return whether this is a moment at which an old connection closes: nothing is under way, and its members hold
        no records."""
        return (
            self._streams.acquire_none
            and not self._streams.holds_records
            and not (self._order.under_way or self._frames.buffered)
        )

    def _revoked(self, why: str) -> None:
        self._refuse("credentials ended", why)

    def _malformed(self, error: Exception) -> None:
        self._around.counts.malformed += 1
        self._refuse("malformed", str(error))

    def _refuse(self, reason: str, cause: str) -> None:
        """Close the connection for what its client did, and log it."""
        if self._closing:
            return
        self._around.counts.refuse(reason)
        self._around.lines.warning(
            "kafka_connection_closed", key=(self.host, reason), peer=self.peer, reason=reason, cause=cause[:CAUSE_MAX]
        )
        self._close(at_once=reason in _AT_ONCE)

    def _close(self, *, at_once: bool = False) -> None:
        self._closing = True
        if self._transport is not None:
            if at_once:
                self._transport.abort()
            elif not self._out.has_unwritten:
                self._transport.close()

    def _failed(self, api: Api, error: Exception) -> None:
        self._around.lines.error(
            "kafka_request_failed", key=(self.host, api.name, type(error)), api=api.name, peer=self.peer, exc_info=error
        )


def _read_at_once(api: Api, header: RequestHeader, frame: bytes) -> tuple[Any, int] | None:
    """Read a request, as `_read` does; None for one that takes long. Raises MalformedMessageError."""
    if len(frame) > READ_AT_ONCE_BYTES:
        return None
    try:
        return _read(api, header, frame, READ_AT_ONCE_ELEMENTS)
    except TooManyElementsError:
        return None


def _read(api: Api, header: RequestHeader, frame: bytes, elements_max: int = ELEMENTS_MAX) -> tuple[Any, int]:
    """Read a request, and count what it names. Raises MalformedMessageError."""
    request = api.decode_request(header.version, frame, header.body_at, elements_max)
    return request, items_named(request) if len(frame) > REQUEST_PARTITIONS_MAX else 0


def _check_items(api: Api, items: int) -> None:
    """Raise InvalidRequestError for more than any RPC takes, before all of them are translated and answered."""
    if items > REQUEST_PARTITIONS_MAX:
        raise InvalidRequestError(
            f"the {api.name} names {items} topics, partitions or others; at most {REQUEST_PARTITIONS_MAX} go into one "
            "request"
        )


#: The reasons for which answers that are not read yet are dropped with the connection.
_AT_ONCE: Final = frozenset({"unread", "partial"})
#: Why no request begins after one of SASL until that is answered: what may come after it depends on its outcome.
_AUTHENTICATING: Final = "authenticating"
#: Why none begins any more.
_DRAINING: Final = "draining"
#: How much of a cause is logged, in characters.
CAUSE_MAX: Final = 300
#: Returned in place of a response that has no field for an error: the connection is closed.
_CLOSE: Final = object()
