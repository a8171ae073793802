"""A share group's work as numbers that an autoscaler can divide by a target: pure, no I/O, no clock.

A trigger sets records per worker (`lagTarget`), the age that the oldest unfinished record may reach
(`ageTargetSeconds`), or both. Each becomes a metric of its own; the autoscaler follows the larger demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

LAG: Final = "lag"
AGE: Final = "age-seconds"
GROUP: Final = "group"
TOPICS: Final = "topics"
LAG_TARGET: Final = "lagTarget"
AGE_TARGET: Final = "ageTargetSeconds"
#: Entries of the trigger's metadata that KEDA itself reads.
_KEDAS: Final = frozenset(
    {"scalerAddress", "tlsCertFile", "caCert", "tlsClientCert", "tlsClientKey", "unsafeSsl", "enableTLS"}
)


class TriggerError(ValueError):
    """The trigger's metadata has an entry that this scaler cannot use; the message names it and what is accepted."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """What a ScaledObject requests. `topics`: empty for all topics in which the group has offsets."""

    group: str
    topics: frozenset[str]
    targets: Mapping[str, float]
    """Value per worker, by metric."""


@dataclass(frozen=True, slots=True)
class PartitionBacklog:
    """One share-partition: the number of records that could be worked on now, and the timestamp of the oldest that is
    not finished; None when not known."""

    lag: int
    oldest_ms: int | None = None
    """The timestamp of the oldest unfinished record, milliseconds since 1970."""


def trigger_of(metadata: Mapping[str, str]) -> Trigger:
    """Read a trigger's metadata. Raises TriggerError."""
    known = {GROUP, TOPICS, LAG_TARGET, AGE_TARGET}
    unknown = sorted(metadata.keys() - known - _KEDAS)
    if unknown:
        raise TriggerError(f"trigger metadata has {', '.join(unknown)}; expected {', '.join(sorted(known))}")
    if not metadata.get(GROUP):
        raise TriggerError(f"trigger metadata has no {GROUP}; expected the share group that the workers belong to")
    targets = {
        metric: _positive(word, metadata[word])
        for metric, word in ((LAG, LAG_TARGET), (AGE, AGE_TARGET))
        if word in metadata
    }
    if not targets:
        raise TriggerError(f"trigger metadata has no target; expected {LAG_TARGET}, {AGE_TARGET} or both")
    topics = frozenset(word.strip() for word in metadata.get(TOPICS, "").split(",") if word.strip())
    return Trigger(metadata[GROUP], topics, targets)


def _positive(word: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise TriggerError(f"trigger metadata has {word}={text!r}; expected a number above 0")
    return value


def values(backlog: Iterable[PartitionBacklog], now_ms: int) -> dict[str, float]:
    """Return the metrics: the sum of all lags, and the maximum age. A record with a future timestamp has the age 0."""
    waiting = [partition for partition in backlog if partition.lag > 0]
    ages = [now_ms - partition.oldest_ms for partition in waiting if partition.oldest_ms is not None]
    return {LAG: float(sum(partition.lag for partition in waiting)), AGE: max(0, *ages, 0) / 1000}
