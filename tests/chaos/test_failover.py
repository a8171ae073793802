"""The checks for the experiments on fail-overs of the store find their violations in histories."""

from __future__ import annotations

import pytest

from tests.chaos.experiments.failover import served_without_both, went_on_without_the_store
from tests.chaos.history import Acknowledged, Event, Fault, Produced

KILLED: list[Event] = [Fault("SIGKILL", "store-0", 100), Fault("SIGKILL", "partition_leader-1", 4_000)]
BACK: list[Event] = [Fault("started", "store-0", 9_000), Fault("started", "partition_leader-1", 9_500)]


def acked(partition: int, sent_ms: int, error: str = "") -> Acknowledged:
    return Acknowledged("w1", "t", partition, 0, "ACCEPT", 1, error, sent_ms, sent_ms + 5)


def history(*acks: Acknowledged) -> list[Event]:
    """Return a history: both partitions are served before the kills, and the producer works until after them."""
    events = [acked(0, 10), acked(1, 20), *KILLED, *acks, *BACK, Produced("t", 0, 9, "v9", 12_000)]
    return sorted(events, key=lambda event: event.at_ms)


@pytest.mark.parametrize(
    ("acks", "shown"),
    [
        pytest.param([acked(0, 5_000), acked(1, 7_000)], True, id="all served in between"),
        pytest.param([acked(0, 5_000), acked(1, 9_600)], False, id="one only when both were back"),
        pytest.param([acked(0, 5_000), acked(1, 3_000)], False, id="one only before the leader was killed"),
        pytest.param([acked(0, 5_000), acked(1, 7_000, "NOT_LEADER_OR_FOLLOWER")], False, id="refused"),
        pytest.param([], False, id="nothing served"),
    ],
)
@pytest.mark.rule("CM-4")
def test_a_leader_is_replaced_only_if_every_partition_was_served_before_the_master_was_back(
    acks: list[Acknowledged], shown: bool
) -> None:
    assert (list(served_without_both(history(*acks))) == []) == shown


@pytest.mark.parametrize(("acks", "shown"), [([acked(0, 5_000)], True), ([acked(0, 9_600)], False), ([], False)])
def test_work_goes_on_without_the_store_only_if_something_was_confirmed_meanwhile(
    acks: list[Acknowledged], shown: bool
) -> None:
    assert (list(went_on_without_the_store(history(*acks))) == []) == shown
