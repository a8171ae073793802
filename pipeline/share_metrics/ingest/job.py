"""Runs the commands that need Spark: an ingest job from its checks to its end, and the collection of a report.

An ingest job's queries are in `writing`. This module has the periodic work that runs beside them, and what the job
serves or writes.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.archive.commits import visible
from share_metrics.archive.compaction import compact, trim, trim_samples
from share_metrics.archive.folders import FolderError, confirmed, in_step, owned, writable, writing
from share_metrics.archive.row_files import rows_in
from share_metrics.archive.window_rows import states_of
from share_metrics.causes import cause
from share_metrics.gauges.counters import CountersFile
from share_metrics.gauges.gauges import Gauges, current_for_s
from share_metrics.gauges.process_usage import ProcessUsage
from share_metrics.gauges.scrape_port import scrape_port
from share_metrics.ingest.group_configs import note_group_configs
from share_metrics.ingest.log_samples import Sampler, newest_sample, samples
from share_metrics.ingest.outages import Outages
from share_metrics.ingest.read_up_to import Note, counts, read_up_to
from share_metrics.ingest.stopping import Stop
from share_metrics.ingest.store_clock import StoreClock
from share_metrics.ingest.store_memory import note_store_memory
from share_metrics.ingest.store_of_up import UpWatch
from share_metrics.ingest.tables import write_tables
from share_metrics.ingest.topic_names import note_topics
from share_metrics.ingest.writing import AWAY_MAX_S, KINDS, SPARK_ERRORS, Running, Source, Step, Watch, start, stored
from share_metrics.metrics import gaps
from share_metrics.metrics.common import KEY, ORDER
from share_metrics.pages import asked_for, check_ingested
from share_metrics.reader import Kind, NoClusterError, Reader, StoreReplyError, StoreUnreachableError
from share_metrics.reader.log_ends import LogEnd
from share_metrics.reader.streams import cluster_id
from share_metrics.report import Logs, Report, collect
from share_metrics.report.periods import READ_BACK
from share_metrics.spark import build_session, java_pid, tasks_wanted
from share_metrics.surroundings import with_surroundings

_POLL_S: Final = 1
#: How long, in seconds, the gauges wait for the first batches before they read the rows of earlier runs.
_FIRST_BATCHES_S: Final = 30
_TEXTFILE: Final = "--textfile"
_HOUR: Final = timedelta(hours=1)
#: A job compacts at its end if there are at least this many batches; at midnight UTC two are enough.
COMPACT_FROM: Final = 100
_COMPACT_DAILY: Final = 2
_LAST_TRIGGER: Final = "sharegroups_ingest_last_trigger_timestamp_seconds"
_LAST_TRIGGER_HELP: Final = "When a trigger of the kind ended last, or else the job began; seconds since 1970."
_READER_NAME_FILE: Final = "reader-name"

Notify = Callable[[str], None]


class QueryError(Exception):
    """A query ended with an error; confirmed batches are kept."""


class ExpositionError(Exception):
    """Gauges cannot be served at that address."""


class Cluster(NamedTuple):
    """Where Spark runs: on this machine, or on workers that can reach the store and share `data` with the driver
    (PM-71).

    Without a `master`, Spark runs where spark-submit says if it started this program, else on this machine. `settings`
    are Spark's own.
    """

    master: str | None = None
    settings: tuple[tuple[str, str], ...] = ()

    def session(self, name: str) -> SparkSession:
        """Start a session there. Raises SparkStartError."""
        # The bridge to Java logs errors that it also raises, and harmless ones from stopped queries.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        return build_session(name, self.master, dict(self.settings))


class Job(NamedTuple):
    """An ingest job: its source, its directory, whether it runs once or continuously, and how long rows are kept."""

    source: Source
    data: Path
    once: bool = True
    trigger_s: float = 60.0
    log_meta: bool = False
    #: How long rows are kept; None: forever.
    keep: timedelta | None = None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of record to ingest."""
        return (*KINDS, Kind.LOG_META) if self.log_meta else KINDS


class Ingested(NamedTuple):
    """The content of a directory: rows by kind, and how many entries were lost before they could be read (PM-11)."""

    rows: dict[str, int]
    lost: int


class Exposition(NamedTuple):
    """Where gauges are exposed: at a port, in a file at the end, or nowhere."""

    port: int | None = None
    host: str = "127.0.0.1"
    textfile: Path | None = None

    @property
    def wanted(self) -> bool:
        """True if gauges are exposed at all."""
        return self.port is not None or self.textfile is not None


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Upkeep:
    """Runs the tasks `at_triggers` at every trigger, and compacts batches once a day (PM-18, PM-35, PM-39).

    No row depends on this work, so a failure is reported and the work is retried later.

    `compact` is called with a kind and the minimum number of batches to compact. `at_triggers`: tasks, keyed by the
    message reported when one fails. `trigger_s`: None for a job that runs once; then `begin` and `end` are its only
    triggers.
    """

    def __init__(  # noqa: PLR0917 - the tasks, and when they are due
        self,
        kinds: Sequence[Kind],
        compact: Callable[[Kind, int], object],
        at_triggers: Mapping[str, Callable[[], object]],
        trigger_s: float | None,
        notify: Notify,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._kinds = kinds
        self._compact = compact
        self._at_triggers = at_triggers
        self._trigger_s = trigger_s
        self._notify = notify
        self._now = now
        self._failed: dict[str, str] = {}
        self._trigger_at = now()
        self._day = self._trigger_at.date()

    def begin(self) -> None:
        """Run the tasks of a trigger. Call it before the queries plan, so that they read at least up to this time."""
        if self._trigger_s is not None:
            self._trigger_at = self._now() + timedelta(seconds=self._trigger_s)
        self._trigger()

    def run_due(self) -> None:
        """Run the tasks that are due. Call it about every second while the queries run.

        Those of a trigger are due, too, if the clock was set back.
        """
        now = self._now()
        left = self._trigger_at - now
        if self._trigger_s is not None and not timedelta(0) < left <= timedelta(seconds=self._trigger_s):
            self._trigger_at = now + timedelta(seconds=self._trigger_s)
            self._trigger()
        if now.date() != self._day:
            self._day = now.date()
            self._compact_all(_COMPACT_DAILY)

    def end(self) -> None:
        """Run the tasks of a trigger, and compact. Call it after the last batch."""
        self._trigger()
        self._compact_all(COMPACT_FROM)

    def _trigger(self) -> None:
        """Run the tasks. After one that found no store the others wait for the next trigger, as it would take each of
        them as long to find none."""
        for failed, do in self._at_triggers.items():
            if not self._try(failed, do):
                return

    def _compact_all(self, at_least: int) -> None:
        for kind in self._kinds:
            self._try(f"{kind}: batches were not merged", partial(self._compact, kind, at_least))

    def _try(self, failed: str, do: Callable[[], object]) -> bool:
        """Run a task. Returns False if the store did not answer. Of equal failures in a row, the first is reported."""
        try:
            do()
        except (*SPARK_ERRORS, StoreUnreachableError, StoreReplyError, NoClusterError) as error:
            if self._failed.get(failed) != str(error):
                self._notify(f"{failed}, which is retried later: {cause(str(error))}")
            self._failed[failed] = str(error)
            return not isinstance(error, StoreUnreachableError)
        self._failed.pop(failed, None)
        return True


class Freshness(Collector):
    """The time at which each query last finished a trigger, for a Prometheus registry (PM-65).

    Triggers that find nothing count too: the age of the newest entry does not distinguish an idle cluster from a query
    that hangs or waits for its store, and this gauge does. It is a time, not an age, so that it is still right in a
    text file that is read later. The ingest job calls `begin`, then `update` about every second.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._ended_s: dict[Kind, float] = {}
        self._seen: dict[Kind, object] = {}

    def begin(self, kinds: Sequence[Kind]) -> None:
        """Start a series for each kind when the job starts, even if its first trigger never ends."""
        with self._lock:
            self._ended_s = dict.fromkeys(kinds, self._now())

    def update(self, progress: Mapping[Kind, Mapping[str, Any] | None]) -> None:
        """Take the newest progress of each query, None while it has none. A changed progress means a finished trigger.

        A restarted query has no progress until it finishes a trigger, so its kind keeps its last time.
        """
        with self._lock:
            for kind, one in progress.items():
                if one is not None and (trigger := one["timestamp"]) != self._seen.get(kind):
                    self._seen[kind] = trigger
                    self._ended_s[kind] = self._now()

    def collect(self) -> Iterable[Metric]:
        """The family, for a scrape."""
        family = GaugeMetricFamily(_LAST_TRIGGER, _LAST_TRIGGER_HELP, labels=["kind"])
        with self._lock:
            for kind, ended_s in sorted(self._ended_s.items()):
                family.add_metric([kind], ended_s)
        return [family]


def run(job: Job, exposition: Exposition, cluster: Cluster, notify: Notify, stop: Stop | None = None) -> Ingested:
    """Ingest until the job is done or `stop` is requested. Returns what the directory then holds.

    Raises QueryError, ExpositionError, FolderError, SparkStartError, and the errors of `Store`.
    """
    stop, clock = stop or Stop(), StoreClock(notify)
    if exposition.textfile is not None:
        writable(exposition.textfile, _TEXTFILE)
    with job.source.store() as store:  # fails in a second; Spark would take a minute
        Reader(store, Kind.SHARE_STATE).streams()
        whose = cluster_id(store)
        clock.ask(store)
    job = job._replace(source=job.source._replace(cluster=whose))
    with owned(job.data, whose):
        for kind in job.kinds:
            in_step(job.data, kind)
        if job.source.reader_name is None:
            job = job._replace(source=job.source._replace(reader_name=reader_name(job.data)))
        current_s = current_for_s(None if job.once else job.trigger_s)
        gauges = Gauges(now=clock.now_s, fresh_s=current_s, keep=CountersFile(job.data).save)
        fresh, usage = Freshness(clock.now_s), ProcessUsage()
        with _served((gauges, fresh), exposition, notify, usage):
            notify("Starting Spark …")
            spark = cluster.session("sharegroups metrics ingest")
            usage.watch_java(java_pid(spark))
            job = job._replace(source=job.source.split_into(tasks_wanted(spark)))
            with stop.on_signals():
                _ingest(spark, job, (gauges, fresh) if exposition.wanted else None, clock, notify, stop)
        return _ingested(spark, job)


def reader_name(data: Path) -> str:
    """The name under which the job of the directory `data` publishes its positions (PM-12). The caller must own it.

    Generated on the first call and stored in the directory. Two directories never have the same name: otherwise owners
    of streams would not wait for the slower job.
    """
    note = data / _READER_NAME_FILE
    known = note.read_text(encoding="utf-8").strip() if note.exists() else ""
    if not known:
        known = f"ingest-{secrets.token_hex(4)}"
        new = note.with_suffix(".new")
        new.write_text(known, encoding="utf-8")
        new.replace(note)
    return known


def _ingested(spark: SparkSession, job: Job) -> Ingested:
    rows = {kind: stored(spark, job.data, kind) for kind in job.kinds}
    lost = sum(gaps(found).agg(F.coalesce(F.sum("lost"), F.lit(0))).collect()[0][0] for found in rows.values())
    return Ingested({kind: found.count() for kind, found in rows.items()}, lost)


def _ingest(  # noqa: PLR0917 - the parts of a job
    spark: SparkSession,
    job: Job,
    shown: tuple[Gauges, Freshness] | None,
    clock: StoreClock,
    notify: Notify,
    stop: Stop,
) -> None:
    gauges = shown[0] if shown else None
    away = partial(_not_known, gauges, clock)
    away()
    upkeep = _upkeep(spark, job, gauges, clock, notify)
    upkeep.begin()
    begun = clock.utc()
    note = Note(job.data, job.source.max_rows_per_trigger, notify, job.source.first_rows, clock.corrected)
    outages = Outages(job.data, None if job.once else job.trigger_s, notify, clock.corrected)
    if any(confirmed(job.data, kind) < 0 for kind in KINDS):
        note.move(None)  # its rows were removed, to ingest from scratch
    if shown is not None:
        shown[1].begin(job.kinds)
    up = None if job.once or job.source.up is None else UpWatch(job.source.up, AWAY_MAX_S, notify, away)
    running: Running | None = None
    try:
        running = _started(spark, job, gauges, away, notify)
        while not (ended := running.wait(_POLL_S)) and not stop.asked:
            if up is not None:
                up.check()
            _note_progress(running, job, shown, note, outages, notify)
            upkeep.run_due()
        _note_progress(running, job, shown, note, outages, notify)
        if ended and job.once:
            note.move(begun)  # before the queries fixed the positions at which they end
            outages.read(begun)
        _count(gauges, note, last=job.once)
    except Exception as error:
        raise QueryError(str(error)) from error
    finally:
        _end(running, notify)
    upkeep.end()


def _not_known(gauges: Gauges | None, clock: StoreClock) -> None:
    """Make the gauges unknown that are of the present: the store does not answer, or the job begins (PM-106)."""
    if gauges is not None:
        gauges.unknown_before(clock.now_s())


def _started(spark: SparkSession, job: Job, gauges: Gauges | None, away: Callable[[], None], notify: Notify) -> Running:
    """Start the queries, then take the rows of earlier runs into the gauges, which may take longer.

    Positions are confirmed meanwhile, so that a job that is killed soon and often makes progress. `away` is called when
    the store does not answer.
    """
    written: set[Kind] = set()

    def step(kind: Kind, number: int, step: Step) -> None:
        if step is Step.SHOWN:
            written.add(kind)
            notify(f"{kind}: batch {number} is written")

    def take(kind: Kind, rows: DataFrame, number: int) -> None:
        if gauges is not None:
            gauges.take(kind, rows, number)

    def again(kind: Kind, pause_s: float, why: str) -> None:
        if pause_s:
            away()
        when = f"restarts in {pause_s:g} s" if pause_s else "restarted"
        limit = f"; it waits for up to {AWAY_MAX_S:g} s" if pause_s else ""
        notify(f"{kind}: {when} from its checkpoint, because it ended: {why}{limit}")

    def begin() -> Running:
        watch = Watch(step, take, again)
        return start(spark, job.source, job.data, job.kinds, once=job.once, trigger_s=job.trigger_s, watch=watch)

    if gauges is None:
        return begin()
    counters = CountersFile(job.data).load(notify)
    # Batches after these are counted by the queries: also one that is written, but that Spark will repeat.
    there = [kind for kind in KINDS if visible(job.data, kind)]
    earlier = {kind: max(confirmed(job.data, kind), counters.batches.get(kind, -1)) for kind in there}
    running = None
    try:
        with gauges.resuming(counters):
            running = begin()
            failed = _first_batches(running, written)
            for kind, last in earlier.items():
                gauges.take(kind, stored(spark, job.data, kind, last), kept=True)
        if failed is not None:  # a text file has the values of earlier runs nevertheless
            raise failed
    except BaseException:
        _end(running, notify)
        raise
    return running


def _end(running: Running | None, notify: Notify) -> None:
    for failed in running.stop() if running is not None else ():
        notify(failed)


def _first_batches(running: Running, written: Collection[Kind]) -> Exception | None:
    """Wait until each query has written a batch or found nothing, for a bounded time. Returns the error of a query."""
    for _ in range(_FIRST_BATCHES_S):
        idle = {kind for kind, query in running.queries.items() if query.lastProgress is not None}
        try:
            if running.wait(_POLL_S) or idle.union(written) >= set(running.queries):
                break
        except PySparkException as error:
            return error
    return None


def _count(gauges: Gauges | None, note: Note | None, *, last: bool = False) -> None:
    """Apply to the gauges the samples that are not later than the time up to which everything was read."""
    if gauges is not None and note is not None and note.at is not None:
        gauges.read_up_to(note.at.timestamp(), last=last)


def _upkeep(spark: SparkSession, job: Job, gauges: Gauges | None, clock: StoreClock, notify: Notify) -> Upkeep:
    def put_together(kind: Kind, at_least: int) -> None:
        compact(spark, job.data, kind, at_least, None, job.source.rows)
        if job.keep is not None:
            trim(spark, job.data, kind, job.keep, rows=job.source.rows)
            trim_samples(job.data, job.keep)

    def took(at: datetime, ends: Sequence[LogEnd]) -> None:
        if gauges is not None:
            gauges.sampled(at.timestamp(), ends)

    def note_names() -> None:
        with job.source.store() as store:
            note_topics(store, job.data)
            note_group_configs(store, job.data)

    def note_memory() -> None:
        with job.source.store() as store:
            note_store_memory(store, job.data, int(clock.now_s()))

    due: dict[str, Callable[[], object]] = {
        "where logs end was not sampled": Sampler(
            job.source.store, job.data, clock, took, partial(_not_known, gauges, clock)
        ),
        "the names of topics and the groups with configs were not noted": note_names,
        "the store's memory was not noted": note_memory,
    }
    return Upkeep(job.kinds, put_together, due, None if job.once else job.trigger_s, notify)


def _note_progress(  # noqa: PLR0917 - what progress is noted in
    running: Running,
    job: Job,
    shown: tuple[Gauges, Freshness] | None,
    note: Note,
    outages: Outages,
    notify: Notify,
) -> None:
    """Record how far the queries have read, in the directory and in the gauges.

    A job that runs once has read everything only when it has ended.
    """
    progress: dict[Kind, Any] = {kind: query.lastProgress for kind, query in running.queries.items()}
    if not job.once:
        needed = [progress.get(kind) for kind in KINDS]
        note.advance(needed)
        if (ended := outages.read_by(needed, full=note.full)) is not None:
            since, until = (datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds") for ms in ended)
            notify(f"nothing was read from {since} to {until}; pages show this as an outage of the ingest")
    if shown is None:
        return
    gauges, fresh = shown
    fresh.update(progress)
    for source in (source for one in progress.values() if one for source in one["sources"]):
        at, ends = (counts(source[name]) for name in ("endOffset", "latestOffset"))
        gauges.positions(at, ends or at)
    if not job.once:
        _count(gauges, note)


@contextmanager
def _served(
    collectors: Sequence[Collector], exposition: Exposition, notify: Notify, usage: ProcessUsage
) -> Iterator[None]:
    """Serve the gauges inside, and write the text file at the end. Raises ExpositionError or FolderError.

    The port has the `usage` of the processes too; in a file it would be that of a process that has ended.
    If the work inside raises and the file cannot be written either, the second error is only printed.
    """
    if not exposition.wanted:
        yield
        return
    registry = _registry(collectors)

    def write() -> None:
        if exposition.textfile is not None:
            with writing(exposition.textfile, _TEXTFILE):
                write_to_textfile(str(exposition.textfile), registry)

    with _at_port(_registry((*collectors, usage)), exposition, notify):
        try:
            yield
        except BaseException:
            try:
                write()
            except FolderError as error:
                notify(str(error))
            raise
        write()


def _registry(collectors: Iterable[Collector]) -> CollectorRegistry:
    registry = CollectorRegistry()
    for one in collectors:
        registry.register(one)
    return registry


@contextmanager
def _at_port(registry: CollectorRegistry, exposition: Exposition, notify: Notify) -> Iterator[None]:
    if exposition.port is None:
        yield
        return
    with ExitStack() as held:
        try:
            port = held.enter_context(scrape_port(registry, exposition.host, exposition.port))
        except OSError as error:
            raise ExpositionError(
                f"gauges cannot be served at {exposition.host}:{exposition.port}: {error.strerror or error}; give "
                "another port with --metrics-port, 0 for any free one, or another address with --metrics-host"
            ) from error
        notify(f"Gauges for Prometheus are at http://{exposition.host}:{port}/metrics")
        yield


def collected(  # noqa: PLR0917 - the parts of a report
    data: Path,
    times: tuple[datetime | None, datetime | None],
    window_s: int,
    tables: bool,
    cluster: Cluster,
    notify: Notify,
) -> Report:
    """The report on the rows in `data`; by default on the hour that ends with the window of the newest entry.

    `tables`: store windows as Parquet too (PM-35). Raises FolderError if nothing was ingested yet, ValueError if the
    start is not before the end.
    """
    check_ingested(data)
    notify("Starting Spark …")
    spark = cluster.session("sharegroups metrics report")
    groups = stored(spark, data, Kind.GROUP)
    begin, end, known = asked_for(data, times, window_s, times[1] or _newest(spark, data))
    if tables:
        notify("Keeping windows …")
        write_tables(spark, data)
    notify("Collecting …")
    batches = stored(spark, data, Kind.LOG_META) if visible(data, Kind.LOG_META) else None
    logs = Logs(samples(spark, data, begin - _HOUR, end + _HOUR), batches)
    # The report starts with the window that contains `begin`, up to an hour earlier, and needs rows from READ_BACK
    # before that (PM-32).
    states = states_of(spark, data, begin - READ_BACK - _HOUR, end + _HOUR)
    found = collect(states, groups, begin, end, window_s, logs, known)
    return with_surroundings(found, data, begin, end, known.until)


def _newest(spark: SparkSession, data: Path) -> datetime:
    """When the newest entry was written; now if there is none.

    If the newest sample is later and shows records above the high watermark that a share-partition's writes report,
    returns the time of that sample, since the share-partition may have stalled.
    """
    last = [found for kind in KINDS if (found := _of_last_hour(spark, data, kind)) is not None]
    newest = None
    if last:
        rows = last[0] if len(last) == 1 else last[0].unionByName(last[1])
        newest = rows.agg(F.max("ts").cast("double")).collect()[0][0]
    at = datetime.now(UTC) if newest is None else datetime.fromtimestamp(newest, UTC)
    read = read_up_to(data, datetime.now(UTC))
    seen = newest_sample(data, read) if read is not None else None
    if seen is None or seen[0] <= at:
        return at
    ends = {(end.topic_id, end.partition): end.high_watermark or 0 for end in seen[1]}
    watermarks = _watermarks(stored(spark, data, Kind.SHARE_STATE))
    waiting = any(ends.get((topic_id, index), 0) > (hwm or 0) for (_, topic_id, index), hwm in watermarks.items())
    return seen[0] if waiting else at


def _of_last_hour(spark: SparkSession, data: Path, kind: Kind) -> DataFrame | None:
    """The times of the rows in the newest hour that has any, found by the names of folders; None without rows."""
    there = visible(data, kind)
    hours = {hour for span in there for hour in span.hours}
    if not hours:
        return None
    day, hour = max(hours).split("T")
    return rows_in(spark, kind, there, placed=True).where((F.col("dt") == day) & (F.col("hour") == hour)).select("ts")


def _watermarks(states: DataFrame) -> dict[tuple[Any, ...], int | None]:
    """The highest high watermark in the writes of each existing share-partition."""
    tombstone = F.col("record_type") == "tombstone"
    gone = F.max(F.when(tombstone, F.lit(True))).alias("gone")
    found = states.groupBy(*KEY).agg(F.max("hwm").alias("hwm"), gone).collect()
    if any(row["gone"] for row in found):  # rare; finding each key's last record costs Spark a sort
        newest = F.max_by(tombstone, F.struct(*ORDER)).alias("gone")
        found = states.groupBy(*KEY).agg(F.max("hwm").alias("hwm"), newest).collect()
    return {tuple(row[name] for name in KEY): row["hwm"] for row in found if row["topic_id"] and not row["gone"]}
