"""Transactions as one node serves them: it starts producers, adds partitions, ends transactions and writes markers.

No node owns a transaction (CM-151). A decision is durable before its first marker is written; then this node writes the
markers. If it dies, another node finishes the decision when the producer asks again, when the id's next producer
starts, or when a leader finds the transaction open in its log (CM-155).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from random import Random
from typing import Final

import structlog

from kip932.errors import InvalidTransactionTimeoutError, KafkaError
from kip932.ids import TopicIdPartition
from transaction_coordinator.core.transaction import (
    Cause,
    Fate,
    Identity,
    State,
    Transaction,
    concurrent,
    ended,
    expired,
    fate,
    finished,
    following,
    initialised,
    joined,
    timed_out,
)
from transaction_coordinator.markers import MarkerCalls
from transaction_coordinator.records import Page, ReadRecord, TransactionRecords

log = structlog.get_logger(__name__)

#: How long a caller waits for the markers of its transaction, in seconds; after that, writing continues without it.
MARKERS_WAIT_S: Final = 2.0
#: How long a node tries to write the markers of one decision, in seconds; then the leaders' sweeps must finish it.
FINISH_S: Final = 30.0
#: How many decisions one node finishes at the same time; further ones wait for a repeated request or a sweep.
FINISHING_MAX: Final = 1_000
_PAUSE_S: Final = 0.02
_PAUSE_MAX_S: Final = 1.0


class TransactionCoordinator:
    """Starts transactions, adds partitions to them, ends them, and finishes the decided ones.

    `new_id` gives producer ids (CM-43a); `max_timeout_ms`: `transaction.max.timeout.ms`; `judged`: takes the store's
    clock and returns the time and whether ages measured by it can be trusted. Call `stop` at the end."""

    def __init__(
        self,
        records: TransactionRecords,
        markers: MarkerCalls,
        rng: Random,
        *,
        new_id: Callable[[], int],
        max_timeout_ms: int,
        judged: Callable[[int], tuple[int, bool]] = lambda store_ms: (store_ms, True),
    ) -> None:
        self._records = records
        self._markers = markers
        self._rng = rng
        self._new_id = new_id
        self._max_timeout_ms = max_timeout_ms
        self._judge_clock = judged
        self._finishing: dict[tuple[str, Identity], asyncio.Task[Transaction | None]] = {}

    async def begin(self, transactional_id: str, asked: Identity | None, timeout_ms: int) -> Identity:
        """Return the identity for a producer's next transaction (CM-152). The id's open transaction is aborted.

        Raises ConcurrentTransactionsError while markers are still to be written, ProducerFencedError,
        InvalidProducerIdMappingError, InvalidTransactionTimeoutError, and the errors of `TransactionRecords.change`.
        """
        if not 0 < timeout_ms <= self._max_timeout_ms:
            raise InvalidTransactionTimeoutError(
                f"the transaction time-out is {timeout_ms} ms; expected 1 to {self._max_timeout_ms} "
                "(transaction.max.timeout.ms of the cluster). Lower transaction.timeout.ms of the producer"
            )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + MARKERS_WAIT_S
        fresh_id = self._new_id()
        while True:
            found = (
                await self._records.change(
                    transactional_id, lambda known, _: initialised(known, asked, timeout_ms, fresh_id)
                )
            ).transaction
            assert found is not None
            if found.state is State.EMPTY:
                return found.identity
            if found.cause is Cause.SUCCESSOR:
                self._log_abort("another producer began with the same transactional id", transactional_id, found)
            if not await self._finished(transactional_id, found, deadline - loop.time()):
                raise concurrent(found.identity)

    async def join(self, transactional_id: str, identity: Identity, partitions: Collection[TopicIdPartition]) -> None:
        """Add the partitions to the record, before the transaction's first batch is appended there (CM-153).
        Raises the errors of the core's `joined` and of `TransactionRecords.change`."""
        await self._records.change(
            transactional_id,
            lambda known, store_ms: joined(known, identity, partitions, self._now_ms(known, store_ms, 0)),
        )

    async def end(
        self,
        transactional_id: str,
        identity: Identity,
        partitions: Collection[TopicIdPartition],
        *,
        commit: bool,
        cause: Cause = Cause.PRODUCER,
    ) -> Identity | None:
        """Decide a transaction, and write its markers for a bounded time (CM-154). When this returns, the requested
        outcome is decided and durable. Returns the identity for the next transaction, or None when the caller must ask
        `begin` for it: markers are still to be written, or another producer has started. Raises the errors of the
        core's `ended` and of `TransactionRecords.change`."""
        fresh_id = self._new_id()
        decide = partial(ended, identity=identity, partitions=partitions, commit=commit, cause=cause, fresh_id=fresh_id)
        found = (await self._records.change(transactional_id, lambda known, _: decide(known))).transaction
        assert found is not None
        if cause is Cause.OPERATOR and found.decided and found.identity == identity:
            self._log_abort("an operator aborted it", transactional_id, found)
        if found.decided and not await self._finished(transactional_id, found, MARKERS_WAIT_S):
            return None
        if found.decided:
            found = (await self._records.read(transactional_id)).transaction
        return following(found, identity)

    async def read(self, transactional_id: str) -> ReadRecord:
        """Read the record. Raises the errors of `TransactionRecords.read`."""
        return await self._records.read(transactional_id)

    async def page(self, cursor: str) -> Page:
        """Return one page of the records. Raises the errors of `TransactionRecords.page`."""
        return await self._records.page(cursor)

    async def resolve(self, transactional_id: str, identity: Identity, open_ms: int = 0) -> tuple[Fate, int]:
        """Return the fate of a transaction that is open in a log, and how many ms it may stay open (CM-155).

        A transaction past its time-out is aborted; a decided one is finished in the background. `open_ms`: how long the
        caller has seen it open, by a monotonic clock; used while other clocks may be wrong. Raises the errors of
        `TransactionRecords.change`.
        """

        def late_aborted(known: Transaction | None, store_ms: int) -> Transaction | None:
            ours = known is not None and known.identity == identity
            return expired(known, self._now_ms(known, store_ms, open_ms)) if ours else known

        stored = await self._records.read(transactional_id)
        found = stored.transaction
        now_ms = self._now_ms(found, stored.now_ms, open_ms)
        if found is not None and found.identity == identity and timed_out(found, now_ms):
            stored = await self._records.change(transactional_id, late_aborted)
            found = stored.transaction
            if found is not None and found.decided and found.cause is Cause.TIMEOUT:
                self._log_abort("its time-out passed", transactional_id, found)
        if found is not None and found.decided:
            self._finish(transactional_id, found)
        left_ms = 0
        if found is not None and found.state is State.ONGOING:
            left_ms = max(found.started_ms + found.timeout_ms - self._now_ms(found, stored.now_ms, open_ms), 0)
        return fate(found, identity), left_ms

    async def stop(self) -> None:
        """Give up unfinished work; other nodes will find it."""
        tasks = list(self._finishing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _now_ms(self, known: Transaction | None, store_ms: int, open_ms: int) -> int:
        """The time by which the age of `known` is measured. When clocks may be wrong, or its start is in the future,
        its age is taken to be `open_ms`."""
        now_ms, believed = self._judge_clock(store_ms)
        if known is not None and known.state is State.ONGOING and (not believed or now_ms < known.started_ms):
            return known.started_ms + open_ms
        return now_ms

    # ---- finishing

    async def _finished(self, transactional_id: str, decided: Transaction, wait_s: float) -> bool:
        """Write the markers, or wait for the task that does. Returns whether all were written and recorded in time."""
        task = self._finish(transactional_id, decided)
        if task is None or wait_s <= 0:
            return False
        done, _ = await asyncio.wait({task}, timeout=wait_s)
        return bool(done) and not task.cancelled() and task.exception() is None and task.result() is not None

    def _finish(self, transactional_id: str, decided: Transaction) -> asyncio.Task[Transaction | None] | None:
        """The task that finishes this decision; None when this node is already finishing too many."""
        key = transactional_id, decided.identity
        task = self._finishing.get(key)
        if task is None and len(self._finishing) < FINISHING_MAX:
            task = asyncio.get_running_loop().create_task(
                self._run(transactional_id, decided), name=f"transaction-markers {transactional_id}"
            )
            self._finishing[key] = task
            task.add_done_callback(lambda done: self._gone(key, done))
        return task

    def _gone(self, key: tuple[str, Identity], task: asyncio.Task[Transaction | None]) -> None:
        del self._finishing[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("transaction_finishing_failed", transactional_id=key[0], exc_info=error)

    async def _run(self, transactional_id: str, decided: Transaction) -> Transaction | None:
        """Write all markers, then record that. Returns None when that could not be done in time."""
        left, fresh_id = set(decided.partitions), self._new_id()
        loop = asyncio.get_running_loop()
        until, pause_s = loop.time() + FINISH_S, _PAUSE_S
        problem: KafkaError | None = None
        while True:
            if left:
                problem = await self._markers.write(transactional_id, decided, left)
            if not left:
                try:
                    return (
                        await self._records.change(
                            transactional_id, lambda known, _: finished(known, decided.identity, fresh_id)
                        )
                    ).transaction
                except KafkaError as error:
                    problem = error
            if loop.time() > until:
                log.warning(
                    "transaction_markers_incomplete",
                    transactional_id=transactional_id,
                    producer_id=decided.identity.producer_id,
                    producer_epoch=decided.identity.epoch,
                    committed=decided.commits,
                    partitions_left=len(left),
                    cause=None if problem is None else problem.message,
                    effect="the transaction is decided; the leaders ask again, and then write the missing markers",
                )
                return None
            await asyncio.sleep(pause_s * (0.5 + self._rng.random() / 2))
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)

    @staticmethod
    def _log_abort(cause: str, transactional_id: str, found: Transaction) -> None:
        log.warning(
            "transaction_aborted",
            cause=cause,
            transactional_id=transactional_id,
            producer_id=found.identity.producer_id,
            producer_epoch=found.identity.epoch,
            timeout_ms=found.timeout_ms,
            partitions=len(found.partitions),
        )
