"""Planted bugs in what is kept of the reasons of releases and rejects: the simulator finds them."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

_RULES: Final = ("PL-942", "PL-943", "SC-117", "INV-13")
_STATE: Final = "share_coordinator.core.share_state"
_CORE: Final = "partition_leader.share_partition.core"

REASONS: Final = (
    Mutant(
        "reasons-lost-in-snapshots",
        "a snapshot of share state has no reasons",
        _RULES,
        (Edit(_STATE, "            failures=self.failures,\n", ""),),
    ),
    Mutant(
        "reasons-lost-in-combining",
        "the reasons of an update replace all that were kept before it",
        _RULES,
        (
            Edit(
                _STATE,
                "merge_failures(failures, new_failures, start_offset)",
                "merge_failures((), new_failures, start_offset)",
            ),
        ),
    ),
    Mutant(
        "reasons-outlive-their-records",
        "reasons stay in the state after the start offset has passed their records",
        _RULES,
        (
            Edit(
                _STATE, "merge_failures(failures, new_failures, start_offset)", "merge_failures(failures, new_failures)"
            ),
        ),
    ),
    Mutant(
        "lowest-delivery-says-why",
        "of two reasons for a record, that of the lower delivery count is kept",
        _RULES,
        (Edit("kip932.failures", "for one in failures}, reverse=True)", "for one in failures})"),),
    ),
    Mutant(
        "reason-for-the-neighbour",
        "the reason of a released or rejected range is kept for the record after it, too",
        _RULES,
        (
            Edit(
                f"{_CORE}.acknowledge",
                "Failure(low, high, count, ack.reason)",
                "Failure(low, high + 1, count, ack.reason)",
            ),
        ),
    ),
    Mutant(
        "reason-for-accepted-records",
        "the reason of a batch is kept for its accepted records, too",
        _RULES,
        (
            Edit(
                f"{_CORE}.acknowledge",
                "stretches(given_up, first) if len(given_up) > 1 else",
                "[(first, last)] if len(given_up) > 1 else",
            ),
        ),
    ),
    Mutant(
        "new-leader-knows-no-reasons",
        "a share-partition that is loaded does not take the stored reasons",
        _RULES,
        (Edit(f"{_CORE}.share_partition", "        state.reasons.add(event.failures, event.start_offset)\n", ""),),
    ),
    Mutant(
        "resolved-writes-lose-reasons",
        "a write whose outcome was unknown, and which was stored, leaves no reasons with the leader",
        _RULES,
        (
            Edit(
                f"{_CORE}.write_results",
                "    state.reasons.add(event.failures, max(state.window.start_offset, event.start_offset))\n",
                "",
            ),
        ),
        tests=("tests/unit/partition_leader/share_partition/core/test_reasons.py",),
    ),
    Mutant(
        "letters-say-the-first-reason",
        "all dead letters of a range have the reason of the first record in it",
        _RULES,
        (
            Edit(
                "partition_leader.dead_letters.core.waiting",
                "due_ms, reason=reason)",
                "due_ms, reason=letter.failures[0].reason if letter.failures else reason)",
            ),
        ),
    ),
)
