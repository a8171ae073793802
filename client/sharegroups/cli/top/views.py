"""What the screens of `sharegroups top` show: values that the cluster has answered with, at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from kip932.ids import TopicPartition
from sharegroups.admin_values import ReadRecord, RecordsExplained, ShareGroupDescription
from sharegroups.insight.rows import Row
from sharegroups.share_progress import ShareProgress


class Overview(NamedTuple):
    """All rows, the worst first. `left_out`: how many more rows the leaders have. `problems`: what is missing, and
    why."""

    rows: Sequence[Row]
    left_out: int = 0
    problems: Sequence[str] = ()


class GroupView(NamedTuple):
    """One group. `description`: None if its coordinator did not return it; `problems` then has the reason. `progress`:
    by partition, those assigned to members included, None for one that no leader counts. `explained`: what the leaders
    know of the first records of some of them."""

    group: str
    description: ShareGroupDescription | None
    progress: Mapping[TopicPartition, ShareProgress | None]
    explained: Mapping[TopicPartition, RecordsExplained]
    problems: Sequence[str] = ()


class RecordView(NamedTuple):
    """One record for a group, and its content; `problem`: why there is no content."""

    answer: RecordsExplained
    offset: int
    record: ReadRecord | None
    problem: str = ""


class Failures(NamedTuple):
    """The dead letters of a group since a moment. `rows`: number, cause, reason, and when the last was written, the
    largest number first. `is_cut`: there are more than were read."""

    group: str
    topic: str
    rows: Sequence[tuple[int, str, str, str]]
    letters: int
    is_cut: bool
    problem: str = ""


class Memory(NamedTuple):
    """What fills the store. `stores`: name, memory in use, limit, and what is left, the fullest first; `topics`: name,
    partitions, records, bytes, and when the oldest record was stored, the largest first."""

    stores: Sequence[tuple[str, str, str, str]]
    topics: Sequence[tuple[str, int, str, str, str]]
    problems: Sequence[str] = ()


class Source(Protocol):
    """Where the screens get their values. Every method may raise KafkaError, and takes a few seconds at most."""

    async def overview(self) -> Overview:
        """Return all groups."""

    async def group(self, group: str, partitions: Sequence[TopicPartition]) -> GroupView:
        """Return one group; `partitions`: those whose first records are explained."""

    async def record(self, group: str, partition: TopicPartition, offset: int | None) -> RecordView:
        """Return a record; without an offset the first one that the group has not finished."""

    async def failures(self, group: str) -> Failures:
        """Return the group's dead letters of the last 24 hours, by cause and reason."""

    async def memory(self) -> Memory:
        """Return what the topics and the store hold."""
