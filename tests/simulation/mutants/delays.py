"""Planted bugs in delays and back-off (PL-930 … PL-937).

The naive model in `tests/model` finds those in a single core with its fixed histories; the simulator finds the others.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant
from tests.simulation.mutants.share_partition import FIXED_HISTORIES

_CORE: Final = "partition_leader.share_partition.core"
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
        "delay-believes-any-clock",
        "a leader lets a stored record wait for as long as another clock says",
        ("PL-934",),
        "partition_leader.share_partition.delay_clock",
        "min(max(0, batch.not_before_ms - wall_ms), delay_max_ms)",
        "max(0, batch.not_before_ms - wall_ms)",
    ),
    (
        "delayed-records-unbounded",
        "new records come however many wait",
        ("PL-935",),
        f"{_CORE}.room",
        "    return window.delayed >= settings.delayed_max or window",
        "    return window.delayed < 0 or window",
    ),
    (
        "holes-need-room",
        "while there is no room, a pass skips what a former leader had in flight as if it were new",
        ("PL-607", "PL-935"),
        f"{_CORE}.acquire",
        "                if cursor < batch.first:\n",
        "                if cursor < batch.first and (self._room > 0 or not self._window.counts_records):\n",
    ),
)

DELAYS: Final = (
    *(
        Mutant(name, wrong, rules, (Edit(module, old, new),), FIXED_HISTORIES)
        for name, wrong, rules, module, old, new in _MODELLED
    ),
    Mutant(
        "load-forgets-delays",
        "a new leader has nothing wait of what was stored",
        ("INV-21",),
        (
            Edit(
                f"{_CORE}.share_partition",
                "            if code == STATE_AVAILABLE and until > now_ms:\n",
                "            if code == STATE_AVAILABLE and until < 0:\n",
            ),
        ),
    ),
    Mutant(
        "delay-without-timer",
        "nothing checks a delay's end, unless a lock ends later",
        ("INV-10", "INV-19", "PL-102"),
        (
            Edit(
                f"{_CORE}.in_flight",
                "        self.lock(first, last, until_ms)\n        self.note_delayed(last)\n",
                "        self.note_delayed(last)\n",
            ),
        ),
    ),
    Mutant(
        "session-end-waits",
        "what a session gives back waits until its lock would have ended",
        ("INV-21",),
        (
            Edit(
                f"{_CORE}.transitions",
                'Trigger.SESSION_CLOSED): Transition(PENDING_AVAILABLE, "T13")',
                'Trigger.SESSION_CLOSED): Transition(PENDING_DELAYED, "T13")',
            ),
            Edit(
                f"{_CORE}.expiry",
                "        for low, high, code, count, member, _ in _lock_runs(batch, span):\n",
                "        for low, high, code, count, member, deadline in _lock_runs(batch, span):\n",
            ),
            Edit(
                f"{_CORE}.expiry",
                "                operation.spans.append((first, last))\n                if state == STATE_ARCHIVING:\n"
                "                    operation.dead",
                "                operation.spans.append((first, last))\n                if state == STATE_AVAILABLE:\n"
                "                    operation.delays.append(((first, last), deadline))\n"
                "                if state == STATE_ARCHIVING:\n                    operation.dead",
            ),
        ),
    ),
    Mutant(
        "snapshot-forgets-delays",
        "a snapshot of a share-partition's state has no ends of delays",
        ("INV-21",),
        (
            Edit(
                "share_coordinator.core.share_state",
                "            batches=self.batches,\n            fence_leader",
                "            batches=tuple(each._replace(not_before_ms=0) for each in self.batches),\n"
                "            fence_leader",
            ),
        ),
    ),
    Mutant(
        "backoff-never-grows",
        "a back-off takes no notice of the delivery count",
        ("INV-21",),
        (
            Edit(
                "shard_runtime.config.group_config",
                "        exponent = min(max(delivery_count - 1, 0), _EXPONENT_MAX)\n",
                "        exponent = min(0 * delivery_count, _EXPONENT_MAX)\n",
            ),
        ),
    ),
    Mutant(
        "delayed-counts-as-finished",
        "the start offset passes records that wait",
        ("INV-1", "INV-9", "INV-17", "PL-102"),
        (
            Edit(
                f"{_CORE}.transitions",
                "TERMINAL_CODES: Final = bytes([STATE_ACKNOWLEDGED, STATE_ARCHIVED])",
                "TERMINAL_CODES: Final = bytes([STATE_ACKNOWLEDGED, STATE_ARCHIVED, DELAYED])",
            ),
        ),
    ),
    Mutant(
        "delay-stored-by-own-clock",
        "a leader stores the ends of delays by a clock that is another in each process",
        ("INV-21",),
        (
            Edit(
                "partition_leader.share_partition.delay_clock",
                "    ahead_ms = clock.wall_ms() - clock.now_ms()\n",
                "    ahead_ms = 0 * clock.wall_ms()\n",
            ),
        ),
    ),
    Mutant(
        "one-delay-for-all",
        "of several delays of a batch the first one holds for all its releases",
        ("INV-21",),
        (Edit(f"{_CORE}.delays", "    if len(delays) <= 1:\n", "    if True:\n"),),
    ),
)
