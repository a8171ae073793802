"""Planted bugs in consumed retention, which depends on the groups' progress: the simulator finds them."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

_DECISION: Final = "partition_leader.topic_log.core.consumed"
_ROUNDS: Final = "partition_leader.consumed_retention"
_ASKING: Final = "share_persister.topic_starts"

CONSUMPTION: Final = (
    Mutant(
        "consumed-by-the-fastest",
        "what the fastest group has finished goes",
        ("INV-1",),
        (
            Edit(
                _DECISION,
                "        if start < found.start:\n            found = Needed(start, Kept.UNFINISHED, group_id)\n"
                "    for group_id, in_memory in loaded.items():\n",
                "        if start > found.start or found.why is Kept.READABLE:\n"
                "            found = Needed(start, Kept.UNFINISHED, group_id)\n"
                "    for group_id, in_memory in {}.items():\n",
            ),
        ),
    ),
    Mutant(
        "consumed-asks-only-itself",
        "a leader asks the shards of its own process alone, and takes the others for empty",
        ("INV-1",),
        (
            Edit(_ASKING, "        calls = [self._remote(", "        calls = [] and [self._remote("),
            Edit(_ASKING, "            if shard not in answered:\n", "            if False:\n"),
        ),
    ),
    Mutant(
        "consumed-not-begun-needs-nothing",
        "a group that has not chosen a start offset yet does not count",
        ("INV-1",),
        (
            Edit(
                _DECISION,
                "            return Needed(log_start, Kept.NOT_BEGUN, group_id)\n",
                "            continue\n",
            ),
        ),
    ),
    Mutant(
        "consumed-new-partition-needs-nothing",
        "a group without state for a partition that was added does not count there",
        ("INV-1",),
        (
            Edit(
                _DECISION,
                "            return Needed(log_start, Kept.NO_STATE, group_id)\n",
                "            continue\n",
            ),
        ),
    ),
)
