"""Members that a leader reports as lost: which are expelled, when, and which are not (GC-36 to GC-39)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from group_coordinator.core import commands as c
from group_coordinator.core import records as r
from tests.support.group_driver import KAFKA, Driver

#: The grace period: one heartbeat interval plus a second.
GRACE_MS = 6_000
SESSION_MS = 45_000


class Two:
    """A stable group of A and B on four partitions, two seconds after A's last heartbeat."""

    def __init__(self, lost_connection_grace_ms: int = 0) -> None:
        self.driver = Driver(settings=replace(KAFKA, lost_connection_grace_ms=lost_connection_grace_ms))
        self.topic = self.driver.create("t", 4)
        self.driver.settle("A", ["t"])
        self.driver.settle("B", ["t"])
        self.beat("A")
        self.driver.advance(2_000)
        self.driver.take_effects()

    def beat(self, member_id: str) -> int:
        """Heartbeat once with the member's epoch; return the interval in the response."""
        epoch = self.driver.shard.groups["g"].members[member_id].epoch
        return self.driver.beat(member_id, epoch).heartbeat_interval_ms

    def lost(self, member_id: str, ago_ms: int = 0, leader: str = "leader-1:9093") -> object:
        return self.driver.run(c.ConnectionLost("g", member_id, leader, ago_ms))

    @property
    def members(self) -> set[str]:
        return set(self.driver.shard.groups["g"].members)

    def expelled_after_ms(self) -> int:
        """Advance the time until the first member is removed; return how long that took."""
        began_ms, before = self.driver.now_ms, self.members
        while self.members == before:
            deadline_ms = self.driver.shard.next_deadline()
            assert deadline_ms is not None
            self.driver.advance(max(0, deadline_ms - self.driver.now_ms))
        return self.driver.now_ms - began_ms


@pytest.mark.rule("GC-36", "GC-39")
def test_a_member_that_was_lost_and_does_not_heartbeat_is_removed_after_the_grace() -> None:
    group = Two()
    assert group.lost("A") is True
    assert group.expelled_after_ms() == GRACE_MS
    assert group.members == {"B"}
    buried = [each for each in group.driver.log if isinstance(each, r.Tombstone)]
    assert [(each.kind, each.reason) for each in buried] == [
        (kind, r.REASON_EXPIRED) for kind in (r.CURRENT, r.TARGET, r.MEMBER)
    ]
    (reported,) = group.driver.take_effects()
    assert isinstance(reported, c.MemberExpired)
    assert (reported.member.member_id, reported.leader, reported.waited_ms) == ("A", "leader-1:9093", GRACE_MS)


@pytest.mark.rule("GC-38")
def test_the_others_come_back_when_its_part_is_free_and_have_it_at_once() -> None:
    group = Two()
    group.lost("A")
    group.driver.advance(4_000)
    interval_ms = group.beat("B")
    assert interval_ms == GRACE_MS - 4_000 + 50
    group.driver.advance(interval_ms)
    assert group.members == {"B"}
    assert group.beat("B") == 5_000
    assert group.driver.shard.groups["g"].members["B"].assigned == {group.topic: (0, 1, 2, 3)}


@pytest.mark.rule("GC-38")
def test_no_client_is_asked_to_come_back_sooner_than_in_a_quarter_of_a_second_nor_later_than_ever() -> None:
    group = Two(lost_connection_grace_ms=20_000)
    group.lost("A")
    assert group.beat("B") == 5_000
    group.driver.advance(19_990)
    assert group.beat("B") == 250


@pytest.mark.rule("GC-38")
def test_ends_close_to_each_other_are_awaited_together() -> None:
    group = Two()
    group.driver.settle("C", ["t"])
    group.beat("A")
    group.driver.advance(1_500)
    group.lost("A")
    group.driver.advance(400)
    group.lost("C")
    assert group.beat("B") == 5_000
    group.driver.advance(3_600)
    assert group.beat("B") == GRACE_MS - 3_600 + 50


@pytest.mark.rule("GC-37")
def test_a_heartbeat_ends_it_and_the_session_goes_on_as_ever() -> None:
    group = Two()
    group.lost("A")
    group.driver.advance(GRACE_MS - 1)
    group.beat("A")
    group.driver.advance(GRACE_MS)
    assert group.members == {"A", "B"}
    group.beat("B")
    assert group.expelled_after_ms() == SESSION_MS - GRACE_MS
    assert group.members == {"B"}
    reported = [each for each in group.driver.take_effects() if isinstance(each, c.MemberExpired)]
    assert [(each.leader, each.waited_ms) for each in reported] == [(None, SESSION_MS)]


@pytest.mark.rule("GC-37")
def test_a_heartbeat_that_was_under_way_when_the_connection_was_lost_proves_nothing() -> None:
    group = Two()
    group.lost("A")
    group.driver.advance(900)
    group.beat("A")
    assert group.expelled_after_ms() == GRACE_MS
    group = Two()
    group.beat("A")
    group.driver.advance(100)
    group.lost("A", ago_ms=200)
    assert group.expelled_after_ms() == GRACE_MS, "the heartbeat overtook the report"


@pytest.mark.rule("GC-36", "GC-37")
def test_a_late_report_says_nothing_about_a_member_that_has_heartbeaten_since_or_joined_again() -> None:
    group = Two()
    group.driver.advance(3_000)
    group.beat("A")
    assert group.lost("A", ago_ms=1_500) is False
    group.driver.beat("A", -1)
    group.driver.advance(2_000)
    group.driver.settle("A", ["t"])
    assert group.lost("A", ago_ms=2_001) is False
    group.driver.advance(GRACE_MS)
    assert group.members == {"A", "B"}


@pytest.mark.rule("GC-36")
def test_a_second_report_neither_shortens_nor_lengthens_the_wait() -> None:
    group = Two()
    group.lost("A")
    group.driver.advance(3_000)
    assert group.lost("A", leader="leader-2:9093") is True
    assert group.expelled_after_ms() == GRACE_MS - 3_000


@pytest.mark.rule("GC-36")
def test_nothing_is_expected_of_one_who_is_no_member() -> None:
    group = Two()
    assert group.lost("X") is False
    assert group.driver.run(c.ConnectionLost("other", "A", "leader-1:9093", 0)) is False
    assert group.driver.run(c.ConnectionBack("g", "A")) is False
    group.driver.beat("A", -1)
    assert group.lost("A") is False


@pytest.mark.rule("GC-37")
def test_a_new_session_ends_it_and_the_session_time_out_counts_as_before() -> None:
    group = Two()
    group.lost("A")
    group.driver.advance(5_000)
    assert group.driver.run(c.ConnectionBack("g", "A")) is True
    group.beat("B")
    assert group.expelled_after_ms() == SESSION_MS - 5_000 - 2_000, "2 s lay between the heartbeat and the report"
    assert group.members == {"B"}


@pytest.mark.rule("GC-37")
def test_one_who_leaves_is_not_expected_any_more() -> None:
    group = Two()
    group.lost("A")
    group.driver.beat("A", -1)
    assert group.beat("B") == 5_000


@pytest.mark.rule("GC-36")
def test_the_setting_is_a_least_grace_and_minus_one_is_never() -> None:
    longer = Two(lost_connection_grace_ms=10_000)
    longer.lost("A")
    assert longer.expelled_after_ms() == 10_000
    shorter = Two(lost_connection_grace_ms=1)
    shorter.lost("A")
    assert shorter.expelled_after_ms() == GRACE_MS
    never = Two(lost_connection_grace_ms=-1)
    assert never.lost("A") is False
    never.beat("B")
    assert never.expelled_after_ms() == SESSION_MS - 2_000


@pytest.mark.rule("GC-36")
def test_a_member_that_got_a_longer_interval_has_that_time() -> None:
    group = Two()
    group.driver.configs = replace(group.driver.configs, heartbeat_interval_ms=15_000)
    assert group.beat("A") == 15_000
    group.driver.configs = replace(group.driver.configs, heartbeat_interval_ms=5_000)
    group.driver.advance(2_000)
    group.lost("A")
    assert group.expelled_after_ms() == 16_000


@pytest.mark.rule("GC-32a", "GC-39", "GC-69c")
def test_after_a_pause_or_with_a_new_owner_nothing_is_expected() -> None:
    paused = Two()
    paused.lost("A")
    paused.driver.shard.paused(paused.driver.now_ms)
    paused.driver.advance(SESSION_MS - 1)
    assert paused.members == {"A", "B"}
    moved = Two()
    moved.lost("A")
    moved.driver.reload()
    moved.driver.advance(SESSION_MS - 1)
    assert moved.members == {"A", "B"}
    assert moved.lost("A") is True, "and a report that reaches the new owner counts"
