"""The notes on skipped entries of a stream: the commands sent to the store, and the meaning of its replies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from shard_runtime.record_log.protocol import LogError, StoreUnavailableError, StreamId
from shard_runtime.record_log.redis.connection import ErrorReply
from shard_runtime.record_log.redis.query_connection import QueryConnections
from shard_runtime.record_log.redis.skipped_entries import from_note, read_skips, to_note, write_skip
from shard_runtime.record_log.settlements import Choice, Settlement


@dataclass
class Answer:
    replies: list[Any]
    acked: int = 0


@dataclass
class Queries:
    """Returns the given replies in turn, and records the commands."""

    answers: list[Answer]
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    async def repeat(self, _: str, commands: Sequence[tuple[Any, ...]], wait: int = 0) -> Answer:
        self.asked += [(*command, wait) for command in commands]
        return self.answers.pop(0)


def asking(*answers: Answer) -> tuple[Queries, QueryConnections]:
    queries = Queries(list(answers))
    return queries, cast("QueryConnections", queries)


def test_each_noted_entry_is_read_with_its_settlement() -> None:
    dropped = Settlement(Choice.DROP, "kim", "gone", 7)
    _, queries = asking(Answer([[b"0", [b"1-2", b"1780000000", b"3-4", to_note(dropped).encode()]]]))
    assert asyncio.run(read_skips(queries, "k")) == {
        StreamId(1, 2): Settlement(at_ms=1_780_000_000_000),
        StreamId(3, 4): dropped,
    }


def test_a_note_has_the_time_of_the_store_and_waits_for_replicas() -> None:
    asked, queries = asking(Answer([[b"1780000000", b"5"]]), Answer([1], acked=2))
    asyncio.run(write_skip(queries, "k", StreamId(1, 2), 2, Settlement(by="kim")))
    note = to_note(Settlement(by="kim", at_ms=1_780_000_000_000))
    assert asked.asked == [("TIME", 0), ("HSET", "k", "1-2", note, 2)]


def test_a_note_on_too_few_replicas_and_a_refused_one_are_errors() -> None:
    _, queries = asking(Answer([[b"1", b"5"]]), Answer([1], acked=1))
    with pytest.raises(StoreUnavailableError, match="on 1 replicas, not 2"):
        asyncio.run(write_skip(queries, "k", StreamId(1, 2), 2, Settlement(by="kim")))
    _, queries = asking(Answer([[b"1", b"5"]]), Answer([ErrorReply("OOM", "full")]))
    with pytest.raises(LogError, match="noting 1-2 in k"):
        asyncio.run(write_skip(queries, "k", StreamId(1, 2), 0, Settlement()))


@pytest.mark.rule("CM-114")
@pytest.mark.parametrize("choice", Choice)
def test_a_note_says_what_was_chosen_by_whom_why_and_when(choice: Choice) -> None:
    settled = Settlement(choice, "kim@ops-1", "the snapshot is gone \u2013 see #17", 1_780_000_000_123)
    assert from_note(to_note(settled).encode()) == settled


@pytest.mark.rule("CM-114")
@pytest.mark.parametrize(
    ("note", "at_ms"),
    [(b"1780000000", 1_780_000_000_000), (b'{"choice": "mend", "at_ms": 5}', 5), (b"", 0), (b"\xff", 0), (b"[1]", 0)],
)
def test_a_note_of_another_build_goes_on_without_the_entry(note: bytes, at_ms: int) -> None:
    assert from_note(note) == Settlement(Choice.SKIP, at_ms=at_ms)
