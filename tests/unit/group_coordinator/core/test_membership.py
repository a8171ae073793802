"""Epochs, responses and log records when members join, stay, leave and expire."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from group_coordinator.core import commands as c
from group_coordinator.core import records as r
from group_coordinator.core.assignor import GroupSpec
from group_coordinator.core.group import Group
from group_coordinator.core.views import Assignment, CoordinatorSettings
from kip932 import errors
from shard_runtime.config.group_config import GroupConfig
from tests.support.group_driver import KAFKA, Driver, topic_id

T = topic_id("t")


def _group(driver: Driver) -> Group:
    return driver.shard.groups["g"]


def _settled(partitions: int = 2, **kwargs: object) -> tuple[Driver, int]:
    driver = Driver(**kwargs)  # type: ignore[arg-type]
    driver.create("t", partitions)
    return driver, driver.settle("A", ["t"]).member_epoch


@pytest.mark.rule("GC-24a", "GC-25", "GC-63a", "P-13")
def test_a_steady_heartbeat_writes_nothing_and_keeps_every_value() -> None:
    driver, epoch = _settled()
    before, size = _group(driver), len(driver.log)
    reply = driver.beat("A", epoch)
    assert reply == c.HeartbeatReply("A", epoch, 5_000, None)
    assert (_group(driver) is before, len(driver.log)) == (True, size)


@pytest.mark.rule("GC-24a", "GC-25")
def test_the_previous_epoch_is_a_lost_response_and_a_full_request_is_answered_in_full() -> None:
    driver, epoch = _settled()
    assert driver.beat("A", epoch - 1).assignment is None
    assert driver.beat("A", epoch - 1, ["t"])[1:4] == (epoch, 5_000, {T: (0, 1)})


@pytest.mark.rule("GC-24a", "GC-29")
def test_a_rejoin_without_change_keeps_the_epochs_and_writes_nothing() -> None:
    driver, epoch = _settled()
    size = len(driver.log)
    assert driver.beat("A", 0, ["t"])[1:4] == (epoch, 5_000, {T: (0, 1)})
    assert len(driver.log) == size


@pytest.mark.rule("GC-24b", "GC-29")
def test_a_new_rack_is_recorded_without_a_bump() -> None:
    driver, epoch = _settled()
    size = len(driver.log)
    assert driver.beat("A", epoch, rack="r1").member_epoch == epoch
    assert driver.new_records(size) == [r.MemberMetadata("g", "A", "r1", "client", "127.0.0.1", ("t",))]


@pytest.mark.rule("GC-24b")
@pytest.mark.parametrize(("client_id", "host"), [("other", "127.0.0.1"), ("client", "10.0.0.8")])
def test_a_new_client_id_or_host_is_recorded_without_a_bump(client_id: str, host: str) -> None:
    driver, epoch = _settled()
    size = len(driver.log)
    reply = driver.run(c.Heartbeat("g", "A", epoch, None, None, client_id, host))
    assert reply == c.HeartbeatReply("A", epoch, 5_000, None)
    assert driver.new_records(size) == [r.MemberMetadata("g", "A", None, client_id, host, ("t",))]


@pytest.mark.rule("GC-24b", "GC-24e", "GC-24g")
def test_a_changed_subscription_bumps_once_and_its_order_and_duplicates_do_not_count() -> None:
    driver, epoch = _settled()
    driver.create("u", 1)
    assert driver.beat("A", epoch, ["u", "t", "u"])[1:5] == (epoch + 1, 5_000, {T: (0, 1)}, True)
    driver.initialize()
    assert driver.beat("A", epoch + 1).assignment == {T: (0, 1), topic_id("u"): (0,)}
    size = len(driver.log)
    driver.beat("A", epoch + 2, ["t", "u"])
    assert len(driver.log) == size


@pytest.mark.rule("GC-24g", "GC-25", "GC-70")
def test_subscribing_to_nothing_takes_everything_away() -> None:
    driver, epoch = _settled()
    driver.create("t", 3)
    assert driver.beat("A", epoch, [])[1:4] == (epoch + 1, 5_000, {})
    assert driver.beat("A", epoch + 1)[1:4] == (epoch + 1, 5_000, None)
    assert driver.take_effects() == []


@pytest.mark.rule("GC-24g", "GC-138")
def test_inside_the_interval_a_dropped_topic_is_taken_at_the_present_epoch() -> None:
    driver, epoch = _settled(configs=GroupConfig(assignment_interval_ms=0))
    driver.create("u", 1)
    driver.beat("A", epoch, ["t", "u"])
    driver.initialize()
    epoch = driver.beat("A", epoch + 1).member_epoch
    driver.configs = GroupConfig(assignment_interval_ms=60_000)
    assert driver.beat("A", epoch, ["u"])[1:4] == (epoch, 5_000, {topic_id("u"): (0,)})
    assert _group(driver).epoch == epoch + 1
    assert _group(driver).assignment_epoch == epoch


@pytest.mark.rule("GC-24d", "GC-29", "GC-62", "GC-78", "GC-79")
def test_growth_and_deletion_and_recreation_bump_and_an_unrelated_topic_does_not() -> None:
    driver, epoch = _settled()
    driver.create("unrelated", 5)
    assert driver.beat("A", epoch).member_epoch == epoch
    driver.create("t", 3)
    assert driver.beat("A", epoch)[1:4] == (epoch + 1, 5_000, None)  # the assignment stays the same
    (order,) = driver.initialize()
    assert [(partition.partition, start) for partition, start in order.partitions] == [(2, 0)]
    assert driver.beat("A", epoch + 1).assignment == {T: (0, 1, 2)}
    driver.delete("t")
    assert driver.beat("A", epoch + 2).assignment == {}
    assert _group(driver).metadata_hash == 0
    new = driver.create("t", 1, generation=1)
    driver.beat("A", epoch + 3)
    driver.initialize()
    assert driver.beat("A", epoch + 4).assignment == {new: (0,)}
    size = len(driver.log)
    assert driver.beat("A", epoch + 5).member_epoch == epoch + 5
    assert driver.new_records(size) == []  # the epoch is no longer bumped


@pytest.mark.rule("GC-24d", "GC-69c")
def test_the_first_heartbeat_after_a_load_bumps_when_a_topic_grew_meanwhile_and_only_then() -> None:
    driver, epoch = _settled()
    driver.reload()
    size = len(driver.log)
    assert driver.beat("A", epoch).member_epoch == epoch
    assert driver.new_records(size) == []
    driver.create("t", 3)
    driver.reload()
    assert driver.beat("A", epoch).member_epoch == epoch + 1
    assert isinstance(driver.new_records(size)[0], r.GroupMetadata)


@pytest.mark.rule("GC-24c")
def test_pending_partitions_bump_once_while_their_assignment_waits_for_the_interval() -> None:
    driver, epoch = _settled()
    driver.configs = GroupConfig(assignment_interval_ms=60_000)
    driver.create("t", 3)
    assert driver.beat("A", epoch).member_epoch == epoch
    driver.initialize()
    size = len(driver.log)
    for _ in range(3):
        driver.beat("A", epoch)
    assert (driver.new_records(size), _group(driver).epoch) == ([], epoch + 1)


@pytest.mark.rule("GC-24f", "GC-31")
def test_members_whose_target_stays_get_no_record_and_each_adopts_its_own_part() -> None:
    driver, _ = _settled(6)
    driver.create("u", 1)
    for member_id, topics in (("B", ["t"]), ("C", ["u"])):
        driver.settle(member_id, topics)
    driver.beat("D", 0, ["t"])
    for member_id in "ABC":
        driver.beat(member_id, driver.shard.groups["g"].members[member_id].epoch)
    driver.beat("D", -1)
    size = len(driver.log)
    first = driver.beat("A", _group(driver).members["A"].epoch)
    changed = [record.member_id for record in driver.new_records(size) if isinstance(record, r.TargetMember)]
    assert changed == ["A", "B"]
    assert len(_group(driver).members["B"].assigned[T]) == 2
    second = driver.beat("B", _group(driver).members["B"].epoch)
    assert first.assignment is not None
    assert second.assignment is not None
    assert sorted(first.assignment[T] + second.assignment[T]) == [0, 1, 2, 3, 4, 5]


@pytest.mark.rule("GC-51", "OP-14")
def test_a_group_whose_members_differ_is_dealt_topic_by_topic() -> None:
    """The first example of GC-56b; one computation over all topics would give another result."""
    driver = Driver(configs=GroupConfig(assignment_interval_ms=10_000))
    ids = {name: driver.create(name, partitions) for name, partitions in (("t1", 3), ("t2", 3), ("t3", 2))}
    for member_id, topics in (("A", ["t1", "t2"]), ("B", ["t3"]), ("C", ["t2", "t3"])):
        driver.beat(member_id, 0, topics)
        driver.initialize()
    driver.advance(10_000)
    driver.beat("A", 2)
    held = {
        member_id: {name: target[topic] for name, topic in ids.items() if topic in target}
        for member_id, target in _group(driver).targets.items()
    }
    assert held == {"A": {"t1": (0, 1, 2), "t2": (0, 2)}, "B": {"t3": (0,)}, "C": {"t2": (1,), "t3": (1,)}}
    driver.advance(10_000)
    driver.beat("A", _group(driver).members["A"].epoch, ["t2"])
    assert [member_id for member_id, target in _group(driver).targets.items() if ids["t1"] in target] == []


@pytest.mark.rule("GC-24c")
def test_an_assignor_that_leaves_a_partition_out_does_not_bump_for_ever() -> None:
    class FirstOnly:
        name = "first-only"

        def assign(self, spec: GroupSpec) -> Mapping[str, Assignment]:
            return {member_id: {T: (0,)} if T in spec.assignable else {} for member_id in spec.members}

    driver, epoch = _settled(assignor=FirstOnly())
    assert driver.beat("A", epoch)[1:5] == (epoch, 5_000, None, False)


@pytest.mark.rule("GC-28")
def test_a_failing_assignor_writes_nothing() -> None:
    class Broken:
        name = "broken"

        def assign(self, spec: GroupSpec) -> Mapping[str, Assignment]:
            raise ZeroDivisionError(f"{len(spec.members)} members")

    driver = Driver(assignor=Broken())
    with pytest.raises(errors.UnknownServerError, match="broken: ZeroDivisionError: 1 members"):
        driver.beat("A", 0, ["t"])
    assert driver.log == []


@pytest.mark.rule("GC-24f")
def test_a_time_stamp_of_a_node_whose_clock_is_ahead_is_not_waited_for() -> None:
    driver, epoch = _settled(configs=GroupConfig(assignment_interval_ms=60_000), settings=CoordinatorSettings())
    driver.now_ms -= 5_000
    driver.create("u", 1)
    assert driver.beat("A", epoch, ["t", "u"]).member_epoch == epoch + 1


@pytest.mark.rule("GC-27", "GC-138")
def test_configs_are_read_per_heartbeat() -> None:
    driver, epoch = _settled()
    driver.configs = GroupConfig(session_timeout_ms=50_000, heartbeat_interval_ms=10_000, assignment_interval_ms=0)
    assert driver.beat("A", epoch).heartbeat_interval_ms == 10_000
    assert driver.shard.next_deadline() is not None
    driver.advance(49_999)
    assert "A" in _group(driver).members
    driver.advance(1)
    assert _group(driver).members == {}


@pytest.mark.rule("GC-30", "GC-31", "X6", "X7")
def test_leaving_writes_its_batch_and_the_others_adopt_on_their_own_heartbeats() -> None:
    driver, epoch = _settled()
    driver.beat("B", 0, ["t"])
    epoch = driver.beat("A", epoch).member_epoch
    size = len(driver.log)
    assert driver.beat("B", -1) == c.HeartbeatReply("B", -1, 0, None)
    mh = _group(driver).metadata_hash
    assert driver.new_records(size) == [
        r.Tombstone(r.CURRENT, "g", "B", "left"),
        r.Tombstone(r.TARGET, "g", "B", "left"),
        r.Tombstone(r.MEMBER, "g", "B", "left"),
        r.GroupMetadata("g", epoch + 1, mh, 1),
    ]
    assert driver.beat("A", epoch)[1:4] == (epoch + 1, 5_000, {T: (0, 1)})


@pytest.mark.rule("GC-30")
def test_who_joins_after_the_last_member_does_not_wait_and_its_topics_left_the_hash() -> None:
    driver, _ = _settled()
    driver.configs = GroupConfig(assignment_interval_ms=60_000)
    size = len(driver.log)
    driver.beat("A", -1)
    epoch = _group(driver).epoch
    assert driver.new_records(size)[3:] == [
        r.GroupMetadata("g", epoch, 0, 0),
        r.TargetMetadata("g", epoch, 0, {}),
    ]
    assert driver.beat("B", 0, ["t"]).assignment == {T: (0, 1)}


@pytest.mark.rule("GC-32", "GC-33", "X6")
def test_a_rejected_heartbeat_does_not_extend_a_session_and_a_late_expiry_does_nothing() -> None:
    driver, epoch = _settled()
    driver.advance(30_000)
    with pytest.raises(errors.FencedMemberEpochError):
        driver.beat("A", epoch + 7)
    size = len(driver.log)
    driver.advance(15_000)
    assert _group(driver).members == {}
    gone = [record for record in driver.new_records(size) if isinstance(record, r.Tombstone)]
    assert [(record.kind, record.reason) for record in gone] == [
        (kind, r.REASON_EXPIRED) for kind in (r.CURRENT, r.TARGET, r.MEMBER)
    ]
    size = len(driver.log)
    driver.run(c.SessionExpired("g", "A"))
    driver.run(c.SessionExpired("unknown", "A"))
    assert len(driver.log) == size
    assert driver.shard.next_deadline() is None


@pytest.mark.rule("GC-32", "GC-24h")
def test_an_expiry_that_was_due_before_a_heartbeat_arrived_is_void() -> None:
    driver, epoch = _settled()
    driver.now_ms += 45_000
    (command,) = driver.shard.due(driver.now_ms)
    driver.beat("A", epoch)
    driver.run(command)
    assert "A" in _group(driver).members


@pytest.mark.rule("GC-32a")
def test_after_a_pause_every_session_starts_in_full() -> None:
    driver, _ = _settled()
    driver.now_ms += 100_000
    driver.shard.paused(driver.now_ms)
    driver.advance(44_999)
    assert "A" in _group(driver).members
    driver.advance(1)
    assert _group(driver).members == {}


@pytest.mark.rule("GC-32a", "GC-80")
def test_while_the_image_is_incomplete_no_member_is_served_and_none_expires() -> None:
    driver, epoch = _settled()
    whole = driver.image
    driver.image = type(whole)((), whole.version + 1, complete=False)
    with pytest.raises(errors.CoordinatorLoadInProgressError):
        driver.beat("A", epoch)
    driver.now_ms += 60_000
    for command in driver.shard.due(driver.now_ms):
        with pytest.raises(errors.CoordinatorLoadInProgressError):
            driver.run(command)
    driver.image = whole
    assert driver.beat("A", epoch).member_epoch == epoch


@pytest.mark.rule("OP-19")
def test_the_first_assignment_is_fast_and_the_next_one_keeps_the_interval() -> None:
    driver = Driver(settings=CoordinatorSettings(), configs=GroupConfig(assignment_interval_ms=10_000))
    driver.create("t", 1)
    reply = driver.beat("A", 0, ["t"])
    assert reply[1:4] == (2, 50, {})
    assert driver.beat("A", 2).heartbeat_interval_ms == 250
    driver.initialize()
    assert driver.beat("A", 2)[1:4] == (3, 5_000, {T: (0,)})
    assert driver.beat("B", 0, ["t"])[1:4] == (3, 5_000, {})


@pytest.mark.rule("OP-19", "GC-26")
def test_a_second_member_comes_back_as_soon_as_it_may_be_assigned() -> None:
    driver, epoch = _settled(configs=GroupConfig(assignment_interval_ms=1_000), settings=CoordinatorSettings())
    driver.advance(400)
    began_ms = driver.now_ms
    reply = driver.beat("B", 0, ["t"])
    assert reply[1:4] == (epoch, 600, {})
    driver.advance(reply.heartbeat_interval_ms - 10)
    early = driver.beat("B", epoch)
    assert (early.heartbeat_interval_ms, early.assignment) == (250, None)  # an early heartbeat costs one more heartbeat
    driver.advance(early.heartbeat_interval_ms)
    reply = driver.beat("B", epoch)
    assert reply.assignment is not None
    assert reply[1:3] == (epoch + 1, 5_000)
    assert driver.now_ms - began_ms < 1_000


@pytest.mark.rule("OP-19", "GC-27")
def test_only_members_without_partitions_come_back_early_and_only_when_not_as_kafka() -> None:
    driver, epoch = _settled(configs=GroupConfig(assignment_interval_ms=1_000), settings=CoordinatorSettings())
    driver.beat("B", 0, ["t"])
    assert driver.beat("A", epoch).heartbeat_interval_ms == 5_000
    driver, epoch = _settled(configs=GroupConfig(assignment_interval_ms=1_000), settings=KAFKA)
    driver.advance(10)
    assert driver.beat("B", 0, ["t"])[1:4] == (epoch, 5_000, {})


@pytest.mark.rule("OP-19")
def test_a_member_that_waits_for_a_topic_to_exist_is_in_no_hurry() -> None:
    driver = Driver(settings=CoordinatorSettings())
    assert driver.beat("A", 0, ["nowhere"]).heartbeat_interval_ms == 5_000


@pytest.mark.rule("OP-19")
def test_no_member_comes_back_later_than_the_groups_own_interval() -> None:
    configs = GroupConfig(heartbeat_interval_ms=100, assignment_interval_ms=1_000)
    driver = Driver(settings=CoordinatorSettings(), configs=configs)
    driver.create("t", 1)
    epoch = driver.beat("A", 0, ["t"]).member_epoch
    assert driver.beat("A", epoch).heartbeat_interval_ms == 100, "until its partitions are initialised"
    quick = Driver(settings=CoordinatorSettings(), configs=GroupConfig(heartbeat_interval_ms=20))
    quick.create("t", 1)
    assert quick.beat("A", 0, ["t"]).heartbeat_interval_ms == 20, "in the answer to its join"
    driver, _ = _settled(configs=configs, settings=CoordinatorSettings())
    assert driver.beat("B", 0, ["t"]).heartbeat_interval_ms == 100, "until the assignment interval ends"


@pytest.mark.rule("GC-60")
def test_a_member_in_an_unknown_state_is_reconciled_again() -> None:
    driver, epoch = _settled()
    driver.shard.replay(r.CurrentAssignment("g", "A", epoch, epoch - 1, 9, {}))
    assert _group(driver).members["A"].state == r.UNKNOWN_STATE == 127
    for known in range(4):
        driver.shard.replay(r.CurrentAssignment("g", "A", epoch, epoch - 1, known, {}))
        assert _group(driver).members["A"].state == (known if known < 3 else r.UNKNOWN_STATE)
    driver.shard.replay(r.CurrentAssignment("g", "A", epoch, epoch - 1, 9, {}))
    reply = driver.beat("A", epoch)
    assert (reply.member_epoch, reply.assignment) == (epoch, {T: (0, 1)})
    assert _group(driver).members["A"].state == r.STABLE


@pytest.mark.rule("GC-40", "GC-42", "GC-121", "GC-126")
def test_states_lists_and_descriptions() -> None:
    driver, epoch = _settled(settings=KAFKA)
    described = driver.run(c.Describe("g"))
    assert isinstance(described, c.DescribedGroup)
    assert (described.state, described.epoch, described.assignment_epoch) == ("Stable", epoch, epoch)
    assert described.assignor_name == "simple"
    assert described.topic_names == {T: "t"}
    driver.beat("A", -1)
    driver.advance(10**9)
    assert driver.run(c.ListAll()) == [c.ListedGroup("g", "Empty", 0)]
    assert driver.shard.counts() == (1, 0)
    with pytest.raises(errors.GroupIdNotFoundError, match="Group h not found"):
        driver.run(c.Describe("h"))
