"""The records that a producer has accepted and not yet delivered: per partition, in order, with a limit in bytes.

Rules P-1 (send everything that has accumulated), CM-42 and CM-43 (sequences per partition). Each partition has one
*group* in flight, up to five batches, which the sender retries with the same sequences until the leader answers. While
full batches wait, a second group may follow the first one to the same leader (CL-130).

Sequences belong to a topic id. When a topic is re-created with the same name, its sequences start at 0, and unconfirmed
batches are not sent to it (see `unconfirmed_batches`). Records are opaque; times, identities and topic ids are passed
in. Not thread-safe: the host holds a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final, Generic, NamedTuple

from kip932.ids import TopicPartition
from sharegroups.producing.core.produce_lane import (
    BATCHES_IN_FLIGHT,
    NO_IDENTITY,
    NO_ROUTE,
    Batch,
    Group,
    Lane,
    Outcome,
    ProducerIdentity,
    RecordT,
    WatcherT,
    Way,
)
from sharegroups.producing.core.unconfirmed_batches import Action, Meaning, next_action

#: The maximum number of batches in a group if a second group may follow it; more are allowed while their total size is
#: less than _FIRST_TIMES × `follow_bytes`.
_BATCHES_OF_FIRST: Final = 3
_FIRST_TIMES: Final = 2


class Appended(NamedTuple):
    """The result of accepting a record."""

    #: True if the caller must wake the sender: the partition had nothing waiting and nothing in flight, or a second
    #: group may follow now.
    wakes: bool
    #: True if the record started a new batch. Later records without a key then go to the next partition.
    began_batch: bool


class SecondRequest(NamedTuple):
    """A request that is sent while another one, sent at `began_ms`, is in flight to the same leader. It may take full
    batches; from partitions with nothing in flight, it may also take batches that were waiting at `began_ms`
    (CL-130)."""

    began_ms: int


class ProduceBuffer(Generic[RecordT, WatcherT]):
    """All partitions of one producer. Sizes are in bytes, as counted by the caller.

    Only `extend` runs for every record, so it creates no objects and takes no time argument. Everything else runs once
    per batch.
    """

    def __init__(self, memory_bytes: int, batch_bytes: int, batch_records: int) -> None:
        self._memory_bytes = memory_bytes
        self._batch_bytes = batch_bytes
        self._batch_records = batch_records
        #: By (topic, partition).
        self._lanes: dict[tuple[str, int], Lane[RecordT, WatcherT]] = {}
        #: The partitions whose first batches are unconfirmed, or were recently.
        self._unconfirmed: dict[tuple[str, int], Lane[RecordT, WatcherT]] = {}
        self.used_bytes = 0
        self.records = 0
        #: A second request takes a partition's full batches only if they have at least this many bytes; None: no second
        #: request is sent (CL-130).
        self.follow_bytes: int | None = None

    def has_room(self, size_bytes: int) -> bool:
        """Return whether a record of this size fits now. An empty buffer accepts a record of any size."""
        return self.used_bytes == 0 or self.used_bytes + size_bytes <= self._memory_bytes

    def extend(
        self, partition: tuple[str, int], record: RecordT, size_bytes: int, watcher: WatcherT | None = None
    ) -> bool:
        """Accept a record into its partition's open batch. Returns False if no batch is open, or if the batch or the
        buffer is full.

        If it returns False, wait for space if necessary, then call `append`.
        """
        lane = self._lanes.get(partition)
        if lane is None or not lane.waiting:
            return False
        batch = lane.waiting[-1]
        records = batch.records
        filled = batch.size_bytes + size_bytes
        used = self.used_bytes + size_bytes
        if (
            filled > self._batch_bytes
            or used > self._memory_bytes
            or len(records) >= self._batch_records
            or batch.identity is not None
        ):
            return False
        if watcher is not None:
            batch.watchers.append((len(records), watcher))
        records.append(record)
        batch.size_bytes = filled
        self.used_bytes = used
        self.records += 1
        return True

    def append(
        self, partition: tuple[str, int], record: RecordT, size_bytes: int, now_ms: int, watcher: WatcherT | None = None
    ) -> Appended:
        """Accept a record at the end of its partition, even if the buffer is full. `now_ms` is the creation time of a
        batch that it starts."""
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = Lane(TopicPartition(*partition))
        if lane.waiting and self.extend(partition, record, size_bytes, watcher):
            return Appended(wakes=False, began_batch=False)
        watchers = [] if watcher is None else [(0, watcher)]
        lane.order += 1
        lane.waiting.append(Batch([record], watchers, size_bytes=size_bytes, created_ms=now_ms, order=lane.order))
        self.used_bytes += size_bytes
        self.records += 1
        idle = len(lane.waiting) == 1 and not lane.in_flight
        # The previous batch has just become full, so it may follow the group in flight.
        return Appended(idle or lane.has_full(self.follow_bytes), began_batch=True)

    def ready(self, now_ms: int) -> list[TopicPartition]:
        """Return the partitions that have something to send, nothing in flight, and no back-off."""
        return [
            lane.partition
            for lane in self._lanes.values()
            if lane.waiting and not lane.in_flight and lane.not_before_ms <= now_ms
        ]

    def following(self, now_ms: int) -> list[TopicPartition]:
        """Return the partitions from which a second request could take batches (CL-130); see `SecondRequest`."""
        if self.follow_bytes is None:
            return []
        return [
            lane.partition
            for lane in self._lanes.values()
            if lane.waiting
            and (
                lane.proven is not None and lane.has_full(self.follow_bytes)
                if lane.in_flight
                else lane.not_before_ms <= now_ms
            )
        ]

    def next_deadline(self) -> int | None:
        """Return the earliest time at which a partition with something to send and nothing in flight may send; None if
        there is no such partition."""
        times = [lane.not_before_ms for lane in self._lanes.values() if lane.waiting and not lane.in_flight]
        return min(times, default=None)

    def take(
        self,
        partitions: Iterable[TopicPartition],
        identity: ProducerIdentity | None,
        budget_bytes: int,
        meanings: Mapping[str, Meaning],
        *,
        way: Way = NO_ROUTE,
        pipelined: SecondRequest | None = None,
    ) -> list[Group[RecordT, WatcherT]]:
        """Take the groups of one request, give them sequences, and mark them as in flight.

        They contain about `budget_bytes` at most, but at least one batch of each partition that is reached before the
        budget is used up. `meanings`: the current topic ids by name. `way`: how the leader is reached. `pipelined`: set
        for a request that is sent while another one is in flight. Partitions whose first batches are unconfirmed under
        another topic id are left out. Report each group with `settle` once, then each group that `settle` returns with
        `delivered`, `failed` or `retry`.
        """
        groups: list[Group[RecordT, WatcherT]] = []
        for partition in partitions:
            if budget_bytes <= 0:
                break
            lane = self._lanes[partition]
            meaning = meanings[partition.topic]
            full_only = pipelined is not None and (
                bool(lane.in_flight) or not lane.waiting or lane.waiting[0].created_ms >= pipelined.began_ms
            )
            if lane.in_flight and not (full_only and lane.may_follow(identity, meaning.topic_id, way)):
                continue
            if not (lane.has_full(self.follow_bytes) if full_only else lane.waiting):
                continue
            if next_action(lane.waiting[0].unconfirmed, meaning) is not Action.SEND:
                continue
            lane.go_to(meaning.topic_id)
            if identity is not None:  # a refused batch may have been in flight when the old identity was dropped
                lane.forget_numbers(but_of=identity)
            batches = self._head(lane, identity, budget_bytes, full_only=full_only)
            if not batches:
                continue
            budget_bytes -= sum(batch.size_bytes for batch in batches)
            first_try = all(batch.identity is None for batch in batches)
            for batch in batches:
                lane.number(batch, identity)
            groups.append(Group(partition, batches, way, first_try, lane.follows_gap(batches[0])))
            lane.in_flight.append(groups[-1])
        return groups

    def _head(
        self, lane: Lane[RecordT, WatcherT], identity: ProducerIdentity | None, budget_bytes: int, *, full_only: bool
    ) -> list[Batch[RecordT, WatcherT]]:
        """Remove and return the waiting batches that form one group, all with the same identity. `full_only`: leave
        the last batch, which still takes records.

        From the oldest batch that may have to be sent again to the newest, there are at most five (CM-43), including
        those delivered in between.
        """
        leaves_room = self.follow_bytes is not None and lane.proven is not None
        oldest = (lane.in_flight[0].batches if lane.in_flight else lane.waiting)[0].order
        owner = lane.waiting[0].identity or identity or NO_IDENTITY
        found: list[Batch[RecordT, WatcherT]] = []
        size = 0
        while len(lane.waiting) > full_only and (not found or size < budget_bytes):
            head = lane.waiting[0]
            if head.order >= oldest + BATCHES_IN_FLIGHT:
                break
            if (head.identity or identity or NO_IDENTITY) != owner:
                break  # later batches belong to a newer identity
            if found and (head.alone or found[0].alone):
                break
            if leaves_room and len(found) >= _BATCHES_OF_FIRST and size >= _FIRST_TIMES * (self.follow_bytes or 0):
                break
            found.append(lane.waiting.popleft())
            size += head.size_bytes
        return found

    def in_flight(self) -> list[Group[RecordT, WatcherT]]:
        """Return the groups that `take` has returned and that are not yet finished or put back."""
        return [group for lane in self._lanes.values() for group in lane.in_flight]

    def settle(self, group: Group[RecordT, WatcherT], outcome: Outcome) -> list[Group[RecordT, WatcherT]]:
        """Note a group's outcome. Returns the groups of its partition that can be handled now, in order.

        A second group waits for the first one's outcome. A failed first group waits for the second one's outcome, since
        the handling of the two depends on both (CL-133).
        """
        return self._lanes[group.partition].settle(group, outcome)

    def delivered(self, group: Group[RecordT, WatcherT]) -> None:
        """Free the memory of a group whose batches the leader has accepted."""
        identity = group.batches[0].identity
        lane = self._end(group)
        lane.proven = None if identity is None else (identity, group.way)
        lane.gap = None

    def failed(self, group: Group[RecordT, WatcherT]) -> None:
        """Free the memory of a group that the sender gives up on."""
        lane = self._end(group)
        lane.proven = None
        lane.given_up(group.batches)

    def _end(self, group: Group[RecordT, WatcherT]) -> Lane[RecordT, WatcherT]:
        lane = self._lanes[group.partition]
        lane.in_flight.remove(group)
        lane.not_before_ms = 0
        self._free(group.batches)
        return lane

    def retry(self, group: Group[RecordT, WatcherT], not_before_ms: int, unconfirmed: Meaning | None) -> None:
        """Put the group back at the front with its sequences unchanged. It may be sent again from `not_before_ms` on.

        `unconfirmed`: the topic's id and version at this attempt; None if the attempt certainly appended nothing. An
        unconfirmed batch stays unconfirmed, and takes no more records.
        """
        lane = self._lanes[group.partition]
        if unconfirmed is not None:
            self._unconfirmed[group.partition] = lane
            for batch in group.batches:
                batch.unconfirmed = batch.unconfirmed or unconfirmed
                batch.identity = batch.identity or NO_IDENTITY
        lane.in_flight.remove(group)
        lane.proven = None
        lane.not_before_ms = max(lane.not_before_ms, not_before_ms)
        lane.put_back(group.batches)

    def separate(self, group: Group[RecordT, WatcherT]) -> None:
        """Put the batches of a group back, sequences unchanged, to be sent one at a time."""
        for batch in group.batches:
            batch.alone = True
        self.retry(group, 0, None)

    def skip_gap(self, group: Group[RecordT, WatcherT]) -> bool:
        """Put back a group before which the leader found a sequence gap, to be sent as one that follows batches given
        up. Returns False if the gap has another cause, or if the group was sent so already (CM-43 (k))."""
        if group.after_given_up or not self._lanes[group.partition].follows_gap(group.batches[0]):
            return False
        self.retry(group, 0, None)
        return True

    def hurry(self) -> None:
        """End all back-offs, because the cluster can be reached again: waiting groups may be sent now."""
        for lane in self._lanes.values():
            lane.not_before_ms = 0

    def expired(self, older_than_ms: int) -> list[Group[RecordT, WatcherT]]:
        """Remove and return the waiting batches created before `older_than_ms` (delivery.timeout.ms).

        They are finished: do not report them with `delivered` or `retry`.
        """
        groups: list[Group[RecordT, WatcherT]] = []
        for lane in self._lanes.values():
            old: list[Batch[RecordT, WatcherT]] = []
            while not lane.in_flight and lane.waiting and lane.waiting[0].created_ms < older_than_ms:
                old.append(lane.waiting.popleft())
            if old:
                lane.given_up(old)
                groups.append(Group(lane.partition, old))
                self._free(old)
        return groups

    def take_topics(self, topics: Container[str]) -> list[Group[RecordT, WatcherT]]:
        """Remove and return the waiting batches of these topics, except behind batches in flight. They are finished, as
        with `expired`."""
        groups: list[Group[RecordT, WatcherT]] = []
        for lane in self._lanes.values():
            if lane.partition.topic in topics and lane.waiting and not lane.in_flight:
                groups.append(Group(lane.partition, list(lane.waiting)))
                lane.waiting.clear()
                lane.not_before_ms = 0
                lane.given_up(groups[-1].batches)
                self._free(groups[-1].batches)
        return groups

    def give_up(self) -> list[Group[RecordT, WatcherT]]:
        """Remove and return everything that is not in flight. It is finished, as with `expired`."""
        groups: list[Group[RecordT, WatcherT]] = []
        for lane in self._lanes.values():
            if lane.waiting:
                groups.append(Group(lane.partition, list(lane.waiting)))
                lane.waiting.clear()
                self._free(groups[-1].batches)
        return groups

    def take_back(
        self, topic: str, watcher: WatcherT, size_of: Callable[[RecordT], int], *, renumbers: bool
    ) -> ProducerIdentity | bool:
        """Remove a watcher's record without calling the watcher. Returns False if it is in flight, or may still be
        delivered.

        A record that no request has carried is removed from its batch; returns True. A record that a request has
        carried but that was certainly not stored is removed if it is alone in its batch and the caller can continue
        with another identity (`renumbers`). In this case the method returns the batch's identity, whose sequences now
        have a gap.
        """
        for lane in (lane for key, lane in self._lanes.items() if key[0] == topic):
            for batch in lane.waiting:
                at = next((at for at, (_, each) in enumerate(batch.watchers) if each is watcher), None)
                if at is None:
                    continue
                if batch.unconfirmed is not None:
                    return False
                if batch.identity is not None and not (renumbers and len(batch.records) == 1):
                    return False
                if len(batch.records) == 1:
                    lane.waiting.remove(batch)
                    lane.given_up([batch])
                    self._free([batch])
                    return True if batch.identity is None else batch.identity
                place = batch.watchers.pop(at)[0]
                size = size_of(batch.records.pop(place))
                batch.watchers[at:] = [(each - 1, other) for each, other in batch.watchers[at:]]
                batch.size_bytes -= size
                self.used_bytes -= size
                self.records -= 1
                return True
        return False

    def waiting(self, topic: str, watcher: WatcherT) -> tuple[TopicPartition, Batch[RecordT, WatcherT]] | None:
        """Return the batch, and its partition, in which a watcher's record waits to be sent or resent; None if it does
        not wait."""
        for key, lane in self._lanes.items():
            for batch in lane.waiting if key[0] == topic else ():
                if any(each is watcher for _, each in batch.watchers):
                    return TopicPartition(*key), batch
        return None

    def take_outdated(self, meaning_of: Callable[[str], Meaning | None]) -> tuple[list[Group[RecordT, WatcherT]], bool]:
        """Remove and return the batches that are unconfirmed for a topic id that no longer exists.

        They are finished, as with `expired`. The second value is whether other unconfirmed batches wait for newer
        metadata. `meaning_of` returns a topic's current id and version; None while they are unknown.
        """
        # Unconfirmed batches come first in their partition, and all were sent with the same topic id.
        groups: list[Group[RecordT, WatcherT]] = []
        waits = False
        for key, lane in list(self._unconfirmed.items()):
            if lane.in_flight:
                continue
            if not lane.waiting or lane.waiting[0].unconfirmed is None:
                del self._unconfirmed[key]
                continue
            meaning = meaning_of(lane.partition.topic)
            verdict = Action.SEND if meaning is None else next_action(lane.waiting[0].unconfirmed, meaning)
            waits = waits or verdict is Action.WAIT
            if verdict is Action.FAIL:
                gone = lane.take_unconfirmed()
                lane.not_before_ms = 0
                groups.append(Group(lane.partition, gone))
                self._free(gone)
        return groups, waits

    def forget_sequences(self) -> None:
        """Reset the sequences for a new identity; only batches in flight and unconfirmed ones keep their numbers."""
        for lane in self._lanes.values():
            lane.next_sequence.clear()
            lane.forget_numbers()

    def _free(self, batches: Iterable[Batch[RecordT, WatcherT]]) -> None:
        for batch in batches:
            self.used_bytes -= batch.size_bytes
            self.records -= len(batch.records)
