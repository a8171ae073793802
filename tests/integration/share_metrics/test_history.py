"""The contents of an ingest job's directory: compaction, windows, log ends, and the directory's owner."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from kip932.ids import topic_id_text
from kip932.state_batches import CAUSE_ACK, StateBatch, WriteStats
from share_coordinator.core.records import ShareRecord
from share_metrics.archive.commits import visible
from share_metrics.archive.compaction import compact
from share_metrics.archive.folders import FolderError, checkpoints, noted, owned
from share_metrics.commands import metrics
from share_metrics.ingest import job, log_samples
from share_metrics.ingest.job import Cluster, Exposition, Job, run
from share_metrics.ingest.log_samples import sample, samples
from share_metrics.ingest.read_up_to import Note
from share_metrics.ingest.tables import write_tables
from share_metrics.ingest.writing import Source, Watch, start, stored, write_batch
from share_metrics.metrics import known_ends, lag_seconds, progress, replay_windows, with_log_ends
from share_metrics.reader import Gap, Kind, Store
from share_metrics.reader.log_ends import LogEnd, log_ends
from share_metrics.report import Report
from tests.support.pipeline_entries import TOPIC, snapshot, update

from .frames import BASE_S, rows_of, states
from .world import Log, World, finish

S0 = "{sgs:0}:log"
STATE = Kind.SHARE_STATE
TOPIC_TEXT = "AAAAAAAAAAAAAAAAAAAAAQ"
BOUND_S = 120


def ingest(spark: SparkSession, world: World, data: Path) -> None:
    finish(start(spark, Source(world.url, max_rows_per_trigger=4), data, [STATE]))


def ids(spark: SparkSession, data: Path) -> list[str]:
    return sorted(row.entry_id for row in stored(spark, data, STATE).select("entry_id").collect())


@pytest.mark.rule("PM-35", "PM-36")
def test_small_batches_become_one_folder_and_no_row_is_lost_or_doubled(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make_cluster(state_shards=1)
    log = Log(world, S0)
    log.state(*(update(number) for number in range(11)))
    ingest(spark, world, tmp_path)
    before = ids(spark, tmp_path)
    folders = visible(tmp_path, STATE)
    paths = [path for folder in folders for path in (Path(folder.folder), folder.note)]
    assert compact(spark, tmp_path, STATE, at_least=len(folders) + 1) is None
    made = compact(spark, tmp_path, STATE)
    assert made is not None
    assert visible(tmp_path, STATE) == [made]
    assert made.positions == noted(tmp_path, STATE, len(folders) - 1) != ""
    assert all(path.exists() for path in paths)  # a report that is reading the files can continue
    assert ids(spark, tmp_path) == before
    log.state(update(20))
    ingest(spark, world, tmp_path)
    assert len(ids(spark, tmp_path)) == len(before) + 1
    assert compact(spark, tmp_path, STATE) is not None
    assert not any(path.exists() for path in paths)
    assert len(ids(spark, tmp_path)) == len(before) + 1


@pytest.mark.rule("PM-36")
def test_a_batch_that_may_come_again_is_not_put_together(spark: SparkSession, world: World, tmp_path: Path) -> None:
    world.make_cluster(state_shards=1)
    Log(world, S0).state(*(update(number) for number in range(7)))
    ingest(spark, world, tmp_path)
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoints" / "share_state" / "commits" / name).unlink()
    assert compact(spark, tmp_path, STATE) is None
    ingest(spark, world, tmp_path)
    assert ids(spark, tmp_path) == sorted(f"1-{seq}" for seq in range(8))


def window_rows(spark: SparkSession, data: Path, window: str = "1m") -> list[dict[str, Any]]:
    found = spark.read.parquet(str(data / "metrics" / "progress" / f"size={window}"))
    return rows_of(found.select("window", "finished_count", "spso", "lag"), "window")


class Batches:
    """Creates batches as an ingest job leaves them, one per call, without running the query, which costs seconds."""

    def __init__(self, spark: SparkSession, data: Path, rows: str = "") -> None:
        self._spark = spark
        self._data = data
        self._rows = rows
        self._reported: list[tuple[int, ShareRecord] | Gap] = []
        self._number = 0

    def add(self, *reported: tuple[int, ShareRecord]) -> None:
        """Add records, with times in seconds from BASE_S, ten hours after 1970 began."""
        before = len(self._reported)
        self._reported += reported
        rows = states(self._spark, self._reported).where(F.col("seq") > before)
        write_batch(self._spark, self._data, STATE, rows, self._number, Watch(), self._rows)
        self._number += 1


@pytest.mark.rule("PM-36")
def test_a_batch_that_cannot_be_written_leaves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("share_metrics.archive.row_files.RowFiles._listed", fail)
    with pytest.raises(OSError, match="No space left"):
        Batches(spark, tmp_path).add((0, update(0)))
    assert list((tmp_path / "raw" / "share_state").iterdir()) == []
    assert visible(tmp_path, STATE) == []


@pytest.mark.rule("PM-35")
def test_what_was_put_together_stays_for_a_report_that_has_begun(spark: SparkSession, tmp_path: Path) -> None:
    """Cron jobs end every few minutes, and each checks how many batches there are."""
    batches = Batches(spark, tmp_path)
    done = checkpoints(tmp_path, STATE) / "commits"
    done.mkdir(parents=True)
    for number in range(3):
        batches.add((number, update(number)))
        (done / str(number)).touch()
    report = stored(spark, tmp_path, STATE)
    singles = [Path(span.folder) for span in visible(tmp_path, STATE)]
    made = compact(spark, tmp_path, STATE, at_least=3)
    assert compact(spark, tmp_path, STATE, at_least=100) is None
    assert report.count() == 3
    tomorrow = datetime.now(UTC) + timedelta(days=1, minutes=1)
    assert compact(spark, tmp_path, STATE, at_least=100, now=tomorrow) is None
    assert not any(folder.exists() for folder in singles)
    assert visible(tmp_path, STATE) == [made]
    assert stored(spark, tmp_path, STATE).count() == 3


def done(data: Path, *numbers: int) -> None:
    """Note, as Spark does, that these batches will not be repeated."""
    commits = checkpoints(data, STATE) / "commits"
    commits.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        (commits / str(number)).touch()


@pytest.mark.rule("PM-16", "PM-35")
def test_rows_of_an_earlier_build_are_read_beside_newer_ones_and_put_together_with_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    until = datetime(2026, 1, 2, 3, 4, 5, 6_000, UTC)
    batch = StateBatch(1, 3, 0, 1), StateBatch(4, 4, 0, 1, int(until.timestamp() * 1_000))
    older = states(spark, [(0, snapshot(0, batches=batch))])
    plain = F.transform("state_batches", lambda one: one.dropFields("not_before"))
    write_batch(spark, tmp_path, STATE, older.withColumn("state_batches", plain), 0, Watch())
    write_batch(spark, tmp_path, STATE, states(spark, [(0, update(0)), (1, update(0, batches=batch))]), 1, Watch())

    def reported() -> dict[str, Any]:
        rows = stored(spark, tmp_path, STATE).where("size(state_batches) > 0").collect()
        return {
            row["record_type"]: [(one["last_offset"], one["not_before"]) for one in row["state_batches"]]
            for row in rows
        }

    found = reported()
    assert found["snapshot"] == [(3, None), (4, None)]
    assert [last for last, _ in found["update"]] == [3, 4]
    (plain_one, waiting) = (at for _, at in found["update"])
    assert plain_one is None
    assert waiting.astimezone(UTC) == until
    done = checkpoints(tmp_path, STATE) / "commits"
    done.mkdir(parents=True)
    for number in (0, 1):
        (done / str(number)).touch()
    assert compact(spark, tmp_path, STATE) is not None
    assert reported() == found
    assert [row["released_lb"] for row in rows_of(replay_windows(stored(spark, tmp_path, STATE)), "window")] == [0]


@pytest.mark.rule("PM-2", "PM-35")
def test_windows_are_kept_and_what_is_old_is_not_made_again(spark: SparkSession, tmp_path: Path) -> None:
    batches = Batches(spark, tmp_path)
    batches.add((0, snapshot(0)), (1, update(15)), (7_200, update(40)))
    assert write_tables(spark, tmp_path) == ["1970-01-01T10", "1970-01-01T12"]
    assert [row["finished_count"] for row in window_rows(spark, tmp_path)] == [15, 25]
    assert [row["spso"] for row in window_rows(spark, tmp_path, "1h")] == [15, 40]
    assert {table.name for table in (tmp_path / "metrics").iterdir()} == {"progress", "replay", "read.json"}
    assert write_tables(spark, tmp_path) == []


@pytest.mark.rule("PM-2", "PM-35")
def test_hours_with_news_are_made_again_and_no_others(spark: SparkSession, tmp_path: Path) -> None:
    batches = Batches(spark, tmp_path)
    batches.add((0, snapshot(0)), (1, update(15)), (7_200, update(40)))
    assert write_tables(spark, tmp_path) == ["1970-01-01T10", "1970-01-01T12"]
    first = list((tmp_path / "metrics" / "progress" / "size=1m" / "dt=1970-01-01" / "hour=10").glob("*.parquet"))
    assert first
    batches.add((7_201, update(41)))
    assert write_tables(spark, tmp_path) == ["1970-01-01T12"]
    assert all(path.exists() for path in first)
    assert [row["finished_count"] for row in window_rows(spark, tmp_path)] == [15, 26]


@pytest.mark.rule("PM-42", "PM-2", "PM-97")
def test_the_lag_of_windows_in_which_nothing_was_written_is_kept_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group is done after a minute; 40 more records arrive between the samples of 630 and of 1,230 s."""
    ends = iter((100, 140, 999, 1_140))
    monkeypatch.setattr(log_samples, "log_ends", lambda _: [LogEnd(TOPIC_TEXT, 0, 0, next(ends), None)])
    done = WriteStats(hwm=100)
    Batches(spark, tmp_path).add((0, snapshot(0, stats=done)), (60, update(100, stats=done)))
    note, store = Note(tmp_path, 100, print), cast("Store", None)
    for at in (630, 1_230, 1_290):
        sample(store, tmp_path, datetime.fromtimestamp(BASE_S + at, UTC))
    note.move(datetime.fromtimestamp(BASE_S + 1_231, UTC))
    assert write_tables(spark, tmp_path) == ["1970-01-01T10"]

    def lags(size: str) -> dict[int, int | None]:
        rows = rows_of(spark.read.parquet(str(tmp_path / "metrics" / "lag" / f"size={size}")), "window")
        return {int(row["window"].replace(tzinfo=UTC).timestamp()) - BASE_S: row["lag"] for row in rows}

    unknown: int | None = None
    known = {0: 100, **dict.fromkeys(range(60, 720, 60), 0), 1_200: 40}  # the sample of 630 s shows that nothing came
    assert lags("1m") == {at: known.get(at, unknown) for at in range(0, 1_231, 60)}
    assert lags("1h") == {0: 40}
    assert [row["lag"] for row in window_rows(spark, tmp_path)] == [100, 0]
    sample(store, tmp_path, datetime.fromtimestamp(BASE_S + 3_700, UTC))
    note.move(datetime.fromtimestamp(BASE_S + 3_701, UTC))
    folder = tmp_path / "metrics" / "lag"
    (folder / "size=1m").rename(folder / "window=1m")  # as an earlier build called it
    assert write_tables(spark, tmp_path) == [], "no hour has new rows"
    assert lags("1m")[3_660] == 1_040
    assert lags("1h") == {0: 899, 3_600: 1_040}
    whole = spark.read.parquet(str(folder)).where("window = timestamp_seconds(36000)")
    found = {(row["size"], row["lag"]) for row in whole.collect()}
    assert found == {("1m", 100), ("1h", 899)}
    rows = pq.read_table(folder).to_pylist()
    assert {(row["size"], row["lag"]) for row in rows if row["window"].timestamp() == BASE_S} == found


@pytest.mark.rule("PM-18", "PM-42")
def test_lag_comes_from_where_logs_end_and_how_old_their_batches_are(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make_topic("orders", TOPIC, 2, 1)
    stream = f"{{tp:{TOPIC_TEXT}:0}}:log"
    log = Log(world, stream)
    for base in (0, 10, 20):
        log.wall_ms = (BASE_S + base) * 1000
        log.batch(base, 10)
    world.redis.xtrim(stream, minid="1-20", approximate=False)
    at = datetime.fromtimestamp(BASE_S + 50, UTC)
    with world.store() as store:
        assert [sample(store, tmp_path, when)[1] for when in (at - timedelta(hours=1), at)] == [
            [LogEnd(TOPIC_TEXT, 0, 10, 30, 30), LogEnd(TOPIC_TEXT, 1, 0, 0, 0)]
        ] * 2
    ends = rows_of(samples(spark, tmp_path).where("partition = 0"), "sampled_at")[-1]
    assert (ends["log_start_offset"], ends["high_watermark"], ends["log_end_offset"]) == (10, 30, 30)
    silent = WriteStats(CAUSE_ACK, n_accept=1)
    reported: list[tuple[int, ShareRecord] | Gap] = [
        (40, snapshot(12)),
        (41, update(15, stats=silent)),
        (200, update(16)),
        (400, update(30)),
    ]
    windows = progress(states(spark, reported))
    lagging = with_log_ends(windows, known_ends(samples(spark, tmp_path)))
    # After 200 s the log still holds at least 14 records; after 400 s their number is unknown.
    found = [(row["lag"], row["lag_least"]) for row in rows_of(lagging, "window")]
    assert found == [(15, False), (14, True), (None, False)]
    batches = spark.read.format("redis_streams").options(url=world.url, kind="log_meta").load()
    aged = rows_of(lag_seconds(lagging, batches), "window")
    assert [row["lag_seconds"] for row in aged] == [
        50.0,
        230.0,
        None,
    ]  # at 60 and 240 s, for a batch of 10 s


@pytest.mark.rule("PM-18")
def test_a_log_that_was_only_claimed_is_empty_and_one_that_was_claimed_just_now_shows_no_end(world: World) -> None:
    for number in (1, 2):
        world.make_topic(f"t{number}", bytes(15) + bytes([number]), 1, number)
    empty, full = (Log(world, f"{{tp:{topic_id_text(bytes(15) + bytes([number]))}:0}}:log") for number in (1, 2))
    empty.claim()
    full.batch(0, 10)
    with world.store() as store:
        assert [end.high_watermark for end in log_ends(store)] == [0, 10]
        full.claim()
        assert [end.high_watermark for end in log_ends(store)] == [0, None]


@pytest.mark.rule("PM-36", "PM-39")
def test_a_directory_is_of_one_job_and_one_cluster(tmp_path: Path) -> None:
    with owned(tmp_path, "one"), pytest.raises(FolderError, match=r"ingests into .* already"), owned(tmp_path, "one"):
        pass
    with owned(tmp_path, "one"):
        pass
    with (
        pytest.raises(FolderError, match="rows of cluster one, but this store is of cluster two"),
        owned(tmp_path, "two"),
    ):
        pass


@pytest.mark.rule("PM-39")
def test_what_cannot_be_written_to_is_reported_before_the_work(world: World, tmp_path: Path) -> None:
    world.make_cluster(state_shards=1)
    (tmp_path / "file").write_text("")
    data = str(tmp_path / "file" / "data")
    result = CliRunner().invoke(metrics, ["ingest", "--store", world.url, "--data", data])
    assert (result.exit_code, "cannot be written to" in result.output) == (1, True)
    out = str(tmp_path / "none" / "report.html")
    result = CliRunner().invoke(metrics, ["report", "--data", str(tmp_path), "--out", out])
    assert (result.exit_code, "there is no directory" in result.output) == (1, True)


class Ran:
    """An ended job with gauges: its directory, counts, log lines and text file."""

    def __init__(self, world: World, folder: Path) -> None:
        world.clear()
        world.make_cluster(state_shards=1)
        world.make_topic("orders", TOPIC, 1, 1)
        Log(world, S0).state(snapshot(3), update(7, stats=WriteStats(hwm=10)))
        Log(world, f"{{tp:{TOPIC_TEXT}:0}}:log").batch(0, 10)
        self.data = folder / "data"
        self.reported: list[str] = []
        exposition = Exposition(0, "127.0.0.1", folder / "gauges.prom")
        reported = Job(Source(world.url), self.data, log_meta=True)
        self.counts, self.lost = run(reported, exposition, Cluster("local[1]"), self.reported.append)
        self.gauges = (folder / "gauges.prom").read_text()


@pytest.fixture(scope="module")
def ran(spark: SparkSession, server: World, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(server, tmp_path_factory.mktemp("ran"))


@pytest.mark.rule("PM-1", "PM-2", "PM-38", "PM-39", "PM-65")
def test_a_job_shows_its_gauges_at_a_port_and_in_a_file(spark: SparkSession, ran: Ran) -> None:
    assert (ran.counts, ran.lost) == ({"share_state": 3, "group": 0, "log_meta": 2}, 0)
    assert any(words.startswith("Gauges for Prometheus are at http://127.0.0.1:") for words in ran.reported)
    assert (
        f'sharegroups_ingest_share_group_start_offset{{group="G1",partition="0",topic="{TOPIC_TEXT}"}} 7.0'
        in ran.gauges
    )
    assert 'sharegroups_ingest_entries_behind{stream="{sgs:0}:log"} 0.0' in ran.gauges
    assert 'sharegroups_ingest_last_trigger_timestamp_seconds{kind="log_meta"} ' in ran.gauges
    assert samples(spark, ran.data).count() == 2, "before it reads, and at its end"


@pytest.mark.rule("PM-18")
def test_a_job_that_finds_no_new_batch_samples_where_logs_end_all_the_same(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make_cluster(state_shards=1)
    world.make_topic("orders", TOPIC, 1, 1)
    Log(world, f"{{tp:{TOPIC_TEXT}:0}}:log").batch(0, 10)
    for _ in range(2):
        run(Job(Source(world.url), tmp_path), Exposition(), Cluster("local[1]"), lambda words: None)
    assert samples(spark, tmp_path).count() == 2 * 2


@pytest.mark.rule("PM-39")
def test_a_report_without_an_end_is_of_the_hour_before_the_newest_entry(ran: Ran, tmp_path: Path) -> None:
    words = ["report", "--data", str(ran.data), "--out", str(tmp_path / "report.html"), "--output", "json"]
    result = CliRunner().invoke(metrics, words)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["finished"] == 4


@pytest.mark.rule("PM-2", "PM-39")
def test_a_report_keeps_windows_too_if_asked_to(ran: Ran, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other tests show that the windows are correct; this one shows that the command writes them, and then the page."""
    kept: list[Path] = []
    monkeypatch.setattr(job, "write_tables", lambda spark, data: kept.append(data))
    monkeypatch.setattr(job, "collect", lambda *reported: Report("2026-11-22 08:00", "2026-11-22 09:00", 60, ()))
    words = ["report", "--engine", "spark", "--data", str(ran.data), "--out", str(tmp_path / "report.html")]
    for more, expected in ((["--tables"], [ran.data]), ([], [])):
        assert CliRunner().invoke(metrics, [*words, *more]).exit_code == 0
        assert kept == expected
        kept.clear()
