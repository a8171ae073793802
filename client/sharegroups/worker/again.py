"""Handles records delivered again while this worker still has their job, or after it succeeded (CL-126a, CL-126b).

This happens when the lock was lost, after a server's restart or a suspension of this process. The handler may still
run, or has ended; it is not started a second time.
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

#: The most successful jobs remembered until the cluster confirms them; the oldest are forgotten first.
ENDED_MAX: Final = 10_000
ENDED_BEFORE: Final = "its job ended well here before, and the cluster did not take that; it is not done a second time"


class Jobs:
    """The jobs that wait, run, or have ended and are not acknowledged yet, by the place of their record."""

    def __init__(self) -> None:
        self._by_place: dict[_Place, Job] = {}
        #: The identities of records whose jobs succeeded and whose acknowledgement is not confirmed yet.
        self._ended: OrderedDict[_Place, int] = OrderedDict()

    def add(self, job: Job) -> None:
        """Add a job that this worker will run."""
        self._by_place[_place(job.message)] = job

    def remove(self, job: Job) -> None:
        """Remove a job that is acknowledged, or whose record goes back to the group."""
        place = _place(job.message)
        if self._by_place.get(place) is job:
            del self._by_place[place]

    def take_over(self, message: Message, kept: Kept) -> bool:
        """Return whether the worker already has the record's job. If so, this delivery replaces the previous one."""
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
        """Note that the record's job succeeded and that its acknowledgement is about to be sent."""
        place = _place(message)
        self._ended[place] = _identity(message)
        self._ended.move_to_end(place)
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)

    def confirmed(self, partition: TopicIdPartition, offsets: Iterable[int]) -> None:
        """Forget records whose acknowledgement the cluster confirmed: if one comes again, a user asked for that."""
        for offset in offsets:
            self._ended.pop((partition.topic_id, partition.partition, offset), None)

    def ended_well(self, message: Message) -> bool:
        """Return whether the record's job succeeded here, but its acknowledgement was refused or lost."""
        return bool(self._ended) and self._ended.get(_place(message)) == _identity(message)


def _place(message: Message) -> _Place:
    return message.topic_id(), message.partition(), message.offset()


def _same(one: Message, other: Message) -> bool:
    """Return whether both are the same record: a store that lost its latest records may reuse their offsets."""
    return one.timestamp() == other.timestamp() and one.key() == other.key() and one.value() == other.value()


def _identity(message: Message) -> int:
    """Return a hash of the fields that `_same` compares."""
    return hash((message.timestamp(), message.key(), message.value()))
