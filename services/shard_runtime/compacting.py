"""Carries compaction out: cold copies in slices, then the trim they justify (CM-18, SR-13…17).

`compaction.Positions` plans; this module only asks the shard for copies and the log for the trim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from shard_runtime.clock import Clock
from shard_runtime.holding import Holding
from shard_runtime.host_options import HostMeter
from shard_runtime.record_log import LogError, RecordLog, ShardId
from shard_runtime.shard import CommandT, RecordT

log = structlog.get_logger(__name__)

_FAILED_COPY_RETRY_MS = 60_000


def copy_next_slice(
    holding: Holding[CommandT, RecordT],
    clock: Clock,
    append_cold: Callable[[Sequence[RecordT]], bool],
) -> None:
    """When the stream has grown past its limit and no copy is outstanding: append the next slice of cold copies.

    `append_cold` takes the records of one atomic append; False means that the shard is gone.
    """
    wall_ms = clock.wall_ms()
    while not holding.copying and holding.plan_compaction(clock.now_ms()):
        keys = holding.next_slice()
        try:
            copies = [copy for copy in holding.shard.rewrite(keys, wall_ms) if copy]
        except Exception:
            log.exception("cold copies failed; compaction waits", shard=holding.lease.shard.tag, keys=len(keys))
            holding.stop_compaction(clock.now_ms() + _FAILED_COPY_RETRY_MS)
            return
        holding.copying = len(copies)
        for copy in copies:
            if not append_cold(copy):
                return
        if not copies:
            holding.slice_done()


async def trim(
    holding: Holding[CommandT, RecordT], record_log: RecordLog, shard_id: ShardId, clock: Clock, meter: HostMeter
) -> None:
    """Move `replay_from` to the smallest id still needed and trim below it; only confirmed appends count (SR-15)."""
    to = holding.positions.needed_from()
    holding.stop_compaction(clock.now_ms() + holding.retry_ms)
    lease = holding.lease
    try:
        ours = await record_log.compact(
            shard_id,
            lease.incarnation,
            lease.epoch,
            shard_id.streams[0],
            to.id,
            keep_from=holding.history.keep_from(clock.now_ms()),
        )
    except LogError as error:
        log.warning("trim not done; it will be tried again", shard=shard_id.tag, why=str(error))
        return
    if not ours:
        lease.give_up("the owner record is not ours any more")
        return
    holding.stop_compaction(clock.now_ms())
    holding.positions.trimmed(to)
    meter.trimmed(holding.positions.entries)
