"""Planted bugs in delays and back-off (PL-930 … PL-937).

Those of one core the naive model of `tests/model` finds in its fixed histories; the others the simulator hunts.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant
from tests.simulation.mutants.share_partition import FIXED_HISTORIES

_CORE: Final = "partition_leader.share.core"
_ROLLED_BACK: Final = (
    "            else:\n                window.recode(batch, first, last, ROLL_BACK)\n                continue\n"
)
_MODELLED: Final[tuple[tuple[str, str, tuple[str, ...], str, str, str], ...]] = (
    (
        "failed-write-keeps-delay",
        "a record whose release could not be written waits, though its holder has it back",
        ("PL-933", "T19"),
        f"{_CORE}.operations",
        _ROLLED_BACK,
        "            elif code & DELAYED:\n"
        "                table, state, delay_ms = ROLL_BACK_EXPIRED[DELAYED], DELAYED, 1_000\n" + _ROLLED_BACK,
    ),
    (
        "failed-session-end-waits",
        "what a session could not give back before its lock ended waits by the back-off",
        ("PL-936", "T13"),
        f"{_CORE}.partition_state",
        "            again = AT_ONCE if operation.cause == CAUSE_SESSION_RELEASE else Retries(",
        "            again = AT_ONCE if operation.cause < 0 else Retries(",
    ),
    (
        "delay-from-its-write",
        "a delay that is over when its write ends goes on",
        ("PL-933",),
        f"{_CORE}.operations",
        "                    if until_ms <= now_ms:\n",
        "                    if until_ms < 0:\n",
    ),
    (
        "expired-delay-unwritten",
        "the delay of a lock that ran out is not stored",
        ("PL-934", "PL-936"),
        f"{_CORE}.write_back",
        "            delays += delayed_in(window, carried.spans)\n",
        "            delays += ()\n",
    ),
    (
        "delayed-records-unbounded",
        "new records come however many wait",
        ("PL-935",),
        f"{_CORE}.room",
        "    return window.delayed >= settings.delayed_max or window",
        "    return window.delayed < 0 or window",
    ),
)

DELAYS: Final = (
    *(
        Mutant(name, wrong, rules, (Edit(module, old, new),), FIXED_HISTORIES)
        for name, wrong, rules, module, old, new in _MODELLED
    ),
)
