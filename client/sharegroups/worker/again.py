"""Records that are delivered again while this worker still has their job: no second handler is begun (CL-126a).

That happens after a server's restart, or a suspension of this process: the lock was lost, the handler runs on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sharegroups.worker.job import Job

if TYPE_CHECKING:
    from sharegroups.aio.keeping import Kept
    from sharegroups.messages import Message

log = logging.getLogger("sharegroups.worker")

_Place = tuple[bytes, int, int]


class Jobs:
    """The jobs whose handlers wait, run, or have ended without being acknowledged yet, by the place of their record."""

    def __init__(self) -> None:
        self._by_place: dict[_Place, Job] = {}

    def add(self, job: Job) -> None:
        """A job is handed to a pool."""
        self._by_place[_place(job.message)] = job

    def remove(self, job: Job) -> None:
        """It has been acknowledged, or goes back to the group."""
        place = _place(job.message)
        if self._by_place.get(place) is job:
            del self._by_place[place]

    def take_over(self, message: Message, kept: Kept) -> bool:
        """Whether the record's job is in hand already. If so, this delivery takes the place of the one before."""
        job = self._by_place.get(_place(message))
        if job is None or not _same(job.message, message):
            return False
        job.kept.forget(job.message)
        log.warning(
            "%s is delivered again, as number %d, while %s is not done with it: it is not begun a second time, and its "
            "end counts for this delivery",
            job.place, message.delivery_count(), job.spec.name,
        )  # fmt: skip
        job.deliver(message, kept)
        return True


def _place(message: Message) -> _Place:
    return message.topic_id(), message.partition(), message.offset()


def _same(one: Message, other: Message) -> bool:
    """Whether both are the same record: a store that lost its end may give its offset to another one."""
    return one.timestamp() == other.timestamp() and one.key() == other.key() and one.value() == other.value()
