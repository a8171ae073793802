"""The messages of a share session: builds requests from a session step and acknowledgements, deliveries from answers.

Its functions neither wait nor keep state.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Final

from kip932.api.v1.common_pb2 import AcknowledgementBatch
from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest, ShareFetchResponse
from kip932.api.v1.share_stream_pb2 import ShareStreamRequest
from kip932.ids import BATCH_RECORDS_MAX, TopicIdPartition
from kip932.record_batches import plausible_count
from sharegroups import wire
from sharegroups.aio.ack_outbox import PendingAck, by_partition
from sharegroups.aio.member import Member
from sharegroups.core.acknowledgements import AckBatch, Delivery
from sharegroups.core.fetch_session import SessionStep
from sharegroups.core.record_batch import Acquired, Extent, Slice, clip, select
from sharegroups.messages import Delivered, SessionHandle

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

#: How many acquired offsets of one partition one answer may bring; far more than a leader acquires.
DELIVERY_OFFSETS_MAX: Final = 2 * BATCH_RECORDS_MAX


def fetch_request(
    template: ShareFetchRequest,
    number: int,
    step: SessionStep,
    sent: list[PendingAck],
    wanted: Container[TopicIdPartition],
) -> ShareStreamRequest:
    """A ShareFetch with the acknowledgements in `sent`. `template` holds the fields that all fetches have in common."""
    message = ShareStreamRequest(correlation_id=number, fetch=template)
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
    # A partition that is acknowledged but no longer wanted is named in both lists: the leader acknowledges, then
    # forgets it (PL-507).
    strangers = [partition for partition in acks if partition not in wanted]
    if strangers or step.forgotten:
        for topic_id, partitions in wire.by_topic(dict.fromkeys([*step.forgotten, *strangers])).items():
            request.forgotten_topics_data.add(topic_id=topic_id, partitions=partitions)
    return message


def acknowledge_request(member: Member, number: int, step: SessionStep, sent: list[PendingAck]) -> ShareStreamRequest:
    """A ShareAcknowledge with the acknowledgements in `sent`."""
    message = ShareStreamRequest(correlation_id=number)
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


def _add_batches(into: RepeatedCompositeFieldContainer[AcknowledgementBatch], batches: Iterable[AckBatch]) -> None:
    for first, last, types, delays in batches:
        into.add(first_offset=first, last_offset=last, acknowledge_types=types, release_delays_ms=delays)


def delivered(
    topic: str,
    partition: TopicIdPartition,
    session: SessionHandle,
    generation: int,
    part: ShareFetchResponse.PartitionResult,
) -> Delivered:
    """The acquired records of one partition of an answer. Batches without acquired records are not decoded."""
    records = part.records
    if len(records) == 1 and len(part.acquired_records) == 1:
        (batch,), (taken,) = records, part.acquired_records
        base, first, last = batch.base_offset, taken.first_offset, taken.last_offset
        size = min(batch.count, BATCH_RECORDS_MAX)
        if base <= first and last < base + size and not batch.is_control:  # nothing to cut
            slices = [Slice(0, first - base, last + 1 - base, taken.delivery_count)]
            delivery = Delivery([(first, last)])
            return Delivered(
                topic, partition, session, generation, delivery, [wire.decode(batch)], slices, last + 1 - first
            )
    acquired = clip(
        [Acquired(r.first_offset, r.last_offset, r.delivery_count) for r in part.acquired_records], DELIVERY_OFFSETS_MAX
    )
    extents = [
        Extent(batch.base_offset, plausible_count(batch.count, len(batch.batch)), batch.is_control) for batch in records
    ]
    selection = select(acquired, extents)
    slices = selection.slices
    used = {piece.batch for piece in slices}
    if len(used) == len(extents):
        batches = list(map(wire.decode, records))
    else:  # rare: the leader sent a batch without acquired records
        order = {batch: number for number, batch in enumerate(sorted(used))}
        slices = [piece._replace(batch=order[piece.batch]) for piece in slices]
        batches = [wire.decode(records[batch]) for batch in order]
    delivery = Delivery(selection.ranges, selection.gaps)
    return Delivered(topic, partition, session, generation, delivery, batches, slices, selection.records)
