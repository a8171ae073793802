"""Cuts topic logs so that each transaction is in a backup whole, or is aborted after its restore (CM-146). Pure.

The records of transactional ids are read once, between two readings of every log. A transaction that is committed by
then has all of its records in the logs as they are read afterwards. One committed later is not committed in the backup,
so no log is saved beyond its COMMIT marker.
"""

from __future__ import annotations

from dataclasses import replace

from partition_leader.topic_log.codec import PRODUCERS_TYPE, read_batch, read_producers
from shard_runtime.record_log.protocol import Entry, StreamId
from shard_runtime.record_log.redis.stream_copies import RawEntry, RawPage
from transaction_coordinator.codec import record_bytes
from transaction_coordinator.core.transaction import State, Transaction


class Decided:
    """The transactions that were over, or committed, when their records were read: one epoch for each producer id."""

    def __init__(self) -> None:
        self._through: dict[int, int] = {}

    def note(self, known: Transaction) -> None:
        """Note the record of a transactional id."""
        producer_id, epoch = known.identity
        over = epoch if known.state is State.PREPARE_COMMIT else epoch - 1
        for each, last in ((producer_id, over), *(past.identity for past in known.ended)):
            self._through[each] = max(self._through.get(each, -1), last)

    def knows(self, producer_id: int, epoch: int) -> bool:
        """Return whether a COMMIT marker of this transaction may be in the backup."""
        return epoch <= self._through.get(producer_id, -1)

    def before_commits(self, page: RawPage) -> RawPage:
        """Return the entries of a log before the first COMMIT marker that may not be in the backup."""
        damaged = {at for at, _ in page.damaged}
        for index, raw in enumerate(page.entries):
            batch = None if raw.id in damaged else read_batch(_entry(raw))
            commits = batch is not None and batch.is_control and not batch.is_abort
            if batch is not None and commits and not self.knows(batch.producer_id, batch.producer_epoch):
                return _only(page, page.entries[:index])
        return page


def saved_record(transactional_id: str, known: Transaction, change_id: int) -> bytes | None:
    """Return the record for a restored cluster; None when it needs none. Only a transaction that is committed, but not
    marked in every partition, needs a record: any other is aborted without one, and its producer begins again with
    another id."""
    if known.state is not State.PREPARE_COMMIT:
        return None
    return record_bytes(transactional_id, known._replace(restored=True), change_id)


def within(page: RawPage, log_end: int) -> RawPage:
    """Return the entries of a control log without snapshots that cover more than the log has in the backup: such a
    snapshot lacks the transactions that were open at the log's end."""
    damaged = {at for at, _ in page.damaged}
    return _only(page, [raw for raw in page.entries if raw.id in damaged or _covered(raw) <= log_end])


def _only(page: RawPage, entries: list[RawEntry]) -> RawPage:
    left = {entry.id for entry in entries}
    return replace(page, entries=entries, damaged=[each for each in page.damaged if each[0] in left])


def _covered(raw: RawEntry) -> int:
    entry = _entry(raw)
    found = read_producers(entry) if entry.kind == PRODUCERS_TYPE else None
    return 0 if found is None else found.log_end


def after(at: StreamId) -> StreamId:
    """The lowest id above this one."""
    return StreamId(at.epoch, at.seq + 1)


def _entry(raw: RawEntry) -> Entry:
    named = dict(zip(raw.fields[::2], raw.fields[1::2], strict=False))
    return Entry(raw.id, named.get(b"t", b"").decode(errors="replace"), named.get(b"r", b""))
