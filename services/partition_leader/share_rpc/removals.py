"""Ends the share sessions of members that their group coordinators have removed, and logs it (PL-528).

A process that is suspended, or whose event loop is blocked, keeps its connections open. Without this module its records
would stay locked until the locks end, and its parked fetch would acquire records that no handler processes.
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

#: How long, in seconds, to wait for all share-partitions before a release is logged anyway.
LOG_AFTER_S: Final = 1.0


class MemberRemovals:
    """Carries out removals on this leader. `counted` is called with the outcome of each."""

    def __init__(
        self, requests: ShareRequests, partitions: SharePartitions, clock: Clock, counted: Callable[[str], None]
    ) -> None:
        self._requests = requests
        self._partitions = partitions
        self._clock = clock
        self._count_outcome = counted

    def removed(self, key: SessionKey, group_epoch: int) -> Removed:
        """End the session of a member whose removal gave the group this epoch, if the session's member epoch is lower:
        answer its parked fetch, and at once release what the member holds in the group."""
        outcome, closed = self._requests.sessions.member_removed(key, group_epoch, self._clock.now_ms())
        self._count_outcome(outcome)
        if closed is not None:
            # All share-partitions of the group, including those that the member no longer fetches from (PL-508).
            asked = tuple(self._partitions.of_group(key.group_id))
            released = _Released(key, len(asked))
            self._partitions.later(asked, released.release)
            released.asked()
            self._requests.end(closed)
        return outcome


class _Released:
    """Adds up the records that are released for a removed member, over all share-partitions, and logs the sum once.

    `asked`: how many share-partitions there are. If there are many, they are not all asked at once, and one that is
    dropped before its turn never answers.
    """

    def __init__(self, key: SessionKey, asked: int) -> None:
        self._key = key
        self._open = asked
        self._partitions = 0
        self._records = 0
        self._first_error: KafkaError | None = None
        self._timer: asyncio.TimerHandle | None = None

    def release(self, host: SharePartitionHost) -> None:
        """Release what the member holds in one share-partition."""
        host.release(self._key.member_id, on_result=self._done)

    def asked(self) -> None:
        """Log the result once all share-partitions have answered, or after LOG_AFTER_S. Call this when all have been
        asked or are sure to be."""
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
