"""What the screens of `top` are given, from a cluster in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

import pytest

from kip932.errors import KafkaError, OffsetOutOfRangeError
from kip932.ids import OFFSET_LATEST, TopicPartition
from sharegroups.admin_values import (
    ConfigEntry,
    ConfigResource,
    ListGroupsResult,
    LogDirDescription,
    Node,
    PartitionDescription,
    ReadRecord,
    RecordExplanation,
    RecordsExplained,
    RecordsRead,
    ReplicaInfo,
    ShareGroupDescription,
    TopicDescription,
    UnreadableRecords,
)
from sharegroups.cli.dlq.reading import TOPIC_NAME
from sharegroups.cli.top import cluster_source
from sharegroups.cli.top.cluster_source import LETTERS_MAX, STRIPS_MAX, ClusterSource
from sharegroups.errors import NetworkError
from sharegroups.share_progress import ProgressPage
from tests.support.letters import letter_headers
from tests.unit.sharegroups.cli.top.pictures import group_view
from tests.unit.sharegroups.insight.samples import groups, page, progress

pytestmark = pytest.mark.asyncio

T = TypeVar("T")

T0 = TopicPartition("t", 0)
DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS


class StubAdmin:
    """The calls that a source makes, answered from attributes; an exception among them is raised."""

    def __init__(self) -> None:
        self.listed: ListGroupsResult | KafkaError | None = groups(a=1)
        self.page: ProgressPage | KafkaError = page(progress("a", "t", lag=1))
        self.described: ShareGroupDescription | KafkaError = NetworkError("no coordinator")
        self.start = 0
        self.end = 3_000
        self.asked: list[tuple[int, int]] = []
        self.log: Mapping[TopicPartition, list[ReadRecord]] = {}
        self.unreadable: tuple[UnreadableRecords, ...] = ()
        self.dead_letter_topic: str | None = "dlq"
        self.log_dirs: dict[int, dict[str, LogDirDescription] | KafkaError] = {}

    async def list_groups(self, states: None, types: list[str]) -> ListGroupsResult:
        if self.listed is None:
            await asyncio.Event().wait()
        assert self.listed is not None
        return _given(self.listed)

    async def list_share_progress(self, names: Any = None, **more: Any) -> ProgressPage:
        return _given(self.page)

    async def describe_share_groups(self, names: list[str]) -> dict[str, Any]:
        return dict.fromkeys(names, self.described)

    async def explain_record(self, group: str, part: TopicPartition, first: int, last: int) -> RecordsExplained:
        self.asked.append((first, last))
        shown = RecordExplanation(first, last, "finished" if last < self.start else "available", "none", "")
        node = Node(1, "h", 1)
        return RecordsExplained(group, part, node, True, self.start, self.end, 0, self.end, 0, 9, 5, 1, (shown,))

    async def read_records(self, part: TopicPartition, offset: int, max_bytes: int = 0) -> RecordsRead:
        log = self.log.get(part, [])
        if offset >= len(log):
            raise OffsetOutOfRangeError("beyond")
        found = log[offset : offset + 1_000]
        return RecordsRead(tuple(found), self.unreadable, offset + len(found), 0, len(log))

    async def describe_configs(self, resources: list[ConfigResource]) -> dict[ConfigResource, Any]:
        return {each: {TOPIC_NAME: ConfigEntry("", self.dead_letter_topic, 0, False, False)}
                for each in resources}  # fmt: skip

    async def describe_log_dirs(self) -> Any:
        return self.log_dirs

    async def list_topics(self, names: list[str]) -> dict[str, TopicDescription]:
        parts = tuple(PartitionDescription(number, 1, 1) for number in range(2))
        return {name: TopicDescription(name, b"", parts) for name in names}

    async def list_offsets(self, specs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = {}
        for part, spec in specs.items():
            log = self.log.get(part, [])
            later = [record.offset for record in log if record.timestamp_ms >= spec]
            found[part] = len(log) if spec == OFFSET_LATEST else later[0] if later else -1
        return found


def _given(value: T | KafkaError) -> T:
    if isinstance(value, KafkaError):
        raise value
    return value


def source_of(admin: StubAdmin) -> ClusterSource:
    return ClusterSource(admin, lambda: NOW_MS)  # type: ignore[arg-type] # the calls that it makes


@pytest.mark.rule("CT-157")
async def test_an_overview_takes_one_answer_of_leaders_and_coordinators() -> None:
    admin = StubAdmin()
    found = await source_of(admin).overview()
    assert [(row.group, row.lag.text, row.members.text) for row in found.rows] == [("a", "1", "1")]
    assert (found.left_out, found.problems) == (0, [])


@pytest.mark.rule("CT-157", "CT-159")
async def test_coordinators_that_are_late_or_fail_leave_the_members_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_source, "LISTED_S", 0.0)
    admin = StubAdmin()
    for listed, said in ((None, "have not answered yet"), (NetworkError("gone"), "not known: gone")):
        admin.listed = listed
        found = await source_of(admin).overview()
        assert [row.members.text for row in found.rows] == ["?"]
        assert said in found.problems[0]
    admin.listed = groups(failed="shard 3 has no owner", a=1)
    assert "shard 3 has no owner" in (await source_of(admin).overview()).problems[0]


@pytest.mark.rule("CT-159")
async def test_leaders_that_do_not_answer_are_named_and_no_leader_at_all_is_an_error() -> None:
    admin = StubAdmin()
    admin.page = page(progress("a", "t", lag=1), missing=("n:1",), total=9)
    found = await source_of(admin).overview()
    assert ("Node n:1 did not answer" in found.problems[0], found.left_out) == (True, 8)
    admin.page = NetworkError("no node")
    with pytest.raises(NetworkError):
        await source_of(admin).overview()


@pytest.mark.rule("CT-158")
async def test_a_group_has_its_assigned_partitions_and_the_records_from_its_start_on() -> None:
    admin = StubAdmin()
    described = group_view().description
    assert described is not None
    admin.described, admin.start = described, 2_500
    admin.page = page(progress("workers", "orders", lag=1)._replace(partition=0))
    source = source_of(admin)
    found = await source.group("workers", [TopicPartition("orders", number) for number in range(99)])
    assert {part.partition: row is None for part, row in found.progress.items()} == {0: False, 1: True}
    assert len(found.explained) == STRIPS_MAX
    assert admin.asked.count((0, 999)) == admin.asked.count((2_500, 3_499)) == STRIPS_MAX
    admin.asked.clear()
    await source.group("workers", [TopicPartition("orders", 0)])
    assert admin.asked == [(2_500, 3_499)], "the start is remembered"


@pytest.mark.rule("CT-158", "CT-159")
async def test_a_group_is_shown_with_what_is_known_of_it() -> None:
    admin = StubAdmin()
    found = await source_of(admin).group("a", [])
    assert (found.description, len(found.progress), found.problems) == (None, 1, ["no coordinator"])
    admin.page = NetworkError("no leader")
    with pytest.raises(NetworkError):
        await source_of(admin).group("a", [])


@pytest.mark.rule("CT-158")
async def test_a_record_is_the_first_unfinished_one_or_that_of_an_offset_with_its_content() -> None:
    admin = StubAdmin()
    admin.log = {T0: [ReadRecord(offset, 0, None, None, b"v%d" % offset) for offset in range(5)]}
    admin.start, admin.end = 3, 5
    found = await source_of(admin).record("a", T0, None)
    assert (found.offset, found.record and found.record.value) == (3, b"v3")
    assert (await source_of(admin).record("a", T0, 9)).problem == "The log has no record at this offset."
    admin.unreadable = (UnreadableRecords(1, 1, KafkaError("damaged")),)
    admin.log = {T0: [*admin.log[T0][:1], ReadRecord(2, 0, None, None, b""), *admin.log[T0][2:]]}
    assert "damaged" in (await source_of(admin).record("a", T0, 1)).problem


@pytest.mark.rule("CT-158")
async def test_dead_letters_of_a_day_are_counted_by_cause_and_reason() -> None:
    def letter(offset: int, age_ms: int, group: str, reason: str) -> ReadRecord:
        headers = tuple(letter_headers(offset, group=group, reason=reason.encode()))
        return ReadRecord(offset, NOW_MS - age_ms, None, f"{group}:orders:0:{offset}".encode(), None, headers)

    admin = StubAdmin()
    admin.log = {
        TopicPartition("dlq", 0): [letter(0, 2 * DAY_MS, "a", "old"), letter(1, 9, "a", "x"), letter(2, 8, "b", "x")],
        TopicPartition("dlq", 1): [letter(0, 7, "a", "x\nmore"), letter(1, 5, "a", "\x1b[2J")],
    }
    found = await source_of(admin).failures("a")
    assert [(count, reason) for count, _, reason, _ in found.rows] == [(2, "x"), (1, "\\x1b[2J")]
    assert (found.topic, found.letters, found.is_cut, found.problem) == ("dlq", 3, False, "")
    many = [letter(offset, 9, "a", "x") for offset in range(LETTERS_MAX + 1)]
    admin.log = {TopicPartition("dlq", 0): many}
    found = await source_of(admin).failures("a")
    assert (found.letters, found.is_cut) == (LETTERS_MAX, True)
    admin.dead_letter_topic = None
    assert "has no dead-letter topic" in (await source_of(admin).failures("a")).problem


@pytest.mark.rule("CT-158")
async def test_topics_are_summed_over_leaders_the_largest_first_and_a_silent_leader_is_named() -> None:
    """Of CT-158 this shows the figures of (e); test_screens.py shows the key and the screen, test_topic_sizes.py
    several store nodes, and estimates."""
    admin = StubAdmin()

    def store(*logs: tuple[str, int, int, int], used: int | None = 3 << 20) -> dict[str, LogDirDescription]:
        infos = {
            TopicPartition(topic, number): ReplicaInfo(size, 0, False, records, NOW_MS - size * 50, False)
            for topic, number, size, records in logs
        }
        return {"store-1": LogDirDescription(None, infos, 4 << 20, 1 << 20, used)}

    admin.log_dirs = {
        1: store(("small", 0, 10, 1), ("other", 0, 10, 2), ("large", 0, 600, 6)),
        2: store(("large", 1, 400, 4), used=None),
        3: NetworkError("it is silent"),
    }
    found = await source_of(admin).memory()
    assert [(name, partitions, records) for name, partitions, records, *_ in found.topics] == [
        ("large", 2, "10"),
        ("other", 1, "2"),
        ("small", 1, "1"),
    ]
    assert found.topics[0][3] == "1000 B"
    assert found.topics[0][4].endswith("(30.0 s)"), "the oldest of both logs"
    assert found.stores == [("store-1", "3.0 MiB", "4.0 MiB", "1.0 MiB (75% used)")]
    assert found.problems == ["Sizes of what node 3 leads are not known. it is silent"]
