"""A share-partition with a naive model: one entry per offset, and a coordinator that keeps the higher rank.

The model hosts the core, records what its replies promise, and checks the invariants after every event. The events come
from the machine in `test_share_partition`.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from kip932.state_batches import StateBatch
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.limits import Limits
from partition_leader.share_partition.core.share_partition import SharePartition
from partition_leader.share_partition.core.status import Overview, Status
from shard_runtime.config.group_config import GroupConfig
from tests.support.batch_headers import Header

LOCK_MS = 1_000
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = range(5)
TERMINAL = (ACKNOWLEDGED, ARCHIVED)


class Coordinator:
    """The share coordinator's stored state: start offset and, per offset, the highest rank written (SC-104, SC-107)."""

    def __init__(self) -> None:
        self.start = 0
        self.ranks: dict[int, tuple[int, int]] = {}
        self.dcc = 0
        self.generation = 0

    def write(self, write: fx.Persist) -> bool:
        if write.generation < self.generation:
            return False
        self.generation = write.generation
        if write.start_offset > self.start or (write.start_offset == self.start):
            same = write.start_offset == self.start
            self.dcc = max(self.dcc, write.delivery_complete_count) if same else write.delivery_complete_count
        self.start = max(self.start, write.start_offset)
        for first, last, state, count, _ in write.state_batches:
            for offset in range(first, last + 1):
                self.ranks[offset] = max(self.ranks.get(offset, (-1, -1)), (count, state))
        self.ranks = {offset: rank for offset, rank in self.ranks.items() if offset >= self.start}
        return True

    def read(self, generation: int) -> tuple[int, tuple[StateBatch, ...]]:
        self.generation = max(self.generation, generation)
        batches = [StateBatch(o, o, state, count) for o, (count, state) in sorted(self.ranks.items())]
        return self.start, tuple(batches)


class SharePartitionModel(RuleBasedStateMachine):
    """One leader at a time, its host, and the known facts about every offset."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.coordinator = Coordinator()
        self.log: list[Header] = []
        self.log_end = 0
        self.log_start = 0
        self.holders: dict[int, tuple[str, int]] = {}  # offset -> last (member, lock end), this leader
        self.done: set[int] = set()  # terminal, with NONE as the response: durable (PL-1209)
        self.committed: set[int] = set()  # offsets that this leader has confirmed as terminal
        self.claims: dict[int, tuple[str, tuple[tuple[int, int, tuple[int, ...]], ...]]] = {}
        self.late: list[fx.Persist] = []  # writes of unknown outcome that may still be stored
        self.unknown: set[int] = set()
        self.op = 0
        self.generation = 0
        self.finished: set[int] = set()  # offsets that the start offset may pass
        self.spso = 0
        self.stored_before = 0

    @initialize(
        spans=st.lists(st.tuples(st.integers(1, 8), st.sampled_from([0, 0, 0, 3])), min_size=3, max_size=12),
        limit=st.sampled_from([2, 3, 5]),
        max_locks=st.sampled_from([5, 20, 100]),
        dlq=st.sampled_from([True, True, False]),
        letters_max=st.sampled_from([3, 10, 5_000]),
        limits=st.builds(Limits, *[st.integers(2, 5)] * len(Limits._fields)),
    )
    def begin(  # noqa: PLR0917 - what an example starts with
        self, spans: list[tuple[int, int]], limit: int, max_locks: int, dlq: bool, letters_max: int, limits: Limits
    ) -> None:
        self.limits = limits  # the windows here are small
        self.settings = GroupConfig(LOCK_MS, limit, max_locks, True, dlq, letters_max)
        for size, hole in spans:
            self.append(size, hole)
        self.new_leader()

    def new_leader(self) -> None:
        self.generation += 1
        self.core = SharePartition(self.generation, limits=self.limits)
        self.write: fx.Persist | None = None
        self.read_back: fx.ReadBackWanted | None = None
        self.dead: list[tuple[int, int]] = []  # (number, offset) of each dead letter that is being written
        self.holders.clear()
        self.claims.clear()
        self.committed = set(self.done)
        self.spso = 0
        start, batches = self.coordinator.read(self.generation)
        assert start >= self.stored_start()
        self.do(ev.Initialized(1, start, batches, False, self.settings))
        assert self.core.status is Status.ACTIVE
        self.do(ev.LogStartMoved(self.log_start))

    def stored_start(self) -> int:
        previous, self.stored_before = self.stored_before, self.coordinator.start
        return previous

    def do(self, event: ev.Event) -> list[fx.Effect]:
        effects = self.core.handle(event, self.now)
        self.core.check()
        for effect in effects:
            if isinstance(effect, fx.Persist):
                assert self.write is None
                assert self.read_back is None
                self.write = effect
                self.check_write(effect)
            elif isinstance(effect, fx.Reply):
                self.replied(effect)
            elif isinstance(effect, fx.ReadBackWanted):
                self.read_back = effect
            elif isinstance(effect, fx.DeadLetter):
                self.dead += [
                    (effect.dead_letter_id, o) for first, last, _ in effect.ranges for o in range(first, last + 1)
                ]
            elif isinstance(effect, fx.Dropped):
                self.generation = effect.generation
        self.numbers_hold()
        return effects

    def take_write(self) -> fx.Persist:
        """Return the outstanding write and clear it; the caller decides its outcome."""
        write, self.write = self.write, None
        assert write is not None
        return write

    def take_read_back(self) -> fx.ReadBackWanted:
        wanted, self.read_back = self.read_back, None
        assert wanted is not None
        return wanted

    def pending(self) -> set[int]:
        """Return the offsets with an unanswered acknowledgement or release; renewals take effect at once."""
        return {
            offset
            for _, acks in self.claims.values()
            for first, last, types in acks
            for offset in range(first, last + 1)
            if types[offset - first] != 4
        }

    def replied(self, reply: fx.Reply) -> None:
        _, acks = self.claims.pop(reply.op_id, ("", ()))
        if reply.error is not None:
            return
        for first, last, types in acks:
            for offset in range(first, last + 1):
                if types[offset - first] in (0, 1):
                    self.done.add(offset)
                    self.committed.add(offset)

    def check_write(self, write: fx.Persist) -> None:
        previous = -1
        for batch in write.state_batches:
            assert batch.first_offset > previous, "state batches ascending, disjoint"
            assert batch.first_offset >= write.start_offset
            assert batch.delivery_state != ACQUIRED
            previous = batch.last_offset

    def append(self, size: int, hole: int) -> None:
        base = self.log_end + hole
        self.log.append(Header(base, base + size - 1))
        self.log_end = base + size

    # Invariants.

    def check_stored(self) -> None:
        """Check that a fresh leader delivers exactly what this one has not finished (PL-1101, PL-1209)."""
        memory = self.states()
        stored = {offset: state for offset, (_, state) in self.coordinator.ranks.items()}
        for offset, state in stored.items():
            if state in TERMINAL and offset in memory:
                assert memory[offset] in TERMINAL, f"{offset} is finished in storage only: it would be lost"
        for offset in range(self.core.start_offset, self.coordinator.start):
            assert memory.get(offset, ARCHIVED) in TERMINAL, f"{offset} is passed in storage only: it would be lost"
        for offset in self.done:
            if offset >= self.coordinator.start:
                assert stored.get(offset) in TERMINAL, f"{offset} was confirmed with NONE and would be redelivered"

    def states(self) -> dict[int, int]:
        return {
            offset: batch.delivery_state
            for batch in self.core.overview().records
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }

    def held_by(self, member: str) -> list[int]:
        return sorted(o for o, state in self.states().items() if state == ACQUIRED and self.holders[o][0] == member)

    @invariant()
    def letters_are_out_once_and_take_no_lock(self) -> None:
        """Each Archiving record has a dead letter being written, unless the write that archives it is outstanding
        (PL-904, PL-305). Records with such a letter do not count against the lock limit, nor do finished records before
        the first record that is neither (PL-915, PL-916)."""
        if not hasattr(self, "core") or self.core.status is not Status.ACTIVE:
            return
        out = [offset for _, offset in self.dead]
        assert len(set(out)) == len(out), "a dead letter is being written twice"
        assert self.core._state.dead_letters.waiting == len(out)
        states = self.states()
        if self.write or self.read_back or self.core.overview().operations_waiting:
            return  # a pending record shows its future state
        archiving = {offset for offset, state in states.items() if state == ARCHIVING}
        unwritten = self.core._state.write_back.dirty.archiving  # from a failed write; the next one carries it
        later = {offset for first, last in unwritten for offset in range(first, last + 1)} & archiving
        assert archiving - later == {offset for offset in out if offset >= self.spso}, "a dead letter is lost"
        overview = self.core.overview()
        locks = overview.in_flight
        if out and locks:
            gap = overview.gap_window[0] if overview.gap_window else self.log_end
            held = [o for o, state in states.items() if state not in (*TERMINAL, ARCHIVING)]
            front = min([gap, *held]) if held or overview.gap_window else self.core.speo
            locks = self.core.speo - front - len([offset for offset in out if offset >= front])
        older = self.core.next_fetch_offset() != self.core.speo or not overview.batch_count
        full = self.core.dead_letters_full(self.settings)
        assert full == (bool(out) and len(out) >= self.settings.dead_letters_max)
        room = not full and locks < self.settings.max_record_locks
        assert self.core.can_acquire(self.settings) == (room or older), (locks, out, states)

    @invariant()
    def locks_hold(self) -> None:
        if not hasattr(self, "core"):
            return
        for offset, state in self.states().items():
            if state == ACQUIRED:
                assert offset in self.holders, f"{offset} is Acquired but no member fetched it"
                assert self.holders[offset][1] > self.now, f"{offset} stays Acquired past its lock (PL-1206)"

    @invariant()
    def numbers_hold(self) -> None:
        if not hasattr(self, "core"):
            return
        overview = self.core.overview()
        assert overview.start_offset >= self.spso, "the start offset fell (PL-1202)"
        self.spso = overview.start_offset
        recount = sum(b.last_offset - b.first_offset + 1 for b in overview.records if b.delivery_state in TERMINAL)
        assert overview.delivery_complete_count == recount, "PL-1205"
        assert self.coordinator.start >= self.stored_start()
        in_log = {o for b in self.log for o in range(b.base_offset, b.last_offset + 1) if o >= self.log_start}
        for offset in in_log:
            if offset < self.spso:
                assert offset in self.finished, f"{offset} was passed over (PL-1203, PL-1208)"
            if offset < self.coordinator.start:
                accounted = self.finished | self.unknown
                assert offset in accounted, f"{offset} is lost in storage (PL-1208)"
        self.remember(overview)

    def remember(self, overview: Overview) -> None:
        """Note which offsets the start offset may pass in the next step: those that are terminal or about to be."""
        self.finished.difference_update({o for o in self.finished if o >= self.spso})
        for batch in overview.records:
            given_up = batch.delivery_count >= self.settings.delivery_count_limit
            if given_up or batch.delivery_state in (*TERMINAL, ARCHIVING):
                self.finished.update(range(batch.first_offset, batch.last_offset + 1))
