"""Computes which subscribed partitions of a group can be assigned by one image, and memoises the result.

This is all that a heartbeat without changes needs. While the group's lists, its subscription and the image are
unchanged, the memo has the result without a hash, a copy or a scan (P-13). The memo is for one image, so Kafka's
metadata deadline (GC-24d) counts as passed exactly when another image replaced it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from group_coordinator.core.group import Group
from group_coordinator.core.lifecycle import Lifecycle
from group_coordinator.core.views import Assignment, Topic, TopicsView, canonical

_HASH_VERSION: Final = b"\x00"
NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class TopicReadiness:
    """The values derived from a group's subscription, lists and target basis, and the image.

    `topics`: subscribed topics that exist, by id. `assignable`: their initialised partitions. `pending`: the target was
    computed from other partitions than `assignable` (GC-24c). `incomplete`: an existing subscribed partition is not
    initialised. `oldest_since_ms`: the time of the oldest call for such a partition; LONG_AGO when one has no call, or
    is due at once; NEVER without such a partition.
    """

    metadata_hash: int
    topics: Mapping[bytes, Topic]
    assignable: Assignment
    pending: bool
    incomplete: bool
    oldest_since_ms: int

    def to_initialize(self, states: Lifecycle, now_ms: int, retry_ms: int) -> list[tuple[Topic, tuple[int, ...]]]:
        """Return topics with the partitions to initialise now (GC-70); without a scan while every call is recent."""
        if not self.incomplete or now_ms - self.oldest_since_ms < retry_ms:
            return []
        wanted = ((topic, states.wanted(topic, now_ms, retry_ms)) for topic in self.topics.values())
        return [(topic, indexes) for topic, indexes in wanted if indexes]


class ReadinessMemo:
    """The last readiness of each group: a cache, which may be dropped at any time."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[Group, TopicsView, TopicReadiness]] = {}

    def of(self, group: Group, view: TopicsView) -> TopicReadiness:
        """Return the group's readiness, cached while the parts that it is derived from are the same objects."""
        if known := self._known.get(group.group_id):
            old, old_view, readiness = known
            if old_view is view and old is group:
                return readiness
            if old_view.image is view.image and _same_parts(old, group):
                self._known[group.group_id] = (group, view, readiness)
                return readiness
        readiness = readiness_of(group, view)
        self._known[group.group_id] = (group, view, readiness)
        return readiness

    def forget(self, group_id: str) -> None:
        """Forget a group that no longer exists."""
        self._known.pop(group_id, None)


def readiness_of(group: Group, view: TopicsView) -> TopicReadiness:
    """Compute a group's readiness against an image."""
    found = sorted(topic for name in group.subscription.names if (topic := view.by_name(name)))
    states = group.states
    assignable: dict[bytes, tuple[int, ...]] = {}
    incomplete = False
    oldest = NEVER
    for topic in found:
        state = states.topics.get(topic.topic_id)
        done = tuple(index for index in state.initialized if index < topic.partitions) if state else ()
        assignable[topic.topic_id] = done
        if len(done) < topic.partitions:
            incomplete = True
            calls = (
                [entry.since_ms for index, entry in state.initializing.items() if index < topic.partitions]
                if state
                else []
            )
            oldest = min(oldest, *calls) if len(done) + len(calls) == topic.partitions else -NEVER
    assignable_now = canonical(assignable)
    return TopicReadiness(
        metadata_hash=metadata_hash(found),
        topics={topic.topic_id: topic for topic in found},
        assignable=assignable_now,
        pending=bool(group.members) and bool(group.subscription.names) and assignable_now != group.target_basis(),
        incomplete=incomplete,
        oldest_since_ms=oldest,
    )


def metadata_hash(topics: list[Topic]) -> int:
    """MH: a signed 64-bit hash of the existing subscribed topics, by name; 0 when there are none (GC-62)."""
    if not topics:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for topic in sorted(topics, key=lambda topic: topic.name):
        name = topic.name.encode()
        digest.update(_HASH_VERSION + topic.topic_id + len(name).to_bytes(4, "big") + name)
        digest.update(topic.partitions.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)


def _same_parts(old: Group, new: Group) -> bool:
    return (
        old.subscription is new.subscription
        and old.lifecycle is new.lifecycle
        and old.basis is new.basis
        and (new.basis is not None or old.targets is new.targets)
        and bool(old.members) == bool(new.members)
    )
