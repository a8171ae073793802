"""What the kernel says of a process, and its memory limit, under the names that Prometheus' own clients use."""

from __future__ import annotations

import os
import resource
import stat
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.process_collector import ProcessCollector

from shard_runtime.metrics.process import ProcessMetrics


def scrape(metrics: ProcessMetrics) -> dict[str, float]:
    """Return the samples by name."""
    registry = CollectorRegistry()
    registry.register(metrics)
    return {sample.name: sample.value for family in registry.collect() for sample in family.samples}


@pytest.mark.rule("CM-226")
def test_names_and_values_are_those_of_prometheus_own_collector() -> None:
    theirs = {
        sample.name: sample.value for family in ProcessCollector(registry=None).collect() for sample in family.samples
    }
    ours = scrape(ProcessMetrics(limit_bytes=lambda: 512))
    assert ours.pop("sharegroups_memory_limit_bytes") == 512
    assert ours.keys() == theirs.keys()
    assert ours["process_max_fds"] == theirs["process_max_fds"]
    assert ours["process_start_time_seconds"] == pytest.approx(theirs["process_start_time_seconds"], abs=2)
    assert 0 < ours["process_start_time_seconds"] <= time.time()
    for name in ("process_resident_memory_bytes", "process_virtual_memory_bytes"):
        assert ours[name] == pytest.approx(theirs[name], rel=0.2), name
    assert ours["process_cpu_seconds_total"] == pytest.approx(theirs["process_cpu_seconds_total"], abs=5)


@pytest.mark.rule("CM-226")
def test_a_file_that_is_opened_is_counted() -> None:
    metrics = ProcessMetrics()
    before = scrape(metrics)["process_open_fds"]
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
    try:
        assert scrape(metrics)["process_open_fds"] == before + 20
    finally:
        for each in opened:
            os.close(each)


class Uncounted(type(Path())):  # type: ignore[misc]  # the class of paths differs from system to system
    """A folder whose size the kernel gives as 0, as older ones do for a process's files."""

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        found = list(super().stat(follow_symlinks=follow_symlinks))
        found[stat.ST_SIZE] = 0
        return os.stat_result(found)


@pytest.mark.rule("CM-226")
def test_files_are_listed_where_the_kernel_does_not_count_them(tmp_path: Path) -> None:
    (tmp_path / "self" / "fd").mkdir(parents=True)
    for number in range(7):
        (tmp_path / "self" / "fd" / str(number)).touch()
    assert scrape(ProcessMetrics(Uncounted(tmp_path), lambda: 1))["process_open_fds"] == 7


@pytest.mark.rule("CM-226")
def test_without_proc_what_needs_it_has_no_sample(tmp_path: Path) -> None:
    found = scrape(ProcessMetrics(tmp_path, lambda: 512))
    assert found.keys() == {"process_cpu_seconds_total", "process_max_fds", "sharegroups_memory_limit_bytes"}
    assert found["process_max_fds"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
