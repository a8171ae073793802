"""Planted bugs in administrators' changes to groups: the simulator finds them.

The last two need rare schedules, so they name a test: only one of three hunts of 500 seeds found the first of them, at
seed 91, and one of 2,000 seeds the second.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

CHANGES: Final = (
    Mutant(
        "alter-without-bump",
        "an alteration of offsets keeps the group's epoch, so that the share coordinator takes it for done before",
        ("GC-103", "INV-12", "INV-9"),
        (
            Edit(
                "group_coordinator.core.alteration",
                "    draft.bump(group.metadata_hash, context.served_ms)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "delete-unvalidated",
        "a group takes members while it is being deleted, and the last step of the deletion does not check again",
        ("INV-16", "GC-93", "INV-12", "GC-107"),
        (
            Edit(
                "group_coordinator.core.administration",
                "        require_empty(group)\n        return Decision(self._erased(group, context), None)\n",
                "        return Decision(self._erased(group, context), None)\n",
            ),
            Edit(
                "group_coordinator.core.admin_calls",
                "        if call is not None and call.kind is AdminKind.DELETE_GROUP:\n",
                "        if call is None and False:\n",
            ),
        ),
    ),
    Mutant(
        "resume-keeps-group",
        "who resumes the deletion of a group deletes the state of its topics and leaves the group",
        ("GC-107", "INV-13"),
        (
            Edit(
                "group_coordinator.core.deletion",
                "    kind = AdminKind.DELETE_GROUP if states.dropping and not states.topics else",
                "    kind = AdminKind.DELETE_OFFSETS if True else",
            ),
        ),
    ),
    Mutant(
        "forget-deleted-epoch",
        "a group that is made again under a deleted id begins at epoch 1",
        ("INV-12", "GC-93"),
        (
            Edit(
                "group_coordinator.core.deletion",
                "        return Group(group_id, epoch=deleted.epoch)\n",
                "        return Group(group_id)\n",
            ),
        ),
    ),
    Mutant(
        "delete-unfenced",
        "the deletion of state names no state epoch, so that a late one removes what a later group initialised",
        ("GC-107", "INV-11", "INV-1", "INV-19"),
        (
            Edit(
                "group_coordinator.state_calls",
                "        partitions = dict.fromkeys(order.partitions, order.state_epoch)\n",
                "        partitions = dict.fromkeys(order.partitions, -1)\n",
            ),
        ),
    ),
    Mutant(
        "alter-forgets-deletion",
        "an alteration of one partition ends the interrupted deletion of its topic, and the state of others stays",
        ("GC-93", "GC-98", "GC-107"),
        (
            Edit(
                "group_coordinator.core.lifecycle",
                "            if len(initializing) + len(initialized) >= topic.partitions:\n"
                "                deleting.pop(topic.topic_id, None)\n",
                "            deleting.pop(topic.topic_id, None)\n",
            ),
        ),
        ("tests/unit/group_coordinator/core/test_resumed_deletions.py",),
    ),
    Mutant(
        "delete-overtakes",
        "state is deleted while a call that initialises it is still repeated, which then creates it again",
        ("GC-93", "GC-107"),
        (
            Edit(
                "group_coordinator.state_calls",
                "                if before:\n                    await asyncio.wait(before)\n",
                "",
            ),
        ),
        ("tests/unit/group_coordinator/test_state_calls.py",),
    ),
)
