"""Small conversions that decoders share. Absent numbers become None, never −1 or 0 (PM-16)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kip932.ids import TOPIC_ID_BYTES, topic_id_text

#: Last millisecond of the year 9999. Later times are taken as malformed; Spark could not show them.
TIME_MS_MAX: Final = 253_402_300_799_999


@lru_cache(maxsize=65_536)  # one text for each distinct id (PM-79)
def topic_text(topic_id: bytes) -> str:
    """The text of a topic id. Raises ValueError for anything but 16 bytes."""
    if len(topic_id) != TOPIC_ID_BYTES:
        raise ValueError(f"a topic id has {len(topic_id)} bytes; expected {TOPIC_ID_BYTES}")
    return topic_id_text(topic_id)


def time_us(time_ms: int) -> int | None:
    """Microseconds for Arrow; None for 0, which means absent. Raises ValueError for a negative or too large time."""
    if not 0 <= time_ms <= TIME_MS_MAX:
        raise ValueError(f"{time_ms} ms since 1970 is not a time before the year 10000")
    return time_ms * 1000 or None


def known(value: int) -> int | None:
    """The value; None for −1, which means absent in Kafka."""
    return None if value < 0 else value
