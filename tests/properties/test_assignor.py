"""SimpleAssignor under arbitrary previous targets: the invariants GC-59 and the first half of GC-56."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_coordinator.core.assignor import GroupSpec, MemberSpec, SimpleAssignor, check_targets, desired_sizes
from group_coordinator.core.views import Assignment, canonical

TOPICS = [bytes([number]) * 16 for number in (1, 2, 3)]


@st.composite
def specs(draw: st.DrawFn, *, homogeneous: bool) -> GroupSpec:
    names = [f"m{number}" for number in range(draw(st.integers(0, 9)))]
    assignable = canonical({topic: tuple(range(draw(st.integers(0, 5)))) for topic in TOPICS})
    everything = frozenset(draw(st.sets(st.sampled_from(TOPICS))))
    previous = st.dictionaries(
        st.sampled_from(TOPICS), st.sets(st.integers(0, 7)).map(lambda found: tuple(sorted(found))), max_size=3
    ).map(canonical)
    members = {
        name: MemberSpec(
            everything if homogeneous else frozenset(draw(st.sets(st.sampled_from(TOPICS)))), draw(previous)
        )
        for name in names
    }
    return GroupSpec(members, assignable, frozenset(TOPICS), homogeneous)


def _sharing(members: int, partitions: int) -> int:
    """Return the maximum number of members that may share a partition (GC-52), computed without the assignor."""
    return -(-members // partitions) if partitions else 0


def _holders(targets: dict[str, Assignment]) -> Counter[tuple[bytes, int]]:
    return Counter((topic, i) for target in targets.values() for topic, indexes in target.items() for i in indexes)


@pytest.mark.rule("GC-53", "GC-54", "GC-59")
@given(specs(homogeneous=True))
def test_homogeneous_targets_are_complete_shared_evenly_and_balanced(spec: GroupSpec) -> None:
    targets = dict(SimpleAssignor().assign(spec))
    check_targets(spec, targets)
    holders = _holders(targets)
    wanted = frozenset[bytes]().union(*(member.subscribed for member in spec.members.values()))
    partitions = [(topic, index) for topic in wanted for index in spec.assignable.get(topic, ())]
    sharing = _sharing(len(spec.members), len(partitions))
    assert all(1 <= holders[partition] <= sharing for partition in partitions)
    sizes = [sum(map(len, target.values())) for target in targets.values()]
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert not partitions or min(sizes) >= 1


@pytest.mark.rule("GC-51", "GC-59")
@given(specs(homogeneous=False))
def test_heterogeneous_targets_are_complete_and_shared_evenly_per_topic(spec: GroupSpec) -> None:
    targets = dict(SimpleAssignor().assign(spec))
    check_targets(spec, targets)
    holders = _holders(targets)
    for topic in TOPICS:
        subscribers = sum(topic in member.subscribed for member in spec.members.values())
        indexes = spec.assignable.get(topic, ())
        sharing = _sharing(subscribers, len(indexes))
        assert not subscribers or all(1 <= holders[topic, index] <= sharing for index in indexes)


@pytest.mark.rule("GC-56")
@given(st.booleans().flatmap(lambda same: specs(homogeneous=same)))
def test_a_second_run_with_unchanged_input_changes_nothing(spec: GroupSpec) -> None:
    first = SimpleAssignor().assign(spec)
    members = {name: MemberSpec(member.subscribed, first[name]) for name, member in spec.members.items()}
    assert SimpleAssignor().assign(GroupSpec(members, spec.assignable, spec.topics, spec.homogeneous)) == first


@pytest.mark.rule("GC-56")
@given(specs(homogeneous=True))
def test_a_member_within_its_size_keeps_its_partitions_unless_they_are_shared_too_often(spec: GroupSpec) -> None:
    targets = SimpleAssignor().assign(spec)
    wanted = frozenset[bytes]().union(*(member.subscribed for member in spec.members.values()))
    assignable = {(topic, index) for topic in wanted for index in spec.assignable.get(topic, ())}
    kept = {
        name: {(t, i) for t, indexes in spec.members[name].previous.items() for i in indexes} & assignable
        for name in sorted(spec.members)
    }
    sharing, sizes = desired_sizes(len(kept), len(assignable))
    before = Counter(partition for held in kept.values() for partition in held)
    for (name, held), size in zip(kept.items(), sizes, strict=True):
        if len(held) <= size and all(before[partition] <= sharing for partition in held):
            assert held <= {(t, i) for t, indexes in targets[name].items() for i in indexes}
