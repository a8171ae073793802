"""A worker's counts, and their text for Prometheus."""

from __future__ import annotations

import pytest

from sharegroups.worker.core.tally import Tally


@pytest.mark.rule("CL-128")
def test_counts_and_durations_are_shown_by_topic() -> None:
    tally = Tally(["orders"])
    for seconds in (0.001, 0.2, 400):
        tally.job("orders", "accepted", seconds)
    tally.job("orders", "rejected", 1)
    for _ in range(2):
        tally.job("orders", "archived", 500)
    tally.running, tally.waiting, tally.held = 2, 3, 4
    lines = tally.text().splitlines()
    assert 'sharegroups_worker_jobs_total{topic="orders",outcome="accepted"} 3' in lines
    assert 'sharegroups_worker_jobs_total{topic="orders",outcome="released"} 0' in lines
    assert 'sharegroups_worker_jobs_total{topic="orders",outcome="archived"} 2' in lines
    assert 'sharegroups_worker_job_seconds_bucket{topic="orders",le="0.25"} 2' in lines
    assert 'sharegroups_worker_job_seconds_bucket{topic="orders",le="300.0"} 3' in lines
    assert 'sharegroups_worker_job_seconds_bucket{topic="orders",le="+Inf"} 6' in lines
    assert 'sharegroups_worker_job_seconds_sum{topic="orders"} 1401.201000' in lines
    assert "sharegroups_worker_jobs_running 2" in lines
    assert "sharegroups_worker_lost_locks_total 0" in lines
    assert tally.line() == "3 done, 0 released, 1 rejected, 2 archived at the delivery limit; 2 running, 3 waiting"
    tally.events["refused_acknowledgements"] += 2
    assert tally.line() == (
        "3 done, 0 released, 1 rejected, 2 archived at the delivery limit, of which 2 may run again, as the cluster "
        "did not accept the outcome; 2 running, 3 waiting"
    )
    assert tally.finished == 6
