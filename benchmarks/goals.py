"""The limits of performance.md §3 and the goals of §5, which ratios are compared with. Measures nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True)
class Goal:
    """One row of §5. With `lower_is_better` the three numbers are upper bounds."""

    name: str
    must: float
    good: float
    excellent: float
    lower_is_better: bool = False

    def grade(self, ratio: float) -> str:
        """Return the best of excellent, good and must that the ratio reaches, or MISSED."""
        for name, bound in (("excellent", self.excellent), ("good", self.good), ("must", self.must)):
            if ratio <= bound if self.lower_is_better else ratio >= bound:
                return name
        return "MISSED"


CONSUME_1P1C: Final = Goal("B1 1p1c consume / Valkey group", 0.8, 1.3, 2.0)
CONSUME_1P4C: Final = Goal("B1 1p4c consume / Valkey group", 1.2, 1.8, 2.4)
CONSUME_4P4C: Final = Goal("B1 4p4c consume / Valkey group", 1.2, 1.8, 2.4)
CONSUME_1K: Final = Goal("B2 1p1c consume / Valkey group", 0.8, 1.2, 1.6)
BOTH_1P1C: Final = Goal("B1 1p1c produce + consume / Valkey group", 1.5, 2.2, 3.0)
CYCLES_1P1C: Final = Goal("B1 1p1c polls of 500 per s / B4 (52 KB)", 0.25, 0.33, 0.45)
CPU_1P4C: Final = Goal("B1 1p4c CPU per record / Valkey group", 1.0, 0.7, 0.5, lower_is_better=True)
CPU_4P4C: Final = Goal("B1 4p4c CPU per record / Valkey group", 1.0, 0.7, 0.5, lower_is_better=True)
ONE_BY_ONE: Final = Goal("B5 1p1c ops per s / B4 (20 B)", 0.28, 0.42, 0.6)
RELEASES: Final = Goal("B9 releases / B1 throughput", 0.5, 0.7, 0.85)
LATENCY: Final = Goal("B6 p50 / NATS JetStream", 12.0, 6.0, 3.0, lower_is_better=True)
LATENCY_P99: Final = Goal("B6 p99 / NATS JetStream", 10.0, 5.0, 3.0, lower_is_better=True)
KAFKA_CONSUME: Final = Goal("B1 1p1c consume / Kafka (B10)", 0.3, 0.7, 1.0)
ONE_BY_ONE_16: Final = Goal("B5 16 consumers / 1 consumer", 3.0, 4.0, 5.0)

#: B7: a cost counts as flat if it grows by no more than this factor when one quantity is ten times larger.
FLAT: Final = 1.2

#: The consume goals by benchmark and shape.
CONSUME: Final = {
    ("B1", "1p1c"): CONSUME_1P1C,
    ("B1", "1p4c"): CONSUME_1P4C,
    ("B1", "4p4c"): CONSUME_4P4C,
    ("B2", "1p1c"): CONSUME_1K,
}
BOTH: Final = {("B1", "1p1c"): BOTH_1P1C}
CPU: Final = {("B1", "1p4c"): CPU_1P4C, ("B1", "4p4c"): CPU_4P4C}


class Bound(NamedTuple):
    """One bound of §5 on B15: of a field, in a case, divided by the same of the system `below`; "" is no division."""

    field: str
    case: str
    below: str
    bound: float
    lower_is_better: bool = False

    def verdict(self, value: float) -> str:
        """Return whether the value keeps the bound."""
        return "met" if (value <= self.bound if self.lower_is_better else value >= self.bound) else "MISSED"


_B15_DRAINS: Final = ("1p1c", "1p4c", "4p4c", "1KiB")
#: B15: Kafka's client at our node, beside itself at a broker and beside our own client.
TWO_SERVERS: Final = (
    *(Bound("consume_per_s", case, "broker", 1.3) for case in (*_B15_DRAINS, "java")),
    *(Bound("produce_per_s", case, "broker", bound) for case, bound in (("1p1c", 0.8), ("java", 0.8), ("1KiB", 0.6))),
    Bound("p50_ms", "1000/s", "broker", 3.0, lower_is_better=True),
    *(
        Bound(field, case, "broker", 1.2, lower_is_better=True)
        for field in ("consume_us", "produce_us")
        for case in _B15_DRAINS
    ),
    *(Bound("memory_mib", case, "broker", 0.25, lower_is_better=True) for case in ("1KiB", "memory")),
    Bound("first_s", "first", "", 0.1, lower_is_better=True),
    *(Bound("consume_per_s", case, "native", bound) for case, bound in (("1p1c", 0.4), ("1p4c", 0.9), ("4p4c", 0.55))),
    Bound("produce_per_s", "1p1c", "native", 1.0),
    Bound("p50_ms", "200/s", "native", 1.0, lower_is_better=True),
)


class Limit(NamedTuple):
    """One limit of §3 on B8: a ratio, and for some also a cost in µs per delivered record."""

    name: str
    ratio_max: float
    us_max: float | None = None

    def holds(self, ratio: float, us: float) -> bool:
        """Return whether a case is within the limit."""
        return ratio <= self.ratio_max and (self.us_max is None or us <= self.us_max)


#: Cost at a large window / cost at the smallest window of the same workload.
GROWTH: Final = Limit("in-flight records, against the smallest window", 1.5)
#: Alternating accept and release / uniform, at the same window.
ALTERNATING: Final = Limit("alternating accept / release, against uniform", 12.0, 4.0)
#: One record stuck Acquired at the start offset / the same deliveries without it, at the same window.
STUCK: Final = Limit("one record stuck at the start offset, against none", 1.1)

#: A run is flagged when other processes used more than this share of the machine.
FOREIGN_CPU_MAX: Final = 0.10
