"""Writes and reads row files with Spark, on any file system that Hadoop supports, including the local one.

Every attempt to write a batch creates a new folder, with a token in its name, that readers ignore until it is
committed. So two attempts never share a folder, and Spark may use any committer in it.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses
from pyspark.sql.pandas.types import from_arrow_schema

from share_metrics.archive.commits import Span, Written, raw, spans
from share_metrics.reader import Kind, schema_of

_PREFIX: Final = "batch="
#: The prefix that earlier builds gave a folder until it was complete.
_UNFINISHED_PREFIX: Final = ".unfinished."
#: The columns that the folders of a batch add to its rows: the day and the hour in which they were appended, UTC.
PLACED: Final = ("dt", "hour")


class RowFiles:
    """Writes, lists and removes folders of rows. `rows`: the URI for new ones; "" for the directory."""

    def __init__(self, spark: SparkSession, data: Path, rows: str = "") -> None:
        self._spark = spark
        self._data = data
        self._rows = rows.rstrip("/")

    def write(self, kind: Kind, name: str, rows: DataFrame) -> Written:
        """Write rows by day and hour, in as many tasks as they have partitions.

        `name`: the numbers of its batches, for human readers. If writing fails, the new files are removed.
        """
        folder_name = f"{_PREFIX}{name}.{secrets.token_hex(4)}"
        folder = f"{self._rows}/{kind}/{folder_name}" if self._rows else str(raw(self._data, kind) / folder_name)
        dated = rows.withColumn("dt", F.date_format("ts", "yyyy-MM-dd")).withColumn("hour", F.date_format("ts", "HH"))
        try:
            dated.write.partitionBy(*PLACED).parquet(folder)
            files = self._listed(folder)
        except Exception:
            self.remove(folder)  # a job may run for months, and such leftovers would fill the disk
            raise
        return Written(folder if self._rows else folder_name, files)

    def remove(self, folder: str) -> None:
        """Remove a folder, if it exists."""
        system, path = self._at(folder)
        system.delete(path, True)

    def sweep(self, kind: Kind) -> None:
        """Remove folders that no commit names, which killed jobs left unfinished."""
        named = {span.folder for span in spans(self._data, kind)}
        for base in dict.fromkeys((str(raw(self._data, kind)), f"{self._rows}/{kind}" if self._rows else "")):
            if not base:
                continue
            system, path = self._at(base)
            for status in system.listStatus(path) if system.exists(path) else ():
                name = status.getPath().getName()
                attempt = name.startswith(_UNFINISHED_PREFIX) or (name.startswith(_PREFIX) and "." in name)
                if attempt and f"{base}/{name}" not in named:
                    system.delete(status.getPath(), True)

    def _listed(self, folder: str) -> list[tuple[str, int]]:
        system, path = self._at(folder)
        begin = len(system.makeQualified(path).toString()) + 1
        found, left = [], system.listFiles(path, True)
        while left.hasNext():
            status = left.next()
            name = status.getPath().toString()[begin:]
            if name.endswith(".parquet") and not status.getPath().getName().startswith((".", "_")):
                found.append((name, int(status.getLen())))
        return sorted(found)

    def _at(self, folder: str) -> tuple[Any, Any]:
        """Hadoop's file system and path of a folder. A path without a scheme is on this machine."""
        hadoop: Any = self._spark._jvm  # pyspark has no other way to Hadoop's file systems
        path = hadoop.org.apache.hadoop.fs.Path(_uri(folder))
        return path.getFileSystem(self._spark._jsc.hadoopConfiguration()), path


def rows_in(spark: SparkSession, kind: Kind, there: Iterable[Span], *, placed: bool = False) -> DataFrame:
    """The rows of some commits. `placed`: add the columns PLACED, by which Spark can skip files."""
    schema = from_arrow_schema(schema_of(kind))
    if placed:
        schema = schema.add("dt", "string").add("hour", "string")
    by_base: dict[str, list[str]] = defaultdict(list)
    for span in there:
        by_base[span.folder.rpartition("/")[0]] += [_uri(piece.path) for piece in span.pieces]
    frames = [_read(spark, schema, base, files) for base, files in sorted(by_base.items()) if files]
    if not frames:
        return spark.createDataFrame([], schema)
    first, *others = frames
    for other in others:
        first = first.unionByName(other)
    return first


def _read(spark: SparkSession, schema: Any, base: str, files: Sequence[str]) -> DataFrame:
    reader = spark.read.schema(schema).option("basePath", _uri(base))
    return reader.parquet(*files).select(*schema.names)


def _uri(path: str) -> str:
    """A URI for a path. A path without a scheme is local, even if Hadoop's default file system is not."""
    return path if "://" in path else f"file://{Path(path).absolute()}"
