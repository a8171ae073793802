"""Members × assignable partitions → target assignment: Kafka's SimpleAssignor, a pure function (GC-50…GC-59).

Balance first, then stickiness; not rack-aware. Orders are fixed (GC-55): members by id, partitions by (topic id,
index), so equal input gives equal output on every node and every platform. A custom assignor has the same shape
(GC-57).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from group_coordinator.core.views import Assignment
from kip932.ids import TopicIdPartition, topic_id_text


class AssignorError(Exception):
    """The assignor failed, or answered what it must not answer; nothing is written (GC-28)."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member as an assignor sees it: the topic ids it subscribes to, and its previous target."""

    subscribed: frozenset[bytes]
    previous: Assignment = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """An assignor's input. `assignable` holds initialised partitions only (GC-77); `topics` are the image's topic ids.

    `homogeneous`: every subscribed *name* is subscribed by all members (GC-51).
    """

    members: Mapping[str, MemberSpec]
    assignable: Assignment
    topics: frozenset[bytes]
    homogeneous: bool


class Assignor(Protocol):
    """An assignment algorithm; `name` is what ShareGroupDescribe shows (GC-126)."""

    @property
    def name(self) -> str:
        """The assignor's name."""
        ...

    def assign(self, spec: GroupSpec) -> Mapping[str, Assignment]:
        """The target of every member of `spec`."""
        ...


class SimpleAssignor:
    """The built-in assignor `simple`."""

    name: Final = "simple"

    def assign(self, spec: GroupSpec) -> Mapping[str, Assignment]:
        """The target of every member (GC-50, GC-51). Raises AssignorError for a topic that does not exist."""
        wanted = frozenset[bytes]().union(*(member.subscribed for member in spec.members.values()))
        if unknown := wanted - spec.topics:
            names = ", ".join(sorted(topic_id_text(topic_id) for topic_id in unknown))
            raise AssignorError(f"members subscribe to topic ids that do not exist: {names}")
        dealt: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in sorted(spec.members)}
        for topics in [sorted(wanted)] if spec.homogeneous else [[topic_id] for topic_id in sorted(wanted)]:
            _assign_topics(spec, topics, dealt)
        return {member_id: grouped(partitions) for member_id, partitions in dealt.items()}


def desired_sizes(members: int, partitions: int) -> tuple[int, list[int]]:
    """(sharing S, D): how many members a partition should have, how many partitions each member should have (GC-52)."""
    if partitions == 0 or members == 0:
        return 0, [0] * members
    sharing = -(-members // partitions)
    slots = sharing * partitions
    bounds = [-(-slots * i // members) for i in range(members + 1)]
    return sharing, [bounds[i + 1] - bounds[i] for i in range(members)]


def grouped(partitions: Iterable[TopicIdPartition]) -> Assignment:
    """Partitions by topic, in canonical order."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        topics.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(indexes) for topic_id, indexes in topics.items()}


def check_targets(spec: GroupSpec, targets: Mapping[str, Assignment]) -> None:
    """Raise AssignorError unless each member has a target of subscribed, assignable partitions only (GC-59)."""
    if targets.keys() != spec.members.keys():
        raise AssignorError(f"targets for members {sorted(targets)}; expected {sorted(spec.members)}")
    assignable = {topic_id: frozenset(indexes) for topic_id, indexes in spec.assignable.items()}
    for member_id, target in targets.items():
        for topic_id, indexes in target.items():
            allowed = assignable.get(topic_id, frozenset()) if topic_id in spec.members[member_id].subscribed else ()
            if not set(indexes) <= set(allowed):
                text = f"topic {topic_id_text(topic_id)} partitions {list(indexes)}"
                raise AssignorError(f"member {member_id} was given {text}; not all are subscribed and initialised")


def _assign_topics(spec: GroupSpec, topics: Sequence[bytes], dealt: dict[str, list[TopicIdPartition]]) -> None:
    """One independent computation over `topics` and their subscribers; its results are added to `dealt`."""
    members = [m for m in dealt if any(topic_id in spec.members[m].subscribed for topic_id in topics)]
    partitions = [
        TopicIdPartition(topic_id, index) for topic_id in topics for index in spec.assignable.get(topic_id, ())
    ]
    deal = _Deal(members, partitions)
    deal.keep(spec)
    deal.trim_members()
    deal.trim_partitions()
    deal.fill()
    for member_id, held in deal.held.items():
        dealt[member_id].extend(held)


class _Deal:
    """One computation's working state: who holds what, while the four steps of GC-54 run."""

    __slots__ = ("desired", "held", "holders", "sharing")

    def __init__(self, members: Sequence[str], partitions: Sequence[TopicIdPartition]) -> None:
        self.sharing, sizes = desired_sizes(len(members), len(partitions))
        self.desired = dict(zip(members, sizes, strict=True))
        self.held: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in members}
        self.holders: dict[TopicIdPartition, set[str]] = {partition: set() for partition in partitions}

    def keep(self, spec: GroupSpec) -> None:
        """Step 1: the previous assignment, without what is no longer subscribed or assignable."""
        for member_id, held in self.held.items():
            for topic_id, indexes in spec.members[member_id].previous.items():
                for index in indexes:
                    partition = TopicIdPartition(topic_id, index)
                    if partition in self.holders:
                        held.add(partition)
                        self.holders[partition].add(member_id)

    def trim_members(self) -> None:
        """Step 2: members above their size lose their lowest partitions."""
        for member_id, held in self.held.items():
            if (surplus := len(held) - self.desired[member_id]) > 0:
                for partition in sorted(held)[:surplus]:
                    held.discard(partition)
                    self.holders[partition].discard(member_id)

    def trim_partitions(self) -> None:
        """Step 3: partitions with more than S members lose their lowest members."""
        for partition, holders in self.holders.items():
            if (surplus := len(holders) - self.sharing) > 0:
                for member_id in sorted(holders)[:surplus]:
                    holders.discard(member_id)
                    self.held[member_id].discard(partition)

    def fill(self) -> None:
        """Step 4: partitions below S take candidates in turn; a round in which none can take one is tolerated."""
        candidates = [member_id for member_id, held in self.held.items() if len(held) < self.desired[member_id]]
        cursor = 0
        for partition, holders in self.holders.items():
            while len(holders) < self.sharing and candidates:
                count = len(candidates)
                turn = next((t for t in range(count) if candidates[(cursor + t) % count] not in holders), None)
                if turn is None:
                    break
                cursor = (cursor + turn) % count
                member_id = candidates[cursor]
                holders.add(member_id)
                self.held[member_id].add(partition)
                if len(self.held[member_id]) >= self.desired[member_id]:
                    candidates.pop(cursor)
                else:
                    cursor += 1
