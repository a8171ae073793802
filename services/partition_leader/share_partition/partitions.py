"""The share-partitions of this process, and the fetches that wait for them.

Keeps one host per share-partition, created by the first fetch that names it (PL-601). When one is dropped, its
generation is remembered, because its successor's must be higher (PL-602). Wake-ups are collected: once per turn of the
event loop the waiters try again, in order of arrival, for as long as their share-partition can serve one more (P-5).
Work on many share-partitions is deferred if no caller waits for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, Protocol, TypeVar

import structlog

from kip932.errors import GroupIdNotFoundError, InQuarantineError, KafkaError, NotLeaderOrFollowerError
from kip932.ids import SharePartitionKey, TopicIdPartition
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.quarantined import QuarantinedPartitions
from partition_leader.share_partition.core.status import Status
from partition_leader.share_partition.host import SharePartitionHost
from partition_leader.share_partition.leader_parts import LeaderParts
from partition_leader.topic_log.topic_log import TopicLog
from shard_runtime.config.group_config import GroupConfig
from shard_runtime.rpc.bounds import Turns

log = structlog.get_logger(__name__)

#: How many woken share-partitions are served, or how many waits are ended, in one turn of the event loop.
_WAKE_SLICE: Final = 500
#: The number of share-partitions whose deferred work is done in one turn of the event loop: about 10 ms.
DEFERRED_SLICE: Final = 200

#: Work on one share-partition.
HostWork = Callable[[SharePartitionHost], object]


class DeferredWork:
    """Work on many share-partitions that no caller waits for, in the order in which it came.

    It is done in slices, so that other tasks run in between (CM-97). To callers it appears to be done at once: work due
    on a share-partition is done before its host is returned to a caller.

    `is_live`: returns whether a share-partition is still in the cache. Work on a dropped one is discarded, because
    after a drop nothing is left to do.
    """

    def __init__(self, is_live: Callable[[SharePartitionHost], bool]) -> None:
        self._is_live = is_live
        self._due: dict[SharePartitionHost, list[HostWork]] = {}
        self._order: deque[SharePartitionHost] = deque()
        self._task: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        return bool(self._due)

    def add(self, hosts: Iterable[SharePartitionHost], work: HostWork) -> None:
        """Do `work` on each: at once if there are few, else one slice per turn of the event loop."""
        hosts = list(hosts)
        if len(hosts) <= DEFERRED_SLICE:
            for host in hosts:
                self.settle(host)
                if self._is_live(host):
                    work(host)
            return
        for host in hosts:
            due = self._due.get(host)
            if due is None:
                self._due[host] = [work]
                self._order.append(host)
            else:
                due.append(work)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="share-partitions-later")

    def settle(self, host: SharePartitionHost) -> None:
        """Do the work that is due on this share-partition now."""
        for work in self._due.pop(host, ()):
            if self._is_live(host):
                work(host)

    async def close(self) -> None:
        """Forget all work that is still due, and end the task."""
        self._due.clear()
        self._order.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        turns = Turns(DEFERRED_SLICE)
        try:
            while self._order:
                try:
                    self.settle(self._order.popleft())
                except Exception:  # the work on the other share-partitions must go on
                    log.exception("share_partition_work_failed")
                await turns.step()
        finally:
            self._task = None


class Waiter(Protocol):
    """A parked fetch."""

    @property
    def needs_bytes(self) -> bool:
        """Return whether it waits for records. If not, any share-partition that it can lock completes it (PL-212)."""
        ...

    def attempt(self) -> None:
        """Try to complete; does nothing if it already has."""
        ...

    def partition_failed(self, key: SharePartitionKey, error: KafkaError) -> None:
        """Handle the `error` with which one of its share-partitions failed to initialise (PL-604)."""
        ...


class SharePartitions:
    """The cache of share-partition hosts, by key and by topic-partition."""

    def __init__(self, parts: LeaderParts) -> None:
        self._parts = parts
        self._hosts: dict[SharePartitionKey, SharePartitionHost] = {}
        self._by_partition: dict[TopicIdPartition, dict[SharePartitionKey, SharePartitionHost]] = {}
        self._by_group: dict[str, dict[SharePartitionKey, SharePartitionHost]] = {}
        self._retiring: dict[SharePartitionKey, SharePartitionHost] = {}
        # (leader epoch, highest generation used under it). One number serves all groups: it must only rise (PL-602).
        self._generations: dict[TopicIdPartition, tuple[int, int]] = {}
        self._waiters: dict[SharePartitionKey, dict[Waiter, None]] = {}
        # The waiters that need no bytes: an empty share-partition can serve them too (PL-212).
        self._waiters_without_bytes: dict[SharePartitionKey, dict[Waiter, None]] = {}
        self._woken: dict[SharePartitionKey, None] = {}
        self._drain_due = False
        self._handing_over: dict[asyncio.Future[None], set[SharePartitionHost]] = {}
        self._later = DeferredWork(lambda host: self._hosts.get(host.key) is host)
        self._quarantined = QuarantinedPartitions()
        self._forgetting: set[asyncio.Task[None]] = set()
        self._for_letters: set[SharePartitionHost] = set()

    def __len__(self) -> int:
        return len(self._hosts)

    def hosts(self) -> Iterable[SharePartitionHost]:
        """Return every share-partition in the cache."""
        return self._hosts.values()

    def groups(self) -> Iterable[str]:
        """Return every group with a share-partition in the cache."""
        return self._by_group

    def configs_changed(self) -> None:
        """Give each share-partition its group's current configs (PL-1003), and let parked fetches retry (PL-214)."""
        for group_id, hosts in self._by_group.items():
            config = self._parts.config(group_id)
            for host in hosts.values():
                host.config = config
        for host in self._retiring.values():
            host.config = self._parts.config(host.key.group_id)
        self.later(list(self._hosts), lambda host: host.feed(ev.SettingsChanged(host.config)))

    def config(self, group_id: str) -> GroupConfig:
        """Return a group's effective configs under the current metadata."""
        return self._parts.config(group_id)

    def cached(self, key: SharePartitionKey) -> SharePartitionHost | None:
        """Return the host if there is one, after doing the work due on it. Acknowledgements never create one
        (PL-402)."""
        host = self._hosts.get(key)
        if host is not None and self._later:
            self._later.settle(host)
            host = self._hosts.get(key)
        return host

    def peek(self, key: SharePartitionKey) -> SharePartitionHost | None:
        """Return the host if there is one, without doing the work that is due on it."""
        return self._hosts.get(key)

    def has(self, key: SharePartitionKey) -> bool:
        """Return whether there is a host, without doing the work that is due on it."""
        return key in self._hosts

    def later(self, keys: Iterable[SharePartitionKey], work: HostWork) -> None:
        """Do `work` on those of these share-partitions that are cached: at once if they are few; otherwise in slices,
        and on each one before its host is returned to a caller (CM-97)."""
        self._later.add([host for key in keys if (host := self._hosts.get(key)) is not None], work)

    def obtain(self, key: SharePartitionKey) -> SharePartitionHost | None:
        """Return the host, created if necessary; None while its predecessor retires (PL-631). Raises KafkaError for a
        partition that this process does not lead, and InQuarantineError until the state is found intact (PL-604)."""
        host = self.cached(key)
        if not self._quarantined.is_empty:
            return self._obtain_quarantined(key, host)
        return host or self._make(key)

    def _obtain_quarantined(self, key: SharePartitionKey, host: SharePartitionHost | None) -> SharePartitionHost | None:
        """Do what `obtain` does while the state of some share-partitions is in quarantine."""
        now_ms = self._parts.clock.now_ms()
        error = self._quarantined.error_of(key, now_ms)
        if host is not None and host.core.status is not Status.INITIALIZING:
            self._quarantined.over(key)
            return host
        if host is None and (error is None or self._quarantined.is_due(key, now_ms)):
            host = self._make(key)
        if error is not None:
            raise error
        return host

    def _make(self, key: SharePartitionKey) -> SharePartitionHost | None:
        led = self._parts.lead(key.topic_partition)
        if key in self._retiring:
            return None
        generation = self._next_generation(key.topic_partition, led.log.epoch)
        host = SharePartitionHost(key, led, generation, self, self._parts)
        self._hosts[key] = host
        self._by_partition.setdefault(key.topic_partition, {})[key] = host
        self._by_group.setdefault(key.group_id, {})[key] = host
        host.start()
        return host

    # --- waiters

    def wait(self, waiter: Waiter, keys: Iterable[SharePartitionKey]) -> None:
        """Wake `waiter` whenever one of `keys` changes, until `stop_waiting`."""
        for key in keys:
            self._waiters.setdefault(key, {})[waiter] = None
            if not waiter.needs_bytes:
                self._waiters_without_bytes.setdefault(key, {})[waiter] = None

    def stop_waiting(self, waiter: Waiter, keys: Iterable[SharePartitionKey]) -> None:
        """Forget a waiter."""
        for key in keys:
            for table in (self._waiters, self._waiters_without_bytes):
                waiters = table.get(key)
                if waiters is not None:
                    waiters.pop(waiter, None)
                    if not waiters:
                        del table[key]

    def stop_waiting_in_turns(self, waiter: Waiter, keys: Sequence[SharePartitionKey]) -> None:
        """Forget a waiter, a slice at a time. Until that is done the waiter may still be called, and must do
        nothing."""
        task = asyncio.get_running_loop().create_task(self._forget(waiter, keys), name="waiter-forgotten")
        self._forgetting.add(task)
        task.add_done_callback(self._forgetting.discard)

    async def _forget(self, waiter: Waiter, keys: Sequence[SharePartitionKey]) -> None:
        for first in range(0, len(keys), _WAKE_SLICE):
            self.stop_waiting(waiter, keys[first : first + _WAKE_SLICE])
            await asyncio.sleep(0)

    def waiting(self, key: SharePartitionKey) -> int:
        """Return how many fetches wait for this share-partition."""
        return len(self._waiters.get(key, ()))

    @property
    def parked(self) -> int:
        """How many fetches wait."""
        return len({waiter for waiters in self._waiters.values() for waiter in waiters})

    def wake(self, host: SharePartitionHost) -> None:
        """Let the waiters of this share-partition try at the end of this turn of the event loop."""
        self._wake_key(host.key)

    def wake_partition(self, partition: TopicIdPartition) -> None:
        """Let the waiters of every group try: the topic-partition has new records (PL-214)."""
        for key in self._by_partition.get(partition, ()):
            self._wake_key(key)

    def _wake_key(self, key: SharePartitionKey) -> None:
        if key not in self._waiters:
            return
        self._woken[key] = None
        if not self._drain_due:
            self._drain_due = True
            asyncio.get_running_loop().call_soon(self._drain)

    def _drain(self) -> None:
        woken = list(islice(self._woken, _WAKE_SLICE))
        for key in woken:
            del self._woken[key]
        self._drain_due = bool(self._woken)
        if self._drain_due:
            asyncio.get_running_loop().call_soon(self._drain)
        for key in woken:
            try:
                self._serve(key)
            except Exception:
                log.exception("waiting_fetches_failed", share_partition=key.text)

    def _serve(self, key: SharePartitionKey) -> None:
        """Let waiters of a share-partition try, in order of arrival, for as long as it can serve one more.

        If there is no host, every waiter tries: it creates a new one, or learns that leadership is lost.
        """
        for table in (self._waiters, self._waiters_without_bytes):
            if not self._can_serve(key, table):
                continue
            for waiter in tuple(table.get(key, ())):
                waiter.attempt()
                if not self._can_serve(key, table):
                    break

    def _can_serve(self, key: SharePartitionKey, table: dict[SharePartitionKey, dict[Waiter, None]]) -> bool:
        host = self._hosts.get(key)
        if host is None or key not in table:
            return key in table
        return host.ready() if table is self._waiters else host.lockable()

    def load_for_letters(self, key: SharePartitionKey) -> None:
        """Load a share-partition to write the dead letters left in it, and retire it once each was tried (PL-922). Does
        nothing if it is already loaded. Raises KafkaError for a partition that this process does not lead."""
        if key not in self._hosts and (host := self._make(key)) is not None:
            self._for_letters.add(host)

    # --- called by hosts

    def activated(self, host: SharePartitionHost) -> None:
        """Let the waiters of a loaded share-partition try. If it was loaded only to write its dead letters, and no
        fetch waits for it, it retires: dead letters that were not tried yet still are (PL-921)."""
        self._parts.letters.loaded(host.key, None)
        if host in self._for_letters:
            self._for_letters.discard(host)
            if host.key not in self._waiters:
                host.feed(ev.Retire(GroupIdNotFoundError(f"{host.key.text} was loaded for its dead letters alone")))
        self._wake_key(host.key)

    def initialize_failed(self, host: SharePartitionHost, error: KafkaError) -> None:
        """Take the share-partition out of the cache, and report the error once to every fetch that waits for it
        (PL-604)."""
        if self._hosts.get(host.key) is not host:
            return
        self._remove(host)
        if isinstance(error, InQuarantineError):
            self._quarantined.note(host.key, error, self._parts.clock.now_ms())
        else:
            self._quarantined.over(host.key)
        for waiter in tuple(self._waiters.get(host.key, ())):
            waiter.partition_failed(host.key, error)

    def fenced(self, host: SharePartitionHost, retiring: bool) -> None:
        """Take the share-partition out of the cache. A retiring one finishes its writes before a successor is created
        (PL-631)."""
        self._remove(host)
        if retiring:
            self._retiring[host.key] = host
        self._wake_key(host.key)

    def dropped(self, host: SharePartitionHost, generation: int) -> None:
        """Forget a share-partition that has ended, but keep its generation (PL-602)."""
        self._remove(host)
        if self._retiring.get(host.key) is host:
            del self._retiring[host.key]
        self._remember_generation(host.key.topic_partition, host.log.epoch, generation)
        self._wake_key(host.key)
        for done, hosts in self._handing_over.items():
            hosts.discard(host)
            if not hosts and not done.done():
                done.set_result(None)

    # --- leadership

    def leadership_lost(self, partition: TopicIdPartition, topic_log: TopicLog, error: KafkaError) -> None:
        """Drop every share-partition on this log of a topic-partition, without any write (PL-632)."""
        for host in self._on_log(partition, topic_log):
            host.drop(error)
        remembered = self._generations.get(partition)
        if remembered is not None and remembered[0] <= topic_log.epoch:
            del self._generations[partition]  # an epoch that has ended is never used again (CM-12)

    async def hand_over(
        self, partition: TopicIdPartition, topic_log: TopicLog, error: KafkaError, timeout_s: float
    ) -> None:
        """Retire every share-partition on this log, wait up to `timeout_s` for their writes, then drop the others.

        So a leader's outgoing calls end before it releases its shard (CM-4, CM-12).
        """
        for host in self._on_log(partition, topic_log):
            self._later.settle(host)
            host.feed(ev.Retire(error))
        left = set(self._on_log(partition, topic_log))
        if left:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._handing_over[done] = left
            try:
                await asyncio.wait([done], timeout=timeout_s)
            finally:
                del self._handing_over[done]
                self.leadership_lost(partition, topic_log, error)
        else:
            self.leadership_lost(partition, topic_log, error)

    def _on_log(self, partition: TopicIdPartition, topic_log: TopicLog) -> list[SharePartitionHost]:
        retiring = [host for key, host in self._retiring.items() if key.topic_partition == partition]
        cached = self._by_partition.get(partition, {}).values()
        return [host for host in (*cached, *retiring) if host.log is topic_log]

    def of_partition(self, partition: TopicIdPartition) -> list[SharePartitionHost]:
        """Return every group's cached share-partition of a topic-partition."""
        return list(self._by_partition.get(partition, {}).values())

    def of_group(self, group_id: str) -> list[SharePartitionKey]:
        """Return every cached share-partition of a group."""
        return list(self._by_group.get(group_id, {}))

    async def close(self) -> None:
        """Drop everything and end the hosts' tasks."""
        await self._later.close()
        for task in self._forgetting:
            task.cancel()
        hosts = [*self._hosts.values(), *self._retiring.values()]
        for host in hosts:
            host.drop(NotLeaderOrFollowerError())
        await asyncio.gather(*(host.close() for host in hosts))

    def _remove(self, host: SharePartitionHost) -> None:
        key = host.key
        self._for_letters.discard(host)
        if self._hosts.get(key) is not host:
            return
        del self._hosts[key]
        _discard(self._by_partition, key.topic_partition, key)
        _discard(self._by_group, key.group_id, key)

    def _next_generation(self, partition: TopicIdPartition, epoch: int) -> int:
        """Return a generation above all those that this process has used for share-partitions of the partition in this
        epoch."""
        remembered = self._generations.get(partition)
        generation = remembered[1] + 1 if remembered is not None and remembered[0] == epoch else 1
        self._remember_generation(partition, epoch, generation)
        return generation

    def _remember_generation(self, partition: TopicIdPartition, epoch: int, generation: int) -> None:
        self._generations[partition] = max(self._generations.get(partition, (0, 0)), (epoch, generation))


Index = TypeVar("Index")


def _discard(
    index: dict[Index, dict[SharePartitionKey, SharePartitionHost]], name: Index, key: SharePartitionKey
) -> None:
    entries = index[name]
    del entries[key]
    if not entries:
        del index[name]
