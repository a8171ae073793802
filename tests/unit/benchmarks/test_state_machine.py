"""B8 runs: every workload delivers the records that it promises and leaves the share-partition in the right state."""

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from benchmarks import state_machine
from benchmarks.state_machine import FETCH, Case, Driver
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from shard_runtime.config.group_config import Backoff


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
    assert again == [], "redelivered records are accepted"


@pytest.mark.rule("P-2")
def test_per_record_acknowledgements_share_their_writes() -> None:
    driver = Driver(FETCH, state_machine._log(2 * FETCH))
    driver.fill()
    offsets = range(FETCH)
    acks = [driver.acknowledgement(ev.AckBatch(one, one, state_machine.ACCEPT)) for one in offsets]
    effects = driver.play(acks, state_machine.ACKS_PER_WRITE)
    writes = [effect for effect in effects if isinstance(effect, fx.Persist)]
    assert len(writes) <= FETCH // state_machine.ACKS_PER_WRITE + 2
    assert driver.core.start_offset == FETCH


def _steps(work: Callable[[], object]) -> int:
    """The number of bytecode instructions that a share-partition's core executes. It needs no clock and is the same
    each time."""
    steps = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        if "partition_leader/share_partition/core" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


def _turn(driver: Driver) -> None:
    state_machine._uniform_step(driver)
    driver.fill()


@pytest.mark.rule("P-3")
def test_a_step_costs_as_much_with_many_records_in_flight_as_with_few() -> None:
    few, many = (Driver(size, state_machine._log(size + 10 * FETCH)) for size in (2 * FETCH, 40 * FETCH))
    for driver in (few, many):
        driver.fill()
        _turn(driver)
    assert _steps(lambda: _turn(many)) <= 1.5 * _steps(lambda: _turn(few))


@pytest.mark.rule("P-3")
def test_a_record_stuck_at_the_start_offset_does_not_make_later_steps_dearer() -> None:
    def after(records: int) -> int:
        driver = state_machine._begun(Driver(60 * FETCH, state_machine._log(60 * FETCH)), stuck=True)

        def deliver() -> None:
            driver.fetch()
            state_machine._uniform_step(driver)

        for _ in range(records // FETCH):
            deliver()
        assert driver.core.start_offset == 0
        return _steps(deliver)

    assert after(40 * FETCH) <= 1.5 * after(2 * FETCH)


@pytest.mark.rule("P-3")
def test_records_that_wait_for_their_delay_do_not_make_later_steps_dearer() -> None:
    driver = Driver(4 * FETCH, state_machine._log(40 * FETCH))
    driver.settings = replace(driver.settings, backoff=Backoff(60_000))
    driver.fill()

    def turn() -> None:
        state_machine._alternating_step(driver)
        driver.fill()

    few, many = (sum(_steps(turn) for _ in range(9)) for _ in range(2))
    assert driver.core.delays().records == 18 * FETCH // 2
    assert many <= 1.5 * few
