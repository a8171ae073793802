"""Groups that read their own dead-letter topic are told of, once for as long as they do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from group_coordinator.letter_loops import TOLD_MAX, LetterLoops
from tests.support.virtual_time import virtual


class Groups:
    """Groups of two shards, with what they read and their dead-letter topics. A `Shards`."""

    def __init__(self) -> None:
        self.reads: dict[str, set[str]] = {}
        self.queues: dict[str, str] = {}
        self.loops = LetterLoops(self, lambda group_id: self.queues.get(group_id, ""))  # type: ignore[arg-type]

    def serving(self) -> list[tuple[int, Any]]:
        shards: list[dict[str, Any]] = [{}, {}]
        for number, (group_id, names) in enumerate(self.reads.items()):
            shards[number % 2][group_id] = SimpleNamespace(subscription=SimpleNamespace(names=names))
        return [(number, SimpleNamespace(groups=groups)) for number, groups in enumerate(shards)]

    async def told(self) -> list[tuple[str, str]]:
        """Which groups the next look tells of, with their topic."""
        with capture_logs() as lines:
            await self.loops.look()
        assert all(line["log_level"] == "warning" for line in lines)
        return [(line["group"], line["dead_letter_topic"]) for line in lines if "group" in line]


@pytest.mark.rule("PL-903")
@virtual
async def test_a_loop_is_told_once_and_again_when_it_comes_back_or_changes() -> None:
    groups = Groups()
    groups.reads = {"a": {"orders", "dlq.a"}, "b": {"orders"}, "empty": set()}
    groups.queues = {"a": "dlq.a", "b": "dlq.b", "empty": "dlq.c"}
    assert await groups.told() == [("a", "dlq.a")]
    assert await groups.told() == []
    groups.reads["b"].add("dlq.b")
    assert await groups.told() == [("b", "dlq.b")], "a member subscribed to it later"
    groups.queues["a"] = "orders"
    assert await groups.told() == [("a", "orders")], "another loop"
    groups.queues["a"] = ""
    assert await groups.told() == []
    groups.queues["a"] = "orders"
    assert await groups.told() == [("a", "orders")]


@pytest.mark.rule("PL-903")
@virtual
async def test_many_loops_are_told_up_to_a_bound_and_then_by_their_number() -> None:
    groups = Groups()
    groups.reads = {f"g{number}": {"dlq"} for number in range(TOLD_MAX + 3)}
    groups.queues = dict.fromkeys(groups.reads, "dlq")
    with capture_logs() as lines:
        await groups.loops.look()
        await groups.loops.look()
    assert len(lines) == TOLD_MAX + 1
    assert lines[-1] == {
        "event": "more groups read their own dead-letter topics", "groups": 3, "log_level": "warning",
    }  # fmt: skip
