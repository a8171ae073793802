"""Helpers for the core shard's tests: a metadata view that a test sets, and a driver that runs the steps in a host's
order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kip932.failures import Failure
from kip932.ids import SharePartitionKey
from kip932.state_batches import NO_STATS, StateBatch, WriteStats
from kip932.state_values import InitializeState, ReadState, WriteState
from share_coordinator.core.commands import ShareCommand
from share_coordinator.core.records import ShareRecord
from share_coordinator.core.shard import ShareStateShard
from share_coordinator.core.share_state import ShareState

TOPIC = bytes(15) + b"\x01"
OTHER_TOPIC = bytes(15) + b"\x02"
KEY = SharePartitionKey("G1", TOPIC, 0)
COLD_MS = 60_000


class Metadata:
    """A metadata view with topics set by a test."""

    def __init__(self) -> None:
        self.topics: dict[bytes, int] = {TOPIC: 10, OTHER_TOPIC: 10}
        self.settled_ms = -1

    def partition_count(self, topic_id: bytes) -> int | None:
        return self.topics.get(topic_id)

    def settled_since(self, now_ms: int) -> bool:
        return self.settled_ms >= now_ms


class Driver:
    """Runs commands as a host does (decide, replay), keeps the log, and can rebuild from it."""

    def __init__(self, updates_per_snapshot: int = 500, metadata: Metadata | None = None) -> None:
        self.metadata = metadata or Metadata()
        self.updates_per_snapshot = updates_per_snapshot
        self.log: list[ShareRecord] = []
        self.wall_ms = 1_000_000
        self.now_ms = 0
        self.shard = self._empty()

    def _empty(self) -> ShareStateShard:
        return ShareStateShard(self.metadata, self.updates_per_snapshot, COLD_MS)

    def run(self, command: ShareCommand) -> object:
        """Return the reply; the records are appended to the log."""
        decision = self.shard.decide(command, self.now_ms, self.wall_ms)
        for record in decision.records:
            self.shard.replay(record)
        self.log.extend(decision.records)
        return decision.reply

    def written(self, command: ShareCommand) -> list[ShareRecord]:
        """Return the records that a command appends."""
        before = len(self.log)
        self.run(command)
        return self.log[before:]

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.wall_ms += ms

    def run_due(self) -> list[ShareRecord]:
        """Run all commands that are due now; return their records."""
        before = len(self.log)
        for _ in range(100):
            deadline = self.shard.next_deadline()
            if deadline is None or deadline > self.now_ms:
                break
            for command in self.shard.due(self.now_ms):
                self.run(command)
        return self.log[before:]

    def state(self, key: SharePartitionKey = KEY) -> ShareState:
        state = self.shard.state(key)
        assert state is not None
        return state

    def replayed(self, first: int = 0) -> ShareStateShard:
        """Return a shard rebuilt from the log, starting at position `first`."""
        shard = self._empty()
        for record in self.log[first:]:
            shard.replay(record)
        return shard


def initialize(state_epoch: int = 5, start: int = -1, key: SharePartitionKey = KEY) -> InitializeState:
    return InitializeState(key, state_epoch, start)


def read(leader: int, generation: int = 0, key: SharePartitionKey = KEY) -> ReadState:
    return ReadState(key, leader, generation)


#: Epochs above all stored ones: requests with them are accepted, and a write with them stores no epoch (SC-26, SC-40).
PASSING: Final = 50_000


def write(
    *batches: tuple[int, ...],
    start: int = -1,
    state: int = PASSING,
    leader: int = PASSING,
    generation: int = 0,
    dcc: int = 0,
    stats: WriteStats = NO_STATS,
    key: SharePartitionKey = KEY,
    failures: Sequence[tuple[int, int, int, str]] = (),
) -> WriteState:
    changed = tuple(StateBatch(*batch) for batch in batches)
    reasons = tuple(Failure(*failure) for failure in failures)
    return WriteState(key, state, leader, generation, start, dcc, changed, stats, reasons)
