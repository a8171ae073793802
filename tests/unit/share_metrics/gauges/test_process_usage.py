"""The series of an ingest's processes: real ones of this machine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry

from share_metrics.gauges.process_usage import ProcessUsage

OWN = {
    "process_cpu_seconds_total", "process_max_fds", "process_open_fds", "process_resident_memory_bytes",
    "process_start_time_seconds", "process_virtual_memory_bytes",
}  # fmt: skip
JAVA = {"sharegroups_ingest_java_cpu_seconds_total", "sharegroups_ingest_java_resident_memory_bytes"}


def shown(usage: ProcessUsage) -> dict[str, float]:
    return {sample.name: sample.value for family in usage.collect() for sample in family.samples}


@pytest.mark.rule("CM-242")
def test_an_ingest_shows_its_own_process_and_that_of_java_once_it_runs() -> None:
    usage = ProcessUsage()
    CollectorRegistry().register(usage)
    assert set(shown(usage)) == OWN
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        usage.watch_java(child.pid)
        found = shown(usage)
        assert set(found) == OWN | JAVA
        assert found["process_resident_memory_bytes"] > found["sharegroups_ingest_java_resident_memory_bytes"] > 0
        assert found["process_open_fds"] <= found["process_max_fds"]
    finally:
        child.kill()
        child.wait()
        assert child.stdin is not None
        child.stdin.close()
    assert set(shown(usage)) == OWN, "it has ended"
    usage.watch_java(os.getpid())
    assert shown(usage)["sharegroups_ingest_java_resident_memory_bytes"] > 0
