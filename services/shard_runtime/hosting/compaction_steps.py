"""Carries compaction out: cold copies in slices, then the trim they justify (CM-18, SR-13…17).

`compaction_plan.Positions` plans; this module only asks the shard for copies and the log for the trim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from shard_runtime.clock import Clock
from shard_runtime.hosting.host_options import HostMeter
from shard_runtime.hosting.shard import CommandT, RecordT
from shard_runtime.hosting.shard_tenure import Holding
from shard_runtime.record_log.protocol import LogError, RecordLog, ShardId, StreamId

log = structlog.get_logger(__name__)

_FAILED_COPY_RETRY_MS = 60_000
_NAMES_TOLD = 5
_NAME_TOLD = 64


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
        keep_from = await _keep_from(holding, record_log, shard_id, clock)
        ours = await record_log.compact(
            shard_id,
            lease.incarnation,
            lease.epoch,
            shard_id.streams[0],
            to.id,
            keep_from=keep_from,
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


async def _keep_from(
    holding: Holding[CommandT, RecordT], record_log: RecordLog, shard_id: ShardId, clock: Clock
) -> StreamId | None:
    """Where the trim must stop. Readers are asked now, and never on the way of a command (SR-29).

    Raises LogError when their notes cannot be read for the first time, so that the trim is put off. If it fails again
    it goes on without them: a store that cannot tell must not grow for readers that may not even be there.
    """
    notes, trouble = None, ""
    if holding.retention.asks_readers:
        try:
            notes = await record_log.readers(shard_id)
        except LogError as error:
            if not holding.readers_missed:
                holding.readers_missed = True
                raise
            trouble = str(error)
        else:
            holding.readers_missed = False
    keep_from, malformed = holding.retention.keep_from(clock.now_ms(), notes)
    if malformed:
        told = ", ".join(name[:_NAME_TOLD] for name in malformed[:_NAMES_TOLD])
        trouble = f"{len(malformed)} fields are no reader's, as {told}"
    if trouble and trouble != holding.readers_trouble:
        log.warning("readers left out of account", shard=shard_id.tag, key=shard_id.readers_key, why=trouble)
    holding.readers_trouble = trouble
    return keep_from
