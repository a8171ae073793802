"""The files of the tables of windows, and the note of what they were made from (PM-35, PM-97). Needs no Spark.

    metrics/<table>/size=1m|1h/dt=…/hour=…
    metrics/read.json

There is a folder for each hour, so that new rows in one hour do not rewrite its whole day. The note holds the numbers
of the last batches read; the ids of their queries, because a new query starts at number 0; and the time of the last
sample of log ends that was used. It is written after the tables, so that a killed job only repeats work.

Lag depends on samples and on rows of `log_meta` too: `progress` and `lag` are also recomputed starting at the hour of
that sample, and at the first hour with new rows of `log_meta`. `lag` has all windows up to the time up to which
everything was read, including those in which nothing was written.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from share_metrics.archive.commits import visible
from share_metrics.archive.folders import FolderError, query_id
from share_metrics.ingest.log_samples import newest_sample
from share_metrics.ingest.read_up_to import read_up_to
from share_metrics.reader import Kind

#: What the folders of windows are called before their size. The files have a column `window`, so a reader that takes
#: columns from the names of folders would find two of them in folders of that name, which earlier builds wrote.
SIZE: Final = "size="
_SIZE_BEFORE: Final = "window="
_KINDS: Final = (Kind.SHARE_STATE, Kind.GROUP)
_QUERIES: Final = "queries"
_SAMPLED: Final = "log_ends"
_HOUR: Final = len("2026-11-22T08")
_HOUR_US: Final = 3_600_000_000
#: The beginning of the names of folders with files that are not complete yet. One that a killed job has left is removed
#: a day later.
_NEW: Final = ".new-"
_LEFT_S: Final = 86_400


class News(NamedTuple):
    """What was ingested since the tables were written last.

    `hours`: those with new rows, as 2026-11-22T08. `first`: by table, the first hour to write again; a table without
    news is absent. `until`: the time up to which everything was read, None if that is not known. `note`: the content of
    read.json once the tables are written.
    """

    hours: list[str]
    first: dict[str, datetime]
    until: datetime | None
    note: dict[str, Any]

    def write(self, data: Path) -> None:
        """Note that the tables of `data` are written."""
        note = _note(data)
        note.parent.mkdir(parents=True, exist_ok=True)
        new = note.with_suffix(".new")
        new.write_text(json.dumps(self.note))
        new.replace(note)


def news_of(data: Path, now: datetime) -> News:
    """What was ingested into `data` since its tables were written last."""
    note = _note(data)
    before: dict[str, Any] = json.loads(note.read_text()) if note.exists() else {}
    read: dict[str, Any] = {}
    hours: dict[Kind, set[str]] = {}
    for kind in (*_KINDS, Kind.LOG_META):
        read[kind] = _last_read(before, data, kind)
        news = [span for span in visible(data, kind) if span.last > read[kind]]
        if news:
            read[kind] = news[-1].last
        hours[kind] = {hour for span in news for hour in span.hours}
    until = read_up_to(data, now)
    newest = newest_sample(data, until or datetime.fromtimestamp(0, UTC))
    sampled = before.get(_SAMPLED)
    at = newest[0].isoformat() if newest else sampled
    again = {sampled[:_HOUR]} if sampled and sampled != at else set()
    # Batches that were appended during an outage of the ingest change the lag of its windows.
    lagging = hours[Kind.SHARE_STATE] | hours[Kind.LOG_META] | again
    wanted = {"replay": hours[Kind.SHARE_STATE], "groups": hours[Kind.GROUP], "progress": lagging}
    wanted |= {"lag": lagging} if until else {}
    first = {name: datetime.fromisoformat(f"{min(of)}:00").replace(tzinfo=UTC) for name, of in wanted.items() if of}
    read |= {_SAMPLED: at} if at else {}
    read[_QUERIES] = {kind: query_id(data, kind) for kind in (*_KINDS, Kind.LOG_META)}
    return News(sorted(set().union(*(hours[kind] for kind in _KINDS))), first, until, read)


def rename_folders(metrics: Path) -> None:
    """Give the folders of windows that an earlier build wrote their present name (PM-97)."""
    for folder in sorted(metrics.glob(f"*/{_SIZE_BEFORE}*")):
        folder.rename(folder.with_name(SIZE + folder.name.removeprefix(_SIZE_BEFORE)))


@contextmanager
def replacing(data: Path) -> Iterator[Path]:
    """A folder for new files of the tables of `data`, as `write_rows` writes them.

    When the block ends without an error, they replace those of the hours that have files; other hours do not change.
    Raises FolderError if they cannot be written.
    """
    metrics = data / "metrics"
    with _writable(metrics):
        metrics.mkdir(parents=True, exist_ok=True)
        _remove_left(metrics)
        new = Path(mkdtemp(prefix=_NEW, dir=metrics))
    try:
        yield new
        with _writable(metrics):
            for folder in sorted({path.parent for path in new.glob(f"*/{SIZE}*/dt=*/hour=*/*.parquet")}):
                _replace(folder, metrics / folder.relative_to(new))
    finally:
        shutil.rmtree(new, ignore_errors=True)


def write_rows(new: Path, found: Iterable[tuple[str, str, Any]]) -> list[str]:
    """Write rows of tables below the folder of `replacing`. Returns the names of the files there.

    `found`: the name of a table, the name of the size of its windows, and rows, in any order. The names of files are
    unique. Raises FolderError if they cannot be written.
    """
    names: list[str] = []
    maker = uuid4().hex
    for number, (name, size, rows) in enumerate(found):
        with _writable(new.parent):
            paths = _write(new / name / f"{SIZE}{size}", f"part-{number:05d}-{maker}.parquet", rows)
        names += [path.relative_to(new).as_posix() for path in paths]
    return names


def keep_only(new: Path, names: Iterable[str]) -> None:
    """Remove all files but these, such as those of tasks that were run again."""
    kept = {new / name for name in names}
    for path in new.glob("*/*/*/*/*.parquet"):
        if path not in kept:
            path.unlink()


def _write(folder: Path, file: str, rows: Any) -> list[Path]:
    """Write a file for each hour of the rows. Returns the files."""
    hours = np.asarray(rows["window"].cast(pa.int64())) // _HOUR_US
    order = np.argsort(hours, kind="stable")
    each, begins = np.unique(hours[order], return_index=True)
    found = []
    for hour, own in zip(each.tolist(), np.split(order, begins[1:]), strict=True):
        at = datetime.fromtimestamp(hour * 3_600, UTC)
        target = folder / f"dt={at:%Y-%m-%d}" / f"hour={at:%H}" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        # As Spark writes times, so that hours that an earlier build has written are in one data set with these.
        pq.write_table(
            rows.take(pa.array(own)), target, compression="zstd", use_deprecated_int96_timestamps=True,
            store_schema=False,
        )  # fmt: skip
        found.append(target)
    return found


def _replace(folder: Path, target: Path) -> None:
    """Move the files of a folder to another one, in the place of those that it has."""
    target.mkdir(parents=True, exist_ok=True)
    for path in target.iterdir():
        path.unlink()
    for path in folder.iterdir():
        path.rename(target / path.name)


def _remove_left(metrics: Path) -> None:
    for folder in metrics.glob(f"{_NEW}*"):
        if time.time() - folder.stat().st_mtime > _LEFT_S:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _writable(metrics: Path) -> Iterator[None]:
    """Turn the errors of files that cannot be written into a FolderError."""
    try:
        yield
    except OSError as error:
        raise FolderError(
            f"tables cannot be written to {metrics}: {error.strerror or error}; make room, or give this user the right "
            "to write there, then run it again"
        ) from error


def _note(data: Path) -> Path:
    return data / "metrics" / "read.json"


def _last_read(before: dict[str, Any], data: Path, kind: Kind) -> int:
    """The number of the last batch that was read; −1 if it was a batch of a query other than the current one.

    The note of an earlier build has no query id; in it, a number beyond the existing batches means another query.
    """
    last = int(before.get(kind, -1))
    query = before.get(_QUERIES, {}).get(kind, "")
    there = visible(data, kind)
    other_query = query not in {"", query_id(data, kind)} or last > max((span.last for span in there), default=-1)
    return -1 if other_query else last
