"""How long records wait before they are tried again: a group's back-off, and the source of chance (PL-936).

The random number is passed in: a core draws none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from shard_runtime.config.group_config import NO_BACKOFF, Backoff


class Retries(NamedTuple):
    """The policy of this moment and the source of chance, drawn once for each stretch of records (PL-936)."""

    backoff: Backoff
    chance: Callable[[], float]

    def delay_ms(self, delivery_count: int) -> int:
        """Return how long records wait that failed at this delivery; 0 when they do not wait."""
        return self.backoff.delay_ms(delivery_count, self.chance()) if self.backoff.initial_ms else 0


#: For records that are tried again at once, regardless of the group's policy.
AT_ONCE: Final = Retries(NO_BACKOFF, float)
