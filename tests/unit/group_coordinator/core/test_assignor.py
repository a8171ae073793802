"""SimpleAssignor: the examples of GC-56a and GC-56b, exactly."""

from __future__ import annotations

import pytest

from group_coordinator.core.assignor import (
    AssignorError,
    GroupSpec,
    MemberSpec,
    SimpleAssignor,
    check_targets,
    desired_sizes,
)
from group_coordinator.core.views import Assignment

T = b"t" * 16


def _members(names: str) -> list[str]:
    return [chr(code) for code in range(ord(names[0]), ord(names[-1]) + 1)] if ".." in names else list(names)


def _held(text: str) -> dict[str, Assignment]:
    """Parse `A:0,2 B:1` into target assignments."""
    found: dict[str, Assignment] = {}
    for part in text.split():
        member, _, indexes = part.partition(":")
        found[member] = {T: tuple(int(index) for index in indexes.split(","))}
    return found


def _assign(names: str, partitions: int, previous: str) -> dict[str, Assignment]:
    held = _held(previous)
    members = {member: MemberSpec(frozenset({T}), held.get(member, {})) for member in _members(names)}
    spec = GroupSpec(members, {T: tuple(range(partitions))}, frozenset({T}), homogeneous=True)
    found = dict(SimpleAssignor().assign(spec))
    check_targets(spec, found)
    return found


@pytest.mark.rule("GC-52", "GC-54", "GC-55", "GC-56", "GC-56a", "GC-53")
@pytest.mark.parametrize(
    ("names", "partitions", "previous", "sizes", "result"),
    [
        ("A", 3, "", (1, [3]), "A:0,1,2"),
        ("AB", 5, "", (1, [3, 2]), "A:0,2,4 B:1,3"),
        ("ABC", 1, "", (3, [1, 1, 1]), "A:0 B:0 C:0"),
        ("A..D", 2, "", (2, [1, 1, 1, 1]), "A:0 B:0 C:1 D:1"),
        ("A..E", 3, "", (2, [2, 1, 1, 1, 1]), "A:0,2 B:0 C:1 D:1 E:2"),
        ("A..F", 4, "", (2, [2, 1, 1, 2, 1, 1]), "A:0,3 B:0 C:1 D:1,3 E:2 F:2"),
        ("AB", 4, "A:0,1,2,3", (1, [2, 2]), "A:2,3 B:0,1"),
        ("ABC", 4, "A:0,2 B:1,3", (1, [2, 1, 1]), "A:0,2 B:3 C:1"),
        ("B", 4, "A:0,2 B:1,3", (1, [4]), "B:0,1,2,3"),
        ("AB", 2, "A:0,1 B:0 C:1", (1, [1, 1]), "A:1 B:0"),
        ("A..D", 2, "A:0,1 B:0 C:1", (2, [1, 1, 1, 1]), "A:1 B:0 C:1 D:0"),
        ("AB", 4, "A:0 B:1", (1, [2, 2]), "A:0,2 B:1,3"),
    ],
)
def test_homogeneous_examples(
    names: str, partitions: int, previous: str, sizes: tuple[int, list[int]], result: str
) -> None:
    assert desired_sizes(len(_members(names)), partitions) == sizes
    assert _assign(names, partitions, previous) == _held(result)


@pytest.mark.rule("GC-51", "GC-56b")
def test_heterogeneous_subscriptions_are_dealt_topic_by_topic() -> None:
    t1, t2, t3 = (bytes([number]) * 16 for number in (1, 2, 3))
    members = {
        "A": MemberSpec(frozenset({t1, t2})),
        "B": MemberSpec(frozenset({t3})),
        "C": MemberSpec(frozenset({t2, t3})),
    }
    assignable = {t1: (0, 1, 2), t2: (0, 1, 2), t3: (0, 1)}
    assert SimpleAssignor().assign(GroupSpec(members, assignable, frozenset(assignable), homogeneous=False)) == {
        "A": {t1: (0, 1, 2), t2: (0, 2)},
        "B": {t3: (0,)},
        "C": {t2: (1,), t3: (1,)},
    }


@pytest.mark.rule("GC-51", "GC-56b")
def test_a_member_of_two_topics_gets_more_than_members_of_one() -> None:
    t1, t2 = (bytes([number]) * 16 for number in (1, 2))
    members = {
        "M1": MemberSpec(frozenset({t1})),
        "M2": MemberSpec(frozenset({t2})),
        "M3": MemberSpec(frozenset({t1, t2})),
    }
    assignable = {t1: (0, 1, 2, 3), t2: (0, 1, 2, 3)}
    assert SimpleAssignor().assign(GroupSpec(members, assignable, frozenset(assignable), homogeneous=False)) == {
        "M1": {t1: (0, 2)},
        "M2": {t2: (0, 2)},
        "M3": {t1: (1, 3), t2: (1, 3)},
    }


@pytest.mark.rule("GC-52")
def test_the_desired_sizes_share_out_every_slot_evenly() -> None:
    """With floating-point arithmetic the sum would be wrong for some of these sizes."""
    for members in range(1, 60):
        assert desired_sizes(members, 0) == (0, [0] * members)
        for partitions in range(1, 60):
            sharing, sizes = desired_sizes(members, partitions)
            assert sharing == -(-members // partitions)
            assert (sum(sizes), len(sizes)) == (sharing * partitions, members)
            assert max(sizes) - min(sizes) <= 1


@pytest.mark.rule("GC-50", "GC-53")
def test_no_members_and_no_partitions() -> None:
    assert SimpleAssignor().assign(GroupSpec({}, {T: (0,)}, frozenset({T}), homogeneous=True)) == {}
    assert _assign("AB", 0, "A:0") == {"A": {}, "B": {}}


@pytest.mark.rule("GC-50")
def test_a_topic_that_does_not_exist_is_an_error() -> None:
    spec = GroupSpec({"A": MemberSpec(frozenset({T}))}, {}, frozenset(), homogeneous=True)
    with pytest.raises(AssignorError, match="do not exist"):
        SimpleAssignor().assign(spec)


@pytest.mark.rule("GC-59")
@pytest.mark.parametrize(
    ("targets", "text"), [({}, "expected"), ({"A": {T: (1,)}}, "not all"), ({"A": {b"u" * 16: (0,)}}, "not all")]
)
def test_what_no_assignor_may_answer_is_refused(targets: dict[str, Assignment], text: str) -> None:
    spec = GroupSpec({"A": MemberSpec(frozenset({T}))}, {T: (0,)}, frozenset({T}), homogeneous=True)
    with pytest.raises(AssignorError, match=text):
        check_targets(spec, targets)
