"""The table `log_ends`: samples of where each log ended, taken at each trigger (PM-18).

    log_ends/dt=…/HHMMSSffffff.parquet     one sample
    log_ends/dt=…/HH.parquet               all samples of an hour that is over

A sample becomes visible atomically, by a rename. Once an hour is over, its samples are merged, so that a day has 24
files. A concurrent reader may find a sample twice, which is harmless: both copies have the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from share_metrics.ingest.store_clock import StoreClock
from share_metrics.reader import Store, StoreUnreachableError
from share_metrics.reader.log_ends import SCHEMA, LogEnd, log_ends

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = (
    "topic_id string, partition int, log_start_offset bigint, high_watermark bigint, log_end_offset bigint, "
    "sampled_at timestamp"
)
_FULL: Final = SCHEMA.append(pa.field("sampled_at", pa.timestamp("us", tz="UTC")))
_HOUR_NAME: Final = len("HH")
_DAYS_CHECKED: Final = 3
#: The maximum number of times the files are listed; they are listed again if one was merged before it was read.
_LISTINGS: Final = 5

Took = Callable[[datetime, Sequence[LogEnd]], None]


class Sampler:
    """Takes a sample whenever it is called, stores it, and passes it to `took`. Its times are those of `clock`.

    `away` is called when the store does not answer, each time.
    """

    def __init__(
        self,
        opened: Callable[[], Store],
        data: Path,
        clock: StoreClock,
        took: Took = lambda at, ends: None,
        away: Callable[[], None] = lambda: None,
    ) -> None:
        self._opened = opened
        self._data = data
        self._clock = clock
        self._took = took
        self._away = away

    def __call__(self) -> None:
        """Take one sample. Raises what `Store.call` raises, NoClusterError or OSError."""
        try:
            with self._opened() as store:
                self._clock.ask(store)
                at, ends = sample(store, self._data, self._clock.utc())
        except StoreUnreachableError:
            self._away()
            raise
        self._took(at, ends)


def sample(store: Store, data: Path, now: datetime | None = None) -> tuple[datetime, list[LogEnd]]:
    """Take one sample and store it with the time just before the store is read. Returns that time and the sample."""
    at = now or datetime.now(UTC)
    ends = log_ends(store)
    if ends:
        folder = data / "log_ends" / f"dt={at:%Y-%m-%d}"
        folder.mkdir(parents=True, exist_ok=True)
        _write(pa.Table.from_pylist(_rows(at, ends), schema=_FULL), folder / f"{at:%H%M%S%f}.parquet")
        put_together(data, at)
    return at, ends


def put_together(data: Path, now: datetime) -> None:
    """Merge the samples of each hour that is over into one file. Only the newest days can have unmerged ones."""
    for folder in sorted((data / "log_ends").glob("dt=*"))[-_DAYS_CHECKED:]:
        parts = sorted(path for path in folder.glob("*.parquet") if len(path.stem) > _HOUR_NAME)
        for hour, found in groupby(parts, key=lambda path: path.stem[:_HOUR_NAME]):
            over = datetime.fromisoformat(f"{folder.name[3:]}T{hour}:00+00:00") + timedelta(hours=1)
            if over > now:
                continue
            single, target = list(found), folder / f"{hour}.parquet"
            whole = [target, *single] if target.exists() else single  # it exists if a job was killed during the merge
            _write(pa.concat_tables([pq.read_table(path, schema=_FULL, partitioning=None) for path in whole]), target)
            for path in single:
                path.unlink()


def samples(spark: SparkSession, data: Path, begin: datetime | None = None, end: datetime | None = None) -> DataFrame:
    """The samples in `data` taken from `begin` on and before `end`; no rows if nothing was sampled."""
    found = stored_samples(data, begin, end)
    return spark.createDataFrame(found) if found.num_rows else spark.createDataFrame([], COLUMNS)


def stored_samples(data: Path, begin: datetime | None = None, end: datetime | None = None) -> Any:
    """The samples from `begin` on and before `end` as an Arrow table. Only files of those hours are read."""
    tables = []
    for _ in range(_LISTINGS):
        try:
            tables = [pq.read_table(path, schema=_FULL, partitioning=None) for path in _files(data, begin, end)]
            break
        except FileNotFoundError:  # it was merged with others meanwhile
            continue
    return _between(pa.concat_tables(tables) if tables else _FULL.empty_table(), begin, end)


def newest_sample(data: Path, until: datetime) -> tuple[datetime, list[LogEnd]] | None:
    """The time and the content of the newest sample taken no later than `until`; None without any."""
    after = until + timedelta(microseconds=1)
    for path in reversed(_files(data, None, after)):
        rows = _between(pq.read_table(path, schema=_FULL, partitioning=None), None, after).to_pylist()
        if rows:
            at: datetime = max(row["sampled_at"] for row in rows)
            return at, [LogEnd(*(row[name] for name in LogEnd._fields)) for row in rows if row["sampled_at"] == at]
    return None


def _rows(at: datetime, ends: Iterable[LogEnd]) -> list[dict[str, Any]]:
    return [{**end._asdict(), "sampled_at": at} for end in ends]


def _write(table: Any, target: Path) -> None:
    hidden = target.with_name(f".{target.name}.part")
    try:
        pq.write_table(table, hidden, compression="zstd")
        hidden.replace(target)
    finally:
        hidden.unlink(missing_ok=True)  # after a failure, nothing else would remove the incomplete file


def _files(data: Path, begin: datetime | None, end: datetime | None) -> list[Path]:
    """The files of the hours that overlap the time from `begin` to `end`, the oldest first."""
    found = []
    for path in sorted((data / "log_ends").glob("dt=*/*.parquet"), key=lambda path: (path.parent.name, path.name)):
        hour = datetime.fromisoformat(f"{path.parent.name[3:]}T{path.stem[:_HOUR_NAME]}:00+00:00")
        if (begin is None or hour + timedelta(hours=1) > begin) and (end is None or hour < end):
            found.append(path)
    return found


def _between(table: Any, begin: datetime | None, end: datetime | None) -> Any:
    for at, keep in ((begin, pc.greater_equal), (end, pc.less)):
        if at is not None:
            table = table.filter(keep(table["sampled_at"], pa.scalar(at, pa.timestamp("us", tz="UTC"))))
    return table
