"""Gauges and counters from batches of rows, as a scrape shows them (PM-38, PM-65)."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql import SparkSession

from group_coordinator.core import records as r
from group_coordinator.core.lifecycle import Lifecycle, TopicState
from kip932.ids import SharePartitionKey
from kip932.state_batches import CAUSE_ACK, ArchivedRange, StateBatch, WriteStats
from share_coordinator.core.records import ShareRecord, ShareTombstone
from share_metrics.gauges.gauges import Gauges
from share_metrics.reader import EntryId, Gap, Kind
from tests.support.pipeline_entries import KEY, STREAM, TOPIC, snapshot, update
from tests.support.promtool import assert_without_remarks

from .frames import BASE_S, groups, states

NAMED = {"group": "G1", "topic": "orders", "partition": "0"}
REJECTED = ArchivedRange(114, 114, 1, 2)


def registered(gauges: Gauges) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(gauges)
    return registry


@pytest.mark.rule("PM-19", "PM-34", "PM-38", "PM-40", "PM-42", "PM-44", "PM-45", "PM-48", "PM-50", "PM-65")
def test_newest_values_stay_and_counts_add_up_over_batches(spark: SparkSession) -> None:
    gauges = Gauges(now=lambda: float(BASE_S + 80))
    scraped = registered(gauges)
    lifecycle = Lifecycle({TOPIC: TopicState(TOPIC, "orders", 1, {}, (0,))}, {})
    gauges.take(Kind.GROUP, groups(spark, [(0, r.StateMetadata("G1", lifecycle))]))
    gauges.take(Kind.SHARE_STATE, states(spark, [(1, snapshot(100))]))
    acked = WriteStats(CAUSE_ACK, n_accept=10, n_reject=1, n_timeout=2, n_limit=3, hwm=130, speo=121)
    tired = [StateBatch(112, 113, 0, 4), StateBatch(114, 114, 0, 1), StateBatch(115, 115, 4, 5)]
    gauges.take(
        Kind.SHARE_STATE, states(spark, [(2, update(110, stats=acked)), (3, update(complete=4, batches=tired))])
    )
    again = update(stats=WriteStats(CAUSE_ACK, n_accept=5, write_id=7))  # the share coordinator died before responding
    gauges.take(Kind.SHARE_STATE, states(spark, [(4, again), (4, again)]))
    gauges.take(Kind.SHARE_STATE, states(spark, [(4, again)]))
    failed = WriteStats(
        CAUSE_ACK, n_limit=2, write_id=8, delivery_limit=3, archived=(ArchivedRange(112, 113, 3, 1), REJECTED)
    )
    last_chance = [StateBatch(116, 116, 0, 2), StateBatch(117, 117, 0, 1)]
    gauges.take(Kind.SHARE_STATE, states(spark, [(4, update(115, batches=last_chance, stats=failed))]))
    gauges.take(Kind.SHARE_STATE, states(spark, [(4, update(110, stats=WriteStats(write_id=9)))]))

    def value(name: str, **labels: str) -> float | None:
        return scraped.get_sample_value(f"sharegroups_ingest_share_group_{name}", {**NAMED, **labels})

    assert value("start_offset") == 110
    assert value("finished_offset") == 110
    assert value("lag") == 20
    assert value("in_flight_width") == 11
    assert value("acknowledged_records_total", ack_type="accept") == 15
    assert value("acknowledged_records_total", ack_type="reject") == 1
    assert value("timed_out_records_total") == 2
    assert value("limit_archived_records_total") == 3 + 2
    assert value("writes_total") == 4 + 2
    assert value("poison_sightings_total") == 3 + 3, "by the group's own limit, and no rejected one"
    assert scraped.get_sample_value("sharegroups_ingest_freshness_seconds", {"stream": STREAM}) == 76
    gauges.take(Kind.SHARE_STATE, states(spark, [(5, ShareTombstone(KEY))]))
    assert value("start_offset") is None


@pytest.mark.rule("CM-174")
def test_prometheus_own_check_has_no_remark_on_what_an_ingest_serves(spark: SparkSession) -> None:
    gauges = Gauges(now=lambda: float(BASE_S + 80))
    gauges.take(Kind.SHARE_STATE, states(spark, [(1, snapshot(100))]))
    text = generate_latest(registered(gauges)).decode()
    assert "sharegroups_ingest_share_group_start_offset{" in text
    assert_without_remarks(text)


@pytest.mark.rule("PM-34", "PM-38", "PM-54")
def test_what_earlier_runs_have_kept_has_its_series_and_counts_nothing(spark: SparkSession) -> None:
    """An idle group writes nothing: without the stored rows, its series would vanish with the process."""
    stats = WriteStats(CAUSE_ACK, n_accept=5, n_timeout=2, hwm=130, speo=121, write_id=7)
    gone = snapshot(3, key=KEY._replace(partition=1)), ShareTombstone(KEY._replace(partition=1))
    records: list[ShareRecord] = [snapshot(100), *gone, update(110, 4, stats=stats)]
    lost = Gap(STREAM, EntryId(1, 1), EntryId(1, 2), 1, "trimmed")
    history: list[tuple[int, ShareRecord] | Gap] = [*enumerate(records), lost]
    lifecycle = Lifecycle({TOPIC: TopicState(TOPIC, "orders", 1, {}, (0,))}, {})
    joined = r.MemberMetadata("G1", "m", None, "c", "h", ("t",))
    gauges = Gauges(now=lambda: float(BASE_S + 80))
    gauges.take(Kind.SHARE_STATE, states(spark, history), kept=True)
    reported: list[tuple[int, r.Record]] = [(0, r.StateMetadata("G1", lifecycle)), (1, joined)]
    reported.append((2, r.TargetMetadata("G1", 1, 0, {})))
    gauges.take(Kind.GROUP, groups(spark, reported), kept=True)
    scraped = registered(gauges)

    def shown(name: str, **labels: str) -> float | None:
        return scraped.get_sample_value(f"sharegroups_ingest_share_group_{name}", {**NAMED, **labels})

    assert [shown(name) for name in ("start_offset", "finished_offset", "lag", "in_flight_width")] == [110, 114, 16, 11]
    assert shown("start_offset", partition="1") is None
    assert scraped.get_sample_value("sharegroups_ingest_share_group_members", {"group": "G1"}) == 1
    assert scraped.get_sample_value("sharegroups_ingest_share_group_rebalances_total", {"group": "G1"}) == 0
    assert scraped.get_sample_value("sharegroups_ingest_lost_entries_total", {"stream": STREAM}) == 0
    assert scraped.get_sample_value("sharegroups_ingest_freshness_seconds", {"stream": STREAM}) == 77
    gauges.take(Kind.SHARE_STATE, states(spark, [(9, update(111, 4))]), 7)
    gauges.take(Kind.SHARE_STATE, states(spark, [(9, update(111, 4))]), 7)
    assert shown("writes_total") == 1, "a batch that comes again counts once"
    again = update(110, 4, stats=stats)  # the share coordinator died with the ingest, so the leader sends it again
    gauges.take(Kind.SHARE_STATE, states(spark, [(9, again)]))
    assert [shown(name) for name in ("writes_total", "timed_out_records_total")] == [1, 0]
    assert shown("acknowledged_records_total", ack_type="accept") == 0


@pytest.mark.rule("PM-38", "PM-54", "PM-55")
def test_members_come_and_go(spark: SparkSession) -> None:
    gauges = Gauges()
    scraped = registered(gauges)
    member = [(1, r.MemberMetadata("g", name, None, "c", "h", ("t",))) for name in "abc"]
    gauges.take(Kind.GROUP, groups(spark, [*member, (2, r.TargetMetadata("g", 1, 0, {}))]))
    gauges.take(Kind.GROUP, groups(spark, [(3, r.Tombstone(r.MEMBER, "g", "b", "left"))]))
    assert scraped.get_sample_value("sharegroups_ingest_share_group_members", {"group": "g"}) == 2
    assert scraped.get_sample_value("sharegroups_ingest_share_group_rebalances_total", {"group": "g"}) == 1


@pytest.mark.rule("PM-38")
def test_beyond_the_cap_partitions_are_rolled_up_by_topic(spark: SparkSession) -> None:
    gauges = Gauges(series_max=2, now=lambda: float(BASE_S))
    scraped = registered(gauges)
    stats = WriteStats(CAUSE_ACK, n_accept=1, hwm=9)
    keys = [SharePartitionKey("G1", TOPIC, number) for number in range(5)]
    gauges.take(Kind.SHARE_STATE, states(spark, [(1, snapshot(number, key=key, stats=stats))
                                                 for number, key in enumerate(keys)]))  # fmt: skip
    rolled = {"group": "G1", "topic": "AAAAAAAAAAAAAAAAAAAAAQ", "partition": "others"}
    assert scraped.get_sample_value("sharegroups_ingest_share_group_lag", rolled) == 7 + 6 + 5
    assert scraped.get_sample_value("sharegroups_ingest_share_group_start_offset", rolled) is None
    assert (
        scraped.get_sample_value(
            "sharegroups_ingest_share_group_acknowledged_records_total", {**rolled, "ack_type": "accept"}
        )
        == 3
    )
    assert scraped.get_sample_value("sharegroups_ingest_share_group_lag", {**rolled, "partition": "1"}) == 8


@pytest.mark.rule("PM-64", "PM-65")
def test_what_is_lost_and_what_is_behind_is_reported(spark: SparkSession) -> None:
    gauges = Gauges()
    scraped = registered(gauges)
    gap = Gap(STREAM, EntryId(1, 0), EntryId(1, 5), 4, "trimmed")
    gauges.take(Kind.SHARE_STATE, states(spark, [gap, (1, snapshot(0))]))
    gauges.positions({STREAM: 7}, {STREAM: 10, "{sgs:1}:log": 2})
    stream = {"stream": STREAM}
    assert scraped.get_sample_value("sharegroups_ingest_lost_entries_total", stream) == 4
    assert scraped.get_sample_value("sharegroups_ingest_quarantined_entries_total", stream) == 0
    assert scraped.get_sample_value("sharegroups_ingest_entries_behind", stream) == 3
    assert scraped.get_sample_value("sharegroups_ingest_entries_behind", {"stream": "{sgs:1}:log"}) == 2


@pytest.mark.rule("PM-123")
def test_of_the_rows_of_earlier_runs_only_those_after_a_lost_tail_count(spark: SparkSession) -> None:
    """The second record was lost after it was read; the row of the gap says up to which id. The fourth is newer."""
    lost = Gap(STREAM, EntryId(1, 1), EntryId(1, 2), 1, "tail")
    lifecycle = Lifecycle({TOPIC: TopicState(TOPIC, "orders", 1, {}, (0,))}, {})
    stats = WriteStats(hwm=130, speo=121)
    older: list[tuple[int, ShareRecord] | Gap] = [(1, snapshot(100)), (2, update(110, stats=stats)), lost]
    newer = [(3, update(105, stats=stats))]
    for rows, start in ((older, None), ([*older, *newer], 105)):
        gauges = Gauges(now=lambda: float(BASE_S + 80))
        gauges.take(Kind.GROUP, groups(spark, [(0, r.StateMetadata("G1", lifecycle))]), kept=True)
        gauges.take(Kind.SHARE_STATE, states(spark, rows), kept=True)
        found = registered(gauges).get_sample_value("sharegroups_ingest_share_group_start_offset", NAMED)
        assert found == start
