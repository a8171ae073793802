"""A few of the experiments on links, in the drivers that can cut them; `python -m tests.chaos` runs all of them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos.conftest import SEED_VARIABLE
from tests.chaos.deployment import Deployment, Topology, Unsupported, open_deployment
from tests.chaos.experiments import select
from tests.chaos.outcome import GOOD
from tests.chaos.runner import RUN_SETTINGS, Runner

TOPOLOGY = Topology(leaders=2, share_coordinators=2, group_coordinators=1, store_replicas=1)

everything_holds = pytest.mark.rule(
    "INV-1", "INV-2", "INV-4", "INV-5", "INV-6", "INV-9", "INV-11", "INV-12", "INV-17", "INV-19"
)


def run(driver: str, folder: Path, *names: str) -> None:
    """Run experiments in this order on one cluster. Raises AssertionError unless each succeeds."""

    def opened(asked: str, out: Path) -> Deployment:
        return open_deployment(asked, out, TOPOLOGY, RUN_SETTINGS)

    try:
        opened(driver, folder)
    except Unsupported as reason:
        pytest.skip(str(reason))
    seed = int(os.environ.get(SEED_VARIABLE) or random.randrange(1_000_000))
    print(f"\n{SEED_VARIABLE}={seed}, histories and logs in {folder}")
    definitions = [definition for name in names for definition in select([name])]
    outcomes = Runner(driver, seed, folder, print, opened).run(definitions)
    assert [outcome.name for outcome in outcomes] == list(names)
    assert [outcome.line() for outcome in outcomes if outcome.result != GOOD] == []


@everything_holds
@pytest.mark.rule("CM-3", "CM-12", "CM-13")
@pytest.mark.scenario("S-111")
@pytest.mark.scenario("S-112")
def test_a_leader_that_is_cut_off_confirms_nothing_that_another_could_contradict(tmp_path: Path) -> None:
    # The order matters: after the last, partitions return to the leader that was cut off.
    run(
        "namespaces",
        tmp_path,
        "share-coordinators-refuse",
        "leader-without-share-coordinator",
        "leader-cut-off",
    )


@everything_holds
@pytest.mark.rule("CM-15", "SR-9")
def test_lost_replies_of_the_store_and_delays_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    run("proxy", tmp_path, "replies-lost", "delays")
