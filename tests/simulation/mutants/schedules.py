"""Planted bugs that show only under the right schedule: the simulator finds them."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

SCHEDULES: Final = (
    Mutant(
        "skip-fencing",
        "the share coordinator lets leaders with a lower epoch or generation pass",
        ("INV-12", "INV-4", "INV-5", "INV-9"),
        (Edit("share_coordinator.core.shard", "    if state.fence > pair:", "    if state.fence > pair and False:"),),
    ),
    Mutant(
        "answer-before-write",
        "coordinators answer when a command is decided, before its records are durable",
        ("INV-11", "INV-4", "INV-1", "INV-12", "INV-16"),
        (
            Edit(
                "shard_runtime.hosting.shard_host",
                "        tenure.pending.append(pending)\n",
                "        pending.settle(True)\n        tenure.pending.append(pending)\n",
            ),
        ),
    ),
    Mutant(
        "produce-before-write",
        "the topic log answers a producer before its batch is durable",
        ("INV-1", "INV-2", "CM-43"),
        (
            Edit(
                "partition_leader.topic_log.writer",
                "            self.in_flight = draft\n            started_ms",
                "            self.in_flight = draft\n            for operation in draft.operations:\n"
                "                operation.answer(operation.outcome)\n            started_ms",
            ),
        ),
    ),
    Mutant(
        "forget-rollback",
        "what a read-back shows was not stored stays pending for ever",
        ("INV-19", "INV-1", "INV-6", "INV-9", "INV-17"),
        (
            Edit(
                "partition_leader.share_partition.core.write_results",
                "    state.roll_back(operations)\n    state.wake = True\n",
                "    state.wake = True\n",
            ),
        ),
    ),
    Mutant(
        "believe-unknown-outcome",
        "a state write with unknown outcome counts as failed, without reading back what is stored",
        ("INV-5", "INV-4", "INV-6", "INV-13", "INV-1"),
        (
            Edit(
                "partition_leader.share_partition.core.write_results",
                "    if event.outcome_unknown and write.operations and state.status is Status.ACTIVE:",
                "    if event.outcome_unknown and write.operations and state.status is None:",
            ),
        ),
    ),
    Mutant(
        "reset-delivery-count",
        "a record that is given again counts as given for the first time",
        ("INV-7", "INV-8"),
        (
            Edit(
                "partition_leader.share_partition.core.acquire",
                "        count = batch.count + 1\n",
                "        count = 1\n",
            ),
        ),
    ),
    Mutant(
        "replay-before-claim",
        "a new owner serves what was in the log a moment before its claim, without its last page",
        ("INV-11", "INV-13", "INV-4", "INV-1", "INV-12"),
        (
            Edit(
                "shard_runtime.hosting.replay",
                "        await replay.page(page)\n",
                "        await replay.page(page[:-2] if len(page) < page_entries else page)\n",
            ),
        ),
    ),
    # Reusing the ids of a flush of unknown outcome for other records is harmless here: the store accepts no id twice,
    # so the shard is given up and replayed. The remaining mistake is to assume that such a flush succeeded.
    Mutant(
        "believe-lost-flush",
        "a flush that a read-back does not find counts as written",
        ("INV-11", "INV-13", "INV-1", "INV-2", "INV-4", "CM-43", "INV-19"),
        (
            Edit(
                "shard_runtime.record_log.redis.flush",
                "        self._phase = FlushPhase.NEW\n        return None\n",
                "        self._noops.append(self._next_noop())\n"
                "        self._phase = FlushPhase.NOOP\n        return None\n",
            ),
        ),
    ),
    Mutant(
        "ignore-wait",
        "a flush counts as committed though too few replicas have it",
        ("INV-1", "INV-11", "INV-4", "INV-13", "INV-12", "INV-9"),
        (
            Edit(
                "shard_runtime.record_log.redis.flush",
                "        if pipeline.acked < self.wait:\n",
                "        if pipeline.acked < 0:\n",
            ),
        ),
    ),
    Mutant(
        "expire-pending-lock",
        "a lock that runs out frees a record whose acknowledgement is being written",
        ("INV-4", "INV-3", "INV-6", "INV-5", "PL-102"),
        (
            Edit(
                "partition_leader.share_partition.core.expiry",
                "                if code != STATE_ACQUIRED or deadline > now_ms:\n",
                "                if deadline > now_ms or code == 0 or deadline == 0:\n",
            ),
            Edit(
                "partition_leader.share_partition.core.expiry",
                "    window.recode(batch, first, last, table)\n    batch.hold(first, last, NO_MEMBER, 0)\n"
                "    result.timed_out",
                "    if batch.lock_at(first)[0] & PENDING:\n"
                "        window.recode(batch, first, last, ROLL_BACK)\n"
                "    window.recode(batch, first, last, table)\n    batch.hold(first, last, NO_MEMBER, 0)\n"
                "    result.timed_out",
            ),
            Edit(
                "partition_leader.share_partition.core.expiry",
                "    EXPIRE_BELOW_START,\n",
                "    EXPIRE_BELOW_START,\n    PENDING,\n    ROLL_BACK,\n",
            ),
        ),
    ),
    Mutant(
        "acquire-without-timer",
        "records that are acquired for the first time get no lock entry, so that nothing ends their lock in time",
        ("PL-102", "INV-10", "INV-19"),
        (
            Edit(
                "partition_leader.share_partition.core.acquire",
                "        )\n        self._window.lock(first, last, now.deadline)\n",
                "        )\n",
            ),
        ),
    ),
    Mutant(
        "commit-keeps-owner",
        "a record whose acknowledgement is durable keeps its owner and lock end",
        ("PL-102",),
        (
            Edit(
                "partition_leader.share_partition.core.operations",
                "            if window.recode(batch, first, last, COMMIT):\n"
                "                batch.hold(first, last, NO_MEMBER, 0)\n",
                "            window.recode(batch, first, last, COMMIT)\n",
            ),
        ),
    ),
    Mutant(
        "lower-start-offset",
        "a snapshot of the share coordinator forgets the last step of the start offset",
        ("INV-9", "INV-13", "INV-17"),
        (
            Edit(
                "share_coordinator.core.share_state",
                "            start_offset=self.start_offset,\n            delivery_complete_count"
                "=self.delivery_complete_count,\n            create_ms=create_ms,",
                "            start_offset=max(0, self.start_offset - 1),\n            delivery_complete_count"
                "=self.delivery_complete_count,\n            create_ms=create_ms,",
            ),
        ),
    ),
    Mutant(
        "drop-wake-up",
        "the writer to the store does not learn of work that arrives while it sleeps",
        ("INV-19",),
        (
            Edit(
                "shard_runtime.record_log.redis.writer",
                "        self._queue.append(call)\n        self._wake.set()\n",
                "        self._queue.append(call)\n",
            ),
        ),
    ),
    Mutant(
        "double-lock-timer",
        "the timer of an earlier lock ends the current one",
        ("INV-3", "INV-6"),
        (
            Edit(
                "partition_leader.share_partition.core.expiry",
                "                if code != STATE_ACQUIRED or deadline > now_ms:\n",
                "                if code != STATE_ACQUIRED:\n",
            ),
            Edit(
                "partition_leader.share_partition.core.locks",
                "            if live is None:\n",
                "            if live is None and False:\n",
            ),
            Edit(
                "partition_leader.share_partition.core.locks",
                "            if live > first:\n",
                "            if live is not None and live > first:\n",
            ),
        ),
    ),
    Mutant(
        "long-lock",
        "a lock lasts twice as long as the member learned",
        ("INV-6", "INV-19", "INV-3"),
        (
            Edit(
                "partition_leader.share_partition.core.acquire",
                "            now_ms + settings.lock_ms,\n",
                "            now_ms + 2 * settings.lock_ms,\n",
            ),
        ),
    ),
    Mutant(
        "accept-from-non-holder",
        "a member may acknowledge what another one holds",
        ("INV-6", "INV-5", "INV-3"),
        (
            Edit(
                "partition_leader.share_partition.core.acknowledge",
                "            if batch.code == STATE_ACQUIRED and batch.member == caller:\n",
                "            if batch.code == STATE_ACQUIRED:\n",
            ),
            Edit(
                "partition_leader.share_partition.core.operations",
                '    return None if member == caller else "another member holds it"\n',
                "    return None\n",
            ),
        ),
    ),
    Mutant(
        "serve-past-the-lease",
        "an owner answers though its lease has run out",
        ("INV-12", "INV-4", "INV-3", "INV-11", "INV-1", "INV-6"),
        (
            Edit(
                "shard_runtime.ownership.lease",
                "        return not self._revoked and self._clock.now_ms() < self._deadline_ms\n",
                "        return not self._revoked\n",
            ),
        ),
    ),
    Mutant(
        "keep-session-epoch",
        "a share session takes the same epoch twice",
        ("INV-14",),
        (
            Edit(
                "partition_leader.sessions.core.session",
                "        session.epoch = next_epoch(request.epoch)\n",
                "        session.epoch = request.epoch\n",
            ),
            Edit(
                "partition_leader.sessions.core.session",
                "        if request.epoch not in (session.epoch, CLOSING_EPOCH):\n",
                "        if request.epoch not in (session.epoch, session.epoch + 1, CLOSING_EPOCH):\n",
            ),
        ),
    ),
    Mutant(
        "one-delivery-too-many",
        "the delivery limit is checked one delivery too late",
        ("INV-7", "INV-8"),
        (
            Edit(
                "partition_leader.share_partition.core.transitions",
                "    if delivery_count < limit:\n",
                "    if delivery_count <= limit:\n",
            ),
        ),
    ),
    Mutant(
        "store-retries",
        "the topic log does not see that a produced batch is a repetition",
        ("CM-43", "INV-2"),
        (
            Edit(
                "partition_leader.topic_log.core.producers",
                "                    )\n                return one\n",
                "                    )\n                return None\n",
            ),
        ),
    ),
    Mutant(
        "forget-new-state",
        "a state write that moves the start offset loses its first state batch after it",
        ("INV-13", "INV-4", "INV-1", "INV-9", "INV-17", "INV-7"),
        (
            Edit(
                "partition_leader.share_partition.core.write_back",
                "            found = found[bisect_left(found, start_offset, key=_LAST_OFFSET) :]\n",
                "            found = found[bisect_left(found, start_offset, key=_LAST_OFFSET) + 1 :]\n",
            ),
        ),
    ),
    Mutant(
        "trim-too-far",
        "compaction trims the stream after the oldest copy that is still needed",
        ("INV-13", "INV-1", "INV-11", "INV-4", "INV-19", "INV-17"),
        (
            Edit(
                "shard_runtime.hosting.compaction_plan",
                "        return next(iter(self._newest.values()), Position(max(self._entries - 1, 0), self._last))\n",
                "        return Position(max(self._entries - 1, 0), self._last)\n",
            ),
        ),
    ),
    Mutant(
        "assign-to-no-member",
        "the assignor leaves the last partition without a member",
        ("INV-16", "INV-19"),
        (
            Edit(
                "group_coordinator.core.assignor",
                "        for number, holders in enumerate(self.holders):\n"
                "            while len(holders) < self.sharing and candidates:\n",
                "        for number, holders in enumerate(self.holders[: max(1, len(self.holders) - 1)]):\n"
                "            while len(holders) < self.sharing and candidates:\n",
            ),
        ),
    ),
    Mutant(
        "trust-any-member-epoch",
        "the group coordinator takes heartbeats with any member epoch",
        ("INV-16",),
        (
            Edit(
                "group_coordinator.core.heartbeat",
                "    if epoch > member.epoch or (0 < epoch < member.epoch and epoch != member.previous_epoch):\n",
                "    if False:\n",
            ),
        ),
    ),
    Mutant(
        "call-silence-definite",
        "a state write that was sent and not answered counts as one that cannot have been applied",
        ("INV-5", "INV-4", "INV-6", "INV-13", "INV-1", "INV-19"),
        (
            Edit(
                "share_persister.client",
                "            attempts.unknown |= entry.sent and open_\n",
                "            attempts.unknown |= entry.sent and open_ and False\n",
            ),
        ),
    ),
)
