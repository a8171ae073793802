"""What a page shows besides share-partitions, from literal samples and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from share_metrics.archive.commits import Written, commit, raw
from share_metrics.reader import Kind, schema_of
from share_metrics.reader.log_ends import LogEnd
from share_metrics.report import Report
from share_metrics.report.model import PartitionLine
from share_metrics.surroundings import Noted, oldest_appended, surrounded

NAMES: Final = {"A": "orders", "B": "jobs", "C": "dlq.orders", "D": "new", "E": "again"}
#: Two partitions of jobs; a log without an end is just being claimed.
ENDS: Final = (
    LogEnd("A", 0, 0, 9, 9), LogEnd("B", 0, 5, 12, 12), LogEnd("B", 1, None, 3, 3), LogEnd("C", 0, 1, 5, 5),
    LogEnd("D", 0, 0, 0, 0), LogEnd("E", 0, 0, 11, 11), LogEnd("E", 1, 0, None, None), LogEnd("F", 0, 0, 7, 7),
)  # fmt: skip


def line(group: str, name: str, *, gone: bool = False) -> PartitionLine:
    return PartitionLine(f"{group} · {name}-0", 0, 1, 0, 0, 0, 0, 0, 0, 0, None, 0, 0, group_id=group, gone=gone)


def page(*lines: PartitionLine) -> Report:
    standing = [{"group_id": "s", "state": "Empty", "members": 0}, {"group_id": "dead", "state": "Dead", "members": 0}]
    return Report("b", "e", 60, lines, standing=standing)


def at_5(topics: Mapping[str, Sequence[LogEnd]]) -> Mapping[str, int]:
    return {topic: 5 for topic in topics if topic != "F"}


@pytest.mark.rule("PM-98")
def test_topics_with_records_that_no_group_reads_are_listed_the_fullest_first() -> None:
    """A group reads orders; the one that read the topic "again" is that of an earlier topic of its name, so its
    share-partition is gone. The name of F is not known."""
    noted = Noted(NAMES, {"g": "dlq.orders", "h": ""}, ENDS)
    found = surrounded(page(line("g · x-1", "orders"), line("g", "again", gone=True)), noted, at_5)
    assert found.unread == [
        {"topic": "again", "records": 11, "oldest_s": 5},
        {"topic": "jobs", "records": 10, "oldest_s": 5},
        {"topic": "F", "records": 7, "oldest_s": None},
    ]
    assert found.letters == [{"topic": "dlq.orders", "records": 4}]
    read = surrounded(page(line("g", "again"), line("g", "F"), line("g", "jobs"), line("g", "orders")), noted, at_5)
    assert (read.unread, read.letters) == ([], found.letters)


@pytest.mark.rule("PM-99")
def test_groups_that_have_only_configs_are_listed() -> None:
    groups = dict.fromkeys(("s", "dead", "only", "with lines"), "")
    found = surrounded(page(line("with lines", "orders", gone=True)), Noted({}, groups, ()), at_5)
    assert (found.configured, found.unread, found.letters) == (["dead", "only"], [], [])


@pytest.mark.rule("PM-98")
def test_the_oldest_record_is_the_first_one_that_the_log_still_holds(tmp_path: Path) -> None:
    rows = [("B", 0, 0, 4, 100), ("B", 0, 5, 11, 200), ("B", 1, 0, 2, 150), ("A", 0, 0, 8, 50), ("B", 2, 0, 9, 10)]
    table = [
        {"record_type": "batch", "topic_id": topic, "partition": index, "base_offset": base, "last_offset": last,
         "ts": datetime.fromtimestamp(at, UTC)}
        for topic, index, base, last, at in rows
    ]  # fmt: skip
    folder = raw(tmp_path, Kind.LOG_META) / "batch=0.a"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(table, schema=schema_of(Kind.LOG_META)), folder / "rows.parquet")
    size = (folder / "rows.parquet").stat().st_size
    commit(tmp_path, Kind.LOG_META, (0, 0), Written("batch=0.a", [("rows.parquet", size)]), "")
    logs = {"B": [end for end in ENDS if end.topic_id == "B"], "F": [ENDS[-1]]}
    assert oldest_appended(tmp_path, logs) == {"B": 150}
