"""Planted bugs in the core of a share-partition: the naive model of `tests/model` finds them in its fixed histories.

The first two were real. Each is written as (name, what it does wrong, rules, module, old text, new text).
"""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

_CORE: Final = "partition_leader.share.core"
_FIXED: Final = "test_the_core_and_the_naive_model_agree_after_every_step_of_fixed_histories"
FIXED_HISTORIES: Final = (f"tests/model/test_model.py::{_FIXED}",)

_PLANTED: Final[tuple[tuple[str, str, tuple[str, ...], str, str, str], ...]] = (
    (
        "letter-before-its-write",
        "a record that a read-back sends to the dead-letter queue gets its letter before it is stored, and one after",
        ("PL-305", "PL-707"),
        f"{_CORE}.write_results",
        "    state.effects += state.dead_letters.send(state.window, causes)\n    state.roll_back(operations)\n",
        "    state.roll_back(operations)\n    state.effects += state.dead_letters.send(state.window, causes)\n",
    ),
    (
        "letters-wake-nobody",
        "nobody is woken when letters leave room for new records",
        ("PL-214", "PL-915"),
        f"{_CORE}.write_results",
        "        state.wake = True  # what waits for its letter leaves room (PL-915)\n",
        "",
    ),
    (
        "failed-write-forgotten",
        "what a failed write carried is in no later one",
        ("PL-621", "PL-305"),
        f"{_CORE}.write_back",
        "        self.dirty.spans += carried.spans\n",
        "",
    ),
    (
        "lock-ends-a-moment-late",
        "a lock that ends at the very moment of a roll-back goes on",
        ("PL-307",),
        f"{_CORE}.operations",
        "            elif deadline <= now_ms:\n",
        "            elif deadline < now_ms:\n",
    ),
    (
        "read-back-start-ignored",
        "a read-back takes no notice of the stored start offset",
        ("PL-707",),
        f"{_CORE}.read_back",
        "    if first < stored.start_offset:\n",
        "    if stored.start_offset < 0:\n",
    ),
    (
        "last-aborted-shown",
        "an aborted transaction of one batch of one record is delivered",
        ("PL-803",),
        f"{_CORE}.visibility",
        "        while waiting and waiting[0][0] <= batch.last_offset:\n",
        "        while waiting and waiting[0][0] < batch.last_offset:\n",
    ),
    (
        "gap-resolved-unseen",
        "a pass that ended before the end of its read resolves the holes behind that, too",
        ("PL-608",),
        f"{_CORE}.acquire",
        "        if not self._complete:\n",
        "        if self._complete is None:\n",
    ),
    (
        "log-start-not-confirmed",
        "an acknowledgement of what the log has lost waits for a write",
        ("PL-404",),
        f"{_CORE}.share_partition",
        "            state.write_back.confirm_start(event.log_start_offset)\n",
        "",
    ),
    (
        "expired-letter-stays",
        "letters of what a failed write carried are never sent",
        ("PL-305", "PL-904"),
        f"{_CORE}.write_back",
        "        self.dirty.archiving += carried.archiving\n",
        "",
    ),
    (
        "failed-counters-lost",
        "what a failed write told of timed-out and given-up records is in no later one",
        ("PL-702", "PL-811"),
        f"{_CORE}.write_back",
        "        self.dirty.counters = self.dirty.counters.plus(carried.counters)\n",
        "",
    ),
    (
        "fresh-letters-overtake",
        "letters that come while others wait to be tried again are tried at once",
        ("PL-912",),
        "partition_leader.dead_letters.core.waiting",
        "        if self.attempts and self._waiting:\n",
        "        if self.attempts < 0 and self._waiting:\n",
    ),
)

SHARE_PARTITION: Final = tuple(
    Mutant(name, wrong, rules, (Edit(module, old, new),), FIXED_HISTORIES)
    for name, wrong, rules, module, old, new in _PLANTED
)
