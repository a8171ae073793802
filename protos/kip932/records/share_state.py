"""Converts state batches and write statistics between protobuf messages and values (CM-17).

The share coordinator, the persister, tools and the pipeline all use these functions, so that an absent field means the
same to all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from operator import attrgetter
from typing import Any

from kip932.records.v1.state_batch_pb2 import StateBatch as StateBatchMessage
from kip932.records.v1.write_stats_pb2 import WriteStats as WriteStatsMessage
from kip932.state_batches import NO_STATS, ArchivedRange, StateBatch, WriteStats

_COUNTS = WriteStats._fields[1:-1]
_fields_of_range = attrgetter(*ArchivedRange._fields)
_fields_of_batch = attrgetter(*StateBatch._fields)
_batch_of_fields = partial(tuple.__new__, StateBatch)


def batches_to_messages(batches: Iterable[StateBatch]) -> list[StateBatchMessage]:
    """One message for each batch, in order."""
    return [
        StateBatchMessage(
            first_offset=first, last_offset=last, delivery_state=state, delivery_count=count, not_before_ms=until
        )
        for first, last, state, count, until in batches
    ]


def batches_from_messages(messages: Iterable[StateBatchMessage]) -> tuple[StateBatch, ...]:
    """One value for each message, in order. A replay makes hundreds of thousands, so every step runs in C."""
    return tuple(map(_batch_of_fields, map(_fields_of_batch, messages)))


def stats_to_message(stats: WriteStats) -> WriteStatsMessage | None:
    """The message; None for empty statistics, so that the field remains absent."""
    if stats == NO_STATS:
        return None
    cause, n_accept, n_release, n_reject, n_timeout, n_limit, max_dc, sum_dc, hwm, speo, write_id, limit, archived = (
        stats
    )
    return WriteStatsMessage(  # a field given as None stays absent
        cause=cause,
        n_accept=n_accept,
        n_release=n_release,
        n_reject=n_reject,
        n_timeout=n_timeout,
        n_limit=n_limit,
        max_dc=max_dc,
        sum_dc=sum_dc,
        hwm=hwm,
        speo=speo,
        write_id=write_id,
        delivery_limit=limit,
        archived=[WriteStatsMessage.Archived(**found._asdict()) for found in archived],
    )


def stats_from_message(message: WriteStatsMessage) -> WriteStats:
    """The value; an absent count becomes None."""
    values = {descriptor.name: value for descriptor, value in message.ListFields()}
    if not values:
        return NO_STATS
    archived = tuple(ArchivedRange(*_fields_of_range(found)) for found in values.get("archived", ()))
    rest: list[Any] = [*[values.get(name) for name in _COUNTS], archived]
    return WriteStats(values.get("cause", 0), *rest)
