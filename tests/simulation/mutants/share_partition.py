"""Planted bugs in the core of a share-partition: the naive model in `tests/model` finds them with its fixed histories.

The first two were real bugs. Each is written as (name, its mistake, rules, module, old text, new text).
"""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

_CORE: Final = "partition_leader.share_partition.core"
_FIXED: Final = "test_the_core_and_the_naive_model_agree_after_every_step_of_fixed_histories"
FIXED_HISTORIES: Final = (f"tests/model/test_model.py::{_FIXED}",)

_PLANTED: Final[tuple[tuple[str, str, tuple[str, ...], str, str, str], ...]] = (
    (
        "letter-before-its-write",
        "a record that a read-back sends to the dead-letter queue gets its letter before it is stored, and one after",
        ("PL-305", "PL-707"),
        f"{_CORE}.write_results",
        "    state.send_letters(causes)\n    state.roll_back(operations)\n",
        "    state.roll_back(operations)\n    state.send_letters(causes)\n",
    ),
    (
        "letters-wake-no-fetch",
        "no fetch is woken when written dead letters make room for new records",
        ("PL-214", "PL-915"),
        f"{_CORE}.write_results",
        "    state.wake = True  # records that wait for their dead letters free up room (PL-915)\n",
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
        f"{_CORE}.write_results",
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
        "a pass that ended before the end of its read resolves the holes after that, too",
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
        "the dead letters of records in a failed write are never sent",
        ("PL-305", "PL-904"),
        f"{_CORE}.write_back",
        "        self.dirty.archiving += carried.archiving\n",
        "",
    ),
    (
        "failed-counters-lost",
        "what a failed write reported of timed-out and given-up records is in no later one",
        ("PL-702", "PL-811"),
        f"{_CORE}.write_back",
        "        self.dirty.counters = self.dirty.counters.plus(carried.counters)\n",
        "",
    ),
    (
        "fresh-letters-overtake",
        "new dead letters are sent at once although earlier ones wait to be retried",
        ("PL-912",),
        "partition_leader.dead_letters.core.waiting",
        "        if self.attempts and self._waiting:\n",
        "        if self.attempts < 0 and self._waiting:\n",
    ),
    (
        "swept-spans-halved",
        "when what is unwritten is joined, the older half of it is lost",
        ("PL-621", "PL-305"),
        f"{_CORE}.write_back",
        "            dirty.spans = normalized(dirty.spans, 0)\n",
        "            dirty.spans = normalized(dirty.spans[len(dirty.spans) // 2 :], 0)\n",
    ),
    (
        "lock-before-its-holder",
        "a cached batch gets its lock entry before it is held: a sweep of the locks drops it, and the lock never ends",
        ("PL-302", "PL-303"),
        f"{_CORE}.acquire",
        "        batch.hold(batch.first, batch.last, now.member, now.deadline)\n"
        "        window.lock(batch.first, batch.last, now.deadline)\n",
        "        window.lock(batch.first, batch.last, now.deadline)\n"
        "        batch.hold(batch.first, batch.last, now.member, now.deadline)\n",
    ),
    (
        "lock-before-its-batch",
        "a new part of a log batch gets its lock entry before it is cached: a sweep of the locks drops it",
        ("PL-236", "PL-302"),
        f"{_CORE}.acquire",
        "        self._window.add(batch)\n        self._window.lock(first, cut - 1, now.deadline)\n",
        "        self._window.lock(first, cut - 1, now.deadline)\n        self._window.add(batch)\n",
    ),
    (
        "delay-before-its-end",
        "a record that waits gets its entry before the end of its delay is set: a sweep of the locks drops it",
        ("PL-932",),
        f"{_CORE}.in_flight",
        "        batch.hold(first, last, NO_MEMBER, until_ms)\n        self.lock(first, last, until_ms)\n",
        "        self.lock(first, last, until_ms)\n        batch.hold(first, last, NO_MEMBER, until_ms)\n",
    ),
    (
        "swept-locks-in-no-order",
        "after a sweep of the locks the earliest is not the first",
        ("PL-303",),
        f"{_CORE}.locks",
        "            heapq.heapify(self._entries)\n",
        "            self._entries.reverse()\n",
    ),
    (
        "forgotten-batches-cut-short",
        "when the places of forgotten batches are freed, one too many first offsets go",
        ("PL-004", "PL-120"),
        f"{_CORE}.in_flight",
        "            del self._firsts[: self._head]\n",
        "            del self._firsts[: self._head + 1]\n",
    ),
    (
        "joined-over-a-hole",
        "settled batches are joined over offsets that are in none of them",
        ("PL-935", "PL-606"),
        f"{_CORE}.pieces",
        "    same = end.last + 1 == first and (end.code, end.count, end.deadline) == rank\n",
        "    same = (end.code, end.count, end.deadline) == rank\n",
    ),
)

SHARE_PARTITION: Final = tuple(
    Mutant(name, wrong, rules, (Edit(module, old, new),), FIXED_HISTORIES)
    for name, wrong, rules, module, old, new in _PLANTED
)
