"""What the commands do with Spark: one ingest job from its checks to its end, and what a report is made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses
from pyspark.sql.streaming.query import StreamingQuery

from share_metrics.compaction import compact
from share_metrics.folders import in_step, owned, visible
from share_metrics.gauges import Gauges
from share_metrics.ingest import KINDS, Source, Step, Watch, start, stored
from share_metrics.log_samples import sample, samples
from share_metrics.reader import Kind, Reader, Store
from share_metrics.reader.streams import cluster_id
from share_metrics.reader_name import reader_name
from share_metrics.report import Logs, Report, collect
from share_metrics.spark import build_session
from share_metrics.tables import write_tables

Tell = Callable[[str], None]

#: So many batches are put together once a day, or at the end of a job that ends.
COMPACT_FROM: Final = 100
_POLL_S: Final = 1
_HOUR: Final = timedelta(hours=1)


class QueryError(Exception):
    """A query ended by itself; what was confirmed is kept."""


class Cluster(NamedTuple):
    """Where Spark runs: on this machine, or on workers that reach the store and share `data` with the driver (PM-71).

    `settings` are Spark's own.
    """

    master: str = "local[2]"
    settings: tuple[tuple[str, str], ...] = ()

    def session(self, name: str) -> SparkSession:
        """A session there. Raises NoJavaError."""
        return build_session(name, self.master, dict(self.settings))


class Job(NamedTuple):
    """What to ingest, into what, and until when."""

    source: Source
    data: Path
    once: bool = True
    trigger_s: float = 60.0
    log_meta: bool = False

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of record that are taken."""
        return (*KINDS, Kind.LOG_META) if self.log_meta else KINDS


class Exposition(NamedTuple):
    """Where gauges are shown: at a port, in a file at the end, or nowhere."""

    port: int | None = None
    host: str = "127.0.0.1"
    textfile: Path | None = None

    @property
    def wanted(self) -> bool:
        """Whether anybody looks."""
        return self.port is not None or self.textfile is not None


def run(job: Job, exposition: Exposition, cluster: Cluster, tell: Tell) -> dict[str, int]:
    """Ingest; how many rows of each kind there are now. Raises QueryError, FolderError and what `Store` does."""
    with Store(job.source.url, job.source.password_env) as store:  # told in a second, not by Spark in a minute
        Reader(store, Kind.SHARE_STATE).streams()
        whose = cluster_id(store)
    with owned(job.data, whose):
        for kind in job.kinds:
            in_step(job.data, kind)
        if job.source.reader_name is None:
            job = job._replace(source=job.source._replace(reader_name=reader_name(job.data)))
        tell("Starting Spark …")
        spark = cluster.session("sharegroups metrics ingest")
        gauges = Gauges()
        close = _serve(gauges, exposition, tell)
        try:
            _ingest(spark, job, gauges if exposition.wanted else None, tell)
        finally:
            close()
        return {kind: stored(spark, job.data, kind).count() for kind in job.kinds}


def _ingest(spark: SparkSession, job: Job, gauges: Gauges | None, tell: Tell) -> None:
    def step(kind: Kind, number: int, step: Step) -> None:
        if step is Step.SHOWN:
            tell(f"{kind}: batch {number} is written")

    def take(kind: Kind, rows: DataFrame) -> None:
        if kind is Kind.LOG_META:
            with Store(job.source.url, job.source.password_env) as store:
                sample(store, job.data)
        if gauges is not None:
            gauges.take(kind, rows)

    try:
        running = start(
            spark, job.source, job.data, job.kinds, once=job.once, trigger_s=job.trigger_s, watch=Watch(step, take)
        )
    except PySparkException as error:
        raise QueryError(str(error)) from error
    day = datetime.now(UTC).date()
    try:
        while not running.wait(_POLL_S):
            if gauges is not None:
                _note_positions(gauges, running.queries.values())
            if datetime.now(UTC).date() != day:
                day = datetime.now(UTC).date()
                _compact(spark, job, 2)
        if gauges is not None:
            _note_positions(gauges, running.queries.values())
    except Exception as error:
        raise QueryError(str(error)) from error
    finally:
        running.stop()
    _compact(spark, job, COMPACT_FROM)


def _compact(spark: SparkSession, job: Job, at_least: int) -> None:
    for kind in job.kinds:
        compact(spark, job.data, kind, at_least)


def _note_positions(gauges: Gauges, queries: Iterable[StreamingQuery]) -> None:
    for query in queries:
        progress: Any = query.lastProgress
        for source in progress["sources"] if progress else ():
            at, ends = (_counts(source[name]) for name in ("endOffset", "latestOffset"))
            gauges.positions(at, ends or at)


def _counts(offsets: Any) -> dict[str, int]:
    found = json.loads(offsets) if isinstance(offsets, str) else offsets
    return {stream: at["n"] for stream, at in (found or {}).items()}


def _serve(gauges: Gauges, exposition: Exposition, tell: Tell) -> Callable[[], None]:
    """Show the gauges; what ends that. Raises OSError when the port is taken."""
    if not exposition.wanted:
        return lambda: None
    from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile  # noqa: PLC0415

    registry = CollectorRegistry()
    registry.register(gauges)
    server = None
    if exposition.port is not None:
        server, _ = start_http_server(exposition.port, exposition.host, registry)
        tell(f"Gauges for Prometheus are at http://{exposition.host}:{server.server_port}/metrics")

    def close() -> None:
        if exposition.textfile is not None:
            write_to_textfile(str(exposition.textfile), registry)
        if server is not None:
            server.shutdown()
            server.server_close()

    return close


def collected(  # noqa: PLR0917 - what a report is made of
    data: Path,
    times: tuple[datetime | None, datetime | None],
    window_s: int,
    tables: bool,
    cluster: Cluster,
    tell: Tell,
) -> Report:
    """The report of what was ingested below `data`, without an end up to the newest entry, without a begin for an hour.

    `tables`: windows are kept as Parquet too (PM-35).
    """
    tell("Starting Spark …")
    spark = cluster.session("sharegroups metrics report")
    states, groups = (stored(spark, data, kind) for kind in KINDS)
    end = times[1] or _behind_newest(states.unionByName(groups, allowMissingColumns=True), window_s)
    begin = times[0] or end - _HOUR
    if begin >= end:
        raise ValueError(f"--from {begin.isoformat()} is not before the end, {end.isoformat()}")
    if tables:
        tell("Keeping windows …")
        write_tables(spark, data)
    tell("Collecting …")
    logs = Logs(stored(spark, data, Kind.LOG_META), samples(spark, data)) if visible(data, Kind.LOG_META) else None
    return collect(states, groups, begin, end, window_s, logs)


def _behind_newest(rows: DataFrame, window_s: int) -> datetime:
    newest = rows.agg(F.max("ts").cast("double")).collect()[0][0]
    if newest is None:
        return datetime.now(UTC)
    return datetime.fromtimestamp((newest // window_s + 1) * window_s, UTC)
