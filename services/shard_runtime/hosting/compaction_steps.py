"""Carries out compaction: appends cold copies in slices, then trims the entries they replace (CM-18, SR-13…17).

`compaction_plan.Positions` plans; this module only gets copies from the shard and calls the log to trim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from shard_runtime.clock import Clock
from shard_runtime.hosting.host_options import HostMeter
from shard_runtime.hosting.shard import CommandT, RecordT
from shard_runtime.hosting.shard_tenure import ShardTenure
from shard_runtime.record_log.protocol import LogError, RecordLog, ShardId, StreamId

log = structlog.get_logger(__name__)

_FAILED_COPY_RETRY_MS = 60_000
_LOGGED_NAMES_MAX = 5
_LOGGED_NAME_CHARS_MAX = 64


def copy_next_slice(
    tenure: ShardTenure[CommandT, RecordT],
    clock: Clock,
    append_cold: Callable[[Sequence[RecordT]], bool],
) -> None:
    """Append the next slice of cold copies, if the stream has grown past its limit and no copy is outstanding.

    `append_cold` takes the records of one atomic append; it returns False when the shard is no longer held.
    """
    wall_ms = clock.wall_ms()
    while not tenure.copying and tenure.plan_compaction(clock.now_ms()):
        keys = tenure.next_slice()
        try:
            copies = [copy for copy in tenure.shard.rewrite(keys, wall_ms) if copy]
        except Exception:
            log.exception("cold_copies_failed", shard=tenure.lease.shard.tag, keys=len(keys), effect="compaction waits")
            tenure.stop_compaction(clock.now_ms() + _FAILED_COPY_RETRY_MS)
            return
        tenure.copying = len(copies)
        for copy in copies:
            if not append_cold(copy):
                return
        if not copies:
            tenure.slice_done()


async def trim(
    tenure: ShardTenure[CommandT, RecordT], record_log: RecordLog, shard_id: ShardId, clock: Clock, meter: HostMeter
) -> None:
    """Move `replay_from` to the smallest id still needed, judged by confirmed appends only, and trim below it (SR-15).

    When the store fails, the trim is tried again later. When this node no longer owns the shard, the lease is given up.
    """
    to = tenure.positions.needed_from()
    tenure.stop_compaction(clock.now_ms() + tenure.retry_ms)
    lease = tenure.lease
    try:
        keep_from = await _keep_from(tenure, record_log, shard_id, clock)
        ours = await record_log.compact(
            shard_id,
            lease.incarnation,
            lease.epoch,
            shard_id.streams[0],
            to.id,
            keep_from=keep_from,
        )
    except LogError as error:
        log.warning("shard_trim_failed", shard=shard_id.tag, cause=str(error), effect="the trim is tried again later")
        return
    if not ours:
        lease.give_up("the owner record is not ours any more")
        return
    tenure.stop_compaction(clock.now_ms())
    tenure.positions.trimmed(to)
    meter.trimmed(tenure.positions.entries)


async def _keep_from(
    tenure: ShardTenure[CommandT, RecordT], record_log: RecordLog, shard_id: ShardId, clock: Clock
) -> StreamId | None:
    """Return where the trim must stop. Readers' notes are read only here, never while a command waits (SR-29).

    Raises LogError the first time the notes cannot be read, which postpones the trim. The second time in a row, the
    trim proceeds without them: the stream must not grow for readers that may not exist.
    """
    notes, trouble = None, ""
    if tenure.retention.needs_reader_notes:
        try:
            notes = await record_log.readers(shard_id)
        except LogError as error:
            if not tenure.readers_missed:
                tenure.readers_missed = True
                raise
            trouble = str(error)
        else:
            tenure.readers_missed = False
    keep_from, malformed = tenure.retention.keep_from(clock.now_ms(), notes)
    if malformed:
        examples = ", ".join(name[:_LOGGED_NAME_CHARS_MAX] for name in malformed[:_LOGGED_NAMES_MAX])
        trouble = f"{len(malformed)} fields belong to no reader, such as {examples}"
    if trouble and trouble != tenure.readers_trouble:
        log.warning(
            "stream_readers_ignored",
            shard=shard_id.tag,
            key=shard_id.readers_key,
            cause=trouble,
            effect="the trim goes on without them",
        )
    tenure.readers_trouble = trouble
    return keep_from
