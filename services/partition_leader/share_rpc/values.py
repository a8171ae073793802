"""Requests and responses of ShareFetch and ShareAcknowledge, as values between the RPC edge and `ShareRequests`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kip932.errors import InvalidRequestError, KafkaError
from kip932.ids import TopicIdPartition
from partition_leader.fetch.core.fetch_policy import FetchLimits
from partition_leader.fetch.fetch import FetchedPartition
from partition_leader.fetch.readable import BY_ALL, Readable
from partition_leader.share_partition.core import events as ev
from shard_runtime.rpc.binding import NO_CALLER, CallContext

#: Service-wide limit on a fetch's max_bytes and on its response (`fetch.max.bytes`).
FETCH_MAX_BYTES: Final = 57_671_680

Acknowledgements = Mapping[TopicIdPartition, tuple[ev.AckBatch, ...]]


class ShareRequest(NamedTuple):
    """A ShareFetch or, if `limits` is None, a ShareAcknowledge.

    `room_bytes`: the maximum bytes of the whole response (CM-62). `caller`: who sent it, with its connection's share of
    the bytes in flight (CM-92) and its rights (CM-61). `readable`: which batches the member can read (PL-257,
    CM-222). `member_epoch`: the member's newest epoch; None if its client does not send it (PL-528). `refused`: the
    error for a request that no session can accept (PL-510).
    """

    group_id: str
    member_id: str
    epoch: int
    session_id: int | None
    connection_id: int | None
    topics: tuple[TopicIdPartition, ...]
    acknowledgements: Acknowledgements
    is_renew_ack: bool
    limits: FetchLimits | None = None
    batch_size: int = 1
    mode: int = 0
    forgotten: tuple[TopicIdPartition, ...] = ()
    room_bytes: int = FETCH_MAX_BYTES
    caller: CallContext = NO_CALLER
    readable: Readable = BY_ALL
    refused: InvalidRequestError | None = None
    member_epoch: int | None = None


@dataclass(slots=True)
class PartitionAnswer:
    """One partition of a response. `acknowledged`: whether the request had acknowledgements for it; if not,
    `acknowledge_error` has no meaning."""

    partition: TopicIdPartition
    error: KafkaError | None = None
    fetched: FetchedPartition | None = None
    acknowledged: bool = False
    acknowledge_error: KafkaError | None = None

    @property
    def size_bytes(self) -> int:
        """The size of its record batches."""
        return 0 if self.fetched is None else sum([batch.size for batch in self.fetched.batches])


@dataclass(slots=True)
class ShareAnswer:
    """The response to a ShareRequest. If `error` is set, the other fields have no meaning (PL-421)."""

    error: KafkaError | None = None
    lock_ms: int = 0
    delay_max_ms: int = 0
    delivery_count_limit: int = 0
    dead_letter_topic: str = ""
    session_id: int | None = None
    partitions: Sequence[PartitionAnswer] = ()
    throttle_ms: int = 0


OnAnswer = Callable[[ShareAnswer], None]
