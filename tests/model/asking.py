"""Draws the members' acknowledgements: types, delays (PL-930), deliveries that do not count (PL-941), reasons
(PL-942)."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.model.leader import ACCEPT, GAP, REJECT, RELEASE, RENEW
from tests.model.orders import Ack
from tests.model.records import Rules

#: Delays of releases. One exceeds the smallest maximum that a group may have, so a stored delay may exceed what the
#: next leader allows.
DELAYS: Final = (-1, -1, -1, 0, 0, 300, 1_000, 4_000, 15_000)
#: Why records are given up; "": not said (PL-942).
REASONS: Final = ("", "", "", "ValueError: a", "ValueError: b", "KeyError: 'ä'")
_TAKES_BACK: Final = frozenset({RELEASE, RENEW})
KINDS: Final = [ACCEPT] * 8 + [RELEASE] * 4 + [REJECT] * 4 + [RENEW] * 2 + [GAP] * 2


def draw_ack(rng: Random, rules: Rules, first: int, last: int) -> Ack:
    """Draw types for these offsets, one for all or one each, and often delays for the released ones. Some releases take
    the delivery back, as a client does for records that it never processed, and so do some renewals, as for those that
    it still processes. Half of the rest say why."""
    size = last - first + 1
    types = (rng.choice(KINDS),) if rng.random() < 0.6 else tuple(rng.choices(KINDS, k=size))
    reason = rng.choice(REASONS) if RELEASE in types or REJECT in types else ""
    delays = _delays(rng, rules, types, size) if RELEASE in types else ()
    undelivered = _undelivered(rng, types, size) if _TAKES_BACK.intersection(types) else ()
    return first, last, types, delays, undelivered, reason


def _delays(rng: Random, rules: Rules, types: tuple[int, ...], size: int) -> tuple[int, ...]:
    if rng.random() < 0.4:
        return ()
    allowed = [delay for delay in DELAYS if delay <= rules.delay_max]
    if types == (RELEASE,) and rng.random() < 0.5:
        return (rng.choice(allowed),)
    return tuple(rng.choice(allowed) if kind_at(types, at) == RELEASE else -1 for at in range(size))


def _undelivered(rng: Random, types: tuple[int, ...], size: int) -> tuple[bool, ...]:
    if rng.random() < 0.5:
        return ()
    if len(types) == 1 and rng.random() < 0.5:
        return (True,)
    return tuple(kind_at(types, at) in _TAKES_BACK and rng.random() < 0.7 for at in range(size))


def kind_at(types: tuple[int, ...], at: int) -> int:
    """Return the type of one offset: one for all, or one each."""
    return types[0] if len(types) == 1 else types[at]
