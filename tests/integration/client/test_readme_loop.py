"""The README's loop with slow jobs and four workers: every job runs once, and the work is shared.

Times are a sixth of real ones: a lock of 5 s instead of 30 s, jobs of 17 ms, 0.33 s and 3.3 s. `python -m
tests.integration.client.test_readme_loop` runs it in full, with jobs of 0.1, 2 and 20 s.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sharegroups import Admin, AlterConfig, ConfigResource, KafkaError, Producer
from tests.support.node import BOUND_S, Cluster, unique

WORKERS = 4
#: The number of jobs by the duration of one job in seconds, for a lock of 30 s.
JOBS = {0.1: 240, 2.0: 60, 20.0: 24}


class Worker:
    """The README's consumer as a process."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.client.readme_worker", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )

    def end(self) -> list[dict[str, Any]]:
        """End the process; returns everything that it printed."""
        try:
            out, err = self.process.communicate(timeout=BOUND_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        said = [json.loads(line) for line in out.splitlines()]
        return said if self.process.returncode == 0 else [*said, {"refused": err}]


def play(
    bootstrap: str, job_s: float, jobs: int, lock_s: float, plain: bool
) -> tuple[list[list[dict[str, Any]]], float]:
    """Run the workers. Returns what each one printed, and the seconds from the first job to the last confirmed
    acknowledgement."""
    topic = group = unique("readme")
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert admin.create_topics([topic]) == {topic: None}
        resource = ConfigResource.group(group)
        lock = AlterConfig("share.record.lock.duration.ms", str(int(lock_s * 1000)))
        assert admin.incremental_alter_configs({resource: [lock]}) == {resource: None}
        workers = [Worker(bootstrap, topic, group, *(["plain"] if plain else [])) for _ in range(WORKERS)]
        try:
            _await(lambda: _members(admin, group) == WORKERS, BOUND_S)
            began = time.monotonic()
            with Producer(bootstrap_servers=bootstrap) as producer:
                for _ in range(jobs):
                    producer.produce(topic, str(job_s))
            _await(lambda: _start_offset(admin, group) == jobs, 20 * job_s * jobs / WORKERS + BOUND_S)
            took = time.monotonic() - began
        finally:
            ended = [worker.end() for worker in workers]
    return ended, took


def _await(reached: Any, within_s: float) -> None:
    until = time.monotonic() + within_s
    while not reached():
        assert time.monotonic() < until, f"not reached within {within_s:.0f} s"
        time.sleep(0.1)


def _members(admin: Admin, group: str) -> int:
    found = admin.describe_share_groups([group])[group]
    return 0 if isinstance(found, KafkaError) else len(found.members)


def _start_offset(admin: Admin, group: str) -> int:
    found = admin.list_share_group_offsets({group: None})[group]
    if isinstance(found, KafkaError):
        return -1
    return max((entry.start_offset for entry in found.values() if entry is not None), default=-1)


def check(said: list[list[dict[str, Any]]], jobs: int) -> list[float]:
    """Assert that every job ran once, nothing was refused and each worker did its share; returns the shares."""
    runs = Counter(line["offset"] for lines in said for line in lines if "offset" in line)
    assert [line for lines in said for line in lines if "refused" in line] == []
    assert runs == Counter(range(jobs))
    shares = [len(lines) / jobs for lines in said]
    assert min(shares) >= 0.15, shares
    return shares


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made


@pytest.mark.rule("CL-85")
@pytest.mark.parametrize("job_s", JOBS)
@pytest.mark.parametrize("plain", [False, True], ids=["for jobs", "with the defaults"])
def test_every_job_of_the_readme_s_loop_runs_once_and_the_work_is_shared(
    cluster: Cluster, job_s: float, plain: bool
) -> None:
    jobs = JOBS[job_s] if job_s < 20 else 12
    said, _ = play(cluster.bootstrap, job_s / 6, jobs, 5.0, plain)
    check(said, jobs)


def for_real() -> None:
    """Run with a lock of 30 s and the jobs of the issue; print the results."""
    with Cluster() as cluster:
        for plain in (False, True):
            for job_s, jobs in JOBS.items():
                said, took = play(cluster.bootstrap, job_s, jobs, 30.0, plain)
                shares = check(said, jobs)
                way = "defaults" if plain else "README"
                print(
                    f"{way}: {jobs} jobs of {job_s} s: {sum(map(len, said))} runs, {took:.1f} s, {shares}", flush=True
                )


if __name__ == "__main__":
    for_real()
