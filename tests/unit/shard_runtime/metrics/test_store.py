"""What a process says of the store's replicas."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from shard_runtime.metrics.store import watch_store


def test_the_replicas_that_must_and_those_that_do_stand_by_the_second_only_while_it_is_known() -> None:
    registry = CollectorRegistry()
    connected: list[int | None] = [None, 1, 0]
    watch_store(registry, 2, lambda: connected[0])
    seen = []
    while connected:
        names = ("store_replicas_configured", "store_replicas_connected")
        seen.append(tuple(registry.get_sample_value(name) for name in names))
        connected.pop(0)
        if not connected:
            break
    assert seen == [(2, None), (2, 1), (2, 0)]
