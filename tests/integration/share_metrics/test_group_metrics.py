"""Metrics of groups on literal records of the group coordinator."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from group_coordinator.core import records as r
from group_coordinator.core.lifecycle import Lifecycle, TopicState
from kip932.ids import topic_id_text
from share_metrics.metrics import convergence, group_windows, share_partition_counts
from share_metrics.metrics.groups import converged
from share_metrics.metrics.newest import newest_members, newest_states, topic_names
from tests.support.pipeline_entries import TOPIC, snapshot, update

from .frames import groups, rows_of, states


def member(name: str, client: str = "c") -> r.MemberMetadata:
    return r.MemberMetadata("g", name, None, client, "h", ("t",))


def current(name: str, epoch: int) -> r.CurrentAssignment:
    return r.CurrentAssignment("g", name, epoch, epoch - 1, r.STABLE, {TOPIC: (0,)})


def gone(name: str, reason: str) -> list[r.Record]:
    return [r.Tombstone(kind, "g", name, reason) for kind in (r.CURRENT, r.TARGET, r.MEMBER)]


@pytest.mark.rule("PM-54", "PM-55", "PM-56", "PM-57", "PM-58")
def test_a_group_comes_changes_and_goes(spark: SparkSession) -> None:
    before, lifecycle = (Lifecycle({TOPIC: TopicState(TOPIC, "t", 2, {}, made)}, {}) for made in ((0,), (0, 1)))
    reported: list[tuple[int, r.Record]] = [
        (1, member("a")),
        (1, r.GroupMetadata("g", 1, 0, 1)),
        (1, r.TargetMetadata("g", 1, 0, {})),
        (2, current("a", 1)),
        (3, member("b")),
        (3, r.GroupMetadata("g", 2, 0, 2)),
        (4, r.TargetMetadata("g", 2, 0, {})),
        (5, current("a", 2)),
        (9, current("b", 2)),
        (9, r.StateMetadata("g", before)),
        (9, r.StateMetadata("g", lifecycle)),
        (61, r.ColdCopy(member("a"))),
        (61, r.ColdCopy(r.TargetMetadata("g", 2, 0, {}))),
        (62, member("b", "other")),
        *((70, record) for record in gone("b", "expired")),
        (80, r.TargetMetadata("g", 3, 0, {})),
        (125, member("c")),
        (126, r.Tombstone(r.MEMBER, "g", "c", "left")),
        (127, member("c")),
        (128, r.Tombstone(r.MEMBER, "g", "c", "fenced")),
        (129, member("c")),
        *((130, record) for record in gone("a", "left")),
        *((130, record) for record in gone("c", "left")),
        (190, r.Tombstone(r.GROUP, "g")),
        (600, member("d")),  # five minutes after three joins of this client, and two joins of another
        (601, member("e", "other")),
        (602, member("f", "other")),
    ]
    rows = groups(spark, reported).localCheckpoint()
    shown = ("joins", "leaves", "rebalances", "epoch_bumps", "members", "state", "flapping")
    found = rows_of(group_windows(rows), "window")
    assert [tuple(row[name] for name in shown) for row in found] == [
        (2, 0, 2, 2, 2, "Stable", 0),
        (0, 1, 1, 0, 1, "Stable", 0),
        (3, 4, 0, 0, 0, "Empty", 3),
        (0, 0, 0, 0, 0, "Dead", 0),
        (3, 0, 0, 0, 3, "Stable", 0),
    ]
    members_mean = (1 + 1 + 1 + 2 + 2 + 2) / 6  # after each record about members or the group
    assert (found[0]["churn_rate"], found[0]["rebalance_rate"]) == pytest.approx((2 / members_mean, 2 / 60))
    assert found[3]["churn_rate"] is None  # there are no members
    assert (found[1]["leaves_expired"], found[2]["leaves_left"], found[2]["leaves_fenced"]) == (1, 3, 1)
    assert rows_of(share_partition_counts(rows), "group_id") == [{"group_id": "g", "share_partitions": 2}]
    epochs = rows_of(convergence(rows), "assignment_epoch")
    assert [(row["assignment_epoch"], row["convergence_ms"]) for row in epochs] == [(1, 1000), (2, 5000), (3, None)]


@pytest.mark.rule("PM-19", "PM-30")
def test_the_newest_is_what_has_the_greatest_id_whatever_its_writers_clock_says(spark: SparkSession) -> None:
    """A new owner's clock is slow: its records are newer all the same."""
    lives = [Lifecycle({TOPIC: TopicState(TOPIC, name, 1, {}, (0,))}, {}) for name in ("before", "orders")]
    reported: list[tuple[int, r.Record]] = [
        (50, member("a")),
        (50, r.StateMetadata("g", lives[0])),
        (10, r.Tombstone(r.MEMBER, "g", "a", "left")),
        (10, r.StateMetadata("g", lives[1])),
    ]
    rows = groups(spark, reported).localCheckpoint()
    assert rows_of(topic_names(rows), "topic_id") == [{"topic_id": topic_id_text(TOPIC), "topic_name": "orders"}]
    assert rows_of(newest_members(rows), "member_id") == [{"group_id": "g", "member_id": "a", "there": False}]
    written = states(spark, [(50, snapshot(100)), (10, update(110))])
    assert [row["start_offset"] for row in rows_of(newest_states(written), "group_id")] == [110]


def test_no_member_converges_in_an_empty_group() -> None:
    event = {"record_type": "target_meta", "member_id": None, "event_time": None, "tombstone": False, "cause": 0}
    assert converged([event | {"assignment_epoch": 1}])[0]["convergence_ms"] is None
