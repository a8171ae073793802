"""The core's inputs besides its groups: topics, group configs, settings. Frozen values that its host passes in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

#: Topic id → ascending partition indexes, no empty entry, topics in order of their id bytes. Never changed in place.
Assignment = Mapping[bytes, tuple[int, ...]]


class Topic(NamedTuple):
    """A topic of the metadata image; its partitions are 0…`partitions` − 1, and their number never decreases
    (GC-78)."""

    topic_id: bytes
    name: str
    partitions: int


class TopicsView(Protocol):
    """The part of the metadata image that groups need, in one immutable version."""

    @property
    def image(self) -> object:
        """The image that this is a view of. Compare it by identity: each change of the metadata makes another one. (Do
        not compare versions: one can occur twice if the store lost its tail, CM-20.)"""
        ...

    @property
    def complete(self) -> bool:
        """Return whether the metadata log was read to its end since the image was (re)built. While False, an absent
        topic may exist."""
        ...

    def by_name(self, name: str) -> Topic | None:
        """Return the topic with that name; None when the image has none."""
        ...

    def by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with that id; None when the image has none: check `is_deleted` before treating it as
        deleted."""
        ...

    def is_deleted(self, topic_id: bytes) -> bool:
        """Return whether the topic is known to be deleted. Its absence does not prove that (CM-20)."""
        ...


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """The role's settings that decisions depend on (GC-139a, OP-19)."""

    max_size: int = 200
    initialize_retry_ms: int = 30_000
    fast_first_assignment: bool = True
    #: The first wait of a member for the first partitions of its group: to initialise them takes a few milliseconds.
    fast_join_interval_ms: int = 50
    fast_first_interval_ms: int = 250
    repair_interval_ms: int = 600_000
    #: How long an administrator's change blocks other changes to its group, if its outcome never arrives (GC-108).
    admin_call_ms: int = 60_000
    #: How long the epoch of a deleted group is kept (GC-93).
    deleted_group_ms: int = 7 * 24 * 3_600_000
    #: How long an empty group is kept, in served time; 0 means forever (GC-46).
    empty_retention_ms: int = 0
    #: The minimum time for which a member whose connection a leader lost may go without a heartbeat; negative: such
    #: reports are ignored (GC-36).
    lost_connection_grace_ms: int = 0


def canonical(assignment: Mapping[bytes, tuple[int, ...]]) -> Assignment:
    """Return the assignment with its topics in order and without empty entries, so that equal sets are equal values."""
    return {topic_id: assignment[topic_id] for topic_id in sorted(assignment) if assignment[topic_id]}
