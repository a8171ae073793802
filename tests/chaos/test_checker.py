"""The checkers find their violations, and pass a history that has none."""

import pytest

from partition_leader.share_partition.core.status import DropReason
from tests.chaos import checker
from tests.chaos.checker import counts_rise
from tests.chaos.history import Acknowledged, Configured, Delivered, Dropped, Event, Fault, Observed, Produced


def judge(events: list[Event]) -> list[str]:
    """Return the violations in a history of a group with short locks."""
    return checker.judge([Configured("g", 1, 5, 0), *events])


def produced(offset: int, value: str = "", at_ms: int = 1) -> Produced:
    return Produced("t", 0, offset, value or f"v{offset}", at_ms)


def delivered(offset: int, *, worker: str = "w1", count: int = 1, at_ms: int = 10, value: str = "") -> Delivered:
    return Delivered(worker, "t", 0, offset, value or f"v{offset}", count, at_ms - 1, at_ms)


def acked(
    offset: int, *, worker: str = "w1", kind: str = "ACCEPT", count: int = 1, error: str = "", at_ms: int = 20
) -> Acknowledged:
    return Acknowledged(worker, "t", 0, offset, kind, count, error, at_ms - 1, at_ms)


def observed(start: int, lag: int, at_ms: int = 100) -> Observed:
    return Observed("t", 0, start, lag, at_ms, at_ms - 1)


def test_a_clean_history_passes() -> None:
    assert judge([produced(0), delivered(0), acked(0), observed(1, 0)]) == []


@pytest.mark.parametrize(
    ("rule", "events"),
    [
        pytest.param("INV-1", [produced(0), produced(1), delivered(1), acked(1), observed(2, 0)], id="never delivered"),
        pytest.param("not drained: 1 ", [produced(0), observed(0, 1)], id="perhaps delivered later"),
        pytest.param("not drained: 1 ", [produced(0), delivered(0), observed(0, 1)], id="never finished"),
        pytest.param("not drained: 1 ", [produced(0), delivered(0)], id="never observed"),
        pytest.param("not drained: 1 ", [produced(0, at_ms=200), observed(0, 0)], id="no observation since"),
        pytest.param("INV-2", [produced(0), delivered(0, value="other"), acked(0)], id="another value"),
        pytest.param("INV-2", [produced(0), produced(0, "v9"), delivered(0), acked(0)], id="offset used twice"),
        pytest.param("INV-2", [produced(0, "a"), delivered(0, value="a"), produced(1, "a")], id="retry stored twice"),
        pytest.param(
            "INV-4",
            [produced(0), delivered(0), acked(0), delivered(0, count=2, at_ms=30, worker="w2")],
            id="redelivered",
        ),
        pytest.param(
            "INV-4", [produced(0), delivered(0), acked(0), delivered(0, at_ms=5_000, worker="w2")], id="count forgotten"
        ),
        pytest.param("INV-6", [produced(0), delivered(0), acked(0), acked(0, worker="w9")], id="never had it"),
        pytest.param(
            "INV-5",
            [produced(0), delivered(0), acked(0), delivered(0, worker="w2"), acked(0, worker="w2", kind="REJECT")],
            id="finished twice",
        ),
        pytest.param(
            "INV-5",
            [
                produced(0),
                delivered(0),
                acked(0),
                delivered(0, worker="w2"),
                acked(0, worker="w2", kind="REJECT"),
                observed(0, 1, 30),
                observed(1, 0),
            ],
            id="finished twice above the start offset",
        ),
        pytest.param("INV-9", [observed(5, 0), observed(4, 0, at_ms=101)], id="start offset fell"),
        pytest.param("INV-9", [produced(0), observed(1, 0)], id="skipped"),
        pytest.param("INV-19", [observed(5, 3)], id="not drained"),
    ],
)
@pytest.mark.rule("INV-1", "INV-2", "INV-4", "INV-5", "INV-6", "INV-9", "INV-19")
def test_a_planted_violation_is_found(rule: str, events: list[Event]) -> None:
    assert any(violation.startswith(rule) for violation in judge(sorted(events, key=lambda e: e.at_ms)))


@pytest.mark.rule("INV-4")
def test_a_paused_worker_reporting_an_old_delivery_late_is_no_violation() -> None:
    late = Delivered("w1", "t", 0, 0, "v0", 1, 9, 9_000)
    events: list[Event] = [
        produced(0),
        delivered(0, worker="w2", count=2),
        acked(0, worker="w2", count=2),
        late,
        observed(1, 0, 9_999),
    ]
    assert judge(events) == []


@pytest.mark.rule("INV-5", "INV-6")
def test_an_answer_about_a_place_below_the_start_offset_proves_nothing() -> None:
    events: list[Event] = [
        produced(0),
        delivered(0),
        delivered(0, worker="w2", count=2, at_ms=15),
        acked(0, worker="w2", kind="REJECT", count=2),
        observed(1, 0, 30),
        acked(0, at_ms=40),
        observed(1, 0),
    ]
    assert judge(events) == []


@pytest.mark.rule("INV-7")
def test_a_stored_count_is_never_given_again_whatever_was_killed() -> None:
    released = acked(0, kind="RELEASE", count=2, at_ms=40)
    before: list[Event] = [produced(0), delivered(0), delivered(0, count=2, at_ms=30), released]
    killed = Fault("SIGKILL", "partition_leader-0", 50)
    (found,) = judge([*before, killed, delivered(0, count=2, at_ms=60), acked(0, count=2, at_ms=70), observed(1, 0)])
    assert found.startswith("INV-7")
    assert judge([*before, killed, delivered(0, count=3, at_ms=60), acked(0, count=3, at_ms=70), observed(1, 0)]) == []


@pytest.mark.rule("INV-7")
def test_a_release_without_an_answer_stores_nothing_for_certain() -> None:
    unsure = acked(0, kind="RELEASE", error="UNKNOWN")
    assert judge([produced(0), delivered(0), unsure, delivered(0, at_ms=30), acked(0, at_ms=40), observed(1, 0)]) == []


def dropped(at_ms: int, reason: str = DropReason.OUTCOME_UNKNOWN, partition: int = 0) -> Dropped:
    return Dropped("partition_leader-0", "t", partition, reason, at_ms)


@pytest.mark.rule("INV-7", "PL-105", "PL-707")
@pytest.mark.parametrize("reason", [DropReason.OUTCOME_UNKNOWN, DropReason.LEADERSHIP_LOST, DropReason.RELEASED])
def test_a_count_may_repeat_where_the_leader_let_the_share_partition_go(reason: str) -> None:
    cut, healed = Fault("cut", "a b silent", 15), Fault("healed", "everything", 40)
    assert list(counts_rise([delivered(0), cut, dropped(30, reason), healed, delivered(0, at_ms=50)])) == []
    assert list(counts_rise([delivered(0), cut, healed, delivered(0, count=2, at_ms=50)])) == []


@pytest.mark.rule("INV-7", "PL-707")
@pytest.mark.scenario("S-112")
@pytest.mark.parametrize(
    "more",
    [
        pytest.param([], id="not let go"),
        pytest.param([dropped(8)], id="before it was first fetched"),
        pytest.param([dropped(51)], id="after it came again"),
        pytest.param([dropped(30, partition=1)], id="another share-partition"),
        pytest.param([dropped(30, DropReason.STATE_REPLACED)], id="its state was reset without a request"),
        pytest.param([dropped(30, "no reason")], id="for no reason that is known"),
    ],
)
def test_a_count_that_repeats_else_is_a_violation_whatever_had_failed(more: list[Event]) -> None:
    cut, healed = Fault("cut", "a b silent", 15), Fault("healed", "everything", 40)
    events: list[Event] = [delivered(0), cut, healed, delivered(0, at_ms=50), *more]
    (found,) = counts_rise(sorted(events, key=lambda event: event.at_ms))
    assert found.startswith("INV-7")
    assert "went to w1 with count 1" in found


@pytest.mark.rule("INV-7", "PL-707")
def test_what_was_forgotten_once_is_counted_on_from_there() -> None:
    again: list[Event] = [delivered(0), dropped(30), delivered(0, at_ms=50), delivered(0, at_ms=60)]
    assert len(list(counts_rise(again))) == 1
