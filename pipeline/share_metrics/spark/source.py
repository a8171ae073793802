"""The data source `redis_streams`, batch and streaming (PM-5, PM-9, PM-15, PM-73…PM-79).

Every call opens and closes its own connections: readers are pickled for workers, and hold only options (PM-76). This
module is imported from an installed package, never defined in `__main__` (PM-71).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    In,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from kip932.ids import shard_index
from share_metrics.reader import EntryId, Gap, Kind, Position, Range, Reader, Tip, schema_of
from share_metrics.reader.offsets import from_offsets, to_offsets
from share_metrics.reader.planning import Goal, StreamPlan, pack, split
from share_metrics.spark.options import LATEST, SourceOptions, read_options

FORMAT: Final = "redis_streams"


class ReadTask(InputPartition):
    """The ranges and gaps that one Spark task reads. Holds only strings and numbers (PM-76)."""

    def __init__(self, ranges: Sequence[Range], gaps: Sequence[Gap] = ()) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)
        self.gaps = tuple(gaps)


class RedisStreams(DataSource):
    """The persisted streams of a cluster as a table of rows, one for each entry."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = read_options(options)

    @classmethod
    def name(cls) -> str:
        """The name for Spark's `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """The schema of the kind."""
        return from_arrow_schema(schema_of(self._given.kind))

    def reader(self, schema: StructType) -> BatchReader:
        """The reader for `spark.read`."""
        return BatchReader(self._given)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        """The reader for `spark.readStream`."""
        return StreamReader(self._given)


class BatchReader(DataSourceReader):
    """Reads from `startingIds` to `endingIds`; every Spark action plans the read again (PM-77)."""

    def __init__(self, given: SourceOptions) -> None:
        self._given = given
        self._only: frozenset[str] | None = None
        self._groups: frozenset[str] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Skip streams that have no rows for the filters. Spark filters every row again (PM-15)."""
        for one in filters:
            values = _wanted(one, "stream")
            if values is not None:
                self._only = values if self._only is None else self._only & values
            values = _wanted(one, "group_id")
            if values is not None and self._given.kind is Kind.GROUP:
                self._groups = values if self._groups is None else self._groups & values
        return filters

    def partitions(self) -> list[InputPartition]:
        """Tasks with ranges up to `endingIds`. Long ranges are split, and tasks get a similar number of entries (PM-5,
        PM-10)."""
        given = self._given
        with given.store() as store:
            reader = Reader(store, given.kind, given.read_options)
            tips = reader.tips(self._streams(reader))
            goals = {stream: Goal(end) for stream, end in given.ends.items()}
            plans = reader.plan(_first_positions(reader, given, tips), tips, goals)
        return _tasks(plans, given)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Batches of one task. If there is no task, Spark passes an empty partition (PM-74)."""
        return _read(self._given, partition)

    def _streams(self, reader: Reader) -> list[str]:
        streams = reader.streams(self._given.shards)
        if self._groups is not None:
            shards = {shard_index(group, len(streams)) for group in self._groups}
            streams = [stream for index, stream in enumerate(streams) if index in shards]
        return [stream for stream in streams if self._only is None or stream in self._only]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches from one set of positions to the next. Spark keeps the positions.

    With a reader name, the positions are published to owners of streams (PM-12): with every plan, because it starts
    where the last confirmed batch ended, and with `commit`, which Spark calls only when there is a new batch.
    """

    def __init__(self, given: SourceOptions) -> None:
        self._given = given
        self._target: dict[str, Position] | None = None
        self._earliest: dict[str, Position] = {}  # as of the last plan, starts of streams that no checkpoint has yet
        self._publisher = given.publisher()
        self._planned = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The positions at which a new query starts."""
        given = self._given
        with given.cluster_store() as store:
            reader = Reader(store, given.kind)
            tips = reader.tips(reader.streams(given.shards))
            return to_offsets(_first_positions(reader, given, tips))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The option `maxRowsPerTrigger`."""
        return ReadMaxRows(self._given.max_rows_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Make the streams' current ends the end of the query, even if owners continue to write."""
        self._target = self._latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The positions at which the next micro-batch ends. Only ids are transferred (PM-9)."""
        given = self._given
        begins = from_offsets(start)
        with given.cluster_store() as store:
            reader = Reader(store, given.kind)
            streams = reader.streams(given.shards)
            goals: dict[str, Goal] = {}
            if self._target is not None:
                goals = {stream: Goal(end.id, end.n) for stream, end in self._target.items()}
            tips = reader.tips([stream for stream in streams if self._target is None or stream in goals])
            rows = None if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", None)
            if rows is not None and not self._planned:
                rows = min(rows, given.max_rows_first_trigger)
            self._earliest = {stream: tip.earliest for stream, tip in tips.items() if tip and stream not in begins}
            plans = reader.plan(begins, tips, goals, rows)
            if self._publisher is not None:
                self._publisher.publish(store, begins)
        self._planned = True
        kept = {stream: begins[stream] for stream in streams if stream in begins}
        return to_offsets(kept | {stream: plan.end for stream, plan in plans.items()})

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The current ends of the streams, for the query's progress."""
        return to_offsets(self._latest())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks between two offsets. Entries that were lost since the offsets were planned become a gap (PM-11)."""
        given = self._given
        ends = from_offsets(end)
        begins = self._earliest | from_offsets(start)
        ends = {stream: at for stream, at in ends.items() if begins.get(stream) != at}
        with given.cluster_store() as store:
            reader = Reader(store, given.kind, given.read_options)
            goals = {stream: Goal(at.id, at.n) for stream, at in ends.items()}
            plans = reader.plan(begins, reader.tips(list(ends)), goals)
        return _tasks(plans, given)

    def commit(self, end: dict[str, Any]) -> None:
        """Publish `end`: the query has stored everything up to it, and never reads it again."""
        if self._publisher is not None:
            with self._given.cluster_store() as store:
                self._publisher.publish(store, from_offsets(end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Batches of one task."""
        return _read(self._given, partition, next_reports_tails=True)

    def _latest(self) -> dict[str, Position]:
        given = self._given
        with given.cluster_store() as store:
            reader = Reader(store, given.kind)
            tips = reader.tips(reader.streams(given.shards))
        return {stream: tip.latest for stream, tip in tips.items() if tip is not None}


def _first_positions(reader: Reader, given: SourceOptions, tips: Mapping[str, Tip | None]) -> dict[str, Position]:
    if given.starting_ids == LATEST:
        return {stream: tip.latest if tip else Position(EntryId(0, 0), 0) for stream, tip in tips.items()}
    named = given.starts
    return {
        stream: reader.position(stream, named[stream], tip) if stream in named and tip
        else tip.earliest if tip else Position(EntryId(0, 0), 0)
        for stream, tip in tips.items()
    }  # fmt: skip


def _tasks(plans: Mapping[str, StreamPlan], given: SourceOptions) -> list[InputPartition]:
    ranges = [piece for plan in plans.values() for piece in plan.ranges]
    bins = given.num_partitions
    if given.kind is not Kind.LOG_META:  # its ids are not consecutive, and its ranges are already short
        ranges = split(ranges, given.split_entries)
        pages = -(-sum(piece.entries for piece in ranges) // given.page_count)
        bins = max(1, min(bins, pages))  # starting a task takes longer than reading a page (PM-84)
    gaps = [gap for plan in plans.values() for gap in plan.gaps]
    tasks: list[InputPartition] = [ReadTask(task) for task in pack(ranges, bins)]
    return [ReadTask((), gaps), *tasks] if gaps else tasks


def _read(given: SourceOptions, partition: InputPartition, *, next_reports_tails: bool = False) -> Iterator[Any]:
    if not isinstance(partition, ReadTask):
        return
    with given.store() as store:
        reader = Reader(store, given.kind, given.read_options)
        yield from reader.read(partition.ranges, partition.gaps, next_reports_tails=next_reports_tails)


def _wanted(one: Filter, column: str) -> frozenset[str] | None:
    """The values of a column that a filter allows; None if the filter is not about the column."""
    if isinstance(one, EqualTo) and one.attribute == (column,):
        return frozenset({one.value} - {None})
    if isinstance(one, In) and one.attribute == (column,):
        return frozenset(set(one.value) - {None})  # no value equals NULL, so NULL selects no row
    return None
