"""Asks every partition leader how far share groups are, and adds up their answers (CL-170)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from heapq import nlargest
from typing import Final, NamedTuple

from kip932.api.v1.common_pb2 import NodeEndpoint
from kip932.api.v1.list_share_progress_pb2 import ListShareProgressRequest, ListShareProgressResponse
from kip932.errors import KafkaError, LeaderNotAvailableError, NetworkError, error_for
from kip932.ids import PROGRESS_ROWS, PROGRESS_ROWS_MAX
from kip932.rpc.transport import TransportError
from sharegroups import arguments
from sharegroups.connection import wire
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.coordinator_calls import fatal_error, until_answered, while_no_room
from sharegroups.share_progress import ProgressPage, ShareProgress

_ROLE: Final = "partition-leader"
_CALL: Final = "list_share_progress"
_Row = ListShareProgressResponse.Row


class _Failed(NamedTuple):
    """A leader that did not answer."""

    address: str
    error: KafkaError


class ProgressAdmin:
    """The part of the admin client that follows groups."""

    _cluster: Cluster
    _timeout_s: float

    async def list_share_progress(
        self,
        groups: Iterable[str] | None = None,
        topics: Iterable[str] | None = None,
        *,
        by_partition: bool = False,
        limit: int = PROGRESS_ROWS,
    ) -> ProgressPage:
        """Return the progress of groups, by topic or by partition: lag, age of the oldest unfinished record, records in
        flight, arrivals, and more. At most `limit` rows (at most 5,000), those with the largest lag first.

        Without `groups` or `topics`: all that the caller may describe. If a leader has more than 5,000 rows, the sums
        over leaders leave out its others. Raises KafkaError when no leader answers.
        """
        request = ListShareProgressRequest(by_partition=by_partition, limit=PROGRESS_ROWS_MAX)
        instead = f'{_CALL}(["workers"])'
        if groups is not None:
            request.group_ids.extend(dict.fromkeys(arguments.items(_CALL, groups, "group ids", str, instead)))
        if topics is not None:
            instead = f'{_CALL}(topics=["orders"])'
            request.topic_names.extend(dict.fromkeys(arguments.items(_CALL, topics, "topic names", str, instead)))
        if not 1 <= arguments.whole(_CALL, "limit", limit) <= PROGRESS_ROWS_MAX:
            raise arguments.refusal(_CALL, "limit", limit, f"1 to {PROGRESS_ROWS_MAX}")
        if (groups is not None and not request.group_ids) or (topics is not None and not request.topic_names):
            return ProgressPage((), 0, ())
        nodes = await self._leaders()
        answers = await asyncio.gather(*(self._ask(wire.address_of(node), request) for node in nodes))
        failed = [each for each in answers if isinstance(each, _Failed)]
        if failed and len(failed) == len(nodes):
            raise failed[0].error
        return _page([each for each in answers if not isinstance(each, _Failed)], failed, limit)

    async def _leaders(self) -> list[NodeEndpoint]:
        metadata = await until_answered(
            self._cluster, wire.LIST_SHARE_PROGRESS.name, self._timeout_s, lambda: self._cluster.fetch_metadata([])
        )
        nodes = [node for node in metadata.brokers if not node.roles or _is_leader(node)]
        if not nodes:
            raise LeaderNotAvailableError("no live node is a partition leader, so no progress is known")
        return nodes

    async def _ask(self, address: str, request: ListShareProgressRequest) -> ListShareProgressResponse | _Failed:
        one_s = min(self._timeout_s, self._cluster.timeout_s)
        call = self._cluster.transport.call
        try:
            response = await while_no_room(
                self._cluster, one_s, lambda: call(address, wire.LIST_SHARE_PROGRESS, request, one_s)
            )
        except TransportError as error:
            return _Failed(address, fatal_error(error) or NetworkError(str(error)))
        refusal = error_for(response.error_code, response.error_message)
        return response if refusal is None else _Failed(address, refusal)


def _page(answers: Sequence[ListShareProgressResponse], failed: Sequence[_Failed], limit: int) -> ProgressPage:
    found: dict[tuple[str, bytes, int], ShareProgress] = {}
    for answer in answers:
        for row in answer.rows:
            key, one = (row.group_id, row.topic_id, row.partition_index), _progress(row)
            found[key] = _sum(found[key], one) if key in found else one
    rows = nlargest(limit, found.values(), key=lambda row: -1 if row.lag is None else row.lag)
    total = max([len(found), *(answer.total for answer in answers)])
    return ProgressPage(tuple(rows), total, tuple(sorted(each.address for each in failed)))


def _progress(row: _Row) -> ShareProgress:
    return ShareProgress(
        row.group_id,
        row.topic_name,
        row.partition_index,
        row.partitions,
        row.lag if row.HasField("lag") else None,
        row.oldest_ms if row.HasField("oldest_ms") else None,
        row.in_flight,
        row.delayed,
        row.dead_letters,
        row.finished,
        row.archived,
        row.arrived,
        row.recent_ms,
        row.recent_finished,
        row.recent_arrived,
        row.since_finish_ms if row.HasField("since_finish_ms") else None,
        row.longest_member,
        row.longest_held_ms,
        row.fetching,
    )


def _sum(left: ShareProgress, right: ShareProgress) -> ShareProgress:
    """Return the sum of two leaders' rows of one group and topic, or of one partition that has just moved."""
    longest = left if left.longest_member and left.longest_held_ms >= right.longest_held_ms else right
    return ShareProgress(
        left.group,
        left.topic,
        left.partition,
        left.partitions + right.partitions,
        None if left.lag is None or right.lag is None else left.lag + right.lag,
        _either(max, left.oldest_ms, right.oldest_ms),
        left.in_flight + right.in_flight,
        left.delayed + right.delayed,
        left.dead_letters + right.dead_letters,
        left.finished + right.finished,
        left.archived + right.archived,
        left.arrived + right.arrived,
        max(left.recent_ms, right.recent_ms),
        left.recent_finished + right.recent_finished,
        left.recent_arrived + right.recent_arrived,
        _either(min, left.since_finish_ms, right.since_finish_ms),
        longest.longest_member,
        longest.longest_held_ms,
        left.fetching + right.fetching,
    )


def _either(choose: Callable[[int, int], int], left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return choose(left, right)


def _is_leader(node: NodeEndpoint) -> bool:
    return any(role.replace("_", "-") == _ROLE for role in node.roles)
