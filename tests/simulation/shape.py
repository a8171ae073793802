"""The shape of a simulated cluster: its processes, the store's replicas, and its settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Final, Self

from kip932.acls import ANONYMOUS
from shard_runtime.ownership.placement import (
    ROLE_GROUP_COORDINATOR,
    ROLE_PARTITION_LEADER,
    ROLE_SHARE_COORDINATOR,
    ROLES,
)

#: Small limits, so that locks, leases, snapshots and compaction all expire or run within seconds.
FLAGS: Final = MappingProxyType(
    {
        "offsets.topic.num.partitions": "2",
        "share.coordinator.state.topic.num.partitions": "3",
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": "4000",
        "group.share.delivery.count.limit": "10",
        "group.share.min.session.timeout.ms": "1000",
        "group.share.session.timeout.ms": "10000",
        "group.share.min.heartbeat.interval.ms": "100",
        "group.share.heartbeat.interval.ms": "1000",
        "group.share.assignment.interval.ms": "0",
        "group.share.auto.offset.reset": "earliest",
        "shard.compaction.entries.min": "30",
        "shard.history.ms": "0",
        "sharegroups.retention.consumed.interval.ms": "300",
        "metrics.progress.interval.ms": "600000",  # its rounds change no state, and would alter every history
        "share.coordinator.snapshot.update.records.per.snapshot": "7",
        "share.coordinator.cold.partition.snapshot.interval.ms": "5000",
    }
)


#: Special conditions of a run, with their probabilities; each part of the workload checks for its own word.
PRESSURES: Final = MappingProxyType(
    {
        "retention": 0.15,  # topics keep records only for a short time or up to few bytes
        "by_duration": 0.15,  # groups start at records that are recent enough
        "no renewals": 0.1,  # groups do not allow RENEW
        "max poll": 0.15,  # members that take too long between polls leave
        "intervals": 0.2,  # session time-outs and heartbeat intervals change
        "assignment": 0.15,  # assignments are computed at an interval
        "bytes": 0.15,  # fetches request few bytes
        "bulk": 0.02,  # windows of more than a thousand records
        "changes": 0.3,  # groups are deleted and re-created, and their offsets altered and deleted
        "letters": 0.3,  # groups have a dead-letter queue whose topic sometimes fails
        "consumed": 0.2,  # topics keep only records that some group still needs
        "delays": 0.3,  # releases with delays, and back-offs that are set, changed and removed
        "transactions": 0.25,  # transactional producers, perhaps an operator; groups use read_committed
        "frozen": 0.15,  # clients are paused for longer than their session, which is short
        "small limits": 0.25,  # leaders sweep their memory, and read logs, at two to five; few reasons are kept
        "old connections": 0.15,  # connections reach their maximum age, so sessions, producers and nodes move
        "rights": 0.15,  # some members of a group have a principal whose rights are taken and given back
    }
)
#: The maximum difference, before any fault, between the wall clocks of a process and of clients.
SKEW_MS: Final = 50
SIZE_FLAG: Final = "group.share.max.size"
CHANGES: Final = "changes"
LETTERS: Final = "letters"
TRANSACTIONS: Final = "transactions"
CONSUMED: Final = "consumed"
DELAYS: Final = "delays"
#: The maximum delays that groups allow; whatever a clock shows, no record is delayed longer.
DELAYS_MAX_MS: Final = ("1500", "4000", "8000")
FROZEN: Final = "frozen"
SMALL_LIMITS: Final = "small limits"
#: The most bytes and ranges of reasons that a share-partition keeps in such a run.
REASONS_BYTES: Final = 1_500
REASONS_RANGES: Final = 6
AGES: Final = "old connections"
AGE_FLAG: Final = "connections.max.age.ms"
#: The maximum ages of connections in such a run: from the shortest that is allowed, to one or two moves in a run.
AGES_MS: Final = ("1000", "2000", "4000")
RIGHTS: Final = "rights"
#: Clients without a certificate may do everything in such a run; only its guests need entries.
RIGHTS_FLAGS: Final = MappingProxyType({"access.control.enable": "true", "super.users": ANONYMOUS})
#: The session time-out of groups in a run with `FROZEN`, ms: shorter than the time after which a paused client is
#: missed.
FROZEN_SESSION_MS: Final = 2_500
#: Drawn after all others, in this order: they were added later, and earlier draws must not change.
_LATER: Final = (CHANGES, LETTERS, TRANSACTIONS, CONSUMED, DELAYS, FROZEN, SMALL_LIMITS)
#: Drawn after these, each from a random source of its own.
_LATEST: Final = (AGES, RIGHTS)


@dataclass(frozen=True)
class ProcessShape:
    """A process of the cluster: its name, and its roles as in `shard_runtime.ownership.placement.ROLES`."""

    name: str
    roles: frozenset[str]


@dataclass(frozen=True)
class Shape:
    """The parts of a cluster, and the settings that differ from the usual ones."""

    processes: tuple[ProcessShape, ...]
    replicas: int = 0
    flags: Mapping[str, str] = field(default_factory=dict)
    #: How long a peer may be silent before its connections break.
    keepalive_ms: int = 30_000
    #: Words of `PRESSURES`.
    pressures: tuple[str, ...] = ()

    @classmethod
    def two(cls, replicas: int = 0, **flags: str) -> Self:
        """Return a shape with two processes that have all roles."""
        return cls((ProcessShape("a", ROLES), ProcessShape("b", ROLES)), replicas, flags)

    @classmethod
    def draw(cls, rng: Random) -> Self:
        """Draw a shape: two processes with all roles, or one or two for each role; a store without replicas or with
        two."""
        if rng.random() < 0.7:
            processes: tuple[ProcessShape, ...] = (ProcessShape("a", ROLES), ProcessShape("b", ROLES))
        else:
            processes = tuple(
                ProcessShape(f"{prefix}{number}", frozenset({role}))
                for prefix, role in (
                    ("g", ROLE_GROUP_COORDINATOR),
                    ("s", ROLE_SHARE_COORDINATOR),
                    ("l", ROLE_PARTITION_LEADER),
                )
                for number in range(1, rng.randrange(2, 4))
            )
        replicas, flags = rng.choice((0, 0, 2)), dict(_drawn_flags(rng))
        keepalive_ms = rng.choice((3_000, 30_000))
        later = (*_LATER, *_LATEST)
        pressures = tuple(word for word in PRESSURES if word not in later and rng.random() < PRESSURES[word])
        if rng.random() < 0.1:
            flags[SIZE_FLAG] = rng.choice(("1", "2", "3"))
        pressures += tuple(word for word in _LATER if rng.random() < PRESSURES[word])
        if FROZEN in pressures:
            flags["group.share.session.timeout.ms"] = str(FROZEN_SESSION_MS)
        bits = rng.getrandbits(64)
        latest = {word: Random(f"{bits}/{word}") for word in _LATEST}
        pressures += tuple(word for word, source in latest.items() if source.random() < PRESSURES[word])
        if AGES in pressures:
            flags[AGE_FLAG] = latest[AGES].choice(AGES_MS)
        if RIGHTS in pressures:
            flags.update(RIGHTS_FLAGS)
        return cls(processes, replicas, flags, keepalive_ms, pressures)


def _drawn_flags(rng: Random) -> Iterator[tuple[str, str]]:
    for name, values in (
        ("group.share.record.lock.duration.ms", ("1000", "2000", "4000")),
        ("group.share.delivery.count.limit", ("2", "3", "5", "10")),
        ("group.share.partition.max.record.locks", ("100", "200", "2000")),
        ("group.share.max.share.sessions", ("200", "200", "2000")),
        ("share.coordinator.snapshot.update.records.per.snapshot", ("0", "2", "7", "50")),
        ("shard.compaction.entries.min", ("10", "30", "1000")),
        # Short, so that state writes fail and are read back while a fault lasts, not only at the end of a run.
        ("persister.operation.timeout.ms", ("500", "1500", "4000")),
    ):
        if rng.random() < 0.5:
            yield name, rng.choice(values)
