"""Counts a worker's jobs by topic and outcome, their durations and the jobs in progress, and formats the counts for
Prometheus.

Pure. The histogram's bounds are fixed, so its size does not depend on the jobs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Final

#: Upper bounds of the histogram of durations, in seconds.
BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

#: How a job can end. "archived": it failed at the last delivery that the group allows, so its record is not delivered
#: again.
OUTCOMES: Final = ("accepted", "released", "rejected", "archived")


class Tally:
    """The counts of one worker. `topics`: the topics of its jobs, so that each has its time series from the start."""

    def __init__(self, topics: list[str]) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter(
            {(topic, outcome): 0 for topic in topics for outcome in OUTCOMES}
        )
        self.events: Counter[str] = Counter({"lost_locks": 0, "refused_acknowledgements": 0, "given_back": 0})
        self.running = 0
        self.waiting = 0
        self.held = 0
        self._durations: dict[str, list[int]] = {topic: [0] * (len(BOUNDS) + 1) for topic in topics}
        self._seconds: dict[str, float] = dict.fromkeys(topics, 0.0)

    @property
    def finished(self) -> int:
        """How many jobs have ended."""
        return self.outcomes.total()

    def job(self, topic: str, outcome: str, seconds: float) -> None:
        """Count a job that has ended."""
        self.outcomes[topic, outcome] += 1
        self._durations[topic][bisect_left(BOUNDS, seconds)] += 1
        self._seconds[topic] += seconds

    def line(self) -> str:
        """Return the progress line for a terminal."""
        by_outcome: Counter[str] = Counter()
        for (_, outcome), count in self.outcomes.items():
            by_outcome[outcome] += count
        done, again, rejected, archived = (by_outcome[name] for name in OUTCOMES)
        ended = f"{done} done, {again} released, {rejected} rejected, {archived} archived at the delivery limit"
        if refused := self.events["refused_acknowledgements"]:
            ended += f", of which {refused} may run again, as the cluster did not accept the outcome"
        return f"{ended}; {self.running} running, {self.waiting} waiting"

    def text(self) -> str:
        """Return all counts in Prometheus' text format."""
        lines = _head("sharegroups_worker_jobs_total", "counter", "Jobs by outcome.")
        for (topic, outcome), count in sorted(self.outcomes.items()):
            lines.append(f'sharegroups_worker_jobs_total{{topic="{topic}",outcome="{outcome}"}} {count}')
        for event, count in sorted(self.events.items()):
            name, meaning = _EVENTS[event]
            lines += [*_head(name, "counter", meaning), f"{name} {count}"]
        for (name, meaning), count in zip(_STATES, (self.running, self.waiting, self.held), strict=True):
            lines += [*_head(name, "gauge", meaning), f"{name} {count}"]
        name = "sharegroups_worker_job_seconds"
        lines += _head(name, "histogram", "How long handlers ran.")
        for topic, counts in sorted(self._durations.items()):
            total = 0
            for bound, count in zip([*map(str, BOUNDS), "+Inf"], counts, strict=True):
                total += count
                lines.append(f'{name}_bucket{{topic="{topic}",le="{bound}"}} {total}')
            lines += [
                f'{name}_sum{{topic="{topic}"}} {self._seconds[topic]:.6f}',
                f'{name}_count{{topic="{topic}"}} {total}',
            ]
        return "\n".join(lines) + "\n"


#: Names and meanings of the counters in `Tally.events`.
_EVENTS: Final = {
    "lost_locks": ("sharegroups_worker_lost_locks_total", "Locks that expired while their job waited or ran."),
    "refused_acknowledgements": (
        "sharegroups_worker_refused_acknowledgements_total",
        "Outcomes that the cluster did not accept; those jobs run again.",
    ),
    "given_back": (
        "sharegroups_worker_given_back_total",
        "Records released without running their job: the worker stopped, or was too busy.",
    ),
}
#: Names and meanings of the gauges: jobs running, waiting and held.
_STATES: Final = (
    ("sharegroups_worker_jobs_running", "Jobs that handlers are working on."),
    ("sharegroups_worker_jobs_waiting", "Records that wait for a handler."),
    ("sharegroups_worker_jobs_held", "Failed jobs whose records are held here until their delay is over."),
)


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
