"""The topic log on a real Valkey: its scripts, its trims, and its state after the store is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_log.topic_log import TopicLog
from shard_runtime.clock import SystemClock
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import Renewal
from shard_runtime.record_log.redis.connection import StoreSettings
from shard_runtime.record_log.redis.log import StoreRecordLog
from shard_runtime.record_log.redis.topology import open_store
from share_node.store.data_directory import DataDirectory
from share_node.store.embedded_store import EmbeddedStore
from tests.support.claims import claim
from tests.unit.partition_leader.topic_log.harness import SHARD, batch

pytestmark = pytest.mark.asyncio

SETTINGS = TopicLogSettings(snapshot_batches=10, tail_cache_bytes=200, read_ahead_bytes=500)
LEASE_MS = 600_000
TIMEOUT_MS = 60_000


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    made = EmbeddedStore(DataDirectory(tmp_path))
    await made.start()
    yield made
    await made.stop()


class Owner:
    """One process that uses the store."""

    def __init__(self, store: EmbeddedStore, number: int) -> None:
        self.number = number
        self.clock = SystemClock()
        self.log = StoreRecordLog(open_store(store.url), StoreSettings(call_ms=20_000), self.clock)

    async def lead(self) -> TopicLog:
        others = frozenset(range(9)) - {self.number}
        answer = await claim(self.log, SHARD, self.number, lease_ms=LEASE_MS, dead=others, lossless=True)
        lease = Lease(
            SHARD,
            self.number,
            answer.epoch,
            deadline_ms=answer.sent_ms + LEASE_MS,
            clock=self.clock,
            give_up=lambda *_: None,
        )
        log = await TopicLog.load(self.log, lease, answer, self.clock, SETTINGS)
        await self.log.renew([Renewal(SHARD, self.number, answer.epoch, LEASE_MS, tail_ok=answer.history)])
        return log


async def read_all(log: TopicLog) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        result = await log.read(offset, 300)
        found += [(one.base_offset, one.data) for one in result.batches]
        offset = result.batches[-1].end_offset if result.batches else result.data_offset
    return found


@pytest.mark.rule("CM-40", "CM-43", "CM-45", "CM-46")
async def test_a_log_lives_through_appends_trims_searches_and_takeovers(store: EmbeddedStore) -> None:
    one, two = Owner(store, 1), Owner(store, 2)
    try:
        log = await one.lead()
        sent = [batch(2, text=f"r{i}", producer=3, sequence=2 * i, timestamps=[i, i]) for i in range(60)]
        futures = [log.submit([each], TIMEOUT_MS) for each in sent[:30]]
        bases = [(await future).base_offsets[0] for future in futures]
        bases += [(await log.append([each], TIMEOUT_MS)).base_offsets[0] for each in sent[30:]]
        assert bases == list(range(0, 120, 2))
        assert await log.move_log_start(11) == 11
        found = await log.offset_for(40)
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (80, 40)
        await log.close(drain_s=20)
        new = await two.lead()
        assert (new.log_start_offset, new.high_watermark) == (11, 120)
        expected = [(base, each.data) for base, each in zip(bases, sent, strict=True)]
        assert await read_all(new) == expected[5:]
        assert (await new.append([sent[-1]], TIMEOUT_MS)).base_offsets == (118,)
        assert await new.retain(SystemClock().wall_ms() + 10_000, 0, -1) == 120
        again = await one.lead()
        assert (again.log_start_offset, again.high_watermark) == (120, 120)
        tip = await one.log.tip(SHARD.streams[0])
        assert tip is not None
        assert tip.length <= 4
    finally:
        await one.log.close()
        await two.log.close()


@pytest.mark.rule("CM-15", "CM-19", "SR-9")
async def test_nothing_acknowledged_is_lost_when_the_store_is_killed(store: EmbeddedStore) -> None:
    owner = Owner(store, 1)
    try:
        log = await owner.lead()
        sent = [batch(1, text=f"k{i}", producer=3, sequence=i) for i in range(200)]
        acked: dict[int, int] = {}
        for number, each in enumerate(sent):
            if number == 100:
                assert store.pid is not None
                os.kill(store.pid, signal.SIGKILL)
            for _ in range(100):
                if log.closed:
                    await log.close()
                    await owner.log.drop(SHARD)
                    log = await owner.lead()
                try:
                    acked[number] = (await log.append([each], TIMEOUT_MS)).base_offsets[0]
                    break
                except Exception:
                    await asyncio.sleep(0.1)
        assert acked == {number: number for number in range(200)}
        assert await read_all(log) == [(number, each.data) for number, each in enumerate(sent)]
    finally:
        await owner.log.close()
