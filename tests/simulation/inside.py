"""Reads states, groups and logs inside the processes of a simulated world, from those processes that may respond
now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kip932.ids import (
    STATE_ACKNOWLEDGED,
    STATE_ARCHIVED,
    STATE_ARCHIVING,
    SharePartitionKey,
    TopicIdPartition,
    shard_index,
)
from tests.simulation.final import GroupEnd, LogEnd
from tests.simulation.history import Share, StateSeen

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

#: By group and partition: state epoch and start offset.
Starts = dict[str, dict[int, tuple[int, int]]]
Settled = Callable[[SharePartitionKey], bool]

_DELAYED = 16
_LEAVING = frozenset({STATE_ACKNOWLEDGED, STATE_ARCHIVING, STATE_ARCHIVED})
_SETTLED = _LEAVING | {_DELAYED}


def running(world: World) -> Iterator[Process]:
    """Yield the started processes that are alive and not paused."""
    for process in list(world.processes.values()):
        if process.parts is not None and not process.life.halted and not process.ended:
            yield process


def confirmed(host: Any) -> Any:
    """Return the shard of a host that may respond, if the store has confirmed everything in it; else None."""
    tenure = host._tenure
    if host.shard is None or tenure is None or host.waiting or not tenure.lease.valid():
        return None
    return host.shard


def states(process: Process) -> Iterator[tuple[SharePartitionKey, Any]]:
    """Yield the share-partition states that a process may return in responses."""
    for host in process.state.hosts if process.state is not None else ():
        shard = confirmed(host)
        if shard is not None:
            yield from shard._states.items()


def topic_starts(world: World, topic_id: bytes, *, settled: bool) -> Starts:
    """Return the groups that have state for a topic. `settled`: only from shards with nothing unconfirmed; otherwise
    start offsets may be ahead of the confirmed ones."""
    found: Starts = {}
    for process in running(world):
        for host in process.state.hosts if process.state is not None else ():
            tenure = host._tenure
            if host.shard is None or tenure is None or not tenure.lease.valid() or (settled and host.waiting):
                continue
            for key, state in host.shard._states.items():
                if key.topic_id == topic_id:
                    found.setdefault(key.group_id, {})[key.partition] = (state.state_epoch, state.start_offset)
    return found


def settled_now(world: World) -> Settled:
    """Return a predicate for share-partitions: True if the shard is served at this moment, with nothing unconfirmed in
    it."""
    settled: set[int] = set()
    shards = 1
    for process in running(world):
        hosts = process.state.hosts if process.state is not None else ()
        shards = len(hosts) or shards
        settled |= {number for number, host in enumerate(hosts) if confirmed(host) is not None}
    return lambda key: shard_index(key.text, shards) in settled


def asked_epochs(
    partition: TopicIdPartition, asked: Starts, now: Starts, settled: Settled
) -> tuple[tuple[str, int], ...]:
    """Return, for each group with state for a topic, the state epoch of one of the topic's partitions; −1 if it has
    none for it.

    A group counts as having none only if nothing was unconfirmed in the partition's shard, and if the state by which
    the group was known still exists in `now`; otherwise the leader may have received another response, or the group may
    be gone.
    """
    found = []
    for group_id, starts in asked.items():
        if partition.partition in starts:
            found.append((group_id, starts[partition.partition][0]))
        elif settled(SharePartitionKey(group_id, *partition)) and any(
            now.get(group_id, {}).get(number, (-1, -1))[0] == state_epoch for number, (state_epoch, _) in starts.items()
        ):
            found.append((group_id, -1))
    return tuple(found)


def share_of(key: SharePartitionKey) -> Share:
    """Return a share-partition in the form used in histories."""
    return Share(key.group_id, key.topic_id.hex(), key.partition)


def seen(at_ms: int, process: str, share: Share, state: Any) -> StateSeen:
    """Return a state in the form used in histories."""
    batches = tuple(tuple(batch) for batch in state.batches)
    epochs = (state.state_epoch, state.leader_epoch)
    failures = tuple(map(tuple, state.failures))
    numbers = (*epochs, state.start_offset, state.delivery_complete_count)
    return StateSeen(at_ms, process, share, *numbers, batches, failures)


def all_states(world: World) -> dict[Share, StateSeen]:
    """Return every share-partition state of the cluster."""
    found = {}
    for process in running(world):
        for key, state in states(process):
            share = share_of(key)
            found[share] = seen(world.now_ms(), process.name, share, state)
    return dict(sorted(found.items()))


def all_groups(world: World) -> dict[str, GroupEnd]:
    """Return every group of the cluster."""
    found = {}
    for process in running(world):
        for host in process.groups.hosts if process.groups is not None else ():
            shard = confirmed(host)
            for group_id, group in shard.groups.items() if shard is not None else ():
                call = shard._administration.calls.under_way(group_id, process.clock.now_ms())
                found[group_id] = _group_end(group, "" if call is None else call.kind.value)
    return dict(sorted(found.items()))


def _group_end(group: Any, under_way: str) -> GroupEnd:
    topics = sorted((topic_id.hex(), topic) for topic_id, topic in group.states.topics.items())
    return GroupEnd(
        group.epoch,
        len(group.members),
        tuple((name, index) for name, topic in topics for index in topic.initialized),
        tuple(
            (name, index, entry.start_offset, entry.state_epoch)
            for name, topic in topics
            for index, entry in topic.initializing.items()
        ),
        tuple(sorted(topic_id.hex() for topic_id in group.states.deleting)),
        group.states.dropping,
        under_way,
    )


def logs(world: World) -> dict[tuple[str, int], LogEnd]:
    """Return the start and end of every log that has a leader."""
    found = {}
    for process in running(world):
        for partition, led in process.led.items():
            if led.lease.valid():
                name = (partition.topic_id.hex(), partition.partition)
                found[name] = LogEnd(led.log.log_start_offset, led.log.high_watermark)
    return dict(sorted(found.items()))


def quiet(world: World) -> bool:
    """Return True if no coordinator is waiting for the store."""
    return not any(
        host.waiting
        for process in running(world)
        for role in (process.state, process.groups)
        if role is not None
        for host in role.hosts
    )


def locks_used(core: Any) -> int:
    """Count, independently of the product, the offsets in flight that use up record locks: without dead letters, and
    without those finished before the first record that is neither (PL-915). While records are delayed, count records
    instead (PL-935)."""
    window = core._state.window
    if window.counts_records:
        return sum(
            last - first + 1
            for batch in window.walk()
            for first, last, code, _ in batch.runs(batch.first, batch.last)
            if code not in _SETTLED
        )
    if not core._state.dead_letters.waiting:
        return int(window.in_flight)
    runs = [run for batch in window.walk() for run in batch.runs(max(batch.first, window.start_offset), batch.last)]
    front = next((first for first, _, code, _ in runs if code not in _LEAVING), window.next_offset)
    if window.open_gap is not None:
        front = min(front, window.open_gap[0])
    letters = sum(last - first + 1 for first, last, code, _ in runs if first >= front and code == STATE_ARCHIVING)
    return int(window.next_offset - front - letters)
