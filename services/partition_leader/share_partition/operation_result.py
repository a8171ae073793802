"""The outcome of an acknowledgement or a release, as the host of a share-partition returns it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kip932.errors import KafkaError


@dataclass(frozen=True, slots=True)
class OperationResult:
    """The outcome of an Acknowledge or Release. `persisted`: False if it needed no write (PL-411). `acknowledged`: the
    numbers of records by acknowledge type (PL-413); for the release at a session's end, the number of released
    records."""

    error: KafkaError | None
    persisted: bool
    acknowledged: Sequence[int] = ()


OnResult = Callable[[OperationResult], None]
