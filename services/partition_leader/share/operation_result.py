"""What became of an acknowledgement or a release, as the host of a share-partition tells it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kip932.errors import KafkaError


@dataclass(frozen=True, slots=True)
class OperationResult:
    """The outcome of an Acknowledge or Release. `persisted` False: it needed no write (PL-411). `acknowledged`: records
    by acknowledge type (PL-413); of a session's release, those that it gave back."""

    error: KafkaError | None
    persisted: bool
    acknowledged: Sequence[int] = ()


OnResult = Callable[[OperationResult], None]
