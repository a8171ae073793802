"""The assignor `shared` under arbitrary previous targets: the laws of GC-54a."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_coordinator.core.assignor import GroupSpec, MemberSpec, check_targets
from group_coordinator.core.assignors import SharedAssignor, sharing_of
from group_coordinator.core.views import Assignment, canonical

TOPICS = [bytes([number]) * 16 for number in (1, 2, 3)]
Targets = dict[str, Assignment]


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
    return GroupSpec(members, assignable, frozenset(TOPICS), homogeneous, draw(st.integers(0, 4)))


def _pairs(target: Assignment) -> set[tuple[bytes, int]]:
    return {(topic, index) for topic, indexes in target.items() for index in indexes}


def _holders(targets: Targets) -> Counter[tuple[bytes, int]]:
    return Counter(pair for target in targets.values() for pair in _pairs(target))


def _partitions(spec: GroupSpec) -> list[tuple[bytes, int]]:
    wanted = frozenset[bytes]().union(*(member.subscribed for member in spec.members.values()))
    return [(topic, index) for topic in wanted for index in spec.assignable.get(topic, ())]


def _assigned(members: list[str], partitions: int, per_partition: int, previous: Targets) -> Targets:
    """Return the targets of a group of one topic."""
    topic = TOPICS[0]
    specs = {name: MemberSpec(frozenset({topic}), previous.get(name, {})) for name in members}
    return dict(
        SharedAssignor().assign(
            GroupSpec(specs, {topic: tuple(range(partitions))}, frozenset({topic}), True, per_partition)
        )
    )


@pytest.mark.rule("GC-52a", "GC-54a")
@given(specs(homogeneous=True))
def test_each_partition_has_as_many_members_as_it_should_and_members_differ_by_one_at_most(spec: GroupSpec) -> None:
    targets = dict(SharedAssignor().assign(spec))
    check_targets(spec, targets)
    partitions = _partitions(spec)
    sharing = sharing_of(len(spec.members), len(partitions), spec.members_per_partition)
    assert _holders(targets) == dict.fromkeys(partitions, sharing)
    sizes = [len(_pairs(target)) for target in targets.values()]
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert not partitions or min(sizes) >= 1


@pytest.mark.rule("GC-54a")
@given(specs(homogeneous=False))
def test_where_members_differ_each_topic_is_shared_by_those_that_subscribe_to_it(spec: GroupSpec) -> None:
    targets = dict(SharedAssignor().assign(spec))
    check_targets(spec, targets)
    holders = _holders(targets)
    for topic in TOPICS:
        subscribers = sum(topic in member.subscribed for member in spec.members.values())
        indexes = spec.assignable.get(topic, ())
        sharing = sharing_of(subscribers, len(indexes), spec.members_per_partition)
        assert {holders[topic, index] for index in indexes} <= {sharing}


@pytest.mark.rule("GC-54a")
@given(st.booleans().flatmap(lambda same: specs(homogeneous=same)))
def test_a_second_run_with_unchanged_input_changes_nothing(spec: GroupSpec) -> None:
    first = SharedAssignor().assign(spec)
    members = {name: MemberSpec(member.subscribed, first[name]) for name, member in spec.members.items()}
    again = GroupSpec(members, spec.assignable, spec.topics, spec.homogeneous, spec.members_per_partition)
    assert SharedAssignor().assign(again) == first


@pytest.mark.rule("GC-54a")
@given(st.integers(2, 9), st.integers(1, 12), st.integers(0, 4), st.data())
def test_joining_and_leaving_move_little(
    members: int, partitions: int, per_partition: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations([f"m{number}" for number in range(members)]))
    targets: Targets = {}
    for count in range(1, members + 1):
        before, targets = targets, _assigned(sorted(order[:count]), partitions, per_partition, targets)
        if count > 1 and sharing_of(count - 1, partitions, per_partition) == sharing_of(
            count, partitions, per_partition
        ):
            taken = sum(len(_pairs(held) - _pairs(targets[name])) for name, held in before.items())
            assert taken <= len(_pairs(targets[order[count - 1]]))
    gone = data.draw(st.sampled_from(order))
    after = _assigned(sorted(set(order) - {gone}), partitions, per_partition, targets)
    if sharing_of(members, partitions, per_partition) == sharing_of(members - 1, partitions, per_partition):
        moved = sum(len(_pairs(targets[name]) - _pairs(held)) for name, held in after.items())
        assert moved <= len(_pairs(targets[gone]))


@pytest.mark.rule("GC-52a")
@pytest.mark.parametrize(
    ("members", "partitions", "wanted", "sharing"),
    [
        (0, 4, 0, 0),
        (4, 0, 0, 0),
        (4, 4, 0, 4),
        (4, 4, 2, 2),
        (4, 4, 1, 1),
        (50, 200, 0, 10),
        (50, 200, 3, 3),
        (3, 200, 0, 3),
        (50, 2_000, 0, 2),
        (50, 2_000, 9, 2),
        (100, 4, 2, 25),
    ],
)
def test_pairs_are_bounded_and_no_member_is_without_work(
    members: int, partitions: int, wanted: int, sharing: int
) -> None:
    assert sharing_of(members, partitions, wanted) == sharing
