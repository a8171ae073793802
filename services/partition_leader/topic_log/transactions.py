"""The transactions of one topic log, for those that join, end and supervise them (CM-44).

A transaction's durable record decides how it ends; the transaction coordinator keeps it. Here its batches and markers
are put in order: after the marker of a transaction none of its batches is appended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from partition_leader.topic_log.core.batch import CONTROL_ABORT, CONTROL_COMMIT
from partition_leader.topic_log.core.transactions import AbortedTransaction, OpenTransaction
from partition_leader.topic_log.state import LogState


class TopicTransactions:
    """The transactions of one topic log. `end`: appends a marker of (producer id, epoch) with this control type, and
    waits until it is durable."""

    __slots__ = ("_end", "_state")

    def __init__(self, state: LogState, end: Callable[[tuple[int, int], int], Awaitable[None]]) -> None:
        self._state = state
        self._end = end

    @property
    def open(self) -> Collection[OpenTransaction]:
        """The transactions that have records here and no marker yet, in the order of their first offsets."""
        return self._state.transactions.open.values()

    @property
    def earliest(self) -> OpenTransaction | None:
        """The open transaction that holds the last stable offset back; None when none is open."""
        return self._state.transactions.earliest

    def aborted_in(self, first: int, last: int) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions with offsets in `first`…`last`, in the order of their markers."""
        return self._state.transactions.aborted_in(first, last)

    def needs_join(self, producer_id: int, epoch: int) -> bool:
        """Return whether a batch of this transaction may be appended only after its durable record names this
        partition; then call `join`."""
        opened = self._state.transactions.open.get(producer_id)
        if opened is not None and opened.producer_epoch == epoch:
            return False
        return self._state.joined.get(producer_id) != epoch

    def join(self, producer_id: int, epoch: int) -> None:
        """Note that the durable record of the transaction names this partition."""
        if not self._state.producers.ended(producer_id, epoch):
            self._state.join(producer_id, epoch)

    async def end(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Append the COMMIT or ABORT marker; does nothing when the transaction has its marker here. The marker is
        durable when this returns, and no batch of this epoch is taken any more. Call it only as the durable record of
        the transaction says. Raises KafkaError."""
        await self._end((producer_id, epoch), CONTROL_COMMIT if commit else CONTROL_ABORT)
