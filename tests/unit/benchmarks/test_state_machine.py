"""B8 runs: every workload delivers what it says and leaves the share-partition where it should be."""

import pytest

from benchmarks import state_machine
from benchmarks.state_machine import FETCH, Case, Driver
from partition_leader.share.core import effects as fx
from partition_leader.share.core import events as ev


@pytest.mark.parametrize("workload", state_machine.WORKLOADS)
def test_every_workload_delivers_and_is_measured(workload: str) -> None:
    run = state_machine.measure(Case(workload, 2 * FETCH), 2_000)
    assert run["delivered"] >= 1_000
    assert run["us_per_record"] >= 0


def test_a_quick_run_gives_one_line_for_each_case_and_round() -> None:
    lines: list[object] = []
    runs = state_machine.run(rounds=2, records=1_000, windows=(1_000,), emit=lines.append)
    assert lines == runs
    assert {(run["workload"], run["round"]) for run in runs} == {
        (workload, number) for workload in state_machine.WORKLOADS for number in (1, 2)
    }


def test_the_window_is_kept_full() -> None:
    driver = Driver(4 * FETCH, state_machine._log(20 * FETCH))
    driver.fill()
    for _ in range(5):
        state_machine._uniform_step(driver)
        driver.fill()
        assert driver.core.in_flight == 4 * FETCH
    assert driver.core.start_offset == 5 * FETCH


def test_alternating_delivers_each_released_record_once_more() -> None:
    driver = Driver(2 * FETCH, state_machine._log(20 * FETCH))
    for _ in range(6):
        driver.fill()
        state_machine._alternating_step(driver)
    assert driver.core.start_offset > 0
    again = [count for *_, count in driver.core.overview().records if count > 2]
    assert again == [], "what comes again is accepted"


def test_per_record_acknowledgements_share_their_writes() -> None:
    driver = Driver(FETCH, state_machine._log(2 * FETCH))
    driver.fill()
    offsets = range(FETCH)
    acks = [driver.acknowledgement(ev.AckBatch(one, one, state_machine.ACCEPT)) for one in offsets]
    effects = driver.play(acks, state_machine.ACKS_PER_WRITE)
    writes = [effect for effect in effects if isinstance(effect, fx.Persist)]
    assert len(writes) <= FETCH // state_machine.ACKS_PER_WRITE + 2
    assert driver.core.start_offset == FETCH
