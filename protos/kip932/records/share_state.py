"""Converts state batches, reasons of failures and write statistics between protobuf messages and values (CM-17).

The share coordinator, the persister, tools and the pipeline all use these functions, so that an absent field means the
same to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import Any

from kip932.failures import Failure
from kip932.records.v1.state_batch_pb2 import Failure as FailureMessage
from kip932.records.v1.state_batch_pb2 import StateBatch as StateBatchMessage
from kip932.records.v1.write_stats_pb2 import WriteStats as WriteStatsMessage
from kip932.state_batches import NO_STATS, ArchivedRange, StateBatch, WriteStats

_OPTIONAL = WriteStats._fields[1:-1]
_fields_of_stats = attrgetter(*_OPTIONAL)
_fields_of_range = attrgetter(*ArchivedRange._fields)
_fields_of_batch = attrgetter(*StateBatch._fields)
_batch_of_fields = partial(tuple.__new__, StateBatch)
_fields_of_failure = attrgetter(*Failure._fields)


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


def failures_to_messages(failures: Iterable[Failure]) -> list[FailureMessage]:
    """One message for each reason, in order."""
    return [FailureMessage(**failure._asdict()) for failure in failures]


def failures_from_messages(messages: Iterable[FailureMessage]) -> tuple[Failure, ...]:
    """One value for each message, in order."""
    return tuple([Failure(*_fields_of_failure(message)) for message in messages])


def stats_to_message(stats: WriteStats) -> WriteStatsMessage | None:
    """The message; None for empty statistics, so that the field remains absent."""
    if stats == NO_STATS:
        return None
    fields: dict[str, Any] = dict(zip(WriteStats._fields, stats, strict=True))
    if stats.archived:
        fields["archived"] = [found._asdict() for found in stats.archived]
    return WriteStatsMessage(**fields)  # a field given as None stays absent


def stats_from_message(message: WriteStatsMessage) -> WriteStats:
    """The value; an absent count becomes None."""
    has: Callable[[Any], bool] = message.HasField
    numbers = zip(_OPTIONAL, _fields_of_stats(message), strict=True)
    values: list[Any] = [number if number or has(name) else None for name, number in numbers]
    values.append(tuple([ArchivedRange(*_fields_of_range(found)) for found in message.archived]))
    stats = WriteStats(message.cause, *values)
    return NO_STATS if stats == NO_STATS else stats
