"""How long a record waits before it is tried again: a group's back-off, as one pure function (PL-936).

The number that chance gives comes in from outside: a core draws none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

#: The exponent is cut here, so that a delivery count of a stored state cannot make a number that is none.
_EXPONENT_MAX: Final = 64


class Backoff(NamedTuple):
    """A group's policy. `initial_ms` 0: none. `jitter`: the greatest part of a delay that chance takes off."""

    initial_ms: int = 0
    multiplier: float = 2.0
    max_ms: int = 60_000
    jitter: float = 0.1

    def delay_ms(self, delivery_count: int, chance: float) -> int:
        """The delay after so many deliveries, 0 without a policy; `chance` is in 0…1. At least 1 ms, for one that is
        none would be told from no policy by nobody."""
        if not self.initial_ms:
            return 0
        exponent = min(max(delivery_count - 1, 0), _EXPONENT_MAX)
        grown = min(self.initial_ms * self.multiplier**exponent, float(self.max_ms))
        return max(1, round(grown * (1 - self.jitter * chance)))


NO_BACKOFF: Final = Backoff()


class Retries(NamedTuple):
    """The policy of this moment, and where chance comes from: once for each stretch of records (PL-936)."""

    backoff: Backoff
    chance: Callable[[], float]

    def delay_ms(self, delivery_count: int) -> int:
        """How long records wait that failed at this delivery; 0: not at all."""
        return self.backoff.delay_ms(delivery_count, self.chance()) if self.backoff.initial_ms else 0


#: For what is tried again at once, whatever the group's policy.
AT_ONCE: Final = Retries(NO_BACKOFF, float)
