"""Decides when connections are too old: when gRPC ends them, and when their streams should move before that (CM-194).
Pure: times are passed in.

gRPC does not say how old a connection is, so its age counts from its first call. `GRACE_MAX_MS`: how long a connection
that takes no new calls stays open, at most; a younger maximum age has a shorter grace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

GRACE_MAX_MS: Final = 30_000
#: How many connections are remembered: the newest.
CONNECTIONS_MAX: Final = 20_000
#: gRPC multiplies the age that it is given by 0.9 to 1.1, a random number for each connection.
_GRPC_JITTER: Final = 1.1
#: A stream is asked to move at a random part of the age, from the first of these on, as long as the second.
_MOVE_FROM: Final = 0.7
_MOVE_OVER: Final = 0.1


def grace_ms(age_ms: int) -> int:
    """Return how long the calls of a connection that has reached its age may go on."""
    return min(age_ms, GRACE_MAX_MS)


def grpc_age_ms(age_ms: int) -> int:
    """Return the age to give to gRPC, so that no connection takes new calls beyond `age_ms`."""
    return max(1, int(age_ms / _GRPC_JITTER))


@dataclass(slots=True)
class ConnectionAges:
    """The connections of one server. `rng` returns a random number from 0 to 1."""

    age_ms: int
    rng: Callable[[], float]
    connections_max: int = CONNECTIONS_MAX
    #: When each connection was first seen, and when its streams should move; the oldest first.
    _known: dict[str, tuple[float, float]] = field(default_factory=dict)

    def move_at_s(self, connection: str, now_s: float) -> float:
        """Note a call of a connection. Return when its streams should move; both in s of one clock."""
        known = self._known.get(connection)
        if known is not None and now_s - known[0] <= self._forget_s:
            return known[1]
        self._known.pop(connection, None)  # gRPC closed that one long ago: this is another one with its address
        self._forget(now_s)
        part = _MOVE_FROM + _MOVE_OVER * self.rng()
        move_at_s = now_s + part * self.age_ms / 1000
        self._known[connection] = now_s, move_at_s
        return move_at_s

    @property
    def _forget_s(self) -> float:
        return (self.age_ms + grace_ms(self.age_ms)) / 1000

    def _forget(self, now_s: float) -> None:
        while self._known:
            oldest = next(iter(self._known))
            if len(self._known) < self.connections_max and now_s - self._known[oldest][0] <= self._forget_s:
                return
            del self._known[oldest]
