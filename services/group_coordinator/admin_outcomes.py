"""Passes the outcome of an administrator's call to the request that waits for it (GC-103, GC-108).

A request registers before it submits its command, so that no outcome is missed. Cancelling the request does not stop
the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Final

from kip932.errors import CoordinatorNotAvailableError, KafkaError
from kip932.ids import TopicIdPartition
from share_persister.values import PersisterError

#: How long a request waits for the end of its call, in seconds; longer than `state_calls.ADMIN_ORDER_S`, the time that
#: an order may take.
WAIT_S: Final = 50.0
Errors = Mapping[TopicIdPartition, KafkaError]


class Waiting:
    """One waiting request. `call_id` goes into its command."""

    def __init__(self, call_id: int) -> None:
        self.call_id = call_id
        self.errors: dict[TopicIdPartition, KafkaError] = {}
        self.ended: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()

    async def end(self) -> Errors:
        """Wait until the call ends, and return the errors of refused partitions. Raises KafkaError when the call
        failed, or did not end within `WAIT_S`."""
        try:
            async with asyncio.timeout(WAIT_S):
                return await self.ended
        except TimeoutError:
            raise CoordinatorNotAvailableError(
                f"the call has not ended within {WAIT_S:.0f} s and may still do so; inspect the group, or repeat it"
            ) from None


class AdminOutcomes:
    """All waiting requests, by call id."""

    def __init__(self) -> None:
        self._ids = count(1)
        self._waiting: dict[int, Waiting] = {}

    @contextmanager
    def waiting(self) -> Iterator[Waiting]:
        """Register a request, and remove it at the end of the block."""
        place = Waiting(next(self._ids))
        self._waiting[place.call_id] = place
        try:
            yield place
        finally:
            del self._waiting[place.call_id]
            if not place.ended.cancel() and not place.ended.cancelled():
                place.ended.exception()  # marks the error as retrieved, whether or not the request received it

    def answered(
        self, call_id: int, outcomes: Mapping[TopicIdPartition, PersisterError | None], *, last: bool = True
    ) -> None:
        """Record the outcomes of one round of the call. `last`: no other round follows."""
        if (place := self._waiting.get(call_id)) is None:
            return
        for partition, error in outcomes.items():
            if error is None:
                place.errors.pop(partition, None)
            else:
                place.errors[partition] = error.error
        if last and not place.ended.done():
            place.ended.set_result(place.errors)

    def failed(self, call_id: int, error: KafkaError) -> None:
        """End the call with an error, unless it has ended."""
        if (place := self._waiting.get(call_id)) is not None and not place.ended.done():
            place.ended.set_exception(error)
