"""A group that reads its own dead-letter topic is logged, once for as long as it does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from group_coordinator.letter_loops import LOGGED_MAX, DeadLetterCycles
from tests.support.virtual_time import virtual


class Groups:
    """Groups in two shards, with the topics that they read and their dead-letter topics. Stands in for `Shards`."""

    def __init__(self) -> None:
        self.reads: dict[str, set[str]] = {}
        self.queues: dict[str, str] = {}
        self.loops = DeadLetterCycles(self, lambda group_id: self.queues.get(group_id, ""))  # type: ignore[arg-type]

    def serving(self) -> list[tuple[int, Any]]:
        shards: list[dict[str, Any]] = [{}, {}]
        for number, (group_id, names) in enumerate(self.reads.items()):
            shards[number % 2][group_id] = SimpleNamespace(subscription=SimpleNamespace(names=names))
        return [(number, SimpleNamespace(groups=groups)) for number, groups in enumerate(shards)]

    async def logged(self) -> list[tuple[str, str]]:
        """Return the groups that the next check logs, each with its dead-letter topic."""
        with capture_logs() as lines:
            await self.loops.check()
        assert all(line["log_level"] == "warning" for line in lines)
        return [(line["group"], line["dead_letter_topic"]) for line in lines if "group" in line]

    async def circles(self) -> list[list[str]]:
        """Return the circles of several topics that the next check logs."""
        with capture_logs() as lines:
            await self.loops.check()
        return [line["circle"] for line in lines if line["event"] == "dead_letter_circle_found"]


@pytest.mark.rule("PL-903")
@virtual
async def test_a_loop_is_reported_once_and_again_when_it_comes_back_or_changes() -> None:
    groups = Groups()
    groups.reads = {"a": {"orders", "dlq.a"}, "b": {"orders"}, "empty": set()}
    groups.queues = {"a": "dlq.a", "b": "dlq.b", "empty": "dlq.c"}
    assert await groups.logged() == [("a", "dlq.a")]
    assert await groups.logged() == []
    groups.reads["b"].add("dlq.b")
    assert await groups.logged() == [("b", "dlq.b")], "a member subscribed to it later"
    groups.queues["a"] = "orders"
    assert await groups.logged() == [("a", "orders")], "another loop"
    groups.queues["a"] = ""
    assert await groups.logged() == []
    groups.queues["a"] = "orders"
    assert await groups.logged() == [("a", "orders")]


@pytest.mark.rule("PL-903")
@virtual
async def test_many_loops_are_reported_up_to_a_bound_and_then_by_their_number() -> None:
    groups = Groups()
    groups.reads = {f"g{number}": {"dlq"} for number in range(LOGGED_MAX + 3)}
    groups.queues = dict.fromkeys(groups.reads, "dlq")
    with capture_logs() as lines:
        await groups.loops.check()
        await groups.loops.check()
    assert len(lines) == LOGGED_MAX + 1
    assert lines[-1] == {
        "event": "further_dead_letter_circles_found", "groups": 3,
        "effect": f"only the first {LOGGED_MAX} circles are logged by name", "log_level": "warning",
    }  # fmt: skip


@pytest.mark.rule("PL-903")
@virtual
async def test_a_longer_circle_is_reported_once_with_all_its_groups_and_what_only_leads_to_it_is_not() -> None:
    groups = Groups()
    groups.reads = {"a": {"dlq.c", "t"}, "b": {"dlq.a"}, "c": {"dlq.b"}, "into": {"t"}, "out": {"dlq.c"}}
    groups.queues = {"a": "dlq.a", "b": "dlq.b", "into": "dlq.a", "out": "dlq.out"}
    assert await groups.circles() == [], "c has no queue yet"
    groups.queues["c"] = "dlq.c"
    way = [
        "a reads dlq.c, its dead letters go to dlq.a",
        "b reads dlq.a, its dead letters go to dlq.b",
        "c reads dlq.b, its dead letters go to dlq.c",
    ]
    assert await groups.circles() == [way]
    assert await groups.circles() == []
    groups.reads["b"] = {"t"}
    assert await groups.circles() == []
    groups.reads["b"] = {"dlq.a"}
    assert await groups.circles() == [way], "it is closed again"


@pytest.mark.rule("PL-903")
def test_a_queue_that_would_close_a_circle_is_reported_with_the_way_round() -> None:
    groups = Groups()
    groups.reads = {"a": {"dlq.c", "t"}, "b": {"dlq.a"}, "c": {"dlq.b"}}
    groups.queues = {"a": "dlq.a", "b": "dlq.b"}
    closed_by = groups.loops.closed_by
    assert closed_by("c", "dlq.c") == (
        "dead-letter topics would lead in a circle: group 'a' reads 'dlq.c' and has 'dlq.a', group 'b' reads 'dlq.a' "
        "and has 'dlq.b', which group 'c' reads; a record that each of them rejects would be delivered to them again "
        "and again"
    )
    assert closed_by("c", "dlq.b").startswith("group 'c' reads that topic")
    assert closed_by("c", "dlq.d") == ""
    assert closed_by("b", "dlq.t") == ""
    assert closed_by("unknown", "dlq.a") == ""
