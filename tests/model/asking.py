"""What the members of a history ask for with their acknowledgements: types, and delays of releases (PL-930)."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.model.leader import ACCEPT, GAP, REJECT, RELEASE, RENEW
from tests.model.orders import Ack
from tests.model.records import Rules

#: Of releases. One is above the least maximum of a group, so that what is stored may be above what a successor allows.
DELAYS: Final = (-1, -1, -1, 0, 0, 300, 1_000, 4_000, 15_000)
KINDS: Final = [ACCEPT] * 8 + [RELEASE] * 4 + [REJECT] * 4 + [RENEW] * 2 + [GAP] * 2


def draw_ack(rng: Random, rules: Rules, first: int, last: int) -> Ack:
    """Types for these offsets, one for all or one each, and often delays for those that are released."""
    size = last - first + 1
    types = (rng.choice(KINDS),) if rng.random() < 0.6 else tuple(rng.choices(KINDS, k=size))
    if RELEASE not in types or rng.random() < 0.4:
        return first, last, types, ()
    allowed = [delay for delay in DELAYS if delay <= rules.delay_max]
    if types == (RELEASE,) and rng.random() < 0.5:
        return first, last, types, (rng.choice(allowed),)
    delays = (rng.choice(allowed) if kind_at(types, at) == RELEASE else -1 for at in range(size))
    return first, last, types, tuple(delays)


def kind_at(types: tuple[int, ...], at: int) -> int:
    """The type of one offset: one for all, or one each."""
    return types[0] if len(types) == 1 else types[at]
