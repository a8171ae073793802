"""Rebuilds the share state from the store's streams alone, using only their records and the combiner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kip932.failures import Failure, merge_failures
from kip932.ids import SharePartitionKey
from kip932.records.share_state import batches_from_messages, failures_from_messages
from kip932.records.v1.share_state_log_pb2 import ShareSnapshot, ShareStateRecord, ShareUpdate
from kip932.state_batches import StateBatch, combine

_SNAPSHOT: Final = b"S"
_UPDATE: Final = b"U"
_TOMBSTONE: Final = b"T"

#: A stream entry's fields: name, value, name, value …
Fields = Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """One share-partition's state. `orphan`: there is no snapshot before its updates."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    orphan: bool = False
    failures: tuple[Failure, ...] = ()


@dataclass
class Rebuilding:
    """Reads streams one after another. `torn`: descriptions of entries that no coordinator would write.

    `tails_may_be_lost`: the store may fail over to a replica that lacks the latest entries; then snapshot epochs may
    have gaps.
    """

    tails_may_be_lost: bool = False
    states: dict[SharePartitionKey, Rebuilt] = field(default_factory=dict)
    torn: list[str] = field(default_factory=list)

    def read(self, entries: Iterable[Fields]) -> None:
        """Read all entries of one stream, oldest first."""
        for fields in entries:
            named = dict(zip(fields[::2], fields[1::2], strict=True))
            kind = named[b"t"]
            if kind in (_SNAPSHOT, _UPDATE, _TOMBSTONE):
                self._apply(kind, ShareStateRecord.FromString(named[b"r"]))

    def finish(self) -> None:
        """After the last stream, note each state without a snapshot; a trim has removed it (SC-56, SC-70)."""
        self.torn += [f"{key.text} has updates but no snapshot" for key, state in self.states.items() if state.orphan]

    def _apply(self, kind: bytes, record: ShareStateRecord) -> None:
        key = SharePartitionKey(record.key.group_id, record.key.topic_id, record.key.partition)
        before = self.states.get(key)
        if kind == _TOMBSTONE:
            self.states.pop(key, None)
        elif kind == _SNAPSHOT:
            self.states[key] = self._snapshot(key, before, record.snapshot)
        else:
            self.states[key] = self._update(key, before, record.update)

    def _snapshot(self, key: SharePartitionKey, before: Rebuilt | None, record: ShareSnapshot) -> Rebuilt:
        """Apply a snapshot. SC-54: each snapshot's epoch is one more than the previous one's."""
        if before is not None and not before.orphan:
            step = record.snapshot_epoch - before.snapshot_epoch
            if step < 1 or (step > 1 and not self.tails_may_be_lost):
                self.torn.append(
                    f"{key.text} has snapshot {record.snapshot_epoch} after snapshot {before.snapshot_epoch}"
                )
        return Rebuilt(
            record.snapshot_epoch,
            record.state_epoch,
            record.leader_epoch,
            record.start_offset,
            record.delivery_complete_count if record.HasField("delivery_complete_count") else -1,
            batches_from_messages(record.state_batches),
            failures=failures_from_messages(record.failures),
        )

    def _update(self, key: SharePartitionKey, before: Rebuilt | None, record: ShareUpdate) -> Rebuilt:
        """Apply an update (SC-56), with the start offset and the count as in SC-41 and SC-42."""
        count = record.delivery_complete_count if record.HasField("delivery_complete_count") else -1
        batches = batches_from_messages(record.state_batches)
        failures = failures_from_messages(record.failures)
        if before is None:
            batches = tuple(combine((), batches, record.start_offset))
            failures = merge_failures((), failures, record.start_offset)
            numbers = (record.snapshot_epoch, 0, record.leader_epoch, record.start_offset, count)
            return Rebuilt(*numbers, batches, True, failures)
        if not before.orphan and record.snapshot_epoch != before.snapshot_epoch:
            self.torn.append(f"{key.text}: an update of {record.snapshot_epoch} follows {before.snapshot_epoch}")
        start = max(before.start_offset, record.start_offset)
        if record.start_offset < before.start_offset:
            count = before.delivery_complete_count
        elif record.start_offset == before.start_offset:
            count = max(before.delivery_complete_count, count)
        return replace(
            before,
            leader_epoch=before.leader_epoch if record.leader_epoch == -1 else record.leader_epoch,
            start_offset=start,
            delivery_complete_count=count,
            batches=tuple(combine(before.batches, batches, start)),
            failures=merge_failures(before.failures, failures, start),
        )
