"""Compares each number of page, charts, gauges, tables, views and replay with the ledger of one play (`play`).

Also for the time of an outage of the ingest: there a number is right, or marked as a lower bound, or unknown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from share_metrics.ingest.job import Cluster, collected
from share_metrics.ingest.read_up_to import read_up_to
from share_metrics.metrics import lag as lag_metric
from share_metrics.pages import collected_here
from share_metrics.replay.time_travel import replayed
from share_metrics.report import Known, Report, by_process, filled_windows, render, totals
from share_metrics.report.by_process import collect_here
from share_metrics.report.model import PartitionLine
from share_metrics.report.page import charts
from share_metrics.views import register_history

from .play import FRESH_S, LETTERS, REJECTED, RELEASED, Play

LOCAL: Final = Cluster("local[1]")
#: The groups whose lag is known at each time from their first record on.
KNOWN: Final = Play.PARTITIONS


class Seen:
    """What the pipeline shows of the play: gauges, page, and the time up to which everything was read."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.gauges = play.data.with_suffix(".prom").read_text()
        until = read_up_to(play.data, datetime.now(UTC))
        assert until is not None
        self.until = until
        self.end = datetime.now(UTC)
        self.page = collected(play.data, (play.began, self.end), 1, True, LOCAL, print)

    def lag(self, group: str, at: float) -> tuple[int, int]:
        return self.play.ledger.lag(group, KNOWN[group], min(at, self.until.timestamp()))


@pytest.fixture(scope="module")
def seen(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """The play and its page. The end of a log is old after FRESH_S, as the outage is as much shorter."""
    with ExitStack() as held, pytest.MonkeyPatch.context() as patched:
        patched.setattr(lag_metric, "FRESH_S", FRESH_S)
        play = Play(held, tmp_path_factory.mktemp("play") / "data")
        play.act()
        yield Seen(play)


def lines(page: Report) -> dict[str, PartitionLine]:
    return {line.group_id: line for line in page.partitions}


def now_exactly(seen: Seen, group: str) -> int:
    """The lag at the end, when nothing happens."""
    low, high = seen.lag(group, time.time())
    assert low == high
    return low


def sums(seen: Seen, group: str) -> dict[str, int]:
    total = seen.play.ledger.total
    topic = KNOWN[group]
    return {what: total(what, topic, group) for what in ("accept", "release", "reject", "give back")}


@pytest.mark.rule("PM-37", "PM-42", "PM-44", "PM-95", "PM-96")
def test_the_table_of_the_page_is_the_ledger(seen: Seen) -> None:
    found = lines(seen.page)
    assert found.keys() == {*KNOWN, "peek", "orphan"}
    for group in KNOWN:
        line, did = found[group], sums(seen, group)
        assert (line.lag, line.lag_least, line.gone) == (now_exactly(seen, group), False, False), group
        assert line.finished == did["accept"] + did["reject"], group
        assert (line.accepted or 0, line.rejected or 0) == (did["accept"], did["reject"]), group
    assert (found["work"].released, found["work"].given_back) == (RELEASED, sums(seen, "work")["give back"])
    assert found["peek"].lag_unknown
    assert found["orphan"].gone
    assert (found["orphan"].lag, found["orphan"].finished) == (None, 10)
    assert totals(seen.page)["lag_unknown"] == 1
    assert totals(seen.page)["lag"] == sum(now_exactly(seen, group) for group in KNOWN)


@pytest.mark.rule("PM-42", "PM-95", "PM-37")
@pytest.mark.parametrize("group", KNOWN)
def test_each_point_of_a_chart_is_the_lag_of_its_window_also_of_the_outage(seen: Seen, group: str) -> None:
    line = lines(seen.page)[group]
    first = min(one.until for one in seen.play.ledger.events if one.group == group)
    judged = [point for point in line.points if first <= point.time_s < seen.until.timestamp()]
    assert len(judged) > 10
    for point in judged:
        low, high = seen.lag(group, point.time_s + 1)
        assert point.lag is not None, point
        assert low <= point.lag <= high, point
        assert not point.least, point
    assert [point.lag for point in judged][-1] == line.lag
    assert not [point for point in line.points if point.time_s >= seen.until.timestamp() and point.lag is not None]


@pytest.mark.rule("PM-42", "PM-95")
def test_without_the_times_of_batches_what_is_old_is_a_lower_bound_or_unknown(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_process, "visible", lambda *_: [])  # no batches of logs were ingested
    monkeypatch.setattr(by_process, "log_batches", lambda *_: [])
    monkeypatch.setattr(filled_windows, "FRESH_S", FRESH_S)
    found = lines(collect_here(seen.play.data, seen.play.began, seen.end, 1, Known(seen.until)))
    (_, outage_begins), (outage_ends, _), _ = seen.play.ingested
    marked = 0
    for group in KNOWN:
        first = min(one.until for one in seen.play.ledger.events if one.group == group)
        for point in found[group].points:
            if not first <= point.time_s < seen.until.timestamp():
                continue
            at = min(point.time_s + 1, seen.until.timestamp())
            _, high = seen.lag(group, at)
            low, _ = seen.play.ledger.lag(group, KNOWN[group], at, at - FRESH_S)
            if point.lag is None or point.least:
                marked += outage_begins < point.time_s < outage_ends
                assert (point.lag or 0) <= high, point
            else:
                assert low <= point.lag <= high, point
    assert marked > len(KNOWN), "no sample was taken in the outage"
    for group in KNOWN:
        assert (found[group].lag, found[group].lag_least) == (now_exactly(seen, group), False)


@pytest.mark.rule("PM-111", "PM-113")
def test_the_page_made_without_spark_is_the_same(seen: Seen) -> None:
    here = collected_here(seen.play.data, (seen.play.began, seen.end), 1, print)
    assert render(here) == render(seen.page)


@pytest.mark.rule("PM-98", "PM-99")
def test_the_page_has_what_no_group_reads(seen: Seen) -> None:
    found = [(row["topic"], row["records"]) for row in seen.page.unread]
    assert found == [("unread", 15), ("deleted", 7)], "the second topic of this name; the group read the first one"
    for row in seen.page.unread:
        (made,) = [one for one in seen.play.ledger.events if one[:2] == ("produce", row["topic"])][-1:]
        assert int(made.since) <= row["oldest_s"] <= made.until
    assert [(row["topic"], row["records"]) for row in seen.page.letters] == [(LETTERS, REJECTED)]
    assert list(seen.page.configured) == ["only"]


@pytest.mark.rule("PM-37", "PM-90")
def test_the_rendered_page_has_these_numbers(seen: Seen) -> None:
    html = render(seen.page)
    for group in KNOWN:
        assert f"<td>{now_exactly(seen, group):,}</td>" in html
        drawn = charts(lines(seen.page)[group], 1)
        assert f'aria-label="lag: {now_exactly(seen, group):,} at the end' in drawn, "as a screen reader says it"
    assert "lag: nothing known" in charts(lines(seen.page)["peek"], 1)
    assert "unknown" in html


@pytest.mark.rule("PM-38", "PM-42", "PM-44", "PM-96")
def test_gauges_are_the_ledger(seen: Seen) -> None:
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(seen.gauges):
        for one in family.samples:
            name = one.name.removeprefix("sharegroups_ingest_share_group_")
            if "group" in one.labels:
                name += f" {one.labels['ack_type']}" if "ack_type" in one.labels else ""
                found.setdefault(name, {})[one.labels["group"]] = one.value
    assert found["lag"] == {group: now_exactly(seen, group) for group in KNOWN}
    assert found["lag_unknown"] == {**dict.fromkeys(KNOWN, 0), "peek": 1}
    assert {group: count for group, count in found["members"].items() if count} == {"hung": 1, "peek": 1}
    for kind in ("accept", "reject"):
        shown = found[f"acknowledged_records_total {kind}"]
        assert {group: shown[group] for group in KNOWN} == {group: sums(seen, group)[kind] for group in KNOWN}
    assert found["acknowledged_records_total release"]["work"] == RELEASED
    assert found["given_back_records_total"]["work"] == sums(seen, "work")["give back"] > 0


@pytest.mark.rule("PM-35", "PM-42", "PM-95", "PM-97")
def test_tables_are_the_ledger(seen: Seen) -> None:
    tables = {name: pq.read_table(seen.play.data / "metrics" / name).to_pylist() for name in ("lag", "progress")}
    for row in tables["lag"]:
        group = row["group_id"]
        if group not in KNOWN:
            continue
        at = row["window"].replace(tzinfo=UTC).timestamp() + {"1m": 60, "1h": 3_600}[row["size"]]
        low, high = seen.lag(group, at)
        assert low <= row["lag"] <= high, row
        assert not row["lag_least"], row

    def total(name: str, group: str, size: str) -> int:
        mine = [row for row in tables["progress"] if (row["group_id"], row["size"]) == (group, size)]
        return sum(row[name] or 0 for row in mine)

    for size in ("1m", "1h"):
        for group in KNOWN:
            did = sums(seen, group)
            assert total("finished_count", group, size) == did["accept"] + did["reject"]
        assert total("ack_release", "work", size) == RELEASED
        assert total("given_back_count", "work", size) == sums(seen, "work")["give back"]


@pytest.mark.rule("PM-89", "PM-95", "PM-96")
def test_views_are_the_ledger(spark: SparkSession, seen: Seen) -> None:
    own = spark.newSession()
    register_history(own, seen.play.data, seen.play.began, window_s=1)

    def rows(query: str) -> dict[str, Any]:
        return {row["group_id"]: row.asDict() for row in own.sql(query).collect()}

    found = rows("SELECT * FROM share_lag")
    assert found.keys() == {*KNOWN, "peek"}
    for group in KNOWN:
        shown = (found[group]["lag"], found[group]["unknown"], found[group]["at_least"])
        assert shown == (now_exactly(seen, group), 0, False), group
    assert (found["peek"]["lag"], found["peek"]["unknown"]) == (None, 1)
    stuck = rows("SELECT * FROM share_stuck")
    assert {group: (row["kind"], row["lag"], row["at_least"]) for group, row in stuck.items()} == {
        group: ("abandoned", now_exactly(seen, group), False) for group in ("stopped", "busy", "never")
    }
    (work,) = rows("SELECT * FROM share_redelivery WHERE group_id = 'work'").values()
    did = sums(seen, "work")
    assert (work["finished"], work["released"], work["given_back"], work["timed_out"]) == (
        60,
        RELEASED,
        did["give back"],
        0,
    )
    failed = [(row["offset"], row["reason"]) for row in own.sql("SELECT * FROM share_failed").collect()]
    assert len(failed) == did["reject"] == REJECTED
    assert {reason for _, reason in failed} == {"rejected"}


@pytest.mark.rule("PM-39")
def test_a_replay_of_any_time_is_the_ledger(seen: Seen) -> None:
    """Shows `replay` from rows at a time, without its command line; of PM-39 not `ingest`, `report` and statuses."""
    random, ledger = Random(43), seen.play.ledger
    for group, topic in KNOWN.items():
        mine = [one for one in ledger.events if one.group == group]
        begun, ended = min(one.until for one in mine), seen.until.timestamp()
        for at in (begun, *(random.uniform(begun, ended) for _ in range(3)), ended):
            answer = replayed(None, group, topic, 0, datetime.fromtimestamp(at, UTC), seen.play.data)
            assert answer.state is not None
            assert answer.state.complete
            assert answer.state.start_offset is not None
            low, high = ledger.finished(group, topic, at)
            done = answer.state.start_offset + max(answer.state.delivery_complete_count or 0, 0)
            assert low <= done <= high, (group, at)
