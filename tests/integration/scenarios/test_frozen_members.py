"""A consumer freezes while its connections stay open: the others get its records when its session ends, not when their
locks end, and a fetch that it has in flight acquires nothing more (GC-39a, PL-528)."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sharegroups import Admin, AlterConfig, ConfigResource, ShareConsumer
from tests.integration.scenarios.clients import World
from tests.support.node import Cluster, StartedProcess

SESSION_MS = 4_000
#: The longest lock that a group may have by default; no test here waits that long.
LOCK_MS = 60_000
#: The time limit of this file's waits: shorter than the lock and the back-off.
WITHIN_S = 15
#: The removal is visible before the leader learns of it (GC-39b), and a client cannot see when it has: wait for twenty
#: times the interval at which orders are collected.
ORDER_S = 1


class Group:
    """A group of a consumer in this process and a frozen one, on one partition."""

    def __init__(self, cluster: Cluster) -> None:
        self.world = World(cluster)
        configs = {
            "share.session.timeout.ms": SESSION_MS,
            "share.heartbeat.interval.ms": 500,
            "share.record.lock.duration.ms": LOCK_MS,
            "sharegroups.retry.backoff.initial.ms": 20_000,
        }
        group = ConfigResource.group(self.world.group)
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            changes = [AlterConfig(name, str(value)) for name, value in configs.items()]
            assert admin.incremental_alter_configs({group: changes}) == {group: None}

    def members(self) -> int:
        with Admin(bootstrap_servers=self.world.cluster.bootstrap) as admin:
            found: Any = admin.describe_share_groups([self.world.group])[self.world.group]
        return 0 if isinstance(found, Exception) else sum(bool(member.assignment) for member in found.members)

    def until_members(self, count: int, consumer: ShareConsumer | None = None) -> None:
        until = time.monotonic() + WITHIN_S
        while (found := self.members()) != count:
            assert time.monotonic() < until, f"{found} members after {WITHIN_S} s, not {count}"
            if consumer is not None:
                consumer.poll(0.2)
            time.sleep(0.2)

    @contextmanager
    def frozen(self, how: str, folder: Path) -> Iterator[StartedProcess]:
        words = ["tests.integration.scenarios.frozen_consumer", how, self.world.cluster.bootstrap]
        process = StartedProcess([*words, self.world.group, self.world.topic], folder)
        try:
            yield process
        finally:
            process.signal(signal.SIGCONT)
            process.kill()


def said(process: StartedProcess) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(process.line())
    return found


def taken(consumer: ShareConsumer, count: int) -> list[tuple[int, int]]:
    """Consume and accept `count` records with this consumer; returns (offset, delivery count) pairs."""
    found: list[tuple[int, int]] = []
    until = time.monotonic() + WITHIN_S
    while len(found) < count:
        assert time.monotonic() < until, f"only {found} within {WITHIN_S} s"
        found += [(message.offset(), message.delivery_count()) for message in consumer.poll(0.5)]
        assert set(consumer.commit_sync().values()) <= {None}
    return sorted(found)


@pytest.mark.rule("GC-39a", "PL-528", "CL-38")
@pytest.mark.parametrize("how", ["process", "loop"])
def test_what_a_frozen_consumer_holds_goes_to_the_others_and_it_joins_again(
    cluster: Cluster, tmp_path: Path, how: str
) -> None:
    group = Group(cluster)
    with group.frozen(how, tmp_path) as process:
        group.until_members(1)
        group.world.produce("a")
        assert said(process)["polled"] == [[0, 1]]
        if how == "process":
            process.signal(signal.SIGSTOP)
        with group.world.consumer() as other:
            assert taken(other, 1) == [(0, 2)]
            group.until_members(1, other)
            process.send_line("go on")
            process.signal(signal.SIGCONT)
            (refused,) = said(process)["committed"]
            assert refused, "nothing is accepted twice"
            group.until_members(2, other)
        group.world.produce("b")
        assert said(process)["polled"] == [[1, 1]]
        process.send_line("go on")
        assert said(process) == {"committed": [""]}
        group.world.until_state(2, [])
        assert f"group '{group.world.group}' has removed this consumer" in process.errors
        assert "Traceback" not in process.errors


@pytest.mark.rule("GC-39a", "PL-528")
def test_the_open_fetch_of_a_frozen_consumer_acquires_nothing_after_its_session(
    cluster: Cluster, tmp_path: Path
) -> None:
    group = Group(cluster)
    with group.frozen("parked", tmp_path) as process:
        group.until_members(1)
        assert said(process) == {"blocked": True}
        with group.world.consumer() as other:
            group.until_members(2, other)
            group.until_members(1, other)
            time.sleep(ORDER_S)
            for number in range(10):
                group.world.produce(str(number))
            assert taken(other, 10) == [(offset, 1) for offset in range(10)]
            process.send_line("go on")
            group.until_members(2, other)
