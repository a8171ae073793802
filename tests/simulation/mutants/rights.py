"""Planted bugs in what remains of a right that is taken away while members use it; `access` has those that stories of
single requests find."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

_RIGHTS: Final = "partition_leader.share_rpc.session_rights"

RIGHTS: Final = (
    Mutant(
        "taken-topic-stays-locked",
        "a topic that may not be read any more frees nothing; only the group does",
        ("INV-23",),
        (
            Edit(
                _RIGHTS,
                "            lost = {topic_id for topic_id in session.topics if not self._may_read(session.rights, "
                "topic_id)}\n",
                "            lost = set()\n",
            ),
        ),
    ),
    Mutant(
        "parked-through-the-change",
        "a fetch that waits when the group is taken away goes on waiting",
        ("INV-23",),
        (Edit(_RIGHTS, "        self._conclude(key, lost)\n        self._free", "        self._free"),),
    ),
    Mutant(
        "remembered-rights",
        "a node goes on with the decisions that it made before the entries changed",
        ("INV-23",),
        (
            Edit(
                "shard_runtime.rpc.access",
                "        self._decisions.clear()\n        self.version += 1",
                "        self.version += 1",
            ),
        ),
    ),
    Mutant(
        "no-way-out",
        "a member whose group was taken away cannot close its share session",
        ("INV-23",),
        (
            Edit(
                "partition_leader.share_rpc.requests",
                "            if self.sessions.is_opened_by(key, request.caller.principal):\n                return\n",
                "",
            ),
        ),
    ),
)
