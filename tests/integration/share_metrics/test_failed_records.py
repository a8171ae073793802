"""A page's sum of failed records includes all of them, however few it lists."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from kip932.ids import SharePartitionKey
from kip932.state_batches import CAUSE_ACK, ArchivedRange, StateBatch, WriteStats
from share_coordinator.core.records import ShareRecord
from share_metrics.reader import Gap
from share_metrics.replay.poison import POISON_MAX
from share_metrics.report import collect, render
from tests.support.pipeline_entries import TOPIC, snapshot, update

from .frames import groups, states
from .story import at_time

OTHER = SharePartitionKey("G2", TOPIC, 0)
FAILED = 130
REJECTED = WriteStats(
    CAUSE_ACK, n_reject=FAILED, write_id=1, delivery_limit=3, archived=(ArchivedRange(0, FAILED - 1, 1, 2),)
)
RELEASED = WriteStats(CAUSE_ACK, n_release=FAILED, write_id=2, delivery_limit=3)


@pytest.mark.rule("PM-48")
def test_the_sum_is_of_all_that_failed_and_says_where_it_is_a_lower_bound(spark: SparkSession) -> None:
    reported: list[tuple[int, ShareRecord] | Gap] = [(1, snapshot(0)), (2, update(FAILED, stats=REJECTED))]
    found = collect(states(spark, reported), groups(spark, []), at_time(0), at_time(60))
    assert (found.found.poison, found.found.poison_least) == (FAILED, False)
    assert {row["reason"] for row in found.poison} == {"rejected"}
    assert len(found.poison) == POISON_MAX < FAILED
    assert f"<b>{FAILED}</b> failed or poison" in render(found)
    reported += [
        (3, snapshot(0, key=OTHER)),
        (4, update(key=OTHER, batches=[StateBatch(0, 129, 0, 2)], stats=RELEASED)),
    ]
    found = collect(states(spark, reported), groups(spark, []), at_time(0), at_time(60))
    assert (found.found.poison, found.found.poison_least) == (FAILED + POISON_MAX, True)
    assert f"<b>≥\N{NO-BREAK SPACE}{FAILED + POISON_MAX}</b> failed or poison" in render(found)
