"""What one request may name (CM-62), looked at before anything is made of it.

The client knows the same numbers and splits; who sends more all the same is told so, and the call ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kip932.errors import InvalidRequestError
from kip932.ids import ACKNOWLEDGED_RANGES_MAX, PRODUCED_BATCHES_MAX, REQUEST_PARTITIONS_MAX


def check_partitions(*lists: tuple[Sequence[Any], str]) -> None:
    """Bound the partitions of a request's lists of topics; with each comes the name of the topics' field of partitions.

    Raises InvalidRequestError, which ends the call as INVALID_ARGUMENT.
    """
    count = 0
    for topics, field in lists:
        named = len(topics)
        if named <= REQUEST_PARTITIONS_MAX:
            named = max(named, sum(len(getattr(topic, field)) for topic in topics))
        count += named
    if count > REQUEST_PARTITIONS_MAX:
        raise InvalidRequestError(
            f"the request names {count} topics or partitions; at most {REQUEST_PARTITIONS_MAX} go into one request"
        )


def check_batches(count: int) -> None:
    """Bound the record batches of a Produce. Raises InvalidRequestError as `check_partitions`."""
    if count > PRODUCED_BATCHES_MAX:
        raise InvalidRequestError(
            f"the request brings {count} record batches; at most {PRODUCED_BATCHES_MAX} go into one request"
        )


def check_ranges(count: int) -> None:
    """Bound the ranges that a request acknowledges. Raises InvalidRequestError as `check_partitions`."""
    if count > ACKNOWLEDGED_RANGES_MAX:
        raise InvalidRequestError(
            f"the request acknowledges {count} ranges of offsets; at most {ACKNOWLEDGED_RANGES_MAX} go into one request"
        )
