"""The figures of `sharegroups perf` in Kafka's layout: rows of consumers, lines of a producer, dates, latencies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

HEADER: Final = "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"
_MB: Final = 1024 * 1024
#: The maximum number of latencies that are kept for percentiles; with more records, only every second, third, … is
#: kept.
_LATENCIES_MAX: Final = 500_000
_PERCENTILES: Final = ((0.5, "50th"), (0.95, "95th"), (0.99, "99th"), (0.999, "99.9th"))
_TOKEN: Final = re.compile(r"y+|M+|d+|H+|m+|s+|S+|'[^']*'|[^A-Za-z']+")
_DIRECTIVES: Final = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


class DateFormat:
    """Formats times as Java's SimpleDateFormat does, in local time. Raises ValueError for unknown pattern letters."""

    def __init__(self, pattern: str) -> None:
        self._parts: list[str] = _TOKEN.findall(pattern)
        strange = "".join(self._parts) != pattern
        letters = [part for part in self._parts if part[0].isalpha()]
        if strange or not all(part in _DIRECTIVES or part == "SSS" for part in letters):
            raise ValueError(f"{pattern!r} is not made of yyyy, MM, dd, HH, mm, ss, SSS, signs and 'text'")

    def text(self, time_ms: int) -> str:
        """Format a time, given in ms since 1970."""
        moment = datetime.fromtimestamp(time_ms / 1000)
        return "".join(self._part(part, moment, time_ms) for part in self._parts)

    @staticmethod
    def _part(part: str, moment: datetime, time_ms: int) -> str:
        if part == "SSS":
            return f"{time_ms % 1000:03}"
        return moment.strftime(_DIRECTIVES[part]) if part in _DIRECTIVES else part.strip("'")


@dataclass(slots=True)
class Consumed:
    """The records that one consumer, or all of them, had received by `end_ms`. Times are ms since 1970; `first_ms` and
    `last_ms` are those of the first and the last record, or 0."""

    start_ms: int
    end_ms: int
    records: int = 0
    size: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def close(self) -> None:
        """End the time with the last record, so that no rate includes the wait for another one."""
        self.end_ms = self.last_ms or self.end_ms

    def row(self, dates: DateFormat) -> str:
        """Return the row under HEADER."""
        elapsed_ms = self.end_ms - self.start_ms
        megabytes, per_s = self.size / _MB, 1000 / max(1, elapsed_ms)
        return (
            f"{dates.text(self.start_ms)}, {dates.text(self.end_ms)}, {megabytes:.4f}, {megabytes * per_s:.4f}, "
            f"{self.records * per_s:.4f}, {self.records}, {elapsed_ms}"
        )

    def values(self) -> dict[str, object]:
        """Return the row's figures for JSON output: times in ms since 1970, sizes in bytes, rates per second (CT-33).

        The figures that need a first record are None if no record was received.
        """
        per_s, first_per_s = 1000 / max(1, self.end_ms - self.start_ms), 1000 / max(1, self.end_ms - self.first_ms)
        return {
            "start_ms": self.start_ms,
            "end_ms": self.end_ms,
            "records": self.records,
            "bytes": self.size,
            "records_per_second": self.records * per_s,
            "bytes_per_second": self.size * per_s,
            "first_record_after_ms": self.first_ms - self.start_ms if self.first_ms else None,
            "records_per_second_after_the_first": self.records * first_per_s if self.first_ms else None,
        }

    def from_the_first(self) -> str:
        """Return the rates from the first record on, as text. The row's rates include the time to join the group."""
        per_s = 1000 / max(1, self.end_ms - self.first_ms)
        return (
            f"The first record came after {self.first_ms - self.start_ms} ms; from then on "
            f"{self.size / _MB * per_s:.4f} MB and {self.records * per_s:.4f} records per second."
        )


@dataclass(slots=True)
class Sent:
    """Confirmed records of a producer: their number, total size in bytes, and latencies in ms."""

    stride: int = 1
    records: int = 0
    size: int = 0
    total_ms: float = 0.0
    most_ms: float = 0.0
    samples: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, records: int) -> Sent:
        """Return an empty object for that many records, with a bounded number of samples."""
        return cls(stride=-(-records // _LATENCIES_MAX))

    def add(self, size: int, latency_ms: float) -> None:
        """Add one confirmed record."""
        if self.records % self.stride == 0:
            self.samples.append(latency_ms)
        self.records += 1
        self.size += size
        self.total_ms += latency_ms
        self.most_ms = max(self.most_ms, latency_ms)

    def line(self, elapsed_s: float, *, with_percentiles: bool) -> str:
        """Return the line for an interval, or the last line, which has percentiles."""
        per_s = 1 / max(1e-3, elapsed_s)
        average_ms = self.total_ms / max(1, self.records)
        text = (
            f"{self.records} records sent, {self.records * per_s:.1f} records/sec "
            f"({self.size / _MB * per_s:.2f} MB/sec), {average_ms:.1f} ms avg latency, "
            f"{self.most_ms:.1f} ms max latency"
        )
        if with_percentiles:
            text += "".join(f", {value:.0f} ms {name}" for name, value in self._percentiles().items())
        return text + "."

    def values(self, elapsed_s: float, *, with_percentiles: bool) -> dict[str, object]:
        """Return the line's figures for JSON output: latencies in ms, sizes in bytes, rates per second (CT-98)."""
        per_s = 1 / max(1e-3, elapsed_s)
        found: dict[str, object] = {
            "records": self.records,
            "seconds": elapsed_s,
            "records_per_second": self.records * per_s,
            "bytes_per_second": self.size * per_s,
            "latency_avg_ms": self.total_ms / max(1, self.records),
            "latency_max_ms": self.most_ms,
        }
        return found | ({"latency_percentiles_ms": self._percentiles()} if with_percentiles else {})

    def _percentiles(self) -> dict[str, float]:
        ordered = sorted(self.samples) or [0.0]
        return {name: ordered[min(len(ordered) - 1, int(part * len(ordered)))] for part, name in _PERCENTILES}


def metric_lines(metrics: Mapping[tuple[str, str], float]) -> list[str]:
    """Return metrics as lines as Kafka's tools print them, by group and name."""
    names = {f"{group}:{name}": value for (group, name), value in sorted(metrics.items())}
    width = max(map(len, names), default=0)
    rows = [f"{name:<{width}} : {value:.3f}" for name, value in names.items()]
    return ["", f"{'Metric Name':<{width}}   Value", *rows]
