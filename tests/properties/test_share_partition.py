"""A share-partition against a naive model: in every history the model's invariants hold, and everything gets finished.

The machine acquires, acknowledges, renews and releases records, lets locks expire, moves the log start, loses writes
and their responses, and starts new leaders from the coordinator's state. The invariants are checked after every step.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from kip932.errors import CoordinatorNotAvailableError, RequestTimedOutError
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.status import Status
from tests.properties.share_partition_model import ACQUIRED, AVAILABLE, LOCK_MS, SharePartitionModel

MAX_EXAMPLES = int(os.environ.get("SHARE_PARTITION_EXAMPLES", "60"))
MEMBERS = ("A", "B", "C")
members = st.sampled_from(MEMBERS)


class SharePartitionMachine(SharePartitionModel):
    """The events that may happen to a share-partition."""

    @rule(size=st.integers(1, 8), hole=st.sampled_from([0, 0, 0, 2]))
    def produce(self, size: int, hole: int) -> None:
        if self.log_end < 150:
            self.append(size, hole)

    @rule(
        member=members,
        budget=st.integers(1, 20),
        mode=st.integers(0, 1),
        batch_size=st.integers(1, 10),
        reads=st.integers(1, 6),
    )
    def fetch(self, member: str, budget: int, mode: int, batch_size: int, reads: int) -> None:
        orders = [e for e in self.do(ev.TakeFetchLock(9, budget, self.settings)) if isinstance(e, fx.ReadLog)]
        if not orders:
            return
        offset = orders[0].first_offset
        assert offset >= self.core.start_offset
        if offset < self.log_start:
            self.do(ev.LogStartMoved(self.log_start))
            offset = self.core.next_fetch_offset()
        batches = tuple(b for b in self.log if b.last_offset >= max(offset, self.log_start))[:reads]
        last = batches[-1].last_offset if batches else -1
        event = ev.Acquire(9, member, mode, batch_size, budget, offset, batches, last, False, (), self.settings)
        before, pending = self.states(), self.pending()
        effects = self.do(event)
        assert self.core.fetch_lock is None, "an acquisition gives the fetch lock back (PL-1207)"
        (acquired,) = [e for e in effects if isinstance(e, fx.Acquired)]
        free = {o for o, state in before.items() if state == AVAILABLE}
        previous = -1
        for first, last, count in acquired.ranges:
            assert previous < first <= last
            assert count >= 1
            previous = last
            for at in range(first, last + 1):
                assert at in free or at not in before, f"{at} is {before[at]}, held by {self.holders.get(at)} (PL-1201)"
                assert at not in pending, f"{at} is being written (PL-002)"
                assert at not in self.committed, f"{at} was finished and came again (PL-1204)"
                self.holders[at] = (member, self.now + LOCK_MS)
        if mode == 1:
            assert acquired.record_count <= max(budget, 0)

    @rule(data=st.data(), member=members)
    def acknowledge(self, data: st.DataObject, member: str) -> None:
        mine = self.held_by(member)
        if not mine:
            return
        acks = []
        for first, last in runs(mine)[: data.draw(st.integers(1, 4))]:
            low = data.draw(st.integers(first, last))
            high = data.draw(st.integers(low, last))
            if data.draw(st.booleans()):
                types = (data.draw(st.integers(0, 4)),) * (high - low + 1)
            else:
                types = tuple(data.draw(st.lists(st.integers(0, 4), min_size=high - low + 1, max_size=high - low + 1)))
            acks.append((low, high, types))
        self.op += 1
        self.claims[self.op] = (member, tuple(acks))
        batches = tuple(ev.AckBatch(low, high, t[:1] if len(set(t)) == 1 else t) for low, high, t in acks)
        before = self.core.start_offset
        effects = self.do(ev.Acknowledge(self.op, member, batches, self.settings))
        errors = [e.error for e in effects if isinstance(e, fx.Reply) and e.op_id == self.op]
        assert errors in ([], [None]), (errors, acks, before)
        for low, high, types in acks:
            for offset in range(low, high + 1):
                if types[offset - low] == 4 and offset in self.holders:
                    self.holders[offset] = (member, self.now + LOCK_MS)

    @rule(member=members, budget=st.integers(1, 8), keep=st.integers(0, 3), mode=st.integers(0, 1))
    def fetch_and_reject(self, member: str, budget: int, keep: int, mode: int) -> None:
        """Cause dead letters in one step, since few examples would have any otherwise. Every fourth record is
        accepted."""
        self.fetch(member, budget, mode, 1, 3)
        mine = self.held_by(member)
        if not mine:
            return
        self.op += 1
        acks = tuple((offset, offset, (1,) if offset % 4 == keep else (3,)) for offset in mine)
        self.claims[self.op] = (member, acks)
        self.do(ev.Acknowledge(self.op, member, tuple(ev.AckBatch(*ack) for ack in acks), self.settings))
        if self.write and keep:
            self.write_succeeds()

    @rule(data=st.data(), member=members, later=st.booleans(), applied=st.booleans())
    def acknowledge_without_an_answer(self, data: st.DataObject, member: str, later: bool, applied: bool) -> None:
        self.acknowledge(data, member)
        if self.write:
            self.write_is_unanswered(applied, later)

    @rule(data=st.data(), member=members)
    def acknowledge_what_is_not_mine(self, data: st.DataObject, member: str) -> None:
        first = data.draw(st.integers(max(0, self.core.start_offset - 3), self.core.speo + 3))
        last = first + data.draw(st.integers(0, 4))
        if last < self.core.start_offset:
            return
        offsets = [o for o in range(first, last + 1) if o >= self.core.start_offset]
        held, known = self.held_by(member), self.states()
        if all(o in held or o not in known for o in offsets):
            return
        before = self.core.overview().records
        self.op += 1
        effects = self.do(ev.Acknowledge(self.op, member, (ev.AckBatch(first, last, (1,)),), self.settings))
        (reply,) = [e for e in effects if isinstance(e, fx.Reply) and e.op_id == self.op]
        assert reply.error is not None
        assert self.core.overview().records == before, "an error means that nothing changed (INV-6)"

    @rule(member=members)
    def close_session(self, member: str) -> None:
        self.op += 1
        given = runs(self.held_by(member))
        self.claims[self.op] = (member, tuple((first, last, (2,) * (last - first + 1)) for first, last in given))
        self.do(ev.Release(self.op, member, self.settings))

    @rule(ms=st.sampled_from([1, 100, 500, 1_001, 6_000]))
    def pass_time(self, ms: int) -> None:
        self.now += ms
        due = self.core.next_deadline()
        if due is not None and due <= self.now:
            held = {o for o, state in self.states().items() if state == ACQUIRED and self.holders[o][1] > self.now}
            self.do(ev.Tick(self.settings))
            states = self.states()
            assert all(states[o] == ACQUIRED for o in held), "a lock ended early (PL-303)"
            after = self.core.next_deadline()
            assert after is None or after > self.now, "a deadline that stays due would make the host spin"

    @precondition(lambda self: self.write)
    @rule()
    def write_succeeds(self) -> None:
        write = self.take_write()
        if self.coordinator.write(write):
            self.do(ev.Persisted(write.write_id))

    @precondition(lambda self: self.write)
    @rule()
    def write_is_refused(self) -> None:
        write = self.take_write()
        self.do(ev.PersistFailed(write.write_id, CoordinatorNotAvailableError(), False))

    @precondition(lambda self: self.write)
    @rule(applied=st.booleans(), later=st.booleans())
    def write_is_unanswered(self, applied: bool, later: bool) -> None:
        write = self.take_write()
        if applied:
            assert self.coordinator.write(write)
        elif later:
            self.late.append(write)
        self.do(ev.PersistFailed(write.write_id, RequestTimedOutError(), True))

    @precondition(lambda self: self.late)
    @rule()
    def a_late_write_lands(self) -> None:
        if self.coordinator.write(self.late.pop()) and self.read_back is None:
            self.check_stored()

    @precondition(lambda self: self.read_back)
    @rule(late_write_lands=st.booleans())
    def read_back_answers(self, late_write_lands: bool = False) -> None:
        wanted = self.take_read_back()
        assert wanted.generation == self.core.generation
        start, batches = self.coordinator.read(wanted.generation)
        self.do(ev.ReadBack(wanted.generation, 1, start, batches))
        if late_write_lands and self.late:
            self.a_late_write_lands()

    @precondition(lambda self: self.read_back)
    @rule()
    def read_back_fails(self) -> None:
        wanted = self.take_read_back()
        self.unknown = set(self.finished)  # rolled back in memory, but perhaps stored
        self.do(ev.ReadBackFailed(wanted.generation, RequestTimedOutError()))
        while self.core.status is Status.RETIRING:
            if self.write:
                self.write_succeeds()
            elif self.dead:
                self.dead_letter_done()
        assert self.core.status is Status.FENCED
        self.finished.update(self.unknown)
        self.new_leader()
        self.unknown = set()

    @precondition(lambda self: self.dead)
    @rule()
    def dead_letter_done(self) -> None:
        number = self.dead[0][0]
        self.dead = [letter for letter in self.dead if letter[0] != number]
        self.do(ev.DlqDone(number))

    @precondition(lambda self: self.dead)
    @rule(data=st.data())
    def dead_letters_done_in_part(self, data: st.DataObject) -> None:
        number = self.dead[0][0]
        offsets = sorted(offset for of, offset in self.dead if of == number)
        done = data.draw(st.sets(st.sampled_from(offsets)))
        self.dead = [letter for letter in self.dead if letter[0] != number or letter[1] not in done]
        self.do(ev.DlqDone(number, tuple(runs(sorted(done)))))

    @rule(jump=st.integers(1, 12), chance=st.integers(0, 3))
    def log_start_moves(self, jump: int, chance: int) -> None:
        if chance:
            return
        self.log_start = min(self.log_start + jump, self.log_end)
        self.log = [b for b in self.log if b.last_offset >= self.log_start]
        self.do(ev.LogStartMoved(self.log_start))

    @rule(at=st.integers(0, 30))
    def compact(self, at: int) -> None:
        if len(self.log) > 1:
            del self.log[at % (len(self.log) - 1)]

    @rule(chance=st.integers(0, 3))
    def fail_over(self, chance: int) -> None:
        if chance:
            return
        if self.write is not None:
            self.late.append(self.write)
        self.generation = self.core.generation
        self.check_stored()
        self.new_leader()

    # The end.

    def teardown(self) -> None:
        """Check that, with a healthy store and accepting consumers, everything is finished in the end."""
        if not hasattr(self, "core"):
            return
        self.everything_is_delivered_while_letters_wait()
        self.settle_for_good()
        self.check_everything_is_stored()
        for _ in range(400):
            self.now += LOCK_MS + 5_000
            self.settle_everything()
            if not self.drain_once():
                break
        else:
            raise AssertionError("the share-partition stalls (PL-1208)")
        self.settle_for_good()
        overview = self.core.overview()
        assert overview.start_offset >= self.log_end or not self.log or self.log[-1].last_offset < overview.start_offset
        assert overview.delivery_complete_count == 0
        assert self.coordinator.start == overview.start_offset
        assert self.coordinator.dcc == 0, "INV-17"

    def everything_is_delivered_while_letters_wait(self) -> None:
        """Check that unconfirmed dead letters, up to their maximum, do not hold up other records (PL-915, PL-916)."""
        if not self.dead:
            return
        waiting = -1
        for _ in range(400):
            self.now += LOCK_MS + 5_000
            self.settle_everything(letters=False)
            if self.core.dead_letters_full(self.settings):
                return
            done = not self.drain_once() and waiting == len(self.dead)
            waiting = len(self.dead)
            if done:
                break
        left = [o for b in self.log for o in range(b.base_offset, b.last_offset + 1) if o >= self.core.speo]
        assert not left, f"{left} wait behind dead letters (PL-915)"

    def settle_for_good(self) -> None:
        """PL-621: twice wait five seconds and complete all writes, after which storage agrees with memory."""
        for _ in range(2):
            self.now += 5_000
            self.settle_everything()

    def check_everything_is_stored(self) -> None:
        """Check that every record in memory that is neither Acquired nor undelivered is stored by now (PL-621)."""
        for first, last, state, count, _ in self.core.overview().records:
            if state != ACQUIRED and count > 0:
                for offset in range(first, last + 1):
                    assert self.coordinator.ranks.get(offset) == (count, state), f"{offset} is not stored (PL-621)"

    def settle_everything(self, letters: bool = True) -> None:
        for _ in range(200):
            if self.read_back:
                self.read_back_answers()
            elif self.write:
                self.write_succeeds()
            elif self.dead and letters:
                self.dead_letter_done()
            else:
                self.do(ev.Tick(self.settings))
                if not (self.read_back or self.write or (self.dead and letters)):
                    return
        raise AssertionError("writes never end")

    def drain_once(self) -> bool:
        """Fetch and accept all available records; return True if there were any."""
        before = self.core.overview()
        self.fetch("A", 50, 0, 10, 6)
        offset = self.core.next_fetch_offset()
        acquired = [b for b in self.core.overview().records if b.delivery_state == ACQUIRED]
        for batch in acquired:
            self.op += 1
            self.do(
                ev.Acknowledge(
                    self.op,
                    self.holders[batch.first_offset][0],
                    (ev.AckBatch(batch.first_offset, batch.last_offset, (1,)),),
                    self.settings,
                )
            )
            while self.write:
                self.write_succeeds()
        more = any(b.last_offset >= offset for b in self.log)
        return bool(acquired) or more or before != self.core.overview()


def runs(offsets: list[int]) -> list[tuple[int, int]]:
    result: list[tuple[int, int]] = []
    for offset in offsets:
        if result and result[-1][1] + 1 == offset:
            result[-1] = (result[-1][0], offset)
        else:
            result.append((offset, offset))
    return result


TestSharePartition = pytest.mark.rule(
    "PL-120", "PL-121", "PL-915", "PL-122", "PL-123", "PL-608", "PL-707", "PL-1101",
    "PL-1201", "PL-1202", "PL-1203", "PL-1204", "PL-1205", "PL-1206", "PL-1207", "PL-1208", "PL-1209",
)(SharePartitionMachine.TestCase)  # fmt: skip
TestSharePartition.settings = settings(
    max_examples=MAX_EXAMPLES,
    stateful_step_count=50,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
