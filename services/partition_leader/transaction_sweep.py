"""Ends transactions that stay open in the logs this node leads, once their records allow it (CM-155, CM-156).

An open transaction holds up every consumer of committed records after it. So the leader, which unlike the producer is
always there, reads the transaction's record: it aborts a transaction that is past its timeout, completes one that was
decided but not completed, and otherwise waits.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import structlog

from kip932.errors import KafkaError
from kip932.ids import TopicIdPartition
from partition_leader.led_partitions import SWEEP_SLICE, LedPartitions
from partition_leader.topic_log.core.transactions import LATE_MS
from shard_runtime.clock import Clock
from shard_runtime.rpc.bounds import Turns
from transaction_coordinator.core.transaction import Fate, Identity

log = structlog.get_logger(__name__)

#: The interval between checks of the led logs, in seconds. A transaction's record is read once two checks have seen it
#: open.
SWEEP_S: Final = 1.0
#: How long an open transaction is left alone after its record was read, unless its timeout comes first, in ms.
CONSULT_AGAIN_MS: Final = 5_000
#: The maximum number of records that one sweep reads; the others are left to the next sweeps.
CONSULTED_MAX: Final = 200
#: How many records are read at the same time.
_CONSULTS_AT_ONCE: Final = 32
#: How many long-open transactions one sweep logs by name, and how many partitions of each.
LOGGED_MAX: Final = 5
_PARTITIONS_LOGGED: Final = 5


class TransactionRecords(Protocol):
    """The records of transactional ids, for the sweep of open transactions."""

    async def resolve(self, transactional_id: str, identity: Identity, open_ms: int) -> tuple[Fate, int]:
        """Return the transaction's fate, and how many ms it may still be open. `open_ms`: how long it has been seen
        open here, by the deadline clock. Raises KafkaError."""
        ...


class _Key(NamedTuple):
    transactional_id: str
    identity: Identity


@dataclass(slots=True)
class _Watched:
    """One open transaction in the logs led here. `consult_ms`: when its record is read next; `seen_ms`: when it was
    first seen open; `open_ms`: the longest time that it has been open in one of these logs; `log_ms`: how long it must
    be open to be logged, doubled after each log line."""

    consult_ms: int
    seen_ms: int
    log_ms: int = LATE_MS
    open_ms: int = 0
    partitions: list[TopicIdPartition] = field(default_factory=list)


class TransactionSweep:
    """One process's sweep; call `run` as a task."""

    def __init__(self, led: LedPartitions, records: TransactionRecords, clock: Clock) -> None:
        self._led = led
        self._records = records
        self._clock = clock
        self._watched: dict[_Key, _Watched] = {}

    async def run(self) -> None:
        """Sweep repeatedly, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self.sweep()
            except Exception:
                log.exception("transaction_sweep_failed")

    async def sweep(self) -> None:
        """Run one sweep."""
        await self._scan()
        self._log_late()
        now_ms = self._clock.now_ms()
        due = [(watched.consult_ms, key) for key, watched in self._watched.items() if watched.consult_ms <= now_ms]
        keys = [key for _, key in sorted(due)[:CONSULTED_MAX]]
        for at in range(0, len(keys), _CONSULTS_AT_ONCE):
            await asyncio.gather(*(self._ask(key) for key in keys[at : at + _CONSULTS_AT_ONCE]))

    async def _scan(self) -> None:
        """Note which transactions are open now. Their records are read later, since a record read before this could be
        older than the log."""
        turns, now_ms, wall_ms = Turns(SWEEP_SLICE), self._clock.now_ms(), self._clock.wall_ms()
        former, self._watched = self._watched, {}
        for partition, led in list(self._led.led().items()):
            await turns.step()
            for one in led.log.transactions.open:
                key = _Key(one.transactional_id, Identity(one.producer_id, one.producer_epoch))
                watched = self._watched.get(key)
                if watched is None:
                    known = former.get(key)
                    watched = (
                        _Watched(now_ms + 1, now_ms)
                        if known is None
                        else _Watched(known.consult_ms, known.seen_ms, known.log_ms)
                    )
                    self._watched[key] = watched
                watched.partitions.append(partition)
                watched.open_ms = max(watched.open_ms, one.open_ms(wall_ms))

    def _log_late(self) -> None:
        """Log the transactions that have held up readers for long, longest first."""
        long = [(watched.open_ms, key) for key, watched in self._watched.items() if watched.open_ms >= watched.log_ms]
        long.sort(reverse=True)
        for open_ms, key in long[:LOGGED_MAX]:
            partitions = self._watched[key].partitions
            log.warning(
                "long_transaction_open",
                effect="groups that read committed records wait for its end",
                transactional_id=key.transactional_id,
                producer_id=key.identity.producer_id,
                producer_epoch=key.identity.epoch,
                open_s=open_ms // 1_000,
                partitions=len(partitions),
                examples=[partition.text for partition in partitions[:_PARTITIONS_LOGGED]],
                try_next="sharegroups transactions describe, or abort, --transactional-id",
            )
        if len(long) > LOGGED_MAX:
            log.warning("further_long_transactions_open", transactions=len(long) - LOGGED_MAX)
        for open_ms, key in long:
            watched = self._watched[key]
            while watched.log_ms <= open_ms:
                watched.log_ms *= 2

    async def _ask(self, key: _Key) -> None:
        watched = self._watched[key]
        try:
            fate, left_ms = await self._records.resolve(*key, self._clock.now_ms() - watched.seen_ms)
        except KafkaError as error:
            watched.consult_ms = self._clock.now_ms() + CONSULT_AGAIN_MS
            log.info("transaction_check_deferred", transactional_id=key[0], cause=error.message)
            return
        watched.consult_ms = self._clock.now_ms() + min(CONSULT_AGAIN_MS, max(left_ms, 1))
        if fate is not Fate.WAITS:
            for partition in watched.partitions:
                await self._end(partition, key, commit=fate is Fate.COMMITTED)

    async def _end(self, partition: TopicIdPartition, key: _Key, *, commit: bool) -> None:
        try:
            await self._led.log(partition).transactions.end(*key.identity, commit=commit)
        except KafkaError as error:
            log.info("transaction_marker_deferred", partition=partition.text, cause=error.message)
