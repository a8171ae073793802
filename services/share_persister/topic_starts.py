"""Reads the groups' stored progress in some topics from every share coordinator (SC-116).

The state of a partition's groups may be in any shard, so all shards are read: one request to each node that owns some.
The result is complete, or an error; nothing is retried, since callers repeat the request from time to time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import structlog

from kip932.errors import CoordinatorNotAvailableError, KafkaError, NotCoordinatorError, error_for
from kip932.ids import SharePartitionKey
from kip932.internal.v1.read_topic_start_offsets_pb2 import ReadTopicStartOffsetsRequest
from kip932.rpc.transport import Transport, TransportError
from kip932.state_values import StoredStart, TopicStarts
from share_persister.finder import Resolve
from share_persister.messages import METHODS
from share_persister.retry_rules import from_transport
from share_persister.values import LocalCoordinator, PeerRefusedError

log = structlog.get_logger(__name__)

_METHOD: Final = METHODS["ReadTopicStartOffsets"]
#: How long a node may take to respond.
ANSWER_S: Final = 5.0

#: topic id → group id → partition → stored progress.
GroupStarts = Mapping[bytes, Mapping[str, Mapping[int, StoredStart]]]
_UNKNOWN: Final = -1
_Answer = Mapping[int, TopicStarts | KafkaError]


class TopicStartOffsets:
    """Reads the stored progress of all groups from all share coordinators.

    `resolve` returns the address of a shard's coordinator by this node's hints (CM-14), or None. `shards` is
    share.coordinator.state.topic.num.partitions.
    """

    def __init__(
        self, transport: Transport, resolve: Resolve, *, shards: int, local: LocalCoordinator | None = None
    ) -> None:
        self._transport = transport
        self._resolve = resolve
        self._shards = shards
        self._local = local

    async def ask(self, topic_ids: Collection[bytes]) -> GroupStarts:
        """Return every group with state for any partition of these topics, with its stored progress. It was durable
        when the shard read it, which is after this call began. At most STARTS_TOPICS_MAX topics.

        Raises the KafkaError of a shard or node that did not answer: then nothing is known.
        """
        local = self._local
        beside = {shard for shard in range(self._shards) if local is not None and local.serves(shard)}
        addresses: set[str] = set()
        for shard in range(self._shards):
            if shard in beside:
                continue
            address = self._resolve(shard)
            if address is None:
                raise CoordinatorNotAvailableError(f"no node is known to serve shard {shard} of the share state")
            addresses.add(address)
        wanted = frozenset(topic_ids)
        calls = [self._remote(address, wanted) for address in sorted(addresses)]
        if local is not None and beside:
            calls.append(local.topic_starts(wanted))
        return self._merged(await asyncio.gather(*calls))

    async def _remote(self, address: str, topic_ids: frozenset[bytes]) -> _Answer:
        request = ReadTopicStartOffsetsRequest(topic_ids=sorted(topic_ids))
        try:
            response: Any = await self._transport.call(address, _METHOD, request, ANSWER_S)
        except TransportError as error:
            failure = from_transport(error)
            if isinstance(failure, PeerRefusedError):
                log.warning(
                    "share_coordinator_refused_this_node",
                    node=failure.address,
                    cause=failure.cause,
                    remedy=failure.remedy,
                )
            raise failure from error
        found: dict[int, TopicStarts | KafkaError] = {}
        for result in response.shards:
            refusal = error_for(result.error_code, result.error_message)
            found[result.shard] = refusal if refusal is not None else list(_rows(result.groups))
        return found

    def _merged(self, answers: Iterable[_Answer]) -> GroupStarts:
        """Merge the results of all shards. If two nodes answered for a shard, it has just moved: then every group that
        either returned is included, with the lower start offset."""
        refused: dict[int, KafkaError] = {}
        answered: set[int] = set()
        starts: dict[bytes, dict[str, dict[int, StoredStart]]] = {}
        for answer in answers:
            for shard, found in answer.items():
                if isinstance(found, KafkaError):
                    refused[shard] = found
                    continue
                answered.add(shard)
                for key, start in found:
                    partitions = starts.setdefault(key.topic_id, {}).setdefault(key.group_id, {})
                    partitions[key.partition] = min(start, partitions.get(key.partition, start))
        for shard in range(self._shards):
            if shard not in answered:
                text = f"no node answered for shard {shard} of the share state"
                raise refused.get(shard) or NotCoordinatorError(text)
        return starts


def _rows(groups: Iterable[Any]) -> Iterable[tuple[SharePartitionKey, StoredStart]]:
    for group in groups:
        for each in group.partitions:
            has_count = each.HasField("delivery_complete_count")
            start = StoredStart(each.start_offset, each.delivery_complete_count if has_count else _UNKNOWN)
            yield SharePartitionKey(group.group_id, group.topic_id, each.partition), start
