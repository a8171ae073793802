"""Answers ListShareProgress: the rows that the caller may see, those with the largest lag first (PL-951)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from kip932.acls import ResourceType
from kip932.api.v1 import list_share_progress_pb2 as pb
from kip932.errors import InvalidRequestError, KafkaError, UnsupportedVersionError
from kip932.ids import PROGRESS_ROWS, PROGRESS_ROWS_MAX
from partition_leader.progress.core.figures import ALL_PARTITIONS, Figures, Row, largest_first
from partition_leader.progress.leader_progress import Board, LeaderProgress
from partition_leader.topic_rpc.error_codec import wire_code
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.bounds import Turns, check_groups, check_topics

#: How many rows are checked, and how many are written, before other tasks run: about 2 ms.
_CHECKED: Final = 1_000
_WRITTEN: Final = 200


class ProgressService:
    """The handler. `topic_name` returns "" for a topic that does not exist; `enabled`: whether share.version is 1 or
    higher (GC-8)."""

    def __init__(
        self, progress: LeaderProgress, topic_name: Callable[[bytes], str], enabled: Callable[[], bool]
    ) -> None:
        self._progress = progress
        self._topic_name = topic_name
        self._enabled = enabled

    async def list_share_progress(
        self, request: pb.ListShareProgressRequest, context: CallContext
    ) -> pb.ListShareProgressResponse:
        """Return the progress of groups in the partitions led here. Raises InvalidRequestError for a request over a
        limit (CM-91)."""
        check_groups(len(request.group_ids), request.group_ids)
        check_topics(len(request.topic_names))
        if not 0 <= request.limit <= PROGRESS_ROWS_MAX:
            raise InvalidRequestError(
                f"limit is {request.limit}; expected 1 to {PROGRESS_ROWS_MAX} rows, or 0 for {PROGRESS_ROWS}"
            )
        if not self._enabled():
            return _refused(UnsupportedVersionError("share groups are switched off here (share.version=0)"))
        try:
            board = await self._progress.board()
        except KafkaError as error:
            return _refused(error)
        wanted, total = await self._wanted(request, context, board)
        response, turns = pb.ListShareProgressResponse(total=total), Turns(_WRITTEN)
        for row in wanted:
            await turns.step()
            _fill(response.rows.add(), row, self._topic_name(row.topic_id))
        return response

    async def _wanted(
        self, request: pb.ListShareProgressRequest, context: CallContext, board: Board
    ) -> tuple[list[Row], int]:
        limit, total = request.limit or PROGRESS_ROWS, 0
        largest: list[Row] = []
        groups, topics = frozenset(request.group_ids), frozenset(request.topic_names)
        rows = _of_partitions(board) if request.by_partition else _of_topics(board)
        while chunk := list(islice(rows, _CHECKED)):
            some = [
                row
                for row in chunk
                if (not groups or row.group_id in groups)
                and (name := self._topic_name(row.topic_id))
                and (not topics or name in topics)
                and context.may(ResourceType.GROUP, row.group_id)
                and context.may(ResourceType.TOPIC, name)
            ]
            total += len(some)
            largest = largest_first([*largest, *some], limit)
            await asyncio.sleep(0)
        return largest, total


def _of_partitions(board: Board) -> Iterator[Row]:
    for key, figures in board.parts.items():
        yield Row(key.group_id, key.topic_id, key.partition, figures)


def _of_topics(board: Board) -> Iterator[Row]:
    for (group_id, topic_id), figures in board.sums.items():
        yield Row(group_id, topic_id, ALL_PARTITIONS, figures)


def _refused(error: KafkaError) -> pb.ListShareProgressResponse:
    return pb.ListShareProgressResponse(error_code=wire_code(error), error_message=error.message)


def _fill(message: pb.ListShareProgressResponse.Row, row: Row, topic_name: str) -> None:
    figures: Figures = row.figures
    message.group_id, message.topic_name, message.topic_id = row.group_id, topic_name, row.topic_id
    message.partition_index, message.partitions = row.partition, figures.partitions
    if figures.lag is not None:
        message.lag = figures.lag
    if figures.oldest_ms is not None:
        message.oldest_ms = figures.oldest_ms
    message.in_flight, message.delayed, message.dead_letters = figures.in_flight, figures.delayed, figures.dead_letters
    message.finished, message.arrived = figures.finished.records, figures.arrived
    message.archived = figures.finished.rejected + figures.finished.limited
    message.recent_ms, message.recent_finished, message.recent_arrived = figures.recent
    if figures.since_finish_ms is not None:
        message.since_finish_ms = figures.since_finish_ms
    message.longest_member, message.longest_held_ms = figures.longest
    message.fetching = figures.fetching
