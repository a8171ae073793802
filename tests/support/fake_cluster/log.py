"""One partition of the fake cluster: its batches, its producers' state, and each group's state of each offset."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from kip932.api.v1.record_batch_pb2 import FetchedBatch
from kip932.failures import REASON_BYTES_MAX
from kip932.ids import (
    ACK_ACCEPT,
    ACK_GAP,
    ACK_REJECT,
    ACK_RELEASE,
    ACK_RENEW,
    ACQUIRE_RECORD_LIMIT,
    BATCH_FORMAT_KAFKA,
    OFFSET_LATEST,
    POLICY_DELAY,
)
from kip932.kafka_records import is_kafka_batch
from kip932.record_batches import compression_of, open_batch

OFFSET_OUT_OF_RANGE: Final = 1
INVALID_REQUEST: Final = 42
UNSUPPORTED_COMPRESSION_TYPE: Final = 76
OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45
INVALID_PRODUCER_EPOCH: Final = 47
INVALID_RECORD: Final = 87
INVALID_RECORD_STATE: Final = 121

#: The number of deliveries after which a record is archived: the default of group.share.delivery.count.limit.
DELIVERIES_MAX: Final = 5
#: The acknowledge types that may take a delivery back.
TAKES_BACK: tuple[int, ...] = (ACK_RELEASE, ACK_RENEW)
TAKEN_BACK_MAX: Final = 10
#: The longest delay of a release, ms (PL-931): the default of sharegroups.retry.delay.max.ms. There is no back-off.
DELAY_MAX_MS: Final = 86_400_000
#: How many of a producer's last batches are recognised as duplicates.
_BATCHES_KEPT: Final = 5
_FINISHED: Final = ("acknowledged", "archived")
_GIVEN_UP: Final = (ACK_RELEASE, ACK_REJECT)
#: An offset's state, holder and delivery count.
State = tuple[str, str, int]
_NEW: Final[State] = ("available", "", 0)


@dataclass
class _Producer:
    """A producer's epoch, its next sequence number, and its last batches: first sequence number, count, offset."""

    epoch: int
    next_sequence: int = 0
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_BATCHES_KEPT))


@dataclass
class Log:
    """A partition's log. Groups start at the first offset, which is 0 until records are deleted. An offset without a
    state is available."""

    batches: list[FetchedBatch] = field(default_factory=list)
    end: int = 0
    #: Records before this offset are deleted.
    first: int = 0
    #: The timestamp that the leader assigns to appends, in ms since 1970.
    now_ms: int = 1_000
    states: dict[str, dict[int, State]] = field(default_factory=lambda: defaultdict(dict))
    #: By group and offset: the delivery count it was last reduced to, and how many times in a row (PL-941).
    taken_back: dict[str, dict[int, tuple[int, int]]] = field(default_factory=lambda: defaultdict(dict))
    #: By group and offset: why a member gave the record up, with the delivery count at that moment (PL-942).
    reasons: dict[str, dict[int, tuple[int, str]]] = field(default_factory=lambda: defaultdict(dict))
    _producers: dict[int, _Producer] = field(default_factory=dict)
    #: By base offset: when the batch was appended.
    _appended: dict[int, int] = field(default_factory=dict)

    # Produce.

    def append(self, data: bytes, count: int, is_control: bool = False) -> int:
        """Store a batch; return its base offset."""
        base = self.end
        self.batches.append(FetchedBatch(base_offset=base, count=count, batch=data, is_control=is_control))
        self._appended[base] = self.now_ms
        self.end += count
        return base

    def produce(self, batch: Any) -> tuple[int, int]:
        """Store a batch of a Produce unless it is stored already; return the error code, and the base offset or -1."""
        if batch.producer_id < 0:
            return 0, self.append(batch.record_batch, batch.record_count)
        known = self._producers.setdefault(batch.producer_id, _Producer(batch.producer_epoch))
        if batch.producer_epoch < known.epoch:
            return INVALID_PRODUCER_EPOCH, -1
        if batch.producer_epoch > known.epoch and batch.base_sequence == 0:
            known = self._producers[batch.producer_id] = _Producer(batch.producer_epoch)
        for sequence, count, base in known.batches:
            if (sequence, count) == (batch.base_sequence, batch.record_count):
                return 0, base
        ahead = batch.base_sequence - known.next_sequence
        if batch.producer_epoch != known.epoch or (ahead > 0 and not batch.after_given_up) or ahead < 0:
            return OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        known.next_sequence = batch.base_sequence
        base = self.append(batch.record_batch, batch.record_count)
        known.batches.append((batch.base_sequence, batch.record_count, base))
        known.next_sequence += batch.record_count
        return 0, base

    def read(self, offset: int, max_bytes: int) -> list[FetchedBatch]:
        """Return batches from the one that contains this offset: at least one, and more while `max_bytes` allows."""
        found, size = list[FetchedBatch](), 0
        for batch in self.batches:
            if batch.base_offset + batch.count <= offset:
                continue
            size += len(batch.batch)
            if found and size > max_bytes:
                break
            found.append(FetchedBatch(append_time_ms=self._appended[batch.base_offset]))
            found[-1].MergeFrom(batch)
        return found

    def measured(self) -> tuple[int, int, int | None]:
        """Return the bytes and records that are left, and when the oldest batch was appended."""
        left = [batch for batch in self.batches if batch.base_offset + batch.count > self.first]
        records = sum(batch.base_offset + batch.count - max(batch.base_offset, self.first) for batch in left)
        oldest_ms = self._appended[left[0].base_offset] if left else None
        return sum(len(batch.batch) for batch in left), records, oldest_ms

    def delete_before(self, offset: int) -> tuple[int, int]:
        """Delete the records before an offset, -1 for all; return the error code, and the first remaining offset or
        -1."""
        if not -1 <= offset <= self.end:
            return OFFSET_OUT_OF_RANGE, -1
        self.first = max(self.first, self.end if offset == -1 else offset)
        return 0, self.first

    def offset_for(self, timestamp: int) -> int:
        """Return the log's end for -1 and its first offset for -2. For a timestamp, return the offset of the first
        record at or after it, or -1 if there is none."""
        if timestamp < 0:
            return self.end if timestamp == OFFSET_LATEST else self.first
        for batch in self.batches:
            base_ms, records = open_batch(batch.batch, batch.count)
            for offset, record in enumerate(records, batch.base_offset):
                if offset >= self.first and base_ms + record.timestamp_delta_ms >= timestamp:
                    return offset
        return -1

    # A group's view.

    def start(self, group: str) -> int:
        """Return the first offset that the group has not finished."""
        states = self.states[group]
        offsets = range(self.first, self.end)
        return next((offset for offset in offsets if states.get(offset, _NEW)[0] not in _FINISHED), self.end)

    def lag(self, group: str) -> int:
        """Count the offsets that the group has not finished."""
        states = self.states[group]
        return sum(states.get(offset, _NEW)[0] not in _FINISHED for offset in range(self.first, self.end))

    def acquire(self, request: Any, records_max: int) -> tuple[list[FetchedBatch], list[tuple[int, int, int]]]:
        """Acquire records for the member of a ShareFetch; return batches, and acquired ranges with delivery counts."""
        states = self.states[request.group_id]
        cut = request.share_acquire_mode == ACQUIRE_RECORD_LIMIT
        batches, ranges, taken = [], list[tuple[int, int, int]](), 0
        unreadable = self.unreadable(request)
        for batch in self.batches:
            before = taken
            if taken >= records_max or batch is unreadable:
                break
            for offset in range(batch.base_offset, batch.base_offset + batch.count):
                state, _, count = states.get(offset, _NEW)
                if offset < self.first or state != "available" or (cut and taken >= records_max):
                    continue
                states[offset] = ("acquired", request.member_id, count + 1)
                taken += 1
                if ranges and ranges[-1][1:] == (offset - 1, count + 1):
                    ranges[-1] = (ranges[-1][0], offset, count + 1)
                else:
                    ranges.append((offset, offset, count + 1))
            if taken > before:
                batches.append(batch)
        return batches, ranges

    def unreadable(self, request: Any) -> FetchedBatch | None:
        """Return the first batch with an available record that the member of a ShareFetch cannot decompress (PL-257),
        or whose format it does not read (CM-222)."""
        states, kinds = self.states[request.group_id], {0, 1, *request.compression_types}
        for batch in self.batches:
            offsets = range(max(self.first, batch.base_offset), batch.base_offset + batch.count)
            is_read = compression_of(batch.batch) in kinds and reads_format(request, batch)
            if not is_read and any(states.get(offset, _NEW)[0] == "available" for offset in offsets):
                return batch
        return None

    def acknowledge(self, request: Any, batches: Any) -> tuple[int, list[int], dict[int, int]]:
        """Apply one partition's acknowledgements, all or none; return the error code, the offsets whose lock is
        renewed, and the offsets released with a delay, each with its delay (ms)."""
        if _malformed(batches, request.is_renew_ack):
            return INVALID_REQUEST, [], {}
        states, start = self.states[request.group_id], self.start(request.group_id)
        given = [(offset, kind) for offset, kind in _each(batches) if offset >= start]
        for offset, _ in given:
            if offset > max(states, default=-1):
                return INVALID_REQUEST, [], {}
            if states.get(offset, _NEW)[:2] != ("acquired", request.member_id):
                return INVALID_RECORD_STATE, [], {}
        undelivered = {offset for offset, is_so in _undelivered(batches) if is_so}
        said = _reasons(batches)
        for offset, kind in given:
            state, holder, count = states[offset]
            if kind in _GIVEN_UP and offset in said:
                kept = self.reasons[request.group_id]
                kept[offset] = max(kept.get(offset, (0, "")), (count, said[offset]))
            if kind == ACK_RELEASE:
                if offset in undelivered and self.take_back(request.group_id, offset, count - 1):
                    states[offset] = ("available", "", count - 1)
                else:
                    self.give_back(request.group_id, offset)
                continue
            if kind == ACK_RENEW and offset in undelivered and count > 1:
                count -= self.take_back(request.group_id, offset, count - 1)
            states[offset] = {
                ACK_GAP: ("archived", "", count),
                ACK_ACCEPT: ("acknowledged", "", count),
                ACK_REJECT: ("archived", "", count),
                ACK_RENEW: (state, holder, count),
            }[kind]
        delays = {offset: delay for offset, delay in _delays(batches) if delay > 0 and offset in dict(given)}
        for offset in delays:
            if states[offset][0] == "available":
                states[offset] = ("delayed", "", states[offset][2])
        return 0, [offset for offset, kind in given if kind == ACK_RENEW], delays

    def take_back(self, group: str, offset: int, count: int) -> bool:
        """Reduce a delivery count by one if that is allowed again; return whether it was (PL-941)."""
        former, times = self.taken_back[group].get(offset, (count, 0))
        if former == count + 1:
            return False  # by a renewal of this delivery
        times = times + 1 if former == count else 1
        if times > TAKEN_BACK_MAX:
            return False
        self.taken_back[group][offset] = count, times
        return True

    def give_back(self, group: str, offset: int) -> None:
        """Make an acquired record available again, or archive it if this was its last delivery."""
        _, _, count = self.states[group][offset]
        self.states[group][offset] = ("archived" if count >= DELIVERIES_MAX else "available", "", count)

    def held(self, group: str, member: str) -> list[int]:
        """Return the offsets that a member has acquired."""
        return [offset for offset, state in self.states[group].items() if state[:2] == ("acquired", member)]


def reads_format(request: Any, batch: FetchedBatch) -> bool:
    """Return whether the caller of a fetch reads the format of a batch (CM-222)."""
    return BATCH_FORMAT_KAFKA in request.batch_formats or not is_kafka_batch(batch.batch)


def _malformed(batches: Any, is_renew_ack: bool) -> bool:  # noqa: PLR0911 - one for each rule
    previous = -1
    for batch in batches:
        types = list(batch.acknowledge_types)
        size = batch.last_offset - batch.first_offset + 1
        if batch.first_offset <= previous or size < 1 or len(types) not in (1, size):
            return True
        if max(types) > ACK_RENEW or min(types) < ACK_GAP or (ACK_RENEW in types and not is_renew_ack):
            return True
        previous = batch.last_offset
        # A reason is of records that are given up, and has a bounded size (PL-942).
        if batch.reason and (len(batch.reason.encode()) > REASON_BYTES_MAX or not set(_GIVEN_UP) & set(types)):
            return True
        delays = list(batch.release_delays_ms)
        if len(delays) not in (0, 1, size) or any(not POLICY_DELAY <= delay <= DELAY_MAX_MS for delay in delays):
            return True
    kinds = dict(_each(batches))
    if any(len(batch.undelivered) not in (0, 1, batch.last_offset - batch.first_offset + 1) for batch in batches):
        return True
    if any(said and kinds[offset] not in TAKES_BACK for offset, said in _undelivered(batches)):
        return True
    return any(delay != POLICY_DELAY and kinds[offset] != ACK_RELEASE for offset, delay in _delays(batches))


def _each(batches: Any) -> Iterator[tuple[int, int]]:
    """Yield offsets with their acknowledge types."""
    for batch in batches:
        types = batch.acknowledge_types
        for index, offset in enumerate(range(batch.first_offset, batch.last_offset + 1)):
            yield offset, types[index if len(types) > 1 else 0]


def _delays(batches: Any) -> Iterator[tuple[int, int]]:
    """Yield offsets with the delays given for them."""
    for batch in batches:
        delays = batch.release_delays_ms
        for index, offset in enumerate(range(batch.first_offset, batch.last_offset + 1) if delays else ()):
            yield offset, delays[index if len(delays) > 1 else 0]


def _undelivered(batches: Any) -> Iterator[tuple[int, bool]]:
    """Yield offsets with whether they were undelivered, if that is given."""
    for batch in batches:
        said = batch.undelivered
        for index, offset in enumerate(range(batch.first_offset, batch.last_offset + 1) if said else ()):
            yield offset, said[index if len(said) > 1 else 0]


def _reasons(batches: Any) -> dict[int, str]:
    """Return the reasons by offset; those of records that are neither released nor rejected mean nothing."""
    return {
        offset: batch.reason
        for batch in batches
        if batch.reason
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }
