"""The sabotages: each node's bug, what is done to the cluster meanwhile, and why the judge refuses it.

This module imports no product code, since a node imports it before the bug is planted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

LEADER: Final = "partition_leader"
STATE: Final = "share_coordinator"
GROUPS: Final = "group_coordinator"
#: The plays: see `tests.chaos.sabotage.plays`.
QUIET, LEADER_DIES, KEEPERS_DIE, MEMBERS_COME, STORE_CUT_SHORT, NOTHING_FAILS, CONSUMER_PAUSED = (
    "quiet", "leader dies", "leader and share coordinator die", "members come", "store is cut short", "nothing fails",
    "a consumer is paused",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sabotage:
    """`refused`: how the judge's sentence that refuses it may start. `hold_ms`: how long consumers hold records before
    they acknowledge. Without edits the nodes are unmodified, and the play itself is the sabotage."""

    name: str
    wrong: str
    role: str
    edits: tuple[Edit, ...]
    play: str
    refused: tuple[str, ...]
    hold_ms: int = 0

    @property
    def mutant(self) -> Mutant:
        """Return its bug, to be planted."""
        return Mutant(self.name, self.wrong, (), self.edits)


SABOTAGES: Final = (
    Sabotage(
        "archived-early",
        "a record is archived on its second release, though ten deliveries are allowed",
        LEADER,
        (
            Edit(
                "partition_leader.share_partition.core.acknowledge",
                "Operation(event.op_id, CAUSE_ACK, settings.delivery_count_limit, settings.dlq_enabled)",
                "Operation(event.op_id, CAUSE_ACK, min(2, settings.delivery_count_limit), settings.dlq_enabled)",
            ),
        ),
        QUIET,
        ("INV-1: ",),
    ),
    Sabotage(
        "archived-when-released",
        "a record is archived on its first release",
        LEADER,
        (
            Edit(
                "partition_leader.share_partition.core.acknowledge",
                "Operation(event.op_id, CAUSE_ACK, settings.delivery_count_limit, settings.dlq_enabled)",
                "Operation(event.op_id, CAUSE_ACK, 1, settings.dlq_enabled)",
            ),
        ),
        NOTHING_FAILS,
        ("S-108: ",),
    ),
    Sabotage(
        "archived-when-locks-end",
        "a record whose lock runs out is archived",
        LEADER,
        (
            Edit(
                "partition_leader.share_partition.core.expiry",
                "        state = released_state(count, settings.delivery_count_limit, settings.dlq_enabled)\n",
                "        state = released_state(count, 1, settings.dlq_enabled)\n",
            ),
        ),
        CONSUMER_PAUSED,
        ("S-113: ",),
        hold_ms=600,
    ),
    Sabotage(
        "accept-without-effect",
        "an acceptance is confirmed but changes only the lock",
        LEADER,
        (
            Edit(
                "partition_leader.share_partition.core.acknowledge",
                "        if ack_type == ACK_RENEW:\n            self._renew(batch, first, last)\n            return\n"
                "        operation = self.operation\n",
                "        if ack_type in (ACK_RENEW, ACK_ACCEPT):\n            self._renew(batch, first, last)\n"
                "            return\n        operation = self.operation\n",
            ),
        ),
        QUIET,
        ("INV-4: ",),
    ),
    Sabotage(
        "produce-before-write",
        "a produce is confirmed before its batch is written",
        LEADER,
        (
            Edit(
                "partition_leader.topic_log.writer",
                "            self.in_flight = draft\n            started_ms = self._clock.now_ms()\n            try:\n",
                "            self.in_flight = draft\n            for operation in draft.operations:\n"
                "                operation.answer(operation.outcome)\n            await asyncio.sleep(0.3)\n"
                "            started_ms = self._clock.now_ms()\n            try:\n",
            ),
        ),
        LEADER_DIES,
        ("INV-1: ", "INV-2: "),
    ),
    Sabotage(
        "lock-expires-early",
        "a lock runs out after a tenth of its time",
        LEADER,
        (
            Edit(
                "partition_leader.share_partition.core.acquire",
                "            now_ms + settings.lock_ms,\n",
                "            now_ms + settings.lock_ms // 10,\n",
            ),
        ),
        QUIET,
        ("INV-3: ",),
        hold_ms=600,
    ),
    Sabotage(
        "start-jumps",
        "the start offset passes one record more than is finished",
        LEADER,
        (
            Edit(
                "partition_leader.share_partition.core.advance",
                "        window.move_start(start)\n",
                "        window.move_start(min(start + 1, window.last_offset + 1))\n",
            ),
        ),
        QUIET,
        ("INV-1: ", "INV-9: "),
    ),
    Sabotage(
        "counts-stand-still",
        "a released record is redelivered with the same delivery count",
        LEADER,
        (
            Edit(
                "partition_leader.share_partition.core.acquire",
                "        count = batch.count + 1\n",
                "        count = batch.count\n",
            ),
        ),
        QUIET,
        ("INV-7: ",),
    ),
    Sabotage(
        "retries-stored",
        "a producer's retry is stored again",
        LEADER,
        (
            Edit(
                "partition_leader.topic_log.core.producers",
                "        known = self._producers.get(batch.producer_id)\n        if known is None:\n"
                "            if batch.base_sequence != 0 and not (self.forgot or batch.after_given_up):\n",
                "        known = None\n        if known is None:\n            if False:\n",
            ),
            Edit(
                "partition_leader.topic_log.writer",
                "            self._apply(draft, appended, self._clock.now_ms() - started_ms)\n",
                "            self._apply(draft, appended, self._clock.now_ms() - started_ms)\n"
                "            await asyncio.sleep(0.3)\n",
            ),
        ),
        LEADER_DIES,
        ("INV-2: ",),
    ),
    Sabotage(
        "state-before-write",
        "the share coordinator answers a write before it is durable",
        STATE,
        (
            Edit(
                "shard_runtime.hosting.shard_host",
                "        tenure.pending.append(pending)\n",
                "        pending.settle(True)\n        tenure.pending.append(pending)\n",
            ),
            Edit(
                "shard_runtime.hosting.shard_host",
                "        entries = tenure.number(batch)\n",
                "        entries = tenure.number(batch)\n        await asyncio.sleep(0.3)\n",
            ),
        ),
        KEEPERS_DIE,
        ("INV-4: ", "INV-7: "),
    ),
    Sabotage(
        "replay-without-updates",
        "a share coordinator that takes over forgets what came after the last snapshot",
        STATE,
        (
            Edit(
                "shard_runtime.hosting.replay",
                "            tenure.shard.replay(record)\n",
                "            if type(record).__name__ != 'ShareUpdate':\n                tenure.shard.replay(record)\n",
            ),
        ),
        KEEPERS_DIE,
        ("INV-4: ", "INV-9: "),
    ),
    Sabotage(
        "initialises-again",
        "the group coordinator initialises the state of share-partitions again when members come",
        GROUPS,
        (
            Edit(
                "group_coordinator.core.topic_readiness",
                "        assignable[topic.topic_id] = done\n",
                "        done = () if group.epoch % 4 == 3 else done\n        assignable[topic.topic_id] = done\n",
            ),
            Edit(
                "group_coordinator.core.lifecycle",
                "        known.update(state.initialized)\n",
                "",
            ),
        ),
        MEMBERS_COME,
        ("INV-4: ", "INV-9: "),
    ),
    Sabotage(
        "last-goes-to-no-member",
        "the group coordinator assigns the last partition to no member",
        GROUPS,
        (
            Edit(
                "group_coordinator.core.assignor",
                "[(topic_id, spec.assignable.get(topic_id, ())) for topic_id in topics]",
                "[(topic_id, spec.assignable.get(topic_id, ())[:-1]) for topic_id in topics]",
            ),
        ),
        QUIET,
        ("not drained: ",),
    ),
    Sabotage(
        "store-cut-short",
        "the store is killed, and has lost the end of its file when it comes back",
        "",
        (),
        STORE_CUT_SHORT,
        ("INV-1: ", "INV-4: "),
    ),
)


def named(name: str) -> Sabotage:
    """Return the sabotage with this name. Raises ValueError for an unknown name."""
    for sabotage in SABOTAGES:
        if sabotage.name == name:
            return sabotage
    raise ValueError(f"there is no sabotage {name}; there are {', '.join(each.name for each in SABOTAGES)}")
