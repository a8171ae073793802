"""Where a share-partition begins that has no stored start offset: `share.auto.offset.reset` (PL-605)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from kip932.errors import InvalidConfigError
from kip932.ids import OFFSET_EARLIEST, OFFSET_LATEST
from partition_leader.topic_log import TopicLog

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


def duration_ms(text: str) -> int:
    """Milliseconds of an ISO-8601 duration of days and smaller units. Raises InvalidConfigError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise InvalidConfigError(f"{text!r} is not an ISO-8601 duration such as PT1H or P7D")
    parts = {unit: float(number) for unit, number in match.groupdict().items() if number}
    return int(timedelta(**parts).total_seconds() * 1000)


async def reset_offset(topic_log: TopicLog, policy: str, wall_ms: int) -> int:
    """The start offset by `policy`: latest, earliest or by_duration:<ISO-8601>.

    `latest` is the high watermark whatever the isolation level. A duration that no record is young enough for means the
    high watermark too [P].
    """
    if policy == "earliest":
        timestamp = OFFSET_EARLIEST
    elif policy.startswith("by_duration:"):
        timestamp = max(0, wall_ms - duration_ms(policy.removeprefix("by_duration:")))
    else:
        timestamp = OFFSET_LATEST
    found = await topic_log.offset_for(timestamp)
    return topic_log.high_watermark if found is None else found.offset
