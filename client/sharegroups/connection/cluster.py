"""The client's view of the cluster: nodes, topics and leaders. One task, the refresher, keeps it up to date.

Rules CL-14, CL-15, CL-34, CM-14, CM-22. Callers may call `request_refresh` as often as they like: refreshes run one at
a time, with a back-off between them. Only topics that a caller named are kept. After an outage, the refresher notifies
its listeners that the cluster can be reached again, so that they need not wait for their own back-offs as well. A call
to a node that throttles this client waits until the throttle time is over.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple

from kip932.api.v1.common_pb2 import LeaderIdAndEpoch, NodeEndpoint
from kip932.api.v1.find_coordinator_pb2 import FindCoordinatorRequest
from kip932.api.v1.metadata_pb2 import MetadataRequest, MetadataResponse
from kip932.errors import (
    CoordinatorNotAvailableError,
    KafkaError,
    NetworkError,
    SaslAuthenticationFailedError,
    ThrottlingQuotaExceededError,
    error_for,
)
from kip932.ids import KEY_TYPE_GROUP, TopicIdPartition
from kip932.rpc.transport import ClientStream, Method, RequestT, ResponseT, Transport, TransportError, TransportStatus
from sharegroups.config import Config
from sharegroups.connection import wire
from sharegroups.connection.core.backoff import Backoff
from sharegroups.connection.core.throttle import Throttle
from sharegroups.connection.silent_nodes import first_answer
from sharegroups.connection.waits import Wait
from sharegroups.errors import IllegalStateError
from sharegroups.forks import another_process


class ThrottledTransport:
    """The transport of one client. It sends no calls to a node that throttles the client, until the throttle time is
    over (CL-86, CM-92).

    It is a `kip932.rpc.transport.Transport` that wraps another one. All unary calls go through it. Requests on streams
    are delayed by their senders (`connection.leader_stream`), which share its `throttle`. It never retries: a refused
    call fails with a retriable error, and the caller decides which node to call next. `close` ends waiting calls, but
    closes no connections.
    """

    def __init__(self, transport: Transport) -> None:
        self.throttle = Throttle()
        self._transport = transport
        self._ended = asyncio.Event()

    async def call(
        self,
        address: str,
        method: Method[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float,
        wait_s: float = math.inf,
    ) -> ResponseT:
        """Make a unary call once the node's throttle time is over, or after `wait_s`; `timeout_s` includes that wait.

        Raises TransportError, with RESOURCE_EXHAUSTED if the node has no capacity for the call, or if `timeout_s`
        expires before the call may be sent. Raises IllegalStateError if the client is closed while the call waits.
        """
        left_s = min(self.left_s(address), wait_s)
        if left_s > 0:
            await self._wait(address, min(left_s, timeout_s))
            if left_s >= timeout_s:
                text = f"{method.name} was not sent: the node asked to be left alone for {left_s:.1f} s more"
                raise TransportError(TransportStatus.RESOURCE_EXHAUSTED, address, text)
        wait = Wait(f"the answer of {address} to {method.name}")
        try:
            response = await self._transport.call(address, method, request, timeout_s - left_s)
        except TransportError as error:
            self.note_throttle(address, error.throttle_ms)
            raise
        finally:
            wait.end()
        throttle_ms = int(getattr(response, "throttle_time_ms", 0))
        self.note_throttle(address, throttle_ms)
        if getattr(response, "error_code", 0) == ThrottlingQuotaExceededError.code:
            text = getattr(response, "error_message", "") or f"the node has no room for {method.name} at present"
            raise TransportError(TransportStatus.RESOURCE_EXHAUSTED, address, text, throttle_ms)
        return response

    async def open_stream(self, address: str, method: Method[RequestT, ResponseT]) -> ClientStream[RequestT, ResponseT]:
        """Open a bidirectional stream without waiting, since opening one is not a request yet."""
        return await self._transport.open_stream(address, method)

    async def close(self) -> None:
        """End the waiting calls. The owner of the inner transport must close its connections."""
        self._ended.set()

    def note_throttle(self, address: str, throttle_ms: int) -> None:
        """Note that the node throttles this client for `throttle_ms`; 0 or less changes nothing."""
        if throttle_ms > 0:
            self.throttle.note(address, throttle_ms, _now_ms())

    def left_s(self, address: str) -> float:
        """Return the node's remaining throttle time, in seconds; 0 if a request may be sent."""
        until_ms = self.throttle.until_ms(address)
        return max(0, until_ms - _now_ms()) / 1000 if until_ms else 0.0

    async def _wait(self, address: str, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return
        raise IllegalStateError(f"the client was closed while it waited for {address}, which had no room")


class Leader(NamedTuple):
    """The node that leads a partition, and its leader epoch."""

    node_id: int
    epoch: int


class Topic(NamedTuple):
    """A topic at one metadata version (CM-20)."""

    name: str
    topic_id: bytes
    partitions: int
    version: int


class Cluster:
    """Metadata and addresses. `start` starts the refresher and `close` stops it; the caller must close the transport.

    The client must make all calls through `self.transport`, which waits while a node throttles the client (CL-86).
    """

    def __init__(self, transport: Transport, config: Config) -> None:
        self.transport = ThrottledTransport(transport)
        self.topics: dict[str, Topic] = {}
        self.names: dict[bytes, str] = {}
        self.errors: dict[str, KafkaError] = {}
        #: Why the last refresh failed; "" when it succeeded.
        self.trouble = ""
        #: The same, if the nodes do not accept this client's token, password or certificate (CL-158).
        self.refusal: SaslAuthenticationFailedError | None = None
        self.cluster_id = ""
        self._process_id = os.getpid()
        self._config = config
        self._bootstrap = config.bootstrap
        self._leaders: dict[TopicIdPartition, Leader] = {}
        self._nodes: dict[int, str] = {}
        self._wanted: set[str] = set()
        self._wanted_ids: set[bytes] = set()
        self._listeners: list[Callable[[], None]] = []
        self._failed: list[Callable[[], None]] = []
        self._recovered: list[Callable[[], None]] = []
        self._silent: set[str] = set()
        self._refresh = asyncio.Event()
        self._urgent = asyncio.Event()
        self._refreshed = asyncio.Condition()
        self._rounds = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def timeout_s(self) -> float:
        """request.timeout.ms in seconds."""
        return float(self._config["request.timeout.ms"]) / 1000

    def backoff(self) -> Backoff:
        """Return a new back-off with this client's settings."""
        return Backoff(self._config["retry.backoff.ms"], self._config["retry.backoff.max.ms"], random.random)

    def start(self) -> None:
        """Start the refresher in the running loop. A second call does nothing."""
        if self._task is None:
            self._task = asyncio.create_task(self._refresh_forever(), name="metadata")

    async def close(self) -> None:
        """Stop the refresher, and end calls that wait for a throttling node."""
        await self.transport.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # Known metadata.

    def address(self, node_id: int) -> str | None:
        """Return `host:port` of a node, or None when it is unknown."""
        return self._nodes.get(node_id)

    def node_at(self, address: str) -> int:
        """Return the id of the node with this `host:port`; −1 if the last metadata have no such node."""
        return next((node_id for node_id, known in self._nodes.items() if known == address), -1)

    def node_ids(self) -> list[int]:
        """Return the ids of the live nodes in the last metadata, ascending."""
        return sorted(self._nodes)

    def leader(self, partition: TopicIdPartition) -> Leader | None:
        """Return the leader of a partition; None when the leader or its address is unknown."""
        leader = self._leaders.get(partition)
        return leader if leader is not None and leader.node_id in self._nodes else None

    def moved(self, partitions: Iterable[TopicIdPartition], node_id: int) -> bool:
        """Return whether nodes other than `node_id` are known to lead all of these partitions.

        Partitions of deleted topics are ignored; a partition without a known leader counts as not moved.
        """
        leaders = [self.leader(partition) for partition in partitions if partition.topic_id in self.names]
        return bool(leaders) and all(leader is not None and leader.node_id != node_id for leader in leaders)

    def learn(self, partition: TopicIdPartition, leader: LeaderIdAndEpoch, endpoints: Iterable[NodeEndpoint]) -> bool:
        """Store the leader that a response names, if it is newer than the known one (CL-34). Returns whether it was."""
        known = self._leaders.get(partition)
        if leader.leader_id < 0 or (known is not None and known.epoch >= leader.leader_epoch):
            return False
        self._learn_nodes(endpoints)
        if leader.leader_id not in self._nodes:
            return False
        self._leaders[partition] = Leader(leader.leader_id, leader.leader_epoch)
        self._notify()
        return True

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change."""
        self._listeners.append(listener)

    def on_failure(self, listener: Callable[[], None]) -> None:
        """Call `listener` when a refresh fails after one that succeeded."""
        self._failed.append(listener)

    def on_recovery(self, listener: Callable[[], None]) -> None:
        """Call `listener` when a refresh succeeds after one that failed: the listener can end its back-offs."""
        self._recovered.append(listener)

    def heard(self) -> None:
        """Note that a node has answered a call. If the last refresh failed, the next one skips its back-off."""
        if self.trouble:
            self._urgent.set()

    def want(self, names: Iterable[str], ids: Iterable[bytes] = ()) -> None:
        """Also keep the topics `names`, and look up the names of unknown `ids`, which replace the earlier ones.

        Requests a refresh when a name is new or an id is unknown.
        """
        new = set(names) - self._wanted
        self._wanted |= new
        self._wanted_ids = set(ids) - self.names.keys()
        if new:
            self._urgent.set()
        if new or self._wanted_ids:
            self.request_refresh()

    def forget(self, names: Iterable[str]) -> None:
        """Leave these topics out of later refreshes."""
        self._wanted -= set(names)

    def request_refresh(self) -> None:
        """Fetch metadata soon."""
        self._refresh.set()

    async def wait_refreshed(self) -> None:
        """Request a refresh and return when one has ended, successfully or not; a refresh that is already running is
        enough."""
        target = self._rounds + 1
        self._refresh.set()
        async with self._refreshed:
            await self._refreshed.wait_for(lambda: self._rounds >= target)

    # Calls.

    async def call_any(
        self, method: Method[wire.RequestT, wire.ResponseT], request: wire.RequestT, timeout_s: float | None = None
    ) -> wire.ResponseT:
        """Call one node after the other until one answers.

        Raises NetworkError if none answers, TransportError if a retry cannot help.
        """
        problems: list[str] = []
        for address in sorted(self.addresses(), key=lambda one: (one in self._silent, self.transport.left_s(one))):
            try:
                return await self.transport.call(address, method, request, timeout_s or self.timeout_s)
            except TransportError as error:
                if not error.retriable:
                    raise
                problems.append(str(error))
        raise NetworkError(f"no node answered {method.name}: {'; '.join(problems)}")

    async def ask_any(
        self, method: Method[wire.RequestT, wire.ResponseT], request: wire.RequestT, timeout_s: float | None = None
    ) -> wire.ResponseT:
        """Do the same as `call_any` for requests that may be sent twice: if one node does not answer soon, also call
        the next."""
        addresses = sorted(self.addresses(), key=self.transport.left_s)
        self._silent.intersection_update(addresses)

        def call(address: str) -> Coroutine[Any, Any, wire.ResponseT]:
            return self.transport.call(address, method, request, timeout_s or self.timeout_s)

        return await first_answer(addresses, call, self._silent, method.name)

    async def find_coordinator(self, group_id: str) -> str:
        """Return the address of a group's coordinator. Raises KafkaError or TransportError; it does not retry."""
        if not self._nodes:  # otherwise an admin client would know no other node if its bootstrap node fails
            await self.fetch_metadata([])
        request = FindCoordinatorRequest(key_type=KEY_TYPE_GROUP, coordinator_keys=[group_id])
        response = await self.ask_any(wire.FIND_COORDINATOR, request)
        for found in response.coordinators:
            if found.key == group_id:
                if error := error_for(found.error_code, found.error_message):
                    raise error
                return f"{found.host}:{found.port}"
        raise CoordinatorNotAvailableError(f"the answer does not name the coordinator of group {group_id!r}")

    async def fetch_metadata(self, names: Iterable[str] | None, ids: Iterable[bytes] = ()) -> MetadataResponse:
        """Fetch and store the metadata of these topics, or of all for None. Raises KafkaError or TransportError."""
        request = MetadataRequest()
        if names is not None:
            request.topics.SetInParent()
            for name in names:
                request.topics.values.add(name=name)
            for topic_id in ids:
                request.topics.values.add(topic_id=topic_id)
        response = await self.ask_any(wire.METADATA, request)
        if error := error_for(response.error_code, response.error_message):
            raise error
        self._learn_all(response)
        return response

    # Steps.

    def throttled_s(self) -> float:
        """Return how long all known nodes throttle this client, in seconds; 0 if one takes requests (CL-86)."""
        return min(map(self.transport.left_s, self.addresses()))

    def addresses(self) -> list[str]:
        """Return the known nodes and the bootstrap servers, in random order. Raises IllegalStateError in a forked
        child."""
        if self._process_id != os.getpid():
            raise another_process("client", self._process_id)
        addresses = list(dict.fromkeys([*self._nodes.values(), *self._bootstrap]))
        random.shuffle(addresses)
        return addresses

    def _learn_nodes(self, endpoints: Iterable[NodeEndpoint]) -> None:
        for node in endpoints:
            self._nodes[node.node_id] = wire.address_of(node)

    def _learn_all(self, response: MetadataResponse) -> None:
        self.cluster_id = response.cluster_id
        if response.brokers:
            self._nodes = {}
            self._learn_nodes(response.brokers)
        for topic in response.topics:
            if topic.error_code:
                self._unlearn(topic.name, error_for(topic.error_code, topic.error_message))
                continue
            previous = self.topics.get(topic.name)
            if previous is not None and previous.topic_id != topic.topic_id:
                self._unlearn(topic.name, None)
            self.errors.pop(topic.name, None)
            self.topics[topic.name] = Topic(
                topic.name, topic.topic_id, len(topic.partitions), response.metadata_version
            )
            self.names[topic.topic_id] = topic.name
            for part in topic.partitions:
                key = TopicIdPartition(topic.topic_id, part.partition_index)
                known = self._leaders.get(key)
                if part.leader_id < 0:
                    self._leaders.pop(key, None)
                elif known is None or known.epoch <= part.leader_epoch:
                    self._leaders[key] = Leader(part.leader_id, part.leader_epoch)
        self._wanted_ids -= self.names.keys()
        self._notify()

    def _unlearn(self, name: str, error: KafkaError | None) -> None:
        if error is not None and name:
            self.errors[name] = error
        gone = self.topics.pop(name, None)
        if gone is not None:
            self.names.pop(gone.topic_id, None)
            for number in range(gone.partitions):
                self._leaders.pop(TopicIdPartition(gone.topic_id, number), None)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    async def _refresh_forever(self) -> None:
        """Refresh on request and after metadata.max.age.ms, with a back-off after each refresh."""
        backoff = self.backoff()
        max_age_s = self._config["metadata.max.age.ms"] / 1000
        quiet_s = self._config["retry.backoff.max.ms"] * 2 / 1000
        loop = asyncio.get_running_loop()
        while True:
            idle_since = loop.time()
            await wait_for_event(self._refresh, max_age_s)
            if loop.time() - idle_since > quiet_s:
                backoff.reset()
            self._refresh.clear()
            self._urgent.clear()
            try:
                await self.fetch_metadata(sorted(self._wanted), sorted(self._wanted_ids))
            except (KafkaError, TransportError) as error:
                before, self.trouble = self.trouble, str(error)
                self.refusal = None
                if isinstance(error, TransportError) and error.status is TransportStatus.UNAUTHENTICATED:
                    self.refusal = SaslAuthenticationFailedError(error.refusal)
                self._refresh.set()
                if not before:
                    for listener in self._failed:
                        listener()
            else:
                if self.trouble:
                    self.trouble, self.refusal = "", None
                    backoff.reset()
                    for listener in self._recovered:
                        listener()
            async with self._refreshed:
                self._rounds += 1
                self._refreshed.notify_all()
            await wait_for_event(self._urgent, backoff.next_ms() / 1000)


async def wait_for_event(event: asyncio.Event, timeout_s: float) -> None:
    """Return when the event is set, or after `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
