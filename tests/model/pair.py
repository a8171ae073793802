"""Runs the product's share-partition and the model's leader in parallel: both handle each event and are then
compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from kip932 import errors
from kip932.failures import Failure
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.limits import LIMITS, Limits
from partition_leader.share_partition.core.share_partition import SharePartition
from partition_leader.share_partition.core.status import Status
from partition_leader.share_partition.core.transitions import DELAYED, PENDING, STATE_MASK
from partition_leader.share_partition.delay_clock import on_the_leader, on_the_wall
from shard_runtime.config.group_config import Backoff, GroupConfig
from tests.model.fetching import Read
from tests.model.leader import Leader
from tests.model.orders import Ack, Orders
from tests.model.records import Rank, Reason, Rules, alike

STATUS: Final = {
    Status.INITIALIZING: "initializing",
    Status.ACTIVE: "active",
    Status.RETIRING: "retiring",
    Status.FENCED: "gone",
    Status.FAILED: "gone",
}
CAUSES: Final = {
    fx.CAUSE_ACK: "ack",
    fx.CAUSE_SESSION_RELEASE: "session_release",
    fx.CAUSE_LOCK_EXPIRY: "lock_expiry",
    fx.CAUSE_DLQ: "dlq",
    fx.CAUSE_ADMIN: "admin",
    fx.CAUSE_INIT: "init",
    fx.CAUSE_CATCH_UP: "cold",
}
ERRORS: Final[dict[str, errors.KafkaError]] = {
    "COORDINATOR_NOT_AVAILABLE": errors.CoordinatorNotAvailableError("away"),
    "REQUEST_TIMED_OUT": errors.RequestTimedOutError("no answer"),
    "FENCED_LEADER_EPOCH": errors.FencedLeaderEpochError("another leads"),
    "FENCED_STATE_EPOCH": errors.FencedStateEpochError("reset"),
    "GROUP_ID_NOT_FOUND": errors.GroupIdNotFoundError("deleted"),
}


class DifferenceError(AssertionError):
    """The product and the model disagree; the message says on what."""


def settings_of(rules: Rules) -> GroupConfig:
    return GroupConfig(
        rules.lock_ms, rules.limit, rules.locks_max, rules.renew, rules.dlq, rules.letters_max,
        Backoff(rules.initial, rules.multiplier, rules.longest, rules.jitter), rules.delay_max, rules.delayed_max,
    )  # fmt: skip


class Pair:
    """One share-partition object and its model. `steps`: events that both have handled, each followed by a comparison.

    Each method is one event. It returns the orders that both agree on, in the model's terms.
    """

    def __init__(self, generation: int, rules: Rules, limits: Limits = LIMITS, in_a_row_max: int = 10) -> None:
        self.model = Leader(generation, rules, in_a_row_max, limits.settled_changes)
        self.core = SharePartition(generation, chance=lambda: self.model.chance, limits=limits)
        self.squeezes = limits.merged_batches < LIMITS.merged_batches
        self.rules = rules
        self.now = 0
        self.steps = 0
        self.trace: Callable[[str], None] = lambda _: None
        self.letters: list[fx.DeadLetter] = []  # new ones from the last event, for the post
        self._write_id = 0

    # Events.

    def load(  # noqa: PLR0917 - what is stored, each as product and model keep it
        self,
        start: int,
        batches: Sequence[StateBatch],
        stored: dict[int, Rank],
        resolved: bool,
        failures: Sequence[Failure] = (),
        reasons: dict[int, Reason] | None = None,
    ) -> Orders:
        event = ev.Initialized(1, start, self._read(batches), resolved, settings_of(self.rules), failures)
        orders = self._step(event, lambda: self.model.loaded(start, stored, resolved, reasons or {}), self.rules)
        self.core._state.window.undelivered.in_a_row_max = self.model.in_a_row_max
        return orders

    def lock(self, budget: int) -> tuple[int, int] | None:
        """Ask for the fetch lock; return the read that is ordered."""
        effects = self.core.handle(ev.TakeFetchLock(1, budget, settings_of(self.rules)), self.now)
        orders = [one for one in effects if isinstance(one, fx.ReadLog)]
        could = self.model.status == "active" and self.model.records.can_acquire(self.rules)
        _same("a fetch may acquire", bool(orders), could)
        if not orders:
            return None
        first = self.model.records.next_fetch()
        wanted = (first, max(0, self.model.records.next_offset - first) + budget)
        _same("the read of a fetch", (orders[0].first_offset, orders[0].offsets_max), wanted)
        return wanted

    def unlock(self) -> None:
        """End a fetch without acquiring."""
        self.core.handle(ev.ReleaseFetchLock(1), self.now)
        _same("fetch lock", self.core.fetch_lock, None)

    def acquire(
        self, read: Read, batches: Sequence[Any], aborted: tuple[ev.AbortedTransaction, ...], committed: bool
    ) -> Orders:
        event = ev.Acquire(
            1, read.member, int(read.exact), read.batch_size, read.budget, read.offset, batches,
            batches[-1].last_offset if batches else -1, committed, aborted, settings_of(self.rules),
        )  # fmt: skip
        return self._step(event, lambda: self.model.acquire(read, self.rules), self.rules)

    def acknowledge(self, number: int, member: str, acks: Sequence[Ack]) -> Orders:
        batches = tuple(ev.AckBatch(*ack) for ack in acks)
        event = ev.Acknowledge(number, member, batches, settings_of(self.rules))
        return self._step(event, lambda: self.model.acknowledge(number, member, acks, self.rules), self.rules)

    def release(self, number: int, member: str, only: dict[int, int] | None) -> Orders:
        ranges = None if only is None else [(first, last, count) for first, last, (count, _) in alike(
            {offset: (count, 0) for offset, count in only.items()}
        )]  # fmt: skip
        event = ev.Release(number, member, settings_of(self.rules), ranges)
        return self._step(event, lambda: self.model.release(number, member, self.rules, only), self.rules)

    def log_start(self, start: int) -> Orders:
        return self._step(ev.LogStartMoved(start), lambda: self.model.log_start(start))

    def hole(self, first: int, end: int) -> Orders:
        return self._step(ev.HoleFound(first, end), lambda: self.model.hole(first, end))

    def persisted(self) -> Orders:
        return self._step(ev.Persisted(self._write_id), self.model.persisted)

    def failed(self, error: str, unknown: bool) -> Orders:
        event = ev.PersistFailed(self._write_id, ERRORS[error], unknown)
        return self._step(event, lambda: self.model.failed(error, unknown))

    def read_back(
        self,
        start: int,
        batches: Sequence[StateBatch],
        stored: dict[int, Rank],
        failures: Sequence[Failure],
        reasons: dict[int, Reason],
    ) -> Orders:
        event = ev.ReadBack(self.model.generation, 1, start, self._read(batches), failures)
        return self._step(event, lambda: self.model.read_back(start, stored, reasons))

    def read_back_failed(self) -> Orders:
        event = ev.ReadBackFailed(self.model.generation, ERRORS["REQUEST_TIMED_OUT"])
        return self._step(event, self.model.read_back_failed)

    def tick(self) -> Orders:
        return self._step(ev.Tick(settings_of(self.rules)), self.model.tick, self.rules)

    def settings_changed(self) -> Orders:
        return self._step(ev.SettingsChanged(settings_of(self.rules)), lambda: None, self.rules)

    def letters_done(self, number: int, spans: list[tuple[int, int]] | None) -> Orders:
        event = ev.DlqDone(number, None if spans is None else tuple(spans))
        return self._step(event, lambda: self.model.letters_done(number, _offsets(spans)))

    def letters_postponed(self, number: int, spans: list[tuple[int, int]]) -> Orders:
        event = ev.DlqPostponed(number, tuple(spans))
        return self._step(event, lambda: self.model.letters_back(number, _offsets(spans)) and None)

    def retire(self) -> Orders:
        return self._step(ev.Retire(ERRORS["GROUP_ID_NOT_FOUND"]), self.model.let_go)

    def drop(self) -> Orders:
        return self._step(ev.Drop(errors.NotLeaderOrFollowerError("gone")), self.model.stop)

    # The clocks, as the host reads them.

    def now_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return self.now + self.model.ahead

    def _read(self, batches: Sequence[StateBatch]) -> tuple[StateBatch, ...]:
        return on_the_leader(batches, self, self.rules.delay_max)

    # One step.

    def _step(self, event: ev.Event, change: Callable[[], object], rules: Rules | None = None) -> Orders:
        self.trace(f"{self.now} {event}")
        could_fetch = self.core.can_fetch(settings_of(self.rules))
        self._forget()
        effects = self.core.handle(event, self.now)
        self.core.check()
        wanted = self.model.begin(self.now, rules)
        change()
        wanted = self.model.conclude()
        self.steps += 1
        self._compare_orders(effects, wanted)
        self._compare_memory()
        can_fetch = self.core.can_fetch(settings_of(self.rules))
        if can_fetch and not could_fetch and not any(isinstance(one, fx.Wake) for one in effects):
            raise DifferenceError("a fetch became possible, and no waiter is woken (PL-214)")
        return wanted

    def _forget(self) -> None:
        """If finished batches are joined, the product may forget offsets below the start offset; a lock there, for
        example, then no longer counts, and they are cut out of their piece (PL-622, PL-915, 12.19). So what PL-622 says
        about such records, that they can be acknowledged and are archived in the end, is compared where nothing is
        joined."""
        records = self.model.records
        if self.squeezes:
            window = self.core._state.window
            below = [offset for offset in records.all if offset < records.start]
            for offset in [offset for offset in below if not any(window.overlapping(offset, offset))]:
                del records.all[offset]
                for at, record in records.all.items():
                    first, last = record.piece
                    if first <= offset <= last:
                        record.piece = (first, offset - 1) if at < offset else (offset + 1, last)

    def _compare_orders(self, effects: Sequence[fx.Effect], wanted: Orders) -> None:
        found = Orders()
        letters: list[fx.DeadLetter] = []
        for effect in effects:
            if isinstance(effect, fx.Reply):
                name = "NONE" if effect.error is None else effect.error.name
                found.replies[effect.op_id] = (name, effect.persisted, tuple(effect.acknowledged))
            elif isinstance(effect, fx.Persist):
                self._write_id = effect.write_id
                batches = on_the_wall(effect.state_batches, self) if effect.has_delays else effect.state_batches
                found.write = (
                    effect.generation, effect.start_offset, effect.delivery_complete_count,
                    _states(batches), effect.speo, reasons_of(effect.failures),
                )  # fmt: skip
                causes = {name for bit, name in CAUSES.items() if effect.cause & bit}
                found.wrote = (causes, tuple(effect.counters))
            elif isinstance(effect, fx.DeadLetter):
                letters.append(effect)
                _add(found.letters.setdefault(effect.cause, {}), effect.ranges)
                found.said |= {
                    offset: reason for offset, (_, reason) in reasons_of(effect.failures, joined=False).items()
                }
            elif isinstance(effect, fx.Archived):
                _add(found.reported.setdefault(effect.cause, {}), effect.ranges)
            elif isinstance(effect, fx.ReadBackWanted):
                found.read_back = effect.generation
            elif isinstance(effect, fx.Acquired):
                found.got = {}
                _add(found.got, effect.ranges)
            elif isinstance(effect, fx.Fenced | fx.Dropped):
                found.ends.append(type(effect).__name__.lower())
        for name in Orders.__slots__:
            _same(f"orders: {name}", getattr(found, name), getattr(wanted, name))
        for letter in letters:
            self.model.letters_sent(letter.dead_letter_id, letter.cause)
        self.letters = letters

    def _compare_memory(self) -> None:
        core, model = self.core, self.model
        records, window = model.records, core._state.window
        _same("status", STATUS[core.status], model.status)
        _same("generation", core.generation, model.generation)
        if model.status == "gone":
            return
        _same("start offset", core.start_offset, records.start)
        _same("end offset", window.end_offset, records.end)
        _same("gap window", window.open_gap, records.open_gap)
        found = {
            offset: (code & STATE_MASK, bool(code & PENDING), bool(code & DELAYED), count, member, end)
            for batch in window.walk()
            for first, last, code, count, member, end in batch.lock_runs(batch.first, batch.last)
            for offset in range(first, last + 1)
            if offset >= records.start
        }
        wanted = {
            offset: (
                record.shown,
                record.goal is not None,
                record.shown == 0 and bool(record.until),
                record.count,
                record.holder,
                record.until if record.is_delayed else record.lock_end,
            )
            for offset, record in records.all.items()
            if offset >= records.start
        }
        if found != wanted:
            both = {at: (found.get(at), wanted.get(at)) for at in sorted(found.keys() | wanted.keys())}
            unlike = {at: pair for at, pair in both.items() if pair[0] != pair[1]}
            raise DifferenceError(
                f"records (state, pending, delayed, count, holder, end), product and model: {unlike}; all: {both}"
            )
        # A write that ends after the object's retirement passes records that stay in memory as they were.
        passed = max(records.start, model.confirmed)
        kept = {offset: why for offset, why in reasons_of(core._state.reasons.failures).items() if offset >= passed}
        _same("reasons kept", kept, {offset: why for offset, why in model.reasons.items() if offset >= passed})
        rows = {offset: window.undelivered.times(offset, found[offset][3]) for offset in found}
        _same("taken back in a row", rows, {offset: records.all[offset].in_a_row for offset in wanted})
        if not self.squeezes:
            _same("pieces", [(batch.first, batch.last) for batch in window.walk()], records.pieces)
        _same("letters out", core._state.dead_letters.waiting, len(records.letters_out))
        if model.status == "active":
            _same("next offset to fetch", core.next_fetch_offset(), records.next_fetch())
            overview = core.overview()
            _same("dcc", overview.delivery_complete_count, model.standing[1])
            shown = {
                offset: (one.count, one.shown, 0) for offset, one in records.all.items() if offset >= records.start
            }
            _same("overview", _states(overview.records), shown)
            _same("room", core.can_acquire(settings_of(self.rules)), records.can_acquire(self.rules))
            _same("letters full", core.dead_letters_full(settings_of(self.rules)), records.letters_full(self.rules))
        deadline, wanted_deadlines = core.next_deadline(), model.deadlines()
        if deadline not in wanted_deadlines:
            raise DifferenceError(f"next deadline: product {deadline}, model {wanted_deadlines}")


def _same(what: str, product: object, model: object) -> None:
    if product != model:
        raise DifferenceError(f"{what}: product {product}, model {model}")


def _add(into: dict[int, int], ranges: Iterable[fx.AcquiredRange]) -> None:
    previous = -1
    for first, last, count in ranges:
        if not previous < first <= last:
            raise DifferenceError(f"ranges that are not ascending: {ranges}")
        previous = last
        for offset in range(first, last + 1):
            if offset in into:
                raise DifferenceError(f"{offset} twice in {ranges}")
            into[offset] = count


def reasons_of(failures: Sequence[Failure], joined: bool = True) -> dict[int, Reason]:
    """Return the reason of each offset; check that failures ascend without overlap, and that equal neighbours are
    joined."""
    reasons: dict[int, Reason] = {}
    for first, last, count, reason in failures:
        if last < first or not reason or any(offset >= first for offset in reasons):
            raise DifferenceError(f"reasons that overlap or are empty: {failures}")
        reasons |= dict.fromkeys(range(first, last + 1), (count, reason))
    if joined:
        _same("reasons, joined", list(failures), [Failure(first, last, *why) for first, last, why in alike(reasons)])
    return reasons


def _states(batches: Sequence[StateBatch]) -> dict[int, Rank]:
    """Return the rank of each offset; check that batches ascend without overlap and that equal neighbours are joined
    (PL-703)."""
    states: dict[int, Rank] = {}
    for first, last, state, count, until in batches:
        for offset in range(first, last + 1):
            if offset in states:
                raise DifferenceError(f"{offset} twice in the state batches {batches}")
            states[offset] = (count, state, until)
    joined = [(first, last) for first, last, _ in alike(states)]
    _same("state batches, joined", [(one.first_offset, one.last_offset) for one in batches], joined)
    return states


def _offsets(spans: list[tuple[int, int]] | None) -> set[int] | None:
    return None if spans is None else {offset for first, last in spans for offset in range(first, last + 1)}
