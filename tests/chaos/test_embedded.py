"""The embedded store by its fsync policy: which processes die with it, and what a clean restart keeps."""

from __future__ import annotations

import pytest

from tests.chaos.conftest import Begin
from tests.chaos.test_kill import GROUPS, LEADER, STATE, Report, everything_holds, finish


@everything_holds
@pytest.mark.rule("CM-3", "CM-12", "CM-70", "SR-20")
@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_clients_and_services_die_and_all_restart_in_good_order(fsync: str, begin: Begin, report: Report) -> None:
    experiment = begin(up_options=["--fsync", fsync])
    experiment.pass_time(0.3, 0.8)
    experiment.kill_worker(0)
    for target in (LEADER, STATE, GROUPS):
        experiment.kill(target)
    experiment.pass_time(0.8, 1.6)
    experiment.pause(LEADER, 3.2, 4.0)
    experiment.pass_time(0.3, 0.8)
    experiment.restart_everything()
    experiment.pass_time(0.5, 1.0)
    finish(experiment, report)
