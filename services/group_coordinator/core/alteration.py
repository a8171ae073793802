"""Decides alterations of an empty group's start offsets (GC-100…GC-106). Pure functions.

An alteration is an initialisation with a higher state epoch and a given offset. The entries in `initializing` keep
both, so that any owner of the shard can complete it (GC-72); `upkeep.finished` notes its outcome.
"""

from __future__ import annotations

from collections.abc import Mapping

from group_coordinator.core import records
from group_coordinator.core.commands import InitializeState
from group_coordinator.core.group import Group
from group_coordinator.core.heartbeat import Context, Draft
from group_coordinator.core.views import Topic, TopicsView
from kip932.errors import InvalidRequestError, KafkaError, UnknownTopicOrPartitionError
from kip932.ids import TopicIdPartition


def refusal(topic: Topic | None, name: str, index: int, start_offset: int) -> KafkaError | None:
    """The error if the image or the offset forbids altering a partition; else None (GC-100, GC-102, GC-105)."""
    if topic is None:
        return UnknownTopicOrPartitionError(f"topic {name} does not exist; expected a topic of the cluster")
    if not 0 <= index < topic.partitions:
        return UnknownTopicOrPartitionError(
            f"topic {name} has no partition {index}; expected one from 0 to {topic.partitions - 1}"
        )
    if start_offset < 0:
        return InvalidRequestError(
            f"start offset {start_offset} of {name}-{index} is negative; expected an offset from the log's start "
            "to its end"
        )
    return None


def altered(
    group: Group, offsets: Mapping[TopicIdPartition, int], call_id: int, attempt: int, context: Context
) -> tuple[Draft, dict[TopicIdPartition, KafkaError]]:
    """Move the partitions to initialising, and order their initialisation at a higher epoch (GC-102). Also returns the
    errors of partitions that left the image since the edge's check; when no partition remains, nothing is written
    (GC-105)."""
    draft = Draft(group)
    starts, refused = _valid(context.view, offsets)
    if not starts:
        return draft, refused
    draft.bump(group.metadata_hash, context.served_ms)
    epoch = draft.group.epoch
    draft.write(records.StateMetadata(group.group_id, group.states.altered(starts, epoch, context.now_ms, attempt)))
    asked = tuple((key, start) for key, start in sorted(offsets.items()) if key not in refused)
    draft.effects.append(InitializeState(group.group_id, attempt, epoch, asked, call_id=call_id))
    return draft, refused


def _valid(
    view: TopicsView, offsets: Mapping[TopicIdPartition, int]
) -> tuple[dict[Topic, dict[int, int]], dict[TopicIdPartition, KafkaError]]:
    starts: dict[Topic, dict[int, int]] = {}
    refused: dict[TopicIdPartition, KafkaError] = {}
    for key, start in offsets.items():
        topic = view.by_id(key.topic_id)
        error = refusal(topic, topic.name if topic is not None else key.text, key.partition, start)
        if error is not None:
            refused[key] = error
        elif topic is not None:
            starts.setdefault(topic, {})[key.partition] = start
    return starts, refused
