"""What a page shows besides share-partitions: topics without a reader, dead letters, groups that have only configs,
outages of the ingest, the cluster and the store's memory (PM-98, PM-99, PM-100, PM-102, PM-105).

It comes from the files beside the rows, and needs neither Spark nor the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.dataset as ds

from share_metrics.archive.commits import visible
from share_metrics.archive.folders import check_cluster
from share_metrics.archive.kept_rows import read_rows
from share_metrics.ingest.group_configs import noted_group_configs
from share_metrics.ingest.log_samples import newest_sample
from share_metrics.ingest.outages import spans
from share_metrics.ingest.store_memory import memory_at, noted_store_memory
from share_metrics.ingest.topic_names import noted_topics
from share_metrics.reader import Kind
from share_metrics.reader.log_ends import LogEnd
from share_metrics.report.model import ROWS_MAX, Report

#: When the oldest record of each of these topics was appended, s since 1970; topics of unknown times are left out.
Oldest = Callable[[Mapping[str, Sequence[LogEnd]]], Mapping[str, int]]


class Noted(NamedTuple):
    """The files beside the rows: the names of topics by id, the groups that have configs with the topics of their dead
    letters ("": none), and the last sample of the logs."""

    names: Mapping[str, str]
    groups: Mapping[str, str]
    ends: Sequence[LogEnd]


def with_surroundings(report: Report, data: Path, begin: datetime, end: datetime, until: datetime) -> Report:
    """The page from `begin` to `end` with the topics that no group reads, those of dead letters, the groups that have
    only configs, the outages of the ingest, the cluster's id and the store's memory.

    `until`: the time up to which everything was read.
    """
    sample = newest_sample(data, min(end, until))
    names = {life.topic_id: life.name for life in reversed(noted_topics(data))}
    noted = Noted(names, noted_group_configs(data), sample[1] if sample else ())

    def oldest(topics: Mapping[str, Sequence[LogEnd]]) -> Mapping[str, int]:
        return oldest_appended(data, topics) if topics and visible(data, Kind.LOG_META) else {}

    return replace(
        surrounded(report, noted, oldest),
        outages=spans(data, begin, end),
        cluster=check_cluster(data, ""),
        store=memory_at(noted_store_memory(data), min(end, until).timestamp()),
    )


def surrounded(report: Report, noted: Noted, oldest: Oldest) -> Report:
    """The page with what follows from these files. Rows are those with the most records first, at most ROWS_MAX."""
    logs: dict[str, list[LogEnd]] = {}
    for end in noted.ends:
        logs.setdefault(end.topic_id, []).append(end)
    records = {topic: sum(map(_records, ends)) for topic, ends in logs.items()}
    of_letters = {name for name in noted.groups.values() if name}
    letters = [topic for topic in logs if noted.names.get(topic) in of_letters]
    read = _read(report)
    unread = [topic for topic in logs if records[topic] and not {topic, noted.names.get(topic)} & read]
    unread = _most(set(unread) - set(letters), records)
    times = oldest({topic: logs[topic] for topic in unread})

    def row(topic: str) -> dict[str, Any]:
        return {"topic": noted.names.get(topic, topic), "records": records[topic]}

    known = {line.group_id for line in report.partitions} | {
        one["group_id"] for one in report.standing if one["state"] != "Dead"
    }
    return replace(
        report,
        unread=[row(topic) | {"oldest_s": times.get(topic)} for topic in unread],
        letters=[row(topic) for topic in _most(letters, records)],
        configured=sorted(noted.groups.keys() - known),
    )


def oldest_appended(data: Path, topics: Mapping[str, Sequence[LogEnd]]) -> dict[str, int]:
    """When the oldest record of these topics was appended, as far as rows of `log_meta` show, s since 1970."""
    files = [piece.path for span in visible(data, Kind.LOG_META) for piece in span.pieces]
    wanted = ds.field("topic_id").isin(list(topics)) & (ds.field("record_type") == "batch")
    columns = ("topic_id", "partition", "last_offset", "ts")
    first: dict[str, int] = {}
    starts = {(end.topic_id, end.partition): end.log_start_offset or 0 for ends in topics.values() for end in ends}
    for found in read_rows(files, Kind.LOG_META, columns, wanted):
        at = (found["topic_id"], found["partition"])
        if found["ts"] is not None and at in starts and found["last_offset"] >= starts[at]:
            appended = int(found["ts"].timestamp())
            first[at[0]] = min(appended, first.get(at[0], appended))
    return first


def _read(report: Report) -> set[str]:
    """The topics that a group reads, by the names that the page has for them."""
    return {
        line.name.removeprefix(f"{line.group_id} · ").rpartition("-")[0] for line in report.partitions if not line.gone
    }


def _records(end: LogEnd) -> int:
    """How many offsets a log holds."""
    return max((end.high_watermark or 0) - (end.log_start_offset or 0), 0)


def _most(topics: Iterable[str], records: Mapping[str, int]) -> list[str]:
    return sorted(topics, key=lambda topic: (-records[topic], topic))[:ROWS_MAX]
