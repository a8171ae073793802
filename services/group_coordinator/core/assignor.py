"""Members × assignable partitions → target assignment: Kafka's SimpleAssignor, a pure function (GC-50…GC-59).

Balance comes first, then stickiness; racks are ignored. All orders are fixed (GC-55): members by id, partitions by
(topic id, index). So equal input gives equal output on every node and platform. A custom assignor has the same
interface (GC-57).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from group_coordinator.core.partition_numbers import PartitionNumbers
from group_coordinator.core.views import Assignment
from kip932.ids import topic_id_text


class AssignorError(Exception):
    """The assignor failed or returned an invalid target; nothing is written (GC-28)."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member as an assignor sees it: the topic ids it subscribes to, and its previous target."""

    subscribed: frozenset[bytes]
    previous: Assignment = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """An assignor's input. `assignable`: initialised partitions only (GC-77); `topics`: the topic ids of the image.

    `homogeneous`: all members subscribe to every subscribed *name* (GC-51). `members_per_partition`: the group's config
    of that name, for assignors that share partitions; 0 means as many as possible (GC-52a).
    """

    members: Mapping[str, MemberSpec]
    assignable: Assignment
    topics: frozenset[bytes]
    homogeneous: bool
    members_per_partition: int = 0


class Assignor(Protocol):
    """An assignment algorithm; ShareGroupDescribe shows its `name` (GC-126)."""

    @property
    def name(self) -> str:
        """The assignor's name."""
        ...

    def assign(self, spec: GroupSpec) -> Mapping[str, Assignment]:
        """Return the target of every member of `spec`: subscribed, assignable partitions only. Any exception makes the
        heartbeat fail with UNKNOWN_SERVER_ERROR, and nothing is written (GC-28, GC-59)."""
        ...


class SimpleAssignor:
    """The built-in assignor `simple`."""

    name: Final = "simple"

    def assign(self, spec: GroupSpec) -> Mapping[str, Assignment]:
        """Return the target of every member (GC-50, GC-51). Raises AssignorError for a topic that does not exist."""
        dealt: dict[str, dict[bytes, tuple[int, ...]]] = {member_id: {} for member_id in sorted(spec.members)}
        for topics in computations(spec):
            _assign_topics(spec, topics, dealt)
        return dealt


def computations(spec: GroupSpec) -> list[list[bytes]]:
    """The topics of each independent computation: one for all topics, or one per topic in a heterogeneous group
    (GC-51). Raises AssignorError for a topic that does not exist (GC-50)."""
    wanted = frozenset[bytes]().union(*(member.subscribed for member in spec.members.values()))
    if unknown := wanted - spec.topics:
        names = ", ".join(sorted(topic_id_text(topic_id) for topic_id in unknown))
        raise AssignorError(f"members subscribe to topic ids that do not exist: {names}")
    return [sorted(wanted)] if spec.homogeneous else [[topic_id] for topic_id in sorted(wanted)]


def desired_sizes(members: int, partitions: int) -> tuple[int, list[int]]:
    """Return (S, D): how many members should share a partition, and how many partitions each should have (GC-52)."""
    if partitions == 0 or members == 0:
        return 0, [0] * members
    sharing = -(-members // partitions)
    slots = sharing * partitions
    bounds = [-(-slots * i // members) for i in range(members + 1)]
    return sharing, [bounds[i + 1] - bounds[i] for i in range(members)]


def check_targets(spec: GroupSpec, targets: Mapping[str, Assignment]) -> None:
    """Raise AssignorError unless each member has a target with subscribed, assignable partitions only (GC-59)."""
    if targets.keys() != spec.members.keys():
        raise AssignorError(f"targets for members {sorted(targets)}; expected {sorted(spec.members)}")
    assignable = {topic_id: frozenset(indexes) for topic_id, indexes in spec.assignable.items()}
    for member_id, target in targets.items():
        for topic_id, indexes in target.items():
            subscribed = topic_id in spec.members[member_id].subscribed
            if indexes and not (subscribed and assignable.get(topic_id, frozenset()).issuperset(indexes)):
                text = f"topic {topic_id_text(topic_id)} partitions {list(indexes)}"
                raise AssignorError(f"member {member_id} was given {text}; not all are subscribed and initialised")


def _assign_topics(spec: GroupSpec, topics: Sequence[bytes], dealt: dict[str, dict[bytes, tuple[int, ...]]]) -> None:
    """Make one independent computation over `topics` and their subscribers; add its results to `dealt`."""
    members = [m for m in dealt if not spec.members[m].subscribed.isdisjoint(topics)]
    numbers = PartitionNumbers([(topic_id, spec.assignable.get(topic_id, ())) for topic_id in topics])
    deal = _Deal(members, numbers)
    deal.keep(spec)
    deal.trim_members()
    deal.trim_partitions()
    deal.fill()
    for member_id, held in deal.held.items():
        dealt[member_id].update(numbers.grouped(held))


class _Deal:
    """One computation's working state: which member has which numbers, during the four steps of GC-54."""

    __slots__ = ("_numbers", "desired", "held", "holders", "sharing")

    def __init__(self, members: Sequence[str], numbers: PartitionNumbers) -> None:
        self._numbers = numbers
        self.sharing, sizes = desired_sizes(len(members), numbers.count)
        self.desired = dict(zip(members, sizes, strict=True))
        self.held: dict[str, set[int]] = {member_id: set() for member_id in members}
        self.holders: list[set[str]] = [set() for _ in range(numbers.count)]

    def keep(self, spec: GroupSpec) -> None:
        """Step 1: keep the previous assignment, without partitions that are no longer subscribed or assignable."""
        for member_id in self.held:
            self.held[member_id] = kept = self._numbers.of(spec.members[member_id].previous)
            for number in kept:
                self.holders[number].add(member_id)

    def trim_members(self) -> None:
        """Step 2: members with more partitions than they should have lose their lowest ones."""
        for member_id, held in self.held.items():
            if (surplus := len(held) - self.desired[member_id]) > 0:
                for number in sorted(held)[:surplus]:
                    held.discard(number)
                    self.holders[number].discard(member_id)

    def trim_partitions(self) -> None:
        """Step 3: partitions with more than S members lose their lowest members."""
        for number, holders in enumerate(self.holders):
            if (surplus := len(holders) - self.sharing) > 0:
                for member_id in sorted(holders)[:surplus]:
                    holders.discard(member_id)
                    self.held[member_id].discard(number)

    def fill(self) -> None:
        """Step 4: partitions with fewer than S members are given to candidates in turn; a partition that no candidate
        can take stays below S."""
        candidates = [member_id for member_id, held in self.held.items() if len(held) < self.desired[member_id]]
        cursor = 0
        for number, holders in enumerate(self.holders):
            while len(holders) < self.sharing and candidates:
                count = len(candidates)
                cursor %= count
                if candidates[cursor] in holders:
                    turn = next((t for t in range(count) if candidates[(cursor + t) % count] not in holders), None)
                    if turn is None:
                        break
                    cursor = (cursor + turn) % count
                member_id = candidates[cursor]
                holders.add(member_id)
                held = self.held[member_id]
                held.add(number)
                if len(held) >= self.desired[member_id]:
                    candidates.pop(cursor)
                else:
                    cursor += 1
