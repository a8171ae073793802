"""B8: the cost of the state machine of one share-partition by itself, in µs of process CPU time per delivered record.

Drives `partition_leader.share_partition.core` without I/O, log or store, and measures only the core's time. Acquiring,
acknowledging and the result of the write all count. A window of `in_flight` records is kept full, with 500 records per
fetch and per acknowledgement, in the order of delivery. The workloads:

- uniform: every record is accepted, with one type for a whole range;
- per-record: one acknowledgement for each record, 20 of them per write (natural batching of PL-705);
- alternating: first deliveries are accepted and released in turn; redelivered records are accepted one by one;
- exhausting: accept and release in turn at every delivery, up to the delivery limit, so that the isolation of the last
  deliveries (PL-240) makes most fetches small. Only its growth has a limit;
- stuck: a window fills up after a record at the start offset that another member holds. `clear` is its control: the
  same deliveries, with that record accepted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.goals import ALTERNATING, GROWTH, STUCK, Limit
from benchmarks.report import median
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.share_partition import SharePartition
from partition_leader.topic_log.core.batch import LogBatch
from shard_runtime.config.group_config import GroupConfig

FETCH: Final = 500
WINDOWS: Final = (1_000, 10_000, 50_000)
ACKS_PER_WRITE: Final = 20
ACCEPT: Final = b"\x01"
RELEASE: Final = b"\x02"
ALTERNATELY: Final = b"\x01\x02" * FETCH
_LOCK_MS: Final = 30_000
_Range = tuple[int, int, int]  # first and last offset, delivery count


class Driver:
    """One share-partition with its log, a member that fetches, and a coordinator that responds at once."""

    def __init__(self, in_flight_max: int, log: tuple[LogBatch, ...]) -> None:
        self.settings = GroupConfig(lock_ms=_LOCK_MS, max_record_locks=in_flight_max)
        self.log = log
        self.core = SharePartition(generation=1)
        self.held: deque[_Range] = deque()  # what the member has not acknowledged yet, in the order of delivery
        self.delivered = 0
        self.cpu_s = 0.0
        self._now_ms = 0
        self._operation = 0
        self.core.handle(ev.Initialized(1, 0, (), False, self.settings), 0)

    def play(self, events: Sequence[ev.Event], events_per_write: int = 1) -> list[fx.Effect]:
        """Hand the events to the core and measure its time; ask for the next deadline after each, as the host does.

        A write becomes durable `events_per_write` events later, and the last writes before this returns.
        """
        self._now_ms += 1
        handle, deadline, now_ms = self.core.handle, self.core.next_deadline, self._now_ms
        seen: list[fx.Effect] = []
        write: fx.Persist | None = None
        began = time.process_time()
        for number, event in enumerate(events, 1):
            effects = handle(event, now_ms)
            deadline()
            seen += effects
            write = _write_in(effects) or write
            while write is not None and (number % events_per_write == 0 or number == len(events)):
                effects = handle(ev.Persisted(write.write_id), now_ms)
                deadline()
                seen += effects
                write = _write_in(effects)
                if number < len(events):
                    break
        self.cpu_s += time.process_time() - began
        for effect in seen:
            if type(effect) is fx.Reply and effect.error is not None:
                raise AssertionError(f"the workload is wrong: {effect.error}")
        return seen

    def fetch(self, member: str = "member", max_records: int = FETCH) -> int:
        """Fetch once as the host does, reading the window and `max_records` more. Returns how many it acquired."""
        locked = self.core.handle(ev.TakeFetchLock(1, max_records, self.settings), self._now_ms)
        if not locked:
            return 0
        (order,) = [effect for effect in locked if type(effect) is fx.ReadLog]
        offset = order.first_offset
        read = self.log[offset // FETCH : (offset + order.offsets_max - 1) // FETCH + 1]
        last_read = read[-1].last_offset
        acquire = ev.Acquire(1, member, 0, FETCH, max_records, offset, read, last_read, False, (), self.settings)
        acquired = 0
        for effect in self.play([acquire]):
            if type(effect) is fx.Acquired:
                self.held.extend(effect.ranges)
                acquired += effect.record_count
        self.delivered += acquired
        return acquired

    def fill(self) -> None:
        """Fetch until the record locks are used up."""
        while self.fetch():
            pass

    def take(self, records: int) -> list[_Range]:
        """Remove and return the ranges of the oldest deliveries, at most `records` records."""
        held, found = self.held, []
        while held and records > 0:
            first, last, count = held.popleft()
            if last - first + 1 > records:
                held.appendleft((first + records, last, count))
                last = first + records - 1
            records -= last - first + 1
            found.append((first, last, count))
        return found

    def acknowledgement(self, *batches: ev.AckBatch) -> ev.Acknowledge:
        """Return an acknowledgement by the member."""
        self._operation += 1
        return ev.Acknowledge(self._operation, "member", batches, self.settings)


def _write_in(effects: list[fx.Effect]) -> fx.Persist | None:
    for effect in effects:
        if type(effect) is fx.Persist:
            return effect
    return None


# Workloads: prepare without measuring, then run until `records` have been delivered.


@dataclass(frozen=True, slots=True)
class Case:
    """One workload at one window."""

    workload: str
    in_flight: int


def _steady(step: Callable[[Driver], None], in_flight: int, records: int) -> tuple[float, int]:
    driver = Driver(in_flight, _log(in_flight + 2 * records))
    driver.fill()
    # Deliver the window twice, so that it is in a steady state before the measurement.
    _deliver(driver, step, 2 * in_flight)
    began, spent = driver.delivered, driver.cpu_s
    _deliver(driver, step, records)
    return driver.cpu_s - spent, driver.delivered - began


def _deliver(driver: Driver, step: Callable[[Driver], None], records: int) -> None:
    until = driver.delivered + records
    while driver.delivered < until:
        step(driver)
        driver.fill()


def _uniform_step(driver: Driver) -> None:
    batches = [ev.AckBatch(first, last, ACCEPT) for first, last, _ in driver.take(FETCH)]
    driver.play([driver.acknowledgement(*batches)])


def _alternating_step(driver: Driver, again: bool = False) -> None:
    at, batches = 0, []
    for first, last, count in driver.take(FETCH):
        size = last - first + 1
        batches.append(ev.AckBatch(first, last, ALTERNATELY[at : at + size] if again or count == 1 else ACCEPT))
        at += size
    driver.play([driver.acknowledgement(*batches)])


def _exhausting_step(driver: Driver) -> None:
    _alternating_step(driver, again=True)


def _per_record_step(driver: Driver) -> None:
    offsets = [offset for first, last, _ in driver.take(FETCH) for offset in range(first, last + 1)]
    acks = [driver.acknowledgement(ev.AckBatch(offset, offset, ACCEPT)) for offset in offsets]
    driver.play(acks, ACKS_PER_WRITE)


def _filling(stuck: bool, in_flight: int, records: int) -> tuple[float, int]:
    log = _log(in_flight + FETCH)
    drivers = [_begun(Driver(in_flight, log), stuck) for _ in range(max(1, records // in_flight))]
    before = sum(driver.delivered for driver in drivers)
    spent = sum(driver.cpu_s for driver in drivers)
    for driver in drivers:
        for _ in range(in_flight // FETCH - 1):
            driver.fetch()
            _uniform_step(driver)
    if any((driver.core.start_offset == 0) is not stuck for driver in drivers):
        raise AssertionError("the workload is wrong: the start offset is not where the stuck record says")
    return sum(driver.cpu_s for driver in drivers) - spent, sum(driver.delivered for driver in drivers) - before


def _begun(driver: Driver, stuck: bool) -> Driver:
    """Finish the first FETCH records; when `stuck`, another member acquires the very first one and holds it."""
    driver.fetch()
    first = 0
    if stuck:
        driver.play([driver.acknowledgement(ev.AckBatch(0, 0, RELEASE))])
        driver.fetch("keeper", max_records=1)
        first = 1
    driver.play([driver.acknowledgement(ev.AckBatch(first, FETCH - 1, ACCEPT))])
    driver.held.clear()
    return driver


def _log(records: int) -> tuple[LogBatch, ...]:
    return tuple(LogBatch(base, base + FETCH - 1, 0, b"", 0, 0) for base in range(0, records + 2 * FETCH, FETCH))


_WORKLOADS: Final[dict[str, Callable[[int, int], tuple[float, int]]]] = {
    "uniform": lambda in_flight, records: _steady(_uniform_step, in_flight, records),
    "per-record": lambda in_flight, records: _steady(_per_record_step, in_flight, records),
    "alternating": lambda in_flight, records: _steady(_alternating_step, in_flight, records),
    "exhausting": lambda in_flight, records: _steady(_exhausting_step, in_flight, records),
    "clear": lambda in_flight, records: _filling(False, in_flight, records),
    "stuck": lambda in_flight, records: _filling(True, in_flight, records),
}
WORKLOADS: Final = tuple(_WORKLOADS)


def measure(case: Case, records: int) -> dict[str, Any]:
    """Run one case once."""
    cpu_s, delivered = _WORKLOADS[case.workload](case.in_flight, records)
    return {
        "benchmark": "B8",
        "workload": case.workload,
        "in_flight": case.in_flight,
        "delivered": delivered,
        "cpu_s": round(cpu_s, 6),
        "us_per_record": round(cpu_s * 1e6 / delivered, 4),
    }


def run(
    rounds: int, records: int, windows: tuple[int, ...], emit: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """Run all cases in turn in each round; pass every run to `emit`."""
    runs = []
    for number in range(1, rounds + 1):
        for workload in WORKLOADS:
            for in_flight in windows:
                result = measure(Case(workload, in_flight), max(records, 4 * in_flight)) | {"round": number}
                emit(result)
                runs.append(result)
    return runs


@dataclass(frozen=True, slots=True)
class Row:
    """One case against its limit; `ratio` is the median over the per-round ratios."""

    case: Case
    us: float
    ratio: float
    against: str
    limit: Limit | None

    @property
    def verdict(self) -> str:
        """The text ok or BROKEN, or - for the case with which the others are compared."""
        if self.limit is None:
            return "-"
        return "ok" if self.limit.holds(self.ratio, self.us) else "BROKEN"


def rows(runs: list[dict[str, Any]]) -> list[Row]:
    """Return every case against its limits of §3: growth of each workload, alternating / uniform, stuck / clear."""
    cost: dict[Case, dict[int, float]] = {}
    for run_ in runs:
        cost.setdefault(Case(run_["workload"], run_["in_flight"]), {})[run_["round"]] = run_["us_per_record"]
    smallest = min(case.in_flight for case in cost)
    found: list[Row] = []

    def add(case: Case, other: Case, limit: Limit) -> None:
        ratio = median([us / cost[other][number] for number, us in cost[case].items()])
        name = f"{other.workload} {other.in_flight}"
        found.append(Row(case, median(list(cost[case].values())), ratio, name, None if case == other else limit))

    for case in cost:
        add(case, Case(case.workload, smallest), GROWTH)
        if case.workload == "alternating":
            add(case, Case("uniform", case.in_flight), ALTERNATING)
        if case.workload == "stuck":
            add(case, Case("clear", case.in_flight), STUCK)
    return found


def table(runs: list[dict[str, Any]]) -> str:
    """Return the cases, their ratios and the limits as a text table."""
    lines = [f"{'B8 workload':<13}{'in flight':>10}{'µs/record':>11}{'ratio':>8}  {'against':<20}{'limit':<16}verdict"]
    for row in rows(runs):
        limit = "-"
        if row.limit is not None:
            limit = f"{row.limit.ratio_max:g}x" + (f", {row.limit.us_max:g} µs" if row.limit.us_max else "")
        lines.append(
            f"{row.case.workload:<13}{row.case.in_flight:>10,}{row.us:>11.3f}{row.ratio:>8.2f}  "
            f"{row.against:<20}{limit:<16}{row.verdict}"
        )
    return "\n".join(lines)
