"""Exponential back-off with jitter (CL-14). It counts failures; the caller passes in the random source and does the
waiting."""

from __future__ import annotations

from collections.abc import Callable

_JITTER = 0.2


class Backoff:
    """Delays `initial`, 2 × `initial`, … up to `maximum`, each spread by ±20 %.

    `random` gives numbers in [0, 1). Call `reset` after a success.
    """

    __slots__ = ("_failures", "_initial_ms", "_maximum_ms", "_random")

    def __init__(self, initial_ms: int, maximum_ms: int, random: Callable[[], float]) -> None:
        self._initial_ms = initial_ms
        self._maximum_ms = maximum_ms
        self._random = random
        self._failures = 0

    @property
    def failures(self) -> int:
        """The number of `next_ms` calls since the last `reset`."""
        return self._failures

    def next_ms(self) -> int:
        """Return the delay before the next retry, in ms. Each call makes the next delay longer, up to the maximum."""
        exponent = min(self._failures, 30)
        self._failures += 1
        delay = min(self._initial_ms << exponent, self._maximum_ms)
        return min(self._maximum_ms, round(delay * (1 - _JITTER + 2 * _JITTER * self._random())))

    def reset(self) -> None:
        """Start again from the initial delay."""
        self._failures = 0
