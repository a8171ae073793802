"""One shard of share-partition state: fencing, snapshots, replay (share-coordinator.md, Part A).

It owns the states of its keys and two timers: cold copies (SC-73…SC-75), and the sweep for keys whose topic no longer
exists [SC-80 R]. It never waits and never reads a clock: a host appends the records that `decide` returns, then answers
(SC-14, SC-59).

A request passes the checks of table 2.3, in its order, before it is decided (SC-20…SC-31, SC-43). Each raises the
KafkaError of its row, or lets the request pass; none changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from kip932.errors import (
    FencedStateEpochError,
    InQuarantineError,
    InvalidRequestError,
    KafkaError,
    UnknownTopicOrPartitionError,
)
from kip932.failures import REASON_BYTES_MAX, Failure, clip_failures, merge_failures
from kip932.ids import (
    NULL_TOPIC_ID,
    STATE_ACKNOWLEDGED,
    STATE_ARCHIVED,
    STATE_ARCHIVING,
    STATE_AVAILABLE,
    SharePartitionKey,
    topic_id_text,
)
from kip932.state_batches import CAUSE_ADMIN, CAUSE_COLD, CAUSE_INIT, StateBatch, WriteStats, clip, combine, delayed_at
from kip932.state_values import (
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    StaleLeaderError,
    StateOutcome,
    StateReply,
    StateSummary,
    StoredStart,
    StoredState,
    TopicStarts,
    WriteState,
)
from shard_runtime.hosting.quarantine import Healed, Quarantine
from shard_runtime.hosting.shard import Anchor, DamagedEntry, Decision
from share_coordinator.core.commands import (
    CommandBatch,
    CopyCold,
    DeleteTopics,
    DropDamaged,
    ListStarts,
    MetadataView,
    Removed,
    RemoveOrphans,
    ShareCommand,
)
from share_coordinator.core.plausible import (
    check_leader_epoch,
    check_reach,
    check_start,
    check_state_epoch_range,
)
from share_coordinator.core.records import ShareRecord, ShareSnapshot, ShareTombstone, ShareUpdate
from share_coordinator.core.share_state import ShareState, after_snapshot, after_update, initial_snapshot

#: How many keys one background command may touch, so that requests do not wait long for it (SR-17). When keys are
#: copied, each failure reason counts as another key, since it may take 1 KiB.
KEYS_PER_SLICE: Final = 500
#: The maximum number of share-partitions of one shard in one response (CM-91).
TOPIC_STARTS_MAX: Final = 4_000
#: The state epoch in a Delete whose epoch is not to be checked (SC-29).
UNCHECKED_STATE_EPOCH: Final = -1
_STORABLE: Final = frozenset({STATE_AVAILABLE, STATE_ACKNOWLEDGED, STATE_ARCHIVING, STATE_ARCHIVED})
_SWEEP_RETRY_MS: Final = 1_000

_Decision = Decision[ShareRecord, object]
_KeyDecision = tuple[ShareRecord | None, StateReply]
_Token = tuple[SharePartitionKey, ShareState | None, Healed | None]


@dataclass(slots=True)
class Counts:
    """Counts of unusual records that replay has seen, for metrics; they only grow."""

    start_offset_decreases: int = 0  # SC-41: a leader sent a start offset below the stored one
    orphan_updates: int = 0  # SC-56: an update without its snapshot
    epoch_mismatches: int = 0  # SC-58: an update that does not extend the latest snapshot


class ShareStateShard:
    """The `Shard` of share-partition state.

    `updates_per_snapshot` is `share.coordinator.snapshot.update.records.per.snapshot`; `cold_interval_ms`
    `share.coordinator.cold.partition.snapshot.interval.ms`.
    """

    def __init__(self, metadata: MetadataView, updates_per_snapshot: int, cold_interval_ms: int) -> None:
        self.counts = Counts()
        self._metadata = metadata
        self._updates_per_snapshot = updates_per_snapshot
        self._cold_interval_ms = cold_interval_ms
        self._states: dict[SharePartitionKey, ShareState] = {}
        self._quarantine = Quarantine()
        self._to_drop: dict[SharePartitionKey, None] = {}
        self._cold_deadline: int | None = None
        self._cold_queue: list[SharePartitionKey] = []
        self._sweep_since: int | None = None
        self._sweep_deadline: int | None = None

    @property
    def keys(self) -> int:
        """How many share-partitions have state here."""
        return len(self._states)

    def state(self, key: SharePartitionKey) -> ShareState | None:
        """Return the state of one key, for tools and tests."""
        return self._states.get(key)

    # -- deciding

    def decide(self, command: ShareCommand, now_ms: int, wall_ms: int) -> _Decision:
        """Decide a command without changing anything. Raises KafkaError when a single-key command is refused."""
        if isinstance(command, CommandBatch):
            return self._decide_batch(command, wall_ms)
        if isinstance(command, DeleteTopics | DropDamaged | RemoveOrphans):
            return _tombstones(self._to_remove(command))
        if isinstance(command, CopyCold):
            copies = [copy for key in command.keys for copy in self._cold_copy(key, wall_ms)]
            return Decision(copies, len(copies))
        if isinstance(command, ListStarts):
            return Decision((), _topic_starts(self._states, self._quarantine.entries(), command.topic_ids))
        record, reply = self._decide_key(command, wall_ms)
        return Decision((record,) if record else (), reply)

    def _to_remove(self, command: DeleteTopics | DropDamaged | RemoveOrphans) -> list[SharePartitionKey]:
        if isinstance(command, DeleteTopics):
            return [key for key in self._known() if key.topic_id in command.topic_ids]
        if isinstance(command, DropDamaged):
            return [key for key in command.keys if self._quarantine.damage_of(key)]
        known = self._known()
        return [key for key in command.keys if key in known and self._orphaned(key)]

    def _decide_batch(self, batch: CommandBatch, wall_ms: int) -> _Decision:
        """Decide each command of a batch. Its keys differ, so no decision depends on another one's record."""
        records: list[ShareRecord] = []
        outcomes: list[StateOutcome] = []
        for command in batch.commands:
            try:
                record, reply = self._decide_key(command, wall_ms)
            except KafkaError as refusal:
                # Drop the traceback, which refers to this list and so makes a reference cycle: collecting ten
                # thousand of these blocked the event loop for 130 ms.
                outcomes.append(refusal.with_traceback(None))
                continue
            outcomes.append(reply)
            if record is not None:
                records.append(record)
        return Decision(records, tuple(outcomes))

    def _decide_key(self, command: Any, wall_ms: int) -> _KeyDecision:
        check_key(command.key)
        self._refuse_damaged(command.key)
        state = self._states.get(command.key)
        return _DECIDE[type(command)](self, command, state, wall_ms)

    def _initialize(self, command: InitializeState, state: ShareState | None, wall_ms: int) -> _KeyDecision:
        check_epochs(command.key, state_epoch=command.state_epoch)
        check_state_epoch_range(command.key, command.state_epoch)
        check_start(command.key, command.start_offset, state)
        check_state_epoch(command.state_epoch, state)
        check_metadata(command.key, self._metadata)
        if state is not None and command.state_epoch == state.state_epoch:
            return None, None  # SC-33: a delayed duplicate must not reset progress
        stats = WriteStats(CAUSE_INIT if state is None else CAUSE_ADMIN)
        snapshot = initial_snapshot(
            command.key, state, command.state_epoch, command.start_offset, wall_ms=wall_ms, stats=stats
        )
        return snapshot, None

    def _read(self, command: ReadState, state: ShareState | None, wall_ms: int) -> _KeyDecision:
        check_epochs(command.key, leader_epoch=command.leader_epoch)
        state = initialised(command.key, state)
        pair = command.leader_epoch, command.generation
        check_leader_epoch(command.key, *pair, state.fence[0], wall_ms)
        check_leader(pair, state)
        check_metadata(command.key, self._metadata)
        unchanged = pair == state.fence
        reply = StoredState(
            state.state_epoch, state.start_offset, state.batches, recorded=not unchanged, failures=state.failures
        )
        if unchanged:
            return None, reply
        update = ShareUpdate(
            command.key, state.snapshot_epoch, *pair, state.start_offset, state.delivery_complete_count, ()
        )
        return self._record(state, update, wall_ms), reply

    def _write(self, command: WriteState, state: ShareState | None, wall_ms: int) -> _KeyDecision:
        key, state_epoch, leader_epoch, generation, start_offset, complete, batches, stats, failures, _ = command
        check_batches(key, batches)
        check_failures(key, failures)
        check_epochs(key, leader_epoch=leader_epoch, state_epoch=state_epoch)
        state = initialised(key, state)
        check_leader_epoch(key, leader_epoch, generation, state.fence[0], wall_ms)
        check_state_epoch_range(key, state_epoch)
        check_start(key, start_offset, state)
        check_reach(command, state)
        check_leader((leader_epoch, generation), state)
        check_state_epoch(state_epoch, state)
        check_metadata(key, self._metadata)
        # SC-40: the request's epochs are used only for fencing; the record has the state's.
        update = ShareUpdate(
            key,
            state.snapshot_epoch,
            state.leader_epoch,
            state.generation,
            start_offset,
            complete,
            tuple(combine((), batches, start_offset)),
            stats,
            merge_failures((), failures, start_offset) if failures else (),
        )
        return self._record(state, update, wall_ms), None

    def _delete(self, command: DeleteState, state: ShareState | None, wall_ms: int) -> _KeyDecision:
        check_state_epoch(command.state_epoch, state)
        check_metadata(command.key, self._metadata)
        return (None if state is None else ShareTombstone(command.key)), None

    def _summary(self, command: ReadSummary, state: ShareState | None, wall_ms: int) -> _KeyDecision:
        check_metadata(command.key, self._metadata)
        if state is None:
            return None, StateSummary(delayed=-1 if command.delayed_at_ms is None else 0)
        return None, StateSummary(
            state.state_epoch,
            state.leader_epoch,
            state.start_offset,
            state.delivery_complete_count,
            state.archived_by_limit,
            state.archived_by_reject,
            tuple(clip(state.batches, *command.span)) if command.span else (),
            -1 if command.delayed_at_ms is None else delayed_at(state.batches, command.delayed_at_ms),
            clip_failures(state.failures, *command.span) if command.span else (),
        )

    def _record(self, state: ShareState, update: ShareUpdate, wall_ms: int) -> ShareRecord:
        """Return the update, or after enough updates a snapshot of the state it results in (SC-52)."""
        if state.updates < self._updates_per_snapshot:
            return update
        return after_update(state, update).snapshot(update.key, wall_ms, update.stats)

    # -- replaying

    def replay(self, record: ShareRecord) -> _Token:
        """Apply one record; return a token for `undo`: the key, its previous state, and the damage that it healed."""
        key = record.key
        former = self._states.get(key)
        if isinstance(record, ShareUpdate):
            self._count(former, record)
            self._states[key] = after_update(former, record)
            return key, former, None
        if isinstance(record, ShareTombstone):
            self._states.pop(record.key, None)
        else:
            self._states[record.key] = after_snapshot(record)
        return record.key, former, self._quarantine.copied(record.key)

    def quarantine(self, found: DamagedEntry) -> bool:
        """Note a damaged entry (SC-113): refuse its share-partition or, when the entry's key is unknown, every
        share-partition without a later snapshot or tombstone."""
        self._quarantine.add(found)
        return True

    def drop(self, key: Hashable) -> bool:
        """Delete a share-partition's damaged state after the replay, as an operator decided; refuse it until then."""
        if not isinstance(key, SharePartitionKey):
            return False
        self._to_drop[key] = None
        return True

    def quarantined(self) -> Sequence[DamagedEntry]:
        """Return the damaged entries that no later snapshot or tombstone of their share-partition supersedes."""
        return self._quarantine.entries()

    def _refuse_damaged(self, key: SharePartitionKey) -> None:
        """Refuse a share-partition whose stored state is damaged (SC-114): what is left may look whole, or absent."""
        if hurt := self._quarantine.damage_of(key):
            raise InQuarantineError(
                f"the stored state of {key.text} is in quarantine: {_damage(hurt)}. It is neither read nor changed "
                "until an operator settles that: `sharegroups state check` shows what is damaged, and "
                "`sharegroups state repair` what can be done"
            )

    def _known(self) -> Collection[SharePartitionKey]:
        """Return the keys with state, and those whose state is known to be damaged: a tombstone settles these, too."""
        named = [key for key in self._quarantine.named() if isinstance(key, SharePartitionKey)]
        return {*self._states, *named} if named else self._states

    def undo(self, token: object) -> None:
        """Restore a key's previous state (SC-59, SR-23)."""
        assert isinstance(token, tuple)
        key, former, healed = token
        self._quarantine.restore(key, healed)
        if former is None:
            self._states.pop(key, None)
        else:
            self._states[key] = former

    def _count(self, former: ShareState | None, record: ShareUpdate) -> None:
        if former is None:
            self.counts.orphan_updates += 1
            return
        if 0 <= record.start_offset < former.start_offset:
            self.counts.start_offset_decreases += 1
        if record.snapshot_epoch != former.snapshot_epoch:
            self.counts.epoch_mismatches += 1

    # -- time

    def loaded(self, now_ms: int) -> Sequence[ShareCommand]:
        """Start the timers; return commands that delete the state an operator decided to drop (CM-114). Keys of topics
        deleted while no node had the shard are swept once the metadata are complete."""
        self._cold_queue.clear()
        self._cold_deadline = now_ms + self._cold_interval_ms
        self._sweep_since = self._sweep_deadline = now_ms
        keys = tuple(key for key in self._to_drop if self._quarantine.damage_of(key))
        return [DropDamaged(keys[at : at + KEYS_PER_SLICE]) for at in range(0, len(keys), KEYS_PER_SLICE)]

    def next_deadline(self) -> int | None:
        """Return when cold copies or the sweep are next due."""
        deadlines = [deadline for deadline in (self._cold_deadline, self._sweep_deadline) if deadline is not None]
        return min(deadlines, default=None)

    def due(self, now_ms: int) -> Sequence[ShareCommand]:
        """Return at most one slice of cold copies and one of the sweep. While copies are left, the next deadline is
        `now_ms`."""
        commands: list[ShareCommand] = []
        if self._sweep_deadline is not None and self._sweep_deadline <= now_ms:
            commands += self._sweep(now_ms)
        if self._cold_deadline is not None and self._cold_deadline <= now_ms:
            commands += self._cold_slice(now_ms)
        return commands

    def paused(self, now_ms: int) -> None:
        """Restart the interval of cold copies in full, since they can wait."""
        if self._cold_deadline is not None:
            self._cold_queue.clear()
            self._cold_deadline = now_ms + self._cold_interval_ms

    def _sweep(self, now_ms: int) -> list[ShareCommand]:
        """Return one slice of the sweep, which is repeated until nothing is left to remove. Needs complete metadata:
        nothing less proves that a topic was deleted."""
        self._sweep_deadline = now_ms + _SWEEP_RETRY_MS
        if self._sweep_since is None or not self._metadata.settled_since(self._sweep_since):
            return []
        keys = tuple(islice((key for key in self._known() if self._orphaned(key)), KEYS_PER_SLICE))
        if not keys:
            self._sweep_since = self._sweep_deadline = None
            return []
        return [RemoveOrphans(keys)]

    def _orphaned(self, key: SharePartitionKey) -> bool:
        return self._metadata.partition_count(key.topic_id) is None

    def _cold_slice(self, now_ms: int) -> list[ShareCommand]:
        if not self._cold_queue:
            self._cold_queue = [key for key, state in self._states.items() if not state.cold_copied]
        keys, size = [], 0
        while self._cold_queue and size < KEYS_PER_SLICE:
            keys.append(self._cold_queue.pop())
            state = self._states.get(keys[-1])
            size += 1 + (len(state.failures) if state is not None else 0)
        self._cold_deadline = now_ms if self._cold_queue else now_ms + self._cold_interval_ms
        return [CopyCold(tuple(keys))] if keys else []

    def _cold_copy(self, key: SharePartitionKey, wall_ms: int) -> Iterable[ShareSnapshot]:
        state = self._states.get(key)
        whole = not self._quarantine.damage_of(key)
        if whole and state is not None and not state.cold_copied and wall_ms - state.write_ms >= self._cold_interval_ms:
            yield state.cold_copy(key, wall_ms, _COLD)

    # -- compaction

    def anchor(self, record: ShareRecord) -> Anchor | None:
        """Return the anchor of a record: a snapshot is a self-contained copy, a tombstone ends a key, and an update,
        which only adds to a snapshot, has none (SC-70)."""
        if isinstance(record, ShareUpdate):
            return None
        return Anchor(record.key, isinstance(record, ShareSnapshot))

    def rewrite(self, keys: Iterable[Hashable], wall_ms: int) -> Sequence[Sequence[ShareRecord]]:
        """Return cold copies of the keys that have undamaged state, one append per key (SC-73, SC-114, CM-18)."""
        whole = (key for key in keys if isinstance(key, SharePartitionKey) and not self._quarantine.damage_of(key))
        found = ((key, self._states.get(key)) for key in whole)
        return [(state.cold_copy(key, wall_ms, _COLD),) for key, state in found if state is not None]


_COLD: Final = WriteStats(CAUSE_COLD)
_DECIDE: Final[dict[type, Callable[[ShareStateShard, Any, ShareState | None, int], _KeyDecision]]] = {
    InitializeState: ShareStateShard._initialize,
    ReadState: ShareStateShard._read,
    WriteState: ShareStateShard._write,
    DeleteState: ShareStateShard._delete,
    ReadSummary: ShareStateShard._summary,
}


def _damage(hurt: Sequence[DamagedEntry]) -> str:
    first, more = hurt[0], len(hurt) - 1
    whose = "" if first.key is not None else ", whose share-partition is unknown,"
    return f"entry {first.at} of {first.stream}{whose} {first.found}" + (f" (and {more} more)" if more else "")


def _tombstones(keys: list[SharePartitionKey]) -> _Decision:
    records = [ShareTombstone(key) for key in keys[:KEYS_PER_SLICE]]
    return Decision(records, Removed(len(records), len(keys) - len(records)))


def check_key(key: SharePartitionKey) -> None:
    """Rows 1 and 2: refuse a null topic id, or a negative partition."""
    if key.topic_id == NULL_TOPIC_ID:
        raise InvalidRequestError(f"group {key.group_id!r}: the topic id is null; expected a topic's id")
    if key.partition < 0:
        raise InvalidRequestError(f"{key.text}: partition {key.partition} is negative; expected 0 or more")


def check_epochs(key: SharePartitionKey, *, leader_epoch: int = 0, state_epoch: int = 0) -> None:
    """Row 2a (SC-28): refuse a negative epoch, which no leader or group has: such a request would not be fenced."""
    for name, epoch in (("leader", leader_epoch), ("state", state_epoch)):
        if epoch < 0:
            raise InvalidRequestError(f"{key.text}: {name} epoch {epoch} is negative; expected 0 or more")


def initialised(key: SharePartitionKey, state: ShareState | None) -> ShareState:
    """Row 3: return the state, or raise when the key has none."""
    if state is None:
        raise InvalidRequestError(f"{key.text} has no state; the group coordinator must initialise it first")
    return state


def check_leader(pair: tuple[int, int], state: ShareState) -> None:
    """Row 4: refuse an older leader, by (leader epoch, generation) as one ordered pair (SC-29a); equal and higher ones
    pass (SC-26)."""
    if state.fence > pair:
        raise StaleLeaderError(
            f"leader epoch {pair[0]} (generation {pair[1]}) is below the stored {state.fence[0]} "
            f"(generation {state.fence[1]}); another leader has taken over",
            state.fence[0],
        )


def check_state_epoch(state_epoch: int, state: ShareState | None) -> None:
    """Row 5: refuse an older state epoch. A key without state, or −1 in a Delete, is not checked (SC-27, SC-29)."""
    if state is not None and state_epoch != UNCHECKED_STATE_EPOCH and state.fence_state_epoch > state_epoch:
        raise FencedStateEpochError(
            f"state epoch {state_epoch} is below the stored {state.fence_state_epoch}; read the state again"
        )


def check_batches(key: SharePartitionKey, batches: Sequence[StateBatch]) -> None:
    """SC-43 [R]: refuse a batch that describes no possible state of records; overlapping batches are legal."""
    for batch in batches:
        first, last, state, count, until = batch
        if first > last or state not in _STORABLE or count < 0 or (until and (until < 0 or state != STATE_AVAILABLE)):
            raise InvalidRequestError(
                f"{key.text}: state batch {batch} (first-last:state:count@not_before_ms) is not valid; expected "
                f"first <= last, state one of {sorted(_STORABLE)}, count >= 0, not_before_ms >= 0, and 0 unless the "
                "state is 0"
            )


def check_failures(key: SharePartitionKey, failures: Sequence[Failure]) -> None:
    """SC-117: refuse a reason for no offset or no delivery, and one that is empty or too long."""
    for first, last, count, reason in failures:
        size = len(reason.encode())
        if not 0 <= first <= last or count < 0 or not 0 < size <= REASON_BYTES_MAX:
            raise InvalidRequestError(
                f"{key.text}: the failure of {first}-{last} (delivery count {count}, a reason of {size} bytes) is not "
                f"valid; expected 0 <= first <= last, count >= 0, and a reason of 1 to {REASON_BYTES_MAX} bytes"
            )


def check_metadata(key: SharePartitionKey, metadata: MetadataView) -> None:
    """Row 6: refuse an unknown topic or partition; always last, so that a stale leader of a deleted topic learns that
    it is stale (SC-30)."""
    count = metadata.partition_count(key.topic_id)
    if count is None:
        raise UnknownTopicOrPartitionError(f"topic {topic_id_text(key.topic_id)} is not in this node's metadata")
    if key.partition >= count:
        raise UnknownTopicOrPartitionError(
            f"topic {topic_id_text(key.topic_id)} has {count} partitions; partition {key.partition} was asked for"
        )


def _topic_starts(
    states: Mapping[SharePartitionKey, ShareState], damaged: Iterable[DamagedEntry], topic_ids: Collection[bytes]
) -> TopicStarts:
    """Return each share-partition of the topics, of every group, with its stored progress (SC-116).

    The result is complete, or the command is refused: a leader trims its log by it, so no group may be missing. Raises
    InQuarantineError when a damaged entry may belong to one of them, InvalidRequestError for too many of them.
    """
    for entry in damaged:
        if not isinstance(entry.key, SharePartitionKey) or entry.key.topic_id in topic_ids:
            whose = "its share-partition is unknown" if entry.key is None else f"it is of {entry.key}"
            raise InQuarantineError(
                f"entry {entry.at} of {entry.stream} is damaged, and {whose}; its group's progress is unknown until "
                "an operator settles that: `sharegroups state repair` shows what can be done"
            )
    found = [
        (key, StoredStart(state.start_offset, state.delivery_complete_count))
        for key, state in states.items()
        if key.topic_id in topic_ids
    ]
    if len(found) > TOPIC_STARTS_MAX:
        raise InvalidRequestError(
            f"{len(found)} share-partitions of one shard have state for the {len(topic_ids)} topics; at most "
            f"{TOPIC_STARTS_MAX} fit into one response: ask for fewer topics at once"
        )
    return tuple(found)
