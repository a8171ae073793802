"""What the core is shown of the world: topics, group configs, settings. Frozen values, injected; nothing is fetched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

#: Topic id → ascending partition indexes, no empty entry, topics in order of their id bytes. Never changed in place.
Assignment = Mapping[bytes, tuple[int, ...]]


class Topic(NamedTuple):
    """A topic of the metadata image; its partitions are 0…`partitions` − 1 and never become fewer (GC-78)."""

    topic_id: bytes
    name: str
    partitions: int


class TopicsView(Protocol):
    """One immutable version of the metadata image, as far as groups need it."""

    @property
    def version(self) -> int:
        """Version of the image; grows with every metadata entry (CM-20)."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the log was read to its end since this node's last (re)build, so that absence means something."""
        ...

    def by_name(self, name: str) -> Topic | None:
        """The topic of that name, if there is one now."""
        ...

    def by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with that id, if it still exists."""
        ...

    def is_deleted(self, topic_id: bytes) -> bool:
        """Whether the image knows that the topic was deleted; that it lacks it is no proof (CM-20)."""
        ...


class GroupConfigs(NamedTuple):
    """Effective configs of one group, clamped to the broker's bounds (GC-27, GC-32, GC-137)."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """Settings of the role that its decisions depend on (GC-139a, OP-19)."""

    max_size: int = 200
    initialize_retry_ms: int = 30_000
    fast_first_assignment: bool = True
    fast_first_interval_ms: int = 250
    repair_interval_ms: int = 600_000


def canonical(assignment: Mapping[bytes, tuple[int, ...]]) -> Assignment:
    """The same assignment with topics in order and without empty entries, so that equal sets are equal values."""
    return {topic_id: assignment[topic_id] for topic_id in sorted(assignment) if assignment[topic_id]}
