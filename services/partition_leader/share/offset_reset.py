"""Finds the start offset of a share-partition that has none stored: `share.auto.offset.reset` (PL-605)."""

from __future__ import annotations

from kip932.ids import OFFSET_EARLIEST, OFFSET_LATEST
from partition_leader.topic_log.topic_log import TopicLog
from shard_runtime.config.kafka_configs import BY_DURATION, EARLIEST
from shard_runtime.config.setting import duration_ms


async def reset_offset(topic_log: TopicLog, policy: str, wall_ms: int) -> int:
    """Return the start offset by `policy`: latest, earliest or by_duration:<ISO-8601>.

    `latest` is the high watermark at either isolation level. So is by_duration when no record is young enough [P].
    Raises KafkaError when the log cannot be read.
    """
    if policy == EARLIEST:
        timestamp = OFFSET_EARLIEST
    elif policy.startswith(BY_DURATION):
        timestamp = max(0, wall_ms - duration_ms(policy.removeprefix(BY_DURATION)))
    else:
        timestamp = OFFSET_LATEST
    found = await topic_log.offset_for(timestamp)
    return topic_log.high_watermark if found is None else found.offset
