"""A persister's time-outs, back-off and bounds (GC-74, PL-723, PL-724)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class PersisterSettings:
    """Times in milliseconds. The defaults are the suite's; `KAFKA_PROFILE` holds Kafka's."""

    operation_timeout_ms: int = 15_000  # persister.operation.timeout.ms: look-up, attempts and pauses of one operation
    request_timeout_ms: int = 30_000
    silence_ms: int = 3_000  # without a response for this long, calls of a moved shard fail; also bounds lookups
    backoff_ms: int = 100
    backoff_max_ms: int = 1_000  # short, so that attempts resume soon after a take-over, which is bounded (CM-4)
    jitter: float = 0.2
    attempts: int = 25  # more than fit into the operation's time-out
    keys_per_request: int = 1_000  # SC-97 [R]
    queue_max: int = 10_000  # how many operations may wait for one node; further ones fail at once

    def pause_ms(self, failures: int, rng: Random) -> float:
        """Return how long to wait after the `failures`-th failure in a row (1, 2, …)."""
        base = min(self.backoff_ms << (failures - 1), self.backoff_max_ms)
        return base * rng.uniform(1 - self.jitter, 1 + self.jitter)


#: SC-94: about 2, 4, 8, 16 s between five attempts.
KAFKA_PROFILE = PersisterSettings(operation_timeout_ms=180_000, backoff_ms=2_000, backoff_max_ms=30_000, attempts=5)
