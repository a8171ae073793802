"""Writes streams into Parquet files; readers that use `stored` see each entry exactly once (PM-2, PM-35, PM-36).

Spark repeats an unconfirmed batch with the same number and the same positions. Every attempt writes its own folder,
which becomes visible once the live driver has committed it under that number. So files from tasks that outlive a killed
job never become visible. A committed batch is never written again, because the store may have trimmed its entries
since.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kip932.store_settings import StoreAccess
from share_metrics.archive.commits import commit, visible
from share_metrics.archive.folders import checkpoints, noted, written
from share_metrics.archive.row_files import RowFiles, rows_in
from share_metrics.causes import PASSING, UNREACHABLE, cause, ended_by
from share_metrics.ingest.store_of_up import NoStoreError, url_of_up
from share_metrics.reader import Kind, Store
from share_metrics.reader.streams import check_cluster_id
from share_metrics.spark import own_source, with_short_errors

#: The kinds that metrics need; `log_meta` may be ingested too, for lag in seconds.
KINDS: Final = (Kind.SHARE_STATE, Kind.GROUP)
TRIGGER_S: Final = 60
#: The minimum number of rows per task in a full trigger: seconds of work, while a trigger itself costs tenths of a
#: second.
_ROWS_A_TASK: Final = 75_000
#: The rows in a full trigger on few cores.
ROWS_A_TRIGGER: Final = 300_000
#: The rows in the first trigger of a query: it ends within seconds, so that a job that is restarted often progresses.
FIRST_ROWS: Final = 20_000
#: How long, in seconds, a continuous job waits for a store that does not answer.
AWAY_MAX_S: Final = 300.0
#: Errors from Spark, from the bridge to its Java process, and from the files and connections that these use.
SPARK_ERRORS: Final = (PySparkException, Py4JError, OSError)
#: How many times in a row a query's Python worker may start too late.
_LATE_MAX: Final = 5
_PAUSE_FIRST_S: Final = 1.0
_PAUSE_MAX_S: Final = 30.0


class Step(StrEnum):
    """The steps of writing a batch. A job may be killed after any of them."""

    BEGUN = "begun"
    WRITTEN = "written"
    SHOWN = "shown"


class Source(NamedTuple):
    """The source and target of an ingest, how to split its triggers, and how to treat lost entries."""

    url: str
    password_env: str = ""
    fail_on_data_loss: bool = False
    max_rows_per_trigger: int = ROWS_A_TRIGGER
    read_from: str = "primary"
    #: The name under which the queries publish their positions to owners of streams (PM-12). Empty: they publish
    #: nothing. None: a job uses the name of its directory.
    reader_name: str | None = None
    #: The URI below which row files are written, in any file system that Spark's Hadoop supports; empty: the directory.
    rows: str = ""
    #: How many tasks a trigger is split into; 0: two for each processor of this machine.
    tasks: int = 0
    access: StoreAccess = StoreAccess()
    #: The data directory of the `sharegroups up` whose store is read; None if `url` is the store for good.
    up: Path | None = None
    #: The cluster whose store it must be; empty: any.
    cluster: str = ""

    @property
    def first_rows(self) -> int:
        """The most rows in the first trigger of a query."""
        return min(FIRST_ROWS, self.max_rows_per_trigger)

    def address(self) -> str:
        """The URL of the store. That of an `up` has another one after each restart; while none runs, it is the first
        one."""
        if self.up is not None:
            with suppress(NoStoreError):
                return url_of_up(self.up)
        return self.url

    def store(self) -> Store:
        """Return a new store to read from, by its primaries; the caller must close it.

        Raises what `check_cluster_id` raises.
        """
        store = Store(self.address(), self.password_env, access=self.access)
        if self.cluster:
            try:
                check_cluster_id(store, self.cluster)
            except BaseException:
                store.close()
                raise
        return store

    def split_into(self, tasks: int) -> Source:
        """Return this source split into `tasks` tasks, with enough rows in a full trigger to give each of them work.

        A row limit other than the default stays.
        """
        rows = self.max_rows_per_trigger
        if rows == ROWS_A_TRIGGER:
            rows = max(rows, _ROWS_A_TASK * tasks)
        return self._replace(tasks=tasks, max_rows_per_trigger=rows)

    def options(self, kind: Kind) -> dict[str, str]:
        """Options of the data source."""
        shares = {}
        if self.tasks:  # this splits a long stream too
            split = max(1, self.max_rows_per_trigger // self.tasks)
            shares = {"numPartitions": str(self.tasks), "splitEntries": str(split)}
        return {
            "url": self.address(),
            "kind": kind,
            "passwordEnv": self.password_env,
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            "maxRowsPerTrigger": str(self.max_rows_per_trigger),
            "maxRowsFirstTrigger": str(self.first_rows),
            "clusterId": self.cluster,
            "readFrom": self.read_from,
            "readerName": self.reader_name or "",
            **self.access.texts(),
            **shares,
        }


class Watch(NamedTuple):
    """Callbacks about the progress of a job.

    `step` is called after every step of a batch, `rows` with the rows of a written batch and its number, even when the
    batch is repeated, and `again` when a query will be restarted: with the pause in seconds and the reason.
    """

    step: Callable[[Kind, int, Step], None] = lambda kind, number, step: None
    rows: Callable[[Kind, DataFrame, int], None] = lambda kind, rows, number: None
    again: Callable[[Kind, float, str], None] = lambda kind, pause_s, why: None


def start(
    spark: SparkSession,
    source: Source,
    data: Path,
    kinds: Sequence[Kind] = KINDS,
    *,
    once: bool = True,
    trigger_s: float = TRIGGER_S,
    watch: Watch | None = None,
) -> Running:
    """Start a query for each kind, which writes into `data`. With `once` they end at the current end of the streams.

    If the store does not answer, continuous queries wait for it, up to AWAY_MAX_S; with `once` they fail. Positions are
    in `data`/checkpoints, so two processes must not ingest into one `data`: call it inside `folders.owned`.
    """

    watcher = watch or Watch()

    def begin(kind: Kind) -> StreamingQuery:
        RowFiles(spark, data, source.rows).sweep(kind)
        return _query(spark, source, data, kind, None if once else trigger_s, watcher)

    return Running(kinds, begin, watcher.again, 0.0 if once else AWAY_MAX_S)


class RestartPolicy:
    """Decides how many times and how soon one query is restarted from its checkpoint, and when the job gives up
    (PM-36).

    Nothing is lost either way: a restarted query continues from its checkpoint. Pure.

    A query whose Python worker did not start in time is restarted at once, a few times in a row: Spark allows the
    worker 10 s, which cannot be changed and is too little on a very busy machine. The same applies to the worker that a
    query needs to start, and to the processes that outlive a killed job for a moment.

    A query that could not reach the store is restarted after pauses that double, until the store has not answered for
    `away_max_s`; a store's fail-over takes seconds.
    """

    def __init__(self, away_max_s: float = 0.0) -> None:
        self._away_max_s = away_max_s
        self.moved()

    def moved(self) -> None:
        """Reset the counts because the query made progress; a job may run for months."""
        self._late = 0
        self._away_since_s: float | None = None
        self._pause_s = _PAUSE_FIRST_S

    def pause_s(self, words: str, now_s: float) -> float | None:
        """How many seconds to wait before restarting the query; None to give up. `words`: the text of its error."""
        if (ended := ended_by(words)) is not None:
            return self._pause_for_store_s(now_s) if ended.name == UNREACHABLE else None
        if not any(passing in words for passing in PASSING):
            return None
        self._late += 1
        return 0.0 if self._late < _LATE_MAX else None

    def _pause_for_store_s(self, now_s: float) -> float | None:
        since_s = now_s if self._away_since_s is None else self._away_since_s
        if now_s - since_s >= self._away_max_s:
            return None
        self._away_since_s = since_s
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _PAUSE_MAX_S)
        return min(pause_s, since_s + self._away_max_s - now_s)


class Running:
    """The running queries of a job. `begin` starts one.

    When a query ends because of a temporary failure, it is restarted as long as its `RestartPolicy` of `away_max_s`
    allows, and `again` is called.
    """

    def __init__(  # noqa: PLR0917 - what to begin, and the time limits
        self,
        kinds: Sequence[Kind],
        begin: Callable[[Kind], StreamingQuery],
        again: Callable[[Kind, float, str], None],
        away_max_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._begin = begin
        self._again = again
        self._clock = clock
        self._pause = pause
        self._patience = {kind: RestartPolicy(away_max_s) for kind in kinds}
        #: For each query that is not running: when to start it.
        self._due = dict.fromkeys(kinds, clock())
        self.queries: dict[Kind, StreamingQuery] = {}
        try:
            for kind in kinds:
                self._resume(kind)
        except PySparkException:
            self.stop()  # the queries that have already started
            raise

    def wait(self, seconds: int) -> bool:
        """Wait up to `seconds` for each query. Returns whether all ended without an error; raises a query's error."""
        return all([self._wait(kind, seconds) for kind in self._patience])  # noqa: C419 - `all` must ask every query

    def stop(self) -> list[str]:
        """Stop all queries. Returns the reasons why some could not be stopped. Raises nothing: it may run after another
        error."""
        failed = []
        for kind, query in self.queries.items():
            try:
                query.stop()
            except SPARK_ERRORS as error:
                failed.append(f"{kind} could not be stopped: {cause(str(error))}")
        return failed

    def _wait(self, kind: Kind, seconds: int) -> bool:
        if kind in self._due:
            self._pause(max(0.0, min(seconds, self._due[kind] - self._clock())))
            self._resume(kind)
            return False
        try:
            return bool(self.queries[kind].awaitTermination(seconds))
        except StreamingQueryException as error:
            if self.queries[kind].lastProgress is not None:
                self._patience[kind].moved()
            self._schedule_restart(kind, error)
            self._resume(kind)
            return False

    def _resume(self, kind: Kind) -> None:
        """Start a query if its pause is over."""
        while kind in self._due and self._due[kind] <= self._clock():
            try:
                self.queries[kind] = self._begin(kind)
                del self._due[kind]
            except PySparkException as error:
                self._schedule_restart(kind, error)

    def _schedule_restart(self, kind: Kind, error: PySparkException) -> None:
        """Schedule the restart of the query. Raises the error if a restart cannot help."""
        now_s, words = self._clock(), str(error)
        pause_s = self._patience[kind].pause_s(words, now_s)
        if pause_s is None:
            raise error
        self._due[kind] = now_s + pause_s
        ended = ended_by(words)
        self._again(kind, pause_s, ended.said if ended else cause(words))


def stored(spark: SparkSession, data: Path, kind: Kind, last: int | None = None) -> DataFrame:
    """All rows of a kind that were ingested into `data`, up to the batch number `last` if it is given."""
    there = visible(data, kind)
    return rows_in(spark, kind, there if last is None else [span for span in there if span.last <= last])


def write_batch(  # noqa: PLR0917 - the parts of a batch
    spark: SparkSession, data: Path, kind: Kind, batch: DataFrame, number: int, watch: Watch, rows: str = ""
) -> None:
    """Write one micro-batch and commit it under its number, unless an earlier run of the batch already has.

    `rows`: see `RowFiles`. Raises FolderError when the batch was written for other positions.
    """
    watch.step(kind, number, Step.BEGUN)
    span = written(data, kind, number)
    if span is None:
        files = RowFiles(spark, data, rows)
        found = files.write(kind, f"{number:08d}", batch)
        watch.step(kind, number, Step.WRITTEN)
        span = commit(data, kind, (number, number), found, noted(data, kind, number))
    watch.step(kind, number, Step.SHOWN)
    # Read what was written: evaluating `batch` again would read from the store again (PM-77).
    watch.rows(kind, rows_in(spark, kind, [span]), number)


def _query(  # noqa: PLR0917 - the parts of one query
    spark: SparkSession, source: Source, data: Path, kind: Kind, trigger_s: float | None, watch: Watch
) -> StreamingQuery:
    def write(batch: DataFrame, number: int) -> None:
        write_batch(spark, data, kind, batch, number, watch, source.rows)

    own_source(spark)
    rows = spark.readStream.format("redis_streams").options(**source.options(kind)).load()
    query = rows.writeStream.foreachBatch(with_short_errors(write)).queryName(kind)
    query = query.option("checkpointLocation", str(checkpoints(data, kind)))
    query = query.trigger(availableNow=True) if trigger_s is None else query.trigger(processingTime=_words(trigger_s))
    return query.start()


def _words(trigger_s: float) -> str:
    return f"{trigger_s * 1000:.0f} milliseconds"
