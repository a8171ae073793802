"""The share-partitions of this process, and the fetches that wait for them.

Keeps one host per share-partition, made by the first fetch that names it (PL-601); a dropped one leaves behind the
generation its successor must exceed (PL-602). Wake-ups are collected and served once per turn of the event loop, in
arrival order, to as many waiters as the share-partition can still serve (P-5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from kip932.errors import KafkaError, NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from kip932.ids import SharePartitionKey, TopicIdPartition
from partition_leader.group_view import GroupView
from partition_leader.share_partition_host import LeaderParts, SharePartitionHost


class Waiter(Protocol):
    """A parked fetch."""

    def attempt(self) -> None:
        """Try to complete; does nothing when it already has."""
        ...

    def partition_failed(self, key: SharePartitionKey, error: KafkaError) -> None:
        """One of its share-partitions failed to initialise."""
        ...


class SharePartitions:
    """The cache of share-partition hosts, by key and by topic-partition."""

    def __init__(self, parts: LeaderParts) -> None:
        self._parts = parts
        self._hosts: dict[SharePartitionKey, SharePartitionHost] = {}
        self._by_partition: dict[TopicIdPartition, dict[SharePartitionKey, SharePartitionHost]] = {}
        self._retiring: dict[SharePartitionKey, SharePartitionHost] = {}
        self._generations: dict[SharePartitionKey, tuple[int, int]] = {}
        self._waiters: dict[SharePartitionKey, dict[Waiter, None]] = {}
        self._woken: dict[SharePartitionKey, None] = {}
        self._drain_due = False

    def __len__(self) -> int:
        return len(self._hosts)

    def hosts(self) -> Iterable[SharePartitionHost]:
        """Every share-partition in the cache."""
        return self._hosts.values()

    def group(self, group_id: str) -> GroupView:
        """The configuration of a group, as it is at each look."""
        return self._parts.groups.view(group_id)

    def cached(self, key: SharePartitionKey) -> SharePartitionHost | None:
        """The host, if there is one (acknowledgements never create it, PL-402)."""
        return self._hosts.get(key)

    def obtain(self, key: SharePartitionKey) -> SharePartitionHost | None:
        """The host, made if needed; None while its predecessor retires (PL-631). Raises KafkaError when not leader."""
        host = self._hosts.get(key)
        if host is not None or key in self._retiring:
            return host
        led = self._parts.lead(key.topic_partition)
        generation = self._next_generation(key, led.log.epoch)
        host = SharePartitionHost(key, led, generation, self, self._parts)
        self._hosts[key] = host
        self._by_partition.setdefault(key.topic_partition, {})[key] = host
        host.start()
        return host

    # --- waiters

    def wait(self, waiter: Waiter, keys: Iterable[SharePartitionKey]) -> None:
        """Wake `waiter` whenever one of `keys` changes, until `stop_waiting`."""
        for key in keys:
            self._waiters.setdefault(key, {})[waiter] = None

    def stop_waiting(self, waiter: Waiter, keys: Iterable[SharePartitionKey]) -> None:
        """Forget a waiter."""
        for key in keys:
            waiters = self._waiters.get(key)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del self._waiters[key]

    @property
    def parked(self) -> int:
        """How many fetches wait."""
        return len({waiter for waiters in self._waiters.values() for waiter in waiters})

    def wake(self, host: SharePartitionHost) -> None:
        """Look at the waiters of this share-partition at the end of this turn."""
        self._wake_key(host.key)

    def wake_partition(self, partition: TopicIdPartition) -> None:
        """The topic-partition's end moved: every group's waiters look (PL-214)."""
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
        self._drain_due = False
        woken, self._woken = self._woken, {}
        for key in woken:
            for waiter in tuple(self._waiters.get(key, ())):
                host = self._hosts.get(key)
                # A missing host must be met by every waiter: it makes a new one or learns that leadership is gone.
                if host is not None and not host.ready():
                    break
                waiter.attempt()

    # --- what hosts tell

    def initialize_failed(self, host: SharePartitionHost, error: KafkaError) -> None:
        """Drop it; every waiting fetch of it gets the error once (PL-604)."""
        self._remove(host)
        for waiter in tuple(self._waiters.get(host.key, ())):
            waiter.partition_failed(host.key, error)

    def fenced(self, host: SharePartitionHost, error: KafkaError, retiring: bool) -> None:
        """Out of the cache; a retiring one finishes its writes before a successor is made (PL-631)."""
        del error
        self._remove(host)
        if retiring:
            self._retiring[host.key] = host
        self._wake_key(host.key)

    def dropped(self, host: SharePartitionHost, generation: int) -> None:
        """It is finished."""
        self._remove(host)
        if self._retiring.get(host.key) is host:
            del self._retiring[host.key]
        self._remember_generation(host.key, host.log.epoch, generation)
        self._wake_key(host.key)

    # --- leadership

    def leadership_lost(self, partition: TopicIdPartition, error: KafkaError | None = None) -> None:
        """Drop every share-partition of a topic-partition; nothing is flushed (PL-632)."""
        reason = error or NotLeaderOrFollowerError()
        for key, host in list(self._by_partition.get(partition, {}).items()):
            host.drop(reason)
            self._wake_key(key)
        for key, host in list(self._retiring.items()):
            if key.topic_partition == partition:
                host.drop(reason)
        deleted = isinstance(reason, UnknownTopicOrPartitionError)
        for key in [key for key in self._generations if deleted and key.topic_partition == partition]:
            del self._generations[key]

    def of_partition(self, partition: TopicIdPartition) -> list[SharePartitionHost]:
        """Every group's cached share-partition of a topic-partition."""
        return list(self._by_partition.get(partition, {}).values())

    def group_hosts(self, group_id: str) -> list[SharePartitionHost]:
        """Every cached share-partition of a group."""
        return [host for key, host in self._hosts.items() if key.group_id == group_id]

    async def close(self) -> None:
        """Drop everything and end the hosts' tasks."""
        hosts = [*self._hosts.values(), *self._retiring.values()]
        for host in hosts:
            host.drop(NotLeaderOrFollowerError())
        await asyncio.gather(*(host.close() for host in hosts))

    def _remove(self, host: SharePartitionHost) -> None:
        if self._hosts.get(host.key) is not host:
            return
        del self._hosts[host.key]
        siblings = self._by_partition[host.key.topic_partition]
        del siblings[host.key]
        if not siblings:
            del self._by_partition[host.key.topic_partition]

    def _next_generation(self, key: SharePartitionKey, epoch: int) -> int:
        """Above every generation this process used for the key under this leader epoch."""
        remembered = self._generations.get(key)
        generation = remembered[1] + 1 if remembered is not None and remembered[0] == epoch else 1
        self._remember_generation(key, epoch, generation)
        return generation

    def _remember_generation(self, key: SharePartitionKey, epoch: int, generation: int) -> None:
        remembered = self._generations.get(key, (0, 0))
        self._generations[key] = max(remembered, (epoch, generation))
