"""A process's metrics of the store: its replicas, unsafe settings and clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from shard_runtime.metrics.store import watch_store
from shard_runtime.record_log.store_usage import StoreUsage


def test_the_replicas_that_must_and_those_that_do_stand_by_the_second_only_while_it_is_known() -> None:
    registry = CollectorRegistry()
    connected: list[int | None] = [None, 1, 0]
    watch_store(registry, 2, lambda: connected[0])
    seen = []
    while connected:
        names = ("sharegroups_store_replicas_configured", "sharegroups_store_replicas_connected")
        seen.append(tuple(registry.get_sample_value(name) for name in names))
        connected.pop(0)
        if not connected:
            break
    assert seen == [(2, None), (2, 1), (2, 0)]


@pytest.mark.rule("CM-170", "CM-171")
def test_what_the_watch_found_of_settings_and_clocks_is_exported() -> None:
    registry = CollectorRegistry()
    time = SimpleNamespace(store_ahead_ms=-12_500, doubt=lambda: "the clocks differ")
    watch: Any = SimpleNamespace(unsafe={"appendonly"}, time=time, usage={})
    watch_store(registry, 0, lambda: None, watch)
    assert registry.get_sample_value("sharegroups_store_unsafe", {"setting": "appendonly"}) == 1
    assert registry.get_sample_value("sharegroups_store_unsafe", {"setting": "maxmemory-policy"}) == 0
    assert registry.get_sample_value("sharegroups_store_clock_ahead_seconds") == -12.5
    assert registry.get_sample_value("sharegroups_retention_by_age_paused") == 1
    time.doubt = str
    assert registry.get_sample_value("sharegroups_retention_by_age_paused") == 0


@pytest.mark.rule("CM-208")
def test_each_store_nodes_memory_and_disk_are_exported_and_no_limit_is_no_sample() -> None:
    """A limit of 0 would make every alert on the part that is used fire."""
    registry = CollectorRegistry()
    time = SimpleNamespace(store_ahead_ms=0, doubt=str)
    usage = {"a:1": StoreUsage(750, 1_000, 3, 0.25, rewrite_failed=True), "b:2": StoreUsage(10, 0)}
    watch: Any = SimpleNamespace(unsafe=set(), time=time, usage=usage)
    watch_store(registry, 0, lambda: None, watch)
    names = ["memory_used_bytes", "memory_limit_bytes", "fsync_delayed_total", "fork_seconds", "rewrite_failed"]

    def seen(node: str) -> list[float | None]:
        return [registry.get_sample_value(f"sharegroups_store_{name}", {"node": node}) for name in names]

    assert seen("a:1") == [750, 1_000, 3, 0.25, 1]
    assert seen("b:2") == [10, None, 0, 0, 0]
