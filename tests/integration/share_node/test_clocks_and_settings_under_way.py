"""A running node whose clock is changed, or whose store is configured so that it may lose data, while unread records
are stored."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from shard_runtime.record_log.redis.connection import Command
from shard_runtime.record_log.redis.topology import open_store
from sharegroups import AcknowledgeType, Admin, AlterConfig, ConfigResource, NewTopic, Producer, ShareConsumer
from sharegroups import TopicPartition as Partition
from tests.chaos.false_clock import ClockFile
from tests.support.node import BOUND_S, StartedProcess, up_words

T = TypeVar("T")

_DAY_MS = 86_400_000
_EARLIEST = -2


class Node:
    """`sharegroups up` on a machine whose clock the test sets."""

    def __init__(self, folder: Path) -> None:
        self._clock, self._folder = ClockFile(folder / "clock"), folder

    def start(self, **settings: str) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        given |= {"log.format": "json", "log.retention.check.interval.ms": "200"}
        words = up_words(self._folder / "data", given)
        words[words.index("--log-level") + 1] = "info"
        python = [str(self._clock.path), sys.executable, "-m"]
        self.process = StartedProcess(["tests.chaos.false_clock", *python, *words], self._folder)
        self._ready = json.loads(self.process.first_line())
        self.bootstrap = {"bootstrap.servers": str(self._ready["bootstrap"])}

    def set_clock(self, ahead_ms: int) -> None:
        self._clock.set(wall_ms=ahead_ms)

    def until_logged(self, *words: str) -> str:
        return until(
            lambda: next(
                (line for line in self.process.errors.splitlines() if all(word in line for word in words)), ""
            ),
            lambda: f"a line with {words} in:\n{self.process.errors}",
        )

    async def store(self, *command: str) -> object:
        connection = await open_store(str(self._ready["store"])).connect("")
        try:
            asked: Command = command
            return (await connection.run([asked], 5_000))[0]
        finally:
            await connection.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    made.start()
    yield made
    made.process.kill()


def until(found: Callable[[], T], what: Callable[[], str]) -> T:
    deadline = time.monotonic() + BOUND_S
    while time.monotonic() < deadline:
        if got := found():
            return got
        time.sleep(0.05)
    raise AssertionError(f"it did not come within {BOUND_S} s: {what()}")


def produce(node: Node, topic: str, count: int) -> None:
    with Producer(node.bootstrap) as producer:
        for number in range(count):
            producer.produce(topic, str(number).encode())


@pytest.mark.rule("CM-170")
def test_a_leader_whose_clock_is_a_week_ahead_deletes_nothing_by_age_and_says_so(node: Node) -> None:
    """Without this rule, such a clock deleted 1,000 of 1,000 unread records within 45 s, without a log line."""
    kept, small = Partition("kept", 0), Partition("small", 0)
    with Admin(node.bootstrap) as admin:
        made = admin.create_topics([NewTopic("kept", 1), NewTopic("small", 1)])
        assert not any(made.values())
        produce(node, "kept", 1_000)
        node.set_clock(8 * _DAY_MS)
        line = node.until_logged("retention_by_age_paused")
        assert "691200 s ahead of the store's; expected at most 10 s" in line
        # Deletion by size continues, which shows that sweeps have run since.
        admin.incremental_alter_configs({ConfigResource.topic("small"): [AlterConfig("retention.bytes", "0")]})
        produce(node, "small", 100)
        line = node.until_logged("records_deleted_by_retention", '"small"')
        assert "more than retention.bytes=0" in line
        assert admin.list_offsets({kept: _EARLIEST, small: _EARLIEST}) == {kept: 0, small: 100}
        node.set_clock(0)
        node.until_logged("retention_by_age_resumed")
        admin.incremental_alter_configs({ConfigResource.topic("kept"): [AlterConfig("retention.ms", "1")]})
        line = node.until_logged("records_deleted_by_retention", '"kept"')
        assert "older than retention.ms=1" in line
        assert '"log_start_before": 0' in line
        until(lambda: admin.list_offsets({kept: _EARLIEST})[kept] == 1_000, lambda: "the rest goes by later sweeps")


def _delayed_for_ms(admin: Admin) -> int:
    explained = admin.explain_record("g", Partition("jobs", 0), 0)
    return explained.records[0].delay_remaining_ms or 0


@pytest.mark.rule("PL-934", "CM-170")
@pytest.mark.parametrize("ahead_ms", [30 * _DAY_MS, -30 * _DAY_MS])
def test_delays_end_in_time_over_a_restart_with_a_clock_that_was_set(node: Node, ahead_ms: int) -> None:
    with Admin(node.bootstrap) as admin:
        admin.create_topics([NewTopic("jobs", 1)])
    produce(node, "jobs", 2)
    options = {**node.bootstrap, "group.id": "g", "share.acknowledgement.mode": "explicit"}
    delays = {0: 3_600, 1: 3}
    with ShareConsumer(options) as consumer:
        consumer.subscribe(["jobs"])
        taken: list[int] = []

        def take() -> bool:
            for message in consumer.poll(0.5):
                consumer.acknowledge(message, AcknowledgeType.RELEASE, delay=delays[message.offset()])
                taken.append(message.offset())
            consumer.commit_sync()
            return {0, 1} <= set(taken)

        until(take, lambda: f"two records, not {taken}:\n{node.process.errors}")
    node.process.kill()
    node.set_clock(ahead_ms)
    node.start()
    with Admin(node.bootstrap) as admin, ShareConsumer({**options, **node.bootstrap}) as consumer:
        consumer.subscribe(["jobs"])
        again = until(lambda: list(consumer.poll(0.5)), lambda: "the record with the short delay")
        assert [message.offset() for message in again] == [1]
        consumer.acknowledge(again[0])
        left_ms = until(lambda: _delayed_for_ms(admin), lambda: "the other record waits")
        assert 3_600_000 - BOUND_S * 2_000 < left_ms <= 3_600_000


@pytest.mark.rule("CM-171")
@pytest.mark.asyncio
async def test_durability_switched_off_under_way_is_reported_and_by_setting_ends_writes(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.start(**{"store_unsafe_stop_writes": "true"})
    try:
        with Admin(node.bootstrap) as admin:
            admin.create_topics([NewTopic("jobs", 1)])
            produce(node, "jobs", 1)
            assert await node.store("CONFIG", "SET", "appendonly", "no") == b"OK"
            line = node.until_logged("store_setting_unsafe")
            assert "appendonly is no, expected yes" in line
            assert '"level": "error"' in line
            failed: list[str] = []
            with Producer({**node.bootstrap, "delivery.timeout.ms": "1500"}) as producer:
                producer.produce("jobs", b"x", on_delivery=lambda error, _: failed.append(str(error)))
                producer.flush()
            assert failed != ["None"]
            assert await node.store("CONFIG", "SET", "appendonly", "yes") == b"OK"
            node.until_logged("store_setting_restored")
            produce(node, "jobs", 1)
            assert admin.list_offsets({Partition("jobs", 0): -1}) == {Partition("jobs", 0): 2}
    finally:
        node.process.kill()
