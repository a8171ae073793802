"""Requests that no correct node sends are refused and counted, and never stored (CM-82)."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from kip932.errors import FencedLeaderEpochError, InvalidRequestError
from kip932.state_batches import StateBatch
from kip932.state_values import StateCommand
from share_coordinator.core.plausible import (
    BATCH_REACH_MAX,
    EPOCH_AHEAD_S,
    EPOCH_ZERO_MS,
    START_GROWTH_MAX,
    STATE_EPOCH_MAX,
)
from tests.support.share_coordinators import CoordinatorProcess
from tests.support.share_state import KEY, TOPIC, Driver, initialize, read, write
from tests.support.virtual_time import virtual
from tests.unit.share_coordinator.test_service import Client

INT64_MAX = 2**63 - 1
#: 300 days after the start of leader epochs.
NOW_S = 300 * 86_400


def _stored(start_offset: int = 10) -> Driver:
    driver = Driver()
    driver.wall_ms = EPOCH_ZERO_MS + NOW_S * 1000
    driver.run(initialize(5, start_offset))
    driver.run(read(NOW_S - 60))
    return driver


def _batch(first: int, last: int, count: int = 1) -> StateBatch:
    return StateBatch(first, last, 2, count)


FALSE: dict[str, StateCommand] = {
    "a start offset at the end of all offsets": write(start=2**62 - 1),
    "a negative start offset": write(start=-2),
    "a batch far above the start": write(_batch(2**62, 2**62), start=10),
    "a batch to the end of all offsets": write(_batch(10, INT64_MAX), start=10),
    "a negative offset": write(_batch(-5, 3), start=10),
    "a backward range": write(_batch(20, 11), start=10),
    "a delivery count beyond int16": write(_batch(10, 11, 40_000), start=10),
    "a negative count of completed deliveries": write(start=10, dcc=-2),
    "a writer of the future": write(leader=NOW_S + EPOCH_AHEAD_S + 1),
    "a negative leader epoch": write(leader=-7),
    "a negative generation": write(leader=NOW_S, generation=-1),
    "a writer of a state epoch beyond reach": write(state=2**31 - 1),
    "a reader of the future": read(2**31 - 1),
    "an initialisation at a state epoch beyond reach": initialize(2**31 - 1, 0),
    "an initialisation at the end of all offsets": initialize(6, 2**62),
}


@pytest.mark.rule("CM-82", "SC-26")
@pytest.mark.parametrize("what", FALSE)
def test_what_no_correct_node_sends_is_refused_and_nothing_is_stored(what: str) -> None:
    driver = _stored()
    before, log = driver.shard.state(KEY), list(driver.log)
    with pytest.raises(InvalidRequestError) as refused:
        driver.run(FALSE[what])
    assert KEY.text in str(refused.value)
    assert (driver.shard.state(KEY), driver.log) == (before, log)


TRUE: dict[str, StateCommand] = {
    "the same epoch again": write(leader=NOW_S - 60, start=11),
    "no start offset": write(leader=NOW_S - 60, state=5, start=-1),
    "a claim right now": read(NOW_S),
    "a claim by a clock that is a day ahead": read(NOW_S + EPOCH_AHEAD_S),
    "a log that moved by nine years of a million records a second": write(leader=NOW_S, start=10 + START_GROWTH_MAX),
    "the widest window": write(_batch(10, 10 + BATCH_REACH_MAX), leader=NOW_S, start=10),
    "the last state epoch": initialize(STATE_EPOCH_MAX, 0),
    "a start that the leader is to choose": initialize(6, -1),
}


@pytest.mark.rule("CM-82")
@pytest.mark.parametrize("what", TRUE)
def test_what_a_correct_node_may_send_passes(what: str) -> None:
    driver = _stored()
    driver.run(TRUE[what])


@pytest.mark.rule("CM-82", "CM-13")
def test_a_leader_can_always_claim_above_what_is_stored() -> None:
    """This holds even if this node's clock stands still or is set back by years."""
    driver = _stored()
    driver.run(read(NOW_S + EPOCH_AHEAD_S))
    driver.wall_ms = 0
    with pytest.raises(FencedLeaderEpochError):
        driver.run(read(NOW_S))
    driver.run(read(NOW_S + EPOCH_AHEAD_S + 1))


@pytest.mark.rule("CM-82")
@virtual
async def test_what_is_refused_is_counted_by_key_and_logged_once_in_ten_seconds() -> None:
    world = CoordinatorProcess()
    client = Client(world)
    names = [(TOPIC, number) for number in range(3)]
    await client.call("InitializeShareGroupState", *names)
    with capture_logs() as lines:
        for _ in range(4):
            answer = await client.call("WriteShareGroupState", *names, start_offset=2**62 - 1)
            codes = [part.error_code for topic in answer.results for part in topic.partitions]
            assert codes == [InvalidRequestError.code] * 3
        assert world.meter.refused == 12
        logged = [line for line in lines if line["event"] == "implausible_value_refused"]
        assert len(logged) == 1
