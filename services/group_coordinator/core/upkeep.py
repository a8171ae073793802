"""Decides changes of share-partition state without a heartbeat: for outcomes of initialisation calls, deleted topics,
and state that the share coordinator has lost (GC-75, GC-76, GC-79, GC-80, GC-82).

Pure functions of one group; most return a draft, which has no records when there is nothing to do.
"""

from __future__ import annotations

from typing import Final

from group_coordinator.core import records
from group_coordinator.core.commands import (
    CheckSummaries,
    DeleteState,
    InitializationFinished,
    Repair,
)
from group_coordinator.core.group import Group
from group_coordinator.core.heartbeat import Context, Draft
from group_coordinator.core.lifecycle import Lifecycle
from group_coordinator.core.views import TopicsView
from kip932.ids import TopicIdPartition

#: How many rounds "read the summary, raise the epoch, initialise again" one call has; then a heartbeat starts over.
FENCED_ROUNDS_MAX: Final = 3


def finished(group: Group, outcome: InitializationFinished, context: Context, before: Lifecycle | None = None) -> Draft:
    """Note an initialisation's outcome: successes become initialised, failures are due at once, fenced partitions are
    requested again with a higher state epoch (OP-17).

    `before`: the lists before the alteration, if this is the outcome of one; failed partitions return to their place
    there (GC-103, OP-12). Only entries of the outcome's own attempt change (GC-76a), so a late or repeated outcome
    writes nothing.
    """
    draft = Draft(group)
    again = outcome.fenced if outcome.fenced_rounds < FENCED_ROUNDS_MAX else ()
    failed = outcome.failed if again else outcome.failed + outcome.fenced
    states = group.states.finished(outcome.succeeded, outcome.attempt)
    if before is None:
        states = states.failed(failed, outcome.attempt)
    else:
        states = states.returned(failed, outcome.attempt, before)
    attempt = context.next_attempt(context.now_ms) if again else 0
    epoch = max(group.epoch, outcome.stored_epoch) + 1
    retried = states.restart(again, outcome.attempt, epoch, context.now_ms, attempt) if again else states
    if retried is not states:
        draft.write(
            records.GroupMetadata(group.group_id, epoch, group.metadata_hash, len(group.members), group.used_ms)
        )
        draft.order_initialization(retried, attempt, outcome.fenced_rounds + 1, outcome.call_id)
    _write_states(draft, retried)
    return draft


def swept(group: Group, view: TopicsView) -> Draft:
    """Drop deleted topics from every list, and order the deletion of their state (GC-79, OP-5).

    The caller has checked that the view is new enough (GC-80). Still, a topic must be known to be deleted, not only be
    absent: an image rebuilt after the store lost entries may lack topics that were never deleted (CM-20).
    """
    draft = Draft(group)
    states = group.states
    mentioned = sorted(states.topics.keys() | states.deleting.keys())
    gone = [topic_id for topic_id in mentioned if view.by_id(topic_id) is None and view.is_deleted(topic_id)]
    orphans = tuple(
        TopicIdPartition(topic_id, index)
        for topic_id in gone
        if (topic := states.topics.get(topic_id))
        for index in sorted({*topic.initialized, *topic.initializing})
    )
    _write_states(draft, states.without(gone))
    if orphans:
        draft.effects.append(DeleteState(group.group_id, group.epoch, orphans))
    return draft


def repaired(group: Group, repair: Repair, context: Context) -> Draft:
    """Move partitions with lost state back to initialising, from offset 0 (GC-82).

    If the group epoch has changed since the summaries were read, the state may have been initialised meanwhile: then
    nothing changes, and the next check decides. A deleted topic has no state to restore; the sweep drops it.
    """
    draft = Draft(group)
    if repair.group_epoch != group.epoch:
        return draft
    attempt = context.next_attempt(context.now_ms)
    lost = [partition for partition in repair.lost if context.view.by_id(partition.topic_id) is not None]
    states = group.states.sent_back(lost, group.epoch, context.now_ms, attempt)
    _write_states(draft, states)
    draft.order_initialization(states, attempt)
    return draft


def summaries_to_check(group: Group, watched: bool) -> CheckSummaries | None:
    """Return the order to check whether the share coordinator still has the group's state (GC-82), or None when the
    group has no initialised partition. `watched`: also read the group's progress (GC-46)."""
    partitions = tuple(
        TopicIdPartition(topic_id, index) for topic_id, indexes in group.states.initialized.items() for index in indexes
    )
    return CheckSummaries(group.group_id, group.epoch, partitions, watched) if partitions else None


def _write_states(draft: Draft, states: Lifecycle) -> None:
    if states is not draft.group.states:
        draft.write(records.StateMetadata(draft.group.group_id, states))
