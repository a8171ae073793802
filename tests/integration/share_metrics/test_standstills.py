"""Share-partitions at a standstill on a page, including windows without any write."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from group_coordinator.core import records as r
from kip932.ids import SharePartitionKey, topic_id_text
from kip932.state_batches import StateBatch, WriteStats
from share_coordinator.core.records import ShareRecord, ShareTombstone
from share_metrics.ingest.log_samples import COLUMNS
from share_metrics.metrics import fill_windows, known_ends, progress, stalls, with_log_ends
from share_metrics.metrics.stalls import deletions
from share_metrics.reader import EntryId, Gap
from share_metrics.report import Known, Logs, Report, assembled, collect, figures, render, totals
from tests.support.pipeline_entries import KEY, STREAM, TOPIC, snapshot, update

from .frames import BASE_S, groups, rows_of, states

MOVING = SharePartitionKey("M", TOPIC, 1)
DELETED = SharePartitionKey("D", TOPIC, 0)
UP_TO_100 = WriteStats(hwm=100)
BEHIND: list[tuple[int, ShareRecord]] = [(0, snapshot(0, stats=UP_TO_100)), (60, update(10, stats=UP_TO_100))]


def time(second: int) -> datetime:
    """Return a moment of the literal records, given in seconds from BASE_S."""
    return datetime.fromtimestamp(BASE_S + second, UTC)


def moving(*seconds: int) -> list[tuple[int, ShareRecord]]:
    """Return the records of a share-partition that finishes a record at each of these seconds and has no lag."""
    first, *others = seconds
    return [
        (first, snapshot(first, key=MOVING)),
        *((at, update(at, key=MOVING, stats=WriteStats(hwm=at))) for at in others),
    ]


def reported(*histories: Sequence[tuple[int, ShareRecord]]) -> list[tuple[int, ShareRecord] | Gap]:
    """Merge several share-partitions into one stream, by time."""
    return sorted((one for history in histories for one in history), key=lambda one: one[0])


def seen(spark: SparkSession, *samples: tuple[int, int, int | None]) -> DataFrame:
    """Return samples of log ends, each given as (second, partition, end)."""
    rows = [(topic_id_text(TOPIC), index, 0, end, end, time(at)) for at, index, end in samples]
    return spark.createDataFrame(rows, COLUMNS)


def page(  # noqa: PLR0917 - what a report is made of
    spark: SparkSession, rows: DataFrame, begin: int, end: int, window_s: int = 60, ends: DataFrame | None = None
) -> Report:
    """Return the report of that time range, made without any group records."""
    logs = None if ends is None else Logs(ends)
    return collect(rows, groups(spark, []), time(begin), time(end), window_s, logs)


def left(group_id: str) -> list[r.Record]:
    """Return the records of a group whose only member has left."""
    return [r.MemberMetadata(group_id, "m", None, "c", "h", ("t",)), r.Tombstone(r.MEMBER, group_id, "m", "left")]


@pytest.mark.rule("PM-42")
def test_a_sampled_high_watermark_below_what_is_finished_is_an_anomaly(spark: SparkSession) -> None:
    reported_low = update(50, stats=WriteStats(hwm=45))  # reported by a leader, not sampled
    windows = progress(states(spark, [(0, snapshot(10)), (61, update(30)), (121, update(40)), (181, reported_low)]))
    ends = seen(spark, (50, 0, 15), (110, 0, 29), (170, 0, 40))
    found = rows_of(with_log_ends(windows, known_ends(ends)), "window")
    assert [(row["lag"], row["anomalies"]) for row in found] == [(5, 0), (0, 1), (0, 0), (0, 1)]


@pytest.mark.rule("PM-31", "PM-42", "PM-61")
def test_what_comes_behind_a_group_that_was_done_is_its_lag_from_then_on(spark: SparkSession) -> None:
    """After an idle half hour, 40 records arrive and none is consumed: five minutes later the group is at a
    standstill."""
    rows = states(spark, reported([(0, snapshot(0, stats=UP_TO_100)), (60, update(100, stats=UP_TO_100))]))
    ends = seen(spark, *((at, 0, 100 if at < 1_800 else 140) for at in range(30, 2_400, 60)))
    found = page(spark, rows, 0, 2_400, ends=ends)
    (line,) = found.partitions
    assert [point.lag for point in line.points] == [100, *[0] * 29, *[40] * 10]
    assert (line.lag, line.lag_least, found.light) == (40, False, "amber")
    assert sorted(row["still_s"] for row in found.stalls) == [300, 360, 420, 480, 540, 600]
    assert min(str(row["window"]) for row in found.stalls) == "1970-01-01 10:34:00"
    assert page(spark, rows, 0, 2_040, ends=ends).light == "green", "it has had lag for four minutes"


@pytest.mark.rule("PM-42", "PM-37")
def test_a_lag_whose_end_was_not_seen_is_unknown(spark: SparkSession) -> None:
    """Four cases: samples stop; the start offset is not set; the log is empty; the log was never sampled."""
    keys = [SharePartitionKey(f"g{number}", TOPIC, number) for number in range(4)]
    rows = states(spark, [
        (0, snapshot(10, key=keys[0])), (0, snapshot(-1, key=keys[1])), (0, snapshot(-1, key=keys[2])),
        (0, snapshot(10, key=keys[3])),
    ])  # fmt: skip
    ends = seen(spark, (30, 0, 10), (30, 1, 5), (30, 2, 0), (570, 1, 5), (570, 2, 0))
    shown = {
        end: {line.name[:2]: (line.lag, line.lag_unknown) for line in page(spark, rows, 0, end, ends=ends).partitions}
        for end in (60, 600)
    }
    unknown = (None, True)
    assert shown[60] == {"g0": (0, False), "g1": unknown, "g2": (0, False), "g3": unknown}
    assert shown[600] == {"g0": unknown, "g1": unknown, "g2": (0, False), "g3": unknown}


@pytest.mark.rule("PM-37", "PM-42")
def test_a_sample_that_is_newer_than_what_was_read_does_not_count(spark: SparkSession) -> None:
    """Otherwise, records finished since then would count as lag."""
    rows = states(spark, reported([(0, snapshot(0, stats=UP_TO_100)), (60, update(100, stats=UP_TO_100))]))
    logs = Logs(seen(spark, (100, 0, 100), (101, 0, 900)))
    for known_until, lag in ((100, 0), (101, 800)):
        found = collect(rows, groups(spark, []), time(0), time(120), logs=logs, known=Known(time(known_until)))
        assert [line.lag for line in found.partitions] == [lag]


@pytest.mark.rule("PM-31", "PM-61")
def test_a_share_partition_that_is_made_again_begins_its_time_again(spark: SparkSession) -> None:
    """This happens once half an hour after the deletion, and once within the same window."""
    rows = states(
        spark,
        [
            *BEHIND,
            (70, ShareTombstone(KEY)),
            (1_800, snapshot(0, state_epoch=2, stats=UP_TO_100)),
            (2_400, ShareTombstone(KEY)),
            (2_401, snapshot(0, state_epoch=3, stats=UP_TO_100)),
        ],
    ).localCheckpoint()
    filled = fill_windows(progress(rows), end=time(2_880), deleted=deletions(rows))
    still = stalls(filled).withColumn("at", F.col("window").cast("long") - BASE_S)
    found = [(row["at"], row["lag"], row["still_s"]) for row in rows_of(still, "at")]
    assert found == [
        *((2_100 + more, 100, 300 + more) for more in range(0, 300, 60)),
        *((2_700 + more, 100, 300 + more) for more in range(0, 180, 60)),
    ]


@pytest.mark.rule("PM-31", "PM-61")
def test_what_was_lag_in_one_state_epoch_is_not_in_the_next(spark: SparkSession) -> None:
    """An administrator has moved the start offset to the end; the Initialize does not report the high watermark."""
    rows = states(spark, reported([*BEHIND, (600, snapshot(100, state_epoch=2))], moving(0, 1_800)))
    windows = progress(rows)
    windows = windows.withColumn("lag", F.when(F.col("state_epoch") == 1, F.col("lag")))
    found = rows_of(stalls(fill_windows(windows)), "window")
    assert [row["still_s"] for row in found] == [300, 360, 420, 480]


@pytest.mark.rule("PM-31")
def test_idle_windows_are_made_for_the_time_asked_for_alone(spark: SparkSession) -> None:
    """With windows of a second, a share-partition unwritten for days would give 86,400 rows a day."""
    late = 3 * 3_600
    windows = progress(states(spark, reported(BEHIND, moving(1, late + 1))), 1)
    filled = fill_windows(windows, 1, time(late), time(late + 10)).localCheckpoint()
    assert filled.where("group_id = 'G1'").count() == 2 + 10
    assert filled.where("group_id = 'M'").count() == 1 + 10
    hour = fill_windows(progress(states(spark, BEHIND)), 1, time(3_655), time(3_665))
    shown = [row["lag"] for row in rows_of(hour.where(F.col("window") >= F.lit(time(3_655))), "window")]
    assert shown == [90] * 6 + [None] * 4  # a gauge keeps its value for an hour, from second 60 on
    found = rows_of(stalls(filled).where(F.col("window") >= F.lit(time(late))), "window")
    assert [(row["group_id"], row["lag"], row["still_s"]) for row in found] == [
        ("G1", 90, late - 60 + more) for more in range(10)
    ]


@pytest.mark.rule("PM-31", "PM-61")
def test_a_standstill_in_which_nothing_is_written_is_red(spark: SparkSession) -> None:
    found = page(spark, states(spark, reported(BEHIND)), 0, 1_800)
    assert found.light == "red"
    (line,) = found.partitions
    assert [(point.lag, point.finished) for point in line.points[1:]] == [(90, 10), *[(90, 0)] * 28]
    assert [row["still_s"] for row in found.stalls] == list(range(1_680, 299, -60))


@pytest.mark.rule("PM-61", "PM-88", "PM-37")
def test_who_waits_for_the_end_of_delays_does_not_stand_still_until_they_are_over(spark: SparkSession) -> None:
    upto_50 = WriteStats(hwm=50)
    soon, late = (
        StateBatch(first, last, 0, 1, (BASE_S + second) * 1_000)
        for first, last, second in ((10, 29, 600), (30, 49, 900))
    )
    rows = states(spark, [(0, snapshot(0, stats=upto_50)), (60, update(10, batches=[soon, late], stats=upto_50))])
    ends = seen(spark, (779, 0, 50), (1_499, 0, 50))
    waits = page(spark, rows, 0, 780, ends=ends)
    (line,) = waits.partitions
    assert (line.lag, line.delayed) == (40, 20), "the others are due, and have been for less than five minutes"
    assert (waits.light, waits.stalls) == ("green", [])
    html = render(waits)
    assert "<th>lag</th><th>delayed</th>" in html
    assert "<td>40</td><td>20</td>" in html
    over = page(spark, rows, 0, 1_500, ends=ends)
    assert [(line.lag, line.delayed) for line in over.partitions] == [(40, 0)]
    assert over.light == "red"
    times = {datetime.fromisoformat(str(row["window"])).replace(tzinfo=UTC): row["still_s"] for row in over.stalls}
    assert times[time(1_440)] == 960, "since the window of 480, at whose end none was due"
    assert min(times) == time(780)


@pytest.mark.rule("PM-31", "PM-37", "PM-61")
def test_who_has_stood_still_for_longer_than_is_read_back_is_in_the_table_and_red(spark: SparkSession) -> None:
    deleted: list[tuple[int, ShareRecord]] = [
        (0, snapshot(0, key=DELETED, stats=UP_TO_100)),
        (5_500, ShareTombstone(DELETED)),
    ]
    rows = states(spark, reported(BEHIND, deleted, moving(*range(0, 9_000, 600))))
    found = page(spark, rows, 5_400, 9_000, ends=seen(spark, (8_950, 0, 100), (8_950, 1, 8_400)))
    shown = {line.name.partition(" ")[0]: (line.spso, line.lag, line.finished) for line in found.partitions}
    assert list(shown) == ["G1", "M", "D"]  # the largest lag first
    assert shown == {"G1": (10, 90, 0), "M": (8_400, 0, 3_600), "D": (0, None, 0)}
    (idle,) = (line for line in found.partitions if line.name.startswith("G1"))
    assert (idle.accepted, idle.released, idle.redelivered_lb, idle.anomalies) == (0, 0, 0, 0)
    assert {row["group_id"] for row in found.stalls if row["window"] > "1970-01-01 11:31:00"} == {"G1"}
    assert (found.light, found.found.standing, totals(found)["lag"]) == ("red", 2, 90)
    assert max(row["still_s"] for row in found.stalls) == 8_940 - 60


def read_to(second: int, end: int) -> Known:
    """Return the state of an ingest that has read up to `second`, which is before the end."""
    return Known(time(second), end - second)


@pytest.mark.rule("PM-31", "PM-37", "PM-61")
@pytest.mark.parametrize(
    ("known_until", "light", "still"), [(1_790, "red", 1_620), (420, "amber", 300), (419, "amber", 0), (10, "amber", 0)]
)
def test_of_what_was_not_read_it_is_not_said_that_it_stands_still(
    spark: SparkSession, known_until: int, light: str, still: int
) -> None:
    """After an ingest died, the store may have received much or nothing. The group streams were read further."""
    rows, later = states(spark, reported(BEHIND)), groups(spark, [(1_795, r.GroupMetadata("other", 1, 1, 0))])
    found = collect(rows, later, time(0), time(1_800), known=read_to(known_until, known_until + 310))
    assert (found.light, found.behind_s) == (light, 310)
    assert max((row["still_s"] for row in found.stalls), default=0) == still
    (line,) = found.partitions
    assert (line.lag, line.finished) == (90, 10)
    known = list(range(0, max(-(-known_until // 60), 2) * 60, 60))  # the window that was read in part too
    assert [point.time_s - BASE_S for point in line.points if point.lag is not None] == known
    assert [point.time_s - BASE_S for point in line.points if point.finished is not None] == known


@pytest.mark.rule("PM-31", "PM-37", "PM-61")
def test_a_page_behind_all_that_was_read_judges_no_partition_and_shows_what_was_last_known(spark: SparkSession) -> None:
    """A share-partition of which more was read is shown, although not everything was read that far."""
    rows = states(spark, reported(BEHIND, moving(0, 8_000)))
    found = collect(rows, groups(spark, []), time(7_200), time(10_800), known=read_to(7_200, 10_800))
    assert (found.light, found.stalls, found.behind_s) == ("red", [], 3_600)
    shown = {line.name.partition(" ")[0]: (line.lag, line.finished, line.spso) for line in found.partitions}
    assert shown == {"G1": (90, 0, 10), "M": (0, 8_000, 8_000)}
    drawn = {(line.name[0], point.time_s - BASE_S) for line in found.partitions for point in line.points
             if point.finished is not None}  # fmt: skip
    assert drawn == {("M", 7_980)}


@pytest.mark.rule("PM-37", "PM-61")
@pytest.mark.parametrize(
    ("known_until", "light", "still_s"), [(3_620, "green", None), (3_899, "amber", None), (3_900, "amber", 300)]
)
def test_an_hour_that_has_just_begun_is_not_judged(
    spark: SparkSession, known_until: int, light: str, still_s: int | None
) -> None:
    """After 90 s without a sight of the log's end, its lag is a lower bound, which is amber, too."""
    busy = reported(BEHIND, [(3_590, update(20, stats=UP_TO_100))])
    found = collect(states(spark, busy), groups(spark, []), time(0), time(7_200), 3_600, known=Known(time(known_until)))
    assert (found.light, found.behind_s) == (light, 0)
    assert [line.still_s for line in found.partitions] == [still_s]


@pytest.mark.rule("PM-31", "PM-61")
def test_a_deleted_share_partition_does_not_stand_still(spark: SparkSession) -> None:
    ended: list[tuple[int, ShareRecord]] = [*BEHIND, (70, ShareTombstone(KEY))]
    rows = states(spark, reported(ended, moving(0, 1_800)))
    windows = progress(rows).localCheckpoint()
    for filled in (fill_windows(windows), fill_windows(windows, deleted=deletions(rows))):
        assert rows_of(stalls(filled), "window") == []
        of_first = rows_of(filled.where("group_id = 'G1'"), "window")
        assert [(row["finished_count"], row["lag"], row["gone"]) for row in of_first] == [
            (0, 100, False),
            (10, None, True),
        ]
    assert page(spark, rows, 0, 1_800, ends=seen(spark, (1_790, 0, 500), (1_790, 1, 0))).light == "green"


@pytest.mark.rule("PM-37", "PM-61", "PM-64")
def test_what_a_page_has_no_room_for_counts_all_the_same(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    for holding in (figures, assembled):
        assert holding.ROWS_MAX == 200
        monkeypatch.setattr(holding, "ROWS_MAX", 3)
    abandoned = [SharePartitionKey(f"a{number}", TOPIC, 0) for number in range(4)]
    poisoned = [StateBatch(offset, offset, 0, 4) for offset in range(5)]
    rows: list[tuple[int, ShareRecord] | Gap] = [
        *((0, snapshot(0, key=key, stats=UP_TO_100)) for key in (*abandoned, KEY)),
        (1, update(0, batches=poisoned)),
        *(Gap(STREAM, EntryId(1, at), EntryId(1, at), 2, "missing") for at in range(5)),
    ]
    empty = groups(spark, [(0, record) for key in abandoned for record in left(key.group_id)])
    found = collect(states(spark, rows), empty, time(0), time(360))
    assert [row["kind"] for row in found.stalls] == ["stalled", "abandoned", "abandoned"]
    assert (len(found.gaps), found.lost, found.light) == (3, 10, "red")
    sums = totals(found)
    assert (sums["lost"], sums["stalls"], sums["poison"]) == (10, 4 * 6 + 1, 5)
    written = render(found)
    assert "<b>5</b> standing still" in written
    assert "3 of 25 are shown." in written
    assert "3 of 5 are shown." in written


@pytest.mark.rule("PM-37", "PM-41")
@pytest.mark.parametrize(
    ("begin", "end", "window_s", "shown", "finished"),
    [
        (90, 330, 60, ("10:01:00", "10:06:00"), 350 - 50),
        (150, 300, 3_600, ("10:00:00", "11:00:00"), 590),
        (95, 111, 10, ("10:01:30", "10:02:00"), 110 - 80),
    ],
)
def test_a_page_is_of_whole_windows_and_says_which_in_utc(  # noqa: PLR0917 - pytest passes them by name
    spark: SparkSession, begin: int, end: int, window_s: int, shown: tuple[str, str], finished: int
) -> None:
    rows = states(spark, reported(moving(*range(0, 600, 10))))
    elsewhere = timezone(timedelta(hours=2))
    found = collect(rows, groups(spark, []), time(begin).astimezone(elsewhere), time(end), window_s)
    assert [line.finished for line in found.partitions] == [finished]
    assert f"1970-01-01 {shown[0]} to 1970-01-01 {shown[1]}, UTC" in render(found)


@pytest.mark.rule("PM-48")
def test_offsets_that_were_poison_before_the_page_begins_are_not_on_it(spark: SparkSession) -> None:
    rows = states(
        spark,
        [
            (0, snapshot(0)),
            (10, update(0, batches=[StateBatch(0, 0, 0, 4)])),
            (20, update(1, batches=[StateBatch(1, 1, 0, 4)])),
            (3_590, update(2)),
            (3_700, update(2, batches=[StateBatch(2, 2, 0, 4)])),
        ],
    )
    assert [row["offset"] for row in page(spark, rows, 3_600, 3_900).poison] == [2]
