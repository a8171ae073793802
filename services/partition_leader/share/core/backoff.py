"""How long a record waits before it is tried again: a group's back-off, as one pure function (PL-936).

The random number is passed in: a core draws none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

#: Bound on the exponent, so that a large stored delivery count cannot overflow the result.
_EXPONENT_MAX: Final = 64


class Backoff(NamedTuple):
    """A group's back-off policy; `initial_ms` 0 means none. `jitter`: the largest fraction of a delay that chance
    removes."""

    initial_ms: int = 0
    multiplier: float = 2.0
    max_ms: int = 60_000
    jitter: float = 0.1

    def delay_ms(self, delivery_count: int, chance: float) -> int:
        """Return the delay after `delivery_count` deliveries, 0 without a policy; `chance` is in 0…1. At least 1 ms
        with a policy, because 0 means that there is none."""
        if not self.initial_ms:
            return 0
        exponent = min(max(delivery_count - 1, 0), _EXPONENT_MAX)
        grown = min(self.initial_ms * self.multiplier**exponent, float(self.max_ms))
        return max(1, round(grown * (1 - self.jitter * chance)))


NO_BACKOFF: Final = Backoff()


class Retries(NamedTuple):
    """The policy of this moment and the source of chance, drawn once for each stretch of records (PL-936)."""

    backoff: Backoff
    chance: Callable[[], float]

    def delay_ms(self, delivery_count: int) -> int:
        """Return how long records wait that failed at this delivery; 0 when they do not wait."""
        return self.backoff.delay_ms(delivery_count, self.chance()) if self.backoff.initial_ms else 0


#: For records that are tried again at once, regardless of the group's policy.
AT_ONCE: Final = Retries(NO_BACKOFF, float)
