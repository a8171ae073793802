"""The judge of the workload's alerts finds those that fire when they should not, and those that do not fire when they
should."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.promtool import SCRAPED, firing, labelled

from .workload_alerts import INTERVAL_S, RULES, SCRAPE_S, Expected, misjudged, reported, written

BEHIND = labelled(alertname="ShareGroupHistoryBehind", namespace="ns", severity="warning")
STALLED = labelled(alertname="ShareGroupStalled", group="hung", topic="t", namespace="ns", severity="critical")


def test_what_fires_outside_its_time_or_unexpectedly_is_reported() -> None:
    expected = [Expected("ShareGroupStalled", {"group": "hung", "topic": "t"}, 10.0, 20.0)]
    assert misjudged({STALLED: [10.0, 13.0, 20.0 + SCRAPE_S]}, expected) == []
    assert misjudged({STALLED: [9.0]}, expected) == ["ShareGroupStalled hung t fired at 9"]
    assert misjudged({STALLED: [13.0, 24.0]}, expected) == ["ShareGroupStalled hung t fired at 24"]
    assert misjudged({STALLED - {("group", "hung")} | {("group", "other")}: [13.0]}, expected) == [
        "ShareGroupStalled other t fired at 13"
    ]


def test_what_does_not_fire_in_time_is_reported() -> None:
    expected = [Expected("ShareGroupStalled", {"group": "hung"}, 10.0, 30.0, 20.0)]
    assert misjudged({STALLED: [20.0, 25.0]}, expected) == []
    reported_of = "ShareGroupStalled {'group': 'hung'} did not fire from 10 to 20"
    assert misjudged({STALLED: [21.0]}, expected) == [reported_of]
    assert misjudged({}, expected) == [reported_of]


def test_a_scrape_that_failed_ends_each_series_once() -> None:
    lag = ("sharegroups_ingest_share_group_lag", labelled(group="g"))
    series = written([None, {lag: 1.0}, None, None, {lag: 2.0}])
    assert series == {
        ("up", frozenset(SCRAPED.items())): ["0", "1", "0", "0", "1"],
        lag: ["_", "1.0", "stale", "_", "2.0"],
    }


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool: it evaluates the alerts")
def test_alerts_fire_from_their_time_on_and_begin_again_where_a_scrape_failed(tmp_path: Path) -> None:
    behind = {("sharegroups_ingest_entries_behind", labelled(stream="{sgs:0}:log", **SCRAPED)): 200_000.0}
    last = {("sharegroups_ingest_last_trigger_timestamp_seconds", labelled(kind="gc", **SCRAPED)): 1e9}
    scraped = behind | last
    series = written([scraped] * 25 + [None] + [scraped] * 25)
    found = firing(tmp_path, RULES, series, INTERVAL_S, 51)
    assert found == {BEHIND: [*range(20, 25), *range(46, 51)]}
    assert reported({STALLED: [3.0, 9.0]}, 3.0) == [f"{'ShareGroupStalled hung t':60}      0 s to      6 s, 2 samples"]
    with pytest.raises(RuntimeError, match="could not evaluate"):
        firing(tmp_path, RULES, {("no name", labelled()): ["1"]}, INTERVAL_S, 1)
