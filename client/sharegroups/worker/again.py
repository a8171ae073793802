"""Records that are delivered again while this worker still has their job, or after it ended well (CL-126a, CL-126b).

That happens after a server's restart, or a suspension of this process: the lock was lost, the handler runs on or has
ended, and no second one is begun.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from sharegroups.worker.job import Job

if TYPE_CHECKING:
    from sharegroups.aio.keeping import Kept
    from sharegroups.messages import Message, TopicIdPartition

log = logging.getLogger("sharegroups.worker")

_Place = tuple[bytes, int, int]

#: So many jobs that ended well are remembered at most until the cluster has confirmed it; the oldest are forgotten.
ENDED_MAX: Final = 10_000
ENDED_BEFORE: Final = "its job ended well here before, and the cluster did not take that; it is not done a second time"


class Jobs:
    """The jobs whose handlers wait, run, or have ended without being acknowledged yet, by the place of their record."""

    def __init__(self) -> None:
        self._by_place: dict[_Place, Job] = {}
        #: Of jobs that ended well and whose acknowledgement is not confirmed: which record that was.
        self._ended: OrderedDict[_Place, int] = OrderedDict()

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

    def remember(self, message: Message) -> None:
        """The record's job has ended well; its acknowledgement is about to be sent."""
        place = _place(message)
        self._ended[place] = _identity(message)
        self._ended.move_to_end(place)
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)

    def confirmed(self, partition: TopicIdPartition, offsets: Iterable[int]) -> None:
        """The cluster has taken these acknowledgements: if a record comes once more, that is somebody's wish."""
        for offset in offsets:
            self._ended.pop((partition.topic_id, partition.partition, offset), None)

    def ended_well(self, message: Message) -> bool:
        """Whether the record's job has ended well here, and the acknowledgement of that was refused or lost."""
        return bool(self._ended) and self._ended.get(_place(message)) == _identity(message)


def _place(message: Message) -> _Place:
    return message.topic_id(), message.partition(), message.offset()


def _same(one: Message, other: Message) -> bool:
    """Whether both are the same record: a store that lost its end may give its offset to another one."""
    return one.timestamp() == other.timestamp() and one.key() == other.key() and one.value() == other.value()


def _identity(message: Message) -> int:
    """What `_same` compares, in a few bytes."""
    return hash((message.timestamp(), message.key(), message.value()))
