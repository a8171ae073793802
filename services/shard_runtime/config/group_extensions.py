"""Group configs that Kafka does not have: for dead letters that cannot be written, and for delayed retries.

By default they are off, or do what the specification promises (PL-902, PL-930, PL-935, PL-936).
"""

from __future__ import annotations

from typing import Final

from kip932.setting import AnySetting, ConfigType, decimal, integer, string

_DAY_MS: Final = 86_400_000

GROUP_DLQ_FAILURE = string(
    "sharegroups.errors.deadletterqueue.failure", "retry",
    "What happens to a record whose dead letter cannot be written: retry keeps it until the letter is written; drop "
    "archives it without one, as Kafka does.",  # PL-907
    choices=("retry", "drop"), dynamic=True,
)  # fmt: skip
GROUP_DLQ_WAITING_MAX = integer(
    "sharegroups.errors.deadletterqueue.waiting.max", 5_000,
    "Dead letters of a share-partition that may wait to be written; at that number no new records are delivered from "
    "it.",  # PL-916
    low=1, high=5_000, dynamic=True,
)  # fmt: skip
GROUP_RETRY_DELAY_MAX_MS = integer(
    "sharegroups.retry.delay.max.ms", _DAY_MS,
    "The longest delay that a release may ask for, and the longest that anything keeps a released record.",  # PL-930
    low=1_000, high=30 * _DAY_MS, unit="ms", kind=ConfigType.LONG, dynamic=True,
)  # fmt: skip
GROUP_RETRY_DELAYED_MAX = integer(
    "sharegroups.retry.delayed.max", 5_000,
    "Records of a share-partition that may wait for the end of a delay; at that number no new records are delivered "
    "from it.",  # PL-935
    low=1, high=5_000, dynamic=True,
)  # fmt: skip
GROUP_RETRY_INITIAL_MS = integer(
    "sharegroups.retry.backoff.initial.ms", 0,
    "How long a record waits after its first delivery that was released without a delay, or whose lock ran out; 0: "
    "released records are delivered again at once, as in Kafka.",  # PL-936
    low=0, high=_DAY_MS, unit="ms", kind=ConfigType.LONG, dynamic=True,
)  # fmt: skip
GROUP_RETRY_MULTIPLIER = decimal(
    "sharegroups.retry.backoff.multiplier", 2.0, "By how much the back-off grows with each further delivery.",
    low=1, high=10, dynamic=True,
)  # fmt: skip
GROUP_RETRY_MAX_MS = integer(
    "sharegroups.retry.backoff.max.ms", 60_000, "The longest back-off.",
    low=1, high=_DAY_MS, unit="ms", kind=ConfigType.LONG, dynamic=True,
)  # fmt: skip
GROUP_RETRY_JITTER = decimal(
    "sharegroups.retry.backoff.jitter", 0.1, "The greatest part of a back-off that chance takes off.",
    low=0, high=1, dynamic=True,
)  # fmt: skip

GROUP_EXTENSIONS: Final[tuple[AnySetting, ...]] = (
    GROUP_DLQ_FAILURE,
    GROUP_DLQ_WAITING_MAX,
    GROUP_RETRY_DELAY_MAX_MS,
    GROUP_RETRY_DELAYED_MAX,
    GROUP_RETRY_INITIAL_MS,
    GROUP_RETRY_MULTIPLIER,
    GROUP_RETRY_MAX_MS,
    GROUP_RETRY_JITTER,
)
