"""Detects that an operator settled damaged entries of a shard served here, and has the shard replayed (CM-109)."""

from __future__ import annotations

import asyncio

import structlog

from shard_runtime.hosting.shard import CommandT, RecordT
from shard_runtime.hosting.shard_tenure import ShardTenure
from shard_runtime.record_log.protocol import LogError, RecordLog

log = structlog.get_logger(__name__)


def guard_quarantine(tenure: ShardTenure[CommandT, RecordT], record_log: RecordLog, every_ms: int) -> None:
    """Start `watch_settlements` if the replay put entries in quarantine."""
    if tenure.shard.quarantined():
        tenure.watch = asyncio.get_running_loop().create_task(watch_settlements(tenure, record_log, every_ms))


async def watch_settlements(tenure: ShardTenure[CommandT, RecordT], record_log: RecordLog, every_ms: int) -> None:
    """While entries of the shard are in quarantine, check every `every_ms` whether one was settled; if so, give the
    shard up. This node claims it again at once, and the replay applies the settlement."""
    shard = tenure.lease.shard
    while tenure.shard.quarantined():
        await asyncio.sleep(every_ms / 1_000)
        try:
            settled = await record_log.skipped(shard)
        except LogError as error:
            log.debug("settlements_read_failed", shard=shard.tag, cause=str(error))
            continue
        waiting = {found.at for found in tenure.shard.quarantined()}
        if found := sorted(waiting & {str(entry) for entry in settled}):
            tenure.lease.give_up(f"an operator settled damaged entries ({', '.join(found[:3])}); it is replayed anew")
            return
