"""The assignor `shared`, and the choice of a group's assignor among the built-in ones (GC-52a, GC-57, GC-58)."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Final

from group_coordinator.core.assignor import Assignor, GroupSpec, SimpleAssignor, computations
from group_coordinator.core.partition_numbers import PartitionNumbers
from group_coordinator.core.views import Assignment
from shard_runtime.config.group_config import GroupConfig

#: The maximum number of (member, partition) pairs in one computation, unless more are needed to give each partition two
#: members and each member a partition. A pair costs an entry in a share session and a place in one of the leader's
#: queues.
PAIRS_MAX: Final = 2_000
#: The minimum number of members that share a partition, regardless of PAIRS_MAX: a single member, if slow, would stall
#: it.
MEMBERS_PER_PARTITION_MIN: Final = 2


class SharedAssignor:
    """The assignor `shared`: every partition has several members, so that a slow or dead member stalls none (GC-52a).

    A pure function like `simple`, with the same fixed orders (GC-55). For a group whose members subscribe to the same
    topics it guarantees that each partition has exactly S members, and that two members differ by at most one
    partition. With equal input it changes nothing; otherwise it takes no more from a member than this requires
    (GC-54a).
    """

    name: Final = "shared"

    def assign(self, spec: GroupSpec) -> Mapping[str, Assignment]:
        """Return the target of every member (GC-52a, GC-54a). Raises AssignorError for a topic that does not exist."""
        dealt: dict[str, dict[bytes, tuple[int, ...]]] = {member_id: {} for member_id in sorted(spec.members)}
        for topics in computations(spec):
            members = [m for m in dealt if not spec.members[m].subscribed.isdisjoint(topics)]
            numbers = PartitionNumbers([(topic_id, spec.assignable.get(topic_id, ())) for topic_id in topics])
            previous = {member_id: numbers.of(spec.members[member_id].previous) for member_id in members}
            sharing = sharing_of(len(members), numbers.count, spec.members_per_partition)
            for member_id, held in _shared(previous, numbers.count, sharing).items():
                dealt[member_id].update(numbers.grouped(held))
        return dealt


BUILT_IN: Final[Mapping[str, Assignor]] = {each.name: each for each in (SimpleAssignor(), SharedAssignor())}


def assignor_of(configs: GroupConfig, brokers: Assignor) -> Assignor:
    """Return the group's own assignor, or the broker's if the group chooses none."""
    return BUILT_IN.get(configs.assignor, brokers)


def computed_by(configs: GroupConfig, assignor: Assignor) -> str:
    """The text in TARGET_META that says how a target was computed; when it changes, compute a new target (GC-24c)."""
    per_partition = configs.members_per_partition
    return f"{assignor.name}:{per_partition}" if per_partition else assignor.name


def sharing_of(members: int, partitions: int, wanted: int = 0) -> int:
    """Return S, the number of members that share a partition (GC-52a). `wanted` 0: all of them, within PAIRS_MAX."""
    if members == 0 or partitions == 0:
        return 0
    bound = max(MEMBERS_PER_PARTITION_MIN, PAIRS_MAX // partitions)
    return max(-(-members // partitions), min(members, wanted or members, bound))


def _shared(previous: Mapping[str, set[int]], partitions: int, sharing: int) -> Mapping[str, set[int]]:
    """Return the numbers of each member: each partition has `sharing` members, and the sizes differ by at most one."""
    if sharing == len(previous):
        return {member_id: set(range(partitions)) for member_id in previous}
    held = {member_id: set(numbers) for member_id, numbers in previous.items()}
    holders: list[set[str]] = [set() for _ in range(partitions)]
    for member_id, numbers in held.items():
        for number in numbers:
            holders[number].add(member_id)
    _trim(held, holders, sharing)
    _fill(held, holders, sharing)
    _even_out(held, previous)
    return held


def _trim(held: dict[str, set[int]], holders: Sequence[set[str]], sharing: int) -> None:
    """Step 2: a partition with more than S members loses those with the most partitions."""
    for number, having in enumerate(holders):
        while len(having) > sharing:
            member_id = max(having, key=lambda each: (len(held[each]), each))
            having.discard(member_id)
            held[member_id].discard(number)


def _fill(held: dict[str, set[int]], holders: Sequence[set[str]], sharing: int) -> None:
    """Step 3: a partition with fewer than S members is given to the members with the fewest partitions among those
    without it."""
    fewest = [(len(numbers), member_id) for member_id, numbers in held.items()]
    heapq.heapify(fewest)
    for number, having in enumerate(holders):
        passed: list[tuple[int, str]] = []
        while len(having) < sharing:
            size, member_id = heapq.heappop(fewest)
            if member_id in having:
                passed.append((size, member_id))
                continue
            having.add(member_id)
            held[member_id].add(number)
            passed.append((size + 1, member_id))
        for entry in passed:
            heapq.heappush(fewest, entry)


def _even_out(held: dict[str, set[int]], previous: Mapping[str, set[int]]) -> None:
    """Step 4: while two members differ by more than one partition, the one with the most gives one to the one with the
    fewest: preferably one that the giver did not have before, or that the receiver had."""
    while held:
        most = max(held, key=lambda each: (len(held[each]), each))
        fewest = min(held, key=lambda each: (len(held[each]), each))
        if len(held[most]) - len(held[fewest]) <= 1:
            return
        kept, wanted = previous[most], previous[fewest]
        number = min(held[most] - held[fewest], key=lambda each: (each in kept, each not in wanted, each))
        held[most].discard(number)
        held[fewest].add(number)
