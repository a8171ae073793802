"""The effective configs of one group as one value, for the partition leader and the group coordinator. Pure.

To add a config: declare it in `kafka_configs` or `group_extensions`, and add its field here and in `group_config`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeVar

from kip932.setting import Setting
from shard_runtime.config import group_extensions, kafka_configs

T = TypeVar("T")

#: Bound on the exponent, so that a large stored delivery count cannot overflow the result.
_EXPONENT_MAX: Final = 64


class Backoff(NamedTuple):
    """A group's back-off policy (PL-936); `initial_ms` 0 means none. `jitter`: the largest fraction of a delay that is
    removed at random."""

    initial_ms: int = 0
    multiplier: float = 2.0
    max_ms: int = 60_000
    jitter: float = 0.1

    def delay_ms(self, delivery_count: int, chance: float) -> int:
        """Return the delay after `delivery_count` deliveries, 0 without a policy; `chance` is in 0…1. At least 1 ms
        with a policy, because 0 means that there is none."""
        if not self.initial_ms:
            return 0
        exponent = min(max(delivery_count - 1, 0), _EXPONENT_MAX)
        grown = min(self.initial_ms * self.multiplier**exponent, float(self.max_ms))
        return max(1, round(grown * (1 - self.jitter * chance)))


NO_BACKOFF: Final = Backoff()


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A group's effective configs at one moment, clamped to the broker's bounds (PL-1002, GC-137)."""

    lock_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    renew_enabled: bool = True
    dlq_enabled: bool = False
    dead_letters_max: int = 5_000  # dead letters that may wait before no new offsets are acquired (PL-916)
    backoff: Backoff = NO_BACKOFF  # for releases without a delay of their own, and for expired locks (PL-936)
    delay_max_ms: int = 86_400_000  # the longest delay (PL-930, PL-934)
    delayed_max: int = 5_000  # records that may be delayed before no new offsets are acquired (PL-935)
    dead_letter_topic: str = ""  # used while the queue is enabled; members see its name in responses (PL-258)
    auto_offset_reset: str = "latest"  # latest, earliest or by_duration:<ISO-8601> (PL-605)
    read_committed: bool = False  # `share.isolation.level` (PL-803)
    session_timeout_ms: int = 45_000  # GC-27
    heartbeat_interval_ms: int = 5_000  # GC-27
    assignment_interval_ms: int = 1_000  # GC-32
    assignor: str = "default"  # the group's own choice; "default" for the broker's (GC-58)
    members_per_partition: int = 0  # GC-52a

    @property
    def idle_ms(self) -> int:
        """How long a share session lasts without a stream and without requests (PL-524)."""
        return max(self.session_timeout_ms, self.lock_ms)


class Values(Protocol):
    """A lookup of one group's effective configs."""

    def __call__(self, setting: Setting[T]) -> T:
        """Return the group's effective value of a config, of the type that its declaration has."""
        ...


def group_config(value: Values, has_queue: bool) -> GroupConfig:
    """Return a group's configs from their effective values. `has_queue`: the cluster serves dead-letter queues."""
    dead_letter_topic = value(kafka_configs.GROUP_DLQ_TOPIC) if has_queue else ""
    delay_max_ms = value(group_extensions.GROUP_RETRY_DELAY_MAX_MS)
    return GroupConfig(
        lock_ms=value(kafka_configs.GROUP_LOCK_DURATION_MS),
        delivery_count_limit=value(kafka_configs.GROUP_DELIVERY_COUNT_LIMIT),
        max_record_locks=value(kafka_configs.GROUP_MAX_RECORD_LOCKS),
        renew_enabled=value(kafka_configs.GROUP_RENEW_ENABLE),
        dlq_enabled=bool(dead_letter_topic),
        dead_letters_max=value(group_extensions.GROUP_DLQ_WAITING_MAX),
        backoff=Backoff(
            value(group_extensions.GROUP_RETRY_INITIAL_MS),
            value(group_extensions.GROUP_RETRY_MULTIPLIER),
            min(delay_max_ms, value(group_extensions.GROUP_RETRY_MAX_MS)),
            value(group_extensions.GROUP_RETRY_JITTER),
        ),
        delay_max_ms=delay_max_ms,
        delayed_max=value(group_extensions.GROUP_RETRY_DELAYED_MAX),
        dead_letter_topic=dead_letter_topic,
        auto_offset_reset=value(kafka_configs.GROUP_AUTO_OFFSET_RESET),
        read_committed=value(kafka_configs.GROUP_ISOLATION_LEVEL) == "read_committed",
        session_timeout_ms=value(kafka_configs.GROUP_SESSION_TIMEOUT_MS),
        heartbeat_interval_ms=value(kafka_configs.GROUP_HEARTBEAT_INTERVAL_MS),
        assignment_interval_ms=value(kafka_configs.GROUP_ASSIGNMENT_INTERVAL_MS),
        assignor=value(kafka_configs.GROUP_ASSIGNOR),
        members_per_partition=value(kafka_configs.GROUP_MEMBERS_PER_PARTITION),
    )
