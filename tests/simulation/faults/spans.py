"""How long faults last, in milliseconds."""

from __future__ import annotations

from random import Random
from typing import Final

#: A process is away for less than a lease (CM-3: 3 s), about as long, or longer.
_AWAY_MS: Final = ((0, 500), (500, 2_500), (2_700, 3_300), (3_500, 7_000))
_SPAN_MS: Final = ((50, 1_000), (1_000, 4_000), (4_000, 9_000))


def away(rng: Random) -> int:
    """Draw how long a process is away: less than the lease, about as long, or longer."""
    return rng.randint(*rng.choice(_AWAY_MS))


def span(rng: Random) -> int:
    """Draw how long any other fault lasts."""
    return rng.randint(*rng.choice(_SPAN_MS))
