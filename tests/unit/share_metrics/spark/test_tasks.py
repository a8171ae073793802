"""A Spark reader's state, its tasks, and when it opens and closes its connections. Without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows

from share_metrics.reader import EntryId, Range, Store
from share_metrics.reader.offsets import Position
from share_metrics.reader.planning import StreamPlan
from share_metrics.spark.options import SourceOptions, read_options
from share_metrics.spark.source import BatchReader, ReadTask, RedisStreams, StreamReader, _tasks
from tests.support.pipeline_entries import STREAM, MemoryStream, epochs
from tests.unit.share_metrics.reader.memory_store import MemoryStore

STATE = {"url": "redis://h:1", "kind": "share_state", "shards": "1", "pageCount": "2"}


class Counted(MemoryStore):
    """Counts how many times it was closed."""

    def __init__(self) -> None:
        super().__init__(MemoryStream(epochs(5)))
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Counted]:
    """The stores opened, in order."""
    made: list[Counted] = []

    def store(_: SourceOptions) -> Store:
        made.append(Counted())
        return made[-1]

    monkeypatch.setattr(SourceOptions, "store", store)
    return made


def plan_of(*sizes: int) -> dict[str, StreamPlan]:
    """A plan of one stream per size, each with one range."""
    return {
        f"s{number}": StreamPlan(
            Position(EntryId(1, size), size), [Range(f"s{number}", EntryId(1, 0), EntryId(1, size), size)], []
        )
        for number, size in enumerate(sizes)
    }


@pytest.mark.rule("PM-76")
def test_nothing_is_opened_before_it_is_needed_and_all_is_closed(opened: list[Counted]) -> None:
    source = RedisStreams(dict(STATE))
    batch, stream = source.reader(source.schema()), source.streamReader(source.schema())
    assert opened == []
    begin = stream.initialOffset()
    end = stream.latestOffset(begin, ReadMaxRows(100))
    for one in (*batch.partitions(), *stream.partitions(begin, end)):
        assert sum(found.num_rows for found in batch.read(one)) == 5
    assert [store.closed for store in opened] == [1] * len(opened) != []


@pytest.mark.rule("PM-76")
@pytest.mark.parametrize("how", ["left", "failed"])
def test_a_read_that_does_not_come_to_its_end_closes_too(opened: list[Counted], how: str) -> None:
    reader = BatchReader(read_options(STATE))
    (task,) = reader.partitions()
    opened.clear()
    pages: Any = reader.read(task)
    next(pages)
    if how == "left":
        pages.close()
    else:
        with pytest.raises(OSError, match="no more"):
            pages.throw(OSError("no more"))
    assert [store.closed for store in opened] == [1]


@pytest.mark.rule("PM-74")
@pytest.mark.parametrize("make", [BatchReader, StreamReader])
def test_of_no_task_nothing_is_read(opened: list[Counted], make: Callable[[SourceOptions], Any]) -> None:
    """This is how Spark reads a batch that has no tasks."""
    assert list(make(read_options(STATE)).read(InputPartition(None))) == []
    assert opened == []


@pytest.mark.rule("PM-74", "PM-76")
def test_tasks_are_a_list_of_strings_and_numbers(opened: list[Counted]) -> None:
    tasks = BatchReader(read_options({**STATE, "numPartitions": "2"})).partitions()
    assert type(tasks) is list
    assert len(tasks) == 2 - 1  # one range, which is not cut

    def plain(value: object) -> bool:
        return isinstance(value, str | int) or (isinstance(value, tuple) and all(map(plain, value)))

    for task in tasks:
        held = {name: value for name, value in vars(pickle.loads(pickle.dumps(task))).items() if value is not None}
        assert set(held) == {"ranges", "gaps"}
        assert all(map(plain, held.values()))


@pytest.mark.rule("PM-5", "PM-81")
def test_streams_share_tasks_evenly_and_are_fewer_than_streams() -> None:
    tasks = _tasks(plan_of(*[1_000] * 48, 24_000), read_options({**STATE, "numPartitions": "3", "pageCount": "100"}))
    found = [[piece.entries for piece in task.ranges] for task in tasks if isinstance(task, ReadTask)]
    assert sorted(map(sum, found)) == [24_000] * 3


@pytest.mark.rule("PM-5", "PM-10")
def test_a_long_stream_is_cut_into_ranges_of_its_ids() -> None:
    tasks = _tasks(plan_of(25), read_options({**STATE, "numPartitions": "9", "splitEntries": "10", "pageCount": "1"}))
    found = sorted(piece for task in tasks if isinstance(task, ReadTask) for piece in task.ranges)
    assert found == [
        Range("s0", EntryId(1, 0), EntryId(1, 10), 10),
        Range("s0", EntryId(1, 10), EntryId(1, 20), 10),
        Range("s0", EntryId(1, 20), EntryId(1, 25), 5),
    ]


@pytest.mark.rule("PM-5", "PM-10")
def test_topic_logs_have_as_many_tasks_as_the_option_says_and_are_not_cut() -> None:
    reported = read_options({**STATE, "kind": "log_meta", "numPartitions": "3", "splitEntries": "1"})
    tasks = _tasks(plan_of(5, 5, 5, 5), reported)
    assert sorted(len(task.ranges) for task in tasks if isinstance(task, ReadTask)) == [1, 1, 2]


@pytest.mark.rule("PM-15")
def test_a_filter_by_group_leaves_no_stream_of_share_states_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group's share-partitions are spread over many streams; its own log is in a stream of the group kind."""
    asked: list[str] = []

    class Names(MemoryStore):
        def pipeline(self, commands: Any) -> list[Any]:
            asked.extend(key for key, _ in commands)
            return [None] * len(commands)

    monkeypatch.setattr(SourceOptions, "store", lambda _: Names(MemoryStream([])))
    for kind, tag, read in (("share_state", "sgs", 4), ("group", "gc", 1)):
        asked.clear()
        reader = BatchReader(read_options({**STATE, "kind": kind, "shards": "4"}))
        filters: list[Filter] = [EqualTo(("group_id",), "g")]
        assert reader.pushFilters(filters) == filters
        assert reader.partitions() == []
        assert len(asked) == read
        assert all(key.startswith(f"{{{tag}:") for key in asked)
    assert STREAM.startswith("{sgs:")
