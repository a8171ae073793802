"""The fake cluster's answer to ListShareProgress, from its logs: lag, records that are held, delayed or finished."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from kip932.api.v1 import list_share_progress_pb2 as pb
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import InvalidRequestError
from kip932.ids import PROGRESS_ROWS, PROGRESS_ROWS_MAX, TopicIdPartition
from tests.support.fake_cluster.state import FakeState

_Row = pb.ListShareProgressResponse.Row
_ADDED: Final = ("partitions", "in_flight", "delayed", "dead_letters", "finished", "archived")


def progress(fake: FakeState, node: int, request: pb.ListShareProgressRequest) -> pb.ListShareProgressResponse:
    """Return the response of a node. A log in `stateless` has an unknown lag."""
    if not 0 <= request.limit <= PROGRESS_ROWS_MAX:
        raise InvalidRequestError(f"limit is {request.limit}")
    if error := fake.take_error("list_share_progress"):
        return pb.ListShareProgressResponse(error_code=ErrorCode.ValueType(error), error_message="planted")
    found: dict[tuple[str, bytes, int], Any] = {}
    for row in _rows(fake, node):
        if request.group_ids and row.group_id not in request.group_ids:
            continue
        if request.topic_names and row.topic_name not in request.topic_names:
            continue
        if not request.by_partition:
            row.partition_index = -1
        key = row.group_id, row.topic_id, row.partition_index
        if key in found:
            _add(found[key], row)
        else:
            found[key] = row
    rows = sorted(found.values(), key=lambda row: -row.lag if row.HasField("lag") else 1)
    return pb.ListShareProgressResponse(rows=rows[: request.limit or PROGRESS_ROWS], total=len(rows))


def _rows(fake: FakeState, node: int) -> Iterator[Any]:
    for name, (topic_id, count) in fake.topics.items():
        for number in range(count):
            partition = TopicIdPartition(topic_id, number)
            log = fake.logs[partition]
            for group in list(log.states) if fake.leaders[partition][0] == node else ():
                states = Counter(state for state, _, _ in log.states[group].values())
                row = _Row(group_id=group, topic_name=name, topic_id=topic_id, partition_index=number, partitions=1)
                if partition not in fake.stateless:
                    row.lag = log.lag(group)
                row.in_flight, row.delayed, row.dead_letters = (
                    states["acquired"],
                    states["delayed"],
                    states["archiving"],
                )
                row.finished, row.archived = states["acknowledged"] + states["archived"], states["archived"]
                yield row


def _add(left: Any, right: Any) -> None:
    if left.HasField("lag") and right.HasField("lag"):
        left.lag += right.lag
    else:
        left.ClearField("lag")
    for field in _ADDED:
        setattr(left, field, getattr(left, field) + getattr(right, field))
