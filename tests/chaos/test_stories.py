"""A few of the experiments without link faults, on processes on this machine; `python -m tests.chaos` runs all of
them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.test_links import everything_holds, run


@everything_holds
@pytest.mark.rule("CM-3", "CM-12", "CM-13")
@pytest.mark.scenario("S-109")
@pytest.mark.scenario("S-110")
@pytest.mark.scenario("S-111")
def test_what_a_leader_confirmed_holds_and_what_it_only_gave_out_comes_back(tmp_path: Path) -> None:
    run("processes", tmp_path, "leader-crash", "leadership-moves", "leader-paused")


@everything_holds
@pytest.mark.rule("CM-4")
@pytest.mark.scenario("S-106")
def test_a_rolling_restart_of_all_nodes_loses_nothing_and_fails_no_call(tmp_path: Path) -> None:
    run("processes", tmp_path, "rolling-restart", "rolling-kill")


@everything_holds
@pytest.mark.scenario("S-107")
def test_restarted_consumers_work_again_and_lose_nothing(tmp_path: Path) -> None:
    run("processes", tmp_path, "consumer-restarts")


@everything_holds
@pytest.mark.scenario("S-113")
def test_consumers_that_come_go_and_are_frozen_lose_nothing(tmp_path: Path) -> None:
    run("processes", tmp_path, "consumer-paused", "members-churning")


@everything_holds
@pytest.mark.scenario("S-114")
def test_a_store_that_is_killed_in_the_middle_of_acknowledgements_forgets_none(tmp_path: Path) -> None:
    run("processes", tmp_path, "store-killed")


@everything_holds
def test_wall_clocks_that_jump_end_no_lock_early_or_late_and_a_full_store_forgets_nothing(tmp_path: Path) -> None:
    run("processes", tmp_path, "clocks-jump", "store-memory-full")
