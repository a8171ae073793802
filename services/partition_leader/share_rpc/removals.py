"""Ends the share sessions of members that their group coordinators have removed, and logs it (PL-528).

A process that is suspended, or whose event loop is blocked, keeps its connections open: without this its records stay
locked until their lock time is over, and its parked fetch acquires records that no handler processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from kip932.errors import KafkaError
from partition_leader.sessions.core.session import Removed, SessionKey
from partition_leader.share_partition.host import SharePartitionHost
from partition_leader.share_partition.operation_result import OperationResult
from partition_leader.share_partition.partitions import SharePartitions
from partition_leader.share_rpc.requests import ShareRequests
from shard_runtime.clock import Clock

log = structlog.get_logger(__name__)

#: After how long a release is logged although some share-partitions have not answered, s.
LOG_AFTER_S: Final = 1.0


class MemberRemovals:
    """Carries out removals on this leader. `counted` takes the outcome of each."""

    def __init__(
        self, requests: ShareRequests, partitions: SharePartitions, clock: Clock, counted: Callable[[str], None]
    ) -> None:
        self._requests = requests
        self._partitions = partitions
        self._clock = clock
        self._count_outcome = counted

    def removed(self, key: SessionKey, group_epoch: int) -> Removed:
        """End the session of a member whose removal gave the group this epoch, if the session's member epoch is older:
        answer its parked fetch, and release what the member holds in the group at once."""
        outcome, closed = self._requests.sessions.member_removed(key, group_epoch, self._clock.now_ms())
        self._count_outcome(outcome)
        if closed is not None:
            # All share-partitions of the group, also those that the member does not fetch from any more (PL-508).
            asked = tuple(self._partitions.of_group(key.group_id))
            released = _Released(key, len(asked))
            self._partitions.later(asked, released.release)
            released.asked()
            self._requests.end(closed)
        return outcome


class _Released:
    """Adds up what a removed member's share-partitions give back, and logs it once.

    `asked`: how many share-partitions there are. Many are not asked at once, and one that is dropped before its turn
    never answers.
    """

    def __init__(self, key: SessionKey, asked: int) -> None:
        self._key = key
        self._open = asked
        self._partitions = 0
        self._records = 0
        self._first_error: KafkaError | None = None
        self._timer: asyncio.TimerHandle | None = None

    def release(self, host: SharePartitionHost) -> None:
        """Let one share-partition give back what the member holds."""
        host.release(self._key.member_id, on_result=self._done)

    def asked(self) -> None:
        """Log the result once all share-partitions have answered, or after LOG_AFTER_S; call it when all were asked,
        or will be."""
        self._timer = asyncio.get_running_loop().call_later(LOG_AFTER_S, self._log_result)
        self._log_if_answered()

    def _done(self, result: OperationResult) -> None:
        self._open -= 1
        records = sum(result.acknowledged)
        if result.error is not None:
            self._first_error = self._first_error or result.error
        elif records:
            self._partitions += 1
            self._records += records
        self._log_if_answered()

    def _log_if_answered(self) -> None:
        if not self._open and self._timer is not None:
            self._timer.cancel()
            self._log_result()

    def _log_result(self) -> None:
        if self._timer is None:
            return
        self._timer = None
        failed = {} if self._first_error is None else {"first_failure": str(self._first_error)}
        log.info(
            "removed_member_session_ended",
            effect="the records that it held go to other members",
            group=self._key.group_id,
            member=self._key.member_id,
            records=self._records,
            share_partitions=self._partitions,
            **failed,
        )
