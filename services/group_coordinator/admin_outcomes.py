"""Brings the end of an administrator's call to the request that waits for it (GC-103, GC-108).

A request opens a place before its command, so that no outcome comes too early. When it goes away, the call goes on.
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

#: The most that a request waits for the end of its call; longer than an order may take (`state_calls.ADMIN_ORDER_S`).
WAIT_S: Final = 50.0
Errors = Mapping[TopicIdPartition, KafkaError]


class Waiting:
    """One request's place. `call_id` goes into its command."""

    def __init__(self, call_id: int) -> None:
        self.call_id = call_id
        self.errors: dict[TopicIdPartition, KafkaError] = {}
        self.ended: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()

    async def end(self) -> Errors:
        """Wait for the end: the errors of partitions that were refused. Raises KafkaError when the call failed."""
        try:
            async with asyncio.timeout(WAIT_S):
                return await self.ended
        except TimeoutError:
            raise CoordinatorNotAvailableError(
                f"the call has not ended within {WAIT_S:.0f} s and may still do so; look at the group, or repeat it"
            ) from None


class AdminOutcomes:
    """The places of all requests that wait, by call id."""

    def __init__(self) -> None:
        self._ids = count(1)
        self._waiting: dict[int, Waiting] = {}

    @contextmanager
    def waiting(self) -> Iterator[Waiting]:
        """Open a place; it is closed at the end of the block."""
        place = Waiting(next(self._ids))
        self._waiting[place.call_id] = place
        try:
            yield place
        finally:
            del self._waiting[place.call_id]
            if not place.ended.cancel() and not place.ended.cancelled():
                place.ended.exception()  # it is known now, whether or not the request heard of it

    def answered(
        self, call_id: int, outcomes: Mapping[TopicIdPartition, PersisterError | None], *, last: bool = True
    ) -> None:
        """A round of the call was answered and noted; `last`: there is no other round."""
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
        """The call failed as a whole, unless it has ended."""
        if (place := self._waiting.get(call_id)) is not None and not place.ended.done():
            place.ended.set_exception(error)
