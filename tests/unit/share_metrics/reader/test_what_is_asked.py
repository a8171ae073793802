"""A reader's commands to its store: few short ones for a plan, whole pages for rows, retries while a slot moves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from redis.exceptions import ClusterDownError, MasterDownError, ResponseError, TryAgainError

from share_metrics.reader import EntryId, Kind, Position, Reader, ReadOptions, StoreUnreachableError
from share_metrics.reader.offsets import to_offsets
from share_metrics.reader.scripts import TIP, WALK
from share_metrics.reader.store import Store
from tests.support.pipeline_entries import STREAM, MemoryStream, epochs

from .memory_store import MemoryStore

BEGIN = {STREAM: Position(EntryId(0, 0), 0)}


class Asked(MemoryStore):
    """Records the commands that it gets, by round trip."""

    def __init__(self, stream: MemoryStream) -> None:
        super().__init__(stream)
        self.trips: list[list[tuple[Any, ...]]] = []

    def pipeline(self, commands: Sequence[tuple[str, Any]]) -> list[Any]:
        self.trips.append([tuple(words) for _, words in commands])
        return super().pipeline(commands)

    @property
    def words(self) -> list[tuple[Any, ...]]:
        """The commands of all round trips."""
        return [words for trip in self.trips for words in trip]


@pytest.mark.rule("PM-8", "PM-86")
def test_the_tips_of_all_streams_are_one_question_each_in_one_trip() -> None:
    store = Asked(MemoryStream(epochs(5)))
    reader = Reader(store, Kind.SHARE_STATE)
    tips = reader.tips([STREAM] * 50)
    assert store.trips == [[("EVAL_RO", TIP, 1, STREAM)] * 50]
    store.trips.clear()
    plan = reader.plan({STREAM: Position(EntryId(1, 4), 5)}, tips)[STREAM]
    assert (plan.ranges, store.trips) == ([], [])  # an idle trigger sends nothing more


@pytest.mark.rule("PM-8")
def test_the_offsets_of_fifty_streams_are_a_few_kilobytes() -> None:
    at = Position(EntryId(123_456, 123_456_789), 123_456_789)
    stored = json.dumps(to_offsets({f"{{sgs:{number}}}:log": at for number in range(50)}))
    assert len(stored) <= 50 * 80
    assert {type(value) for offset in json.loads(stored).values() for value in offset.values()} == {str, int}


@pytest.mark.rule("PM-9")
@pytest.mark.parametrize("limit", [None, 150])
def test_a_plan_asks_for_ends_and_never_for_pages(limit: int | None) -> None:
    """It requests the id of each epoch's first entry and, for epochs that have ended, the last one below the next
    epoch's claim."""
    store = Asked(MemoryStream(epochs(100, 100, 100)))
    reader = Reader(store, Kind.SHARE_STATE)
    plan = reader.plan(BEGIN, reader.tips([STREAM]), limit=limit)[STREAM]
    assert sum(piece.entries for piece in plan.ranges) == (limit or 300)
    walks = [words for words in store.words if words[:2] == ("EVAL_RO", WALK)]
    assert {words[-1] for words in walks} == {1}
    ends = [words for words in store.words if words[0] != "EVAL_RO"]
    assert ends == [("XREVRANGE", STREAM, f"({epoch + 1}-0", f"{epoch}-0", "COUNT", 1) for epoch in (1, 2)]
    assert len(walks) == (3 if limit is None else 2)


@pytest.mark.rule("PM-10")
def test_a_topic_log_is_planned_in_ranges_that_the_store_counts() -> None:
    """The ids have holes, so the end of a range with a given number of entries cannot be computed."""
    stream = MemoryStream([EntryId(7, 10 * number) for number in range(5_000)])
    store = Asked(stream)
    reader = Reader(store, Kind.LOG_META)
    plan = reader.plan(BEGIN, reader.tips([STREAM]))[STREAM]
    assert [piece.entries for piece in plan.ranges] == [4_096, 904]
    assert [one for piece in plan.ranges for one in stream.within(piece)] == stream.ids
    assert {words[0] for words in store.words} == {"EVAL_RO"}


@pytest.mark.rule("PM-5", "PM-6", "SR-27")
def test_a_page_is_one_range_of_so_many_entries_and_one_batch() -> None:
    store = Asked(MemoryStream(epochs(10)))
    reader = Reader(store, Kind.SHARE_STATE, ReadOptions(page_count=4))
    plan = reader.plan(BEGIN, reader.tips([STREAM]))[STREAM]
    store.trips.clear()
    assert [batch.num_rows for batch in reader.read(plan.ranges)] == [4, 4, 2]
    assert store.words == [
        ("XRANGE", STREAM, f"({after}", "1-9", "COUNT", 4) for after in ("0-18446744073709551615", "1-3", "1-7")
    ]


@pytest.mark.rule("PM-5")
def test_pages_of_short_ranges_come_together_and_fewer_than_two_of_them_in_a_batch() -> None:
    """A separate batch for each of many short epochs would cost more than its rows."""
    store = MemoryStore(MemoryStream(epochs(3, 3, 3, 4, 1)))
    reader = Reader(store, Kind.SHARE_STATE, ReadOptions(page_count=4))
    plan = reader.plan(BEGIN, reader.tips([STREAM]))[STREAM]
    assert [batch.num_rows for batch in reader.read(plan.ranges)] == [6, 7, 1]


@pytest.mark.rule("PM-87")
@pytest.mark.parametrize("entries", [160, 1_600])
def test_a_reader_holds_less_than_two_pages_however_much_it_reads(entries: int) -> None:
    store = MemoryStore(MemoryStream(epochs(*[entries // 20] * 20)))
    pages, taken = 0, 0
    held: list[int] = []

    def before_page() -> None:
        nonlocal pages
        held.append(8 * pages - taken)
        pages += 1

    store.before_page = before_page
    reader = Reader(store, Kind.SHARE_STATE, ReadOptions(page_count=8))
    plan = reader.plan(BEGIN, reader.tips([STREAM]))[STREAM]
    for batch in reader.read(plan.ranges):
        assert batch.num_rows < 16
        taken += batch.num_rows
    assert taken == entries
    assert len(held) == entries // 8
    assert max(held) <= 8


class Moving(Store):
    """A node that fails with `error` as many times as `times` says, and then succeeds."""

    def __init__(self, error: Exception, times: int) -> None:
        super().__init__("redis+cluster://h:1", pause=lambda _: None)
        self.left = times
        self.error = error
        self.lookups = 0

    def _slot_map(self) -> list[str]:
        self.lookups += 1
        return ["h:1"] * 16_384

    def _run(self, node: str, commands: Sequence[Any]) -> list[Any]:
        self.left -= 1
        return [self.error if self.left >= 0 else b"found" for _ in commands]


@pytest.mark.rule("PM-14")
@pytest.mark.parametrize(
    ("error", "why"),
    [
        (TryAgainError("TRYAGAIN"), "its slot kept moving through 20 attempts"),
        (ClusterDownError("CLUSTERDOWN"), "its node did not serve through 20 attempts: CLUSTERDOWN"),
        (MasterDownError("MASTERDOWN"), "its node did not serve through 20 attempts: MASTERDOWN"),
        (ResponseError("BUSY a script runs"), "its node did not serve through 20 attempts: BUSY a script runs"),
    ],
)
def test_a_slot_between_two_nodes_causes_another_lookup_and_request(error: Exception, why: str) -> None:
    store = Moving(error, 3)
    assert store.call("k", "GET", "k") == b"found"
    assert store.lookups == 4
    with pytest.raises(StoreUnreachableError, match=why):
        Moving(error, 100).call("k", "GET", "k")


@pytest.mark.rule("PM-5")
@pytest.mark.parametrize(
    "url",
    [
        "redis://h:1",
        "rediss://h:1",
        "unix:///s",
        "redis+cluster://h:1",
        "rediss+cluster://h:1",
        "redis+sentinel://h:1/m",
    ],
)
def test_a_store_is_one_server_a_cluster_or_behind_sentinels(url: str) -> None:
    with Store(url):
        pass
    for wrong in (url.replace("redis", "http", 1).replace("unix", "tcp"), url.replace("://", "+ring://")):
        with pytest.raises(ValueError, match=r"store URL scheme .* is not known"):
            Store(wrong)


@pytest.mark.rule("PM-5")
@pytest.mark.parametrize("url", ["redis://u:secret@h:1", "redis://h:1?password=secret"])
def test_a_password_in_the_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="passwordEnv") as reported:
        Store(url)
    assert "secret" not in str(reported.value)


@pytest.mark.rule("PM-5")
def test_as_many_streams_are_read_as_the_option_says() -> None:
    """Without the option the store provides the number; with it, no command is sent to the store."""
    for kind, tag in ((Kind.SHARE_STATE, "sgs"), (Kind.GROUP, "gc")):
        store = Asked(MemoryStream([]))
        assert Reader(store, kind).streams(3) == [f"{{{tag}:{number}}}:log" for number in range(3)]
        assert store.trips == []
