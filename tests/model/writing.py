"""The naive model of a leader's writes: their contents, and the meaning of each outcome (§7, PL-412, PL-414,
PL-631)."""

from __future__ import annotations

from collections.abc import Iterable

from tests.model.orders import Asked, Orders, Reported, Sent
from tests.model.records import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    FINISHED,
    Rank,
    Reason,
    Record,
    Records,
    Rules,
    released,
)

RETIRE_MS = 15_000
#: Errors after which the share-partition is dropped, at once or after the queued work (PL-630, PL-631).
STOPS = {"FENCED_LEADER_EPOCH"}
RETIRES = {"FENCED_STATE_EPOCH", "GROUP_ID_NOT_FOUND", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST"}
#: The errors that the client gets for them (PL-731).
SEEN = {
    "FENCED_LEADER_EPOCH": "NOT_LEADER_OR_FOLLOWER",
    "FENCED_STATE_EPOCH": "NOT_LEADER_OR_FOLLOWER",
    "INVALID_REQUEST": "UNKNOWN_SERVER_ERROR",
    "REQUEST_TIMED_OUT": "UNKNOWN_SERVER_ERROR",
    "NOT_COORDINATOR": "COORDINATOR_NOT_AVAILABLE",
}


class Writing:
    """One share-partition object. `status`: initializing, active, retiring, gone. `ahead`: how far its wall clock is
    ahead of its own clock, which `now` and all ends of locks and delays use (PL-934). `chance`: see PL-936."""

    def __init__(self, generation: int, rules: Rules, in_a_row_max: int = 10, settled_changes: int = 128) -> None:
        self.in_a_row_max = in_a_row_max  # PL-941
        self.settled_changes = settled_changes  # PL-935: pieces are joined after this many changes
        self.generation = generation
        self.rules = rules
        self.records = Records()
        self.status = "initializing"
        self.now = 0
        self.ahead = 0
        self.chance = 0.0
        self.queue: list[Asked] = []
        self.sent: Sent | None = None
        self.unknown: list[Asked] = []
        self.dirty: set[int] = set()
        self.dirty_archiving: set[int] = set()
        self.dirty_archived: dict[int, int] = {}
        self.unsent = Reported()
        self.urgent = False
        self.written: tuple[int, int] | None = None
        self.confirmed = 0
        self.unsettled: int | None = None
        self.until = 0
        self.given_up: dict[int, str] = {}
        self.reasons: dict[int, Reason] = {}  # stored ones (PL-942)
        self.orders = Orders()

    @property
    def standing(self) -> tuple[int, int]:
        """Return the start offset and the delivery complete count that apply now."""
        return self.records.start, self.records.complete_from(self.records.start)

    def on_own_clock(self, stored: dict[int, Rank]) -> dict[int, Rank]:
        """Convert stored delays to the leader's own clock: a record waits for the rest of its delay, limited to the
        group's maximum (PL-934)."""
        return {
            offset: (
                count,
                state,
                until and self.now + min(max(0, until - self.ahead - self.now), self.rules.delay_max),
            )
            for offset, (count, state, until) in stored.items()
        }

    def back_off(self, offset: int) -> None:
        """Apply the back-off to a record that became Available when its lock expired (PL-936)."""
        delay = self.rules.back_off(self.records.all[offset].count, self.chance)
        if delay:
            self.records.waits(offset, self.now + delay, self.now)

    def activate(self) -> None:
        self.status = "active"
        waiting = {  # PL-611, PL-910
            offset: "delivery count exceeded" if record.count >= self.rules.limit else "client reject"
            for offset, record in self.records.all.items()
            if record.state == ARCHIVING
        }
        self.send_letters(waiting)

    # Writing (§7).

    def write(self, first: bool = False) -> None:
        """PL-703 … PL-705, PL-621."""
        records = self.records
        start, complete = records.progress(committed_only=False)
        carried = {offset for offset in self.dirty if offset >= records.start}
        self.sent = Sent(
            self.queue,
            carried,
            self.dirty_archiving,
            self.dirty_archived,
            self.unsent,
            (start, complete),
            first,
        )
        ranks = {
            offset: self.rank(records.all[offset])
            for offset in carried.union(*(asked.offsets for asked in self.queue))
            if offset >= records.start and offset in records.all and records.all[offset].shown != ACQUIRED
        }
        states = {offset: rank for offset, rank in ranks.items() if offset >= start}
        reported = Reported()
        for one in [self.unsent, *(asked.reported for asked in self.queue)]:
            reported.add(one)
        finished = [count for count, state, _ in ranks.values() if state in FINISHED]
        causes = {"init"} if first else reported.causes or {"cold"}
        self.orders.wrote = (causes, (*reported.counters, max(finished, default=0), sum(finished)))
        reasons = {offset: why for offset, why in self.sent.reasons.items() if offset >= start}
        self.orders.write = (self.generation, start, complete, states, records.next_offset, reasons)
        self.queue, self.dirty, self.dirty_archiving, self.dirty_archived = [], set(), set(), {}
        self.unsent = Reported()
        self.urgent, self.unsettled = False, None

    def rank(self, record: Record) -> Rank:
        """Return a record's rank for a write, with the end of its delay by the wall clock."""
        waits = record.shown == AVAILABLE and record.until
        return record.count, record.shown, record.until + self.ahead if waits else 0

    def persisted(self) -> None:
        sent, self.sent = self.sent, None
        assert sent is not None
        self.written = sent.progress
        self.confirmed = max(self.confirmed, sent.progress[0])
        if sent.first:
            self.activate()
            return
        self.learns(sent.reasons)
        letters = dict.fromkeys(sent.archiving, "delivery count exceeded")
        for asked in sent.asked:
            for offset in asked.offsets:
                record = self.records.all.get(offset)
                if record is not None and record.goal is not None:
                    self.takes_effect(offset, record.goal)
            self.orders.replies[asked.number] = ("NONE", True, asked.types)
            self.given_up |= dict.fromkeys([*asked.archived, *asked.letters], asked.member)
            self.report(asked.archived)
            letters |= asked.letters
        self.report({offset: ("delivery_limit", count) for offset, count in sent.archived.items()})
        self.send_letters(letters)

    def learns(self, reasons: dict[int, Reason]) -> None:
        """PL-942: these reasons are stored; that of the highest delivery count remains."""
        for offset, why in reasons.items():
            self.reasons[offset] = max(why, self.reasons.get(offset, why))

    def takes_effect(self, offset: int, goal: int) -> None:
        """Apply a change that is now stored. A delay is measured from its request, and may be over by now (PL-933)."""
        record = self.records.all[offset]
        until = record.until if goal == AVAILABLE else 0
        record.becomes(goal)
        if until:
            self.records.waits(offset, until, self.now)

    def report(self, archived: dict[int, tuple[str, int]]) -> None:
        """PL-810."""
        for offset, (cause, count) in archived.items():
            self.orders.reported.setdefault(cause, {})[offset] = count

    def send_letters(self, letters: dict[int, str]) -> None:
        """PL-904, PL-905: send dead letters for records that are durably Archiving and not below the start offset."""
        for offset, cause in letters.items():
            record = self.records.all.get(offset)
            if offset < self.records.start or record is None or record.goal is not None:
                continue
            if record.state == ARCHIVING:
                self.orders.letters.setdefault(cause, {})[offset] = record.count
                if offset in self.reasons:
                    self.orders.said[offset] = self.reasons[offset][1]

    def letters_sent(self, number: int, cause: str) -> None:
        """Note the number under which the letters with this cause were sent."""
        self.records.letters[number] = dict(self.orders.letters[cause])

    def letters_done(self, number: int, offsets: Iterable[int] | None) -> None:
        """T15."""
        done = self.letters_back(number, offsets)
        for offset in done:
            record = self.records.all.get(offset)
            if record is not None:
                assert record.state in (ARCHIVING, ARCHIVED)
                record.becomes(ARCHIVED)
        if done:
            self.note(done, "dlq")
            self.urgent = True

    def letters_back(self, number: int, offsets: Iterable[int] | None) -> set[int]:
        """Stop waiting for these letters; return their offsets."""
        letter = self.records.letters.pop(number, {})
        done = set(letter) if offsets is None else set(letter) & set(offsets)
        left = {offset: count for offset, count in letter.items() if offset not in done}
        if left:
            self.records.letters[number] = left
        return done

    def failed(self, error: str, unknown: bool) -> None:
        """PL-414, PL-630, PL-707."""
        sent, self.sent = self.sent, None
        assert sent is not None
        seen = SEEN.get(error, error)
        if sent.first:
            self.status = "gone"
            self.orders.ends += ["fenced", "dropped"]
            return
        fences = error.startswith("FENCED")
        if error in STOPS:
            self.sent = sent
            self.stop()
            return
        self.orders.replies |= {asked.number: (seen, True, ()) for asked in sent.asked}
        self.dirty |= sent.carried
        self.dirty_archiving |= sent.archiving
        self.dirty_archived |= sent.archived
        self.unsent.add(sent.reported)
        if error in RETIRES and (sent.asked or fences):
            self.retire()
            self.roll_back(sent.asked)
        elif unknown and sent.asked and self.status == "active":
            self.generation += 1
            self.unknown = sent.asked
            self.orders.read_back = self.generation
        else:
            self.roll_back(sent.asked)

    def read_back(self, start: int, stored: dict[int, Rank], reasons: dict[int, Reason]) -> None:
        """PL-707: the stored state decides; changes that are not stored are rolled back."""
        self.learns(reasons)
        asked, self.unknown = self.unknown, []
        self.confirmed = max(self.confirmed, start)
        letters: dict[int, str] = {}
        stored = self.on_own_clock(stored)
        for one in asked:
            for offset in one.offsets:
                self.settle(offset, one, start, stored.get(offset, (-1, -1, 0)), letters)
        for one in asked:
            self.report(
                {
                    offset: what
                    for offset, what in one.archived.items()
                    if offset < start or (offset in stored and stored[offset][1] == ARCHIVED)
                }
            )
        self.roll_back(asked)
        self.send_letters(letters)

    def settle(self, offset: int, asked: Asked, start: int, rank: Rank, letters: dict[int, str]) -> None:
        record = self.records.all.get(offset)
        if record is None or record.goal is None:
            return
        if offset < start or rank[:2] == (record.count, record.goal):
            self.takes_effect(offset, record.goal)
        elif rank[:2] > (record.count, record.goal):
            record.count = rank[0]
            record.becomes(ARCHIVED if rank[1] == AVAILABLE and offset < self.records.start else rank[1])
            if record.state == AVAILABLE and rank[2] > self.now:
                self.records.waits(offset, rank[2], self.now)
        else:
            return
        if record.state == ARCHIVING:
            over = "delivery count exceeded" if record.count >= asked.limit else "client reject"
            letters[offset] = asked.letters.get(offset, over)

    def roll_back(self, asked: Iterable[Asked]) -> None:
        """T19, PL-307, PL-414."""
        for one in asked:
            for offset in sorted(one.offsets):
                record = self.records.all.get(offset)
                if record is None or record.goal is None:
                    continue
                self.held_again(offset, one)
                if offset >= self.records.start and record.lock_end > self.now:
                    continue
                record.becomes(ARCHIVED if offset < self.records.start else released(record.count, one.limit, one.dlq))
                if record.state == AVAILABLE and one.member:  # no back-off for an ended session's records (PL-936)
                    self.back_off(offset)
                if self.status == "active":
                    self.changed_back(offset, record.state, record.count)

    def held_again(self, offset: int, asked: Asked) -> None:
        """Cancel a record's pending change (T19, PL-933, PL-941)."""
        record = self.records.all[offset]
        record.is_held_again()
        if offset in asked.taken_back:
            before, times = record.taken_back
            record.count, record.taken_back = record.count + 1, (before, times - 1)

    def note(self, offsets: Iterable[int], cause: str) -> None:
        """Note offsets that the next write carries (PL-621)."""
        self.dirty.update(offsets)
        self.unsent.causes.add(cause)

    def changed_back(self, offset: int, state: int, count: int) -> None:
        self.note([offset], "cold")
        if offset < self.records.start or state == AVAILABLE:
            return
        self.given_up[offset] = ""
        self.unsent.limited += 1
        if state == ARCHIVING:
            self.dirty_archiving.add(offset)
            self.urgent = True
        else:
            self.dirty_archived[offset] = count

    def read_back_failed(self) -> None:
        asked, self.unknown = self.unknown, []
        self.retire()
        self.roll_back(asked)

    # The end (PL-631).

    def retire(self) -> None:
        if self.status != "active":
            return
        self.status, self.until = "retiring", self.now + RETIRE_MS
        asked, self.unknown = self.unknown, []
        self.roll_back(asked)
        self.orders.ends.append("fenced")

    def let_go(self) -> None:
        """Retire: the group's last session ended here (PL-523)."""
        if self.status == "active":
            self.urgent |= self.confirmed < self.records.start
            self.retire()
        elif self.status == "initializing":
            self.stop()

    def tick(self) -> None:
        if self.status == "retiring" and self.now >= self.until:
            self.stop()

    def stop(self) -> None:
        asked = [*(self.sent.asked if self.sent else ()), *self.queue]
        self.orders.replies |= {one.number: ("NOT_LEADER_OR_FOLLOWER", False, ()) for one in asked}
        self.sent, self.queue, self.unknown = None, [], []
        if self.status != "retiring":
            self.orders.ends.append("fenced")
        self.finish()

    def finish(self) -> None:
        self.status = "gone"
        self.records.letters.clear()
        self.orders.ends.append("dropped")
