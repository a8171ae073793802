"""One history of a share-partition, drawn from a seed: its events, their order, and what is lost.

Clients fetch, acknowledge, repeat requests and leave; locks expire; writes fail, are late, or have an unknown outcome;
leaders change; the log grows, is trimmed and loses batches; dead letters wait. After each step core and model are
compared.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from partition_leader.share_partition.core.limits import LIMITS, Limits
from tests.model.asking import draw_ack, kind_at
from tests.model.fetching import Read
from tests.model.leader import ACCEPT
from tests.model.orders import Ack, Orders
from tests.model.pair import DifferenceError, Pair
from tests.model.post import Post
from tests.model.records import ACQUIRED, ARCHIVING, FINISHED, Rules, alike
from tests.model.store import Store, Write
from tests.model.topic import Found, TopicLog
from tests.support.small_limits import small

LOCK_MS: Final = 1_000
MEMBERS: Final = ("A", "B", "C")
#: The maximum number of offsets between those stored as finished and the log's end; beyond it, nothing is appended.
AHEAD_MAX: Final = 60
TRACE_LINES: Final = 40
#: How far a leader's wall clock is ahead of another's, in ms.
CLOCKS_AHEAD: Final = (0, 0, 0, 50, -50, 3_000, -3_000, 100_000, -100_000)
WALL_MS: Final = 1_700_000_000_000
Done = dict[int, tuple[int, ...]]


class Fetch(NamedTuple):
    """A fetch that has the fetch lock, with the result of its read."""

    read: Read
    found: Found
    committed: bool


def draw_limits(rng: Random, squeezed: int) -> Limits:
    """Draw small limits. If finished batches are joined early (PL-915), settled ones are not (PL-935), since the model
    only follows the pieces that result from the latter."""
    limits = small(rng, merged_batches=squeezed)
    early = squeezed < LIMITS.merged_batches
    return limits._replace(settled_changes=LIMITS.settled_changes) if early else limits


class Schedule:
    """One history. `seen`: how many times each kind of event happened."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.seen: Counter[str] = Counter()
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        self.log = TopicLog()
        self.now = 1_000
        self.committed = self.rng.random() < 0.5
        squeezed = self.rng.choice((2, LIMITS.merged_batches))
        self.in_a_row_max = self.rng.choice((1, 2, 10))
        self.rules = self.draw_rules()
        self.log.append(self.rng.randint(1, 8))
        self.store = Store(0)
        self.number = 0
        self.accepted: dict[int, set[int]] = {}  # by operation: offsets whose acceptance it confirms
        self.said: deque[tuple[str, list[Ack]]] = deque(maxlen=6)
        self.late: list[Write] = []
        self.steps = 0
        self.limits = draw_limits(Random(f"{seed}/limits"), squeezed)
        self.pair = Pair(0, self.rules, self.limits, self.in_a_row_max)
        self.lead(resolved=self.rng.random() < 0.3)
        self.actions: list[tuple[int, Callable[[], None]]] = [
            (8, self.produce), (3, self.end_transaction), (16, self.fetch), (4, self.end_fetch),
            (20, self.acknowledge), (3, self.acknowledge_anything), (2, self.repeat), (3, self.close_session),
            (10, self.pass_time), (20, self.write_succeeds), (3, self.write_fails), (4, self.write_unanswered),
            (3, self.late_write), (6, self.read_back), (6, self.letters), (2, self.log_start), (2, self.compact),
            (1, self.change_rules), (1, self.fail_over), (1, self.retire),
        ]  # fmt: skip
        self.weights = [weight for weight, _ in self.actions]

    def run(self, steps: int) -> None:
        """Perform `steps` steps, or a few more."""
        while self.steps + self.pair.steps < steps:
            _, action = self.rng.choices(self.actions, self.weights)[0]
            action()
            if self.pair.model.status == "gone":
                self.seen["dropped"] += 1
                self.lead()
        self.steps += self.pair.steps
        self.pair.steps = 0

    def draw_rules(self) -> Rules:
        rng = self.rng
        return Rules(
            LOCK_MS, rng.choice((2, 3, 5, 10)), rng.choice((5, 5, 20, 100)), rng.random() < 0.9,
            rng.random() < 0.6, rng.choice((3, 10, 5_000)), rng.choice((5_000, 20_000)), rng.choice((1, 4, 5_000)),
            rng.choice((0, 0, 200, 2_000)), rng.choice((1, 2, 3)), rng.choice((1_000, 8_000)), rng.choice((0, 0.5)),
        )  # fmt: skip

    # Leaders.

    def lead(self, resolved: bool = False) -> None:
        """Let a new object lead; it knows only the stored state."""
        self.steps += self.pair.steps
        generation = self.pair.model.generation + 1  # may stand for a higher leader epoch (PL-602)
        self.store.read(generation)
        self.pair = Pair(generation, self.rules, self.limits, self.in_a_row_max)
        self.pair.trace = self.trace.append
        self.pair.now = self.now
        self.clock()
        self.outstanding: Write | None = None
        self.fetching: Fetch | None = None
        self.post = Post()
        self.post.drops = self.rng.random() < 0.3
        self.accepted.clear()
        self.seen["letters resumed"] += sum(state == ARCHIVING for _, state, _ in self.store.ranks.values())
        store = self.store
        self.note(self.pair.load(store.start, store.batches, store.ranks, resolved, store.failures, store.reasons))
        self.seen["reasons loaded"] += len(store.reasons)
        self.seen["gaps"] += self.pair.model.records.gap is not None
        self.seen["delays loaded"] += self.delayed

    def clock(self) -> None:
        """Draw a wall clock for this leader, used from now on."""
        self.pair.model.ahead = WALL_MS + self.rng.choice(CLOCKS_AHEAD)

    @property
    def delayed(self) -> int:
        """Return how many records are delayed."""
        return sum(record.is_delayed for record in self.pair.model.records.all.values())

    def note(self, orders: Orders) -> None:
        """Carry out the orders that both agree on."""
        if orders.write is not None:
            if self.outstanding is not None:
                raise DifferenceError("a second write leaves while one is outstanding (PL-705)")
            self.outstanding = orders.write
        for letter in self.pair.letters:
            self.post.add(letter, self.now)
            self.seen["letters"] += sum(last - first + 1 for first, last, _ in letter.ranges)
            self.seen["letters with a reason"] += sum(one.last_offset - one.first_offset + 1 for one in letter.failures)
        for number, (error, _, _) in orders.replies.items():
            self.seen[f"answered {error}"] += 1
            self.check_durable(self.accepted.pop(number, set()) if error == "NONE" else set())
        if orders.ends == ["fenced"]:
            self.postponed()

    def check_durable(self, accepted: set[int]) -> None:
        """PL-1209, INV-4: confirmed changes are stored, whatever happens to this leader now."""
        for offset in accepted:
            stored = self.store.ranks.get(offset, (0, 0))[1] in FINISHED
            if not stored and offset >= max(self.store.start, self.log.start):
                raise DifferenceError(f"{offset} was accepted and answered NONE, and is not stored (PL-1209)")

    def fail_over(self) -> None:
        """Lose leadership. An outstanding write has been stored, will be stored too late, or never is."""
        if self.rng.random() < 0.5:
            return
        fate = self.rng.choice(("landed", "late", "never"))
        if self.outstanding is not None:
            self.seen[f"fail-over, write {fate}"] += 1
            if fate == "landed":
                self.store.write(self.outstanding)
            elif fate == "late":
                self.late.append(self.outstanding)
        self.seen["fail-overs"] += 1
        if self.rng.random() < 0.5:
            self.note(self.pair.drop())  # otherwise the process was killed
        else:
            self.lead()

    def retire(self) -> None:
        """Retire the object: the group's last session ended here (PL-523)."""
        if self.rng.random() < 0.3:
            self.note(self.pair.retire())

    def postponed(self) -> None:
        self.seen["retiring"] += 1
        for number, spans in self.post.leave().items():
            self.note(self.pair.letters_postponed(number, spans))

    def change_rules(self) -> None:
        self.rules = self.pair.rules = self.draw_rules()
        self.committed = self.rng.random() < 0.5
        self.note(self.pair.settings_changed())

    # The log.

    def produce(self) -> None:
        if self.log.end - self.store.start > AHEAD_MAX:
            return
        producer = self.rng.choice((-1, -1, 1, 2)) if self.rng.random() < 0.7 else -1
        self.log.append(self.rng.randint(1, 8), self.rng.choice((0, 0, 0, 2)), producer)

    def end_transaction(self) -> None:
        self.log.end_transaction(self.rng.choice((1, 2)), self.rng.random() < 0.5)

    def log_start(self) -> None:
        if self.rng.random() < 0.5:
            self.log.move_start(self.log.start + self.rng.randint(1, 12))
            self.note(self.pair.log_start(self.log.start))
            self.seen["log starts"] += 1

    def compact(self) -> None:
        self.log.compact(self.rng.randrange(100))
        if self.rng.random() < 0.2 and self.log.end - self.store.start <= AHEAD_MAX:
            self.log.raise_end(self.rng.randint(1, 5))

    # Consumers.

    def fetch(self) -> None:
        rng = self.rng
        if self.fetching is not None:
            return
        budget = rng.randint(1, 20)
        wanted = self.pair.lock(budget)
        if wanted is None:
            self.seen["fetches parked"] += 1
            return
        found = self.log.read(wanted[0], rng.randint(1, 6), self.committed)
        batches = [(one.base_offset, one.last_offset) for one in found.batches]
        if rng.random() < 0.1:
            budget = rng.randint(0, budget)  # the request's other share-partitions have used the rest (PL-204)
        read = Read(
            rng.choice(MEMBERS), rng.random() < 0.5, rng.randint(1, 10), budget, wanted[0], batches, found.hidden
        )  # fmt: skip
        self.fetching = Fetch(read, found, self.committed)
        if rng.random() < 0.8:
            self.end_fetch()

    def end_fetch(self) -> None:
        """End the read, perhaps long after it started."""
        if self.fetching is None:
            return
        fetch, self.fetching = self.fetching, None
        read, found = fetch.read, fetch.found
        if read.offset < self.log.start:
            self.note(self.pair.log_start(self.log.start))
        elif found.batches:
            joined = self.pair.model.records.joined
            orders = self.pair.acquire(read, found.batches, found.aborted, fetch.committed)
            self.note(orders)
            self.seen["acquired"] += len(orders.got or ())
            self.seen["settled pieces joined"] += self.pair.model.records.joined != joined
            self.seen["hidden"] += len(found.hidden)
            return
        elif read.offset < self.log.end and not self.log.has_records_from(read.offset):
            self.note(self.pair.hole(read.offset, self.log.end))
            self.seen["holes"] += 1
        self.pair.unlock()

    def ask(self, member: str, acks: list[Ack]) -> None:
        self.number += 1
        self.said.append((member, acks))
        records = self.pair.model.records
        self.accepted[self.number] = {
            offset
            for first, last, types, *_ in acks
            for offset in range(first, last + 1)
            if kind_at(types, offset - first) == ACCEPT
            and (offset < records.start or offset in records.all)  # not offsets of a hole (PL-405)
        }
        self.note(self.pair.acknowledge(self.number, member, acks))
        rows = [record.in_a_row for record in records.all.values()]
        self.seen["deliveries taken back"] += any(rows)
        self.seen["taken back as often as may be"] += self.pair.model.in_a_row_max in rows

    def held(self, member: str) -> list[tuple[int, int]]:
        """Return the ranges of offsets that a member holds."""
        held = {
            offset: (0, 0)
            for offset, record in self.pair.model.records.all.items()
            if record.holder == member and record.state == ACQUIRED and record.goal is None
        }
        return [(first, last) for first, last, _ in alike(held)]

    def acknowledge(self) -> None:
        """Acknowledge all that a member holds, or parts of it."""
        rng, member = self.rng, self.rng.choice(MEMBERS)
        acks: list[Ack] = []
        for first, last in self.held(member):
            if rng.random() < 0.7:
                low = first if rng.random() < 0.5 else rng.randint(first, last)
                high = last if rng.random() < 0.5 else rng.randint(low, last)
                acks.append(draw_ack(rng, self.rules, low, high))
        if acks:
            self.ask(member, acks)

    def acknowledge_anything(self) -> None:
        """Acknowledge offsets that this member may not hold."""
        rng = self.rng
        acks: list[Ack] = []
        first = rng.randint(max(0, self.pair.model.records.start - 5), self.pair.model.records.next_offset + 3)
        for _ in range(rng.choice((1, 1, 2, 3))):
            last = first + rng.choice((0, 0, 1, 4, 9))
            acks.append(draw_ack(rng, self.rules, first, last))
            first = last + rng.randint(1, 4)
        self.ask(rng.choice(MEMBERS), acks)

    def repeat(self) -> None:
        """Repeat a request whose reply was lost."""
        if self.said:
            self.seen["repeated"] += 1
            self.ask(*self.rng.choice(self.said))

    def close_session(self) -> None:
        self.number += 1
        member = self.rng.choice(MEMBERS)
        only = None
        if self.rng.random() < 0.3:  # the records of one response (PL-505); some were acquired again since
            held = {at: one.count for at, one in self.pair.model.records.all.items() if one.holder == member}
            only = {at: count - (self.rng.random() < 0.1) for at, count in held.items()}
        self.note(self.pair.release(self.number, member, only))

    # Time.

    def pass_time(self) -> None:
        if self.rng.random() < 0.05:
            self.clock()
        self.pair.model.chance = self.rng.choice((0.0, 0.5, 1.0))
        waiting = self.delayed
        due = self.pair.core.next_deadline()
        if due is not None and self.rng.random() < 0.4:
            self.now = max(self.now, due)
        else:
            self.now += self.rng.choice((1, 100, 400, 999, 1_001, 2_500, 6_000))
        self.pair.now = self.now
        if due is not None and due <= self.now and self.rng.random() < 0.7:
            self.note(self.pair.tick())
            after = self.pair.core.next_deadline()
            if after is not None and after <= self.now:
                raise DifferenceError("a deadline that stays due would make the host spin")
            self.seen["delays ended"] += max(0, waiting - self.delayed)

    # The store.

    def taken(self) -> Write | None:
        """Return the outstanding write; the caller decides its outcome."""
        write, self.outstanding = self.outstanding, None
        return write

    def write_succeeds(self) -> None:
        write = self.taken()
        if write is None:
            return
        if self.store.write(write):
            self.note(self.pair.persisted())
        else:
            self.note(self.pair.failed("FENCED_LEADER_EPOCH", False))

    def write_fails(self) -> None:
        """Refuse the write: it is not stored, and never will be."""
        if self.taken() is not None:
            error = self.rng.choice(
                ["COORDINATOR_NOT_AVAILABLE"] * 12 + ["FENCED_STATE_EPOCH", "GROUP_ID_NOT_FOUND", "FENCED_LEADER_EPOCH"]
            )
            self.seen[f"write {error}"] += 1
            self.note(self.pair.failed(error, False))

    def write_unanswered(self) -> None:
        """Leave the outcome unknown: the write is stored now, later, or never."""
        write = self.taken()
        if write is None:
            return
        fate = self.rng.choice(("landed", "late", "never"))
        self.seen[f"write unanswered, {fate}"] += 1
        if fate == "landed":
            self.store.write(write)
        elif fate == "late":
            self.late.append(write)
        self.note(self.pair.failed("REQUEST_TIMED_OUT", True))

    def late_write(self) -> None:
        if self.late:
            taken = self.store.write(self.late.pop(self.rng.randrange(len(self.late))))
            self.seen["late write stored" if taken else "late write fenced"] += 1

    def read_back(self) -> None:
        if not self.pair.model.unknown:
            return
        if self.rng.random() < 0.1:
            self.seen["read-back failed"] += 1
            self.note(self.pair.read_back_failed())
            return
        self.store.read(self.pair.model.generation)
        self.seen["read-back"] += 1
        self.read_stored()

    def read_stored(self) -> None:
        """Return the stored state to the leader, which needs it to settle a write (PL-707)."""
        store = self.store
        known = self.pair.model.reasons
        self.seen["reasons read back"] += sum(known.get(at) != why for at, why in store.reasons.items())
        self.note(self.pair.read_back(store.start, store.batches, store.ranks, store.failures, store.reasons))

    # Letters.

    def letters(self) -> None:
        """Play a round of the post; often the queue is down for a long time."""
        rng = self.rng
        if rng.random() < 0.05:
            self.post.retry(self.now)
        queue = rng.choice(("up", "up", "down", "down", "down", "refusing", "off" if rng.random() < 0.1 else "down"))
        ended = self.post.round(self.now, queue, rng.random(), rng.choice((0, 0, 2)))
        self.seen[f"letters over, queue {queue}"] += len(ended)
        for number, spans in ended.items():
            self.note(self.pair.letters_done(number, spans))
        if self.pair.model.status == "retiring":
            for number, spans in self.post.leave().items():
                self.note(self.pair.letters_postponed(number, spans))
