"""A hand-written share group client: it sends the protocol's messages over a Transport, without the client library."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

from kip932.api.v1.common_pb2 import AcknowledgementBatch, StringList
from kip932.api.v1.find_coordinator_pb2 import FindCoordinatorRequest
from kip932.api.v1.metadata_pb2 import MetadataRequest
from kip932.api.v1.partition_leader_service_pb2 import DESCRIPTOR as LEADER
from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest, ShareFetchResponse
from kip932.api.v1.share_group_heartbeat_pb2 import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kip932.api.v1.share_stream_pb2 import ShareStreamRequest
from kip932.ids import ACK_RENEW, KEY_TYPE_GROUP
from kip932.rpc.transport import ClientStream, Method, Transport, TransportError, TransportStatus, service_methods
from sharegroups.connection import wire

#: How long a response may take beyond the requested wait.
_TIMEOUT_S: Final = 2.0
_CALLS: Final[dict[str, Method[Any, Any]]] = service_methods(LEADER.services_by_name["PartitionLeaderService"])

#: (topic id, partition).
Part = tuple[bytes, int]
#: (first offset, last offset, types), as sent; nothing is validated here.
Ack = tuple[int, int, tuple[int, ...]]


@dataclass(frozen=True)
class Layout:
    """The addresses of all nodes, and of each partition's leader, if it has one."""

    nodes: tuple[str, ...]
    leaders: Mapping[Part, str]


async def layout(transport: Transport, address: str) -> Layout:
    """Ask one node for the layout. Raises TransportError."""
    found = await transport.call(address, wire.METADATA, MetadataRequest(), _TIMEOUT_S)
    nodes = {node.node_id: wire.address_of(node) for node in found.brokers}
    leaders = {
        (topic.topic_id, part.partition_index): nodes[part.leader_id]
        for topic in found.topics
        for part in topic.partitions
        if part.leader_id in nodes
    }
    return Layout(tuple(nodes[node_id] for node_id in sorted(nodes)), leaders)


async def heartbeat(
    transport: Transport, address: str, group: str, member_id: str, epoch: int, *, topics: Iterable[str] | None
) -> ShareGroupHeartbeatResponse:
    """Send a heartbeat to the group's coordinator, found through the node at `address`. Raises TransportError."""
    asked = FindCoordinatorRequest(key_type=KEY_TYPE_GROUP, coordinator_keys=[group])
    (found,) = (await transport.call(address, wire.FIND_COORDINATOR, asked, _TIMEOUT_S)).coordinators
    if found.error_code:
        return ShareGroupHeartbeatResponse(error_code=found.error_code)
    request = ShareGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch)
    if topics is not None:
        request.subscribed_topic_names.CopyFrom(StringList(values=topics))
    return await transport.call(f"{found.host}:{found.port}", wire.HEARTBEAT, request, _TIMEOUT_S)


class HandSession:
    """A share session with one leader, over a stream or over unary calls. It tracks the correct epoch."""

    def __init__(self, transport: Transport, address: str, group: str, member_id: str, streaming: bool) -> None:
        self.address = address
        self.group = group
        self.member_id = member_id
        self.epoch = 0
        self.session_id: int | None = None
        #: Returns the delays that are sent with an acknowledgement batch (PL-930).
        self.delays: Callable[[Ack], Sequence[int]] = _no_delays
        #: Returns the reason that is sent with an acknowledgement batch (PL-942); "" for none.
        self.reasons: Callable[[Ack], str] = _no_reason
        self._transport = transport
        self._streaming = streaming
        self._stream: ClientStream[Any, Any] | None = None
        self._number = 0

    async def fetch(
        self,
        parts: Iterable[Part] = (),
        acks: Mapping[Part, list[Ack]] | None = None,
        *,
        epoch: int | None = None,
        forget: Iterable[Part] = (),
        wait_ms: int = 50,
        records: int = 10,
        max_bytes: int = 1 << 20,
    ) -> ShareFetchResponse:
        """Send one ShareFetch; `epoch` overrides the correct epoch. Raises TransportError."""
        renews = _renews(acks)  # a request with renewals fetches nothing (PL-322)
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=0 if renews else wait_ms,
            min_bytes=0 if renews else 1,
            max_bytes=0 if renews else max_bytes,
            max_records=0 if renews else records,
            batch_size=records,
            is_renew_ack=renews,
        )
        self._fill(request, dict.fromkeys([*parts, *(acks or {})]), acks or {})
        for topic_id, number in forget:
            request.forgotten_topics_data.add(topic_id=topic_id, partitions=[number])
        response: ShareFetchResponse = await self._call("ShareFetch", request, wait_ms)
        if response.error_code == 0:
            if request.share_session_epoch == 0:
                self.session_id = response.session_id
            self._advance(request.share_session_epoch)
        return response

    async def acknowledge(
        self, acks: Mapping[Part, list[Ack]], *, epoch: int | None = None, renews: bool | None = None
    ) -> ShareAcknowledgeResponse:
        """Send one ShareAcknowledge; `epoch` overrides the correct epoch. Raises TransportError."""
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=_renews(acks) if renews is None else renews,
        )
        self._fill(request, acks, acks)
        response: ShareAcknowledgeResponse = await self._call("ShareAcknowledge", request, 0)
        if response.error_code == 0:
            self._advance(request.share_session_epoch)
        return response

    async def drop(self) -> None:
        """End the stream, if there is one, which loses the connection (PL-522)."""
        stream, self._stream = self._stream, None
        self.epoch, self.session_id = 0, None
        if stream is not None:
            await stream.close()

    def _advance(self, epoch: int) -> None:
        self.epoch = 0 if epoch == -1 else epoch + 1
        if epoch == -1:
            self.session_id = None

    def _fill(self, request: Any, parts: Iterable[Part], acks: Mapping[Part, list[Ack]]) -> None:
        if self.session_id is not None and request.share_session_epoch != 0:
            request.session_id = self.session_id
        topics: dict[bytes, Any] = {}
        for topic_id, number in parts:
            if topic_id not in topics:
                topics[topic_id] = request.topics.add(topic_id=topic_id)
            batches = [
                AcknowledgementBatch(
                    first_offset=ack[0],
                    last_offset=ack[1],
                    acknowledge_types=ack[2],
                    release_delays_ms=self.delays(ack),
                    reason=self.reasons(ack),
                )
                for ack in acks.get((topic_id, number), ())
            ]
            topics[topic_id].partitions.add(partition_index=number, acknowledgement_batches=batches)

    async def _call(self, name: str, request: Message, wait_ms: int) -> Any:
        timeout_s = _TIMEOUT_S + wait_ms / 1000
        if not self._streaming:
            return await self._transport.call(self.address, _CALLS[name], request, timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._over_stream(name, request)
        except TimeoutError:
            await self.drop()
            raise TransportError(TransportStatus.DEADLINE_EXCEEDED, self.address, f"{name} not answered") from None
        except TransportError:
            await self.drop()
            raise

    async def _over_stream(self, name: str, request: Any) -> Any:
        if self._stream is None:
            self._stream = await self._transport.open_stream(self.address, wire.SHARE_STREAM)
        self._number += 1
        message = ShareStreamRequest(correlation_id=self._number)
        kind = "fetch" if name == "ShareFetch" else "acknowledge"
        getattr(message, kind).CopyFrom(request)
        await self._stream.write(message)
        while (answer := await self._stream.read()) is not None:
            if answer.correlation_id == self._number:
                return getattr(answer, kind)
        raise TransportError(TransportStatus.UNAVAILABLE, self.address, "the stream was closed")


def _no_delays(_ack: Ack) -> Sequence[int]:
    return ()


def _no_reason(_ack: Ack) -> str:
    return ""


def _renews(acks: Mapping[Part, list[Ack]] | None) -> bool:
    return any(ACK_RENEW in types for batches in (acks or {}).values() for _, _, types in batches)
