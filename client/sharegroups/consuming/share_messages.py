"""The messages of a share session: builds requests from session steps and acknowledgements, and deliveries from
responses.

The functions here neither wait nor keep state.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from kip932.api.v1.common_pb2 import AcknowledgementBatch
from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest, ShareFetchResponse
from kip932.api.v1.share_stream_pb2 import ShareStreamRequest
from kip932.ids import BATCH_RECORDS_MAX, TopicIdPartition
from kip932.record_batches import plausible_count
from sharegroups.connection import wire
from sharegroups.consuming.ack_outbox import PendingAck, by_partition
from sharegroups.consuming.core.acknowledgements import AckBatch, Delivery
from sharegroups.consuming.core.fetch_session import SessionStep
from sharegroups.consuming.core.record_batch import Acquired, Extent, Selection, Slice, clip, cut, select
from sharegroups.consuming.member import Member
from sharegroups.messages import DecodedBatch, Delivered, SessionHandle

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

#: The maximum number of acquired offsets of one partition that are accepted from one response; far more than a leader
#: acquires.
DELIVERY_OFFSETS_MAX: Final = 2 * BATCH_RECORDS_MAX


def fetch_request(
    template: ShareFetchRequest,
    number: int,
    step: SessionStep,
    sent: list[PendingAck],
    wanted: Container[TopicIdPartition],
) -> ShareStreamRequest:
    """Return a ShareFetch with the acknowledgements in `sent`. `template` contains the fields that are the same in all
    fetches."""
    message = ShareStreamRequest(correlation_id=number, fetch=template, traceparent=_traceparent(sent))
    request = message.fetch
    request.share_session_epoch = step.epoch
    if step.session_id is not None:
        request.session_id = step.session_id
    acks = by_partition(sent)
    topics: dict[bytes, ShareFetchRequest.Topic] = {}
    for partition in dict.fromkeys([*step.added, *acks]) if step.added else acks:
        topic_id, index = partition
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = request.topics.add(topic_id=topic_id)
        _add_batches(topic.partitions.add(partition_index=index).acknowledgement_batches, acks.get(partition, ()))
    # A partition that is acknowledged but no longer wanted is in both lists: the leader processes the acknowledgements,
    # then forgets the partition (PL-507).
    strangers = [partition for partition in acks if partition not in wanted]
    if strangers or step.forgotten:
        for topic_id, partitions in wire.by_topic(dict.fromkeys([*step.forgotten, *strangers])).items():
            request.forgotten_topics_data.add(topic_id=topic_id, partitions=partitions)
    return message


def acknowledge_request(member: Member, number: int, step: SessionStep, sent: list[PendingAck]) -> ShareStreamRequest:
    """Return a ShareAcknowledge with the acknowledgements in `sent`."""
    message = ShareStreamRequest(correlation_id=number, traceparent=_traceparent(sent))
    request = message.acknowledge
    request.group_id = member.group_id
    request.member_id = member.member_id
    request.share_session_epoch = step.epoch
    request.is_renew_ack = any(ack.renews for ack in sent)
    if step.session_id is not None:
        request.session_id = step.session_id
    acks = by_partition(sent)
    for topic_id, partitions in wire.by_topic(acks).items():
        topic = request.topics.add(topic_id=topic_id)
        for index in partitions:
            part = topic.partitions.add(partition_index=index)
            _add_batches(part.acknowledgement_batches, acks[TopicIdPartition(topic_id, index)])
    return message


def _traceparent(sent: Iterable[PendingAck]) -> str:
    """Return the traceparent of the first sampled span among those of the acknowledgements (CM-216)."""
    return next((ack.trace.traceparent for ack in sent if ack.trace is not None and ack.trace.traceparent), "")


def _add_batches(into: RepeatedCompositeFieldContainer[AcknowledgementBatch], batches: Iterable[AckBatch]) -> None:
    for first, last, types, delays, undelivered, reason in batches:
        into.add(
            first_offset=first,
            last_offset=last,
            acknowledge_types=types,
            release_delays_ms=delays,
            undelivered=undelivered,
            reason=reason,
        )


class Locked(NamedTuple):
    """The values that all deliveries of one response have in common.

    The records are locked by `session` in `generation`, since `acquired_ms` (ms of the loop's clock) and for `lock_ms`;
    0 while that is unknown. `ahead`: more records were requested than a poll returns (CL-136).
    """

    session: SessionHandle
    generation: int
    acquired_ms: int = 0
    lock_ms: int = 0
    ahead: bool = False


class PartitionDelivery(NamedTuple):
    """The delivery of one partition of a response, and the size of its batches in bytes."""

    delivered: Delivered
    size: int


def delivered(
    topic: str, partition: TopicIdPartition, locked: Locked, part: ShareFetchResponse.PartitionResult
) -> PartitionDelivery:
    """Return the acquired records of one partition of a response. Batches without acquired records are not decoded."""
    records = part.records
    data = [batch.batch for batch in records]  # only once, since each access to the field copies its bytes
    size = sum(map(len, data))
    if len(records) == 1 and len(part.acquired_records) == 1:
        (batch,), (taken,) = records, part.acquired_records
        base, first, last = batch.base_offset, taken.first_offset, taken.last_offset
        count = min(batch.count, BATCH_RECORDS_MAX)
        if base <= first and last < base + count and not batch.is_control:  # the acquired range is within the batch
            selection = Selection(
                [Slice(0, first - base, last + 1 - base, taken.delivery_count)], [], [(first, last)], last + 1 - first
            )
            return PartitionDelivery(
                _of_locked(topic, partition, locked, [wire.decode(batch, data[0])], selection), size
            )
    acquired = clip(
        [Acquired(r.first_offset, r.last_offset, r.delivery_count) for r in part.acquired_records], DELIVERY_OFFSETS_MAX
    )
    extents = [
        Extent(batch.base_offset, plausible_count(batch.count, len(found)), batch.is_control)
        for batch, found in zip(records, data, strict=True)
    ]
    selected = select(acquired, extents)
    order = {batch: number for number, batch in enumerate(dict.fromkeys([piece.batch for piece in selected.slices]))}
    slices = [Slice(order[batch], start, stop, count) for batch, start, stop, count in selected.slices]
    batches = [wire.decode(records[batch], data[batch]) for batch in order]
    return PartitionDelivery(_of_locked(topic, partition, locked, batches, selected._replace(slices=slices)), size)


def cut_off(part: Delivered, most: int) -> Delivered | None:
    """Keep whole batches in `part` until `most` records are reached, and return the rest; None if nothing is left.

    The application must not have received any of these records.
    """
    selection = Selection(part.slices, part.delivery.gaps, part.delivery.ranges, part.records)
    found = cut(selection, [Extent(batch.base_offset, batch.size) for batch in part.batches], most)
    if found is None:
        return None
    (part.slices, gaps, ranges, part.records), left = found
    part.delivery = Delivery(ranges, gaps)
    stays = left.slices[0].batch
    slices = [Slice(batch - stays, start, stop, count) for batch, start, stop, count in left.slices]
    batches, part.batches = part.batches[stays:], part.batches[:stays]
    locked = Locked(part.session, part.generation, part.acquired_ms, part.lock_ms, part.ahead)
    return _of_locked(part.topic, part.id_partition, locked, batches, left._replace(slices=slices))


def _of_locked(
    topic: str, partition: TopicIdPartition, locked: Locked, batches: list[DecodedBatch], selection: Selection
) -> Delivered:
    made = Delivered(
        topic,
        partition,
        locked.session,
        locked.generation,
        Delivery(selection.ranges, selection.gaps),
        batches,
        selection.slices,
        selection.records,
        locked.ahead,
    )
    made.acquired_ms, made.lock_ms = locked.acquired_ms, locked.lock_ms
    return made
