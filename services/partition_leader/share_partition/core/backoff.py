"""How long records are delayed before a retry: a group's back-off, with a source of random numbers (PL-936).

The random numbers are passed in: a core draws none itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from shard_runtime.config.group_config import NO_BACKOFF, Backoff


class Retries(NamedTuple):
    """The current policy and the source of random numbers, of which one is drawn per stretch of records (PL-936)."""

    backoff: Backoff
    chance: Callable[[], float]

    def delay_ms(self, delivery_count: int) -> int:
        """Return the delay for records that failed at this delivery count; 0 if they are not delayed."""
        return self.backoff.delay_ms(delivery_count, self.chance()) if self.backoff.initial_ms else 0


#: For records that are retried at once, regardless of the group's policy.
AT_ONCE: Final = Retries(NO_BACKOFF, float)
