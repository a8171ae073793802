"""The naive model of a share-partition's leader: the effect of each event on the records, and the effects it must
order.

Each method is one event. It changes the dictionary, and adds to `orders` what the leader must order: replies, at most
one write, dead letters, reports. The rules are those of `docs/spec/partition-leader.md`; no product code is used.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.model.fetching import Pass, Read
from tests.model.orders import Ack, Asked, Orders, Reported
from tests.model.records import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    CATCH_UP_MS,
    Rank,
    Reason,
    Rules,
)
from tests.model.writing import Writing

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class RefusedError(Exception):
    """The error with which an acknowledgement must be refused."""


class Leader(Writing):
    """One share-partition object."""

    # Every event first expires the locks that are due, and finally moves the start offset and writes (PL-120, PL-303).

    def begin(self, now: int, rules: Rules | None = None) -> Orders:
        self.now, self.orders = now, Orders()
        self.rules = rules or self.rules
        if self.status == "active":
            self.expire()
        return self.orders

    def conclude(self) -> Orders:
        free = self.sent is None and not self.unknown
        if self.status == "active":
            self.records.advance()
            if not free:
                self.unsettled = None
            elif self.queue or self.urgent:
                self.write()
            elif not self.dirty and self.written == self.standing:
                self.unsettled = None
            else:
                self.unsettled = self.now if self.unsettled is None else self.unsettled
                if self.now >= self.unsettled + CATCH_UP_MS:
                    self.write()
        elif self.status == "retiring" and free:
            if self.queue or self.urgent:
                self.records.advance()
                self.write()
            elif not self.records.letters and not self.orders.letters:
                self.finish()
        return self.orders

    def deadlines(self) -> set[int | None]:
        """Return the acceptable times of the next timer. A lock below the start offset may or may not be included."""
        if self.status == "retiring":
            return {self.until}
        if self.status != "active":
            return {None}
        write = None if self.unsettled is None or self.sent or self.unknown else self.unsettled + CATCH_UP_MS
        locks = {
            offset: end
            for offset, record in self.records.all.items()
            if (end := record.until if record.is_delayed else record.lock_end) > self.now
        }
        above = [end for offset, end in locks.items() if offset >= self.records.start]
        return {min([*some, *([write] if write is not None else [])], default=None) for some in (locks.values(), above)}

    # Beginning.

    def loaded(self, start: int, stored: dict[int, Rank], resolved: bool, reasons: dict[int, Reason]) -> None:
        self.records.load(start, stored)
        self.learns(reasons)
        for offset, (_, _, until) in self.on_own_clock(stored).items():
            if until:
                self.records.waits(offset, until, self.now)
        if resolved:  # PL-609
            self.write(first=True)
            return
        self.confirmed = start
        if not self.records.all:
            self.written = (start, 0)
        self.activate()

    # Locks (§3).

    def expire(self) -> None:
        for offset, record in self.records.all.items():
            if record.is_delayed and record.until <= self.now:
                record.until = 0  # PL-932; this is not written (PL-934)
            if record.state != ACQUIRED or record.goal is not None or record.lock_end > self.now:
                continue
            if offset < self.records.start:
                record.becomes(ARCHIVED)
            else:
                record.becomes(self.rules.released(record.count))
                if record.state == ARCHIVING:
                    self.dirty_archiving.add(offset)
                elif record.state == ARCHIVED:
                    self.dirty_archived[offset] = record.count
                if record.state != AVAILABLE:
                    self.given_up[offset] = ""
                    self.unsent.limited += 1
                else:
                    self.back_off(offset)
            self.note([offset], "lock_expiry")
            self.unsent.timed_out += 1
            self.urgent = True

    # Fetching (§2).

    def acquire(self, read: Read, rules: Rules) -> None:
        if self.status != "active":
            self.orders.got = {}
            return
        self.records.join_settled(self.settled_changes)
        work = Pass(self.records, read, rules, self.now)
        self.orders.got = work.run()
        if work.gone:
            self.note(work.gone, "cold")

    def hole(self, first: int, end: int) -> None:
        """CM-47."""
        records = self.records
        if self.status != "active":
            return
        gap = records.open_gap
        gone = records.take_away(first, end - 1)
        if gone:
            self.note(gone, "cold")
        if gap is not None and first <= gap[0] < end:
            records.shrink_gap(end, gap[1])
        records.advance()
        if not records.all and first <= records.next_offset < end:
            records.move_start(end)

    def log_start(self, start: int) -> None:
        """PL-620."""
        records = self.records
        if self.status != "active":
            return
        self.confirmed = max(self.confirmed, start)
        if start <= records.start:
            return
        gap = records.open_gap
        records.take_away(0, start - 1)
        records.move_start(start)
        records.gap = None
        if gap is not None and records.all:
            records.shrink_gap(max(gap[0], start), gap[1])

    # Acknowledging (§4).

    def acknowledge(self, number: int, member: str, acks: Sequence[Ack], rules: Rules) -> None:
        if self.status in ("retiring", "gone"):
            error = "UNKNOWN_TOPIC_OR_PARTITION" if self.status == "retiring" else "NOT_LEADER_OR_FOLLOWER"
            self.orders.replies[number] = (error, False, ())
            return
        asked, counts = Asked(number, member, rules.limit, rules.dlq), [0] * 5
        start = self.records.start
        try:
            for ack in acks:
                self.apply(ack, asked, counts, rules)
        except RefusedError as refused:
            for offset in asked.offsets:
                self.held_again(offset, asked)
            self.orders.replies[number] = (str(refused), False, ())
            return
        asked.types = tuple(counts)
        reported = Reported({"ack"}, counts[ACCEPT], counts[RELEASE], counts[REJECT])
        reported.limited = asked.reported.limited
        asked.reported = reported
        passed = start > self.confirmed and any(  # PL-404
            first < start and last >= self.confirmed for first, last, *_ in acks
        )
        self.wait(asked, passed)

    def apply(self, ack: Ack, asked: Asked, counts: list[int], rules: Rules) -> None:
        first, last, types, delays, undelivered, reason = ack
        records = self.records
        if RENEW in types and not rules.renew:
            raise RefusedError("INVALID_RECORD_STATE")
        below = range(first, min(last, records.start - 1) + 1)
        if any(self.given_up.get(offset, asked.member) != asked.member for offset in below):  # PL-418
            raise RefusedError("INVALID_RECORD_STATE")
        if last < records.start:
            return
        self.locate(first, last)
        lowest = max(first, records.start)
        for piece in records.pieces:
            offsets = list(range(max(lowest, piece[0]), min(last, piece[1]) + 1))
            mine = [records.all[offset] for offset in offsets]
            if any(r.state != ACQUIRED or r.goal is not None or r.holder != asked.member for r in mine):
                raise RefusedError("INVALID_RECORD_STATE")
            for offset in offsets:
                kind = types[0] if len(types) == 1 else types[offset - first]
                counts[kind] += 1
                delay = -1 if not delays else delays[0] if len(delays) == 1 else delays[offset - first]
                if undelivered and (undelivered[0] if len(undelivered) == 1 else undelivered[offset - first]):
                    self.take_back(offset, asked, kind)
                    delay = max(delay, 0)
                self.take(offset, kind, asked, rules, delay)
                if reason and kind in (RELEASE, REJECT):
                    asked.reasons[offset] = (records.all[offset].count, reason)

    def locate(self, first: int, last: int) -> None:
        """PL-405."""
        records = self.records
        found = records.piece_at_or_before(last)
        if found is None or (first >= records.start and records.piece_at_or_before(first) is None):
            raise RefusedError("INVALID_RECORD_STATE")
        if found[1] < first or last > found[1]:
            raise RefusedError("INVALID_REQUEST")

    def take(self, offset: int, kind: int, asked: Asked, rules: Rules, delay: int) -> None:
        """Apply an acknowledgement to one record that the member holds (PL-409)."""
        record = self.records.all[offset]
        if kind == RENEW:
            record.lock_end = self.now + rules.lock_ms
            return
        asked.offsets.add(offset)
        if kind == ACCEPT:
            record.goal = ACKNOWLEDGED
        elif kind == GAP:
            record.goal = ARCHIVED
        elif kind == REJECT:
            record.goal = ARCHIVING if rules.dlq else ARCHIVED
            self.mark(offset, asked, "client reject", "rejected")
        else:
            record.goal = rules.released(record.count)
            asked.reported.limited += record.goal != AVAILABLE
            self.mark(offset, asked, "delivery count exceeded", "delivery_limit")
            if record.goal == AVAILABLE:  # PL-932: the limit comes first
                delay = rules.back_off(record.count, self.chance) if delay == -1 else delay
                record.until = self.now + delay if delay else 0

    def take_back(self, offset: int, asked: Asked, kind: int) -> None:
        """PL-941."""
        record = self.records.all[offset]
        before = record.count - 1
        times = record.taken_back[1] if record.taken_back[0] == before else 0
        continued = record.taken_back[1] and record.taken_back[0] == record.count
        if times < self.in_a_row_max and not continued and (kind != RENEW or before):
            record.count, record.taken_back = before, (before, times + 1)
            if kind != RENEW:
                asked.taken_back.add(offset)

    def mark(self, offset: int, asked: Asked, letter: str, cause: str) -> None:
        record = self.records.all[offset]
        if record.goal == ARCHIVING:
            asked.letters[offset] = letter
        elif record.goal == ARCHIVED:
            asked.archived[offset] = (cause, record.count)

    def release(self, number: int, member: str, rules: Rules, only: dict[int, int] | None) -> None:
        """T13, T14, PL-505."""
        if self.status == "gone":
            self.orders.replies[number] = ("NOT_LEADER_OR_FOLLOWER", False, ())
            return
        asked = Asked(number, "", rules.limit, rules.dlq, reported=Reported({"session_release"}))
        for offset, record in self.records.all.items():
            if record.state != ACQUIRED or record.goal is not None or record.holder != member:
                continue
            if only is not None and only.get(offset) != record.count:
                continue
            asked.offsets.add(offset)
            asked.reported.given_back += 1
            if offset < self.records.start:
                record.goal = ARCHIVED
                continue
            record.goal = rules.released(record.count)
            asked.reported.limited += record.goal != AVAILABLE
            self.mark(offset, asked, "delivery count exceeded", "delivery_limit")
        asked.types = (0, 0, len(asked.offsets)) if asked.offsets else ()
        self.wait(asked, False)

    def wait(self, asked: Asked, needs_a_write: bool) -> None:
        if asked.offsets or needs_a_write:
            self.queue.append(asked)
        else:
            self.orders.replies[asked.number] = ("NONE", False, asked.types)  # PL-411
