"""A leader's sweep of long-open transactions: which records it asks for, when, and which markers it then writes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from kip932.errors import CoordinatorNotAvailableError
from kip932.ids import TopicIdPartition
from partition_leader.topic_log.core.transactions import LATE_MS, OpenTransaction
from partition_leader.transaction_sweep import CONSULT_AGAIN_MS, CONSULTED_MAX, LOGGED_MAX, TransactionSweep
from tests.support.clocks import HandClock
from tests.support.virtual_time import virtual
from transaction_coordinator.core.transaction import Fate, Identity

P, Q = TopicIdPartition(b"p" * 16, 0), TopicIdPartition(b"p" * 16, 1)


class Leader:
    """Logs with open transactions, the markers written to them, and the transaction records that decide the outcome."""

    def __init__(self, *partitions: TopicIdPartition) -> None:
        self.clock = HandClock()
        self.written: list[tuple[TopicIdPartition, int, bool]] = []
        self.asked: list[tuple[str, Identity]] = []
        self.seen_ms: list[int] = []
        self.fate: tuple[Fate, int] | CoordinatorNotAvailableError = Fate.WAITS, 60_000
        self.logs = {partition: _Log(self, partition) for partition in partitions}
        self.sweeper = TransactionSweep(self, self, self.clock)  # type: ignore[arg-type]

    def led(self) -> dict[TopicIdPartition, Any]:
        return {partition: SimpleNamespace(log=log) for partition, log in self.logs.items()}

    def log(self, partition: TopicIdPartition) -> Any:
        return self.logs[partition]

    async def resolve(self, transactional_id: str, identity: Identity, open_ms: int) -> tuple[Fate, int]:
        self.asked.append((transactional_id, identity))
        self.seen_ms.append(open_ms)
        if isinstance(self.fate, CoordinatorNotAvailableError):
            raise self.fate
        return self.fate

    async def sweep(self, later_ms: int = 1_000) -> int:
        """Sweep once, `later_ms` after the last sweep; return how many transaction records were read."""
        self.clock.ms += later_ms
        self.asked.clear()
        await self.sweeper.sweep()
        return len(self.asked)


class _Log:
    def __init__(self, leader: Leader, partition: TopicIdPartition) -> None:
        self.open: list[OpenTransaction] = []
        self.transactions = self
        self._leader, self._partition = leader, partition

    async def end(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        del epoch
        self._leader.written.append((self._partition, producer_id, commit))
        self.open = [one for one in self.open if one.producer_id != producer_id]


def opened(producer_id: int, epoch: int = 0, begun_ms: int = 0) -> OpenTransaction:
    return OpenTransaction(producer_id, epoch, 0, f"tx{producer_id}", begun_ms, begun_ms)


@pytest.mark.rule("CM-155")
@virtual
async def test_what_is_open_twice_is_asked_for_and_then_seldom() -> None:
    leader = Leader(P, Q)
    leader.logs[P].open = leader.logs[Q].open = [opened(1)]
    assert await leader.sweep() == 0
    assert await leader.sweep() == 1, "one record for both partitions"
    assert [await leader.sweep() for _ in range(5)] == [0, 0, 0, 0, 1]
    leader.fate = Fate.WAITS, 1_500
    assert await leader.sweep(CONSULT_AGAIN_MS) == 1
    assert [await leader.sweep(), await leader.sweep()] == [0, 1], "its time-out comes first"
    assert leader.written == []
    assert leader.seen_ms == [1_000, 6_000, 11_000, 13_000], "for how long it is seen here, by a clock that is not set"


@pytest.mark.rule("CM-155", "CM-156")
@pytest.mark.parametrize("commit", [True, False])
def test_what_was_decided_gets_its_marker_in_every_log(commit: bool) -> None:
    @virtual
    async def played() -> None:
        leader = Leader(P, Q)
        leader.logs[P].open, leader.logs[Q].open = [opened(1), opened(2)], [opened(1)]
        await leader.sweep()
        leader.fate = (Fate.COMMITTED if commit else Fate.ABORTED), 0
        await leader.sweep()
        assert sorted(leader.written) == [(P, 1, commit), (P, 2, commit), (Q, 1, commit)]
        assert await leader.sweep(CONSULT_AGAIN_MS) == 0

    played()


@pytest.mark.rule("CM-155")
@virtual
async def test_a_store_that_does_not_answer_is_asked_again_later() -> None:
    leader = Leader(P)
    leader.logs[P].open = [opened(1)]
    leader.fate = CoordinatorNotAvailableError("away")
    await leader.sweep()
    assert await leader.sweep() == 1
    assert await leader.sweep() == 0
    leader.fate = Fate.ABORTED, 0
    assert await leader.sweep(CONSULT_AGAIN_MS) == 1
    assert leader.written == [(P, 1, False)]


@pytest.mark.rule("CM-155", "CM-62")
@virtual
async def test_a_sweep_asks_for_a_bounded_number_and_comes_to_all() -> None:
    leader = Leader(P)
    leader.logs[P].open = [opened(number) for number in range(1, 2 * CONSULTED_MAX + 1)]
    await leader.sweep()
    assert await leader.sweep() == CONSULTED_MAX
    first = set(leader.asked)
    assert await leader.sweep() == CONSULTED_MAX
    assert len(first | set(leader.asked)) == 2 * CONSULTED_MAX


@pytest.mark.rule("CM-159")
@virtual
async def test_what_is_open_for_long_is_reported_by_name_and_again_when_that_has_doubled() -> None:
    leader = Leader(P, Q)
    begun_ms = leader.clock.wall_ms()
    for log in leader.logs.values():
        log.open = [opened(1, 4, begun_ms)]
    reported: list[tuple[int, object]] = []
    for second in range(1, 125):
        with capture_logs() as lines:
            await leader.sweep()
        reported += [(second, line) for line in lines if "long_transaction" in line["event"]]
    assert [second for second, _ in reported] == [30, 60, 120]
    line: Any = reported[0][1]
    assert (line["transactional_id"], line["producer_epoch"], line["open_s"]) == ("tx1", 4, 30)
    assert (line["partitions"], line["examples"]) == (2, [P.text, Q.text])


@pytest.mark.rule("CM-159")
@virtual
async def test_of_many_the_longest_are_logged_by_name_and_the_others_counted() -> None:
    leader = Leader(P)
    begun_ms = leader.clock.wall_ms()
    leader.logs[P].open = [opened(number, 0, begun_ms - number) for number in range(1, LOGGED_MAX + 4)]
    with capture_logs() as lines:
        await leader.sweep(LATE_MS)
    names = [line["transactional_id"] for line in lines if line["event"] == "long_transaction_open"]
    assert names == [f"tx{number}" for number in range(LOGGED_MAX + 3, 3, -1)]
    assert [line["transactions"] for line in lines if line["event"] == "further_long_transactions_open"] == [3]
    with capture_logs() as lines:
        await leader.sweep()
    assert lines == []
