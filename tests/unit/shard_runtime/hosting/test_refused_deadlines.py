"""What is due while the store refuses writes is done once it takes them again, though no command comes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from shard_runtime.hosting.shard_host import ShardHost
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import AppendRefusedError
from tests.support.clocks import LoopClock
from tests.support.toy_shard import SHARD, ObedientLog, Put, Record, ToyCodec, ToyShard
from tests.support.virtual_time import now_s, virtual


class Expiring(ToyShard):
    """Writes `expired` when its deadline has come, and has that deadline as long as `expired` is not there."""

    def next_deadline(self) -> int | None:
        return None if "expired" in self.values else self.deadline

    def due(self, now_ms: int) -> Sequence[object]:
        deadline_ms = self.next_deadline()
        return () if deadline_ms is None or deadline_ms > now_ms else (Put("expired", now_ms),)


@pytest.mark.rule("GC-2", "CM-13")
@virtual
async def test_what_a_timer_decided_and_the_store_refused_is_decided_again_by_itself() -> None:
    """An undone decision is due again: otherwise a lost member would stay until the next command of its shard."""
    log, clock = ObedientLog(), LoopClock()
    host: ShardHost[object, Record] = ShardHost(
        SHARD,
        Expiring,
        ToyCodec(),
        log,  # type: ignore[arg-type]  # only what a host calls
        clock,
        effects=lambda effects: None,
    )
    lease = Lease(SHARD, 1, 1, deadline_ms=clock.now_ms() + 3_600_000, clock=clock, give_up=lambda why, above: None)
    await host.gained(log.claim(1, clock.now_ms()), lease)
    shard = host.shard
    assert isinstance(shard, Expiring)
    shard.deadline = clock.now_ms() + 10_000
    await host.submit(Put("a", 1))
    log.failures.extend([AppendRefusedError("OOM")] * 3)
    await asyncio.sleep(60)
    assert (log.failures, sorted(shard.values)) == ([], ["a", "expired"])
    assert [entry.record.partition(b"=")[0] for entry in log.entries if entry.kind == "R"] == [b"a", b"expired"]
    assert now_s() == 60, "no command came meanwhile"
