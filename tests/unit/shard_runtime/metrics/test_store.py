"""A process's metrics of the store: its replicas, unsafe settings and clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from shard_runtime.metrics.store import watch_store


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
    watch: Any = SimpleNamespace(unsafe={"appendonly"}, time=time)
    watch_store(registry, 0, lambda: None, watch)
    assert registry.get_sample_value("sharegroups_store_unsafe", {"setting": "appendonly"}) == 1
    assert registry.get_sample_value("sharegroups_store_unsafe", {"setting": "maxmemory-policy"}) == 0
    assert registry.get_sample_value("sharegroups_store_clock_ahead_seconds") == -12.5
    assert registry.get_sample_value("sharegroups_retention_by_age_paused") == 1
    time.doubt = str
    assert registry.get_sample_value("sharegroups_retention_by_age_paused") == 0
