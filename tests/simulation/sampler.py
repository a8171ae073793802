"""Samples states, groups and sizes from time to time, in the processes that may respond."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from kip932.ids import STATE_ACQUIRED, SharePartitionKey
from partition_leader.share_partition.core.status import Status
from partition_leader.share_partition.core.transitions import DELAYED, PENDING
from shard_runtime.config import kafka_configs
from tests.simulation.history import GroupSeen, SizesSeen, StateSeen
from tests.simulation.inside import confirmed, locks_used, running, seen, share_of, states
from tests.simulation.shape import DELAYS_MAX_MS

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

#: An unchanged group is recorded again after this time, for checkers of groups that must not remain unchanged.
_AGAIN_MS: Final = 1_000
_SIZES_MS: Final = 1_000
#: How long a lock, or the write of a start offset, may be overdue on a running process.
_OVERDUE_MS: Final = 500
_CLOCKS_LEFT: Final = 20


class Sampler:
    """Records what has changed since the last sample."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._states: dict[SharePartitionKey, tuple[object, StateSeen]] = {}
        self._groups: dict[str, tuple[object, str, int]] = {}
        self._sizes_ms = -_SIZES_MS
        self._ran: set[tuple[str, int]] = set()

    def sample(self) -> None:
        """Take one sample."""
        now_ms = self._world.now_ms()
        sizes = now_ms - self._sizes_ms >= _SIZES_MS
        if sizes:
            self._sizes_ms = now_ms
        ran, self._ran = self._ran, set()
        for process in running(self._world):
            name = (process.name, process.incarnation)
            self._ran.add(name)
            self._sample_states(process, now_ms)
            self._sample_groups(process, now_ms)
            if sizes and name in ran:
                found = tuple(_sizes(process, self._world.phase == "rest"))
                self._world.history.add(SizesSeen(now_ms, process.name, found))

    def _sample_states(self, process: Process, now_ms: int) -> None:
        for key, state in states(process):
            before = self._states.get(key)
            if before is not None and before[0] is state:
                continue
            event = seen(now_ms, process.name, share_of(key), state)
            if before is None or _shown(before[1]) != _shown(event):
                self._world.history.add(event)
            self._states[key] = (state, event)

    def _sample_groups(self, process: Process, now_ms: int) -> None:
        for host in process.groups.hosts if process.groups is not None else ():
            shard = confirmed(host)
            for group_id, group in shard.groups.items() if shard is not None else ():
                view = shard._topics()
                known = (group, view.image, process.incarnation)
                before = self._groups.get(group_id)
                if before is not None and before[:2] == (known, process.name) and now_ms - before[2] < _AGAIN_MS:
                    continue
                self._groups[group_id] = (known, process.name, now_ms)
                self._world.history.add(_group_seen(now_ms, process, group, shard, view))


@asynccontextmanager
async def sampled(world: World, every_s: float) -> AsyncIterator[None]:
    """Take samples at intervals until the block ends. Errors of a sample are raised, since without samples the checkers
    would have less evidence than they expect."""
    sampling = asyncio.create_task(_sample(Sampler(world), every_s))
    try:
        yield
    finally:
        sampling.cancel()
    await asyncio.wait([sampling])
    if not sampling.cancelled():
        sampling.result()


async def _sample(sampler: Sampler, every_s: float) -> None:
    while True:
        sampler.sample()
        await asyncio.sleep(every_s)


def _shown(state: StateSeen) -> tuple[object, ...]:
    return (
        state.process,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        state.delivery_complete_count,
        state.batches,
        state.failures,
    )


def _group_seen(now_ms: int, process: Process, group: Any, shard: Any, view: Any) -> GroupSeen:
    topics = [topic for name in group.subscription.names if (topic := view.by_name(name)) is not None]
    subscribed = [(topic.topic_id.hex(), index) for topic in topics for index in range(topic.partitions)]
    initialized = {
        (topic_id.hex(), index) for topic_id, indexes in group.states.initialized.items() for index in indexes
    }
    target = tuple(
        (member, tuple((topic_id.hex(), index) for topic_id, indexes in assigned.items() for index in indexes))
        for member, assigned in sorted(group.targets.items())
    )
    return GroupSeen(
        now_ms,
        process.name,
        group.group_id,
        group.epoch,
        group.assignment_epoch,
        tuple((member_id, group.members[member_id].epoch) for member_id in sorted(group.members)),
        target,
        process.incarnation,
        tuple(sorted(subscribed)),
        tuple(sorted(initialized.intersection(subscribed))) if view.complete else (),
        shard._configs(group.group_id).session_timeout_ms,
    )


# ---- sizes


def _sizes(process: Process, resting: bool) -> Iterator[tuple[str, int, int]]:
    """Yield (name, length, maximum) of everything that may grow. At rest nothing is waiting."""
    for role, hosts in (("state", process.state), ("groups", process.groups)):
        for index, host in enumerate(hosts.hosts if hosts is not None else ()):
            if host.waiting:
                yield f"{role} {index}: operations that wait", host.waiting, host._options.waiting_max
    if process.groups is not None:
        yield from _group_sizes(process)
    if process.leader is not None:
        yield from _leader_sizes(process, resting)


def _group_sizes(process: Process) -> Iterator[tuple[str, int, int]]:
    most = process.settings[kafka_configs.GROUP_MAX_SIZE]
    for _, shard in process.groups.shards.serving():
        members = [len(group.members) for group in shard.groups.values()]
        yield "members of a group", max(members, default=0), most
        # A join that the store refused leaves its session clock running until it expires (GC-33).
        yield "session clocks", len(shard._sessions), sum(members) + _CLOCKS_LEFT


def _leader_sizes(process: Process, resting: bool) -> Iterator[tuple[str, int, int]]:
    leader = process.leader
    requests, partitions, deadlines = leader.requests, leader.share_partitions, leader._deadlines
    sessions = len(requests.sessions)
    yield "share sessions", sessions, process.settings[kafka_configs.MAX_SHARE_SESSIONS]
    yield "share requests", requests.running, 0 if resting else 64 + 4 * sessions
    yield "fetches that wait", partitions.parked, requests.running
    if resting:
        yield "retiring share-partitions", len(partitions._retiring), 0
    yield "deadlines", len(deadlines._heap), max(65, 4 * len(deadlines._current) + 1)
    now_ms = process.clock.now_ms()
    hosts = [host for host in partitions.hosts() if host.core.status is Status.ACTIVE]
    due_ms = [deadline for host in hosts if (deadline := host.core.next_deadline()) is not None]
    yield "ms that a deadline is overdue", max(0, now_ms - min(due_ms, default=now_ms)), _OVERDUE_MS
    yield "ms that a lock is overdue", max((_overdue_ms(host, now_ms) for host in hosts), default=0), _OVERDUE_MS
    ends_ms = [end_ms - now_ms for host in hosts for end_ms in _delay_ends(host)]
    yield "ms that a delay is overdue", max(0, -min(ends_ms, default=0)), _OVERDUE_MS
    yield "ms until the last delay ends", max(ends_ms, default=0), int(max(DELAYS_MAX_MS))
    yield "records that wait for no write", sum(map(_forgotten, hosts)), 0
    yield "share-partitions that dead letters hold up", sum(map(_held_up, hosts)), 0


def _overdue_ms(host: Any, now_ms: int) -> int:
    """Return how long a lock has been overdue: each acquired record must have a timer (INV-19)."""
    runs = (run for batch in host.core._state.window.walk() for run in batch.lock_runs(batch.first, batch.last))
    return max((now_ms - deadline for *_, code, _, _, deadline in runs if code == STATE_ACQUIRED), default=0)


def _delay_ends(host: Any) -> list[int]:
    """Return when the delays of its delayed records end (PL-932): each must have a timer, and none may be delayed too
    long."""
    runs = (run for batch in host.core._state.window.walk() for run in batch.lock_runs(batch.first, batch.last))
    return [deadline for *_, code, _, _, deadline in runs if code == DELAYED]


def _held_up(host: Any) -> bool:
    """Return True if no new record is acquired although locks are free, counted independently and without dead letters
    (PL-915), and delayed records hold up nothing (PL-935)."""
    core, window, settings = host.core, host.core._state.window, host.config
    full = core.dead_letters_full(settings) or core.delayed_full(settings)
    if not core._state.dead_letters.waiting or core.can_acquire(settings) or full:
        return False
    return window.open_gap is None and locks_used(core) < settings.max_record_locks


def _forgotten(host: Any) -> int:
    """Count records with a pending acknowledgement or release for which nothing is queued, being written or read
    back."""
    state = host.core._state
    write_back = state.write_back
    if write_back.queued or write_back.outstanding is not None or write_back.unresolved:
        return 0
    runs = (run for batch in state.window.walk() for run in batch.lock_runs(batch.first, batch.last))
    return sum(last - first + 1 for first, last, code, *_ in runs if code & PENDING)
