"""The checks for the experiments on consumers: each bad history is refused for its own reason, the good one passes."""

from __future__ import annotations

import pytest

from tests.chaos.experiments.definition import everybody_worked
from tests.chaos.experiments.members import PAUSED, RESUMED, each_ends_once, held_records_come_back
from tests.chaos.history import Acknowledged, Configured, Delivered, Ended, Event, Fault, Produced

LOCK_MS, LIMIT = 2_000, 3
SETTINGS = Configured("g", LOCK_MS, LIMIT, 0)


def produced(offset: int) -> Produced:
    return Produced("t", 0, offset, f"v{offset}", 1)


def went(offset: int, at_ms: int, count: int = 1, worker: str = "w1") -> Delivered:
    return Delivered(worker, "t", 0, offset, f"v{offset}", count, at_ms - 5, at_ms)


def acked(offset: int, at_ms: int, kind: str, count: int = 1, error: str = "") -> Acknowledged:
    return Acknowledged("w1", "t", 0, offset, kind, count, error, at_ms - 5, at_ms)


def in_order(*events: Event) -> list[Event]:
    return sorted([SETTINGS, *events], key=lambda event: event.at_ms)


RELEASED: list[Event] = [produced(0), went(0, 10), acked(0, 20, "RELEASE"), went(0, 30, 2)]
AT_THE_LIMIT = [acked(0, 40, "RELEASE", 2), went(0, 50, LIMIT), acked(0, 60, "RELEASE", LIMIT)]


@pytest.mark.parametrize(
    ("events", "refused"),
    [
        pytest.param([*RELEASED, acked(0, 40, "ACCEPT", 2)], "", id="released, then accepted"),
        pytest.param([*RELEASED, *AT_THE_LIMIT], "", id="released to the limit"),
        pytest.param([produced(0), went(0, 10), acked(0, 20, "ACCEPT")], "no record was released", id="no release"),
        pytest.param(RELEASED[:3], "1 of 1 released records did not come back", id="released and gone"),
        pytest.param(RELEASED, "1 of 1 records did not end exactly once", id="never ended"),
        pytest.param(
            [*RELEASED, acked(0, 40, "ACCEPT", 2), acked(0, 50, "ACCEPT", 3)], "ended 2 times", id="ended twice"
        ),
        pytest.param(
            [*RELEASED, acked(0, 40, "ACCEPT", 2, "INVALID_RECORD_STATE")], "ended 0 times", id="its accept was refused"
        ),
    ],
)
def test_without_failure_each_record_ends_once_and_releases_come_back(events: list[Event], refused: str) -> None:
    found = list(each_ends_once(in_order(*events)))
    assert any(refused in said for said in found) if refused else found == []


#: w1 holds record 0 when paused at 1,000; when it resumes at 9,000 it learns that it no longer has the record.
STOP, GO = Fault(PAUSED, "w1", 1_000), Fault(RESUMED, "w1", 9_000)
HELD: list[Event] = [produced(0), went(0, 900), STOP, GO, acked(0, 9_100, "ACCEPT", 1, "INVALID_RECORD_STATE")]
OTHER = went(0, 3_000, 2, "w2")
ACCEPTED = [went(1, 900), acked(1, 950, "ACCEPT")]


@pytest.mark.parametrize(
    ("events", "refused"),
    [
        pytest.param([*HELD, OTHER, *ACCEPTED], "", id="another got it after its lock's end"),
        pytest.param([*HELD, OTHER, went(1, 900, LIMIT)], "", id="one had had its last delivery"),
        pytest.param(HELD, "1 of the 1 records that w1 held", id="archived when its lock ended"),
        pytest.param([*HELD, OTHER, went(1, 900)], "1 of the 2 records that w1 held", id="one of two archived"),
        pytest.param([*HELD, went(0, 9_500, 2)], "no other member got any", id="only when the holder went on"),
        pytest.param([*HELD, went(0, 2_000, 2, "w2")], "no other member got any", id="before the lock's end"),
        pytest.param([STOP, GO, *ACCEPTED], "held no record", id="held nothing"),
        pytest.param([STOP, GO, went(0, 900), went(0, 990, 2, "w2")], "held no record", id="another had it already"),
        pytest.param(HELD[:2], "no consumer was paused", id="never paused"),
    ],
)
def test_a_paused_consumer_holds_records_which_others_get_and_none_ends_by_that(
    events: list[Event], refused: str
) -> None:
    found = list(held_records_come_back(in_order(*events)))
    assert any(refused in said for said in found) if refused else found == []


@pytest.mark.parametrize(
    ("events", "refused"),
    [
        pytest.param([went(0, 10), acked(0, 20, "ACCEPT")], "", id="worked"),
        pytest.param([went(0, 10)], "w1 had records", id="never confirmed"),
        pytest.param([went(0, 10), acked(0, 20, "ACCEPT", 1, "NOT_COORDINATOR")], "w1 had records", id="all refused"),
        pytest.param([Ended("consumer0a", 0, 30)], "consumer0a had no record", id="a restarted one that got nothing"),
        pytest.param([Ended("producer0", 0, 30)], "", id="a producer"),
    ],
)
@pytest.mark.scenario("S-107")
def test_each_consumer_that_was_there_must_have_worked(events: list[Event], refused: str) -> None:
    found = list(everybody_worked(in_order(*events)))
    assert [line for line in found if refused and refused in line] == found
    assert bool(found) == bool(refused)
