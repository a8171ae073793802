"""The checker of delays finds early deliveries, wrongly stored delays and delays without a reason; it tolerates only
clock differences."""

from __future__ import annotations

import pytest

from kip932.ids import ACK_RELEASE, ACK_RENEW, STATE_AVAILABLE
from tests.simulation.checkers.delays import Delays
from tests.simulation.clock import WALL_START_MS
from tests.simulation.delay_events import BackoffSeen, ClockSet, ReleaseAsked, RetriesSeen, StateLoaded
from tests.simulation.history import Administered
from tests.simulation.made import LOCK_MS, TOPIC, Made, found

COORDINATOR_NOT_AVAILABLE = 15
GROWING = BackoffSeen(200, 2.0, 1_000, 0.5)


def backs_off(made: Made, backoff: BackoffSeen) -> Made:
    made.add(RetriesSeen, 1, "g", backoff, 8_000)
    return made


def asks(made: Made, delay_ms: int, first: int = 0, last: int = 0, backoff: BackoffSeen | None = None) -> int:
    """Let A request a release with a delay."""
    request = made.asks("A", (first, last, (ACK_RELEASE,)))
    batch = (first, last, (ACK_RELEASE,), (delay_ms,))
    ids = (made.share, made.state_epoch, "A", made.object_id)
    made.add(ReleaseAsked, 1, request, *ids, (batch,), backoff or BackoffSeen())
    return request


def released(delay_ms: int = 500, *, code: int = 0, ahead_ms: int = 0, backoff: BackoffSeen | None = None) -> Made:
    """Let A hold offsets 0-3 from time 0, and release offset 0 with a delay at 100, written at 150; the clock is
    `ahead_ms` ahead."""
    made = Made()
    made.add(ClockSet, ahead_ms)
    if backoff is not None:
        backs_off(made, backoff)
    made.locks("A", 0, 3).at(100)
    request = asks(made, delay_ms, backoff=backoff)
    return made.at(150).does(request, code)


def loads(made: Made, instant_ms: int, *, ahead_ms: int = 0, delay_max_ms: int = 8_000, count: int = 1) -> Made:
    """Let b lead from now on, with its clock ahead, and read a state in which offset 0 is delayed until
    `instant_ms`."""
    made.successor().add(ClockSet, ahead_ms)
    made.reads(0, (0, 0, STATE_AVAILABLE, count, WALL_START_MS + instant_ms))
    ids = (made.share, made.object_id, made.leader_epoch, made.generation)
    made.add(StateLoaded, 1, *ids, ahead_ms, delay_max_ms)
    return made


@pytest.mark.rule("INV-21", "PL-930", "PL-933")
class TestWithinAnObject:
    def test_a_record_that_comes_before_its_delay_is_over_is_found(self) -> None:
        assert found(Delays(), released().at(599).locks("B", 0, count=2)) == ["INV-21"]
        assert not found(Delays(), released().at(600).locks("B", 0, count=2))
        assert not found(Delays(), released().at(160).locks("B", 1, count=2)), "the others do not wait for it"

    def test_a_release_that_was_not_answered_none_promises_nothing(self) -> None:
        assert not found(Delays(), released(code=COORDINATOR_NOT_AVAILABLE).at(160).locks("B", 0, count=2))

    def test_a_release_below_the_start_offset_or_at_the_limit_makes_nothing_wait(self) -> None:
        for more in ({"start_offset": 1}, {"limit": 1}):
            made = Made().locks("A", 0).at(100)
            made.does(asks(made, 500), **more)
            assert not found(Delays(), made.at(110).locks("B", 0, count=2))

    def test_a_release_without_a_delay_waits_by_the_back_off_of_its_count(self) -> None:
        assert found(Delays(), released(-1, backoff=GROWING).at(199).locks("B", 0, count=2)) == ["INV-21"]
        assert not found(Delays(), released(-1, backoff=GROWING).at(200).locks("B", 0, count=2)), "jitter: half of 200"
        made = backs_off(Made(), GROWING).locks("A", 0, count=3).at(100)
        request = asks(made, -1, backoff=GROWING)
        assert found(Delays(), made.does(request).at(499).locks("B", 0, count=4)) == ["INV-21"], "half of 800"

    def test_a_lock_that_runs_out_waits_by_the_least_back_off_that_was_in_force(self) -> None:
        made = backs_off(Made(), GROWING).locks("A", 0)
        assert found(Delays(), made.at(LOCK_MS + 99).locks("B", 0, count=2)) == ["INV-21"]
        made = backs_off(Made(), GROWING).locks("A", 0)
        assert not found(Delays(), made.at(LOCK_MS + 100).locks("B", 0, count=2))
        made = backs_off(backs_off(Made(), GROWING).locks("A", 0).at(500), BackoffSeen())
        assert not found(Delays(), backs_off(made.at(600), GROWING).at(LOCK_MS).locks("B", 0, count=2))

    def test_a_renewal_moves_the_end_of_the_lock(self) -> None:
        made = backs_off(Made(), GROWING).locks("A", 0).at(900).settles("A", 0, kind=ACK_RENEW)
        assert found(Delays(), made.at(900 + LOCK_MS + 99).locks("B", 0, count=2)) == ["INV-21"]

    def test_what_a_session_gives_back_waits_for_nothing(self) -> None:
        made = backs_off(Made(), GROWING).locks("A", 0).at(100).gives_back("A")
        assert not found(Delays(), made.at(110).locks("B", 0, count=2))


@pytest.mark.rule("INV-21", "PL-934")
class TestFromObjectToObject:
    def test_what_is_read_waits_for_what_is_left_by_the_readers_clock(self) -> None:
        assert found(Delays(), loads(released(), 600).at(599).locks("B", 0, count=2)) == ["INV-21"]
        assert not found(Delays(), loads(released(), 600).at(600).locks("B", 0, count=2))
        ahead = loads(released(), 600, ahead_ms=300)
        assert not found(Delays(), ahead.at(300).locks("B", 0, count=2)), "clocks differ, and nothing else can be known"
        slow = loads(released(), 600, ahead_ms=-300)
        assert found(Delays(), slow.at(899).locks("B", 0, count=2)) == ["INV-21"]

    def test_nothing_that_is_read_waits_longer_than_the_group_allows(self) -> None:
        assert not found(Delays(), loads(released(), 3_600_000, delay_max_ms=1_000).at(1_150).locks("B", 0, count=2))

    def test_a_delay_that_was_promised_and_is_not_stored_is_found(self) -> None:
        assert found(Delays(), loads(released(), 599)) == ["INV-21"]
        assert found(Delays(), loads(released(ahead_ms=40), 639)) == ["INV-21"]
        assert not found(Delays(), loads(released(ahead_ms=40), 640))
        assert not found(Delays(), loads(released(ahead_ms=-40), 560)), "by the clock of its leader"

    def test_an_earlier_delivery_is_none_of_its_business(self) -> None:
        made = released().at(700).locks("B", 0, count=2)
        assert not found(Delays(), loads(made, 0, count=2))

    def test_a_clock_that_jumped_amid_the_write_may_have_been_read_before_or_after(self) -> None:
        made = Made().locks("A", 0).at(100)
        made.add(ClockSet, 0)
        request = asks(made, 500)
        made.at(120).add(ClockSet, -4_000)
        made.at(150).does(request)
        assert not found(Delays(), loads(made, 600 - 4_000))

    def test_nothing_is_promised_of_a_state_that_an_administrator_changes(self) -> None:
        made = released()
        made.add(Administered, "DeleteGroups", "g", "", "", 140)
        assert not found(Delays(), loads(made, 0))
        made = released()
        made.add(Administered, "DeleteTopics", "t", TOPIC, "", 140)
        assert not found(Delays(), loads(made, 0))


@pytest.mark.rule("INV-21", "PL-936")
class TestWhatIsStored:
    def test_a_release_may_be_stored_with_the_delay_that_it_asked_for(self) -> None:
        batch = (0, 0, STATE_AVAILABLE, 1, WALL_START_MS + 600)
        assert not found(Delays(), released().writes(0, batch))
        late = (*batch[:4], batch[4] + 1)
        assert found(Delays(), released().writes(0, late)) == ["INV-21"]
        assert not found(Delays(), released(ahead_ms=1).writes(0, late))

    def test_a_release_of_unknown_outcome_may_be_asked_for_again(self) -> None:
        made = released(code=COORDINATOR_NOT_AVAILABLE).at(300)
        request = asks(made, 500)
        made.at(310).writes(0, (0, 0, STATE_AVAILABLE, 1, WALL_START_MS + 800))
        assert not found(Delays(), made.does(request))
        made = backs_off(released(code=COORDINATOR_NOT_AVAILABLE), GROWING)
        assert not found(Delays(), made.at(LOCK_MS).locks("B", 0, count=2)), (
            "or it was carried out, without the lock's end"
        )

    def test_a_record_that_waits_for_no_reason_is_found(self) -> None:
        waits = (1, 1, STATE_AVAILABLE, 1, WALL_START_MS + 400)
        made = backs_off(Made(), GROWING).locks("A", 0, 3).at(100).gives_back("A").at(110).writes(0, waits)
        assert found(Delays(), made) == ["INV-21"], "its session ended"
        made = backs_off(Made(), GROWING).locks("A", 0, 3).at(LOCK_MS)
        assert not found(Delays(), made.writes(0, (*waits[:4], WALL_START_MS + LOCK_MS + 200))), "its lock did"
        made = backs_off(Made(), GROWING).locks("A", 0, 3).at(LOCK_MS)
        assert found(Delays(), made.writes(0, (*waits[:4], WALL_START_MS + LOCK_MS + 201))) == ["INV-21"]

    def test_without_delays_and_back_off_nothing_is_judged(self) -> None:
        assert not found(Delays(), Made().locks("A", 0).at(LOCK_MS).locks("B", 0, count=2))
