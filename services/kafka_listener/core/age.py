"""When a connection is too old, and what it does then (KL-108): it ends as those of gRPC's clients do (CM-194)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

#: The maximum time that a connection may go on after it is too old, s; a lower maximum age has a shorter grace.
GRACE_MAX_S: Final = 30.0
#: Connections end at a random part of the maximum age, from the first of these on, as long as the second.
_FROM: Final = 0.82
_OVER: Final = 0.18
#: The part of the grace in which no further request begins.
_LAST_PART: Final = 0.1


class Phase(Enum):
    """What a connection does. YOUNG: it serves. OLD: it serves, members acquire nothing, and it closes at the first
    moment at which nothing is under way. LAST: it begins nothing. OVER: it is closed, with all that is under way."""

    YOUNG = auto()
    OLD = auto()
    LAST = auto()
    OVER = auto()


@dataclass(frozen=True, slots=True)
class Age:
    """When a connection ends, in s of the clock of `now_s`. `reason`: what else than the age ends then, or ""."""

    ends_s: float
    grace_s: float
    reason: str = ""

    @classmethod
    def begin(cls, now_s: float, max_s: float, part: float, certificate_s: float | None = None) -> Age:
        """Return the age of a connection that is opened now. `max_s`: the maximum; `part`: a random number from 0 to 1;
        `certificate_s`: for how long the client's certificate is still valid, None without one."""
        age_s, grace_s = (_FROM + _OVER * part) * max_s, min(max_s, GRACE_MAX_S)
        if certificate_s is not None and certificate_s < age_s:
            return cls(now_s + max(0.0, certificate_s), grace_s, "the client's certificate has expired")
        return cls(now_s + age_s, grace_s)

    def phase(self, now_s: float) -> Phase:
        """Return what the connection does at this time."""
        over_s = now_s - self.ends_s
        if over_s < 0:
            return Phase.YOUNG
        if over_s < self.grace_s * (1 - _LAST_PART):
            return Phase.OLD
        return Phase.LAST if over_s < self.grace_s else Phase.OVER
